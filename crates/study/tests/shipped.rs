//! The shipped studies checked against the values they publish: no claim may be stricter or laxer.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use rdmalab_measure::outcome::{Figure, Series};
use rdmalab_measure::{Quantity, Summary};
use rdmalab_record::{DeviceKind, Finding, Point, Samples, SeriesSummary};
use rdmalab_study::{
    JudgedClaim, Published, Reliability, Study, Sweep, SweepResult, Verdict, evaluate,
};
use serde_json::json;

fn study(key: &str) -> Study {
    let all = Study::shipped().expect("the shipped studies can be read");
    all.into_iter().find(|study| study.plan.key == key).expect("a shipped study")
}

fn point(parameters: &serde_json::Value, repetition: u32, figures: Vec<Figure>) -> Point {
    let parameters = parameters.as_object().expect("an object").clone();
    Point { repetition, parameters, elapsed_s: 1.0, figures, ..Point::default() }
}

fn part(figure: &str, kind: DeviceKind, points: Vec<Point>) -> SweepResult {
    common::part(figure, common::record(kind, points, Vec::new()))
}

/// Time-outs of an adapter whose smallest effective C_ACK is `c0`, in the form of the experiment:
/// T_o as four samples in each of two runs, T_tr as a number.
fn timeouts(kind: DeviceKind, c0: u32) -> SweepResult {
    let t_tr = |c: u32| 4096.0 * f64::from(1u32 << c);
    let points = (1..=20).flat_map(|c: u32| {
        (0..2).map(move |repetition| {
            let t_o = 2.0 * t_tr(c.max(c0)) * (1.0 + 0.002 * f64::from(repetition));
            let samples = (0..4).map(|i| t_o * (1.0 + 0.001 * f64::from(i))).collect();
            let of = Quantity::Timeout;
            let number = Figure { quantity: of, label: "T_tr".to_owned(), value: t_tr(c) };
            let mut point = point(&json!({ "timeout": c }), repetition, vec![number]);
            point.series.push(SeriesSummary {
                quantity: of,
                label: "T_o".to_owned(),
                samples: Samples::Elsewhere,
                summary: Summary::of(&Series::new(of, "T_o", 0, samples)),
            });
            point
        })
    });
    part("timeout", kind, points.collect())
}

#[test]
fn the_adapters_of_fukuoka_do_not_refute_it() {
    let study = study("fukuoka2021");
    let own = |metric: &str| {
        let value = study.published.iter().find(|p| p.metric == metric).and_then(Published::number);
        value.expect("a published C_ACK") as u32
    };
    let verdict = |part: SweepResult, key: &str| {
        let found = evaluate(&study, &[part]);
        found.claims.into_iter().find(|judged| judged.claim.key == key).expect(key).verdict
    };
    let (always, from_10) = ("time-out-at-most-four-t-tr", "time-out-at-most-four-t-tr-from-10");
    for c0 in [own("timeout.c0.cx5"), own("timeout.c0.others")] {
        let found = verdict(timeouts(DeviceKind::System, c0), always);
        assert!(matches!(found, Verdict::Confirmed(_)), "{c0}: {found:?}");
        // No adapter keeps its time-out below c0, so the claim is not judged there.
        let found = verdict(timeouts(DeviceKind::System, c0), from_10);
        assert!(matches!(found, Verdict::CannotBeSeen(_)), "{c0}: {found:?}");
    }
    let found = verdict(timeouts(DeviceKind::System, 10), "time-out-at-least-t-tr");
    assert!(matches!(found, Verdict::Confirmed(_)), "{found:?}");
    let found = verdict(timeouts(DeviceKind::Soft, 1), from_10);
    assert!(matches!(found, Verdict::Confirmed(_)), "{found:?}");
    let found = verdict(timeouts(DeviceKind::Soft, 16), from_10);
    assert!(matches!(found, Verdict::Refuted(_)), "{found:?}");
}

/// A published share and its tolerance, both as fractions: `20 %, 8 points` or `0.87 ratio, 0.02`.
fn share(published: &Published) -> (f64, f64) {
    let tolerance = published.tolerance.trim_end_matches("points").trim();
    let tolerance: f64 = tolerance.parse().expect("a tolerance in points or as a share");
    let scale = if published.unit == "%" { 0.01 } else { 1.0 };
    (published.number().expect("a number") * scale, tolerance * scale)
}

#[test]
fn no_claim_of_potter_is_laxer_than_what_it_published() {
    let study = study("potter2018");
    let grows: fn(f64) -> f64 = |share| 1.0 + share;
    let shrinks: fn(f64) -> f64 = |share| 1.0 - share;
    let itself: fn(f64) -> f64 = |share| share;
    for (key, metric, ratio) in [
        ("pause-costs-events", "event.pause.increase", grows),
        ("pause-costs-busy", "busy.pause.increase", grows),
        ("copy-share", "send_ts.share_before_copy", shrinks),
        ("inline-28-percent", "inline.reduction", shrinks),
        ("unsignalled-13-percent", "unsignaled.ratio", itself),
    ] {
        let claim = study.claims.iter().find(|claim| claim.key == key).expect(key);
        let published = study.published.iter().find(|p| p.metric == metric).expect(metric);
        let (share, tolerance) = share(published);
        let centre = ratio(share);
        let factor = claim.factor.expect(key);
        let (low, high) = (factor * (1.0 - claim.tolerance), factor * (1.0 + claim.tolerance));
        let allowed = (centre - tolerance)..=(centre + tolerance);
        assert!(
            allowed.contains(&low) && allowed.contains(&high),
            "{key}: {low:.4} to {high:.4}, published {allowed:?}"
        );
        // Nor much stricter: the claim allows values near the edge of the published range.
        assert!(high - low > 1.9 * tolerance, "{key}: {low:.4} to {high:.4}");
    }
}

#[test]
fn what_the_studies_leave_doubtful_is_shown_as_such() {
    for (key, metric) in [
        ("potter2018", "event.pause.ratio.text1"),
        ("potter2018", "event.ud.median.first_mention"),
        ("potter2018", "event.ud.median.second_mention"),
        ("potter2018", "villas.theoretical_rate"),
        ("potter2018", "villas.max"),
        ("potter2018", "villas.shmem.median"),
        ("potter2018", "villas.rw_overhead"),
        ("potter2018", "ctx.size_ud"),
        ("macarthur2012", "ping.oneway.value"),
        ("viertel2006", "2048B.gap.n62"),
        ("viertel2006", "2048B.mc.n62"),
        ("viertel2006", "rdmar.32K.min"),
        ("viertel2006", "rdmar.32K.1n"),
        ("viertel2006", "rdmar.32K.rise_unexplained"),
        ("mordkovich2013", "cp.r3.read1M.anomaly"),
        ("fukuoka2021", "spark.max_slowdown"),
        ("fukuoka2021", "rnr_timer.15"),
    ] {
        let study = study(key);
        let kind = study.published.iter().find(|p| p.metric == metric).map(|p| p.kind);
        assert_eq!(kind, Some(Reliability::Contested), "{key}: {metric}");
    }
}

#[test]
fn who_says_every_means_every() {
    for study in Study::shipped().expect("the shipped studies can be read") {
        for claim in &study.claims {
            let says_so = claim.says.split_whitespace().any(|word| word == "every");
            assert!(!says_so || claim.every, "{} {}", study.plan.key, claim.key);
        }
    }
}

/// A figure's number, the same in each run.
fn times(figure: &str, kind: DeviceKind, parameters: &serde_json::Value, ns: f64) -> SweepResult {
    let number = Figure { quantity: Quantity::MessageTime, label: "runs".to_owned(), value: ns };
    let points = (0..3).map(|run| point(parameters, run, vec![number.clone()]));
    part(figure, kind, points.collect())
}

#[test]
fn lists_slow_small_messages_only_if_they_are_slower() {
    let study = study("macarthur2012");
    let verdict = |list_ns: f64| {
        let single = json!({ "buffers": 16, "size_bytes": 64, "list": 1 });
        let list = json!({ "buffers": 16, "size_bytes": 64, "list": "all" });
        let parts = [
            times("3ab", DeviceKind::System, &single, 300.0),
            times("3cd", DeviceKind::System, &list, list_ns),
        ];
        let found = evaluate(&study, &parts).claims;
        let is_it = |judged: &JudgedClaim| judged.claim.key == "lists-slow-small-ones";
        found.into_iter().find(is_it).expect("the claim").verdict
    };
    for (list_ns, name) in [(300.0, "refuted"), (330.0, "confirmed"), (280.0, "refuted")] {
        let found = verdict(list_ns);
        assert_eq!(found.name(), name, "{list_ns}: {found:?}");
    }
}

/// Findings that each run gives by itself; others need all runs together.
const FOUND_IN_A_RUN: [&str; 1] = ["pattern"];
/// The number of runs whose extremes enclose the median with 95 % confidence.
const RUNS: u32 = 6;

#[test]
fn what_is_judged_is_measured_often_enough() {
    for study in Study::shipped().expect("the shipped studies can be read") {
        let key = &study.plan.key;
        for claim in &study.claims {
            for side in [claim.left.clone(), claim.right_operand()] {
                let finding = side.finding.as_deref();
                let is_rare = finding.is_some_and(|name| FOUND_IN_A_RUN.contains(&name));
                // With one run, the variation between runs is unknown.
                let least = if is_rare { RUNS } else { 2 };
                let figure = side.figure.as_deref().and_then(|key| study.plan.figure(key));
                let is_its =
                    |sweep: &&Sweep| side.sweep.as_ref().is_none_or(|name| *name == sweep.name);
                for sweep in figure.expect("its figure").sweeps.iter().filter(is_its) {
                    let runs = sweep.repeat.unwrap_or(study.plan.repeat);
                    assert!(runs >= least, "{key} {}: {runs} runs of {}", claim.key, sweep.run);
                }
            }
        }
        assert!(study.plan.quick_repeat >= 2, "{key}");
    }
}

#[test]
fn a_run_has_samples_enough_for_an_interval() {
    let mut checked = 0;
    for study in Study::shipped().expect("the shipped studies can be read") {
        for sweep in study.plan.figures.iter().flat_map(|figure| &figure.sweeps) {
            for text in [&sweep.run, &sweep.quick] {
                let mut words = text.split_whitespace().skip_while(|word| *word != "--messages");
                let Some(number) = words.nth(1).and_then(|word| word.parse::<u32>().ok()) else {
                    continue;
                };
                assert!(number >= RUNS, "{}: {text}: no claim can be judged", study.plan.key);
                checked += 1;
            }
        }
    }
    assert!(checked > 0, "no sweep says how many messages");
}

#[test]
fn too_few_runs_are_said_with_what_would_be_enough() {
    let study = study("mordkovich2013");
    let verdict = |runs: u32| {
        let parameters = json!({ "queue": "srq", "rx_depth": 32 });
        let mut points: Vec<Point> =
            (0..runs).map(|run| point(&parameters, run, Vec::new())).collect();
        for (number, point) in (0..).zip(&mut points) {
            point.number = number;
        }
        let finding = |number: u64| Finding {
            name: "pattern".to_owned(),
            label: "rank 0".to_owned(),
            value: Some(32.0),
            points: vec![number],
            ..Finding::default()
        };
        let findings = (0..u64::from(runs)).map(finding).collect();
        let record = common::record(DeviceKind::System, points, findings);
        let part = common::part("depth", record);
        let found = evaluate(&study, &[part]).claims;
        let is_it = |judged: &JudgedClaim| judged.claim.key == "shared-queue-repeats";
        found.into_iter().find(is_it).expect("the claim").verdict
    };
    let said = "an interval needs 6 runs of what each finds once, here are 2: the whole plan, \
                without --quick, has 6";
    assert_eq!(verdict(2), Verdict::CannotBeSeen(said.to_owned()));
    assert_eq!(verdict(RUNS).name(), "confirmed");
}

/// A number without samples is judged by how it varies between runs, as a series is.
#[test]
fn numbers_of_two_runs_are_compared() {
    let study = study("macarthur2012");
    let verdict = |shares: &[(f64, f64)]| {
        let of = |poll: &str, values: Vec<f64>| -> Vec<Point> {
            let parameters =
                json!({ "poll_send": poll, "poll_recv": poll, "size_bytes": 65536, "op": "send" });
            let number =
                |value| Figure { quantity: Quantity::CpuShare, label: "rank 0".to_owned(), value };
            let each = (0..).zip(values);
            each.map(|(run, value)| point(&parameters, run, vec![number(value)])).collect()
        };
        let busy = of("busy", shares.iter().map(|both| both.0).collect());
        let event = of("event", shares.iter().map(|both| both.1).collect());
        let mut part = part("5", DeviceKind::System, [busy, event].concat());
        part.sweep = "to-1m".to_owned();
        let found = evaluate(&study, &[part]).claims;
        let is_it = |judged: &JudgedClaim| judged.claim.key == "events-save-processor";
        found.into_iter().find(is_it).expect("the claim").verdict
    };
    assert_eq!(verdict(&[(1.0, 0.3), (0.99, 0.29)]).name(), "confirmed");
    assert_eq!(verdict(&[(1.0, 0.3), (0.5, 0.6)]).name(), "cannot be seen");
    assert!(verdict(&[(1.0, 0.3)]).why().starts_with("there is one run"));
}

/// The text of a shipped study's claims, including its comments.
fn claims_text(key: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    std::fs::read_to_string(root.join(key).join("claims.toml")).expect("a shipped claims.toml")
}

/// Parses `# No claim of figure KEY, KEY: reason`, which may span several lines.
fn figures_without_claim(text: &str) -> BTreeSet<String> {
    const START: &str = "# No claim of figure ";
    let text = text.replace("\n#   ", " ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(START));
    let each = lines.flat_map(|line| {
        let (keys, reason) = line.split_once(':').expect("figures, and a reason");
        assert!(reason.trim().len() > 20, "{line}");
        keys.split(", ").map(str::to_owned).collect::<Vec<_>>()
    });
    each.collect()
}

#[test]
fn each_figure_has_a_claim_or_a_reason_for_none() {
    for study in Study::shipped().expect("the shipped studies can be read") {
        let key = &study.plan.key;
        let without = figures_without_claim(&claims_text(key));
        let sides = study.claims.iter().flat_map(|c| [c.left.clone(), c.right_operand()]);
        let claimed: BTreeSet<String> = sides.filter_map(|side| side.figure).collect();
        for figure in &study.plan.figures {
            let is_named = without.contains(&figure.key);
            let is_claimed = claimed.contains(&figure.key);
            assert_ne!(is_named, is_claimed, "{key}: figure {}", figure.key);
        }
        for name in &without {
            assert!(study.plan.figure(name).is_some(), "{key}: there is no figure {name}");
        }
    }
}

#[test]
fn each_published_value_stands_beside_ours_or_says_why_not() {
    for study in Study::shipped().expect("the shipped studies can be read") {
        for published in &study.published {
            let metric = &published.metric;
            let is_mapped = study.values.iter().any(|value| value.metric == *metric);
            let is_absent = study.absent.iter().any(|absent| absent.names(metric));
            assert!(is_mapped != is_absent, "{}: {metric}", study.plan.key);
        }
    }
}

/// No other check finds a word that no experiment reports, and its claim could never be judged.
#[test]
fn findings_are_those_that_there_are() {
    const NUMBERS: [&str; 7] = [
        "found",
        "chance_share",
        "peak_1_ns",
        "peak_2_ns",
        "peak_1_at_messages",
        "peak_2_at_messages",
        "peak_1_places_messages",
    ];
    let mut seen = BTreeSet::new();
    for study in Study::shipped().expect("the shipped studies can be read") {
        let claims = study.claims.iter().flat_map(|c| [c.left.clone(), c.right_operand()]);
        for side in claims.chain(study.values.iter().map(|value| value.ours.clone())) {
            let Some(name) = side.finding else { continue };
            assert!(["pattern", "crossover", "c_ack"].contains(&name.as_str()), "{name}");
            if let Some(number) = side.number {
                assert!(NUMBERS.contains(&number.as_str()), "{number}");
            }
            seen.insert(name);
        }
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

/// The course of the made-up lines.
#[derive(Clone, Copy, PartialEq)]
enum Lines {
    /// As published.
    Published,
    /// Always above the line of UD.
    Above,
    /// Crossing the line of UD in the other direction.
    OtherWay,
}

/// Lines of viertel2006's figure 6 from a formula for the time per peer, in us, for n peers.
fn lines_of_viertel(study: &Study, lines: Lines) -> Vec<(&'static str, Verdict)> {
    let line = |sweep: &str, parameters: serde_json::Value, each_us: fn(f64) -> f64| {
        let of = |peers: u32| {
            let mut all = parameters.clone();
            all["peers"] = peers.into();
            let ns = each_us(f64::from(peers)) * f64::from(peers) * 1e3;
            let (quantity, label) = (Quantity::RoundTrip, "all peers".to_owned());
            let number = Figure { quantity, label, value: ns };
            (0..3).map(move |run| point(&all, run, vec![number.clone()]))
        };
        let points = [1, 2, 4, 9, 12, 20, 30, 62, 63].into_iter().flat_map(of);
        let mut part = part("1b", DeviceKind::System, points.collect());
        part.sweep = sweep.to_owned();
        part
    };
    let ud: fn(f64) -> f64 = |n| 20.5 / n + 2.95;
    let multicast: fn(f64) -> f64 = |n| 45.5 / n + 1.07;
    let write: fn(f64) -> f64 = |n| 16.4 / n + 3.6 + 0.17 * (n - 8.0).max(0.0);
    let rising: fn(f64) -> f64 = |n| (20.5 / n + 2.95) * (0.5 + n / 40.0);
    let above: fn(f64) -> f64 = |n| 2.0 * (20.5 / n + 2.95);
    let [writes, multicasts] = match lines {
        Lines::Published => [write, multicast],
        Lines::Above => [above, above],
        Lines::OtherWay => [multicast, rising],
    };
    let parts = [
        line("sends", json!({ "transport": "ud", "op": "send" }), ud),
        line("writes", json!({ "transport": "rc" }), writes),
        line("multicast", json!({ "transport": "ud" }), multicasts),
    ];
    let found = evaluate(study, &parts).claims;
    let of = |key: &'static str| {
        let judged = found.iter().find(|judged| judged.claim.key == key).expect(key);
        (key, judged.verdict.clone())
    };
    ["multicast-and-ud-cross", "writes-and-ud-cross"].map(of).to_vec()
}

#[test]
fn lines_of_viertel_cross_and_others_do_not() {
    let study = study("viertel2006");
    for (key, verdict) in lines_of_viertel(&study, Lines::Published) {
        assert_eq!(verdict, Verdict::Confirmed(String::new()), "{key}");
    }
    for (lines, why) in [(Lines::Above, "no crossing"), (Lines::OtherWay, "the other way")] {
        for (key, verdict) in lines_of_viertel(&study, lines) {
            assert_eq!(verdict.name(), "refuted", "{key}: {verdict:?}");
            assert!(verdict.why().contains(why), "{key}: {verdict:?}");
        }
    }
}

#[test]
fn the_book_has_the_advice_of_each_study() {
    let page = include_str!("../../../docs/book/src/study-advice.md");
    let studies = Study::shipped().expect("the shipped studies can be read");
    let mut rows = 0;
    for study in &studies {
        assert!(page.contains(&format!("\n## {}: ", study.plan.key)), "{}", study.plan.key);
        for advice in &study.advice {
            let row = format!("\n| {} | {} | ", advice.says, advice.borne_by(&study.claims));
            assert!(page.contains(&row), "{}: no line {row}", study.plan.key);
            rows += 1;
        }
    }
    let shown = page.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| advice")).count();
    assert_eq!(shown, rows, "a line that no study has");
}
