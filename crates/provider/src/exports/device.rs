//! Devices: list, names, opening, and capabilities.

use core::ffi::{c_char, c_int};
use core::ptr::{self, NonNull};

use rdmalab_abi::{ibv_context, ibv_device, ibv_device_attr};
use rdmalab_engine::backend::{Backend, ProcessBackend, VerbsError, VerbsResult};

use crate::{answer, context, convert, device};

/// The devices, as an array that ends with null and is freed by [`ibv_free_device_list`]; null and
/// `errno` when this process cannot have any. `num_devices` may be null.
///
/// A device has the same address in every list, and outlives the list.
pub unsafe extern "C-unwind" fn ibv_get_device_list<B: ProcessBackend>(
    num_devices: *mut c_int,
) -> *mut *mut ibv_device {
    let devices = device::of_process::<B>().present();
    let count = devices.as_ref().map_or(0, Vec::len);
    let list = devices.and_then(|devices| allocate(&devices));
    if !num_devices.is_null() {
        // SAFETY: a pointer that is not null is the caller's variable.
        unsafe { *num_devices = count as c_int };
    }
    answer::pointer("ibv_get_device_list", list)
}

/// The devices and a final null, in memory of `calloc`.
fn allocate(devices: &[NonNull<ibv_device>]) -> VerbsResult<*mut *mut ibv_device> {
    // SAFETY: calloc takes any numbers; its memory is aligned for pointers and holds the devices
    // and one null more.
    unsafe {
        let list = libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>());
        if list.is_null() {
            return Err(VerbsError::no_room("no memory for the list of devices"));
        }
        let list = list.cast::<*mut ibv_device>();
        ptr::copy_nonoverlapping(devices.as_ptr().cast(), list, devices.len());
        Ok(list)
    }
}

/// Frees a list; its devices stay.
pub unsafe extern "C-unwind" fn ibv_free_device_list<B: Backend>(list: *mut *mut ibv_device) {
    // SAFETY: the list is that of `allocate`, or null.
    unsafe { libc::free(list.cast()) };
}

/// The name of a device, alive as long as the process; null for null.
pub unsafe extern "C-unwind" fn ibv_get_device_name<B: Backend>(
    device: *mut ibv_device,
) -> *const c_char {
    if device.is_null() {
        return ptr::null();
    }
    // SAFETY: the device is alive for ever.
    unsafe { (&raw const (*device).name).cast() }
}

/// The GUID of a device, in network byte order.
pub unsafe extern "C-unwind" fn ibv_get_device_guid<B: Backend>(device: *mut ibv_device) -> u64 {
    // SAFETY: by the contract of the module.
    unsafe { device::own::<B>(device) }.info.guid.to_be()
}

/// The index of a device.
pub unsafe extern "C-unwind" fn ibv_get_device_index<B: Backend>(device: *mut ibv_device) -> c_int {
    // SAFETY: by the contract of the module.
    let index = unsafe { device::own::<B>(device) }.info.index;
    c_int::try_from(index).unwrap_or(-1)
}

/// Closes a device: 0, or -1 and `errno`, and then it stays open. Live objects keep the context.
pub unsafe extern "C-unwind" fn ibv_close_device<B: Backend>(context: *mut ibv_context) -> c_int {
    // SAFETY: by the contract of the module.
    answer::minus_one("ibv_close_device", unsafe { context::close::<B>(context) })
}

/// The capabilities of a device: 0, or an error number.
pub unsafe extern "C-unwind" fn ibv_query_device<B: Backend>(
    context: *mut ibv_context,
    device_attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: by the contract of the module.
    unsafe {
        let caps = B::query_device(&context::own::<B>(context).backend);
        device_attr.write(convert::device_attr_to_c(&caps));
    }
    0
}
