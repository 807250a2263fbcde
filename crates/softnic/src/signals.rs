//! Signals: masks for the device's threads, and how a signal handler ends a wait inside a verb.
//!
//! With an adapter these waits are a `read`. After a signal handler the `read` continues if the
//! handler was installed with `SA_RESTART`; otherwise it fails with `EINTR`. Programs rely on both:
//! qperf ends its measurements by a timer signal, and programs that use `signal()` expect no error.
//! Here the waits are a `poll`, which every handler interrupts, and which does not report which
//! handler ran.

use rdmalab_engine::backend::VerbsError;

/// Signals that a thread raises by itself: their handlers do not interrupt a wait.
const OWN_FAULTS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// Whether a wait that a handler interrupted shall fail: the program has a handler without
/// `SA_RESTART`. Then the wait fails even if a handler with `SA_RESTART` interrupted it.
#[cold]
pub(crate) fn interrupts_waits() -> bool {
    (1..=libc::SIGRTMAX()).filter(|signal| !OWN_FAULTS.contains(signal)).any(does_not_restart)
}

/// Whether a signal has a handler without `SA_RESTART`.
fn does_not_restart(signal: i32) -> bool {
    // SAFETY: an action is plain data; without a new one, sigaction only fills in the present one.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &raw mut action) != 0 {
            return false;
        }
        action
    };
    let is_handled = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
    is_handled && action.sa_flags & libc::SA_RESTART == 0
}

/// The error of a verb whose wait was interrupted.
#[cold]
pub(crate) fn interrupted() -> VerbsError {
    VerbsError::new(libc::EINTR, "a signal handler interrupted the wait for an event")
}

/// Blocks all signals of this thread except those of page faults; returns the former mask.
pub(crate) fn block_signals() -> libc::sigset_t {
    // SAFETY: a signal set is plain data, which sigfillset and pthread_sigmask fill.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        // A fault in a copy needs its handler: the kernel kills a thread that blocks the signal.
        for fault in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigdelset(&raw mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

/// Restores the mask that [`block_signals`] returned.
pub(crate) fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set that `block_signals` saved.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn nothing(_signal: i32) {}

    fn install(flags: i32) {
        // SAFETY: an action is plain data, and this handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
        }
    }

    #[test]
    fn only_a_handler_that_does_not_restart_ends_a_wait() {
        assert!(!does_not_restart(libc::SIGUSR2));
        install(libc::SA_RESTART);
        assert!(!does_not_restart(libc::SIGUSR2));
        install(0);
        assert!(does_not_restart(libc::SIGUSR2) && interrupts_waits());
        assert_eq!(interrupted().errno, libc::EINTR);
    }
}
