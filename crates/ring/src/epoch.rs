//! Lets the owner of memory wait until no other process copies there any more.
//!
//! On the local lane an *initiator* process reads and writes a *target* process's memory itself,
//! after it has found the key valid in the target's table. When the target invalidates the key
//! (deregistration, invalidation, reset), a copy that was allowed by the old entry may still run.
//! So each initiator marks itself as inside before it reads the table. After the target has changed
//! the table, it waits until those that were inside at that moment have left or died:
//!
//! ```text
//! initiator: word = odd;  fence;  read the table; copy;  word = even
//! target:    change the table;  fence;  each odd word: wait until it differs, or its owner is dead
//! ```
//!
//! The fences pair up (see [`crate::fence`]): either the initiator sees the changed table, or the
//! target sees the odd word.

use crate::fence::{self, Strength};
use crate::sync::{AtomicU64, LINE, Ordering, word};
use core::fmt;
use std::time::Duration;

/// Initiator slots in a target's segment: one for each process slot of the host registry.
pub const INITIATORS: usize = if cfg!(loom) { 2 } else { 1024 };
/// Words of an initiator: the number of its threads that can be inside at once.
pub const WORDS_PER_INITIATOR: usize = if cfg!(loom) { 1 } else { 8 };

const USED_WORDS: usize = INITIATORS.div_ceil(64);
const HEAVY_AT: usize = 0;
const USED_AT: usize = LINE;
const SEQUENCES_AT: usize = USED_AT + (USED_WORDS * 8).next_multiple_of(LINE);

/// Bytes of the lane's words in the target's segment.
pub const LANE_BYTES: usize = SEQUENCES_AT + INITIATORS * WORDS_PER_INITIATOR * 8;

/// Time for the stores of other processors to drain when the heavy fence has failed. A practical
/// bound, far above the nanoseconds of a store buffer, not an architectural one.
const DRAIN: Duration = Duration::from_millis(10);
/// Looks at a busy word before the waiter begins to yield its processor.
const SPINS: u32 = 200;
/// Yields before the waiter begins to sleep.
const YIELDS: u32 = 200;
const NAP: Duration = Duration::from_micros(50);

/// # Safety
/// `base` must be as [`LaneSlots::create`] demands; `initiator` and `index` in range.
#[inline(always)]
unsafe fn sequence<'a>(base: *mut u8, initiator: usize, index: usize) -> &'a AtomicU64 {
    debug_assert!(initiator < INITIATORS && index < WORDS_PER_INITIATOR);
    // SAFETY: within LANE_BYTES for indices in range.
    unsafe { word(base, SEQUENCES_AT + (initiator * WORDS_PER_INITIATOR + index) * 8) }
}

/// # Safety
/// `base` must be as [`LaneSlots::create`] demands; `group` below `USED_WORDS`.
unsafe fn used<'a>(base: *mut u8, group: usize) -> &'a AtomicU64 {
    debug_assert!(group < USED_WORDS);
    // SAFETY: within LANE_BYTES for a group in range.
    unsafe { word(base, USED_AT + group * 8) }
}

/// The target's side: it waits.
#[derive(Debug)]
pub struct LaneSlots {
    base: *mut u8,
}

// SAFETY: the pointer is to shared words that are touched atomically only.
unsafe impl Send for LaneSlots {}
// SAFETY: as above.
unsafe impl Sync for LaneSlots {}

/// An initiator was still inside when the caller gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillBusy {
    /// The initiator's slot in the host registry.
    pub initiator: u16,
}

impl fmt::Display for StillBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the process in slot {} is still copying in this memory", self.initiator)
    }
}

impl std::error::Error for StillBusy {}

/// Initiators that were inside when [`LaneSlots::inside_now`] looked, by their words.
#[derive(Debug, Default)]
pub struct Visits(Vec<(usize, usize, u64)>);

impl LaneSlots {
    /// Sets up the words, and records in them whether this process can execute the heavy fence. Do
    /// this before a peer gets the segment.
    ///
    /// # Safety
    /// `base` must be aligned to 64 bytes and point to [`LANE_BYTES`] zeroed bytes that stay mapped
    /// and writable as long as the value lives, and are touched by this module only.
    pub unsafe fn create(base: *mut u8) -> LaneSlots {
        // SAFETY: within LANE_BYTES.
        unsafe { word(base, HEAVY_AT) }.store(fence::heavy_available().into(), Ordering::Release);
        LaneSlots { base }
    }

    /// Waits until every initiator that was inside when this was called has left, or is dead. Call
    /// it after the change to the table, and before the memory is given away. It spins, then
    /// yields, then sleeps.
    ///
    /// `is_alive(slot)` says whether the process that *attached here* as `slot` still lives (a
    /// later holder of the same slot does not count); it is called only for initiators that are
    /// waited for. `give_up()` is called at every check, and ends the wait when it returns true.
    ///
    /// # Errors
    /// [`StillBusy`]: gave up. The memory must not be reused; call again.
    pub fn wait_quiescent(
        &self,
        mut is_alive: impl FnMut(u16) -> bool,
        mut give_up: impl FnMut() -> bool,
    ) -> Result<(), StillBusy> {
        self.fence_initiators();
        for group in 0..USED_WORDS {
            // SAFETY: the group is in range.
            let mut bits = unsafe { used(self.base, group) }.load(Ordering::Relaxed);
            while bits != 0 {
                let initiator = group * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                // A hostile peer may set bits beyond a table that is not a multiple of 64.
                if initiator < INITIATORS {
                    self.wait_for(initiator, &mut is_alive, &mut give_up)?;
                }
            }
        }
        Ok(())
    }

    /// The initiators that are inside now: all, or `only` one. For callers that cannot wait here,
    /// and check later with [`LaneSlots::have_left`]. Call it after the change to the table, as
    /// [`LaneSlots::wait_quiescent`].
    pub fn inside_now(&self, only: Option<u16>) -> Visits {
        self.fence_initiators();
        let mut visits = Vec::new();
        for initiator in 0..INITIATORS {
            // SAFETY: the group is in range.
            let bits = unsafe { used(self.base, initiator / 64) }.load(Ordering::Relaxed);
            let asked = only.is_none_or(|only| usize::from(only) == initiator);
            if !asked || bits >> (initiator % 64) & 1 == 0 {
                continue;
            }
            for index in 0..WORDS_PER_INITIATOR {
                // SAFETY: both indices are in range.
                let seen = unsafe { sequence(self.base, initiator, index) }.load(Ordering::Acquire);
                if !seen.is_multiple_of(2) {
                    visits.push((initiator, index, seen));
                }
            }
        }
        Visits(visits)
    }

    /// Whether all of `visits` have ended, or their initiators are dead; `is_alive` as for
    /// [`LaneSlots::wait_quiescent`]. Removes those that have ended.
    pub fn have_left(&self, visits: &mut Visits, mut is_alive: impl FnMut(u16) -> bool) -> bool {
        visits.0.retain(|&(initiator, index, seen)| {
            // SAFETY: `inside_now` put indices in range there.
            let now = unsafe { sequence(self.base, initiator, index) }.load(Ordering::Acquire);
            now == seen && is_alive(initiator as u16)
        });
        visits.0.is_empty()
    }

    /// Ensures that an initiator sees the change made before this call, or we see its word odd.
    fn fence_initiators(&self) {
        // SAFETY: within LANE_BYTES, as `create` was promised.
        let promised = unsafe { word(self.base, HEAVY_AT) }.load(Ordering::Relaxed) != 0;
        if !fence::heavy() && promised {
            std::thread::sleep(DRAIN);
        }
    }

    fn wait_for(
        &self,
        initiator: usize,
        is_alive: &mut impl FnMut(u16) -> bool,
        give_up: &mut impl FnMut() -> bool,
    ) -> Result<(), StillBusy> {
        let slot = initiator as u16;
        for index in 0..WORDS_PER_INITIATOR {
            // SAFETY: both indices are in range.
            let sequence = unsafe { sequence(self.base, initiator, index) };
            // Read only now, so that an entry after the change to the table may be waited for as
            // well. That is harmless, and saves a snapshot of all words.
            let seen = sequence.load(Ordering::Acquire);
            if seen.is_multiple_of(2) {
                continue;
            }
            let mut looks = 0;
            while sequence.load(Ordering::Acquire) == seen {
                if looks > SPINS && !is_alive(slot) {
                    return Ok(());
                }
                if give_up() {
                    return Err(StillBusy { initiator: slot });
                }
                pause(looks);
                looks += 1;
            }
        }
        Ok(())
    }
}

fn pause(looks: u32) {
    #[cfg(loom)]
    {
        let _ = (looks, YIELDS, NAP);
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    match looks {
        0..SPINS => core::hint::spin_loop(),
        SPINS..400 => std::thread::yield_now(),
        _ => std::thread::sleep(NAP),
    }
    #[cfg(not(loom))]
    const {
        assert!(SPINS + YIELDS == 400)
    };
}

/// An initiator's side, in one target's segment.
#[derive(Debug)]
pub struct LanePass {
    base: *mut u8,
    initiator: usize,
    strength: Strength,
}

// SAFETY: the pointer is to shared words that are touched atomically only.
unsafe impl Send for LanePass {}
// SAFETY: as above.
unsafe impl Sync for LanePass {}

/// Shows that the initiator is inside; dropping it leaves. Read the target's table only while
/// holding it, and drop it after the last access to the target's memory.
#[derive(Debug)]
#[must_use = "dropping it leaves at once"]
pub struct Inside<'a> {
    sequence: &'a AtomicU64,
    entered: u64,
}

impl LanePass {
    /// Joins a target's lane as process slot `initiator`, which the caller holds in the host
    /// registry. Clears the words of an earlier, dead holder of the slot. `None` for a slot out of
    /// range.
    ///
    /// # Safety
    /// `base` must be aligned to 64 bytes and point to [`LANE_BYTES`] bytes that the target has set
    /// up, and that stay mapped and writable as long as the value lives. No other value may use
    /// this slot of this target.
    pub unsafe fn attach(base: *mut u8, initiator: u16) -> Option<LanePass> {
        let initiator = usize::from(initiator);
        if initiator >= INITIATORS {
            return None;
        }
        // SAFETY: within LANE_BYTES.
        let heavy = unsafe { word(base, HEAVY_AT) }.load(Ordering::Acquire) != 0;
        for index in 0..WORDS_PER_INITIATOR {
            // SAFETY: both indices are in range.
            let sequence = unsafe { sequence(base, initiator, index) };
            let left = sequence.load(Ordering::Relaxed);
            sequence.store(left.wrapping_add(left & 1), Ordering::Release);
        }
        // SAFETY: the group is in range.
        unsafe { used(base, initiator / 64) }.fetch_or(1 << (initiator % 64), Ordering::AcqRel);
        Some(LanePass { base, initiator, strength: Strength::towards(heavy) })
    }

    /// Enters, through word `index` (taken modulo [`WORDS_PER_INITIATOR`]). Two threads must not
    /// use one word at a time: the caller ensures that by a lock or by assignment. `None` when the
    /// word is in use all the same (a signal handler inside a copy): use the ring instead.
    #[inline(always)]
    pub fn enter(&self, index: usize) -> Option<Inside<'_>> {
        // SAFETY: `attach` has checked the slot, and the index is reduced.
        let sequence = unsafe { sequence(self.base, self.initiator, index % WORDS_PER_INITIATOR) };
        let outside = sequence.load(Ordering::Relaxed);
        if !outside.is_multiple_of(2) {
            return None;
        }
        let entered = outside.wrapping_add(1);
        // Release, since a target that waits for the previous entry may see this value in place of
        // the one that `drop` stored, and must then see that entry's copies too.
        sequence.store(entered, Ordering::Release);
        self.strength.fence();
        Some(Inside { sequence, entered })
    }
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.sequence.store(self.entered.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Words;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32};

    fn lane() -> (Words, LaneSlots) {
        let words = Words::new(LANE_BYTES);
        // SAFETY: zeroed words of the right size; the caller keeps them.
        let slots = unsafe { LaneSlots::create(words.base()) };
        (words, slots)
    }

    #[test]
    fn nobody_inside_is_quiescent_at_once() {
        let (words, slots) = lane();
        // SAFETY: set up above, one value for each slot.
        let pass = unsafe { LanePass::attach(words.base(), 1023) }.unwrap();
        drop(pass.enter(3));
        slots.wait_quiescent(|_| panic!("no need to ask"), || panic!("no need to wait")).unwrap();
        // SAFETY: refused before anything is touched.
        assert!(unsafe { LanePass::attach(words.base(), 1024) }.is_none());
    }

    #[test]
    fn somebody_inside_is_waited_for_until_patience_or_life_ends() {
        let (words, slots) = lane();
        // SAFETY: set up above, one value for each slot.
        let pass = unsafe { LanePass::attach(words.base(), 70) }.unwrap();
        let inside = pass.enter(9).unwrap();
        assert!(pass.enter(1).is_none(), "9 is word 1");
        let mut looks = 0;
        let busy = slots.wait_quiescent(
            |_| true,
            || {
                looks += 1;
                looks == 500
            },
        );
        assert_eq!(busy, Err(StillBusy { initiator: 70 }));
        let mut asked = Vec::new();
        let dead = slots.wait_quiescent(
            |slot| {
                asked.push(slot);
                false
            },
            || false,
        );
        assert_eq!((dead, asked), (Ok(()), vec![70]));
        drop(inside);
        slots.wait_quiescent(|_| true, || panic!("left")).unwrap();
    }

    #[test]
    fn visits_end_one_by_one() {
        let (words, slots) = lane();
        // SAFETY: set up above, one value for each slot.
        let (one, two) = unsafe {
            let attach = |slot| LanePass::attach(words.base(), slot).unwrap();
            (attach(1), attach(2))
        };
        assert!(slots.have_left(&mut slots.inside_now(None), |_| panic!("nobody is inside")));
        let (first, second) = (one.enter(0).unwrap(), two.enter(3).unwrap());
        let mut all = slots.inside_now(None);
        let mut second_only = slots.inside_now(Some(2));
        let later = one.enter(5).unwrap();
        drop(second);
        assert!(slots.have_left(&mut second_only, |_| true));
        assert!(!slots.have_left(&mut all, |_| true));
        drop(first);
        // Initiators that enter, or enter again, after `inside_now` are not waited for.
        let again = one.enter(0).unwrap();
        assert!(slots.have_left(&mut all, |_| true));
        let mut dead = slots.inside_now(None);
        assert!(!slots.have_left(&mut dead, |_| true));
        assert!(slots.have_left(&mut dead, |slot| slot != 1));
        drop((later, again));
    }

    #[test]
    fn a_new_holder_clears_what_a_dead_one_left() {
        let (words, slots) = lane();
        // SAFETY: set up above; the first value is never used again.
        let dead = unsafe { LanePass::attach(words.base(), 5) }.unwrap();
        std::mem::forget(dead.enter(0));
        assert!(slots.wait_quiescent(|_| true, || true).is_err());
        // SAFETY: the earlier holder is gone.
        let pass = unsafe { LanePass::attach(words.base(), 5) }.unwrap();
        slots.wait_quiescent(|_| true, || true).unwrap();
        assert!(pass.enter(0).is_some());
    }

    /// Real threads and the real fences: memory is poisoned after each quiescence, and no initiator
    /// that saw a valid entry may see poison.
    #[test]
    fn no_initiator_touches_memory_after_quiescence() {
        let (words, slots) = lane();
        let words = Arc::new(words);
        let valid = Arc::new(AtomicU32::new(1));
        let poisoned = Arc::new(AtomicBool::new(false));
        let stop = Arc::new(AtomicBool::new(false));
        let initiators: Vec<_> = (0..2_u16)
            .map(|slot| {
                let (words, valid) = (words.clone(), valid.clone());
                let (poisoned, stop) = (poisoned.clone(), stop.clone());
                std::thread::spawn(move || {
                    // SAFETY: set up, kept alive by the Arc, one value for each slot.
                    let pass = unsafe { LanePass::attach(words.base(), slot) }.unwrap();
                    let mut copies = 0_u64;
                    while !stop.load(Ordering::Relaxed) || copies == 0 {
                        let inside = pass.enter(0).unwrap();
                        if valid.load(Ordering::Acquire) == 1 {
                            assert!(!poisoned.load(Ordering::Relaxed), "touched after quiescence");
                            copies += 1;
                        }
                        drop(inside);
                    }
                    copies
                })
            })
            .collect();
        for _ in 0..3000 {
            valid.store(0, Ordering::Relaxed);
            slots.wait_quiescent(|_| true, || false).unwrap();
            poisoned.store(true, Ordering::Relaxed);
            std::hint::spin_loop();
            poisoned.store(false, Ordering::Relaxed);
            valid.store(1, Ordering::Release);
        }
        stop.store(true, Ordering::Relaxed);
        for initiator in initiators {
            assert!(initiator.join().unwrap() > 0);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_model {
    use super::*;
    use crate::sync::Words;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct World {
        words: Words,
        table: AtomicU64,
        memory: [UnsafeCell<u64>; INITIATORS],
    }

    // SAFETY: the cells are what the protocol protects, and loom reports a race on them.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}

    fn model(initiators: u16, entries: usize, preemptions: Option<usize>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(move || {
            let world = Arc::new(World {
                words: Words::new(LANE_BYTES),
                table: AtomicU64::new(1),
                memory: std::array::from_fn(|_| UnsafeCell::new(0)),
            });
            // SAFETY: zeroed words of the right size, kept alive by the Arc.
            let slots = unsafe { LaneSlots::create(world.words.base()) };
            let threads: Vec<_> = (0..initiators)
                .map(|slot| {
                    let world = world.clone();
                    thread::spawn(move || {
                        // SAFETY: set up, kept alive by the Arc, one value for each slot.
                        let pass = unsafe { LanePass::attach(world.words.base(), slot) }.unwrap();
                        for _ in 0..entries {
                            let inside = pass.enter(0).unwrap();
                            if world.table.load(Ordering::Relaxed) == 1 {
                                // SAFETY: loom checks that nobody else is at it.
                                world.memory[usize::from(slot)].with_mut(|m| unsafe { *m += 1 });
                            }
                            drop(inside);
                        }
                    })
                })
                .collect();
            world.table.store(0, Ordering::Relaxed);
            slots.wait_quiescent(|_| true, || false).unwrap();
            for memory in &world.memory {
                // SAFETY: loom checks that nobody else is at it.
                memory.with_mut(|m| unsafe { *m = 99 });
            }
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    /// One initiator that enters twice: a wait for the first entry must not miss the second.
    #[test]
    fn loom_quiescence_one_initiator_two_entries() {
        model(1, 2, None);
    }

    #[test]
    fn loom_quiescence_two_initiators() {
        model(2, 1, Some(3));
    }
}
