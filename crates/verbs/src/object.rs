//! Pointers to objects of the libraries, for handles.

use std::fmt;
use std::ptr::NonNull;

/// A pointer to an object of libibverbs or librdmacm. The object's handle destroys it.
pub(crate) struct Object<T>(NonNull<T>);

// SAFETY: it is only a pointer, and reads nothing. libibverbs may be called from any thread with
// any of its objects; librdmacm too, if calls are serialized, as `CmChannel` does.
unsafe impl<T> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Object<T> {}

impl<T> Object<T> {
    pub fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

// Shows the pointer only: not all C structures can be shown.
impl<T> fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> From<NonNull<T>> for Object<T> {
    fn from(place: NonNull<T>) -> Self {
        Self(place)
    }
}
