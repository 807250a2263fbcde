//! The knee: the load from which on times rise.

use rdmalab_measure::Quantity;
use rdmalab_measure::curve::{Crossing, PairedPoint, Position, crossing};
use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::stats::Estimate;
use rdmalab_measure::stats::Interval;
use rdmalab_record::{Finding, Point};

use crate::curve::Curve;
use crate::estimate::{known, median, placed};

/// At the knee the median from the intended start is this multiple of that at the lowest rate,
const KNEE: f64 = 2.0;
/// or the achieved rate is less than this share of the offered one.
const SERVED: f64 = 0.99;

/// The curves do not cross within the measured range.
const NOWHERE: Crossing =
    Crossing { at: Position::Beyond, range: (Position::Beyond, Position::Beyond) };

/// Medians from the intended start, by rate.
struct Times {
    of_rates: Vec<(f64, Estimate)>,
    /// The largest clock error of the points, if times are between the clocks of two hosts. It
    /// shifts all times in the same direction.
    clock_error_ns: f64,
}

impl Times {
    fn of(curve: &Curve) -> Self {
        let of = |points: &[&Point]| {
            let due = |quantity| {
                let known = known(points, quantity, "from the intended start")?;
                let errors = points.iter().map(|point| point.clock_error_ns(quantity));
                Some((known, errors.fold(0.0, f64::max)))
            };
            // A WRITE or a READ has times at the requester only, from its completions.
            let all = [Quantity::OneWay, Quantity::RoundTrip, Quantity::CompletionTime];
            all.into_iter().find_map(due)
        };
        let (mut of_rates, mut clock_error_ns) = (Vec::new(), 0.0f64);
        for (rate, points) in curve.points.iter().filter(|(rate, _)| *rate > 0.0) {
            let Some((known, error_ns)) = of(points) else { continue };
            of_rates.push((*rate, known));
            clock_error_ns = clock_error_ns.max(error_ns);
        }
        Self { of_rates, clock_error_ns }
    }

    /// The rate from which on times are too long. If a clock error adds e to all times, the true
    /// limit is higher by 2 e, and so it is higher by e in the measured times.
    fn slow(&self, base: Estimate) -> Crossing {
        let value = KNEE * base.value;
        let (low, high) = (value - self.clock_error_ns, value + self.clock_error_ns);
        let has_error = self.clock_error_ns > 0.0;
        let interval = has_error.then_some(Interval { low, high, confidence: 0.95 });
        let limit = Estimate { value, interval };
        let pair = |(x, b): &(f64, Estimate)| PairedPoint { x: *x, a: limit, b: *b };
        crossing(&self.of_rates.iter().map(pair).collect::<Vec<_>>()).unwrap_or(NOWHERE)
    }
}

/// The rate up to which load costs little.
pub fn knee(curve: &Curve) -> Vec<Finding> {
    let times = Times::of(curve);
    let of = |sentence: &str| curve.finding("knee", "per_s", sentence);
    let [(lowest, base), _, .., (highest, _)] = times.of_rates.as_slice() else {
        let advice = "measure three rates or more, or --rate sweep, to see the knee";
        return if times.of_rates.is_empty() { Vec::new() } else { vec![of(advice)] };
    };
    let behind = behind(curve);
    if base.value <= times.clock_error_ns && !matches!(behind.at, Position::Before) {
        return vec![of(&lost_in_clocks(base.value, times.clock_error_ns))];
    }
    let slow = times.slow(*base);
    let rate = |rate: f64| Quantity::Rate.format(rate);
    let least = format!("{} at {}", fmt_ns(base.value), rate(*lowest));
    let (sentence, found) = match (slow.at, behind.at) {
        (_, Position::Before) => {
            let text = format!(
                "the knee lies below {}, the lowest rate measured: less than {:.0} % of it arrives \
                 in time; measure lower rates",
                rate(*lowest),
                SERVED * 100.0
            );
            (text, behind)
        }
        (Position::Beyond, Position::Beyond) => {
            let text = format!(
                "no knee up to {}: the median from the intended start stays below {KNEE} x \
                 {least}, and {:.0} % or more of the rate arrives",
                rate(*highest),
                SERVED * 100.0
            );
            (text + &clocks(&times, &slow), slow)
        }
        (_, Position::At(y)) if !matches!(slow.at, Position::At(x) if x <= y) => {
            let text = format!(
                "the knee is at {}: there less than {:.0} % of the rate begins to arrive, while \
                 the median from the intended start is still below {KNEE} x {least}",
                rate(y),
                SERVED * 100.0
            );
            (text + &clocks(&times, &slow), behind)
        }
        _ => {
            let at = if let Position::At(x) = slow.at { x } else { *lowest };
            (slow_knee(&rate(at), &least) + &clocks(&times, &slow), slow)
        }
    };
    vec![placed(of(&sentence), found.at, found.range, (*lowest, *highest))]
}

/// The rate from which on the achieved rate is below the offered one. This needs no clock.
fn behind(curve: &Curve) -> Crossing {
    let paced = curve.points.iter().filter(|(rate, _)| *rate > 0.0);
    let pairs = paced.filter_map(|(rate, points)| {
        let (achieved, offered) = (rate_of(points, "achieved")?, rate_of(points, "offered")?);
        let (a, b) = (Estimate::exactly(achieved), Estimate::exactly(SERVED * offered));
        Some(PairedPoint { x: *rate, a, b })
    });
    crossing(&pairs.collect::<Vec<_>>()).unwrap_or(NOWHERE)
}

/// The median of a rate over the runs.
fn rate_of(points: &[&Point], label: &str) -> Option<f64> {
    let figures = points.iter().flat_map(|p| &p.figures);
    let of = figures.filter(|f| f.quantity == Quantity::Rate && f.label == label);
    median(of.map(|f| f.value))
}

fn slow_knee(at: &str, least: &str) -> String {
    format!("the knee is at {at}: there the median from the intended start is {KNEE} x {least}")
}

/// The uncertainty from the clocks of two hosts; empty if one clock took all times.
fn clocks(times: &Times, slow: &Crossing) -> String {
    if times.clock_error_ns == 0.0 {
        return String::new();
    }
    let rate = |rate: f64| Quantity::Rate.format(rate);
    let span = match slow.range {
        (Position::At(low), Position::At(high)) => {
            format!("it is between {} and {}", rate(low), rate(high))
        }
        (Position::At(low), _) => format!("it is above {}", rate(low)),
        (Position::Before, Position::At(high)) => format!("it is below {}", rate(high)),
        (Position::Before, _) => "it may be at any rate".to_owned(),
        // No clock error of that size produces a knee.
        (Position::Beyond, _) => return String::new(),
    };
    format!(
        "; the clocks of the two hosts may be off by {}, by which {span}; ping --rate needs one \
         clock",
        fmt_ns(times.clock_error_ns)
    )
}

fn lost_in_clocks(base_ns: f64, error_ns: f64) -> String {
    format!(
        "the knee cannot be seen: the median from the intended start at the lowest rate, {}, is \
         not more than the clocks of the two hosts may be off by, {}; measure round trips (ping \
         --rate), which need one clock",
        fmt_ns(base_ns),
        fmt_ns(error_ns)
    )
}

#[cfg(test)]
mod tests {
    use rdmalab_measure::Outcome;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{self, all, around, of};

    /// Times as in a queue: 10 us / (1 - rate / 1M). The clocks of its two ends may differ by
    /// `clock_error_ns`.
    fn at(rate: f64, clock_error_ns: f64) -> (Value, Outcome) {
        let mut outcome = Outcome::default();
        let achieved = rate.min(1e6);
        let time = if rate < 1e6 { 10e3 / (1.0 - rate / 1e6) } else { 1e7 };
        outcome.push_series(Quantity::OneWay, "from the intended start", 0, around(time));
        outcome.push_figure(Quantity::Rate, "offered", rate);
        outcome.push_figure(Quantity::Rate, "achieved", achieved);
        if clock_error_ns > 0.0 {
            outcome.push_fact("clock_error_ns", clock_error_ns.to_string());
        }
        (json!({ "rate_per_s": rate as u64 }), outcome)
    }

    fn rates() -> impl Iterator<Item = f64> {
        (0..100).map(|i| 1e4 + 1e4 * f64::from(i))
    }

    #[test]
    fn the_knee_of_a_queue() {
        let of = |rates: &[f64]| {
            of("oneway", rates.iter().map(|rate| at(*rate, 0.0)).collect()).join("")
        };
        // Twice the time at the lowest rate, 10 us / 0.99: at 1 - 0.99 / 2.
        let text = of(&rates().collect::<Vec<_>>());
        assert!(text.starts_with("the knee is at 505 k/s: there the median"), "{text}");
        assert!(!text.contains("clocks"), "{text}");
        let none = of(&[1e4, 2e4, 3e4]);
        assert!(none.starts_with("no knee up to 30.0 k/s"), "{none}");
        assert!(of(&[2e6, 3e6, 4e6]).contains("lies below 2.00 M/s"), "{}", of(&[2e6, 3e6, 4e6]));
        assert!(of(&[1e4]).contains("--rate sweep"));
        // An experiment whose requester alone has times, from its completions.
        let by_completions = |rate: f64| {
            let (parameters, mut outcome) = at(rate, 0.0);
            outcome.series.iter_mut().for_each(|s| s.quantity = Quantity::CompletionTime);
            (parameters, outcome)
        };
        let blast = testing::of("blast", rates().map(by_completions).collect()).join("");
        assert!(blast.starts_with("the knee is at 505 k/s"), "{blast}");
        // Without a rate there is no intended start.
        assert_eq!(of(&[0.0]), "");
    }

    #[test]
    fn clocks_of_two_hosts_move_the_knee_and_that_is_said() {
        let found = |error_ns: f64, rates: &mut dyn Iterator<Item = f64>| {
            all("oneway", rates.map(|rate| at(rate, error_ns)).collect()).remove(0)
        };
        // Between the times 2 x 10.1 us -+ 5 us: at 1 - 1 / 1.52 and 1 - 1 / 2.52.
        let one = found(5e3, &mut rates());
        assert!(one.sentence.contains("off by 5.00 us, by which it is between"), "{one:?}");
        let (low, high) = (one.low.unwrap(), one.high.unwrap());
        assert!((330e3..345e3).contains(&low) && (595e3..610e3).contains(&high), "{one:?}");
        // The clock error is larger than the time at the lowest rate: no result.
        let none = found(20e3, &mut rates());
        assert_eq!((none.value, none.low, none.high), (None, None, None));
        assert!(none.sentence.starts_with("the knee cannot be seen"), "{none:?}");
        assert!(none.sentence.contains("20.0 us; measure round trips"), "{none:?}");
        // Comparing the achieved rate with the offered one needs no clock.
        let below = found(20e3, &mut [2e6, 3e6, 4e6].into_iter());
        assert!(below.sentence.contains("lies below 2.00 M/s"), "{below:?}");
        let far = found(5e3, &mut [1e4, 2e4, 3e4].into_iter());
        assert!(far.sentence.starts_with("no knee") && !far.sentence.contains("clock"), "{far:?}");
    }
}
