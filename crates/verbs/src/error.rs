//! Errors of verbs.

use std::fmt;
use std::io;

/// A verb that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsError {
    /// The verb, as in C: `ibv_create_qp`.
    pub verb: &'static str,
    /// The Linux error number.
    pub errno: i32,
    /// The cause, the limit and what to do, if the library is this project's; else only the error
    /// number is known.
    pub sentence: Option<String>,
}

impl fmt::Display for VerbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.verb)?;
        match &self.sentence {
            Some(sentence) => f.write_str(sentence),
            None => write!(f, "{}", io::Error::from_raw_os_error(self.errno)),
        }
    }
}

impl std::error::Error for VerbsError {}

impl From<VerbsError> for io::Error {
    fn from(error: VerbsError) -> Self {
        let kind = io::Error::from_raw_os_error(error.errno).kind();
        io::Error::new(kind, error)
    }
}

/// A post that was refused, in part or wholly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostError {
    /// How many requests of the list were posted. The next one was refused, and none after it was
    /// checked.
    pub posted: usize,
    /// The cause. `ENOMEM` means that the queue is full: poll completions, then post again.
    pub error: VerbsError,
}

impl PostError {
    /// Whether the queue was full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.error.errno == libc::ENOMEM
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        if self.is_full() && self.error.sentence.is_none() {
            f.write_str(" (the queue is full: poll completions first)")?;
        }
        write!(f, " [after {} posted]", self.posted)
    }
}

impl std::error::Error for PostError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_replaces_the_bare_number() {
        let bare = VerbsError { verb: "ibv_reg_mr", errno: libc::ENOMEM, sentence: None };
        assert!(bare.to_string().starts_with("ibv_reg_mr: Cannot allocate memory"), "{bare}");
        let said = VerbsError { sentence: Some("too long".into()), ..bare };
        assert_eq!(said.to_string(), "ibv_reg_mr: too long");
        assert_eq!(io::Error::from(said).kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn a_full_queue_says_what_to_do() {
        let error = VerbsError { verb: "ibv_post_send", errno: libc::ENOMEM, sentence: None };
        let text = PostError { posted: 3, error }.to_string();
        assert!(text.contains("poll completions") && text.ends_with("[after 3 posted]"), "{text}");
    }
}
