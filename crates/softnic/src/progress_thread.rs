//! The progress thread: one thread per process that makes progress while callers sleep or compute.
//!
//! It is in one of three states:
//!
//! - *watching*: callers make progress. The thread sleeps on a short timer, touches nothing that
//!   callers use, and takes over when the count of callers stands still. Peers need not wake
//!   anybody. A program that spins on its memory and calls us only now and then leaves messages
//!   unattended. While the thread finds such messages, it watches with the doorbell armed.
//!
//! - *on duty*: no caller came for a while. The doorbell is armed, and the thread sleeps until a
//!   peer signals the event, a control message comes, or a timer is due.
//!
//! - *parked*: as on duty, but a caller is blocked inside a verb. The event wakes that caller
//!   itself, which saves a hop. The thread only waits for control messages, timers and a kick.
//!
//! A caller that finds the doorbell armed disarms it and kicks the thread, which watches again. So
//! at any time some thread polls, watches, or sleeps on an armed doorbell.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use rdmalab_engine::backend::VerbsResult;

use crate::error::os_error;
use crate::fd::CountingEvent;
use crate::signals::{block_signals, restore_signals};

/// A spinning caller yields its processor once in so many empty polls, less one: about every 12 us.
/// Nobody notices while a processor is free; where both ends share one, this is their latency.
const YIELD_MASK: u32 = 511;
/// The same on a machine with one processor, which the peer needs to end the spinning.
const ONE_CPU_YIELD_MASK: u32 = 15;

/// What the progress thread and the callers share.
pub(crate) struct ProgressThread {
    pub(crate) kick: CountingEvent,
    /// Counts entries of callers; peers may read it.
    pub(crate) caller_count: &'static AtomicU64,
    /// Callers that are blocked inside a verb.
    pub(crate) waiting_callers: AtomicU32,
    /// Those of them that the network wakes.
    pub(crate) callers_on_network: AtomicU32,
    /// The progress thread sleeps without a bound, or may be about to.
    pub(crate) asleep: AtomicBool,
    /// The doorbell was armed for a program that will sleep on a descriptor of its own.
    pub(crate) armed_for_sleeper: AtomicBool,
    /// Callers block inside verbs: they take the bell themselves.
    pub(crate) callers_block: AtomicBool,
    /// Rounds for which the progress thread still expects messages that no caller comes for.
    pub(crate) unattended_rounds: AtomicU32,
    /// The doorbell was armed for such messages.
    pub(crate) armed_for_unattended: AtomicBool,
    /// Polls in a row that found nothing.
    pub(crate) empty_polls: AtomicU32,
    /// A caller yields its processor after so many empty polls, less one.
    pub(crate) yield_mask: u32,
}

impl ProgressThread {
    /// A progress thread that is not started; `stamp` lies in the process's segment.
    pub(crate) fn new(caller_count: &'static AtomicU64) -> VerbsResult<ProgressThread> {
        Ok(ProgressThread {
            kick: CountingEvent::create()?,
            caller_count,
            waiting_callers: AtomicU32::new(0),
            callers_on_network: AtomicU32::new(0),
            asleep: AtomicBool::new(false),
            armed_for_sleeper: AtomicBool::new(false),
            callers_block: AtomicBool::new(false),
            unattended_rounds: AtomicU32::new(0),
            armed_for_unattended: AtomicBool::new(false),
            empty_polls: AtomicU32::new(0),
            yield_mask: if one_cpu() { ONE_CPU_YIELD_MASK } else { YIELD_MASK },
        })
    }

    /// A caller is inside a verb. Two that collide count once, which does no harm.
    #[inline]
    pub(crate) fn note_caller(&self) -> u64 {
        let caller_count = self.caller_count.load(Ordering::Relaxed).wrapping_add(1);
        self.caller_count.store(caller_count, Ordering::Relaxed);
        caller_count
    }

    /// Whether the doorbell is armed on purpose, although callers come by.
    #[cold]
    pub(crate) fn keeps_doorbell_armed(&self) -> bool {
        self.armed_for_sleeper.load(Ordering::Relaxed)
            || self.armed_for_unattended.load(Ordering::Relaxed)
    }

    /// Whether callers are blocked inside a verb, or just go to sleep there.
    pub(crate) fn has_waiting_callers(&self) -> bool {
        self.waiting_callers.load(Ordering::SeqCst) > 0
    }

    /// Whether the progress thread sleeps without a bound, or may be about to.
    pub(crate) fn may_sleep_long(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Wakes the progress thread from whatever sleep.
    pub(crate) fn wake(&self) {
        self.kick.add_one();
    }

    /// Wakes the progress thread if it sleeps without a bound.
    pub(crate) fn wake_if_asleep(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Starts the thread, with every signal blocked: signals are the program's. Only faults get
    /// through, which our own copies may cause and survive (`copy::guard`).
    pub(crate) fn start(&self, run: impl FnOnce() + Send + 'static) -> VerbsResult<()> {
        let before = block_signals();
        let spawned = std::thread::Builder::new()
            .name("rdmalab-prog".into())
            .stack_size(256 * 1024)
            .spawn(run);
        restore_signals(&before);
        spawned.map(drop).map_err(|error| os_error("cannot start the progress thread", &error))
    }
}

fn one_cpu() -> bool {
    std::thread::available_parallelism().is_ok_and(|count| count.get() == 1)
}
