//! An open device: the private part of its context, and its reference count.

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use rdmalab_abi::{ibv_context, verbs_context};
use rdmalab_engine::backend::{Backend, VerbsError, VerbsResult};

use crate::object::Object;
use crate::registry::Registry;

/// Completion vectors: one, since the choice of a vector makes no difference to a device without
/// interrupts.
pub(crate) const COMP_VECTORS: i32 = 1;

/// An open device.
pub(crate) type ContextObject<B> = Object<verbs_context, ContextOwn<B>>;

/// The private part of an open device.
pub(crate) struct ContextOwn<B: Backend> {
    pub(crate) backend: B::Context,
    /// The objects that events may refer to.
    pub(crate) registry: Registry,
    /// References: one of the program until it closes the device, and one of each object. Objects
    /// need the tables in the context, and some programs (perftest) close a device before its
    /// objects.
    pub(crate) users: AtomicUsize,
    /// Address handles of the context, and how many it may have (`max_ah`).
    pub(crate) address_handles: AtomicU32,
    pub(crate) max_ah: u32,
    /// Whether the program has closed it.
    pub(crate) is_closed: AtomicBool,
}

/// Takes a reference for an object. The context stays until it is released.
///
/// # Safety
/// As for [`own`].
pub(crate) unsafe fn hold<B: Backend>(context: *mut ibv_context) {
    // SAFETY: by the contract.
    unsafe { own::<B>(context) }.users.fetch_add(1, Ordering::Relaxed);
}

/// Releases a reference of an object, or of the program. The last one frees the context.
///
/// # Safety
/// As for [`own`], and the caller has held it and does not use it afterwards.
pub(crate) unsafe fn release<B: Backend>(context: *mut ibv_context) {
    // SAFETY: by the contract the context is alive, and it is not used after the last reference.
    unsafe {
        if own::<B>(context).users.fetch_sub(1, Ordering::AcqRel) == 1 {
            libc::pthread_mutex_destroy(&raw mut (*context).mutex);
            ContextObject::<B>::free(surrounding(context));
        }
    }
}

/// The private part of the context that programs hold a pointer to.
///
/// # Safety
/// `context` came from [`open`](crate::open::open) with the same backend, and is not closed during
/// `'a`.
#[inline]
pub(crate) unsafe fn own<'a, B: Backend>(context: *mut ibv_context) -> &'a ContextOwn<B> {
    // SAFETY: `open` returned the `context` field of a live object; this steps back to its start.
    unsafe { ContextObject::<B>::own(surrounding(context)) }
}

/// The structure around a context: `context` is the last field of a [`verbs_context`].
fn surrounding(context: *mut ibv_context) -> *mut verbs_context {
    context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast()
}

/// Closes a device; on an error it stays open. Objects that are still alive keep the context.
///
/// # Safety
/// `context` came from [`open`](crate::open::open) for the same backend, and is not used
/// afterwards.
pub(crate) unsafe fn close<B: Backend>(context: *mut ibv_context) -> VerbsResult<()> {
    // SAFETY: by the contract the context is alive, and the program's part in it ends here.
    unsafe {
        let own = ContextObject::<B>::find(surrounding(context))?;
        if own.is_closed.swap(true, Ordering::AcqRel) {
            return Err(VerbsError::new(libc::ENOENT, "this context is closed already"));
        }
        B::close(&own.backend).inspect_err(|_| own.is_closed.store(false, Ordering::Release))?;
        release::<B>(context);
    }
    Ok(())
}
