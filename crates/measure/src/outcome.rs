//! What a rank brings home from one point of an experiment: series of samples, single figures,
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
    /// So many of the first samples are warm-up: kept, and not summarised.
    pub warm_up: usize,
    /// Samples, in the quantity's unit, in the order of measurement. A one-way time may be
    /// negative where two clocks disagree. NaN stands for a message that was lost.
    pub samples: Vec<f64>,
    /// When the largest of them were taken, where that is known, see [`Outcome::date_largest`].
    pub dated: Vec<Dated>,
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
    /// The same in nanoseconds since 1970, once somebody knew what time it was.
    pub unix_ns: Option<u64>,
}

/// A single number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is.
    pub quantity: Quantity,
    /// Whose it is, where there are several (`rank 0`); else empty.
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
        let (label, dated) = (label.to_owned(), Vec::new());
        self.series.push(Series { quantity, label, warm_up, samples, dated });
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

impl Series {
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
    fn names_find_what_was_put_there() {
        let mut outcome = Outcome::default();
        outcome.push_count("lost", 3);
        outcome.push_fact("mtu_bytes", 4096);
        assert_eq!((outcome.count("lost"), outcome.count("sent")), (Some(3), None));
        assert_eq!((outcome.fact("mtu_bytes"), outcome.fact("placement")), (Some("4096"), None));
    }
}
