//! Marks messages with their thread, if threads share queue pairs. A message uses the next receive,
//! whichever thread posted it, so the `wr_id` does not name the thread of the message. Therefore
//! the upper bits of the immediate data name it or, without immediate data, a byte of the payload.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use rdmalab_verbs::{Buffer, Mr};

use crate::common::completions::{OwnerOf, thread_of};
use crate::common::layout::Layout;
use crate::common::params::{Common, Op};

/// Bits of immediate data that are the message's number; above them stands the thread.
const NUMBER_BITS: u32 = 26;
/// Most messages of a thread whose numbers are immediate data, the ends of parts included.
pub(crate) const NUMBERS: u64 = (1 << NUMBER_BITS) - 2;
/// The payload byte that names the thread, in messages without immediate data. The six bytes before
/// it hold the message number, if there is one; the mark of a round trip is the last of eight
/// bytes.
pub(crate) const TAG_BYTE: usize = 6;

/// The memory of all threads of an end, once it is there.
pub(crate) type Memories = Arc<OnceLock<Vec<Mr>>>;

/// The tag of a thread in its messages.
#[derive(Clone, Default)]
pub(crate) struct ThreadTag {
    /// The number of threads that share the queue pairs, and the index of this one.
    threads: usize,
    thread: usize,
    memories: Memories,
}

impl ThreadTag {
    pub fn of(common: &Common) -> Self {
        Self { threads: common.sharers() as usize, ..Self::default() }
    }

    pub fn of_thread(&self, thread: usize) -> Self {
        Self { thread, ..self.clone() }
    }

    fn is_shared(&self) -> bool {
        self.threads > 1
    }

    /// Tells all threads of the memory of each.
    pub fn set_memories(&self, mrs: Vec<Mr>) {
        // Only the first call has an effect.
        let _ = self.memories.set(mrs);
    }

    /// The memory of each thread whose receives may hold this one's messages.
    pub fn memories<'a>(&'a self, own: &'a Mr) -> &'a [Mr] {
        self.memories.get().map_or(std::slice::from_ref(own), Vec::as_slice)
    }

    /// The memory in which a receive of that number lies.
    pub fn memory<'a>(&'a self, own: &'a Mr, wr_id: u64) -> &'a Buffer {
        self.memories(own).get(thread_of(wr_id)).unwrap_or(own).buffer()
    }

    /// A number as immediate data of this thread.
    #[inline]
    pub fn imm(&self, number: u32) -> u32 {
        if self.is_shared() {
            (self.thread as u32) << NUMBER_BITS | number & self.mask()
        } else {
            number
        }
    }

    /// The bits of the immediate data that hold the number.
    #[inline]
    pub fn mask(&self) -> u32 {
        if self.is_shared() { (1 << NUMBER_BITS) - 1 } else { u32::MAX }
    }

    /// The number in immediate data. The two largest numbers stand for the two largest of 32 bits.
    #[inline]
    pub fn number(&self, imm: u32) -> u32 {
        let (low, mask) = (imm & self.mask(), self.mask());
        if low >= mask - 1 { low | !mask } else { low }
    }

    /// The bits with the thread in the payload word that also holds the message number.
    pub fn word(&self) -> u64 {
        (self.thread as u64) << (8 * TAG_BYTE)
    }

    /// How the completion of a receive says which thread its message is for.
    pub fn whose(&self, layout: Layout) -> OwnerOf {
        let memories = self.memories.clone();
        Box::new(move |wc| {
            if !wc.is_ok() {
                return None;
            }
            // Credits have immediate data even where messages have none.
            if let Some(imm) = wc.imm() {
                return Some((imm >> NUMBER_BITS) as usize);
            }
            let memory = memories.get()?.get(thread_of(wc.wr_id()))?.buffer();
            let at = layout.in_at(place_of(wc.wr_id())) + TAG_BYTE;
            Some(memory.byte(at).load(Ordering::Acquire).into())
        })
    }
}

/// The first word of a message with a number: never 0, which stands for nothing.
pub(crate) const fn word_of_number(number: u64) -> u64 {
    number + 1
}

/// The word of the number, without the thread.
pub(crate) const fn number_of_word(word: u64) -> u64 {
    word & ((1 << (8 * TAG_BYTE)) - 1)
}

/// The place of a receive.
pub(crate) const fn place_of(wr_id: u64) -> usize {
    (wr_id & u32::MAX as u64) as usize
}

impl Common {
    /// Whether messages name their thread in the payload.
    pub(crate) fn tags_payload(&self) -> bool {
        self.sharers() > 1 && self.op == Op::Send
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediate_data_says_who_and_which() {
        let alone = ThreadTag { threads: 1, ..ThreadTag::default() };
        let last = ThreadTag { threads: 64, thread: 63, ..ThreadTag::default() };
        for number in [0, 1, 77, NUMBERS as u32 - 1, u32::MAX - 1, u32::MAX] {
            for tag in [&alone, &last] {
                assert_eq!(tag.number(tag.imm(number)), number);
            }
            assert_eq!(last.imm(number) >> NUMBER_BITS, 63);
            assert_eq!(alone.imm(number), number);
        }
        let word = 1234 | last.word();
        assert_eq!((number_of_word(word), word.to_le_bytes()[TAG_BYTE]), (1234, 63));
    }
}
