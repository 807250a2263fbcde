//! Progress: receiving, retries and timers. Threads inside a verb make progress; if there is none,
//! the progress thread does.

use std::sync::atomic::Ordering;

use rdmalab_driver::Step;
use rdmalab_ring::spsc::{Consumer, Slot};
use rdmalab_wire::ids::Qpn;

use crate::codec::{self, SlotPayload};
use crate::hooks::{Hooks, deferred};
use crate::layout;
use crate::multicast::deliver_multicast;
use crate::process::Process;
use crate::qp::{Arrived, LockedQp, QpInner, QpObject, finish};
use crate::udp::{SocketState, UdpIo, take_forwarded};

/// Slots that one call takes from one ring at most, so that no peer delays the others.
const SLOTS_PER_CALL: u32 = 64;
/// A caller reads the clock once in this many calls, less one.
const TICK_MASK: u64 = 255;
/// How often callers check the timers, ns.
const TICK_NS: u64 = 1_000_000;
/// How many slots ahead a receiver prefetches while messages stream.
const PREFETCH_SLOTS: u64 = 4;

impl Process {
    /// Makes progress in a thread that is inside a verb.
    #[inline]
    pub(crate) fn caller_progress(&self) -> u32 {
        if self.progress_thread.note_caller() & TICK_MASK == 0 {
            self.tick_if_due();
        }
        if self.host.wakeup.doorbell.is_armed() && !self.progress_thread.keeps_doorbell_armed() {
            self.take_over_from_progress_thread();
        }
        let mut done = self.poll_rings();
        if done == 0 {
            done = match UdpIo::of(self) {
                Some(udp) => self.poll_network(udp),
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

    /// Polls the network after the rings were empty, and then the rings again: the system call took
    /// longer than any pause. If another process reads the socket, there is no system call.
    fn poll_network(&self, udp: UdpIo<'_>) -> u32 {
        match udp.poll() {
            None => self.poll_rings_again(),
            Some(0) => self.poll_rings(),
            Some(done) => done,
        }
    }

    /// Polls the rings again after a pause. This costs less than another call, and a pausing
    /// processor gets the cache line sooner: 31-45 ns against 58-61 ns.
    #[inline]
    fn poll_rings_again(&self) -> u32 {
        std::hint::spin_loop();
        self.poll_rings()
    }

    /// Checks the timers if that is due. Active callers do this instead of the progress thread.
    #[cold]
    pub(crate) fn tick_if_due(&self) {
        let now_ns = crate::clock::now_ns();
        if now_ns >= self.timers.next_tick_ns.load(Ordering::Relaxed) {
            self.timers.next_tick_ns.store(now_ns + TICK_NS, Ordering::Relaxed);
            self.tick(now_ns);
        }
    }

    /// Callers are active again: disarms the doorbell, so that peers need not signal each message,
    /// and tells the progress thread.
    #[cold]
    fn take_over_from_progress_thread(&self) {
        self.host.wakeup.doorbell.disarm();
        self.progress_thread.wake();
    }

    /// Takes trains from the rings. Returns how many.
    #[inline]
    pub(crate) fn poll_rings(&self) -> u32 {
        let mut done = 0;
        for inbound in self.host.peers.inbound() {
            if inbound.from == self.host.slot
                && !self.host.peers.has_self_traffic.load(Ordering::Acquire)
            {
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

    fn drain(&self, consumer: &mut Consumer, from: u16) -> u32 {
        let mut current: LockedQp = None;
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
            match current.as_mut().and_then(|(_, guard)| guard.as_mut()) {
                Some(inner) if inner.qp.qpn == qpn => {
                    if !inner.take_single(&slot, from) && !inner.take_plain_ack(&slot, from) {
                        self.handle_slot(inner, consumer, &slot, from);
                    }
                }
                _ => {
                    finish(current.take());
                    self.take_unaddressed(consumer, &slot, from);
                }
            }
            consumer.advance();
            done += 1;
            if done == SLOTS_PER_CALL {
                break;
            }
        }
        finish(current);
        done
    }

    /// Handles a slot for no queue pair: a datagram for a multicast group, a packet that another
    /// process read and forwarded, or nonsense.
    #[cold]
    fn take_unaddressed(&self, consumer: &mut Consumer, slot: &Slot, from: u16) {
        match codec::destination(slot.head) {
            Qpn::MULTICAST => deliver_multicast(self, consumer, slot.head, &slot.body),
            qpn if qpn.get() == 0 => take_forwarded(self, consumer, slot, from),
            _ => self.counters.count_dropped(),
        }
        release(consumer, slot.head, data_end(slot));
    }

    /// Handles one slot, and releases its data. Not inlined, to keep the loop over small SENDs
    /// fast.
    #[inline(never)]
    fn handle_slot(&self, inner: &mut QpInner, consumer: &mut Consumer, slot: &Slot, from: u16) {
        let is_taken = match codec::is_send(slot.head) {
            true => inner.take_single_or_shared(consumer, slot, from),
            false => inner.links.short_tap.is_some() && inner.take_tapped_ack(slot, from),
        };
        if is_taken {
            return;
        }
        let end = self.take_slot(inner, consumer, slot, from);
        release(consumer, slot.head, end);
    }

    /// Handles one slot; returns where its data ends.
    #[inline(always)]
    fn take_slot(
        &self,
        inner: &mut QpInner,
        consumer: &Consumer,
        slot: &Slot,
        from: u16,
    ) -> Option<u64> {
        // A packet of another service is dropped silently (IBA vol. 1, 9.6.1.3).
        let is_ours = codec::is_of(slot.head, inner.links.service);
        let decoded = if is_ours { codec::decode(slot.head, &slot.body) } else { None };
        let Some((train, payload)) = decoded else {
            self.counters.count_dropped();
            return data_end(slot);
        };
        let (bytes, end) = match payload {
            SlotPayload::Short => ((&raw const slot.body[3]).cast(), None),
            SlotPayload::Data(position) => {
                let length = train.payload_bytes as usize;
                match consumer.data(position, length) {
                    Some(bytes) => (bytes, Some(position.wrapping_add(length as u64))),
                    None => {
                        self.counters.count_dropped();
                        return None;
                    }
                }
            }
        };
        // A connected QP accepts packets from its peer only (IBA vol. 1, 9.6.1).
        let expected = inner.links.is_datagram()
            || train.src_qpn == inner.qp.remote_qpn
                && layout::process_of(train.src_qpn) == from
                && inner.links.route.is_none();
        if expected {
            // The engine does not get packets that quirks drop or answer.
            if inner.links.hooks.is_none() || inner.ring_arrival(&train, bytes) {
                // SAFETY: decoding made sure that a short payload is in the slot; `data` made sure
                // that a longer one is in the data area, in a mapping that cannot shrink.
                inner.take(&train, unsafe { Arrived::new(bytes) });
            }
        } else {
            self.counters.count_dropped();
        }
        end
    }

    /// Called after a poll that found its CQ empty and took `done` trains. Yields the processor
    /// after many empty polls in a row.
    #[inline]
    pub(crate) fn idle_poll(&self, done: u32) {
        let progress_thread = &self.progress_thread;
        match done {
            0 => progress_thread.idle_yield.note_empty(|| progress_thread.calls()),
            _ => progress_thread.idle_yield.note_success(),
        }
    }

    /// Tries again to send for the QPs that found a full ring.
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
                    // A dead process never empties its ring, and a damaged one stays full. Without
                    // a peer, requests are lost, so that the QP's own time-outs run out.
                    inner.links.peer =
                        inner.links.peer.take().filter(|peer| !peer.is_unreachable());
                    if inner.transmit() == Step::Idle {
                        sent += 1;
                    }
                }
                None => self.block(object),
            }
        }
        sent
    }

    /// Checks the timers if the deadline that a thread set has passed.
    #[cold]
    fn check_deadline(&self) {
        let now_ns = crate::clock::now_ns();
        if now_ns >= self.timers.deadline_ns.load(Ordering::Relaxed) {
            self.tick(now_ns);
        }
    }

    /// Checks every timer. Returns when to check again, ns.
    pub(crate) fn tick(&self, now_ns: u64) -> Option<u64> {
        // Another thread is checking and holds the list, so the next due time is not known here.
        let Some(_ticking) = self.timers.tick_lock.try_lock() else {
            return Some(now_ns + TICK_NS);
        };
        // Reset both before taking the list, so that a QP that is added later is not forgotten.
        self.timers.changed.store(false, Ordering::Relaxed);
        if now_ns >= self.timers.deadline_ns.load(Ordering::Relaxed) {
            self.timers.deadline_ns.store(u64::MAX, Ordering::Release);
        }
        if self.hooks.is_some() {
            deferred::release_due(self);
        }
        self.let_pages_come(now_ns);
        self.check_rings(now_ns);
        let watched = std::mem::take(&mut *self.timers.watched.lock());
        let mut keep = Vec::with_capacity(watched.len());
        let mut next_ns: Option<u64> = None;
        for object in watched.into_iter().filter_map(|index| self.qps.at(index as usize)) {
            if let Some(at_ns) = self.tick_one(object, now_ns) {
                next_ns = Some(next_ns.map_or(at_ns, |next_ns| next_ns.min(at_ns)));
                keep.push(object.index);
            }
        }
        self.timers.watched.lock().append(&mut keep);
        next_ns
    }

    /// Lets pages of on-demand regions come that are due, and tells the queue pairs that wait for
    /// some. The caller holds no lock of a queue pair.
    pub(crate) fn let_pages_come(&self, now_ns: u64) {
        self.paging.let_pages_come(now_ns, self.alarm(), |index, news| {
            self.qps.at(index as usize).is_none_or(|object| object.tell_of_pages(news))
        });
    }

    /// Finds damaged rings: those that this process reads, and, if a QP waits for room, those that
    /// it fills.
    fn check_rings(&self, now_ns: u64) {
        self.host.peers.inbound().iter().for_each(|inbound| inbound.close_if_damaged());
        if self.blocked.any.load(Ordering::Relaxed) {
            for peer in self.host.peers.known() {
                peer.check_ring(now_ns);
            }
        }
    }

    /// Checks the timer of one QP. Returns when to check it again, ns; `None` if none runs.
    fn tick_one(&self, object: &'static QpObject, now_ns: u64) -> Option<u64> {
        // Another thread works on this QP: check again soon.
        let soon = Some(now_ns + TICK_NS);
        let Some(mut guard) = object.inner.try_lock() else { return soon };
        if let Some(inner) = guard.as_ref().filter(|inner| inner.ack_is_due(now_ns)) {
            let is_remote = inner.links.route.is_some();
            // A fault rule may delay the answer. Then wait as long as on a network.
            let may_be_late =
                is_remote || (self.hooks.is_some_and(Hooks::cuts_trains) && inner.peer_alive());
            if may_be_late && now_ns < inner.retransmit_at_ns() {
                return Some(inner.retransmit_at_ns());
            }
            // The answer may have arrived long ago without being read.
            drop(guard);
            self.poll_rings();
            let udp = UdpIo::of(self).filter(|_| is_remote);
            let left = udp.map_or(SocketState::Empty, UdpIo::drain);
            let Some(again) = object.inner.try_lock() else { return soon };
            guard = again;
            if left == SocketState::MayHoldMore
                && guard.as_ref().is_some_and(|inner| inner.may_postpone_timeout(now_ns))
            {
                return soon;
            }
        }
        // An idle QP leaves the list under its lock, so that the next timer adds it again.
        let Some(inner) = guard.as_mut() else {
            object.in_timers.store(false, Ordering::Release);
            return None;
        };
        let by_ring = inner.links.route.is_none();
        if by_ring
            && inner.ack_is_due(now_ns)
            && self.host.peers.ring_may_hold_messages(inner.remote_process())
        {
            return soon;
        }
        if let Some(kind) = inner.due_timer(now_ns) {
            inner.handle_timer(kind, now_ns);
        }
        let next_ns = inner.arm_timer();
        if next_ns.is_none() {
            object.in_timers.store(false, Ordering::Release);
        }
        next_ns
    }
}

/// Releases the data of a slot, which ends at `end`.
#[inline(always)]
pub(crate) fn release(consumer: &mut Consumer, head: u32, end: Option<u64>) {
    let is_released = match end {
        Some(end) => consumer.release_data(end),
        None => !codec::has_data(head),
    };
    if !is_released {
        // Only a damaged slot says so. Its data is never released, so the ring could stay full.
        consumer.set_closed();
    }
}

/// The end of the data of a slot that was not handled.
fn data_end(slot: &Slot) -> Option<u64> {
    match codec::decode(slot.head, &slot.body) {
        Some((train, SlotPayload::Data(position))) => {
            Some(position.wrapping_add(train.payload_bytes as u64))
        }
        _ => None,
    }
}
