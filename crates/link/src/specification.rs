//! The value of `--faults`, for example `seed=7; drop 1% of request; drop-response 2; damming`.
//!
//! Semicolons or line ends separate the parts. Each part is the seed, a fault rule
//! ([`crate::faults`]), or the name of another quirk with its parameters.

use crate::draws::Draws;
use crate::faults::parse::{ACTIONS, rule};
use crate::faults::{Rule, Rules};
use crate::quirk::chain::MAX_LABELS;
use crate::quirk::damming::Damming;
use crate::quirk::drop_response::DropResponse;
use crate::quirk::{Chain, Quirk};

/// The error in a specification, on one line: the faulty part, the reason, and what is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpecError(String);

impl std::fmt::Display for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

/// Parses the words after a quirk's name.
type Parse = fn(&[&str]) -> Result<Box<dyn Quirk>, String>;

/// The quirks that a specification selects by name.
const NAMED: [(&str, Parse); 2] =
    [("drop-response", DropResponse::parse), ("damming", Damming::parse)];

/// A parsed specification; the module documentation describes its syntax.
pub struct Specification {
    draws: Draws,
    rules: Vec<Rule>,
    quirks: Vec<Box<dyn Quirk>>,
    /// For each label of the chain, rules first: the index of its part, seeds not counted.
    rule_parts: Vec<usize>,
    quirk_parts: Vec<usize>,
}

impl std::fmt::Debug for Specification {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let quirks = self.quirks.iter().flat_map(|quirk| quirk.labels());
        f.debug_list()
            .entries(self.rules.iter().map(|rule| rule.text.clone()).chain(quirks))
            .finish()
    }
}

impl Specification {
    /// Reads a specification.
    ///
    /// # Errors
    /// Which part is wrong, why, and what is allowed.
    pub fn parse(text: &str) -> Result<Specification, SpecError> {
        let mut read = Specification {
            draws: Draws::new(1),
            rules: Vec::new(),
            quirks: Vec::new(),
            rule_parts: Vec::new(),
            quirk_parts: Vec::new(),
        };
        let parts = text.split([';', '\n']).map(str::trim).filter(|part| !part.is_empty());
        for (index, part) in parts.enumerate() {
            let at = |reason: String| SpecError(format!("part {} ({part}): {reason}", index + 1));
            read.add(part).map_err(at)?;
        }
        if read.rule_parts.is_empty() && read.quirk_parts.is_empty() {
            return Err(SpecError(format!(
                "{text:?} contains no rule; a rule begins with one of {ACTIONS}"
            )));
        }
        Ok(read)
    }

    fn add(&mut self, part: &str) -> Result<(), String> {
        if let Some(seed) = part.strip_prefix("seed") {
            let seed = seed.trim_start().trim_start_matches('=').trim();
            let wrong = || format!("{seed:?} is not a seed: choose a number below 2^64");
            self.draws = Draws::new(seed.parse().map_err(|_| wrong())?);
            return Ok(());
        }
        let number = self.rule_parts.len() + self.quirk_parts.len();
        if number == MAX_LABELS {
            return Err(format!("too many rules: the limit is {MAX_LABELS}"));
        }
        let words: Vec<&str> = part.split_whitespace().collect();
        let name = words.first().copied().unwrap_or_default();
        match NAMED.iter().find(|(known, _)| *known == name) {
            Some((_, parse)) => {
                self.quirks.push(parse(&words[1..])?);
                self.quirk_parts.push(number);
            }
            None => {
                self.rules.push(rule(part)?);
                self.rule_parts.push(number);
            }
        }
        Ok(())
    }

    /// Draws other random numbers for each stream: one for each repetition of a run. Stream 0 draws
    /// those of the seed itself.
    #[must_use]
    pub fn with_stream(self, stream: u64) -> Specification {
        Specification { draws: self.draws.with_stream(stream), ..self }
    }

    /// Makes random numbers depend on only the lower `bits` of a queue pair's number: see
    /// [`Draws::with_qp_bits`].
    #[must_use]
    pub fn with_qp_bits(self, bits: u32) -> Specification {
        Specification { draws: self.draws.with_qp_bits(bits), ..self }
    }

    /// The labels of the chain that do not come from the first `parts` parts, one bit each.
    pub fn labels_after(&self, parts: usize) -> u64 {
        let all = self.rule_parts.iter().chain(&self.quirk_parts).enumerate();
        all.filter(|(_, part)| **part >= parts).fold(0, |bits, (label, _)| bits | 1 << label)
    }

    /// The specified chain, armed at `start_ns`: first the rules, then the quirks, with one label
    /// each.
    pub fn into_chain(self, start_ns: u64) -> Chain {
        let rules: Option<Box<dyn Quirk>> = match self.rules.is_empty() {
            true => None,
            false => Some(Box::new(Rules::new(self.rules))),
        };
        Chain::new(self.draws, start_ns, rules.into_iter().chain(self.quirks).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_quirks_share_a_specification() {
        let text = "damming; drop 1%; seed=3; drop-response 2; delay 1us";
        let read = Specification::parse(text).unwrap();
        // The last two parts: a quirk, which is the last label, and a rule, which is the second.
        assert_eq!(read.labels_after(2), 0b1010);
        let chain = read.into_chain(0);
        let labels = ["drop 1%", "delay 1us", "damming 75us..1500us", "drop-response 2"];
        assert_eq!(chain.labels(), labels);
        assert!(chain.watches_arrivals());
        assert!(!Specification::parse("drop").unwrap().into_chain(0).watches_arrivals());
        assert!(Specification::parse("rnr-nak").unwrap().into_chain(0).watches_arrivals());
    }

    #[test]
    fn mistakes_teach() {
        for (text, part) in [
            ("damming soon", "not a time range"),
            ("drop; drop-response", "part 2 (drop-response): drop-response needs one number"),
            ("dam", "drop-response N, damming"),
        ] {
            let error = Specification::parse(text).expect_err(text).to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
