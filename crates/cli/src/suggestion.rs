//! Suggests the known word that an unknown one may stand for.

use strsim::osa_distance;

/// Most edits (a letter wrong, missing, added, or two swapped) of a word that is suggested.
const MAX_EDITS: usize = 2;

/// `; did you mean X?` if exactly one of the words matches, otherwise empty.
pub fn did_you_mean<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> String {
    meant(word, words).map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
}

/// The only word that begins with `word`, else the only one that contains it, else the only one
/// with the fewest edits.
fn meant<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let words: Vec<&str> = words.collect();
    let word = word.to_lowercase();
    let only = |is_it: &dyn Fn(&str) -> bool| {
        let mut found = words.iter().filter(|other| is_it(&other.to_lowercase()));
        found.next().filter(|_| !word.is_empty() && found.next().is_none()).copied()
    };
    // An abbreviation may have a typing error too: `veirtel` for `viertel2006`.
    let edits = |other: &str| {
        let start: String = other.chars().take(word.chars().count()).collect();
        osa_distance(&word, other).min(osa_distance(&word, &start))
    };
    let least = words.iter().map(|other| edits(&other.to_lowercase())).min().unwrap_or(0);
    let is_near = least <= MAX_EDITS && 2 * least < word.chars().count();
    only(&|other| other.starts_with(&word))
        .or_else(|| only(&|other| other.contains(&word)))
        .or_else(|| only(&|other| is_near && edits(other) == least))
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
        // Two matches, no match, and too short.
        for word in ["m", "201", "ping", "", "xy"] {
            assert_eq!(meant(word, keys.into_iter()), None, "{word}");
        }
        assert_eq!(did_you_mean("potter", keys.into_iter()), "; did you mean potter2018?");
        assert_eq!(did_you_mean("ping", keys.into_iter()), "");
    }
}
