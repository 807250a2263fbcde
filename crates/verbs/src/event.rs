//! Asynchronous events of devices and their objects.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use rdmalab_abi as abi;

use crate::context::Context;
use crate::error::VerbsError;

/// Something that happened to a device or to one of its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The event, an `ibv_event_type`.
    pub event_type: u32,
    /// The number of the queue pair, if the event is about one.
    pub qp_num: Option<u32>,
    /// The port, if the event is about one.
    pub port_num: Option<u8>,
}

impl AsyncEvent {
    /// What it means.
    #[must_use]
    pub const fn explain(&self) -> &'static str {
        match self.event_type {
            abi::IBV_EVENT_CQ_ERR => "a completion queue overflowed: make it larger, or poll more",
            abi::IBV_EVENT_QP_FATAL => "a queue pair failed and is in the error state",
            abi::IBV_EVENT_QP_REQ_ERR => "a queue pair received an invalid request",
            abi::IBV_EVENT_QP_ACCESS_ERR => "a queue pair received a request without the rights",
            abi::IBV_EVENT_COMM_EST => "a queue pair received its first packet before RTS",
            abi::IBV_EVENT_SQ_DRAINED => "a send queue has drained",
            abi::IBV_EVENT_DEVICE_FATAL => "the device failed",
            abi::IBV_EVENT_PORT_ACTIVE => "a port came up",
            abi::IBV_EVENT_PORT_ERR => "a port went down",
            abi::IBV_EVENT_SRQ_LIMIT_REACHED => {
                "a shared receive queue holds fewer receives than its limit"
            }
            abi::IBV_EVENT_QP_LAST_WQE_REACHED => {
                "a queue pair in error takes no more from its shared receive queue"
            }
            _ => "see ibv_get_async_event(3)",
        }
    }

    /// Whether the event is about a queue pair.
    const fn is_of_qp(event_type: u32) -> bool {
        matches!(
            event_type,
            abi::IBV_EVENT_QP_FATAL
                | abi::IBV_EVENT_QP_REQ_ERR
                | abi::IBV_EVENT_QP_ACCESS_ERR
                | abi::IBV_EVENT_COMM_EST
                | abi::IBV_EVENT_SQ_DRAINED
                | abi::IBV_EVENT_PATH_MIG
                | abi::IBV_EVENT_PATH_MIG_ERR
                | abi::IBV_EVENT_QP_LAST_WQE_REACHED
        )
    }

    /// Whether the event is about a port.
    const fn is_of_port(event_type: u32) -> bool {
        matches!(
            event_type,
            abi::IBV_EVENT_PORT_ACTIVE
                | abi::IBV_EVENT_PORT_ERR
                | abi::IBV_EVENT_LID_CHANGE
                | abi::IBV_EVENT_PKEY_CHANGE
                | abi::IBV_EVENT_SM_CHANGE
                | abi::IBV_EVENT_CLIENT_REREGISTER
                | abi::IBV_EVENT_GID_CHANGE
        )
    }
}

impl Context {
    /// Waits for the next event, at most `timeout`; `None` when none came. One thread at a time.
    ///
    /// # Errors
    /// The library's error.
    pub fn async_event(&self, timeout: Duration) -> Result<Option<AsyncEvent>, VerbsError> {
        let mut raw = abi::ibv_async_event::zeroed();
        let table = self.library().table();
        let result = match self.library().instance() {
            Some(instance) => {
                let limit_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
                // SAFETY: the context is open, and the event is valid for writes.
                match unsafe { (instance.wait_async_event)(self.raw(), limit_ns, &raw mut raw) } {
                    libc::EAGAIN => return Ok(None),
                    result => result,
                }
            }
            None => {
                // SAFETY: the context is open.
                let fd = unsafe { (*self.raw()).async_fd };
                if !wait_readable(fd, Some(timeout)) {
                    return Ok(None);
                }
                // SAFETY: the context is open, and the event is valid for writes.
                unsafe { (table.get_async_event)(self.raw(), &raw mut raw) }
            }
        };
        self.library().zero("ibv_get_async_event", result)?;
        let event_type = raw.event_type;
        let qp_num = AsyncEvent::is_of_qp(event_type).then(|| {
            // SAFETY: the type says that the element is a queue pair, which cannot be destroyed
            // before this event is acknowledged.
            unsafe { (*raw.element.qp).qp_num }
        });
        // SAFETY: both members are plain bytes of the zeroed union; the type says whether it is a
        // port number.
        let number = unsafe { raw.element.port_num };
        let port_num = AsyncEvent::is_of_port(event_type).then_some(number as u8);
        // SAFETY: got just above, and acknowledged once.
        unsafe { (table.ack_async_event)(&raw mut raw) };
        Ok(Some(AsyncEvent { event_type, qp_num, port_num }))
    }
}

/// Whether the descriptor became readable in time; `None` waits for ever.
pub(crate) fn wait_readable(fd: RawFd, timeout: Option<Duration>) -> bool {
    let deadline = timeout.map(|t| Instant::now() + t);
    loop {
        let left_ms = deadline.map_or(-1, |d| {
            let left = d.saturating_duration_since(Instant::now());
            // Rounded up, so that the last turn does not spin.
            i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
        });
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is live.
        let found = unsafe { libc::poll(&raw mut entry, 1, left_ms) };
        if found > 0 {
            return true;
        }
        if found == 0 && left_ms >= 0 && deadline.is_some_and(|d| Instant::now() >= d) {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_about_one_thing() {
        for event_type in 0..20 {
            let both = AsyncEvent::is_of_qp(event_type) && AsyncEvent::is_of_port(event_type);
            assert!(!both, "{event_type}");
        }
    }

    #[test]
    fn waiting_ends() {
        let mut pipe = [0; 2];
        // SAFETY: two descriptors are written into a live array.
        assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        assert!(!wait_readable(pipe[0], Some(Duration::from_millis(1))));
        // SAFETY: one byte of a live array is written to our own descriptor.
        assert_eq!(unsafe { libc::write(pipe[1], b"x".as_ptr().cast(), 1) }, 1);
        assert!(wait_readable(pipe[0], Some(Duration::ZERO)) && wait_readable(pipe[0], None));
        // SAFETY: our own descriptors, closed once.
        unsafe {
            libc::close(pipe[0]);
            libc::close(pipe[1]);
        }
    }
}
