//! The exported functions. `or` names the value that a function returns after a panic.
//! `exports.txt` lists them with their versions; a test compares it with what the library exports.

use core::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use libc::sockaddr;
use rdmalab_abi::*;

use crate::{addrinfo, channel, connect, endpoint, events, id, info, multicast, qp, resolve};

// Channels, ids and addresses.
export! {
    /// Creates an event channel; null and `errno` on failure.
    fn rdma_create_event_channel() -> *mut rdma_event_channel,
        or null_mut(), via channel::rdma_create_event_channel;
    /// Frees an event channel.
    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel),
        or (), via channel::rdma_destroy_event_channel;
    /// Fetches the next event; returns 0, or -1 and `errno`.
    fn rdma_get_cm_event(
        channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event
    ) -> c_int,
        or -1, via events::rdma_get_cm_event;
    /// Acknowledges an event; returns 0, or -1 and `errno`.
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int,
        or -1, via channel::rdma_ack_cm_event;
    /// Creates an id; returns 0, or -1 and `errno`.
    fn rdma_create_id(
        channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void, ps: u32
    ) -> c_int,
        or -1, via id::rdma_create_id;
    /// Frees an id; returns 0, or -1 and `errno`.
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int,
        or -1, via id::rdma_destroy_id;
    /// Binds an id; returns 0, or -1 and `errno`.
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int,
        or -1, via id::rdma_bind_addr;
    /// Resolves the address of a peer; returns 0, or -1 and `errno`.
    fn rdma_resolve_addr(
        id: *mut rdma_cm_id, src_addr: *mut sockaddr, dst_addr: *mut sockaddr, timeout_ms: c_int
    ) -> c_int,
        or -1, via resolve::rdma_resolve_addr;
    /// Resolves a route; returns 0, or -1 and `errno`.
    fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int,
        or -1, via resolve::rdma_resolve_route;
    /// The local port, network byte order.
    fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16,
        or 0, via id::rdma_get_src_port;
    /// The peer's port, network byte order.
    fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16,
        or 0, via id::rdma_get_dst_port;
    /// Sets an option; returns 0, or -1 and `errno`.
    fn rdma_set_option(
        id: *mut rdma_cm_id, level: c_int, optname: c_int, optval: *mut c_void, optlen: usize
    ) -> c_int,
        or -1, via id::rdma_set_option;
    /// Moves an id to another channel; returns 0, or -1 and `errno`.
    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int,
        or -1, via id::rdma_migrate_id;
    /// Resolves a name; returns 0, an error of `getaddrinfo`, or -1 and `errno`.
    fn rdma_getaddrinfo(
        node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo,
        res: *mut *mut rdma_addrinfo
    ) -> c_int,
        or -1, via addrinfo::rdma_getaddrinfo;
    /// Frees the result of `rdma_getaddrinfo`.
    fn rdma_freeaddrinfo(res: *mut rdma_addrinfo),
        or (), via addrinfo::rdma_freeaddrinfo;
    /// The list of devices; null and `errno` on failure.
    fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context,
        or null_mut(), via info::rdma_get_devices;
    /// Frees the list of devices.
    fn rdma_free_devices(list: *mut *mut ibv_context),
        or (), via info::rdma_free_devices;
    /// The name of an event.
    fn rdma_event_str(event: u32) -> *const c_char,
        or std::ptr::null(), via info::rdma_event_str;
    /// Sets the local ECE options: not supported; returns -1 and `errno`.
    fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int,
        or -1, via info::rdma_set_local_ece;
    /// Reads the peer's ECE options: not supported; returns -1 and `errno`.
    fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int,
        or -1, via info::rdma_get_remote_ece;
    /// Rejects a connection request because of the peer's ECE options; 0, or -1 and `errno`.
    fn rdma_reject_ece(
        id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8
    ) -> c_int,
        or -1, via connect::rdma_reject_ece;
}

// Connections.
export! {
    /// Requests a connection; returns 0, or -1 and `errno`.
    fn rdma_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int,
        or -1, via connect::rdma_connect;
    /// Starts to listen; returns 0, or -1 and `errno`.
    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int,
        or -1, via endpoint::rdma_listen;
    /// Accepts a connection request; returns 0, or -1 and `errno`.
    fn rdma_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int,
        or -1, via connect::rdma_accept;
    /// Rejects a connection request; returns 0, or -1 and `errno`.
    fn rdma_reject(
        id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8
    ) -> c_int,
        or -1, via connect::rdma_reject;
    /// Sends the RTU; returns 0, or -1 and `errno`.
    fn rdma_establish(id: *mut rdma_cm_id) -> c_int,
        or -1, via connect::rdma_establish;
    /// Reports `IBV_EVENT_COMM_EST` to the connection manager; returns 0, or -1 and `errno`.
    fn rdma_notify(id: *mut rdma_cm_id, event: u32) -> c_int,
        or -1, via connect::rdma_notify;
    /// Ends a connection; returns 0, or -1 and `errno`.
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int,
        or -1, via connect::rdma_disconnect;
    /// Creates an endpoint; returns 0, or -1 and `errno`.
    fn rdma_create_ep(
        id: *mut *mut rdma_cm_id, res: *mut rdma_addrinfo, pd: *mut ibv_pd,
        qp_init_attr: *mut ibv_qp_init_attr
    ) -> c_int,
        or -1, via endpoint::rdma_create_ep;
    /// Frees an endpoint.
    fn rdma_destroy_ep(id: *mut rdma_cm_id),
        or (), via endpoint::rdma_destroy_ep;
    /// Takes the next connection request; returns 0, or -1 and `errno`.
    fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int,
        or -1, via endpoint::rdma_get_request;
    /// Joins a multicast group; returns 0, or -1 and `errno`.
    fn rdma_join_multicast(
        id: *mut rdma_cm_id, addr: *mut sockaddr, context: *mut c_void
    ) -> c_int,
        or -1, via multicast::rdma_join_multicast;
    /// Joins a multicast group; returns 0, or -1 and `errno`.
    fn rdma_join_multicast_ex(
        id: *mut rdma_cm_id, attr: *mut rdma_cm_join_mc_attr_ex, context: *mut c_void
    ) -> c_int,
        or -1, via multicast::rdma_join_multicast_ex;
    /// Leaves a multicast group; returns 0, or -1 and `errno`.
    fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int,
        or -1, via multicast::rdma_leave_multicast;
}

// Queue pairs.
export! {
    /// Creates a queue pair; returns 0, or -1 and `errno`.
    fn rdma_create_qp(
        id: *mut rdma_cm_id, pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr
    ) -> c_int,
        or -1, via qp::rdma_create_qp;
    /// Creates a queue pair; returns 0, or -1 and `errno`.
    fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int,
        or -1, via qp::rdma_create_qp_ex;
    /// Frees a queue pair.
    fn rdma_destroy_qp(id: *mut rdma_cm_id),
        or (), via qp::rdma_destroy_qp;
    /// Creates a shared receive queue; returns 0, or -1 and `errno`.
    fn rdma_create_srq(
        id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr
    ) -> c_int,
        or -1, via qp::rdma_create_srq;
    /// Creates a shared receive queue; returns 0, or -1 and `errno`.
    fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int,
        or -1, via qp::rdma_create_srq_ex;
    /// Frees a shared receive queue.
    fn rdma_destroy_srq(id: *mut rdma_cm_id),
        or (), via qp::rdma_destroy_srq;
    /// Reads the queue pair attributes for a state; returns 0, or -1 and `errno`.
    fn rdma_init_qp_attr(
        id: *mut rdma_cm_id, qp_attr: *mut ibv_qp_attr, qp_attr_mask: *mut c_int
    ) -> c_int,
        or -1, via qp::rdma_init_qp_attr;
}

include!(concat!(env!("OUT_DIR"), "/symver.rs"));
