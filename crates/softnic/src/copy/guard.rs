//! Catches faults in this crate's copies, without displacing the program's signal handlers.
//!
//! - [`Mode::Signal`]: SIGSEGV and SIGBUS had their default action, so our handler is installed. A
//!   fault in our machine code becomes an error of that copy. For any other fault the handler
//!   restores the default action and the instruction runs again, so that the program dies with the
//!   same signal, at the same place and with the same core dump. A copy costs no more than its
//!   instructions.
//! - [`Mode::Syscall`]: the program has its own handler (a JVM, a DSM, a crash reporter), which
//!   stays. The kernel makes our copies and reports bad addresses; each costs about a microsecond.
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
//! # Cases that are not covered
//! - A program that sets its handler *after* its last registration gets our faults in that handler
//!   until the next [`recheck`].
//! - A fault kills a thread that blocks SIGSEGV or SIGBUS in any mode but [`Mode::Syscall`],
//!   because the kernel then calls no handler. The device's own threads must leave both unblocked.
//! - Atomics under [`Mode::Syscall`] are probed, then executed. If the memory is unmapped between
//!   the two, the fault reaches the program's handler.
//! - Device memory (`VM_PFNMAP`) is refused under [`Mode::Syscall`], because it has no pages.
//! - A second copy of this code in the process (in another shared library) counts as the program's
//!   own handler.
//! - A program may save our handler and call it after its own. Then this library must not be
//!   unloaded, so the shared library is linked with `-z nodelete`.

use std::ffi::c_void;
use std::fmt;
use std::mem::{self, MaybeUninit};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The environment variable that selects the policy.
pub(crate) const VARIABLE: &str = "RDMALAB_FAULT_GUARD";

/// How faults are caught now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// By system calls that report bad addresses. Also before [`install`].
    Syscall = 0,
    /// By our signal handler.
    Signal = 1,
    /// Not at all.
    Off = 2,
}

/// The policy that the user selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    /// [`Mode::Signal`] if the program has no handler, else [`Mode::Syscall`].
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

static MODE: AtomicU8 = AtomicU8::new(Mode::Syscall as u8);

/// Whether copies access user memory by their own instructions. Until [`install`] they do not.
#[inline]
pub(crate) fn is_direct() -> bool {
    MODE.load(Ordering::Relaxed) != Mode::Syscall as u8
}

/// [`install`] with the policy of the environment. Called at the first registration of memory.
///
/// # Errors
/// [`UnknownPolicy`]; nothing is installed then.
pub(crate) fn install_if_default() -> Result<Mode, UnknownPolicy> {
    Ok(install(Policy::from_env()?))
}

/// Sets the policy, and installs the handler if the policy needs it.
pub(crate) fn install(policy: Policy) -> Mode {
    let mut held = held();
    held.policy = Some(policy);
    held.apply()
}

/// Checks again which handlers are installed; called at each registration of memory. Makes two
/// system calls, or none if the policy needs none. Does nothing before [`install`].
pub(crate) fn recheck() -> Mode {
    held().apply()
}

/// Removes our handlers if they are still installed, and lets the kernel make all copies; called
/// before this code is unloaded. If a handler of the program calls ours later, it jumps to unmapped
/// code: link with `-z nodelete` if that can happen.
#[cfg(test)]
pub(crate) fn uninstall() {
    let mut held = held();
    held.policy = None;
    MODE.store(Mode::Syscall as u8, Ordering::Relaxed);
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
}

fn held() -> MutexGuard<'static, Held> {
    static HELD: Mutex<Held> = Mutex::new(Held { policy: None, claimed: false });
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Held {
    fn apply(&mut self) -> Mode {
        #[cfg(target_arch = "x86_64")]
        super::x86_64::choose_instructions();
        let mode = match self.policy {
            // There is no machine code to guard.
            _ if !cfg!(target_arch = "x86_64") => Mode::Syscall,
            None | Some(Policy::Syscall) => Mode::Syscall,
            Some(Policy::Off) => Mode::Off,
            Some(Policy::Auto) if claim_all(is_default) => Mode::Signal,
            Some(Policy::Signal) if !self.claimed && claim_all(|_| true) => Mode::Signal,
            Some(Policy::Signal) if claim_all(is_default) => Mode::Signal,
            Some(Policy::Auto | Policy::Signal) => Mode::Syscall,
        };
        self.claimed |= mode == Mode::Signal;
        MODE.store(mode as u8, Ordering::Relaxed);
        mode
    }
}

/// A signal that this module may handle, and its former action, in words that a handler can read.
struct Guarded {
    signal: i32,
    handler: AtomicUsize,
    flags: AtomicI32,
    /// The first word of the mask: all 64 signals.
    mask: AtomicUsize,
}

impl Guarded {
    const fn new(signal: i32) -> Self {
        Self {
            signal,
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicUsize::new(0),
        }
    }

    fn remember(&self, action: &libc::sigaction) {
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        self.mask.store(mask_word(&action.sa_mask), Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Relaxed);
    }

    fn former(&self) -> libc::sigaction {
        let mut action = default_action();
        action.sa_sigaction = self.handler.load(Ordering::Relaxed);
        action.sa_flags = self.flags.load(Ordering::Relaxed);
        set_mask_word(&mut action.sa_mask, self.mask.load(Ordering::Relaxed));
        action
    }
}

static GUARDED: [Guarded; 2] = [Guarded::new(libc::SIGSEGV), Guarded::new(libc::SIGBUS)];

/// Installs our handler for both signals, or for none, if `may_replace` accepts their actions.
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
    may_replace(&below) && GUARDED.iter().zip(&now).all(|(guarded, now)| claim(guarded, now))
}

/// Replaces `now` by our handler. `false` if another thread's handler was first; it is restored.
fn claim(guarded: &Guarded, now: &libc::sigaction) -> bool {
    if is_ours(now) {
        return true;
    }
    // This must happen before our handler can run.
    guarded.remember(now);
    let mut ours = default_action();
    ours.sa_sigaction = our_handler();
    // With the former handler's mask and nesting, because it may run inside ours.
    ours.sa_flags = libc::SA_SIGINFO
        | libc::SA_ONSTACK
        | (now.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART));
    ours.sa_mask = now.sa_mask;
    let mut found = MaybeUninit::uninit();
    // SAFETY: `ours` is initialised, and its handler is async-signal-safe.
    if unsafe { libc::sigaction(guarded.signal, &ours, found.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call succeeded, so it filled `found`.
    let found: libc::sigaction = unsafe { found.assume_init() };
    if found.sa_sigaction == now.sa_sigaction || is_ours(&found) {
        return true;
    }
    guarded.remember(&found);
    // SAFETY: the kernel returned this action a moment ago.
    unsafe { libc::sigaction(guarded.signal, &found, std::ptr::null_mut()) };
    false
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

/// The C library sets this flag in each call, and some C libraries return it.
const SA_RESTORER: i32 = 0x0400_0000;

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

fn default_action() -> libc::sigaction {
    // SAFETY: all of its fields are integers, or optional pointers: zeroes are SIG_DFL, no flags.
    unsafe { mem::zeroed() }
}

fn current(signal: i32) -> Option<libc::sigaction> {
    let mut now = default_action();
    // SAFETY: only asks; `now` has room.
    (unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) } == 0).then_some(now)
}

fn our_handler() -> usize {
    (on_fault as extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void)) as usize
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == our_handler()
}

fn mask_word(mask: &libc::sigset_t) -> usize {
    // SAFETY: a signal set is an array of words, at least one.
    unsafe { std::ptr::from_ref(mask).cast::<usize>().read() }
}

fn set_mask_word(mask: &mut libc::sigset_t, word: usize) {
    // SAFETY: as for `mask_word`.
    unsafe { std::ptr::from_mut(mask).cast::<usize>().write(word) }
}

/// Our handler for both signals. It is async-signal-safe: it compares numbers, writes to the
/// context, and calls at most `sigaction`, `getpid` and raw system calls.
extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a complete `siginfo_t`, because SA_SIGINFO is set.
    let code = unsafe { (*info).si_code };
    // Faults have positive codes. Signals from `kill` and the like have others, and may arrive
    // anywhere, as may an early report of a memory error (BUS_MCEERR_AO).
    let is_fault = code > 0 && !(signal == libc::SIGBUS && code == libc::BUS_MCEERR_AO);
    // SAFETY: both are complete, and belong to this thread.
    if is_fault && unsafe { redirect(info, context) } {
        return;
    }
    let Some(guarded) = GUARDED.iter().find(|g| g.signal == signal) else {
        return;
    };
    // SAFETY: as passed by the kernel.
    unsafe { pass_on(guarded, is_fault, info, context) }
}

/// Continues at the fixup if the fault was in this crate's machine code.
///
/// # Safety
/// `info` and `context` must be those of the running handler.
#[cfg(target_arch = "x86_64")]
unsafe fn redirect(info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: by the contract, and the interrupted thread does not run meanwhile.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let rip = registers[libc::REG_RIP as usize];
    let Some(fixup) = super::x86_64::fixup_of(rip as usize) else {
        return false;
    };
    // SAFETY: a fault's `siginfo_t` holds its address.
    let at = unsafe { (*info).si_addr() }.addr();
    registers[libc::REG_RIP as usize] = fixup as i64;
    registers[libc::REG_RAX as usize] = at as i64;
    registers[libc::REG_RDX as usize] = super::x86_64::FAULTED as i64;
    true
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn redirect(_: *mut libc::siginfo_t, _: *mut c_void) -> bool {
    false
}

/// Does what would have happened without our handler.
///
/// # Safety
/// `info` and `context` must be those of the running handler.
unsafe fn pass_on(
    guarded: &Guarded,
    is_fault: bool,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let handler = guarded.handler.load(Ordering::Relaxed);
    let flags = guarded.flags.load(Ordering::Relaxed);
    // A fault kills the program even if the signal is ignored (`force_sig`).
    if handler == libc::SIG_IGN && !is_fault {
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        set_default(guarded.signal);
        if !is_fault {
            // The signal was sent, so it must be sent again, with the same sender information.
            // SAFETY: sends this thread the signal information that it just got.
            unsafe {
                let thread = libc::syscall(libc::SYS_gettid);
                let process = libc::getpid();
                libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, guarded.signal, info);
            }
        }
        return;
    }
    if flags & libc::SA_RESETHAND != 0 {
        set_default(guarded.signal);
    }
    if flags & libc::SA_SIGINFO != 0 {
        type Full = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
        // SAFETY: the program registered this address as a function of this type.
        let call = unsafe { mem::transmute::<usize, Full>(handler) };
        call(guarded.signal, info, context);
    } else {
        // SAFETY: the program registered this address as a function of this type.
        let call = unsafe { mem::transmute::<usize, extern "C" fn(i32)>(handler) };
        call(guarded.signal);
    }
}

fn set_default(signal: i32) {
    // SAFETY: the default action needs nothing to live on.
    unsafe { libc::sigaction(signal, &default_action(), std::ptr::null_mut()) };
}
