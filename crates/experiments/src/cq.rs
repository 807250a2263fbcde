//! Waiting for completions, busy or asleep; alone, or together with other threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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

/// A thread's place at a queue that several take completions of: whoever finds another one's hands
/// it over.
struct Seat {
    thread: usize,
    inboxes: Arc<[Inbox]>,
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
    /// Takes what is this thread's; what is not goes to whose it is.
    fn poll(&self, cq: &Cq, wcs: &mut [Wc]) -> Result<usize, VerbsError> {
        let handed_over = self.inboxes[self.thread].take(wcs);
        if handed_over > 0 {
            return Ok(handed_over);
        }
        let found = cq.poll(wcs)?;
        let mut own = 0;
        for i in 0..found {
            let thread = (wcs[i].wr_id() >> THREAD_SHIFT) as usize;
            match self.inboxes.get(thread) {
                Some(inbox) if thread != self.thread => inbox.put(wcs[i]),
                _ => {
                    wcs[own] = wcs[i];
                    own += 1;
                }
            }
        }
        Ok(own)
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

    /// The same for each of so many threads, whose requests have their tags.
    pub fn shared(self, threads: usize) -> Self {
        let inboxes = (0..threads).map(|_| Inbox::default()).collect();
        Self { seat: Some(Seat { thread: 0, inboxes }), ..self }
    }

    /// The queue as another thread sees it.
    pub fn of_thread(&self, thread: usize) -> Self {
        let seat = |seat: &Seat| Seat { thread, inboxes: seat.inboxes.clone() };
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
            Some(seat) => seat.poll(&self.cq, wcs),
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
            self.cq.request_notify(false).map_err(failed)?;
            // What came before the request raises no event.
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
            if channel.wait_ns(slice_ns).map_err(failed)?.is_none() {
                // Whether there is still somebody to wait for.
                rank.spin_for(0, || None::<()>)?;
            }
        }
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
