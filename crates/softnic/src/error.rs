//! Errors of the operating system as errors of verbs.

use rdmalab_engine::backend::VerbsError;

/// A verbs error of an operating system's error.
pub(crate) fn os_error(what: &str, error: &std::io::Error) -> VerbsError {
    let errno = error.raw_os_error().unwrap_or(VerbsError::ENOMEM);
    VerbsError::new(errno, format!("{what}: {error}"))
}
