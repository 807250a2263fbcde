//! Waiting for completions, busy or asleep.

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{CompletionChannel, Context, Cq, VerbsError, Wc};

use crate::point::Polling;

/// The longest sleep until an event: then somebody has to look whether the others still live.
const SLICE_NS: u64 = 100_000_000;

/// A completion queue, and how it is waited for.
pub(crate) struct Completions {
    cq: Cq,
    channel: Option<CompletionChannel>,
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
        Ok(Self { cq, channel })
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
        self.cq.poll(wcs).map_err(failed)
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
                let found = look_for(rank, limit_ns, || match self.cq.poll(wcs) {
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
