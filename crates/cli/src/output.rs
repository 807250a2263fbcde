//! Standard output, and its first error.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, PoisonError};

/// The first error that is reported.
static ERROR: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints. An error is kept for [`finish`].
pub fn print(text: fmt::Arguments<'_>) {
    note(io::stdout().write_fmt(text));
}

/// Flushes.
///
/// # Errors
/// Output was lost, for example on a full disk. A reader that stops early (`rdmalab | head`) is not
/// an error.
pub fn finish() -> Result<(), String> {
    note(io::stdout().flush());
    let error = ERROR.lock().unwrap_or_else(PoisonError::into_inner).take();
    error.map_or(Ok(()), |error| Err(format!("could not write all output: {error}")))
}

fn note(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != ErrorKind::BrokenPipe
    {
        ERROR.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}
