//! Both ends go through a measurement in lockstep, part by part, as long as both want to go on.

use rdmalab_rank::{Rank, Stopped, extremes};

use crate::common::local_end::LocalEnd;

/// An end of a measurement, which meets the other one before each part.
pub(crate) struct Lockstep<'a, R> {
    rank: &'a R,
    end: &'a LocalEnd,
    /// Whether it has nothing to do in a part.
    is_idle: bool,
    /// Why it ends before its time.
    pub cut_short: Option<String>,
}

/// How long the news of another rank's end may take: queue pairs and other ranks tell sooner.
const NEWS_NS: u64 = 1_000_000_000;

impl<'a, R: Rank> Lockstep<'a, R> {
    pub fn new(rank: &'a R, end: &'a LocalEnd) -> Self {
        Self { rank, end, is_idle: false, cut_short: None }
    }

    /// Of a rank that may have nothing to do: then it waits until the others have done their part.
    pub fn idle(self, is_idle: bool) -> Self {
        Self { is_idle, ..self }
    }

    /// Gives a number, and gets the smallest and the largest.
    fn agree(&self, number: u64) -> Result<(u64, u64), Stopped> {
        if !self.is_idle {
            return self.rank.agree(number);
        }
        let all = self.rank.exchange_at_leisure(&number.to_le_bytes())?;
        extremes(all.iter().map(Vec::as_slice))
    }

    /// Gives what it found at the end.
    pub fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        match self.is_idle {
            true => self.rank.exchange_at_leisure(bytes),
            false => self.rank.exchange_to_end(bytes),
        }
    }

    /// Meets the other end before a part; whether there is to be one.
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

    /// Compares the clocks of both ends, where they are two: before each part and after the last
    /// one, so that what is stamped in between can be converted.
    pub fn align_clocks(&mut self) -> Result<(), Stopped> {
        let aligned = self.rank.align_clocks();
        self.part_ended(aligned)
    }

    /// A part has ended with that result. What was measured until then is kept where we were
    /// interrupted, or the other end is gone. A failure of our own is an error, so that the other
    /// end learns of it.
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

/// Why a measurement of one end alone ends before its time: what was measured until then is kept
/// where we were interrupted, or the other end is gone.
pub(crate) fn cut_short(result: Result<(), Stopped>) -> Result<Option<String>, Stopped> {
    match result {
        Ok(()) => Ok(None),
        Err(kept @ (Stopped::Asked | Stopped::Other(_))) => Ok(Some(kept.to_string())),
        Err(failure) => Err(failure),
    }
}
