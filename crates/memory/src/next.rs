//! The functions after ours in the linker's search order: the C library's, or those of another
//! library that replaces them.

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A function, looked up once.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

static MALLOC: Next = Next::new(c"malloc");
static CALLOC: Next = Next::new(c"calloc");
static REALLOC: Next = Next::new(c"realloc");
static FREE: Next = Next::new(c"free");
static POSIX_MEMALIGN: Next = Next::new(c"posix_memalign");
static USABLE_SIZE: Next = Next::new(c"malloc_usable_size");

/// A lookup is in progress. It may allocate.
static LOOKS_UP: AtomicBool = AtomicBool::new(false);

/// Memory for the allocations of a lookup, which are never freed.
static mut EARLY: [u128; 256] = [0; 256];
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Null while the lookup itself allocates.
    #[inline(always)]
    fn get(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.find() } else { address }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        if LOOKS_UP.swap(true, Ordering::Acquire) {
            return ptr::null_mut();
        }
        // SAFETY: a C string, and the handle for the libraries after this one.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        LOOKS_UP.store(false, Ordering::Release);
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Looks all of them up, while the process has one thread.
pub(crate) fn find_all() {
    for next in [&MALLOC, &CALLOC, &REALLOC, &FREE, &POSIX_MEMALIGN, &USABLE_SIZE] {
        next.get();
    }
}

/// Zeroed memory for a lookup that allocates.
fn early(bytes: usize) -> *mut c_void {
    let words = bytes.div_ceil(16);
    let at = EARLY_USED.fetch_add(words, Ordering::Relaxed);
    if at + words > 256 {
        return ptr::null_mut();
    }
    // SAFETY: within the array; these words were given to nobody else.
    unsafe { (&raw mut EARLY).cast::<u128>().add(at).cast() }
}

fn is_early(at: *mut c_void) -> bool {
    at.addr().wrapping_sub((&raw const EARLY).addr()) < size_of::<[u128; 256]>()
}

/// # Safety
/// As for `malloc`.
pub(crate) unsafe fn malloc(bytes: usize) -> *mut c_void {
    type Function = unsafe extern "C" fn(usize) -> *mut c_void;
    // SAFETY: the function of this name has this type; null is `None`.
    match unsafe { transmute::<*mut c_void, Option<Function>>(MALLOC.get()) } {
        // SAFETY: the caller's contract.
        Some(next) => unsafe { next(bytes) },
        None => early(bytes),
    }
}

/// # Safety
/// As for `calloc`.
pub(crate) unsafe fn calloc(count: usize, bytes: usize) -> *mut c_void {
    type Function = unsafe extern "C" fn(usize, usize) -> *mut c_void;
    // SAFETY: the function of this name has this type; null is `None`.
    match unsafe { transmute::<*mut c_void, Option<Function>>(CALLOC.get()) } {
        // SAFETY: the caller's contract.
        Some(next) => unsafe { next(count, bytes) },
        None => early(count.saturating_mul(bytes)),
    }
}

/// # Safety
/// As for `realloc`, and `at` is not memory of the arena.
pub(crate) unsafe fn realloc(at: *mut c_void, bytes: usize) -> *mut c_void {
    type Function = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
    // SAFETY: the function of this name has this type; null is `None`.
    match unsafe { transmute::<*mut c_void, Option<Function>>(REALLOC.get()) } {
        // SAFETY: the caller's contract.
        Some(next) if !is_early(at) => unsafe { next(at, bytes) },
        _ => ptr::null_mut(),
    }
}

/// # Safety
/// As for `free`, and `at` is not memory of the arena.
pub(crate) unsafe fn free(at: *mut c_void) {
    type Function = unsafe extern "C" fn(*mut c_void);
    // SAFETY: the function of this name has this type; null is `None`.
    match unsafe { transmute::<*mut c_void, Option<Function>>(FREE.get()) } {
        // SAFETY: the caller's contract.
        Some(next) if !is_early(at) => unsafe { next(at) },
        _ => {}
    }
}

/// # Safety
/// As for `posix_memalign`.
pub(crate) unsafe fn posix_memalign(at: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    type Function = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
    // SAFETY: the function of this name has this type; null is `None`.
    match unsafe { transmute::<*mut c_void, Option<Function>>(POSIX_MEMALIGN.get()) } {
        // SAFETY: the caller's contract.
        Some(next) => unsafe { next(at, align, bytes) },
        None => libc::ENOMEM,
    }
}

/// # Safety
/// As for `malloc_usable_size`, and `at` is not memory of the arena.
pub(crate) unsafe fn usable_size(at: *mut c_void) -> usize {
    type Function = unsafe extern "C" fn(*mut c_void) -> usize;
    // SAFETY: the function of this name has this type; null is `None`.
    match unsafe { transmute::<*mut c_void, Option<Function>>(USABLE_SIZE.get()) } {
        // SAFETY: the caller's contract.
        Some(next) if !is_early(at) => unsafe { next(at) },
        _ => 0,
    }
}

/// Sets `errno`.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = errno };
}
