//! Every option of every experiment, as a table: for a command line, its help, its completions,
//! for sweeps, and for the columns of a record.

mod table;

use std::fmt;

use rdmalab_measure::words;

use crate::common::number;
use crate::point::{Experiment, Point};

pub use table::OPTIONS;
pub(crate) use table::within;

/// An option. The same one means the same in every experiment.
#[derive(Clone, Copy)]
pub struct Opt {
    /// Its name, as in `--size`.
    pub name: &'static str,
    /// perftest's letter for it, as in `-s`.
    pub letter: Option<char>,
    /// What stands for its value in a help text.
    pub value_name: &'static str,
    /// Unit of the value; empty for words and plain counts.
    pub unit: &'static str,
    /// What it does, in a sentence without a full stop.
    pub help: &'static str,
    /// The experiments that use it.
    pub applies: &'static [Experiment],
    /// Whether numbers are values, so that a range makes sense.
    pub is_number: bool,
    /// The words that are values, next to numbers or instead of them.
    pub words: &'static [&'static str],
    /// What its letter means when given without a value (`-e`).
    pub bare: Option<&'static str>,
    pub(crate) get: fn(&Point) -> String,
    pub(crate) set: fn(&mut Point, &str) -> Result<(), String>,
}

impl fmt::Debug for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opt").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A value that an option does not take, or an option that there is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// The option, as it was given.
    pub option: String,
    /// What is wrong and what to do.
    pub reason: String,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}: {}", self.option, self.reason)
    }
}

impl std::error::Error for OptionError {}

impl Opt {
    /// Its value at a point, as text that [`Opt::set`] takes.
    #[must_use]
    pub fn get(&self, point: &Point) -> String {
        (self.get)(point)
    }

    /// Changes a point.
    ///
    /// # Errors
    /// What is wrong with the text, and what would be right.
    pub fn set(&self, point: &mut Point, text: &str) -> Result<(), OptionError> {
        (self.set)(point, text.trim()).map_err(|reason| self.error(reason))
    }

    /// The values of a list `a,b,c` of words, numbers and ranges, each as text for [`Opt::set`].
    ///
    /// # Errors
    /// What is wrong with the list.
    pub fn values(&self, text: &str) -> Result<Vec<String>, OptionError> {
        if self.splits_itself() {
            return Ok(text.split('/').map(str::to_owned).collect());
        }
        let mut found = Vec::new();
        for part in text.split(',').map(str::trim) {
            if self.is_number && part.contains("..") {
                let numbers =
                    number::range(part, self.is_time()).map_err(|reason| self.error(reason))?;
                found.extend(numbers.iter().map(u64::to_string));
            } else {
                found.push(part.to_owned());
            }
        }
        Ok(found)
    }

    /// Whether an experiment uses it.
    #[must_use]
    pub fn applies_to(&self, experiment: Experiment) -> bool {
        self.applies.contains(&experiment)
    }

    /// Whether its value is itself a list, so that a list of its values is separated by `/`.
    #[must_use]
    pub fn splits_itself(&self) -> bool {
        self.name == "stamps"
    }

    fn is_time(&self) -> bool {
        self.unit == "ns"
    }

    fn error(&self, reason: impl Into<String>) -> OptionError {
        OptionError { option: self.name.to_owned(), reason: reason.into() }
    }
}

/// The option of that name, dashes or underscores.
///
/// # Errors
/// That there is none, with those that there are for the experiment.
pub fn option(experiment: Experiment, name: &str) -> Result<&'static Opt, OptionError> {
    let plain = name.trim_start_matches('-').replace('_', "-");
    let error = |reason: String| OptionError { option: plain.clone(), reason };
    match OPTIONS.iter().find(|o| o.name == plain) {
        Some(found) if found.applies_to(experiment) => Ok(found),
        Some(found) => {
            let others: Vec<&str> = found.applies.iter().map(|e| e.name()).collect();
            let do_it = words::by_number(others.len(), "does", "do");
            Err(error(format!("{experiment} does not use it; {} {do_it}", words::and(&others))))
        }
        None => {
            let names: Vec<&str> =
                OPTIONS.iter().filter(|o| o.applies_to(experiment)).map(|o| o.name).collect();
            let what = "there is no such option; there are";
            Err(error(format!("{what} {}", names.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_letters_are_used_once() {
        for (i, a) in OPTIONS.iter().enumerate() {
            assert!(!a.applies.is_empty() && !a.help.ends_with('.'), "{}", a.name);
            assert!(a.is_number || !a.words.is_empty(), "{}", a.name);
            for b in &OPTIONS[i + 1..] {
                assert_ne!(a.name, b.name);
                assert!(a.letter.is_none() || a.letter != b.letter, "{} {}", a.name, b.name);
            }
        }
    }

    #[test]
    fn what_an_option_says_it_also_takes() {
        for experiment in Experiment::ALL {
            for option in OPTIONS {
                let mut point = Point::default_for(*experiment);
                let text = option.get(&point);
                option.set(&mut point, &text).unwrap();
                assert_eq!(point, Point::default_for(*experiment), "--{} {text}", option.name);
                for word in option.words.iter().chain(&option.bare) {
                    option.set(&mut point, word).unwrap();
                    assert_eq!(option.get(&point), *word, "--{}", option.name);
                }
                if option.is_number {
                    let number = if option.name == "mtu" { "256" } else { "2" };
                    option.set(&mut point, number).unwrap();
                    assert!(option.get(&point).starts_with('2'), "--{}", option.name);
                }
            }
        }
    }

    #[test]
    fn each_option_changes_the_point() {
        for option in OPTIONS {
            let mut point = Point::default_for(Experiment::Oneway);
            let values = ["3", "4", "rc", "uc", "send", "read", "busy", "event", "spin", "sleep"]
                .iter()
                .chain(option.words);
            let changed = values.filter(|text| {
                let before = point.clone();
                option.set(&mut point, text).is_ok() && before != point
            });
            assert!(changed.count() > 0, "--{}", option.name);
        }
    }

    #[test]
    fn errors_teach() {
        let mut point = Point::default_for(Experiment::Ping);
        let of = |name| option(Experiment::Ping, name).unwrap();
        let text = of("transport").set(&mut point, "xrc").unwrap_err().to_string();
        assert_eq!(text, "--transport: \"xrc\" is no transport: choose one of rc, uc, ud");
        let text = of("mtu").set(&mut point, "1500").unwrap_err().to_string();
        assert!(text.starts_with("--mtu: ") && text.contains("4096"), "{text}");
        let text = option(Experiment::Ping, "stamps").unwrap_err().to_string();
        assert!(text.contains("oneway does"), "{text}");
        let text = option(Experiment::Ping, "--sise").unwrap_err().to_string();
        assert!(text.starts_with("--sise: there is no such option") && text.contains("size"));
    }

    #[test]
    fn polling_of_both_sides_is_one_option_too() {
        let mut point = Point::default_for(Experiment::Ping);
        let poll = option(Experiment::Ping, "poll").unwrap();
        poll.set(&mut point, poll.bare.unwrap()).unwrap();
        assert_eq!(poll.get(&point), "event");
        option(Experiment::Ping, "poll_recv").unwrap().set(&mut point, "busy").unwrap();
        assert_eq!(poll.get(&point), "mixed");
    }
}
