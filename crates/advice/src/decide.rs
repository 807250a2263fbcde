//! Decides which way is best, from numbers of repeated runs. Pure arithmetic: nothing of RDMA.
//!
//! Each way has one number for each run, and the runs of all ways took turns. What is compared are
//! these numbers, never samples within a run: neighbours within a run share a queue, a cache and a
//! frequency, and know nothing of what differs from run to run.
//!
//! The way with the best median is held against each other one, twice, on the logarithms:
//!
//! * by the shift of Hodges and Lehmann (1963), whose interval is that of the rank test of Mann and
//!   Whitney: few disturbed runs do not move it;
//! * by the signed ranks of the differences within rounds (Wilcoxon 1945): what slows a whole round
//!   cancels. It needs more runs before it may say anything.
//!
//! Both are exact for runs of a round that may be exchanged, whatever their distribution. Each gets
//! half of the uncertainty, so that both hold together, and what is known is what both say. The
//! leader was chosen because it looked best, and so the intervals are widened as if all pairs had
//! been compared (Bonferroni).

use rdmalab_measure::stats::{
    Estimate, Interval, hodges_lehmann, hodges_lehmann_ratio, median, paired_shift, sort,
};

/// Probability that all that an answer says is true.
pub const CONFIDENCE: f64 = 0.95;

/// The share below which a difference does not matter.
pub const ZONE: f64 = 0.03;

/// Most runs that an answer may need.
const RUNS_MAX: usize = 50;

/// A way of sending, and what its runs measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// What it is called.
    pub name: String,
    /// A number of each run, all of them positive; the i-th of all ways belong to one round.
    pub values: Vec<f64>,
}

/// How it is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Probability that no way is called better than another one that is as good.
    pub confidence: f64,
    /// The share below which a difference does not matter.
    pub zone: f64,
    /// Rates, not times.
    pub more_is_better: bool,
}

/// How a way compares with the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The interval of the ratio excludes 1: the way is worse.
    Worse,
    /// All of the interval is within the zone: any difference is too small to matter.
    Same,
    /// The interval holds 1 and differences that would matter, or there is no interval.
    Unknown,
}

/// A way against the leader.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The number of the way over the leader's. All intervals of an answer hold together.
    pub ratio: Estimate,
    /// What follows from the interval.
    pub relation: Relation,
}

/// The outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The leader is better than all others; or there is no other.
    Best,
    /// The leader and those that are [`Relation::Same`] are alike; all others are worse.
    Alike,
    /// At least one way may be as good as the leader or not: the runs do not decide.
    Open,
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The way with the best median, the first of equals: its place among the candidates.
    pub leader: usize,
    /// The median over the runs of each way, in the order of the candidates.
    pub medians: Vec<f64>,
    /// Each way against the leader, in the order of the candidates; `None` for the leader itself.
    pub effects: Vec<Option<Effect>>,
    /// What came out.
    pub outcome: Outcome,
    /// Runs of each way.
    pub runs: usize,
    /// Runs that it takes before an interval of that certainty exists.
    pub runs_needed: usize,
    /// The zone that was used.
    pub zone: f64,
}

impl Decision {
    /// The leader, and those that are alike, in the order of the candidates. One alone where it
    /// is the best.
    #[must_use]
    pub fn alike(&self) -> Vec<usize> {
        self.of(Relation::Same, true)
    }

    /// The ways that may be as good as the leader or not.
    #[must_use]
    pub fn unknown(&self) -> Vec<usize> {
        self.of(Relation::Unknown, false)
    }

    /// The ways that are worse than the leader, the least worse first.
    #[must_use]
    pub fn worse(&self) -> Vec<usize> {
        let mut found = self.of(Relation::Worse, false);
        let distance =
            |i: &usize| self.effects[*i].map_or(0.0, |effect| effect.ratio.value.ln().abs());
        found.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        found
    }

    fn of(&self, relation: Relation, with_leader: bool) -> Vec<usize> {
        let is_it = |i: &usize| match self.effects[*i] {
            None => with_leader,
            Some(effect) => effect.relation == relation,
        };
        (0..self.effects.len()).filter(is_it).collect()
    }
}

/// Decides. `None` when there is no candidate, or one has no number, another number of them than
/// the first, or one that is not positive.
#[must_use]
pub fn decide(candidates: &[Candidate], rules: &Rules) -> Option<Decision> {
    let runs = candidates.first()?.values.len();
    let is_sound = |c: &Candidate| {
        c.values.len() == runs && c.values.iter().all(|v| *v > 0.0 && v.is_finite())
    };
    if runs == 0 || !candidates.iter().all(is_sound) {
        return None;
    }
    let medians: Vec<f64> = candidates.iter().map(|c| middle(&c.values)).collect();
    let mut leader = 0;
    for (i, value) in medians.iter().enumerate() {
        let best = medians[leader];
        let is_better = if rules.more_is_better { *value > best } else { *value < best };
        if is_better {
            leader = i;
        }
    }
    let pairs = pairs(candidates.len());
    let effect = |i: usize| {
        let (of_leader, of_other) = (&candidates[leader].values, &candidates[i].values);
        (i != leader).then(|| effect(of_leader, of_other, pairs, rules))
    };
    let effects: Vec<Option<Effect>> = (0..candidates.len()).map(effect).collect();
    let has = |relation| effects.iter().flatten().any(|effect| effect.relation == relation);
    let outcome = match (has(Relation::Unknown), has(Relation::Same)) {
        (true, _) => Outcome::Open,
        (false, true) => Outcome::Alike,
        (false, false) => Outcome::Best,
    };
    let runs_needed = runs_needed(candidates.len(), rules.confidence);
    Some(Decision { leader, medians, effects, outcome, runs, runs_needed, zone: rules.zone })
}

/// Runs of each of so many ways before an interval of that certainty exists.
#[must_use]
pub fn runs_needed(candidates: usize, confidence: f64) -> usize {
    let each = 1.0 - (1.0 - confidence) / pairs(candidates);
    let exists = |runs: &usize| {
        let numbers: Vec<f64> = (0..*runs).map(|i| i as f64).collect();
        hodges_lehmann(&numbers, &numbers, each).is_some_and(|e| e.interval.is_some())
    };
    (1..RUNS_MAX).find(exists).unwrap_or(RUNS_MAX)
}

/// All pairs, at least one.
fn pairs(candidates: usize) -> f64 {
    let n = candidates as f64;
    (n * (n - 1.0) / 2.0).max(1.0)
}

fn effect(leader: &[f64], other: &[f64], pairs: f64, rules: &Rules) -> Effect {
    let uncertainty = (1.0 - rules.confidence) / pairs;
    let logs = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Vec<_>>();
    let within = paired_shift(&logs(leader), &logs(other), 1.0 - uncertainty / 2.0)
        .and_then(|shift| shift.interval.map(|i| (shift.value.exp(), i.low.exp(), i.high.exp())));
    // Whether there are rounds enough for both is known before anything is measured.
    let share = if within.is_some() { uncertainty / 2.0 } else { uncertainty };
    let apart = hodges_lehmann_ratio(leader, other, 1.0 - share);
    let fallback = Estimate { value: middle(other) / middle(leader), interval: None };
    let apart = apart.unwrap_or(fallback);
    let ratio = match (apart.interval, within) {
        (Some(interval), Some((value, low, high))) => {
            let (low, high) = (low.max(interval.low), high.min(interval.high));
            let confidence = 1.0 - uncertainty;
            // Two that exclude each other say nothing.
            let interval = (low <= high).then_some(Interval { low, high, confidence });
            Estimate { value: interval.map_or(value, |i| value.clamp(i.low, i.high)), interval }
        }
        _ => apart,
    };
    Effect { ratio, relation: relation(ratio.interval, rules) }
}

fn relation(ratio: Option<Interval>, rules: &Rules) -> Relation {
    let Some(ratio) = ratio else { return Relation::Unknown };
    let bound = 1.0 + rules.zone;
    let is_worse = if rules.more_is_better { ratio.high < 1.0 } else { ratio.low > 1.0 };
    if ratio.low >= 1.0 / bound && ratio.high <= bound {
        Relation::Same
    } else if is_worse {
        Relation::Worse
    } else {
        Relation::Unknown
    }
}

/// The median of numbers in any order.
pub(crate) fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sort(&mut sorted);
    median(&sorted)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
