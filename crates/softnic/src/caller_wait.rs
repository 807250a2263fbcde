//! Callers that sleep: inside a verb, or on the descriptor of a completion channel.

use std::sync::atomic::Ordering;

use crate::cancel::NoCancel;
use crate::hooks::deferred;
use crate::poll::readable;
use crate::process::Process;
use crate::udp::{Network, UdpIo};

/// How long to sleep while QPs wait for room in a ring, or if a wake-up could be missed, ms.
pub(crate) const RETRY_MS: i32 = 1;

/// How long to sleep, ms; -1 without a bound.
pub(crate) fn sleep_ms(process: &Process, next_ns: Option<u64>, safe: bool) -> i32 {
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
    /// A program armed a CQ, and may sleep on the channel's descriptor next. From now on peers ring
    /// the doorbell, and the progress thread handles messages even while callers are active.
    /// Programs that sleep inside the verb arm the doorbell there.
    pub(crate) fn arm_for_sleeper(&self) {
        if let Some(udp) = UdpIo::of(self) {
            udp.send_delayed();
        }
        let progress_thread = &self.progress_thread;
        if progress_thread.callers_block.load(Ordering::Relaxed) {
            return;
        }
        progress_thread.armed_for_sleeper.store(true, Ordering::Relaxed);
        if self.hooks.is_some() {
            deferred::leave_to_thread();
        }
        if let Some(udp) = UdpIo::of(self) {
            udp.disconnect_peer_socket();
        }
        if !self.host.wakeup.doorbell.is_armed() {
            // If the heavy fence failed, the progress thread's short sleeps bound the delay.
            let _bounded_by_watch = self.host.wakeup.doorbell.arm();
        }
        // Messages that came before the doorbell was armed have woken no thread.
        self.poll_rings();
    }

    /// A caller is about to block: sends the delayed packets that are due soon, then the ACKs that
    /// wait.
    pub(crate) fn before_wait(&self) {
        if self.hooks.is_some() {
            deferred::release_before_sleep(self, || match UdpIo::of(self) {
                Some(udp) => udp.poll().unwrap_or(0),
                None => 0,
            });
        }
        if let Some(udp) = UdpIo::of(self) {
            udp.send_delayed();
        }
    }

    /// Blocks a caller until `fd` is readable or a peer, the network or a timer may need attention,
    /// but for `limit_ms` at most (-1: without a bound). The peers' signal wakes the caller itself,
    /// which then makes progress by [`Process::after_wait`]. Returns whether a signal handler
    /// interrupted the wait. The thread may be cancelled in it.
    pub(crate) fn wait_as_caller(&self, fd: i32, limit_ms: i32, no_cancel: &NoCancel) -> bool {
        let progress_thread = &self.progress_thread;
        progress_thread.note_caller();
        progress_thread.callers_block.store(true, Ordering::Relaxed);
        progress_thread.waiting_callers.fetch_add(1, Ordering::SeqCst);
        let network_fd = self.network_fd();
        let on_network = network_fd >= 0;
        progress_thread.callers_on_network.fetch_add(u32::from(on_network), Ordering::SeqCst);
        let waiting = Waiting { process: self, on_network };
        if self.hooks.is_some() {
            deferred::leave_to_thread();
        }
        if let Some(udp) = UdpIo::of(self) {
            udp.disconnect_peer_socket();
        }
        let safe = self.host.wakeup.doorbell.arm();
        let mut interrupted = false;
        if !self.host.peers.rings_may_hold_messages() {
            // The connected socket could not be given up if another thread is reading it.
            let sound = safe && !self.network().is_some_and(Network::has_connected);
            let own_ms = if sound { sleep_ms(self, None, true) } else { RETRY_MS };
            let limit_ms =
                if own_ms < 0 || (0..own_ms).contains(&limit_ms) { limit_ms } else { own_ms };
            let mut polls =
                readable(&[fd, self.host.event_fd(), self.host.control_socket_fd(), network_fd]);
            interrupted = no_cancel.poll(&mut polls, limit_ms) < 0;
        }
        drop(waiting);
        interrupted
    }

    /// Makes progress in a caller that was woken.
    pub(crate) fn after_wait(&self) {
        self.host.read_control_socket();
        self.poll_rings();
        if let Some(udp) = UdpIo::of(self) {
            udp.read(false);
        }
    }

    /// The descriptor of packets from the network; -1 if this process does not read them.
    pub(crate) fn network_fd(&self) -> i32 {
        self.network().map_or(-1, |network| network.fd_to_poll())
    }
}

/// A caller that sleeps on the doorbell. Dropped when the caller wakes up or is cancelled.
struct Waiting<'a> {
    process: &'a Process,
    /// The caller waits for the network as well.
    on_network: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let (process, progress_thread) = (self.process, &self.process.progress_thread);
        process.host.wakeup.event.drain();
        progress_thread.callers_on_network.fetch_sub(u32::from(self.on_network), Ordering::SeqCst);
        if progress_thread.waiting_callers.fetch_sub(1, Ordering::SeqCst) == 1 {
            process.host.wakeup.doorbell.disarm();
            progress_thread.armed_for_sleeper.store(false, Ordering::Relaxed);
        } else {
            // Other callers still sleep on the doorbell. This caller's next poll takes what came
            // meanwhile.
            let _bounded_by_them = process.host.wakeup.doorbell.arm();
        }
        // The progress thread may be parked because of this caller. Wake it: no thread may sleep on
        // the doorbell now, and a message may lie in a ring that another thread is about to unlock.
        progress_thread.wake_if_asleep();
    }
}
