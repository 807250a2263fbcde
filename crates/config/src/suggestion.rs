//! The known word that an unknown one may stand for.

use strsim::osa_distance;

/// Most edits (a letter wrong, missing, added, or two swapped) of a word that is suggested.
const MAX_EDITS: usize = 2;

/// The only word with the fewest edits, if they are few.
pub(crate) fn meant<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let mut found: Vec<(usize, &str)> =
        words.map(|other| (osa_distance(&lower, &other.to_lowercase()), other)).collect();
    found.sort_unstable();
    found.dedup();
    let &(least, best) = found.first()?;
    let is_only = found.get(1).is_none_or(|&(second, _)| second > least);
    let is_near = least <= MAX_EDITS && 2 * least < word.chars().count();
    (is_only && is_near).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_is_found_and_nothing_is_guessed() {
        let keys = ["queuelen", "rate", "mode", "mask", "in", "out"];
        for (word, found) in [
            ("queulen", Some("queuelen")),
            ("Rate", Some("rate")),
            ("modes", Some("mode")),
            ("i", None),
            ("zzzz", None),
            ("mxxe", None),
        ] {
            assert_eq!(meant(word, keys.into_iter()), found, "{word}");
        }
    }
}
