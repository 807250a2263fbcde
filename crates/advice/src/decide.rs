//! Decides which way is best, from numbers of repeated runs. Pure arithmetic, without RDMA.
//!
//! Each way has one number for each run, and the runs of all ways alternated. These numbers are
//! compared, never samples within a run: samples of one run share a queue, a cache and a frequency,
//! and contain nothing about the differences between runs.
//!
//! The way with the best median is compared with each other way, twice, on logarithms:
//!
//! * by the shift of Hodges and Lehmann (1963), whose interval is that of the rank test of Mann and
//!   Whitney: few disturbed runs do not move it;
//! * by the signed ranks of the differences within rounds (Wilcoxon 1945): a disturbance of a whole
//!   round cancels. This test needs more runs before it has a result.
//!
//! Both are exact for any distribution if the runs of a round are exchangeable. Each gets half of
//! the uncertainty, so that both hold together, and the result is the intersection of both
//! intervals. Since the leader was chosen for its median, the intervals are widened as if all pairs
//! had been compared (Bonferroni).

use rdmalab_measure::stats::{
    Estimate, Interval, hodges_lehmann, hodges_lehmann_ratio, median, paired_shift, sort,
};

/// Probability that all statements of an answer are true.
pub const CONFIDENCE: f64 = 0.95;

/// The share below which a difference does not matter.
pub const ZONE: f64 = 0.03;

/// The largest result of [`runs_needed`].
const RUNS_MAX: usize = 50;

/// A way of sending, and the numbers of its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// One positive number for each run; the i-th numbers of all ways belong to one round.
    pub values: Vec<f64>,
}

/// The rules of a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Probability that no way is called better than another one that is as good.
    pub confidence: f64,
    /// The share below which a difference does not matter.
    pub zone: f64,
    /// Whether the numbers are rates and not times.
    pub more_is_better: bool,
}

/// How a way compares with the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The interval of the ratio excludes 1: the way is worse.
    Worse,
    /// All of the interval is within the zone: any difference is too small to matter.
    Same,
    /// The interval contains 1 and also differences that would matter, or there is no interval.
    Unknown,
}

/// The comparison of a way with the leader.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The number of the way over the leader's. All intervals of an answer hold simultaneously.
    pub ratio: Estimate,
    /// What follows from the interval.
    pub relation: Relation,
}

/// The outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The leader is better than all others, or there is no other.
    Best,
    /// The leader and those that are [`Relation::Same`] are alike; all others are worse.
    Alike,
    /// The runs do not decide whether at least one other way is as good as the leader.
    Open,
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The index of the way with the best median; the first of equals.
    pub leader: usize,
    /// The median over the runs of each way, in the order of the candidates.
    pub medians: Vec<f64>,
    /// Each way compared with the leader, in the order of the candidates; `None` for the leader.
    pub effects: Vec<Option<Effect>>,
    /// The outcome.
    pub outcome: Outcome,
    /// Runs of each way.
    pub runs: usize,
    /// Number of runs from which on an interval of the required confidence exists.
    pub runs_needed: usize,
    /// The zone that was used.
    pub zone: f64,
}

impl Decision {
    /// The leader and the ways that are alike, in the order of the candidates. Only the leader if
    /// it is the best.
    #[must_use]
    pub fn alike(&self) -> Vec<usize> {
        self.of(Relation::Same, true)
    }

    /// The ways for which the runs do not decide whether they are as good as the leader.
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

/// Decides. `None` if there is no candidate, or if a candidate has no numbers, numbers that are not
/// positive, or not as many as the first one.
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

/// Runs of each way from which on an interval of that confidence exists.
#[must_use]
pub fn runs_needed(candidates: usize, confidence: f64) -> usize {
    let each = 1.0 - (1.0 - confidence) / pairs(candidates);
    let exists = |runs: &usize| {
        let numbers: Vec<f64> = (0..*runs).map(|i| i as f64).collect();
        hodges_lehmann(&numbers, &numbers, each).is_some_and(|e| e.interval.is_some())
    };
    (1..RUNS_MAX).find(exists).unwrap_or(RUNS_MAX)
}

/// Number of pairs, at least one.
fn pairs(candidates: usize) -> f64 {
    let n = candidates as f64;
    (n * (n - 1.0) / 2.0).max(1.0)
}

fn effect(leader: &[f64], other: &[f64], pairs: f64, rules: &Rules) -> Effect {
    let uncertainty = (1.0 - rules.confidence) / pairs;
    let logs = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Vec<_>>();
    let within = paired_shift(&logs(leader), &logs(other), 1.0 - uncertainty / 2.0)
        .and_then(|shift| shift.interval.map(|i| (shift.value.exp(), i.low.exp(), i.high.exp())));
    // The split depends on the number of rounds only, so it is fixed before anything is measured.
    let share = if within.is_some() { uncertainty / 2.0 } else { uncertainty };
    let apart = hodges_lehmann_ratio(leader, other, 1.0 - share);
    let fallback = Estimate { value: middle(other) / middle(leader), interval: None };
    let apart = apart.unwrap_or(fallback);
    let ratio = match (apart.interval, within) {
        (Some(interval), Some((value, low, high))) => {
            let (low, high) = (low.max(interval.low), high.min(interval.high));
            let confidence = 1.0 - uncertainty;
            // If the two intervals do not overlap, there is no result.
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
