//! What a curve of measured medians says: where one falls below another, and where it leaves a
//! line. Between two measured places a curve is taken to be a line on logarithmic axes.

use crate::stats::Interval;

/// A median and the interval that it is known by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// The median.
    pub value: f64,
    /// Where it lies with the confidence asked for; `None` where there are too few samples.
    pub interval: Option<Interval>,
}

impl Known {
    /// A number without doubt.
    #[must_use]
    pub const fn exactly(value: f64) -> Self {
        Self { value, interval: None }
    }

    /// So many times as much.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let scaled = |i: Interval| Interval { low: i.low * factor, high: i.high * factor, ..i };
        Self { value: self.value * factor, interval: self.interval.map(scaled) }
    }

    fn low(self) -> f64 {
        self.interval.map_or(self.value, |i| i.low)
    }

    fn high(self) -> f64 {
        self.interval.map_or(self.value, |i| i.high)
    }
}

/// Two curves at one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The place, above 0.
    pub x: f64,
    /// One curve.
    pub a: Known,
    /// The other one.
    pub b: Known,
}

/// A place among those measured, or beyond them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// Before the first one, or at it.
    Before,
    /// Between two, interpolated.
    At(f64),
    /// Behind the last one, if anywhere.
    Behind,
}

/// From where on curve `a` stays below curve `b`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// By the medians.
    pub at: Place,
    /// By the ends of the intervals that make it earliest, and latest.
    pub range: (Place, Place),
}

/// Finds it. Needs places in ascending order; `None` for less than two.
#[must_use]
pub fn crossing(pairs: &[Pair]) -> Option<Crossing> {
    if pairs.len() < 2 {
        return None;
    }
    let by = |a: fn(Known) -> f64, b: fn(Known) -> f64| {
        let points: Vec<(f64, f64)> =
            pairs.iter().map(|p| (p.x.ln(), (a(p.a) / b(p.b)).ln())).collect();
        below_from(&points)
    };
    Some(Crossing {
        at: by(|k| k.value, |k| k.value),
        range: (by(Known::low, Known::high), by(Known::high, Known::low)),
    })
}

/// From where on a curve over ln x stays below 0; equal counts as below.
fn below_from(points: &[(f64, f64)]) -> Place {
    let Some(last_above) = points.iter().rposition(|(_, y)| *y > 0.0) else {
        return Place::Before;
    };
    let Some(&(x1, y1)) = points.get(last_above + 1) else { return Place::Behind };
    let (x0, y0) = points[last_above];
    Place::At((x0 + (x1 - x0) * y0 / (y0 - y1)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(value: f64, spread: f64) -> Known {
        let interval = Interval {
            low: value * (1.0 - spread),
            high: value * (1.0 + spread),
            confidence: 0.95,
        };
        Known { value, interval: Some(interval) }
    }

    /// A cost of 1000 + 0.1 x against one of 0.5 x: equal at 2500.
    fn pairs(places: &[f64], spread: f64) -> Vec<Pair> {
        let pair =
            |x: &f64| Pair { x: *x, a: known(1000.0 + 0.1 * x, spread), b: known(0.5 * x, spread) };
        places.iter().map(pair).collect()
    }

    #[test]
    fn two_lines_cross_where_they_are_equal() {
        let places: Vec<f64> = (0..40).map(|i| 1000.0 * 1.05f64.powi(i)).collect();
        let found = crossing(&pairs(&places, 0.02)).unwrap();
        let Place::At(at) = found.at else { panic!("{found:?}") };
        assert!((at - 2500.0).abs() < 10.0, "{at}");
        let (Place::At(low), Place::At(high)) = found.range else { panic!("{found:?}") };
        // (1000 + 0.1 x) (1 -+ s) = 0.5 x (1 +- s), solved for x.
        let exact = |s: f64| 1000.0 * (1.0 - s) / (0.5 * (1.0 + s) - 0.1 * (1.0 - s));
        assert!((low - exact(0.02)).abs() < 10.0, "{low}");
        assert!((high - exact(-0.02)).abs() < 10.0, "{high}");
    }

    #[test]
    fn a_crossing_beyond_what_was_measured_is_not_made_up() {
        let of = |places: &[f64]| crossing(&pairs(places, 0.0)).unwrap().at;
        assert_eq!(of(&[100.0, 200.0, 2400.0]), Place::Behind);
        assert_eq!(of(&[2600.0, 5000.0]), Place::Before);
        assert!(matches!(of(&[2400.0, 2600.0]), Place::At(x) if (2480.0..2520.0).contains(&x)));
        assert_eq!(crossing(&pairs(&[1.0], 0.0)), None);
        // The end of an interval may lie beyond where the medians do not.
        let found = crossing(&pairs(&[2000.0, 2600.0], 0.2)).unwrap();
        assert_eq!((found.range.0, found.range.1), (Place::Before, Place::Behind));
    }

    #[test]
    fn it_is_the_last_crossing_that_counts() {
        let of = |y: [f64; 5]| {
            let points: Vec<(f64, f64)> = (0u8..).map(f64::from).zip(y).collect();
            below_from(&points)
        };
        assert_eq!(of([1.0, -1.0, 1.0, -1.0, -2.0]), Place::At(2.5f64.exp()));
        assert_eq!(of([-1.0, 0.0, -1.0, -1.0, -1.0]), Place::Before);
        assert_eq!(of([-1.0, -1.0, -1.0, -1.0, 1.0]), Place::Behind);
    }
}
