//! What a message takes here: a point is tried briefly before anything is announced, since a device
//! may be a thousand times slower than the one that plans are made for, or one way of using it.

use std::time::Instant;

use rdmalab_experiments::Point;
use rdmalab_measure::{Outcome as Measured, Quantity};

use super::session::Session;

/// Messages of the first try.
const FIRST: u64 = 4;
/// Each try has at most so many times the messages of the one before: it may be a thousand times
/// as many on the whole, and is to stay short where the first ones did not tell how slow it is.
const GROWTH: u64 = 8;
/// Messages of the last try at least, unless it gets too long before: a single message that was
/// late on a busy machine makes little of it.
const LAST: u64 = 256;
/// About how long the last try takes at most, in nanoseconds.
const LONGEST_NS: f64 = 2.5e8;
/// From here on a try is repeated that is not as slow as the one before: it may have waited for one
/// message that was lost.
const SLOW_NS: f64 = 2e5;
/// Times that it is.
const AGAIN: u32 = 2;

/// What a message of a point takes, in nanoseconds, if none is waited for: from tries of more and
/// more messages, up to these or more, unless it takes too long. `None` where a try fails.
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

/// Tries a point: what was measured, and how long that took.
fn once(point: &Point, messages: u64, session: &mut Session) -> Option<(Measured, f64)> {
    // As fast as it goes, also what is to wait: the waiting is added where it is known.
    let point = point.with(|common| {
        (common.rate_per_s, common.pause_ns) = (0, 0);
        (common.messages, common.runs, common.warm_up) = (messages, 1, 0);
    });
    let began = Instant::now();
    let measured = session.measure(&point, &mut |_| ()).ok()?;
    Some((measured, began.elapsed().as_nanos() as f64))
}

/// Whether it is no accident that it took so long: it is not long, or the try before was no faster.
fn is_sure(each_ns: f64, last_ns: Option<f64>) -> bool {
    each_ns < SLOW_NS || last_ns.is_some_and(|last| 2.0 * last >= each_ns)
}

/// What a message took where nothing tells: what more messages took longer than the first ones, so
/// that what it takes to begin is not in it.
fn slope((messages, took_ns): (u64, f64), before: Option<(u64, f64)>) -> f64 {
    match before {
        Some((few, first_ns)) => (took_ns - first_ns).max(0.0) / (messages - few) as f64,
        None => took_ns / messages as f64,
    }
}

/// Messages of the next try: more of them, as long as it does not get too long.
fn next(messages: u64, each_ns: f64, most: u64) -> u64 {
    let fit = LONGEST_NS / each_ns.max(1.0);
    (messages * GROWTH).min(most).min(fit as u64)
}

/// What a message took, as an experiment tells it. Where some were lost, all of the time went into
/// waiting for them, which its numbers do not have.
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
        // A round trip of 10 ms.
        assert_eq!(next(4, 1e7, 256), 25);
        // 100 ms: the first try was enough.
        assert!(next(4, 1e8, 256) < 8);
        // A first one that was late for 20 ms does not end it.
        assert!(next(4, 5e6, 256) >= 8);
        assert_eq!(next(256, 0.0, 256), 256);
    }

    #[test]
    fn one_that_is_slow_by_accident_is_tried_again() {
        assert!(is_sure(1e3, None) && is_sure(1e7, Some(9e6)));
        assert!(!is_sure(5e8, None) && !is_sure(8e6, Some(1e3)));
        // The accident was the one before.
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
        // 10 ms to begin, and 1 ms each.
        assert_eq!(slope((32, 42e6), Some((4, 14e6))), 1e6);
        assert_eq!(slope((4, 14e6), None), 3.5e6);
    }
}
