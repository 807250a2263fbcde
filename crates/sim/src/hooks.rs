//! The points at which adapters ask fault rules and quirks, and capture packets: the same as those
//! of a soft device. Adapters with rules send packets one by one.

use rdmalab_engine::qp::TimerKind;
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::{QpType, Wc};
use rdmalab_link::hook::Direction;
use rdmalab_link::packet::{Flow, PacketInfo};
use rdmalab_link::quirk::{Answer, Completion, Reply};
use rdmalab_wire::ids::Qpn;

use crate::adapter::SimQp;
use crate::capture::Shown;
use crate::component::Component;
use crate::event::Event;
use crate::faults::{Departure, leaving};
use crate::ids::QpId;
use crate::kernel::World;
use crate::packets::{Packets, To};
use crate::time::Ps;

impl World {
    /// Asks the rules of an adapter about a packet that is about to leave it. A lost packet and a
    /// damaged one are sent to nobody.
    pub(crate) fn ask_at_departure(&mut self, packets: &mut Packets) -> Departure {
        let node = packets.from.node;
        let now_ns = self.now.whole_ns();
        let Some(faults) = self.nodes[node].faults.as_deref_mut() else {
            return Departure::default();
        };
        let Some(info) = leaving(packets) else { return Departure::default() };
        let fate = faults.chain.packet_leaves(&info, now_ns);
        faults.disturbed += u64::from(fate.met != 0);
        let is_spoilt = fate.corrupt.is_some();
        fate.damage(&mut packets.payload);
        let mut departure =
            Departure { is_spoilt, rules: faults.rules(fate.met), is_deferred: false };
        if fate.lost || is_spoilt {
            packets.to = To::Nowhere;
            return departure;
        }
        let deferral = faults.deferred.defer(&info.flow, &fate, now_ns, false, || {
            (packets.payload.len(), Box::new(packets.clone()))
        });
        departure.is_deferred = !deferral.sends_now;
        self.schedule_deferred(node);
        departure
    }

    /// Schedules the departure of the deferred packet that is due next.
    fn schedule_deferred(&mut self, node: usize) {
        let Some(faults) = self.nodes[node].faults.as_deref_mut() else { return };
        let Some(next_ns) = faults.deferred.next_ns() else { return };
        let at = Ps::from_whole_ns(next_ns).max(self.now);
        if faults.scheduled.is_none_or(|scheduled| scheduled > at) {
            faults.scheduled = Some(at);
            self.queue.push(at, Event::Deferred { node });
        }
    }

    /// Sends the deferred packets that are due.
    pub(crate) fn release_deferred(&mut self, node: usize) {
        let now = self.now;
        while let Some(faults) = self.nodes[node].faults.as_deref_mut() {
            faults.scheduled = faults.scheduled.filter(|at| *at > now);
            let Some((_, mut packets)) = faults.deferred.take_due(now.whole_ns()) else { break };
            let waited = now - packets.span.first.min(now);
            packets.span = packets.span.after(waited);
            self.note(node, Component::Rule, || "a deferred packet goes on".to_owned());
            self.occupy_link(&mut packets);
            self.travel(packets);
        }
        self.schedule_deferred(node);
    }

    /// Asks the rules of an adapter about packets that arrived for a queue pair; false if it does
    /// not get them.
    pub(crate) fn ask_at_arrival(&mut self, id: QpId, qp: &mut SimQp, packets: &Packets) -> bool {
        let now_ns = self.now.whole_ns();
        let Some(faults) = self.nodes[id.node].faults.as_deref_mut() else { return true };
        if !faults.chain.watches_arrivals() || !qp.qp.state.can_receive() {
            return true;
        }
        let Some(info) = arrived(qp, packets) else { return true };
        let reception = faults.chain.packet_arrived(&info, now_ns);
        faults.disturbed += u64::from(reception.met != 0);
        match reception.reply {
            Reply::Accept => return true,
            Reply::Drop => {}
            // A request of a reliable connection is answered after all requests before it only.
            Reply::Answer(_) if !info.is_in_order() => {}
            Reply::Answer(Answer::RnrNak) => {
                qp.damming.rnr_nak_is_given(&info);
                qp.qp.answer_rnr_nak(info.psn);
            }
            Reply::Answer(Answer::Nak(code)) => {
                self.step(id, qp, |qp, env| qp.answer_nak(info.psn, code, env));
            }
        }
        self.note(id.node, Component::Rule, || {
            "the adapter drops what arrived, by a rule".to_owned()
        });
        false
    }

    /// A timer of a queue pair fired.
    pub(crate) fn tell_timer(&mut self, node: usize, qp: Qpn, kind: TimerKind) {
        let now_ns = self.now.whole_ns();
        if let Some(faults) = self.nodes[node].faults.as_deref_mut() {
            faults.chain.timer_fired(qp, kind, now_ns);
        }
    }

    /// A work request completed.
    pub(crate) fn tell_completion(&mut self, node: usize, wc: &Wc, is_receive: bool) {
        let now_ns = self.now.whole_ns();
        if let Some(faults) = self.nodes[node].faults.as_deref_mut()
            && faults.chain.watches_completions()
        {
            let Wc { wr_id, status, qp_num, .. } = *wc;
            let qp = Qpn::new(qp_num);
            let completion = Completion { qp, wr_id, status, is_receive };
            faults.chain.message_completed(&completion, now_ns);
        }
    }

    /// A queue pair was reset or destroyed.
    pub(crate) fn tell_reset(&mut self, node: usize, qp: Qpn) {
        if let Some(faults) = self.nodes[node].faults.as_deref_mut() {
            faults.chain.queue_pair_reset(qp);
        }
    }

    /// Captures packets that leave their adapter.
    pub(crate) fn capture_departure(&mut self, packets: &Packets, departure: &Departure) {
        let comment = match departure.rules.as_str() {
            "" => "",
            rules => &format!("fault: {rules}"),
        };
        let (node, is_spoilt) = (packets.from.node, departure.is_spoilt);
        let shown = Shown { node, direction: Direction::Out, at: self.now, comment, is_spoilt };
        self.capture(&shown, packets);
    }

    /// Captures packets that have arrived at an adapter.
    pub(crate) fn capture_arrival(&mut self, node: usize, packets: &Packets) {
        let at = self.now;
        let shown = Shown { node, direction: Direction::In, at, comment: "", is_spoilt: false };
        self.capture(&shown, packets);
    }

    fn capture(&mut self, shown: &Shown<'_>, packets: &Packets) {
        if self.capture.is_none() {
            return;
        }
        let remote_addr = self.shown_address(packets);
        if let Some(capture) = &mut self.capture {
            capture.record(shown, packets, remote_addr);
        }
    }

    /// The remote address that captures show: the offset in its region, below the key. Where the
    /// program's memory lies differs from run to run, and captures of equal runs are equal. A
    /// region of the whole address space has addresses only.
    fn shown_address(&self, packets: &Packets) -> u64 {
        let Train { remote_addr, rkey, .. } = packets.train;
        let region = match packets.to {
            To::Node(node) => self.nodes[node].keys.get(&rkey.0),
            To::Group(_) | To::Nowhere => None,
        };
        let offset = region.map(|region| (remote_addr.wrapping_sub(region.iova), region.length));
        match offset {
            Some((offset, length)) if offset <= length && length <= u64::from(u32::MAX) => {
                u64::from(rkey.0) << u32::BITS | offset
            }
            _ => remote_addr,
        }
    }
}

/// The view of a packet that arrived at a queue pair.
pub(crate) fn arrived(qp: &SimQp, packets: &Packets) -> Option<PacketInfo> {
    let info = leaving(packets)?;
    let is_request = qp.qp.qp_type == QpType::Rc && !packets.is_response();
    let standing = is_request.then(|| qp.qp.standing(packets.train.first_psn));
    let flow = Flow { destination_qp: qp.qp.qpn, ..info.flow };
    Some(PacketInfo { flow, local_qp: qp.qp.qpn, standing, ..info })
}
