//! `--rate sweep`: a curve over rates around the capacity of the device.

use rdmalab_experiments::{Limits, Point, check, load_rates};
use rdmalab_measure::{Outcome as Measured, Quantity};

use super::session::Session;
use crate::failure::{Outcome, run as failed};

/// Messages of the probe.
const PROBE_MESSAGES: u64 = 20_000;

/// Replaces each point with `--rate sweep` by several. The point is first measured without a rate;
/// the new points have rates that are shares of the achieved one.
///
/// # Errors
/// Such a measurement fails.
pub fn spread(points: Vec<Point>, limits: &[Limits], session: &mut Session) -> Outcome<Vec<Point>> {
    let mut all = Vec::with_capacity(points.len());
    for point in points {
        let is_possible = limits.iter().all(|limits| check(&point, limits).is_ok());
        // An impossible point stays, so that the plan lists it.
        if point.common.rate_per_s != Point::SWEEP || !is_possible {
            all.push(point);
            continue;
        }
        let probe = point.with(|common| {
            (common.rate_per_s, common.pause_ns, common.runs) = (0, 0, 1);
            common.duration_ns = 0;
            common.messages = common.messages.clamp(1000, PROBE_MESSAGES);
        });
        let measured = session.measure(&probe, &mut |_| ()).map_err(|cut| cut.failure)?;
        let Some(capacity) = capacity_per_s(&measured, point.common.threads) else {
            return Err(failed(
                "--rate sweep: no message arrived, so the range of rates cannot be chosen: give \
                 rates with --rate",
            ));
        };
        let threads = match point.common.threads {
            1 => String::new(),
            threads => format!(" of each of {threads} threads"),
        };
        errln!(
            "--rate sweep: {}{threads} when each message follows the one before",
            Quantity::Rate.format(capacity)
        );
        let with = |rate_per_s| point.with(|common| common.rate_per_s = rate_per_s);
        all.extend(load_rates(capacity).into_iter().map(with));
    }
    Ok(all)
}

/// Messages per second of one thread in a closed loop, which is the unit of `--rate`: from the rate
/// of all threads together, or as the reciprocal of a round trip.
fn capacity_per_s(measured: &Measured, threads: u32) -> Option<f64> {
    let rate = measured.figures.iter().find(|f| f.quantity == Quantity::Rate);
    let rate = rate.map(|f| f.value / f64::from(threads));
    let trips = measured.series.iter().find(|s| s.quantity == Quantity::RoundTrip);
    let mean = trips.map(|s| {
        let (sum, count) = s.counted().fold((0.0, 0u32), |(sum, n), ns| (sum + ns, n + 1));
        f64::from(count) * 1e9 / sum
    });
    rate.or(mean).filter(|rate| rate.is_finite() && *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_a_rate_or_a_round_trip() {
        let mut measured = Measured::default();
        assert_eq!(capacity_per_s(&measured, 2), None);
        measured.push_series(Quantity::RoundTrip, "", 1, vec![9e9, 1000.0, 3000.0, f64::NAN]);
        // The mean of all threads' round trips is that of each thread.
        assert_eq!(capacity_per_s(&measured, 2), Some(500_000.0));
        measured.push_figure(Quantity::Rate, "achieved", 7.0);
        measured.push_figure(Quantity::Rate, "achieved, thread 0", 3.0);
        assert_eq!(capacity_per_s(&measured, 1), Some(7.0));
        assert_eq!(capacity_per_s(&measured, 2), Some(3.5));
    }
}
