//! A message ring from one process to another, over memory that both map.
//!
//! One producer, one consumer. A message is a slot of one cache line: a 32-bit head, seven words of
//! body, and a sequence number, which shows that the slot is written. So a short message costs one
//! transfer of that line. Longer payload goes to the data area behind the slots, and the slot holds
//! its position.
//!
//! ```text
//! | control page                        | slots: n x 64 bytes | data: contiguous reservations |
//! | magic, geometry | cursors | closed  | head<<32|seq, body  | aligned to 64, never wrapping |
//! ```
//!
//! **Publication.** Words 1..7 of a slot are written relaxed, then word 0 by one release store. A
//! producer that is killed anywhere leaves an intact prefix of messages, and no message half
//! written. `seq` is the low half of the slot's position plus one. The value from the previous lap
//! differs from it by the number of slots, and fresh memory (zero) differs from the whole first
//! lap. Only slots are ever written there, so nothing else can look like a new slot.
//!
//! **Reclaim.** The consumer publishes its position lazily, on lines that the producer reads only
//! when it believes the ring is full.
//!
//! **Distrust.** Both sides keep their positions and the geometry in private memory. A hostile peer
//! can make messages appear, disappear or hold wrong content, but every position is checked before
//! an address is computed from it, and a slot is copied word by word before it is interpreted.
//!
//! **Damage.** A third process may write into the ring. Then a message may never be taken, or a
//! full ring may never look free. Each end can tell ([`Producer::is_intact`],
//! [`Consumer::is_intact`]). A consumer that sees damage closes the ring, which the producer takes
//! for damage as well.

use crate::sync::{Ordering, at, populate};
use core::cell::Cell;
use core::fmt;

pub use layout::{AttachError, BODY_WORDS, DATA_ALIGN, Geometry, SLOT_BYTES, format};
use layout::{
    CONSUMED_DATA_AT, CONSUMED_SLOTS_AT, CONSUMER_CLOSED_AT, COPIED_WORDS, PRODUCER_CLOSED_AT,
    Shape, align_up, seq_of,
};

mod layout;
#[cfg(test)]
mod tests;

/// How much of the data area gets pages at a time. The kernel maps as much around a fault for
/// reading, if the pages are there (`fault_around_bytes`), so the consumer has one fault for it.
const POPULATED_BYTES: u64 = 64 << 10;

/// The ring has no free slot; the consumer has to advance first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ring is full")
    }
}

impl std::error::Error for Full {}

/// A contiguous piece of the data area, reserved by the producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSlot {
    /// Position of the first byte in the stream of data, to be sent in a slot: what
    /// [`Consumer::data`] takes.
    pub pos: u64,
    /// Where to write. Shared memory: raw copies only. Valid until the consumer releases it.
    pub ptr: *mut u8,
}

/// The writing end.
pub struct Producer {
    shape: Shape,
    /// Position of the next slot to write.
    head: u64,
    /// First position that must not be written yet: the consumer's known position plus the slots.
    limit: u64,
    /// Position of the next byte of data to reserve; a multiple of `DATA_ALIGN`.
    data_head: u64,
    /// First data position that must not be reserved yet: it is not released, or has no page.
    data_limit: u64,
    /// How far the consumer has released data, as last read.
    data_released: u64,
    geometry: Geometry,
}

// SAFETY: the pointers are to shared memory that any thread may use; the rest is plain values. Only
// one thread at a time can push, because that takes `&mut self`.
unsafe impl Send for Producer {}
// SAFETY: `&self` methods only load shared words atomically and read private fields.
unsafe impl Sync for Producer {}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("head", &self.head)
            .field("geometry", &self.geometry)
            .finish()
    }
}

impl Producer {
    /// Takes the writing end of a formatted ring. Positions start at zero: a ring has one producer
    /// in its life.
    ///
    /// # Errors
    /// [`AttachError`] when the region does not hold a ring that fits in it.
    ///
    /// # Safety
    /// `base..base + len` must stay mapped and writable as long as the producer lives, be touched
    /// by nobody except through this module, and there must be no other producer.
    pub unsafe fn attach(base: *mut u8, len: usize) -> Result<Self, AttachError> {
        // SAFETY: passed on.
        let (shape, geometry) = unsafe { Shape::attach(base, len)? };
        Ok(Producer {
            shape,
            head: 0,
            limit: u64::from(geometry.slots()),
            data_head: 0,
            data_limit: 0,
            data_released: 0,
            geometry,
        })
    }

    /// Prefetches for writing the slot `ahead` of the next one, so that the stores of a later push
    /// need not wait for its line. In a bare ring that increased the message rate by 5 % and cost
    /// latency. A producer that executes a locked instruction after each push, which waits for all
    /// stores, gains much more.
    #[inline(always)]
    pub fn prefetch(&self, ahead: u64) {
        crate::sync::prefetch_to_write(self.shape.slot_word(self.head.wrapping_add(ahead), 0));
    }

    /// Publishes a message. A consumer that sees it also sees all earlier writes to memory that it
    /// maps (a reserved [`DataSlot`] above all).
    ///
    /// # Errors
    /// [`Full`] when no slot is free; nothing was written.
    #[inline(always)]
    pub fn push(&mut self, head: u32, body: &[u64; BODY_WORDS]) -> Result<(), Full> {
        if self.head == self.limit && !self.refresh(1) {
            return Err(Full);
        }
        let position = self.head;
        let first = u64::from(head) << 32 | u64::from(seq_of(position));
        let slot = self.shape.slot(position);
        for (index, value) in body.iter().enumerate().take(COPIED_WORDS) {
            slot.word(index + 1).store(*value, Ordering::Relaxed);
        }
        slot.word(0).store(first, Ordering::Release);
        self.head = position.wrapping_add(1);
        Ok(())
    }

    /// Whether `slots` more messages fit now. False for more than the ring has slots.
    #[inline(always)]
    pub fn can_push(&mut self, slots: usize) -> bool {
        self.limit.wrapping_sub(self.head) >= slots as u64 || self.refresh(slots as u64)
    }

    /// Reads the consumer's position. Returns whether `slots` slots are free then.
    #[cold]
    #[inline(never)]
    fn refresh(&mut self, slots: u64) -> bool {
        self.limit = self.consumed().wrapping_add(self.shape.slot_mask + 1);
        self.limit.wrapping_sub(self.head) >= slots
    }

    /// Reserves `len` contiguous bytes of the data area, aligned to [`DATA_ALIGN`]. The next push
    /// makes them visible. `None` when the consumer has to release data first, or when `len` is
    /// more than [`Geometry::max_reservation`]. A reservation that would wrap skips the tail of the
    /// area; the skipped bytes count as used until the consumer releases data behind them.
    ///
    /// Make sure of the slot first ([`Producer::can_push`]), or give the bytes back
    /// ([`Producer::cancel_data`]).
    #[inline(always)]
    pub fn reserve_data(&mut self, len: usize) -> Option<DataSlot> {
        if len > self.geometry.max_reservation() {
            return None;
        }
        let size = self.shape.data_bytes;
        let need = align_up(len as u64);
        let offset = self.data_head & (size - 1);
        let skip = if offset + need > size { size - offset } else { 0 };
        let pos = self.data_head.wrapping_add(skip);
        if self.data_limit.wrapping_sub(self.data_head) < skip + need
            && !self.refresh_data(skip + need)
        {
            return None;
        }
        self.data_head = pos.wrapping_add(need);
        // SAFETY: the mask keeps the offset within the data area, which `attach` found mapped.
        let ptr = unsafe { at(self.shape.data, (pos & (size - 1)) as usize) };
        Some(DataSlot { pos, ptr })
    }

    /// Cancels the latest reservation, which no message has mentioned yet. Skipped bytes before it
    /// stay used until the consumer releases data behind them.
    pub fn cancel_data(&mut self, slot: DataSlot) {
        if self.data_head.wrapping_sub(slot.pos) <= self.shape.data_bytes {
            self.data_head = slot.pos;
        }
    }

    #[cold]
    #[inline(never)]
    fn refresh_data(&mut self, need: u64) -> bool {
        let size = self.shape.data_bytes;
        let released = self.shape.control(CONSUMED_DATA_AT).load(Ordering::Acquire);
        // `released` lies between the last known release and what was reserved; any other value is
        // a mistake (or malice) of the consumer and is ignored.
        let known = self.data_released;
        if released.wrapping_sub(known) <= self.data_head.wrapping_sub(known) {
            self.data_released = released & !(DATA_ALIGN as u64 - 1);
        }
        let end = self.data_released.wrapping_add(size);
        self.data_limit = self.populated(need).min(end);
        self.data_limit.wrapping_sub(self.data_head) >= need
    }

    /// Makes pages for the next `need` bytes and some more, in the first lap, and returns the first
    /// position that has none. Without this, each new page would cost the message that reaches it a
    /// page fault at both ends, and round trips would show a period that is the device's own.
    fn populated(&self, need: u64) -> u64 {
        let size = self.shape.data_bytes;
        if self.data_head >= size {
            return u64::MAX;
        }
        let end = (self.data_head + need).next_multiple_of(POPULATED_BYTES).min(size);
        let from = self.data_head & !(POPULATED_BYTES - 1);
        // SAFETY: `from` is within the data area, which `attach` found mapped.
        let start = unsafe { at(self.shape.data, from as usize) };
        populate(start, (end - from) as usize);
        // A reservation that does not fit before the end goes to the beginning, which has pages.
        if end == size { u64::MAX } else { end }
    }

    /// Whether `need` bytes of the data area are free; reads the consumer's position only if the
    /// last known one does not suffice.
    #[inline(always)]
    pub fn has_data_free(&mut self, need: u64) -> bool {
        self.data_limit.wrapping_sub(self.data_head) >= need || self.refresh_data(need)
    }

    /// Bytes of the data area that are free now, as far as the consumer has published. A contiguous
    /// reservation may need more than its length.
    pub fn data_free(&mut self) -> u64 {
        self.refresh_data(0);
        self.data_released.wrapping_add(self.shape.data_bytes).wrapping_sub(self.data_head)
    }

    /// Position of the next slot: how many messages were pushed so far.
    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.head
    }

    /// How many messages the consumer has consumed, as last published. The message pushed at
    /// [`Producer::position`] `p` is consumed once this exceeds `p`. A caller that sees it also
    /// sees everything that the consumer wrote before.
    #[inline(always)]
    pub fn consumed(&self) -> u64 {
        let slots = self.shape.slot_mask + 1;
        let known = self.limit.wrapping_sub(slots);
        let seen = self.shape.control(CONSUMED_SLOTS_AT).load(Ordering::Acquire);
        // A value outside the range from the known position to `head` is ignored.
        if seen.wrapping_sub(known) <= self.head.wrapping_sub(known) { seen } else { known }
    }

    /// Tells the consumer that no message will follow.
    pub fn set_closed(&self) {
        self.shape.control(PRODUCER_CLOSED_AT).store(1, Ordering::Release);
    }

    /// Whether the consumer has announced that it reads no more.
    pub fn peer_closed(&self) -> bool {
        self.shape.control(CONSUMER_CLOSED_AT).load(Ordering::Acquire) != 0
    }

    /// Whether the consumer can still take every message that it has not taken: it has not closed
    /// the ring, its positions are possible ones, and the slots hold what was pushed there. Reads
    /// every slot in use, so call it only if the consumer seems to take nothing.
    pub fn is_intact(&self) -> bool {
        let within = |at: usize, known: u64, head: u64| {
            let seen = self.shape.control(at).load(Ordering::Acquire);
            seen.wrapping_sub(known) <= head.wrapping_sub(known)
        };
        let known = self.limit.wrapping_sub(self.shape.slot_mask + 1);
        let is_whole = |position: u64| {
            let first = self.shape.slot_word(position, 0).load(Ordering::Relaxed);
            first as u32 == seq_of(position)
        };
        !self.peer_closed()
            && within(CONSUMED_SLOTS_AT, known, self.head)
            && within(CONSUMED_DATA_AT, self.data_released, self.data_head)
            && (self.consumed()..self.head).all(is_whole)
    }

    /// The ring's geometry.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
}

/// A private copy of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The 32-bit head.
    pub head: u32,
    /// The body: all words that the producer passed to `push`.
    pub body: [u64; BODY_WORDS],
}

/// The reading end.
pub struct Consumer {
    shape: Shape,
    /// Position of the next slot to read.
    position: u64,
    /// `position` at the latest publication.
    published: Cell<u64>,
    /// All data before this position is released; a multiple of `DATA_ALIGN`.
    released: u64,
    /// `released` at the latest publication.
    published_data: Cell<u64>,
    geometry: Geometry,
}

// SAFETY: as for `Producer`; it is not `Sync`, since `peek` publishes through cells.
unsafe impl Send for Consumer {}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("position", &self.position)
            .field("geometry", &self.geometry)
            .finish()
    }
}

impl Consumer {
    /// Takes the reading end of a formatted ring, from its first message on.
    ///
    /// # Errors
    /// [`AttachError`] when the region does not hold a ring that fits in it.
    ///
    /// # Safety
    /// `base..base + len` must stay mapped and writable as long as the consumer lives, be touched
    /// by nobody except through this module, and there must be no other consumer.
    pub unsafe fn attach(base: *mut u8, len: usize) -> Result<Self, AttachError> {
        // SAFETY: passed on.
        let (shape, geometry) = unsafe { Shape::attach(base, len)? };
        Ok(Consumer {
            shape,
            position: 0,
            published: Cell::new(0),
            released: 0,
            published_data: Cell::new(0),
            geometry,
        })
    }

    /// A copy of the oldest message that was not advanced over, or `None`. Checking an empty ring
    /// costs one load; the first check that finds it empty also publishes the cursors.
    #[inline(always)]
    pub fn peek(&self) -> Option<Slot> {
        let slot = self.shape.slot(self.position);
        let first = slot.word(0).load(Ordering::Acquire);
        if first as u32 != seq_of(self.position) {
            if self.published.get() != self.position {
                self.publish();
            }
            return None;
        }
        let mut body = [0; BODY_WORDS];
        for (index, value) in body.iter_mut().enumerate().take(COPIED_WORDS) {
            *value = slot.word(index + 1).load(Ordering::Relaxed);
        }
        Some(Slot { head: (first >> 32) as u32, body })
    }

    /// Prefetches the slot `ahead` of the next one. Only useful while messages stream: a slot that
    /// is not written yet would be taken from the producer that is about to write it.
    #[inline(always)]
    pub fn prefetch(&self, ahead: u64) {
        crate::sync::prefetch_to_read(self.shape.slot_word(self.position.wrapping_add(ahead), 0));
    }

    /// Whether no message waits. Publishes nothing.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        let first = self.shape.slot_word(self.position, 0).load(Ordering::Acquire);
        first as u32 != seq_of(self.position)
    }

    /// Whether the next slot holds the next message or what it held one lap ago. If not, a third
    /// process has written there, or into the positions that the producer reads.
    pub fn is_intact(&self) -> bool {
        let seq = self.shape.slot_word(self.position, 0).load(Ordering::Acquire) as u32;
        let slots = self.shape.slot_mask + 1;
        let before = self.position.checked_sub(slots).map_or(0, seq_of);
        seq == seq_of(self.position) || seq == before
    }

    /// Advances over the message that [`Consumer::peek`] returned. Call it only after a `Some`.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.position = self.position.wrapping_add(1);
        // Each sixteenth of the ring: the producer's line moves seldom, and it never waits for
        // long.
        if self.position.wrapping_sub(self.published.get()) > self.shape.slot_mask >> 4 {
            self.publish();
        }
    }

    /// Position of the next message: how many were consumed so far.
    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The address of `len` bytes of data at `pos`, as given in a message. `None` unless they are
    /// contiguous and lie in the data that can be in flight, one area's length behind what was
    /// released. The bytes are shared memory: the producer may (wrongly) write them meanwhile, so
    /// copy them, by raw copies only, before interpreting them.
    #[inline(always)]
    pub fn data(&self, pos: u64, len: usize) -> Option<*const u8> {
        let size = self.shape.data_bytes;
        let ahead = pos.wrapping_sub(self.released);
        let offset = pos & (size - 1);
        let len = len as u64;
        if ahead > size || len > size - ahead || len > size - offset {
            return None;
        }
        // SAFETY: `offset` is within the data area, which `attach` found mapped.
        Some(unsafe { at(self.shape.data, offset as usize) })
    }

    /// Releases all data before `end_pos` (rounded up to [`DATA_ALIGN`]), which is the position of
    /// a message's data plus its length. False, and no change, when that is before the data
    /// released already or further ahead than the area is long.
    #[inline(always)]
    pub fn release_data(&mut self, end_pos: u64) -> bool {
        let ahead = align_up(end_pos.wrapping_sub(self.released) & (u64::MAX >> 1));
        if ahead > self.shape.data_bytes {
            return false;
        }
        self.released = self.released.wrapping_add(ahead);
        if self.released.wrapping_sub(self.published_data.get()) > self.shape.data_bytes >> 3 {
            self.publish();
        }
        true
    }

    /// Publishes the consumer's positions, in slots and in data, at once.
    #[inline]
    pub fn publish(&self) {
        if self.published_data.get() != self.released {
            self.shape.control(CONSUMED_DATA_AT).store(self.released, Ordering::Release);
            self.published_data.set(self.released);
        }
        if self.published.get() != self.position {
            self.shape.control(CONSUMED_SLOTS_AT).store(self.position, Ordering::Release);
            self.published.set(self.position);
        }
    }

    /// Announces to the producer that the consumer reads no more, or cannot.
    pub fn set_closed(&self) {
        self.shape.control(CONSUMER_CLOSED_AT).store(1, Ordering::Release);
    }

    /// Whether the producer has announced that no message will follow those that are there.
    pub fn peer_closed(&self) -> bool {
        self.shape.control(PRODUCER_CLOSED_AT).load(Ordering::Acquire) != 0
    }

    /// The ring's geometry.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
}
