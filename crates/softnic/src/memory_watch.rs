//! Notices changes of the memory map under on-demand regions, before the call that makes them
//! returns.
//!
//! The kernel tells a reader of a userfaultfd about `munmap`, `mremap`, `madvise` and a mapping
//! that is replaced, and the thread that makes the call waits until the event is read
//! (`userfaultfd(2)`). The memory is registered for write protection, but no page is protected, so
//! page faults of the processor stay as they are. A thread waits for the events. Before it reads
//! one, it waits for the copies into on-demand memory that are under way, and keeps new ones from
//! beginning. So when the call returns, no copy that began before it is under way, and the next
//! access finds the page missing. A copy whose pages were looked up before the call may begin after
//! it: it reaches what is mapped there then.
//!
//! The thread that made the change may hold any lock of this device or of `malloc`. So the thread
//! that reads waits for none of these without a limit, and allocates nothing.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use crate::signals::{block_signals, restore_signals};

/// `ioctl` requests and structures of `linux/userfaultfd.h`.
mod kernel {
    pub(super) const USER_MODE_ONLY: i32 = 1;
    pub(super) const API_VERSION: u64 = 0xaa;
    pub(super) const API: libc::c_ulong = 0xc018_aa3f;
    pub(super) const REGISTER: libc::c_ulong = 0xc020_aa00;
    pub(super) const UNREGISTER: libc::c_ulong = 0x8010_aa01;
    pub(super) const REGISTER_MODE_WP: u64 = 2;
    pub(super) const FEATURE_EVENT_REMAP: u64 = 1 << 2;
    pub(super) const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
    pub(super) const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
    pub(super) const FEATURE_WP: u64 = 1;
    /// Memory of all kinds can be registered (Linux 6.7).
    pub(super) const FEATURE_WP_ASYNC: u64 = 1 << 15;
    pub(super) const EVENT_REMAP: u64 = 0x14;
    pub(super) const EVENT_REMOVE: u64 = 0x15;
    pub(super) const EVENT_UNMAP: u64 = 0x16;
}

/// A change of the memory map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// What is mapped there now is not watched.
    pub(crate) is_unwatched: bool,
    /// Where what was mapped there is now, and is still watched.
    pub(crate) moved_to: Option<u64>,
}

impl Change {
    const NOTHING: Change = Change { start: 0, bytes: 0, is_unwatched: false, moved_to: None };
    const EVERYTHING: Change = Change { bytes: u64::MAX, ..Change::NOTHING };
    const EVERYTHING_UNWATCHED: Change = Change { is_unwatched: true, ..Change::EVERYTHING };
}

/// Changes that are kept one by one; if there are more, everything counts as changed.
const MOST_CHANGES: usize = 64;

/// How long a change waits for copies that are under way, and for the list of changes, ns. The
/// thread that makes the change may itself have interrupted a copy, or have locked the list, and
/// make the change in a signal handler.
const COPY_WAIT_NS: u64 = 100_000_000;

/// How long the gate stays open for those that found it closed, ns.
const LET_IN_NS: u64 = 1_000_000;

#[derive(Clone, Copy)]
struct Changes {
    /// Each with the time at which it was noted, ns.
    kept: [(u64, Change); MOST_CHANGES],
    count: usize,
}

const NO_CHANGES: Changes = Changes { kept: [(0, Change::NOTHING); MOST_CHANGES], count: 0 };

/// Whether the user forbids to ask the kernel for events.
pub(crate) fn is_forbidden() -> bool {
    std::env::var_os("RDMALAB_ODP_WATCH").is_some_and(|it| it == "scan")
}

/// Waits while a condition holds. After some turns it sleeps: the thread that is waited for may
/// need this processor and have a lower priority.
fn wait_while(holds: impl FnMut() -> bool) {
    const YIELDS: usize = 100;
    let turns = std::iter::repeat_with(holds).take_while(|holds| *holds);
    for (turn, _) in turns.enumerate() {
        match turn < YIELDS {
            true => std::thread::yield_now(),
            false => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// Watches memory of this process.
pub(crate) struct MemoryWatch {
    gate: CopyGate,
    changes: Mutex<Changes>,
    has_changes: AtomicBool,
    /// A change could not be noted, because the list was locked for too long.
    lost: AtomicBool,
    /// `None`: the kernel does not tell about changes.
    fd: OnceLock<Option<OwnedFd>>,
    /// The descriptor is no longer what it was: the program closed it.
    is_broken: AtomicBool,
}

impl Default for MemoryWatch {
    fn default() -> MemoryWatch {
        MemoryWatch {
            gate: CopyGate::default(),
            changes: Mutex::new(NO_CHANGES),
            has_changes: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            fd: OnceLock::new(),
            is_broken: AtomicBool::new(false),
        }
    }
}

impl MemoryWatch {
    /// Whether events tell of changes.
    pub(crate) fn works(&self) -> bool {
        self.fd().is_some()
    }

    fn fd(&self) -> Option<&OwnedFd> {
        let is_usable = !self.is_broken.load(Ordering::Relaxed);
        self.fd.get().and_then(Option::as_ref).filter(|_| is_usable)
    }

    /// Closes the descriptor in a forked child, whose copy would keep alive what no thread reads.
    pub(crate) fn close_in_child(&self) {
        if let Some(fd) = self.fd() {
            // SAFETY: the descriptor is ours. Its owner is never dropped, and nothing uses it after
            // the flag is set.
            unsafe { libc::close(fd.as_raw_fd()) };
            self.is_broken.store(true, Ordering::Relaxed);
        }
    }

    /// Begins to watch, if the kernel can do that and the user did not forbid it. Returns whether
    /// it does. The first call starts the thread.
    pub(crate) fn start(&'static self) -> bool {
        let open = || {
            let fd = if is_forbidden() { None } else { open() }?;
            let raw = fd.as_raw_fd();
            let file = file_of(raw)?;
            let before = block_signals();
            let thread = std::thread::Builder::new().name("rdmalab-odp".into());
            let spawned = thread.stack_size(64 * 1024).spawn(move || self.watch(raw, file));
            restore_signals(&before);
            spawned.is_ok().then_some(fd)
        };
        self.fd.get_or_init(open);
        self.works()
    }

    /// Watches a range of whole pages; `false` if that is not possible.
    pub(crate) fn add(&self, start: u64, end: u64) -> bool {
        let Some(fd) = self.fd() else { return false };
        let mut range = [start, end - start, kernel::REGISTER_MODE_WP, 0];
        // SAFETY: a live `struct uffdio_register`; the kernel checks the range. Without a protected
        // page the registration changes nothing of what the program sees.
        unsafe { libc::ioctl(fd.as_raw_fd(), kernel::REGISTER, range.as_mut_ptr()) == 0 }
    }

    /// Watches a range no longer, whatever is mapped there now.
    pub(crate) fn remove(&self, start: u64, end: u64) {
        let Some(fd) = self.fd() else { return };
        let mut range = [start, end - start];
        // SAFETY: a live `struct uffdio_range`.
        unsafe { libc::ioctl(fd.as_raw_fd(), kernel::UNREGISTER, range.as_mut_ptr()) };
    }

    /// Calls `forget` for all that changed since the last call, with the time. Waits first for a
    /// change that is about to be noted, so that a thread whose call has returned is never
    /// overtaken.
    pub(crate) fn take_changes(&self, mut forget: impl FnMut(u64, Change)) {
        self.gate.wait_until_open();
        if !self.has_changes.load(Ordering::Acquire) {
            return;
        }
        self.has_changes.store(false, Ordering::Relaxed);
        let taken = {
            let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *changes, NO_CHANGES)
        };
        match taken.kept.get(..taken.count) {
            Some(changes) => changes.iter().for_each(|(at_ns, change)| forget(*at_ns, *change)),
            None => forget(crate::clock::now_ns(), Change::EVERYTHING_UNWATCHED),
        }
        if self.lost.swap(false, Ordering::Relaxed) {
            forget(crate::clock::now_ns(), Change::EVERYTHING_UNWATCHED);
        }
    }

    /// Every page changed, as after a fork, which protects them all in both processes.
    pub(crate) fn everything_changed(&self) {
        self.note(Change::EVERYTHING);
    }

    /// Marks a copy into or out of on-demand memory until the result is dropped. The caller must
    /// allocate and free nothing meanwhile.
    pub(crate) fn copying(&self) -> Copying<'_> {
        self.gate.enter()
    }

    fn note(&self, change: Change) {
        let now_ns = crate::clock::now_ns();
        let give_up_ns = now_ns + COPY_WAIT_NS;
        let mut locked = None;
        wait_while(|| {
            locked = match self.changes.try_lock() {
                Ok(changes) => Some(changes),
                Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            locked.is_none() && crate::clock::now_ns() < give_up_ns
        });
        match locked {
            Some(mut changes) => {
                let at = changes.count;
                if let Some(place) = changes.kept.get_mut(at) {
                    *place = (now_ns, change);
                }
                changes.count = (at + 1).min(MOST_CHANGES + 1);
            }
            None => self.lost.store(true, Ordering::Relaxed),
        }
        self.has_changes.store(true, Ordering::Release);
    }

    /// Reads events until the process ends, or the descriptor is not what it was.
    fn watch(&self, fd: i32, file: (u64, u64)) {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        loop {
            // SAFETY: one live pollfd.
            let ready = unsafe { libc::poll(&raw mut poll, 1, -1) };
            if ready <= 0 {
                continue;
            }
            self.gate.close();
            let goes_on = poll.revents & !libc::POLLIN == 0 && self.read_events(fd, file);
            if !goes_on {
                self.is_broken.store(true, Ordering::Relaxed);
                self.note(Change::EVERYTHING_UNWATCHED);
            }
            self.gate.open();
            if !goes_on {
                return;
            }
            self.gate.let_in();
        }
    }

    /// Reads what is there; each read lets the thread go on that made the change. It stops after
    /// some events, so that threads that make one change after the other do not keep copies out.
    /// `false` if the descriptor cannot be read any more, or is another file's.
    fn read_events(&self, fd: i32, file: (u64, u64)) -> bool {
        for _ in 0..MOST_CHANGES {
            // The program may have closed the descriptor, and its number may be that of another
            // file, whose bytes are the program's.
            if file_of(fd) != Some(file) {
                return false;
            }
            // A `struct uffd_msg`: the event in the first byte, then up to three numbers.
            let mut event = [0u64; 4];
            let bytes = size_of_val(&event);
            // SAFETY: a live buffer of that size.
            let got = unsafe { libc::read(fd, event.as_mut_ptr().cast(), bytes) };
            if got < 0 {
                // Asked for without an allocation.
                // SAFETY: the calling thread's own error number.
                let error = unsafe { *libc::__errno_location() };
                match error {
                    libc::EINTR => continue,
                    error => return error == libc::EAGAIN,
                }
            }
            if got as usize != bytes {
                return false;
            }
            let [kind, first, second, third] = event;
            let range =
                Change { start: first, bytes: second.saturating_sub(first), ..Change::NOTHING };
            match kind & 0xff {
                kernel::EVENT_UNMAP => self.note(Change { is_unwatched: true, ..range }),
                kernel::EVENT_REMAP => self.note(Change {
                    bytes: third,
                    is_unwatched: true,
                    moved_to: Some(second),
                    ..range
                }),
                kernel::EVENT_REMOVE => self.note(range),
                _ => {}
            }
        }
        true
    }
}

/// The device and inode of a descriptor's file.
fn file_of(fd: i32) -> Option<(u64, u64)> {
    // SAFETY: a structure of numbers, which may be 0.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a live `struct stat`.
    let result = unsafe { libc::fstat(fd, &raw mut stat) };
    (result == 0).then_some((stat.st_dev, stat.st_ino))
}

/// A userfaultfd with the events of this module; `None` if the kernel has none, or the process may
/// not use it. That for faults in user mode only needs no privilege.
fn open() -> Option<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | kernel::USER_MODE_ONLY;
    // SAFETY: takes no pointers.
    let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let raw = i32::try_from(raw).ok().filter(|raw| *raw >= 0)?;
    // SAFETY: the kernel just returned this descriptor, and nothing else uses it.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let events =
        kernel::FEATURE_EVENT_REMAP | kernel::FEATURE_EVENT_REMOVE | kernel::FEATURE_EVENT_UNMAP;
    let accepts = |features: u64| {
        let mut api = [kernel::API_VERSION, features, 0];
        // SAFETY: a live `struct uffdio_api`.
        unsafe { libc::ioctl(fd.as_raw_fd(), kernel::API, api.as_mut_ptr()) == 0 }
    };
    // After a refusal the kernel lets it be asked again.
    let is_able = accepts(events | kernel::FEATURE_WP | kernel::FEATURE_WP_ASYNC)
        || accepts(events | kernel::FEATURE_WP);
    is_able.then_some(fd)
}

/// Lets many threads copy, or one thread make sure that none does.
#[derive(Default)]
struct CopyGate {
    is_closed: AtomicBool,
    inside: AtomicU32,
    /// Threads that found it closed and have not seen it open since.
    waiting: AtomicU32,
}

/// A copy that is under way.
pub(crate) struct Copying<'a>(&'a CopyGate);

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::Release);
    }
}

impl CopyGate {
    fn enter(&self) -> Copying<'_> {
        loop {
            self.inside.fetch_add(1, Ordering::SeqCst);
            let copying = Copying(self);
            if !self.is_closed.load(Ordering::SeqCst) {
                return copying;
            }
            drop(copying);
            if let Some(copying) = self.enter_waiting() {
                return copying;
            }
        }
    }

    fn wait_until_open(&self) {
        if self.is_closed.load(Ordering::SeqCst) {
            drop(self.enter());
        }
    }

    /// Waits until the gate is open and tries to enter. It counts as waiting until it has.
    fn enter_waiting(&self) -> Option<Copying<'_>> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        wait_while(|| self.is_closed.load(Ordering::SeqCst));
        self.inside.fetch_add(1, Ordering::SeqCst);
        let copying = Copying(self);
        let is_in = !self.is_closed.load(Ordering::SeqCst);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        is_in.then_some(copying)
    }

    /// Returns when nobody waits any more, or after [`LET_IN_NS`]. The caller has opened the gate.
    /// Otherwise it would close it again before a thread that sleeps has seen that: threads that
    /// change the memory map in turns would keep copies out.
    fn let_in(&self) {
        let give_up_ns = crate::clock::now_ns() + LET_IN_NS;
        wait_while(|| {
            self.waiting.load(Ordering::SeqCst) > 0 && crate::clock::now_ns() < give_up_ns
        });
    }

    /// Returns when no copy is under way, or after [`COPY_WAIT_NS`].
    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let give_up_ns = crate::clock::now_ns() + COPY_WAIT_NS;
        wait_while(|| {
            self.inside.load(Ordering::SeqCst) > 0 && crate::clock::now_ns() < give_up_ns
        });
    }

    fn open(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    const PAGE: usize = 4096;

    fn map(at: *mut libc::c_void, bytes: usize, more: i32) -> *mut libc::c_void {
        let (rw, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more);
        // SAFETY: new memory, or in place of memory of this test alone.
        let base = unsafe { libc::mmap(at, bytes, rw, flags, -1, 0) };
        assert!(base != libc::MAP_FAILED);
        base
    }

    fn taken(watch: &MemoryWatch) -> Vec<Change> {
        let mut found = Vec::new();
        watch.take_changes(|_, change| found.push(change));
        found
    }

    #[test]
    fn a_gate_that_is_closed_again_and_again_lets_copies_in() {
        let (gate, mut has_time) = (CopyGate::default(), true);
        let mut wait_limit = rdmalab_testing::WaitLimit::of(rdmalab_testing::LIMIT);
        std::thread::scope(|scope| {
            let copies = scope.spawn(|| (0..20).for_each(|_| drop(gate.enter())));
            while !copies.is_finished() && has_time {
                gate.close();
                std::thread::sleep(Duration::from_micros(200));
                gate.open();
                gate.let_in();
                has_time = wait_limit.is_left();
            }
        });
        assert!(has_time, "copies are kept out");
    }

    #[test]
    fn a_change_is_known_when_the_call_returns() {
        let watch: &'static MemoryWatch = Box::leak(Box::default());
        if !watch.start() {
            rdmalab_testing::skipped("changes of the memory map", "the kernel refuses userfaultfd");
            return;
        }
        let base = map(std::ptr::null_mut(), 16 * PAGE, 0);
        let address = base as u64;
        assert!(watch.add(address, address + 16 * PAGE as u64));
        assert!(taken(watch).is_empty());
        let change = |page: u64, pages: u64, is_unwatched| Change {
            start: address + page * PAGE as u64,
            bytes: pages * PAGE as u64,
            is_unwatched,
            moved_to: None,
        };
        // SAFETY: memory of this test alone, here and below.
        unsafe { libc::madvise(base, 2 * PAGE, libc::MADV_DONTNEED) };
        assert_eq!(taken(watch), [change(0, 2, false)]);
        // SAFETY: see above.
        map(unsafe { base.byte_add(2 * PAGE) }, PAGE, libc::MAP_FIXED);
        assert_eq!(taken(watch), [change(2, 1, true)]);
        // SAFETY: see above.
        let moved = unsafe {
            libc::mremap(base.byte_add(4 * PAGE), 4 * PAGE, 8 * PAGE, libc::MREMAP_MAYMOVE)
        };
        let moved_to = Some(moved as u64);
        assert!(taken(watch).contains(&Change { moved_to, ..change(4, 4, true) }));
        // SAFETY: see above.
        unsafe { libc::munmap(base, 16 * PAGE) };
        assert!(taken(watch).iter().all(|change| change.is_unwatched));
        // SAFETY: see above.
        unsafe { libc::munmap(moved, 8 * PAGE) };
    }

    #[test]
    fn more_changes_than_are_kept_are_a_change_of_everything() {
        let watch = MemoryWatch::default();
        let change = Change { start: 4096, bytes: 1, ..Change::NOTHING };
        (0..MOST_CHANGES).for_each(|_| watch.note(change));
        assert_eq!(taken(&watch), [change; MOST_CHANGES]);
        (0..MOST_CHANGES + 5).for_each(|_| watch.note(change));
        assert_eq!(taken(&watch), [Change::EVERYTHING_UNWATCHED]);
        assert!(taken(&watch).is_empty());
    }

    #[test]
    fn a_change_during_a_lock_of_the_list_is_a_change_of_everything() {
        let watch = MemoryWatch::default();
        let locked = watch.changes.lock().unwrap();
        watch.note(Change { start: 4096, bytes: 1, ..Change::NOTHING });
        drop(locked);
        assert_eq!(taken(&watch), [Change::EVERYTHING_UNWATCHED]);
        assert!(taken(&watch).is_empty());
    }

    #[test]
    fn a_forked_child_has_no_descriptor() {
        let watch: &'static MemoryWatch = Box::leak(Box::default());
        if !watch.start() {
            return rdmalab_testing::skipped("a forked child", "the kernel refuses userfaultfd");
        }
        let raw = watch.fd().unwrap().as_raw_fd();
        // SAFETY: the child makes system calls only, and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            watch.close_in_child();
            // SAFETY: takes no pointers.
            unsafe { libc::_exit(i32::from(watch.works() || libc::fcntl(raw, libc::F_GETFD) >= 0)) }
        }
        let mut status = 1;
        // SAFETY: waits for the child of this test.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0);
        assert!(watch.works());
    }

    #[test]
    fn a_file_of_the_program_is_not_read() {
        let watch: &'static MemoryWatch = Box::leak(Box::default());
        if !watch.start() {
            return rdmalab_testing::skipped(
                "a closed descriptor",
                "the kernel refuses userfaultfd",
            );
        }
        let base = map(std::ptr::null_mut(), PAGE, 0);
        assert!(watch.add(base as u64, base as u64 + PAGE as u64));
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&[7]).unwrap();
        // SAFETY: the program of this test takes the number for a file of its own.
        unsafe { libc::dup2(reader.as_raw_fd(), watch.fd().unwrap().as_raw_fd()) };
        // SAFETY: memory of this test alone.
        unsafe { libc::madvise(base, PAGE, libc::MADV_DONTNEED) };
        wait_while(|| watch.works());
        wait_while(|| !watch.has_changes.load(Ordering::Acquire));
        assert!(taken(watch).contains(&Change::EVERYTHING_UNWATCHED));
        drop(writer);
        let mut left = [0];
        reader.read_exact(&mut left).unwrap();
        assert_eq!(left, [7]);
    }

    #[test]
    fn the_gate_keeps_copies_out() {
        let gate: &CopyGate = Box::leak(Box::default());
        let copying = gate.enter();
        let closer = std::thread::spawn(|| gate.close());
        while !gate.is_closed.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        drop(copying);
        closer.join().unwrap();
        let late = std::thread::spawn(|| drop(gate.enter()));
        std::thread::yield_now();
        assert!(!late.is_finished());
        gate.open();
        late.join().unwrap();
        assert_eq!(gate.inside.load(Ordering::SeqCst), 0);
    }
}
