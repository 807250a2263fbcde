//! A hook that keeps the latency of each sample that passes, for another thread to take.

use std::sync::{Arc, Mutex, PoisonError};

use rdmalab_sample::{Hook, HookError, SampleMut, Timestamp, Verdict};

/// Room for arrivals between two takes: those of 100 000 samples a second for half a second.
const ROOM: usize = 50_000;

/// A sample that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number, which is that of its tick.
    pub number: u64,
    /// From its origin to its arrival, in nanoseconds.
    pub ns: i64,
}

/// What arrived and was not taken yet.
#[derive(Clone, Debug)]
pub struct Arrivals(Arc<Mutex<Vec<Arrival>>>);

impl Arrivals {
    /// None so far.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(room())))
    }

    /// Takes what arrived since the last call, into a list whose room the path fills next.
    pub fn take(&self, taken: &mut Vec<Arrival>) {
        taken.clear();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *all, taken);
    }

    /// The hook.
    pub fn recorder(&self) -> Box<dyn Hook> {
        Box::new(Recorder(self.clone()))
    }
}

/// An empty list with its pages present, so that the path's thread does not wait for them.
pub fn room() -> Vec<Arrival> {
    let mut room = vec![Arrival { number: 1, ns: 1 }; ROOM];
    std::hint::black_box(&mut room).clear();
    room
}

struct Recorder(Arrivals);

impl Hook for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        _: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        let sample = sample.as_ref();
        if let (Some(number), Some(ns)) = (sample.sequence(), sample.offset_ns()) {
            let ns = i64::try_from(ns).unwrap_or(i64::MAX);
            let mut all = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(Arrival { number, ns });
        }
        Ok(Verdict::Pass)
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_sample::Pool;

    use super::*;

    #[test]
    fn each_sample_is_taken_once_with_its_latency() {
        let arrivals = Arrivals::new();
        let mut recorder = arrivals.recorder();
        let mut pool = Pool::new(1, 1);
        let mut one = pool.take().unwrap();
        let now = || Timestamp::new(0, 0);
        let mut pass = |number: u64, late_ns: i64| {
            let mut sample = pool.get_mut(&mut one);
            sample.clear();
            sample.set_sequence(number);
            sample.set_origin(Timestamp::new(5, 100));
            sample.set_received(Timestamp::new(5, 100 + late_ns));
            assert_eq!(recorder.process(&mut sample, &now), Ok(Verdict::Pass));
        };
        pass(7, 300);
        pass(9, -2);
        let found = [Arrival { number: 7, ns: 300 }, Arrival { number: 9, ns: -2 }];
        let mut taken = room();
        arrivals.take(&mut taken);
        assert_eq!(taken, found);
        pass(9, 1);
        arrivals.take(&mut taken);
        assert_eq!(taken, [Arrival { number: 9, ns: 1 }]);
        arrivals.take(&mut taken);
        assert!(taken.is_empty() && taken.capacity() >= ROOM);
    }
}
