//! A hook that keeps the latency of each sample that passes, for another thread to take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// What arrived and was not taken yet. The path fills a list of its own, and hands it over when
/// the other thread asks, or when the list is full.
#[derive(Clone, Debug)]
pub struct Arrivals(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    handed: Mutex<Vec<Arrival>>,
    is_asked: AtomicBool,
}

impl Arrivals {
    /// None so far.
    pub fn new() -> Self {
        Self(Arc::new(Shared { handed: Mutex::new(room()), is_asked: AtomicBool::new(false) }))
    }

    /// Takes what was handed over since the call before, which had asked for it, into a list whose
    /// room is filled next. When the path has ended, that is all that arrived.
    pub fn take(&self, taken: &mut Vec<Arrival>) {
        taken.clear();
        std::mem::swap(&mut *self.handed(), taken);
        self.0.is_asked.store(true, Ordering::Relaxed);
    }

    /// The hook.
    pub fn recorder(&self) -> Box<dyn Hook> {
        Box::new(Recorder { own: room(), arrivals: self.clone() })
    }

    fn handed(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.0.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An empty list with its pages present, so that the path's thread does not wait for them.
pub fn room() -> Vec<Arrival> {
    let mut room = vec![Arrival { number: 1, ns: 1 }; ROOM];
    std::hint::black_box(&mut room).clear();
    room
}

struct Recorder {
    own: Vec<Arrival>,
    arrivals: Arrivals,
}

impl Recorder {
    fn hand(&mut self) {
        self.arrivals.0.is_asked.store(false, Ordering::Relaxed);
        let mut handed = self.arrivals.handed();
        if handed.is_empty() {
            std::mem::swap(&mut *handed, &mut self.own);
        } else {
            handed.append(&mut self.own);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.hand();
    }
}

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
            self.own.push(Arrival { number, ns });
            if self.own.len() >= ROOM || self.arrivals.0.is_asked.load(Ordering::Relaxed) {
                self.hand();
            }
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
        let mut taken = room();
        arrivals.take(&mut taken);
        assert!(taken.is_empty());
        pass(7, 300);
        arrivals.take(&mut taken);
        assert_eq!(taken, [Arrival { number: 7, ns: 300 }], "it was asked for");
        pass(9, -2);
        pass(9, 1);
        arrivals.take(&mut taken);
        assert_eq!(taken, [Arrival { number: 9, ns: -2 }], "nobody had asked for the second");
        arrivals.take(&mut taken);
        assert!(taken.is_empty() && taken.capacity() >= ROOM);
        drop(recorder);
        arrivals.take(&mut taken);
        assert_eq!(taken, [Arrival { number: 9, ns: 1 }]);
    }

    #[test]
    fn a_full_list_is_handed_over() {
        let arrivals = Arrivals::new();
        let mut recorder = Recorder { own: room(), arrivals: arrivals.clone() };
        recorder.own.resize(ROOM - 1, Arrival { number: 3, ns: 3 });
        let mut taken = Vec::new();
        let mut pool = Pool::new(1, 1);
        let mut one = pool.take().unwrap();
        for sequence in [1, 2] {
            let mut sample = pool.get_mut(&mut one);
            sample.set_sequence(sequence);
            sample.set_origin(Timestamp::new(5, 100));
            sample.set_received(Timestamp::new(5, 101));
            let passed = recorder.process(&mut sample, &|| Timestamp::new(0, 0));
            assert_eq!(passed, Ok(Verdict::Pass));
        }
        arrivals.take(&mut taken);
        assert_eq!((taken.len(), taken.last().map(|last| last.number)), (ROOM, Some(1)));
    }
}
