//! The preload library `librdmalab-memory.so`, if it is in this process: its memory for the program
//! is one sealed memfd.

use std::ffi::c_void;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

type Find = unsafe extern "C" fn(*const c_void, usize, *mut u64) -> i32;

/// The library's file, once a buffer was found in it; -1 before.
static FILE: AtomicI32 = AtomicI32::new(-1);

/// The library's function, which is looked up once.
fn function() -> Option<Find> {
    static FIND: OnceLock<Option<Find>> = OnceLock::new();
    *FIND.get_or_init(|| {
        let name = c"rdmalab_memory_find_1";
        // SAFETY: asks for a name in the program's global scope.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        // SAFETY: the name has a version number, and is the preload library's alone; null is
        // `None`.
        unsafe { std::mem::transmute::<*mut c_void, Option<Find>>(found) }
    })
}

/// The library's descriptor of its file, and the position there of a range of memory. `None` if
/// part of the range is not the library's.
pub(crate) fn find(addr: u64, length: u64) -> Option<(i32, u64)> {
    let mut offset = 0;
    // SAFETY: the library reads its own tables only, and writes to `offset`.
    let fd = unsafe { function()?(addr as *const c_void, length as usize, &mut offset) };
    if fd < 0 {
        return None;
    }
    FILE.store(fd, Ordering::Relaxed);
    Some((fd, offset))
}

/// A descriptor of the file, to be sent to a peer.
pub(crate) fn descriptor() -> Option<OwnedFd> {
    let fd = FILE.load(Ordering::Relaxed);
    // SAFETY: the library never closes its file.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().ok())?
}
