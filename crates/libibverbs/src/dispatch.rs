//! Forwards the exported functions that concern devices to the provider, over the soft RNIC.
//!
//! Each function has the name, the arguments and the results of the exported function.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use rdmalab_abi::types::*;
use rdmalab_provider::exports;
use rdmalab_softnic::SoftNic;

/// The content of a file in a device's sysfs directory; `None` if the directory is not that of a
/// device of ours.
pub fn sysfs_content(dir: &CStr, file: &CStr) -> Option<Vec<u8>> {
    let ours = dir.to_bytes().windows(15).any(|part| part == b"/infiniband/sof");
    match file.to_bytes() {
        b"board_id" if ours => Some(b"rdmalab soft RNIC".to_vec()),
        b"fw_ver" if ours => Some(env!("CARGO_PKG_VERSION").as_bytes().to_vec()),
        _ => None,
    }
}

/// Declares functions that call the provider's function of the same name.
macro_rules! forward {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// The caller does as the manual page of the function says.
        #[inline]
        pub unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: the provider's function has the same contract.
            unsafe { exports::$name::<SoftNic>($($arg),*) }
        }
    )*};
}

forward! {
    /// The list of devices, null-terminated; null and `errno` if there is no memory.
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
    /// Frees the list of devices.
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    /// The name of a device; null on failure.
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    /// The index of a device in the kernel; -1 if it has none.
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int;
    /// The GUID of a node, network byte order; 0 if unknown.
    fn ibv_get_device_guid(device: *mut ibv_device) -> u64;
    /// Opens a device; null and `errno` on failure.
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    /// Closes a device; returns 0, or -1 and `errno`.
    fn ibv_close_device(context: *mut ibv_context) -> c_int;
    /// Opens a context by another process's descriptor; null and `errno` on failure.
    fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context;
    /// Imports another process's protection domain; null and `errno` on failure.
    fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd;
    /// Releases an imported protection domain.
    fn ibv_unimport_pd(pd: *mut ibv_pd);
    /// Imports another process's memory region; null and `errno` on failure.
    fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr;
    /// Releases an imported memory region.
    fn ibv_unimport_mr(mr: *mut ibv_mr);
    /// Imports another process's device memory; null and `errno` on failure.
    fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm;
    /// Releases imported device memory.
    fn ibv_unimport_dm(dm: *mut ibv_dm);
    /// Waits for the next asynchronous event; returns 0, or -1 and `errno`.
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    /// Acknowledges an asynchronous event.
    fn ibv_ack_async_event(event: *mut ibv_async_event);
    /// The attributes of a device; returns 0, or an error number.
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    /// The attributes of a port, at most 52 bytes; returns 0, or an error number.
    fn ibv_query_port(context: *mut ibv_context, port_num: u8, attr: *mut ibv_port_attr) -> c_int;
    /// Reads a GID; returns 0, or -1 and `errno`.
    fn ibv_query_gid(
        context: *mut ibv_context,
        port_num: u8,
        index: c_int,
        gid: *mut ibv_gid,
    ) -> c_int;
    /// Reads a GID with its type; returns 0, or an error number.
    fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port_num: u32,
        gid_index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        entry_size: usize,
    ) -> c_int;
    /// Reads all GIDs; returns how many, or a negative error number.
    fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize;
    /// Reads a P_Key, network byte order; returns 0, or -1 and `errno`.
    fn ibv_query_pkey(
        context: *mut ibv_context,
        port_num: u8,
        index: c_int,
        pkey: *mut u16,
    ) -> c_int;
    /// Allocates a protection domain; null and `errno` on failure.
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    /// Frees a protection domain; returns 0, or an error number.
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    /// Registers a memory region; null and `errno` on failure.
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    /// Registers a region with its own start address; null and `errno` on failure.
    fn ibv_reg_mr_iova(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_int,
    ) -> *mut ibv_mr;
    /// The same, also with optional access flags, which are hints; null and `errno` on failure.
    fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_uint,
    ) -> *mut ibv_mr;
    /// Registers a region of a DMA buffer; null and `errno` on failure.
    fn ibv_reg_dmabuf_mr(
        pd: *mut ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
    ) -> *mut ibv_mr;
    /// Changes a region; returns 0, or an `ibv_rereg_mr_err_code` and `errno`.
    fn ibv_rereg_mr(
        mr: *mut ibv_mr,
        flags: c_int,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int;
    /// Deregisters a region; returns 0, or an error number.
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    /// Creates a completion channel; null and `errno` on failure.
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    /// Frees a completion channel; returns 0, or an error number.
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    /// Creates a completion queue; null and `errno` on failure.
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq;
    /// Resizes a completion queue; returns 0, or an error number.
    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
    /// Frees a completion queue; returns 0, or an error number.
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    /// Waits for the next completion event; returns 0, or -1 and `errno`.
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int;
    /// Acknowledges completion events.
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
    /// Creates a shared receive queue; null and `errno` on failure.
    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    /// Changes an SRQ; returns 0, or an error number.
    fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, attr_mask: c_int) -> c_int;
    /// The attributes of an SRQ; returns 0, or an error number.
    fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int;
    /// Frees an SRQ; returns 0, or an error number.
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    /// Creates a queue pair; null and `errno` on failure.
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    /// The extended interface of a queue pair; null if it has none.
    fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
    /// The attributes of a queue pair; returns 0, or an error number.
    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        attr_mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> c_int;
    /// Whether a queue pair writes data in order; returns 1 or 0.
    fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: u32, flags: u32) -> c_int;
    /// Changes attributes of a queue pair; returns 0, or an error number.
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int;
    /// Frees a queue pair; returns 0, or an error number.
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    /// Sets the ECE options of a queue pair; returns 0, or an error number.
    fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
    /// The ECE options of a queue pair; returns 0, or an error number.
    fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
    /// Creates an address handle; null and `errno` on failure.
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    /// Frees an address handle; returns 0, or an error number.
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    /// Attaches a queue pair to a multicast group; returns 0, or an error number.
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    /// Detaches a queue pair from a multicast group; returns 0, or an error number.
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    /// The Ethernet address of a peer; returns 0, or an error number.
    fn ibv_resolve_eth_l2_from_gid(
        context: *mut ibv_context,
        attr: *mut ibv_ah_attr,
        eth_mac: *mut u8,
        vid: *mut u16,
    ) -> c_int;
}
