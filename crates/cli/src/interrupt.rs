//! Ctrl-C ends a run; its results so far are still printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether the user wants to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first SIGINT or SIGTERM is only noted; a second one ends the process.
    pub fn catch() -> Self {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the second signal finds the flag set by the first. If registration
            // fails, a signal ends the process as usual.
            let flag = || interrupt.0.clone();
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 1, flag());
            let _ = signal_hook::flag::register(signal, flag());
        }
        interrupt
    }

    /// The flag that the first signal sets.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Whether a signal has arrived.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ignores SIGINT and SIGTERM from now on: the launcher gets them too, and ends this process.
pub fn leave_to_others() {
    for signal in [SIGINT, SIGTERM] {
        // If registration fails, a signal ends the process as usual.
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
}
