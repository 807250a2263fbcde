//! The elapsed time and the processor time that runs take at an end.

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{CpuTime, Rank};

/// The time that the runs took at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Effort {
    pub elapsed_ns: f64,
    pub cpu: CpuTime,
}

/// The begin of a run, from which its effort is computed later.
pub(crate) struct Begin {
    at: Stamp,
    cpu: CpuTime,
}

impl Begin {
    pub fn now<R: Rank>(rank: &R) -> Self {
        let cpu = rank.cpu_time();
        Self { at: rank.now(), cpu }
    }

    pub fn end<R: Rank>(&self, rank: &R, sum: &mut Effort) {
        let now = rank.now();
        let cpu = rank.cpu_time().since(self.cpu);
        sum.elapsed_ns += rank.clock().ns_between(self.at, now);
        sum.cpu.user_ns += cpu.user_ns;
        sum.cpu.system_ns += cpu.system_ns;
    }
}

impl Effort {
    /// The number of words that encode an effort.
    pub const WORDS: usize = 3;

    pub fn to_words(self) -> [u64; Self::WORDS] {
        [self.elapsed_ns as u64, self.cpu.user_ns, self.cpu.system_ns]
    }

    pub fn from_words(words: &[u64]) -> Option<Self> {
        let [elapsed, user_ns, system_ns] = words.get(..Self::WORDS)?.try_into().ok()?;
        Some(Self { elapsed_ns: elapsed as f64, cpu: CpuTime { user_ns, system_ns } })
    }

    /// Processor time divided by elapsed time: all of it, and that in the kernel. `None` if nothing
    /// ran.
    pub fn shares(self) -> Option<[f64; 2]> {
        let share = |time_ns: u64| time_ns as f64 / self.elapsed_ns;
        (self.elapsed_ns > 0.0).then(|| [self.cpu.total_ns(), self.cpu.system_ns].map(share))
    }

    /// Adds the shares of a rank, if something ran.
    pub fn push(self, outcome: &mut Outcome, label: &str) {
        push_shares(outcome, &[(label, self.shares())]);
    }

    /// Adds the shares of rank 0, and those of rank 1 if they are known.
    pub fn push_both(outcome: &mut Outcome, own: Self, theirs: Option<Self>) {
        let theirs = theirs.and_then(Self::shares);
        push_shares(outcome, &[("rank 0", own.shares()), ("rank 1", theirs)]);
    }
}

/// Adds [`Effort::shares`] of several ranks, those of one quantity beside each other.
pub(crate) fn push_shares(outcome: &mut Outcome, ranks: &[(&str, Option<[f64; 2]>)]) {
    for (i, quantity) in [Quantity::CpuShare, Quantity::KernelShare].into_iter().enumerate() {
        for (label, shares) in ranks {
            if let Some(shares) = shares {
                outcome.push_figure(quantity, label, shares[i]);
            }
        }
    }
}
