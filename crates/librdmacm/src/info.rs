//! The list of devices, the names of events, and ECE, which the soft device does not support.

use core::ffi::{c_char, c_int};
use std::ptr::null_mut;

use rdmalab_abi::*;

use crate::cm_id::own;
use crate::errno::{CallResult, Errno, answer, failed};
use crate::process::process;

/// The list of devices, null-terminated; null and `errno` on failure.
pub unsafe fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let (list, count) = match devices() {
        Ok(made) => made,
        Err(Errno(errno)) => {
            inline::set_errno(errno);
            (null_mut(), 0)
        }
    };
    if !num_devices.is_null() {
        // SAFETY: the caller's out-parameter.
        unsafe { num_devices.write(count) };
    }
    list
}

fn devices() -> CallResult<(*mut *mut ibv_context, c_int)> {
    let devices = process()?.devices()?;
    // SAFETY: zeroed memory for one pointer more than there are devices.
    let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_context>()) };
    let list: *mut *mut ibv_context = list.cast();
    if list.is_null() {
        return Err(Errno(libc::ENOMEM));
    }
    for (index, device) in devices.iter().enumerate() {
        // SAFETY: within what was just allocated.
        unsafe { list.add(index).write(device.context) };
    }
    Ok((list, devices.len() as c_int))
}

/// Frees the list; the devices stay open.
pub unsafe fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: the caller's list, which `devices` allocated.
    unsafe { libc::free(list.cast()) };
}

/// The name of an event, a static string.
pub unsafe fn rdma_event_str(event: u32) -> *const c_char {
    let text = match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => c"UNKNOWN EVENT",
    };
    text.as_ptr()
}

/// Fails: enhanced connection establishment negotiates options between drivers of one vendor, and
/// the soft device has no such options.
fn no_ece(id: *mut rdma_cm_id) -> CallResult<()> {
    // SAFETY: the caller's id.
    unsafe { own(id)? };
    Err(failed(libc::EOPNOTSUPP, "rdma_cm", || {
        "the soft device has nothing to negotiate (ECE)".to_owned()
    }))
}

/// -1, and `errno` is `EOPNOTSUPP`.
pub unsafe fn rdma_set_local_ece(id: *mut rdma_cm_id, _ece: *mut ibv_ece) -> c_int {
    answer(no_ece(id))
}

/// -1, and `errno` is `EOPNOTSUPP`.
pub unsafe fn rdma_get_remote_ece(id: *mut rdma_cm_id, _ece: *mut ibv_ece) -> c_int {
    answer(no_ece(id))
}
