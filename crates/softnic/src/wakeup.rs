//! The means by which peers wake this process.

use std::os::fd::{AsFd, AsRawFd};

use rdmalab_ring::doorbell::{Doorbell, Event};

/// The doorbell that this process arms before it sleeps, and the event that peers signal then.
pub(crate) struct Wakeup {
    /// In the shared segment; peers check it after each push.
    pub(crate) doorbell: Doorbell,
    /// The event that peers signal if the doorbell is armed.
    pub(crate) event: Event,
}

impl Wakeup {
    /// The descriptor of the event.
    pub(crate) fn fd(&self) -> i32 {
        self.event.as_fd().as_raw_fd()
    }
}
