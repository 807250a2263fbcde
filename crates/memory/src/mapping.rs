//! `mmap` and its relatives. Private anonymous memory comes from the arena; what
//! the program does with memory of the arena afterwards means what it means for its own mappings.

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::arena::{self, For};
use crate::next::set_errno;
use crate::system::{self, ADDRESSES, PAGE, READ_WRITE};

/// Mappings with other flags stay private. Those of huge pages are aligned to one.
const PLAIN_FLAGS: c_int = libc::MAP_PRIVATE
    | libc::MAP_ANONYMOUS
    | libc::MAP_POPULATE
    | libc::MAP_HUGETLB
    | libc::MAP_NORESERVE
    | libc::MAP_HUGE_MASK << libc::MAP_HUGE_SHIFT;
const HUGE_PAGE: usize = 2 << 20;

fn fail(errno: c_int) -> *mut c_void {
    set_errno(errno);
    libc::MAP_FAILED
}

/// `mmap`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // With MAP_FIXED_NOREPLACE the kernel refuses, because the whole arena is mapped.
    let is_fixed = flags & libc::MAP_FIXED != 0;
    let is_private = flags & libc::MAP_PRIVATE != 0 && flags & libc::MAP_ANONYMOUS != 0;
    let is_plain = is_private && flags & !PLAIN_FLAGS == 0 && protection == READ_WRITE;
    if at.is_null() && is_plain && bytes > 0 {
        let is_huge = flags & libc::MAP_HUGETLB != 0;
        let found = arena::allocate(bytes, if is_huge { HUGE_PAGE } else { PAGE }, For::Mapping);
        if !found.is_null() {
            if flags & libc::MAP_POPULATE != 0 {
                system::advise(found.addr(), bytes, libc::MADV_POPULATE_WRITE);
            }
            return found;
        }
    }
    let map = || system::map_by_kernel(at, bytes, protection, flags, fd, offset);
    match is_fixed && arena::overlaps(at, bytes) {
        true => map_over(at, bytes, map),
        false => map(),
    }
}

/// Maps something over a range that touches the arena.
fn map_over(at: *mut c_void, bytes: usize, map: impl Fn() -> *mut c_void) -> *mut c_void {
    arena::with(|arena| arena.map_over(at.addr(), bytes, &map)).unwrap_or_else(map)
}

/// `mmap64`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { mmap(at, bytes, protection, flags, fd, offset) }
}

/// `munmap`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(at: *mut c_void, bytes: usize) -> c_int {
    if !touches_arena(at, bytes) || bytes == 0 {
        return system::unmap(at.addr(), bytes);
    }
    arena::with(|arena| arena.close_range(at.addr(), bytes));
    outside(at.addr(), bytes, system::unmap)
}

/// Whether a range touches the arena, and is one that the kernel accepts.
fn touches_arena(at: *mut c_void, bytes: usize) -> bool {
    let is_range = at.addr().checked_add(bytes).is_some_and(|end| end <= ADDRESSES);
    is_range && at.addr().is_multiple_of(PAGE) && arena::overlaps(at, bytes)
}

/// Calls a function for the parts of a range before and after the arena.
fn outside(at: usize, bytes: usize, call: impl Fn(usize, usize) -> c_int) -> c_int {
    let Some((start, end)) = arena::with(|arena| arena.bounds()) else { return 0 };
    let last = at.saturating_add(bytes);
    let before = if at < start { call(at, start - at) } else { 0 };
    let after = if last > end { call(end, last - end) } else { 0 };
    if before == 0 { after } else { before }
}

/// `mremap`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    at: *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
    flags: c_int,
    new_at: *mut c_void,
) -> *mut c_void {
    if !arena::contains(at) {
        let call = libc::SYS_mremap;
        let map = || {
            // SAFETY: the caller's contract.
            let moved = unsafe { libc::syscall(call, at, old_bytes, new_bytes, flags, new_at) };
            moved as *mut c_void
        };
        let is_fixed = flags & libc::MREMAP_FIXED != 0;
        return match is_fixed && arena::overlaps(new_at, new_bytes) {
            true => map_over(new_at, new_bytes, map),
            false => map(),
        };
    }
    let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    if flags & !known != 0 || new_bytes == 0 || old_bytes == 0 || !at.addr().is_multiple_of(PAGE) {
        return fail(libc::EINVAL);
    }
    let (old_pages, new_pages) = (old_bytes.div_ceil(PAGE), new_bytes.div_ceil(PAGE));
    let to = if flags & libc::MREMAP_FIXED != 0 {
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the caller asks to replace what is there.
        unsafe { mmap(new_at, new_bytes, READ_WRITE, private, -1, 0) }
    } else if arena::with(|arena| arena.resize(at.addr(), old_pages, new_pages)) == Some(true) {
        return at;
    } else if flags & libc::MREMAP_MAYMOVE != 0 {
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        unsafe { mmap(ptr::null_mut(), new_bytes, READ_WRITE, private, -1, 0) }
    } else {
        return fail(libc::ENOMEM);
    };
    if to != libc::MAP_FAILED {
        // SAFETY: both mappings have so many bytes; the old one is not used any more.
        unsafe {
            ptr::copy_nonoverlapping(at.cast::<u8>(), to.cast(), old_bytes.min(new_bytes));
            munmap(at, old_bytes);
        }
    }
    to
}

/// `madvise`. The advice that frees memory frees the file's; that on `fork` is for the arena to
/// follow.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    let is_changed = [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_DONTFORK, libc::MADV_DOFORK]
        .contains(&advice);
    if !is_changed || !touches_arena(at, bytes) {
        return system::advise(at.addr(), bytes, advice);
    }
    let status = arena::with(|arena| match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE => arena.forget(at.addr(), bytes, advice),
        _ => arena.advise_for_child(at.addr(), bytes, advice),
    });
    if status.is_some_and(|status| status != 0) {
        return -1;
    }
    outside(at.addr(), bytes, |at, bytes| system::advise(at, bytes, advice))
}
