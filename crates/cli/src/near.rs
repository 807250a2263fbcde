//! A word that was meant, for one that there is not.

use strsim::osa_distance;

/// Letters that may be wrong, missing, too many or in each other's place.
const SLIPS: usize = 2;

/// `; did you mean X?` where one of the words is surely meant, else nothing.
pub fn hint<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> String {
    meant(word, words).map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
}

/// The one word that begins with it or has it inside; else the one that is nearest to it, and near.
fn meant<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let words: Vec<&str> = words.collect();
    let word = word.to_lowercase();
    let only = |is_it: &dyn Fn(&str) -> bool| {
        let mut found = words.iter().filter(|other| is_it(&other.to_lowercase()));
        found.next().filter(|_| !word.is_empty() && found.next().is_none()).copied()
    };
    // What is typed short may be wrong as well: `veirtel` of `viertel2006`.
    let slips = |other: &str| {
        let start: String = other.chars().take(word.chars().count()).collect();
        osa_distance(&word, other).min(osa_distance(&word, &start))
    };
    let least = words.iter().map(|other| slips(&other.to_lowercase())).min().unwrap_or(0);
    let is_near = least <= SLIPS && 2 * least < word.chars().count();
    only(&|other| other.starts_with(&word))
        .or_else(|| only(&|other| other.contains(&word)))
        .or_else(|| only(&|other| is_near && slips(other) == least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_is_found_and_nothing_is_guessed() {
        let keys = ["fukuoka2021", "macarthur2012", "mordkovich2013", "potter2018", "viertel2006"];
        for (word, found) in [
            ("viertel", "viertel2006"),
            ("Potter", "potter2018"),
            ("veirtel", "viertel2006"),
            ("potter2081", "potter2018"),
            ("mordkovitch2013", "mordkovich2013"),
            ("2012", "macarthur2012"),
        ] {
            assert_eq!(meant(word, keys.into_iter()), Some(found), "{word}");
        }
        // Two of them, none of them, and too short to tell.
        for word in ["m", "201", "ping", "", "xy"] {
            assert_eq!(meant(word, keys.into_iter()), None, "{word}");
        }
        assert_eq!(hint("potter", keys.into_iter()), "; did you mean potter2018?");
        assert_eq!(hint("ping", keys.into_iter()), "");
    }
}
