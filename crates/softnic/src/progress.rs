//! Receiving, and everything else that moves things on: whoever is inside a verb does it, and the
//! progress thread when nobody is.

use std::sync::atomic::Ordering;

use rdmalab_driver::Step;
use rdmalab_engine::qp::{Timer, TimerKind};
use rdmalab_ring::spsc::{Consumer, Slot};
use rdmalab_wire::ids::Qpn;

use crate::codec::{self, Body, SlotPayload};
use crate::layout;
use crate::process::Process;
use crate::qp::{Arrived, QpInner, QpObject};
use crate::udp::{Network, SocketState};
use rdmalab_ring::biased::BiasedGuard;

/// Slots that one call takes from one ring, so that a flood from one peer keeps nobody waiting.
const SLOTS_PER_CALL: u32 = 64;
/// A caller reads the clock at one of so many entries, less one.
const TICK_MASK: u64 = 255;
/// How often callers look at the timers, ns.
const TICK_NS: u64 = 1_000_000;
/// How many slots ahead a receiver reads while messages stream.
const PREFETCH_SLOTS: u64 = 4;
/// How long the driver waits before it looks whether a silent peer is dead, when the QP has no
/// time-out of its own, ns.
const SILENCE_NS: u64 = 30_000_000_000;

impl Process {
    /// Progress by a thread that is inside a verb.
    #[inline]
    pub(crate) fn caller_progress(&self) -> u32 {
        if self.progress_thread.note_caller() & TICK_MASK == 0 {
            self.tick_if_due();
        }
        if self.wakeup.doorbell.is_armed() && !self.progress_thread.keeps_doorbell_armed() {
            self.take_over_from_progress_thread();
        }
        let mut done = self.poll_rings();
        if done == 0 {
            done = match self.network() {
                Some(network) => self.poll_network(network),
                None => self.poll_rings_again(),
            };
        }
        if self.blocked.any.load(Ordering::Relaxed) {
            self.retry_blocked();
        }
        if self.timers.deadline_ns.load(Ordering::Relaxed) != u64::MAX {
            self.check_deadline();
        }
        done
    }

    /// A caller that found the rings empty looks at the network, and then at the rings again: the
    /// system call took longer than any pause. Where another process reads the socket, there is no
    /// call.
    fn poll_network(&self, network: &Network) -> u32 {
        if network.fd_to_poll() < 0 {
            return self.poll_rings_again();
        }
        network.note_caller();
        let done = self.read_network_as_caller();
        if done == 0 {
            // No answer stands before it now.
            self.send_delayed_ack();
            return self.poll_rings();
        }
        network.note_taken(done);
        done
    }

    /// A second look at the rings after a pause costs less than another call, and a processor that
    /// pauses gets the line sooner: measured, 31-45 ns against 58-61 ns.
    #[inline]
    fn poll_rings_again(&self) -> u32 {
        std::hint::spin_loop();
        self.poll_rings()
    }

    /// Looks at the timers, if that was not done lately: while callers are active, they do it.
    #[cold]
    pub(crate) fn tick_if_due(&self) {
        let now_ns = crate::clock::now_ns();
        if now_ns >= self.timers.next_tick_ns.load(Ordering::Relaxed) {
            self.timers.next_tick_ns.store(now_ns + TICK_NS, Ordering::Relaxed);
            self.tick(now_ns);
        }
    }

    /// The progress thread sleeps and is signalled for every message: tell it that callers are
    /// awake.
    #[cold]
    fn take_over_from_progress_thread(&self) {
        self.wakeup.doorbell.disarm();
        self.progress_thread.wake();
    }

    /// Takes what peers sent. Returns how many trains.
    #[inline]
    pub(crate) fn poll_rings(&self) -> u32 {
        let mut done = 0;
        for inbound in self.peers.inbound() {
            if inbound.from == self.slot && !self.peers.has_self_traffic.load(Ordering::Acquire) {
                continue;
            }
            let Some(mut ring) = inbound.ring.try_lock() else { continue };
            let Some(ring) = ring.as_mut() else { continue };
            if ring.consumer.is_empty() {
                ring.consumer.publish();
                continue;
            }
            done += self.drain(&mut ring.consumer, inbound.from);
        }
        done
    }

    /// Whether any ring holds something, or may: somebody is at it.
    pub(crate) fn rings_may_hold_messages(&self) -> bool {
        self.peers.inbound().iter().any(|inbound| inbound.may_hold_messages())
    }

    /// Whether a thread is at one of the rings. One that lost its processor is for long.
    pub(crate) fn a_ring_is_being_read(&self) -> bool {
        self.peers.inbound().iter().any(|inbound| inbound.is_being_read())
    }

    /// The same for what one process sent.
    pub(crate) fn ring_may_hold_messages(&self, from: u16) -> bool {
        self.peers
            .inbound()
            .iter()
            .any(|inbound| inbound.from == from && inbound.may_hold_messages())
    }

    fn drain(&self, consumer: &mut Consumer, from: u16) -> u32 {
        let mut current: Option<(usize, BiasedGuard<'static, Option<QpInner>>)> = None;
        let mut done = 0;
        while let Some(slot) = consumer.peek() {
            if done > 0 {
                consumer.prefetch(PREFETCH_SLOTS);
            }
            let qpn = codec::destination(slot.head);
            let index = layout::index_of(qpn);
            if current.as_ref().is_none_or(|(held, _)| *held != index) {
                finish(current.take());
                current = self.qps.at(index).map(|object| (index, object.inner.lock()));
            }
            let release_to = match current.as_mut().and_then(|(_, guard)| guard.as_mut()) {
                Some(inner) if inner.qp.qpn == qpn => match inner.take_single(&slot, from) {
                    true => None,
                    false => self.handle_slot(inner, consumer, &slot, from),
                },
                _ if qpn == Qpn::MULTICAST => {
                    finish(current.take());
                    self.deliver_multicast(consumer, slot.head, &slot.body);
                    data_end(&slot)
                }
                _ => {
                    finish(current.take());
                    self.take_unaddressed(consumer, &slot, from)
                }
            };
            consumer.advance();
            if let Some(end) = release_to {
                consumer.release_data(end);
            }
            done += 1;
            if done == SLOTS_PER_CALL {
                break;
            }
        }
        finish(current);
        done
    }

    /// A slot for no queue pair: a packet that another process read for us, or nothing of use.
    #[cold]
    fn take_unaddressed(&self, consumer: &Consumer, slot: &Slot, from: u16) -> Option<u64> {
        match codec::destination(slot.head).get() {
            0 => self.take_forwarded(consumer, slot, from),
            _ => drop(self.dropped.fetch_add(1, Ordering::Relaxed)),
        }
        data_end(slot)
    }

    /// Handles one slot; returns up to where data area is free now.
    #[inline(never)]
    fn handle_slot(
        &self,
        inner: &mut QpInner,
        consumer: &Consumer,
        slot: &Slot,
        from: u16,
    ) -> Option<u64> {
        let is_datagram = inner.links.datagram;
        let Some((train, payload)) = codec::decode(slot.head, &slot.body, is_datagram) else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return data_end(slot);
        };
        let (bytes, end) = match payload {
            SlotPayload::Short => ((&raw const slot.body[3]).cast(), None),
            SlotPayload::Data(position) => {
                let length = train.payload_bytes as usize;
                match consumer.data(position, length) {
                    Some(bytes) => (bytes, Some(position.wrapping_add(length as u64))),
                    None => {
                        self.dropped.fetch_add(1, Ordering::Relaxed);
                        return None;
                    }
                }
            }
        };
        // A connected QP hears its peer only (IBA vol. 1, 9.6.1).
        let expected = is_datagram
            || train.src_qpn == inner.qp.remote_qpn
                && layout::process_of(train.src_qpn) == from
                && inner.links.route.is_none();
        if expected {
            // What quirks drop or answer is not the engine's.
            if inner.links.hooks.is_none() || inner.ring_arrival(&train, bytes) {
                // SAFETY: decoding made sure that a slot holds its payload, and `data` that so many
                // bytes lie there, in a mapping that cannot shrink.
                inner.take(&train, unsafe { Arrived::new(bytes) });
            }
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        end
    }

    /// After a poll that found its CQ empty: `done` trains were taken meanwhile. A caller that
    /// spins on one processor, or for long, lets others run.
    #[inline]
    pub(crate) fn idle_poll(&self, done: u32) {
        if done > 0 {
            self.progress_thread.empty_polls.store(0, Ordering::Relaxed);
            return;
        }
        let empty = self.progress_thread.empty_polls.load(Ordering::Relaxed).wrapping_add(1);
        self.progress_thread.empty_polls.store(empty, Ordering::Relaxed);
        if empty & self.progress_thread.yield_mask == 0 {
            std::thread::yield_now();
        }
    }

    /// Tries again to send what found a full ring.
    #[cold]
    pub(crate) fn retry_blocked(&self) -> u32 {
        let mut sent = 0;
        for object in
            self.blocked.take().into_iter().filter_map(|index| self.qps.at(index as usize))
        {
            object.in_blocked.store(false, Ordering::Release);
            match object.inner.try_lock() {
                Some(mut guard) => {
                    let Some(inner) = guard.as_mut() else { continue };
                    // The dead never empty their ring: what is sent now is lost, so that the QP's
                    // own time-outs run out.
                    inner.links.peer = inner.links.peer.take().filter(|peer| !peer.known_dead());
                    if inner.transmit() == Step::Idle {
                        sent += 1;
                    }
                }
                None => self.block(object),
            }
        }
        sent
    }

    /// A deadline that somebody set may have passed.
    #[cold]
    fn check_deadline(&self) {
        let now_ns = crate::clock::now_ns();
        if now_ns >= self.timers.deadline_ns.load(Ordering::Relaxed) {
            self.tick(now_ns);
        }
    }

    /// Looks at every timer. Returns when to look again, ns.
    pub(crate) fn tick(&self, now_ns: u64) -> Option<u64> {
        // Another thread that looks holds the list: what is due next is not known here.
        let Some(_ticking) = self.timers.tick_lock.try_lock() else {
            return Some(now_ns + TICK_NS);
        };
        // Both before the list is taken, so that who comes later is not forgotten.
        self.timers.changed.store(false, Ordering::Relaxed);
        if now_ns >= self.timers.deadline_ns.load(Ordering::Relaxed) {
            self.timers.deadline_ns.store(u64::MAX, Ordering::Release);
        }
        self.release_deferred(now_ns);
        let watched = std::mem::take(&mut *self.timers.watched.lock());
        let mut keep = Vec::with_capacity(watched.len());
        let mut next_ns: Option<u64> = None;
        for object in watched.into_iter().filter_map(|index| self.qps.at(index as usize)) {
            match self.tick_one(object, now_ns) {
                Look::Idle => {}
                Look::At(at_ns) => {
                    next_ns = Some(next_ns.map_or(at_ns, |next_ns| next_ns.min(at_ns)));
                    keep.push(object.index);
                }
            }
        }
        self.timers.watched.lock().append(&mut keep);
        next_ns
    }

    fn tick_one(&self, object: &'static QpObject, now_ns: u64) -> Look {
        // Somebody works on it: look again soon.
        let soon = Look::At(now_ns + TICK_NS);
        let Some(mut guard) = object.inner.try_lock() else { return soon };
        if let Some(inner) = guard.as_ref().filter(|inner| inner.ack_is_due(now_ns)) {
            let is_remote = inner.links.route.is_some();
            // A rule that makes an answer late leaves it to a thread of the peer, as networks do.
            let may_be_late = is_remote || (self.has_faults() && inner.peer_alive());
            if may_be_late && now_ns < inner.retransmit_at_ns() {
                return Look::At(inner.retransmit_at_ns());
            }
            // The peer may have answered long ago, and nobody looked.
            drop(guard);
            self.poll_rings();
            let left = if is_remote { self.drain_network() } else { SocketState::Empty };
            let Some(again) = object.inner.try_lock() else { return soon };
            guard = again;
            if left == SocketState::MayHoldMore
                && guard.as_ref().is_some_and(|inner| inner.may_postpone_timeout(now_ns))
            {
                return soon;
            }
        }
        // An idle QP leaves the list while its lock is held, so that whoever wants the next timer
        // puts it there again.
        let Some(inner) = guard.as_mut() else {
            object.in_timers.store(false, Ordering::Release);
            return Look::Idle;
        };
        let by_ring = inner.links.route.is_none();
        if by_ring
            && inner.ack_is_due(now_ns)
            && self.ring_may_hold_messages(inner.remote_process())
        {
            return soon;
        }
        if let Timer::At(kind, at_ns) = inner.qp.timer()
            && now_ns >= at_ns
        {
            inner.handle_timer(kind, now_ns);
        }
        // Now: since the look began this thread may have been away for longer than a time-out, and
        // the next one would be judged at once.
        inner.qp.arm_timer(crate::clock::now_ns(), SILENCE_NS);
        match inner.qp.timer() {
            Timer::At(kind, at_ns) => {
                if let TimerKind::Rnr(_) = kind {
                    self.set_deadline(at_ns);
                }
                Look::At(at_ns)
            }
            _ => {
                object.in_timers.store(false, Ordering::Release);
                Look::Idle
            }
        }
    }
}

/// What a look at a timer found.
enum Look {
    Idle,
    At(u64),
}

/// Sends what the trains of this batch gave rise to, and lets go of the QP.
#[inline]
pub(crate) fn finish(current: Option<(usize, BiasedGuard<'static, Option<QpInner>>)>) {
    if let Some((_, mut guard)) = current
        && let Some(inner) = guard.as_mut()
    {
        inner.transmit();
    }
}

/// Where the data of a slot that nobody wants ends.
fn data_end(slot: &Slot) -> Option<u64> {
    let body: &Body = &slot.body;
    let is_datagram = codec::destination(slot.head) == Qpn::MULTICAST;
    match codec::decode(slot.head, body, is_datagram) {
        Some((train, SlotPayload::Data(position))) => {
            Some(position.wrapping_add(train.payload_bytes as u64))
        }
        _ => None,
    }
}
