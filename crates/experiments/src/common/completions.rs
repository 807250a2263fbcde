//! Waiting for completions, busy or asleep; alone, or together with other threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdmalab_rank::{Locks, Monitor, Rank, Stopped};
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
    /// other sleeping threads sleep here, until a thread has put completions into inboxes or has
    /// stopped waiting for the event.
    is_led: Monitor<bool>,
}

/// Completions for one thread that other threads polled.
#[derive(Default)]
struct Inbox {
    count: AtomicUsize,
    wcs: Monitor<VecDeque<Wc>>,
}

impl Inbox {
    fn put<R: Locks>(&self, rank: &R, wc: Wc) -> Result<(), Stopped> {
        rank.locked(&self.wcs, |wcs| {
            wcs.push_back(wc);
            self.count.store(wcs.len(), Ordering::Release);
        })
    }

    #[inline]
    fn take<R: Locks>(&self, rank: &R, into: &mut [Wc]) -> Result<usize, Stopped> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(0);
        }
        rank.locked(&self.wcs, |wcs| {
            let found = wcs.len().min(into.len());
            into.iter_mut().zip(wcs.drain(..found)).for_each(|(to, wc)| *to = wc);
            self.count.store(wcs.len(), Ordering::Release);
            found
        })
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
    fn poll<R: Locks>(
        &self,
        rank: &R,
        mut take: impl FnMut(&mut [Wc]) -> Result<usize, VerbsError>,
        wcs: &mut [Wc],
    ) -> Result<Polled, Stopped> {
        let inboxes = &self.shared.inboxes;
        let own = inboxes[self.thread].take(rank, wcs)?;
        if own > 0 {
            return Ok(Polled { own, has_others: false, has_more: true });
        }
        let mut has_others = false;
        // Completions of this thread may follow those of others.
        for _ in 0..ROUNDS {
            let found = take(wcs).map_err(failed)?;
            let mut own = 0;
            for i in 0..found {
                let thread = (self.shared.owner_of)(&wcs[i]).unwrap_or(self.thread);
                match inboxes.get(thread) {
                    Some(inbox) if thread != self.thread => {
                        inbox.put(rank, wcs[i])?;
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
    fn poll_awake<R: Locks>(&self, rank: &R, cq: &Cq, wcs: &mut [Wc]) -> Result<usize, Stopped> {
        let poll = |_: &mut bool| self.poll_locked(rank, cq, wcs);
        rank.locked(&self.shared.is_led, poll)?.map(|found| found.own)
    }

    /// [`Self::poll`] where no thread sleeps and order matters. While another thread polls, this
    /// thread takes only from its inbox: whatever is still in the queue is later.
    fn poll_in_order<R: Locks>(&self, rank: &R, cq: &Cq, wcs: &mut [Wc]) -> Result<usize, Stopped> {
        let poll = |_: &mut bool| self.poll(rank, |wcs| cq.poll(wcs), wcs);
        match rank.try_locked(&self.shared.is_led, poll) {
            None => self.shared.inboxes[self.thread].take(rank, wcs),
            Some(found) => found.map(|found| found.own),
        }
    }

    fn poll_locked<R: Locks>(&self, rank: &R, cq: &Cq, wcs: &mut [Wc]) -> Result<Polled, Stopped> {
        let found = self.poll(rank, |wcs| cq.poll(wcs), wcs)?;
        if found.has_others {
            rank.wake_all(&self.shared.is_led);
        }
        Ok(found)
    }

    /// Takes the completions that this thread already has and returns their number. Without any, it
    /// sleeps for at most `slice_ns`, until there may be one, and returns 0.
    fn sleep<R: Locks>(
        &self,
        rank: &R,
        cq: &Cq,
        channel: &CompletionChannel,
        slice_ns: u64,
        wcs: &mut [Wc],
    ) -> Result<usize, Stopped> {
        let is_led = &self.shared.is_led;
        let mut look = |is_led: &mut bool| {
            if !*is_led {
                cq.request_notify(false).map_err(failed)?;
            }
            // Completions from before `request_notify` raise no event, so poll for them now.
            let found = self.poll_locked(rank, cq, wcs)?;
            if found.own > 0 || found.has_more {
                return Ok(Next::Return(found.own));
            }
            // The thread that waits for the event wakes all at the end of its slice.
            Ok(if std::mem::replace(is_led, true) { Next::Sleep } else { Next::Lead })
        };
        let look = |is_led: &mut bool| match look(is_led) {
            Ok(Next::Sleep) => None,
            other => Some(other),
        };
        match rank.locked_or_sleep(is_led, look)?.transpose()? {
            None | Some(Next::Sleep) => Ok(0),
            Some(Next::Return(found)) => Ok(found),
            Some(Next::Lead) => {
                let waited = channel.wait_ns(slice_ns);
                let stopped = rank.locked(is_led, |is_led| *is_led = false);
                rank.wake_all(is_led);
                stopped?;
                waited.map(|_| 0).map_err(failed)
            }
        }
    }
}

/// What a thread does that looked before it sleeps.
enum Next {
    /// It takes so many completions.
    Return(usize),
    /// It waits for the event.
    Lead,
    /// It sleeps while another thread waits for the event.
    Sleep,
}

/// A failure of this rank, described by `why`.
#[cold]
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
        let shared = Arc::new(SharedCq { inboxes, owner_of, in_order, is_led: Monitor::default() });
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
    pub fn poll<R: Rank>(&self, rank: &R, wcs: &mut [Wc]) -> Result<usize, Stopped> {
        match &self.view {
            None => self.cq.poll(wcs).map_err(failed),
            Some(view) if self.sleeps() => view.poll_awake(rank, &self.cq, wcs),
            Some(view) if view.shared.in_order => view.poll_in_order(rank, &self.cq, wcs),
            Some(view) => view.poll(rank, |wcs| self.cq.poll(wcs), wcs).map(|found| found.own),
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
                let found = look_for(rank, limit_ns, || match self.poll(rank, wcs) {
                    Ok(0) => None,
                    other => Some(other),
                })?;
                found.unwrap_or(Ok(0))
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
            let count = self.poll(rank, wcs)?;
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
                None => self.sleep(channel, slice_ns, wcs).map_err(failed)?,
                Some(view) => view.sleep(rank, &self.cq, channel, slice_ns, wcs)?,
            };
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
        "{what} did not come within {} s: the other rank is stopped or has ended, or an \
         unreliable transport lost a message",
        patience_ns / 1_000_000_000
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Alone;

    impl Locks for Alone {}

    /// The first of two threads. The completions are for the threads `of` in this order, and after
    /// that for the second thread.
    fn view(of: &[usize]) -> SharedView {
        let inboxes = (0..2).map(|_| Inbox::default()).collect();
        let of = Monitor::new(VecDeque::from(of.to_vec()));
        let next = move || Alone.locked(&of, VecDeque::pop_front).ok()?;
        let owner_of: OwnerOf = Box::new(move |_| next().or(Some(1)));
        let is_led = Monitor::default();
        SharedView {
            thread: 0,
            shared: Arc::new(SharedCq { inboxes, owner_of, in_order: true, is_led }),
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
        let found = view.poll(&Alone, flood, &mut wcs).expect("a look");
        assert_eq!(found, Polled { own: 0, has_others: true, has_more: true });
        assert_eq!(came, ROUNDS as usize * 4);
        // Nothing is lost.
        let other = SharedView { thread: 1, shared: view.shared.clone() };
        let mut all = vec![Wc::default(); came + 1];
        let found = other.poll(&Alone, |_| panic!("there is something in the inbox"), &mut all);
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
        let found = view.poll(&Alone, &mut one, &mut wcs).expect("a look");
        assert_eq!(found, Polled { own: 1, has_others: true, has_more: true });
        let found = view.poll(&Alone, &mut one, &mut wcs).expect("a look");
        assert_eq!(found, Polled { own: 0, has_others: false, has_more: false });
    }
}
