//! What the points of a record say together: where one curve falls below another, from which
//! code on a time-out takes effect, from which load on times rise, what repeats itself. Kept in the
//! record, and shown in all its forms.

mod codes;
mod knee;
mod pattern;

use rdmalab_measure::Quantity;
use rdmalab_measure::curve::{Crossing, PairedPoint, Position, crossing};
use rdmalab_measure::stats::Estimate;
use rdmalab_measure::stats::{self, Interval, RunRatio, Runs};
use rdmalab_record::{Finding, Object, Point, Record};
use serde_json::Value;

/// Points that differ in one parameter only, in its order.
struct Line<'a> {
    /// The parameter.
    x: &'a str,
    /// What they have in common, of what varies.
    place: Object,
    /// The parameter's value, and all its repetitions.
    places: Vec<(f64, Vec<&'a Point>)>,
}

impl Line<'_> {
    /// `memory device: `, or nothing.
    fn words(&self) -> String {
        words(&self.place)
    }

    /// Something that was found in it; the sentence without the words.
    fn finding(&self, name: &str, unit: &str, sentence: &str) -> Finding {
        let points = self.places.iter().flat_map(|(_, points)| points);
        let mut points: Vec<u64> = points.map(|point| point.number).collect();
        points.sort_unstable();
        Finding {
            name: name.to_owned(),
            unit: unit.to_owned(),
            along: Some(self.x.to_owned()),
            parameters: self.place.clone(),
            points,
            sentence: format!("{}{sentence}", self.words()),
            ..Finding::default()
        }
    }
}

fn words(place: &Object) -> String {
    let each: Vec<String> =
        place.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
    if each.is_empty() { String::new() } else { format!("{}: ", each.join(", ")) }
}

/// What there is to find; nothing where the record has nothing to compare.
pub fn findings(record: &Record) -> Vec<Finding> {
    let of = |x: &str, find: fn(&Line) -> Vec<Finding>| -> Vec<Finding> {
        lines(record, x).iter().flat_map(find).collect()
    };
    match record.header.experiment.as_str() {
        "mr" => of("size_bytes", cheaper),
        "timeout" => of("timeout", codes::effective),
        "oneway" | "ping" | "blast" => of("rate_per_s", knee::knee),
        "recvq" => pattern::all(record),
        _ => Vec::new(),
    }
}

/// The record with its findings, also where it was written before they were kept.
pub fn filled(mut record: Record) -> Record {
    if record.findings.is_none() {
        record.findings = Some(findings(&record));
    }
    record
}

fn varies(record: &Record, name: &str) -> bool {
    let mut values = record.whole_points().map(|p| p.parameters.get(name));
    let first = values.next();
    values.any(|value| Some(value) != first)
}

/// The points of a record by all parameters but that one.
fn lines<'a>(record: &'a Record, x: &'a str) -> Vec<Line<'a>> {
    let mut lines: Vec<Line> = Vec::new();
    for point in record.whole_points() {
        let Some(at) = point.parameters.get(x).and_then(Value::as_f64) else { continue };
        let others = point.parameters.iter().filter(|(name, _)| *name != x && varies(record, name));
        let place: Object = others.map(|(name, value)| (name.clone(), value.clone())).collect();
        let known = lines.iter().position(|line| line.place == place);
        let line = match known {
            Some(known) => &mut lines[known],
            None => {
                lines.push(Line { x, place, places: Vec::new() });
                lines.last_mut().expect("it was pushed")
            }
        };
        match line.places.iter_mut().find(|(x, _)| *x == at) {
            Some((_, points)) => points.push(point),
            None => line.places.push((at, vec![point])),
        }
    }
    for line in &mut lines {
        line.places.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The median of each run.
fn medians(points: &[&Point], quantity: Quantity, label: &str) -> Vec<f64> {
    let summaries = points.iter().filter_map(|p| Some(&p.series(quantity, label)?.summary));
    let medians = summaries.filter_map(|s| Some(s.quantile(0.5)?.value));
    medians.filter(|value| value.is_finite()).collect()
}

/// The median of the runs' medians, with the widest of their intervals, and between what the next
/// run may lie, as far as several tell.
fn known(points: &[&Point], quantity: Quantity, label: &str) -> Option<Estimate> {
    let values = medians(points, quantity, label);
    let summaries = points.iter().filter_map(|p| Some(&p.series(quantity, label)?.summary));
    let intervals = summaries.filter_map(|s| s.quantile(0.5)?.interval);
    let between = between_runs(&values);
    let widest = intervals.chain(between).reduce(|mut sum, one| {
        (sum.low, sum.high) = (sum.low.min(one.low), sum.high.max(one.high));
        sum
    });
    Some(Estimate { value: median(values.into_iter())?, interval: widest })
}

/// The interval of a median by what runs differ by, which is positive as they are.
fn between_runs(values: &[f64]) -> Option<Interval> {
    let one = Runs::of_session(&[vec![1.0], vec![1.0]]);
    let each: Vec<Vec<f64>> = values.iter().map(|value| vec![*value]).collect();
    Some(RunRatio::of(&one, &Runs::of_session(&each), 0.5)?.interval(0.95))
}

/// From which size on registering is cheaper than copying.
fn cheaper(line: &Line) -> Vec<Finding> {
    let known = |points, label| known(points, Quantity::CallCost, label);
    let pairs: Vec<PairedPoint> = line
        .places
        .iter()
        .filter_map(|(x, points)| {
            let (a, b) = (known(points, "register + deregister")?, known(points, "copy")?);
            Some(PairedPoint { x: *x, a, b })
        })
        .collect();
    let [first, .., last] = pairs.as_slice() else {
        let advice = "measure more than one --size to see from which on registering pays";
        let is_there = !pairs.is_empty();
        return is_there.then(|| line.finding("crossover", "bytes", advice)).into_iter().collect();
    };
    let (first, last) = (first.x, last.x);
    let Some(Crossing { at, range }) = crossing(&pairs) else { return Vec::new() };
    let size = |bytes: f64| format!("{bytes:.0} bytes");
    let sentence = match at {
        Position::Before => format!(
            "registering and deregistering is cheaper than copying at every size from {} on",
            size(first)
        ),
        Position::Beyond => format!(
            "none in range: copying is cheaper than registering and deregistering up to {}",
            size(last)
        ),
        Position::At(x) => {
            let end = |place, beyond: &str| match place {
                Position::At(x) => size(x),
                _ => beyond.to_owned(),
            };
            format!(
                "registering and deregistering is cheaper than copying from {} on (by the medians' \
                 intervals between {} and {})",
                size(x),
                end(range.0, &format!("less than {}", size(first))),
                end(range.1, &format!("more than {}", size(last)))
            )
        }
    };
    vec![placed(line.finding("crossover", "bytes", &sentence), at, range, (first, last))]
}

/// With the value and the ends of a crossing among what was measured.
fn placed(
    finding: Finding,
    at: Position,
    range: (Position, Position),
    (first, last): (f64, f64),
) -> Finding {
    let exact = |place| match place {
        Position::At(x) => Some(x),
        Position::Before | Position::Beyond => None,
    };
    match at {
        Position::At(x) => {
            Finding { value: Some(x), low: exact(range.0), high: exact(range.1), ..finding }
        }
        Position::Before => Finding { high: Some(first), ..finding },
        Position::Beyond => Finding { low: Some(last), ..finding },
    }
}

/// A time that was measured along a parameter, and is no value of it.
fn timed(finding: Finding, known: Estimate) -> Finding {
    let (low, high) = (known.interval.map(|i| i.low), known.interval.map(|i| i.high));
    Finding { value: Some(known.value), low, high, along: None, ..finding }
}

/// The median of what is a number; `None` when nothing is.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    stats::sort(&mut values);
    (!values.is_empty()).then(|| stats::median(&values))
}

#[cfg(test)]
pub mod tests {
    use std::time::{Duration, SystemTime};

    use rdmalab_measure::Outcome;
    use rdmalab_record::{Device, DeviceKind, Environment, Header, PointId, Writer};
    use serde_json::json;

    use super::*;

    /// The sentences of a record with such points.
    pub fn of(experiment: &str, points: Vec<(Value, Outcome)>) -> Vec<String> {
        all(experiment, points).into_iter().map(|finding| finding.sentence).collect()
    }

    pub fn all(experiment: &str, points: Vec<(Value, Outcome)>) -> Vec<Finding> {
        let home = tempfile::tempdir().unwrap();
        let device = Device { name: "d".to_owned(), kind: DeviceKind::Soft, profile: None };
        let header = Header::new(experiment, Vec::new(), device);
        let mut writer = Writer::create(home.path(), header, &Environment::default()).unwrap();
        for (order, (parameters, outcome)) in points.into_iter().enumerate() {
            let id = PointId {
                parameters: parameters.as_object().unwrap().clone(),
                repetition: 0,
                order_index: order as u64,
                started: SystemTime::UNIX_EPOCH,
                elapsed: Duration::from_secs(1),
            };
            writer.append(&id, &outcome).unwrap();
        }
        findings(&Record::open(writer.dir()).unwrap())
    }

    /// Samples around a value.
    pub fn around(value: f64) -> Vec<f64> {
        (0..101).map(|i| value * (0.99 + 0.0002 * f64::from(i))).collect()
    }

    fn sizes(memory: &str, sizes: &[u32]) -> Vec<(Value, Outcome)> {
        let point = |size: &u32| {
            let mut outcome = Outcome::default();
            let size = f64::from(*size);
            let register = if memory == "device" { 1000.0 } else { 1000.0 + 0.4 * size };
            let of = Quantity::CallCost;
            outcome.push_series(of, "register + deregister", 0, around(register));
            outcome.push_series(of, "copy", 0, around(0.5 * size));
            (json!({ "memory": memory, "size_bytes": size as u64 }), outcome)
        };
        sizes.iter().map(point).collect()
    }

    #[test]
    fn the_size_from_which_registering_is_cheaper() {
        let found = of("mr", sizes("device", &[4096, 1024]));
        let [text] = &found[..] else { panic!("{found:?}") };
        let number = text.split(" from ").nth(1).unwrap().split(' ').next().unwrap();
        assert!((1900.0..2200.0).contains(&number.parse::<f64>().unwrap()), "{text}");
        assert!(text.contains("between") && !text.contains("memory"), "{text}");
        let two = [sizes("device", &[1024, 4096]), sizes("private", &[1024, 4096])].concat();
        let found = of("mr", two);
        assert!(found[0].starts_with("memory device: registering"), "{found:?}");
        assert!(found[1].starts_with("memory private: none in range"), "{found:?}");
        assert!(of("mr", sizes("device", &[4096, 8192]))[0].contains("every size from 4096"));
        assert!(of("mr", sizes("device", &[4096]))[0].contains("more than one --size"));
    }

    #[test]
    fn of_two_runs_the_middle_counts_and_of_those_cut_short_none() {
        let run = |ms: f64, cut_short: Option<&str>| {
            let mut outcome = Outcome::default();
            outcome.push_series(Quantity::Timeout, "T_o", 0, vec![ms * 1e6; 101]);
            outcome.cut_short = cut_short.map(str::to_owned);
            (json!({ "timeout": 14 }), outcome)
        };
        let t_o = |runs: Vec<(Value, Outcome)>| {
            let found = all("timeout", runs).into_iter().find(|finding| finding.name == "t_o");
            found.and_then(|finding| finding.value)
        };
        assert_eq!(t_o(vec![run(100.0, None), run(200.0, None)]), Some(150e6));
        let cut = || run(900.0, Some("interrupted"));
        assert_eq!(t_o(vec![cut(), cut(), run(100.0, None)]), Some(100e6));
        assert_eq!(t_o(vec![cut()]), None);
    }

    #[test]
    fn a_number_stands_with_its_sentence() {
        let found = all("mr", sizes("device", &[4096, 1024]));
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!((one.name.as_str(), one.unit.as_str()), ("crossover", "bytes"));
        assert_eq!((one.along.as_deref(), &one.points[..]), (Some("size_bytes"), &[0, 1][..]));
        let (value, low, high) = (one.value.unwrap(), one.low.unwrap(), one.high.unwrap());
        assert!(low < value && value < high && (1900.0..2200.0).contains(&value), "{one:?}");
        assert!(one.sentence.contains(&format!("from {value:.0} bytes on")), "{one:?}");
        // Beyond what was measured there is a bound, and no value.
        let ends = |sizes_of: &[u32], memory| {
            let found = all("mr", sizes(memory, sizes_of)).remove(0);
            (found.value, found.low, found.high)
        };
        assert_eq!(ends(&[4096, 8192], "device"), (None, None, Some(4096.0)));
        assert_eq!(ends(&[256, 512], "device"), (None, Some(512.0), None));
        assert_eq!(ends(&[512], "device"), (None, None, None));
        let two = [sizes("device", &[1024, 4096]), sizes("private", &[1024, 4096])].concat();
        let found = all("mr", two);
        assert_eq!(found[1].parameters["memory"], "private");
        assert_eq!(found[1].points, [2, 3]);
    }

    #[test]
    fn other_records_have_none() {
        assert!(of("ping", sizes("device", &[1024, 4096])).is_empty());
        assert!(of("mr", Vec::new()).is_empty());
    }
}
