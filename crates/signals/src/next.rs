//! The functions after ours in the linker's search order: the C library's, or those of another
//! library that replaces them.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::sighandler_t;

/// The type of `sigaction`.
pub(crate) type Action =
    unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
/// `signal` and functions of the same type.
pub(crate) type Signal = unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t;
/// `siginterrupt`.
type Interrupt = unsafe extern "C" fn(c_int, c_int) -> c_int;

/// `posix_spawn` and `posix_spawnp`.
type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const libc::posix_spawn_file_actions_t,
    *const libc::posix_spawnattr_t,
    List,
    List,
) -> c_int;
/// `popen`.
type Popen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE;
/// `system`, in which a thread may end.
type System = unsafe extern "C-unwind" fn(*const c_char) -> c_int;

/// Strings, of which the last is followed by null.
pub(crate) type List = *const *const c_char;
/// `execv` and functions of the same type.
type Execute = unsafe extern "C" fn(*const c_char, List) -> c_int;
/// `execve` and functions of the same type.
type ExecuteWith = unsafe extern "C" fn(*const c_char, List, List) -> c_int;
/// `fexecve`.
type ExecuteFile = unsafe extern "C" fn(c_int, List, List) -> c_int;

/// A function, looked up once.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

pub(crate) static SIGNAL: Next = Next::new(c"signal");
pub(crate) static SYSV_SIGNAL: Next = Next::new(c"__sysv_signal");
pub(crate) static SIGSET: Next = Next::new(c"sigset");
pub(crate) static EXECV: Next = Next::new(c"execv");
pub(crate) static EXECVP: Next = Next::new(c"execvp");
pub(crate) static EXECVE: Next = Next::new(c"execve");
pub(crate) static EXECVPE: Next = Next::new(c"execvpe");
pub(crate) static POSIX_SPAWN: Next = Next::new(c"posix_spawn");
pub(crate) static POSIX_SPAWNP: Next = Next::new(c"posix_spawnp");
static POPEN: Next = Next::new(c"popen");
static SYSTEM: Next = Next::new(c"system");
static FEXECVE: Next = Next::new(c"fexecve");
static SIGACTION: Next = Next::new(c"sigaction");
static SIGINTERRUPT: Next = Next::new(c"siginterrupt");

/// Looks all of them up, so that no call has to: a call may come from a handler.
pub(crate) fn find_all() {
    for next in [&SIGNAL, &SYSV_SIGNAL, &SIGSET, &SIGACTION, &SIGINTERRUPT] {
        next.find();
    }
    for next in [&POSIX_SPAWN, &POSIX_SPAWNP, &POPEN, &SYSTEM] {
        next.find();
    }
    for next in [&EXECV, &EXECVP, &EXECVE, &EXECVPE, &FEXECVE] {
        next.find();
    }
}

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    fn get(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.find() } else { address }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: a C string, and the handle for the libraries after this one.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(address, Ordering::Relaxed);
        address
    }

    /// Calls a function of the type of `signal`.
    ///
    /// # Safety
    /// As for the function.
    pub(crate) unsafe fn signal(&self, signal: c_int, handler: sighandler_t) -> sighandler_t {
        // SAFETY: a function of this name has this type; null is `None`.
        match unsafe { core::mem::transmute::<*mut c_void, Option<Signal>>(self.get()) } {
            // SAFETY: the caller's contract.
            Some(next) => unsafe { next(signal, handler) },
            None => {
                not_found();
                libc::SIG_ERR
            }
        }
    }
}

pub(crate) fn sigaction() -> Option<Action> {
    // SAFETY: a function of this name has this type; null is `None`.
    unsafe { core::mem::transmute::<*mut c_void, Option<Action>>(SIGACTION.get()) }
}

/// # Safety
/// As for `siginterrupt`.
pub(crate) unsafe fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: a function of this name has this type; null is `None`.
    match unsafe { core::mem::transmute::<*mut c_void, Option<Interrupt>>(SIGINTERRUPT.get()) } {
        // SAFETY: the caller's contract.
        Some(next) => unsafe { next(signal, interrupts) },
        None => not_found(),
    }
}

/// Calls a function of the type of `execv`.
///
/// # Safety
/// As for the function.
pub(crate) unsafe fn execute(next: &Next, path: *const c_char, words: List) -> c_int {
    // SAFETY: a function of this name has this type; null is `None`.
    match unsafe { core::mem::transmute::<*mut c_void, Option<Execute>>(next.get()) } {
        // SAFETY: the caller's contract.
        Some(next) => unsafe { next(path, words) },
        None => not_found(),
    }
}

/// Calls a function of the type of `execve`.
///
/// # Safety
/// As for the function.
pub(crate) unsafe fn execute_with(
    next: &Next,
    path: *const c_char,
    words: List,
    variables: List,
) -> c_int {
    // SAFETY: a function of this name has this type; null is `None`.
    match unsafe { core::mem::transmute::<*mut c_void, Option<ExecuteWith>>(next.get()) } {
        // SAFETY: the caller's contract.
        Some(next) => unsafe { next(path, words, variables) },
        None => not_found(),
    }
}

/// # Safety
/// As for `fexecve`.
pub(crate) unsafe fn execute_file(fd: c_int, words: List, variables: List) -> c_int {
    // SAFETY: a function of this name has this type; null is `None`.
    match unsafe { core::mem::transmute::<*mut c_void, Option<ExecuteFile>>(FEXECVE.get()) } {
        // SAFETY: the caller's contract.
        Some(next) => unsafe { next(fd, words, variables) },
        None => not_found(),
    }
}

impl Next {
    pub(crate) fn spawn(&self) -> Option<Spawn> {
        // SAFETY: a function of this name has this type; null is `None`.
        unsafe { core::mem::transmute::<*mut c_void, Option<Spawn>>(self.get()) }
    }
}

pub(crate) fn popen() -> Option<Popen> {
    // SAFETY: a function of this name has this type; null is `None`.
    unsafe { core::mem::transmute::<*mut c_void, Option<Popen>>(POPEN.get()) }
}

pub(crate) fn system() -> Option<System> {
    // SAFETY: a function of this name has this type; null is `None`.
    unsafe { core::mem::transmute::<*mut c_void, Option<System>>(SYSTEM.get()) }
}

/// Sets `ENOSYS`, and returns -1.
#[cold]
pub(crate) fn not_found() -> c_int {
    fail(libc::ENOSYS)
}

/// Sets `errno`, and returns -1.
pub(crate) fn fail(errno: c_int) -> c_int {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = errno };
    -1
}
