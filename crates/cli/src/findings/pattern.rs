//! The patterns of round trips, as numbers: the period, and its peaks.

use rdmalab_measure::Quantity;
use rdmalab_measure::pattern::{Pattern, find};
use rdmalab_record::{Finding, Number, Object, Point, Record};

use super::{varies, words};

/// Peaks of about one height that have numbers.
const GROUPS: usize = 3;
/// Heights that differ by less than this share are about one.
const ALIKE: f64 = 0.2;

/// The period of each series that has one.
pub fn all(record: &Record) -> Vec<Finding> {
    let mut found = Vec::new();
    for point in record.whole_points() {
        let own = point.parameters.iter().filter(|(name, _)| varies(record, name));
        let place: Object = own.map(|(name, value)| (name.clone(), value.clone())).collect();
        for figure in point.figures.iter().filter(|f| f.quantity == Quantity::Period) {
            let name = format!("pattern_{}", figure.label.replace(' ', "_"));
            let Some(sentence) = point.fact(&name) else { continue };
            let whole = again(record, point, &figure.label, figure.value);
            found.push(Finding {
                name: "pattern".to_owned(),
                label: figure.label.clone(),
                unit: "messages".to_owned(),
                value: Some(figure.value),
                parameters: place.clone(),
                points: vec![point.number],
                numbers: whole.as_ref().map(numbers).unwrap_or_default(),
                sentence: format!("{}{}: {sentence}", words(&place), figure.label),
                ..Finding::default()
            });
        }
    }
    found
}

/// A record has the pattern's period only, and the samples from which all of it follows again.
fn again(record: &Record, point: &Point, label: &str, period: f64) -> Option<Pattern> {
    let series = point.series(Quantity::RoundTrip, label)?;
    let samples = record.samples(series).ok()?;
    let warm_up = usize::try_from(series.summary.warm_up).ok()?;
    let pattern = find(samples.get(warm_up..)?, warm_up)?;
    (pattern.period as f64 == period).then_some(pattern)
}

fn numbers(pattern: &Pattern) -> Vec<Number> {
    let chance = Some(pattern.false_alarm);
    let mut all = vec![
        // A bound by itself, see `Pattern::false_alarm`.
        Number { name: "chance_share".to_owned(), value: chance, low: Some(0.0), high: chance },
        number("base_ns", pattern.base),
    ];
    for (i, (heights, mut places)) in groups(pattern).into_iter().take(GROUPS).enumerate() {
        places.sort_unstable();
        // Of an odd number the middle one; of two the higher one: peaks are sorted.
        let height = heights[(heights.len() - 1) / 2];
        let name = |what: &str| format!("peak_{}_{what}", i + 1);
        // The first message of a period is its first.
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

/// Peaks of about one height together, the highest first; what is faster than the rest is none.
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
    use std::time::{Duration, SystemTime};

    use rdmalab_measure::{Outcome, pattern};
    use rdmalab_record::{Device, DeviceKind, Environment, Header, PointId, Writer};
    use rdmalab_study::{JudgedClaim, Study, SweepState, Verdict, evaluate};
    use serde_json::{Value, json};

    use super::super::filled;
    use super::super::tests::all;
    use super::*;

    fn number(finding: &Finding, name: &str) -> Number {
        let found = finding.numbers.iter().find(|number| number.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {:?}", finding.numbers)).clone()
    }

    /// What `recvq` keeps of such a series.
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

    /// Noise of some hundredths, without a period: SplitMix64.
    fn noise(i: u32) -> f64 {
        let mixed = (u64::from(i) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 40) as f64 / 16_777_216.0 * 60.0
    }

    #[test]
    fn a_pattern_has_its_peaks_as_numbers() {
        // As a shared queue of 32 does it in mordkovich2013.
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

    /// Round trips of a run, as the study has them: of fewer, a period of 256 passes for 128.
    const TRIPS: u32 = 10_000;

    /// A round trip of mordkovich2013 by its slides, in ns; of one receive the times have no order.
    fn by_the_slides(queue: &str, depth: u32, i: u32) -> f64 {
        let last = |n: u32, of: u32| i % of >= of - n;
        let ns = match (queue, depth) {
            ("own", 1) if noise(i.wrapping_mul(77)) < 30.0 => 17_000.0,
            ("own", 1) => 12_500.0,
            ("srq", 1) => 5_400.0,
            ("own", 16) if last(3, 16) => 7_200.0,
            ("srq", 16) if last(2, 16) => 4_400.0,
            ("own", 10_000) if last(2, 256) => 5_500.0,
            (_, 10_000) if last(2, 128) => 4_500.0,
            ("srq", 32) if last(2, 32) => 4_400.0,
            ("srq", 32 | 10_000) if last(2, 16) => 3_850.0,
            _ => 3_150.0,
        };
        ns + noise(i) - 30.0
    }

    /// What so many runs of figure `depth` say to the study's claims about it that are of patterns.
    fn verdicts(
        (kind, runs): (DeviceKind, u32),
        trip: fn(&str, u32, u32) -> f64,
    ) -> Vec<(String, Verdict)> {
        let home = tempfile::tempdir().unwrap();
        let header =
            Header::new("recvq", Vec::new(), Device { name: "d".to_owned(), kind, profile: None });
        let mut writer = Writer::create(home.path(), header, &Environment::default()).unwrap();
        let own = [1, 16, 10_000].map(|depth| ("own", depth));
        let shared = [1, 32, 10_000].map(|depth| ("srq", depth));
        for (queue, depth) in own.into_iter().chain(shared) {
            for run in 0..runs {
                let from = run * TRIPS;
                let of = |i: u32| trip(queue, depth, i) + noise(i + from) / 10.0;
                let (_, outcome) = point(depth, (0..TRIPS).map(of).collect());
                let parameters = json!({ "queue": queue, "rx_depth": depth });
                let id = PointId {
                    parameters: parameters.as_object().unwrap().clone(),
                    repetition: run,
                    order_index: writer.points(),
                    started: SystemTime::UNIX_EPOCH,
                    elapsed: Duration::from_secs(1),
                };
                writer.append(&id, &outcome).unwrap();
            }
        }
        let record = filled(Record::open(writer.dir()).unwrap());
        let part = rdmalab_study::SweepResult {
            figure: "depth".to_owned(),
            sweep: String::new(),
            line: Vec::new(),
            state: SweepState::Measured(Box::new(record)),
        };
        let mut studies = Study::shipped().unwrap().into_iter();
        let study = studies.find(|study| study.plan.key == "mordkovich2013").unwrap();
        let is_it = |judged: &JudgedClaim| {
            let left = &judged.claim.left;
            left.finding.is_some() && left.figure.as_deref() == Some("depth")
        };
        let found = evaluate(&study, &[part]).claims.into_iter().filter(is_it);
        found.map(|judged| (judged.claim.key, judged.verdict)).collect()
    }

    #[test]
    fn the_main_result_of_mordkovich_is_judged() {
        let found = verdicts((DeviceKind::System, 6), by_the_slides);
        assert_eq!(found.len(), 16, "{found:?}");
        for (key, verdict) in found {
            assert_eq!(verdict, Verdict::Confirmed(String::new()), "{key}");
        }
        // A queue that has half of the period, and an adapter that has none.
        let half = |queue: &str, depth: u32, i: u32| by_the_slides(queue, depth, 2 * i + 1);
        let refuted = |trip| {
            let found = verdicts((DeviceKind::System, 6), trip).into_iter();
            found.filter(|(_, verdict)| verdict.name() == "refuted").map(|(key, _)| key).collect()
        };
        let keys: Vec<String> = refuted(half);
        for key in ["shared-queue-repeats", "own-queue-repeats", "deep-shared-queue-repeats"] {
            assert!(keys.iter().any(|k| k == key), "{key}: {keys:?}");
        }
        // Two runs tell nothing of what each finds or does not.
        for (key, verdict) in verdicts((DeviceKind::System, 2), by_the_slides) {
            assert_eq!(verdict.name(), "cannot be seen", "{key}: {verdict:?}");
        }
        let calm = |_: &str, _: u32, i: u32| 3_150.0 + noise(i);
        assert_eq!(refuted(calm), ["shared-queue-has-a-pattern"]);
    }

    #[test]
    fn a_soft_device_says_why_its_patterns_say_nothing() {
        for (key, verdict) in verdicts((DeviceKind::Soft, 1), by_the_slides) {
            let Verdict::CannotBeSeen(why) = &verdict else { panic!("{key}: {verdict:?}") };
            assert!(why.starts_with("not on a device of kind soft: its receive queue"), "{why}");
        }
    }
}
