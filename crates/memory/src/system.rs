//! The arena's file, and the system calls on its memory. The functions of the C library that this
//! library replaces are called past it.

use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;

use crate::cgroup;

/// Bytes of a page. Machines with larger pages get no arena.
pub(crate) const PAGE: usize = 4096;
/// The arena's size in times of the machine's memory: address space is cheap, and blocks are powers
/// of two.
const TIMES_OF_MEMORY: usize = 4;
/// Limits of the arena's size.
const BYTES_MIN: usize = 1 << 26;
const BYTES_MAX: usize = 1 << 40;
/// The arena's alignment, so that blocks of this size are aligned to it.
pub(crate) const ALIGN: usize = 1 << 30;

/// The kernel accepts no address of a program from here on.
pub(crate) const ADDRESSES: usize =
    if cfg!(target_arch = "x86_64") { (1 << 47) - PAGE } else { 1 << 48 };

pub(crate) const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// The size that this machine and the limits of this process and its cgroups allow: a power of two.
pub(crate) fn size() -> Option<usize> {
    // SAFETY: plain structures that the calls fill.
    let (info, of_file, of_space) = unsafe {
        if libc::sysconf(libc::_SC_PAGESIZE) != PAGE as libc::c_long {
            return None;
        }
        let mut info: libc::sysinfo = mem::zeroed();
        let mut limits: [libc::rlimit; 2] = mem::zeroed();
        libc::sysinfo(&mut info);
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut limits[0]);
        libc::getrlimit(libc::RLIMIT_AS, &mut limits[1]);
        (info, limits[0].rlim_cur, limits[1].rlim_cur)
    };
    let memory = (info.totalram as usize).saturating_mul(info.mem_unit as usize);
    let wanted = memory.saturating_mul(TIMES_OF_MEMORY).clamp(ALIGN, BYTES_MAX).next_power_of_two();
    let mut most = wanted;
    if of_file != libc::RLIM_INFINITY {
        most = most.min(of_file as usize);
    }
    if of_space != libc::RLIM_INFINITY {
        most = most.min(of_space as usize / 4);
    }
    most = most.min(cgroup::limit().unwrap_or(usize::MAX));
    let bytes = if most < wanted { 1 << most.checked_ilog2()? } else { wanted };
    (bytes >= BYTES_MIN).then_some(bytes)
}

/// Moves a descriptor to a high number, which programs seldom close or choose.
fn out_of_the_way(fd: c_int) -> c_int {
    // SAFETY: a plain structure that the call fills; system calls on our descriptor.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let from = (limit.rlim_cur.min(1 << 16) as c_int).saturating_sub(32).max(3);
        match libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, from) {
            moved if moved >= 0 => {
                close(fd);
                moved
            }
            _ => fd,
        }
    }
}

/// Device and inode of a descriptor's file.
pub(crate) fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: a plain structure that the call fills.
    unsafe {
        let mut found: libc::stat = mem::zeroed();
        (libc::fstat(fd, &mut found) == 0).then_some((found.st_dev, found.st_ino))
    }
}

/// A new mapping at an address of the kernel's choice; `None` if it is refused.
pub(crate) fn map(bytes: usize, flags: c_int, protection: c_int) -> Option<usize> {
    let at = map_by_kernel(ptr::null_mut(), bytes, protection, flags, -1, 0);
    (at != libc::MAP_FAILED).then(|| at.addr())
}

/// `mmap` by the system call, since this library replaces the function.
pub(crate) fn map_by_kernel(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: replaces no mapping, or only what the program or this module owns there.
    unsafe {
        let at = libc::syscall(libc::SYS_mmap, at, bytes, protection, flags, fd, offset);
        at as *mut c_void
    }
}

/// `munmap` by the system call.
pub(crate) fn unmap(at: usize, bytes: usize) -> c_int {
    // SAFETY: what the program or this module owns there.
    unsafe { libc::syscall(libc::SYS_munmap, at, bytes) as c_int }
}

/// `madvise` by the system call.
pub(crate) fn advise(at: usize, bytes: usize, advice: c_int) -> c_int {
    // SAFETY: the program's or this module's own memory.
    unsafe { libc::syscall(libc::SYS_madvise, at, bytes, advice) as c_int }
}

/// Makes the file, of `bytes` bytes without pages; `None` if the kernel refuses it.
pub(crate) fn make_file(bytes: usize) -> Option<c_int> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a C string; the descriptor is ours.
    let fd = unsafe { libc::memfd_create(c"rdmalab-memory".as_ptr(), flags) };
    if fd < 0 {
        return None;
    }
    let fd = out_of_the_way(fd);
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: system calls on this descriptor.
    let is_sealed = unsafe {
        libc::ftruncate(fd, bytes as libc::off_t) == 0
            && libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0
    };
    if !is_sealed {
        close(fd);
    }
    is_sealed.then_some(fd)
}

/// Closes the file's descriptor.
pub(crate) fn close(fd: c_int) {
    // By the system call: the function is a cancellation point, and `malloc` is none.
    // SAFETY: the caller's descriptor, which nobody else uses.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Maps the file at a place of the arena, without access.
pub(crate) fn place(at: usize, bytes: usize, fd: c_int, offset: i64) -> bool {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let placed = map_by_kernel(at as *mut c_void, bytes, libc::PROT_NONE, flags, fd, offset);
    // A child by `fork` gets a copy instead.
    // A core dump would allocate the pages that the file does not have.
    placed != libc::MAP_FAILED
        && advise(at, bytes, libc::MADV_DONTFORK) == 0
        && advise(at, bytes, libc::MADV_DONTDUMP) == 0
}

/// Maps private memory at a place of the arena, without access.
pub(crate) fn place_private(at: usize, bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    map_by_kernel(at as *mut c_void, bytes, libc::PROT_NONE, flags, -1, 0) != libc::MAP_FAILED
}
