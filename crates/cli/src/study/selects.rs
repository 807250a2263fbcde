//! Checks each operand of a claim and each published value of the shipped studies against the
//! points of the plans and the series of the experiments: each has to match points, and each claim
//! has to be decidable.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rdmalab_experiments::{Experiment, Limits, ResultKind, ResultShape, check};
use rdmalab_measure::{Outcome, Quantity, Summary};
use rdmalab_record::{
    Device, DeviceKind, Environment, Finding, Header, Number, Object, Point, PointId, Record,
    Samples, SeriesSummary, Writer,
};
use rdmalab_study::{Calibration, Evaluation, Standing, Study, SweepState, evaluate};

use super::parts::{self, Part, What};
use crate::run::plan::parameters;

/// The numbers of a pattern that claims and values refer to.
const PATTERN: [&str; 5] = [
    "peak_1_ns",
    "peak_2_ns",
    "peak_1_at_messages",
    "peak_2_at_messages",
    "peak_1_places_messages",
];

/// The results of a call of perftest's programs.
const OF_PROGRAM: &[ResultShape] = &[(Quantity::HalfRoundTrip, "", ResultKind::OfMessages)];

/// The results of the user's application; each trial is one sample.
const OF_APPLICATION: &[ResultShape] = &[(Quantity::ExecutionTime, "", ResultKind::OfMessages)];

/// Most samples of a series: enough for a 10th percentile.
const MOST_SAMPLES: u64 = 200;
/// Number of ranks that a sweep of `fan` starts with `--quick`.
const QUICK_RANKS: u64 = 4;

/// A point whose results are made up.
struct MadeUp {
    parameters: Object,
    messages: u64,
    runs: u64,
    results: &'static [ResultShape],
}

impl MadeUp {
    fn of(point: &rdmalab_experiments::Point) -> Self {
        let (messages, runs) = (point.common.messages, point.common.runs);
        Self { parameters: parameters(point), messages, runs, results: point.results() }
    }

    fn of_program(parameters: Object) -> Self {
        Self { parameters, messages: MOST_SAMPLES, runs: 1, results: OF_PROGRAM }
    }

    fn of_application(parameters: Object) -> Self {
        Self { parameters, messages: 1, runs: 1, results: OF_APPLICATION }
    }

    fn outcome(&self, repetition: u32) -> Outcome {
        let mut outcome = Outcome::default();
        // The numbers differ from run to run, as in real runs.
        let middle = 1000.0 + f64::from(repetition);
        for (quantity, label, kind) in self.results {
            let samples = match kind {
                ResultKind::Figure => {
                    outcome.push_figure(*quantity, label, middle);
                    continue;
                }
                ResultKind::OfMessages => (self.messages * self.runs).min(MOST_SAMPLES),
                ResultKind::OfRuns => self.runs,
            };
            let samples = (0..samples).map(|i| middle + i as f64 / 10.0).collect();
            outcome.push_series(*quantity, label, 0, samples);
        }
        outcome
    }
}

/// A record of a part as on an adapter, with made-up numbers; `None` if this program cannot run the
/// part. Samples are written only with `keep_in`.
fn made_up(part: &Part, keep_in: Option<&Path>) -> Option<Record> {
    let points: Vec<MadeUp> = match &part.what {
        What::Experiment(_, points) => {
            points.iter().filter(|point| check(point, &limits()).is_ok()).map(MadeUp::of).collect()
        }
        What::Program(cases) => {
            cases.iter().map(|case| MadeUp::of_program(case.parameters())).collect()
        }
        What::Application(trials) => {
            trials.parameters("mine").into_iter().map(MadeUp::of_application).collect()
        }
        What::Missing(_) | What::NotAsked => return None,
    };
    let device = Device { name: "made up".to_owned(), kind: DeviceKind::System, profile: None };
    let header = Header::new(&part.words.experiment, Vec::new(), device);
    let all = (0..part.repeat).flat_map(|repetition| {
        points.iter().map(move |point| {
            let id = PointId {
                parameters: point.parameters.clone(),
                repetition,
                order_index: 0,
                started: SystemTime::UNIX_EPOCH,
                elapsed: Duration::from_secs(1),
            };
            (id, point.outcome(repetition))
        })
    });
    let mut record = match keep_in {
        Some(dir) => kept(header, dir, all),
        None => Record {
            dir: PathBuf::new(),
            header,
            environment: Object::new(),
            points: (0..).zip(all).map(summed_up).collect(),
            findings: None,
            skipped: Vec::new(),
            damaged_points: 0,
            damage: Vec::new(),
        },
    };
    record.findings = Some(found(&record));
    Some(record)
}

/// Limits of an adapter like those in the studies, or slightly better.
fn limits() -> Limits {
    Limits {
        kind: "system".into(),
        device: "made up".into(),
        link_layer: "InfiniBand".into(),
        max_qp: 262_144,
        max_qp_wr: 16_384,
        max_cqe: 4_194_303,
        max_mr_bytes: 1 << 40,
        has_atomics: true,
        max_rd_atomic: 16,
        profile: None,
        max_inline_bytes: 1024,
        max_sge: 30,
        max_srq_sge: 30,
        ports: 1,
        active_mtu_bytes: 4096,
        max_msg_bytes: 1 << 30,
        gids: 2,
        needs_gid: false,
        has_on_demand_paging: true,
        ack_delay_code: 0,
    }
}

fn kept(header: Header, dir: &Path, all: impl Iterator<Item = (PointId, Outcome)>) -> Record {
    std::fs::create_dir_all(dir).unwrap();
    let mut writer = Writer::create(dir, header, &Environment::default()).unwrap();
    for (id, outcome) in all {
        writer.append(&id, &outcome).unwrap();
    }
    Record::open(writer.dir()).unwrap()
}

fn summed_up((number, (id, outcome)): (u64, (PointId, Outcome))) -> Point {
    let series = outcome.series.iter().map(|series| SeriesSummary {
        quantity: series.quantity,
        label: series.label.clone(),
        samples: Samples::Elsewhere,
        summary: Summary::of(series),
    });
    Point {
        number,
        order_index: number,
        repetition: id.repetition,
        parameters: id.parameters,
        started_utc: String::new(),
        elapsed_s: 1.0,
        series: series.collect(),
        figures: outcome.figures,
        counts: Vec::new(),
        facts: Vec::new(),
        warnings: Vec::new(),
        cut_short: None,
    }
}

/// Made-up findings for such a record: at each point, or along its parameter.
fn found(record: &Record) -> Vec<Finding> {
    let of_all = |name: &str, along: &str, value: f64| Finding {
        name: name.to_owned(),
        along: Some(along.to_owned()),
        value: Some(value),
        low: Some(value),
        high: Some(value),
        points: record.points.iter().map(|point| point.number).collect(),
        ..Finding::default()
    };
    let pattern = |point: u64, label: &str| {
        let number = |name: &&str| Number {
            name: (*name).to_owned(),
            value: Some(16.0),
            ..Number::default()
        };
        Finding {
            name: "pattern".to_owned(),
            label: label.to_owned(),
            value: Some(16.0),
            points: vec![point],
            numbers: PATTERN.iter().map(number).collect(),
            ..Finding::default()
        }
    };
    let Some(first) = record.points.first() else { return Vec::new() };
    let has = |quantity: Quantity, label: &str| first.series(quantity, label).is_some();
    let mut found = Vec::new();
    if has(Quantity::CallCost, "copy") {
        found.push(of_all("crossover", "size_bytes", 4096.0));
    }
    if has(Quantity::Timeout, "T_o") {
        found.push(of_all("c_ack", "timeout", 12.0));
    }
    for label in ["rank 0", "rank 1"].into_iter().filter(|label| has(Quantity::RoundTrip, label)) {
        found.extend(record.points.iter().map(|point| pattern(point.number, label)));
    }
    found
}

/// The evaluation of a study with such records, and the figures without a record.
fn evaluated(study: &Study, is_quick: bool) -> (Evaluation, BTreeSet<String>) {
    crate::know_experiments();
    let home = tempfile::tempdir().unwrap();
    // A share of the samples cannot be computed from a summary, so these figures need samples.
    let sides = study.claims.iter().map(|c| &c.left).chain(study.values.iter().map(|v| &v.ours));
    let shares: BTreeSet<String> =
        sides.filter(|side| side.above.is_some()).filter_map(|side| side.figure.clone()).collect();
    let (mut without, mut all) = (BTreeSet::new(), Vec::new());
    for mut part in parts::of(&study.plan, &[], is_quick) {
        if is_quick {
            leave_ranks(&mut part);
        }
        let dir = home.path().join(part.name());
        let needs_samples = shares.contains(&part.figure);
        let state = match made_up(&part, needs_samples.then_some(&dir)) {
            Some(record) => SweepState::Measured(Box::new(record)),
            None => {
                without.insert(part.figure.clone());
                SweepState::Missing("not here".to_owned())
            }
        };
        let (figure, sweep) = (part.figure, part.sweep);
        all.push(rdmalab_study::SweepResult { figure, sweep, line: Vec::new(), state });
    }
    // Claims for certain kinds of devices are checked too: they need points as well.
    let mut study = study.clone();
    study.claims.iter_mut().for_each(|claim| claim.on.clear());
    (evaluate(&study, &all), without)
}

/// Removes the points that need more ranks than there are.
fn leave_ranks(part: &mut Part) {
    let What::Experiment(_, points) = &mut part.what else { return };
    points.retain(|point| point.check_ranks(QUICK_RANKS as usize).is_ok());
}

/// Claims and values without a matching point, each with the reason.
fn misses(study: &Study, is_quick: bool) -> Vec<String> {
    let (evaluation, without) = evaluated(study, is_quick);
    let is_without = |figure: &Option<String>| figure.as_ref().is_some_and(|f| without.contains(f));
    let mut found = Vec::new();
    for judged in &evaluation.claims {
        let claim = &judged.claim;
        let is_there =
            !is_without(&claim.left.figure) && !is_without(&claim.right_operand().figure);
        if is_there && judged.evidence.is_empty() {
            found.push(format!("claim {}: {}", claim.key, judged.verdict.why()));
        } else if is_there && !is_quick && judged.evidence.iter().all(|e| e.ratio.1.is_none()) {
            found.push(format!(
                "claim {} can never be decided: {}",
                claim.key,
                judged.verdict.why()
            ));
        }
    }
    for value in &evaluation.values {
        let is_there = !value.figure.is_empty() && !without.contains(&value.figure);
        if let (true, Standing::Absent(why)) = (is_there, &value.standing) {
            found.push(format!("value {}: {why}", value.published.metric));
        }
    }
    found
}

/// The misses of all studies, each with the study's key.
fn all_misses(is_quick: bool) -> Vec<String> {
    let of = |study: Study| {
        let key = study.plan.key.clone();
        misses(&study, is_quick).into_iter().map(move |miss| format!("{key}: {miss}"))
    };
    Study::shipped().unwrap().into_iter().flat_map(of).collect()
}

#[test]
fn each_claim_and_each_value_has_points_in_the_whole_plan() {
    let found = all_misses(false);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_the_quick_plan_leaves_out_is_said_with_its_reason() {
    let mut unsaid = all_misses(true);
    unsaid.retain(|miss| !miss.contains("(with --quick: "));
    assert!(unsaid.is_empty(), "{unsaid:#?}");
}

#[test]
fn a_claim_of_a_point_that_there_is_not_is_noticed() {
    // Without the option, the default pause of `oneway` differs from that of a burst.
    let mut study = Study::shipped().unwrap();
    study.retain(|study| study.plan.key == "potter2018");
    let study = &mut study[0];
    let figure = study.plan.figures.iter_mut().find(|f| f.key == "busy").unwrap();
    figure.sweeps[0].run = figure.sweeps[0].run.replace("--pause 0", "");
    let found = misses(study, false);
    let said = found.iter().any(|miss| miss.starts_with("claim pause-costs-busy: figure busy has"));
    assert!(said, "{found:?}");
}

/// A calibrated parameter names the values that chose it, by which they are told from predictions.
#[test]
fn calibrated_parameters_name_values_of_a_study() {
    let studies = Study::shipped().unwrap();
    for (name, _) in rdmalab_sim::SHIPPED {
        for source in rdmalab_sim::find(name).unwrap().calibrated_from() {
            let Some((key, what)) = source.split_once(": ") else { panic!("{name}: {source}") };
            let study = studies.iter().find(|study| study.plan.key == key);
            let study = study.unwrap_or_else(|| panic!("{name}: {source}: no study {key:?}"));
            let is_other = what.starts_with("as ") || what.ends_with("a claim and no value");
            let found = Calibration::of_model(study, "sim:none", [&*source]);
            assert!(found.names_values() || is_other, "{name}: {source}: it names no value");
        }
    }
}

/// A parameter that is a text instead of a number would hide a missing point.
#[test]
fn parameters_are_what_records_have() {
    let point = rdmalab_experiments::Point::default_for(Experiment::ONEWAY);
    assert_eq!(parameters(&point)["pause_ns"], 5500);
}
