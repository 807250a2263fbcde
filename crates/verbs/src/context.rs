//! Devices and open devices.

use std::ffi::{CStr, c_char};
use std::fmt::Debug;
use std::net::Ipv6Addr;
use std::ptr::NonNull;
use std::sync::Arc;

use rdmalab_abi as abi;
use rdmalab_abi::inline;

use crate::attr::{self, DeviceAttr, GidEntry, PortAttr};
use crate::error::VerbsError;
use crate::library::{Kind, Library};

/// The library's list, freed with its last device; `None` if an instance of a back end has the
/// devices, which the library keeps.
#[derive(Debug)]
struct DeviceList {
    library: Library,
    list: Option<NonNull<*mut abi::ibv_device>>,
}

// SAFETY: the list is immutable, and libibverbs may be called from any thread.
unsafe impl Send for DeviceList {}
// SAFETY: as above.
unsafe impl Sync for DeviceList {}

impl Drop for DeviceList {
    fn drop(&mut self) {
        let Some(list) = self.list else { return };
        // SAFETY: the list came from this library and none of its devices is used any more, except
        // open ones, which libibverbs keeps.
        unsafe { (self.library.table().free_device_list)(list.as_ptr()) }
    }
}

impl DeviceList {
    fn get(library: &Library) -> Result<Vec<Device>, VerbsError> {
        const VERB: &str = "ibv_get_device_list";
        if let Some(instance) = library.instance() {
            let raw = (instance.devices)().map_err(|errno| library.error(VERB, errno))?;
            let list = Arc::new(Self { library: library.clone(), list: None });
            return Ok(raw.into_iter().map(|raw| Device { raw, list: list.clone() }).collect());
        }
        let mut count = 0;
        // SAFETY: the count is a live integer.
        let first = unsafe { (library.table().get_device_list)(&raw mut count) };
        let first = library.not_null(VERB, first)?;
        let list = Arc::new(Self { library: library.clone(), list: Some(first) });
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the list has `count` devices, and is alive.
        let raw = (0..count).filter_map(|i| NonNull::new(unsafe { *first.as_ptr().add(i) }));
        Ok(raw.map(|raw| Device { raw, list: list.clone() }).collect())
    }
}

impl Library {
    /// Lists the devices; an empty list is no error.
    ///
    /// # Errors
    /// When the library cannot list them (no kernel support: `ENOSYS`; no rights: `EPERM`).
    pub fn devices(&self) -> Result<Vec<Device>, VerbsError> {
        DeviceList::get(self)
    }
}

/// A device that can be opened.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) raw: NonNull<abi::ibv_device>,
    list: Arc<DeviceList>,
}

// SAFETY: a device is immutable, and the list that owns it is kept.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Its name, for example `mlx5_0` or `soft0`.
    #[must_use]
    pub fn name(&self) -> String {
        // SAFETY: the device is on a list that is alive.
        let name = unsafe { (self.list.library.table().get_device_name)(self.raw.as_ptr()) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: a C string of the device, which is alive.
        unsafe { text(name) }
    }

    /// GUID of the node, host byte order; 0 if unknown.
    #[must_use]
    pub fn guid(&self) -> u64 {
        // SAFETY: the device is on a list that is alive.
        u64::from_be(unsafe { (self.list.library.table().get_device_guid)(self.raw.as_ptr()) })
    }

    /// The kind of its library.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.list.library.kind()
    }

    /// The library it came from.
    #[must_use]
    pub fn library(&self) -> &Library {
        &self.list.library
    }

    /// Opens it.
    ///
    /// # Errors
    /// When the device or the process's limits do not allow it.
    pub fn open(&self) -> Result<Context, VerbsError> {
        let library = &self.list.library;
        // SAFETY: the device is on a list that is alive.
        let raw = unsafe { (library.table().open_device)(self.raw.as_ptr()) };
        let raw = library.not_null("ibv_open_device", raw)?;
        let name = self.name();
        let list = self.list.clone();
        let library = library.clone();
        let kept_by = KeptBy::Us { _list: list };
        Ok(Context(Arc::new(ContextInner { raw, library, name, kept_by })))
    }
}

/// # Safety
/// A C string.
unsafe fn text(c: *const c_char) -> String {
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(c) }.to_string_lossy().into_owned()
}

/// An open device. Cheap to clone; closed with its last object.
#[derive(Clone, Debug)]
pub struct Context(pub(crate) Arc<ContextInner>);

#[derive(Debug)]
pub(crate) struct ContextInner {
    pub(crate) raw: NonNull<abi::ibv_context>,
    pub(crate) library: Library,
    name: String,
    kept_by: KeptBy,
}

/// The owner of an open device, which closes it.
#[derive(Debug)]
enum KeptBy {
    /// This crate closes it.
    Us { _list: Arc<DeviceList> },
    /// The connection manager closes it, some time after its id, which this holds, is gone.
    Manager { _id: Box<dyn Debug + Send + Sync> },
}

// SAFETY: libibverbs may be called from any thread with any of its objects.
unsafe impl Send for ContextInner {}
// SAFETY: as above.
unsafe impl Sync for ContextInner {}

impl Drop for ContextInner {
    fn drop(&mut self) {
        if let KeptBy::Manager { .. } = self.kept_by {
            return;
        }
        // SAFETY: opened by this library, and all its objects are gone: each keeps this alive. If
        // the library refuses, the device stays open until the process ends, which is harmless.
        let _ = unsafe { (self.library.table().close_device)(self.raw.as_ptr()) };
    }
}

impl Context {
    /// A device that the connection manager opened for an id.
    ///
    /// # Safety
    /// An open context of that library, which stays open as long as the id exists.
    pub(crate) unsafe fn of_id(
        raw: NonNull<abi::ibv_context>,
        library: Library,
        id: Box<dyn Debug + Send + Sync>,
    ) -> Self {
        // SAFETY: the caller's contract; an open device has a name for as long as it is open.
        let name = unsafe {
            let name = (library.table().get_device_name)((*raw.as_ptr()).device);
            if name.is_null() { String::new() } else { text(name) }
        };
        let kept_by = KeptBy::Manager { _id: id };
        Self(Arc::new(ContextInner { raw, library, name, kept_by }))
    }

    pub(crate) fn raw(&self) -> *mut abi::ibv_context {
        self.0.raw.as_ptr()
    }

    /// The library it came from.
    #[must_use]
    pub fn library(&self) -> &Library {
        &self.0.library
    }

    /// The name of the device.
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.0.name
    }

    /// The kind of its library.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.library().kind()
    }

    /// The capabilities of the device.
    ///
    /// # Errors
    /// The library's error.
    pub fn query_device(&self) -> Result<DeviceAttr, VerbsError> {
        let mut attr = abi::ibv_device_attr_ex::zeroed();
        // SAFETY: the context is open, no input is null input, and the answer has its full size.
        let result = unsafe {
            let table = self.library().table();
            inline::ibv_query_device_ex(table, self.raw(), std::ptr::null(), &raw mut attr)
        };
        self.library().zero("ibv_query_device_ex", result)?;
        Ok(DeviceAttr::from_raw(&attr))
    }

    /// The state of a port, from 1.
    ///
    /// # Errors
    /// `EINVAL` when there is no such port.
    pub fn query_port(&self, port_num: u8) -> Result<PortAttr, VerbsError> {
        let mut attr = abi::ibv_port_attr::zeroed();
        // SAFETY: the context is open, and the answer has its full size.
        let result = unsafe {
            inline::ibv_query_port(self.library().table(), self.raw(), port_num, &raw mut attr)
        };
        self.library().zero("ibv_query_port", result)?;
        Ok(PortAttr::from_raw(&attr))
    }

    /// A GID with its type.
    ///
    /// # Errors
    /// `ENODATA` when the entry is empty, `EINVAL` when there is no such port or entry.
    pub fn query_gid_entry(&self, port_num: u8, index: u32) -> Result<GidEntry, VerbsError> {
        let mut entry = abi::ibv_gid_entry::zeroed();
        // SAFETY: the context is open, and the answer has its full size.
        let result = unsafe {
            let table = self.library().table();
            inline::ibv_query_gid_ex(table, self.raw(), port_num.into(), index, &raw mut entry)
        };
        self.library().zero("_ibv_query_gid_ex", result)?;
        Ok(GidEntry::from_raw(&entry))
    }

    /// A GID.
    ///
    /// # Errors
    /// When there is no such port or entry.
    pub fn query_gid(&self, port_num: u8, index: u32) -> Result<Ipv6Addr, VerbsError> {
        let mut gid = abi::ibv_gid { raw: [0; 16] };
        let slot = i32::try_from(index).unwrap_or(i32::MAX);
        let query_gid = self.library().table().query_gid;
        // SAFETY: the context is open, and the GID is valid for writes.
        let result = unsafe { query_gid(self.raw(), port_num, slot, &raw mut gid) };
        self.library().zero("ibv_query_gid", result)?;
        Ok(attr::gid(&gid))
    }
}
