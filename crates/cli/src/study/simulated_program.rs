//! Calls of perftest on simulated devices. A program cannot run in virtual time; our `ping` with
//! the program's options stands for it.

use std::sync::Arc;

use rdmalab_experiments::{Inline, Point};
use rdmalab_measure::{Outcome as Measured, Quantity};

use crate::interrupt::Interrupt;
use crate::simulated::{self, Spent};

/// Bytes up to which `ib_send_lat` sends inline unless it is told otherwise, as potter2018 has it.
const INLINE_BYTES: u32 = 236;

/// What a call of `program` would measure, as its samples: RTT/2 of each message.
///
/// # Errors
/// Why it cannot be simulated: one line.
pub fn call(
    program: &str,
    point: &Point,
    has_inline: bool,
    device: &str,
    interrupt: &Interrupt,
) -> Result<Measured, String> {
    let profile = simulated::profile(device).map_err(|error| error.to_string())?;
    let profile = Arc::new(profile.ok_or_else(|| format!("{device} is not simulated"))?);
    let mut point = point.clone();
    point.common.warm_up = 0;
    if !has_inline {
        point.common.inline = Inline::Bytes(INLINE_BYTES);
    }
    let tasks = vec![(profile.clone(), 2, point)];
    let mut found = simulated::simulate(tasks, interrupt, &mut Spent::begin())
        .map_err(|failure| failure.to_string())?;
    let measured = found.pop().unwrap_or_else(|| Err("nothing was simulated".to_owned()))?;
    let trips = measured.series.iter().find(|series| series.quantity == Quantity::RoundTrip);
    let trips = trips.ok_or("ping measured no round trips")?;
    let halves = trips.counted().map(|trip| trip / 2.0).collect();
    let mut outcome = Measured::default();
    outcome.push_series(Quantity::HalfRoundTrip, "", 0, halves);
    outcome.push_fact("model", format!("{} {:016x}", profile.name, profile.hash()));
    outcome.warnings.push(format!(
        "{program} was not run: in virtual time our ping with its options stands for it"
    ));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use rdmalab_experiments::{Experiment, sweep};

    use super::*;

    #[test]
    fn half_a_round_trip_stands_for_a_sample() {
        let interrupt = Interrupt::default();
        let of = |size, has_inline| {
            let options = [("size", size), ("messages", "50"), ("inline", "0")];
            let point = sweep(Experiment::PING, &options).unwrap().remove(0);
            let found = call("ib_send_lat", &point, has_inline, "sim:connectx4", &interrupt);
            found.unwrap().series[0].samples.clone()
        };
        let (inline, gathered) = (of("128", false), of("128", true));
        assert_eq!(inline.len(), 50);
        // By default a read of the payload is saved.
        assert!(inline[25] + 200.0 < gathered[25], "{} and {} ns", inline[25], gathered[25]);
        assert_eq!(of("1024", false), of("1024", true), "too long to be inline");
    }
}
