//! Opening a device: a new context, with every slot of its two tables filled.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

use rdmalab_abi::{VERBS_ABI_IS_EXTENDED, ibv_context, ibv_context_ops, ibv_device, verbs_context};
use rdmalab_engine::backend::{Backend, VerbsResult};

use crate::context::{COMP_VECTORS, ContextObject, ContextOwn};
use crate::exports::device::ibv_query_device;
use crate::exports::port::ibv_query_port;
use crate::registry::Registry;
use crate::{device, extended, ops, stubs};

/// Opens a device.
///
/// # Safety
/// `device` came from a live [`Devices`](device::Devices) of the same backend.
pub(crate) unsafe fn open<B: Backend>(device: *mut ibv_device) -> VerbsResult<*mut ibv_context> {
    // SAFETY: by the contract.
    let own = unsafe { device::own::<B>(device) };
    let backend = own.backend.open(own.info.index)?;
    let max_ah = B::query_device(&backend).max_ah;
    let async_fd = B::async_fd(&backend).unwrap_or(-1);
    let object = ContextObject::<B>::leak(
        verbs_context::zeroed(),
        ContextOwn {
            backend,
            registry: Registry::default(),
            users: AtomicUsize::new(1),
            address_handles: AtomicU32::new(0),
            max_ah,
            is_closed: AtomicBool::new(false),
        },
    );
    // SAFETY: the object is new and not used elsewhere, and all its fields may be written.
    unsafe {
        extended::fill::<B>(object);
        (*object).sz = size_of::<verbs_context>();
        let context = &raw mut (*object).context;
        (*context).device = device;
        (*context).ops = table::<B>();
        // This context has no kernel device; with -1 every use of the descriptor fails cleanly.
        (*context).cmd_fd = -1;
        (*context).async_fd = async_fd;
        (*context).num_comp_vectors = COMP_VECTORS;
        libc::pthread_mutex_init(&raw mut (*context).mutex, ptr::null());
        (*context).abi_compat = VERBS_ABI_IS_EXTENDED;
        Ok(context)
    }
}

/// The operations that the header calls without checking whether they exist.
fn table<B: Backend>() -> ibv_context_ops {
    ibv_context_ops {
        _compat_query_device: Some(ibv_query_device::<B>),
        _compat_query_port: Some(ibv_query_port::<B>),
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
