//! Makes many points from a short text, and the order in which to measure them.

use rdmalab_random::Random;
use std::fmt;

use crate::common::option::OptionError;
use crate::experiment::Experiment;
use crate::options::option;
use crate::point::Point;

/// Most points of a sweep.
pub const MAX_POINTS: usize = 4096;

/// Why there are no points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SweepError {
    /// An option, or one of its values.
    Option(OptionError),
    /// More than [`MAX_POINTS`]; holds a lower bound of the number.
    TooMany(usize),
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(error) => error.fmt(f),
            Self::TooMany(points) => write!(
                f,
                "the sweep has {points} points or more; the limit is {MAX_POINTS}: shorten a \
                 list, or use larger steps in a range"
            ),
        }
    }
}

impl std::error::Error for SweepError {}

impl From<OptionError> for SweepError {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}

/// The points of all combinations of values. Each option comes with a text: a value, a list
/// `a,b,c`, a range `8..32K*2` or `0..100+10`, or a list of these. The last option varies fastest.
///
/// # Errors
/// An option that the experiment does not have, a value that it does not take, the same option
/// twice, or more than [`MAX_POINTS`].
pub fn sweep<N: AsRef<str>, T: AsRef<str>>(
    experiment: Experiment,
    options: &[(N, T)],
) -> Result<Vec<Point>, SweepError> {
    sweep_from(&Point::default_for(experiment), options)
}

/// As [`sweep`], but starting from `base` instead of the default point.
///
/// # Errors
/// As [`sweep`].
pub fn sweep_from<N: AsRef<str>, T: AsRef<str>>(
    base: &Point,
    options: &[(N, T)],
) -> Result<Vec<Point>, SweepError> {
    let mut points = vec![base.clone()];
    let mut seen: Vec<&str> = Vec::new();
    for (name, text) in options {
        let option = option(base.experiment(), name.as_ref())?;
        if seen.contains(&option.name) {
            let reason = "it is given twice: give it once, with a list of values".to_owned();
            return Err(OptionError { option: option.name.to_owned(), reason }.into());
        }
        seen.push(option.name);
        let values = option.values(text.as_ref())?;
        let count = points.len().saturating_mul(values.len());
        if count > MAX_POINTS {
            return Err(SweepError::TooMany(count));
        }
        let mut next = Vec::with_capacity(count);
        for point in &points {
            for value in &values {
                let mut point = point.clone();
                option.set(&mut point, value)?;
                next.push(point);
            }
        }
        points = next;
    }
    Ok(points)
}

/// One measurement of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Index of the point.
    pub point: usize,
    /// Which repetition of it, from 0.
    pub repetition: usize,
}

/// The order of measuring: every point once in random order, then every point again in another
/// random order, so that drift is not mistaken for an effect. The same seed gives the same order.
#[must_use]
pub fn shuffle(points: usize, repetitions: usize, seed: u64) -> Vec<Turn> {
    let mut random = Random::new(seed);
    let mut turns = Vec::with_capacity(points.saturating_mul(repetitions));
    for repetition in 0..repetitions {
        let mut round: Vec<usize> = (0..points).collect();
        random.shuffle(&mut round);
        turns.extend(round.into_iter().map(|point| Turn { point, repetition }));
    }
    turns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::common::params::{Op, Transport};
    use crate::options::options;

    #[test]
    fn a_sweep_is_all_combinations() {
        let options = [("size", "8..32*2"), ("transport", "rc,uc"), ("op", "write")];
        let points = sweep(Experiment::PING, &options).unwrap();
        assert_eq!(points.len(), 6);
        assert_eq!((points[1].common.size_bytes, points[1].common.transport), (8, Transport::Uc));
        assert_eq!((points[4].common.size_bytes, points[4].common.op), (32, Op::Write));
        let none: [(&str, &str); 0] = [];
        assert_eq!(
            sweep(Experiment::BLAST, &none),
            Ok(vec![Point::default_for(Experiment::BLAST)])
        );
    }

    #[test]
    fn values_of_a_parameter_are_a_list_with_ranges() {
        let models = |text: &str| -> Vec<String> {
            let points = sweep(Experiment::PING, &[("sim", text)]).unwrap();
            points.iter().map(|point| point.common.model.to_string()).collect()
        };
        assert_eq!(models("a=1,2..4+2"), ["a=1", "a=2", "a=4"]);
        assert_eq!(models("a=0,profile,1"), ["a=0", "profile", "a=1"]);
        assert_eq!(models("b=3;a=1..2+1,c=5"), ["b=3;a=1", "b=3;a=2", "c=5"]);
    }

    #[test]
    fn stamps_are_a_list_themselves() {
        let points = sweep(Experiment::ONEWAY, &[("stamps", "recv,comp/send,recv")]).unwrap();
        assert_eq!(points.len(), 2);
        let stamps = |point: &Point| point.get("stamps");
        assert_eq!(stamps(&points[0]).as_deref(), Some("subm,recv,comp"));
        assert_eq!(stamps(&points[1]).as_deref(), Some("subm,send,recv"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |options: &[(&str, &str)]| {
            sweep(Experiment::PING, options).expect_err("an error").to_string()
        };
        assert!(error(&[("size", "8"), ("size", "9")]).starts_with("--size: it is given twice"));
        assert!(error(&[("size", "8,,9")]).starts_with("--size: \"\" is not a valid number"));
        assert!(error(&[("transport", "rc..ud")]).contains("choose one of"));
        let many = error(&[("size", "1..1000+1"), ("messages", "1..1000+1")]);
        assert!(many.contains("the limit is 4096"), "{many}");
    }

    #[test]
    fn the_bound_is_met_and_kept() {
        let both = |last: &str| {
            sweep(Experiment::PING, &[("size", "1..64+1"), ("messages", last)]).map(|p| p.len())
        };
        assert_eq!(both("1..64+1"), Ok(MAX_POINTS));
        assert_eq!(both("1..65+1"), Err(SweepError::TooMany(64 * 65)));
    }

    proptest! {
        #[test]
        fn a_list_of_numbers_gives_these(sizes in prop::collection::vec(1u64..1 << 30, 1..40)) {
            let text = sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            let points = sweep(Experiment::BLAST, &[("size", &text)]).unwrap();
            let found: Vec<u64> = points.iter().map(|p| p.common.size_bytes).collect();
            prop_assert_eq!(found, sizes);
        }

        #[test]
        fn a_range_keeps_its_ends_and_steps(first in 1u64..1000, more in 0u64..1000,
            step in 2u64..50) {
            let last = first + more;
            for sign in ['*', '+'] {
                let text = format!("{first}..{last}{sign}{step}");
                let points = sweep(Experiment::PING, &[("size", &text)]).unwrap();
                let found: Vec<u64> = points.iter().map(|p| p.common.size_bytes).collect();
                prop_assert_eq!(found[0], first);
                let next = |n: u64| if sign == '*' { n * step } else { n + step };
                prop_assert!(found.windows(2).all(|w| w[1] == next(w[0])));
                let end = *found.last().unwrap();
                prop_assert!(end <= last && next(end) > last);
            }
        }

        #[test]
        fn no_text_panics(name in "[a-z-]{1,12}", text in ".{0,30}") {
            let _ = sweep(Experiment::ONEWAY, &[(&name, &text)]);
            for option in options() {
                let _ = sweep(Experiment::ONEWAY, &[(option.name, &text)]);
            }
        }

        #[test]
        fn every_round_is_a_permutation(points in 0usize..60, repetitions in 0usize..5, seed: u64) {
            let turns = shuffle(points, repetitions, seed);
            prop_assert_eq!(&turns, &shuffle(points, repetitions, seed));
            for (r, round) in turns.chunks(points.max(1)).enumerate() {
                let mut seen: Vec<usize> = round.iter().map(|t| t.point).collect();
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..points).collect::<Vec<_>>());
                prop_assert!(round.iter().all(|t| t.repetition == r));
            }
            prop_assert_eq!(turns.len(), points * repetitions);
        }
    }

    #[test]
    fn other_seeds_give_other_orders() {
        assert_ne!(shuffle(20, 1, 1), shuffle(20, 1, 2));
        let rounds = shuffle(20, 2, 1);
        let of = |r: usize| rounds[r * 20..(r + 1) * 20].iter().map(|t| t.point);
        assert!(!of(0).eq(of(1)));
    }
}
