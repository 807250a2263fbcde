//! Ctrl-C: the results so far are still printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether the user wants to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on SIGINT and SIGTERM are remembered; a second one ends the process at once.
    pub fn catch() -> Self {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the second signal finds the flag set by the first. Without a
            // handler the signal just ends us, as it would any program.
            let flag = || interrupt.0.clone();
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 1, flag());
            let _ = signal_hook::flag::register(signal, flag());
        }
        interrupt
    }

    /// What becomes true with the first signal.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Whether a signal came.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// From now on SIGINT and SIGTERM are ignored: the launcher gets them too, and ends this process.
pub fn leave_to_others() {
    for signal in [SIGINT, SIGTERM] {
        // Without a handler the signal just ends us, as it would any program.
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
}
