//! The memory regions and windows of a process, in its segment, for peers to read.
//!
//! One entry is one cache line, guarded by a sequence counter: the owner writes under its own lock,
//! peers read without a lock, with a bounded number of attempts. The table is sparse: a page of it
//! takes memory only once an entry in it was used.
//!
//! A key has 32 bits: `index (20) << 12 | tag (4) << 8 | low (8)`. The device chooses the 24 bits
//! of index and tag; the low 8 bits belong to the program (IBA C10-67: the key portion of a type 2
//! window). The index is a random number from the kernel. A freed index is not used again until
//! 1024 others were freed; the tag differs between its uses.

use crate::sync::{AtomicU64, Ordering, fence, word};
use core::fmt;
use std::collections::VecDeque;
use std::io;

/// Bits of a key that are the index.
pub const INDEX_BITS: u32 = 20;
/// Entries of a table of full size.
pub const ENTRIES: usize = 1 << INDEX_BITS;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 64;
/// Bytes of a table of full size: address space, not memory.
pub const TABLE_BYTES: usize = ENTRIES * ENTRY_BYTES;
/// A freed index is not reused until this many others were freed after it.
pub const RESTING: usize = 1024;

/// Attempts of a reader while the owner writes the entry.
const READ_ATTEMPTS: u32 = if cfg!(loom) { 2 } else { 64 };
/// Words after the first that are read and written. Loom gets two: more words only multiply the
/// states, and test nothing more of the protocol.
const GUARDED_WORDS: usize = if cfg!(loom) { 2 } else { 7 };
/// Random draws before a nearly full table is searched in order.
const DRAWS: u32 = 64;

/// The index part of a key.
#[inline(always)]
pub fn index_of(key: u32) -> u32 {
    key >> (32 - INDEX_BITS)
}

/// The data that peers see of a region or window. This module only gives `key == 0` a meaning (no
/// entry); all other fields are the owner's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The whole key, low bits included.
    pub key: u32,
    /// First address as requests name it (the iova).
    pub addr: u64,
    /// Length in bytes.
    pub length: u64,
    /// Access flags (`IBV_ACCESS_*`).
    pub access: u32,
    /// Number of the protection domain.
    pub pd: u32,
    /// Kind and flags (region, window of type 1 or 2, on demand paging).
    pub kind: u32,
    /// Which memfd backs the memory, by the owner's numbering; 0 for none.
    pub mem_id: u32,
    /// Offset of `addr` in that memfd, in bytes.
    pub mem_offset: u64,
    /// The QP to which a type 2B window is bound, or 0.
    pub qpn: u32,
    /// For the owner's use: the index of a window's region, say.
    pub aux: u32,
    /// Virtual address in the owner minus `addr`.
    pub host_delta: i64,
}

const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

const fn split(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl Entry {
    /// Words 1..8; word 0 is `key << 32 | seq`.
    fn to_words(self) -> [u64; 7] {
        [
            self.addr,
            self.length,
            pair(self.access, self.pd),
            pair(self.kind, self.mem_id),
            self.mem_offset,
            pair(self.qpn, self.aux),
            self.host_delta as u64,
        ]
    }

    #[inline(always)]
    fn from_words(key: u32, words: [u64; 7]) -> Entry {
        let [addr, length, rights, kind, mem_offset, binding, host_delta] = words;
        let (access, pd) = split(rights);
        let (kind, mem_id) = split(kind);
        let (qpn, aux) = split(binding);
        let host_delta = host_delta as i64;
        Entry { key, addr, length, access, pd, kind, mem_id, mem_offset, qpn, aux, host_delta }
    }
}

/// A view of a table, for owner and peers.
#[derive(Clone, Copy, Debug)]
pub struct KeyView {
    base: *mut u8,
    entries: u32,
}

// SAFETY: the pointer is to shared words that are touched atomically only.
unsafe impl Send for KeyView {}
// SAFETY: as above.
unsafe impl Sync for KeyView {}

impl KeyView {
    /// A view of the table at `base` of `entries` entries (at most [`ENTRIES`]; more are ignored).
    ///
    /// # Safety
    /// `base` must be aligned to 64 bytes and point to `entries * ENTRY_BYTES` bytes that stay
    /// mapped as long as the view lives, and are written through this module only.
    pub unsafe fn attach(base: *mut u8, entries: usize) -> KeyView {
        KeyView { base, entries: entries.min(ENTRIES) as u32 }
    }

    /// # Safety
    /// `index` must be below `self.entries`, and `number` below 8.
    #[inline(always)]
    unsafe fn word(&self, index: u32, number: usize) -> &AtomicU64 {
        debug_assert!(index < self.entries && number < 8);
        // SAFETY: within the table, which `attach` was promised.
        unsafe { word(self.base, index as usize * ENTRY_BYTES + number * 8) }
    }

    /// A consistent copy of the entry at `index`. `None` when there is none, when the index is out
    /// of range, or when the owner was writing it at each of a bounded number of attempts (it may
    /// have died there). So `None` decides nothing: ask the owner over the ring.
    #[inline]
    pub fn read(&self, index: u32) -> Option<Entry> {
        if index >= self.entries {
            return None;
        }
        // SAFETY: the index is in range.
        let first = unsafe { self.word(index, 0) };
        for _ in 0..READ_ATTEMPTS {
            let before = first.load(Ordering::Acquire);
            if before & 1 == 0 {
                let mut words = [0; 7];
                for (number, value) in words.iter_mut().enumerate().take(GUARDED_WORDS) {
                    // SAFETY: the index is in range.
                    *value = unsafe { self.word(index, number + 1) }.load(Ordering::Relaxed);
                }
                fence(Ordering::Acquire);
                if first.load(Ordering::Relaxed) == before {
                    let key = (before >> 32) as u32;
                    return (key != 0).then(|| Entry::from_words(key, words));
                }
            }
            core::hint::spin_loop();
        }
        None
    }

    /// The entry at the index of `key`, if its whole key is `key`. `None` as for [`KeyView::read`].
    #[inline]
    pub fn lookup(&self, key: u32) -> Option<Entry> {
        self.read(index_of(key)).filter(|entry| entry.key == key)
    }

    /// Writes `entry` at `index`; only the one writer may call it.
    ///
    /// # Safety
    /// `index` must be below `self.entries`, and nobody else may write.
    unsafe fn write(&self, index: u32, entry: &Entry) {
        // SAFETY: passed on.
        let word = |number| unsafe { self.word(index, number) };
        let seq = word(0).load(Ordering::Relaxed) as u32;
        // A hostile peer may have made it odd; the owner repairs that.
        let odd = seq | 1;
        word(0).store(pair(0, odd), Ordering::Relaxed);
        // The odd number must be visible before any of the new words.
        fence(Ordering::Release);
        for (number, value) in entry.to_words().into_iter().enumerate().take(GUARDED_WORDS) {
            word(number + 1).store(value, Ordering::Relaxed);
        }
        word(0).store(pair(entry.key, odd.wrapping_add(1)), Ordering::Release);
    }
}

/// Why no key was allocated.
#[derive(Debug)]
#[non_exhaustive]
pub enum AllocateError {
    /// Every index is in use or resting.
    Full,
    /// The system's random generator failed.
    Random(io::Error),
}

impl fmt::Display for AllocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocateError::Full => f.write_str("all memory keys of the process are in use"),
            AllocateError::Random(error) => write!(f, "no random numbers for memory keys: {error}"),
        }
    }
}

impl std::error::Error for AllocateError {}

/// The owner's table: only the owner writes, with `&mut`.
#[derive(Debug)]
pub struct KeyTable {
    view: KeyView,
    /// The copy that peers see, if they do not see the table itself.
    shown: Option<KeyView>,
    /// One bit for each index: in use, or resting.
    taken: Vec<u64>,
    /// The tag of each index's latest use.
    tags: Vec<u8>,
    resting: VecDeque<u32>,
    random: Vec<u32>,
}

impl KeyTable {
    /// An empty table of `entries` entries, at most [`ENTRIES`] (more are ignored). Index 0 is
    /// never used, so that no key is 0.
    ///
    /// # Safety
    /// `base` must be aligned to 64 bytes and point to `entries * ENTRY_BYTES` zeroed bytes that
    /// stay mapped and writable as long as the table lives. There must be no other writer.
    pub unsafe fn create(base: *mut u8, entries: usize) -> KeyTable {
        // SAFETY: passed on.
        let view = unsafe { KeyView::attach(base, entries) };
        let entries = view.entries as usize;
        let mut taken = vec![0; entries.div_ceil(64)];
        if let Some(first) = taken.first_mut() {
            *first = 1;
        }
        let tags = vec![0; entries];
        KeyTable { view, shown: None, taken, tags, resting: VecDeque::new(), random: Vec::new() }
    }

    /// Maintains a copy of the table at `base`, of as many entries, for the peers, while the owner
    /// reads the table itself: a peer that writes to the copy then misleads peers only.
    ///
    /// # Safety
    /// As for [`KeyTable::create`].
    pub unsafe fn show_at(&mut self, base: *mut u8) {
        // SAFETY: passed on.
        self.shown = Some(unsafe { KeyView::attach(base, self.view.entries as usize) });
    }

    /// The owner's view of the table; peers have the same view unless they were given a copy.
    pub fn view(&self) -> KeyView {
        self.view
    }

    /// Chooses a free index and a tag, and returns the key with `low` as its low 8 bits. Nothing is
    /// visible to peers before [`KeyTable::publish`].
    ///
    /// # Errors
    /// [`AllocateError`]; the table is as before.
    pub fn allocate(&mut self, low: u8) -> Result<u32, AllocateError> {
        let index = self.draw_index()?;
        self.taken[index as usize / 64] |= 1 << (index % 64);
        let tag = &mut self.tags[index as usize];
        *tag = tag.wrapping_add(1) & 0xf;
        Ok(index << 12 | u32::from(*tag) << 8 | u32::from(low))
    }

    fn is_taken(&self, index: u32) -> bool {
        self.taken[index as usize / 64] >> (index % 64) & 1 != 0
    }

    fn draw_index(&mut self) -> Result<u32, AllocateError> {
        let entries = self.view.entries;
        if entries == 0 {
            return Err(AllocateError::Full);
        }
        let mut index = 0;
        for _ in 0..DRAWS {
            // The full size is a power of two, so there the remainder is not biased.
            index = self.draw()? % entries;
            if !self.is_taken(index) {
                return Ok(index);
            }
        }
        (0..entries)
            .map(|step| (index + step) % entries)
            .find(|candidate| !self.is_taken(*candidate))
            .ok_or(AllocateError::Full)
    }

    fn draw(&mut self) -> Result<u32, AllocateError> {
        if let Some(number) = self.random.pop() {
            return Ok(number);
        }
        let mut bytes = [0_u8; 256];
        // SAFETY: writes at most `bytes.len()` bytes to a live array.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        // The kernel returns up to 256 bytes whole once its generator is seeded.
        if got != bytes.len() as isize {
            return Err(AllocateError::Random(io::Error::last_os_error()));
        }
        let numbers = bytes.chunks_exact(4);
        self.random.extend(numbers.map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])));
        self.random.pop().ok_or(AllocateError::Full)
    }

    /// Makes `entry` visible at the index of its key, whole: a reader sees the old or the new.
    /// False, and nothing happens, for an index that is not allocated.
    pub fn publish(&mut self, entry: &Entry) -> bool {
        let index = index_of(entry.key);
        if index == 0 || index >= self.view.entries || !self.is_taken(index) {
            return false;
        }
        self.write(index, entry);
        true
    }

    /// Hides the entry at `index` from readers. Those that have read it before may still use it:
    /// see [`crate::epoch`]. The index stays allocated, so that the same key, or another one with
    /// the same index, can be published again.
    pub fn retract(&mut self, index: u32) {
        if index < self.view.entries {
            self.write(index, &Entry::default());
        }
    }

    /// Retracts the entry, and frees the index, which is not reused soon. False for an index that
    /// is not allocated.
    pub fn free(&mut self, index: u32) -> bool {
        if index == 0 || index >= self.view.entries || !self.is_taken(index) {
            return false;
        }
        if self.resting.contains(&index) {
            return false;
        }
        self.retract(index);
        self.resting.push_back(index);
        if self.resting.len() > RESTING
            && let Some(rested) = self.resting.pop_front()
        {
            self.taken[rested as usize / 64] &= !(1 << (rested % 64));
        }
        true
    }

    fn write(&mut self, index: u32, entry: &Entry) {
        // SAFETY: both callers have checked the index, and the copy has as many entries.
        unsafe { self.view.write(index, entry) };
        if let Some(shown) = &self.shown {
            // SAFETY: as above.
            unsafe { shown.write(index, entry) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Words;
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    const SMALL: usize = 4096;

    fn table(entries: usize) -> (Arc<Words>, KeyTable) {
        let words = Arc::new(Words::new(entries * ENTRY_BYTES));
        // SAFETY: zeroed words of the right size; the caller keeps them.
        let table = unsafe { KeyTable::create(words.base(), entries) };
        (words, table)
    }

    #[test]
    fn what_peers_do_to_their_copy_is_not_believed() {
        let (_own, mut table) = table(SMALL);
        let copy = Words::new(SMALL * ENTRY_BYTES);
        // SAFETY: zeroed words of the right size, which outlive the table; the second view stands
        // for a peer that writes where it should not.
        let (shown, hostile) = unsafe {
            table.show_at(copy.base());
            let view = KeyView::attach(copy.base(), SMALL);
            (view, view)
        };
        let key = table.allocate(0).unwrap();
        let entry = filled(key, 5);
        assert!(table.publish(&entry));
        assert_eq!((shown.lookup(key), table.view().lookup(key)), (Some(entry), Some(entry)));
        let forged = filled(key, 6);
        // SAFETY: an index of the table; the test is about the damage that this does.
        unsafe { hostile.write(index_of(key), &forged) };
        assert_eq!((shown.lookup(key), table.view().lookup(key)), (Some(forged), Some(entry)));
        table.retract(index_of(key));
        assert_eq!((shown.lookup(key), table.view().lookup(key)), (None, None));
    }

    /// An entry whose fields all follow from one number, so that a torn read shows.
    fn filled(key: u32, number: u64) -> Entry {
        Entry {
            key,
            addr: number << 20,
            length: number + 1,
            access: number as u32 ^ 1,
            pd: number as u32 ^ 2,
            kind: number as u32 ^ 3,
            mem_id: number as u32 ^ 4,
            mem_offset: number ^ 5,
            qpn: number as u32 ^ 6,
            aux: number as u32 ^ 7,
            host_delta: -(number as i64),
        }
    }

    #[test]
    fn an_entry_comes_back_whole_and_goes_away() {
        let (_words, mut table) = table(SMALL);
        let key = table.allocate(0xab).unwrap();
        assert_eq!(key & 0xff, 0xab);
        assert_eq!(table.view().lookup(key), None);
        let entry = filled(key, 0x1234_5678);
        assert!(table.publish(&entry));
        assert_eq!(table.view().lookup(key), Some(entry));
        assert_eq!(table.view().lookup(key ^ 1), None, "the low bits count");
        assert_eq!(table.view().read(index_of(key)), Some(entry));
        table.retract(index_of(key));
        assert_eq!(table.view().read(index_of(key)), None);
        let again = Entry { key: key ^ 0xff, ..entry };
        assert!(table.publish(&again), "the index is still ours");
        assert_eq!(table.view().lookup(key ^ 0xff), Some(again));
        assert!(table.free(index_of(key)));
        assert!(!table.free(index_of(key)), "freed twice");
        assert_eq!(table.view().lookup(key ^ 0xff), None);
    }

    #[test]
    fn foreign_indices_are_refused() {
        let (_words, mut table) = table(SMALL);
        assert!(!table.publish(&filled(7 << 12, 1)), "not allocated");
        assert!(!table.publish(&filled((SMALL as u32) << 12, 1)), "beyond the table");
        assert!(!table.publish(&filled(0xff, 1)), "index 0");
        assert!(!table.free(0));
        assert_eq!(table.view().read(u32::MAX), None);
        table.retract(u32::MAX);
    }

    #[test]
    fn keys_are_never_zero_and_differ_until_the_table_is_full() {
        let (_words, mut table) = table(SMALL);
        let mut seen = HashSet::new();
        while let Ok(key) = table.allocate(0) {
            assert!(key != 0 && index_of(key) != 0 && (index_of(key) as usize) < SMALL);
            assert!(seen.insert(index_of(key)));
        }
        assert_eq!(seen.len(), SMALL - 1);
        assert!(matches!(table.allocate(0), Err(AllocateError::Full)));
    }

    #[test]
    fn a_freed_index_rests_and_comes_back_with_another_tag() {
        let (_words, mut table) = table(SMALL);
        let keys: Vec<u32> = (1..SMALL).map(|_| table.allocate(0).unwrap()).collect();
        let first = keys[0];
        for (freed, key) in keys.iter().enumerate().take(RESTING) {
            assert!(table.free(index_of(*key)));
            assert!(matches!(table.allocate(0), Err(AllocateError::Full)), "after {freed}");
        }
        assert!(table.free(index_of(keys[RESTING])));
        let again = table.allocate(0).unwrap();
        assert_eq!(index_of(again), index_of(first));
        assert_ne!(again, first, "the tag has moved on");
    }

    #[test]
    fn an_entry_left_odd_is_given_up_and_repaired() {
        let (words, mut table) = table(SMALL);
        let key = table.allocate(1).unwrap();
        let entry = filled(key, 9);
        assert!(table.publish(&entry));
        // SAFETY: the entry's first word, within the table.
        let first = unsafe { word(words.base(), index_of(key) as usize * ENTRY_BYTES) };
        first.fetch_or(1, Ordering::Relaxed);
        assert_eq!(table.view().lookup(key), None);
        assert!(table.publish(&entry));
        assert_eq!(table.view().lookup(key), Some(entry));
    }

    #[test]
    fn readers_never_see_a_torn_entry() {
        let (words, mut table) = table(SMALL);
        let key = table.allocate(0).unwrap();
        assert!(table.publish(&filled(key, 0)));
        let stop = Arc::new(AtomicBool::new(false));
        let view = table.view();
        let reader = {
            let (words, stop) = (words.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut reads = 0_u64;
                while !stop.load(Ordering::Relaxed) || reads == 0 {
                    if let Some(entry) = view.lookup(key) {
                        assert_eq!(entry, filled(key, entry.length - 1));
                        reads += 1;
                    }
                }
                drop(words);
            })
        };
        for number in 0..300_000 {
            assert!(table.publish(&filled(key, number)));
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    }
}

#[cfg(all(test, loom))]
mod loom_model {
    use super::*;
    use crate::sync::Words;
    use loom::sync::Arc;
    use loom::thread;

    /// A reader during two writes sees nothing, or one of the two entries whole.
    #[test]
    fn loom_a_read_is_never_torn() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let words = Arc::new(Words::new(2 * ENTRY_BYTES));
            // SAFETY: zeroed words of the right size, kept alive by the Arc.
            let mut table = unsafe { KeyTable::create(words.base(), 2) };
            let view = table.view();
            let reader = {
                let words = words.clone();
                thread::spawn(move || {
                    let seen = view.read(1);
                    drop(words);
                    seen
                })
            };
            let entry = |n: u32| Entry {
                key: 1 << 12 | n,
                addr: n.into(),
                length: n.into(),
                ..Entry::default()
            };
            table.taken[0] = 3;
            assert!(table.publish(&entry(1)));
            assert!(table.publish(&entry(2)));
            if let Some(seen) = reader.join().unwrap() {
                assert!(seen == entry(1) || seen == entry(2), "torn: {seen:?}");
            }
        });
    }
}
