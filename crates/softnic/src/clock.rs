//! The soft adapter's clock: `CLOCK_MONOTONIC` in nanoseconds.

/// The current time, ns since an arbitrary time before the process began.
pub(crate) fn now_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// The same, up to some milliseconds ago, in a quarter of the time.
pub(crate) fn coarse_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC_COARSE)
}

/// The processor time that all threads of this process used, ns. A system call.
pub(crate) fn process_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one timespec on our stack.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
