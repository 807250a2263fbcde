//! An open device: the context, with every slot of its two tables filled.

use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use rdmalab_abi::{VERBS_ABI_IS_EXTENDED, ibv_context, ibv_context_ops, ibv_device, verbs_context};
use rdmalab_engine::backend::{Backend, VerbsResult};

use crate::object::Object;
use crate::registry::Registry;
use crate::{device, exports, extended, ops, stubs};

/// Completion vectors: one, since which vector a CQ names makes no difference to a device without
/// interrupts.
pub(crate) const COMP_VECTORS: i32 = 1;

/// An open device.
type ContextObject<B> = Object<verbs_context, ContextOwn<B>>;

/// Our part of an open device.
pub(crate) struct ContextOwn<B: Backend> {
    pub(crate) backend: B::Context,
    /// The objects that events may name.
    pub(crate) registry: Registry,
    /// One for the program until it closes the device, and one for each object, which needs the
    /// tables in the context: programs (perftest is one) close devices before their objects.
    users: AtomicUsize,
}

/// Counts an object in: the context stays until it is let go.
///
/// # Safety
/// As for [`own`].
pub(crate) unsafe fn hold<B: Backend>(context: *mut ibv_context) {
    // SAFETY: by the contract.
    unsafe { own::<B>(context) }.users.fetch_add(1, Ordering::Relaxed);
}

/// Counts an object, or the program, out; frees the context with the last.
///
/// # Safety
/// As for [`own`], and the caller has held it and does not use it afterwards.
pub(crate) unsafe fn let_go<B: Backend>(context: *mut ibv_context) {
    // SAFETY: by the contract the context is alive, and after the last user nobody uses it.
    unsafe {
        if own::<B>(context).users.fetch_sub(1, Ordering::AcqRel) == 1 {
            libc::pthread_mutex_destroy(&raw mut (*context).mutex);
            ContextObject::<B>::free(surrounding(context));
        }
    }
}

/// Our part of the context that programs hold a pointer to.
///
/// # Safety
/// `context` came from [`open`] with the same backend, and is not closed during `'a`.
#[inline]
pub(crate) unsafe fn own<'a, B: Backend>(context: *mut ibv_context) -> &'a ContextOwn<B> {
    // SAFETY: `open` returned the `context` field of a live object; this steps back to its start.
    unsafe { ContextObject::<B>::own(surrounding(context)) }
}

/// The structure around a context.
///
/// # Safety
/// `context` is the last field of a [`verbs_context`].
unsafe fn surrounding(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: by the contract the result is the start of the same allocation.
    unsafe { context.byte_sub(offset_of!(verbs_context, context)).cast() }
}

/// Opens a device.
///
/// # Safety
/// `device` came from [`device::list`] for the same backend.
pub(crate) unsafe fn open<B: Backend>(device: *mut ibv_device) -> VerbsResult<*mut ibv_context> {
    // SAFETY: by the contract.
    let info = unsafe { device::info(device) };
    let backend = B::open(info.index)?;
    let async_fd = B::async_fd(&backend);
    let object = ContextObject::<B>::leak(
        verbs_context::zeroed(),
        ContextOwn { backend, registry: Registry::default(), users: AtomicUsize::new(1) },
    );
    // SAFETY: the object is new, so nobody else uses it, and all its fields may be written.
    unsafe {
        extended::fill::<B>(object);
        (*object).sz = size_of::<verbs_context>();
        let context = &raw mut (*object).context;
        (*context).device = device;
        (*context).ops = table::<B>();
        // There is no kernel behind this context; -1 makes every use of it fail cleanly.
        (*context).cmd_fd = -1;
        (*context).async_fd = async_fd;
        (*context).num_comp_vectors = COMP_VECTORS;
        libc::pthread_mutex_init(&raw mut (*context).mutex, ptr::null());
        (*context).abi_compat = VERBS_ABI_IS_EXTENDED;
        Ok(context)
    }
}

/// Closes a device; on an error it stays open. Objects that are still alive keep the context.
///
/// # Safety
/// `context` came from [`open`] for the same backend, and nobody uses it afterwards.
pub(crate) unsafe fn close<B: Backend>(context: *mut ibv_context) -> VerbsResult<()> {
    // SAFETY: by the contract the context is alive, and the program's part in it ends here.
    unsafe {
        B::close(&own::<B>(context).backend)?;
        let_go::<B>(context);
    }
    Ok(())
}

/// The operations that the header calls without asking whether they are there.
fn table<B: Backend>() -> ibv_context_ops {
    ibv_context_ops {
        _compat_query_device: Some(exports::ibv_query_device::<B>),
        _compat_query_port: Some(exports::ibv_query_port::<B>),
        _compat_alloc_pd: Some(stubs::compat),
        _compat_dealloc_pd: Some(stubs::compat),
        _compat_reg_mr: Some(stubs::compat),
        _compat_rereg_mr: Some(stubs::compat),
        _compat_dereg_mr: Some(stubs::compat),
        alloc_mw: Some(ops::window::alloc_mw::<B>),
        bind_mw: Some(ops::window::bind_mw::<B>),
        dealloc_mw: Some(ops::window::dealloc_mw::<B>),
        _compat_create_cq: Some(stubs::compat),
        poll_cq: Some(ops::poll::poll_cq::<B>),
        req_notify_cq: Some(ops::poll::req_notify_cq::<B>),
        _compat_cq_event: Some(stubs::compat),
        _compat_resize_cq: Some(stubs::compat),
        _compat_destroy_cq: Some(stubs::compat),
        _compat_create_srq: Some(stubs::compat),
        _compat_modify_srq: Some(stubs::compat),
        _compat_query_srq: Some(stubs::compat),
        _compat_destroy_srq: Some(stubs::compat),
        post_srq_recv: Some(ops::post::post_srq_recv::<B>),
        _compat_create_qp: Some(stubs::compat),
        _compat_query_qp: Some(stubs::compat),
        _compat_modify_qp: Some(stubs::compat),
        _compat_destroy_qp: Some(stubs::compat),
        post_send: Some(ops::post::post_send::<B>),
        post_recv: Some(ops::post::post_recv::<B>),
        _compat_create_ah: Some(stubs::compat),
        _compat_destroy_ah: Some(stubs::compat),
        _compat_attach_mcast: Some(stubs::compat),
        _compat_detach_mcast: Some(stubs::compat),
        _compat_async_event: Some(stubs::compat),
    }
}
