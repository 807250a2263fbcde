//! The devices as C structures.
//!
//! A device has the same address in every list: programs keep pointers to devices, and compare
//! them. There are only as many as the machine has, so memory use is bounded.

use core::any::{Any, TypeId};
use core::ffi::{c_char, c_int};
use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rdmalab_abi::{IBV_DEVICE_ALLOCATION, IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device};
use rdmalab_engine::backend::{Backend, DeviceInfo, ProcessBackend, VerbsResult};

use crate::answer;

/// A device with spare bytes after the public structure.
///
/// The vendors' direct-verbs libraries recognise their devices by a pointer directly after the
/// public structure. They must find memory there, and a pointer that is not theirs.
#[repr(C)]
struct DeviceObject<B: Backend> {
    public: ibv_device,
    spare: [u8; SPARE],
    own: DeviceOwn<B>,
}

/// The private part of a device.
pub(crate) struct DeviceOwn<B: Backend> {
    /// The backend's description of it.
    pub(crate) info: DeviceInfo,
    /// The backend that it belongs to.
    pub(crate) backend: Arc<B>,
}

/// Zeroed bytes after the public structure: twice what vendors' libraries are known to read.
const SPARE: usize = 2 * IBV_DEVICE_ALLOCATION - size_of::<ibv_device>();

/// The devices of one instance of a backend, as C structures. They live as long as this value; its
/// owner must keep it while any of its devices is used or open.
pub struct Devices<B: Backend> {
    backend: Arc<B>,
    known: Mutex<Vec<NonNull<DeviceObject<B>>>>,
}

// SAFETY: a device is not written after it was created, and the backend is `Send` and `Sync`.
unsafe impl<B: Backend> Send for Devices<B> {}
// SAFETY: as above; the list is locked.
unsafe impl<B: Backend> Sync for Devices<B> {}

impl<B: Backend> Devices<B> {
    /// The devices of an instance.
    pub fn new(backend: Arc<B>) -> Self {
        Self { backend, known: Mutex::default() }
    }

    /// The present devices; or the error number, with a message as for a failed
    /// `ibv_get_device_list`. A device that was listed before keeps its address.
    ///
    /// # Errors
    /// The backend's error.
    pub fn list(&self) -> Result<Vec<NonNull<ibv_device>>, c_int> {
        self.present().map_err(|error| answer::number("ibv_get_device_list", &error))
    }

    pub(crate) fn present(&self) -> VerbsResult<Vec<NonNull<ibv_device>>> {
        let present = self.backend.devices()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut devices = Vec::with_capacity(present.len());
        for info in present {
            // SAFETY: every known device is alive and immutable.
            let found = known.iter().find(|device| unsafe { device.as_ref() }.own.info == info);
            let device = found.copied().unwrap_or_else(|| {
                let object = Box::leak(Box::new(make(info, self.backend.clone())));
                known.push(object.into());
                object.into()
            });
            devices.push(device.cast());
        }
        Ok(devices)
    }
}

impl<B: Backend> Drop for Devices<B> {
    fn drop(&mut self) {
        for device in self.known.get_mut().unwrap_or_else(PoisonError::into_inner) {
            // SAFETY: it came from a box, and is not used any more, as the type demands.
            drop(unsafe { Box::from_raw(device.as_ptr()) });
        }
    }
}

/// The devices of the process's instance. They are never freed.
pub(crate) fn of_process<B: ProcessBackend>() -> &'static Devices<B> {
    static KNOWN: Mutex<BTreeMap<TypeId, &'static (dyn Any + Send + Sync)>> =
        Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || Box::leak(Box::new(Devices::new(B::of_process()))) as &(dyn Any + Send + Sync);
    let devices = known.entry(TypeId::of::<B>()).or_insert_with(make);
    devices.downcast_ref().expect("the devices of this type")
}

/// The private part of a device.
///
/// # Safety
/// `device` came from [`Devices`] of the same backend, which lives during `'a`.
pub(crate) unsafe fn own<'a, B: Backend>(device: *mut ibv_device) -> &'a DeviceOwn<B> {
    // SAFETY: it is in a device object; C does not access the private part, which is immutable.
    unsafe { &(*device.cast::<DeviceObject<B>>()).own }
}

fn make<B: Backend>(info: DeviceInfo, backend: Arc<B>) -> DeviceObject<B> {
    let mut public = ibv_device::zeroed();
    public.node_type = IBV_NODE_CA;
    public.transport_type = IBV_TRANSPORT_IB;
    put_string(&mut public.name, &info.name);
    put_string(&mut public.dev_name, &info.dev_name);
    put_string(&mut public.dev_path, &format!("/sys/class/infiniband_verbs/{}", info.dev_name));
    put_string(&mut public.ibdev_path, &format!("/sys/class/infiniband/{}", info.name));
    DeviceObject { public, spare: [0; SPARE], own: DeviceOwn { info, backend } }
}

/// Writes as much of `text` as fits before the final zero; `field` is zeroed.
pub(crate) fn put_string(field: &mut [c_char], text: &str) {
    let room = field.len().saturating_sub(1);
    for (slot, byte) in field[..room].iter_mut().zip(text.bytes().take_while(|b| *b != 0)) {
        *slot = byte as c_char;
    }
}

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
