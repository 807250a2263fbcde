//! The C library's functions that allocate memory. Large memory, and memory aligned to pages, comes
//! from the arena.

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::arena::{self, For};
use crate::next::{self, set_errno};
use crate::system::PAGE;

/// Memory of this length comes from the arena, whatever its alignment.
const LARGE_BYTES: usize = 64 << 10;

/// Allocates by the arena, or null if the request is not for it or the arena has no room.
#[inline(always)]
fn large(bytes: usize, align: usize) -> *mut c_void {
    match bytes >= LARGE_BYTES || align >= PAGE {
        true => arena::allocate(bytes, align, For::Heap),
        false => ptr::null_mut(),
    }
}

/// `malloc`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    let at = large(bytes, 1);
    // SAFETY: the caller's contract.
    if at.is_null() { unsafe { next::malloc(bytes) } } else { at }
}

/// `calloc`. The arena's memory is zero.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    let at = count.checked_mul(bytes).map_or(ptr::null_mut(), |bytes| large(bytes, 1));
    // SAFETY: the caller's contract.
    if at.is_null() { unsafe { next::calloc(count, bytes) } } else { at }
}

/// `free`. Keeps `errno`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(at: *mut c_void) {
    // SAFETY: the thread's own variable.
    let errno = unsafe { *libc::__errno_location() };
    let is_ours = arena::contains(at) && !arena::is_mapping(at);
    if !is_ours {
        // SAFETY: the caller's contract.
        unsafe { next::free(at) };
    } else if arena::with(|arena| arena.free(at.addr())) != Some(true) {
        let said = b"free(): invalid pointer\n";
        // SAFETY: writes from a live buffer, and ends the process as the C library does.
        unsafe {
            libc::write(2, said.as_ptr().cast(), said.len());
            libc::abort();
        }
    }
    set_errno(errno);
}

/// `realloc`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(at: *mut c_void, bytes: usize) -> *mut c_void {
    if at.is_null() {
        // SAFETY: the caller's contract.
        return unsafe { malloc(bytes) };
    }
    let is_ours = arena::owns(at);
    if !is_ours && bytes < LARGE_BYTES {
        // SAFETY: the caller's contract.
        return unsafe { next::realloc(at, bytes) };
    }
    if bytes == 0 {
        // SAFETY: the caller's contract.
        unsafe { free(at) };
        return ptr::null_mut();
    }
    // SAFETY: the caller's contract.
    let old_bytes = unsafe { malloc_usable_size(at) };
    let (old_pages, new_pages) = (old_bytes / PAGE, bytes.div_ceil(PAGE));
    if is_ours && arena::with(|arena| arena.resize(at.addr(), old_pages, new_pages)) == Some(true) {
        return at;
    }
    let to = if is_ours { ptr::null_mut() } else { arena::allocate(bytes, 1, For::Heap) };
    // SAFETY: the caller's contract; both ranges have at least so many bytes.
    unsafe {
        if !is_ours && to.is_null() {
            return next::realloc(at, bytes);
        }
        let to = if to.is_null() { malloc(bytes) } else { to };
        if !to.is_null() {
            ptr::copy_nonoverlapping(at.cast::<u8>(), to.cast(), old_bytes.min(bytes));
            free(at);
        }
        to
    }
}

/// `reallocarray`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(at: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: the caller's contract.
        Some(bytes) => unsafe { realloc(at, bytes) },
        None => {
            set_errno(libc::ENOMEM);
            ptr::null_mut()
        }
    }
}

/// `posix_memalign`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    align: usize,
    bytes: usize,
) -> c_int {
    let is_valid = align.is_power_of_two() && align.is_multiple_of(size_of::<usize>());
    let at = if is_valid { large(bytes, align) } else { ptr::null_mut() };
    // SAFETY: the caller's contract.
    unsafe {
        if at.is_null() {
            return next::posix_memalign(place, align, bytes);
        }
        place.write(at);
    }
    0
}

/// Memory at a multiple of `align`, which is rounded up to a power of two.
///
/// # Safety
/// As for `memalign`.
unsafe fn aligned(align: usize, bytes: usize) -> *mut c_void {
    let Some(align) = align.max(size_of::<usize>()).checked_next_power_of_two() else {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    };
    let mut at = ptr::null_mut();
    // SAFETY: the caller's contract.
    match unsafe { posix_memalign(&mut at, align, bytes) } {
        0 => at,
        errno => {
            set_errno(errno);
            ptr::null_mut()
        }
    }
}

/// `memalign`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { aligned(align, bytes) }
}

/// `aligned_alloc`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { aligned(align, bytes) }
}

/// `valloc`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(bytes: usize) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { aligned(PAGE, bytes) }
}

/// `pvalloc`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { aligned(PAGE, bytes.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX)) }
}

/// `malloc_usable_size`.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(at: *mut c_void) -> usize {
    let ours = match arena::contains(at) {
        true => arena::with(|arena| arena.usable(at.addr())).flatten(),
        false => None,
    };
    // SAFETY: the caller's contract.
    ours.unwrap_or_else(|| unsafe { next::usable_size(at) })
}
