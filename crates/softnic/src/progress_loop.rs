//! The progress thread's loop: waits while callers make progress, and makes progress otherwise.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use crate::caller_wait::{RETRY_MS, sleep_ms};
use crate::poll::{readable, wait_for, wait_readable};
use crate::process::Process;
use crate::progress_thread::ProgressThread;
use crate::qp::QpInner;
use crate::udp::adaptive_wakeup::AdaptiveWakeup;
use crate::udp::{Network, UdpIo};

/// While callers are active, the progress thread checks this often whether they still are, ms.
const WATCH_MS: i32 = 2;
/// If callers are this late with checking the timers, the progress thread does it, ns.
const LATE_NS: u64 = 4_000_000;
/// Rounds of the progress thread between two checks for dead peers.
const REAP_ROUNDS: u32 = 32;
/// While memory of peers is mapped here, the progress thread looks this often for dead peers, ms.
const DEATH_CHECK_MS: i32 = 200;
/// After the progress thread found a message that no caller took, it keeps the doorbell armed for
/// this many rounds. Each round costs a peer a system call.
const UNATTENDED_ROUNDS: u32 = 16;
/// After this time the progress thread assumes that no caller will take a message, ns.
const CALLER_GRACE_NS: u64 = 20_000;

/// Runs until the process ends.
pub(crate) fn run(process: &'static Process) {
    rdmalab_ring::biased::be_guest();
    // Its sleeps are short and must end in time.
    // SAFETY: sets a property of this thread; no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
    let progress_thread = &process.progress_thread;
    let mut seen = progress_thread.caller_count.load(Ordering::Relaxed);
    let mut rounds = 0u32;
    let (mut wakeup, mut was_woken) = (AdaptiveWakeup::default(), true);
    loop {
        // While callers poll, each system call here may take the processor from one of them.
        if was_woken {
            while progress_thread.kick.take_one() {}
            process.host.read_control_socket();
        }
        if let Some(udp) = UdpIo::of(process) {
            udp.send_delayed_in_round();
        }
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(REAP_ROUNDS) {
            retire_dead_peers(process);
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

/// Waits for one round while callers are active. Checks the timers only if callers are late to do
/// so. Returns whether there may be control messages or a kick.
fn stand_back(process: &Process, wakeup: &mut AdaptiveWakeup) -> bool {
    let late_ns = process.timers.next_tick_ns.load(Ordering::Relaxed).saturating_add(LATE_NS);
    if crate::clock::now_ns() > late_ns {
        process.tick_if_due();
    }
    let (progress_thread, mail) = (&process.progress_thread, process.host.control_socket_fd());
    let kick = progress_thread.kick.as_raw_fd();
    if progress_thread.callers_block.load(Ordering::Relaxed) {
        return wait_readable(&[mail, kick], WATCH_MS);
    }
    let rounds = progress_thread.unattended_rounds.load(Ordering::Relaxed);
    progress_thread.armed_for_unattended.store(rounds > 0, Ordering::Relaxed);
    if rounds > 0 {
        progress_thread.unattended_rounds.store(rounds - 1, Ordering::Relaxed);
        let _bounded_by_watch = process.host.wakeup.doorbell.arm();
        if process.host.peers.rings_may_hold_messages() {
            process.poll_rings();
        }
    }
    let before = progress_thread.caller_count.load(Ordering::Relaxed);
    let others = [mail, kick, process.host.event_fd()];
    let was_woken = match UdpIo::of(process) {
        Some(udp) => wakeup.wait_round(udp, others, WATCH_MS as u64 * 1_000_000),
        None => wait_readable(&others, WATCH_MS),
    };
    if was_woken && process.host.wakeup.event.drain() {
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

/// Whether no caller came since the count was `before`, and none comes within the time that a
/// caller needs between two calls. Without this wait the progress thread would take messages from a
/// program that streams. The program then finds completions in its CQ and makes no progress itself,
/// so the two alternate, each with a barrier and a system call for a few messages.
fn callers_are_gone(progress_thread: &ProgressThread, before: u64, kick: i32) -> bool {
    let nobody = || progress_thread.caller_count.load(Ordering::Relaxed) == before;
    if nobody() {
        wait_for(&mut readable(&[kick]), CALLER_GRACE_NS);
    }
    nobody()
}

/// Makes progress, because no caller does. If there is none to make, sleeps on the armed doorbell.
fn make_progress(process: &Process) {
    let progress_thread = &process.progress_thread;
    progress_thread.callers_block.store(false, Ordering::Relaxed);
    progress_thread.armed_for_unattended.store(false, Ordering::Relaxed);
    let next_ns = process.tick(crate::clock::now_ns());
    let taken = process.poll_rings();
    if taken > 0 {
        progress_thread.unattended_rounds.store(UNATTENDED_ROUNDS, Ordering::Relaxed);
    }
    let udp = UdpIo::of(process);
    let read = udp.map_or(0, |udp| udp.read(false));
    if taken + read + process.retry_blocked() > 0 {
        return;
    }
    progress_thread.begin_sleep();
    if let Some(udp) = udp {
        udp.send_delayed_late();
    }
    let safe = process.host.wakeup.doorbell.arm();
    if !process.host.peers.rings_may_hold_messages() {
        let timeout_ms = match process.timers.changed.load(Ordering::Relaxed) {
            true => RETRY_MS,
            false => sleep_ms(process, next_ns, safe),
        };
        let (mail, kick) = (process.host.control_socket_fd(), progress_thread.kick.as_raw_fd());
        // The thread that reads the socket may have lost its processor: do not poll the socket.
        let (network_fd, timeout_ms) = match process.network().is_some_and(Network::is_being_read) {
            true => (-1, RETRY_MS),
            false => (process.network_fd(), timeout_ms),
        };
        let checks_peers = process.host.peers.has_mapped_memory.load(Ordering::Relaxed);
        let is_long = !(0..=DEATH_CHECK_MS).contains(&timeout_ms);
        let limit_ms = if checks_peers && is_long { DEATH_CHECK_MS } else { timeout_ms };
        let was_woken;
        if progress_thread.waiting_callers.load(Ordering::SeqCst) > 0 {
            // A packet wakes no caller that went to sleep before this process owned the socket.
            let callers_listen = progress_thread.callers_on_network.load(Ordering::SeqCst) > 0;
            was_woken = wait_readable(
                &[mail, kick, if callers_listen { -1 } else { network_fd }],
                limit_ms,
            );
        } else {
            was_woken = wait_readable(&[mail, kick, process.host.event_fd(), network_fd], limit_ms);
            // A caller that went to sleep meanwhile needs the doorbell, and takes the signal.
            if progress_thread.waiting_callers.load(Ordering::SeqCst) == 0 {
                process.host.wakeup.doorbell.disarm();
                progress_thread.armed_for_sleeper.store(false, Ordering::Relaxed);
                process.host.wakeup.event.drain();
            }
        }
        if checks_peers && !was_woken {
            retire_dead_peers(process);
        }
    } else {
        process.host.wakeup.doorbell.disarm();
        if process.host.peers.a_ring_is_being_read() {
            // The reading thread may have lost its processor, and may need this one.
            wait_readable(
                &[process.host.control_socket_fd(), progress_thread.kick.as_raw_fd()],
                RETRY_MS,
            );
        }
    }
    progress_thread.asleep.store(false, Ordering::Relaxed);
}

/// Frees what dead peers leave: their rings, and their memory.
fn retire_dead_peers(process: &Process) {
    process.host.peers.retire_dead_rings();
    forget_memory_of_dead_peers(process);
}

/// Unmaps the memory of dead peers that queue pairs remember, for a program that calls no verb. The
/// thread that copies into a mapping has locked its queue pair, which is then left for the next
/// time.
fn forget_memory_of_dead_peers(process: &Process) {
    let peers = &process.host.peers;
    if !peers.has_memory_of_dead.swap(false, Ordering::Relaxed) {
        return;
    }
    for object in process.qps.all() {
        let Some(mut guard) = object.inner.try_lock() else {
            peers.has_memory_of_dead.store(true, Ordering::Relaxed);
            continue;
        };
        let Some(QpInner { links, .. }) = guard.as_mut() else { continue };
        if links.peer.as_ref().is_none_or(|peer| peer.is_unreachable()) {
            links.mapped = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A program that streams makes its next call shortly after any check.
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
            // A thread that lost its processor for long is given up.
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
