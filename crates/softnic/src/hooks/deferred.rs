//! The packets that a fault rule delays.
//!
//! Callers inside verbs send the packets that are due, whenever they make progress. If no caller
//! comes, a thread sends them. It waits a little longer than a caller, because waking it would take
//! the processor from the caller. Packets that still wait when the process exits are sent then.

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

use crate::clock::now_ns;
use crate::copy;
use crate::error::os_error;
use crate::peer::Peer;
use crate::process::Process;
use crate::ring_push::{ANSWER_SLOTS, push, room_in};
use crate::signals::{block_signals, restore_signals};
use crate::udp::socket::Route;

/// How long callers have to send a due packet before the thread does, ns.
const GRACE_NS: u64 = 20_000;
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
    packets: Deferred<DeferredPacket>,
    /// The flow of the packet that is being sent now.
    sending: Option<Flow>,
}

/// The deferred packets of this process.
#[derive(Default)]
struct DeferredPackets {
    waiting: Mutex<Waiting>,
    news: Condvar,
    /// Held by the thread that sends due packets, so that they leave in order.
    releasing: Mutex<()>,
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
pub(crate) fn release_due(process: &Process, now: u64) {
    if let Some(deferred) = deferred_packets()
        && let Some(next_ns) = deferred.release(process, now)
    {
        process.alarm().set(next_ns);
    }
}

impl DeferredPackets {
    fn defer(
        &self,
        flow: &Flow,
        (fate, decided_ns): (&Fate, u64),
        mut packet: impl FnMut() -> DeferredPacket,
    ) -> bool {
        let mut waiting = self.waiting.lock();
        let before_ns = waiting.packets.next_ns();
        let is_busy = waiting.sending == Some(*flow);
        let deferral = waiting.packets.defer(flow, fate, decided_ns, is_busy, || {
            let packet = packet();
            (packet.bytes(), packet)
        });
        let next_ns = waiting.packets.next_ns();
        drop(waiting);
        self.overflowed.fetch_add(deferral.overflowed, Ordering::Relaxed);
        if let Some(next_ns) = next_ns
            && (deferral.released || before_ns.is_none_or(|before_ns| next_ns < before_ns))
        {
            self.news.notify_one();
            if let Some(process) = Process::existing() {
                process.alarm().set(next_ns);
            }
        }
        deferral.sends_now
    }

    fn serve(&self) {
        rdmalab_ring::biased::be_guest();
        // SAFETY: takes a number, for this thread only. The default slack of 50 us is too coarse.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000) };
        loop {
            let mut waiting = self.waiting.lock();
            let Some(next_ns) = waiting.packets.next_ns() else {
                self.news.wait(&mut waiting);
                continue;
            };
            let left_ns = next_ns.saturating_add(GRACE_NS).saturating_sub(now_ns());
            if left_ns > 0 {
                self.news.wait_for(&mut waiting, Duration::from_nanos(left_ns));
                continue;
            }
            drop(waiting);
            match Process::existing() {
                Some(process) => drop(self.release(process, now_ns())),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Sends the packets that are due. Returns the time when the next one is due, ns.
    fn release(&self, process: &Process, now: u64) -> Option<u64> {
        let Some(_one) = self.releasing.try_lock() else { return Some(now + GRACE_NS) };
        loop {
            let mut waiting = self.waiting.lock();
            let due = waiting.packets.take_due(now);
            waiting.sending = due.as_ref().map(|(flow, _)| *flow);
            let Some((flow, packet)) = due else { return waiting.packets.next_ns() };
            drop(waiting);
            if let Some(packet) = send(process, packet) {
                let mut waiting = self.waiting.lock();
                let bytes = packet.bytes();
                if waiting.packets.until(flow, now + FULL_AGAIN_NS, bytes, packet).is_err() {
                    self.overflowed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Sends the packets that still wait, for a limited time.
    fn close(&self, process: &Process) {
        let give_up_ns = now_ns() + EXIT_WAIT_NS;
        while let Some(next_ns) = self.release(process, now_ns()) {
            let now = now_ns();
            if now >= give_up_ns {
                break;
            }
            std::thread::sleep(Duration::from_nanos(next_ns.min(give_up_ns).saturating_sub(now)));
        }
        if let Some(faults) = process.hooks.and_then(|hooks| hooks.faults) {
            faults.report();
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
