//! Completion queues and channels.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdmalab_abi as abi;
use rdmalab_abi::inline;

use crate::completion::Wc;
use crate::context::Context;
use crate::error::VerbsError;
use crate::event::wait_readable;
use crate::library::Instance;

/// A channel for events of completion queues. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CompletionChannel(Arc<ChannelInner>);

#[derive(Debug)]
struct ChannelInner {
    raw: NonNull<abi::ibv_comp_channel>,
    context: Context,
}

// SAFETY: libibverbs may be called from any thread with any of its objects.
unsafe impl Send for ChannelInner {}
// SAFETY: as above.
unsafe impl Sync for ChannelInner {}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        let table = self.context.library().table();
        // SAFETY: made by this library, and its completion queues are gone: each keeps this alive.
        let _ = unsafe { (table.destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

/// An event of a completion queue: poll the queue, and request the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqEvent {
    /// The [`Cq::id`] of the queue.
    pub cq_id: u64,
}

impl CompletionChannel {
    /// Waits for the next event, at most `timeout` (`None`: for ever), and acknowledges it; `None`
    /// when none came. One thread at a time.
    ///
    /// # Errors
    /// The library's error.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqEvent>, VerbsError> {
        let library = self.0.context.library();
        if let Some((instance, timeout)) = library.instance().zip(timeout) {
            return self.wait_without_descriptor(instance, timeout);
        }
        // SAFETY: the channel is alive.
        let fd = unsafe { (*self.0.raw.as_ptr()).fd };
        if timeout.is_some() && !wait_readable(fd, timeout) {
            return Ok(None);
        }
        let (mut cq, mut cookie) = (null_mut(), null_mut());
        // SAFETY: the channel is alive, and both answers are valid for writes.
        let result = unsafe {
            (library.table().get_cq_event)(self.0.raw.as_ptr(), &raw mut cq, &raw mut cookie)
        };
        library.zero("ibv_get_cq_event", result)?;
        // SAFETY: the queue cannot be destroyed before this event is acknowledged, here and once.
        unsafe { (library.table().ack_cq_events)(cq, 1) };
        Ok(Some(CqEvent { cq_id: cookie as u64 }))
    }

    fn wait_without_descriptor(
        &self,
        instance: &Instance,
        timeout: Duration,
    ) -> Result<Option<CqEvent>, VerbsError> {
        let library = self.0.context.library();
        let (mut cq, mut cookie) = (null_mut(), null_mut());
        let limit_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the channel is alive, and both answers are valid for writes.
        let result = unsafe {
            (instance.wait_event)(self.0.raw.as_ptr(), limit_ns, &raw mut cq, &raw mut cookie)
        };
        if result == libc::EAGAIN {
            return Ok(None);
        }
        library.zero("ibv_get_cq_event", result)?;
        // SAFETY: the queue cannot be destroyed before this event is acknowledged, here and once.
        unsafe { (library.table().ack_cq_events)(cq, 1) };
        Ok(Some(CqEvent { cq_id: cookie as u64 }))
    }

    /// [`CompletionChannel::wait`] with a limit in nanoseconds, for callers without a clock. The
    /// kernel waits in whole milliseconds, rounded up.
    ///
    /// # Errors
    /// As [`CompletionChannel::wait`].
    pub fn wait_ns(&self, limit_ns: u64) -> Result<Option<CqEvent>, VerbsError> {
        self.wait(Some(Duration::from_nanos(limit_ns)))
    }
}

/// A completion queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cq {
    raw: NonNull<abi::ibv_cq>,
    inner: Arc<CqInner>,
}

#[derive(Debug)]
struct CqInner {
    raw: NonNull<abi::ibv_cq>,
    id: u64,
    context: Context,
    _channel: Option<CompletionChannel>,
}

// SAFETY: libibverbs may be called from any thread with any of its objects; `inner` keeps the queue
// alive.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}
// SAFETY: as above.
unsafe impl Send for CqInner {}
// SAFETY: as above.
unsafe impl Sync for CqInner {}

impl Drop for CqInner {
    fn drop(&mut self) {
        let table = self.context.library().table();
        // SAFETY: made by this library, and its queue pairs are gone: each keeps this alive. Its
        // events are acknowledged as they are taken.
        let _ = unsafe { (table.destroy_cq)(self.raw.as_ptr()) };
    }
}

impl Context {
    /// Makes a completion channel.
    ///
    /// # Errors
    /// The library's error.
    pub fn create_channel(&self) -> Result<CompletionChannel, VerbsError> {
        // SAFETY: the context is open.
        let raw = unsafe { (self.library().table().create_comp_channel)(self.raw()) };
        let raw = self.library().not_null("ibv_create_comp_channel", raw)?;
        Ok(CompletionChannel(Arc::new(ChannelInner { raw, context: self.clone() })))
    }

    /// Creates a completion queue for at least `cqe` completions. Its events go to `channel`, if
    /// given.
    ///
    /// # Errors
    /// `EINVAL` for none, or more than the device can.
    pub fn create_cq(
        &self,
        cqe: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<Cq, VerbsError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let raw_channel = channel.map_or(null_mut(), |c| c.0.raw.as_ptr());
        let entries = i32::try_from(cqe).unwrap_or(i32::MAX);
        let cookie = std::ptr::without_provenance_mut(id as usize);
        // SAFETY: the context is open, and the channel is null or alive.
        let raw = unsafe {
            (self.library().table().create_cq)(self.raw(), entries, cookie, raw_channel, 0)
        };
        let raw = self.library().not_null("ibv_create_cq", raw)?;
        let inner = CqInner { raw, id, context: self.clone(), _channel: channel.cloned() };
        Ok(Cq { raw, inner: Arc::new(inner) })
    }
}

impl Cq {
    pub(crate) fn raw(&self) -> *mut abi::ibv_cq {
        self.raw.as_ptr()
    }

    /// A number that no other queue of this process has; an event carries it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// How many completions it holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        // SAFETY: the queue is alive.
        u32::try_from(unsafe { (*self.raw()).cqe }).unwrap_or(0)
    }

    /// Takes up to `wc.len()` completions, oldest first, and says how many.
    ///
    /// # Errors
    /// When the queue has overflowed or the device failed.
    #[inline]
    pub fn poll(&self, wc: &mut [Wc]) -> Result<usize, VerbsError> {
        let room = i32::try_from(wc.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive, and `wc` has `room` entries; a `Wc` is an `ibv_wc`.
        let found = unsafe { inline::ibv_poll_cq(self.raw(), room, wc.as_mut_ptr().cast()) };
        usize::try_from(found).map_err(|_| self.poll_failed(found))
    }

    /// Takes one completion if there is one.
    ///
    /// # Errors
    /// As [`Cq::poll`].
    #[inline]
    pub fn poll_one(&self) -> Result<Option<Wc>, VerbsError> {
        let mut wc = [Wc::default()];
        Ok((self.poll(&mut wc)? == 1).then_some(wc[0]))
    }

    #[cold]
    fn poll_failed(&self, result: i32) -> VerbsError {
        let errno = if result == -1 { crate::library::last_errno() } else { -result };
        self.inner.context.library().error("ibv_poll_cq", errno)
    }

    /// Requests one event for the next completion, or the next solicited one (or error). Poll once
    /// more afterwards: earlier completions raise no event.
    ///
    /// # Errors
    /// The library's error.
    pub fn request_notify(&self, solicited_only: bool) -> Result<(), VerbsError> {
        // SAFETY: the queue is alive.
        let result = unsafe { inline::ibv_req_notify_cq(self.raw(), solicited_only.into()) };
        self.inner.context.library().zero("ibv_req_notify_cq", result)
    }

    /// Changes its size; what it holds stays.
    ///
    /// # Errors
    /// `EINVAL` for less than it holds, or more than the device can.
    pub fn resize(&self, cqe: u32) -> Result<(), VerbsError> {
        let entries = i32::try_from(cqe).unwrap_or(i32::MAX);
        let library = self.inner.context.library();
        // SAFETY: the queue is alive.
        let result = unsafe { (library.table().resize_cq)(self.raw(), entries) };
        library.zero("ibv_resize_cq", result)
    }
}
