//! Event channels: a queue of events and a descriptor that is readable while there are any.

use core::ffi::{c_int, c_void};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rdmalab_abi::{rdma_cm_event, rdma_cm_event_param, rdma_conn_param, rdma_event_channel};

use crate::errno::{CallResult, Errno, answer, errno_of};
use crate::state::{self, QueuedEvent};

/// The longest private data of any event.
pub const PRIVATE_MAX: usize = 256;

/// A counter of the kernel's that can be polled.
pub fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Makes a counter readable.
pub fn add_one(fd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: reads eight bytes of a live number. A full counter is readable all the same.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast::<c_void>(), 8) };
}

/// Makes a counter unreadable. The caller knows that it is readable, or that nobody minds: it is
/// looked at first, as the descriptor may block.
pub fn drain(fd: BorrowedFd<'_>) {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd, and eight bytes to write to.
    unsafe {
        if libc::poll(&raw mut poll, 1, 0) == 1 {
            let mut count = 0u64;
            libc::read(fd.as_raw_fd(), (&raw mut count).cast::<c_void>(), 8);
        }
    }
}

/// The queue behind a channel.
pub struct Queue {
    events: Mutex<VecDeque<QueuedEvent>>,
    fd: OwnedFd,
}

impl Queue {
    fn events(&self) -> std::sync::MutexGuard<'_, VecDeque<QueuedEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. The descriptor is readable exactly while the queue is not empty.
    pub fn push(&self, queued: QueuedEvent) {
        let mut events = self.events();
        if events.is_empty() {
            add_one(self.fd.as_fd());
        }
        events.push_back(queued);
    }

    /// Takes the next event.
    pub fn pop(&self) -> Option<QueuedEvent> {
        let mut events = self.events();
        let queued = events.pop_front();
        if queued.is_some() && events.is_empty() {
            drain(self.fd.as_fd());
        }
        queued
    }

    /// Takes out all events for which `which` holds, in order.
    pub fn take_all(&self, which: impl Fn(&QueuedEvent) -> bool) -> Vec<QueuedEvent> {
        let mut events = self.events();
        if events.is_empty() {
            return Vec::new();
        }
        let (taken, kept) = events.drain(..).partition(|queued| which(queued));
        *events = kept;
        if events.is_empty() {
            drain(self.fd.as_fd());
        }
        taken.into_iter().collect()
    }

    fn blocks(&self) -> bool {
        // SAFETY: takes integers only.
        let flags = unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_GETFL) };
        flags >= 0 && flags & libc::O_NONBLOCK == 0
    }

    /// Waits until there may be an event.
    fn wait(&self) -> CallResult<()> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        match unsafe { libc::poll(&raw mut poll, 1, -1) } {
            -1 => Err(errno_of(&io::Error::last_os_error())),
            _ => Ok(()),
        }
    }
}

/// A channel as C sees it, with what is ours behind it.
#[repr(C)]
pub struct Channel {
    public: rdma_event_channel,
    pub queue: Arc<Queue>,
}

/// Makes a channel.
pub fn create() -> CallResult<*mut Channel> {
    state::get()?;
    let fd = event_fd().map_err(|error| errno_of(&error))?;
    let public = rdma_event_channel { fd: fd.as_raw_fd() };
    let queue = Arc::new(Queue { events: Mutex::default(), fd });
    Ok(Box::into_raw(Box::new(Channel { public, queue })))
}

/// Makes a channel; null and `errno`.
pub unsafe fn rdma_create_event_channel() -> *mut rdma_event_channel {
    match create() {
        Ok(channel) => channel.cast(),
        Err(Errno(errno)) => {
            rdmalab_abi::inline::set_errno(errno);
            std::ptr::null_mut()
        }
    }
}

/// Frees a channel. Ids that are still on it keep the queue, which nobody reads any more.
pub unsafe fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the caller's channel, made by `create`, and given back once.
    drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
}

/// The queue of a channel.
///
/// # Safety
/// The channel is one of ours, and alive.
pub unsafe fn queue_of(channel: *mut rdma_event_channel) -> Arc<Queue> {
    // SAFETY: the caller's contract.
    unsafe { (*channel.cast::<Channel>()).queue.clone() }
}

/// An event as C sees it, with what is ours behind it.
#[repr(C)]
pub struct Event {
    pub public: rdma_cm_event,
    pub private_data: [u8; PRIVATE_MAX],
    /// The id whose `rdma_destroy_id` waits until this is acknowledged.
    pub owner: u64,
}

impl Event {
    /// An event without parameters.
    pub fn new(event: u32, status: c_int, owner: u64) -> Box<Self> {
        let nobody = std::ptr::null_mut();
        let conn = rdma_conn_param::zeroed();
        let mut param = rdma_cm_event_param::zeroed();
        param.conn = conn;
        let public = rdma_cm_event { id: nobody, listen_id: nobody, event, status, param };
        Box::new(Self { public, private_data: [0; PRIVATE_MAX], owner })
    }
}

/// Waits for the next event; 0, or -1 and `errno`.
pub unsafe fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: the caller's channel, which lives during the call, and place for the event.
    answer(unsafe { next(channel, event) })
}

unsafe fn next(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> CallResult<()> {
    if event.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's contract.
    let queue = unsafe { queue_of(channel) };
    loop {
        // SAFETY: the caller's contract, and the caller's place for the event.
        unsafe {
            if let Some(made) = take(channel, &queue) {
                event.write(made);
                return Ok(());
            }
        }
        if !queue.blocks() {
            return Err(Errno(libc::EAGAIN));
        }
        queue.wait()?;
    }
}

/// The next event, without waiting: to be given back as any.
///
/// # Safety
/// The channel is one of ours, and alive.
pub unsafe fn try_next(channel: *mut rdma_event_channel) -> Option<*mut rdma_cm_event> {
    // SAFETY: the caller's contract.
    unsafe { take(channel, &queue_of(channel)) }
}

unsafe fn take(channel: *mut rdma_event_channel, queue: &Queue) -> Option<*mut rdma_cm_event> {
    while let Some(queued) = queue.pop() {
        if let Some(made) = crate::events::to_event(queued, channel) {
            // It is freed by `rdma_ack_cm_event`.
            return Some(Box::into_raw(made).cast());
        }
    }
    None
}

/// Gives an event back; 0, or -1 and `errno`.
pub unsafe fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return answer(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: the caller's event, made by `next`, and given back once.
    let event = unsafe { Box::from_raw(event.cast::<Event>()) };
    answer(state::get().map(|process| process.acknowledge(event.owner)))
}
