//! Two clocks without a common counter: their offset, their drift, and the error of both. Pure
//! arithmetic on given stamps.
//!
//! ```text
//!  ours     asked ────────────────────────── back        one round; each clock in its own ns
//!  theirs            received ── answered
//! ```
//!
//! Whatever the two ways take, the other clock's lead over ours lies between `answered - back` and
//! `received - asked`: nothing arrives before it was sent. The middle is wrong by half the round
//! trip at most (Cristian 1989; RFC 5905, section 8), and where one way is slower than the other,
//! by that much indeed. So only the fastest round of a [window](Window) counts. A line through the
//! windows gives lead and drift. Its error is half the round trip of the slowest window plus the
//! largest distance of a window from the line: at each window the truth is no further away, and
//! between two windows not either as long as both clocks run steadily. Beyond the first and the
//! last window nothing is promised.

use serde::{Deserialize, Serialize};

/// How far stamps of two cores of a machine may be apart where it was not measured. Linux compares
/// the counters of all cores when they start, and drops the TSC when it sees a warp, which it does
/// from the time on that a cache line takes from core to core: some hundred ns. The error between
/// two machines holds this, and what it takes to ask the other one.
pub const UNMEASURED_SKEW_NS: f64 = 1000.0;

/// One question and its answer: times in ns, each on the clock of the end that took it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// When we asked.
    pub asked_ns: f64,
    /// When the other end had the question.
    pub received_ns: f64,
    /// When it sent the answer.
    pub answered_ns: f64,
    /// When we had it.
    pub back_ns: f64,
}

impl Round {
    /// Time on the way, both ways together: without the time at the other end.
    #[must_use]
    pub fn round_trip_ns(&self) -> f64 {
        (self.back_ns - self.asked_ns) - (self.answered_ns - self.received_ns)
    }

    /// Their clock's lead over ours, if both ways took as long.
    #[must_use]
    pub fn lead_ns(&self) -> f64 {
        ((self.received_ns - self.asked_ns) + (self.answered_ns - self.back_ns)) / 2.0
    }

    /// The middle of the round, on our clock.
    #[must_use]
    pub fn at_ns(&self) -> f64 {
        f64::midpoint(self.asked_ns, self.back_ns)
    }

    /// Whether its times are possible: in order at each end, and without a negative time on the
    /// way.
    fn is_possible(&self) -> bool {
        let all = [self.asked_ns, self.received_ns, self.answered_ns, self.back_ns];
        all.iter().all(|t| t.is_finite())
            && self.asked_ns <= self.back_ns
            && self.received_ns <= self.answered_ns
            && self.round_trip_ns() >= 0.0
    }
}

/// The offset by the fastest of several successive rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// When, on our clock.
    pub at_ns: f64,
    /// Their clock's lead over ours then.
    pub lead_ns: f64,
    /// How wrong that may be: half of the least round trip.
    pub half_trip_ns: f64,
}

impl Window {
    /// The window of these rounds; `None` if no round is possible.
    #[must_use]
    pub fn of(rounds: &[Round]) -> Option<Self> {
        let possible = rounds.iter().filter(|round| round.is_possible());
        let fastest = possible.min_by(|a, b| a.round_trip_ns().total_cmp(&b.round_trip_ns()))?;
        Some(Self {
            at_ns: fastest.at_ns(),
            lead_ns: fastest.lead_ns(),
            half_trip_ns: fastest.round_trip_ns() / 2.0,
        })
    }
}

/// Their clock beside ours, as a line over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The time to which [`Fit::lead_ns`] belongs, on our clock.
    pub at_ns: f64,
    /// Their clock's lead over ours then.
    pub lead_ns: f64,
    /// How much faster theirs runs: ns of lead gained per ns of ours.
    pub drift: f64,
    /// Half the round trip of the slowest window.
    pub half_trip_ns: f64,
    /// The largest distance of a window from the line.
    pub residual_ns: f64,
}

impl Fit {
    /// The line through windows, by least squares; one window gives no drift. `None` without any.
    #[must_use]
    pub fn of(windows: &[Window]) -> Option<Self> {
        if windows.is_empty() {
            return None;
        }
        let n = windows.len() as f64;
        // Relative to the first one: stamps since a boot have too many digits for squares.
        let first = windows[0];
        let x = |w: &Window| w.at_ns - first.at_ns;
        let y = |w: &Window| w.lead_ns - first.lead_ns;
        let mean_x = windows.iter().map(x).sum::<f64>() / n;
        let mean_y = windows.iter().map(y).sum::<f64>() / n;
        let squares: f64 = windows.iter().map(|w| (x(w) - mean_x).powi(2)).sum();
        let products: f64 = windows.iter().map(|w| (x(w) - mean_x) * (y(w) - mean_y)).sum();
        let drift = if squares > 0.0 { products / squares } else { 0.0 };
        let off = |w: &Window| (y(w) - mean_y - drift * (x(w) - mean_x)).abs();
        let largest = |of: &dyn Fn(&Window) -> f64| windows.iter().map(of).fold(0.0, f64::max);
        Some(Self {
            at_ns: first.at_ns + mean_x,
            lead_ns: first.lead_ns + mean_y,
            drift,
            half_trip_ns: largest(&|w| w.half_trip_ns),
            residual_ns: largest(&off),
        })
    }

    /// How far a converted time may be off, both ways, between the first and the last window.
    #[must_use]
    pub fn error_ns(&self) -> f64 {
        self.half_trip_ns + self.residual_ns
    }

    /// Their clock's lead over ours, at a time of ours.
    #[must_use]
    pub fn lead_at_ns(&self, ours_ns: f64) -> f64 {
        self.lead_ns + self.drift * (ours_ns - self.at_ns)
    }

    /// A time of theirs on our clock.
    #[must_use]
    pub fn ours_at_ns(&self, theirs_ns: f64) -> f64 {
        // theirs = ours + lead + drift (ours - at), solved for ours - at.
        self.at_ns + (theirs_ns - self.at_ns - self.lead_ns) / (1.0 + self.drift)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Clocks of which all is known: theirs leads by `lead` at 0 and gains `drift`.
    #[derive(Clone, Copy, Debug)]
    struct Truth {
        lead: f64,
        drift: f64,
    }

    impl Truth {
        fn theirs(self, ours: f64) -> f64 {
            ours + self.lead + self.drift * ours
        }

        /// A round that begins then, with these times there, at the other end, and back.
        fn round(self, asked_ns: f64, [there, stay, back]: [f64; 3]) -> Round {
            Round {
                asked_ns,
                received_ns: self.theirs(asked_ns + there),
                answered_ns: self.theirs(asked_ns + there + stay),
                back_ns: asked_ns + there + stay + back,
            }
        }
    }

    fn window(truth: Truth, at: f64, delays: &[[f64; 3]]) -> Window {
        let rounds: Vec<Round> = delays
            .iter()
            .enumerate()
            .map(|(i, delays)| truth.round(at + i as f64 * 1e5, *delays))
            .collect();
        Window::of(&rounds).unwrap()
    }

    #[test]
    fn equal_ways_give_the_truth() {
        let truth = Truth { lead: -7e12, drift: 25e-6 };
        let delays = [[9e3, 500.0, 31e3], [5e3, 100.0, 5e3], [40e3, 0.0, 5e3]];
        let windows: Vec<Window> =
            (0..5).map(|i| window(truth, 3e15 + f64::from(i) * 1e9, &delays)).collect();
        let fit = Fit::of(&windows).unwrap();
        // A tick of f64 at 3e15 is half a nanosecond.
        assert!((fit.drift - 25e-6).abs() < 1e-8, "{fit:?}");
        assert!((fit.half_trip_ns - 5e3).abs() < 2.0 && fit.residual_ns < 4.0, "{fit:?}");
        let ours = 3e15 + 2.2e9;
        assert!((fit.ours_at_ns(truth.theirs(ours)) - ours).abs() < 6.0);
        assert!((fit.lead_at_ns(ours) - (truth.theirs(ours) - ours)).abs() < 6.0);
    }

    #[test]
    fn a_way_that_is_slower_costs_half_the_difference_and_the_bound_knows() {
        let truth = Truth { lead: 1e6, drift: 0.0 };
        let fit = Fit::of(&[window(truth, 0.0, &[[18e3, 0.0, 2e3]])]).unwrap();
        assert!((fit.lead_ns - 1e6 - 8e3).abs() < 1.0, "{fit:?}");
        assert!((fit.error_ns() - 10e3).abs() < 1.0);
        assert_eq!((fit.drift, fit.residual_ns), (0.0, 0.0));
    }

    #[test]
    fn a_clock_that_is_set_meanwhile_shows_in_the_residual() {
        let before = Truth { lead: 0.0, drift: 0.0 };
        let after = Truth { lead: 1e6, drift: 0.0 };
        let quick = [[1e3, 0.0, 1e3]];
        let windows: Vec<Window> = (0..6)
            .map(|i| window(if i < 3 { before } else { after }, f64::from(i) * 1e9, &quick))
            .collect();
        let fit = Fit::of(&windows).unwrap();
        assert!(fit.residual_ns > 1e5 && fit.error_ns() > 1e5, "{fit:?}");
    }

    #[test]
    fn what_cannot_be_is_left_out() {
        let good = Truth { lead: 5.0, drift: 0.0 }.round(0.0, [10.0, 1.0, 10.0]);
        let backwards = Round { back_ns: -1.0, ..good };
        let faster_than_light = Round { answered_ns: good.received_ns + 1e6, ..good };
        let nothing = Round { received_ns: f64::NAN, ..good };
        assert_eq!(Window::of(&[backwards, faster_than_light, nothing]), None);
        let window = Window::of(&[backwards, good, faster_than_light]).unwrap();
        assert_eq!((window.lead_ns, window.half_trip_ns), (5.0, 10.0));
        assert_eq!((Window::of(&[]), Fit::of(&[])), (None, None));
    }

    proptest! {
        /// For all delays, and clocks that drift steadily, no time between the windows is off by
        /// more than the error.
        #[test]
        fn the_truth_lies_within_the_error(
            lead in -1e9f64..1e9,
            drift in -2e-4f64..2e-4,
            bias in 0.0f64..50e3,
            gap in 1e6f64..1e9,
            windows in prop::collection::vec(
                prop::collection::vec([1e3f64..60e3, 0.0f64..20e3, 1e3f64..60e3], 1..12),
                2..8,
            ),
        ) {
            let truth = Truth { lead, drift };
            let windows: Vec<Window> = windows.iter().enumerate().map(|(i, delays)| {
                let slow: Vec<_> = delays.iter().map(|[a, b, c]| [a + bias, *b, *c]).collect();
                window(truth, i as f64 * gap, &slow)
            }).collect();
            let fit = Fit::of(&windows).unwrap();
            let (first, last) = (windows[0].at_ns, windows[windows.len() - 1].at_ns);
            for part in 0..=10 {
                let ours = first + (last - first) * f64::from(part) / 10.0;
                let off = (fit.ours_at_ns(truth.theirs(ours)) - ours).abs();
                // Drift during a round is a share of it: 2e-4 of 150 us; and f64 rounds.
                prop_assert!(off <= fit.error_ns() + 50.0, "{off} beyond {fit:?}");
            }
        }
    }
}
