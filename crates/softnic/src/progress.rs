//! Receiving, and everything else that moves things on: whoever is inside a verb does it, and the
//! helper when nobody is.

use std::sync::atomic::Ordering;

use rdmalab_engine::qp::GRH_BYTES;
use rdmalab_engine::qp::{
    Accept, AtomicJob, AtomicOp, CopyError, Placement, PlacementTarget, ResponsePlacement, Timer,
    TimerKind,
};
use rdmalab_engine::train::{Train, TrainFlags};
use rdmalab_ring::spsc::{Consumer, Slot};
use rdmalab_wire::ids::Qpn;

use crate::codec::{self, Body, SlotPayload};
use crate::copy;
use crate::layout;
use crate::process::Process;
use crate::qp::{QpInner, QpObject};
use crate::transmit::{Sent, scatter};
use crate::udp::{Left, Wire, patience};
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
        if self.helper.note_caller() & TICK_MASK == 0 {
            self.tick_if_due();
        }
        if self.doorbell.is_armed() && !self.helper.wants_bell_armed() {
            self.take_over_from_helper();
        }
        let mut done = self.take_from_rings();
        if done == 0 {
            done = match self.wire() {
                Some(wire) => self.look_at_wire(wire),
                None => self.look_again(),
            };
        }
        if self.any_blocked.load(Ordering::Relaxed) {
            self.retry_blocked();
        }
        if self.attention_at_ns.load(Ordering::Relaxed) != u64::MAX {
            self.attend();
        }
        done
    }

    /// A caller that found the rings empty looks at the network, and then at the rings again: the
    /// system call took longer than any pause. Where another process reads the socket, there is no
    /// call.
    fn look_at_wire(&self, wire: &Wire) -> u32 {
        if wire.fd_to_poll() < 0 {
            return self.look_again();
        }
        wire.note_caller();
        let done = self.take_from_wire_as_caller();
        if done == 0 {
            // No answer stands before it now.
            self.pay_debt();
            return self.take_from_rings();
        }
        wire.note_taken(done);
        done
    }

    /// A second look at the rings after a pause costs less than another call, and a processor that
    /// pauses gets the line sooner: measured, 31-45 ns against 58-61 ns.
    #[inline]
    fn look_again(&self) -> u32 {
        std::hint::spin_loop();
        self.take_from_rings()
    }

    /// Looks at the timers, if that was not done lately: while callers are active, they do it.
    #[cold]
    pub(crate) fn tick_if_due(&self) {
        let now_ns = crate::clock::now_ns();
        if now_ns >= self.tick_at_ns.load(Ordering::Relaxed) {
            self.tick_at_ns.store(now_ns + TICK_NS, Ordering::Relaxed);
            self.tick(now_ns);
        }
    }

    /// The helper sleeps and is signalled for every message: tell it that callers are awake.
    #[cold]
    fn take_over_from_helper(&self) {
        self.doorbell.disarm();
        self.helper.wake();
    }

    /// Takes what peers sent. Returns how many trains.
    #[inline]
    pub(crate) fn take_from_rings(&self) -> u32 {
        let mut done = 0;
        for inbound in self.inbound() {
            if inbound.from == self.slot && !self.talks_to_itself.load(Ordering::Acquire) {
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
    pub(crate) fn rings_hold_something(&self) -> bool {
        self.inbound().iter().any(|inbound| inbound.may_hold_something())
    }

    /// Whether a thread is at one of the rings. One that lost its processor is for long.
    pub(crate) fn is_at_a_ring(&self) -> bool {
        self.inbound().iter().any(|inbound| inbound.is_being_read())
    }

    /// The same for what one process sent.
    pub(crate) fn ring_holds_something(&self, from: u16) -> bool {
        self.inbound().iter().any(|inbound| inbound.from == from && inbound.may_hold_something())
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
                current = self.qp_at(index).map(|object| (index, object.inner.lock()));
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
                    self.take_stray(consumer, &slot, from)
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
    fn take_stray(&self, consumer: &Consumer, slot: &Slot, from: u16) -> Option<u64> {
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
                && inner.links.wire.is_none();
        if expected {
            // What quirks drop or answer is not the engine's.
            if inner.links.armed.is_none() || inner.ring_arrival(&train, bytes) {
                inner.handle_train(&train, bytes);
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
            self.helper.empty_polls.store(0, Ordering::Relaxed);
            return;
        }
        let empty = self.helper.empty_polls.load(Ordering::Relaxed).wrapping_add(1);
        self.helper.empty_polls.store(empty, Ordering::Relaxed);
        if empty & self.helper.yield_mask == 0 {
            std::thread::yield_now();
        }
    }

    /// Tries again to send what found a full ring.
    #[cold]
    pub(crate) fn retry_blocked(&self) -> u32 {
        let mut sent = 0;
        for object in self.take_blocked() {
            object.in_blocked.store(false, Ordering::Release);
            match object.inner.try_lock() {
                Some(mut guard) => {
                    let Some(inner) = guard.as_mut() else { continue };
                    // The dead never empty their ring: what is sent now is lost, so that the QP's
                    // own time-outs run out.
                    inner.links.peer = inner.links.peer.take().filter(|peer| !peer.known_dead());
                    if inner.transmit() == Sent::Everything {
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
    fn attend(&self) {
        let now_ns = crate::clock::now_ns();
        if now_ns >= self.attention_at_ns.load(Ordering::Relaxed) {
            self.tick(now_ns);
        }
    }

    /// Looks at every timer. Returns when to look again, ns.
    pub(crate) fn tick(&self, now_ns: u64) -> Option<u64> {
        // Another thread that looks holds the list: what is due next is not known here.
        let Some(_ticking) = self.ticking.try_lock() else { return Some(now_ns + TICK_NS) };
        // Both before the list is taken, so that who comes later is not forgotten.
        self.timer_news.store(false, Ordering::Relaxed);
        if now_ns >= self.attention_at_ns.load(Ordering::Relaxed) {
            self.attention_at_ns.store(u64::MAX, Ordering::Release);
        }
        self.release_deferred(now_ns);
        let watched = std::mem::take(&mut *self.timers.lock());
        let mut keep = Vec::with_capacity(watched.len());
        let mut next_ns: Option<u64> = None;
        for object in watched {
            match self.tick_one(object, now_ns) {
                Look::Idle => {}
                Look::At(at_ns) => {
                    next_ns = Some(next_ns.map_or(at_ns, |next_ns| next_ns.min(at_ns)));
                    keep.push(object);
                }
            }
        }
        self.timers.lock().append(&mut keep);
        next_ns
    }

    fn tick_one(&self, object: &'static QpObject, now_ns: u64) -> Look {
        // Somebody works on it: look again soon.
        let soon = Look::At(now_ns + TICK_NS);
        let Some(mut guard) = object.inner.try_lock() else { return soon };
        if let Some(inner) = guard.as_ref().filter(|inner| inner.ack_is_due(now_ns)) {
            let by_wire = inner.links.wire.is_some();
            // A rule that makes an answer late leaves it to a thread of the peer, as networks do.
            let may_be_late = by_wire || (self.has_faults() && inner.peer_alive());
            if may_be_late && now_ns < inner.judged_at_ns() {
                return Look::At(inner.judged_at_ns());
            }
            // The peer may have answered long ago, and nobody looked.
            drop(guard);
            self.take_from_rings();
            let left = if by_wire { self.drain_wire() } else { Left::Nothing };
            let Some(again) = object.inner.try_lock() else { return soon };
            guard = again;
            if left == Left::Something
                && guard.as_ref().is_some_and(|inner| inner.may_put_off(now_ns))
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
        let by_ring = inner.links.wire.is_none();
        if by_ring && inner.ack_is_due(now_ns) && self.ring_holds_something(inner.remote_process())
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
                    self.want_attention_at(at_ns);
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

impl QpInner {
    fn ack_is_due(&self, now_ns: u64) -> bool {
        matches!(self.qp.timer(), Timer::At(TimerKind::Ack, at_ns) if now_ns >= at_ns)
    }

    /// When the time-out that passed is judged, over a network or what is made to be like one.
    fn judged_at_ns(&self) -> u64 {
        match self.qp.timer() {
            Timer::At(TimerKind::Ack, due_ns) if self.qp.attr.timeout > 0 => {
                let (period_ns, spent) = (self.qp.ack_period_ns(), self.qp.retries_spent());
                patience::judged_at_ns(due_ns, period_ns, spent)
            }
            _ => 0,
        }
    }

    /// Whether an ACK is overdue that may lie somewhere, and was not looked for too long.
    fn may_put_off(&self, now_ns: u64) -> bool {
        match self.qp.timer() {
            Timer::At(TimerKind::Ack, due_ns) if now_ns >= due_ns => {
                now_ns < patience::judged_at_last_ns(due_ns, self.qp.ack_period_ns())
            }
            _ => false,
        }
    }

    fn handle_timer(&mut self, kind: TimerKind, now_ns: u64) {
        if kind == TimerKind::Ack {
            let alive = self.peer_alive();
            if alive && (!self.carried() || self.qp.attr.timeout == 0) {
                // The request still lies in the ring, or the program wants no time-out: a peer
                // that is alive will come to it.
                return self.qp.postpone_timer();
            }
            if self.qp.attr.timeout == 0 {
                let status = rdmalab_engine::vocab::WcStatus::RetryExcErr;
                self.qp.fail_transport(status, &mut self.links);
                return self.settle();
            }
        }
        if let Some(armed) = self.links.armed {
            armed.timer_fired(self.qp.qpn, kind);
        }
        if self.qp.on_timer(now_ns, &mut self.links) {
            self.transmit();
        }
        self.settle();
    }

    /// What to do with a train from the ring, whose payload lies at `bytes`.
    #[inline]
    pub(crate) fn handle_train(&mut self, train: &Train, bytes: *const u8) {
        match self.qp.accept(train, &mut self.links) {
            Accept::Place(placement) => self.place(train, &placement, bytes),
            Accept::Done => {}
            Accept::PlaceResponse(placement) => self.place_response(&placement, bytes),
            Accept::Atomic(job) => self.execute_atomic(&job),
            // Posted means fetched here, so nothing stalls.
            Accept::Drop(_) | Accept::Stall => {
                self.links.process.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn place(&mut self, train: &Train, placement: &Placement, bytes: *const u8) {
        let from = bytes.wrapping_add(placement.skip_bytes as usize);
        let result = match placement.target {
            PlacementTarget::Nothing => Ok(()),
            PlacementTarget::Receive { offset } => {
                self.place_receive(train, placement, offset, from)
            }
            PlacementTarget::Memory { host_addr, .. } => {
                // SAFETY: the engine checked the target against its region just now, which cannot
                // go away while we hold the QP's lock; the copy survives memory that is not there.
                unsafe { copy::copy(host_addr as *mut u8, from, placement.bytes as usize) }
                    .map_err(|_| CopyError::Fault)
            }
        };
        self.qp.retire_request(train, placement, result, &mut self.links);
    }

    #[inline]
    fn place_receive(
        &mut self,
        train: &Train,
        placement: &Placement,
        offset: u64,
        from: *const u8,
    ) -> Result<(), CopyError> {
        let (links, pd, sges) = (&self.links, self.qp.pd, self.qp.held_recv().sges());
        if train.flags.has(TrainFlags::GRH) && offset == GRH_BYTES as u64 {
            let grh =
                links.grh.unwrap_or_else(|| crate::device::grh_of(train, links.pd.context.device));
            scatter(links, pd, sges, 0, GRH_BYTES as u64, grh.as_ptr())?;
        }
        scatter(links, pd, sges, offset, placement.bytes as u64, from)
    }

    fn place_response(&mut self, placement: &ResponsePlacement, bytes: *const u8) {
        let from = match placement.is_atomic {
            true => (&raw const placement.original).cast(),
            false => bytes.wrapping_add(placement.skip_bytes as usize),
        };
        let result = {
            let sges = self.qp.sq.sges(placement.position);
            let (offset, length) = (placement.offset as u64, placement.bytes as u64);
            scatter(&self.links, self.qp.pd, sges, offset, length, from)
        };
        self.qp.retire_response(placement, result, &mut self.links);
    }

    fn execute_atomic(&mut self, job: &AtomicJob) {
        let at = job.host_addr as *mut u64;
        let result = {
            // SAFETY: eight aligned bytes that the engine checked against their region just now;
            // the access survives memory that is not there.
            unsafe {
                match job.op {
                    AtomicOp::CmpSwap { compare, swap } => copy::cmp_swap(at, compare, swap),
                    AtomicOp::FetchAdd { add } => copy::fetch_add(at, add),
                }
            }
        };
        self.qp.retire_atomic(job, result.map_err(|_| CopyError::Fault), &mut self.links);
    }
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
