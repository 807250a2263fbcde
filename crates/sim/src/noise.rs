//! Noise: times that differ from message to message. Each part draws from a stream of its own,
//! which has a name and a number; so a part that is switched on or off does not change what others
//! draw.

use rdmalab_random::{Random, scrambled};

use crate::parameters::Parameters;
use crate::time::Ps;

/// Random numbers of one part.
#[derive(Debug)]
pub(crate) struct Stream(Random);

impl Stream {
    /// The stream of a part, of the node or task with this number.
    pub(crate) fn new(seed: u64, part: &str, number: usize) -> Stream {
        let hash = part.bytes().fold(seed, |hash, byte| scrambled(hash ^ u64::from(byte)));
        Stream(Random::new(scrambled(hash ^ number as u64)))
    }

    /// A time that is distributed exponentially.
    pub(crate) fn exponential(&mut self, mean: Ps) -> Ps {
        Ps((self.0.exponential() * mean.0 as f64).round() as u64)
    }
}

/// The interrupts of a processor.
#[derive(Debug)]
pub(crate) struct Interrupts {
    stream: Stream,
    /// When the next one begins.
    next: Ps,
}

impl Interrupts {
    /// Those of the processor of a task; `None` if the model has none.
    pub(crate) fn of_task(parameters: &Parameters, seed: u64, task: usize) -> Option<Interrupts> {
        let gap = mean_gap(parameters)?;
        let mut stream = Stream::new(seed, "interrupts", task);
        let next = stream.exponential(gap);
        Some(Interrupts { stream, next })
    }

    /// The time of work of this length that begins now, with the interrupts during it. One that
    /// began while the processor had nothing to do, and is not over, comes first.
    pub(crate) fn lengthen(&mut self, parameters: &Parameters, now: Ps, work: Ps) -> Ps {
        let Some(gap) = mean_gap(parameters) else { return work };
        let length = parameters.interrupt_ns;
        let mut end = now + work;
        while self.next < end {
            let over = self.next + length;
            if self.next >= now {
                end += length;
            } else if over > now {
                end += over - now;
            }
            self.next = over + self.stream.exponential(gap);
        }
        end - now
    }
}

/// The mean time from the end of an interrupt to the next one.
fn mean_gap(parameters: &Parameters) -> Option<Ps> {
    let per_s = parameters.interrupts_per_s;
    (per_s > 0).then(|| Ps::from_whole_ns(1_000_000_000 / u64::from(per_s)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_their_mean_and_are_independent() {
        let mean = Ps::from_whole_ns(300);
        let sum = |part, number| {
            let mut stream = Stream::new(1, part, number);
            (0..100_000).map(|_| stream.exponential(mean).0).sum::<u64>()
        };
        let of_jitter = sum("jitter", 0);
        assert!((of_jitter as f64 / 100_000.0 / mean.0 as f64 - 1.0).abs() < 0.02);
        assert_eq!(sum("jitter", 0), of_jitter);
        assert!(sum("jitter", 1) != of_jitter && sum("interrupts", 0) != of_jitter);
    }

    #[test]
    fn work_takes_longer_by_the_interrupts_in_it_and_not_by_those_before() {
        let mut model = Parameters::least();
        model.set("interrupts_per_s", 1_000_000.0).unwrap();
        model.set("interrupt_ns", 200.0).unwrap();
        let us = |count: u64| Ps::from_whole_ns(count * 1000);
        let mut of = Interrupts::of_task(&model, 7, 0).unwrap();
        // A part of all time is the interrupts': 0.2 us each 1.2 us.
        let worked = of.lengthen(&model, Ps::ZERO, us(100_000));
        assert!((worked.ns() / 100_000e3 - 1.2).abs() < 0.01, "{worked}");
        // A processor that idles has most of its interrupts meanwhile.
        let (mut now, mut stolen) = (worked, Ps::ZERO);
        for _ in 0..10_000 {
            now += us(100);
            let took = of.lengthen(&model, now, Ps::from_whole_ns(10));
            stolen += took - Ps::from_whole_ns(10);
            now += took;
        }
        // Each finds one that is under way, with a sixth's chance, half of it to come, or one of
        // its own.
        let each_ns = stolen.ns() / 10_000.0;
        assert!((each_ns - 200.0 / 12.0).abs() < 4.0, "{each_ns}");
        assert!(Interrupts::of_task(&Parameters::least(), 7, 0).is_none());
    }
}
