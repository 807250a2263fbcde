//! What a profile is in the terms of LogGP (Alexandrov, Ionescu, Schauser, Scheiman, 1995): what a
//! model of messages needs that knows nothing of adapters.

use std::sync::Arc;

use rdmalab_experiments::{Experiment, sweep};
use rdmalab_measure::{Outcome as Measured, Quantity, stats};
use rdmalab_sim::Profile;
use serde::Serialize;

use super::{Spent, simulate};
use crate::failure::{Outcome, run as failed, usage};
use crate::interrupt::Interrupt;

/// The two long messages whose difference is the time of bytes.
const LONG_BYTES: (u64, u64) = (64 << 10, 1 << 20);

/// The parameters of LogGP, in nanoseconds, of SENDs over UC.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LogGp {
    /// L: the latency of a message of one byte, without the overheads.
    pub latency_ns: f64,
    /// o of the sender: the processor's time of a post.
    pub send_overhead_ns: f64,
    /// o of the receiver: the processor's time of a poll that finds a completion.
    pub receive_overhead_ns: f64,
    /// g: the least time between two messages of one byte.
    pub gap_ns: f64,
    /// G: the time of each further byte of a long message.
    pub gap_ns_per_byte: f64,
}

impl LogGp {
    /// That of a profile: overheads are parameters, the rest is simulated.
    ///
    /// # Errors
    /// A message cannot be simulated on it.
    pub fn of(profile: &Profile) -> Outcome<LogGp> {
        let short = [("transport", "uc"), ("size", "1"), ("runs", "1")];
        let one = [&short[..], &[("messages", "20")]].concat();
        let many = [&short[..], &[("messages", "2000")]].concat();
        // With a pause, so that no message waits for another one.
        let large = [("size", "64K,1M"), ("messages", "5"), ("pause", "100ms")];
        let large = [&short[..1], &short[2..], &large[..]].concat();
        let mut tasks = Vec::new();
        let model = Arc::new(profile.clone());
        let (ways, rates) = (Experiment::ONEWAY, Experiment::BLAST);
        for (experiment, options) in [(ways, &one[..]), (ways, &large[..]), (rates, &many[..])] {
            let points = sweep(experiment, options).map_err(usage)?;
            tasks.extend(points.into_iter().map(|point| (model.clone(), 2, point)));
        }
        let found = simulate(tasks, &Interrupt::default(), &mut Spent::begin())?;
        let found: Result<Vec<Measured>, String> = found.into_iter().collect();
        let found = found.map_err(|why| failed(format!("LogGP of {}: {why}", profile.name)))?;
        let [one, less, more, many] = &found[..] else {
            return Err(failed("LogGP: points are missing"));
        };
        let all = &profile.parameters;
        let (send_overhead_ns, receive_overhead_ns) = (all.post_ns.ns(), all.poll_hit_ns.ns());
        // The stamp before the post is within, the one after the poll is not.
        let around = send_overhead_ns + receive_overhead_ns + all.stamp_ns.ns();
        let rate = many.figures.iter().find(|figure| figure.quantity == Quantity::Rate);
        let rate = rate.ok_or_else(|| failed("LogGP: blast measured no rate"))?;
        Ok(LogGp {
            latency_ns: one_way_ns(one)? - around,
            send_overhead_ns,
            receive_overhead_ns,
            gap_ns: 1e9 / rate.value,
            gap_ns_per_byte: (one_way_ns(more)? - one_way_ns(less)?)
                / (LONG_BYTES.1 - LONG_BYTES.0) as f64,
        })
    }

    /// In a line.
    pub fn text(&self) -> String {
        format!(
            "LogGP of SENDs over UC: L {:.0} ns, o {:.0} ns to send and {:.0} ns to receive, g \
             {:.0} ns, G {:.4} ns a byte",
            self.latency_ns,
            self.send_overhead_ns,
            self.receive_overhead_ns,
            self.gap_ns,
            self.gap_ns_per_byte
        )
    }
}

/// The median one-way time, in ns.
fn one_way_ns(measured: &Measured) -> Outcome<f64> {
    let series = measured.series.iter().find(|series| series.quantity == Quantity::OneWay);
    let mut samples: Vec<f64> = series.map(|series| series.counted().collect()).unwrap_or_default();
    stats::sort(&mut samples);
    match samples.is_empty() {
        true => Err(failed("LogGP: oneway measured no one-way times")),
        false => Ok(stats::median(&samples)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_profile_is_loggp_by_definition() {
        let found = LogGp::of(&rdmalab_sim::find("ideal").unwrap()).unwrap();
        let LogGp { latency_ns, gap_ns, gap_ns_per_byte, .. } = found;
        // A look finds the message up to 10 ns after it came.
        assert!((latency_ns - 1000.0).abs() <= 11.0, "{found:?}");
        assert_eq!((found.send_overhead_ns, found.receive_overhead_ns), (100.0, 100.0));
        // 1/G.
        assert!((gap_ns_per_byte - 0.1).abs() < 1e-3, "{found:?}");
        assert!((gap_ns - 200.0).abs() < 10.0, "{found:?}");
    }
}
