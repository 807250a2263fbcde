//! How far the counters of two cores may be apart: the error of a one-way time on one machine.

use std::sync::atomic::Ordering;

use super::cpu::{Spin, SpinHint};
use super::limit::Unsupported;
use super::peer::{Line, Map, Peers, beside};
use crate::clock::{Clock, Stamp};

/// A few milliseconds where both cores are ours alone.
const EXCHANGES: u64 = 20_000;
/// On a busy machine many exchanges wait until the other end gets its core: at a load of 20, all of
/// them took up to a minute, while all ranks waited. After this time, the bounds of a single
/// exchange without such a wait are enough.
const TIME_NS: f64 = 200e6;
/// See above.
const NARROW_NS: f64 = 5_000.0;
/// After this time, any bounds are enough.
const TIME_MAX_NS: f64 = 2e9;

/// Bounds of what the second core's stamps are ahead of the first one's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skew {
    /// At least this far ahead (negative: at most this far behind).
    pub low_ns: f64,
    /// At most this far ahead.
    pub high_ns: f64,
    /// Exchanges that the bounds come from.
    pub exchanges: u64,
}

impl Skew {
    /// The error bound of an uncorrected one-way time between the two cores.
    #[must_use]
    pub fn error_ns(&self) -> f64 {
        self.low_ns.abs().max(self.high_ns.abs())
    }
}

/// Bounds the skew of the clock between two cores. In each exchange our stamp lies before the other
/// end's, and that before our next one, whatever the way there and back takes; so its lead is at
/// most (their stamp - our first) and at least (their stamp - our second). The bounds are the
/// tightest over all exchanges, and no symmetry is assumed.
///
/// # Errors
/// When memory cannot be mapped, a core is not ours, or the other end does not answer.
pub fn core_skew(clock: Clock, cores: (usize, usize)) -> Result<Skew, Unsupported> {
    let map = Map::shared(3 * size_of::<Line>())?;
    let [ping, pong, stop] = map.lines() else { unreachable!("three lines were mapped") };
    let (ping, pong, stop) = (&ping.0, &pong.0, &stop.0);
    let spin = Spin::between(cores).with_hint(SpinHint::Paused);
    let ns = |ticks: i64| clock.ns_between(Stamp(0), Stamp(ticks as u64));
    let ours = || {
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        let mut last = 0;
        let mut exchanges = 0;
        let begin = clock.now();
        while exchanges < EXCHANGES {
            exchanges += 1;
            let before = clock.now();
            ping.store(exchanges, Ordering::Release);
            let answered = || {
                let stamp = pong.load(Ordering::Acquire);
                (stamp != last).then_some(stamp)
            };
            let theirs = spin.until(answered).ok_or_else(super::cpu::no_answer)?;
            let after = clock.now();
            last = theirs;
            low = low.max(theirs.wrapping_sub(after.0) as i64);
            high = high.min(theirs.wrapping_sub(before.0) as i64);
            let took_ns = clock.ns_between(begin, after);
            if took_ns > TIME_NS && (took_ns > TIME_MAX_NS || ns(high - low) < NARROW_NS) {
                break;
            }
        }
        Ok(Skew { low_ns: ns(low), high_ns: ns(high), exchanges })
    };
    let theirs = || {
        let mut seen = 0;
        while stop.load(Ordering::Relaxed) == 0 {
            let asked = ping.load(Ordering::Acquire);
            if asked != seen {
                seen = asked;
                pong.store(clock.now().0, Ordering::Release);
            } else {
                spin.rest();
            }
        }
    };
    // SAFETY: threads are bound by no contract here.
    unsafe { beside(Peers::Threads, cores, stop, theirs, ours) }
}
