//! Where the exports that concern devices go: to the provider, over the soft RNIC.
//!
//! Each function has the name, the arguments and the answers of the exported one.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use rdmalab_abi::types::*;
use rdmalab_provider::exports;
use rdmalab_softnic::SoftNic;

/// What a file of a device's directory in sysfs would hold; `None` for directories that are not
/// a device of ours.
pub fn sysfs_content(dir: &CStr, file: &CStr) -> Option<Vec<u8>> {
    let ours = dir.to_bytes().windows(15).any(|part| part == b"/infiniband/sof");
    match file.to_bytes() {
        b"board_id" if ours => Some(b"rdmalab soft RNIC".to_vec()),
        b"fw_ver" if ours => Some(env!("CARGO_PKG_VERSION").as_bytes().to_vec()),
        _ => None,
    }
}

/// Declares functions that the provider answers.
macro_rules! forward {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// As its manual page says.
        #[inline]
        pub unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: the caller's contract is the provider's.
            unsafe { exports::$name::<SoftNic>($($arg),*) }
        }
    )*};
}

forward! {
    /// The devices: a null-terminated array; null and `errno` without memory.
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
    /// Frees the array.
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    /// The name of a device; null.
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    /// The number of a device in the kernel; -1 for none.
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int;
    /// The GUID of a node, network byte order; 0 if unknown.
    fn ibv_get_device_guid(device: *mut ibv_device) -> u64;
    /// Opens a device; null and `errno`.
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    /// Closes a device; 0, or -1 and `errno`.
    fn ibv_close_device(context: *mut ibv_context) -> c_int;
    /// A context over another process's file; null and `errno`.
    fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context;
    /// Another process's domain; null and `errno`.
    fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd;
    /// Forgets an imported domain.
    fn ibv_unimport_pd(pd: *mut ibv_pd);
    /// Another process's region; null and `errno`.
    fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr;
    /// Forgets an imported region.
    fn ibv_unimport_mr(mr: *mut ibv_mr);
    /// Another process's device memory; null and `errno`.
    fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm;
    /// Forgets imported device memory.
    fn ibv_unimport_dm(dm: *mut ibv_dm);
    /// The next asynchronous event; 0, or -1 and `errno`.
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    /// Acknowledges an asynchronous event.
    fn ibv_ack_async_event(event: *mut ibv_async_event);
    /// What a device can do; 0, or an error number.
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    /// A port, at most 52 bytes of it; 0, or an error number.
    fn ibv_query_port(context: *mut ibv_context, port_num: u8, attr: *mut ibv_port_attr) -> c_int;
    /// A GID; 0, or -1 and `errno`.
    fn ibv_query_gid(
        context: *mut ibv_context,
        port_num: u8,
        index: c_int,
        gid: *mut ibv_gid,
    ) -> c_int;
    /// A GID with its type; 0, or an error number.
    fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port_num: u32,
        gid_index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        entry_size: usize,
    ) -> c_int;
    /// All GIDs; how many, or a negative error number.
    fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize;
    /// A P_Key, network byte order; 0, or -1 and `errno`.
    fn ibv_query_pkey(
        context: *mut ibv_context,
        port_num: u8,
        index: c_int,
        pkey: *mut u16,
    ) -> c_int;
    /// A protection domain; null and `errno`.
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    /// Frees a domain; 0, or an error number.
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    /// A memory region; null and `errno`.
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    /// A region under another address; null and `errno`.
    fn ibv_reg_mr_iova(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_int,
    ) -> *mut ibv_mr;
    /// The same with optional rights, which may be ignored; null and `errno`.
    fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_uint,
    ) -> *mut ibv_mr;
    /// A region of a DMA buffer; null and `errno`.
    fn ibv_reg_dmabuf_mr(
        pd: *mut ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
    ) -> *mut ibv_mr;
    /// Changes a region; 0, or an `ibv_rereg_mr_err_code` and `errno`.
    fn ibv_rereg_mr(
        mr: *mut ibv_mr,
        flags: c_int,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int;
    /// Frees a region; 0, or an error number.
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    /// A completion channel; null and `errno`.
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    /// Frees a channel; 0, or an error number.
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    /// A completion queue; null and `errno`.
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq;
    /// Resizes a completion queue; 0, or an error number.
    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
    /// Frees a completion queue; 0, or an error number.
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    /// The next completion event; 0, or -1 and `errno`.
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int;
    /// Acknowledges completion events.
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
    /// A shared receive queue; null and `errno`.
    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    /// Changes an SRQ; 0, or an error number.
    fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, attr_mask: c_int) -> c_int;
    /// Attributes of an SRQ; 0, or an error number.
    fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int;
    /// Frees an SRQ; 0, or an error number.
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    /// A queue pair; null and `errno`.
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    /// The extended view of a queue pair; null.
    fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
    /// Attributes of a queue pair; 0, or an error number.
    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        attr_mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> c_int;
    /// Whether data is written in order; 1 or 0.
    fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: u32, flags: u32) -> c_int;
    /// Changes a queue pair; 0, or an error number.
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int;
    /// Frees a queue pair; 0, or an error number.
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    /// Sets what two ends agreed on; 0, or an error number.
    fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
    /// What can be agreed on; 0, or an error number.
    fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
    /// An address handle; null and `errno`.
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    /// Frees an address handle; 0, or an error number.
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    /// Joins a multicast group; 0, or an error number.
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    /// Leaves a multicast group; 0, or an error number.
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    /// The Ethernet address of a peer; 0, or an error number.
    fn ibv_resolve_eth_l2_from_gid(
        context: *mut ibv_context,
        attr: *mut ibv_ah_attr,
        eth_mac: *mut u8,
        vid: *mut u16,
    ) -> c_int;
}
