//! Curves of measured medians: where one curve falls below another. Between two measured points a
//! curve is taken to be a line on logarithmic axes.

use crate::stats::Estimate;

/// Two curves at one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedPoint {
    /// The place, above 0.
    pub x: f64,
    /// One curve.
    pub a: Estimate,
    /// The other one.
    pub b: Estimate,
}

/// A place among those measured, or beyond them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Position {
    /// Before the first one, or at it.
    Before,
    /// Between two, interpolated.
    At(f64),
    /// Beyond the last one, if anywhere.
    Beyond,
}

/// From where on curve `a` stays below curve `b`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// By the medians.
    pub at: Position,
    /// By the ends of the intervals that make it earliest, and latest.
    pub range: (Position, Position),
}

/// Finds where curve `a` falls below curve `b` for good. Needs `x` in ascending order; `None` for
/// fewer than two points.
#[must_use]
pub fn crossing(pairs: &[PairedPoint]) -> Option<Crossing> {
    if pairs.len() < 2 {
        return None;
    }
    let by = |a: fn(Estimate) -> f64, b: fn(Estimate) -> f64| {
        let points: Vec<(f64, f64)> =
            pairs.iter().map(|p| (p.x.ln(), (a(p.a) / b(p.b)).ln())).collect();
        below_from(&points)
    };
    Some(Crossing { at: by(|k| k.value, |k| k.value), range: (by(low, high), by(high, low)) })
}

fn low(of: Estimate) -> f64 {
    of.interval.map_or(of.value, |i| i.low)
}

fn high(of: Estimate) -> f64 {
    of.interval.map_or(of.value, |i| i.high)
}

/// From where on a curve over ln x stays below 0; equal counts as below.
fn below_from(points: &[(f64, f64)]) -> Position {
    let Some(last_above) = points.iter().rposition(|(_, y)| *y > 0.0) else {
        return Position::Before;
    };
    let Some(&(x1, y1)) = points.get(last_above + 1) else { return Position::Beyond };
    let (x0, y0) = points[last_above];
    Position::At((x0 + (x1 - x0) * y0 / (y0 - y1)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;

    fn known(value: f64, spread: f64) -> Estimate {
        let interval = Interval {
            low: value * (1.0 - spread),
            high: value * (1.0 + spread),
            confidence: 0.95,
        };
        Estimate { value, interval: Some(interval) }
    }

    /// A cost of 1000 + 0.1 x against one of 0.5 x: equal at 2500.
    fn pairs(places: &[f64], spread: f64) -> Vec<PairedPoint> {
        let pair = |x: &f64| PairedPoint {
            x: *x,
            a: known(1000.0 + 0.1 * x, spread),
            b: known(0.5 * x, spread),
        };
        places.iter().map(pair).collect()
    }

    #[test]
    fn two_lines_cross_where_they_are_equal() {
        let places: Vec<f64> = (0..40).map(|i| 1000.0 * 1.05f64.powi(i)).collect();
        let found = crossing(&pairs(&places, 0.02)).unwrap();
        let Position::At(at) = found.at else { panic!("{found:?}") };
        assert!((at - 2500.0).abs() < 10.0, "{at}");
        let (Position::At(low), Position::At(high)) = found.range else { panic!("{found:?}") };
        // (1000 + 0.1 x) (1 -+ s) = 0.5 x (1 +- s), solved for x.
        let exact = |s: f64| 1000.0 * (1.0 - s) / (0.5 * (1.0 + s) - 0.1 * (1.0 - s));
        assert!((low - exact(0.02)).abs() < 10.0, "{low}");
        assert!((high - exact(-0.02)).abs() < 10.0, "{high}");
    }

    #[test]
    fn a_crossing_beyond_what_was_measured_is_not_made_up() {
        let of = |places: &[f64]| crossing(&pairs(places, 0.0)).unwrap().at;
        assert_eq!(of(&[100.0, 200.0, 2400.0]), Position::Beyond);
        assert_eq!(of(&[2600.0, 5000.0]), Position::Before);
        assert!(matches!(of(&[2400.0, 2600.0]), Position::At(x) if (2480.0..2520.0).contains(&x)));
        assert_eq!(crossing(&pairs(&[1.0], 0.0)), None);
        // The end of an interval may lie beyond where the medians do not.
        let found = crossing(&pairs(&[2000.0, 2600.0], 0.2)).unwrap();
        assert_eq!((found.range.0, found.range.1), (Position::Before, Position::Beyond));
    }

    #[test]
    fn it_is_the_last_crossing_that_counts() {
        let of = |y: [f64; 5]| {
            let points: Vec<(f64, f64)> = (0u8..).map(f64::from).zip(y).collect();
            below_from(&points)
        };
        assert_eq!(of([1.0, -1.0, 1.0, -1.0, -2.0]), Position::At(2.5f64.exp()));
        assert_eq!(of([-1.0, 0.0, -1.0, -1.0, -1.0]), Position::Before);
        assert_eq!(of([-1.0, -1.0, -1.0, -1.0, 1.0]), Position::Beyond);
    }
}
