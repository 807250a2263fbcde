//! Ctrl-C, or the end of the terminal, ends a run; its results so far are still printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether the user wants to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first SIGINT, SIGTERM or SIGHUP is only noted; a second one ends the
    /// process. SIGHUP stays ignored if it was, as under `nohup`.
    pub fn catch() -> Self {
        let interrupt = Self::default();
        let signals = [SIGINT, SIGTERM, SIGHUP];
        for signal in signals.into_iter().filter(|signal| *signal != SIGHUP || !is_ignored(SIGHUP))
        {
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

/// Whether this process ignores a signal, as its parent may have decided.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

/// Ignores SIGINT and SIGTERM from now on: the launcher gets them too, and ends this process.
pub fn leave_to_others() {
    for signal in [SIGINT, SIGTERM] {
        // If registration fails, a signal ends the process as usual.
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
}
