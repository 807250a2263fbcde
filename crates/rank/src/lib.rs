//! Ranks: the ends of an experiment. Besides verbs, a rank is the only interface of an experiment
//! to the outside.
//!
//! An experiment is a function that each rank runs with the same parameters. It asks its [`Rank`]
//! for its index, for the time, and whether the others are ready. In real time a rank is a process
//! ([`process`]); in virtual time it is a coroutine (crate `sim`). Therefore an experiment sleeps,
//! spins and starts threads only through its rank.

mod monitor;
pub mod process;
pub mod realtime;

use std::fmt;
use std::sync::atomic::AtomicU64;

use rdmalab_measure::{Clock, Stamp, StampCost};

pub use monitor::{Locks, Monitor};

/// Why a rank could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The user or the launcher asked the rank to stop. The measurements up to then are valid.
    Asked,
    /// Another rank failed or is gone; the text names the rank and the reason.
    Other(String),
    /// Nothing came in time; the text says what the rank waited for.
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
/// Waiting is bounded: each call that waits returns [`Stopped`] when the launcher asks to stop,
/// when another rank is gone, or when its time limit is over. Time stamps are fenced.
pub trait Rank: Locks {
    /// The index of this rank, from 0.
    fn index(&self) -> usize;

    /// The number of ranks.
    fn count(&self) -> usize;

    /// A time stamp, taken after all earlier instructions and before all later ones.
    fn now(&self) -> Stamp;

    /// The clock of [`Rank::now`], to turn stamps into nanoseconds.
    fn clock(&self) -> &Clock;

    /// What a time stamp costs, by `samples` stamps taken back to back.
    fn stamp_cost(&self, samples: usize) -> StampCost {
        self.clock().cost(samples)
    }

    /// The error bound, in nanoseconds and both ways, of a stamp of rank `other` that
    /// [`Rank::to_own_clock`] converted; `None` if the clocks cannot be compared. Ranks of one
    /// machine share a counter; others have to [align](Rank::align_clocks) their clocks first.
    fn clock_error_ns(&self, other: usize) -> Option<f64>;

    /// Whether rank `other` takes its stamps from the same counter as this rank, so that they may
    /// be compared without conversion.
    fn shares_clock(&self, other: usize) -> bool {
        self.clock_error_ns(other).is_some()
    }

    /// Aligns the clocks of all ranks; also a barrier. All ranks have to call it before and after
    /// the stamps that they take, and now and then in between: stamps between the first and the
    /// last call of a job can be converted. It takes some milliseconds, and no time if all ranks
    /// share a clock. It also works when this rank was asked to stop.
    ///
    /// # Errors
    /// As [`Rank::exchange_to_end`].
    fn align_clocks(&self) -> Result<(), Stopped> {
        Ok(())
    }

    /// Converts a stamp of rank `other` to the clock of this rank. The error is at most
    /// [`Rank::clock_error_ns`], if that is known.
    fn to_own_clock(&self, _other: usize, stamp: Stamp) -> Stamp {
        stamp
    }

    /// Tells the user what takes long, in a line. Virtual time has nothing to tell.
    fn tell(&self, _line: &str) {}

    /// Sleeps for `ns` or a little longer.
    ///
    /// # Errors
    /// When the rank was asked to stop meanwhile.
    fn sleep(&self, ns: u64) -> Result<(), Stopped>;

    /// Keeps the processor busy for `ns`: a pause in which the processor neither sleeps nor lowers
    /// its clock rate.
    ///
    /// # Errors
    /// When the rank was asked to stop meanwhile.
    fn think(&self, ns: u64) -> Result<(), Stopped>;

    /// Calls `look` as often as possible until it returns something. Only once in many calls it
    /// checks whether to stop, so that a look costs hardly more; `look` must not sleep, since that
    /// would delay the check.
    ///
    /// # Errors
    /// When it was asked to stop, another rank is gone, or nothing came within
    /// [`Rank::patience_ns`].
    fn spin<T>(&self, look: impl FnMut() -> Option<T>) -> Result<T, Stopped>;

    /// Like [`Rank::spin`], but for at most `limit_ns`: `None` when nothing came.
    ///
    /// # Errors
    /// When it was asked to stop, or another rank is gone.
    fn spin_for<T>(
        &self,
        limit_ns: u64,
        look: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Stopped>;

    /// Calls `meanwhile` again and again until a time, and returns the first stamp at or after it.
    /// A stamp is taken before each call, so that the wait ends in time. `meanwhile` returns
    /// whether it would do more if it were called at once; otherwise virtual time does not call it
    /// before something happened. It must not sleep.
    ///
    /// # Errors
    /// When it was asked to stop, or another rank is gone; and those of `meanwhile`.
    #[inline(always)]
    fn busy_until(
        &self,
        until: Stamp,
        mut meanwhile: impl FnMut() -> Result<bool, Stopped>,
    ) -> Result<Stamp, Stopped> {
        loop {
            let now = self.now();
            if now >= until {
                return Ok(now);
            }
            meanwhile()?;
            if self.is_asked_to_stop() {
                return Err(self.spin_for(0, || None::<()>).err().unwrap_or(Stopped::Asked));
            }
        }
    }

    /// Spins until a word that a peer writes has another value than `old`, and returns the value.
    /// The peer's earlier writes are then visible.
    ///
    /// # Errors
    /// As [`Rank::spin`].
    fn poll_memory(&self, word: &AtomicU64, old: u64) -> Result<u64, Stopped>;

    /// Runs `body` while a separate thread keeps writing the current stamp into `word`: a copy of
    /// the word, for example by the adapter, then holds the time of that copy. `body` itself must
    /// not write to `word`.
    ///
    /// # Errors
    /// When the thread cannot be started.
    fn restamping<T>(&self, word: &AtomicU64, body: impl FnOnce() -> T) -> Result<T, Stopped>;

    /// Whether the thread of [`Rank::restamping`] has to share a processor with a rank. Then the
    /// word does not change while others run, and its times are as coarse as the scheduler's time
    /// slices.
    fn restamp_shares_cpu(&self) -> bool {
        false
    }

    /// Tells that the processor has just copied so many bytes. In virtual time only this makes a
    /// copy take time.
    #[inline(always)]
    fn copied(&self, _bytes: u64) {}

    /// Runs all bodies at the same time, each on its own thread, and waits for all of them.
    ///
    /// # Errors
    /// When a thread cannot be started, or one of them panicked.
    fn spawn<T: Send>(
        &self,
        bodies: Vec<Box<dyn FnOnce() -> T + Send + '_>>,
    ) -> Result<Vec<T>, Stopped>;

    /// How long [`Rank::spin`] waits at most. [`Rank::barrier`] and [`Rank::exchange`] may wait
    /// longer, so that a missing rank can first report what it waits for itself.
    fn patience_ns(&self) -> u64;

    /// Whether the rank was asked to stop. Cheap enough to ask for each message.
    fn is_asked_to_stop(&self) -> bool;

    /// Waits until all ranks have called this.
    ///
    /// # Errors
    /// As [`Rank::spin`].
    fn barrier(&self) -> Result<(), Stopped> {
        self.exchange(&[]).map(drop)
    }

    /// Sends `bytes` to all ranks and returns the bytes of all ranks, by index; also a barrier.
    ///
    /// # Errors
    /// As [`Rank::spin`].
    fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped>;

    /// As [`Rank::exchange`], but also works when this rank was asked to stop: for collecting the
    /// measurements up to then. All ranks have to call it.
    ///
    /// # Errors
    /// As [`Rank::exchange`], except for the request to stop.
    fn exchange_to_end(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        self.exchange(bytes)
    }

    /// As [`Rank::exchange_to_end`], for a rank that has nothing to do until the others call it. It
    /// waits without a time limit, since each wait of the other ranks has its own limit.
    ///
    /// # Errors
    /// As [`Rank::exchange_to_end`], except for the time limit.
    fn exchange_at_leisure(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        self.exchange_to_end(bytes)
    }

    /// Sends a number to all ranks, and returns the smallest and the largest number of all ranks.
    /// If the threads of a rank call it together, the numbers of all threads count, so that all
    /// threads decide alike. Like [`Rank::exchange_to_end`], it also works when this rank was asked
    /// to stop.
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
/// When a rank that is out of step gave something other than a number.
pub fn extremes<'a>(all: impl Iterator<Item = &'a [u8]>) -> Result<(u64, u64), Stopped> {
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes);
    let numbers: Result<Vec<u64>, _> = all.map(number).collect();
    let out_of_step = || {
        Stopped::Failed("the ranks are out of step: one of them did not send a number".to_owned())
    };
    let numbers = numbers.map_err(|_| out_of_step())?;
    let (least, most) = (numbers.iter().min(), numbers.iter().max());
    least.copied().zip(most.copied()).ok_or_else(out_of_step)
}
