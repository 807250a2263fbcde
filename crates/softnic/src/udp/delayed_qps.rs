//! The queue pairs that delay what they have to send.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many queue pairs may delay at a time.
const WORDS: usize = 16;

/// The queue pairs that delay what they have to send. Each word is one more than the index of one
/// of them, or 0.
#[derive(Default)]
pub(super) struct DelayedQps([AtomicU32; WORDS]);

impl DelayedQps {
    fn word_of(&self, index: u32) -> Option<&AtomicU32> {
        self.0.iter().find(|word| word.load(Ordering::Relaxed) == index + 1)
    }

    /// Whether a queue pair delays. Only a thread that holds its lock may ask.
    pub(super) fn contains(&self, index: u32) -> bool {
        self.word_of(index).is_some()
    }

    /// Adds a queue pair, by a thread that holds its lock. `false` if there is no room.
    pub(super) fn add(&self, index: u32) -> bool {
        let (seq, relaxed) = (Ordering::SeqCst, Ordering::Relaxed);
        let mut free = self.0.iter().filter(|word| word.load(relaxed) == 0);
        free.any(|word| word.compare_exchange(0, index + 1, seq, relaxed).is_ok())
    }

    /// Removes a queue pair, by a thread that holds its lock.
    pub(super) fn remove(&self, index: u32) {
        if let Some(word) = self.word_of(index) {
            // Another thread may have taken it out, and another queue pair the word.
            let relaxed = Ordering::Relaxed;
            let _ = word.compare_exchange(index + 1, 0, relaxed, relaxed);
        }
    }

    /// The queue pairs that delay.
    #[inline]
    pub(super) fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        let values = self.0.iter().map(|word| word.load(Ordering::Relaxed));
        values.filter_map(|value| value.checked_sub(1).map(|index| index as usize))
    }

    /// Takes out all queue pairs that delay.
    pub(super) fn take(&self) -> impl Iterator<Item = usize> + '_ {
        let used = self.0.iter().filter(|word| word.load(Ordering::Relaxed) != 0);
        used.filter_map(|word| word.swap(0, Ordering::SeqCst).checked_sub(1).map(|at| at as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_pair_is_in_it_once_and_taken_once() {
        let delayed = DelayedQps::default();
        assert!((0..WORDS as u32).all(|index| delayed.add(7 * index)));
        assert!(!delayed.add(1000), "no room");
        delayed.remove(14);
        delayed.remove(15);
        assert!(!delayed.contains(14) && delayed.contains(21) && delayed.add(1000));
        assert_eq!(delayed.indices().count(), WORDS);
        let mut taken: Vec<_> = delayed.take().collect();
        taken.sort_unstable();
        taken.dedup();
        assert!(taken.len() == WORDS && taken.contains(&0) && taken.contains(&1000));
        assert_eq!(delayed.take().count(), 0);
    }
}
