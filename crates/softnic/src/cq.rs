//! Completion queues and completion channels.
//!
//! Producers (threads that make progress) and consumers (threads that poll) have separate locks, so
//! that posting need not wait for a poll. An event is armed and raised under the producers' lock: a
//! completion either raises the event, or the poll after `ibv_req_notify_cq` finds it.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::cq::Notify;
use rdmalab_engine::vocab::{AsyncEventType, Wc};

use crate::context::ContextShared;
use crate::fd::CountingEvent;
use rdmalab_ring::biased::BiasedLock;

/// A completion, and the send queue slots that polling it frees.
#[derive(Clone, Copy)]
pub(crate) struct Cqe {
    pub(crate) wc: Wc,
    pub(crate) timestamp: u64,
    /// The word to store `sq_free_to` in: send queue slots below that position are free then.
    pub(crate) sq_freed: Option<&'static AtomicU32>,
    pub(crate) sq_free_to: u32,
}

struct Slots {
    cqes: Vec<UnsafeCell<MaybeUninit<Cqe>>>,
    mask: u32,
}

impl Slots {
    /// Room for so many completions. Its pages take memory when they are first written.
    fn new(capacity: u32) -> VerbsResult<Slots> {
        let count = capacity.max(1).next_power_of_two();
        let mut cqes = Vec::new();
        cqes.try_reserve_exact(count as usize)
            .map_err(|e| VerbsError::no_room(format!("a CQ of {capacity} completions: {e}")))?;
        // SAFETY: the room is reserved, and the elements need no value.
        unsafe { cqes.set_len(count as usize) };
        Ok(Slots { cqes, mask: count - 1 })
    }
}

/// A CQ that was empty uses its first slots again after this many: programs ask for more than they
/// use, and a ring that goes all the way round would write to each page.
const REUSE_AFTER_SLOTS: u32 = 1 << 16;

/// The state that the producers' lock protects.
struct Producers {
    notify: Notify,
}

/// A completion queue.
pub(crate) struct CqObject {
    slots: UnsafeCell<Slots>,
    capacity: AtomicU32,
    head: AtomicU32,
    tail: AtomicU32,
    /// A completion was lost. Set under the producers' lock, read by every poll of an empty queue.
    overrun: AtomicBool,
    producers: BiasedLock<Producers>,
    consumers: BiasedLock<()>,
    channel: Option<Arc<ChannelObject>>,
    context: Arc<ContextShared>,
    timestamps: bool,
    ignore_overrun: bool,
    pub(crate) cookie: u64,
    /// QPs that use this CQ, once for each of their two roles.
    pub(crate) users: AtomicUsize,
}

// SAFETY: a slot between tail and head is read only under the consumers' lock, a slot outside is
// written only under the producers' lock, and `slots` itself is replaced only under both.
unsafe impl Send for CqObject {}
// SAFETY: as above; everything else in it is atomic or locked.
unsafe impl Sync for CqObject {}

impl CqObject {
    pub(crate) fn new(
        context: Arc<ContextShared>,
        capacity: u32,
        channel: Option<Arc<ChannelObject>>,
        timestamps: bool,
        ignore_overrun: bool,
        cookie: u64,
    ) -> VerbsResult<CqObject> {
        let slots = Slots::new(capacity)?;
        if let Some(channel) = &channel {
            channel.users.fetch_add(1, Ordering::Relaxed);
        }
        Ok(CqObject {
            slots: UnsafeCell::new(slots),
            capacity: AtomicU32::new(capacity),
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            overrun: AtomicBool::new(false),
            producers: BiasedLock::new(Producers { notify: Notify::Disarmed }),
            consumers: BiasedLock::new(()),
            channel,
            context,
            timestamps,
            ignore_overrun,
            cookie,
            users: AtomicUsize::new(0),
        })
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Whether the CQ has a completion channel.
    pub(crate) fn has_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// Adds a completion. On overflow the completion is lost, and the CQ stays in error, as on an
    /// adapter (IBA vol. 1, 10.10.5), unless it was created to ignore overruns. Inlined, so that a
    /// completion is made in its place: loads of whole vectors from a fresh copy would wait for the
    /// copy's smaller stores.
    #[inline(always)]
    pub(crate) fn push(
        &self,
        wc: Wc,
        solicited: bool,
        sq_freed: Option<&'static AtomicU32>,
        sq_free_to: u32,
    ) {
        let timestamp = if self.timestamps { crate::clock::now_ns() } else { 0 };
        let mut producers = self.producers.lock();
        let mut head = self.head.load(Ordering::Relaxed);
        let waiting = head.wrapping_sub(self.tail.load(Ordering::Acquire));
        if waiting >= self.capacity() {
            return self.overflow();
        }
        // SAFETY: `slots` is replaced only under both locks, one of which this thread holds.
        let slots = unsafe { &*self.slots.get() };
        if waiting == 0 && head & slots.mask >= REUSE_AFTER_SLOTS {
            head = self.reuse_first_slots(head);
        }
        let cell = &slots.cqes[(head & slots.mask) as usize];
        // SAFETY: this slot is outside tail..head, so no consumer reads it, and this thread's lock
        // keeps other producers away.
        unsafe { (*cell.get()).write(Cqe { wc, timestamp, sq_freed, sq_free_to }) };
        self.head.store(head.wrapping_add(1), Ordering::Release);
        if producers.notify != Notify::Disarmed && producers.notify.is_due(solicited, wc.status) {
            producers.notify = Notify::Disarmed;
            self.raise();
        }
    }

    /// Begins again with the first slots, under the producers' lock, unless somebody polls. Returns
    /// the head. Whoever looks meanwhile without a lock may see a completion where there is none,
    /// and finds out under the consumers' lock.
    #[cold]
    fn reuse_first_slots(&self, head: u32) -> u32 {
        let Some(_consumers) = self.consumers.try_lock() else { return head };
        self.tail.store(0, Ordering::Relaxed);
        self.head.store(0, Ordering::Release);
        0
    }

    #[cold]
    fn raise(&self) {
        if let Some(channel) = &self.channel {
            channel.push(self.cookie);
        }
    }

    #[cold]
    fn overflow(&self) {
        if !self.ignore_overrun && !self.overrun.swap(true, Ordering::Relaxed) {
            self.context.raise(AsyncEventType::CqErr, self.cookie);
        }
    }

    /// Whether a completion was lost.
    #[inline]
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    /// Whether the queue is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Relaxed)
    }

    /// Takes up to `count` completions.
    #[inline]
    pub(crate) fn pop_each(&self, count: usize, mut take: impl FnMut(&Cqe)) -> usize {
        if self.is_empty() {
            return 0;
        }
        let _consumers = self.consumers.lock();
        let tail = self.tail.load(Ordering::Relaxed);
        let waiting = self.head.load(Ordering::Acquire).wrapping_sub(tail);
        let taken = (waiting as usize).min(count);
        // SAFETY: `slots` is replaced only under both locks, one of which this thread holds.
        let slots = unsafe { &*self.slots.get() };
        for index in 0..taken as u32 {
            let cell = &slots.cqes[(tail.wrapping_add(index) & slots.mask) as usize];
            // SAFETY: slots in tail..head were written before `head` was released, and producers
            // do not touch them until `tail` moves.
            let cqe = unsafe { (*cell.get()).assume_init_ref() };
            if let Some(sq_freed) = cqe.sq_freed {
                sq_freed.store(cqe.sq_free_to, Ordering::Release);
            }
            take(cqe);
        }
        self.tail.store(tail.wrapping_add(taken as u32), Ordering::Release);
        taken
    }

    /// Arms the next event.
    pub(crate) fn request_notify(&self, notify: Notify) {
        let mut producers = self.producers.lock();
        producers.notify = producers.notify.strengthen(notify);
    }

    /// Drops every completion of `qp`, which is being destroyed or reset.
    pub(crate) fn purge(&self, qp_num: u32) {
        let _consumers = self.consumers.lock();
        let _producers = self.producers.lock();
        // SAFETY: both locks are held.
        let slots = unsafe { &mut *self.slots.get() };
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let mut kept = tail;
        for position in 0..head.wrapping_sub(tail) {
            let from = (tail.wrapping_add(position) & slots.mask) as usize;
            // SAFETY: positions in tail..head hold completions.
            let cqe = unsafe { (*slots.cqes[from].get()).assume_init() };
            if cqe.wc.qp_num != qp_num {
                slots.cqes[(kept & slots.mask) as usize].get_mut().write(cqe);
                kept = kept.wrapping_add(1);
            }
        }
        self.head.store(kept, Ordering::Release);
    }

    /// Changes the size; waiting completions stay.
    pub(crate) fn resize(&self, capacity: u32) -> VerbsResult<()> {
        let _consumers = self.consumers.lock();
        let _producers = self.producers.lock();
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let waiting = head.wrapping_sub(tail);
        if waiting > capacity {
            return Err(VerbsError::invalid(format!(
                "resize to {capacity} completions, but {waiting} wait: poll first"
            )));
        }
        let mut fresh = Slots::new(capacity)?;
        // SAFETY: both locks are held.
        let slots = unsafe { &mut *self.slots.get() };
        for index in 0..waiting {
            let from = (tail.wrapping_add(index) & slots.mask) as usize;
            // SAFETY: positions in tail..head hold completions.
            let cqe = unsafe { (*slots.cqes[from].get()).assume_init() };
            fresh.cqes[index as usize].get_mut().write(cqe);
        }
        *slots = fresh;
        self.tail.store(0, Ordering::Relaxed);
        self.head.store(waiting, Ordering::Release);
        self.capacity.store(capacity, Ordering::Relaxed);
        Ok(())
    }

    /// Detaches the CQ from its channel, and drops its events there.
    pub(crate) fn detach_channel(&self) {
        if let Some(channel) = &self.channel {
            channel.forget(self.cookie);
            channel.users.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A completion channel: a queue of CQs with events, and a descriptor that counts them.
pub(crate) struct ChannelObject {
    queue: Mutex<VecDeque<u64>>,
    event: CountingEvent,
    pub(crate) users: AtomicUsize,
}

impl ChannelObject {
    pub(crate) fn new() -> VerbsResult<ChannelObject> {
        Ok(ChannelObject {
            queue: Mutex::new(VecDeque::new()),
            event: CountingEvent::create()?,
            users: AtomicUsize::new(0),
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    fn push(&self, cookie: u64) {
        // The count changes together with the queue, under its lock. Otherwise two takers could
        // leave a count behind, and the descriptor would stay readable.
        let mut queue = self.queue.lock();
        queue.push_back(cookie);
        self.event.add_one();
    }

    /// Takes one event if there is one. Never blocks, whatever the descriptor's mode.
    pub(crate) fn try_next(&self) -> Option<u64> {
        let mut queue = self.queue.lock();
        let cookie = queue.pop_front()?;
        self.event.take_one();
        Some(cookie)
    }

    fn forget(&self, cookie: u64) {
        let mut queue = self.queue.lock();
        let before = queue.len();
        queue.retain(|waiting| *waiting != cookie);
        for _ in queue.len()..before {
            self.event.take_one();
        }
    }
}
