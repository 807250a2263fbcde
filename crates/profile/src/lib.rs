//! Device profiles as data: what a soft device lets programs have, what it makes them pay, and
//! which way of sending is best on it for that reason.
//!
//! A profile is a TOML file. The shipped ones lie in `profiles/` at the root of the repository and
//! are part of the program; others are named by their path. Nothing here imitates an adapter as a
//! whole: a profile has one or two costs of adapters, and says which it does not have.
#![forbid(unsafe_code)]

mod find;
mod limits;
mod parse;
mod shipped;

pub use find::{MAX_FILE_BYTES, find, is_path};
pub use limits::Limits;
pub use parse::{Error, MAX_RULES};
pub use shipped::{IDEAL, SHIPPED};

/// How a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name, which stands beside each number that is measured under it.
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// What of adapters it imitates.
    pub imitates: String,
    /// What it does not.
    pub lacks: String,
    /// Where that is known from; empty: it is made up.
    pub source: String,
    /// The limits of a device under it.
    pub limits: Limits,
    /// Those that the file sets: name and number.
    pub lowered: Vec<(&'static str, u32)>,
    /// Rules of the language of faults, one in each: what packets cost.
    pub rules: Vec<String>,
    /// What is best under it, by construction.
    pub optima: Vec<Optimum>,
}

/// What is best, and for which reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optimum {
    /// The question, as `rdmalab advise --ask` names it.
    pub ask: String,
    /// The goal, as `rdmalab advise --for` names it.
    pub goal: String,
    /// The best way; empty where several are as good.
    pub best: String,
    /// Ways that are worse.
    pub worse: Vec<String>,
    /// Why.
    pub because: String,
}

impl Profile {
    /// Whether a device is under it as it is without: there is nothing to tell apart then.
    #[must_use]
    pub fn is_ideal(&self) -> bool {
        self.rules.is_empty() && self.lowered.is_empty()
    }

    /// What it does, in one line: its limits and its rules.
    #[must_use]
    pub fn does(&self) -> String {
        let limits = self.lowered.iter().map(|(name, number)| format!("{name} {number}"));
        limits.chain(self.rules.iter().cloned()).collect::<Vec<_>>().join("; ")
    }
}
