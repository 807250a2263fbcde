//! The queue of events of an event channel, and its descriptor.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdmalab_wire::ids::Gid;

use crate::errno::CallResult;
use crate::eventfd;

/// The parameters of an event.
#[derive(Clone, Debug)]
pub enum EventParam {
    None,
    /// `rdma_conn_param`.
    Conn {
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: bool,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: bool,
        qp_num: u32,
        private_data: Vec<u8>,
    },
    /// `rdma_ud_param`; its address vector comes from the id.
    Ud {
        qp_num: u32,
        qkey: u32,
        private_data: Vec<u8>,
    },
    /// A multicast group was joined. `number` is the group's number on its id.
    Group {
        number: u64,
        mgid: Gid,
        mlid: u16,
        qkey: u32,
    },
}

/// An event that the program has not fetched yet.
#[derive(Clone, Debug)]
pub struct QueuedEvent {
    /// `RDMA_CM_EVENT_...`
    pub event: u32,
    pub status: i32,
    /// The number of the id.
    pub id: u64,
    /// The number of the listener, for a connection request.
    pub listener: Option<u64>,
    pub param: EventParam,
}

impl QueuedEvent {
    /// An event without error and without parameters.
    pub fn new(event: u32, id: u64) -> Self {
        Self { event, status: 0, id, listener: None, param: EventParam::None }
    }

    /// The id whose channel reports the event, and which counts the event until the program
    /// acknowledges it: the listener for a connection request, else the id of the event.
    pub fn owner(&self) -> u64 {
        self.listener.unwrap_or(self.id)
    }
}

/// A queue of events. Its descriptor is readable exactly while the queue is not empty.
pub struct EventQueue {
    events: Mutex<VecDeque<QueuedEvent>>,
    fd: OwnedFd,
}

impl EventQueue {
    /// An empty queue, with a descriptor of [`eventfd::create`].
    pub fn new(fd: OwnedFd) -> Self {
        Self { events: Mutex::default(), fd }
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<QueuedEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Adds an event.
    pub fn push(&self, queued: QueuedEvent) {
        let mut events = self.events();
        if events.is_empty() {
            eventfd::signal(self.fd.as_fd());
        }
        events.push_back(queued);
    }

    /// Takes the next event.
    pub fn pop(&self) -> Option<QueuedEvent> {
        let mut events = self.events();
        let queued = events.pop_front();
        if queued.is_some() && events.is_empty() {
            eventfd::clear(self.fd.as_fd());
        }
        queued
    }

    /// Takes all events for which `which` holds, in order.
    pub fn take_all(&self, which: impl Fn(&QueuedEvent) -> bool) -> Vec<QueuedEvent> {
        let mut events = self.events();
        if events.is_empty() {
            return Vec::new();
        }
        let (taken, kept) = events.drain(..).partition(|queued| which(queued));
        *events = kept;
        if events.is_empty() {
            eventfd::clear(self.fd.as_fd());
        }
        taken.into_iter().collect()
    }

    /// Whether the program left the descriptor blocking.
    pub fn is_blocking(&self) -> bool {
        // SAFETY: takes integers only.
        let flags = unsafe { libc::fcntl(self.raw_fd(), libc::F_GETFL) };
        flags >= 0 && flags & libc::O_NONBLOCK == 0
    }

    /// Waits until there may be an event.
    pub fn wait(&self) -> CallResult<()> {
        let mut poll = libc::pollfd { fd: self.raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        match unsafe { libc::poll(&raw mut poll, 1, -1) } {
            -1 => Err(crate::errno::last_errno()),
            _ => Ok(()),
        }
    }
}
