//! Work requests and completions.

use super::{ibv_ah, ibv_mw, ibv_mw_bind_info};
use core::ffi::{c_int, c_uint, c_void};

layout! {
    /// A piece of registered memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct ibv_sge: 16 {
        0 addr: u64, "Start.";
        8 length: u32, "Length, in bytes.";
        12 lkey: u32, "Key of its region.";
    }

    /// A piece of memory whose bytes are copied at once (inline).
    #[derive(Clone, Copy, Debug)]
    struct ibv_data_buf: 16 {
        0 addr: *mut c_void, "Start.";
        8 length: usize, "Length, in bytes.";
    }

    /// A receive request.
    #[derive(Clone, Copy, Debug)]
    struct ibv_recv_wr: 32 {
        0 wr_id: u64, "Comes back in the completion.";
        8 next: *mut ibv_recv_wr, "The next of the list, or null.";
        16 sg_list: *mut ibv_sge, "Where to put the message.";
        24 num_sge: c_int, "How many pieces.";
    }

    /// A send request.
    #[derive(Clone, Copy)]
    struct ibv_send_wr: 128 {
        0 wr_id: u64, "Comes back in the completion.";
        8 next: *mut ibv_send_wr, "The next of the list, or null.";
        16 sg_list: *mut ibv_sge, "What to send, or where to put what is read.";
        24 num_sge: c_int, "How many pieces.";
        28 opcode: u32, "An `ibv_wr_opcode`.";
        32 send_flags: c_uint, "Bits of `ibv_send_flags`.";
        36 imm_data: u32, "Immediate data in network byte order; for the `_INV` opcodes this is \
            `invalidate_rkey`, in host byte order.";
        40 wr: ibv_send_wr_wr, "What depends on the opcode, or on the transport.";
        72 qp_type: ibv_send_wr_qp_type, "What depends on the QP type.";
        80 bind_mw_tso: ibv_send_wr_bind_mw_tso, "Binding of a window, or TSO (anonymous in C).";
    }

    /// Remote operand of a send request.
    #[derive(Clone, Copy)]
    union ibv_send_wr_wr: 32 {
        0 rdma: ibv_send_wr_rdma, "For WRITE and READ.";
        0 atomic: ibv_send_wr_atomic, "For atomics.";
        0 ud: ibv_send_wr_ud, "For datagrams.";
    }

    /// Remote operand of WRITE and READ.
    #[derive(Clone, Copy, Debug)]
    struct ibv_send_wr_rdma: 16 {
        0 remote_addr: u64, "Address at the peer.";
        8 rkey: u32, "Key at the peer.";
    }

    /// Remote operand of atomics.
    #[derive(Clone, Copy, Debug)]
    struct ibv_send_wr_atomic: 32 {
        0 remote_addr: u64, "Address at the peer, a multiple of 8.";
        8 compare_add: u64, "What to compare with, or to add.";
        16 swap: u64, "What to store if equal.";
        24 rkey: u32, "Key at the peer.";
    }

    /// The destination of a datagram.
    #[derive(Clone, Copy, Debug)]
    struct ibv_send_wr_ud: 16 {
        0 ah: *mut ibv_ah, "Address handle.";
        8 remote_qpn: u32, "Number of the QP there.";
        12 remote_qkey: u32, "Its Q_Key; with the top bit set, the sending QP's own.";
    }

    /// Further operand of an XRC send.
    #[derive(Clone, Copy)]
    union ibv_send_wr_qp_type: 4 {
        0 xrc: ibv_send_wr_xrc, "For XRC.";
    }

    /// The SRQ that an XRC send goes to.
    #[derive(Clone, Copy, Debug)]
    struct ibv_send_wr_xrc: 4 {
        0 remote_srqn: u32, "Its number.";
    }

    /// Further operand of binding a window, or of TSO.
    #[derive(Clone, Copy)]
    union ibv_send_wr_bind_mw_tso: 48 {
        0 bind_mw: ibv_send_wr_bind_mw, "For `IBV_WR_BIND_MW`.";
        0 tso: ibv_send_wr_tso, "For `IBV_WR_TSO`.";
    }

    /// Binding a window of type 2.
    #[derive(Clone, Copy, Debug)]
    struct ibv_send_wr_bind_mw: 48 {
        0 mw: *mut ibv_mw, "The window.";
        8 rkey: u32, "Its new key.";
        16 bind_info: ibv_mw_bind_info, "What to bind it to.";
    }

    /// Segmentation by the adapter.
    #[derive(Clone, Copy, Debug)]
    struct ibv_send_wr_tso: 16 {
        0 hdr: *mut c_void, "The header that each segment repeats.";
        8 hdr_sz: u16, "Its length, in bytes.";
        10 mss: u16, "Longest segment, in bytes.";
    }

    /// A tag-matching request.
    #[derive(Clone, Copy, Debug)]
    struct ibv_ops_wr: 72 {
        0 wr_id: u64, "Comes back in the completion.";
        8 next: *mut ibv_ops_wr, "The next of the list, or null.";
        16 opcode: u32, "An `ibv_ops_wr_opcode`.";
        20 flags: c_int, "Bits of `ibv_ops_flags`.";
        24 tm: ibv_ops_wr_tm, "What is to be matched.";
    }

    /// The operand of a tag-matching request.
    #[derive(Clone, Copy, Debug)]
    struct ibv_ops_wr_tm: 48 {
        0 unexpected_cnt: u32, "Unexpected messages that the program has handled.";
        4 handle: u32, "Names an added tag.";
        8 add: ibv_ops_wr_tm_add, "The buffer to add.";
    }

    /// A tagged buffer.
    #[derive(Clone, Copy, Debug)]
    struct ibv_ops_wr_tm_add: 40 {
        0 recv_wr_id: u64, "Comes back in the completion of the receive.";
        8 sg_list: *mut ibv_sge, "Where to put the message.";
        16 num_sge: c_int, "How many pieces.";
        24 tag: u64, "The tag.";
        32 mask: u64, "Which of its bits count.";
    }

    /// A completion.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct ibv_wc: 48 {
        0 wr_id: u64, "That of the request.";
        8 status: u32, "An `ibv_wc_status`; if not 0, only this, `wr_id`, `qp_num` and \
            `vendor_err` are valid.";
        12 opcode: u32, "An `ibv_wc_opcode`.";
        16 vendor_err: u32, "The vendor's detail of an error.";
        20 byte_len: u32, "Bytes received, or read.";
        24 imm_data: u32, "Immediate data in network byte order; with `IBV_WC_WITH_INV` this is \
            `invalidated_rkey`, in host byte order.";
        28 qp_num: u32, "The local QP.";
        32 src_qp: u32, "The sending QP, for datagrams.";
        36 wc_flags: c_uint, "Bits of `ibv_wc_flags`.";
        40 pkey_index: u16, "Index of the P_Key, for GSI.";
        42 slid: u16, "Local identifier of the sender, for datagrams.";
        44 sl: u8, "Service level, for datagrams.";
        45 dlid_path_bits: u8, "Path bits of the destination, for datagrams.";
    }

    /// Tag-matching data of a completion.
    #[derive(Clone, Copy, Debug)]
    struct ibv_wc_tm_info: 16 {
        0 tag: u64, "Tag of the message.";
        8 r#priv: u32, "The sender's own 32 bits.";
    }
}
