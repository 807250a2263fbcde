//! The preload library `librdmalab-memory.so`, if it is in this process: its memory for the program
//! is one sealed memfd.

use std::ffi::{CStr, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;

type Find = unsafe extern "C" fn(*const c_void, usize, *mut u64) -> i32;
type File = unsafe extern "C" fn() -> i32;

/// The library's functions.
#[derive(Clone, Copy)]
struct Functions {
    find: Find,
    file: File,
}

/// The library's functions, which are looked up once.
fn functions() -> Option<Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    // SAFETY: asks for names in the program's global scope.
    let look_up = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    *FUNCTIONS.get_or_init(|| {
        let (find, file) = (look_up(c"rdmalab_memory_find_1"), look_up(c"rdmalab_memory_file_1"));
        // SAFETY: the names have a version number, and are the preload library's alone; null is
        // `None`.
        unsafe {
            let find = std::mem::transmute::<*mut c_void, Option<Find>>(find)?;
            let file = std::mem::transmute::<*mut c_void, Option<File>>(file)?;
            Some(Functions { find, file })
        }
    })
}

/// The position in the library's file of a range of memory. `None` if part of the range is not the
/// library's.
pub(crate) fn find(addr: u64, length: u64) -> Option<u64> {
    let mut offset = 0;
    // SAFETY: the library reads its own tables only, and writes to `offset`.
    let fd = unsafe { (functions()?.find)(addr as *const c_void, length as usize, &mut offset) };
    (fd >= 0).then_some(offset)
}

/// A descriptor of the file, to be sent to a peer.
pub(crate) fn descriptor() -> Option<OwnedFd> {
    // SAFETY: the library looks whether the descriptor is still its file's.
    let fd = unsafe { (functions()?.file)() };
    // SAFETY: the library never closes its file.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().ok())?
}
