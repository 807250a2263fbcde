//! The preload library `librdmalab-signals.so`, if it is in this process.
//!
//! It replaces the C library's `sigaction` and its relatives. A call for SIGSEGV or SIGBUS comes to
//! the function that [`attach`] names, so that our handler stays in front and the program still
//! finds the action that it set.

use std::ffi::c_void;
use std::sync::OnceLock;

/// The type of `sigaction`.
pub(super) type Action =
    unsafe extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32;

/// What `rdmalab_signals_attach_1` fills in. The preload library has the same structure.
#[repr(C)]
struct Functions {
    /// The `sigaction` after the preload library.
    sigaction: Option<Action>,
    /// The handler of a signal that was last set through the preload library; `SIG_DFL` at first.
    last_handler: Option<extern "C" fn(i32) -> usize>,
}

type Attach = unsafe extern "C" fn(usize, Action, *mut Functions) -> i32;

static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();

/// Directs the program's calls for SIGSEGV and SIGBUS to `change`. `front` is the address of our
/// handler. Does nothing without the preload library, or if another copy of this code was first.
pub(super) fn attach(front: usize, change: Action) {
    FUNCTIONS.get_or_init(|| {
        let name = c"rdmalab_signals_attach_1";
        // SAFETY: asks for a name in the program's global scope.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if found.is_null() {
            return None;
        }
        // SAFETY: the name has a version number, and is the preload library's alone.
        let attach = unsafe { std::mem::transmute::<*mut c_void, Attach>(found) };
        let mut functions = Functions { sigaction: None, last_handler: None };
        // SAFETY: `change` may be called from any thread at any time; `functions` has room.
        let is_attached = unsafe { attach(front, change, &mut functions) } == 0;
        is_attached.then_some(functions)
    });
}

/// Whether the preload library calls us.
pub(super) fn is_attached() -> bool {
    functions().is_some()
}

fn functions() -> Option<&'static Functions> {
    FUNCTIONS.get()?.as_ref()
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
    match functions().and_then(|functions| functions.sigaction) {
        // SAFETY: the caller's contract.
        Some(next) => unsafe { next(signal, new, old) },
        // SAFETY: the caller's contract.
        None => unsafe { libc::sigaction(signal, new, old) },
    }
}

/// Whether `handler` was set by a call that the preload library saw. Then the library will also see
/// it replaced.
pub(super) fn has_seen(signal: i32, handler: usize) -> bool {
    functions()
        .and_then(|functions| functions.last_handler)
        .is_some_and(|last_handler| last_handler(signal) == handler)
}
