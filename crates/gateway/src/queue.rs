//! A bounded queue of samples between two threads. Neither end takes a lock or allocates; a reader
//! may sleep, and only then the writer makes a system call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use rdmalab_sample::{Flags, SampleMut, SampleRef, Timestamp, Value};

rdmalab_config::one_of! {
    /// Which sample a full queue drops.
    pub enum Overflow {
        /// The one that comes.
        Newest = "newest";
        /// The one that waits longest.
        Oldest = "oldest";
    }
}

/// A sample outside of a pool. When it arrived at the writer is kept for readers that pass it on.
#[derive(Debug)]
struct Record {
    flags: Flags,
    sequence: u64,
    origin: Timestamp,
    received: Option<Timestamp>,
    values: Vec<Value>,
}

impl Record {
    fn fill(&mut self, sample: SampleRef<'_>) {
        self.flags = sample.flags().without(Flags::RECEIVED);
        self.sequence = sample.sequence().unwrap_or_default();
        self.origin = sample.origin().unwrap_or_default();
        self.received = sample.received();
        self.values.clear();
        self.values.extend(sample.values().take(self.values.capacity()));
    }

    fn pour(&self, to: &mut SampleMut<'_>, with_arrival: bool) {
        to.clear();
        to.set_sequence(self.sequence);
        to.set_origin(self.origin);
        for value in &self.values {
            // Values beyond the room are cut.
            let _ = to.push(*value);
        }
        to.remove_flags(Flags::SEQUENCE | Flags::ORIGIN | Flags::DATA);
        to.add_flags(self.flags);
        if let Some(received) = self.received.filter(|_| with_arrival) {
            to.set_received(received);
        }
    }
}

#[derive(Debug)]
struct Shared {
    full: ArrayQueue<Box<Record>>,
    free: ArrayQueue<Box<Record>>,
    overflow: Overflow,
    is_asleep: AtomicBool,
    /// The writer is gone.
    is_closed: AtomicBool,
    /// The reader is gone.
    is_deaf: AtomicBool,
}

/// The writing end.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    reader: Arc<std::sync::OnceLock<Thread>>,
    /// So many samples that wait wake the reader.
    wakes_from: usize,
}

/// The reading end.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    reader: Arc<std::sync::OnceLock<Thread>>,
}

/// A queue for so many samples of up to so many values.
#[must_use]
pub fn queue(samples: usize, values: usize, overflow: Overflow) -> (Writer, Reader) {
    let samples = samples.max(1);
    let (full, free) = (ArrayQueue::new(samples), ArrayQueue::new(samples + 2));
    for _ in 0..samples + 2 {
        let record = Record {
            flags: Flags::NONE,
            sequence: 0,
            origin: Timestamp::default(),
            received: None,
            values: Vec::with_capacity(values),
        };
        // There is room: as many as it was made for.
        let _ = free.push(Box::new(record));
    }
    let shared = Arc::new(Shared {
        full,
        free,
        overflow,
        is_asleep: AtomicBool::new(false),
        is_closed: AtomicBool::new(false),
        is_deaf: AtomicBool::new(false),
    });
    let reader = Arc::default();
    let writer = Writer { shared: shared.clone(), reader: Arc::clone(&reader), wakes_from: 1 };
    (writer, Reader { shared, reader })
}

impl Writer {
    /// Wakes the reader only when so many samples wait, which saves a system call for each sample.
    /// The reader looks by itself when its sleep is over.
    #[must_use]
    pub fn waking_from(mut self, samples: usize) -> Self {
        self.wakes_from = samples;
        self
    }

    /// Adds a sample. Returns how many samples were dropped: this one or the oldest, if the queue
    /// was full.
    pub fn push(&mut self, sample: SampleRef<'_>) -> u64 {
        let shared = &*self.shared;
        if shared.overflow == Overflow::Newest && shared.full.is_full() {
            return 1;
        }
        let Some(mut record) = shared.free.pop() else { return 1 };
        record.fill(sample);
        let evicted = shared.full.force_push(record);
        let dropped = u64::from(evicted.is_some());
        if let Some(evicted) = evicted {
            let _ = shared.free.push(evicted);
        }
        if shared.full.len() >= self.wakes_from {
            self.wake();
        }
        dropped
    }

    fn wake(&self) {
        if self.shared.is_asleep.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.reader.get()
        {
            thread.unpark();
        }
    }

    /// Samples that wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.shared.full.len() as u64
    }

    /// Whether the reader is gone.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        self.shared.is_deaf.load(Ordering::Acquire)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.wake();
    }
}

impl Reader {
    /// Takes the oldest sample into `to`; false when none waits. `with_arrival` keeps the time at
    /// which it arrived at the writer's thread, for those that only pass it on.
    pub fn pop(&mut self, to: &mut SampleMut<'_>, with_arrival: bool) -> bool {
        let Some(record) = self.shared.full.pop() else { return false };
        record.pour(to, with_arrival);
        let _ = self.shared.free.push(record);
        true
    }

    /// Whether the writer is gone and nothing waits.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.is_closed.load(Ordering::SeqCst) && self.shared.full.is_empty()
    }

    /// Sleeps until a sample waits or the writer is gone, at most `limit`; false if that was over.
    /// One thread only.
    pub fn sleep(&mut self, limit: Duration) -> bool {
        let begin = Instant::now();
        self.reader.get_or_init(std::thread::current);
        self.shared.is_asleep.store(true, Ordering::SeqCst);
        if self.shared.full.is_empty() && !self.shared.is_closed.load(Ordering::SeqCst) {
            std::thread::park_timeout(limit);
        }
        self.shared.is_asleep.store(false, Ordering::SeqCst);
        begin.elapsed() < limit
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.is_deaf.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_sample::Pool;

    use super::*;

    /// Writes samples with these numbers, then reads all; the numbers read and those dropped.
    fn through(samples: usize, overflow: Overflow, numbers: u64) -> (Vec<u64>, u64) {
        let (mut writer, mut reader) = queue(samples, 2, overflow);
        let mut pool = Pool::new(1, 2);
        let mut one = pool.take().unwrap();
        let mut dropped = 0;
        for number in 0..numbers {
            let mut sample = pool.get_mut(&mut one);
            sample.clear();
            sample.set_sequence(number);
            assert!(sample.push(Value::from_integer(number as i64)));
            dropped += writer.push(pool.get(&one));
        }
        let mut read = Vec::new();
        while reader.pop(&mut pool.get_mut(&mut one), false) {
            let sample = pool.get(&one);
            assert_eq!(sample.value(0).map(Value::integer), sample.sequence().map(|s| s as i64));
            assert_eq!((sample.len(), sample.origin(), sample.received()), (1, None, None));
            read.push(sample.sequence().unwrap());
        }
        assert!(!reader.is_over());
        drop(writer);
        assert!(reader.is_over());
        (read, dropped)
    }

    #[test]
    fn a_full_queue_drops_what_it_is_told_to() {
        assert_eq!(through(4, Overflow::Newest, 4), (vec![0, 1, 2, 3], 0));
        assert_eq!(through(4, Overflow::Newest, 6), (vec![0, 1, 2, 3], 2));
        assert_eq!(through(4, Overflow::Oldest, 6), (vec![2, 3, 4, 5], 2));
    }

    #[test]
    fn a_reader_sleeps_until_enough_samples_wait() {
        let (writer, reader) = queue(8, 1, Overflow::Newest);
        let mut writer = writer.waking_from(3);
        let mut pool = Pool::new(1, 1);
        let one = pool.take().unwrap();
        reader.shared.is_asleep.store(true, Ordering::SeqCst);
        let mut push = || {
            writer.push(pool.get(&one));
            reader.shared.is_asleep.load(Ordering::SeqCst)
        };
        assert_eq!([push(), push(), push()], [true, true, false]);
        reader.shared.is_asleep.store(true, Ordering::SeqCst);
        drop(writer);
        assert!(!reader.shared.is_asleep.load(Ordering::SeqCst), "the writer is gone");
    }

    #[test]
    fn a_sleeping_reader_gets_everything() {
        let (mut writer, mut reader) = queue(8, 1, Overflow::Newest);
        let thread = std::thread::spawn(move || {
            let mut pool = Pool::new(1, 1);
            let (mut one, mut count) = (pool.take().unwrap(), 0);
            while !reader.is_over() {
                while reader.pop(&mut pool.get_mut(&mut one), false) {
                    count += 1;
                }
                let is_woken = reader.is_over() || reader.sleep(Duration::from_secs(60));
                assert!(is_woken, "after {count} samples");
            }
            count
        });
        let mut pool = Pool::new(1, 1);
        let one = pool.take().unwrap();
        for _ in 0..1000 {
            while writer.push(pool.get(&one)) > 0 {
                std::thread::yield_now();
            }
        }
        drop(writer);
        assert_eq!(thread.join().unwrap(), 1000);
    }
}
