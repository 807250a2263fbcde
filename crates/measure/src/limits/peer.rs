//! The other end: a thread or a process, with memory that both see.

use std::io::{Error, ErrorKind};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cpu;
use super::limit::Unsupported;

/// What the two ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peers {
    /// Two threads of this process.
    Threads,
    /// This process and a child of it.
    Processes,
}

impl Peers {
    /// For names of limits.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Processes => "processes",
        }
    }
}

/// A word that has its cache line, and the neighbour which prefetchers pair with it, for itself.
#[repr(C, align(128))]
pub struct Line(pub AtomicU64);

/// Anonymous memory, zero at first.
pub struct Map {
    base: NonNull<u8>,
    bytes: usize,
}

impl Map {
    /// Memory that a forked child shares.
    pub fn shared(bytes: usize) -> Result<Self, Unsupported> {
        Self::new(bytes, libc::MAP_SHARED)
    }

    /// Memory of which a forked child gets its own copy, at the same address.
    pub fn private(bytes: usize) -> Result<Self, Unsupported> {
        Self::new(bytes, libc::MAP_PRIVATE)
    }

    fn new(bytes: usize, kind: i32) -> Result<Self, Unsupported> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = kind | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice replaces nothing.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        match NonNull::new(at.cast()) {
            Some(base) if at != libc::MAP_FAILED => Ok(Self { base, bytes }),
            _ => Err(Unsupported::last_os_error("cannot map memory")),
        }
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The memory as lines.
    pub fn lines(&self) -> &[Line] {
        // SAFETY: page-aligned, as long as the slice, alive as long as `self`. A line is an atomic
        // word, for which every content is valid, and padding; this and `words` give the only
        // references, so that all access, also another process's, is atomic.
        unsafe { std::slice::from_raw_parts(self.base().cast(), self.bytes / size_of::<Line>()) }
    }

    /// The memory from byte `offset` (a multiple of 8, within the mapping) on, as words.
    pub fn words(&self, offset: usize) -> &[AtomicU64] {
        assert!(offset <= self.bytes && offset.is_multiple_of(8), "whole words of the mapping");
        // SAFETY: as for `lines`; the offset keeps alignment and bounds.
        unsafe {
            std::slice::from_raw_parts(self.base().add(offset).cast(), (self.bytes - offset) / 8)
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and references into it borrow `self`, so none is left.
        unsafe { libc::munmap(self.base().cast(), self.bytes) };
    }
}

/// A forked process, killed and reaped when dropped. It also dies with the *thread* that made it,
/// so it does not leave that thread.
pub struct Child {
    pid: libc::pid_t,
    not_send: PhantomData<*const ()>,
}

impl Child {
    /// Forks; the child pins itself to `core` where it may, runs `body`, and exits.
    ///
    /// # Safety
    /// `body` makes system calls, and reads and writes memory, but does not allocate, take locks or
    /// print: another thread of this process may have held any lock at the moment of the fork.
    pub unsafe fn fork(core: usize, body: impl FnOnce()) -> Result<Self, Unsupported> {
        // SAFETY: getpid takes nothing and cannot fail.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child runs `in_child` alone, which keeps to what the caller promised.
        match unsafe { libc::fork() } {
            -1 => Err(Unsupported::last_os_error("cannot fork")),
            0 => in_child(parent, core, body),
            pid => Ok(Self { pid, not_send: PhantomData }),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the pid is that of our child, which nobody has reaped, so that it names no other
        // process. A null status is allowed.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            while libc::waitpid(self.pid, std::ptr::null_mut(), 0) < 0
                && Error::last_os_error().kind() == ErrorKind::Interrupted
            {}
        }
    }
}

fn in_child(parent: libc::pid_t, core: usize, body: impl FnOnce()) -> ! {
    /// Leaves without the parent's exit handlers, also by a panic.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            // SAFETY: ends the process at once; nothing runs after it.
            unsafe { libc::_exit(0) }
        }
    }
    let leave = Leave;
    // SAFETY: both take plain numbers. When the parent died before the first call, the second one
    // notices, as the child then has another parent.
    let orphaned = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::getppid() != parent
    };
    if !orphaned {
        if let Ok(pin) = cpu::pin_to(core) {
            pin.keep();
        }
        body();
    }
    drop(leave);
    unreachable!("the process has ended")
}

/// Pins the calling thread.
pub fn pin(core: usize) -> Result<cpu::Pin, Unsupported> {
    cpu::pin_to(core).map_err(|e| Unsupported::from_io(&format!("cannot pin to core {core}"), &e))
}

/// Runs `theirs` at the other end, on the second core, and `ours` here, on the first one. `theirs`
/// ends soon after `stop` is not 0, which it is when this returns.
///
/// # Safety
/// For [`Peers::Processes`], `theirs` is bound by the contract of [`Child::fork`].
pub unsafe fn beside<T>(
    ends: Peers,
    cores: (usize, usize),
    stop: &AtomicU64,
    theirs: impl FnOnce() + Send,
    ours: impl FnOnce() -> Result<T, Unsupported>,
) -> Result<T, Unsupported> {
    /// Stops the other end also when ours panics, so that joining its thread does not hang.
    struct Stop<'a>(&'a AtomicU64);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(1, Ordering::Release);
        }
    }
    stop.store(0, Ordering::Release);
    // Also checks that the other end can have its core: the other end could not report an error.
    let visit = pin(cores.1)?;
    drop(visit);
    let _pin = pin(cores.0)?;
    match ends {
        Peers::Threads => std::thread::scope(|scope| {
            let _stop = Stop(stop);
            let named = std::thread::Builder::new().name("other end".to_owned());
            let spawned = named.spawn_scoped(scope, || {
                let _pin = cpu::pin_to(cores.1);
                theirs();
            });
            spawned
                .map_err(|e| Unsupported::from_io("cannot start a thread for the other end", &e))?;
            ours()
        }),
        Peers::Processes => {
            // SAFETY: the caller's promise.
            let _child = unsafe { Child::fork(cores.1, theirs) }?;
            let _stop = Stop(stop);
            ours()
        }
    }
}
