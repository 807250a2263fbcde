//! What a limit is, and how runs of several take turns.

use rdmalab_random::Random;
use std::fmt;

use crate::clock::Clock;
use crate::quantity::Quantity;
use crate::stats;

/// Why a limit cannot be measured here: a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl Unsupported {
    /// What was tried, and the error of the last system call.
    pub(super) fn last_os_error(what: &str) -> Self {
        Self::from_io(what, &std::io::Error::last_os_error())
    }

    pub(super) fn from_io(what: &str, error: &std::io::Error) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// Something with a speed.
pub trait Limit {
    /// What it is, with its parameters, for a table.
    fn name(&self) -> String;

    /// What the number of a run is.
    fn quantity(&self) -> Quantity;

    /// One short run: its number, in the quantity's unit.
    ///
    /// # Errors
    /// When the machine does not allow it, or the other end does not answer.
    fn run(&mut self) -> Result<f64, Unsupported>;
}

/// The runs of one limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// [`Limit::name`].
    pub name: String,
    /// What the numbers are.
    pub quantity: Quantity,
    /// The median over the runs.
    pub median: f64,
    /// The smallest run.
    pub min: f64,
    /// The largest run.
    pub max: f64,
    /// Every run, in the order of the rounds.
    pub runs: Vec<f64>,
}

impl Spread {
    fn of(limit: &dyn Limit, runs: Vec<f64>) -> Self {
        let mut sorted = runs.clone();
        stats::sort(&mut sorted);
        Self {
            name: limit.name(),
            quantity: limit.quantity(),
            median: stats::median(&sorted),
            min: stats::quantile(&sorted, 0.0),
            max: stats::quantile(&sorted, 1.0),
            runs,
        }
    }
}

impl Spread {
    /// The median over the runs with its confidence interval, where there are runs enough.
    ///
    /// # Panics
    /// When `confidence` is not strictly between 0 and 1.
    #[must_use]
    pub fn estimate(&self, confidence: f64) -> stats::Estimate {
        let mut sorted = self.runs.clone();
        stats::sort(&mut sorted);
        stats::median_estimate(&sorted, confidence)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |v| self.quantity.format(v);
        let (median, min, max) = (text(self.median), text(self.min), text(self.max));
        let (name, quantity) = (&self.name, self.quantity);
        write!(f, "{name}, {quantity}: {median} ({min} .. {max}, {} runs)", self.runs.len())
    }
}

/// Runs every limit once in each of `rounds` (at least 1) rounds, in an order drawn anew from
/// `seed` for each round. A limit that fails is left out of later rounds; its error is its result.
pub fn interleave(
    limits: &mut [&mut dyn Limit],
    rounds: usize,
    seed: u64,
) -> Vec<Result<Spread, Unsupported>> {
    let mut results: Vec<Result<Vec<f64>, Unsupported>> = vec![Ok(Vec::new()); limits.len()];
    let mut order: Vec<usize> = (0..limits.len()).collect();
    let mut random = Random::new(seed);
    for _ in 0..rounds.max(1) {
        random.shuffle(&mut order);
        for &i in &order {
            let Ok(runs) = &mut results[i] else { continue };
            match limits[i].run() {
                Ok(value) => runs.push(value),
                Err(reason) => results[i] = Err(reason),
            }
        }
    }
    let spread = |(limit, runs): (&&mut dyn Limit, Result<Vec<f64>, _>)| {
        runs.map(|runs| Spread::of(&**limit, runs))
    };
    limits.iter().zip(results).map(spread).collect()
}

/// Runs one limit `rounds` (at least 1) times.
///
/// # Errors
/// Those of [`Limit::run`].
pub fn measure(limit: &mut dyn Limit, rounds: usize) -> Result<Spread, Unsupported> {
    interleave(&mut [limit], rounds, 0).swap_remove(0)
}

/// The median, over `batches`, of the ns that one of `per_batch` calls of `act` takes.
pub(super) fn median_ns_per_call(
    clock: &Clock,
    batches: usize,
    per_batch: usize,
    mut act: impl FnMut() -> Result<(), Unsupported>,
) -> Result<f64, Unsupported> {
    let mut times = Vec::with_capacity(batches);
    for _ in 0..batches {
        let start = clock.now();
        for _ in 0..per_batch {
            act()?;
        }
        times.push(clock.ns_between(start, clock.now()) / per_batch as f64);
    }
    stats::sort(&mut times);
    Ok(stats::median(&times))
}
