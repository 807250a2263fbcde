//! The progress thread: one thread per process that makes progress while callers sleep or compute.
//!
//! The thread is in one of three states:
//!
//! - *watching*: callers make progress. The thread sleeps for short times, touches hardly anything
//!   that callers use, and takes over when the count of callers stops changing. Peers need not wake
//!   this process. A program that spins on its memory and seldom calls a verb leaves messages
//!   unattended. As long as the thread finds such messages, it watches with the doorbell armed.
//!
//! - *on duty*: no caller came for a while. The doorbell is armed, and the thread sleeps until a
//!   peer signals the event, a control message comes, or a timer is due.
//!
//! - *parked*: as on duty, but a caller is blocked inside a verb. The event wakes that caller
//!   directly, which saves a thread switch. The thread waits for control messages, timers and a
//!   kick.
//!
//! A caller that finds the doorbell armed disarms it and kicks the thread, which then watches
//! again. So at any time some thread polls, watches, or sleeps on an armed doorbell.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use rdmalab_engine::backend::VerbsResult;

use crate::error::os_error;
use crate::fd::CountingEvent;
use crate::idle_yield::IdleYield;
use crate::signals::{block_signals, restore_signals};

/// The state that the progress thread and the callers share.
pub(crate) struct ProgressThread {
    pub(crate) kick: CountingEvent,
    /// Counts the calls that made progress; it lies in the shared segment.
    pub(crate) caller_count: &'static AtomicU64,
    /// Number of callers that are blocked inside a verb.
    pub(crate) waiting_callers: AtomicU32,
    /// Number of these callers that wait for the network, too.
    pub(crate) callers_on_network: AtomicU32,
    /// The progress thread sleeps without a time limit, or is about to.
    pub(crate) asleep: AtomicBool,
    /// Somebody wakes it, or is about to.
    is_woken: AtomicBool,
    /// The doorbell is armed for a program that will sleep on a completion channel's descriptor.
    pub(crate) armed_for_sleeper: AtomicBool,
    /// Callers block inside verbs, and arm the doorbell themselves.
    pub(crate) callers_block: AtomicBool,
    /// Number of rounds in which the progress thread still expects unattended messages.
    pub(crate) unattended_rounds: AtomicU32,
    /// The doorbell is armed for unattended messages.
    pub(crate) armed_for_unattended: AtomicBool,
    /// When callers that find nothing give up their processor.
    pub(crate) idle_yield: IdleYield,
}

impl ProgressThread {
    /// Makes the state, and starts no thread. `caller_count` lies in the process's segment.
    pub(crate) fn new(caller_count: &'static AtomicU64) -> VerbsResult<ProgressThread> {
        Ok(ProgressThread {
            kick: CountingEvent::create()?,
            caller_count,
            waiting_callers: AtomicU32::new(0),
            callers_on_network: AtomicU32::new(0),
            asleep: AtomicBool::new(false),
            is_woken: AtomicBool::new(false),
            armed_for_sleeper: AtomicBool::new(false),
            callers_block: AtomicBool::new(false),
            unattended_rounds: AtomicU32::new(0),
            armed_for_unattended: AtomicBool::new(false),
            idle_yield: IdleYield::new(),
        })
    }

    /// Counts a caller inside a verb. If two callers collide, they count once, which does no harm.
    #[inline]
    pub(crate) fn note_caller(&self) -> u64 {
        let caller_count = self.caller_count.load(Ordering::Relaxed).wrapping_add(1);
        self.caller_count.store(caller_count, Ordering::Relaxed);
        caller_count
    }

    /// How many calls have made progress.
    pub(crate) fn calls(&self) -> u64 {
        self.caller_count.load(Ordering::Relaxed)
    }

    /// Whether the doorbell is armed on purpose although callers make progress.
    #[cold]
    pub(crate) fn keeps_doorbell_armed(&self) -> bool {
        self.armed_for_sleeper.load(Ordering::Relaxed)
            || self.armed_for_unattended.load(Ordering::Relaxed)
    }

    /// Whether callers are blocked inside a verb, or about to be.
    pub(crate) fn has_waiting_callers(&self) -> bool {
        self.waiting_callers.load(Ordering::SeqCst) > 0
    }

    /// Whether the progress thread sleeps without a time limit, or is about to, and nobody has
    /// woken it.
    pub(crate) fn may_sleep_long(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) && !self.is_woken.load(Ordering::Relaxed)
    }

    /// Says that the progress thread is about to sleep without a time limit. The caller looks for
    /// work after that.
    pub(crate) fn begin_sleep(&self) {
        self.is_woken.store(false, Ordering::Relaxed);
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Wakes the progress thread from any sleep.
    pub(crate) fn wake(&self) {
        // Before the kick: after it the thread may have gone to sleep again.
        self.is_woken.store(true, Ordering::SeqCst);
        self.kick.add_one();
    }

    /// Wakes the progress thread if it sleeps without a time limit.
    pub(crate) fn wake_if_asleep(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Starts the thread with every signal blocked, because signals belong to the program. Only
    /// faults get through: the device's copies may cause them, and survive them (`copy::guard`).
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
