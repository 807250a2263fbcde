//! Shared memory segments: sealed memfds, which vanish with their last holder, and the lock that
//! shows whether a segment's owner lives.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, Ordering};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use crate::sync::page_bytes;

/// A memory segment that can be passed to other processes of this host by its file descriptor.
///
/// It is sealed against shrinking and growing, so no holder can remove a page that another process
/// has mapped (which would raise SIGBUS there).
///
/// The bytes are shared: touch them through atomics or raw copies only.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
    /// The process that took the owner's lock through this value, or 0. F_GETLK by the holder of a
    /// lock reports no conflict, so the holder must remember it.
    lock_pid: AtomicI32,
}

// SAFETY: the mapping belongs to the process, not to a thread; `Segment` itself never touches the
// mapped bytes.
unsafe impl Send for Segment {}
// SAFETY: as above; the methods on `&self` are system calls on the descriptor.
unsafe impl Sync for Segment {}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn refuse(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Segment {
    /// Creates a zeroed segment of `bytes` bytes (rounded up to pages), named `name` in
    /// `/proc/PID/maps`. The first `prefault_bytes` are backed with memory now and mapped in; the
    /// rest is sparse and gets pages when touched.
    ///
    /// # Errors
    /// The kernel's error: ENOMEM or ENOSPC without enough memory, EMFILE; and `InvalidInput` for
    /// zero bytes or `prefault_bytes` beyond `bytes`.
    pub fn create(name: &CStr, bytes: usize, prefault_bytes: usize) -> io::Result<Segment> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let len = bytes.checked_next_multiple_of(page_bytes()).ok_or_else(invalid)?;
        if len == 0 || prefault_bytes > len || len > isize::MAX as usize {
            return Err(invalid());
        }
        // SAFETY: `name` is a C string; the call has no other memory effects.
        let raw = check(unsafe {
            libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        })?;
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: a system call on a descriptor that we own.
        check(unsafe { libc::ftruncate(raw, len as libc::off_t) })?;
        if prefault_bytes > 0 {
            check_memory(prefault_bytes)?;
            // SAFETY: as above.
            check(unsafe { libc::fallocate(raw, 0, 0, prefault_bytes as libc::off_t) })?;
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: as above.
        check(unsafe { libc::fcntl(raw, libc::F_ADD_SEALS, seals) })?;
        let segment = Segment::map(fd, len)?;
        segment.populate(prefault_bytes);
        Ok(segment)
    }

    /// Maps a segment received from a peer, all of it, for reading and writing.
    ///
    /// # Errors
    /// `InvalidData` when the descriptor is not a memfd of ordinary pages, may still be shrunk, or
    /// is smaller than `expect_bytes_min`: touching such a mapping could raise SIGBUS. Otherwise
    /// the kernel's error.
    pub fn from_fd(fd: OwnedFd, expect_bytes_min: usize) -> io::Result<Segment> {
        let raw = fd.as_raw_fd();
        // SAFETY: a system call on a descriptor that we own.
        let seals = check(unsafe { libc::fcntl(raw, libc::F_GET_SEALS) })
            .map_err(|_| refuse("the segment's descriptor is not a sealable memfd"))?;
        if seals & libc::F_SEAL_SHRINK == 0 {
            return Err(refuse("the segment is not sealed against shrinking"));
        }
        // SAFETY: all-zero is a valid value of this plain C structure.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        let mut fs: libc::statfs = unsafe { core::mem::zeroed() };
        // SAFETY: both pointers are to live structures of the right type.
        unsafe {
            check(libc::fstat(raw, &raw mut stat))?;
            check(libc::fstatfs(raw, &raw mut fs))?;
        }
        // A memfd of huge pages raises SIGBUS when its pool is empty.
        if fs.f_type != libc::TMPFS_MAGIC {
            return Err(refuse("the segment is not backed by ordinary pages"));
        }
        let len = usize::try_from(stat.st_size).map_err(|_| refuse("the segment's size"))?;
        if len == 0 || len < expect_bytes_min {
            return Err(refuse("the segment is smaller than it has to be"));
        }
        Segment::map(fd, len)
    }

    fn map(fd: OwnedFd, len: usize) -> io::Result<Segment> {
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; it replaces nothing.
        let base = unsafe {
            libc::mmap(core::ptr::null_mut(), len, rw, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| refuse("mapped at zero"))?;
        Ok(Segment { base, len, fd, lock_pid: AtomicI32::new(0) })
    }

    /// Maps the first `bytes` in now, so that the first touch does not fault. A hint: kernels
    /// before 5.14 ignore it.
    pub fn populate(&self, bytes: usize) {
        let bytes = bytes.min(self.len);
        if bytes > 0 {
            crate::sync::populate(self.base.as_ptr(), bytes);
        }
    }

    /// The first byte, page-aligned. Valid while the segment lives.
    pub fn ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The length in bytes, a multiple of the page size if we created it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a segment has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Takes the owner's lock on this segment for the calling process, for the rest of its life.
    /// The kernel releases it when the process exits, however it dies, and when it executes another
    /// program (the descriptor is close-on-exec). A forked child does not have it.
    ///
    /// **Caution**: it is a POSIX record lock, which belongs to the pair of process and inode. When
    /// the owner closes *any* descriptor of this segment (a duplicate, one that a peer sent back,
    /// one opened through /proc), the lock is released. So an owner keeps exactly one descriptor.
    ///
    /// # Errors
    /// EACCES or EAGAIN when another process has it, else the kernel's error.
    pub fn lock_owner(&self) -> io::Result<()> {
        let mut lock = first_byte(libc::F_WRLCK);
        // SAFETY: the pointer is to a live flock structure, which F_SETLK only reads.
        check(unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_SETLK, &raw mut lock) })?;
        self.lock_pid.store(own_pid(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether the process that took the owner's lock still lives (and has not executed another
    /// program). One system call. If that call fails, the owner counts as alive.
    pub fn owner_alive(&self) -> bool {
        let holder = self.lock_pid.load(Ordering::Relaxed);
        if holder != 0 && holder == own_pid() {
            return true;
        }
        let mut lock = first_byte(libc::F_WRLCK);
        // SAFETY: the pointer is to a live flock structure, which F_GETLK fills.
        let result = unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
        result < 0 || i32::from(lock.l_type) != libc::F_UNLCK
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; users of its pointers have promised to stop
        // using them before the segment is dropped.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Refuses to allocate more than the machine has: the kernel would use up all memory before it
/// reports an error, and kill processes to get more.
fn check_memory(bytes: usize) -> io::Result<()> {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut info: libc::sysinfo = unsafe { core::mem::zeroed() };
    // SAFETY: fills a live structure.
    let known = unsafe { libc::sysinfo(&raw mut info) } == 0;
    let total = (info.totalram as u64).saturating_mul(info.mem_unit.into());
    if known && bytes as u64 > total {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    Ok(())
}

fn own_pid() -> i32 {
    // SAFETY: always succeeds, touches no memory.
    unsafe { libc::getpid() }
}

fn first_byte(kind: libc::c_int) -> libc::flock {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_len = 1;
    lock
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn seals_of(fd: BorrowedFd<'_>) -> i32 {
        // SAFETY: a query on a live descriptor.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) }
    }

    fn copy_of(segment: &Segment) -> OwnedFd {
        segment.as_fd().try_clone_to_owned().unwrap()
    }

    #[test]
    fn a_segment_is_zeroed_shared_and_sealed() {
        let segment = Segment::create(c"seg-test", 10_000, 5000).unwrap();
        assert_eq!(segment.len(), 10_000_usize.next_multiple_of(page_bytes()));
        assert!(!segment.is_empty());
        let other = Segment::from_fd(copy_of(&segment), 10_000).unwrap();
        assert_eq!(other.len(), segment.len());
        assert_ne!(other.ptr(), segment.ptr());
        // SAFETY: within both mappings; one thread touches them.
        unsafe {
            assert_eq!(other.ptr().add(9999).read_volatile(), 0);
            segment.ptr().add(9999).write_volatile(7);
            assert_eq!(other.ptr().add(9999).read_volatile(), 7);
        }
        for bytes in [0, 1 << 20] {
            // SAFETY: a system call on a live descriptor; the seal must refuse it.
            let done = unsafe { libc::ftruncate(segment.as_fd().as_raw_fd(), bytes) };
            assert_eq!(done, -1, "resized to {bytes}");
        }
        assert_ne!(seals_of(segment.as_fd()) & libc::F_SEAL_SEAL, 0);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for (bytes, prefault) in [(0, 0), (4096, usize::MAX), (usize::MAX, 0)] {
            let error = Segment::create(c"seg-test", bytes, prefault).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bytes} {prefault}");
        }
        assert!(Segment::create(c"seg-test", 1 << 30, 0).is_ok(), "sparse");
    }

    #[test]
    fn more_than_the_machine_has_is_refused_beforehand() {
        assert!(check_memory(page_bytes()).is_ok());
        let error = check_memory(1 << 60).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn descriptors_that_could_raise_sigbus_are_refused() {
        let small = Segment::create(c"seg-test", 4096, 0).unwrap();
        let why = Segment::from_fd(copy_of(&small), 1 << 20).unwrap_err().to_string();
        assert!(why.contains("smaller"), "{why}");

        // SAFETY: a fresh descriptor, owned by nobody else.
        let unsealed = unsafe {
            let raw = libc::memfd_create(c"seg-test".as_ptr(), libc::MFD_ALLOW_SEALING);
            assert_eq!(libc::ftruncate(raw, 1 << 20), 0);
            OwnedFd::from_raw_fd(raw)
        };
        let why = Segment::from_fd(unsealed, 4096).unwrap_err().to_string();
        assert!(why.contains("shrinking"), "{why}");

        let file = std::fs::File::open("/dev/null").unwrap();
        let why = Segment::from_fd(file.into(), 0).unwrap_err().to_string();
        assert!(why.contains("memfd"), "{why}");
    }

    #[test]
    fn the_holder_of_the_lock_knows_itself_alive() {
        let segment = Segment::create(c"seg-test", 4096, 0).unwrap();
        assert!(!segment.owner_alive(), "nobody has it");
        segment.lock_owner().unwrap();
        assert!(segment.owner_alive());
    }
}
