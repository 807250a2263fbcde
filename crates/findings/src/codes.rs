//! The lowest code of a time-out that takes effect.

use rdmalab_measure::Quantity;
use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::stats::Estimate;
use rdmalab_measure::stats::{self, Interval, RunRatio, Runs};
use rdmalab_record::{Finding, Point};

use crate::curve::Curve;
use crate::estimate::{known, medians, timed};

/// How long a host may take to notice the end of a time-out. It hides the effect of short codes.
const NOTICE_NS: f64 = 50_000.0;

/// The growth of T_o from one code to a higher one. From the lowest code that takes effect on, T_o
/// grows as T_tr does; below that code it stays the same.
struct Step {
    lower: f64,
    upper: f64,
    growth: f64,
    /// The interval of the growth, by the difference between runs.
    ends: Option<Interval>,
}

impl Step {
    fn between(lower: &(f64, Vec<f64>), upper: &(f64, Vec<f64>)) -> Self {
        let noticed = |t_o: &f64| (t_o - NOTICE_NS).max(1.0);
        let below: Vec<f64> = lower.1.iter().map(noticed).collect();
        let runs = |values: &[f64]| {
            let each: Vec<Vec<f64>> = values.iter().map(|value| vec![*value]).collect();
            Runs::of_session(&each)
        };
        let ratio = RunRatio::of(&runs(&below), &runs(&upper.1), 0.5);
        let growth = middle(&upper.1) / middle(&below);
        let ends = ratio.map(|ratio| ratio.interval(0.95));
        Self { lower: lower.0, upper: upper.0, growth, ends }
    }

    /// The growth from which on the lower code takes effect: on a logarithmic scale, in the middle
    /// between the growth of T_tr and that of one code less.
    fn of_lower(&self) -> f64 {
        (self.upper - self.lower - 0.5).exp2()
    }

    /// The growth from which on the upper code takes effect: halfway between one code and none.
    const OF_UPPER: f64 = std::f64::consts::SQRT_2;
}

/// The lowest code that takes effect, as all codes above it do; `is_from` judges a growth.
fn lowest(steps: &[Step], is_from: impl Fn(&Step, f64) -> bool) -> Option<f64> {
    let all = steps.iter().rev().take_while(|step| is_from(step, step.of_lower()));
    let top = steps.last().filter(|step| is_from(step, Step::OF_UPPER));
    all.last().map(|step| step.lower).or(top.map(|step| step.upper))
}

/// The median of the runs.
fn middle(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    stats::sort(&mut values);
    stats::median(&values)
}

/// The lowest code that takes effect: from there on T_o grows as T_tr does.
pub fn effective(curve: &Curve) -> Vec<Finding> {
    let t_o = |points: &[&Point]| known(points, Quantity::Timeout, "T_o");
    let places = || curve.points.iter().filter(|(_, points)| t_o(points).is_some());
    let measured: Vec<(f64, Vec<f64>)> =
        places().map(|(code, points)| (*code, medians(points, Quantity::Timeout, "T_o"))).collect();
    let times: Vec<(f64, Estimate)> =
        places().filter_map(|(code, points)| Some((*code, t_o(points)?))).collect();
    let Some((first, last)) = times.first().zip(times.last()) else { return Vec::new() };
    let steps: Vec<Step> = measured.windows(2).map(|two| Step::between(&two[0], &two[1])).collect();
    let by_medians = lowest(&steps, |step, least| step.growth >= least);
    let high = lowest(&steps, |step, least| step.ends.is_some_and(|ends| ends.low >= least));
    // The code above the highest one that certainly has no effect.
    let has_none = |step: &&Step| step.ends.is_some_and(|ends| ends.high < step.of_lower());
    let low = steps.iter().rev().find(has_none).map(|step| step.lower + 1.0);
    let at = by_medians.unwrap_or(last.0);
    let least = times.iter().find(|(code, _)| *code == at).map_or(last.1, |(_, t_o)| *t_o);
    let text = fmt_ns(least.value);
    let (value, sentence) = match by_medians {
        Some(lowest) => (Some(lowest), lowest_sentence(lowest, &text, first)),
        None if times.len() == 1 => {
            (None, "measure several codes to see which is the lowest one that takes effect".into())
        }
        None => (
            None,
            format!(
                "no code below {} takes effect: T_o is {text} there, and {} at code {}; measure \
                 larger codes",
                last.0,
                fmt_ns(first.1.value),
                first.0
            ),
        ),
    };
    let code = curve.finding("c_ack", "code", &sentence);
    let t_o = timed(curve.finding("t_o", "ns", &format!("T_o is {text} at code {at}")), least);
    let mut found = vec![Finding { value, low, high, ..code }, t_o];
    found.extend(too_short(curve, &times));
    found
}

fn nominal_ns(code: f64) -> f64 {
    4096.0 * code.exp2()
}

fn lowest_sentence(lowest: f64, t_o: &str, (first, t_o_first): &(f64, Estimate)) -> String {
    let below = if *first == lowest {
        ", the lowest one measured".to_owned()
    } else {
        format!("; below, T_o is {} at code {first}", fmt_ns(t_o_first.value))
    };
    let t_tr = fmt_ns(nominal_ns(lowest));
    format!("the lowest code that takes effect is {lowest} (T_o {t_o} for T_tr {t_tr}){below}")
}

fn too_short(curve: &Curve, times: &[(f64, Estimate)]) -> Option<Finding> {
    let (code, t_o) = times.iter().find(|(code, t_o)| t_o.value < nominal_ns(*code))?;
    let sentence = format!(
        "at code {code} T_o is {}, less than T_tr, which IBA does not allow",
        fmt_ns(t_o.value)
    );
    Some(timed(curve.finding("t_o_below_t_tr", "ns", &sentence), *t_o))
}

#[cfg(test)]
mod tests {
    use rdmalab_measure::Outcome;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{all, around};

    #[test]
    fn the_lowest_code_that_takes_effect() {
        // An adapter whose T_o is k T_tr, and never less than that of its smallest code.
        for (k, smallest) in [(1.0, 12), (2.0, 12), (3.0, 12), (4.0, 12), (1.3, 16), (3.9, 16)] {
            let found = codes(&[14, 8, 10, 17, 18, 9, 11, 12, 13, 15, 16], smallest, k, 1);
            let begins = format!("the lowest code that takes effect is {smallest} ");
            assert!(found[0].sentence.starts_with(&begins), "{k}: {:?}", found[0]);
            assert!(found[0].sentence.contains("below, T_o is"), "{:?}", found[0]);
            assert_eq!(found[0].value, Some(f64::from(smallest)));
            assert!(found[1].sentence.ends_with(&format!("at code {smallest}")), "{:?}", found[1]);
        }
        let found = codes(&[1, 2, 3], 0, 1.1, 1);
        let said = &found[0].sentence;
        assert!(said.contains("effect is 1 ") && said.contains("lowest one measured"), "{said}");
        let found = codes(&[5, 6], 0, 0.5, 1);
        assert!(found[2].sentence.contains("IBA does not allow"), "{found:?}");
        assert!(codes(&[5], 0, 1.0, 1)[0].sentence.starts_with("measure several codes"));
    }

    #[test]
    fn how_surely_a_code_takes_effect_only_several_runs_tell() {
        let ends = |found: &[Finding]| (found[0].value, found[0].low, found[0].high);
        let all = [10, 11, 12, 13, 14];
        assert_eq!(ends(&codes(&all, 12, 2.0, 1)), (Some(12.0), None, None));
        assert_eq!(ends(&codes(&all, 12, 2.0, 2)), (Some(12.0), Some(12.0), Some(12.0)));
        // A code between the measured ones may be the smallest one that takes effect.
        assert_eq!(ends(&codes(&[1, 6, 10, 14], 12, 2.0, 2)), (Some(14.0), Some(11.0), Some(14.0)));
        assert_eq!(
            ends(&codes(&[8, 10, 14, 15], 12, 2.0, 2)),
            (Some(14.0), Some(11.0), Some(14.0))
        );
        // Codes below the measured ones may take effect as well.
        assert_eq!(ends(&codes(&[12, 13], 12, 2.0, 2)), (Some(12.0), None, Some(12.0)));
        // T_o stays the same: the smallest code that takes effect is the highest one, or above it.
        let none = codes(&[8, 10, 12], 16, 2.0, 2);
        assert_eq!(ends(&none), (None, Some(11.0), None));
        assert!(none[0].sentence.starts_with("no code below 12 takes effect"), "{none:?}");
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

    /// Findings for an adapter whose T_o is k T_tr, and never less than that of its smallest code.
    fn codes(codes: &[u32], smallest: u32, k: f64, runs: u32) -> Vec<Finding> {
        let point = |code: u32, run: u32| {
            let mut outcome = Outcome::default();
            let t_tr = 4096.0 * f64::from(1u32 << code.max(smallest));
            let t_o = k * t_tr * (1.0 + 0.001 * f64::from(run));
            outcome.push_series(Quantity::Timeout, "T_o", 0, around(t_o));
            (json!({ "timeout": code }), outcome)
        };
        let each = codes.iter().flat_map(|code| (0..runs).map(move |run| point(*code, run)));
        all("timeout", each.collect())
    }
}
