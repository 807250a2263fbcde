//! What the progress thread does: stands back while callers make progress, and makes it otherwise.

use std::os::fd::AsRawFd;
use std::sync::atomic::{Ordering, fence};

use crate::caller_wait::{RETRY_MS, sleep_ms};
use crate::poll::{readable, wait_for, wait_readable};
use crate::process::Process;
use crate::progress_thread::ProgressThread;
use crate::udp::adaptive_wakeup::AdaptiveWakeup;
use crate::udp::network::Network;

/// While callers are active the progress thread checks on them this often, ms.
const WATCH_MS: i32 = 2;
/// When callers are this late to check the timers, the progress thread checks them, ns.
const LATE_NS: u64 = 4_000_000;
/// Rounds of the progress thread between two checks for dead peers.
const REAP_ROUNDS: u32 = 32;
/// Times that the progress thread watches with the doorbell armed after it found a message that no
/// caller came for. Each costs a peer a system call.
const UNATTENDED_ROUNDS: u32 = 16;
/// How long a message lies before the progress thread thinks that no caller comes for it, ns.
const CALLER_GRACE_NS: u64 = 20_000;

/// Runs until the process ends.
pub(crate) fn run(process: &'static Process) {
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
            process.read_control_socket();
        }
        process.send_delayed_ack();
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(REAP_ROUNDS) {
            process.peers.retire_dead_rings();
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
/// timers, which they look at once in many entries. Returns whether there may be datagrams or a
/// kick.
fn stand_back(process: &Process, wakeup: &mut AdaptiveWakeup) -> bool {
    let late_ns = process.timers.next_tick_ns.load(Ordering::Relaxed).saturating_add(LATE_NS);
    if crate::clock::now_ns() > late_ns {
        process.tick_if_due();
    }
    let (progress_thread, mail) = (&process.progress_thread, process.control_socket_fd());
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
            false => sleep_ms(process, next_ns, safe),
        };
        let (mail, kick) = (process.control_socket_fd(), progress_thread.kick.as_raw_fd());
        // The thread that reads the socket may have lost its processor: do not spin on it.
        let (network_fd, timeout_ms) = match process.network().is_some_and(Network::is_being_read) {
            true => (-1, RETRY_MS),
            false => (process.network_fd(), timeout_ms),
        };
        if progress_thread.waiting_callers.load(Ordering::SeqCst) > 0 {
            // A caller that went to sleep before this process owned the socket is not woken by it.
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
            wait_readable(
                &[process.control_socket_fd(), progress_thread.kick.as_raw_fd()],
                RETRY_MS,
            );
        }
    }
    progress_thread.asleep.store(false, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

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
