//! Opening devices.

use rdmalab_abi::{ibv_context, ibv_device};
use rdmalab_engine::backend::{Backend, VerbsError};

use crate::{answer, open};

/// Opens a device; null and `errno` when that fails.
pub unsafe extern "C-unwind" fn ibv_open_device<B: Backend>(
    device: *mut ibv_device,
) -> *mut ibv_context {
    if device.is_null() {
        let error = VerbsError::invalid("no device: ibv_get_device_list found none, or not this");
        return answer::pointer("ibv_open_device", Err(error));
    }
    // SAFETY: by the contract of the module.
    answer::pointer("ibv_open_device", unsafe { open::open::<B>(device) })
}
