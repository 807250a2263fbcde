//! Completion queues and channels.

use super::{ibv_context, ibv_pd, ibv_wc_tm_info};
use core::ffi::{c_int, c_uint, c_void};
use libc::{pthread_cond_t, pthread_mutex_t};

layout! {
    /// A completion channel. Programs poll `fd` themselves.
    #[derive(Clone, Copy, Debug)]
    struct ibv_comp_channel: 16 {
        0 context: *mut ibv_context, "The device it belongs to.";
        8 fd: c_int, "Readable when there are events.";
        12 refcnt: c_int, "Completion queues that use it.";
    }

    /// A completion queue. Lock and counters belong to the library: destroying the queue waits
    /// until its events have been acknowledged.
    #[derive(Clone, Copy)]
    struct ibv_cq: 128 {
        0 context: *mut ibv_context, "The device it belongs to.";
        8 channel: *mut ibv_comp_channel, "Where its events go, or null.";
        16 cq_context: *mut c_void, "The program's pointer.";
        24 handle: u32, "The kernel's number for it.";
        28 cqe: c_int, "How many entries it holds.";
        32 mutex: pthread_mutex_t, "Guards the counters.";
        72 cond: pthread_cond_t, "Signalled when a counter moves.";
        120 comp_events_completed: u32, "Completion events acknowledged so far.";
        124 async_events_completed: u32, "Asynchronous events acknowledged so far.";
    }

    /// A completion queue that is read field by field. It starts as an [`ibv_cq`].
    #[derive(Clone, Copy)]
    struct ibv_cq_ex: 288 {
        0 context: *mut ibv_context, "The device it belongs to.";
        8 channel: *mut ibv_comp_channel, "Where its events go, or null.";
        16 cq_context: *mut c_void, "The program's pointer.";
        24 handle: u32, "The kernel's number for it.";
        28 cqe: c_int, "How many entries it holds.";
        32 mutex: pthread_mutex_t, "Guards the counters.";
        72 cond: pthread_cond_t, "Signalled when a counter moves.";
        120 comp_events_completed: u32, "Completion events acknowledged so far.";
        124 async_events_completed: u32, "Asynchronous events acknowledged so far.";
        128 comp_mask: u32, "Reserved.";
        132 status: u32, "Of the current completion: an `ibv_wc_status`. Programs read it here.";
        136 wr_id: u64, "Of the current completion. Programs read it here.";
        144 start_poll: op!((cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int),
            "Goes to the first completion; `ENOENT` means none, and then there is no end.";
        152 next_poll: op!((cq: *mut ibv_cq_ex) -> c_int), "Goes to the next; `ENOENT` means none.";
        160 end_poll: op!((cq: *mut ibv_cq_ex)), "Gives the entries that were read back.";
        168 read_opcode: op!((cq: *mut ibv_cq_ex) -> u32), "An `ibv_wc_opcode`.";
        176 read_vendor_err: op!((cq: *mut ibv_cq_ex) -> u32), "The vendor's detail of an error.";
        184 read_byte_len: op!((cq: *mut ibv_cq_ex) -> u32), "Bytes received, or read.";
        192 read_imm_data: op!((cq: *mut ibv_cq_ex) -> u32),
            "Immediate data in network byte order, or the invalidated key in host byte order.";
        200 read_qp_num: op!((cq: *mut ibv_cq_ex) -> u32), "The local QP.";
        208 read_src_qp: op!((cq: *mut ibv_cq_ex) -> u32), "The sending QP, for datagrams.";
        216 read_wc_flags: op!((cq: *mut ibv_cq_ex) -> c_uint), "Bits of `ibv_wc_flags`.";
        224 read_slid: op!((cq: *mut ibv_cq_ex) -> u32), "Local identifier of the sender.";
        232 read_sl: op!((cq: *mut ibv_cq_ex) -> u8), "Service level.";
        240 read_dlid_path_bits: op!((cq: *mut ibv_cq_ex) -> u8), "Path bits of the destination.";
        248 read_completion_ts: op!((cq: *mut ibv_cq_ex) -> u64),
            "Time stamp, in ticks of the adapter's clock.";
        256 read_cvlan: op!((cq: *mut ibv_cq_ex) -> u16), "VLAN tag.";
        264 read_flow_tag: op!((cq: *mut ibv_cq_ex) -> u32), "Tag of the matching flow.";
        272 read_tm_info: op!((cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info)), "Tag matching.";
        280 read_completion_wallclock_ns: op!((cq: *mut ibv_cq_ex) -> u64),
            "Time stamp, in nanoseconds of the real-time clock.";
    }

    /// Input of `start_poll`.
    #[derive(Clone, Copy, Debug)]
    struct ibv_poll_cq_attr: 4 {
        0 comp_mask: u32, "Must be 0.";
    }

    /// Attributes of a new extended completion queue.
    #[derive(Clone, Copy, Debug)]
    struct ibv_cq_init_attr_ex: 56 {
        0 cqe: u32, "Least number of entries.";
        8 cq_context: *mut c_void, "The program's pointer.";
        16 channel: *mut ibv_comp_channel, "Where its events go, or null.";
        24 comp_vector: u32, "Interrupt vector, below `num_comp_vectors`.";
        32 wc_flags: u64, "Bits of `ibv_create_cq_wc_flags`: what will be read.";
        40 comp_mask: u32, "Bits of `ibv_cq_init_attr_mask`.";
        44 flags: u32, "Bits of `ibv_create_cq_attr_flags`.";
        48 parent_domain: *mut ibv_pd, "A parent domain, or null.";
    }

    /// When to raise an event.
    #[derive(Clone, Copy, Debug)]
    struct ibv_moderate_cq: 4 {
        0 cq_count: u16, "After so many completions.";
        2 cq_period: u16, "After so many microseconds.";
    }

    /// Changes of a completion queue.
    #[derive(Clone, Copy, Debug)]
    struct ibv_modify_cq_attr: 8 {
        0 attr_mask: u32, "Bits of `ibv_cq_attr_mask`.";
        4 moderate: ibv_moderate_cq, "Moderation of events.";
    }
}
