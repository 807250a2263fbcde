//! A map of bounded size: a new entry replaces the oldest one.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Entries of a [`BoundedMap`], at most: as many as a process of a soft device has queue pairs.
pub const MAX_ENTRIES: usize = 1 << 14;

/// A map of at most [`MAX_ENTRIES`] entries. In a full map a new entry replaces the oldest one. If
/// the key that was replaced is asked for again, it starts with the default value.
#[derive(Clone, Debug)]
pub struct BoundedMap<K, V> {
    entries: HashMap<K, V>,
    /// The keys, oldest first.
    order: VecDeque<K>,
}

impl<K, V> Default for BoundedMap<K, V> {
    fn default() -> Self {
        BoundedMap { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Copy + Eq + Hash, V: Default> BoundedMap<K, V> {
    /// The value of a key. A key without an entry gets one with the default value.
    pub fn entry(&mut self, key: K) -> &mut V {
        if !self.entries.contains_key(&key) {
            if self.order.len() >= MAX_ENTRIES
                && let Some(oldest) = self.order.pop_front()
            {
                self.entries.remove(&oldest);
            }
            self.order.push_back(key);
        }
        self.entries.entry(key).or_default()
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// Removes the keys for which `is_gone` returns `true`.
    pub fn forget(&mut self, is_gone: impl Fn(&K) -> bool) {
        self.order.retain(|key| !is_gone(key));
        self.entries.retain(|key, _| !is_gone(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_makes_room() {
        let mut map = BoundedMap::<usize, u32>::default();
        for key in 0..MAX_ENTRIES {
            *map.entry(key) = 7;
        }
        *map.entry(0) += 1;
        map.entry(MAX_ENTRIES);
        assert_eq!((map.get(&0), map.get(&1)), (None, Some(&7)));
        assert_eq!((map.entries.len(), map.order.len()), (MAX_ENTRIES, MAX_ENTRIES));
        map.forget(|key| *key > 1);
        assert_eq!((map.entries.len(), map.order.len()), (1, 1));
        assert_eq!(*map.entry(0), 0);
    }
}
