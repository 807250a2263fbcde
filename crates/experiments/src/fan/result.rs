//! The results that rank 0 computes from the times.

use rdmalab_measure::outcome::Combination;
use rdmalab_measure::{Clock, Outcome, Quantity, Series, Stamp};

use super::shape::Schedule;
use crate::common::effort::{Effort, push_shares};
use crate::common::params::Common;
use crate::common::samples::stamp_memory;

/// Stands for a missing time.
pub(crate) const NONE: u64 = u64::MAX;

/// The times of all repetitions, in their order.
pub(crate) struct Times {
    peers: usize,
    /// Ticks until each answer, repetition by repetition.
    answers: Vec<u64>,
    /// Ticks until all sends had completed.
    sent: Vec<u64>,
    /// READ: times in ns of both ways, repetition by repetition.
    reads: Vec<(f64, f64)>,
    count: usize,
}

impl Times {
    pub fn new(repetitions: usize, peers: usize, touch: bool) -> Self {
        Self {
            peers,
            answers: stamp_memory(repetitions * peers, touch),
            sent: stamp_memory(repetitions, touch),
            reads: Vec::new(),
            count: 0,
        }
    }

    /// A repetition of messages.
    pub fn took(&mut self, answers: &[u64], sent: u64) {
        let at = self.count * self.peers;
        self.answers[at..at + self.peers].copy_from_slice(answers);
        self.sent[self.count] = sent;
        self.count += 1;
    }

    /// A repetition of READs.
    pub fn took_reads(&mut self, out: &[f64], back: &[f64]) {
        self.reads.extend(out.iter().copied().zip(back.iter().copied()));
        self.count += 1;
    }

    /// Answers that did not come.
    pub fn lost(&self) -> u64 {
        self.repetitions().flatten().filter(|came| !came).count() as u64
    }

    /// Repetitions without an answer.
    pub fn cut(&self) -> u64 {
        self.repetitions().filter_map(|mut came| came.find(|came| !came)).count() as u64
    }

    /// Of each repetition, whether each answer came.
    fn repetitions(&self) -> impl Iterator<Item = impl Iterator<Item = bool>> {
        let came = |at: usize| match self.reads.get(at) {
            Some((_, back)) => !back.is_nan(),
            None => self.answers[at] != NONE,
        };
        (0..self.count).map(move |r| (r * self.peers..(r + 1) * self.peers).map(came))
    }

    /// Series and figures of each size.
    pub fn outcome(
        &self,
        clock: &Clock,
        common: &Common,
        schedule: &Schedule,
        outcome: &mut Outcome,
    ) {
        for (i, size) in schedule.sizes().iter().enumerate() {
            let is_it = |r: &usize| schedule.index(*r as u64) == i;
            let these: Vec<usize> = (0..self.count).filter(is_it).collect();
            let warm_up = these.iter().filter(|r| (**r as u64) < common.warm_up).count();
            let of = if schedule.sizes().len() > 1 { format!(", {size} B") } else { String::new() };
            let part = Part { found: self, clock, these, warm_up, of };
            if self.reads.is_empty() { part.messages(outcome) } else { part.reads(outcome) }
        }
    }
}

/// The time of one way of READs, of both.
type Way = fn(&(f64, f64)) -> f64;

/// The repetitions of one size.
struct Part<'a> {
    found: &'a Times,
    clock: &'a Clock,
    these: Vec<usize>,
    warm_up: usize,
    /// What a label ends with.
    of: String,
}

impl Part<'_> {
    fn messages(&self, outcome: &mut Outcome) {
        let peers = self.found.peers;
        let ns = |ticks: u64| match ticks {
            NONE => f64::NAN,
            ticks => self.clock.ns_between(Stamp(0), Stamp(ticks)),
        };
        let answer = |r: usize, peer: usize| ns(self.found.answers[r * peers + peer]);
        self.times(outcome, answer);
        let sent: Vec<f64> = self.these.iter().map(|r| ns(self.found.sent[*r])).collect();
        let label = format!("all sends{}", self.of);
        outcome.push_series(Quantity::CompletionTime, &label, self.warm_up, sent);
    }

    fn reads(&self, outcome: &mut Outcome) {
        let peers = self.found.peers;
        let all = &self.found.reads;
        let ways: [(&str, Way); 2] = [("1:n", |t| t.0), ("n:1", |t| t.1)];
        let there_and_back = |r: usize, peer: usize| {
            let (out, back) = all[r * peers + peer];
            out + back
        };
        let is_there = |of: Way| all.iter().any(|t| of(t) > 0.0);
        if !ways.iter().all(|(_, of)| is_there(*of)) {
            return self.times(outcome, there_and_back);
        }
        let longest =
            |r: &usize, of: Way| all[r * peers..(r + 1) * peers].iter().map(of).fold(0.0, later);
        let way = |(label, of): &(&str, Way)| {
            self.series(label, self.these.iter().map(|r| longest(r, *of)).collect())
        };
        let first = outcome.series.len();
        let label = format!("all peers{}", self.of);
        outcome.push_with_parts(
            Quantity::RoundTrip,
            &label,
            Combination::Sum,
            ways.iter().map(way).collect(),
        );
        for (at, of) in (first..).zip(["", "1:n ", "n:1 "]) {
            let times = outcome.series[at].samples.clone();
            self.shares(outcome, &times, of);
        }
        let each = self.of_peers(outcome, there_and_back);
        match each {
            // With only one way, both ways together take the time of that way.
            each if each.len() == 1 => {
                let of = [first + 1, first + 2];
                outcome.push_derived(Quantity::RoundTrip, &each[0].label, Combination::Sum, &of);
            }
            each => outcome.series.extend(each),
        }
    }

    /// The times of all and of each, and what follows from them.
    fn times(&self, outcome: &mut Outcome, answer: impl Fn(usize, usize) -> f64) {
        let (label, at) = (format!("all peers{}", self.of), outcome.series.len());
        let each = self.of_peers(outcome, &answer);
        if each.is_empty() {
            let peers = 0..self.found.peers;
            let longest = |r: &usize| peers.clone().map(|p| answer(*r, p)).fold(0.0, later);
            let all = self.these.iter().map(longest).collect();
            outcome.push_series(Quantity::RoundTrip, &label, self.warm_up, all);
        } else {
            outcome.push_with_parts(Quantity::RoundTrip, &label, Combination::Largest, each);
        }
        let all = outcome.series[at].samples.clone();
        self.shares(outcome, &all, "");
    }

    /// The times of each peer, and how fairly it was served; the former only of one size, since
    /// with several there would be a table of each.
    fn of_peers(&self, outcome: &mut Outcome, answer: impl Fn(usize, usize) -> f64) -> Vec<Series> {
        let of_peer = |peer: usize| {
            let times = self.these.iter().map(|r| answer(*r, peer)).collect();
            self.series(&format!("peer {}", peer + 1), times)
        };
        let all: Vec<Series> = (0..self.found.peers).map(of_peer).collect();
        let mean = |one: &Series| one.counted().sum::<f64>() / one.counted().count() as f64;
        if let Some(index) = fairness(&all.iter().map(mean).collect::<Vec<f64>>()) {
            outcome.push_figure(Quantity::Fairness, self.of.trim_start_matches(", "), index);
        }
        if self.of.is_empty() { all } else { Vec::new() }
    }

    /// The least and the mean of times, divided by the number of peers, as the study prints them.
    fn shares(&self, outcome: &mut Outcome, times: &[f64], of: &str) {
        let counted = times.iter().skip(self.warm_up).copied().filter(|t| !t.is_nan());
        let (count, sum, least) = counted.fold((0u64, 0.0, f64::INFINITY), |(n, sum, least), t| {
            (n + 1, sum + t, f64::min(least, t))
        });
        if count > 0 {
            let n = self.found.peers as f64;
            let figure = |label: &str| format!("{of}{label} T/n{}", self.of);
            outcome.push_figure(Quantity::MessageTime, &figure("least"), least / n);
            outcome.push_figure(Quantity::MessageTime, &figure("mean"), sum / count as f64 / n);
        }
    }

    fn series(&self, label: &str, samples: Vec<f64>) -> Series {
        let label = format!("{label}{}", self.of);
        Series::new(Quantity::RoundTrip, &label, self.warm_up, samples)
    }
}

/// The later of two times; NaN, where one of them is.
fn later(a: f64, b: f64) -> f64 {
    if a >= b || a.is_nan() { a } else { b }
}

/// The index of Jain, Chiu and Hawe (1984) of the peers' shares, each the reciprocal of its mean
/// time: 1 where all are served alike, 1/n where one of n is served alone. `None` where a peer has
/// no time.
fn fairness(means: &[f64]) -> Option<f64> {
    let shares: Vec<f64> = means.iter().map(|mean| 1.0 / mean).collect();
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    let index = sum * sum / (shares.len() as f64 * squares);
    index.is_finite().then_some(index)
}

/// Processor time of rank 0, and of the others in the mean.
pub(crate) fn efforts(all: &[(Effort, u64)], peers: usize, outcome: &mut Outcome) {
    let shares: Vec<[f64; 2]> = all.iter().filter_map(|(effort, _)| effort.shares()).collect();
    if shares.len() > peers {
        let others = &shares[1..=peers];
        let mean = |i: usize| others.iter().map(|shares| shares[i]).sum::<f64>() / peers as f64;
        let mean = [mean(0), mean(1)];
        push_shares(outcome, &[("rank 0", Some(shares[0])), ("others, mean", Some(mean))]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Fan;
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn fairness_is_one_where_all_are_alike() {
        assert_eq!(fairness(&[5.0, 5.0, 5.0]), Some(1.0));
        let one_alone = fairness(&[1.0, 1e12, 1e12, 1e12]).unwrap();
        assert!((one_alone - 0.25).abs() < 1e-6, "{one_alone}");
        // Shares of 1 and 1/2: (3/2)^2 / (2 x 5/4).
        assert!((fairness(&[1.0, 2.0]).unwrap() - 0.9).abs() < 1e-12);
        assert_eq!(fairness(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn a_repetition_with_a_loss_has_no_time() {
        let common = Common { messages: 3, warm_up: 1, ..Fan::COMMON };
        let clock = Clock::new();
        let mut found = Times::new(4, 2, true);
        for answers in [[9, 9], [100, 300], [200, NONE], [500, 400]] {
            found.took(&answers, 50);
        }
        assert_eq!((found.lost(), found.cut()), (1, 1));
        let mut outcome = Outcome::default();
        found.outcome(&clock, &common, &Schedule::of(&common, &Fan::OWN), &mut outcome);
        let ns = |ticks| clock.ns_between(Stamp(0), Stamp(ticks));
        let of = |label: &str| {
            let series = outcome.series.iter().find(|s| s.label == label).expect("a series");
            series.counted().collect::<Vec<f64>>()
        };
        assert_eq!(of("all peers"), [ns(300), ns(500)]);
        assert_eq!(of("peer 1"), [ns(100), ns(200), ns(500)]);
        assert_eq!(of("peer 2"), [ns(300), ns(400)]);
        let figure = |label: &str| {
            let found = outcome.figures.iter().find(|f| f.label == label);
            found.expect("a figure").value
        };
        assert!((figure("least T/n") - ns(300) / 2.0).abs() < 1e-9);
        assert!((figure("mean T/n") - ns(400) / 2.0).abs() < 1e-9);
    }

    #[test]
    fn reads_that_nobody_was_told_to_do_have_no_time() {
        let common = Common { messages: 2, warm_up: 0, ..Fan::COMMON };
        let mut found = Times::new(2, 2, true);
        found.took_reads(&[10.0, 30.0], &[7.0, f64::NAN]);
        found.took_reads(&[10.0, 20.0], &[7.0, 8.0]);
        assert_eq!((found.lost(), found.cut()), (1, 1));
        let mut outcome = Outcome::default();
        found.outcome(&Clock::new(), &common, &Schedule::of(&common, &Fan::OWN), &mut outcome);
        let of = |label: &str| {
            let series = outcome.series.iter().find(|s| s.label == label).expect("a series");
            series.counted().collect::<Vec<f64>>()
        };
        assert_eq!((of("1:n"), of("n:1")), (vec![30.0, 20.0], vec![8.0]));
        assert_eq!(
            (of("all peers"), of("peer 1"), of("peer 2")),
            ([28.0].into(), [17.0, 17.0].into(), [28.0].into())
        );
    }

    #[test]
    fn reads_are_the_sum_of_both_ways() {
        let common = Common { messages: 1, warm_up: 0, ..Fan::COMMON };
        let mut found = Times::new(1, 2, true);
        found.took_reads(&[10.0, 30.0], &[7.0, 5.0]);
        let mut outcome = Outcome::default();
        found.outcome(&Clock::new(), &common, &Schedule::of(&common, &Fan::OWN), &mut outcome);
        let of = |label: &str| {
            outcome.series.iter().find(|s| s.label == label).expect("a series").samples[0]
        };
        assert_eq!((of("all peers"), of("1:n"), of("n:1")), (37.0, 30.0, 7.0));
        assert_eq!((of("peer 1"), of("peer 2")), (17.0, 35.0));
        let share = |label: &str| {
            outcome.figures.iter().find(|f| f.label == label).expect("a figure").value
        };
        assert_eq!((share("least T/n"), share("1:n least T/n")), (37.0 / 2.0, 30.0 / 2.0));
        assert_eq!(share("n:1 mean T/n"), 7.0 / 2.0);
    }
}
