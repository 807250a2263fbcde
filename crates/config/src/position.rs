//! Where something stands in a file.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The text of one file.
#[derive(Debug)]
pub struct Source {
    /// As errors name the file.
    pub path: String,
    /// Its content.
    pub text: String,
    /// Whether it is JSON, and libconfig otherwise.
    pub is_json: bool,
}

/// A piece of a file. As text it is `FILE:LINE:COLUMN` of its first character.
#[derive(Clone)]
pub struct Position {
    source: Arc<Source>,
    start: usize,
    end: usize,
}

impl Position {
    /// The bytes `bytes` of `source`.
    #[must_use]
    pub fn new(source: &Arc<Source>, bytes: Range<usize>) -> Self {
        Position { source: Arc::clone(source), start: bytes.start, end: bytes.end }
    }

    /// The file.
    #[must_use]
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The bytes of the file's text.
    #[must_use]
    pub fn bytes(&self) -> Range<usize> {
        self.start..self.end
    }

    /// The text of the piece.
    #[must_use]
    pub fn text(&self) -> &str {
        self.source.text.get(self.bytes()).unwrap_or("")
    }

    /// The line of the first character, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.before().matches('\n').count() + 1
    }

    /// The column of the first character, in characters, from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        let line = self.before().rsplit('\n').next().unwrap_or("");
        line.chars().count() + 1
    }

    /// From here to the end of `last`. Pieces of different files do not join: this is `self` then.
    #[must_use]
    pub fn until(&self, last: &Position) -> Position {
        let end = if Arc::ptr_eq(&self.source, &last.source) { last.end } else { self.end };
        Position { end, ..self.clone() }
    }

    fn before(&self) -> &str {
        self.source.text.get(..self.start).unwrap_or("")
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.source.path, self.line(), self.column())
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
