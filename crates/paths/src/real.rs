//! The functions of the C library that this library replaces.

use core::ffi::{CStr, c_int, c_void};
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The next function of this name after ours in the linker's search order, of type `F`.
pub(crate) struct Real<F> {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    kind: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// `F` is the type that the C library gives this function.
    pub(crate) const fn new(name_with_zero: &'static str) -> Real<F> {
        assert!(size_of::<F>() == size_of::<*mut c_void>());
        let Ok(name) = CStr::from_bytes_with_nul(name_with_zero.as_bytes()) else {
            panic!("a name has one zero, at its end")
        };
        Real { name, address: AtomicPtr::new(ptr::null_mut()), kind: PhantomData }
    }

    /// The function; `None` and `ENOSYS` if the C library has none.
    pub(crate) fn get(&self) -> Option<F> {
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            address = self.find();
        }
        if address.is_null() {
            set_errno(libc::ENOSYS);
            return None;
        }
        // SAFETY: a function of this name, so it has the type that the caller of `new` promised; a
        // pointer to a function is as large as one to data here, as `new` checks.
        Some(unsafe { core::mem::transmute_copy::<*mut c_void, F>(&address) })
    }

    /// Asks the dynamic linker. This happens when the library is loaded, so that no call has to.
    #[cold]
    pub(crate) fn find(&self) -> *mut c_void {
        let errno = errno();
        // SAFETY: a C string, and the handle for the libraries after this one.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        set_errno(errno);
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = errno }
}
