//! Waiting for completions, busy or asleep; alone, or together with other threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{CompletionChannel, Context, Cq, VerbsError, Wc};

use crate::common::params::Polling;

/// The longest sleep until an event: then somebody has to look whether the others still live.
const SLICE_NS: u64 = 100_000_000;

/// So often a thread takes what is all others' before it looks at its own business: its limit, and
/// whether it is asked to stop. As long as they come, the queue may never be empty.
const ROUNDS: u32 = 16;

/// A completion queue, and how it is waited for.
pub(crate) struct Completions {
    cq: Cq,
    channel: Option<CompletionChannel>,
    /// Where other threads take completions of it too.
    view: Option<SharedView>,
}

/// Bits of a request's number that say which thread it is of, where queue pairs are shared.
const THREAD_SHIFT: u32 = 56;

/// What stands above the rest of a request's number.
pub(crate) const fn tag_of(thread: usize) -> u64 {
    (thread as u64) << THREAD_SHIFT
}

/// The thread of a request's number.
pub(crate) const fn thread_of(wr_id: u64) -> usize {
    (wr_id >> THREAD_SHIFT) as usize
}

/// Which thread a completion is for; `None`: it does not tell, and belongs to the thread that
/// polled it.
pub(crate) type OwnerOf = Box<dyn Fn(&Wc) -> Option<usize> + Send + Sync>;

/// A thread's view of a completion queue that several threads poll: a thread that polls a
/// completion of another one hands it over.
struct SharedView {
    thread: usize,
    shared: Arc<SharedCq>,
}

/// A completion queue that several threads poll.
struct SharedCq {
    inboxes: Vec<Inbox>,
    owner_of: OwnerOf,
    /// Each has to get its own in the order in which they came: messages, not what frees a place.
    in_order: bool,
    /// Of those who sleep, one waits for the event, which wakes one thread; the others wait for
    /// that one. Whether there is such a one.
    is_led: Mutex<bool>,
    /// There are completions of others, or nobody waits for the event any more.
    changed: Condvar,
}

impl SharedCq {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_led.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Completions that others found.
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

/// What a poll of a shared queue brought.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Polled {
    /// Completions of its own.
    own: usize,
    /// There were some of others.
    has_others: bool,
    /// There may be more.
    has_more: bool,
}

impl SharedView {
    /// Takes what is this thread's, by `take`; what is not goes to whose it is.
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
        // What is behind that of others may be this thread's.
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

    /// The same where threads sleep: nobody looks while another one hands over, so that none goes
    /// to sleep on what is its own, and those who sleep are woken.
    fn poll_awake(&self, cq: &Cq, wcs: &mut [Wc]) -> Result<usize, VerbsError> {
        let _alone = self.shared.lock();
        self.poll_locked(cq, wcs).map(|found| found.own)
    }

    /// The same where nobody sleeps: while another one hands over, this one's may be among it, and
    /// what is in the queue is later.
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

    /// Sleeps for at most `slice_ns`: until there may be something, or not at all while there is.
    /// What there is for this thread already is taken, and counted.
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
        // What came before the request raises no event; what others found is in the inbox.
        let found = self.poll_locked(cq, wcs)?;
        if found.own > 0 || found.has_more {
            return Ok(found.own);
        }
        if *is_led {
            // As long as the one who waits for the event, at most: it wakes all.
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

/// A failure of this rank, as a sentence.
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

    /// The same for each of so many threads, which get their own in order or as it comes.
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

    /// Whether it is waited for asleep.
    pub fn sleeps(&self) -> bool {
        self.channel.is_some()
    }

    /// Takes what there is.
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

    /// Waits until there is something, at most `limit_ns`; 0 when nothing came.
    ///
    /// After an event the queue is polled until it is empty before the next one is asked for: the
    /// caller comes back as often as there is something.
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

    /// Waits until there is something, within the rank's patience.
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
            // With what is others' it did not sleep.
            let since = *looked.get_or_insert(now);
            if rank.clock().ns_between(since, rank.now()) >= slice_ns as f64 {
                // Whether there is still somebody to wait for.
                rank.spin_for(0, || None::<()>)?;
                looked = None;
            }
        }
    }

    /// Sleeps until the next event, for at most `slice_ns`, unless there is something already.
    fn sleep(
        &self,
        channel: &CompletionChannel,
        slice_ns: u64,
        wcs: &mut [Wc],
    ) -> Result<usize, VerbsError> {
        self.cq.request_notify(false)?;
        // What came before the request raises no event.
        let count = self.cq.poll(wcs)?;
        if count > 0 {
            return Ok(count);
        }
        channel.wait_ns(slice_ns).map(|_| 0)
    }
}

/// Looks until there is something, at most `limit_ns`; `None` when nothing came. Where the limit is
/// the rank's patience, the wait has no stamp of its own.
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

/// Nothing came.
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

    /// The first of two threads, where completions are of these threads in turn, and then of the
    /// second one's.
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

    /// The other thread's come without end: the caller has to get a chance to see its limit.
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
