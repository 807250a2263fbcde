//! The packets that a fault rule delays.
//!
//! Callers inside verbs send the packets that are due, whenever they make progress. A thread sends
//! them while no caller comes; [`super::watch`] says when it looks. Packets that still wait when
//! the process exits are sent then.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rdmalab_engine::backend::VerbsResult;
use rdmalab_engine::train::Train;
use rdmalab_link::deferred::Deferred;
use rdmalab_link::packet::Flow;
use rdmalab_link::quirk::Fate;
use rdmalab_wire::opcode::Transport;

use super::watch::{GRACE_NS, LEAD_NS, Watch};
use crate::clock::now_ns;
use crate::copy;
use crate::error::os_error;
use crate::peer::Peer;
use crate::process::Process;
use crate::ring_push::{ANSWER_SLOTS, push, room_in};
use crate::signals::{block_signals, restore_signals};
use crate::udp::socket::Route;

/// A packet that leaves more than this after it was due is late, ns.
pub const LATE_NS: u64 = 1_000;
/// A thread that finds another one sending looks again after this time, ns.
const BUSY_AGAIN_NS: u64 = 2_000;
/// After this time a packet that found the ring full is tried again, ns.
const FULL_AGAIN_NS: u64 = 50_000;
/// How long an exiting process waits for its deferred packets, ns.
const EXIT_WAIT_NS: u64 = 500_000_000;
/// The longest payload of a packet.
const PACKET_BYTES: u32 = 4096;

/// A deferred packet.
pub(super) enum DeferredPacket {
    /// For a process of this host.
    Ring { peer: Arc<Peer>, train: Train, service: Transport, payload: Box<[u8]> },
    /// For another host. If `intact`, it is sent with a correct invariant CRC.
    Network { route: Route, packet: Box<[u8]>, intact: bool },
}

/// A deferred packet, and when it is due. A packet that only waits for others has no time.
struct Held {
    due_ns: Option<u64>,
    packet: DeferredPacket,
}

impl DeferredPacket {
    fn bytes(&self) -> usize {
        match self {
            DeferredPacket::Ring { payload, .. } => payload.len() + size_of::<Train>(),
            DeferredPacket::Network { packet, .. } => packet.len(),
        }
    }
}

/// The packets that wait.
#[derive(Default)]
struct Waiting {
    packets: Deferred<Held>,
    /// The flow of the packet that is being sent now.
    sending: Option<Flow>,
    watch: Watch,
    /// When the thread looks next, ns; 0 while it is awake, `u64::MAX` if it waits for a packet.
    next_look_ns: u64,
    /// A packet was deferred since the thread looked last.
    has_new: bool,
    /// A packet left more than `GRACE_NS` after it was due since the thread looked last.
    was_overdue: bool,
}

impl Waiting {
    /// Whether the thread must be woken for the next packet. It is told only once.
    fn must_wake(&mut self, callers_sleep: bool) -> bool {
        let Some(first_ns) = self.packets.next_ns() else { return false };
        let look_ns = self.watch.next_look_ns(Some(first_ns), callers_sleep, first_ns);
        let must_wake = look_ns.is_some_and(|look_ns| look_ns < self.next_look_ns);
        if must_wake {
            self.next_look_ns = 0;
        }
        must_wake
    }

    /// The thread looks. Returns when it must look again, ns, and when the first packet is due.
    fn look(&mut self, process: &Process, now: u64) -> (u64, Option<u64>) {
        let first_ns = self.packets.next_ns();
        let is_waiting = first_ns.is_some_and(|due_ns| due_ns.saturating_add(GRACE_NS) <= now);
        let is_overdue = std::mem::take(&mut self.was_overdue) || is_waiting;
        let callers_sleep = callers_sleep(process);
        self.watch.look(process.progress_thread.calls(), callers_sleep, is_overdue);
        let look_ns = self.watch.next_look_ns(first_ns, callers_sleep, now);
        (look_ns.unwrap_or(u64::MAX), first_ns)
    }
}

/// Whether callers sleep inside a verb or on the descriptor of a completion channel.
fn callers_sleep(process: &Process) -> bool {
    let progress_thread = &process.progress_thread;
    progress_thread.has_waiting_callers()
        || progress_thread.armed_for_sleeper.load(Ordering::Relaxed)
}

/// The delayed packets that have left, and how late.
#[derive(Default)]
struct Lateness {
    left: AtomicU64,
    late: AtomicU64,
    late_ns: AtomicU64,
}

impl Lateness {
    /// A packet has left. Returns how long after it was due, ns.
    fn count(&self, due_ns: u64, now_ns: u64) -> u64 {
        let late_ns = now_ns.saturating_sub(due_ns);
        if late_ns > LATE_NS {
            self.late.fetch_add(1, Ordering::Relaxed);
            self.late_ns.fetch_add(late_ns, Ordering::Relaxed);
        }
        late_ns
    }

    fn counts(&self) -> DelayCounts {
        DelayCounts {
            left: self.left.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            late_ns: self.late_ns.load(Ordering::Relaxed),
        }
    }
}

/// How many packets left after a delay that a rule asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DelayCounts {
    /// Number of packets that left.
    pub left: u64,
    /// Number of those that left more than 1 us after they were due.
    pub late: u64,
    /// The sum of how late these were, ns.
    pub late_ns: u64,
}

impl DelayCounts {
    /// What was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &DelayCounts) -> DelayCounts {
        DelayCounts {
            // A packet that finds the ring full is counted for a moment.
            left: self.left.saturating_sub(before.left),
            late: self.late.saturating_sub(before.late),
            late_ns: self.late_ns.saturating_sub(before.late_ns),
        }
    }
}

impl std::fmt::Display for DelayCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DelayCounts { left, late, .. } = self;
        let on_average_us = self.late_ns as f64 / 1e3 / (*late).max(1) as f64;
        let limit_us = LATE_NS / 1_000;
        write!(
            f,
            "{late} of {left} delayed packets left more than {limit_us} us after they were due, \
             {on_average_us:.1} us on average"
        )
    }
}

/// The deferred packets of this process.
#[derive(Default)]
struct DeferredPackets {
    waiting: Mutex<Waiting>,
    news: Condvar,
    /// Held by the thread that sends due packets, so that they leave in order.
    releasing: Mutex<()>,
    lateness: Lateness,
    /// Number of packets that were lost because too many waited.
    overflowed: AtomicU64,
}

/// Those of this process, which live as long; null without fault rules, and in a forked child.
static DEFERRED: AtomicPtr<DeferredPackets> = AtomicPtr::new(std::ptr::null_mut());

fn deferred_packets() -> Option<&'static DeferredPackets> {
    // SAFETY: null, or leaked.
    unsafe { DEFERRED.load(Ordering::Acquire).as_ref() }
}

/// Starts the thread that sends packets which no caller sends.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start() -> VerbsResult<()> {
    let deferred: &'static DeferredPackets = Box::leak(Box::default());
    DEFERRED.store(std::ptr::from_ref(deferred).cast_mut(), Ordering::Release);
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler touches only what lives as long as the process.
        unsafe { libc::atexit(at_exit) };
    });
    let before = block_signals();
    let spawned = std::thread::Builder::new()
        .name("rdmalab-faults".into())
        .stack_size(256 * 1024)
        .spawn(move || deferred.serve());
    restore_signals(&before);
    spawned.map(drop).map_err(|error| os_error("cannot start the thread for faults", &error))
}

/// In the child of a fork: the packets are the parent's.
pub(crate) fn close_in_child() {
    DEFERRED.store(std::ptr::null_mut(), Ordering::Release);
}

/// Defers the packet or copies of it. Returns whether the caller sends the packet itself now.
pub(super) fn defer(
    flow: &Flow,
    fate: (&Fate, u64),
    packet: impl FnMut() -> DeferredPacket,
) -> bool {
    deferred_packets().is_none_or(|deferred| deferred.defer(flow, fate, packet))
}

/// Sends the packets that are due, and sets a deadline for the next one.
pub(crate) fn release_due(process: &Process) {
    if let Some(deferred) = deferred_packets() {
        deferred.release(process);
    }
}

/// A caller is about to sleep. Sends the packets that are due so soon that the thread might wake up
/// too late for them, unless messages arrive meanwhile. `poll_network` takes packets of the network
/// and returns how many.
pub(crate) fn release_before_sleep(process: &Process, poll_network: impl Fn() -> u32) {
    let Some(deferred) = deferred_packets() else { return };
    let until_ns = now_ns().saturating_add(LEAD_NS);
    while deferred.release(process).is_some_and(|next_ns| next_ns < until_ns)
        && process.poll_rings() + poll_network() == 0
        && now_ns() < until_ns
    {
        std::hint::spin_loop();
    }
}

/// A caller sleeps from now on, so the thread sends the packets that wait.
pub(crate) fn leave_to_thread() {
    if let Some(deferred) = deferred_packets()
        && deferred.waiting.lock().must_wake(true)
    {
        deferred.news.notify_one();
    }
}

/// What was counted of delayed packets.
pub(super) fn delay_counts() -> DelayCounts {
    deferred_packets().map_or(DelayCounts::default(), |deferred| deferred.lateness.counts())
}

impl DeferredPackets {
    fn defer(
        &self,
        flow: &Flow,
        (fate, decided_ns): (&Fate, u64),
        mut packet: impl FnMut() -> DeferredPacket,
    ) -> bool {
        let is_delayed = fate.behind == 0 && fate.delay_ns > 0;
        let due_ns = is_delayed.then(|| decided_ns.saturating_add(fate.delay_ns));
        let process = Process::existing();
        let mut waiting = self.waiting.lock();
        let before_ns = waiting.packets.next_ns();
        let is_busy = waiting.sending == Some(*flow);
        let deferral = waiting.packets.defer(flow, fate, decided_ns, is_busy, || {
            let packet = packet();
            (packet.bytes(), Held { due_ns, packet })
        });
        let next_ns = waiting.packets.next_ns();
        waiting.has_new = true;
        let must_wake = waiting.must_wake(process.is_some_and(callers_sleep));
        drop(waiting);
        self.overflowed.fetch_add(deferral.overflowed, Ordering::Relaxed);
        if must_wake {
            self.news.notify_one();
        }
        if let (Some(process), Some(next_ns)) = (process, next_ns)
            && (deferral.released || before_ns.is_none_or(|before_ns| next_ns < before_ns))
        {
            process.timers.deadline_ns.fetch_min(next_ns, Ordering::AcqRel);
        }
        deferral.sends_now
    }

    fn serve(&self) {
        rdmalab_ring::biased::be_guest();
        // SAFETY: takes a number, for this thread only. The default slack of 50 us is too coarse.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000) };
        loop {
            let mut waiting = self.waiting.lock();
            let has_news = std::mem::take(&mut waiting.has_new) || !waiting.packets.is_empty();
            let process = Process::existing().filter(|_| has_news);
            let now = now_ns();
            let (look_ns, first_ns) =
                process.map_or((u64::MAX, None), |process| waiting.look(process, now));
            if look_ns > now {
                waiting.next_look_ns = look_ns;
                match look_ns {
                    u64::MAX => self.news.wait(&mut waiting),
                    _ => {
                        let left = Duration::from_nanos(look_ns - now);
                        self.news.wait_for(&mut waiting, left);
                    }
                }
                waiting.next_look_ns = 0;
                continue;
            }
            drop(waiting);
            let is_early = first_ns.is_some_and(|first_ns| first_ns > now);
            // Another thread that sends may wait for this processor.
            if is_early || self.releasing.is_locked() {
                std::thread::yield_now();
                self.waiting.lock().watch.yielded(now, now_ns());
            } else if let Some(process) = process {
                self.release(process);
            }
        }
    }

    /// Sends the packets that are due. Returns the time when the next one is due, ns, which callers
    /// find as a deadline.
    fn release(&self, process: &Process) -> Option<u64> {
        let next_ns = self.send_due(process);
        if let Some(next_ns) = next_ns {
            process.timers.deadline_ns.fetch_min(next_ns, Ordering::AcqRel);
        }
        next_ns
    }

    fn send_due(&self, process: &Process) -> Option<u64> {
        let Some(_one) = self.releasing.try_lock() else { return Some(now_ns() + BUSY_AGAIN_NS) };
        // What becomes due meanwhile is for the next call, so that a full ring ends the loop.
        let now = now_ns();
        loop {
            let mut waiting = self.waiting.lock();
            let due = waiting.packets.take_due(now);
            waiting.sending = due.as_ref().map(|(flow, _)| *flow);
            let Some((flow, Held { due_ns, packet })) = due else {
                return waiting.packets.next_ns();
            };
            drop(waiting);
            // Counted before the receiver can have it.
            let left = &self.lateness.left;
            let delayed = u64::from(due_ns.is_some());
            left.fetch_add(delayed, Ordering::Relaxed);
            match send(process, packet) {
                None => {
                    let count = |due_ns| self.lateness.count(due_ns, now_ns());
                    let late_ns = due_ns.map_or(0, count);
                    if late_ns > GRACE_NS {
                        self.waiting.lock().was_overdue = true;
                    }
                }
                Some(packet) => {
                    left.fetch_sub(delayed, Ordering::Relaxed);
                    let (bytes, again_ns) = (packet.bytes(), now + FULL_AGAIN_NS);
                    let held = Held { due_ns, packet };
                    let packets = &mut self.waiting.lock().packets;
                    if packets.until(flow, again_ns, bytes, held).is_err() {
                        self.overflowed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// Sends the packets that still wait, for a limited time.
    fn close(&self, process: &Process) {
        let give_up_ns = now_ns() + EXIT_WAIT_NS;
        while let Some(next_ns) = self.release(process) {
            let now = now_ns();
            if now >= give_up_ns {
                break;
            }
            std::thread::sleep(Duration::from_nanos(next_ns.min(give_up_ns).saturating_sub(now)));
        }
        if let Some(faults) = process.hooks.and_then(|hooks| hooks.faults) {
            faults.report();
        }
        let counts = self.lateness.counts();
        if counts.left > 0 {
            crate::debug(&counts.to_string());
        }
        let overflowed = self.overflowed.load(Ordering::Relaxed);
        if overflowed > 0 {
            crate::debug(&format!(
                "{overflowed} packets were lost beyond what the faults ask for: too many waited"
            ));
        }
    }
}

/// Sends a deferred packet; returns it if there is no room.
fn send(process: &Process, packet: DeferredPacket) -> Option<DeferredPacket> {
    match &packet {
        DeferredPacket::Ring { peer, train, service, payload } => {
            if peer.is_unreachable() {
                return None;
            }
            let mut out = peer.out.lock();
            if room_in(&mut out, PACKET_BYTES, 1 + ANSWER_SLOTS).is_none() {
                drop(out);
                return peer.check_ring(crate::clock::now_ns()).then_some(packet);
            }
            push(&mut out, train, *service, |to| {
                // SAFETY: the ring has room for the payload of the train, which is ours.
                unsafe { copy::copy(to, payload.as_ptr(), payload.len()) }
                    .map_err(|_| rdmalab_engine::qp::CopyError::Fault)
            });
            drop(out);
            peer.ring_bell();
        }
        DeferredPacket::Network { route, packet, intact } => {
            if let Some(network) = process.network() {
                network.send_deferred(route, packet, *intact);
            }
        }
    }
    None
}

extern "C" fn at_exit() {
    if let (Some(deferred), Some(process)) = (deferred_packets(), Process::existing()) {
        deferred.close(process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_later_than_it_may_is_late() {
        let lateness = Lateness::default();
        for (now_ns, late_ns) in [(999, 0), (1_000, 0), (1_000 + LATE_NS, LATE_NS)] {
            assert_eq!(lateness.count(1_000, now_ns), late_ns);
        }
        let before = lateness.counts();
        assert_eq!((before.late, before.late_ns), (0, 0));
        lateness.count(1_000, 1_001 + LATE_NS);
        lateness.count(1_000, 3_001 + LATE_NS);
        let late = lateness.counts().since(&before);
        assert_eq!((late.late, late.late_ns), (2, 2_002 + 2 * LATE_NS));
    }
}
