use std::fmt;
use std::sync::atomic::AtomicU64;

use crate::sample::{META_WORDS, SampleMut, SampleRef, Side, record_bytes};

/// Memory in which a pool keeps the records of its samples. A node may bring its own, for example
/// memory that is registered with an adapter.
///
/// The words are atomic because such memory can change under us. They are read and written with
/// relaxed ordering, which costs what plain words cost; who shares the memory orders the accesses,
/// for example by a completion or a queue.
pub trait Storage {
    /// All words; always the same ones.
    fn words(&self) -> &[AtomicU64];
}

impl Storage for Box<[AtomicU64]> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// The right to use one sample of a [`Pool`]. It can neither be copied nor made by hand, so no
/// sample is used twice. A handle that is dropped takes its sample out of the pool for good: give
/// it back with [`Pool::give`].
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a dropped handle is a sample lost to the pool"]
pub struct Handle(u32);

impl Handle {
    /// Which of the pool's samples this is, from 0. A node may use it to find the handle again, for
    /// example as the number of a work request.
    #[inline]
    #[must_use]
    pub const fn index(&self) -> usize {
        self.0 as usize
    }
}

/// A fixed number of samples, each with room for the same number of values. Nothing is allocated
/// after construction. One thread owns a pool, so it needs no lock.
pub struct Pool {
    storage: Box<dyn Storage>,
    sides: Box<[Side]>,
    /// Samples that nobody has a handle of; the one given last is taken first, as it is in the
    /// cache.
    free: Vec<u32>,
    values: usize,
}

/// Why there is no pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolError {
    /// The storage is too small.
    Small {
        /// Bytes that it has.
        bytes: usize,
        /// Bytes that the samples take.
        needed: usize,
    },
    /// More samples or values than a pool can count.
    Large,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Small { bytes, needed } => {
                write!(f, "memory for samples: {bytes} bytes, {needed} are needed")
            }
            Self::Large => f.write_str("a pool has at most 2^32-1 samples of 2^32-1 values"),
        }
    }
}

impl std::error::Error for PoolError {}

impl Pool {
    /// A pool on the heap of `samples` samples with room for `values` values each.
    ///
    /// # Panics
    /// If there are more than a pool can count, or than memory can hold.
    #[must_use]
    pub fn new(samples: usize, values: usize) -> Self {
        let words = Self::bytes(samples, values).expect("samples that fit into memory") / 8;
        let storage: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self::in_storage(Box::new(storage), samples, values).expect("storage of this size")
    }

    /// A pool in the memory `storage`: record number `i` starts at byte `i * record_bytes(values)`.
    ///
    /// # Errors
    /// If the storage has less than [`Pool::bytes`], or there are more than a pool can count.
    pub fn in_storage(
        storage: Box<dyn Storage>,
        samples: usize,
        values: usize,
    ) -> Result<Self, PoolError> {
        let needed = Self::bytes(samples, values)?;
        let bytes = 8 * storage.words().len();
        if bytes < needed {
            return Err(PoolError::Small { bytes, needed });
        }
        let free = (0..samples as u32).rev().collect();
        let sides = vec![Side::default(); samples].into_boxed_slice();
        Ok(Self { storage, sides, free, values })
    }

    /// Bytes of storage that `samples` samples with room for `values` values take.
    ///
    /// # Errors
    /// If there are more than a pool can count.
    pub fn bytes(samples: usize, values: usize) -> Result<usize, PoolError> {
        let countable = u32::try_from(samples).is_ok() && u32::try_from(values).is_ok();
        let bytes = samples.checked_mul(record_bytes(values));
        bytes.filter(|bytes| countable && *bytes <= isize::MAX as usize).ok_or(PoolError::Large)
    }

    /// How many samples there are, free or not.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.sides.len()
    }

    /// How many values each sample has room for.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values
    }

    /// How many samples can be taken now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes an empty sample, or `None` if all are in use.
    #[inline]
    pub fn take(&mut self) -> Option<Handle> {
        let index = self.free.pop()?;
        self.sides[index as usize] = Side::default();
        Some(Handle(index))
    }

    /// Gives a sample back.
    ///
    /// # Panics
    /// If it is the sample of another pool, as far as that can be seen.
    #[inline]
    pub fn give(&mut self, sample: Handle) {
        assert!(sample.index() < self.samples(), "a sample of another pool");
        assert!(self.free.len() < self.samples(), "a sample of another pool");
        self.free.push(sample.0);
    }

    /// The sample to read.
    #[inline]
    #[must_use]
    pub fn get(&self, sample: &Handle) -> SampleRef<'_> {
        SampleRef::new(self.record(sample), &self.sides[sample.index()])
    }

    /// The sample to change.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, sample: &mut Handle) -> SampleMut<'_> {
        let words = words_of(sample, self.values);
        SampleMut::new(&self.storage.words()[words], &mut self.sides[sample.index()])
    }

    /// Makes `to` equal to `from`.
    pub fn copy(&mut self, from: &Handle, to: &mut Handle) {
        let side = self.sides[from.index()];
        let from = SampleRef::new(&self.storage.words()[words_of(from, self.values)], &side);
        let to_side = &mut self.sides[to.index()];
        SampleMut::new(&self.storage.words()[words_of(to, self.values)], to_side).copy_from(from);
    }

    /// Where the record of a sample starts in the storage, in bytes.
    #[inline]
    #[must_use]
    pub fn offset_bytes(&self, sample: &Handle) -> usize {
        sample.index() * record_bytes(self.values)
    }

    fn record(&self, sample: &Handle) -> &[AtomicU64] {
        &self.storage.words()[words_of(sample, self.values)]
    }
}

/// The words of a sample's record.
#[inline]
fn words_of(sample: &Handle, values: usize) -> std::ops::Range<usize> {
    let words = META_WORDS + values;
    let start = sample.index() * words;
    start..start + words
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, free) = (self.samples(), self.free());
        write!(f, "Pool {{ samples: {samples}, free: {free}, values: {} }}", self.values)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::{Flags, Timestamp, Value};

    #[test]
    fn samples_are_taken_until_none_is_left() {
        let mut pool = Pool::new(2, 1);
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        assert_eq!((pool.take(), pool.free()), (None, 0));
        assert_ne!(first, second);
        pool.give(first);
        assert_eq!(pool.take().unwrap().index(), 0);
        pool.give(second);
        assert_eq!(pool.free(), 1);
    }

    #[test]
    fn a_sample_that_is_taken_again_is_empty() {
        let mut pool = Pool::new(1, 2);
        let mut handle = pool.take().unwrap();
        let mut sample = pool.get_mut(&mut handle);
        sample.set_sequence(7);
        sample.set_origin(Timestamp::new(1, 2));
        sample.set_received(Timestamp::new(1, 5));
        assert!(sample.push(Value::from_float(1.5)));
        assert!(sample.push(Value::from_float(2.5)) && !sample.push(Value::default()));
        let sample = pool.get(&handle);
        assert_eq!((sample.sequence(), sample.offset_ns()), (Some(7), Some(3)));
        assert_eq!(sample.values().map(Value::float).collect::<Vec<_>>(), [1.5, 2.5]);
        assert_eq!((sample.value(1).map(Value::float), sample.value(2)), (Some(2.5), None));
        pool.give(handle);
        let handle = pool.take().unwrap();
        let sample = pool.get(&handle);
        assert_eq!((sample.flags(), sample.len(), sample.sequence()), (Flags::NONE, 0, None));
    }

    struct Registered(Arc<[AtomicU64]>);

    impl Storage for Registered {
        fn words(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    #[test]
    fn the_record_is_laid_out_as_published() {
        let memory: Arc<[AtomicU64]> = (0..10).map(|_| AtomicU64::new(0)).collect();
        let mut pool = Pool::in_storage(Box::new(Registered(memory.clone())), 2, 2).unwrap();
        let _first = pool.take().unwrap();
        let mut second = pool.take().unwrap();
        assert_eq!((pool.offset_bytes(&second), record_bytes(8)), (40, 88));
        let mut sample = pool.get_mut(&mut second);
        sample.set_sequence(1);
        sample.set_origin(Timestamp::new(2, 3));
        assert!(sample.push(Value::from_integer(4)));
        let words: Vec<u64> = memory[5..9].iter().map(|w| w.load(Relaxed)).collect();
        assert_eq!(words, [1, 2, 3, 4]);
        // What an adapter writes is a sample once the length and the flags are set.
        memory[9].store(5, Relaxed);
        pool.get_mut(&mut second).set_len(2);
        assert_eq!(pool.get(&second).value(1), Some(Value::from_integer(5)));
    }

    #[test]
    fn a_copy_is_equal_and_independent() {
        let mut pool = Pool::new(2, 1);
        let (mut a, mut b) = (pool.take().unwrap(), pool.take().unwrap());
        pool.get_mut(&mut a).set_sequence(9);
        assert!(pool.get_mut(&mut a).push(Value::from_integer(1)));
        pool.copy(&a, &mut b);
        pool.get_mut(&mut a).set_value(0, Value::from_integer(2));
        let copy = pool.get(&b);
        assert_eq!((copy.sequence(), copy.value(0)), (Some(9), Some(Value::from_integer(1))));
    }

    #[test]
    fn sizes_are_checked() {
        let storage: Box<[AtomicU64]> = (0..9).map(|_| AtomicU64::new(0)).collect();
        let error = Pool::in_storage(Box::new(storage), 2, 2).unwrap_err();
        assert_eq!(error, PoolError::Small { bytes: 72, needed: 80 });
        assert_eq!(Pool::bytes(usize::MAX, 1), Err(PoolError::Large));
        assert_eq!(Pool::bytes(u32::MAX as usize, u32::MAX as usize), Err(PoolError::Large));
    }

    #[test]
    #[should_panic(expected = "another pool")]
    fn a_sample_of_a_larger_pool_is_refused() {
        let mut large = Pool::new(2, 1);
        let (_, second) = (large.take(), large.take());
        Pool::new(1, 1).give(second.unwrap());
    }
}
