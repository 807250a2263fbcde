//! Axes: their ends, and readable ticks.

/// Most ticks of an axis: more would overlap.
const MAX_TICKS: usize = 7;

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The quantity and its unit.
    pub label: String,
    /// Whether it is logarithmic.
    pub is_log: bool,
    /// Its ends.
    pub ends: (f64, f64),
    /// The positions of the ticks and their texts.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// The same axis with these ends, without the ticks outside them.
    #[must_use]
    pub fn between(self, ends: (f64, f64)) -> Self {
        let (low, high) = ends;
        let hair = (high - low).abs() * 1e-9;
        let is_in = |value: &f64| (low - hair..=high + hair).contains(value);
        let ticks = self.ticks.into_iter().filter(|(v, _)| is_in(v)).collect();
        Self { ends, ticks, ..self }
    }

    /// Whether a value lies between the ends.
    pub(super) fn holds(&self, value: f64) -> bool {
        let (low, high) = self.ends;
        let hair = (high - low).abs() * 1e-9;
        (low - hair..=high + hair).contains(&value)
    }

    /// The position of a value as a share of the axis, 0 ..= 1; values outside are at the ends.
    pub(super) fn part(&self, value: f64) -> f64 {
        let (low, high) = self.ends;
        let part = if self.is_log {
            (value / low).ln() / (high / low).ln()
        } else {
            (value - low) / (high - low)
        };
        if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.5 }
    }
}

/// Ticks at round numbers, about `wanted` of them, and ends that hold all values.
pub fn linear_axis(
    label: &str,
    (low, high): (f64, f64),
    wanted: usize,
    text: impl Fn(f64) -> String,
) -> Axis {
    let span = if high > low { high - low } else { high.abs().max(1.0) };
    let rough = span / wanted.max(1) as f64;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * magnitude);
    let step = step.into_iter().find(|s| *s >= rough * 0.999).unwrap_or(10.0 * magnitude);
    let (first, last) = ((low / step).floor(), ((low + span) / step).ceil());
    let count = (last - first) as usize;
    let ticks = (0..=count).map(|i| (first + i as f64) * step).map(|v| (v, text(v))).collect();
    let ends = (first * step, last * step);
    Axis { label: label.to_owned(), is_log: false, ends, ticks }
}

/// Ticks at powers of ten, and at 2 and 5 between them if there are few. Values above zero only.
pub fn log_axis(label: &str, (low, high): (f64, f64), text: impl Fn(f64) -> String) -> Axis {
    let from = low.log10().floor() as i32;
    let to = high.log10().ceil() as i32;
    let hair = 1e-9;
    let within = |factors: &[f64]| -> Vec<f64> {
        let all: Vec<f64> =
            (from..=to).flat_map(|e| factors.iter().map(move |f| f * 10f64.powi(e))).collect();
        // The ends are ticks, so that they can be read.
        let start = all.iter().rposition(|t| *t <= low * (1.0 + hair)).unwrap_or(0);
        let stop = all.iter().position(|t| *t >= high * (1.0 - hair)).unwrap_or(all.len() - 1);
        all[start..=stop.max(start)].to_vec()
    };
    let choices: [&[f64]; 3] = [&[1.0, 2.0, 3.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0, 3.0]];
    let kept = choices.into_iter().map(within).find(|t| t.len() <= MAX_TICKS);
    let kept = kept.unwrap_or_else(|| within(&[1.0]));
    let every = kept.len().div_ceil(MAX_TICKS).max(1);
    let ticks = kept.iter().step_by(every).map(|t| (*t, text(*t))).collect();
    let ends = (kept[0], kept[kept.len() - 1].max(kept[0] * 1.01));
    Axis { label: label.to_owned(), is_log: true, ends, ticks }
}

/// From this ratio of its ends on, an axis is logarithmic.
const WIDE_RATIO: f64 = 5.0;

/// An axis that ends at the values: logarithmic (its label says so) if their ratio is large.
pub fn value_axis(label: &str, (low, high): (f64, f64), text: impl Fn(f64) -> String) -> Axis {
    let axis = if is_wide((low, high)) {
        log_axis(&format!("{label} (log)"), (low, high), text)
    } else {
        linear_axis(label, (low, high), 5, text)
    };
    axis.between((low, if high > low { high } else { axis_end(low) }))
}

/// The least part of an axis that our own values keep when it is extended to published ones.
const OWN_PART: f64 = 0.4;

/// Extends the ends `own` to other values, as long as the own ones keep enough room; `is_log`
/// returns whether an axis with given ends is logarithmic.
pub fn reaching(
    own: (f64, f64),
    others: impl Iterator<Item = f64>,
    is_log: impl Fn((f64, f64)) -> bool,
) -> (f64, f64) {
    let mut others: Vec<f64> = others.filter(|v| v.is_finite()).collect();
    // The nearest value first, so that a far one does not prevent it from being included.
    let far = |v: &f64| (own.0 - v).max(v - own.1);
    others.sort_by(|a, b| far(a).total_cmp(&far(b)));
    others.into_iter().fold(own, |ends, v| {
        let wider = (ends.0.min(v), ends.1.max(v));
        let (long, whole) = match is_log(wider) {
            true => ((own.1 / own.0).ln(), (wider.1 / wider.0).ln()),
            false => (own.1 - own.0, wider.1 - wider.0),
        };
        if long >= OWN_PART * whole { wider } else { ends }
    })
}

/// Whether [`value_axis`] is logarithmic between these ends.
pub fn is_wide((low, high): (f64, f64)) -> bool {
    low > 0.0 && high > WIDE_RATIO * low
}

/// The upper end of an axis with one value only.
fn axis_end(value: f64) -> f64 {
    value + value.abs().max(1.0) * 0.01
}

/// Ticks at powers of two, for sizes and depths; the ends are those of the values.
pub fn binary_axis(label: &str, (low, high): (f64, f64), text: impl Fn(f64) -> String) -> Axis {
    let (from, to) = (low.log2().ceil() as i32, high.log2().floor() as i32);
    let every = ((to - from) as f64 / 5.0).ceil().max(1.0) as usize;
    let ticks = (from..=to).step_by(every).map(|e| 2f64.powi(e)).map(|v| (v, text(v))).collect();
    Axis { label: label.to_owned(), is_log: true, ends: (low, high.max(low * 1.01)), ticks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(axis: &Axis) -> Vec<f64> {
        axis.ticks.iter().map(|t| (t.0 * 1e6).round() / 1e6).collect()
    }

    #[test]
    fn ticks_are_round_and_hold_the_values() {
        let axis = linear_axis("", (0.0, 937.0), 5, |v| v.to_string());
        assert_eq!(values(&axis), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
        let axis = log_axis("", (120.0, 45_000.0), |v| v.to_string());
        assert_eq!(values(&axis), [100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5]);
        let axis = log_axis("", (2.0, 3e9), |v| v.to_string());
        assert!(axis.ticks.len() <= MAX_TICKS, "{axis:?}");
        let axis = log_axis("", (1.0, 8.0), |v| v.to_string());
        assert_eq!(values(&axis), [1.0, 2.0, 3.0, 5.0, 7.0, 10.0]);
        let axis = binary_axis("", (8.0, 32768.0), |v| v.to_string());
        assert_eq!(values(&axis), [8.0, 64.0, 512.0, 4096.0, 32768.0]);
    }

    #[test]
    fn others_have_a_place_while_the_own_values_have_room() {
        let linear = |others: &[f64]| reaching((10.0, 20.0), others.iter().copied(), |_| false);
        assert_eq!(linear(&[]), (10.0, 20.0));
        assert_eq!(linear(&[15.0, 22.0, 8.0]), (8.0, 22.0));
        assert_eq!(linear(&[35.0, 1000.0, f64::NAN]), (10.0, 35.0), "25 are more than twice 10");
        assert_eq!(linear(&[36.0, 5.0]), (5.0, 20.0), "the nearer one");
        let log = |other| reaching((10.0, 100.0), std::iter::once(other), is_wide);
        assert_eq!((log(300.0), log(1e5)), ((10.0, 300.0), (10.0, 100.0)));
        // One value makes the axis logarithmic; the other one is below 0 and keeps it linear.
        assert_eq!(reaching((10.0, 40.0), std::iter::once(90.0), is_wide), (10.0, 90.0));
        assert_eq!(reaching((10.0, 40.0), std::iter::once(-5.0), is_wide), (-5.0, 40.0));
        assert_eq!(reaching((7.0, 7.0), std::iter::once(8.0), is_wide), (7.0, 7.0));
    }

    #[test]
    fn one_value_has_an_axis_too() {
        for axis in [
            linear_axis("", (5.0, 5.0), 5, |v| v.to_string()),
            linear_axis("", (0.0, 0.0), 5, |v| v.to_string()),
            log_axis("", (10.0, 10.0), |v| v.to_string()),
            binary_axis("", (64.0, 64.0), |v| v.to_string()),
        ] {
            assert!(axis.ends.1 > axis.ends.0 && !axis.ticks.is_empty(), "{axis:?}");
            assert!((0.0..=1.0).contains(&axis.part(axis.ends.0)));
        }
    }
}
