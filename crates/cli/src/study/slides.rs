//! The main result of mordkovich2013, the patterns of round trips: records with the times of its
//! slides lead to findings that decide its claims.

use std::time::{Duration, SystemTime};

use rdmalab_findings::with_findings;
use rdmalab_measure::{Outcome, Quantity, pattern};
use rdmalab_record::{Device, DeviceKind, Environment, Header, PointId, Record, Writer};
use rdmalab_study::{JudgedClaim, Study, SweepState, Verdict, evaluate};
use serde_json::json;

/// The outcome that `recvq` records for such a series.
fn outcome(samples: Vec<f64>) -> Outcome {
    let mut outcome = Outcome::default();
    let found = pattern::find(&samples, 0);
    outcome.push_series(Quantity::RoundTrip, "rank 0", 0, samples);
    let text = found.as_ref().map_or("none".to_owned(), |p| format!("every {}", p.period));
    if let Some(found) = found {
        outcome.push_figure(Quantity::Period, "rank 0", found.period as f64);
    }
    outcome.push_fact("pattern_rank_0", text);
    outcome
}

/// Noise of a few per cent, without a period.
fn noise(i: u32) -> f64 {
    (rdmalab_random::nth(0, i.into()) >> 40) as f64 / 16_777_216.0 * 60.0
}

/// Round trips of a run, as in the study: with fewer, a period of 256 is mistaken for one of 128.
const TRIPS: u32 = 10_000;

/// A round trip by the slides of mordkovich2013, in ns; with one receive, the times have no period.
fn by_the_slides(queue: &str, depth: u32, i: u32) -> f64 {
    let last = |n: u32, of: u32| i % of >= of - n;
    let ns = match (queue, depth) {
        ("own", 1) if noise(i.wrapping_mul(77)) < 30.0 => 17_000.0,
        ("own", 1) => 12_500.0,
        ("srq", 1) => 5_400.0,
        ("own", 16) if last(3, 16) => 7_200.0,
        // Of this queue the slides have no number: more are slow, and slower, than in a shared one.
        ("own", 32) if last(3, 32) => 7_200.0,
        ("srq", 16) if last(2, 16) => 4_400.0,
        ("own", 10_000) if last(2, 256) => 5_500.0,
        (_, 10_000) if last(2, 128) => 4_500.0,
        ("srq", 32) if last(2, 32) => 4_400.0,
        ("srq", 32 | 10_000) if last(2, 16) => 3_850.0,
        _ => 3_150.0,
    };
    ns + noise(i) - 30.0
}

/// The verdicts of `runs` runs of figure `depth` on the study's claims about patterns.
fn verdicts(
    (kind, runs): (DeviceKind, u32),
    trip: fn(&str, u32, u32) -> f64,
) -> Vec<(String, Verdict)> {
    let home = tempfile::tempdir().unwrap();
    let header =
        Header::new("recvq", Vec::new(), Device { name: "d".to_owned(), kind, profile: None });
    let mut writer = Writer::create(home.path(), header, &Environment::default()).unwrap();
    let own = [1, 16, 32, 10_000].map(|depth| ("own", depth));
    let shared = [1, 16, 32, 10_000].map(|depth| ("srq", depth));
    for (queue, depth) in own.into_iter().chain(shared) {
        for run in 0..runs {
            let from = run * TRIPS;
            let of = |i: u32| trip(queue, depth, i) + noise(i + from) / 10.0;
            let outcome = outcome((0..TRIPS).map(of).collect());
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
    let record = with_findings(Record::open(writer.dir()).unwrap());
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
    assert_eq!(found.len(), 20, "{found:?}");
    for (key, verdict) in found {
        assert_eq!(verdict, Verdict::Confirmed(String::new()), "{key}");
    }
    // First a queue with half of the period, below an adapter without a period.
    let half = |queue: &str, depth: u32, i: u32| by_the_slides(queue, depth, 2 * i + 1);
    let refuted = |trip| {
        let found = verdicts((DeviceKind::System, 6), trip).into_iter();
        found.filter(|(_, verdict)| verdict.name() == "refuted").map(|(key, _)| key).collect()
    };
    let keys: Vec<String> = refuted(half);
    for key in ["shared-queue-repeats", "own-queue-repeats", "deep-shared-queue-repeats"] {
        assert!(keys.iter().any(|k| k == key), "{key}: {keys:?}");
    }
    // Two runs are too few to decide.
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
