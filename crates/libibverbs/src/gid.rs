//! Lookups in the GID and P_Key tables of a port.

use crate::dispatch;
use core::ffi::{c_int, c_uint};
use rdmalab_abi::consts::IBV_GID_TYPE_ROCE_V2;
use rdmalab_abi::inline::set_errno;
use rdmalab_abi::types::*;

/// The attributes of a port; `None` and `errno` on failure.
///
/// # Safety
/// `context` is live.
unsafe fn port(context: *mut ibv_context, port_num: u8) -> Option<ibv_port_attr> {
    let mut attr = ibv_port_attr::zeroed();
    // SAFETY: the caller's contract; the structure is longer than what is written.
    match unsafe { dispatch::ibv_query_port(context, port_num, &mut attr) } {
        0 => Some(attr),
        errno => {
            set_errno(errno);
            None
        }
    }
}

/// An entry of the GID table; `None` if the entry is empty or cannot be read.
///
/// # Safety
/// `context` is live.
unsafe fn entry(context: *mut ibv_context, port_num: u8, index: u32) -> Option<ibv_gid_entry> {
    let mut entry = ibv_gid_entry::zeroed();
    // SAFETY: the caller's contract; the entry has the length that is passed.
    let ret = unsafe {
        dispatch::_ibv_query_gid_ex(
            context,
            u32::from(port_num),
            index,
            &mut entry,
            0,
            size_of::<ibv_gid_entry>(),
        )
    };
    (ret == 0).then_some(entry)
}

/// The index of a GID whose type `accepts` allows; `None` and `errno` if there is none.
///
/// # Safety
/// `context` is live.
pub unsafe fn find(
    context: *mut ibv_context,
    port_num: u8,
    gid: [u8; 16],
    accepts: impl Fn(u32) -> bool,
) -> Option<u8> {
    // SAFETY: the caller's contract.
    let entries = unsafe { port(context, port_num) }?.gid_tbl_len;
    // An address vector has 8 bits for the index.
    for index in 0..=u8::MAX {
        if c_int::from(index) >= entries {
            break;
        }
        // SAFETY: the caller's contract.
        let Some(entry) = (unsafe { entry(context, port_num, u32::from(index)) }) else { continue };
        // SAFETY: any 16 bytes are a GID.
        if unsafe { entry.gid.raw } == gid && accepts(entry.gid_type) {
            return Some(index);
        }
    }
    set_errno(libc::ENOENT);
    None
}

/// Writes the type of a GID as sysfs shows it: 1 for RoCE version 2, 0 for InfiniBand and RoCE
/// version 1. Returns 0, or -1 and `errno`.
///
/// # Safety
/// `context` is live, and `gid_type` is valid for writes.
pub unsafe fn ibv_query_gid_type(
    context: *mut ibv_context,
    port_num: u8,
    index: c_uint,
    gid_type: *mut u32,
) -> c_int {
    // SAFETY: the caller's contract.
    let Some(entry) = (unsafe { entry(context, port_num, index) }) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    // SAFETY: the caller's contract.
    unsafe { gid_type.write(u32::from(entry.gid_type == IBV_GID_TYPE_ROCE_V2)) };
    0
}

/// The index of a P_Key (network byte order), or -1 and `errno`.
///
/// # Safety
/// `context` is live.
pub unsafe fn ibv_get_pkey_index(context: *mut ibv_context, port_num: u8, pkey: u16) -> c_int {
    // SAFETY: the caller's contract.
    let Some(attr) = (unsafe { port(context, port_num) }) else { return -1 };
    for index in 0..c_int::from(attr.pkey_tbl_len) {
        let mut found = 0_u16;
        // SAFETY: the caller's contract, and `found` is writable.
        let ret = unsafe { dispatch::ibv_query_pkey(context, port_num, index, &mut found) };
        if ret == 0 && found == pkey {
            return index;
        }
    }
    set_errno(libc::ENOENT);
    -1
}
