//! `stats`: delays, gaps, and what is missing.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::hook::{Hook, HookError, Verdict};
use crate::sample::SampleMut;
use crate::timestamp::Timestamp;

/// How statistics are shown.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatsFormat {
    /// A table.
    #[default]
    Human,
    /// An object of JSON.
    Json,
}

/// The options of `stats`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// How statistics are shown.
    pub format: StatsFormat,
    /// The file to which they go; standard output if not given. The caller opens it.
    pub output: Option<String>,
    /// Of VILLASnode's histograms. Ours need no number of buckets.
    pub buckets: Option<u64>,
    /// Of VILLASnode's histograms. Ours need no samples in advance.
    pub warmup: Option<u64>,
    /// Of VILLASnode's histograms. Ours are not shown.
    pub verbose: bool,
}

/// What `stats` has counted.
#[derive(Clone, Default, Debug)]
pub struct Statistics {
    /// Nanoseconds from origin to arrival.
    pub owd: Histogram,
    /// Nanoseconds from one origin to the next.
    pub gap_sent: Histogram,
    /// Nanoseconds from one arrival to the next.
    pub gap_received: Histogram,
    /// All samples.
    pub samples: u64,
    /// Sequence numbers that were left out, less those that came late.
    pub missing: u64,
    /// Samples with the number of the one before them.
    pub duplicate: u64,
    /// Samples with a number below that of an earlier one.
    pub reordered: u64,
}

/// The last sample: what statistics need of it.
#[derive(Clone, Copy, Debug)]
struct Last {
    origin: Option<Timestamp>,
    received: Option<Timestamp>,
}

/// `stats`: delays and gaps with their quantiles, and missing, duplicate and reordered samples.
#[derive(Clone, Default, Debug)]
pub struct Stats {
    format: StatsFormat,
    statistics: Statistics,
    last: Option<Last>,
    /// The highest sequence number so far.
    highest: Option<u64>,
}

impl Stats {
    /// The hook with these options.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Self { format: options.format, ..Self::default() }
    }

    /// What was counted so far.
    #[must_use]
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }
}

impl Hook for Stats {
    fn name(&self) -> &'static str {
        "stats"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        let sample = sample.as_ref();
        let now = Last { origin: sample.origin(), received: sample.received() };
        let statistics = &mut self.statistics;
        statistics.samples += 1;
        add(&mut statistics.owd, now.origin, now.received);
        if let Some(last) = self.last.replace(now) {
            add(&mut statistics.gap_sent, last.origin, now.origin);
            add(&mut statistics.gap_received, last.received, now.received);
        }
        let Some(sequence) = sample.sequence() else { return Ok(Verdict::Pass) };
        let step = self.highest.map(|highest| sequence.wrapping_sub(highest).cast_signed());
        match step {
            Some(0) => statistics.duplicate += 1,
            Some(..0) => {
                statistics.reordered += 1;
                statistics.missing = statistics.missing.saturating_sub(1);
            }
            Some(step) => statistics.missing += step.unsigned_abs() - 1,
            None => {}
        }
        if step.is_none_or(|step| step > 0) {
            self.highest = Some(sequence);
        }
        Ok(Verdict::Pass)
    }

    fn restart(&mut self) {
        *self = Self { format: self.format, ..Self::default() };
    }

    fn take_text(&mut self, end: bool) -> Vec<u8> {
        if !end {
            return Vec::new();
        }
        match self.format {
            StatsFormat::Human => table(&self.statistics),
            StatsFormat::Json => json(&self.statistics),
        }
        .into_bytes()
    }
}

/// Counts the nanoseconds between two times, if both are known.
fn add(histogram: &mut Histogram, from: Option<Timestamp>, to: Option<Timestamp>) {
    if let (Some(from), Some(to)) = (from, to) {
        let ns = to.ns_since(from);
        histogram.add(ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
    }
}

/// The histograms and counts with their names.
type Parts<'a> = ([(&'static str, &'a Histogram); 3], [(&'static str, u64); 4]);

fn parts(statistics: &Statistics) -> Parts<'_> {
    let Statistics { owd, gap_sent, gap_received, samples, missing, duplicate, reordered } =
        statistics;
    let histograms = [("owd", owd), ("gap_sent", gap_sent), ("gap_received", gap_received)];
    let counts = [
        ("samples", *samples),
        ("missing", *missing),
        ("duplicate", *duplicate),
        ("reordered", *reordered),
    ];
    (histograms, counts)
}

/// The quantiles that are shown.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// A histogram in seconds: name and value of each number.
fn numbers(histogram: &Histogram) -> Vec<(&'static str, Option<f64>)> {
    let seconds = |ns: Option<i64>| ns.map(|ns| ns as f64 / 1e9);
    let mut numbers = vec![
        ("last", seconds(histogram.last())),
        ("lowest", seconds(histogram.lowest())),
        ("highest", seconds(histogram.highest())),
        ("mean", histogram.mean().map(|ns| ns / 1e9)),
        ("stddev", histogram.deviation().map(|ns| ns / 1e9)),
    ];
    let quantiles = QUANTILES.map(|(name, q)| (name, seconds(histogram.quantile(q))));
    numbers.extend(quantiles);
    numbers
}

fn table(statistics: &Statistics) -> String {
    let mut text = String::new();
    let (histograms, counts) = parts(statistics);
    for (name, histogram) in histograms {
        // Writing into a string cannot fail.
        let _ = write!(text, "{name}: {} values", histogram.count());
        for (name, number) in numbers(histogram) {
            if let Some(seconds) = number {
                let _ = write!(text, ", {name} {:.3} us", seconds * 1e6);
            }
        }
        text.push('\n');
    }
    let counts = counts.map(|(name, count)| format!("{name} {count}"));
    text + &counts.join(", ") + "\n"
}

fn json(statistics: &Statistics) -> String {
    let (histograms, counts) = parts(statistics);
    let mut object = serde_json::Map::new();
    for (name, histogram) in histograms {
        let mut values = serde_json::Map::new();
        values.insert("total".to_owned(), histogram.count().into());
        for (name, number) in numbers(histogram) {
            values.insert(name.to_owned(), number.into());
        }
        object.insert(name.to_owned(), values.into());
    }
    for (name, count) in counts {
        object.insert(name.to_owned(), count.into());
    }
    serde_json::Value::Object(object).to_string() + "\n"
}
