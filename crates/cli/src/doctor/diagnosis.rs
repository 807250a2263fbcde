//! What the doctor says about one thing of the machine.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Good,
    /// The machine does not tell.
    Unknown,
    /// Worth knowing: it depends on what is measured.
    Note,
    /// Makes it slower, or less predictable.
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

/// One thing of the machine and how it affects measurements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Of what: `governor`, `mlx5_0 MTU`.
    pub about: String,
    /// How bad.
    pub level: Level,
    /// What is there.
    pub found: String,
    /// What it does to measurements, and what to do; empty where it is good.
    pub advice: String,
    /// What fixes it; empty where no command does.
    pub commands: Vec<String>,
}

impl Diagnosis {
    /// One without advice.
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
