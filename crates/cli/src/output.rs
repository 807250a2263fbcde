//! Standard output, and what became of it.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, PoisonError};

/// The first error that matters.
static ERROR: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints. What goes wrong is kept for [`finish`].
pub fn print(text: fmt::Arguments<'_>) {
    note(io::stdout().write_fmt(text));
}

/// Prints what is left.
///
/// # Errors
/// When something that was printed went nowhere, as on a full disk. Whoever reads may stop
/// (`rdmalab | head`), and misses nothing that it wanted.
pub fn finish() -> Result<(), String> {
    note(io::stdout().flush());
    let error = ERROR.lock().unwrap_or_else(PoisonError::into_inner).take();
    error.map_or(Ok(()), |error| Err(format!("standard output is not whole: {error}")))
}

fn note(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != ErrorKind::BrokenPipe
    {
        ERROR.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}
