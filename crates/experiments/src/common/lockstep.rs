//! Keeps both ends of a measurement in step: they meet before each part, and go on only if both
//! want to.

use rdmalab_rank::{Rank, Stopped, extremes};

use crate::common::local_end::LocalEnd;

/// An end of a measurement, which meets the other end before each part.
pub(crate) struct Lockstep<'a, R> {
    rank: &'a R,
    end: &'a LocalEnd,
    /// Whether it has nothing to do in a part.
    is_idle: bool,
    /// Why the measurement was cut short.
    pub cut_short: Option<String>,
}

/// How long the news that another rank stopped may take. A failed queue pair or the other ranks'
/// wish to stop shows up earlier than this news.
const NEWS_NS: u64 = 1_000_000_000;

impl<'a, R: Rank> Lockstep<'a, R> {
    pub fn new(rank: &'a R, end: &'a LocalEnd) -> Self {
        Self { rank, end, is_idle: false, cut_short: None }
    }

    /// Marks a rank as idle: it only waits until the other ranks have done their part.
    pub fn idle(self, is_idle: bool) -> Self {
        Self { is_idle, ..self }
    }

    /// Sends a number to all ranks, and returns the smallest and the largest number of all ranks.
    fn agree(&self, number: u64) -> Result<(u64, u64), Stopped> {
        if !self.is_idle {
            return self.rank.agree(number);
        }
        let all = self.rank.exchange_at_leisure(&number.to_le_bytes())?;
        extremes(all.iter().map(Vec::as_slice))
    }

    /// Exchanges the findings at the end.
    pub fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        match self.is_idle {
            true => self.rank.exchange_at_leisure(bytes),
            false => self.rank.exchange_to_end(bytes),
        }
    }

    /// Meets the other end before a part. Returns whether both ends go on.
    pub fn goes_on(&mut self) -> Result<bool, Stopped> {
        match self.agree(u64::from(self.cut_short.is_none())) {
            Ok((least, _)) => {
                let goes_on = least == 1;
                if !goes_on && self.cut_short.is_none() {
                    // Another rank was told to stop, and so will this one be, with the reason.
                    let told = self.rank.spin_for(NEWS_NS, || None::<()>).err();
                    self.cut_short = Some(told.unwrap_or(Stopped::Asked).to_string());
                }
                Ok(goes_on)
            }
            Err(stopped) => {
                self.ends(stopped)?;
                Ok(false)
            }
        }
    }

    /// Aligns the clocks of both ends, if they have different ones. Called before each part and
    /// after the last one, so that stamps taken in between can be converted.
    pub fn align_clocks(&mut self) -> Result<(), Stopped> {
        let aligned = self.rank.align_clocks();
        self.part_ended(aligned)
    }

    /// Handles the result of a part. If this rank was interrupted or the other end is gone, the
    /// measurements up to then are kept. A failure of this rank is an error, so that the other end
    /// learns of it.
    pub fn part_ended(&mut self, result: Result<(), Stopped>) -> Result<(), Stopped> {
        match result {
            Ok(()) => Ok(()),
            Err(stopped) => self.ends(stopped),
        }
    }

    #[cold]
    fn ends(&mut self, stopped: Stopped) -> Result<(), Stopped> {
        let why = match self.end.diagnose(stopped) {
            Stopped::Failed(cause) => match self.rank.spin_for(NEWS_NS, || None::<()>) {
                Err(Stopped::Other(why)) => format!("{why}; {cause}"),
                _ => return Err(Stopped::Failed(cause)),
            },
            Stopped::TimedOut(what) => return Err(Stopped::TimedOut(what)),
            kept => kept.to_string(),
        };
        self.cut_short.get_or_insert(why);
        Ok(())
    }
}

/// The reason why a rank was asked to stop.
#[cold]
pub(crate) fn stopped<R: Rank>(rank: &R) -> Stopped {
    rank.spin_for(0, || None::<()>).err().unwrap_or(Stopped::Asked)
}

/// Why the measurement at one end was cut short. If the rank was interrupted or the other end is
/// gone, the measurements up to then are kept; any other failure is an error.
pub(crate) fn cut_short(result: Result<(), Stopped>) -> Result<Option<String>, Stopped> {
    match result {
        Ok(()) => Ok(None),
        Err(kept @ (Stopped::Asked | Stopped::Other(_))) => Ok(Some(kept.to_string())),
        Err(failure) => Err(failure),
    }
}
