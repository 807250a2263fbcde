//! Event descriptors that programs may poll.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rdmalab_engine::backend::{VerbsError, VerbsResult};

use crate::cancel::NoCancel;

/// An eventfd in semaphore mode: readable while its count is above zero.
pub(crate) struct CountingEvent {
    fd: OwnedFd,
}

impl CountingEvent {
    pub(crate) fn create() -> VerbsResult<CountingEvent> {
        // SAFETY: eventfd takes no pointers.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if raw < 0 {
            let error = std::io::Error::last_os_error();
            return Err(VerbsError::new(
                error.raw_os_error().unwrap_or(VerbsError::ENOMEM),
                format!("cannot make an event descriptor: {error}"),
            ));
        }
        // SAFETY: the kernel just returned this descriptor, and nothing else uses it.
        Ok(CountingEvent { fd: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// Adds one to the count.
    pub(crate) fn add_one(&self) {
        // The caller holds a lock, so it must not be cancelled here.
        let _no_cancel = NoCancel::new();
        let one = 1u64;
        // SAFETY: eight readable bytes on our stack.
        unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Takes one from the count if it is above zero; never blocks.
    pub(crate) fn take_one(&self) -> bool {
        let _no_cancel = NoCancel::new();
        if !self.is_ready(0) {
            return false;
        }
        let mut value = 0u64;
        // SAFETY: eight writable bytes on our stack.
        unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut value).cast(), 8) == 8 }
    }

    /// Waits up to `timeout_ms` (-1: for ever) for the count to be above zero.
    pub(crate) fn is_ready(&self, timeout_ms: i32) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd on our stack.
        unsafe { libc::poll(&raw mut poll, 1, timeout_ms) > 0 }
    }
}

impl AsRawFd for CountingEvent {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
