//! What a rank measured at one point of an experiment: series of samples, single figures,
//! counts, and what was agreed on. Plain data, so that it can travel between processes and be kept
//! in a record.

use serde::{Deserialize, Serialize};

use crate::Quantity;

/// All that was measured at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Samples, in the order of measurement.
    pub series: Vec<Series>,
    /// Numbers of which there is one for the whole point.
    pub figures: Vec<Figure>,
    /// Whole numbers of things: messages sent, lost, duplicated, out of order.
    pub counts: Vec<Count>,
    /// What both ends agreed on, or the device granted: `inline_bytes`, `placement`, `mtu_bytes`.
    pub facts: Vec<Fact>,
    /// What makes the numbers doubtful, each a sentence that says what to do about it.
    pub warnings: Vec<String>,
    /// Why it ended before its time; what is here was measured before.
    pub cut_short: Option<String>,
}

/// Samples of one quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What they are.
    pub quantity: Quantity,
    /// The name that the study gives it (`t_lat`), or the thread or queue pair that it belongs to;
    /// empty where the quantity says it all.
    pub label: String,
    /// The number of first samples that are warm-up: kept, and not summarised.
    pub warm_up: usize,
    /// Samples, in the quantity's unit, in the order of measurement. A one-way time may be
    /// negative where two clocks disagree. NaN stands for a message that was lost.
    pub samples: Vec<f64>,
    /// When the largest of them were taken, where that is known, see [`Outcome::date_largest`].
    pub dated: Vec<Dated>,
    /// From which series they were computed; `None` where they were measured. A record keeps each
    /// sample once.
    #[serde(default)]
    pub derived: Option<Derived>,
}

/// How the samples of a series are computed from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Combination {
    /// First the warm-up samples of all sources, then the other samples of all sources.
    Joined,
    /// Sample by sample, the sum over all sources.
    Sum,
    /// Sample by sample, the largest of all sources; NaN if one of them is lost.
    Largest,
}

/// The words of a warning between the label of a series that is no result, and the reason.
pub const IS_HIDDEN: &str = " is not shown: ";

/// From which other series of its outcome a series follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Derived {
    /// The computation.
    pub how: Combination,
    /// The indices of its sources among the series of the outcome; each was measured.
    pub of: Vec<usize>,
}

impl Combination {
    /// The samples computed from these, each with the length of its warm-up, and the length of the
    /// new warm-up; `None` where their lengths differ.
    #[must_use]
    pub fn apply(self, parts: &[(&[f64], usize)]) -> Option<(Vec<f64>, usize)> {
        let (first, rest) = parts.split_first()?;
        let fold = |with: fn(f64, f64) -> f64| {
            let fits = |part: &(&[f64], usize)| part.0.len() == first.0.len() && part.1 == first.1;
            let fold = |i: usize| rest.iter().fold(first.0[i], |all, part| with(all, part.0[i]));
            rest.iter().all(fits).then(|| ((0..first.0.len()).map(fold).collect(), first.1))
        };
        // NaN, where one of them is.
        let larger = |a: f64, b: f64| if a >= b || a.is_nan() { a } else { b };
        match self {
            Self::Sum => fold(|a, b| a + b),
            Self::Largest => fold(larger),
            Self::Joined => {
                let split = |part: &(&[f64], usize)| part.1.min(part.0.len());
                let warm_ups = parts.iter().flat_map(|part| &part.0[..split(part)]);
                let mut samples: Vec<f64> = warm_ups.copied().collect();
                let warm_up = samples.len();
                parts.iter().for_each(|part| samples.extend(&part.0[split(part)..]));
                Some((samples, warm_up))
            }
        }
    }
}

/// How many of the largest samples of a series are kept with their time.
pub const LARGEST: usize = 8;

/// When a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dated {
    /// Which sample of the series, from 0, the warm-up included.
    pub index: u64,
    /// Its stamp, in ticks of the clock of the rank that took it.
    pub ticks: u64,
    /// The same in nanoseconds since 1970, once it was converted to the time of day.
    pub unix_ns: Option<u64>,
}

/// A single number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is.
    pub quantity: Quantity,
    /// What it belongs to, if there are several (`rank 0`); else empty.
    pub label: String,
    /// In the quantity's unit.
    pub value: f64,
}

/// A number of things.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Of what: `sent`, `received`, `lost`, `duplicated`, `reordered`.
    pub name: String,
    /// How many.
    pub value: u64,
}

/// Something that was granted or agreed on, with its unit in the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Which: a name for a column, in snake case.
    pub name: String,
    /// As text.
    pub value: String,
}

impl Outcome {
    /// Adds samples.
    pub fn push_series(
        &mut self,
        quantity: Quantity,
        label: &str,
        warm_up: usize,
        samples: Vec<f64>,
    ) {
        self.series.push(Series::new(quantity, label, warm_up, samples));
    }

    /// Adds samples that follow from those of `of`, series that are here already, by their places.
    /// Adds none where those do not fit together.
    pub fn push_derived(
        &mut self,
        quantity: Quantity,
        label: &str,
        how: Combination,
        of: &[usize],
    ) {
        let parts: Option<Vec<&Series>> = of.iter().map(|at| self.series.get(*at)).collect();
        let found = parts.and_then(|parts| how.apply(&split(parts)));
        if let Some((samples, warm_up)) = found {
            let derived = Some(Derived { how, of: of.to_vec() });
            let series = Series::new(quantity, label, warm_up, samples);
            self.series.push(Series { derived, ..series });
        }
    }

    /// Adds samples that follow from those of `parts`, which were measured, and the parts behind
    /// them. Adds only the parts where they do not fit together.
    pub fn push_with_parts(
        &mut self,
        quantity: Quantity,
        label: &str,
        how: Combination,
        parts: Vec<Series>,
    ) {
        if let Some((samples, warm_up)) = how.apply(&split(&parts)) {
            let first = self.series.len() + 1;
            let derived = Some(Derived { how, of: (first..first + parts.len()).collect() });
            let series = Series::new(quantity, label, warm_up, samples);
            self.series.push(Series { derived, ..series });
        }
        self.series.extend(parts.into_iter().map(|part| Series { derived: None, ..part }));
    }

    /// Adds the series of another outcome.
    pub fn push_all(&mut self, series: Vec<Series>) {
        let first = self.series.len();
        self.series.extend(series.into_iter().map(|mut one| {
            let of = one.derived.iter_mut().flat_map(|derived| &mut derived.of);
            of.for_each(|at| *at += first);
            one
        }));
    }

    /// Dates the largest samples of the series that was added last; `stamp` gives the ticks at
    /// which a sample was taken, by its index.
    pub fn date_largest(&mut self, stamp: impl Fn(usize) -> Option<u64>) {
        let Some(series) = self.series.last_mut() else { return };
        let dated = series.largest().into_iter().filter_map(|index| {
            Some(Dated { index: index as u64, ticks: stamp(index)?, unix_ns: None })
        });
        series.dated = dated.collect();
    }

    /// Says what time it was at each dated sample; `unix_ns` turns ticks of the rank's clock into
    /// nanoseconds since 1970.
    pub fn set_times(&mut self, unix_ns: impl Fn(u64) -> Option<u64>) {
        for dated in self.series.iter_mut().flat_map(|series| &mut series.dated) {
            dated.unix_ns = unix_ns(dated.ticks);
        }
    }

    /// Adds a single number.
    pub fn push_figure(&mut self, quantity: Quantity, label: &str, value: f64) {
        self.figures.push(Figure { quantity, label: label.to_owned(), value });
    }

    /// Adds a number of things.
    pub fn push_count(&mut self, name: &str, value: u64) {
        self.counts.push(Count { name: name.to_owned(), value });
    }

    /// Warns that what was measured under a label is no result, and why.
    pub fn warn_of_hidden(&mut self, label: &str, why: &str) {
        self.warnings.push(format!("{label}{IS_HIDDEN}{why}"));
    }

    /// Adds something agreed on.
    pub fn push_fact(&mut self, name: &str, value: impl std::fmt::Display) {
        self.facts.push(Fact { name: name.to_owned(), value: value.to_string() });
    }

    /// The count of that name; `None` when nobody counted.
    #[must_use]
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|c| c.name == name).map(|c| c.value)
    }

    /// The fact of that name.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|f| f.name == name).map(|f| f.value.as_str())
    }
}

/// The samples of each, with the length of the warm-up.
fn split<'a>(series: impl IntoIterator<Item = &'a Series>) -> Vec<(&'a [f64], usize)> {
    series.into_iter().map(|one| (&*one.samples, one.warm_up)).collect()
}

impl Series {
    /// Measured samples, of which the first `warm_up` do not count.
    #[must_use]
    pub fn new(quantity: Quantity, label: &str, warm_up: usize, samples: Vec<f64>) -> Self {
        let label = label.to_owned();
        Self { quantity, label, warm_up, samples, dated: Vec::new(), derived: None }
    }

    /// The samples that count: without the warm-up, and without the lost ones.
    pub fn counted(&self) -> impl Iterator<Item = f64> + '_ {
        self.samples.iter().skip(self.warm_up).copied().filter(|s| !s.is_nan())
    }

    /// Where the largest samples that count stand, the largest first, of equals the first; at most
    /// [`LARGEST`].
    #[must_use]
    pub fn largest(&self) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::with_capacity(LARGEST + 1);
        let is_larger = |i: usize, j: usize| self.samples[i] > self.samples[j];
        let counted = self.samples.iter().enumerate().skip(self.warm_up);
        for (index, _) in counted.filter(|(_, s)| !s.is_nan()) {
            if found.len() == LARGEST && !is_larger(index, found[LARGEST - 1]) {
                continue;
            }
            let place = found.partition_point(|&other| !is_larger(index, other));
            found.insert(place, index);
            found.truncate(LARGEST);
        }
        found
    }
}

/// The name of a fact or a count of a rank, where the plain name is that of rank 0.
#[must_use]
pub fn at_rank(name: &str, rank: usize) -> String {
    match rank {
        0 => name.to_owned(),
        _ => format!("{name}_at_rank_{rank}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_and_losses_do_not_count() {
        let mut outcome = Outcome::default();
        outcome.push_series(Quantity::OneWay, "t_lat", 1, vec![9.0, f64::NAN, 2.0, 3.0]);
        assert_eq!(outcome.series[0].counted().collect::<Vec<_>>(), [2.0, 3.0]);
    }

    #[test]
    fn the_largest_are_found_and_dated() {
        let mut outcome = Outcome::default();
        let mut samples: Vec<f64> = (0..100).map(|i| f64::from(i * 37 % 100)).collect();
        samples[3] = f64::NAN;
        samples[0] = 1e9;
        outcome.push_series(Quantity::RoundTrip, "", 1, samples.clone());
        let found = outcome.series[0].largest();
        // Without the warm-up; 3 * 37 % 100 = 11 is not among them anyway.
        let values: Vec<f64> = found.iter().map(|i| samples[*i]).collect();
        assert_eq!(values, [99.0, 98.0, 97.0, 96.0, 95.0, 94.0, 93.0, 92.0]);
        outcome.date_largest(|i| (i != found[1]).then_some(i as u64 * 10));
        outcome.set_times(|ticks| Some(ticks + 5));
        let dated = &outcome.series[0].dated;
        assert_eq!((dated.len(), dated[0].index), (7, found[0] as u64));
        assert_eq!(dated[0].unix_ns, Some(found[0] as u64 * 10 + 5));
        // Of equals the first ones, in their order.
        outcome.push_series(Quantity::RoundTrip, "", 0, vec![1.0; 20]);
        assert_eq!(outcome.series[1].largest(), (0..LARGEST).collect::<Vec<_>>());
    }

    #[test]
    fn what_follows_from_others_says_how() {
        let of = |samples: &[f64]| Series::new(Quantity::OneWay, "", 1, samples.to_vec());
        let mut outcome = Outcome::default();
        outcome.push_count("sent", 5);
        let parts = vec![of(&[1.0, 2.0, 3.0]), of(&[4.0, 5.0])];
        outcome.push_with_parts(Quantity::OneWay, "all", Combination::Joined, parts);
        let all = &outcome.series[0];
        assert_eq!((&*all.samples, all.warm_up), (&[1.0, 4.0, 2.0, 3.0, 5.0][..], 2));
        assert_eq!(all.derived, Some(Derived { how: Combination::Joined, of: vec![1, 2] }));
        assert!(outcome.series[1..].iter().all(|part| part.derived.is_none()));

        outcome.series.push(of(&[7.0, f64::NAN]));
        outcome.push_derived(Quantity::OneWay, "sum", Combination::Sum, &[2, 3]);
        outcome.push_derived(Quantity::OneWay, "largest", Combination::Largest, &[3, 2]);
        for (series, first) in outcome.series[4..].iter().zip([11.0, 7.0]) {
            assert_eq!((series.samples[0], series.warm_up), (first, 1));
            assert!(series.samples[1].is_nan());
        }
        // Of unequal lengths there is no sum, and of what is not there nothing.
        outcome.push_derived(Quantity::OneWay, "none", Combination::Sum, &[1, 2]);
        outcome.push_derived(Quantity::OneWay, "none", Combination::Joined, &[1, 99]);
        outcome.push_derived(Quantity::OneWay, "none", Combination::Joined, &[]);
        assert_eq!(outcome.series.len(), 6);

        let mut both = Outcome::default();
        both.push_series(Quantity::OneWay, "", 0, vec![]);
        both.push_all(outcome.series);
        assert_eq!(both.series[1].derived.as_ref().map(|d| &*d.of), Some(&[2, 3][..]));
    }

    #[test]
    fn names_find_what_was_put_there() {
        let mut outcome = Outcome::default();
        outcome.push_count("lost", 3);
        outcome.push_fact("mtu_bytes", 4096);
        assert_eq!((outcome.count("lost"), outcome.count("sent")), (Some(3), None));
        assert_eq!((outcome.fact("mtu_bytes"), outcome.fact("placement")), (Some("4096"), None));
    }
}
