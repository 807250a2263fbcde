//! The trait that each experiment implements, for the struct of its own options.
//!
//! A new experiment is a folder with a `mod.rs` that implements [`Workload`], its `mod` in
//! `lib.rs`, a line in `list.rs`, and a row in the table of the book's chapter on numbers. Help
//! texts, manual pages, plans, sweeps, studies, records and reports follow from these. In a program
//! outside rdmalab the implementation is enough: the program [adds](crate::add) it.

use std::ops::RangeInclusive;

use rdmalab_measure::{Method, Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::limits::Limits;
use crate::common::option::Choice;
use crate::common::params::Common;
use crate::common::rules::Fault;

/// How many samples a result has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// A series with a sample of each message.
    OfMessages,
    /// A series with a sample of each run within the point.
    OfRuns,
    /// One number without samples.
    Figure,
}

/// A result of a point: its quantity, its label, and how many samples it has.
pub type ResultShape = (Quantity, &'static str, ResultKind);

/// An experiment. A value holds its own options, those that no other experiment has. Each field
/// needs an option: values are compared, and sent to the ranks, as the texts of their options.
pub trait Workload: Clone + Send + Sync + 'static {
    /// Its name, as in `rdmalab run NAME`.
    const NAME: &'static str;
    /// What it measures, in one sentence without a full stop.
    const SUMMARY: &'static str;
    /// The least and the most ranks that it takes. The default is the least.
    const RANKS: RangeInclusive<usize> = 2..=2;
    /// The options that it takes, in the order of its help text.
    const OPTIONS: &'static [Choice<Self>];
    /// The defaults of the common options.
    const COMMON: Common;
    /// The defaults of its own options.
    const OWN: Self;
    /// Whether it waits for the device, so that a short trial run tells how long it takes.
    const WAITS: bool = true;
    /// Whether each counted message has a sample, from which quantiles follow.
    const SAMPLES_EACH: bool = false;
    /// Whether each run is one sample, so that a shorter measurement keeps the number of runs.
    const SAMPLES_RUNS: bool = false;
    /// The kind of measurement for which `rdmalab advise` uses it.
    const METHOD: Option<Method> = None;
    /// The sweeps of it that `rdmalab calibrate` measures, each as options of a command line.
    const CALIBRATES: &'static [&'static str] = &[];

    /// Rejects options that no device could measure.
    ///
    /// # Errors
    /// The option, and why.
    fn check(&self, _common: &Common, _limits: &Limits) -> Result<(), Fault> {
        Ok(())
    }

    /// Rejects queues that are too short. Where threads share queue pairs, it is called once more
    /// with the share of one thread.
    ///
    /// # Errors
    /// The option, and why.
    fn check_queues(&self, _common: &Common) -> Result<(), Fault> {
        Ok(())
    }

    /// Rejects options that do not work with `ranks` ranks, beyond [`Workload::RANKS`].
    ///
    /// # Errors
    /// The option, and why.
    fn check_ranks(&self, _ranks: usize) -> Result<(), Fault> {
        Ok(())
    }

    /// The memory for messages that it needs.
    fn memory(&self, _common: &Common) -> Places {
        Places { count: 1, option: "size" }
    }

    /// How many series have a sample for each message, not counting the series of `--rate`.
    fn series(&self, _common: &Common) -> u64 {
        1
    }

    /// The quantities that it may measure, except processor time, which every experiment measures.
    fn quantities(&self, common: &Common) -> Vec<Quantity>;

    /// The results that claims and published values of studies refer to. Each run has them. Tests
    /// compare them with records, and with the plans of studies.
    fn results(&self, _common: &Common) -> &'static [ResultShape] {
        &[]
    }

    /// Estimated time of a message, in nanoseconds, on a device that answers in a microsecond.
    fn message_ns(&self, common: &Common) -> f64;

    /// The average pause per message, in nanoseconds.
    fn pause_ns(&self, common: &Common) -> f64 {
        common.pause_ns as f64
    }

    /// The most messages under way before the sender has to wait for one of them.
    fn window(&self, _common: &Common) -> u64 {
        1
    }

    /// Whether it registers memory that is paged on demand. Simulated adapters draw the times of
    /// page faults, so its repetitions differ.
    fn pages_on_demand(&self, _common: &Common) -> bool {
        false
    }

    /// Runs it at one end with checked options. Rank 0 returns all measurements, the others only
    /// facts about themselves.
    ///
    /// # Errors
    /// When a work request fails, the other end is gone, or nothing arrives for too long.
    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped>;
}

/// Memory for messages: `count` places with room for one message each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// How many.
    pub count: u64,
    /// The option that says how many.
    pub option: &'static str,
}

/// The transfer time of a message's bytes, in nanoseconds, on the device that
/// [`Workload::message_ns`] assumes.
pub(crate) fn transfer_ns(common: &Common) -> f64 {
    common.size_bytes as f64 / 5.0
}
