//! Asynchronous events.

use super::{ibv_cq, ibv_qp, ibv_srq};
use core::ffi::{c_int, c_void};

layout! {
    /// An event of a device or of one of its objects.
    #[derive(Clone, Copy)]
    struct ibv_async_event: 16 {
        0 element: ibv_async_event_element, "What it happened to.";
        8 event_type: u32, "An `ibv_event_type`.";
    }

    /// The object or port of an event; `event_type` says which member is valid.
    #[derive(Clone, Copy)]
    union ibv_async_event_element: 8 {
        0 cq: *mut ibv_cq, "A completion queue.";
        0 qp: *mut ibv_qp, "A queue pair.";
        0 srq: *mut ibv_srq, "A shared receive queue.";
        0 wq: *mut c_void, "A work queue.";
        0 port_num: c_int, "A port, from 1.";
    }
}
