//! Errors in a file of a study: which file, where, and what is allowed.

use std::fmt;

/// A study that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file, such as `potter2018/plan.toml`.
    pub file: String,
    /// The entry or the line, what is wrong with it, and what is allowed.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.what)
    }
}

impl std::error::Error for Error {}

/// One line for a TOML error: the line of the file, and the message without the source excerpt.
pub(crate) fn toml(file: &str, text: &str, error: &toml::de::Error) -> Error {
    let line =
        error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let message = error.message().replace('\n', "; ");
    let what = match line {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    };
    Error { file: file.to_owned(), what }
}
