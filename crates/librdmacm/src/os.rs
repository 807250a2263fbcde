//! The monotonic clock, random numbers and threads.

/// The monotonic time, ns.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a live structure; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// 32 random bits. They only tell new connections from old ones, so the clock is good enough while
/// the kernel has no random numbers yet.
pub fn random() -> u32 {
    let mut bytes = [0u8; 4];
    // SAFETY: writes at most four bytes to a live array.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), 4, libc::GRND_NONBLOCK) };
    if got == 4 { u32::from_ne_bytes(bytes) } else { now_ns() as u32 }
}

/// Starts a thread with all signals blocked, because signals belong to the program.
///
/// # Errors
/// The kernel's error.
pub fn start_thread(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // SAFETY: signal sets are plain data, which these functions fill.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let spawned = std::thread::Builder::new().name(name.into()).stack_size(256 * 1024).spawn(body);
    // SAFETY: the set that was just saved.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    spawned.map(drop)
}
