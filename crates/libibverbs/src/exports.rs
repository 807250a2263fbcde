//! The exported functions. `or` names the value that a function returns after a panic.
//!
//! `exports.txt` lists them with their versions; a test compares it with what the library exports.

use crate::guard::PANICKED;
use crate::{ah, dispatch, fork, gid, kernel_copy, rate, sysfs, text};
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::{null, null_mut};
use rdmalab_abi::consts::IBV_FORK_UNNEEDED;
use rdmalab_abi::types::*;

// Devices.
export_cancellable! {
    /// Waits for the next asynchronous event; returns 0, or -1 and `errno`.
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int,
        via dispatch::ibv_get_async_event;
    /// Waits for the next completion event; returns 0, or -1 and `errno`.
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void
    ) -> c_int,
        via dispatch::ibv_get_cq_event;
}

export! {
    /// The list of devices, null-terminated; null and `errno` on failure.
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device,
        or null_mut(), via dispatch::ibv_get_device_list;
    /// Frees the list of devices.
    fn ibv_free_device_list(list: *mut *mut ibv_device),
        or (), via dispatch::ibv_free_device_list;
    /// The name of a device; null on failure.
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char,
        or null(), via dispatch::ibv_get_device_name;
    /// The index of a device in the kernel; -1 if it has none.
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int,
        or -1, via dispatch::ibv_get_device_index;
    /// The GUID of a node, network byte order; 0 if unknown.
    fn ibv_get_device_guid(device: *mut ibv_device) -> u64,
        or 0, via dispatch::ibv_get_device_guid;
    /// Opens a device; null and `errno` on failure.
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context,
        or null_mut(), via dispatch::ibv_open_device;
    /// Closes a device; returns 0, or -1 and `errno`.
    fn ibv_close_device(context: *mut ibv_context) -> c_int,
        or -1, via dispatch::ibv_close_device;
    /// Opens a context by another process's descriptor; null and `errno` on failure.
    fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context,
        or null_mut(), via dispatch::ibv_import_device;
    /// Imports another process's protection domain; null and `errno` on failure.
    fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd,
        or null_mut(), via dispatch::ibv_import_pd;
    /// Releases an imported protection domain.
    fn ibv_unimport_pd(pd: *mut ibv_pd),
        or (), via dispatch::ibv_unimport_pd;
    /// Imports another process's memory region; null and `errno` on failure.
    fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr,
        or null_mut(), via dispatch::ibv_import_mr;
    /// Releases an imported memory region.
    fn ibv_unimport_mr(mr: *mut ibv_mr),
        or (), via dispatch::ibv_unimport_mr;
    /// Imports another process's device memory; null and `errno` on failure.
    fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm,
        or null_mut(), via dispatch::ibv_import_dm;
    /// Releases imported device memory.
    fn ibv_unimport_dm(dm: *mut ibv_dm),
        or (), via dispatch::ibv_unimport_dm;
    /// Acknowledges an asynchronous event.
    fn ibv_ack_async_event(event: *mut ibv_async_event),
        or (), via dispatch::ibv_ack_async_event;
    /// The attributes of a device; returns 0, or an error number.
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int,
        or PANICKED, via dispatch::ibv_query_device;
    /// The attributes of a port, at most 52 bytes; returns 0, or an error number.
    fn ibv_query_port(context: *mut ibv_context, port_num: u8, attr: *mut ibv_port_attr) -> c_int,
        or PANICKED, via dispatch::ibv_query_port;
    /// Reads a GID; returns 0, or -1 and `errno`.
    fn ibv_query_gid(
        context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid
    ) -> c_int,
        or -1, via dispatch::ibv_query_gid;
    /// Reads a GID with its type; returns 0, or an error number.
    fn _ibv_query_gid_ex(
        context: *mut ibv_context, port_num: u32, gid_index: u32, entry: *mut ibv_gid_entry,
        flags: u32, entry_size: usize
    ) -> c_int,
        or PANICKED, via dispatch::_ibv_query_gid_ex;
    /// Reads all GIDs; returns how many, or a negative error number.
    fn _ibv_query_gid_table(
        context: *mut ibv_context, entries: *mut ibv_gid_entry, max_entries: usize, flags:
        u32, entry_size: usize
    ) -> isize,
        or -(PANICKED as isize), via dispatch::_ibv_query_gid_table;
    /// Reads a P_Key, network byte order; returns 0, or -1 and `errno`.
    fn ibv_query_pkey(
        context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut u16
    ) -> c_int,
        or -1, via dispatch::ibv_query_pkey;
    /// Allocates a protection domain; null and `errno` on failure.
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd,
        or null_mut(), via dispatch::ibv_alloc_pd;
    /// Frees a protection domain; returns 0, or an error number.
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int,
        or PANICKED, via dispatch::ibv_dealloc_pd;
    /// Registers a memory region; null and `errno` on failure.
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr,
        or null_mut(), via dispatch::ibv_reg_mr;
    /// Registers a region with its own start address; null and `errno` on failure.
    fn ibv_reg_mr_iova(
        pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int
    ) -> *mut ibv_mr,
        or null_mut(), via dispatch::ibv_reg_mr_iova;
    /// The same, also with optional access flags, which are hints; null and `errno` on failure.
    fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint
    ) -> *mut ibv_mr,
        or null_mut(), via dispatch::ibv_reg_mr_iova2;
    /// Registers a region of a DMA buffer; null and `errno` on failure.
    fn ibv_reg_dmabuf_mr(
        pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int
    ) -> *mut ibv_mr,
        or null_mut(), via dispatch::ibv_reg_dmabuf_mr;
    /// Changes a region; returns 0, or an `ibv_rereg_mr_err_code` and `errno`.
    fn ibv_rereg_mr(
        mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, length: usize,
        access: c_int
    ) -> c_int,
        or -1, via dispatch::ibv_rereg_mr;
    /// Deregisters a region; returns 0, or an error number.
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int,
        or PANICKED, via dispatch::ibv_dereg_mr;
    /// Creates a completion channel; null and `errno` on failure.
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel,
        or null_mut(), via dispatch::ibv_create_comp_channel;
    /// Frees a completion channel; returns 0, or an error number.
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int,
        or PANICKED, via dispatch::ibv_destroy_comp_channel;
    /// Creates a completion queue; null and `errno` on failure.
    fn ibv_create_cq(
        context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut
        ibv_comp_channel, comp_vector: c_int
    ) -> *mut ibv_cq,
        or null_mut(), via dispatch::ibv_create_cq;
    /// Resizes a completion queue; returns 0, or an error number.
    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int,
        or PANICKED, via dispatch::ibv_resize_cq;
    /// Frees a completion queue; returns 0, or an error number.
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int,
        or PANICKED, via dispatch::ibv_destroy_cq;
    /// Acknowledges completion events.
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint),
        or (), via dispatch::ibv_ack_cq_events;
    /// Creates a shared receive queue; null and `errno` on failure.
    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq,
        or null_mut(), via dispatch::ibv_create_srq;
    /// Changes an SRQ; returns 0, or an error number.
    fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, attr_mask: c_int) -> c_int,
        or PANICKED, via dispatch::ibv_modify_srq;
    /// The attributes of an SRQ; returns 0, or an error number.
    fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int,
        or PANICKED, via dispatch::ibv_query_srq;
    /// Frees an SRQ; returns 0, or an error number.
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int,
        or PANICKED, via dispatch::ibv_destroy_srq;
    /// Creates a queue pair; null and `errno` on failure.
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp,
        or null_mut(), via dispatch::ibv_create_qp;
    /// The extended interface of a queue pair; null if it has none.
    fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex,
        or null_mut(), via dispatch::ibv_qp_to_qp_ex;
    /// The attributes of a queue pair; returns 0, or an error number.
    fn ibv_query_qp(
        qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int, init_attr: *mut
        ibv_qp_init_attr
    ) -> c_int,
        or PANICKED, via dispatch::ibv_query_qp;
    /// Whether a queue pair writes data in order; returns 1 or 0.
    fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: u32, flags: u32) -> c_int,
        or 0, via dispatch::ibv_query_qp_data_in_order;
    /// Changes attributes of a queue pair; returns 0, or an error number.
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int,
        or PANICKED, via dispatch::ibv_modify_qp;
    /// Frees a queue pair; returns 0, or an error number.
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int,
        or PANICKED, via dispatch::ibv_destroy_qp;
    /// Sets the ECE options of a queue pair; returns 0, or an error number.
    fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int,
        or PANICKED, via dispatch::ibv_set_ece;
    /// The ECE options of a queue pair; returns 0, or an error number.
    fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int,
        or PANICKED, via dispatch::ibv_query_ece;
    /// Creates an address handle; null and `errno` on failure.
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah,
        or null_mut(), via dispatch::ibv_create_ah;
    /// Frees an address handle; returns 0, or an error number.
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int,
        or PANICKED, via dispatch::ibv_destroy_ah;
    /// Attaches a queue pair to a multicast group; returns 0, or an error number.
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int,
        or PANICKED, via dispatch::ibv_attach_mcast;
    /// Detaches a queue pair from a multicast group; returns 0, or an error number.
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int,
        or PANICKED, via dispatch::ibv_detach_mcast;
    /// The Ethernet address of a peer; returns 0, or an error number.
    fn ibv_resolve_eth_l2_from_gid(
        context: *mut ibv_context, attr: *mut ibv_ah_attr, eth_mac: *mut u8, vid: *mut u16
    ) -> c_int,
        or PANICKED, via dispatch::ibv_resolve_eth_l2_from_gid;
}

// Functions that need no device, or compute their result from other functions.
export! {
    /// The type of a GID, as sysfs shows it; returns 0, or -1 and `errno`.
    fn ibv_query_gid_type(
        context: *mut ibv_context, port_num: u8, index: c_uint, gid_type: *mut u32
    ) -> c_int,
        or -1, via gid::ibv_query_gid_type;
    /// The index of a P_Key, or -1 and `errno`.
    fn ibv_get_pkey_index(context: *mut ibv_context, port_num: u8, pkey: u16) -> c_int,
        or -1, via gid::ibv_get_pkey_index;
    /// The address of a datagram's sender; returns 0, or -1 and `errno`.
    fn ibv_init_ah_from_wc(
        context: *mut ibv_context, port_num: u8, wc: *mut ibv_wc, grh: *mut ibv_grh, ah_attr:
        *mut ibv_ah_attr
    ) -> c_int,
        or -1, via ah::ibv_init_ah_from_wc;
    /// Creates an address handle for a datagram's sender; null and `errno` on failure.
    fn ibv_create_ah_from_wc(
        pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8
    ) -> *mut ibv_ah,
        or null_mut(), via ah::ibv_create_ah_from_wc;
    /// Converts an address vector from the kernel's structure.
    fn ibv_copy_ah_attr_from_kern(dst: *mut ibv_ah_attr, src: *const ib_uverbs_ah_attr),
        or (), via kernel_copy::ibv_copy_ah_attr_from_kern;
    /// Converts queue pair attributes from the kernel's structure.
    fn ibv_copy_qp_attr_from_kern(dst: *mut ibv_qp_attr, src: *const ib_uverbs_qp_attr),
        or (), via kernel_copy::ibv_copy_qp_attr_from_kern;
    /// Converts a path record from the kernel's structure.
    fn ibv_copy_path_rec_from_kern(dst: *mut ibv_sa_path_rec, src: *const ib_user_path_rec),
        or (), via kernel_copy::ibv_copy_path_rec_from_kern;
    /// Converts a path record to the kernel's structure.
    fn ibv_copy_path_rec_to_kern(dst: *mut ib_user_path_rec, src: *const ibv_sa_path_rec),
        or (), via kernel_copy::ibv_copy_path_rec_to_kern;
    /// Reads a sysfs file; returns its length, or -1 and `errno`.
    fn ibv_read_sysfs_file(
        dir: *const c_char, file: *const c_char, buf: *mut c_char, size: usize
    ) -> c_int,
        or -1, via sysfs::ibv_read_sysfs_file;
}

export_safe! {
    /// The path of sysfs.
    fn ibv_get_sysfs_path() -> *const c_char,
        or null(), via sysfs::ibv_get_sysfs_path;
    /// Prepares for `fork`; returns 0.
    fn ibv_fork_init() -> c_int,
        or PANICKED, via fork::ibv_fork_init;
    /// Whether `ibv_fork_init` is needed.
    fn ibv_is_fork_initialized() -> u32,
        or IBV_FORK_UNNEEDED, via fork::ibv_is_fork_initialized;
    /// Keeps memory out of children of `fork`; returns 0.
    fn ibv_dontfork_range(base: *mut c_void, size: usize) -> c_int,
        or PANICKED, via fork::ibv_dontfork_range;
    /// Lets children of `fork` have memory again; returns 0.
    fn ibv_dofork_range(base: *mut c_void, size: usize) -> c_int,
        or PANICKED, via fork::ibv_dofork_range;
    /// The name of a completion status.
    fn ibv_wc_status_str(status: u32) -> *const c_char,
        or null(), via text::ibv_wc_status_str;
    /// The name of a node type.
    fn ibv_node_type_str(node_type: i32) -> *const c_char,
        or null(), via text::ibv_node_type_str;
    /// The name of a port state.
    fn ibv_port_state_str(state: u32) -> *const c_char,
        or null(), via text::ibv_port_state_str;
    /// The name of an event.
    fn ibv_event_type_str(event: u32) -> *const c_char,
        or null(), via text::ibv_event_type_str;
    /// A rate as a multiple of 2.5 Gbit/s, or -1.
    fn ibv_rate_to_mult(code: u32) -> c_int,
        or -1, via rate::ibv_rate_to_mult;
    /// The rate code of a multiple of 2.5 Gbit/s.
    fn mult_to_ibv_rate(mult: c_int) -> u32,
        or 0, via rate::mult_to_ibv_rate;
    /// A rate in Mbit/s, or -1.
    fn ibv_rate_to_mbps(code: u32) -> c_int,
        or -1, via rate::ibv_rate_to_mbps;
    /// The rate code of a speed in Mbit/s.
    fn mbps_to_ibv_rate(mbps: c_int) -> u32,
        or 0, via rate::mbps_to_ibv_rate;
}

// The functions that always fail, because the soft device does not support them.
include!(concat!(env!("OUT_DIR"), "/stubs.rs"));

// The versioned names. They are in this module because the assembler must find the functions in the
// same compilation unit. A test harness is a program and needs no versions.
#[cfg(not(test))]
include!(concat!(env!("OUT_DIR"), "/symver.rs"));
