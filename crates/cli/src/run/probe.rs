//! Measures how long a message takes, by short trials before the plan is announced: a device, or
//! one way of using it, may be a thousand times slower than plans assume.

use std::time::Instant;

use rdmalab_experiments::Point;
use rdmalab_measure::{Outcome as Measured, Quantity};

use super::session::Session;

/// Messages of the first trial.
const FIRST: u64 = 4;
/// Each trial has at most this many times the messages of the one before, so that it stays short if
/// the first ones did not show how slow the device is.
const GROWTH: u64 = 8;
/// Least number of messages of the last trial, unless it takes too long: then a single late message
/// on a busy machine changes the result only little.
const LAST: u64 = 256;
/// The approximate limit of the last trial's duration, in nanoseconds.
const LONGEST_NS: f64 = 2.5e8;
/// From this time per message on, a trial is repeated unless the one before was about as slow: a
/// lost message may have delayed it.
const SLOW_NS: f64 = 2e5;
/// Most repetitions.
const AGAIN: u32 = 2;

/// The time per message of a point in nanoseconds, without waiting for an intended rate. Trials get
/// longer, up to `least` or `LAST` messages, unless they take too long. `None` if a trial fails.
pub fn each_ns(point: &Point, least: u64, session: &mut Session) -> Option<f64> {
    let most = least.max(LAST);
    let (mut messages, mut first, mut last_ns, mut again) = (FIRST, None, None, AGAIN);
    loop {
        let (measured, took_ns) = once(point, messages, session)?;
        let each_ns = told(&measured).unwrap_or_else(|| slope((messages, took_ns), first));
        let next = next(messages, each_ns, most);
        if next >= 2 * messages {
            first.get_or_insert((messages, took_ns));
            messages = next;
        } else if again == 0 || is_sure(each_ns, last_ns) {
            return Some(each_ns);
        } else {
            again -= 1;
        }
        last_ns = Some(each_ns);
    }
}

/// Runs a trial of a point; returns the results and the duration.
fn once(point: &Point, messages: u64, session: &mut Session) -> Option<(Measured, f64)> {
    // Rates and pauses are removed; the caller adds waiting times where it knows them.
    let point = point.with(|common| {
        (common.rate_per_s, common.pause_ns) = (0, 0);
        (common.messages, common.runs, common.warm_up) = (messages, 1, 0);
        common.duration_ns = 0;
    });
    let began = Instant::now();
    let measured = session.measure(&point, &mut |_| ()).ok()?;
    Some((measured, began.elapsed().as_nanos() as f64))
}

/// Whether the time is trustworthy: it is short, or the trial before was about as slow.
fn is_sure(each_ns: f64, last_ns: Option<f64>) -> bool {
    each_ns < SLOW_NS || last_ns.is_some_and(|last| 2.0 * last >= each_ns)
}

/// The time per message if the results contain none: the additional duration for the additional
/// messages, so that the time to start is not included.
fn slope((messages, took_ns): (u64, f64), before: Option<(u64, f64)>) -> f64 {
    match before {
        Some((few, first_ns)) => (took_ns - first_ns).max(0.0) / (messages - few) as f64,
        None => took_ns / messages as f64,
    }
}

/// Messages of the next trial: more, unless it would take too long.
fn next(messages: u64, each_ns: f64, most: u64) -> u64 {
    let fit = LONGEST_NS / each_ns.max(1.0);
    (messages * GROWTH).min(most).min(fit as u64)
}

/// The time per message from an experiment's results. `None` if messages were lost: then most of
/// the duration was spent waiting for them, which the results do not show.
fn told(measured: &Measured) -> Option<f64> {
    if measured.count("lost").is_some_and(|lost| lost > 0) {
        return None;
    }
    let is_it = |quantity: Quantity| quantity == Quantity::MessageTime;
    let flood = measured.figures.iter().find(|f| is_it(f.quantity) && f.label.is_empty());
    let trips = measured.series.iter().find(|s| s.quantity == Quantity::RoundTrip);
    let mean = |samples: Vec<f64>| samples.iter().sum::<f64>() / samples.len().max(1) as f64;
    flood.map(|f| f.value).or_else(|| trips.map(|s| mean(s.counted().collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_device_is_tried_with_few_messages_and_a_fast_one_with_enough() {
        assert_eq!(next(4, 1e3, 256), 32);
        assert_eq!(next(32, 1e3, 256), 256);
        // A round trip takes 10 ms.
        assert_eq!(next(4, 1e7, 256), 25);
        // 100 ms: the first trial is enough.
        assert!(next(4, 1e8, 256) < 8);
        // A first message that is 20 ms late does not end the trials.
        assert!(next(4, 5e6, 256) >= 8);
        assert_eq!(next(256, 0.0, 256), 256);
    }

    #[test]
    fn one_that_is_slow_by_accident_is_tried_again() {
        assert!(is_sure(1e3, None) && is_sure(1e7, Some(9e6)));
        assert!(!is_sure(5e8, None) && !is_sure(8e6, Some(1e3)));
        // The trial before was the disturbed one.
        assert!(is_sure(1e6, Some(5e8)));
    }

    #[test]
    fn what_a_message_took_is_in_what_was_measured() {
        let mut trips = Measured::default();
        trips.push_series(Quantity::RoundTrip, "", 1, vec![9e9, 1000.0, 3000.0]);
        assert_eq!(told(&trips), Some(2000.0));
        trips.push_count("lost", 1);
        assert_eq!(told(&trips), None);
        let mut flood = Measured::default();
        flood.push_figure(Quantity::MessageTime, "", 50.0);
        assert_eq!(told(&flood), Some(50.0));
        // 10 ms to start, and 1 ms for each message.
        assert_eq!(slope((32, 42e6), Some((4, 14e6))), 1e6);
        assert_eq!(slope((4, 14e6), None), 3.5e6);
    }
}
