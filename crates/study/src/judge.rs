//! One claim against measurements.

use rdmalab_measure::stats::{RunRatio, Runs};
use rdmalab_record::{DeviceKind, Object};

use crate::claim::{Claim, Relation};
use crate::crossing::crossing;
use crate::measurement::{
    AMOUNTS, Basis, Measurement, SweepResult, Unit, cells, fixed, hull, impossible_from, text,
    with_note,
};
use crate::published::Published;
use crate::study::Study;
use crate::undecided::{planned_runs, why_undecided};

/// What measurements say to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds wherever something could be told; or but for so few places that they are chance:
    /// where. Empty when there are none.
    Confirmed(String),
    /// It does not hold: where.
    Refuted(String),
    /// Nothing can be told: why.
    CannotBeSeen(String),
}

impl Verdict {
    /// Its word.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Confirmed(_) => "confirmed",
            Self::Refuted(_) => "refuted",
            Self::CannotBeSeen(_) => "cannot be seen",
        }
    }

    /// What goes with the word.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::Confirmed(why) | Self::Refuted(why) | Self::CannotBeSeen(why) => why,
        }
    }
}

/// What one pair of numbers says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The relation holds.
    Holds,
    /// It does not.
    Fails,
    /// The intervals allow both.
    Undecided,
}

/// One pair of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// At which parameters.
    pub place: String,
    /// The left number.
    pub left: Measurement,
    /// The right number.
    pub right: Measurement,
    /// Left over right, with the ends that the intervals allow.
    pub ratio: (f64, Option<(f64, f64)>),
    /// What it says.
    pub decision: Decision,
}

/// Judges a claim of a study.
pub(crate) fn judge(
    claim: &Claim,
    study: &Study,
    parts: &[SweepResult],
    kind: Option<DeviceKind>,
) -> (Verdict, Vec<Evidence>) {
    let unseen = |why: String| (Verdict::CannotBeSeen(why), Vec::new());
    if let Some(kind) = kind.filter(|kind| !claim.on.is_empty() && !claim.on.contains(kind)) {
        return unseen(format!("not on a device of kind {kind}: {}", claim.because));
    }
    let left = match cells(parts, &claim.left, claim.range.as_ref()) {
        Ok(found) => found,
        Err(why) => return unseen(with_note(&study.plan, &claim.left, why)),
    };
    let right_operand = claim.right_operand();
    let plain = match &claim.right.published {
        Some(metric) => {
            study.published.iter().find(|p| p.metric == *metric).and_then(Published::in_base)
        }
        None => claim.right.value,
    };
    let right = match plain {
        Some(value) => Ok(vec![constant(value, left[0].unit.clone())]),
        None => cells(parts, &right_operand, claim.range.as_ref()),
    };
    let right = match right {
        Ok(found) => found,
        Err(why) => return unseen(with_note(&study.plan, &right_operand, why)),
    };
    let mut names = varying(&left, &right);
    let own = [fixed(&claim.left), fixed(&right_operand)].concat();
    names.retain(|name| !own.contains(name) && !AMOUNTS.contains(&name.as_str()));
    let evidence = pairs(claim, &left, &right, &names);
    if evidence.is_empty() {
        return unseen("no two points of it differ in nothing else".to_owned());
    }
    let runs = planned_runs(claim, &study.plan);
    let verdict = match claim.relation {
        relation if relation.crosses() => {
            let sides = [&claim.left, &right_operand];
            let beyond = sides.map(|side| impossible_from(parts, side, claim.range.as_ref()));
            let beyond = beyond.into_iter().flatten().reduce(f64::min);
            crossing(claim, &evidence, &names, beyond, &|| why_undecided(claim, &evidence, runs))
        }
        _ => verdict(claim, &evidence, runs),
    };
    (verdict, evidence)
}

fn constant(value: f64, unit: Unit) -> Measurement {
    let ends = Some((value, value));
    let parameters = Object::new();
    // As if run after run had given it.
    let of_runs = vec![value; 2];
    let (interval, basis, clock_error_ns) = (ends, Basis::Runs, 0.0);
    let (n, runs, exact) = (0, 0, ends);
    Measurement {
        parameters,
        value,
        interval,
        exact,
        n,
        runs,
        basis,
        of_runs,
        clock_error_ns,
        unit,
    }
}

/// Names of parameters with more than one value within a side.
fn varying(left: &[Measurement], right: &[Measurement]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for cells in [left, right] {
        for name in cells.iter().flat_map(|cell| cell.parameters.keys()) {
            let mut values = cells.iter().map(|cell| cell.parameters.get(name));
            let first = values.next();
            if !names.contains(name) && values.any(|value| Some(value) != first) {
                names.push(name.clone());
            }
        }
    }
    names
}

fn pairs(
    claim: &Claim,
    left: &[Measurement],
    right: &[Measurement],
    names: &[String],
) -> Vec<Evidence> {
    let is_same = |a: &Measurement, b: &Measurement| {
        b.runs == 0 || names.iter().all(|name| a.parameters.get(name) == b.parameters.get(name))
    };
    let mut shown = names.to_vec();
    // Also where the right side is one place of it.
    let along = claim.range.as_ref().map(|range| range.parameter.clone());
    shown.extend(along.filter(|name| !names.contains(name)));
    let mut found = Vec::new();
    for l in left {
        for r in right.iter().filter(|r| is_same(l, r)) {
            let ratio = ratio(l, r);
            found.push(Evidence {
                place: place(&l.parameters, &shown),
                left: l.clone(),
                right: r.clone(),
                ratio,
                decision: decide(claim, ratio),
            });
        }
    }
    found
}

/// Left over right, with the ends that the runs allow: none where a side has one run only.
pub(crate) fn ratio(left: &Measurement, right: &Measurement) -> (f64, Option<(f64, f64)>) {
    let value = left.value / right.value;
    if left.runs == 1 || right.runs == 1 {
        return (value, None);
    }
    let over = |(l, r): ((f64, f64), (f64, f64))| (l.0 / r.1, l.1 / r.0);
    let is_number = |ends: &(f64, f64)| !ends.0.is_nan() && !ends.1.is_nan();
    let ends = if left.of_runs.is_empty() || right.of_runs.is_empty() {
        left.ends().zip(right.ends()).map(over).filter(is_number)
    } else {
        let within = left.interval.zip(right.interval).map(over).filter(is_number);
        between_runs(left, right).map(|between| hull(between, within))
    };
    (value, ends)
}

/// The interval by what runs differ by: many samples of one run know that run well, and say nothing
/// of the next one. `None` where a side has but one.
fn between_runs(left: &Measurement, right: &Measurement) -> Option<(f64, f64)> {
    let runs = |cell: &Measurement| {
        let each: Vec<Vec<f64>> = cell.of_runs.iter().map(|value| vec![*value]).collect();
        Runs::of_session(&each).with_common_error(cell.clock_error_ns)
    };
    let ratio = RunRatio::of(&runs(right), &runs(left), 0.5)?;
    let interval = ratio.interval(0.95);
    Some((interval.low, interval.high))
}

/// `size_bytes 64, transport rc`.
pub(crate) fn place(parameters: &Object, names: &[String]) -> String {
    let each = names.iter().filter_map(|name| {
        let value = parameters.get(name)?;
        Some(format!("{} {}", name.replace('_', " "), text(value)))
    });
    each.collect::<Vec<_>>().join(", ")
}

pub(crate) fn decide(claim: &Claim, (value, ends): (f64, Option<(f64, f64)>)) -> Decision {
    let Some((low, high)) = ends else { return Decision::Undecided };
    let (tolerance, factor) = (claim.tolerance, claim.factor.unwrap_or(1.0));
    let (value, low, high) = (value / factor, low / factor, high / factor);
    let within = || {
        let (from, to) = (1.0 - tolerance, 1.0 + tolerance);
        if from <= low && high <= to {
            Decision::Holds
        } else if high < from || to < low {
            Decision::Fails
        } else {
            Decision::Undecided
        }
    };
    match claim.relation {
        Relation::Less => {
            if high < 1.0 && value <= 1.0 - tolerance {
                Decision::Holds
            } else if low >= 1.0 {
                Decision::Fails
            } else {
                Decision::Undecided
            }
        }
        Relation::More => {
            if low > 1.0 && value >= 1.0 + tolerance {
                Decision::Holds
            } else if high <= 1.0 {
                Decision::Fails
            } else {
                Decision::Undecided
            }
        }
        // On either side of a crossing the sign has to be sure, and the difference has to count.
        Relation::RisesAbove | Relation::FallsBelow => {
            if high < 1.0 && value <= 1.0 - tolerance {
                Decision::Holds
            } else if low > 1.0 && value >= 1.0 + tolerance {
                Decision::Fails
            } else {
                Decision::Undecided
            }
        }
        Relation::Near | Relation::Times => within(),
    }
}

/// Places of a contradiction that are named.
const PLACES: usize = 4;

/// Of many intervals at 95 %, one in twenty misses: so many contradictions are chance.
fn by_chance(decided: usize) -> usize {
    decided / 20
}

pub(crate) fn verdict(claim: &Claim, evidence: &[Evidence], planned_runs: usize) -> Verdict {
    let of = |decision| evidence.iter().filter(move |e| e.decision == decision);
    let (holds, fails) = (of(Decision::Holds).count(), of(Decision::Fails).count());
    let all = evidence.len();
    let exceptions = || {
        let places: Vec<String> = of(Decision::Fails).take(PLACES).map(where_it_fails).collect();
        let more = if fails > places.len() { ", ..." } else { "" };
        format!("{}{more}", places.join("; "))
    };
    let allowed = if claim.every { 0 } else { by_chance(holds + fails) };
    if fails > allowed {
        return Verdict::Refuted(format!("it fails at {fails} of {all} points: {}", exceptions()));
    }
    if holds > 0 && holds * 2 >= all {
        return Verdict::Confirmed(match fails {
            0 => String::new(),
            _ => format!("except at {} ({fails} of {all})", exceptions()),
        });
    }
    Verdict::CannotBeSeen(why_undecided(claim, evidence, planned_runs))
}

fn where_it_fails(evidence: &Evidence) -> String {
    let times = match evidence.ratio.1 {
        Some((low, high)) => format!("{low:.2} to {high:.2} times"),
        None => format!("{:.2} times", evidence.ratio.0),
    };
    if evidence.place.is_empty() { times } else { format!("{}: {times}", evidence.place) }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn claim(relation: &str, more: &str) -> Claim {
        let text = format!(
            "key='k'\nsays='s'\nleft={{figure='f',quantity='round_trip_ns'}}\nright={{value=1}}\n\
             relation='{relation}'\nsource=''\n{more}\n"
        );
        toml::from_str(&text).unwrap()
    }

    fn decision(relation: &str, more: &str, (value, low, high): (f64, f64, f64)) -> Decision {
        decide(&claim(relation, more), (value, Some((low, high))))
    }

    #[test]
    fn a_difference_counts_when_its_interval_says_so() {
        use Decision::{Fails, Holds, Undecided};
        assert_eq!(decision("<", "", (0.9, 0.85, 0.95)), Holds);
        assert_eq!(decision("<", "", (0.9, 0.85, 1.05)), Undecided);
        assert_eq!(decision("<", "", (1.2, 1.1, 1.3)), Fails);
        assert_eq!(decision("<", "factor=64", (50.0, 45.0, 55.0)), Holds);
        // A certain difference that is too small to count does not hold, and is none the other way.
        assert_eq!(decision("<", "tolerance=0.05", (0.98, 0.97, 0.99)), Undecided);
        assert_eq!(decision("<", "tolerance=0.05", (1.0, 0.99, 1.01)), Undecided);
        assert_eq!(decision("<", "tolerance=0.05", (1.02, 1.01, 1.03)), Fails);
        assert_eq!(decision(">", "tolerance=0.05", (1.02, 1.01, 1.03)), Undecided);
        assert_eq!(decision(">", "tolerance=0.05", (0.98, 0.97, 0.99)), Fails);
        assert_eq!(decision(">", "", (1.2, 1.1, 1.3)), Holds);
        assert_eq!(decision(">", "", (0.9, 0.85, 0.95)), Fails);
        assert_eq!(decision(">", "tolerance=0.1", (1.2, 0.9, 1.3)), Undecided);
        assert_eq!(decision("~", "tolerance=0.1", (1.0, 0.95, 1.05)), Holds);
        assert_eq!(decision("~", "tolerance=0.1", (1.0, 0.85, 1.05)), Undecided);
        assert_eq!(decision("~", "tolerance=0.1", (1.3, 1.2, 1.4)), Fails);
        assert_eq!(decision("x", "tolerance=0.1\nfactor=0.7", (0.7, 0.68, 0.72)), Holds);
        assert_eq!(decision("x", "tolerance=0.1\nfactor=0.7", (1.0, 0.98, 1.02)), Fails);
        assert_eq!(decide(&claim("<", ""), (0.5, None)), Undecided);
    }

    /// Of samples that know each run to a per mille.
    pub fn of_runs(values: &[f64]) -> Measurement {
        let middle = values.iter().sum::<f64>() / values.len() as f64;
        let interval = Some((middle * 0.999, middle * 1.001));
        Measurement {
            value: middle,
            interval,
            exact: interval,
            n: 10_000,
            runs: values.len(),
            of_runs: values.to_vec(),
            ..constant(middle, Unit::Named("ns".to_owned()))
        }
    }

    #[test]
    fn what_runs_differ_by_decides_and_one_of_them_tells_nothing() {
        use Decision::{Holds, Undecided};
        let less = claim("<", "");
        let decision = |a: &[f64], b: &[f64]| decide(&less, ratio(&of_runs(a), &of_runs(b)));
        assert_eq!(decision(&[90.0], &[100.0]), Undecided);
        assert_eq!(decision(&[90.0, 96.0], &[100.0, 106.0]), Undecided);
        assert_eq!(decision(&[90.0, 90.1], &[100.0, 100.1]), Holds);
        assert_eq!(decision(&[90.0, 93.0, 91.0, 92.0], &[100.0, 103.0, 101.0, 102.0]), Holds);
        // Against a number as well, and never narrower than what the samples leave open.
        let number = constant(100.0, Unit::Named("ns".to_owned()));
        assert_eq!(decide(&less, ratio(&of_runs(&[90.0, 93.0]), &number)), Undecided);
        assert_eq!(decide(&less, ratio(&of_runs(&[90.0, 90.1]), &number)), Holds);
        let (_, ends) = ratio(&of_runs(&[90.0, 90.0]), &of_runs(&[90.0, 90.0]));
        let (low, high) = ends.unwrap();
        assert!(low <= 0.998_1 && high >= 1.001_9, "{low} {high}");
    }

    #[test]
    fn what_clocks_of_two_hosts_could_turn_is_not_decided() {
        let less = claim("<", "");
        let of = |ns: f64, clock_error_ns: f64| Measurement {
            n: 10_000,
            clock_error_ns,
            ..of_runs(&[ns, ns * 1.001, ns * 1.002])
        };
        let judged = |a: f64, b: f64, error_ns: f64| {
            let (left, right) = (of(a, error_ns), of(b, error_ns));
            let ratio = ratio(&left, &right);
            let decision = decide(&less, ratio);
            let one = Evidence { place: String::new(), left, right, ratio, decision };
            verdict(&less, &[one], 3)
        };
        assert_eq!(judged(20e3, 22e3, 0.0), Verdict::Confirmed(String::new()));
        assert!(matches!(judged(22e3, 20e3, 0.0), Verdict::Refuted(_)));
        for (a, b) in [(20e3, 22e3), (22e3, 20e3)] {
            let verdict = judged(a, b, 5e3);
            assert_eq!(verdict.name(), "cannot be seen");
            assert!(verdict.why().contains("off by up to 5.00 us"), "{verdict:?}");
        }
        assert_eq!(judged(20e3, 42e3, 5e3), Verdict::Confirmed(String::new()));
    }

    /// Two equal sides, whose runs differ by 3 %.
    #[test]
    fn equal_sides_are_seldom_told_apart() {
        for runs in [2, 3, 6] {
            let mut told = 0;
            let mut state = 20_261_122_u64;
            // The sum of twelve uniform numbers: nearly normal.
            let mut normal = || {
                let mut sum = -6.0;
                for _ in 0..12 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    sum += (state >> 11) as f64 / (1_u64 << 53) as f64;
                }
                sum
            };
            for _ in 0..2000 {
                let mut side = || (0..runs).map(|_| 100.0 * (1.0 + 0.03 * normal())).collect();
                let (a, b): (Vec<f64>, Vec<f64>) = (side(), side());
                let (_, ends) = ratio(&of_runs(&a), &of_runs(&b));
                let (low, high) = ends.unwrap();
                told += usize::from(high < 1.0 || low > 1.0);
            }
            // Without the runs it is more than 80 % of them.
            assert!(told < 140, "{runs} runs: {told} of 2000");
        }
    }

    pub fn evidence(decisions: &[Decision]) -> Vec<Evidence> {
        let one = |(i, decision): (usize, &Decision)| {
            let mut cell = constant(1.0, Unit::Named(String::new()));
            cell.parameters.insert("size_bytes".to_owned(), (i as u64).into());
            Evidence {
                place: format!("size bytes {i}"),
                left: cell.clone(),
                right: cell,
                ratio: (1.0, Some((0.9, 1.1))),
                decision: *decision,
            }
        };
        decisions.iter().enumerate().map(one).collect()
    }

    #[test]
    fn one_contradiction_refutes_unless_chance_makes_one() {
        use Decision::{Fails, Holds, Undecided};
        let (some, every) = (claim("<", ""), claim("<", "every=true"));
        let of = |d: &[Decision]| verdict(&some, &evidence(d), 1);
        assert_eq!(of(&[Holds, Holds, Undecided]), Verdict::Confirmed(String::new()));
        assert!(matches!(of(&[Holds, Fails]), Verdict::Refuted(_)));
        assert!(matches!(of(&[Undecided, Undecided, Holds]), Verdict::CannotBeSeen(_)));
        let mut many = vec![Holds; 20];
        assert_eq!(verdict(&every, &evidence(&many), 1), Verdict::Confirmed(String::new()));
        many.push(Fails);
        let exception = "except at size bytes 20: 0.90 to 1.10 times (1 of 21)";
        assert_eq!(of(&many), Verdict::Confirmed(exception.to_owned()));
        let said = "it fails at 1 of 21 points: size bytes 20: 0.90 to 1.10 times";
        assert_eq!(verdict(&every, &evidence(&many), 1), Verdict::Refuted(said.to_owned()));
        many.push(Fails);
        assert!(matches!(of(&many), Verdict::Refuted(_)));
    }

    #[test]
    fn to_come_nearer_is_not_to_cross() {
        use Decision::{Fails, Holds, Undecided};
        let more = "tolerance=0.1\nrange={parameter='size_bytes', from=0, to=9}";
        let of = |value: f64| decision("rises above", more, (value, value - 0.02, value + 0.02));
        let all = [0.7, 0.95, 1.05, 1.2].map(of);
        assert_eq!(all, [Holds, Undecided, Undecided, Fails]);
        // Sure on neither side.
        assert_eq!(decision("falls below", more, (0.85, 0.7, 1.1)), Undecided);
        assert_eq!(decision("falls below", more, (1.2, 0.95, 1.3)), Undecided);
        let claim = claim("rises above", more);
        let (two, names) = (evidence(&all[..2]), ["size_bytes".to_owned()]);
        let found = crossing(&claim, &two, &names, None, &String::new);
        assert!(!matches!(found, Verdict::Confirmed(_)), "{found:?}");
    }
}
