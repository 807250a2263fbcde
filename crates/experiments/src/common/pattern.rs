//! `--verify`: the payload of each message is a pattern of its number and of the position in it,
//! which the receiver checks.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rdmalab_measure::Outcome;
use rdmalab_random::scrambled;
use rdmalab_verbs::Buffer;

use crate::common::params::Common;
use crate::common::rules::{Fault, must};

/// The least bytes of a message whose payload is checked: what else it carries leaves room for a
/// pattern.
const LEAST_BYTES: u64 = 16;
/// Bytes of a word of the pattern.
const WORD: usize = 8;

/// The word of message `number` that begins at a byte of it.
const fn word(number: u64, at: usize) -> u64 {
    scrambled((number << 32 | at as u64).wrapping_add(1))
}

/// Calls `with` for each byte of the pattern that does not fill an aligned word, and `with_word`
/// for each word: with the offset in memory, and the value. It ends where either returns false, and
/// returns whether none did.
#[inline]
fn each(
    number: u64,
    start: usize,
    bytes: Range<usize>,
    mut with_word: impl FnMut(usize, u64) -> bool,
    mut with: impl FnMut(usize, u8) -> bool,
) -> bool {
    let mut at = bytes.start;
    while at < bytes.end {
        let (first, value) = (at - at % WORD, word(number, at - at % WORD));
        let is_whole = at == first && at + WORD <= bytes.end && (start + at).is_multiple_of(WORD);
        if is_whole {
            if !with_word(start + at, value) {
                return false;
            }
            at += WORD;
        } else {
            if !with(start + at, value.to_ne_bytes()[at - first]) {
                return false;
            }
            at += 1;
        }
    }
    true
}

/// Writes the pattern of message `number` to these bytes of the place that begins at `start`.
pub(crate) fn fill(memory: &Buffer, number: u64, start: usize, bytes: Range<usize>) {
    let with_word = |at, value| {
        memory.word(at).store(value, Ordering::Relaxed);
        true
    };
    each(number, start, bytes, with_word, |at, value| {
        memory.byte(at).store(value, Ordering::Relaxed);
        true
    });
}

/// Whether these bytes of the place that begins at `start` hold the pattern of message `number`.
pub(crate) fn is_intact(memory: &Buffer, number: u64, start: usize, bytes: Range<usize>) -> bool {
    let with_word = |at, value| memory.word(at).load(Ordering::Relaxed) == value;
    each(number, start, bytes, with_word, |at, value| {
        memory.byte(at).load(Ordering::Relaxed) == value
    })
}

/// Rejects messages that have no room for a pattern.
pub(crate) fn check(common: &Common) -> Result<(), Fault> {
    must(common.size_bytes >= LEAST_BYTES || common.op.is_atomic(), "size", || {
        format!("--verify needs room for a pattern: choose {LEAST_BYTES} or more")
    })?;
    must(!common.share_qp, "share-qp", || {
        "--verify does not know the messages of threads that share queue pairs: choose no"
            .to_owned()
    })
}

/// Adds how many messages were damaged, and that the check takes time.
pub(crate) fn push_damaged(outcome: &mut Outcome, damaged: u64) {
    outcome.push_count("damaged", damaged);
    outcome.warnings.push(
        "--verify: the times contain the writing and the checking of each payload".to_owned(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_of_its_number_and_position() {
        let memory = Buffer::private(4096).unwrap();
        for (start, bytes) in [(64, 0..100), (64, 8..99), (67, 3..41), (40, 0..64), (8, 0..1)] {
            fill(&memory, 7, start, bytes.clone());
            assert!(is_intact(&memory, 7, start, bytes.clone()));
            assert!(!is_intact(&memory, 8, start, bytes.clone()), "{start} {bytes:?}");
            for bit in 0..bytes.len() * 8 {
                let byte = memory.byte(start + bytes.start + bit / 8);
                byte.fetch_xor(1 << (bit % 8), Ordering::Relaxed);
                assert!(!is_intact(&memory, 7, start, bytes.clone()), "{start} {bytes:?} {bit}");
                byte.fetch_xor(1 << (bit % 8), Ordering::Relaxed);
            }
        }
        fill(&memory, 7, 64, 0..64);
        assert!(!is_intact(&memory, 7, 64 - 8, 0..64), "at another position");
    }
}
