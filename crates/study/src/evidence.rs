//! The pairs of numbers that a claim is judged by, and the verdicts that follow from them.

use rdmalab_record::{Object, word};

use crate::claim::{Claim, Relation};
use crate::measurement::Measurement;

/// Whether measurements confirm a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds at all decided points, or at all except so few that chance explains them. The text
    /// names these exceptions; it is empty if there are none.
    Confirmed(String),
    /// It does not hold; the text says where.
    Refuted(String),
    /// The measurements decide nothing; the text says why.
    CannotBeSeen(String),
}

impl Verdict {
    /// The word for the verdict.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Confirmed(_) => "confirmed",
            Self::Refuted(_) => "refuted",
            Self::CannotBeSeen(_) => "cannot be seen",
        }
    }

    /// The text that goes with the word.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Self::Confirmed(why) | Self::Refuted(why) | Self::CannotBeSeen(why) => why,
        }
    }
}

/// The decision of one pair of numbers on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The relation holds.
    Holds,
    /// The relation does not hold.
    Fails,
    /// The intervals allow both.
    Undecided,
}

/// One pair of numbers, compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The parameters at which they were measured.
    pub place: String,
    /// The left number.
    pub left: Measurement,
    /// The right number.
    pub right: Measurement,
    /// Left over right, with the ends that the intervals allow.
    pub ratio: (f64, Option<(f64, f64)>),
    /// The decision that follows.
    pub decision: Decision,
}

/// `size_bytes 64, transport rc`.
pub(crate) fn place(parameters: &Object, names: &[String]) -> String {
    let each = names.iter().filter_map(|name| {
        let value = parameters.get(name)?;
        Some(format!("{} {}", name.replace('_', " "), word(value)))
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
        // At each side of a crossing the sign must be certain, and the difference must count.
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

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::measurement::{Unit, ratio};

    pub fn claim(relation: &str, more: &str) -> Claim {
        let text = format!(
            "key='k'\nsays='s'\nleft={{figure='f',quantity='round_trip_ns'}}\nright={{value=1}}\n\
             relation='{relation}'\nsource=''\n{more}\n"
        );
        toml::from_str(&text).unwrap()
    }

    pub fn decision(relation: &str, more: &str, (value, low, high): (f64, f64, f64)) -> Decision {
        decide(&claim(relation, more), (value, Some((low, high))))
    }

    #[test]
    fn a_difference_counts_when_its_interval_says_so() {
        use Decision::{Fails, Holds, Undecided};
        assert_eq!(decision("<", "", (0.9, 0.85, 0.95)), Holds);
        assert_eq!(decision("<", "", (0.9, 0.85, 1.05)), Undecided);
        assert_eq!(decision("<", "", (1.2, 1.1, 1.3)), Fails);
        assert_eq!(decision("<", "factor=64", (50.0, 45.0, 55.0)), Holds);
        // A certain difference that is too small to count is undecided in both directions.
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

    /// Numbers of runs whose samples determine each run to 0.1 %.
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
            ..Measurement::constant(middle, Unit::Named("ns".to_owned()))
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
        // This also holds against a constant, and the interval covers that of the samples.
        let number = Measurement::constant(100.0, Unit::Named("ns".to_owned()));
        assert_eq!(decide(&less, ratio(&of_runs(&[90.0, 93.0]), &number)), Undecided);
        assert_eq!(decide(&less, ratio(&of_runs(&[90.0, 90.1]), &number)), Holds);
        let (_, ends) = ratio(&of_runs(&[90.0, 90.0]), &of_runs(&[90.0, 90.0]));
        let (low, high) = ends.unwrap();
        assert!(low <= 0.998_1 && high >= 1.001_9, "{low} {high}");
    }

    /// Two equal sides with a difference of 3 % between runs.
    #[test]
    fn equal_sides_are_seldom_told_apart() {
        for runs in [2, 3, 6] {
            let mut told = 0;
            let mut random = rdmalab_random::Random::new(20_261_122);
            // Nearly normal: the sum of twelve uniform numbers.
            let mut normal = || (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
            for _ in 0..2000 {
                let mut side = || (0..runs).map(|_| 100.0 * (1.0 + 0.03 * normal())).collect();
                let (a, b): (Vec<f64>, Vec<f64>) = (side(), side());
                let (_, ends) = ratio(&of_runs(&a), &of_runs(&b));
                let (low, high) = ends.unwrap();
                told += usize::from(high < 1.0 || low > 1.0);
            }
            // Without the differences between runs, more than 80 % would be decided.
            assert!(told < 140, "{runs} runs: {told} of 2000");
        }
    }

    pub fn evidence(decisions: &[Decision]) -> Vec<Evidence> {
        let one = |(i, decision): (usize, &Decision)| {
            let mut cell = Measurement::constant(1.0, Unit::Named(String::new()));
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
}
