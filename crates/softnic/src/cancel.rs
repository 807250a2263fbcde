//! Threads that are cancelled (`pthread_cancel`) inside a verb.
//!
//! With an adapter, `ibv_get_cq_event` and `ibv_get_async_event` are a `read`, which is a
//! cancellation point. rping and others rely on it. No other verb is a cancellation point. Here
//! verbs make system calls that are cancellation points while they hold locks, so they disable
//! cancellation. The two waits enable it while they hold no lock, and clean up if the thread ends.

use std::ffi::c_int;

const DISABLED: c_int = 1;

// Declared here because the thread may end inside the call, which unwinds. The usual declarations
// promise that the function does not unwind.
unsafe extern "C-unwind" {
    #[link_name = "poll"]
    fn poll_or_end(fds: *mut libc::pollfd, count: libc::nfds_t, timeout_ms: c_int) -> c_int;
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

fn set_state(state: c_int) -> c_int {
    let mut before = DISABLED;
    // SAFETY: a pointer to a live integer; glibc refuses states that do not exist.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// Disables cancellation of the calling thread until this is dropped.
#[derive(Debug)]
pub struct NoCancel {
    before: c_int,
}

impl NoCancel {
    /// Disables cancellation from now on.
    #[allow(clippy::new_without_default)]
    pub fn new() -> NoCancel {
        NoCancel { before: set_state(DISABLED) }
    }

    /// Waits as `poll` does. If the thread was cancellable before, it may be cancelled meanwhile;
    /// then this unwinds.
    pub(crate) fn poll(&self, fds: &mut [libc::pollfd], timeout_ms: c_int) -> c_int {
        set_state(self.before);
        // SAFETY: a live array; negative descriptors are ignored by the kernel.
        let found = unsafe { poll_or_end(fds.as_mut_ptr(), fds.len() as _, timeout_ms) };
        // Read before anything else can change it.
        let error = std::io::Error::last_os_error();
        set_state(DISABLED);
        if found < 0 && error.kind() == std::io::ErrorKind::Interrupted { -1 } else { found.max(0) }
    }
}

impl Drop for NoCancel {
    fn drop(&mut self) {
        set_state(self.before);
    }
}
