//! Catches faults in this crate's copies, without displacing the program's signal handlers.
//!
//! - [`Mode::Signal`]: SIGSEGV and SIGBUS had their default action, so our handler is installed. A
//!   fault in our machine code becomes an error of that copy. For any other fault the handler
//!   restores the default action and the instruction runs again, so that the program dies with the
//!   same signal, at the same place and with the same core dump. A copy costs no more than its
//!   instructions.
//!   The same holds for a program with its own handler (a JVM, a DSM, UCX), if the preload library
//!   `librdmalab-signals.so` is in the process and has seen the handler being set. Our handler then
//!   stays in front and calls the program's for all faults but ours, and a query returns what the
//!   program set (see `preloaded`).
//! - [`Mode::Syscall`]: the program has its own handler, and set it in a way that the preload
//!   library did not see. The handler stays. The kernel makes our copies and reports bad addresses;
//!   each costs about a microsecond.
//! - [`Mode::Off`]: nothing is caught; a fault in a copy reaches the program.
//!
//! The handler that Rust's runtime installs in each Rust program (it reports stack overflows)
//! counts as the default action, and is called after ours. It is recognised by its flags and mask,
//! and by its address in the object file that contains this code. If a Rust program loads this
//! library as a shared object, the handler is in another object file, so the mode is
//! [`Mode::Syscall`].
//!
//! `RDMALAB_FAULT_GUARD` selects the policy: `auto` (as above), `signal` (our handler replaces the
//! one that is there at first, and calls it for all faults but ours), `syscall`, or `off`.
//!
//! A program that ignores a signal passes this on to its children, but not that our handler is
//! installed. So while the C library makes a child for a program that ignores SIGSEGV or SIGBUS,
//! the kernel makes our copies and ignores the signal (`begin_child`); the preload library calls us
//! before and after.
//!
//! # Cases that are not covered
//! - A program that sets its handler *after* its last registration, unseen by the preload library,
//!   gets our faults in that handler until the next [`recheck`].
//! - A fault in a thread that blocks SIGSEGV or SIGBUS kills the process in any mode but
//!   [`Mode::Syscall`], because the kernel then calls no handler. The device's own threads leave
//!   both unblocked, so a program that blocks them everywhere and waits for them (`sigwait`,
//!   `signalfd`) does not get those that another process sends. The preload library leaves masks
//!   alone. It would have to report the mask that the program set, in each thread and in those that
//!   it starts, while `siglongjmp`, `setcontext` and the kernel's return from a handler set masks
//!   that they saved, past the functions that a library can replace.
//! - Atomics under [`Mode::Syscall`] are probed, then executed. If the memory is unmapped between
//!   the two, the fault reaches the program's handler.
//! - Device memory (`VM_PFNMAP`) is refused under [`Mode::Syscall`], because it has no pages.
//! - A second copy of this code in the process (in another shared library) counts as the program's
//!   own handler.
//! - A program may save our handler and call it after its own. Then this library must not be
//!   unloaded, so the shared library is linked with `-z nodelete`.

mod handler;
mod mode;
mod preloaded;

pub(crate) use mode::{Mode, is_direct};

use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};

use handler::{GUARDED, Guarded, SA_RESTORER, current, is_ours, mask_word, our_handler};

/// The environment variable that selects the policy.
pub(crate) const VARIABLE: &str = "RDMALAB_FAULT_GUARD";

/// The policy that the user selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    /// [`Mode::Signal`] if the program has no handler, or one that the preload library saw being
    /// set; else [`Mode::Syscall`].
    #[default]
    Auto,
    /// [`Mode::Signal`], even if the program has a handler.
    Signal,
    /// [`Mode::Syscall`].
    Syscall,
    /// [`Mode::Off`].
    Off,
}

/// [`VARIABLE`] has an unknown value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VARIABLE}={}: must be auto, signal, syscall or off", self.0)
    }
}

impl std::error::Error for UnknownPolicy {}

impl Policy {
    /// The policy in the environment; `Auto` if the variable is not set.
    ///
    /// # Errors
    /// [`UnknownPolicy`].
    pub(crate) fn from_env() -> Result<Self, UnknownPolicy> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Self::Auto),
            Some(word) => Self::parse(&word.to_string_lossy()),
        }
    }

    fn parse(word: &str) -> Result<Self, UnknownPolicy> {
        match word {
            "" | "auto" => Ok(Self::Auto),
            "signal" => Ok(Self::Signal),
            "syscall" => Ok(Self::Syscall),
            "off" => Ok(Self::Off),
            other => Err(UnknownPolicy(other.to_owned())),
        }
    }
}

/// [`install`] with the policy of the environment. Called at the first registration of memory.
/// `wait_for_copies` returns when no copy that began before the call is in progress.
///
/// # Errors
/// [`UnknownPolicy`]; nothing is installed then.
pub(crate) fn install_if_default(wait_for_copies: fn()) -> Result<Mode, UnknownPolicy> {
    let policy = Policy::from_env()?;
    held().wait_for_copies = wait_for_copies;
    Ok(install(policy))
}

/// Sets the policy, and installs the handler if the policy needs it.
pub(crate) fn install(policy: Policy) -> Mode {
    if matches!(policy, Policy::Auto | Policy::Signal) {
        handler::attach(make_child);
    }
    let mut held = held();
    held.policy = Some(policy);
    held.apply()
}

/// Checks again which handlers are installed; called at each registration of memory. Makes two
/// system calls, or none if the policy needs none. Does nothing before [`install`]. `None` while
/// the program makes a child, for which our handler steps aside: then it is not known.
pub(crate) fn recheck() -> Option<Mode> {
    let mut held = held();
    (!held.makes_child()).then(|| held.apply())
}

/// Removes our handlers if they are still installed, and lets the kernel make all copies; called
/// before this code is unloaded. If a handler of the program calls ours later, it jumps to unmapped
/// code: link with `-z nodelete` if that can happen.
#[cfg(test)]
pub(crate) fn uninstall() {
    let mut held = held();
    held.policy = None;
    mode::set(Mode::Syscall);
    for guarded in &GUARDED {
        if current(guarded.signal).is_some_and(|now| is_ours(&now)) {
            // SAFETY: the kernel returned this action when our handler replaced it.
            unsafe { libc::sigaction(guarded.signal, &guarded.former(), std::ptr::null_mut()) };
        }
    }
}

/// State of [`install`] and [`recheck`], under a lock.
struct Held {
    policy: Option<Policy>,
    /// Whether our handler was ever installed. A later handler may call ours, so ours must not call
    /// it.
    claimed: bool,
    /// Returns when no copy that began before the call is in progress.
    wait_for_copies: fn(),
    /// Number of threads that make a child for which the kernel ignores a signal.
    children: u32,
    /// The process that this state is of.
    process: u32,
}

static HELD: Mutex<Held> = Mutex::new(Held {
    policy: None,
    claimed: false,
    wait_for_copies: || {},
    children: 0,
    process: 0,
});

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The preload library calls this before (`begins` is not 0) the C library makes a child, and
/// afterwards if it returned 1.
extern "C" fn make_child(begins: i32) -> i32 {
    if begins == 0 {
        held().end_child();
        return 0;
    }
    // After a fork, or in a signal handler, the thread that holds the lock may never release it.
    for _ in 0..LOCK_TRIES {
        if let Ok(mut held) = HELD.try_lock() {
            return held.begin_child().into();
        }
        std::thread::yield_now();
    }
    0
}

/// How often [`make_child`] tries to lock.
const LOCK_TRIES: u32 = 10_000;

impl Held {
    /// Lets the kernel ignore the signals that the program ignores. Returns whether there is one.
    fn begin_child(&mut self) -> bool {
        // In a child by `fork` the threads that were making children do not exist.
        let process = std::process::id();
        if self.process != process {
            (self.process, self.children) = (process, 0);
        }
        if self.children == 0 && !GUARDED.iter().any(Guarded::hides_ignored) {
            return false;
        }
        if self.children == 0 {
            mode::set(Mode::Syscall);
            (self.wait_for_copies)();
            GUARDED.iter().for_each(Guarded::step_aside);
        }
        self.children += 1;
        true
    }

    fn makes_child(&self) -> bool {
        self.children > 0 && self.process == std::process::id()
    }

    fn end_child(&mut self) {
        self.children = self.children.saturating_sub(1);
        self.apply();
    }

    fn apply(&mut self) -> Mode {
        if self.makes_child() {
            return Mode::Syscall;
        }
        #[cfg(target_arch = "x86_64")]
        super::x86_64::choose_instructions();
        let mode = match self.policy {
            // There is no machine code to guard.
            _ if !cfg!(target_arch = "x86_64") => Mode::Syscall,
            None | Some(Policy::Syscall) => Mode::Syscall,
            Some(Policy::Off) => Mode::Off,
            Some(Policy::Signal) if !self.claimed && claim_all(|_| true) => Mode::Signal,
            Some(Policy::Auto | Policy::Signal) if claim_all(is_replaceable) => Mode::Signal,
            Some(Policy::Auto | Policy::Signal) => Mode::Syscall,
        };
        self.claimed |= mode == Mode::Signal;
        mode::set(mode);
        mode
    }
}

/// Installs our handler for both signals if `may_replace` accepts both actions. Returns whether it
/// is installed for both.
fn claim_all(may_replace: fn(&[libc::sigaction; 2]) -> bool) -> bool {
    let (Some(segv), Some(bus)) = (current(libc::SIGSEGV), current(libc::SIGBUS)) else {
        return false;
    };
    let now = [segv, bus];
    if now.iter().all(is_ours) {
        return true;
    }
    // If our handler is already installed for one signal, judge the action that it replaced.
    let mut below = now;
    for (action, guarded) in below.iter_mut().zip(&GUARDED) {
        if is_ours(action) {
            *action = guarded.former();
        }
    }
    may_replace(&below) && GUARDED.iter().zip(&now).all(|(guarded, now)| guarded.claim(now))
}

/// Whether our handler may stand in front of these: they are the default, or the preload library
/// has seen them, so that it sees them replaced too.
fn is_replaceable(actions: &[libc::sigaction; 2]) -> bool {
    let is_seen = |(guarded, action): (&Guarded, &libc::sigaction)| {
        let handler = action.sa_sigaction;
        let has_none = [libc::SIG_DFL, libc::SIG_IGN].contains(&handler);
        preloaded::is_attached() && has_none || preloaded::has_seen(guarded.signal, handler)
    };
    is_default(actions) || GUARDED.iter().zip(actions).all(is_seen)
}

/// Whether the program has no handler of its own: both actions are the kernel's default, or the
/// handler of Rust's runtime. The latter is the same function for both signals, has no mask, and is
/// in the object file of this code.
fn is_default(actions: &[libc::sigaction; 2]) -> bool {
    let [segv, bus] = actions;
    if actions.iter().all(|a| a.sa_sigaction == libc::SIG_DFL) {
        return true;
    }
    let form = libc::SA_SIGINFO | libc::SA_ONSTACK;
    segv.sa_sigaction == bus.sa_sigaction
        && actions.iter().all(|a| a.sa_flags & !SA_RESTORER == form && mask_word(&a.sa_mask) == 0)
        && object_of(segv.sa_sigaction).is_some_and(|o| object_of(our_handler()) == Some(o))
}

/// Start of the object file that contains the code at `address`.
fn object_of(address: usize) -> Option<usize> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let at = std::ptr::without_provenance::<c_void>(address);
    // SAFETY: takes any address; fills `info` when it returns non-zero.
    if unsafe { libc::dladdr(at, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: filled; zeroes are valid too.
    Some(unsafe { info.assume_init() }.dli_fbase.addr())
}
