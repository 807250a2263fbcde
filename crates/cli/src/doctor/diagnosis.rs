//! One finding of the doctor.

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// No problem.
    Good,
    /// The machine does not report it.
    Unknown,
    /// May matter, depending on what is measured.
    Note,
    /// Makes measurements slower or less predictable.
    Hurts,
}

impl Level {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Unknown => "?",
            Self::Note => "note",
            Self::Hurts => "HURTS",
        }
    }
}

/// A property of the machine and its effect on measurements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The property: `governor`, `mlx5_0 MTU`.
    pub about: String,
    /// The severity.
    pub level: Level,
    /// The value that was found.
    pub found: String,
    /// The effect on measurements, and what to do; empty if there is no problem.
    pub advice: String,
    /// Commands that fix it; empty if no command does.
    pub commands: Vec<String>,
}

impl Diagnosis {
    /// A finding without advice.
    pub fn new(about: &str, level: Level, found: impl Into<String>) -> Self {
        let (about, found) = (about.to_owned(), found.into());
        Self { about, level, found, advice: String::new(), commands: Vec::new() }
    }

    pub fn good(about: &str, found: impl Into<String>) -> Self {
        Self::new(about, Level::Good, found)
    }

    pub fn unknown(about: &str, found: impl Into<String>) -> Self {
        Self::new(about, Level::Unknown, found)
    }

    pub fn note(about: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..Self::new(about, Level::Note, found) }
    }

    pub fn hurts(about: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..Self::new(about, Level::Hurts, found) }
    }

    pub fn fixed_by(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }
}
