//! The devices as C sees them.
//!
//! A device is allocated once and never freed: programs keep pointers to devices across lists, and
//! compare them. There are as many as the machine has, so nothing grows.

use core::any::TypeId;
use core::ffi::c_char;
use std::sync::{Mutex, PoisonError};

use rdmalab_abi::{IBV_DEVICE_ALLOCATION, IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device};
use rdmalab_engine::backend::{Backend, DeviceInfo, VerbsResult};

/// A device with room behind the public structure.
///
/// The vendors' direct-verbs libraries recognise their own devices by a pointer right behind the
/// public structure; they must find memory there, and a pointer that is not theirs.
#[repr(C)]
struct DeviceObject {
    public: ibv_device,
    spare: [u8; SPARE],
    info: DeviceInfo,
}

/// Zeroed bytes behind the public structure: twice what is known to be read.
const SPARE: usize = 2 * IBV_DEVICE_ALLOCATION - size_of::<ibv_device>();

/// A device of the list, and whose it is.
struct Known {
    backend: TypeId,
    device: *mut DeviceObject,
}

// SAFETY: the object is never freed, and nothing of it is written after it was made.
unsafe impl Send for Known {}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The devices that the backend has now. A device that was listed before keeps its address.
pub(crate) fn list<B: Backend>() -> VerbsResult<Vec<*mut ibv_device>> {
    let present = B::devices()?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut devices = Vec::with_capacity(present.len());
    for info in present {
        let mut of_backend = known.iter().filter(|k| k.backend == TypeId::of::<B>());
        // SAFETY: every known device is alive for ever and immutable.
        let found = of_backend.find(|k| unsafe { (*k.device).info == info }).map(|k| k.device);
        let device = found.unwrap_or_else(|| {
            let device = Box::into_raw(Box::new(make(info.clone())));
            known.push(Known { backend: TypeId::of::<B>(), device });
            device
        });
        devices.push(device.cast());
    }
    Ok(devices)
}

/// What the backend said about a device.
///
/// # Safety
/// `device` came from [`list`].
pub(crate) unsafe fn info(device: *mut ibv_device) -> &'static DeviceInfo {
    // SAFETY: it is the first field of a device object, which is alive for ever; C is given no
    // business with `info`, which is immutable.
    unsafe { &(*device.cast::<DeviceObject>()).info }
}

fn make(info: DeviceInfo) -> DeviceObject {
    let mut public = ibv_device::zeroed();
    public.node_type = IBV_NODE_CA;
    public.transport_type = IBV_TRANSPORT_IB;
    put_string(&mut public.name, &info.name);
    put_string(&mut public.dev_name, &info.dev_name);
    put_string(&mut public.dev_path, &format!("/sys/class/infiniband_verbs/{}", info.dev_name));
    put_string(&mut public.ibdev_path, &format!("/sys/class/infiniband/{}", info.name));
    DeviceObject { public, spare: [0; SPARE], info }
}

/// Writes as much of `text` as fits before the final zero; `field` is zeroed.
pub(crate) fn put_string(field: &mut [c_char], text: &str) {
    let room = field.len().saturating_sub(1);
    for (slot, byte) in field[..room].iter_mut().zip(text.bytes().take_while(|b| *b != 0)) {
        *slot = byte as c_char;
    }
}

const _: () = assert!(core::mem::offset_of!(DeviceObject, spare) == size_of::<ibv_device>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_before_its_final_zero() {
        let mut field = [0; 4];
        put_string(&mut field, "abcdef");
        assert_eq!(field.map(|c| c as u8), *b"abc\0");
        let mut field = [0; 4];
        put_string(&mut field, "a\0b");
        assert_eq!(field.map(|c| c as u8), *b"a\0\0\0");
    }
}
