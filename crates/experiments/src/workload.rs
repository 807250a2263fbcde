//! The trait that each experiment implements, for the struct of its own options.
//!
//! A new experiment is a folder with a `mod.rs` that implements [`Workload`], its `mod` in
//! `lib.rs`, a line in `list.rs`, and a row in the table of the book's chapter on numbers. Help
//! texts, manual pages, plans, sweeps, studies, records and reports follow from these. In a program
//! outside rdmalab the implementation is enough: the program [adds](crate::add) it.

use std::ops::RangeInclusive;

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::limits::Limits;
use crate::common::option::Choice;
use crate::common::params::Common;
use crate::common::rules::Fault;

/// An experiment. A value holds its own options, those that no other experiment has. Each field
/// needs an option: values are compared, and sent to the ranks, as the texts of their options.
pub trait Workload: Clone + Send + Sync + 'static {
    /// Its name, as in `rdmalab run NAME`.
    const NAME: &'static str;
    /// What it measures, in one sentence without a full stop.
    const SUMMARY: &'static str;
    /// How many ranks it takes, at least and at most. As many as at least unless asked otherwise.
    const RANKS: RangeInclusive<usize> = 2..=2;
    /// The options that it takes, in the order of its help text.
    const OPTIONS: &'static [Choice<Self>];
    /// What it does unless told otherwise: the options that others have too.
    const COMMON: Common;
    /// The same of its own options.
    const OWN: Self;
    /// Whether it waits for answers of the device, so that a short try tells how long it takes.
    const WAITS: bool = true;
    /// Whether each counted message has a sample, from which quantiles follow.
    const SAMPLES_EACH: bool = false;
    /// Whether its samples are runs, so that a shorter measurement keeps these.
    const SAMPLES_RUNS: bool = false;

    /// What cannot be measured whatever the device.
    ///
    /// # Errors
    /// The option, and why.
    fn check(&self, _common: &Common, _limits: &Limits) -> Result<(), Fault> {
        Ok(())
    }

    /// What its queues are too short for; asked once more of a thread's share of shared queue
    /// pairs.
    ///
    /// # Errors
    /// The option, and why.
    fn check_queues(&self, _common: &Common) -> Result<(), Fault> {
        Ok(())
    }

    /// What so many ranks are too few for, beyond [`Workload::RANKS`].
    ///
    /// # Errors
    /// The option, and why.
    fn check_ranks(&self, _ranks: usize) -> Result<(), Fault> {
        Ok(())
    }

    /// The memory that it takes.
    fn memory(&self, _common: &Common) -> Places {
        Places { count: 1, option: "size" }
    }

    /// How many series have a sample for each message, those of `--rate` aside.
    fn series(&self, _common: &Common) -> u64 {
        1
    }

    /// What it may measure, but for processor time, which all do.
    fn quantities(&self, common: &Common) -> Vec<Quantity>;

    /// About how long a message takes on a device that answers in a microsecond, in nanoseconds.
    fn message_ns(&self, common: &Common) -> f64;

    /// The pause that is in a message's time on the average, in nanoseconds.
    fn pause_ns(&self, common: &Common) -> f64 {
        common.pause_ns as f64
    }

    /// Messages under way before one has to be waited for.
    fn window(&self, _common: &Common) -> u64 {
        1
    }

    /// Runs it at one end, with the options checked. Rank 0 returns all that was measured, others
    /// their own facts.
    ///
    /// # Errors
    /// When a work request fails, the other end is gone, or nothing comes for too long.
    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped>;
}

/// Memory for messages: so many places of one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// How many.
    pub count: u64,
    /// The option that says how many.
    pub option: &'static str,
}

/// What the bytes of a message take on the way, in nanoseconds, on the device that
/// [`Workload::message_ns`] is about.
pub(crate) fn transfer_ns(common: &Common) -> f64 {
    common.size_bytes as f64 / 5.0
}
