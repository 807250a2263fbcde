//! The progress thread: one thread per process that makes progress for owners that sleep or
//! compute.
//!
//! It is in one of three states:
//! - *watching*: callers make progress. It sleeps on a short timer, touches nothing that they use,
//!   and takes over when their stamp stands still. Peers need not wake anybody.
//!   Callers that come and go (a program that spins on its memory and calls us in between) leave
//!   messages lying: as long as the progress thread finds such, it watches with the doorbell armed.
//! - *on duty*: no caller was seen for a while. The doorbell is armed, and the progress thread
//!   sleeps until a peer signals the event, mail comes, or a timer is due.
//! - *parked*: as on duty, but a caller is blocked inside a verb and is woken by the event itself,
//!   which saves a hop; the progress thread only waits for mail, timers and a kick.
//!
//! A caller that finds the doorbell armed disarms it and kicks the progress thread, which watches
//! again. So somebody always either polls, watches, or sleeps on an armed doorbell.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use rdmalab_engine::backend::VerbsResult;

use crate::cancel::NoCancel;
use crate::error::os_error;
use crate::fd::CountingEvent;
use crate::poll::{readable, wait_for, wait_readable};
use crate::process::Process;
use crate::signals::{block_signals, restore_signals};
use crate::udp::Network;
use crate::udp::adaptive_wakeup::AdaptiveWakeup;

/// While callers are active the progress thread looks at them this often, ms.
const WATCH_MS: i32 = 2;
/// Callers that are so late to look at the timers are not waited for, ns.
const LATE_NS: u64 = 4_000_000;
/// A spinning caller yields its processor once in so many empty polls, less one: about every 12 us.
/// Nobody notices while a processor is free; where both ends share one, this is their latency.
const YIELD_MASK: u32 = 511;
/// The same where whoever could end the spinning needs the very processor that spins.
const ONE_CPU_YIELD_MASK: u32 = 15;
/// Rounds of the progress thread between two looks for dead peers.
const REAP_ROUNDS: u32 = 32;
/// Times that the progress thread watches with the doorbell armed after it found a message that no
/// caller came for. Each costs a peer a system call.
const UNATTENDED_ROUNDS: u32 = 16;
/// How long a message lies before the progress thread thinks that no caller comes for it, ns.
const CALLER_GRACE_NS: u64 = 20_000;
/// With QPs that wait for room in a ring, or without a way to sleep safely, ms.
const RETRY_MS: i32 = 1;

/// What the progress thread and the callers share.
pub(crate) struct ProgressThread {
    kick: CountingEvent,
    /// Counts entries of callers; peers may look.
    caller_count: &'static AtomicU64,
    /// Callers that are blocked inside a verb.
    waiting_callers: AtomicU32,
    /// Those of them that the network wakes.
    callers_on_network: AtomicU32,
    /// The progress thread sleeps without a bound, or may be about to.
    asleep: AtomicBool,
    /// The doorbell was armed for a program that will sleep on a descriptor of its own.
    armed_for_sleeper: AtomicBool,
    /// Callers block inside verbs: they take the bell themselves.
    callers_block: AtomicBool,
    /// Rounds for which the progress thread still expects messages that no caller comes for.
    unattended_rounds: AtomicU32,
    /// The doorbell was armed for such messages.
    armed_for_unattended: AtomicBool,
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
    pub(crate) fn start(&self, process: &'static Process) -> VerbsResult<()> {
        let before = block_signals();
        let spawned = std::thread::Builder::new()
            .name("rdmalab-helper".into())
            .stack_size(256 * 1024)
            .spawn(move || run(process));
        restore_signals(&before);
        spawned.map(drop).map_err(|error| os_error("cannot start the progress thread", &error))
    }
}

fn one_cpu() -> bool {
    std::thread::available_parallelism().is_ok_and(|count| count.get() == 1)
}

fn run(process: &'static Process) {
    rdmalab_ring::biased::be_guest();
    // Its sleeps are short, and are to end when they say.
    // SAFETY: sets a property of this thread; no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
    let progress_thread = &process.progress_thread;
    let mut seen = progress_thread.caller_count.load(Ordering::Relaxed);
    let mut rounds = 0u32;
    let (mut wakeup, mut was_woken) = (AdaptiveWakeup::default(), true);
    loop {
        // While callers poll, each call here takes the processor from one that is bound to it.
        if was_woken {
            while progress_thread.kick.take_one() {}
            process.read_mailbox();
        }
        process.send_delayed_ack();
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(REAP_ROUNDS) {
            process.retire_dead_rings();
        }
        let caller_count = progress_thread.caller_count.load(Ordering::Relaxed);
        if caller_count != seen {
            seen = caller_count;
            was_woken = stand_back(process, &mut wakeup);
        } else {
            make_progress(process);
            was_woken = true;
        }
    }
}

/// Callers are active: stay out of their way. Only those that come seldom may be late for the
/// timers, which they look at once in many entries. Returns whether there may be mail or a kick.
fn stand_back(process: &Process, wakeup: &mut AdaptiveWakeup) -> bool {
    let late_ns = process.timers.next_tick_ns.load(Ordering::Relaxed).saturating_add(LATE_NS);
    if crate::clock::now_ns() > late_ns {
        process.tick_if_due();
    }
    let (progress_thread, mail) = (&process.progress_thread, process.mailbox_fd());
    let kick = progress_thread.kick.as_raw_fd();
    if progress_thread.callers_block.load(Ordering::Relaxed) {
        return wait_readable(&[mail, kick], WATCH_MS);
    }
    let rounds = progress_thread.unattended_rounds.load(Ordering::Relaxed);
    progress_thread.armed_for_unattended.store(rounds > 0, Ordering::Relaxed);
    if rounds > 0 {
        progress_thread.unattended_rounds.store(rounds - 1, Ordering::Relaxed);
        let _bounded_by_watch = process.wakeup.doorbell.arm();
        if process.rings_may_hold_messages() {
            process.poll_rings();
        }
    }
    let before = progress_thread.caller_count.load(Ordering::Relaxed);
    let others = [mail, kick, process.event_fd()];
    let was_woken = match process.network() {
        Some(network) => wakeup.wait_round(process, network, others, WATCH_MS as u64 * 1_000_000),
        None => wait_readable(&others, WATCH_MS),
    };
    if was_woken && process.wakeup.event.drain() {
        progress_thread.armed_for_unattended.store(false, Ordering::Relaxed);
        let for_sleeper = progress_thread.armed_for_sleeper.swap(false, Ordering::Relaxed);
        if for_sleeper || callers_are_gone(progress_thread, before, kick) {
            let taken = process.poll_rings();
            if taken > 0 && progress_thread.caller_count.load(Ordering::Relaxed) == before {
                progress_thread.unattended_rounds.store(UNATTENDED_ROUNDS, Ordering::Relaxed);
            }
        }
    }
    was_woken
}

/// Whether no caller has come since the stamp was `before`, nor comes in the time that one needs
/// between two calls. Who concludes too fast takes messages from under a program that streams: it
/// finds them in its CQ, so it makes no progress itself, and progress thread and program stay at it
/// in turns, each with a barrier and a system call for some messages.
fn callers_are_gone(progress_thread: &ProgressThread, before: u64, kick: i32) -> bool {
    let nobody = || progress_thread.caller_count.load(Ordering::Relaxed) == before;
    if nobody() {
        wait_for(&mut readable(&[kick]), CALLER_GRACE_NS);
    }
    nobody()
}

/// Nobody else makes progress: do it, then sleep on the armed doorbell.
fn make_progress(process: &Process) {
    let progress_thread = &process.progress_thread;
    progress_thread.callers_block.store(false, Ordering::Relaxed);
    progress_thread.armed_for_unattended.store(false, Ordering::Relaxed);
    let next_ns = process.tick(crate::clock::now_ns());
    let taken = process.poll_rings();
    if taken > 0 {
        progress_thread.unattended_rounds.store(UNATTENDED_ROUNDS, Ordering::Relaxed);
    }
    if taken + process.read_network() + process.retry_blocked() > 0 {
        return;
    }
    progress_thread.asleep.store(true, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    process.send_delayed_ack();
    let safe = process.wakeup.doorbell.arm();
    if !process.rings_may_hold_messages() {
        let timeout_ms = match process.timers.changed.load(Ordering::Relaxed) {
            true => RETRY_MS,
            false => timeout_ms(process, next_ns, safe),
        };
        let (mail, kick) = (process.mailbox_fd(), progress_thread.kick.as_raw_fd());
        // Who reads it and lost its processor is not to be watched without a pause.
        let (network_fd, timeout_ms) = match process.network().is_some_and(Network::is_being_read) {
            true => (-1, RETRY_MS),
            false => (process.network_fd(), timeout_ms),
        };
        if progress_thread.waiting_callers.load(Ordering::SeqCst) > 0 {
            // Who went to sleep before this process inherited the socket does not hear it.
            let heard = progress_thread.callers_on_network.load(Ordering::SeqCst) > 0;
            wait_readable(&[mail, kick, if heard { -1 } else { network_fd }], timeout_ms);
        } else {
            wait_readable(&[mail, kick, process.event_fd(), network_fd], timeout_ms);
            // A caller that came to sleep meanwhile needs the bell, and takes the signal itself.
            if progress_thread.waiting_callers.load(Ordering::SeqCst) == 0 {
                process.wakeup.doorbell.disarm();
                progress_thread.armed_for_sleeper.store(false, Ordering::Relaxed);
                process.wakeup.event.drain();
            }
        }
    } else {
        process.wakeup.doorbell.disarm();
        if process.a_ring_is_being_read() {
            // It may have lost its processor, and need this very one.
            wait_readable(&[process.mailbox_fd(), progress_thread.kick.as_raw_fd()], RETRY_MS);
        }
    }
    progress_thread.asleep.store(false, Ordering::Relaxed);
}

/// How long to sleep, ms; -1 without a bound.
fn timeout_ms(process: &Process, next_ns: Option<u64>, safe: bool) -> i32 {
    if !safe || process.blocked.any.load(Ordering::Relaxed) {
        return RETRY_MS;
    }
    let attention_ns = process.timers.deadline_ns.load(Ordering::Relaxed);
    let next_ns = next_ns.unwrap_or(u64::MAX).min(attention_ns);
    if next_ns == u64::MAX {
        return -1;
    }
    let left_ns = next_ns.saturating_sub(crate::clock::now_ns());
    i32::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

impl Process {
    /// A program asked for an event, and may sleep on the channel's descriptor next: peers ring
    /// from now on, and the progress thread answers also while it watches. Programs that sleep
    /// inside the verb do the same there.
    pub(crate) fn arm_for_sleeper(&self) {
        self.send_delayed_ack();
        let progress_thread = &self.progress_thread;
        if progress_thread.callers_block.load(Ordering::Relaxed) {
            return;
        }
        progress_thread.armed_for_sleeper.store(true, Ordering::Relaxed);
        self.disconnect_flow();
        if !self.wakeup.doorbell.is_armed() {
            // Without the heavy fence the progress thread's short sleeps bound the delay.
            let _bounded_by_watch = self.wakeup.doorbell.arm();
        }
        // What came before the bell was armed rings nobody.
        self.poll_rings();
    }

    /// Blocks a caller until `fd` is readable or something may have happened. The caller is woken
    /// by the peers' signal itself and makes the progress, with [`Process::after_wait`]. Returns
    /// whether a signal handler interrupted the wait. The thread may be cancelled in it.
    pub(crate) fn wait_as_caller(&self, fd: i32, no_cancel: &NoCancel) -> bool {
        self.send_delayed_ack();
        let progress_thread = &self.progress_thread;
        progress_thread.note_caller();
        progress_thread.callers_block.store(true, Ordering::Relaxed);
        progress_thread.waiting_callers.fetch_add(1, Ordering::SeqCst);
        let network_fd = self.network_fd();
        let on_network = network_fd >= 0;
        progress_thread.callers_on_network.fetch_add(u32::from(on_network), Ordering::SeqCst);
        let waiting = Waiting { process: self, on_network };
        self.disconnect_flow();
        let safe = self.wakeup.doorbell.arm();
        let mut interrupted = false;
        if !self.rings_may_hold_messages() {
            // Another thread may just be reading that socket, so that it could not be given up.
            let sound = safe && !self.network().is_some_and(Network::has_connected);
            let limit_ms = if sound { timeout_ms(self, None, true) } else { RETRY_MS };
            let mut polls = readable(&[fd, self.event_fd(), self.mailbox_fd(), network_fd]);
            interrupted = no_cancel.poll(&mut polls, limit_ms) < 0;
        }
        drop(waiting);
        interrupted
    }

    /// What a caller does that was woken.
    pub(crate) fn after_wait(&self) {
        self.read_mailbox();
        self.poll_rings();
        self.read_network();
    }

    /// What tells of packets from the network; -1 when there is nothing to wait for here.
    fn network_fd(&self) -> i32 {
        self.network().map_or(-1, |network| network.fd_to_poll())
    }
}

/// A caller that sleeps on the doorbell. When it is gone, awake or cancelled, others know.
struct Waiting<'a> {
    process: &'a Process,
    /// It waits for the network as well.
    on_network: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let (process, progress_thread) = (self.process, &self.process.progress_thread);
        process.wakeup.event.drain();
        progress_thread.callers_on_network.fetch_sub(u32::from(self.on_network), Ordering::SeqCst);
        if progress_thread.waiting_callers.fetch_sub(1, Ordering::SeqCst) == 1 {
            process.wakeup.doorbell.disarm();
            progress_thread.armed_for_sleeper.store(false, Ordering::Relaxed);
        } else {
            // Others still sleep on it. What came while it was disarmed is taken next.
            let _bounded_by_them = process.wakeup.doorbell.arm();
        }
        // If the progress thread parked because of us, nobody sleeps on the doorbell now; and what
        // lies in a ring that another thread is just leaving is taken neither by it nor by us.
        progress_thread.wake_if_asleep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that streams is a moment away from its next look whenever somebody asks.
    #[test]
    fn a_caller_that_comes_again_is_not_given_up() {
        let progress_thread = ProgressThread::new(Box::leak(Box::default())).unwrap();
        let kick = progress_thread.kick.as_raw_fd();
        let before = progress_thread.note_caller();
        assert!(callers_are_gone(&progress_thread, before, kick));
        progress_thread.note_caller();
        assert!(!callers_are_gone(&progress_thread, before, kick));
        let done = AtomicBool::new(false);
        let (progress_thread, done) = (&progress_thread, &done);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    progress_thread.note_caller();
                }
            });
            while progress_thread.caller_count.load(Ordering::Relaxed) < 1_000 {
                std::thread::yield_now();
            }
            let gave_up = || {
                callers_are_gone(
                    progress_thread,
                    progress_thread.caller_count.load(Ordering::Relaxed),
                    kick,
                )
            };
            // One that has lost its processor is given up, which may be so for long.
            let limit = std::time::Instant::now() + std::time::Duration::from_secs(30);
            let mut was_seen = false;
            while !was_seen && std::time::Instant::now() < limit {
                was_seen = !gave_up();
            }
            done.store(true, Ordering::Relaxed);
            assert!(was_seen);
        });
    }
}
