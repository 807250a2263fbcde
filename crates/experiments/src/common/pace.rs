//! Open loop: each message has an intended start that does not depend on earlier messages. A sender
//! that is late posts at once. Times count from the intended start, so they include the lateness.

use rdmalab_measure::{Clock, Outcome, Quantity, Stamp};
use rdmalab_random::Random;
use rdmalab_rank::{Rank, Stopped};

use crate::common::params::{Arrivals, Common, Polling};

/// The series whose times begin when a message was due.
pub(crate) const DUE: &str = "from the intended start";
/// The longest gap that is considered possible, in mean gaps: of 10^9 exponential gaps, one is
/// longer than 21 means.
const LONGEST_GAPS: u64 = 30;

/// The times at which messages are due.
pub(crate) struct Pace {
    clock: Clock,
    start: Stamp,
    gap_ns: f64,
    arrivals: Arrivals,
    /// When the next message is due, since the start.
    due_ns: f64,
    random: Random,
}

impl Pace {
    /// The pace of a point; `None` in a closed loop, where each message follows the one before.
    pub fn of(common: &Common, clock: &Clock) -> Option<Self> {
        (common.rate_per_s > 0).then(|| Self {
            clock: *clock,
            start: Stamp(0),
            gap_ns: 1e9 / common.rate_per_s as f64,
            arrivals: common.arrivals,
            due_ns: 0.0,
            random: Random::new(common.stream_seed()),
        })
    }

    /// A part begins: the first message is due now.
    pub fn begin(&mut self, now: Stamp) {
        (self.start, self.due_ns) = (now, 0.0);
    }

    /// When the next message is due.
    #[inline]
    pub fn due(&self) -> Stamp {
        self.clock.after_ns(self.start, self.due_ns)
    }

    /// Moves on to the message after it.
    #[inline]
    pub fn advance(&mut self) {
        self.due_ns += match self.arrivals {
            Arrivals::Constant => self.gap_ns,
            Arrivals::Poisson => self.gap_ns * self.random.exponential(),
        };
    }
}

impl Common {
    /// The options for the given repetition, counted from 0. Each repetition has other arrivals,
    /// drawn from the same seed.
    #[must_use]
    pub fn repeated(self, repetition: usize) -> Self {
        /// Above the numbers of threads.
        const SHIFT: u32 = 16;
        Self { stream: (repetition as u64) << SHIFT, ..self }
    }
}

/// Sleeps until shortly before a message is due, if the sender also sleeps while it waits for
/// completions: the processor time saved there must not be spent on polling the clock.
///
/// # Errors
/// When it was asked to stop.
pub(crate) fn sleep_until_nearly<R: Rank>(
    rank: &R,
    common: &Common,
    due: Stamp,
) -> Result<(), Stopped> {
    /// How much too late a thread may wake up.
    const LATE_NS: u64 = 100_000;
    if common.poll_send != Polling::Event {
        return Ok(());
    }
    let now = rank.now();
    let left_ns = if due > now { rank.clock().whole_ns_between(now, due) } else { 0 };
    match left_ns.saturating_sub(LATE_NS) {
        0 => Ok(()),
        ns => rank.sleep(ns),
    }
}

/// Gaps between stamps, of all runs together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    gaps: u64,
    ticks: u64,
}

impl Span {
    /// A run's stamps; in any order.
    pub fn add(&mut self, stamps: impl Iterator<Item = u64>) {
        let found = stamps.fold(None, |sum, t| match sum {
            None => Some((t, t, 0)),
            Some((first, last, gaps)) => Some((t.min(first), t.max(last), gaps + 1)),
        });
        if let Some((first, last, gaps)) = found {
            self.gaps += gaps;
            self.ticks += last - first;
        }
    }

    /// Adds the stamps at which messages of a run were over. The span begins when the first message
    /// was due, not at the first stamp: after a late start, the messages that piled up would look
    /// like a higher rate.
    pub fn add_from(&mut self, due: u64, stamps: impl Iterator<Item = u64>) {
        let (last, count) = stamps.fold((0, 0), |(last, n), stamp| (stamp.max(last), n + 1));
        if count > 1 && last > due {
            self.add_run(Stamp(due), Stamp(last), count);
        }
    }

    /// Adds a run of `count` events from `first` to `last`.
    pub fn add_run(&mut self, first: Stamp, last: Stamp, count: u64) {
        self.gaps += count.saturating_sub(1);
        self.ticks += last.0 - first.0;
    }

    /// Gaps per second; `None` if there was no gap.
    pub fn per_s(&self, clock: &Clock) -> Option<f64> {
        let ns = clock.ns_between(Stamp(0), Stamp(self.ticks));
        (self.gaps > 0 && ns > 0.0).then(|| self.gaps as f64 / ns * 1e9)
    }
}

/// Adds the requested rate and the measured rate over all runs. `due` holds when each message was
/// due, warm-up included (empty in a closed loop), and whether these stamps are from the same clock
/// as those of `over`, which gives the stamp at which a message of that number was over.
pub(crate) fn push_rates<R: Rank>(
    rank: &R,
    common: &Common,
    sent: usize,
    (due, is_one_clock): (&[u64], bool),
    over: impl Fn(usize) -> Option<u64>,
    outcome: &mut Outcome,
) {
    let warm_up = (common.warm_up as usize).min(sent);
    let (mut offered, mut achieved) = (Span::default(), Span::default());
    for first in (warm_up..sent).step_by(common.messages.max(1) as usize) {
        let last = (first + common.messages as usize).min(sent);
        let over = (first..last).filter_map(&over);
        offered.add(due.get(first..last).unwrap_or_default().iter().copied());
        match due.get(first).filter(|_| is_one_clock) {
            Some(due) => achieved.add_from(*due, over),
            None => achieved.add(over),
        }
    }
    for (label, span) in [("offered", offered), ("achieved", achieved)] {
        if let Some(rate) = span.per_s(rank.clock()) {
            outcome.push_figure(Quantity::Rate, label, rate);
        }
    }
}

/// The longest time between two messages that does not mean a loss.
pub(crate) fn longest_gap_ns(common: &Common) -> u64 {
    let gap_ns = 1_000_000_000u64.checked_div(common.rate_per_s).unwrap_or(0);
    (2 * common.pause_ns).max(LONGEST_GAPS * gap_ns)
}

/// The rates of a load curve for a device that does `capacity_per_s` at most: from far below the
/// knee of the curve to beyond it.
#[must_use]
pub fn load_rates(capacity_per_s: f64) -> Vec<u64> {
    const PERCENT: [u32; 12] = [5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120];
    let mut rates: Vec<u64> =
        PERCENT.iter().map(|p| (capacity_per_s * f64::from(*p) / 100.0).max(1.0) as u64).collect();
    rates.dedup();
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(arrivals: Arrivals, seed: u64, count: usize) -> Vec<f64> {
        let base = Common::DEFAULT;
        gaps_of(&Common { rate_per_s: 1_000_000, arrivals, seed, ..base }, count)
    }

    fn gaps_of(common: &Common, count: usize) -> Vec<f64> {
        let mut pace = Pace::of(common, &Clock::monotonic_raw()).unwrap();
        pace.begin(Stamp(0));
        let gap = |_| {
            let before = pace.due_ns;
            pace.advance();
            pace.due_ns - before
        };
        (0..count).map(gap).collect()
    }

    #[test]
    fn constant_arrivals_are_evenly_spaced() {
        assert!(gaps(Arrivals::Constant, 1, 1000).iter().all(|gap| (gap - 1000.0).abs() < 1e-6));
        let common = Common::DEFAULT;
        assert!(Pace::of(&common, &Clock::monotonic_raw()).is_none());
    }

    #[test]
    fn poisson_arrivals_have_exponential_gaps_and_a_seed() {
        let mut found = gaps(Arrivals::Poisson, 7, 100_000);
        assert_eq!(found[..50], gaps(Arrivals::Poisson, 7, 50)[..]);
        assert_ne!(found[..50], gaps(Arrivals::Poisson, 8, 50)[..]);
        // Kolmogorov and Smirnov: beyond 1.95 / sqrt(n) in one of 1000 sequences.
        found.sort_by(f64::total_cmp);
        let n = found.len() as f64;
        let farthest = found.iter().enumerate().map(|(i, gap)| {
            let expected = 1.0 - (-gap / 1000.0).exp();
            (i as f64 / n - expected).abs().max(((i + 1) as f64 / n - expected).abs())
        });
        let farthest = farthest.fold(0.0, f64::max);
        assert!(farthest < 1.95 / n.sqrt(), "{farthest}");
    }

    #[test]
    fn each_repetition_and_thread_has_arrivals_of_its_own() {
        let base = Common::DEFAULT;
        let arrivals = Arrivals::Poisson;
        let base = Common { rate_per_s: 1_000_000, arrivals, seed: 7, ..base };
        let of = |repetition, thread| {
            let common = base.clone().repeated(repetition).of_thread(thread);
            assert_eq!(common.seed, 7);
            gaps_of(&common, 50)
        };
        assert_eq!(of(0, 0), gaps(arrivals, 7, 50));
        let all: Vec<_> = (0..4).flat_map(|r| (0..4).map(move |t| (r, t))).collect();
        for (i, (r, t)) in all.iter().enumerate() {
            assert_eq!(of(*r, *t), of(*r, *t));
            assert!(all[..i].iter().all(|(r2, t2)| of(*r, *t) != of(*r2, *t2)), "{r} {t}");
        }
    }

    #[test]
    fn a_message_is_due_by_the_clock() {
        let base = Common::DEFAULT;
        let clock = Clock::monotonic_raw();
        let arrivals = Arrivals::Constant;
        let common = Common { rate_per_s: 1000, arrivals, ..base };
        let mut pace = Pace::of(&common, &clock).unwrap();
        pace.begin(Stamp(500));
        assert_eq!(pace.due(), Stamp(500));
        (0..3).for_each(|_| pace.advance());
        assert!((clock.ns_between(Stamp(500), pace.due()) - 3e6).abs() < 2.0);
        assert_eq!(longest_gap_ns(&common), 30_000_000.max(2 * common.pause_ns));
    }

    #[test]
    fn rates_go_from_far_below_to_beyond() {
        let rates = load_rates(1e6);
        assert_eq!((rates[0], rates[rates.len() - 1]), (50_000, 1_200_000));
        assert!(rates.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(load_rates(0.1), [1]);
    }

    #[test]
    fn a_rate_counts_gaps_of_each_run() {
        let clock = Clock::monotonic_raw();
        let mut span = Span::default();
        assert_eq!(span.per_s(&clock), None);
        span.add([100, 300, 200].into_iter());
        span.add([5000].into_iter());
        span.add([10_000, 10_800].into_iter());
        let ticks_per_s = 1e9 / clock.ns_per_tick();
        let rate = span.per_s(&clock).unwrap();
        assert!((rate * 1000.0 / 3.0 / ticks_per_s - 1.0).abs() < 1e-9, "{rate}");
    }
}
