//! The preload library `librdmalab-signals.so`, if it is in this process.
//!
//! It replaces the C library's `sigaction` and its relatives. A call for SIGSEGV or SIGBUS comes to
//! the function that [`attach`] names, so that our handler stays in front and the program still
//! finds the action that it set.

use std::ffi::c_void;
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The type of `sigaction`.
pub(super) type Action =
    unsafe extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32;

/// Called before (1) and after (0) a function that makes a child. Returns 1 if it must be called
/// afterwards.
pub(super) type MakeChild = extern "C" fn(i32) -> i32;

/// What `rdmalab_signals_attach_2` fills in before it directs the first call to us. The preload
/// library has the same structure.
#[repr(C)]
struct Functions {
    /// The `sigaction` after the preload library: an [`Action`].
    sigaction: AtomicPtr<()>,
    /// Gives the handler of a signal that was last set through the preload library; `SIG_DFL` at
    /// first. An `extern "C" fn(i32) -> usize`.
    last_handler: AtomicPtr<()>,
}

type Attach = unsafe extern "C" fn(usize, Action, MakeChild, *const Functions) -> i32;

static FUNCTIONS: Functions = Functions {
    sigaction: AtomicPtr::new(std::ptr::null_mut()),
    last_handler: AtomicPtr::new(std::ptr::null_mut()),
};

/// Directs the program's calls for SIGSEGV and SIGBUS to `change`, and those that make children to
/// `make_child`. `front` is the address of our handler. Does nothing without the preload library,
/// or if another copy of this code was first.
pub(super) fn attach(front: usize, change: Action, make_child: MakeChild) {
    let name = c"rdmalab_signals_attach_2";
    // SAFETY: asks for a name in the program's global scope.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return;
    }
    // SAFETY: the name has a version number, and is the preload library's alone.
    let attach = unsafe { transmute::<*mut c_void, Attach>(found) };
    // SAFETY: both may be called from any thread at any time; the structure is the library's.
    unsafe { attach(front, change, make_child, &FUNCTIONS) };
}

/// Whether the preload library calls us.
pub(super) fn is_attached() -> bool {
    !FUNCTIONS.sigaction.load(Ordering::Acquire).is_null()
}

/// `sigaction` that reaches the kernel, past the preload library.
///
/// # Safety
/// As for `sigaction`.
pub(super) unsafe fn sigaction(
    signal: i32,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> i32 {
    // SAFETY: the preload library stored a function of this type; null is `None`.
    let next = unsafe {
        transmute::<*mut (), Option<Action>>(FUNCTIONS.sigaction.load(Ordering::Acquire))
    };
    match next {
        // SAFETY: the caller's contract.
        Some(next) => unsafe { next(signal, new, old) },
        // SAFETY: the caller's contract.
        None => unsafe { libc::sigaction(signal, new, old) },
    }
}

/// Whether `handler` was set by a call that the preload library saw. Then the library will also see
/// it replaced.
pub(super) fn has_seen(signal: i32, handler: usize) -> bool {
    type LastHandler = extern "C" fn(i32) -> usize;
    let found = FUNCTIONS.last_handler.load(Ordering::Acquire);
    // SAFETY: the preload library stored a function of this type; null is `None`.
    let last_handler = unsafe { transmute::<*mut (), Option<LastHandler>>(found) };
    last_handler.is_some_and(|last_handler| last_handler(signal) == handler)
}
