//! A fenced clock: stamps of the processor's counter where that is invariant, the kernel's raw
//! clock otherwise. Which one it is, what a stamp costs and how fine it is belong to every result.
//!
//! Nothing is ever subtracted: an interval between two stamps holds one stamp's cost, and
//! [`Clock::cost`] says how much that is.

mod counter;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Edges of the calibration's windows: [`EDGES`] / 2 windows, each half of the whole time long.
const EDGES: usize = 20;

/// Time between two edges.
const EDGE_GAP_NS: u64 = 1_000_000;

/// Tries to catch one edge between two stamps that are close together.
const TRIES_PER_EDGE: usize = 24;

/// Where stamps come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClockSource {
    /// x86-64: the time-stamp counter between two load fences.
    FencedTsc,
    /// aarch64: the virtual counter `cntvct_el0` between two barriers.
    FencedCntvct,
    /// `clock_gettime(CLOCK_MONOTONIC_RAW)`: coarser in cost, and not fenced.
    MonotonicRaw,
    /// Picoseconds that a simulation counts; no real time.
    Virtual,
}

impl ClockSource {
    /// The source that this processor's counter would give.
    #[must_use]
    pub const fn of_processor() -> Self {
        if cfg!(target_arch = "x86_64") {
            Self::FencedTsc
        } else if cfg!(target_arch = "aarch64") {
            Self::FencedCntvct
        } else {
            Self::MonotonicRaw
        }
    }
}

impl fmt::Display for ClockSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FencedTsc => "fenced TSC",
            Self::FencedCntvct => "fenced CNTVCT",
            Self::MonotonicRaw => "CLOCK_MONOTONIC_RAW",
            Self::Virtual => "virtual time",
        })
    }
}

/// A point in time, in ticks of the clock that took it. Stamps of two processes of one machine
/// may be compared when both clocks have the same [`ClockSource`]; how far the counters of two
/// cores are apart is what [`crate::limits::skew`] bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// A calibrated clock. Copies are as good as the original.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    source: ClockSource,
    ns_per_tick: f64,
    relative_error: f64,
    fallback_reason: Option<&'static str>,
    virtual_ps: Option<VirtualPs>,
}

/// Where a simulation counts its time.
#[derive(Clone, Copy, Debug)]
struct VirtualPs(&'static AtomicU64);

/// Two are equal if they are the same counter.
impl PartialEq for VirtualPs {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// The best clock of this machine; calibrating it takes about 20 ms. Without an invariant
    /// counter it uses [`ClockSource::MonotonicRaw`], and [`Clock::fallback_reason`] says why.
    #[must_use]
    pub fn new() -> Self {
        match counter::invariant() {
            Ok(()) => Self::calibrated(),
            Err(reason) => Self::raw(Some(reason)),
        }
    }

    /// The kernel's raw clock, whatever the processor offers: to compare the two.
    #[must_use]
    pub fn monotonic_raw() -> Self {
        Self::raw(None)
    }

    /// A clock of virtual time: it returns the value of `now_ps`, picoseconds that a simulation
    /// advances. Clocks that share this counter agree exactly.
    #[must_use]
    pub fn virtual_time(now_ps: &'static AtomicU64) -> Self {
        let virtual_ps = Some(VirtualPs(now_ps));
        Self { source: ClockSource::Virtual, ns_per_tick: 1e-3, virtual_ps, ..Self::raw(None) }
    }

    fn raw(fallback_reason: Option<&'static str>) -> Self {
        Self {
            source: ClockSource::MonotonicRaw,
            ns_per_tick: 1.0,
            relative_error: 0.0,
            fallback_reason,
            virtual_ps: None,
        }
    }

    fn calibrated() -> Self {
        let edges: Vec<Edge> = (0..EDGES)
            .map(|i| {
                if i > 0 {
                    wait_ns(EDGE_GAP_NS);
                }
                Edge::catch()
            })
            .collect();
        match rate(&edges) {
            Some((ns_per_tick, relative_error)) => Self {
                source: ClockSource::of_processor(),
                ns_per_tick,
                relative_error,
                fallback_reason: None,
                virtual_ps: None,
            },
            None => Self::raw(Some("the counter did not advance steadily when calibrated")),
        }
    }

    /// Takes a stamp. Counters are read between two fences: after all earlier instructions and
    /// before all later ones. Earlier stores may not be visible to other cores yet.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> Stamp {
        match self.source {
            ClockSource::FencedTsc | ClockSource::FencedCntvct => Stamp(counter::read()),
            _ => self.slow_now(),
        }
    }

    fn slow_now(&self) -> Stamp {
        Stamp(match self.virtual_ps {
            Some(VirtualPs(now_ps)) => now_ps.load(Ordering::Acquire),
            None => counter::raw_ns(),
        })
    }

    /// Nanoseconds from `a` to `b`; negative when `b` is the earlier one. Between two cores, a
    /// negative time shows that their counters differ.
    #[inline]
    #[must_use]
    pub fn ns_between(&self, a: Stamp, b: Stamp) -> f64 {
        // The difference of two stamps of one boot fits i64 for 112 years at 2.6 GHz.
        b.0.wrapping_sub(a.0) as i64 as f64 * self.ns_per_tick
    }

    /// Whole nanoseconds from `a` to `b`, rounded; 0 when `b` is the earlier one. For histograms
    /// of intervals taken on one core.
    #[inline]
    #[must_use]
    pub fn whole_ns_between(&self, a: Stamp, b: Stamp) -> u64 {
        // A float becomes an integer by saturation, so that negative is 0.
        (self.ns_between(a, b) + 0.5) as u64
    }

    /// The stamp that lies `ns` nanoseconds after `from`: a deadline to compare stamps with.
    #[inline]
    #[must_use]
    pub fn after_ns(&self, from: Stamp, ns: f64) -> Stamp {
        Stamp(from.0.wrapping_add((ns / self.ns_per_tick) as u64))
    }

    /// Where stamps come from.
    #[must_use]
    pub fn source(&self) -> ClockSource {
        self.source
    }

    /// Why the processor's counter is not used, if it is not.
    #[must_use]
    pub fn fallback_reason(&self) -> Option<&'static str> {
        self.fallback_reason
    }

    /// Nanoseconds of one tick.
    #[must_use]
    pub fn ns_per_tick(&self) -> f64 {
        self.ns_per_tick
    }

    /// How far [`Clock::ns_per_tick`] may be off, as a fraction, against `CLOCK_MONOTONIC_RAW`
    /// (the error of that clock itself, typically tens of ppm, is not known here).
    #[must_use]
    pub fn relative_error(&self) -> f64 {
        self.relative_error
    }

    /// Measures what a stamp costs, by `samples` (at least 2) stamps taken back to back.
    #[must_use]
    pub fn cost(&self, samples: usize) -> StampCost {
        self.cost_of(samples, || self.now())
    }

    /// As [`Clock::cost`], of stamps that are taken in another way.
    #[must_use]
    pub fn cost_of(&self, samples: usize, now: impl Fn() -> Stamp) -> StampCost {
        let count = samples.max(2);
        let mut stamps = vec![Stamp(0); count + 1];
        for stamp in &mut stamps {
            *stamp = now();
        }
        let mut ticks: Vec<u64> = stamps.windows(2).map(|w| w[1].0.wrapping_sub(w[0].0)).collect();
        let step = ticks.iter().fold(0, |a, &b| gcd(a, b));
        ticks.sort_unstable();
        let ns = |q: f64| {
            let rank = (q * count as f64).ceil().max(1.0) as usize;
            ticks[rank - 1] as f64 * self.ns_per_tick
        };
        StampCost {
            samples: count,
            min_ns: ns(0.0),
            median_ns: ns(0.5),
            p99_ns: ns(0.99),
            mean_ns: self.ns_between(stamps[0], stamps[count]) / count as f64,
            resolution_ns: step as f64 * self.ns_per_tick,
        }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        if matches!(self.source, ClockSource::FencedTsc | ClockSource::FencedCntvct) {
            let mhz = 1e3 / self.ns_per_tick;
            let ppm = self.relative_error * 1e6;
            write!(f, ", {mhz:.3} MHz +- {ppm:.1} ppm")?;
        }
        match self.fallback_reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// What one stamp costs, from stamps taken back to back. The interval between two stamps around
/// nothing at all is this long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StampCost {
    /// Intervals measured.
    pub samples: usize,
    /// The shortest interval.
    pub min_ns: f64,
    /// The median interval; a multiple of the resolution.
    pub median_ns: f64,
    /// The 99th percentile.
    pub p99_ns: f64,
    /// The mean, which the resolution does not round; one interruption may lift it.
    pub mean_ns: f64,
    /// The clock's step: the greatest time that divides all intervals. (A counter that a
    /// hypervisor scales moves by uneven steps; then this is less than the true step.)
    pub resolution_ns: f64,
}

impl fmt::Display for StampCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} ns per stamp (mean; min {:.0}, median {:.0}, p99 {:.0}), step {:.2} ns",
            self.mean_ns, self.min_ns, self.median_ns, self.p99_ns, self.resolution_ns
        )
    }
}

/// One instant on both clocks.
#[derive(Clone, Copy)]
struct Edge {
    /// The counter, halfway between the two stamps around the raw clock's reading.
    ticks: u64,
    /// The raw clock's reading.
    raw_ns: u64,
    /// Ticks between the two stamps: the instant is known to half of it.
    width: u64,
}

impl Edge {
    /// The tightest of a few tries: an interruption between the two clocks widens one.
    fn catch() -> Self {
        let one = || {
            let before = counter::read();
            let raw_ns = counter::raw_ns();
            let width = counter::read().wrapping_sub(before);
            Edge { ticks: before.wrapping_add(width / 2), raw_ns, width }
        };
        (1..TRIES_PER_EDGE).fold(one(), |best, _| {
            let next = one();
            if next.width < best.width { next } else { best }
        })
    }
}

/// Nanoseconds per tick, and its relative error, from edges in order of time: the median over
/// windows of half the whole span. The error is the larger of what the windows disagree by (their
/// half range) and what an edge's width allows.
fn rate(edges: &[Edge]) -> Option<(f64, f64)> {
    let half = edges.len() / 2;
    let mut rates = Vec::with_capacity(half);
    let mut allowed: f64 = 0.0;
    for (from, to) in edges.iter().zip(&edges[half..]) {
        let ticks = to.ticks.checked_sub(from.ticks).filter(|&t| t > 0)? as f64;
        let ns = to.raw_ns.checked_sub(from.raw_ns).filter(|&t| t > 0)? as f64;
        rates.push(ns / ticks);
        allowed = allowed.max((from.width + to.width) as f64 / 2.0 / ticks);
    }
    rates.sort_by(f64::total_cmp);
    let (low, high) = (*rates.first()?, *rates.last()?);
    let median = crate::stats::median(&rates);
    Some((median, ((high - low) / 2.0 / median).max(allowed)))
}

fn wait_ns(ns: u64) {
    let until = counter::raw_ns() + ns;
    while counter::raw_ns() < until {
        std::hint::spin_loop();
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges of a counter of 2.5 GHz, one a millisecond, with a disturbance in ticks for each.
    fn edges(noise: impl Fn(u64) -> u64) -> Vec<Edge> {
        (0..EDGES as u64)
            .map(|i| Edge {
                ticks: 7_000_000_000 + i * 2_500_000 + noise(i),
                raw_ns: 99 + i * 1_000_000,
                width: 50,
            })
            .collect()
    }

    #[test]
    fn virtual_time_moves_when_it_is_moved() {
        let now_ps: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(5)));
        let (clock, other) = (Clock::virtual_time(now_ps), Clock::virtual_time(now_ps));
        let began = clock.now();
        assert_eq!((began, other.now()), (Stamp(5), Stamp(5)));
        now_ps.store(1_000_005, Ordering::Release);
        assert_eq!(clock.whole_ns_between(began, other.now()), 1000);
        assert_eq!(clock.cost(8).mean_ns, 0.0, "a stamp takes no virtual time");
        assert_eq!((clock == other, clock.to_string().as_str()), (true, "virtual time"));
    }

    #[test]
    fn the_rate_of_a_steady_counter_is_found() {
        let (ns_per_tick, error) = rate(&edges(|_| 0)).unwrap();
        assert!((ns_per_tick - 0.4).abs() < 1e-12, "{ns_per_tick}");
        // The two widths over 10 ms.
        assert!((error - 50.0 / 25_000_000.0).abs() < 1e-12, "{error}");
    }

    #[test]
    fn one_disturbed_edge_moves_the_error_and_hardly_the_rate() {
        let (ns_per_tick, error) = rate(&edges(|i| if i == 3 { 250_000 } else { 0 })).unwrap();
        assert!((ns_per_tick - 0.4).abs() < 1e-12, "{ns_per_tick}");
        assert!(error > 0.004 && error < 0.02, "{error}");
    }

    #[test]
    fn a_counter_that_stands_still_is_refused() {
        let still: Vec<Edge> = edges(|_| 0).into_iter().map(|e| Edge { ticks: 5, ..e }).collect();
        assert!(rate(&still).is_none());
    }

    #[test]
    fn intervals_keep_their_sign_and_whole_ones_do_not() {
        let clock = Clock { ns_per_tick: 0.4, ..Clock::monotonic_raw() };
        assert_eq!(clock.ns_between(Stamp(100), Stamp(350)), 100.0);
        assert_eq!(clock.ns_between(Stamp(350), Stamp(100)), -100.0);
        assert_eq!(clock.whole_ns_between(Stamp(100), Stamp(349)), 100);
        assert_eq!(clock.whole_ns_between(Stamp(350), Stamp(100)), 0);
        assert_eq!(clock.ns_between(Stamp(u64::MAX), Stamp(4)), 2.0);
        assert_eq!(clock.after_ns(Stamp(100), 100.0), Stamp(350));
    }

    #[test]
    fn the_best_clock_agrees_with_the_raw_clock() {
        let clock = Clock::new();
        let (a, raw_a) = (clock.now(), counter::raw_ns());
        wait_ns(5_000_000);
        let (raw_b, b) = (counter::raw_ns(), clock.now());
        let (ours, theirs) = (clock.ns_between(a, b), (raw_b - raw_a) as f64);
        // The stamps enclose the readings, so that our interval is longer except for the rate
        // error.
        assert!(ours >= theirs * (1.0 - clock.relative_error()) - 100.0, "{ours} < {theirs}");
        assert!(clock.relative_error() < 1.0, "{clock}");
        assert_eq!(clock.source() == ClockSource::MonotonicRaw, clock.fallback_reason().is_some());
    }

    #[test]
    fn stamps_of_one_thread_do_not_run_backwards() {
        for clock in [Clock::new(), Clock::monotonic_raw()] {
            let mut last = clock.now();
            for _ in 0..10_000 {
                let now = clock.now();
                assert!(now >= last, "{clock}");
                last = now;
            }
        }
    }

    #[test]
    fn the_cost_is_ordered_and_the_step_divides_it() {
        for clock in [Clock::new(), Clock::monotonic_raw()] {
            let cost = clock.cost(10_000);
            assert_eq!(cost.samples, 10_000);
            assert!(cost.min_ns <= cost.median_ns && cost.median_ns <= cost.p99_ns);
            assert!(cost.mean_ns > 0.0 && cost.resolution_ns > 0.0);
            let steps = cost.median_ns / cost.resolution_ns;
            assert!((steps - steps.round()).abs() < 1e-6, "{cost}");
        }
    }

    #[test]
    fn a_fallback_is_labelled_with_its_reason() {
        let clock = Clock::raw(Some("no counter"));
        assert_eq!(clock.to_string(), "CLOCK_MONOTONIC_RAW (no counter)");
        assert_eq!(clock.fallback_reason(), Some("no counter"));
        assert_eq!(clock.ns_per_tick(), 1.0);
        let counter = Clock {
            source: ClockSource::FencedTsc,
            ns_per_tick: 0.4,
            relative_error: 4e-6,
            fallback_reason: None,
            virtual_ps: None,
        };
        assert_eq!(counter.to_string(), "fenced TSC, 2500.000 MHz +- 4.0 ppm");
    }

    #[test]
    fn the_greatest_common_divisor_is_one() {
        assert_eq!(gcd(0, 26), 26);
        assert_eq!(gcd(78, 52), 26);
        assert_eq!(gcd(27, 26), 1);
    }
}
