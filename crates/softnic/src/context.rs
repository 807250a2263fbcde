//! An open device: its index, the number of its objects, and its asynchronous events.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rdmalab_engine::backend::{AsyncEvent, Deadline, VerbsError, VerbsResult};
use rdmalab_engine::vocab::AsyncEventType;

use crate::cancel::NoCancel;
use crate::fd::CountingEvent;
use crate::poll;
use crate::signals;

/// Asynchronous events that are kept until a program takes them; the oldest are dropped first.
const MAX_ASYNC_EVENTS: usize = 4096;

/// The state that all objects of an open device share.
pub(crate) struct ContextShared {
    /// 0 for `soft0`, 1 for `soft1`.
    pub(crate) device: u32,
    events: Mutex<VecDeque<AsyncEvent>>,
    event_fd: CountingEvent,
    /// Number of objects.
    pub(crate) objects: AtomicUsize,
}

impl ContextShared {
    pub(crate) fn open(device: u32) -> VerbsResult<Arc<ContextShared>> {
        Ok(Arc::new(ContextShared {
            device,
            events: Mutex::new(VecDeque::new()),
            event_fd: CountingEvent::create()?,
            objects: AtomicUsize::new(0),
        }))
    }

    /// Adds one to the number of objects.
    pub(crate) fn add_object(&self) {
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one from the number of objects.
    pub(crate) fn remove_object(&self) {
        self.objects.fetch_sub(1, Ordering::Relaxed);
    }

    /// Refuses an object of another open device.
    pub(crate) fn check_owns(&self, other: &Arc<ContextShared>, what: &str) -> VerbsResult<()> {
        if !std::ptr::eq(self, Arc::as_ptr(other)) {
            return Err(VerbsError::invalid(format!(
                "{what} belongs to another open device: make both on one context"
            )));
        }
        Ok(())
    }

    /// Queues an asynchronous event.
    pub(crate) fn raise(&self, event_type: AsyncEventType, element: u64) {
        let mut events = self.events.lock();
        if events.len() >= MAX_ASYNC_EVENTS {
            events.pop_front();
            self.event_fd.take_one();
        }
        events.push_back(AsyncEvent { event_type, element });
        self.event_fd.add_one();
    }

    /// Drops events about an object that is destroyed.
    pub(crate) fn forget(&self, element: u64) {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|event| event.element != element);
        for _ in events.len()..before {
            self.event_fd.take_one();
        }
    }

    pub(crate) fn async_fd(&self) -> RawFd {
        self.event_fd.as_raw_fd()
    }

    /// Returns the next event, and waits for it until the deadline.
    pub(crate) fn wait_event(&self, until: Deadline) -> VerbsResult<AsyncEvent> {
        let no_cancel = NoCancel::new();
        loop {
            let mut events = self.events.lock();
            if let Some(event) = events.pop_front() {
                self.event_fd.take_one();
                return Ok(event);
            }
            drop(events);
            let Some(limit_ms) = poll::limit_ms(until) else {
                return Err(VerbsError::new(VerbsError::EAGAIN, "no asynchronous event waits"));
            };
            let interrupted = no_cancel.poll(&mut poll::readable(&[self.async_fd()]), limit_ms) < 0;
            if interrupted && signals::interrupts_waits() {
                return Err(signals::interrupted());
            }
        }
    }
}
