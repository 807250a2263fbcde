//! Ranks: the ends of an experiment, and all that an experiment may know of the launch besides
//! verbs.
//!
//! An experiment is a function that each rank runs with the same parameters; it asks its [`Rank`]
//! who it is, what time it is, and when the others are ready. In real time a rank is a process
//! ([`process`]); in virtual time it will be a coroutine, which is why an experiment neither
//! sleeps, spins nor starts a thread by itself.

pub mod process;

use std::fmt;
use std::sync::atomic::AtomicU64;

use rdmalab_measure::{Clock, Stamp};

/// Why a rank could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The user, or the launcher, wants an end. What was measured so far counts.
    Asked,
    /// Another rank failed or is gone; which, and why.
    Other(String),
    /// Nothing came in time; what was waited for.
    TimedOut(String),
    /// This rank failed: one line that says what, and what to do.
    Failed(String),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("interrupted"),
            Self::Other(why) | Self::TimedOut(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Stopped {}

/// Processor time that a rank used, all its threads together, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In the program.
    pub user_ns: u64,
    /// In the kernel on its behalf.
    pub system_ns: u64,
}

impl CpuTime {
    /// What was used since an earlier time.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }

    /// User and system together.
    #[must_use]
    pub fn total_ns(self) -> u64 {
        self.user_ns + self.system_ns
    }
}

/// One end of an experiment.
///
/// Waiting is bounded: each call that waits ends with [`Stopped`] when the launcher says so, when
/// another rank is gone, or when its limit is over. Time stamps are fenced.
pub trait Rank {
    /// Which one it is, from 0.
    fn index(&self) -> usize;

    /// How many there are.
    fn count(&self) -> usize;

    /// A stamp: after everything before it, before everything after it.
    fn now(&self) -> Stamp;

    /// The clock of [`Rank::now`], to turn stamps into nanoseconds.
    fn clock(&self) -> &Clock;

    /// How far a stamp of rank `other`, converted by [`Rank::to_own_clock`], may be off from ours
    /// for the same instant, in nanoseconds, both ways; `None` when the two cannot be compared at
    /// all. Ranks of one machine share a counter; others have to [align](Rank::align_clocks) first.
    fn clock_error_ns(&self, other: usize) -> Option<f64>;

    /// Whether stamps of rank `other` come from the counter of ours, so that they may be compared
    /// as they are.
    fn shares_clock(&self, other: usize) -> bool {
        self.clock_error_ns(other).is_some()
    }

    /// Brings the clocks of all ranks together; a barrier too. All ranks have to come to it, before
    /// and after what they stamp, and once more now and then: between the first time in a job and
    /// the last one, stamps can be converted. It takes some milliseconds, and where all ranks share
    /// a clock, nothing. It goes on where this rank was asked to stop.
    ///
    /// # Errors
    /// As [`Rank::exchange_to_end`].
    fn align_clocks(&self) -> Result<(), Stopped> {
        Ok(())
    }

    /// A stamp of rank `other` on our clock; wrong by [`Rank::clock_error_ns`] at most, where that
    /// is known.
    fn to_own_clock(&self, _other: usize, stamp: Stamp) -> Stamp {
        stamp
    }

    /// Gives the processor away for so long, or a little longer.
    ///
    /// # Errors
    /// When it was asked to stop meanwhile.
    fn sleep(&self, ns: u64) -> Result<(), Stopped>;

    /// Keeps the processor busy for so long: a pause that lets it neither sleep nor slow down.
    ///
    /// # Errors
    /// When it was asked to stop meanwhile.
    fn think(&self, ns: u64) -> Result<(), Stopped>;

    /// Looks until there is something, as often as it can. Whether to go on at all is asked now
    /// and then, so that a look costs nothing more; a look that sleeps would delay that question.
    ///
    /// # Errors
    /// When it was asked to stop, another rank is gone, or nothing came within
    /// [`Rank::patience_ns`].
    fn spin<T>(&self, look: impl FnMut() -> Option<T>) -> Result<T, Stopped>;

    /// The same for at most `limit_ns`: `None` when nothing came.
    ///
    /// # Errors
    /// When it was asked to stop, or another rank is gone.
    fn spin_for<T>(
        &self,
        limit_ns: u64,
        look: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Stopped>;

    /// Spins until a word that a peer writes has another value than `old`, and returns it; what
    /// the peer wrote before is then visible.
    ///
    /// # Errors
    /// As [`Rank::spin`].
    fn poll_memory(&self, word: &AtomicU64, old: u64) -> Result<u64, Stopped>;

    /// Runs `body` while the current stamp is written into `word` without a pause, by a thread of
    /// its own: whoever copies the word meanwhile has the time of his copy. `body` itself must not
    /// write there.
    ///
    /// # Errors
    /// When there can be no such thread.
    fn restamping<T>(&self, word: &AtomicU64, body: impl FnOnce() -> T) -> Result<T, Stopped>;

    /// Whether the thread of [`Rank::restamping`] has to share a processor with a rank: the word
    /// then stands still while others run, and times taken from it are as coarse as the scheduler.
    fn restamp_shares_cpu(&self) -> bool {
        false
    }

    /// Runs all of them at the same time, each on a thread of its own, and waits for all.
    ///
    /// # Errors
    /// When a thread cannot be started, or one of them panicked.
    fn spawn<T: Send>(
        &self,
        bodies: Vec<Box<dyn FnOnce() -> T + Send + '_>>,
    ) -> Result<Vec<T>, Stopped>;

    /// How long [`Rank::spin`] waits at most. [`Rank::barrier`] and [`Rank::exchange`] may wait
    /// longer: a rank that is missed there says first what it waits for itself.
    fn patience_ns(&self) -> u64;

    /// Whether it was asked to stop: cheap enough for each message.
    fn is_asked_to_stop(&self) -> bool;

    /// Waits until each rank is here.
    ///
    /// # Errors
    /// As [`Rank::spin`].
    fn barrier(&self) -> Result<(), Stopped> {
        self.exchange(&[]).map(drop)
    }

    /// Gives each rank the bytes of all, by index; a barrier too.
    ///
    /// # Errors
    /// As [`Rank::spin`].
    fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped>;

    /// As [`Rank::exchange`], and goes on where this rank was asked to stop: for bringing together
    /// what was measured until then. All ranks have to come to it.
    ///
    /// # Errors
    /// As [`Rank::exchange`], without having been asked to stop.
    fn exchange_to_end(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        self.exchange(bytes)
    }

    /// As [`Rank::exchange_to_end`], for a rank that has nothing to do until the others come: it
    /// waits for as long as they take, since each wait of theirs has its own limit.
    ///
    /// # Errors
    /// As [`Rank::exchange_to_end`], but for the limit.
    fn exchange_at_leisure(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        self.exchange_to_end(bytes)
    }

    /// Gives a number, and gets the smallest and the largest of all ranks; where threads of a rank
    /// meet the others together, of all threads, so that none of them does what another does not.
    /// Goes on as [`Rank::exchange_to_end`] does.
    ///
    /// # Errors
    /// As [`Rank::exchange_to_end`].
    fn agree(&self, number: u64) -> Result<(u64, u64), Stopped> {
        let all = self.exchange_to_end(&number.to_le_bytes())?;
        extremes(all.iter().map(Vec::as_slice))
    }

    /// Processor time used so far.
    fn cpu_time(&self) -> CpuTime;
}

/// The smallest and the largest of the numbers that were given to [`Rank::agree`].
///
/// # Errors
/// When something else was given, by a rank that is out of step.
pub fn extremes<'a>(all: impl Iterator<Item = &'a [u8]>) -> Result<(u64, u64), Stopped> {
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes);
    let numbers: Result<Vec<u64>, _> = all.map(number).collect();
    let out_of_step = || Stopped::Failed("the ranks are out of step: one agrees alone".to_owned());
    let numbers = numbers.map_err(|_| out_of_step())?;
    let (least, most) = (numbers.iter().min(), numbers.iter().max());
    least.copied().zip(most.copied()).ok_or_else(out_of_step)
}
