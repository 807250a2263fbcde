//! Waiting for completions, busy or asleep; alone, or together with other threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{CompletionChannel, Context, Cq, VerbsError, Wc};

use crate::common::params::Polling;

/// The longest sleep until an event: then the rank has to check that the other ranks still live.
const SLICE_NS: u64 = 100_000_000;

/// How many polls in a row may find only completions of other threads before a thread checks its
/// time limit and the request to stop. While such completions arrive, the queue may never be empty.
const ROUNDS: u32 = 16;

/// A completion queue, and how to wait for its completions.
pub(crate) struct Completions {
    cq: Cq,
    channel: Option<CompletionChannel>,
    /// Set where other threads poll the queue, too.
    view: Option<SharedView>,
}

/// The thread is in the bits of a `wr_id` from this one on, where threads share queue pairs.
const THREAD_SHIFT: u32 = 56;

/// The upper bits of a thread's `wr_id`s.
pub(crate) const fn tag_of(thread: usize) -> u64 {
    (thread as u64) << THREAD_SHIFT
}

/// The thread that a `wr_id` names.
pub(crate) const fn thread_of(wr_id: u64) -> usize {
    (wr_id >> THREAD_SHIFT) as usize
}

/// Returns the thread that a completion is for, or `None` if the completion does not name one; then
/// it belongs to the thread that polled it.
pub(crate) type OwnerOf = Box<dyn Fn(&Wc) -> Option<usize> + Send + Sync>;

/// A thread's view of a completion queue that several threads poll. A thread that polls a
/// completion of another thread puts it into that thread's inbox.
struct SharedView {
    thread: usize,
    shared: Arc<SharedCq>,
}

/// A completion queue that several threads poll.
struct SharedCq {
    inboxes: Vec<Inbox>,
    owner_of: OwnerOf,
    /// Whether each thread has to get its completions in the order of the queue: receive
    /// completions need this; send completions, which only free slots, do not.
    in_order: bool,
    /// Whether a thread waits for the completion event. An event wakes only one thread, so the
    /// other sleeping threads wait on `changed`.
    is_led: Mutex<bool>,
    /// Notified when a thread put completions into inboxes, or stopped waiting for the event.
    changed: Condvar,
}

impl SharedCq {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_led.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Completions for one thread that other threads polled.
#[derive(Default)]
struct Inbox {
    count: AtomicUsize,
    wcs: Mutex<VecDeque<Wc>>,
}

impl Inbox {
    fn put(&self, wc: Wc) {
        let mut wcs = self.wcs.lock().unwrap_or_else(PoisonError::into_inner);
        wcs.push_back(wc);
        self.count.store(wcs.len(), Ordering::Release);
    }

    #[inline]
    fn take(&self, into: &mut [Wc]) -> usize {
        if self.count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut wcs = self.wcs.lock().unwrap_or_else(PoisonError::into_inner);
        let found = wcs.len().min(into.len());
        into.iter_mut().zip(wcs.drain(..found)).for_each(|(to, wc)| *to = wc);
        self.count.store(wcs.len(), Ordering::Release);
        found
    }
}

/// The result of polling a shared queue.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Polled {
    /// Completions of the polling thread.
    own: usize,
    /// The poll found completions of other threads.
    has_others: bool,
    /// More completions may be available.
    has_more: bool,
}

impl SharedView {
    /// Returns this thread's completions, from its inbox or by `take`, and puts those of other
    /// threads into their inboxes.
    fn poll(
        &self,
        mut take: impl FnMut(&mut [Wc]) -> Result<usize, VerbsError>,
        wcs: &mut [Wc],
    ) -> Result<Polled, VerbsError> {
        let inboxes = &self.shared.inboxes;
        let own = inboxes[self.thread].take(wcs);
        if own > 0 {
            return Ok(Polled { own, has_others: false, has_more: true });
        }
        let mut has_others = false;
        // Completions of this thread may follow those of others.
        for _ in 0..ROUNDS {
            let found = take(wcs)?;
            let mut own = 0;
            for i in 0..found {
                let thread = (self.shared.owner_of)(&wcs[i]).unwrap_or(self.thread);
                match inboxes.get(thread) {
                    Some(inbox) if thread != self.thread => {
                        inbox.put(wcs[i]);
                        has_others = true;
                    }
                    _ => {
                        wcs[own] = wcs[i];
                        own += 1;
                    }
                }
            }
            if own > 0 || found == 0 {
                return Ok(Polled { own, has_others, has_more: found > 0 });
            }
        }
        Ok(Polled { own: 0, has_others, has_more: true })
    }

    /// [`Self::poll`] where threads sleep. Under the lock, so that no thread goes to sleep while
    /// another one fills its inbox; it also wakes the sleeping threads.
    fn poll_awake(&self, cq: &Cq, wcs: &mut [Wc]) -> Result<usize, VerbsError> {
        let _alone = self.shared.lock();
        self.poll_locked(cq, wcs).map(|found| found.own)
    }

    /// [`Self::poll`] where no thread sleeps and order matters. While another thread polls, this
    /// thread takes only from its inbox: whatever is still in the queue is later.
    fn poll_in_order(&self, cq: &Cq, wcs: &mut [Wc]) -> Result<usize, VerbsError> {
        match self.shared.is_led.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(self.shared.inboxes[self.thread].take(wcs)),
            _alone => self.poll(|wcs| cq.poll(wcs), wcs).map(|found| found.own),
        }
    }

    fn poll_locked(&self, cq: &Cq, wcs: &mut [Wc]) -> Result<Polled, VerbsError> {
        let found = self.poll(|wcs| cq.poll(wcs), wcs)?;
        if found.has_others {
            self.shared.changed.notify_all();
        }
        Ok(found)
    }

    /// Takes the completions that this thread already has and returns their number. Without any, it
    /// sleeps for at most `slice_ns`, until there may be one, and returns 0.
    fn sleep(
        &self,
        cq: &Cq,
        channel: &CompletionChannel,
        slice_ns: u64,
        wcs: &mut [Wc],
    ) -> Result<usize, VerbsError> {
        let shared = &*self.shared;
        let mut is_led = shared.lock();
        if !*is_led {
            cq.request_notify(false)?;
        }
        // Completions from before `request_notify` raise no event, so poll for them now.
        let found = self.poll_locked(cq, wcs)?;
        if found.own > 0 || found.has_more {
            return Ok(found.own);
        }
        if *is_led {
            // The thread that waits for the event notifies all at the end of its slice.
            drop(shared.changed.wait(is_led).unwrap_or_else(PoisonError::into_inner));
            return Ok(0);
        }
        *is_led = true;
        drop(is_led);
        let waited = channel.wait_ns(slice_ns);
        *shared.lock() = false;
        shared.changed.notify_all();
        waited.map(|_| 0)
    }
}

/// A failure of this rank, described by `why`.
pub(crate) fn failed(why: impl std::fmt::Display) -> Stopped {
    Stopped::Failed(why.to_string())
}

impl Completions {
    pub fn new(context: &Context, cqe: u32, polling: Polling) -> Result<Self, VerbsError> {
        let channel = match polling {
            Polling::Busy => None,
            Polling::Event => Some(context.create_channel()?),
        };
        let cq = context.create_cq(cqe, channel.as_ref())?;
        Ok(Self { cq, channel, view: None })
    }

    /// Shares the queue among `threads` threads; `in_order`: each gets its completions in order.
    pub fn shared(self, threads: usize, owner_of: OwnerOf, in_order: bool) -> Self {
        let inboxes = (0..threads).map(|_| Inbox::default()).collect();
        let (is_led, changed) = (Mutex::new(false), Condvar::new());
        let shared = Arc::new(SharedCq { inboxes, owner_of, in_order, is_led, changed });
        Self { view: Some(SharedView { thread: 0, shared }), ..self }
    }

    /// The queue as another thread sees it.
    pub fn of_thread(&self, thread: usize) -> Self {
        let view = |view: &SharedView| SharedView { thread, shared: view.shared.clone() };
        Self {
            cq: self.cq.clone(),
            channel: self.channel.clone(),
            view: self.view.as_ref().map(view),
        }
    }

    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// Whether a wait for completions sleeps.
    pub fn sleeps(&self) -> bool {
        self.channel.is_some()
    }

    /// Polls the available completions.
    #[inline]
    pub fn poll(&self, wcs: &mut [Wc]) -> Result<usize, Stopped> {
        self.look(wcs).map_err(failed)
    }

    #[inline]
    fn look(&self, wcs: &mut [Wc]) -> Result<usize, VerbsError> {
        match &self.view {
            None => self.cq.poll(wcs),
            Some(view) if self.sleeps() => view.poll_awake(&self.cq, wcs),
            Some(view) if view.shared.in_order => view.poll_in_order(&self.cq, wcs),
            Some(view) => view.poll(|wcs| self.cq.poll(wcs), wcs).map(|found| found.own),
        }
    }

    /// Waits for completions for at most `limit_ns` and returns their number; 0 when none came.
    ///
    /// After an event, calls return the completions until the queue is empty; only then does a call
    /// ask for the next event.
    #[inline]
    pub fn wait_for<R: Rank>(
        &self,
        rank: &R,
        limit_ns: u64,
        wcs: &mut [Wc],
    ) -> Result<usize, Stopped> {
        match &self.channel {
            None => {
                let found = look_for(rank, limit_ns, || match self.look(wcs) {
                    Ok(0) => None,
                    other => Some(other),
                })?;
                found.unwrap_or(Ok(0)).map_err(failed)
            }
            Some(channel) => self.sleep_for(rank, channel, limit_ns, wcs),
        }
    }

    /// Waits for completions for at most the rank's patience.
    #[inline]
    pub fn wait<R: Rank>(&self, rank: &R, wcs: &mut [Wc], what: &str) -> Result<usize, Stopped> {
        let patience_ns = rank.patience_ns();
        match self.wait_for(rank, patience_ns, wcs)? {
            0 => Err(timed_out(patience_ns, what)),
            count => Ok(count),
        }
    }

    fn sleep_for<R: Rank>(
        &self,
        rank: &R,
        channel: &CompletionChannel,
        limit_ns: u64,
        wcs: &mut [Wc],
    ) -> Result<usize, Stopped> {
        let (mut until, mut looked) = (None, None);
        loop {
            let count = self.poll(wcs)?;
            if count > 0 {
                return Ok(count);
            }
            let now = rank.now();
            let until = *until.get_or_insert_with(|| rank.clock().after_ns(now, limit_ns as f64));
            if now >= until {
                return Ok(0);
            }
            let left_ns = rank.clock().ns_between(now, until) as u64;
            let slice_ns = left_ns.clamp(1, SLICE_NS);
            let count = match &self.view {
                None => self.sleep(channel, slice_ns, wcs),
                Some(view) => view.sleep(&self.cq, channel, slice_ns, wcs),
            };
            let count = count.map_err(failed)?;
            if count > 0 {
                return Ok(count);
            }
            // If the poll found completions of other threads, it did not sleep.
            let since = *looked.get_or_insert(now);
            if rank.clock().ns_between(since, rank.now()) >= slice_ns as f64 {
                // Fails if another rank is gone.
                rank.spin_for(0, || None::<()>)?;
                looked = None;
            }
        }
    }

    /// Sleeps until the next event, for at most `slice_ns`, unless there are completions already.
    fn sleep(
        &self,
        channel: &CompletionChannel,
        slice_ns: u64,
        wcs: &mut [Wc],
    ) -> Result<usize, VerbsError> {
        self.cq.request_notify(false)?;
        // Completions from before the request raise no event.
        let count = self.cq.poll(wcs)?;
        if count > 0 {
            return Ok(count);
        }
        channel.wait_ns(slice_ns).map(|_| 0)
    }
}

/// Looks busily until something is found, for at most `limit_ns`; `None` when nothing came. If the
/// limit is the rank's patience, the wait takes no extra time stamp.
#[inline(always)]
pub(crate) fn look_for<R: Rank, T>(
    rank: &R,
    limit_ns: u64,
    mut look: impl FnMut() -> Option<T>,
) -> Result<Option<T>, Stopped> {
    if limit_ns != rank.patience_ns() {
        return match look() {
            None => rank.spin_for(limit_ns, look),
            found => Ok(found),
        };
    }
    match rank.spin(look) {
        Ok(found) => Ok(Some(found)),
        Err(Stopped::TimedOut(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// The error that nothing came within the rank's patience.
pub(crate) fn timed_out(patience_ns: u64, what: &str) -> Stopped {
    Stopped::TimedOut(format!(
        "{what} did not come within {} s: the other end is stopped or gone, or a message of an \
         unreliable transport was lost",
        patience_ns / 1_000_000_000
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of two threads. The completions are for the threads `of` in this order, and after
    /// that for the second thread.
    fn view(of: &[usize]) -> SharedView {
        let inboxes = (0..2).map(|_| Inbox::default()).collect();
        let of = Mutex::new(VecDeque::from(of.to_vec()));
        let owner_of: OwnerOf = Box::new(move |_| of.lock().ok()?.pop_front().or(Some(1)));
        let (is_led, changed) = (Mutex::new(false), Condvar::new());
        SharedView {
            thread: 0,
            shared: Arc::new(SharedCq { inboxes, owner_of, in_order: true, is_led, changed }),
        }
    }

    /// Completions of the other thread never end: the call must return so that the caller can check
    /// its time limit.
    #[test]
    fn a_flood_for_others_ends_a_look() {
        let view = view(&[]);
        let mut wcs = [Wc::default(); 4];
        let mut came = 0;
        let flood = |wcs: &mut [Wc]| {
            came += wcs.len();
            assert!(came < 100_000, "a look does not end");
            Ok(wcs.len())
        };
        let found = view.poll(flood, &mut wcs).expect("a look");
        assert_eq!(found, Polled { own: 0, has_others: true, has_more: true });
        assert_eq!(came, ROUNDS as usize * 4);
        // Nothing is lost.
        let other = SharedView { thread: 1, shared: view.shared.clone() };
        let mut all = vec![Wc::default(); came + 1];
        let found = other.poll(|_| panic!("there is something in the inbox"), &mut all);
        assert_eq!(found.expect("a look").own, came);
    }

    #[test]
    fn what_is_behind_that_of_others_is_found_in_one_look() {
        let view = view(&[1, 1, 0]);
        let mut wcs = [Wc::default(); 4];
        let mut left = 3;
        let mut one = |_: &mut [Wc]| {
            let found = usize::from(left > 0);
            left -= found;
            Ok(found)
        };
        let found = view.poll(&mut one, &mut wcs).expect("a look");
        assert_eq!(found, Polled { own: 1, has_others: true, has_more: true });
        let found = view.poll(&mut one, &mut wcs).expect("a look");
        assert_eq!(found, Polled { own: 0, has_others: false, has_more: false });
    }
}
