//! The devices of our libibverbs, which is found at run time, with the attributes of each port that
//! the connection manager needs.

use core::ffi::c_int;
use std::sync::OnceLock;

use rdmalab_abi::{
    CmLoan, IBV_LINK_LAYER_ETHERNET, MadPort, VerbsTable, ibv_context, ibv_device_attr, ibv_gid,
    ibv_pd, ibv_port_attr, inline,
};
use rdmalab_wire::ids::Gid;

use crate::errno::{CallResult, Errno, failed, last_errno};

/// At most this many GIDs of a port are read.
const GIDS_MAX: i32 = 64;
/// The port number: our devices have one port.
pub const PORT: u8 = 1;

/// An open device. It is never closed.
pub struct Device {
    pub context: *mut ibv_context,
    /// The protection domain of ids for which the program gives none.
    pub pd: *mut ibv_pd,
    /// Node GUID, host byte order.
    pub guid: u64,
    pub is_ethernet: bool,
    pub lid: u16,
    /// Path MTU, encoded (`enum ibv_mtu`).
    pub mtu: u8,
    pub max_initiator_depth: u8,
    pub max_responder_resources: u8,
    gid_count: i32,
}

// SAFETY: verbs objects may be used by any thread; everything else is plain data.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// The functions of libibverbs, and those of QP 1 (GSI) if a program of ours lent both.
type Source = Result<(VerbsTable, Option<MadPort>), String>;

/// Set once: by `__rdmalab_borrow`, or by the first call that needs the verbs.
static VERBS: OnceLock<Source> = OnceLock::new();

/// Lets this library use the verbs of a program of ours that contains the soft device itself. The
/// program calls this before any other function. Returns 0, also for the same loan again,
/// `EALREADY` if other verbs are in use, `EPROTO` if the program comes from another build.
///
/// # Safety
/// `loan` is alive, and begins with its size and its build.
#[unsafe(no_mangle)]
unsafe extern "C" fn __rdmalab_borrow(loan: *const CmLoan) -> c_int {
    crate::guard::guard(libc::EIO, || {
        // SAFETY: the caller's contract.
        let Some(loan) = (unsafe { CmLoan::take(loan) }) else { return libc::EPROTO };
        match VERBS.get_or_init(|| Ok((loan.verbs, Some(loan.mads)))) {
            Ok((verbs, Some(mads))) if loan.is_same(&CmLoan::new(*verbs, *mads)) => 0,
            _ => libc::EALREADY,
        }
    })
}

fn source() -> CallResult<&'static (VerbsTable, Option<MadPort>)> {
    let found = VERBS.get_or_init(|| match VerbsTable::is_ours(None) {
        Ok(true) => match VerbsTable::load(None) {
            Ok(verbs) => Ok((verbs, None)),
            Err(error) => Err(error.to_string()),
        },
        Ok(false) => Err("this librdmacm.so.1 is the soft device's, and libibverbs.so.1 is not: \
                          put both into LD_LIBRARY_PATH, or run the program by `rdmalab exec`"
            .to_owned()),
        Err(error) => Err(error.to_string()),
    });
    found.as_ref().map_err(|why| failed(libc::ENODEV, "rdma_cm", || why.clone()))
}

/// Our verbs, lent by the program or looked up at run time. They are not linked in: a linked copy
/// would be a second soft device in the same process.
///
/// # Errors
/// `ENODEV` if `libibverbs.so.1` is missing or is not ours: the kernel connects other devices.
pub fn verbs() -> CallResult<&'static VerbsTable> {
    source().map(|(verbs, _)| verbs)
}

/// The functions of QP 1 (GSI) that a program lent with its verbs.
pub fn lent_mads() -> Option<MadPort> {
    source().ok()?.1
}

/// Opens every device.
///
/// # Errors
/// `ENODEV` if there is no device, else the error of the verb that failed.
pub fn open_all() -> CallResult<Vec<Device>> {
    let verbs = verbs()?;
    let mut count: c_int = 0;
    // SAFETY: the out-parameter is valid.
    let list = unsafe { (verbs.get_device_list)(&raw mut count) };
    if list.is_null() {
        return Err(last_errno());
    }
    let mut devices = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: within the list that we got; devices stay valid while open.
        let context = unsafe { (verbs.open_device)(*list.add(index)) };
        if context.is_null() {
            return Err(last_errno());
        }
        devices.push(describe(verbs, context)?);
    }
    // SAFETY: the list that we got; its elements are not used any more.
    unsafe { (verbs.free_device_list)(list) };
    if devices.is_empty() { Err(Errno(libc::ENODEV)) } else { Ok(devices) }
}

fn describe(verbs: &VerbsTable, context: *mut ibv_context) -> CallResult<Device> {
    let mut attr = ibv_device_attr::zeroed();
    let mut port = ibv_port_attr::zeroed();
    // SAFETY: an open context, and structures to write to.
    let (of_device, of_port, pd) = unsafe {
        (
            (verbs.query_device)(context, &raw mut attr),
            inline::ibv_query_port(verbs, context, PORT, &raw mut port),
            (verbs.alloc_pd)(context),
        )
    };
    if of_device != 0 || of_port != 0 {
        return Err(Errno(of_device.max(of_port)));
    }
    if pd.is_null() {
        return Err(last_errno());
    }
    let few = |count: c_int| u8::try_from(count).unwrap_or(u8::MAX);
    Ok(Device {
        context,
        pd,
        guid: u64::from_be(attr.node_guid),
        is_ethernet: port.link_layer == IBV_LINK_LAYER_ETHERNET,
        lid: port.lid,
        mtu: port.active_mtu as u8,
        max_initiator_depth: few(attr.max_qp_init_rd_atom),
        max_responder_resources: few(attr.max_qp_rd_atom),
        gid_count: port.gid_tbl_len.min(GIDS_MAX),
    })
}

impl Device {
    /// The GIDs of the port with their indices, as they are now.
    pub fn gids(&self) -> Vec<(u8, Gid)> {
        let Ok(verbs) = verbs() else { return Vec::new() };
        let mut gids = Vec::new();
        for index in 0..self.gid_count {
            let mut gid = ibv_gid { raw: [0; 16] };
            // SAFETY: an open context, and a GID to write to.
            let ret = unsafe { (verbs.query_gid)(self.context, PORT, index, &raw mut gid) };
            if ret == 0 {
                // SAFETY: all bytes of the union are initialised.
                gids.push((index as u8, Gid(unsafe { gid.raw })));
            }
        }
        gids
    }

    /// The index of a GID.
    pub fn index_of(&self, gid: Gid) -> Option<u8> {
        self.gids().into_iter().find(|(_, known)| *known == gid).map(|(index, _)| index)
    }

    /// The default GID of the port and its index: the first IPv4 address, else the first GID.
    pub fn own_gid(&self) -> (u8, Gid) {
        let gids = self.gids();
        let ipv4 = gids.iter().find(|(_, gid)| gid.to_ip().is_ipv4());
        ipv4.or(gids.first()).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn open() -> c_int {
        0
    }

    unsafe extern "C" fn send(_: *const u8, _: *const u8, _: *const u8) -> c_int {
        0
    }

    unsafe extern "C" fn send_otherwise(_: *const u8, _: *const u8, _: *const u8) -> c_int {
        1
    }

    unsafe extern "C" fn receive(_: *mut u8) -> c_int {
        0
    }

    unsafe extern "C" fn note(_: *const u8, _: *const u8, _: *const u8, _: c_int) -> c_int {
        0
    }

    #[test]
    fn verbs_are_lent_once() {
        let mads = MadPort { open, send, receive, note };
        let lend = |mads| {
            let loan = CmLoan::new(VerbsTable::UNSUPPORTED, mads);
            // SAFETY: a live loan.
            unsafe { __rdmalab_borrow(&raw const loan) }
        };
        assert_eq!((lend(mads), lend(mads)), (0, 0));
        assert_eq!(lend(MadPort { send: send_otherwise, ..mads }), libc::EALREADY);
    }
}
