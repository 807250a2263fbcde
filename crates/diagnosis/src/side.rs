//! One requester: its requests, and what its packets and their answers mean.

use std::collections::VecDeque;

use rdmalab_trace::Seen;
use rdmalab_wire::aeth::{AckTimeout, NakCode, Syndrome};
use rdmalab_wire::ids::Psn;
use rdmalab_wire::opcode::{Operation, Transport};

use crate::event::{Ask, Event, Refusals, Stamp, Why};

/// Requests without an answer that are remembered of each requester.
pub const WAITING_MAX: usize = 4096;
/// Requests with an answer that are remembered, since they may be repeated.
pub const ANSWERED_MAX: usize = 256;
/// PSNs that one READ takes at most: half of all, since more could not be told from earlier ones.
const READ_PSNS_MAX: u32 = (1 << 23) - 1;
/// PSNs that may be missing before a packet; more is another connection, or a damaged packet.
const GAP_MAX: i32 = 1 << 16;

/// A run of repetitions with one cause.
#[derive(Clone, Copy)]
struct Round {
    next: Psn,
    why: Why,
    /// How long the first of them had waited.
    waited_ns: u64,
    /// The last of them.
    last: Stamp,
}

/// Repetitions that follow each other within this time belong together, whatever began them.
const TOGETHER_NS: u64 = 10_000;

impl Round {
    /// Whether a repetition goes on with it: at its next PSN or behind, and sooner than another
    /// wait like the first one.
    fn has(&self, psn: Psn, now: Stamp) -> bool {
        let soon_ns = TOGETHER_NS.max(self.waited_ns / 2);
        psn.distance_from(self.next) >= 0 && now.since(self.last) <= soon_ns
    }
}

/// PSNs that are missing.
#[derive(Clone, Copy)]
struct Hole {
    from: Psn,
    to: Psn,
    seen: Stamp,
}

impl Hole {
    fn has(&self, psn: Psn) -> bool {
        psn.distance_from(self.from) >= 0 && psn.is_before(self.to)
    }
}

/// What is remembered of a requester.
#[derive(Default)]
pub struct Side {
    /// In order of PSN.
    asks: VecDeque<Ask>,
    /// The first PSN of all.
    first: Option<Psn>,
    next: Option<Psn>,
    last_sent: Option<Psn>,
    nak: Option<(Stamp, Psn)>,
    missing_response: Option<Stamp>,
    refusals: Option<(Psn, Refusals)>,
    round: Option<Round>,
    hole: Option<Hole>,
    /// The first and last PSN of the requests that were forgotten without an answer.
    forgotten: Option<(Psn, Psn)>,
    /// A NAK that names a PSN before the first one of the capture: if the requester repeats another
    /// one, it does not have that PSN.
    early_nak: Option<Psn>,
    mtu_bytes: Option<u32>,
    unseen: u64,
}

/// Receives the events.
pub type Sink<'a> = &'a mut dyn FnMut(Event<'_>);

/// The shortest time-out, of code 1: what is repeated sooner is a copy.
fn shortest_timeout_ns() -> u64 {
    AckTimeout::new(1).and_then(AckTimeout::nanoseconds).unwrap_or_default()
}

/// The remote address and length that a request names.
fn target(packet: &Seen) -> Option<(u64, u32)> {
    packet.headers.reth.as_ref().map(|reth| (reth.virtual_address, reth.dma_length))
}

impl Side {
    /// A requester whose READs are answered in packets of that payload.
    #[must_use]
    pub fn new(mtu_bytes: Option<u32>) -> Self {
        Self { mtu_bytes, ..Self::default() }
    }

    /// Requests that are remembered.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.asks.len()
    }

    /// Answers to requests that the capture lacks.
    #[must_use]
    pub fn unseen(&self) -> u64 {
        self.unseen
    }

    /// Forgets all answered requests but the last `keep` of those before the first unanswered one.
    pub fn trim_answered(&mut self, keep: usize) {
        let answered = self.asks.iter().take_while(|ask| ask.answer.is_some()).count();
        self.asks.drain(..answered.saturating_sub(keep));
    }

    /// Forgets all but the last requests.
    pub fn trim(&mut self, keep: usize) {
        let too_many = self.asks.len().saturating_sub(keep);
        let mut lost = self.asks.drain(..too_many).filter(|ask| ask.answer.is_none());
        let Some(first) = lost.next() else { return };
        let to = lost.next_back().unwrap_or(first).last_psn();
        // Of PSNs that are half of all apart, none is the earlier one.
        let before = self.forgotten.filter(|(from, _)| to.distance_from(*from) >= 0);
        self.forgotten = Some((before.map_or(first.psn, |(from, _)| from), to));
    }

    /// Whether a request was forgotten without an answer.
    #[must_use]
    pub fn is_forgetful(&self) -> bool {
        self.forgotten.is_some()
    }

    /// Whether a request may be one that was forgotten without an answer.
    fn is_forgotten(&self, psn: Psn) -> bool {
        let is_within = |(from, to)| psn.distance_from(from) >= 0 && psn.distance_from(to) <= 0;
        self.forgotten.is_some_and(is_within)
    }

    fn psns(&self, packet: &Seen) -> u32 {
        let operation = packet.headers.bth.opcode.operation();
        match (operation, &packet.headers.reth, self.mtu_bytes) {
            (Operation::ReadRequest, Some(reth), Some(mtu)) => {
                reth.dma_length.div_ceil(mtu.max(1)).clamp(1, READ_PSNS_MAX)
            }
            _ => 1,
        }
    }

    fn find(&self, psn: Psn) -> Option<usize> {
        let after = self.asks.partition_point(|ask| ask.psn.distance_from(psn) <= 0);
        let at = after.checked_sub(1)?;
        self.asks[at].has(psn).then_some(at)
    }

    /// A request was seen.
    pub fn request(&mut self, packet: &Seen, now: Stamp, sink: Sink<'_>) {
        let psn = packet.headers.bth.psn;
        let distance = self.next.map_or(0, |next| psn.distance_from(next));
        // UC repeats nothing.
        let is_uc = packet.headers.bth.opcode.transport() == Transport::Uc;
        let is_anew = distance < 0 && (is_uc || self.begins_anew(packet));
        // READs may have more PSNs under way.
        let is_far = distance.abs() > GAP_MAX && (distance > 0 || self.find(psn).is_none());
        if is_far || is_anew {
            // What is open stays open: nothing more comes for it.
            if !is_uc {
                self.end(sink);
            }
            *self = Self { unseen: self.unseen, ..Self::new(self.mtu_bytes) };
        } else if distance < 0 {
            self.repeat(packet, now, sink);
            self.last_sent = Some(psn);
            return;
        }
        if let (true, Some(from)) = (distance > 0, self.next) {
            self.hole = Some(Hole { from, to: psn, seen: now });
            sink(Event::Gap);
        }
        let ask = self.ask(packet, now);
        self.asks.push_back(ask);
        self.first.get_or_insert(psn);
        self.next = Some(psn.add(ask.count));
        self.last_sent = Some(psn);
        self.round = None;
        self.forget();
        sink(Event::Sent(&ask));
    }

    /// Whether an old PSN is that of another connection with the same numbers: nothing waits for an
    /// answer, and the PSN is not remembered, or it is the first one of all and now that of another
    /// request. Simulated points follow each other like that in a capture.
    fn begins_anew(&self, packet: &Seen) -> bool {
        let psn = packet.headers.bth.psn;
        let is_idle = self.asks.iter().all(|ask| ask.answer.is_some() || ask.is_refused);
        let is_another = self.find(psn).is_none_or(|at| {
            let ask = &self.asks[at];
            let is_same = ask.opcode == packet.headers.bth.opcode
                && ask.payload_bytes == packet.payload_bytes as u32
                && ask.target == target(packet);
            self.first == Some(psn) && !is_same
        });
        is_idle
            && is_another
            && !self.is_forgotten(psn)
            && !self.hole.is_some_and(|hole| hole.has(psn))
    }

    fn ask(&self, packet: &Seen, now: Stamp) -> Ask {
        let bth = &packet.headers.bth;
        Ask {
            psn: bth.psn,
            count: self.psns(packet),
            opcode: bth.opcode,
            payload_bytes: packet.payload_bytes as u32,
            target: target(packet),
            first: now,
            last: now,
            previous: None,
            sends: 1,
            answer: None,
            data: 0,
            has_ended: false,
            is_refused: false,
        }
    }

    fn forget(&mut self) {
        let answered = self.asks.iter().take_while(|ask| ask.answer.is_some()).count();
        let too_many = answered.saturating_sub(ANSWERED_MAX);
        self.asks.drain(..too_many);
        self.trim(WAITING_MAX);
    }

    fn repeat(&mut self, packet: &Seen, now: Stamp, sink: Sink<'_>) {
        let psn = packet.headers.bth.psn;
        let Some(at) = self.find(psn) else {
            return self.fill(packet, now, sink);
        };
        let why = self.why(at, psn, now);
        let round = self.round.filter(|round| why != Why::Copy && round.has(psn, now));
        let why = round.map_or(why, |round| round.why);
        let ask = self.asks[at];
        // A requester goes back to the PSN that a NAK names, if it ever sent it.
        if let Some(expected) = self.early_nak.take().filter(|_| why != Why::Copy) {
            let code = NakCode::PsnSequenceError;
            sink(Event::Nak { code, psn: expected, ask: None, is_gap: false, is_first: false });
        }
        let behind = self.asks.range(at + 1..).filter(|ask| ask.answer.is_none()).count();
        sink(Event::Again { ask: &ask, why, is_start: round.is_none(), behind });
        let ask = &mut self.asks[at];
        let waited_ns = round.map_or(now.since(ask.last), |round| round.waited_ns);
        if let Why::Rnr(_) = why {
            ask.answer = None;
        }
        (ask.previous, ask.last) = (Some(ask.last), now);
        ask.sends = ask.sends.saturating_add(1);
        ask.data = ask.data.min(psn.distance_from(ask.psn).unsigned_abs());
        ask.has_ended = false;
        if why != Why::Copy {
            self.round = Some(Round { next: psn.add(1), why, waited_ns, last: now });
            (self.nak, self.missing_response) = (None, None);
        }
    }

    /// Why the request at that place is repeated now.
    fn why(&self, at: usize, psn: Psn, now: Stamp) -> Why {
        let ask = &self.asks[at];
        if self.last_sent == Some(psn) && now.since(ask.last) < shortest_timeout_ns() {
            return Why::Copy;
        }
        if let Some((refused, refusals)) = &self.refusals
            && ask.has(*refused)
            && refusals.last.at_ns >= ask.last.at_ns
        {
            return Why::Rnr(refusals.last);
        }
        match (self.nak, ask.answer, self.missing_response) {
            (Some((nak, _)), _, _) if nak.at_ns >= ask.last.at_ns => Why::Nak(nak),
            (_, Some(answer), _) if answer.at_ns >= ask.last.at_ns => Why::Answered(answer),
            (_, _, Some(late)) if late.at_ns >= ask.last.at_ns => Why::MissingResponse(late),
            _ => Why::Silence,
        }
    }

    /// A PSN that was passed over, or forgotten.
    fn fill(&mut self, packet: &Seen, now: Stamp, sink: Sink<'_>) {
        let psn = packet.headers.bth.psn;
        let Some(hole) = self.hole.filter(|hole| hole.has(psn)) else {
            self.early_nak = None;
            if !self.is_forgotten(psn) {
                sink(Event::AgainUnseen);
            }
            return;
        };
        let ask = Ask { first: hole.seen, sends: 2, ..self.ask(packet, now) };
        let at = self.asks.partition_point(|other| other.psn.is_before(psn));
        self.asks.insert(at, ask);
        let nak = self.nak.take().map(|(nak, _)| nak);
        let why = nak.map_or(Why::Silence, Why::Nak);
        let waited_ns = now.since(hole.seen);
        self.round = Some(Round { next: psn.add(1), why, waited_ns, last: now });
        sink(Event::Filled { gap: hole.seen, nak });
    }

    /// An answer was seen.
    pub fn answer(&mut self, packet: &Seen, now: Stamp, sink: Sink<'_>) {
        let psn = packet.headers.bth.psn;
        match packet.headers.aeth.map(|aeth| aeth.syndrome) {
            Some(Syndrome::RnrNak(timer)) => self.not_ready(psn, timer.nanoseconds(), now, sink),
            Some(Syndrome::Nak(code)) => self.refused(psn, code, now, sink),
            Some(Syndrome::Ack { .. }) | None => self.accepted(packet, now, sink),
        }
    }

    fn not_ready(&mut self, psn: Psn, wait_ns: u64, now: Stamp, sink: Sink<'_>) {
        let Some(at) = self.find(psn) else { return };
        let new = Refusals { first: now, last: now, naks: 0, wait_ns };
        let mut refusals = match self.refusals {
            Some((refused, refusals)) if refused == psn => refusals,
            _ => new,
        };
        (refusals.naks, refusals.last, refusals.wait_ns) = (refusals.naks + 1, now, wait_ns);
        self.refusals = Some((psn, refusals));
        self.round = None;
        // It acknowledges what was sent before.
        self.complete(psn, false, now, sink);
        sink(Event::Rnr(&self.asks[at], wait_ns));
    }

    fn refused(&mut self, psn: Psn, code: NakCode, now: Stamp, sink: Sink<'_>) {
        let at = self.find(psn);
        if code == NakCode::PsnSequenceError {
            self.nak = Some((now, psn));
            self.round = None;
            self.complete(psn, false, now, sink);
        } else if let Some(at) = at {
            self.asks[at].is_refused = true;
        }
        let is_gap = self.hole.is_some_and(|hole| hole.has(psn))
            || self.asks.front().is_some_and(|first| psn.is_before(first.psn));
        let is_early = self.first.is_some_and(|first| psn.is_before(first));
        let is_sequence = code == NakCode::PsnSequenceError;
        self.early_nak = (is_sequence && is_early).then_some(psn);
        let ask = at.map(|at| self.asks[at]);
        sink(Event::Nak { code, psn, ask: ask.as_ref(), is_gap, is_first: self.first.is_none() });
    }

    fn accepted(&mut self, packet: &Seen, now: Stamp, sink: Sink<'_>) {
        let (psn, opcode) = (packet.headers.bth.psn, packet.headers.bth.opcode);
        if self.next.is_some_and(|next| psn.distance_from(next) >= 0) {
            self.unseen += 1;
        }
        let is_data = opcode.operation() != Operation::Acknowledge;
        let at = self.find(psn);
        let was_answered = at.is_none_or(|at| self.asks[at].answer.is_some());
        let is_whole = at.is_none_or(|at| !is_data || self.asks[at].gets_data(psn));
        let ends = !is_data || opcode.ends_message();
        if !is_whole && !was_answered {
            self.missing_response = Some(now);
            if let Some(at) = at {
                self.asks[at].has_ended |= ends;
            }
        }
        self.complete(psn, ends && is_whole, now, sink);
        if was_answered {
            if let Some(at) = self.find(psn) {
                self.asks[at].answer = Some(now);
            }
            sink(Event::AnsweredAgain(psn));
        }
    }

    /// Everything before a PSN is answered, and that PSN too if it says so. READs and atomics only
    /// by data of their own.
    fn complete(&mut self, psn: Psn, with_own: bool, now: Stamp, sink: Sink<'_>) {
        let mut done: Vec<Ask> = Vec::new();
        for ask in &mut self.asks {
            let is_own = ask.has(psn);
            if ask.psn.distance_from(psn) > 0 {
                break;
            }
            if ask.answer.is_some() || (is_own && !with_own) {
                continue;
            }
            // A response with a gap that is not asked for again had none: the capture has it.
            if ask.returns_data() && !is_own && !ask.has_ended {
                self.missing_response = Some(now);
                continue;
            }
            ask.answer = Some(now);
            done.push(*ask);
        }
        for ask in &done {
            // Within the wait the requester may discard it: a repetition shows whether it did.
            if let Some((refused, naks)) = self.refusals
                && ask.has(refused)
                && now.since(naks.last) >= naks.wait_ns
            {
                self.refusals = None;
                sink(Event::RnrOver { ask, naks, is_answered: true });
            }
            sink(Event::Answered(ask));
        }
    }

    /// The capture ends.
    pub fn end(&mut self, sink: Sink<'_>) {
        if let Some(ask) = self.asks.iter().find(|ask| ask.answer.is_none() && !ask.is_refused) {
            sink(Event::Unanswered(ask));
        }
        if let Some((psn, naks)) = self.refusals.take()
            && let Some(at) = self.find(psn)
        {
            let ask = &self.asks[at];
            sink(Event::RnrOver { ask, naks, is_answered: ask.answer.is_some() });
        }
    }
}
