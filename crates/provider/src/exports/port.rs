//! Ports and their tables.

use core::ffi::c_int;
use core::{mem, ptr};

use libc::ssize_t;
use rdmalab_abi::{ibv_ah_attr, ibv_context, ibv_gid, ibv_gid_entry, ibv_port_attr};
use rdmalab_engine::backend::{Backend, GidEntry, GidType, VerbsError, VerbsResult};
use rdmalab_wire::ids::Gid;

use crate::{answer, context, convert};

/// The length of the port's attributes that the exported function may write. Programs that were
/// built with the first headers pass a structure that ends before `port_cap_flags2`; newer headers
/// clear theirs first.
const FIRST_PORT_ATTR: usize = mem::offset_of!(ibv_port_attr, port_cap_flags2);

/// The state of a port, with the fields of the first structure (48 bytes): 0, or an error number.
pub unsafe extern "C-unwind" fn ibv_query_port<B: Backend>(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: by the contract of the module; the caller's structure is at least that long.
    unsafe { write_port::<B>(context, port_num, port_attr, FIRST_PORT_ATTR) }
}

/// Writes `length` bytes of a port's attributes; bytes beyond the structure are cleared.
///
/// # Safety
/// `context` is of this backend; `attr` has room for `length` bytes.
pub(crate) unsafe fn write_port<B: Backend>(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    // SAFETY: by the contract.
    let found = B::query_port(unsafe { &context::own::<B>(context).backend }, port_num);
    let result = found.map(|info| {
        let whole = convert::port_attr_to_c(&info);
        // SAFETY: `attr` has room for `length` bytes.
        unsafe { copy_out(&whole, attr, length) };
    });
    answer::status("ibv_query_port", result)
}

/// Copies the first `length` bytes of `value`, and zeros when it is shorter.
///
/// # Safety
/// `to` has room for `length` bytes.
pub(crate) unsafe fn copy_out<T>(value: &T, to: *mut T, length: usize) {
    let known = length.min(size_of::<T>());
    // SAFETY: both sides are at least `known` long, and the target is `length` long.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), to.cast::<u8>(), known);
        to.cast::<u8>().add(known).write_bytes(0, length - known);
    }
}

/// An entry of the GID table: 0, or -1 and `errno`.
pub unsafe extern "C-unwind" fn ibv_query_gid<B: Backend>(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: by the contract of the module.
    let result = unsafe {
        entry::<B>(context, u32::from(port_num), index as u32)
            .map(|entry| gid.write(convert::gid_to_c(entry.gid)))
    };
    answer::minus_one("ibv_query_gid", result)
}

/// # Safety
/// `context` is of this backend.
unsafe fn entry<B: Backend>(
    context: *mut ibv_context,
    port_num: u32,
    index: u32,
) -> VerbsResult<GidEntry> {
    let port = u8::try_from(port_num)
        .map_err(|_| VerbsError::invalid(format!("there is no port {port_num}")))?;
    // SAFETY: by the contract.
    B::query_gid(unsafe { &context::own::<B>(context).backend }, port, index)
}

/// An entry of the GID table with its kind and its interface: 0, or an error number. No more than
/// `entry_size` bytes are written.
pub unsafe extern "C-unwind" fn _ibv_query_gid_ex<B: Backend>(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry_out: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    // SAFETY: by the contract of the module.
    let result = unsafe {
        check_flags(flags).and_then(|()| entry::<B>(context, port_num, gid_index)).map(|found| {
            copy_out(&gid_entry(&found, port_num, gid_index), entry_out, entry_size);
        })
    };
    answer::status("ibv_query_gid_ex", result)
}

fn check_flags(flags: u32) -> VerbsResult<()> {
    match flags {
        0 => Ok(()),
        _ => Err(VerbsError::invalid(format!("flags {flags:#x} must be 0"))),
    }
}

fn gid_entry(found: &GidEntry, port_num: u32, gid_index: u32) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: convert::gid_to_c(found.gid),
        gid_index,
        port_num,
        gid_type: found.gid_type as u32,
        ndev_ifindex: found.ifindex,
    }
}

/// Every GID of every port: how many, or a negative error number (`-EINVAL` when there are more
/// than `max_entries`). The entries lie `entry_size` bytes apart.
pub unsafe extern "C-unwind" fn _ibv_query_gid_table<B: Backend>(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> ssize_t {
    // SAFETY: by the contract of the module.
    let backend = unsafe { &context::own::<B>(context).backend };
    let found = check_flags(flags).and_then(|()| gid_table::<B>(backend, max_entries));
    match found {
        Ok(table) => {
            for (i, entry) in table.iter().enumerate() {
                // SAFETY: the caller's array holds `max_entries` entries of `entry_size` bytes,
                // and the table is no longer than that.
                unsafe { copy_out(entry, entries.byte_add(i * entry_size), entry_size) };
            }
            table.len() as ssize_t
        }
        Err(error) => -(answer::number("ibv_query_gid_table", &error) as ssize_t),
    }
}

fn gid_table<B: Backend>(
    backend: &B::Context,
    max_entries: usize,
) -> VerbsResult<Vec<ibv_gid_entry>> {
    let mut table = Vec::new();
    for port in 1..=B::query_device(backend).phys_port_cnt {
        for index in 0..B::query_port(backend, port)?.gid_tbl_len {
            // A table may have holes.
            let Ok(found) = B::query_gid(backend, port, index) else { continue };
            if found.gid == Gid::default() {
                continue;
            }
            if table.len() == max_entries {
                return Err(VerbsError::invalid(format!("more than {max_entries} GIDs")));
            }
            table.push(gid_entry(&found, u32::from(port), index));
        }
    }
    Ok(table)
}

/// The kind of a GID with the numbers of sysfs: InfiniBand and RoCE version 1 are 0, RoCE version 2
/// is 1. Returns 0, or -1 and `errno`.
pub unsafe extern "C-unwind" fn ibv_query_gid_type<B: Backend>(
    context: *mut ibv_context,
    port_num: u8,
    index: u32,
    kind: *mut u32,
) -> c_int {
    // SAFETY: by the contract of the module.
    let result = unsafe {
        entry::<B>(context, u32::from(port_num), index)
            .map(|entry| kind.write(u32::from(entry.gid_type == GidType::RoceV2)))
    };
    answer::minus_one("ibv_query_gid_type", result)
}

/// An entry of the partition table, in network byte order: 0, or -1 and `errno`.
pub unsafe extern "C-unwind" fn ibv_query_pkey<B: Backend>(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    // SAFETY: by the contract of the module.
    let result = unsafe {
        B::query_pkey(&context::own::<B>(context).backend, port_num, index as u32)
            .map(|found| pkey.write(found.0.to_be()))
    };
    answer::minus_one("ibv_query_pkey", result)
}

/// The index of a partition key, given in network byte order; -1 and `errno` when the port does not
/// have it.
pub unsafe extern "C-unwind" fn ibv_get_pkey_index<B: Backend>(
    context: *mut ibv_context,
    port_num: u8,
    pkey: u16,
) -> c_int {
    // SAFETY: by the contract of the module.
    let backend = unsafe { &context::own::<B>(context).backend };
    let wanted = u16::from_be(pkey);
    let found = B::query_port(backend, port_num).and_then(|port| {
        let is_wanted = |i: &u32| B::query_pkey(backend, port_num, *i).is_ok_and(|p| p.0 == wanted);
        let missing = || VerbsError::invalid(format!("port {port_num} has no P_Key {wanted:#06x}"));
        (0..u32::from(port.pkey_tbl_len)).find(is_wanted).ok_or_else(missing)
    });
    match found {
        Ok(index) => index as c_int,
        Err(error) => {
            answer::number("ibv_get_pkey_index", &error);
            -1
        }
    }
}

/// The MAC address of a GID, if it follows from the GID alone: link-local GIDs contain it, and
/// multicast GIDs map to it (RFC 4291 appendix A, RFC 2464 section 7). 0, or a negative error
/// number: there is no neighbour discovery. There is no VLAN (0xffff).
pub unsafe extern "C-unwind" fn ibv_resolve_eth_l2_from_gid<B: Backend>(
    _context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    eth_mac: *mut u8,
    vid: *mut u16,
) -> c_int {
    // SAFETY: by the contract of the module.
    let gid = convert::gid_from_c(unsafe { &(*attr).grh.dgid });
    let Some(mac) = mac_of(gid) else {
        let message = format!("the MAC address of {gid:?} is known to the kernel only");
        return -answer::number("ibv_resolve_eth_l2_from_gid", &VerbsError::unsupported(message));
    };
    // SAFETY: by the contract of the module `eth_mac` has room for 6 bytes; `vid` may be null.
    unsafe {
        eth_mac.cast::<[u8; 6]>().write(mac);
        if !vid.is_null() {
            vid.write(0xffff);
        }
    }
    0
}

fn mac_of(gid: Gid) -> Option<[u8; 6]> {
    let b = gid.0;
    if gid.is_multicast() {
        Some([0x33, 0x33, b[12], b[13], b[14], b[15]])
    } else if b[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0] && b[11..13] == [0xff, 0xfe] {
        Some([b[8] ^ 2, b[9], b[10], b[13], b[14], b[15]])
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_gid_holds_its_mac() {
        let gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55];
        assert_eq!(mac_of(Gid(gid)), Some([0, 0x11, 0x22, 0x33, 0x44, 0x55]));
        assert_eq!(mac_of(Gid([0; 16])), None);
    }

    #[test]
    fn no_byte_beyond_the_length_is_touched() {
        assert_eq!(FIRST_PORT_ATTR, 48);
        let mut to = [0xaau8; 16];
        // SAFETY: `to` has room for 10 bytes.
        unsafe { copy_out(&[1u8; 8], to.as_mut_ptr().cast(), 10) };
        assert_eq!(to[..8], [1; 8]);
        assert_eq!(to[8..10], [0; 2]);
        assert_eq!(to[10..], [0xaa; 6]);
        // SAFETY: `to` has room for 4 bytes.
        unsafe { copy_out(&[2u8; 8], to.as_mut_ptr().cast(), 4) };
        assert_eq!(to[..5], [2, 2, 2, 2, 1]);
    }
}
