//! Queue pairs.

use super::{
    ibv_ah, ibv_ah_attr, ibv_context, ibv_cq, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_pd,
    ibv_rwq_ind_table, ibv_sge, ibv_srq, ibv_xrcd,
};
use core::ffi::{c_int, c_uint, c_void};
use libc::{pthread_cond_t, pthread_mutex_t};

layout! {
    /// A queue pair. Lock and counter belong to the library: destroying the queue pair waits
    /// until its events have been acknowledged.
    #[derive(Clone, Copy)]
    struct ibv_qp: 160 {
        0 context: *mut ibv_context, "The device it belongs to.";
        8 qp_context: *mut c_void, "The program's pointer.";
        16 pd: *mut ibv_pd, "The domain it belongs to.";
        24 send_cq: *mut ibv_cq, "Where sends complete.";
        32 recv_cq: *mut ibv_cq, "Where receives complete.";
        40 srq: *mut ibv_srq, "Where it receives from, or null.";
        48 handle: u32, "The kernel's number for it.";
        52 qp_num: u32, "Its number, 24 bits.";
        56 state: u32, "An `ibv_qp_state`, as of the last modify or query.";
        60 qp_type: u32, "An `ibv_qp_type`.";
        64 mutex: pthread_mutex_t, "Guards the counter.";
        104 cond: pthread_cond_t, "Signalled when the counter moves.";
        152 events_completed: u32, "Events acknowledged so far.";
    }

    /// A queue pair with requests built by several calls. `wr_flush` is newer than rdma-core 44.
    ///
    /// The program writes `wr_id` and `wr_flags`, then calls one operation and its setters.
    #[derive(Clone, Copy)]
    struct ibv_qp_ex: 360 {
        0 qp_base: ibv_qp, "The queue pair.";
        160 comp_mask: u64, "Reserved.";
        168 wr_id: u64, "For the next operation.";
        176 wr_flags: c_uint, "Bits of `ibv_send_flags` for the next operation.";
        184 wr_atomic_cmp_swp: op!((
            qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, compare: u64, swap: u64
        )), "Starts a compare-and-swap.";
        192 wr_atomic_fetch_add: op!((qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64)),
            "Starts a fetch-and-add.";
        200 wr_bind_mw: op!((
            qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info
        )), "Starts the binding of a window.";
        208 wr_local_inv: op!((qp: *mut ibv_qp_ex, invalidate_rkey: u32)),
            "Starts the invalidation of a key.";
        216 wr_rdma_read: op!((qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64)), "Starts a READ.";
        224 wr_rdma_write: op!((qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64)),
            "Starts a WRITE.";
        232 wr_rdma_write_imm: op!((
            qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: u32
        )), "Starts a WRITE with immediate data (network byte order).";
        240 wr_send: op!((qp: *mut ibv_qp_ex)), "Starts a SEND.";
        248 wr_send_imm: op!((qp: *mut ibv_qp_ex, imm_data: u32)),
            "Starts a SEND with immediate data (network byte order).";
        256 wr_send_inv: op!((qp: *mut ibv_qp_ex, invalidate_rkey: u32)),
            "Starts a SEND that invalidates a key of the peer.";
        264 wr_send_tso: op!((qp: *mut ibv_qp_ex, hdr: *mut c_void, hdr_sz: u16, mss: u16)),
            "Starts a segmented send.";
        272 wr_set_ud_addr: op!((
            qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32
        )), "Says where a datagram goes.";
        280 wr_set_xrc_srqn: op!((qp: *mut ibv_qp_ex, remote_srqn: u32)),
            "Says which SRQ an XRC send goes to.";
        288 wr_set_inline_data: op!((qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize)),
            "Takes the bytes at once.";
        296 wr_set_inline_data_list: op!((
            qp: *mut ibv_qp_ex, num_buf: usize, buf_list: *const ibv_data_buf
        )), "Takes the bytes of several pieces at once.";
        304 wr_set_sge: op!((qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32)),
            "Names the one piece of memory.";
        312 wr_set_sge_list: op!((qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge)),
            "Names the pieces of memory.";
        320 wr_start: op!((qp: *mut ibv_qp_ex)), "Opens a batch.";
        328 wr_complete: op!((qp: *mut ibv_qp_ex) -> c_int),
            "Posts the batch; an error number means that none of it was posted.";
        336 wr_abort: op!((qp: *mut ibv_qp_ex)), "Drops the batch.";
        344 wr_atomic_write: op!((
            qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, atomic_wr: *const c_void
        )), "Starts an atomic write of 8 bytes.";
        352 wr_flush: op!((
            qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, len: usize, r#type: u8, level: u8
        )), "Starts a flush to the given placement and selectivity.";
    }

    /// Capacities of a queue pair.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct ibv_qp_cap: 20 {
        0 max_send_wr: u32, "Most send requests.";
        4 max_recv_wr: u32, "Most receive requests.";
        8 max_send_sge: u32, "Most pieces of a send.";
        12 max_recv_sge: u32, "Most pieces of a receive.";
        16 max_inline_data: u32, "Most inline bytes of a send.";
    }

    /// Attributes of a new queue pair.
    #[derive(Clone, Copy, Debug)]
    struct ibv_qp_init_attr: 64 {
        0 qp_context: *mut c_void, "The program's pointer.";
        8 send_cq: *mut ibv_cq, "Where sends complete.";
        16 recv_cq: *mut ibv_cq, "Where receives complete.";
        24 srq: *mut ibv_srq, "Where it receives from, or null.";
        32 cap: ibv_qp_cap, "How much it holds; on return, how much it really holds.";
        52 qp_type: u32, "An `ibv_qp_type`.";
        56 sq_sig_all: c_int, "Whether every send completes visibly.";
    }

    /// Hash for spreading incoming packets.
    #[derive(Clone, Copy, Debug)]
    struct ibv_rx_hash_conf: 24 {
        0 rx_hash_function: u8, "The function.";
        1 rx_hash_key_len: u8, "Length of its key, in bytes.";
        8 rx_hash_key: *mut u8, "Its key.";
        16 rx_hash_fields_mask: u64, "The fields that are hashed.";
    }

    /// Attributes of a new queue pair, with all extensions. It starts as an [`ibv_qp_init_attr`].
    #[derive(Clone, Copy, Debug)]
    struct ibv_qp_init_attr_ex: 136 {
        0 qp_context: *mut c_void, "The program's pointer.";
        8 send_cq: *mut ibv_cq, "Where sends complete.";
        16 recv_cq: *mut ibv_cq, "Where receives complete.";
        24 srq: *mut ibv_srq, "Where it receives from, or null.";
        32 cap: ibv_qp_cap, "How much it holds; on return, how much it really holds.";
        52 qp_type: u32, "An `ibv_qp_type`.";
        56 sq_sig_all: c_int, "Whether every send completes visibly.";
        60 comp_mask: u32, "Bits of `ibv_qp_init_attr_mask`: what of the rest is valid.";
        64 pd: *mut ibv_pd, "The domain it belongs to.";
        72 xrcd: *mut ibv_xrcd, "The XRC domain it belongs to.";
        80 create_flags: u32, "Bits of `ibv_qp_create_flags`.";
        84 max_tso_header: u16, "Longest TSO header, in bytes.";
        88 rwq_ind_tbl: *mut ibv_rwq_ind_table, "Table of receive queues.";
        96 rx_hash_conf: ibv_rx_hash_conf, "How packets are spread over them.";
        120 source_qpn: u32, "The QP number to send as.";
        128 send_ops_flags: u64, "Bits of `ibv_qp_create_send_ops_flags`: what will be posted.";
    }

    /// Attributes for opening a shared XRC queue pair.
    #[derive(Clone, Copy, Debug)]
    struct ibv_qp_open_attr: 32 {
        0 comp_mask: u32, "Bits of `ibv_qp_open_attr_mask`.";
        4 qp_num: u32, "Its number.";
        8 xrcd: *mut ibv_xrcd, "The XRC domain.";
        16 qp_context: *mut c_void, "The program's pointer.";
        24 qp_type: u32, "An `ibv_qp_type`.";
    }

    /// The attributes of a queue pair (IBA 11.2.5.2).
    #[derive(Clone, Copy)]
    struct ibv_qp_attr: 144 {
        0 qp_state: u32, "The state to go to: an `ibv_qp_state`.";
        4 cur_qp_state: u32, "The state that it is believed to be in.";
        8 path_mtu: u32, "An `ibv_mtu`.";
        12 path_mig_state: u32, "An `ibv_mig_state`.";
        16 qkey: u32, "Q_Key, for datagrams.";
        20 rq_psn: u32, "First PSN to receive, 24 bits.";
        24 sq_psn: u32, "First PSN to send, 24 bits.";
        28 dest_qp_num: u32, "Number of the peer.";
        32 qp_access_flags: c_uint, "Bits of `ibv_access_flags`: what peers may do.";
        36 cap: ibv_qp_cap, "How much it holds.";
        56 ah_attr: ibv_ah_attr, "The path.";
        88 alt_ah_attr: ibv_ah_attr, "The alternate path.";
        120 pkey_index: u16, "Index of the P_Key.";
        122 alt_pkey_index: u16, "Index of the alternate path's P_Key.";
        124 en_sqd_async_notify: u8, "Whether to tell when the send queue has drained.";
        125 sq_draining: u8, "Whether it is draining (query only).";
        126 max_rd_atomic: u8, "READs and atomics under way as initiator.";
        127 max_dest_rd_atomic: u8, "READs and atomics under way as target.";
        128 min_rnr_timer: u8, "How long peers are told to wait, as a code of 5 bits.";
        129 port_num: u8, "The port, from 1.";
        130 timeout: u8, "Local ACK time-out, as 4.096 us x 2^n; 0 waits for ever.";
        131 retry_cnt: u8, "Retries after time-outs and sequence errors, up to 7.";
        132 rnr_retry: u8, "Retries after RNR; 7 means for ever.";
        133 alt_port_num: u8, "Port of the alternate path.";
        134 alt_timeout: u8, "Time-out of the alternate path.";
        136 rate_limit: u32, "Limit of the rate, in kbit/s.";
    }

    /// A limit of a queue pair's rate.
    #[derive(Clone, Copy, Debug)]
    struct ibv_qp_rate_limit_attr: 16 {
        0 rate_limit: u32, "In kbit/s.";
        4 max_burst_sz: u32, "Longest burst, in bytes.";
        8 typical_pkt_sz: u16, "Usual packet, in bytes.";
        12 comp_mask: u32, "Must be 0.";
    }

    /// Enhanced connection establishment: options that two peers agree on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct ibv_ece: 12 {
        0 vendor_id: u32, "IEEE OUI.";
        4 options: u32, "The vendor's bits.";
        8 comp_mask: u32, "Must be 0.";
    }
}
