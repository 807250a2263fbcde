//! The result of a copy that met memory which could not be accessed.

use std::fmt;

/// How many bytes at the end of a message become visible after all others, at most.
pub(crate) const TAIL_BYTES: usize = 8;

/// Which range of a copy could not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The range read from.
    Source,
    /// The range written to.
    Destination,
    /// Not known: the processor reported no address, or no way of a guarded copy was left.
    Unknown,
}

/// Memory could not be accessed: not mapped, protected, or behind the end of its file.
///
/// After a failed copy a prefix of the destination, possibly empty, holds the source's bytes; the
/// last byte is never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The range at fault.
    pub side: Side,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.side {
            Side::Source => "the source of a copy is not accessible",
            Side::Destination => "the destination of a copy is not accessible",
            Side::Unknown => "an end of a copy is not accessible",
        })
    }
}

impl std::error::Error for Fault {}
