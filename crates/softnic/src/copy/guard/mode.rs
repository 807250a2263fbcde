//! How faults of copies are caught now.

use std::sync::atomic::{AtomicU8, Ordering};

/// How faults are caught now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// By system calls that report bad addresses. Also before [`super::install`].
    Syscall = 0,
    /// By our signal handler.
    Signal = 1,
    /// Not at all.
    Off = 2,
}

static MODE: AtomicU8 = AtomicU8::new(Mode::Syscall as u8);

/// Whether copies access user memory by their own instructions. Until [`super::install`] they do
/// not.
#[inline]
pub(crate) fn is_direct() -> bool {
    MODE.load(Ordering::Relaxed) != Mode::Syscall as u8
}

/// Changes the mode. Async-signal-safe.
pub(super) fn set(mode: Mode) {
    MODE.store(mode as u8, Ordering::Relaxed);
}
