//! Why measurements do not decide a claim: each undecided point has its own reason.

use rdmalab_measure::quantity::fmt_ns;

use crate::claim::{Claim, Relation};
use crate::evidence::{Decision, Evidence, decide};
use crate::measurement::{Basis, Measurement, RUNS_FOR_ENDS, ratio};
use crate::operand::Operand;
use crate::plan::{Plan, Sweep};

/// How often the plan without `--quick` measures each point of a claim.
pub(crate) fn planned_runs(claim: &Claim, plan: &Plan) -> usize {
    let runs = |operand: &Operand| {
        let figure = plan.figure(operand.figure.as_deref()?)?;
        let is_meant =
            |sweep: &&Sweep| operand.sweep.as_ref().is_none_or(|name| *name == sweep.name);
        let meant = figure.sweeps.iter().filter(is_meant);
        meant.map(|sweep| sweep.repeat.unwrap_or(plan.repeat) as usize).min()
    };
    [runs(&claim.left), runs(&claim.right_operand())].into_iter().flatten().min().unwrap_or(1)
}

/// The reasons, each with the number of points that it explains.
pub(crate) fn why_undecided(claim: &Claim, evidence: &[Evidence], planned_runs: usize) -> String {
    let open = evidence.iter().filter(|e| e.decision == Decision::Undecided);
    let (by_clocks, others): (Vec<_>, Vec<_>) = open.partition(|e| is_by_clocks(claim, e));
    let (unknown, known): (Vec<_>, Vec<_>) = others.into_iter().partition(|e| e.ratio.1.is_none());
    let (small, wide): (Vec<_>, Vec<_>) = known.into_iter().partition(|e| is_small(claim, e));
    // A reason that holds at all points needs no number of points.
    let at = |which: &[&Evidence]| match (which.len(), evidence.len()) {
        (n, all) if n == all => String::new(),
        (n, all) => format!(" at {n} of {all} points"),
    };
    let all = evidence.len();
    let reasons = [
        (!by_clocks.is_empty()).then(|| clocks(&by_clocks, &at(&by_clocks))),
        (!unknown.is_empty()).then(|| {
            let why = without_interval(&unknown, planned_runs);
            format!("{} {why}", at(&unknown)).trim_start().to_owned()
        }),
        (!small.is_empty()).then(|| {
            let counts = percent(claim.tolerance);
            let n = small.len();
            format!(
                "the difference is smaller than what counts ({counts} %) at {n} of {all} points"
            )
        }),
        (!wide.is_empty()).then(|| {
            let n = wide.len();
            format!("the intervals allow both at {n} of {all} points: more repetitions may tell")
        }),
    ];
    reasons.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn clock_error_ns(e: &Evidence) -> f64 {
    e.left.clock_error_ns.max(e.right.clock_error_ns)
}

/// Whether the clock error is the reason: without it the point would be decided, or would at least
/// have an interval.
fn is_by_clocks(claim: &Claim, e: &Evidence) -> bool {
    if clock_error_ns(e) == 0.0 {
        return false;
    }
    let exact = |cell: &Measurement| Measurement {
        interval: cell.exact,
        clock_error_ns: 0.0,
        ..cell.clone()
    };
    let without = ratio(&exact(&e.left), &exact(&e.right));
    decide(claim, without) != Decision::Undecided || e.ratio.1.is_none() && without.1.is_some()
}

/// The reason if the clock error is the cause: more repetitions would not help.
fn clocks(open: &[&Evidence], at: &str) -> String {
    let largest = open.iter().map(|e| clock_error_ns(e)).fold(0.0, f64::max);
    format!(
        "times from host to host, whose clocks may be off by up to {}, leave it open{at}: measure \
         both ends on one host, or round trips",
        fmt_ns(largest)
    )
}

/// Why there is no interval, and how to get one.
fn without_interval(evidence: &[&Evidence], planned_runs: usize) -> String {
    let cells = || evidence.iter().flat_map(|e| [&e.left, &e.right]);
    let plan = match planned_runs {
        enough if enough >= RUNS_FOR_ENDS => {
            format!("the whole plan, without --quick, has {enough}")
        }
        few => format!("the plan has {few}"),
    };
    let found = cells().filter_map(|c| match c.basis {
        Basis::FoundIn(there) if c.interval.is_none() => Some((there, c.runs)),
        _ => None,
    });
    match found.min() {
        _ if cells().any(|c| c.runs == 1) => {
            "there is one run, which says nothing of the next: repeat it".to_owned()
        }
        Some((there, runs)) if there < runs => format!(
            "{there} of {runs} runs have it, which may be half of them or less: more repetitions \
             may tell"
        ),
        Some((_, runs)) => format!(
            "an interval needs {RUNS_FOR_ENDS} runs of what each finds once, here are {runs}: \
             {plan}"
        ),
        None => "too few samples or runs for an interval: measure more".to_owned(),
    }
}

/// Whether a difference, for `<` or `>`, is certainly smaller than the claim's tolerance.
fn is_small(claim: &Claim, e: &Evidence) -> bool {
    let factor = claim.factor.unwrap_or(1.0);
    let ends = e.ratio.1.map(|(low, high)| (low / factor, high / factor));
    let (from, to) = (1.0 - claim.tolerance, 1.0 + claim.tolerance);
    let is_order = matches!(claim.relation, Relation::Less | Relation::More);
    is_order && ends.is_some_and(|(low, high)| from < low && high < to)
}

/// A share in per cent, with one decimal.
fn percent(share: f64) -> f64 {
    (share * 1000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::tests::{claim, of_runs};

    #[test]
    fn each_open_point_has_its_own_reason() {
        let less = claim("<", "");
        let one = |left: &[f64], right: &[f64], clock_error_ns: f64| {
            let of = |runs: &[f64]| Measurement { clock_error_ns, ..of_runs(runs) };
            let (left, right) = (of(left), of(right));
            let (ratio, decision) = (ratio(&left, &right), Decision::Undecided);
            Evidence { place: String::new(), left, right, ratio, decision }
        };
        let (low, high) = ([20e3, 20.01e3, 20.02e3], [22e3, 22.01e3, 22.02e3]);
        let apart = one(&low, &high, 5e3);
        let clocks = "times from host to host, whose clocks may be off by up to 5.00 us, leave it \
                      open";
        let of = |all: &[Evidence]| why_undecided(&less, all, 3);
        let of_one = |e: &Evidence| of(std::slice::from_ref(e));
        assert!(of_one(&apart).starts_with(&format!("{clocks}: ")));
        // The clock error is not named as the reason if points are undecided without it too.
        let alone = one(&low[..1], &high[..1], 5e3);
        assert_eq!(of_one(&alone), "there is one run, which says nothing of the next: repeat it");
        let alike = one(&[20e3, 24e3, 22e3], &[21e3, 25e3, 23e3], 5.0);
        assert!(of_one(&alike).starts_with("the intervals allow both at 1 of 1"));
        let all = of(&[apart, alone, alike]);
        for (part, start) in all.split("; ").zip([
            &*format!("{clocks} at 1 of 3 points"),
            "at 1 of 3 points there is one run, which says nothing of the next: repeat it",
            "the intervals allow both at 1 of 3 points",
        ]) {
            assert!(part.starts_with(start), "{all}");
        }
        assert_eq!(all.split("; ").count(), 3, "{all}");
    }
}
