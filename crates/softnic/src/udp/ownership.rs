//! Which process owns the socket: a word that all processes of the host share.
//!
//! The word numbers *terms*. A process begins a term by increasing the word with compare-and-swap
//! from the value that it saw. It owns the socket until another process begins the next term. No
//! two processes ever have the same term, and no term comes back. So ownership may be taken from a
//! process at any time, by the holder of the record lock (`handover`) or by a process that finds
//! the owner stalled (`watchdog`). The former owner finds out by itself: it compares the word
//! before it receives, and before it handles what it received. Between two comparisons the former
//! and the new owner may both act, which makes one message late or double.
//!
//! Memory safety does not depend on the word. A process that shares it could write any value and so
//! take ownership, but such a process could also read the socket itself.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use rdmalab_ring::seg::Segment;

/// The beginning of the shared memory: a cache line that only the owner writes often.
#[repr(C)]
struct Words {
    /// The current term; 0: the socket had no owner yet.
    term: AtomicU64,
    /// How often the owner read the socket. Reads of two overlapping owners may count as one.
    reads: AtomicU64,
}

/// This process's view of the word. The memory is kept as long as the process lives, because
/// closing any descriptor of it would drop the record locks.
pub(super) struct Ownership {
    memory: Segment,
    /// The term in which this process owns the socket; 0: it does not.
    mine: AtomicU64,
    /// The standby thread shall wait for the record lock. This process's terms begin and end under
    /// this mutex: if two of its threads begin a term each, `mine` becomes the later one. No other
    /// lock is taken under it.
    lock_requested: Mutex<bool>,
    changed: Condvar,
}

impl Ownership {
    /// Creates the memory, for a socket that no other process has.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn create() -> std::io::Result<Ownership> {
        let bytes = size_of::<Words>();
        Ok(Ownership::of(Segment::create(c"rdmalab-socket", bytes, bytes)?))
    }

    /// Maps the memory that another process sent.
    ///
    /// # Errors
    /// The memory is not of this kind.
    pub(super) fn join(memory: OwnedFd) -> std::io::Result<Ownership> {
        Segment::from_fd(memory, size_of::<Words>()).map(Ownership::of)
    }

    fn of(memory: Segment) -> Ownership {
        let (mine, lock_requested) = (AtomicU64::new(0), Mutex::new(false));
        Ownership { memory, mine, lock_requested, changed: Condvar::new() }
    }

    fn words(&self) -> &Words {
        // SAFETY: the mapping is page-aligned, at least as long as this, sealed against shrinking,
        // and lives as long as `self`; all processes that share it access these words as atomics.
        unsafe { &*self.memory.ptr().cast::<Words>() }
    }

    /// The memory whose record locks name the owner and the standbys.
    pub(super) fn fd(&self) -> i32 {
        self.memory.as_fd().as_raw_fd()
    }

    /// The descriptor of the memory, to be sent to another process.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// The current term.
    pub(super) fn term(&self) -> u64 {
        self.words().term.load(Ordering::SeqCst)
    }

    /// How often the owner read the socket.
    pub(super) fn reads(&self) -> u64 {
        self.words().reads.load(Ordering::Relaxed)
    }

    /// Counts a read by the owner.
    #[inline]
    pub(super) fn note_read(&self) {
        let reads = &self.words().reads;
        reads.store(reads.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether this process owns the socket. If it has lost ownership, it requests the lock.
    #[inline]
    pub(super) fn is_ours(&self) -> bool {
        self.ours().is_some()
    }

    /// The term in which this process owns the socket.
    #[inline]
    pub(super) fn ours(&self) -> Option<u64> {
        let mine = self.mine.load(Ordering::Acquire);
        if mine == 0 {
            return None;
        }
        if self.is_now(mine) {
            return Some(mine);
        }
        self.step_down(mine);
        None
    }

    /// Whether a term still lasts.
    #[inline]
    pub(super) fn is_now(&self, term: u64) -> bool {
        self.words().term.load(Ordering::Acquire) == term
    }

    #[cold]
    fn step_down(&self, mine: u64) {
        let mut lock_requested = self.lock_requested.lock();
        // Unless another thread has begun a new term for this process.
        if self.mine.compare_exchange(mine, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            *lock_requested = true;
            self.changed.notify_all();
        }
    }

    /// Begins a term, if none has begun since `seen`. Returns whether this process owns the socket
    /// now.
    pub(super) fn begin(&self, seen: u64) -> bool {
        let mut lock_requested = self.lock_requested.lock();
        let (term, next) = (&self.words().term, seen.wrapping_add(1));
        let begun = term.compare_exchange(seen, next, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if begun {
            self.mine.store(next, Ordering::SeqCst);
            // The owner need not wait for the lock.
            *lock_requested = false;
        }
        begun
    }

    /// Gives ownership up before another process has it. Returns the term that this ends.
    pub(super) fn resign(&self) -> Option<u64> {
        Some(self.mine.swap(0, Ordering::SeqCst)).filter(|term| *term != 0)
    }

    /// Makes the standby thread wait for the lock, and wakes threads that wait while this process
    /// is the owner.
    pub(super) fn request_lock(&self) {
        *self.lock_requested.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until the lock is requested.
    pub(super) fn wait_for_lock_request(&self) {
        let mut lock_requested = self.lock_requested.lock();
        while !std::mem::take(&mut *lock_requested) {
            self.changed.wait(&mut lock_requested);
        }
    }

    /// Waits while this process is the owner.
    pub(super) fn wait_while_owner(&self) {
        let mut lock_requested = self.lock_requested.lock();
        while self.mine.load(Ordering::SeqCst) != 0 {
            self.changed.wait(&mut lock_requested);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes' views of one memory.
    fn two() -> (Ownership, Ownership) {
        let first = Ownership::create().unwrap();
        let second = Ownership::join(first.as_fd().try_clone_to_owned().unwrap()).unwrap();
        (first, second)
    }

    #[test]
    fn one_reads_until_another_does() {
        let (first, second) = two();
        assert!(!first.is_ours() && !second.is_ours());
        assert!(first.begin(0));
        assert!(first.is_ours() && !second.is_ours());
        let seen = second.term();
        assert!(second.begin(seen));
        assert!(second.is_ours());
        assert!(!*first.lock_requested.lock(), "it does not know yet");
        assert!(!first.is_ours());
        assert!(*first.lock_requested.lock());
        first.wait_for_lock_request();
        first.wait_while_owner();
        assert!(!*first.lock_requested.lock() && !*second.lock_requested.lock());
        assert!(first.begin(first.term()));
        assert!(!second.is_ours() && *second.lock_requested.lock());
        assert!(second.begin(second.term()));
        assert!(!*second.lock_requested.lock(), "it reads, and need not wait for that");
    }

    #[test]
    fn of_two_that_saw_the_same_one_begins() {
        let (first, second) = two();
        assert!(first.begin(0));
        let seen = first.term();
        assert!(second.begin(seen));
        assert!(!first.begin(seen), "it is not what it was");
        assert!(second.is_ours());
        assert!(second.begin(second.term()) && second.is_ours(), "over itself");
    }

    /// A thread of the former owner was stopped while it handled packets.
    #[test]
    fn a_former_owner_returns_in_another_term() {
        let (first, second) = two();
        assert!(first.begin(0));
        let old = first.ours().unwrap();
        assert!(second.begin(second.term()));
        assert!(!first.is_ours());
        assert!(first.begin(first.term()));
        first.step_down(old);
        assert!(first.is_ours(), "what a thread found out late concerns an old term");
        assert!(!first.is_now(old), "what it took then is not handled now");
    }

    #[test]
    fn an_owner_that_resigns_may_come_back() {
        let (first, second) = two();
        assert!(first.begin(0));
        let ended = first.resign().unwrap();
        assert!(!first.is_ours());
        assert_eq!((first.resign(), first.term()), (None, ended));
        assert!(!*first.lock_requested.lock(), "not before it is known who reads");
        assert!(first.begin(ended));
        let ended = first.resign().unwrap();
        assert!(second.begin(second.term()));
        assert!(!first.begin(ended));
    }

    #[test]
    fn everybody_sees_the_reader_look() {
        let (first, second) = two();
        let before = second.reads();
        first.note_read();
        assert_eq!(second.reads(), before + 1);
    }

    #[test]
    fn what_can_shrink_is_no_office() {
        // SAFETY: a C string and flags; a fresh descriptor that nobody else owns.
        let memory = unsafe {
            use std::os::fd::FromRawFd;
            OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC))
        };
        assert!(Ownership::join(memory).is_err());
    }
}
