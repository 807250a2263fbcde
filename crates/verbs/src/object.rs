//! Objects of the libraries, as handles hold them.

use std::fmt;
use std::ptr::NonNull;

/// Where an object of libibverbs or librdmacm is. Its handle knows how it ends.
pub(crate) struct Object<T>(NonNull<T>);

// SAFETY: it is a place, and reads nothing there. libibverbs may be called from any thread with any
// of its objects; librdmacm too, where calls take turns, as `CmChannel` has them.
unsafe impl<T> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Object<T> {}

impl<T> Object<T> {
    pub fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

// Of the C structures not all can be shown, nor should be.
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
