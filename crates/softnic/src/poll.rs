//! Waiting for descriptors.

use rdmalab_engine::backend::Deadline;

use crate::cancel::NoCancel;

/// Up to four descriptors to be polled for reading; the kernel ignores negative ones.
pub(crate) fn readable(fds: &[i32]) -> [libc::pollfd; 4] {
    let mut polls = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; 4];
    for (poll, fd) in polls.iter_mut().zip(fds) {
        poll.fd = *fd;
    }
    polls
}

/// Waits up to `timeout_ms` (-1: without a bound) until one of `fds` is readable. Returns whether
/// one is.
pub(crate) fn wait_readable(fds: &[i32], timeout_ms: i32) -> bool {
    let _no_cancel = NoCancel::new();
    let mut polls = readable(fds);
    // SAFETY: an array of pollfds on our stack; negative descriptors are ignored by the kernel.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout_ms) > 0 }
}

/// Waits up to `timeout_ns`, and stores in `polls` which descriptors are ready.
pub(crate) fn wait_for(polls: &mut [libc::pollfd; 4], timeout_ns: u64) {
    let _no_cancel = NoCancel::new();
    let limit = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    let count = polls.len() as libc::nfds_t;
    // SAFETY: a live array of pollfds, whose negative descriptors are ignored by the kernel, and a
    // live time; no signal mask.
    unsafe { libc::ppoll(polls.as_mut_ptr(), count, &raw const limit, std::ptr::null()) };
}

/// The timeout for `poll` of a caller that waits until `until`, ms: -1 for no bound, `None` if the
/// time is over. A wait may end early, but not later than the kernel's timer slack allows.
pub(crate) fn limit_ms(until: Deadline) -> Option<i32> {
    match until {
        Deadline::Now => None,
        Deadline::Never => Some(-1),
        Deadline::At(ns) => {
            let left_ns = ns.checked_sub(crate::clock::now_ns()).filter(|left_ns| *left_ns > 0)?;
            Some(i32::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX))
        }
    }
}
