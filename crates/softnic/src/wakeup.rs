//! How peers wake this process.

use rdmalab_ring::doorbell::{Doorbell, Event};

/// The doorbell that this process arms before it sleeps, and the event that peers signal then.
pub(crate) struct Wakeup {
    /// In the shared segment: peers look at it after each push.
    pub(crate) doorbell: Doorbell,
    /// What peers signal when the doorbell is armed.
    pub(crate) event: Event,
}
