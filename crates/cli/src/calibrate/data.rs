//! The measured values of records, with their standard errors, and the points that give them.

use std::path::PathBuf;

use rdmalab_experiments::{Link, Model, Point};
use rdmalab_measure::text::{and, first_few};
use rdmalab_measure::{Outcome as Measured, Quantity, stats};
use rdmalab_record::{DeviceKind, Object, Record, Samples, named};

use crate::failure::{Outcome, usage};
use crate::records::{open_below, warn_of_damage};
use crate::run::plan::{parameters as parameters_of, point_of};

/// Quantities that a model can be fitted to, each with the median of its samples. Bandwidth, time
/// per message and half of a round trip follow from others; shares and patterns are no times.
const TIMES: [Quantity; 6] = [
    Quantity::OneWay,
    Quantity::OneWayFromCopy,
    Quantity::RoundTrip,
    Quantity::PostCost,
    Quantity::CompletionTime,
    Quantity::CallCost,
];
/// Values that come from how processes meet, which is not simulated, by their labels.
const NOT_SIMULATED: [&str; 4] =
    ["exchange of numbers", "meeting", "first messages", "connections"];
/// Options by which points are not named.
const NOT_NAMED: [&str; 5] = ["messages", "duration_ns", "warm_up", "runs", "seed"];
/// Rates that follow from other values of a point, by the begin of their labels.
const DERIVED: [&str; 3] = ["1 / RTT", "0 to 1", "1 to 0"];
/// The option by which each point is named.
const SIZE: &str = "size_bytes";
/// The least standard error of a value, as a share of it: an adapter is never so exactly the model.
pub const LEAST_SHARE: f64 = 0.005;
/// The least standard error of a time: a look at memory or for a completion takes some nanoseconds.
pub const LEAST_NS: f64 = 1.0;
/// Messages that a point is simulated with, if its medians are wanted, and if a rate is.
const MESSAGES: (u64, u64) = (60, 1000);
/// Most messages before those that count.
const WARM_UP: u64 = 64;

/// A value that the model should have.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Which point.
    pub point: usize,
    /// What it is.
    pub quantity: Quantity,
    /// The label of its series or number.
    pub label: String,
    /// The measured value: the median of the runs.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// A point that was measured.
#[derive(Clone, Debug)]
pub struct MeasuredPoint {
    /// As it is simulated.
    pub point: Point,
    /// The number of ranks.
    pub ranks: usize,
    /// Its experiment, and the options that differ from those of other points.
    pub name: String,
}

/// All that is fitted to.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// The points.
    pub places: Vec<MeasuredPoint>,
    /// The values.
    pub wanted: Vec<Wanted>,
    /// The device, and what its numbers are.
    pub device: String,
    /// Where the values are from: names of directories.
    pub sources: Vec<String>,
    /// Points that cannot be fitted to, each with the reason.
    pub left_out: Vec<String>,
}

/// The records in directories.
///
/// # Errors
/// One of them has none.
pub fn opened(dirs: &[PathBuf]) -> Outcome<Vec<Record>> {
    let mut records = Vec::new();
    for dir in dirs {
        records.extend(open_below(dir)?);
    }
    warn_of_damage(&records);
    Ok(records)
}

impl Data {
    /// The values of records, which are of one device.
    ///
    /// # Errors
    /// They are of several devices, or have no values that a model can be fitted to.
    pub fn of(records: &[Record], sources: Vec<String>) -> Outcome<Self> {
        let mut data = Data { device: device(records)?, sources, ..Data::default() };
        let mut models: Vec<Model> = Vec::new();
        let repeated = repeated(records);
        let all: Vec<&Object> = repeated.iter().map(|one| one.parameters).collect();
        for Repeated { parameters, ranks, runs } in &repeated {
            let name = name_of(parameters, &all);
            if runs.iter().any(|run| is_disturbed(run)) {
                data.left_out.push(format!(
                    "{name}: recorded with fault rules (--faults), so it cannot be used for a fit"
                ));
                continue;
            }
            match point_of(parameters) {
                Err(why) => data.left_out.push(format!("{name}: {why}")),
                Ok(mut point) => {
                    if !models.contains(&point.common.model) {
                        models.push(point.common.model);
                    }
                    point.common.model = Model::OF_PROFILE;
                    // A simulated device has one port and one GID.
                    let any = Point::default_for(point.experiment()).common;
                    (point.common.port, point.common.gid_index) = (any.port, any.gid_index);
                    data.add(name, point, *ranks, runs);
                }
            }
        }
        let models: Vec<String> = models.iter().map(described).collect();
        match &models[..] {
            [] => {}
            [one] if one.is_empty() => {}
            [one] => data.device = format!("{} with {one}", data.device),
            _ => {
                return Err(usage(format!(
                    "these points come from several models ({}), but a profile is fitted to one: \
                     give records of one model",
                    first_few(&models, 3)
                )));
            }
        }
        if data.wanted.is_empty() {
            return Err(usage(format!(
                "no time or rate is in these records, so nothing can be fitted{}",
                match data.left_out.is_empty() {
                    true => ": measure with `rdmalab run`, or name a device (--device)".to_owned(),
                    false => format!(": {}", first_few(&data.left_out, 2)),
                }
            )));
        }
        Ok(data)
    }

    /// Adds a point and the values of its runs.
    fn add(
        &mut self,
        name: String,
        point: Point,
        ranks: Option<usize>,
        runs: &[&rdmalab_record::Point],
    ) {
        let mut values = values(runs);
        // A paced sender only shows its pace.
        let is_paced = point.common.pause_ns > 0 || point.common.rate_per_s > 0;
        let is_rate = |value: &Value| value.0 == Quantity::Rate;
        values.retain(|value| !(is_paced && is_rate(value)));
        if values.is_empty() {
            let why = "it has no time or rate to which a model can be fitted";
            self.left_out.push(format!("{name}: {why}"));
            return;
        }
        let ranks = ranks.unwrap_or(*point.experiment().ranks().start());
        let number = self.places.len();
        let point = shortened(&point, values.iter().any(is_rate));
        self.places.push(MeasuredPoint { point, ranks, name });
        self.wanted.extend(values.into_iter().map(|(quantity, label, value, error)| Wanted {
            point: number,
            quantity,
            label,
            value,
            error,
        }));
    }
}

/// How many ranks a record has, as its command says; `None`: the least of the experiment.
fn ranks_of(record: &Record) -> Option<usize> {
    let ranks = record.header.option("ranks").and_then(|ranks| ranks.parse().ok());
    ranks.or_else(|| record.header.option("hosts").map(|hosts| hosts.split(',').count()))
}

/// Whether fault rules applied to packets of a run.
fn is_disturbed(run: &rdmalab_record::Point) -> bool {
    let is_rule = |name: &str| name == "faults" || name.starts_with("faults_at_rank_");
    run.facts.iter().any(|fact| is_rule(&fact.name))
}

/// What a model changes of its profile, as options; empty if nothing.
fn described(model: &Model) -> String {
    let link = (model.link != Link::Profile).then(|| format!("--link {}", model.link));
    let sim = (!model.is_of_profile()).then(|| format!("--sim {model}"));
    link.into_iter().chain(sim).collect::<Vec<_>>().join(" ")
}

/// Names a point by its experiment, its size, and what is not the default and differs among the
/// points of the experiment.
fn name_of(parameters: &Object, all: &[&Object]) -> String {
    let experiment = parameters.get("experiment").map(rdmalab_record::word).unwrap_or_default();
    let defaults = experiment.parse().map(|of| parameters_of(&Point::default_for(of)));
    let defaults = defaults.unwrap_or_default();
    let is_named = |name: &&String| {
        let value = parameters.get(*name);
        let mut alike =
            all.iter().filter(|one| one.get("experiment") == parameters.get("experiment"));
        !NOT_NAMED.contains(&name.as_str())
            && (value != defaults.get(*name) || *name == SIZE)
            && alike.any(|other| other.get(*name) != value)
    };
    let words = parameters.keys().filter(is_named).map(|name| named(name, &parameters[name]));
    format!("{experiment} {}", words.collect::<Vec<_>>().join(", ")).trim_end().to_owned()
}

/// The one device of all records, with what its numbers are.
fn device(records: &[Record]) -> Outcome<String> {
    let mut devices: Vec<String> = Vec::new();
    for record in records {
        let device = &record.header.device;
        let title = match device.kind {
            DeviceKind::System => device.title(),
            DeviceKind::Sim => format!("{}: numbers of a model", device.name),
            DeviceKind::Soft => {
                let cpu = record.environment.get("cpu_model").and_then(|cpu| cpu.as_str());
                let on = cpu.map(|cpu| format!(" on {cpu}")).unwrap_or_default();
                format!("{}{on}: a software device's speeds", device.title())
            }
        };
        if !devices.contains(&title) {
            devices.push(title);
        }
    }
    match &devices[..] {
        [one] => Ok(one.clone()),
        [] => Err(usage("no records: name directories, or a device to measure (--device NAME)")),
        _ => Err(usage(format!(
            "these records come from several devices ({}), but a profile is fitted to one: give \
             records of one device",
            and(&devices)
        ))),
    }
}

/// A point, and all runs of it.
struct Repeated<'a> {
    parameters: &'a Object,
    ranks: Option<usize>,
    runs: Vec<&'a rdmalab_record::Point>,
}

/// The whole points of records. Runs of a point in several records are runs of one point.
fn repeated(records: &[Record]) -> Vec<Repeated<'_>> {
    let mut found: Vec<Repeated<'_>> = Vec::new();
    for record in records {
        let ranks = ranks_of(record);
        for point in record.whole_points() {
            let parameters = &point.parameters;
            let is_it =
                |one: &&mut Repeated<'_>| one.parameters == parameters && one.ranks == ranks;
            match found.iter_mut().find(is_it) {
                Some(one) => one.runs.push(point),
                None => found.push(Repeated { parameters, ranks, runs: vec![point] }),
            }
        }
    }
    found
}

type Value = (Quantity, String, f64, f64);

/// The values of the runs of a point: quantity, label, value and standard error.
fn values(runs: &[&rdmalab_record::Point]) -> Vec<Value> {
    let Some(first) = runs.first() else { return Vec::new() };
    let mut found: Vec<Value> = Vec::new();
    let mut add = |quantity: Quantity, label: &str, values: Vec<f64>, within: f64| {
        let is_new = !NOT_SIMULATED.contains(&label)
            && !found.iter().any(|(q, l, ..)| *q == quantity && l == label);
        if let Some((value, error)) = combined(values, within).filter(|_| is_new) {
            let least = if quantity == Quantity::Rate { 0.0 } else { LEAST_NS };
            let error = error.max(value * LEAST_SHARE).max(least);
            found.push((quantity, label.to_owned(), value, error));
        }
    };
    let is_own = |samples: &Samples| !matches!(samples, Samples::Derived { .. });
    for series in first.series.iter().filter(|one| is_own(&one.samples)) {
        let (quantity, label) = (series.quantity, &series.label);
        if !TIMES.contains(&quantity) {
            continue;
        }
        let all = runs.iter().filter_map(|run| Some(&run.series(quantity, label)?.summary));
        let medians = all.clone().map(|summary| summary.median()).collect();
        // A 95 % interval of a normal distribution is 3.92 standard errors wide.
        let width = |i: stats::Interval| (i.high - i.low) / 3.92;
        let widths = all.filter_map(|summary| summary.quantile(0.5)?.interval.map(width));
        // Clocks of two hosts may be off by more than any interval.
        let clocks = runs.iter().map(|run| run.clock_error_ns(quantity));
        add(quantity, label, medians, widths.chain(clocks).fold(0.0, f64::max));
    }
    let is_rate = |figure: &&rdmalab_measure::outcome::Figure| {
        let what = figure.label.split(',').next().unwrap_or_default();
        figure.quantity == Quantity::Rate && !DERIVED.contains(&what)
    };
    for figure in first.figures.iter().filter(is_rate) {
        let same = |run: &&rdmalab_record::Point| {
            let is_it = |one: &&rdmalab_measure::outcome::Figure| {
                one.quantity == figure.quantity && one.label == figure.label
            };
            Some(run.figures.iter().find(is_it)?.value)
        };
        add(Quantity::Rate, &figure.label, runs.iter().filter_map(same).collect(), 0.0);
    }
    found
}

/// The median of the runs' values, with its standard error: from the differences between the runs,
/// or `within` a run if that is more.
fn combined(mut values: Vec<f64>, within: f64) -> Option<(f64, f64)> {
    values.retain(|value| value.is_finite() && *value > 0.0);
    stats::sort(&mut values);
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let between = if n > 1.0 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 };
    (!values.is_empty()).then(|| (stats::median(&values), between.max(within)))
}

/// The point with as few messages as give its medians in a model, which has no noise.
fn shortened(point: &Point, has_rate: bool) -> Point {
    let most = if has_rate { MESSAGES.1.max(4 * point.window()) } else { MESSAGES.0 };
    point.with(|common| {
        common.messages = common.messages.min(most);
        common.duration_ns = 0;
        common.warm_up = common.warm_up.min(WARM_UP);
        common.runs = 1;
    })
}

/// The value of a simulated point.
pub fn value_of(measured: &Measured, wanted: &Wanted) -> Option<f64> {
    let is_it = |quantity, label: &str| wanted.quantity == quantity && wanted.label == label;
    if wanted.quantity == Quantity::Rate {
        let found = measured.figures.iter().find(|one| is_it(one.quantity, &one.label));
        return found.map(|figure| figure.value);
    }
    let series = measured.series.iter().find(|one| is_it(one.quantity, &one.label))?;
    let mut samples: Vec<f64> = series.counted().collect();
    stats::sort(&mut samples);
    (!samples.is_empty()).then(|| stats::median(&samples))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_from_between_runs_or_within_one() {
        let (value, error) = combined(vec![12.0, 8.0, 10.0, f64::NAN], 0.5).unwrap();
        // The standard deviation is 2, and there are three runs.
        assert!(value == 10.0 && (error - 2.0 / 3.0_f64.sqrt()).abs() < 1e-12, "{error}");
        assert_eq!(combined(vec![10.0], 0.5), Some((10.0, 0.5)));
        assert_eq!(combined(vec![0.0, -1.0], 0.5), None);
    }
}
