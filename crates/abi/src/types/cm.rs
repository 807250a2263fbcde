//! The connection manager's objects (`<rdma/rdma_cma.h>`).

use super::{
    ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_sa_path_rec,
    ibv_srq,
};
use core::ffi::{c_char, c_int, c_void};
use libc::{sockaddr, sockaddr_storage, socklen_t};

layout! {
    /// The GIDs between which an id is to be connected.
    #[derive(Clone, Copy)]
    struct rdma_ib_addr: 40 {
        0 sgid: ibv_gid, "Ours.";
        16 dgid: ibv_gid, "The peer's.";
        32 pkey: u16, "The P_Key, network byte order.";
    }

    /// The addresses of an id. In C each of the first two is a union of socket addresses, and
    /// `addr` is a union with one member.
    #[derive(Clone, Copy)]
    struct rdma_addr: 296 {
        0 src_storage: sockaddr_storage, "Ours.";
        128 dst_storage: sockaddr_storage, "The peer's.";
        256 addr: rdma_ib_addr, "The same as GIDs.";
    }

    /// Addresses and paths of an id.
    #[derive(Clone, Copy)]
    struct rdma_route: 312 {
        0 addr: rdma_addr, "The addresses.";
        296 path_rec: *mut ibv_sa_path_rec, "The paths, once the route is resolved.";
        304 num_paths: c_int, "How many.";
    }

    /// A channel for events. The library keeps private fields after this one.
    #[derive(Clone, Copy, Debug)]
    struct rdma_event_channel: 4 {
        0 fd: c_int, "Readable when there is an event; may be polled.";
    }

    /// One end of a connection, or a listener. The library keeps private fields after these.
    #[derive(Clone, Copy)]
    struct rdma_cm_id: 416 {
        0 verbs: *mut ibv_context, "The device, once known.";
        8 channel: *mut rdma_event_channel, "Where its events arrive.";
        16 context: *mut c_void, "The program's pointer.";
        24 qp: *mut ibv_qp, "The queue pair that the library manages, or null.";
        32 route: rdma_route, "Addresses and paths.";
        344 ps: u32, "An `rdma_port_space`.";
        348 port_num: u8, "The device's port, once known.";
        352 event: *mut rdma_cm_event, "The last event of an id without a channel.";
        360 send_cq_channel: *mut ibv_comp_channel, "Made by `rdma_create_qp` if none was given.";
        368 send_cq: *mut ibv_cq, "Made by `rdma_create_qp` if none was given.";
        376 recv_cq_channel: *mut ibv_comp_channel, "Made by `rdma_create_qp` if none was given.";
        384 recv_cq: *mut ibv_cq, "Made by `rdma_create_qp` if none was given.";
        392 srq: *mut ibv_srq, "Made by `rdma_create_srq`, or null.";
        400 pd: *mut ibv_pd, "The domain of what is made on the id.";
        408 qp_type: u32, "An `ibv_qp_type`.";
    }

    /// Connection parameters that the ends exchange.
    #[derive(Clone, Copy, Debug)]
    struct rdma_conn_param: 24 {
        0 private_data: *const c_void, "The program's bytes for the peer.";
        8 private_data_len: u8, "How many.";
        9 responder_resources: u8, "READs and atomics that are answered at a time.";
        10 initiator_depth: u8, "READs and atomics that are asked for at a time.";
        11 flow_control: u8, "Whether the hardware controls the flow.";
        12 retry_count: u8, "Retries after time-outs.";
        13 rnr_retry_count: u8, "Retries after RNR; 7 means for ever.";
        14 srq: u8, "Whether a shared receive queue is used.";
        16 qp_num: u32, "The queue pair's number, if the library does not manage it.";
    }

    /// The address of a peer for datagrams.
    #[derive(Clone, Copy)]
    struct rdma_ud_param: 56 {
        0 private_data: *const c_void, "The program's bytes; the context of a joined group.";
        8 private_data_len: u8, "How many.";
        16 ah_attr: ibv_ah_attr, "The path.";
        48 qp_num: u32, "The peer's queue pair.";
        52 qkey: u32, "Its Q_Key.";
    }

    /// The parameters of an event; the id's type says which member is valid.
    #[derive(Clone, Copy)]
    union rdma_cm_event_param: 56 {
        0 conn: rdma_conn_param, "Of a connection.";
        0 ud: rdma_ud_param, "Of datagrams.";
    }

    /// An event of an id.
    #[derive(Clone, Copy)]
    struct rdma_cm_event: 80 {
        0 id: *mut rdma_cm_id, "To which id.";
        8 listen_id: *mut rdma_cm_id, "The listener, of a connection request.";
        16 event: u32, "An `rdma_cm_event_type`.";
        20 status: c_int, "0, a negative error number, or the reason of a rejection.";
        24 param: rdma_cm_event_param, "What the peer said.";
    }

    /// A resolved address, from which an endpoint can be created.
    #[derive(Clone, Copy, Debug)]
    struct rdma_addrinfo: 96 {
        0 ai_flags: c_int, "Bits `RAI_`.";
        4 ai_family: c_int, "Address family.";
        8 ai_qp_type: c_int, "An `ibv_qp_type`.";
        12 ai_port_space: c_int, "An `rdma_port_space`.";
        16 ai_src_len: socklen_t, "Bytes of our address.";
        20 ai_dst_len: socklen_t, "Bytes of the peer's address.";
        24 ai_src_addr: *mut sockaddr, "Our address, or null.";
        32 ai_dst_addr: *mut sockaddr, "The peer's address, or null.";
        40 ai_src_canonname: *mut c_char, "Our name, or null.";
        48 ai_dst_canonname: *mut c_char, "The peer's name, or null.";
        56 ai_route_len: usize, "Bytes of the route.";
        64 ai_route: *mut c_void, "Route, or null.";
        72 ai_connect_len: usize, "Bytes to put in front of the private data.";
        80 ai_connect: *mut c_void, "Those bytes, or null.";
        88 ai_next: *mut rdma_addrinfo, "The next one, or null.";
    }

    /// Which group to join, and how.
    #[derive(Clone, Copy, Debug)]
    struct rdma_cm_join_mc_attr_ex: 16 {
        0 comp_mask: u32, "Bits of `rdma_cm_join_mc_attr_mask`.";
        4 join_flags: u32, "One of `rdma_cm_mc_join_flags`.";
        8 addr: *mut sockaddr, "The group.";
    }
}
