//! Our handler for SIGSEGV and SIGBUS, and the program's actions behind it.

use std::ffi::c_void;
use std::mem;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use super::mode::{self, Mode};
use super::preloaded;

/// The C library sets this flag in each call, and some C libraries return it.
pub(super) const SA_RESTORER: i32 = 0x0400_0000;

/// The flags that the kernel keeps (`UAPI_SA_FLAGS`, include/linux/signal_types.h).
const KERNEL_FLAGS: i32 = libc::SA_NOCLDSTOP
    | libc::SA_NOCLDWAIT
    | libc::SA_SIGINFO
    | libc::SA_ONSTACK
    | libc::SA_RESTART
    | libc::SA_NODEFER
    | libc::SA_RESETHAND
    | SA_EXPOSE_TAGBITS
    | SA_RESTORER;

const SA_EXPOSE_TAGBITS: i32 = 0x800;

/// The type of a handler. It gets all three arguments even without SA_SIGINFO, because the kernel
/// passes the context to all handlers, and it may leave by an exception.
type Handler = extern "C-unwind" fn(i32, *mut libc::siginfo_t, *mut c_void);

/// Marks a handler with SA_RESETHAND, in the word that holds its address.
const RESETS: usize = 1 << (usize::BITS - 1);

/// A signal that this module may handle, and the program's action, in words that a handler can
/// read.
pub(super) struct Guarded {
    pub(super) signal: i32,
    /// The handler's address, with [`RESETS`].
    handler: AtomicUsize,
    flags: AtomicI32,
    /// The first word of the mask: all 64 signals.
    mask: AtomicUsize,
    /// The C library's code that returns from a handler.
    restorer: AtomicUsize,
}

/// SIGSEGV and SIGBUS.
pub(super) static GUARDED: [Guarded; 2] = [Guarded::new(libc::SIGSEGV), Guarded::new(libc::SIGBUS)];

impl Guarded {
    const fn new(signal: i32) -> Self {
        Self {
            signal,
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicUsize::new(0),
            restorer: AtomicUsize::new(0),
        }
    }

    /// Our own handler is not an action of the program: what was behind it stays behind it.
    fn remember(&self, action: &libc::sigaction) {
        if is_ours(action) {
            return;
        }
        let restorer = action.sa_restorer.map_or(0, |restorer| restorer as usize);
        self.restorer.store(restorer, Ordering::Relaxed);
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        self.mask.store(mask_word(&action.sa_mask), Ordering::Relaxed);
        let resets = if action.sa_flags & libc::SA_RESETHAND != 0 { RESETS } else { 0 };
        self.handler.store(action.sa_sigaction | resets, Ordering::Relaxed);
    }

    /// The program's action.
    pub(super) fn former(&self) -> libc::sigaction {
        let mut action = default_action();
        action.sa_sigaction = self.handler.load(Ordering::Relaxed) & !RESETS;
        action.sa_flags = self.flags.load(Ordering::Relaxed);
        // SAFETY: zero is `None`; other values came out of such a field.
        action.sa_restorer = unsafe {
            mem::transmute::<usize, Option<extern "C" fn()>>(self.restorer.load(Ordering::Relaxed))
        };
        set_mask_word(&mut action.sa_mask, self.mask.load(Ordering::Relaxed));
        action
    }

    /// Replaces `now` by our handler. `false` if another thread's handler was first; it is
    /// restored.
    pub(super) fn claim(&self, now: &libc::sigaction) -> bool {
        if is_ours(now) {
            return true;
        }
        let _locked = Locked::take();
        // This must happen before our handler can run.
        self.remember(now);
        let Some(found) = self.install_in_front_of(now) else { return false };
        if is_same(&found, now) || is_ours(&found) {
            return true;
        }
        self.remember(&found);
        // SAFETY: the kernel returned this action a moment ago.
        unsafe { preloaded::sigaction(self.signal, &found, std::ptr::null_mut()) };
        false
    }

    /// Installs our handler. The kernel calls it as it would call the handler of `action`: with the
    /// same mask, nesting, restart of system calls, and stack. Returns what was installed before.
    fn install_in_front_of(&self, action: &libc::sigaction) -> Option<libc::sigaction> {
        let mut ours = default_action();
        ours.sa_sigaction = our_handler();
        // A reset to the default would remove our handler, so `take_handler` does it.
        ours.sa_flags = action.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
        ours.sa_mask = action.sa_mask;
        if [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
            // No code of the program runs, so the stack is ours to choose.
            ours.sa_flags |= libc::SA_ONSTACK;
        }
        if action.sa_sigaction == libc::SIG_IGN {
            // An ignored signal interrupts no system call.
            ours.sa_flags |= libc::SA_RESTART;
        }
        let mut found = default_action();
        // SAFETY: our handler is async-signal-safe; `found` has room.
        let is_done = unsafe { preloaded::sigaction(self.signal, &ours, &mut found) } == 0;
        is_done.then_some(found)
    }

    /// Whether the program ignores the signal, and our handler is installed instead.
    pub(super) fn hides_ignored(&self) -> bool {
        self.handler.load(Ordering::Relaxed) & !RESETS == libc::SIG_IGN
            && current(self.signal).is_some_and(|now| is_ours(&now))
    }

    /// Removes our handler if the program ignores the signal.
    pub(super) fn step_aside(&self) {
        let _locked = Locked::take();
        if self.hides_ignored() {
            // SAFETY: the kernel returned this action when our handler replaced it.
            unsafe { preloaded::sigaction(self.signal, &self.former(), std::ptr::null_mut()) };
        }
    }

    /// The program's handler for one delivery of the signal. A handler with SA_RESETHAND is
    /// returned once.
    fn take_handler(&self) -> usize {
        let order = Ordering::Relaxed;
        let mut word = self.handler.load(order);
        loop {
            let handler = word & !RESETS;
            if handler == word || handler == libc::SIG_IGN {
                return handler;
            }
            match self.handler.compare_exchange_weak(word, libc::SIG_DFL, order, order) {
                Ok(_) => return handler,
                Err(other) => word = other,
            }
        }
    }
}

/// Whether two actions have the same handler, flags and mask.
fn is_same(one: &libc::sigaction, other: &libc::sigaction) -> bool {
    let parts = |a: &libc::sigaction| (a.sa_sigaction, a.sa_flags, mask_word(&a.sa_mask));
    parts(one) == parts(other)
}

/// Excludes other changes of the actions. All signals are blocked meanwhile, because a handler may
/// call `sigaction`.
struct Locked {
    mask: libc::sigset_t,
}

static IS_LOCKED: AtomicBool = AtomicBool::new(false);

impl Locked {
    fn take() -> Locked {
        // SAFETY: a signal set is plain data, which these calls fill.
        let mask = unsafe {
            let mut all: libc::sigset_t = mem::zeroed();
            let mut mask: libc::sigset_t = mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut mask);
            mask
        };
        while IS_LOCKED.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        Locked { mask }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        IS_LOCKED.store(false, Ordering::Release);
        // SAFETY: the mask that `take` saved.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, std::ptr::null_mut()) };
    }
}

/// Directs the program's calls of `sigaction` for the two signals to this module, if the preload
/// library is in the process, and tells it to call `make_child` around those that make children.
pub(super) fn attach(make_child: preloaded::MakeChild) {
    static ONCE: Once = Once::new();
    ONCE.call_once(move || {
        extern "C" fn unlock_in_child() {
            // The thread that held the lock may not exist in the child.
            IS_LOCKED.store(false, Ordering::Relaxed);
        }
        // SAFETY: the function stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(unlock_in_child)) };
        preloaded::attach(our_handler(), change_program_action, make_child);
    });
}

/// `sigaction` for the program: the preload library calls it for SIGSEGV and SIGBUS. While our
/// handler is installed it stays in front, and the program sees and sets the action behind it.
///
/// # Safety
/// As for `sigaction`.
unsafe extern "C" fn change_program_action(
    signal: i32,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> i32 {
    let Some(guarded) = GUARDED.iter().find(|g| g.signal == signal) else { return -1 };
    // Bad pointers must fault before the lock is taken, or after it was given back.
    // SAFETY: by the contract, as the C library reads it.
    let wanted = (!new.is_null()).then(|| unsafe { new.read() });
    let Some(former) = change_behind(guarded, wanted) else { return -1 };
    if !old.is_null() {
        // SAFETY: by the contract.
        unsafe { old.write(former) };
    }
    0
}

/// Sets the program's action, if one is wanted, and returns the former one; `None` if the kernel
/// refuses.
fn change_behind(guarded: &Guarded, wanted: Option<libc::sigaction>) -> Option<libc::sigaction> {
    let _locked = Locked::take();
    if current(guarded.signal).is_none_or(|now| !is_ours(&now)) {
        // Our handler was never installed, or a system call removed it.
        let new = wanted.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut former = default_action();
        // SAFETY: both are complete actions, or null.
        let status = unsafe { preloaded::sigaction(guarded.signal, new, &mut former) };
        return (status == 0).then_some(former);
    }
    let former = guarded.former();
    if let Some(mut wanted) = wanted {
        wanted.sa_flags &= KERNEL_FLAGS;
        wanted.sa_flags |= former.sa_flags & SA_RESTORER;
        wanted.sa_restorer = former.sa_restorer;
        forbid_masking_of_kill(&mut wanted.sa_mask);
        guarded.remember(&wanted);
        guarded.install_in_front_of(&wanted)?;
    }
    Some(former)
}

/// The kernel removes these two from each mask.
fn forbid_masking_of_kill(mask: &mut libc::sigset_t) {
    let bit = |signal: i32| 1_usize << (signal - 1);
    let word = mask_word(mask) & !bit(libc::SIGKILL) & !bit(libc::SIGSTOP);
    set_mask_word(mask, word);
}

pub(super) fn default_action() -> libc::sigaction {
    // SAFETY: all of its fields are integers, or optional pointers: zeroes are SIG_DFL, no flags.
    unsafe { mem::zeroed() }
}

/// The action that the kernel has for a signal.
pub(super) fn current(signal: i32) -> Option<libc::sigaction> {
    let mut now = default_action();
    // SAFETY: only asks; `now` has room.
    (unsafe { preloaded::sigaction(signal, std::ptr::null(), &mut now) } == 0).then_some(now)
}

pub(super) fn our_handler() -> usize {
    (on_fault as Handler) as usize
}

pub(super) fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == our_handler()
}

pub(super) fn mask_word(mask: &libc::sigset_t) -> usize {
    // SAFETY: a signal set is an array of words, at least one.
    unsafe { std::ptr::from_ref(mask).cast::<usize>().read() }
}

fn set_mask_word(mask: &mut libc::sigset_t, word: usize) {
    // SAFETY: as for `mask_word`.
    unsafe { std::ptr::from_mut(mask).cast::<usize>().write(word) }
}

/// Our handler for both signals. It is async-signal-safe: it compares numbers, writes to the
/// context, and calls at most `sigaction`, `pthread_sigmask`, `getpid` and raw system calls. It
/// holds no lock when it calls the program's handler, which may leave by `longjmp` or by an
/// exception.
extern "C-unwind" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
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
    let Some(fixup) = crate::copy::x86_64::fixup_of(rip as usize) else {
        return false;
    };
    // SAFETY: a fault's `siginfo_t` holds its address.
    let at = unsafe { (*info).si_addr() }.addr();
    registers[libc::REG_RIP as usize] = fixup as i64;
    registers[libc::REG_RAX as usize] = at as i64;
    registers[libc::REG_RDX as usize] = crate::copy::x86_64::FAULTED as i64;
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
    let handler = guarded.take_handler();
    // A fault kills the program even if the signal is ignored (`force_sig`).
    if handler == libc::SIG_IGN && !is_fault {
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: by the contract.
        return unsafe { die_by(guarded.signal, info) };
    }
    // SAFETY: the program registered this address as a handler.
    let call = unsafe { mem::transmute::<usize, Handler>(handler) };
    call(guarded.signal, info, context);
}

/// Restores the default action, and sends the signal to this thread again, with the same
/// information. It strikes where the handler returns to. A fault would repeat there, but not if
/// another thread maps the page meanwhile, or if the kernel could not build the frame of another
/// handler.
///
/// # Safety
/// `info` must be that of the running handler.
unsafe fn die_by(signal: i32, info: *mut libc::siginfo_t) {
    // The process may survive: a namespace's first process ignores signals without a handler.
    mode::set(Mode::Syscall);
    // SAFETY: a set of this signal alone, and the default action, which refers to no code. A raw
    // system call sends this thread what it just got.
    unsafe {
        // With SA_NODEFER it is not blocked, and would strike in this handler.
        let mut this: libc::sigset_t = mem::zeroed();
        libc::sigaddset(&mut this, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &this, std::ptr::null_mut());
        preloaded::sigaction(signal, &default_action(), std::ptr::null_mut());
        let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) != 0 {
            libc::syscall(libc::SYS_tgkill, process, thread, signal);
        }
    }
}
