//! The verbs libraries of this binary: the linked-in soft device and the system's library.

use std::ffi::CString;
use std::io;
use std::ptr::NonNull;

use rdmalab_sim::name_of_device;
use rdmalab_softnic::{Profile, SoftNic, management_c};
use rdmalab_verbs::{
    CmLoan, CmTable, Device, Kind, Library, LoadError, MadPort, PortState, SoftHooks,
};

use crate::exec::runtime;
use crate::failure::{Failure, run, usage};
use crate::link::LinkArgs;
use crate::simulated;

/// The soft device.
pub fn library() -> Library {
    let hooks = SoftHooks {
        alloc_shared: |bytes| {
            let start = rdmalab_softnic::alloc_shared(bytes).map_err(io::Error::other)?;
            NonNull::new(start).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
        },
        free_shared: rdmalab_softnic::free_shared,
        last_error: rdmalab_provider::diag::last_error,
        load_cm,
    };
    Library::new(rdmalab_provider::table::table::<SoftNic>(), Kind::Soft, Some(hooks))
}

/// Loads rdmalab's connection manager, a shared object, with the device of this process.
fn load_cm() -> Result<CmTable, LoadError> {
    let refused = |reason| LoadError::Open { library: runtime::CM.soname.to_owned(), reason };
    let path = runtime::as_file(&runtime::CM).map_err(refused)?;
    let path = CString::new(path.into_os_string().into_encoded_bytes());
    let path = path.map_err(|_| refused("its path contains a NUL byte".to_owned()))?;
    let mads = MadPort {
        open: management_c::open,
        send: management_c::send,
        receive: management_c::receive,
        note: management_c::note,
    };
    let loan = CmLoan::new(rdmalab_provider::table::table::<SoftNic>(), mads);
    CmTable::load_with(&path, &loan)
}

/// The system's library; none if that library is rdmalab's too (under `rdmalab exec`).
pub fn system() -> Result<Option<Library>, LoadError> {
    let library = Library::system()?;
    Ok((library.kind() == Kind::System).then_some(library))
}

/// A device by its name; soft devices come first. `sim:PROFILE` is a simulated one.
///
/// # Errors
/// There is no such device; the error lists those that exist.
pub fn find(name: &str) -> Result<Device, Failure> {
    if let Some(profile) = simulated::profile(name)? {
        return simulated::device(&profile);
    }
    let own = library().devices().map_err(run)?;
    // If the system's library cannot be loaded, `rdmalab devices` says why.
    let theirs = system().ok().flatten().and_then(|l| l.devices().ok()).unwrap_or_default();
    let all: Vec<Device> = own.into_iter().chain(theirs).collect();
    if let Some(found) = all.iter().find(|d| d.name() == name) {
        return Ok(found.clone());
    }
    let names: Vec<String> = all.iter().map(Device::name).collect();
    Err(usage(format!(
        "--device {name}: there is no such device; there are: {}, and simulated ones: {} (`rdmalab \
         devices` tells more)",
        if names.is_empty() { "none".to_owned() } else { names.join(", ") },
        simulated::names().join(", ")
    )))
}

/// As [`find`], for `what`, which is between processes; all ranks of a simulated device are in one.
///
/// # Errors
/// There is no such device, or it is simulated.
pub fn between_processes(name: &str, what: &str) -> Result<Device, Failure> {
    if name_of_device(name).is_some() {
        return Err(usage(format!(
            "--device {name}: {what} needs several processes, but all ranks of a simulated device \
             are in one: choose another device, or use `rdmalab run EXPERIMENT --device {name}`"
        )));
    }
    find(name)
}

/// The profile of a device in this process; only soft devices have one.
pub fn profile(device: &Device) -> Option<&'static Profile> {
    rdmalab_softnic::profile().filter(|_| device.kind() == Kind::Soft)
}

/// The default device: the first adapter with an active port, otherwise the soft device. The soft
/// device if an option is given that only soft devices support.
pub fn best(link: &LinkArgs) -> String {
    if link.first().is_some() {
        return OURS.to_owned();
    }
    let theirs = system().ok().flatten().and_then(|l| l.devices().ok()).unwrap_or_default();
    let is_active = |device: &&Device| {
        let port = device.open().and_then(|context| context.query_port(1));
        port.is_ok_and(|port| port.state == PortState::Active)
    };
    theirs.iter().find(is_active).map_or_else(|| OURS.to_owned(), Device::name)
}

/// The soft device that is always there.
const OURS: &str = "soft0";
