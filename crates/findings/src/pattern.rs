//! Patterns of round-trip times as numbers: the period and its peaks.

use std::collections::BTreeSet;

use rdmalab_measure::Quantity;
use rdmalab_measure::pattern::{Pattern, find};
use rdmalab_record::{Finding, Number, Point, Record};

use crate::curve::{prefix, varying};

/// Most groups of peaks that a finding has numbers for.
const GROUPS: usize = 3;
/// Peaks belong to one group if their heights differ by at most this share.
const ALIKE: f64 = 0.2;

/// The period of each series that has one. `names` are the parameters that vary.
pub fn all(record: &Record, names: &BTreeSet<&str>) -> Vec<Finding> {
    let mut found = Vec::new();
    for point in record.whole_points() {
        let parameters = varying(names, point, None);
        for figure in point.figures.iter().filter(|f| f.quantity == Quantity::Period) {
            let name = format!("pattern_{}", figure.label.replace(' ', "_"));
            let Some(sentence) = point.fact(&name) else { continue };
            let whole = of_samples(record, point, &figure.label, figure.value);
            found.push(Finding {
                name: "pattern".to_owned(),
                label: figure.label.clone(),
                unit: "messages".to_owned(),
                value: Some(figure.value),
                parameters: parameters.clone(),
                points: vec![point.number],
                numbers: whole.as_ref().map(numbers).unwrap_or_default(),
                sentence: format!("{}{}: {sentence}", prefix(&parameters), figure.label),
                ..Finding::default()
            });
        }
    }
    found
}

/// A record keeps only the period of a pattern; the rest is computed again from its samples.
fn of_samples(record: &Record, point: &Point, label: &str, period: f64) -> Option<Pattern> {
    let series = point.series(Quantity::RoundTrip, label)?;
    let samples = record.samples(series).ok()?;
    let warm_up = usize::try_from(series.summary.warm_up).ok()?;
    let pattern = find(samples.get(warm_up..)?, warm_up)?;
    (pattern.period as f64 == period).then_some(pattern)
}

fn numbers(pattern: &Pattern) -> Vec<Number> {
    let chance = Some(pattern.false_alarm);
    let mut all = vec![
        // The value is an upper bound, see `Pattern::false_alarm`.
        Number { name: "chance_share".to_owned(), value: chance, low: Some(0.0), high: chance },
        number("base_ns", pattern.base),
    ];
    for (i, (heights, mut places)) in groups(pattern).into_iter().take(GROUPS).enumerate() {
        places.sort_unstable();
        // The median of the group; for an even number, the higher of the middle two.
        let height = heights[(heights.len() - 1) / 2];
        let name = |what: &str| format!("peak_{}_{what}", i + 1);
        // People count the messages of a period from 1.
        let end = |place: Option<&usize>| place.map(|place| *place as f64 + 1.0);
        let (low, high) = (end(places.first()), end(places.last()));
        all.push(number(&name("ns"), pattern.base + height));
        all.push(number(&name("height_ns"), height));
        all.push(Number { name: name("at_messages"), value: high, low, high });
        all.push(number(&name("places_messages"), places.len() as f64));
    }
    all
}

fn number(name: &str, value: f64) -> Number {
    Number { name: name.to_owned(), value: Some(value), low: None, high: None }
}

/// Groups of peaks with similar heights, the highest group first. Dips are left out.
fn groups(pattern: &Pattern) -> Vec<(Vec<f64>, Vec<usize>)> {
    let mut groups: Vec<(Vec<f64>, Vec<usize>)> = Vec::new();
    for peak in pattern.peaks.iter().filter(|peak| peak.height > 0.0) {
        let is_alike = |(heights, _): &&mut (Vec<f64>, Vec<usize>)| {
            heights[0] - peak.height <= ALIKE * heights[0]
        };
        match groups.iter_mut().find(is_alike) {
            Some((heights, places)) => {
                heights.push(peak.height);
                places.push(peak.place);
            }
            None => groups.push((vec![peak.height], vec![peak.place])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use rdmalab_measure::{Outcome, pattern};
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::all;

    fn number(finding: &Finding, name: &str) -> Number {
        let found = finding.numbers.iter().find(|number| number.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {:?}", finding.numbers)).clone()
    }

    /// The outcome that `recvq` records for such a series.
    fn point(depth: u32, samples: Vec<f64>) -> (Value, Outcome) {
        let mut outcome = Outcome::default();
        let found = pattern::find(&samples, 0);
        outcome.push_series(Quantity::RoundTrip, "rank 0", 0, samples);
        let text = found.as_ref().map_or("none".to_owned(), |p| format!("every {}", p.period));
        if let Some(found) = found {
            outcome.push_figure(Quantity::Period, "rank 0", found.period as f64);
        }
        outcome.push_fact("pattern_rank_0", text);
        (json!({ "rx_depth": depth }), outcome)
    }

    /// Noise of a few per cent, without a period.
    fn noise(i: u32) -> f64 {
        (rdmalab_random::nth(0, i.into()) >> 40) as f64 / 16_777_216.0 * 60.0
    }

    #[test]
    fn a_pattern_has_its_peaks_as_numbers() {
        // The period of a shared receive queue of 32 requests in mordkovich2013.
        let queue = |i: u32| match i % 32 {
            30 | 31 => 4_400.0,
            14 | 15 => 3_850.0,
            _ => 3_150.0,
        };
        let samples = (0..4000).map(|i| queue(i) + noise(i)).collect();
        let calm = (0..4000).map(|i| 3_150.0 + noise(i)).collect();
        let found = all("recvq", vec![point(16, calm), point(32, samples)]);
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!(one.full_name(), "pattern[rank 0]");
        assert_eq!((one.value, one.unit.as_str()), (Some(32.0), "messages"));
        assert_eq!(one.points, [1]);
        assert_eq!(one.sentence, "rx_depth 32: rank 0: every 32");
        let near = |name: &str, wanted: f64| {
            let value = number(one, name).value.unwrap();
            assert!((value - wanted).abs() < 25.0, "{name}: {value}");
        };
        near("base_ns", 3_180.0);
        near("peak_1_ns", 4_430.0);
        near("peak_2_ns", 3_880.0);
        near("peak_2_height_ns", 700.0);
        let at = |name: &str| {
            let found = number(one, name);
            (found.low, found.high, found.value)
        };
        assert_eq!(at("peak_1_at_messages"), (Some(31.0), Some(32.0), Some(32.0)));
        assert_eq!(at("peak_2_at_messages"), (Some(15.0), Some(16.0), Some(16.0)));
        assert_eq!(number(one, "peak_1_places_messages").value, Some(2.0));
        let chance = number(one, "chance_share");
        assert!(chance.value.unwrap() < 1e-50 && chance.high == chance.value, "{chance:?}");
    }

    #[test]
    fn without_its_samples_a_pattern_is_a_period() {
        let mut outcome = Outcome::default();
        outcome.push_figure(Quantity::Period, "rank 1", 16.0);
        outcome.push_fact("pattern_rank_1", "every 16: +1 us at 3");
        let found = all("recvq", vec![(json!({ "rx_depth": 16 }), outcome)]);
        assert_eq!((found[0].value, found[0].numbers.len()), (Some(16.0), 0));
        assert_eq!(found[0].sentence, "rank 1: every 16: +1 us at 3");
    }
}
