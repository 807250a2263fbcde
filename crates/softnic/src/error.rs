//! Errors of the operating system as errors of verbs.

use rdmalab_engine::backend::VerbsError;

/// Converts an error of the operating system.
pub(crate) fn os_error(what: &str, error: &std::io::Error) -> VerbsError {
    let errno = error.raw_os_error().unwrap_or(VerbsError::ENOMEM);
    VerbsError::new(errno, format!("{what}: {error}"))
}
