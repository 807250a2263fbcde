//! Shared receive queues.

use super::{ibv_context, ibv_cq, ibv_pd, ibv_xrcd};
use core::ffi::c_void;
use libc::{pthread_cond_t, pthread_mutex_t};

layout! {
    /// A shared receive queue. Lock and counter belong to the library: destroying the queue
    /// waits until its events have been acknowledged.
    #[derive(Clone, Copy)]
    struct ibv_srq: 128 {
        0 context: *mut ibv_context, "The device it belongs to.";
        8 srq_context: *mut c_void, "The program's pointer.";
        16 pd: *mut ibv_pd, "The domain it belongs to.";
        24 handle: u32, "The kernel's number for it.";
        32 mutex: pthread_mutex_t, "Guards the counter.";
        72 cond: pthread_cond_t, "Signalled when the counter moves.";
        120 events_completed: u32, "Events acknowledged so far.";
    }

    /// The attributes of a shared receive queue.
    #[derive(Clone, Copy, Debug)]
    struct ibv_srq_attr: 12 {
        0 max_wr: u32, "Most work requests.";
        4 max_sge: u32, "Most scatter entries of a request.";
        8 srq_limit: u32, "An event is raised when fewer requests than this remain.";
    }

    /// Attributes of a new shared receive queue.
    #[derive(Clone, Copy, Debug)]
    struct ibv_srq_init_attr: 24 {
        0 srq_context: *mut c_void, "The program's pointer.";
        8 attr: ibv_srq_attr, "The attributes.";
    }

    /// Tag-matching capacities of a queue.
    #[derive(Clone, Copy, Debug)]
    struct ibv_tm_cap: 8 {
        0 max_num_tags: u32, "Most tagged buffers.";
        4 max_ops: u32, "Most list operations under way.";
    }

    /// Attributes of a new shared receive queue, with types and domains.
    #[derive(Clone, Copy, Debug)]
    struct ibv_srq_init_attr_ex: 64 {
        0 srq_context: *mut c_void, "The program's pointer.";
        8 attr: ibv_srq_attr, "The attributes.";
        20 comp_mask: u32, "Bits of `ibv_srq_init_attr_mask`.";
        24 srq_type: u32, "An `ibv_srq_type`.";
        32 pd: *mut ibv_pd, "The domain it belongs to.";
        40 xrcd: *mut ibv_xrcd, "The XRC domain it belongs to.";
        48 cq: *mut ibv_cq, "Where it completes, for XRC.";
        56 tm_cap: ibv_tm_cap, "Tag matching.";
    }
}
