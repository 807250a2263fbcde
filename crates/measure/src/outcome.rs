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
        self.series.push(Series { quantity, label: label.to_owned(), warm_up, samples });
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
    fn names_find_what_was_put_there() {
        let mut outcome = Outcome::default();
        outcome.push_count("lost", 3);
        outcome.push_fact("mtu_bytes", 4096);
        assert_eq!((outcome.count("lost"), outcome.count("sent")), (Some(3), None));
        assert_eq!((outcome.fact("mtu_bytes"), outcome.fact("placement")), (Some("4096"), None));
    }
}
