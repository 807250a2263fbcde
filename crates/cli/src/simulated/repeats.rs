//! Repetitions of a point: where nothing is drawn they are all the same, and one is simulated.

use std::collections::BTreeMap;

use rdmalab_experiments::{PlainPoint, Point};
use rdmalab_sim::{Ps, Report};

use super::job::{Done, Setup};

/// The results of points that are asked for again.
#[derive(Default)]
pub struct Repeats {
    /// How often each point is still to be asked for, by its bytes.
    left: BTreeMap<Vec<u8>, usize>,
    done: BTreeMap<Vec<u8>, Done>,
    /// Bytes of the samples in `done`.
    kept_bytes: usize,
    /// How many were not simulated again.
    pub spared: u64,
}

/// Most bytes of samples that are kept. Points beyond are simulated again, one after the other.
const MOST_BYTES: usize = 1 << 30;

/// What all repetitions of a point have in common.
fn key(point: &Point) -> Option<Vec<u8>> {
    let first = point.clone().repeated(0);
    postcard::to_stdvec(&PlainPoint::from(&first)).ok()
}

/// Bytes of the samples of a point.
fn bytes(done: &Done) -> usize {
    let series = done.measured.iter().flat_map(|(_, measured)| &measured.series);
    series.map(|series| series.samples.len() * size_of::<f64>()).sum()
}

impl Repeats {
    /// Begins with points that will be asked for; returns those that have to be simulated, in their
    /// order.
    pub fn begin(&mut self, mut points: Vec<Point>, setup: &Setup) -> Vec<Point> {
        self.left.clear();
        self.done.clear();
        self.kept_bytes = 0;
        points.retain(|point| match key(point).filter(|_| !setup.is_drawn(point)) {
            None => true,
            Some(key) => {
                let left = self.left.entry(key).or_default();
                *left += 1;
                *left == 1
            }
        });
        points
    }

    /// The results of an earlier repetition of a point.
    pub fn take(&mut self, point: &Point) -> Option<Done> {
        let key = key(point)?;
        let done = self.done.get(&key)?;
        // It took no events again.
        let again = Done {
            measured: done.measured.clone(),
            why: None,
            report: Report { events: 0, time: Ps::ZERO, ..done.report.clone() },
        };
        self.spared += 1;
        self.pass(&key);
        Some(again)
    }

    /// Keeps the results of a point for its later repetitions, if there are some.
    pub fn keep(&mut self, point: &Point, done: &Done) {
        let Some(key) = key(point) else { return };
        let bytes = bytes(done);
        let is_wanted = self.left.get(&key).is_some_and(|left| *left > 1) && done.why.is_none();
        if is_wanted && self.kept_bytes + bytes <= MOST_BYTES {
            self.kept_bytes += bytes;
            self.done.insert(key.clone(), done.clone());
        }
        self.pass(&key);
    }

    /// A point was asked for.
    fn pass(&mut self, key: &[u8]) {
        if let Some(left) = self.left.get_mut(key) {
            *left -= 1;
            if *left == 0 {
                self.left.remove(key);
                self.kept_bytes -= self.done.remove(key).as_ref().map_or(0, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_experiments::{Experiment, sweep};

    use super::*;

    #[test]
    fn what_is_not_drawn_is_simulated_once() {
        let mut setup = Setup::unmeasured(rdmalab_sim::find("connectx4").unwrap());
        setup.ranks = 2;
        let of = |rate| {
            let options = [("size", "8,16"), ("rate", rate), ("messages", "10"), ("runs", "1")];
            let points = sweep(Experiment::ONEWAY, &options).unwrap();
            let again = points.iter().map(|point| point.clone().repeated(1));
            points.iter().cloned().chain(again).collect::<Vec<_>>()
        };
        let points = of("0");
        let mut repeats = Repeats::default();
        let once = repeats.begin(points.clone(), &setup);
        assert!(once == points[..2], "the first repetition");
        assert!(repeats.take(&points[0]).is_none());
        for point in &once {
            repeats.keep(point, &setup.simulate(point, None));
        }
        let again = repeats.take(&points[2]).unwrap();
        // As if it had been simulated.
        assert_eq!(again.measured, setup.simulate(&points[2], None).measured);
        assert_ne!(again.measured, repeats.take(&points[3]).unwrap().measured);
        assert_eq!((again.report.events, repeats.spared), (0, 2));
        assert!(repeats.left.is_empty() && repeats.done.is_empty());
        // Arrivals at random times and noise are drawn again for each repetition.
        assert_eq!(repeats.begin(of("100000"), &setup).len(), 4);
        setup.profile.set("jitter_ns", 10.0).unwrap();
        assert_eq!(repeats.begin(points, &setup).len(), 4);
    }
}
