//! `librdmalab-signals.so`: a preload library for programs with handlers for SIGSEGV or SIGBUS.
//!
//! The soft device copies to and from memory that the program may unmap at any time, so it needs a
//! handler for the faults of its own copies. UCX, Java and many others set handlers too, and only
//! one can be installed. This library replaces the C library's functions that set handlers. Once
//! the device has attached itself ([`rdmalab_signals_attach_2`]), calls for the two signals come to
//! the device. It keeps its handler installed and the program's behind it: the program's handler
//! gets every fault but the device's, and a query gives what the program set. Java's `libjsig`
//! works in the same way, and Android's `sigchain`, which also keeps the signals unblocked.
//!
//! It also replaces the functions that execute another program or make a child, which inherits
//! ignored signals.
//!
//! Calls for other signals, and all calls before the device attaches, go to the C library.
//!
//! This library does not see system calls that bypass the C library's functions, nor calls of
//! a library that found the C library's function by `dlsym(RTLD_NEXT, ...)`. It remembers the
//! handler that it saw last, by which the device recognises such a call, and then lets that handler
//! stay alone.

mod execute;
#[cfg(target_arch = "x86_64")]
mod execute_list;
mod functions;
mod next;
mod spawn;

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::sighandler_t;

use next::Action;

/// The signals that the device attaches itself for.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The handlers that the program set last, in the order of [`SIGNALS`].
static LAST: [AtomicUsize; 2] = [const { AtomicUsize::new(libc::SIG_DFL) }; 2];

/// Address of the device's handler; 0 until it attaches itself.
static FRONT: AtomicUsize = AtomicUsize::new(0);

/// The device's function of type [`Action`].
static CHANGE: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// The device's function of type [`MakeChild`].
static MAKE_CHILD: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Called before (1) and after (0) a function that makes a child. Returns 1 if it must be called
/// afterwards.
type MakeChild = extern "C" fn(c_int) -> c_int;

/// The process that this library was loaded into, or its last child by `fork`. A child by `vfork`
/// has another process id and the same memory.
static PROCESS: AtomicUsize = AtomicUsize::new(0);

/// Number of calls that go to the C library because no device is attached.
static UNATTACHED_CALLS: AtomicUsize = AtomicUsize::new(0);

/// How often the attaching thread yields to such calls. It may have interrupted one itself.
const YIELDS_MAX: u32 = 10_000;

/// What the device gets when it attaches itself.
#[repr(C)]
pub struct Functions {
    /// `sigaction` of the C library, or of the next library that replaces it: an `Action`.
    pub sigaction: AtomicPtr<()>,
    /// Gives the handler that the program set last for a signal, by a call that this library saw;
    /// `SIG_DFL` if it set none. An `extern "C" fn(c_int) -> sighandler_t`.
    pub last_handler: AtomicPtr<()>,
}

/// Attaches the soft device: from now on `change` executes the program's calls of `sigaction` for
/// SIGSEGV and SIGBUS, and `make_child` is called around those that make children. `front` is the
/// device's handler. Fills `functions` before the first of these calls, and returns when no earlier
/// call is on its way to the C library. Returns 0, or -1 if another copy of the device is attached.
///
/// # Safety
/// `change` and `make_child` can be called from any thread and any handler, and stay loaded, as do
/// `functions`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmalab_signals_attach_2(
    front: usize,
    change: Action,
    make_child: MakeChild,
    functions: *const Functions,
) -> c_int {
    let Some(sigaction) = next::sigaction() else { return -1 };
    let attached = CHANGE.compare_exchange(
        ptr::null_mut(),
        change as *mut (),
        Ordering::Relaxed,
        Ordering::Relaxed,
    );
    if attached.is_err_and(|other| other != change as *mut ()) {
        return -1;
    }
    // SAFETY: by the contract.
    let functions = unsafe { &*functions };
    let last_handler: extern "C" fn(c_int) -> sighandler_t = last_handler;
    functions.last_handler.store(last_handler as *mut (), Ordering::Release);
    functions.sigaction.store(sigaction as *mut (), Ordering::Release);
    MAKE_CHILD.store(make_child as *mut (), Ordering::Release);
    FRONT.store(front, Ordering::SeqCst);
    for _ in 0..YIELDS_MAX {
        if UNATTACHED_CALLS.load(Ordering::SeqCst) == 0 {
            break;
        }
        std::thread::yield_now();
    }
    0
}

extern "C" fn last_handler(signal: c_int) -> sighandler_t {
    index(signal).map_or(libc::SIG_DFL, |index| LAST[index].load(Ordering::Relaxed))
}

/// The place of a signal in [`SIGNALS`]; `None` for all signals that only pass through.
pub(crate) fn index(signal: c_int) -> Option<usize> {
    SIGNALS.iter().position(|own| *own == signal)
}

/// `sigaction` for the program.
///
/// # Safety
/// As for `sigaction`.
pub(crate) unsafe fn change(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(next) = next::sigaction() else { return next::not_found() };
    let Some(index) = index(signal) else {
        // SAFETY: the caller's contract.
        return unsafe { next(signal, new, old) };
    };
    // `old` may be the same memory as `new`.
    // SAFETY: the caller's contract.
    let handler = unsafe { new.as_ref() }.map(|new| new.sa_sigaction);
    UNATTACHED_CALLS.fetch_add(1, Ordering::SeqCst);
    let device = attached();
    if device.is_some() {
        UNATTACHED_CALLS.fetch_sub(1, Ordering::SeqCst);
    }
    let in_own_process = in_own_process();
    let status = match device {
        // SAFETY: the caller's contract.
        Some(device) if in_own_process => unsafe { device(signal, new, old) },
        // A child by `vfork` has actions of its own, but shares the memory in which the device
        // keeps the program's. So it changes the kernel's alone, and sees no handler of ours.
        // SAFETY: the caller's contract.
        Some(device) => unsafe { change_in_vfork_child(next, device, signal, new, old) },
        None => {
            // SAFETY: the caller's contract.
            let status = unsafe { next(signal, new, old) };
            UNATTACHED_CALLS.fetch_sub(1, Ordering::SeqCst);
            status
        }
    };
    if let Some(handler) = handler.filter(|_| status == 0 && in_own_process) {
        LAST[index].store(handler, Ordering::Relaxed);
    }
    status
}

/// The attached device's function.
fn attached() -> Option<Action> {
    let front = FRONT.load(Ordering::SeqCst);
    let device = CHANGE.load(Ordering::Relaxed);
    // SAFETY: stored by `rdmalab_signals_attach_2`, whose caller gave a function of this type; null
    // otherwise, which is `None`.
    let device = unsafe { core::mem::transmute::<*mut (), Option<Action>>(device) };
    device.filter(|_| front != 0)
}

/// The attached device's function that is called around the making of a child.
fn make_child() -> Option<MakeChild> {
    let device = MAKE_CHILD.load(Ordering::Acquire);
    // SAFETY: stored by `rdmalab_signals_attach_2`, whose caller gave a function of this type; null
    // otherwise, which is `None`.
    unsafe { core::mem::transmute::<*mut (), Option<MakeChild>>(device) }
}

/// # Safety
/// As for `sigaction`.
#[cold]
unsafe fn change_in_vfork_child(
    next: Action,
    device: Action,
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: an action of zeroes is complete; otherwise the caller's contract.
    unsafe {
        // What the program set, as long as the device's handler is in front of it.
        let mut behind: libc::sigaction = core::mem::zeroed();
        let mut found: libc::sigaction = core::mem::zeroed();
        let is_known = device(signal, ptr::null(), &mut behind) == 0;
        let status = next(signal, new, &mut found);
        if status == 0 && !old.is_null() {
            let is_front = found.sa_sigaction == FRONT.load(Ordering::Relaxed);
            old.write(if is_front && is_known { behind } else { found });
        }
        status
    }
}

/// Whether this is not a child by `vfork`.
fn in_own_process() -> bool {
    let process = PROCESS.load(Ordering::Relaxed);
    // A constructor of another library may run before ours.
    process == 0 || process == process_id()
}

fn process_id() -> usize {
    // SAFETY: a plain system call.
    unsafe { libc::getpid() as usize }
}

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn remember_process() {
        PROCESS.store(process_id(), Ordering::Relaxed);
    }
    extern "C" fn start() {
        remember_process();
        // SAFETY: the handler makes a system call and stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(remember_process)) };
        next::find_all();
    }
    start
};
