//! Waiting for completions, busy or asleep; alone, or together with other threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{CompletionChannel, Context, Cq, VerbsError, Wc};

use crate::point::Polling;

/// The longest sleep until an event: then somebody has to look whether the others still live.
const SLICE_NS: u64 = 100_000_000;

/// A completion queue, and how it is waited for.
pub(crate) struct Completions {
    cq: Cq,
    channel: Option<CompletionChannel>,
    /// Where other threads take completions of it too.
    seat: Option<Seat>,
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

/// How a completion says whose it is; `None`: it does not, and is whoever's finds it.
pub(crate) type Whose = Box<dyn Fn(&Wc) -> Option<usize> + Send + Sync>;

/// A thread's place at a queue that several take completions of: whoever finds another one's hands
/// it over.
struct Seat {
    thread: usize,
    desk: Arc<Desk>,
}

/// The queue of several threads.
struct Desk {
    inboxes: Vec<Inbox>,
    whose: Whose,
    /// Each has to get its own in the order in which they came: messages, not what frees a place.
    in_order: bool,
    /// Of those who sleep, one waits for the event, which wakes one thread; the others wait for
    /// that one. Whether there is such a one.
    is_led: Mutex<bool>,
    /// There are completions of others, or nobody waits for the event any more.
    changed: Condvar,
}

impl Desk {
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

impl Seat {
    /// Takes what is this thread's, and counts it; what is not goes to whose it is. Whether there
    /// was such, too.
    fn poll(&self, cq: &Cq, wcs: &mut [Wc]) -> Result<(usize, bool), VerbsError> {
        let inboxes = &self.desk.inboxes;
        let taken = inboxes[self.thread].take(wcs);
        if taken > 0 {
            return Ok((taken, false));
        }
        let mut has_others = false;
        // What is behind that of others may be this thread's.
        loop {
            let found = cq.poll(wcs)?;
            let mut own = 0;
            for i in 0..found {
                let thread = (self.desk.whose)(&wcs[i]).unwrap_or(self.thread);
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
                return Ok((own, has_others));
            }
        }
    }

    /// The same where threads sleep: nobody looks while another one hands over, so that none goes
    /// to sleep on what is its own, and those who sleep are woken.
    fn poll_awake(&self, cq: &Cq, wcs: &mut [Wc]) -> Result<usize, VerbsError> {
        let _alone = self.desk.lock();
        self.poll_locked(cq, wcs)
    }

    /// The same where nobody sleeps: while another one hands over, this one's may be among it, and
    /// what is in the queue is later.
    fn poll_in_order(&self, cq: &Cq, wcs: &mut [Wc]) -> Result<usize, VerbsError> {
        match self.desk.is_led.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(self.desk.inboxes[self.thread].take(wcs)),
            _alone => self.poll(cq, wcs).map(|(found, _)| found),
        }
    }

    fn poll_locked(&self, cq: &Cq, wcs: &mut [Wc]) -> Result<usize, VerbsError> {
        let (found, has_others) = self.poll(cq, wcs)?;
        if has_others {
            self.desk.changed.notify_all();
        }
        Ok(found)
    }

    /// Sleeps for at most `slice_ns`: until there may be something. What there is for this thread
    /// already is taken, and counted.
    fn sleep(
        &self,
        cq: &Cq,
        channel: &CompletionChannel,
        slice_ns: u64,
        wcs: &mut [Wc],
    ) -> Result<usize, VerbsError> {
        let desk = &*self.desk;
        let mut is_led = desk.lock();
        if !*is_led {
            cq.request_notify(false)?;
        }
        // What came before the request raises no event; what others found is in the inbox.
        let found = self.poll_locked(cq, wcs)?;
        if found > 0 {
            return Ok(found);
        }
        if *is_led {
            // As long as the one who waits for the event, at most: it wakes all.
            drop(desk.changed.wait(is_led).unwrap_or_else(PoisonError::into_inner));
            return Ok(0);
        }
        *is_led = true;
        drop(is_led);
        let waited = channel.wait_ns(slice_ns);
        *desk.lock() = false;
        desk.changed.notify_all();
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
        Ok(Self { cq, channel, seat: None })
    }

    /// The same for each of so many threads, which get their own in order or as it comes.
    pub fn shared(self, threads: usize, whose: Whose, in_order: bool) -> Self {
        let inboxes = (0..threads).map(|_| Inbox::default()).collect();
        let (is_led, changed) = (Mutex::new(false), Condvar::new());
        let desk = Arc::new(Desk { inboxes, whose, in_order, is_led, changed });
        Self { seat: Some(Seat { thread: 0, desk }), ..self }
    }

    /// The queue as another thread sees it.
    pub fn of_thread(&self, thread: usize) -> Self {
        let seat = |seat: &Seat| Seat { thread, desk: seat.desk.clone() };
        Self {
            cq: self.cq.clone(),
            channel: self.channel.clone(),
            seat: self.seat.as_ref().map(seat),
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
        match &self.seat {
            None => self.cq.poll(wcs),
            Some(seat) if self.sleeps() => seat.poll_awake(&self.cq, wcs),
            Some(seat) if seat.desk.in_order => seat.poll_in_order(&self.cq, wcs),
            Some(seat) => seat.poll(&self.cq, wcs).map(|(found, _)| found),
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
        let mut until = None;
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
            let count = match &self.seat {
                None => self.sleep(channel, slice_ns, wcs),
                Some(seat) => seat.sleep(&self.cq, channel, slice_ns, wcs),
            };
            let count = count.map_err(failed)?;
            if count > 0 {
                return Ok(count);
            }
            if rank.clock().ns_between(now, rank.now()) >= slice_ns as f64 {
                // Whether there is still somebody to wait for.
                rank.spin_for(0, || None::<()>)?;
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
