//! Event channels and events as C sees them.

use core::ffi::c_int;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rdmalab_abi::{rdma_cm_event, rdma_cm_event_param, rdma_conn_param, rdma_event_channel};

use crate::errno::{CallResult, Errno, answer, errno_of};
use crate::event_queue::EventQueue;
use crate::eventfd;
use crate::process::process;

/// The longest private data of any event.
pub const PRIVATE_MAX: usize = 256;

/// A channel: the part that C sees, and its queue.
#[repr(C)]
pub struct Channel {
    public: rdma_event_channel,
    pub queue: Arc<EventQueue>,
}

/// The lowest number of the descriptor of an id's own channel, which is the number of an rsocket.
/// It is above the numbers of most other descriptors, for rdma-core's `librspreload.so`: its
/// `select` looks from 0 upwards for the descriptor that stands for an rsocket, and an ordinary
/// descriptor stands for itself. So a program waits for ever if its own number of an rsocket is
/// above the rsocket's number. Without this limit that happens when our thread closes a descriptor
/// after librspreload has opened one and before the rsocket gets its own.
const OWN_LOWEST: c_int = 512;

/// Creates a channel.
pub fn create() -> CallResult<*mut Channel> {
    create_with(|fd| fd)
}

/// Creates the channel that belongs to one id.
pub fn create_own() -> CallResult<*mut Channel> {
    create_with(|fd| eventfd::move_up(fd, OWN_LOWEST))
}

fn create_with(place: fn(OwnedFd) -> OwnedFd) -> CallResult<*mut Channel> {
    process()?;
    let fd = eventfd::create().map_err(|error| errno_of(&error))?;
    let queue = Arc::new(EventQueue::new(place(fd)));
    let public = rdma_event_channel { fd: queue.raw_fd() };
    Ok(Box::into_raw(Box::new(Channel { public, queue })))
}

/// Creates an event channel; null and `errno` on failure.
pub unsafe fn rdma_create_event_channel() -> *mut rdma_event_channel {
    match create() {
        Ok(channel) => channel.cast(),
        Err(Errno(errno)) => {
            rdmalab_abi::inline::set_errno(errno);
            std::ptr::null_mut()
        }
    }
}

/// Frees a channel. Its ids keep the event queue, but no thread reads that queue any more.
pub unsafe fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the caller's channel, made by `create`, and freed once.
    drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
}

/// The queue of a channel.
///
/// # Safety
/// `channel` comes from [`create`] and was not freed.
pub unsafe fn queue_of(channel: *mut rdma_event_channel) -> Arc<EventQueue> {
    // SAFETY: the caller's contract.
    unsafe { (*channel.cast::<Channel>()).queue.clone() }
}

/// An event: the part that C sees, and our private fields behind it.
#[repr(C)]
pub struct Event {
    pub public: rdma_cm_event,
    pub private_data: [u8; PRIVATE_MAX],
    /// The id whose `rdma_destroy_id` waits until this event is acknowledged.
    pub owner: u64,
}

impl Event {
    /// An event without parameters.
    pub fn new(event: u32, status: c_int, owner: u64) -> Box<Self> {
        let no_id = std::ptr::null_mut();
        let conn = rdma_conn_param::zeroed();
        let mut param = rdma_cm_event_param::zeroed();
        param.conn = conn;
        let public = rdma_cm_event { id: no_id, listen_id: no_id, event, status, param };
        Box::new(Self { public, private_data: [0; PRIVATE_MAX], owner })
    }
}

/// Acknowledges and frees an event; returns 0, or -1 and `errno`.
pub unsafe fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return answer(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: the caller's event, from `rdma_get_cm_event`, and acknowledged once.
    let event = unsafe { Box::from_raw(event.cast::<Event>()) };
    answer(process().map(|process| process.acknowledge(event.owner)))
}
