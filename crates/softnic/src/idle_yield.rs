//! When a thread that polls in vain gives up its processor.
//!
//! A peer that shares the processor of a spinning thread can answer only while that thread does not
//! run. So after many polls that found nothing the thread yields.
//!
//! But programs also poll with a lock of their own held, for example UCX, whose lock spins. A
//! thread of the same process that waits for the lock then runs in vain until its time slice ends,
//! and the first one yields again some microseconds later, with the lock held: the other hardly
//! ever finds the lock free. Where the kernel takes the processor away after a time slice, it also
//! does so between two polls. So a process yields hardly ever after yields in which its other
//! threads used much processor time and called no verb.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A spinning thread yields once in this many empty polls, less one: about every 12 us. This has no
/// effect while a processor is free. If both ends share one, this is their latency.
const MASK: u32 = 511;
/// The same on a machine with one processor, which the peer needs to end the wait.
const ONE_CPU_MASK: u32 = 15;
/// The same while a thread of this process may wait for a lock: more than a time slice.
const STARVING_MASK: u32 = (1 << 20) - 1;
/// A yield that took longer than this gave the processor to a thread that did not yield, ns.
const LONG_NS: u64 = 200_000;

/// The state that all polling threads of the process share. A lost update does no harm.
pub(crate) struct IdleYield {
    /// Number of polls in a row that found nothing.
    empty_polls: AtomicU32,
    /// A thread yields after this many empty polls, less one.
    mask: AtomicU32,
    /// The mask while no thread may wait for a lock.
    least_mask: u32,
    /// The last yield was long.
    was_long: AtomicBool,
}

impl IdleYield {
    pub(crate) fn new() -> IdleYield {
        let one_cpu = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        let least_mask = if one_cpu { ONE_CPU_MASK } else { MASK };
        IdleYield {
            empty_polls: AtomicU32::new(0),
            mask: AtomicU32::new(least_mask),
            least_mask,
            was_long: AtomicBool::new(false),
        }
    }

    /// A poll found something.
    #[inline]
    pub(crate) fn note_success(&self) {
        self.empty_polls.store(0, Ordering::Relaxed);
    }

    /// A poll found nothing. `calls` counts the polls of all threads.
    #[inline]
    pub(crate) fn note_empty(&self, calls: impl Fn() -> u64) {
        let empty_polls = self.empty_polls.load(Ordering::Relaxed).wrapping_add(1);
        self.empty_polls.store(empty_polls, Ordering::Relaxed);
        if empty_polls & self.mask.load(Ordering::Relaxed) == 0 {
            self.give_up_processor(calls);
        }
    }

    /// Yields. Only after a long yield it is worth two system calls to know who ran meanwhile.
    #[cold]
    fn give_up_processor(&self, calls: impl Fn() -> u64) {
        let before = (crate::clock::now_ns(), calls());
        let used_ns = self.was_long.load(Ordering::Relaxed).then(crate::clock::process_cpu_ns);
        std::thread::yield_now();
        let is_long = crate::clock::now_ns().saturating_sub(before.0) > LONG_NS;
        self.was_long.store(is_long, Ordering::Relaxed);
        // This thread did not run meanwhile.
        let others_ns =
            used_ns.map_or(0, |used_ns| crate::clock::process_cpu_ns().saturating_sub(used_ns));
        self.judge(others_ns, calls() != before.1);
    }

    /// Judges a yield in which other threads of this process ran for `others_ns`.
    fn judge(&self, others_ns: u64, called_verbs: bool) {
        let mask = self.mask.load(Ordering::Relaxed);
        let next = match others_ns > LONG_NS && !called_verbs {
            true => STARVING_MASK,
            false => (mask >> 1).max(self.least_mask),
        };
        self.mask.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polls_until_yield(idle: &IdleYield) -> u32 {
        idle.note_success();
        let mut polls = 0;
        let yielded = std::cell::Cell::new(false);
        while !yielded.get() {
            polls += 1;
            // The count of calls is asked for only around a yield.
            idle.note_empty(|| {
                yielded.set(true);
                0
            });
        }
        polls
    }

    #[test]
    fn a_process_whose_other_threads_run_in_vain_yields_seldom_for_a_while() {
        let idle = IdleYield::new();
        let usual = idle.least_mask + 1;
        assert_eq!(polls_until_yield(&idle), usual);
        // Other processes ran, or threads that poll.
        idle.judge(0, false);
        idle.judge(LONG_NS + 1, true);
        idle.judge(LONG_NS, false);
        assert_eq!(polls_until_yield(&idle), usual);
        idle.judge(LONG_NS + 1, false);
        assert_eq!(polls_until_yield(&idle), STARVING_MASK + 1);
        // Each yield without a starving thread halves the distance to the next one.
        idle.judge(LONG_NS + 1, false);
        for bits in (0..20).rev() {
            idle.judge(0, false);
            assert_eq!(idle.mask.load(Ordering::Relaxed) + 1, (1 << bits).max(usual));
        }
    }
}
