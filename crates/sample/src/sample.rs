use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::flags::Flags;
use crate::timestamp::Timestamp;
use crate::value::Value;

/// Bytes of a record before its values: the sequence number and the time of origin.
pub const META_BYTES: usize = 8 * META_WORDS;

/// Words of a record before its values.
pub(crate) const META_WORDS: usize = 3;

/// Bytes of a record with `values` values: `[u64 sequence][i64 seconds][i64 nanoseconds][values]`,
/// in the byte order of this machine. It is what an `infiniband` node sends in one piece.
#[must_use]
pub const fn record_bytes(values: usize) -> usize {
    META_BYTES + 8 * values
}

/// What belongs to a sample but not to its record.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Side {
    pub(crate) length: u32,
    pub(crate) flags: Flags,
    pub(crate) received: Timestamp,
}

/// A sample to read.
#[derive(Clone, Copy, Debug)]
pub struct SampleRef<'a> {
    record: &'a [AtomicU64],
    side: &'a Side,
}

impl<'a> SampleRef<'a> {
    pub(crate) fn new(record: &'a [AtomicU64], side: &'a Side) -> Self {
        Self { record, side }
    }

    /// Which parts are known.
    #[inline]
    #[must_use]
    pub fn flags(&self) -> Flags {
        self.side.flags
    }

    /// The sequence number, if known.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        self.flags().has(Flags::SEQUENCE).then(|| self.record[0].load(Relaxed))
    }

    /// When the sample was made, if known.
    #[inline]
    #[must_use]
    pub fn origin(&self) -> Option<Timestamp> {
        let word = |i: usize| self.record[i].load(Relaxed).cast_signed();
        self.flags().has(Flags::ORIGIN).then(|| Timestamp::new(word(1), word(2)))
    }

    /// When the sample arrived here, if known.
    #[inline]
    #[must_use]
    pub fn received(&self) -> Option<Timestamp> {
        self.flags().has(Flags::RECEIVED).then_some(self.side.received)
    }

    /// Nanoseconds from the origin to the arrival. An unknown origin is the start of 1970; an
    /// unknown arrival gives `None`.
    #[must_use]
    pub fn offset_ns(&self) -> Option<i128> {
        Some(self.received()?.ns_since(self.origin().unwrap_or_default()))
    }

    /// How many values the sample has.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.side.length as usize
    }

    /// Whether the sample has no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Value number `i`, or `None` from the length on.
    #[inline]
    #[must_use]
    pub fn value(&self, i: usize) -> Option<Value> {
        (i < self.len()).then(|| Value::from_bits(self.record[META_WORDS + i].load(Relaxed)))
    }

    /// The values in order.
    #[inline]
    pub fn values(&self) -> impl ExactSizeIterator<Item = Value> + use<'a> {
        let words = &self.record[META_WORDS..META_WORDS + self.len()];
        words.iter().map(|word| Value::from_bits(word.load(Relaxed)))
    }
}

/// A sample to change.
#[derive(Debug)]
pub struct SampleMut<'a> {
    record: &'a [AtomicU64],
    side: &'a mut Side,
}

impl<'a> SampleMut<'a> {
    pub(crate) fn new(record: &'a [AtomicU64], side: &'a mut Side) -> Self {
        Self { record, side }
    }

    /// The same sample to read.
    #[inline]
    #[must_use]
    pub fn as_ref(&self) -> SampleRef<'_> {
        SampleRef { record: self.record, side: self.side }
    }

    /// The same sample for a shorter time.
    #[must_use]
    pub fn reborrow(&mut self) -> SampleMut<'_> {
        SampleMut { record: self.record, side: self.side }
    }

    /// How many values the sample can hold.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.record.len() - META_WORDS
    }

    /// Takes everything out: no flag, no value.
    pub fn clear(&mut self) {
        *self.side = Side::default();
    }

    /// Sets `flags` besides those that are set. A flag says that a part is known; to set one by
    /// hand is right where the part was written into the record by others, such as an adapter.
    #[inline]
    pub fn add_flags(&mut self, flags: Flags) {
        self.side.flags |= flags;
    }

    /// Takes `flags` away: the parts are no longer known.
    #[inline]
    pub fn remove_flags(&mut self, flags: Flags) {
        self.side.flags = self.side.flags.without(flags);
    }

    /// Sets the sequence number.
    #[inline]
    pub fn set_sequence(&mut self, sequence: u64) {
        self.record[0].store(sequence, Relaxed);
        self.add_flags(Flags::SEQUENCE);
    }

    /// Sets when the sample was made.
    #[inline]
    pub fn set_origin(&mut self, origin: Timestamp) {
        self.record[1].store(origin.seconds.cast_unsigned(), Relaxed);
        self.record[2].store(origin.nanoseconds.cast_unsigned(), Relaxed);
        self.add_flags(Flags::ORIGIN);
    }

    /// Sets when the sample arrived here.
    #[inline]
    pub fn set_received(&mut self, received: Timestamp) {
        self.side.received = received;
        self.add_flags(Flags::RECEIVED);
    }

    /// Appends a value, and tells whether there was room.
    #[inline]
    #[must_use]
    pub fn push(&mut self, value: Value) -> bool {
        let length = self.side.length as usize;
        let Some(word) = self.record.get(META_WORDS + length) else { return false };
        word.store(value.bits(), Relaxed);
        self.side.length += 1;
        self.add_flags(Flags::DATA);
        true
    }

    /// Changes value number `i`, which must be below the length.
    ///
    /// # Panics
    /// Otherwise.
    #[inline]
    pub fn set_value(&mut self, i: usize, value: Value) {
        assert!(i < self.side.length as usize, "value {i} of {}", self.side.length);
        self.record[META_WORDS + i].store(value.bits(), Relaxed);
    }

    /// Makes the sample have `length` values. Those that it did not have before are whatever stands
    /// in the record: what an adapter wrote there, or what an earlier sample left.
    ///
    /// # Panics
    /// If `length` is more than the capacity.
    #[inline]
    pub fn set_len(&mut self, length: usize) {
        assert!(length <= self.capacity(), "{length} values, room for {}", self.capacity());
        self.side.length = length as u32;
    }

    /// Makes this sample equal to `other`. Values for which there is no room are cut.
    pub fn copy_from(&mut self, other: SampleRef<'_>) {
        let length = other.len().min(self.capacity());
        *self.side = Side { length: length as u32, ..*other.side };
        for (to, from) in self.record.iter().zip(&other.record[..META_WORDS + length]) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }
}
