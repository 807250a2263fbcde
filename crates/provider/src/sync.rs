//! Acknowledgement of events, by the lock, condition and counters in the public structures.
//!
//! These fields are public only because old programs' headers used them; they keep their meaning,
//! so that such programs and this crate count the same events.

use libc::{pthread_cond_t, pthread_mutex_t};

/// The lock, the condition and one counter of a public structure.
#[derive(Clone, Copy)]
pub(crate) struct Acks {
    pub(crate) mutex: *mut pthread_mutex_t,
    pub(crate) cond: *mut pthread_cond_t,
    pub(crate) completed: *mut u32,
}

/// The [`Acks`] of a public structure, by the name of its counter.
macro_rules! acks {
    ($object:expr, $counter:ident) => {
        $crate::sync::Acks {
            mutex: &raw mut (*$object).mutex,
            cond: &raw mut (*$object).cond,
            completed: &raw mut (*$object).$counter,
        }
    };
}
pub(crate) use acks;

impl Acks {
    /// Initialises lock and condition.
    ///
    /// # Safety
    /// The pointers are valid, the object stays where it is, and no thread uses it yet.
    pub(crate) unsafe fn init(self) {
        // SAFETY: both point to zeroed memory of the right type, by the contract; null attributes
        // mean the defaults.
        unsafe {
            libc::pthread_mutex_init(self.mutex, core::ptr::null());
            libc::pthread_cond_init(self.cond, core::ptr::null());
        }
    }

    /// Counts `events` more as acknowledged and wakes the thread that destroys the object.
    ///
    /// # Safety
    /// The object is initialised and alive.
    pub(crate) unsafe fn acknowledge(self, events: u32) {
        // SAFETY: lock and condition are initialised; the counter is read and written under the
        // lock, as everywhere.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            *self.completed = (*self.completed).wrapping_add(events);
            libc::pthread_cond_signal(self.cond);
            libc::pthread_mutex_unlock(self.mutex);
        }
    }

    /// Waits until at least `delivered` events (modulo 2^32) are acknowledged.
    ///
    /// # Safety
    /// The object is initialised and alive.
    pub(crate) unsafe fn wait(self, delivered: u32) {
        // SAFETY: as for `acknowledge`; the condition is waited for with the lock held.
        unsafe {
            libc::pthread_mutex_lock(self.mutex);
            // Negative if the program acknowledged too many: then there is no wait.
            while (delivered.wrapping_sub(*self.completed) as i32) > 0 {
                libc::pthread_cond_wait(self.cond, self.mutex);
            }
            libc::pthread_mutex_unlock(self.mutex);
        }
    }

    /// Destroys lock and condition.
    ///
    /// # Safety
    /// The object is initialised, and no thread uses it any more.
    pub(crate) unsafe fn destroy(self) {
        // SAFETY: by the contract no thread holds the lock or waits.
        unsafe {
            libc::pthread_cond_destroy(self.cond);
            libc::pthread_mutex_destroy(self.mutex);
        }
    }
}
