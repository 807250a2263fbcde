//! Judges one claim by measurements.

use rdmalab_record::DeviceKind;

use crate::claim::Claim;
use crate::crossing::crossing;
use crate::evidence::{Decision, Evidence, Verdict, decide, place};
use crate::lookup::{SweepResult, impossible_from, measurements, repeats_exactly, with_note};
use crate::measurement::{Measurement, ratio};
use crate::published::Published;
use crate::study::Study;
use crate::undecided::{planned_runs, why_undecided};

/// Judges a claim of a study.
pub(crate) fn judge(
    claim: &Claim,
    study: &Study,
    parts: &[SweepResult],
    kind: Option<DeviceKind>,
) -> (Verdict, Vec<Evidence>) {
    let unseen = |why: String| (Verdict::CannotBeSeen(why), Vec::new());
    if let Some(kind) = kind.filter(|kind| !claim.on.is_empty() && !claim.on.contains(kind)) {
        let because = &claim.because;
        return unseen(format!("not on a device of kind {kind}: {because}; {}", shown_by(claim)));
    }
    let left = match measurements(parts, &claim.left, claim.range.as_ref()) {
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
        Some(value) => Ok(vec![Measurement::constant(value, left[0].unit.clone())]),
        None => measurements(parts, &right_operand, claim.range.as_ref()),
    };
    let right = match right {
        Ok(found) => found,
        Err(why) => return unseen(with_note(&study.plan, &right_operand, why)),
    };
    let mut names = varying(&left, &right);
    let own = [claim.left.fixed(), right_operand.fixed()].concat();
    names.retain(|name| !own.contains(name) && !AMOUNTS.contains(&name.as_str()));
    let is_exact = repeats_exactly(parts);
    let evidence = pairs(claim, (&left, &right), &names, is_exact);
    if evidence.is_empty() {
        return unseen("no two points of it differ in nothing else".to_owned());
    }
    let runs = planned_runs(claim, &study.plan);
    let verdict = match claim.relation {
        relation if relation.crosses() => {
            let operands = [&claim.left, &right_operand];
            let beyond = operands.map(|one| impossible_from(parts, one, claim.range.as_ref()));
            let beyond = beyond.into_iter().flatten().reduce(f64::min);
            crossing(claim, &evidence, &names, beyond, &|| why_undecided(claim, &evidence, runs))
        }
        _ => verdict(claim, &evidence, runs, is_exact),
    };
    (verdict, evidence)
}

/// What would show a claim that is about some kinds of devices.
fn shown_by(claim: &Claim) -> String {
    let device = |kind: &DeviceKind| match kind {
        DeviceKind::System => "an adapter",
        DeviceKind::Soft => "the soft device",
        DeviceKind::Sim => "a model (--device sim)",
    };
    let all: Vec<&str> = claim.on.iter().map(device).collect();
    format!("{} would show it", all.join(" or "))
}

/// Parameters that set how much is measured, and do not change the measured number.
const AMOUNTS: [&str; 6] = ["messages", "duration_ns", "runs", "warm_up", "seed", "stamp_every"];

/// Names of parameters with more than one value within an operand.
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
    (left, right): (&[Measurement], &[Measurement]),
    names: &[String],
    is_exact: bool,
) -> Vec<Evidence> {
    let is_same = |a: &Measurement, b: &Measurement| {
        b.runs == 0 || names.iter().all(|name| a.parameters.get(name) == b.parameters.get(name))
    };
    let mut shown = names.to_vec();
    // The range's parameter varies even if the right operand fixes it.
    let along = claim.range.as_ref().map(|range| range.parameter.clone());
    shown.extend(along.filter(|name| !names.contains(name)));
    let mut found = Vec::new();
    for l in left {
        for r in right.iter().filter(|r| is_same(l, r)) {
            let (value, ends) = ratio(l, r);
            let ratio = (value, if is_exact { Some((value, value)) } else { ends });
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

/// Most places of contradictions that a verdict names.
const PLACES: usize = 4;

/// One in twenty of many 95 % intervals misses: this many contradictions may be chance.
fn by_chance(decided: usize) -> usize {
    decided / 20
}

/// The verdict on a claim that is not about a crossing. No exact number is off by chance.
fn verdict(claim: &Claim, evidence: &[Evidence], planned_runs: usize, is_exact: bool) -> Verdict {
    let of = |decision| evidence.iter().filter(move |e| e.decision == decision);
    let (holds, fails) = (of(Decision::Holds).count(), of(Decision::Fails).count());
    let all = evidence.len();
    let exceptions = || {
        let places: Vec<String> = of(Decision::Fails).take(PLACES).map(where_it_fails).collect();
        let more = if fails > places.len() { ", ..." } else { "" };
        format!("{}{more}", places.join("; "))
    };
    let allowed = if claim.every || is_exact { 0 } else { by_chance(holds + fails) };
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
mod tests {
    use super::*;
    use crate::evidence::tests::{claim, decision, evidence, of_runs};

    #[test]
    fn a_difference_too_small_to_count_is_told_as_such() {
        use Decision::{Holds, Undecided};
        let claim = claim("<", "tolerance=0.05");
        let mut all = evidence(&[Undecided, Undecided, Holds]);
        for e in &mut all[..2] {
            e.ratio = (0.98, Some((0.97, 0.99)));
        }
        let said = "the difference is smaller than what counts (5 %) at 2 of 3 points";
        assert_eq!(verdict(&claim, &all, 1, false), Verdict::CannotBeSeen(said.to_owned()));
        all[0].ratio = (0.9, Some((0.8, 1.1)));
        let both = verdict(&claim, &all, 1, false);
        assert!(both.why().contains("at 1 of 3 points; the intervals allow both at 1"), "{both:?}");
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
            verdict(&less, &[one], 3, false)
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

    #[test]
    fn a_share_may_be_none_in_each_run() {
        let half = Measurement::constant(0.5, of_runs(&[1.0]).unit);
        let less = claim("<", "");
        let of = |shares: &[f64]| decide(&less, ratio(&of_runs(shares), &half));
        assert_eq!(of(&[0.0, 0.0, 0.0]), Decision::Holds);
        assert_eq!(of(&[0.0, 0.1, 0.0]), Decision::Holds);
        assert_eq!(of(&[0.0, 0.9, 0.1]), Decision::Undecided);
        assert_eq!(of(&[0.0]), Decision::Undecided);
        // The other way round it is no ratio.
        assert_eq!(decide(&less, ratio(&half, &of_runs(&[0.0, 0.0]))), Decision::Undecided);
    }

    #[test]
    fn one_contradiction_refutes_unless_chance_makes_one() {
        use Decision::{Fails, Holds, Undecided};
        let (some, every) = (claim("<", ""), claim("<", "every=true"));
        let of = |d: &[Decision]| verdict(&some, &evidence(d), 1, false);
        assert_eq!(of(&[Holds, Holds, Undecided]), Verdict::Confirmed(String::new()));
        assert!(matches!(of(&[Holds, Fails]), Verdict::Refuted(_)));
        assert!(matches!(of(&[Undecided, Undecided, Holds]), Verdict::CannotBeSeen(_)));
        let mut many = vec![Holds; 20];
        assert_eq!(verdict(&every, &evidence(&many), 1, false), Verdict::Confirmed(String::new()));
        many.push(Fails);
        let exception = "except at size bytes 20: 0.90 to 1.10 times (1 of 21)";
        assert_eq!(of(&many), Verdict::Confirmed(exception.to_owned()));
        let said = "it fails at 1 of 21 points: size bytes 20: 0.90 to 1.10 times";
        assert_eq!(verdict(&every, &evidence(&many), 1, false), Verdict::Refuted(said.to_owned()));
        // Numbers of a model from which nothing is drawn are not off by chance.
        assert_eq!(verdict(&some, &evidence(&many), 1, true), Verdict::Refuted(said.to_owned()));
        assert_eq!(
            verdict(&some, &evidence(&many[..20]), 1, true),
            Verdict::Confirmed(String::new())
        );
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
        // The sign is certain on neither side.
        assert_eq!(decision("falls below", more, (0.85, 0.7, 1.1)), Undecided);
        assert_eq!(decision("falls below", more, (1.2, 0.95, 1.3)), Undecided);
        let claim = claim("rises above", more);
        let (two, names) = (evidence(&all[..2]), ["size_bytes".to_owned()]);
        let found = crossing(&claim, &two, &names, None, &String::new);
        assert!(!matches!(found, Verdict::Confirmed(_)), "{found:?}");
    }
}
