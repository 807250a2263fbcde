//! What is wrong with a file, or has no effect.

use std::fmt;

use crate::position::Position;

/// One error: `FILE:LINE:COLUMN: what; the right key`.
#[derive(Debug, Clone)]
pub struct ConfigError {
    /// Where; `None` for a file that cannot be read.
    pub at: Option<Position>,
    /// What is wrong.
    pub what: String,
    /// What is right, where that is known.
    pub right: Option<String>,
    /// The change that corrects the file, where that is certain.
    pub fix: Option<Fix>,
}

/// A piece of a file, and what replaces it.
#[derive(Debug, Clone)]
pub struct Fix {
    /// The piece.
    pub at: Position,
    /// Its replacement.
    pub text: String,
}

impl ConfigError {
    /// An error at a place.
    #[must_use]
    pub fn new(at: &Position, what: impl Into<String>) -> Self {
        ConfigError { at: Some(at.clone()), what: what.into(), right: None, fix: None }
    }

    /// An error of a file as a whole.
    #[must_use]
    pub fn of_file(path: &str, what: impl fmt::Display) -> Self {
        ConfigError { at: None, what: format!("{path}: {what}"), right: None, fix: None }
    }

    /// The same with what is right.
    #[must_use]
    pub fn right(self, right: impl Into<String>) -> Self {
        ConfigError { right: Some(right.into()), ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = &self.at {
            write!(f, "{at}: ")?;
        }
        f.write_str(&self.what)?;
        if let Some(right) = &self.right {
            write!(f, "; {right}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// A key that is accepted and changes nothing.
#[derive(Debug, Clone)]
pub struct Notice {
    /// Where the key stands.
    pub at: Position,
    /// The key.
    pub key: String,
    /// Why it has no effect.
    pub why: &'static str,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} has no effect: {}", self.at, self.key, self.why)
    }
}

/// Everything that reading a tree has found.
#[derive(Debug, Default)]
pub struct Findings {
    /// What is wrong.
    pub errors: Vec<ConfigError>,
    /// What has no effect.
    pub notices: Vec<Notice>,
}

impl Findings {
    /// Adds an error.
    pub fn error(&mut self, error: ConfigError) {
        self.errors.push(error);
    }
}
