//! What a message takes here: each way is tried briefly before anything is announced, since devices
//! may be a thousand times slower than the one that the plan is made for, or one way of them.

use std::time::Instant;

use rdmalab_experiments::{Limits, Point};
use rdmalab_measure::{Outcome as Measured, Quantity};

use super::fit::least_messages;
use super::parts::Part;
use crate::failure::{Outcome, run as failed};
use crate::interrupt::Interrupt;
use crate::run::ends::Ends;
use crate::run::session::Session;

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

/// Who tries.
pub struct Probe<'a> {
    /// The device's name.
    pub device: &'a str,
    /// Where the ends are.
    pub ends: &'a Ends,
    /// Ends it.
    pub interrupt: &'a Interrupt,
}

impl Probe<'_> {
    /// Tries each point of all parts that such devices can measure, and notes what a message took.
    /// Of a point that fails nothing is known; its run says why.
    ///
    /// # Errors
    /// When it is interrupted, or the ends cannot be started again after a failure.
    pub fn all(&self, parts: &mut [Part], limits: &[Limits], session: &mut Session) -> Outcome {
        for part in parts {
            for i in part.possible(limits) {
                let most = least_messages(&part.points).max(LAST);
                part.each_ns[i] = each_ns(&part.points[i], most, session);
                if self.interrupt.is_set() {
                    return Err(failed("interrupted"));
                }
                if part.each_ns[i].is_none() {
                    *session = Session::open(self.interrupt, self.device, self.ends)?;
                    break;
                }
            }
        }
        Ok(())
    }
}

/// What a message of a point takes, from tries of more and more messages, up to `most`.
fn each_ns(point: &Point, most: u64, session: &mut Session) -> Option<f64> {
    let mut messages = FIRST;
    loop {
        // As fast as it goes, also what is to be at a rate: that one is chosen by what this tells.
        let point = Point { messages, runs: 1, warm_up: 0, rate_per_s: 0, ..point.clone() };
        let began = Instant::now();
        let measured = session.measure(&point, &mut |_| ()).ok()?;
        let took_ns = began.elapsed().as_nanos() as f64;
        let each_ns = told(&measured, took_ns / messages as f64)?;
        let next = next(messages, each_ns, most);
        if next < 2 * messages {
            return Some(each_ns);
        }
        messages = next;
    }
}

/// Messages of the next try: more of them, as long as it does not get too long.
fn next(messages: u64, each_ns: f64, most: u64) -> u64 {
    let fit = LONGEST_NS / each_ns.max(1.0);
    (messages * GROWTH).min(most).min(fit as u64)
}

/// What a message took. Where some were lost, all of the time went into waiting for them, which no
/// other number has.
fn told(measured: &Measured, whole_ns: f64) -> Option<f64> {
    if measured.count("lost").is_some_and(|lost| lost > 0) {
        return Some(whole_ns);
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
    fn what_a_message_took_is_in_what_was_measured() {
        let mut trips = Measured::default();
        trips.push_series(Quantity::RoundTrip, "", 1, vec![9e9, 1000.0, 3000.0]);
        assert_eq!(told(&trips, 7.0), Some(2000.0));
        trips.push_count("lost", 1);
        assert_eq!(told(&trips, 5e8), Some(5e8));
        let mut flood = Measured::default();
        flood.push_figure(Quantity::MessageTime, "", 50.0);
        assert_eq!(told(&flood, 7.0), Some(50.0));
        assert_eq!(told(&Measured::default(), 7.0), None);
    }
}
