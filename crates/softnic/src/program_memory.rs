//! The preload library `librdmalab-memory.so`, if it is in this process: its memory for the program
//! is one sealed memfd.

use std::ffi::{CStr, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;

type Find = unsafe extern "C" fn(*const c_void, usize, *mut u64) -> i32;
type File = unsafe extern "C" fn() -> i32;
type Counts = unsafe extern "C" fn(*mut u64, *mut u64);

/// The library's functions.
#[derive(Clone, Copy)]
struct Functions {
    find: Find,
    file: File,
    counts: Counts,
}

/// The library's functions, which are looked up once.
fn functions() -> Option<Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    // SAFETY: asks for names in the program's global scope.
    let look_up = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    *FUNCTIONS.get_or_init(|| {
        let (find, file) = (look_up(c"rdmalab_memory_find_1"), look_up(c"rdmalab_memory_file_1"));
        let counts = look_up(c"rdmalab_memory_counts_1");
        // SAFETY: the names have a version number, and are the preload library's alone; null is
        // `None`.
        unsafe {
            let find = std::mem::transmute::<*mut c_void, Option<Find>>(find)?;
            let file = std::mem::transmute::<*mut c_void, Option<File>>(file)?;
            let counts = std::mem::transmute::<*mut c_void, Option<Counts>>(counts)?;
            Some(Functions { find, file, counts })
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

/// How many requests of the program for large buffers got shared memory, and how many stayed
/// private because there was no room. `None` without the library: then all memory is private.
pub(crate) fn counts() -> Option<(u64, u64)> {
    let (mut shared, mut private) = (0, 0);
    // SAFETY: the library writes to both.
    unsafe { (functions()?.counts)(&mut shared, &mut private) };
    Some((shared, private))
}

/// A descriptor of the file, to be sent to a peer.
pub(crate) fn descriptor() -> Option<OwnedFd> {
    // SAFETY: the library looks whether the descriptor is still its file's.
    let fd = unsafe { (functions()?.file)() };
    // SAFETY: the library never closes its file.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().ok())?
}
