//! Findings from several points, as a side of a claim and compared with a published value.

mod common;

use rdmalab_record::{DeviceKind, Finding, Number, Point};
use rdmalab_study::{Evaluation, Standing, Study, Verdict, evaluate};
use serde_json::json;

const PLAN: &str = "key='a'\ntitle='T'\nsource='S'\nhardware='H'\nrepeat=6\n\
    [[figure]]\nkey='f'\ntitle='F'\n[[figure.sweep]]\nrun='recvq'\n";
const PUBLISHED: &str = "metric,value,unit,tolerance,kind,place,what\n\
    period,32,messages,exact,calibration,p. 1,w\npeak,4.4,us,5%,calibration,p. 1,w\n";

fn point(number: u64, depth: u64) -> Point {
    let parameters = json!({ "rx_depth": depth, "queue": "srq" }).as_object().unwrap().clone();
    Point { number, order_index: number, parameters, elapsed_s: 1.0, ..Point::default() }
}

fn pattern(point: u64, period: f64, peak_ns: f64) -> Finding {
    let number = |name: &str, value, low, high| {
        let (name, value) = (name.to_owned(), Some(value));
        Number { name, value, low, high }
    };
    Finding {
        name: "pattern".to_owned(),
        label: "rank 0".to_owned(),
        unit: "messages".to_owned(),
        value: Some(period),
        points: vec![point],
        numbers: vec![
            number("peak_1_ns", peak_ns, None, None),
            number("chance_share", 1e-9 * peak_ns, Some(0.0), Some(1e-9 * peak_ns)),
        ],
        sentence: "rank 0: every so many".to_owned(),
        ..Finding::default()
    }
}

fn crossover(value: Option<f64>, low: Option<f64>, high: Option<f64>) -> Finding {
    Finding {
        name: "crossover".to_owned(),
        unit: "bytes".to_owned(),
        along: Some("rx_depth".to_owned()),
        value,
        low,
        high,
        points: vec![0, 1],
        sentence: "measure more than one size".to_owned(),
        ..Finding::default()
    }
}

/// The evaluation of a claims.toml with made-up points and findings.
fn evaluated(claims: &str, kind: DeviceKind, points: Vec<Point>, all: Vec<Finding>) -> Evaluation {
    let study = Study::parse("a", PLAN, PUBLISHED, claims).unwrap();
    evaluate(&study, &[common::part("f", common::record(kind, points, all))])
}

fn verdict(claim: &str, all: Vec<Finding>) -> Verdict {
    verdict_of(6, claim, all)
}

/// The verdict on a claim from `runs` runs with 32 receives, followed by as many with one.
fn verdict_of(runs: u64, claim: &str, all: Vec<Finding>) -> Verdict {
    let claims = format!("[[claim]]\nkey='c'\nsays='s'\nsource='p. 1'\n{claim}\n");
    let deep = (0..runs).map(|i| point(i, 32));
    let points = deep.chain((runs..2 * runs).map(|i| point(i, 1))).collect();
    evaluated(&claims, DeviceKind::System, points, all).claims.remove(0).verdict
}

fn in_runs(periods: &[f64]) -> Vec<Finding> {
    periods.iter().enumerate().map(|(i, p)| pattern(i as u64, *p, 4400.0 + *p)).collect()
}

const PERIOD: &str = "left={figure='f', finding='pattern', label='rank 0', where={rx_depth=32}}\n\
    relation='~'\nright={published='period'}";

#[test]
fn a_period_is_a_side_of_a_claim() {
    assert_eq!(verdict(PERIOD, in_runs(&[32.0; 6])), Verdict::Confirmed(String::new()));
    assert_eq!(verdict(PERIOD, in_runs(&[31.0; 6])).name(), "refuted");
    // Two runs are too few, even if they agree.
    for few in [[32.0, 32.0], [32.0, 16.0]] {
        let said = verdict_of(2, PERIOD, in_runs(&few));
        let needs = "an interval needs 6 runs of what each finds once, here are 2: the whole plan, \
                     without --quick, has 6";
        assert_eq!(said, Verdict::CannotBeSeen(needs.to_owned()));
    }
    let one = verdict_of(1, PERIOD, in_runs(&[32.0]));
    assert!(one.why().starts_with("there is one run"), "{one:?}");
    // If most runs lack the finding, the few that have it give no verdict.
    let said = verdict(PERIOD, in_runs(&[32.0; 2]));
    assert!(said.why().starts_with("2 of 6 runs have it, which may be half"), "{said:?}");
    assert_eq!(verdict(PERIOD, in_runs(&[32.0; 5])).name(), "cannot be seen");
    let none = Verdict::CannotBeSeen("no pattern of rank 0 was found there".to_owned());
    assert_eq!(verdict(PERIOD, Vec::new()), none);
    let other = PERIOD.replace("rank 0", "rank 1");
    assert_eq!(verdict(&other, in_runs(&[32.0; 6])).name(), "cannot be seen");
}

#[test]
fn other_numbers_of_a_finding_are_sides_too() {
    let of = |number: &str, rest: &str| {
        let left = format!("left={{figure='f', finding='pattern', number='{number}'}}\n");
        verdict(&format!("{left}{rest}"), in_runs(&[32.0; 6]))
    };
    let peak = "relation='~'\ntolerance=0.05\nright={published='peak'}";
    assert_eq!(of("peak_1_ns", peak), Verdict::Confirmed(String::new()));
    // A bound has its own interval.
    assert_eq!(of("chance_share", "relation='<'\nright={value=0.01}").name(), "confirmed");
    let said = of("base_ns", "relation='<'\nright={value=1}");
    assert!(said.why().contains("has no number base_ns here; it has peak_1_ns"), "{said:?}");
}

#[test]
fn that_there_is_none_is_a_number_too() {
    let of_runs = |runs: u64, depth: u32, relation: &str, all| {
        let claim = format!(
            "left={{figure='f', finding='pattern', number='found', where={{rx_depth={depth}}}}}\n\
             relation='{relation}'\nright={{value=0.5}}"
        );
        verdict_of(runs, &claim, all)
    };
    let of = |depth, relation, all| of_runs(6, depth, relation, all);
    assert_eq!(of(32, ">", in_runs(&[32.0; 6])).name(), "confirmed");
    assert_eq!(of(32, ">", Vec::new()).name(), "refuted");
    assert_eq!(of(1, "<", in_runs(&[32.0; 6])).name(), "confirmed");
    // The finding is in three runs of six, which decides nothing.
    assert_eq!(of(32, ">", in_runs(&[32.0; 3])).name(), "cannot be seen");
    // None of two may be up to four in five (Clopper and Pearson: 0.84), two of two one in five.
    assert_eq!(of_runs(2, 1, "<", in_runs(&[32.0; 2])).name(), "cannot be seen");
    assert_eq!(of_runs(2, 32, ">", in_runs(&[32.0; 2])).name(), "cannot be seen");
    assert_eq!(of_runs(5, 32, ">", in_runs(&[32.0; 5])).name(), "cannot be seen");
}

#[test]
fn a_crossover_beyond_what_was_measured_is_a_bound() {
    let of = |relation: &str, found: Finding| {
        let claim = format!(
            "left={{figure='f', finding='crossover'}}\nrelation='{relation}'\nright={{value=4096}}"
        );
        verdict(&claim, vec![found])
    };
    assert_eq!(of("<", crossover(Some(2048.0), Some(1024.0), Some(3000.0))).name(), "confirmed");
    assert_eq!(of("<", crossover(Some(2048.0), Some(1024.0), None)).name(), "cannot be seen");
    assert_eq!(of("<", crossover(None, None, Some(512.0))).name(), "confirmed");
    assert_eq!(of("<", crossover(None, Some(8192.0), None)).name(), "refuted");
    assert_eq!(of(">", crossover(None, Some(8192.0), None)).name(), "confirmed");
    // With one run at each place, the variation between runs is unknown.
    let alone =
        Finding { points: vec![0, 6], ..crossover(Some(2048.0), Some(1024.0), Some(3000.0)) };
    let said = of("<", alone);
    assert!(said.why().starts_with("there is one run"), "{said:?}");
    let none = of("<", crossover(None, None, None));
    assert_eq!(none, Verdict::CannotBeSeen("measure more than one size".to_owned()));
}

#[test]
fn a_finding_stands_beside_a_published_value() {
    let claims = "[[value]]\nmetric='period'\nours={figure='f', finding='pattern'}\n\
        [[value]]\nmetric='peak'\nours={figure='f', finding='pattern', number='peak_1_ns'}\n";
    let points: Vec<Point> = (0..6).map(|i| point(i, 32)).collect();
    let two = in_runs(&[32.0, 32.0]);
    let few = evaluated(claims, DeviceKind::System, points.clone(), two).values;
    assert!(matches!(few[1].standing, Standing::CannotTell(_)), "{:?}", few[1].standing);
    let all = in_runs(&[32.0; 6]);
    let found = evaluated(claims, DeviceKind::System, points.clone(), all.clone()).values;
    let ours: Vec<_> = found.iter().map(|v| v.ours.clone().unwrap()).collect();
    assert_eq!(ours[0], ("pattern".to_owned(), "32 messages (32 messages - 32 messages)".into()));
    assert_eq!(ours[1].0, "pattern: peak_1_ns");
    assert_eq!(found.iter().map(|v| v.ratio).next(), Some(Some(1.0)));
    assert_eq!(found[1].standing, Standing::Within);
    // On a soft device the number describes the host, so it is only shown.
    let soft = evaluated(claims, DeviceKind::Soft, points, all).values;
    assert!(matches!(soft[1].standing, Standing::Shown(_)), "{:?}", soft[1].standing);
}
