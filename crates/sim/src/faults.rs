//! Fault rules and quirks, as every device has them: asked about each packet that leaves an
//! adapter, and about each that arrives. Adapters with rules send packets one by one.

use rdmalab_engine::qp::TimerKind;
use rdmalab_engine::vocab::{QpType, Wc};
use rdmalab_link::address::{address_of, destination_of};
use rdmalab_link::deferred::Deferred;
use rdmalab_link::expand;
use rdmalab_link::packet::{Class, Flow, Medium, PacketInfo, Payload};
use rdmalab_link::quirk::{Answer, Chain, Completion, Reply};
use rdmalab_link::specification::Specification;
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::opcode::Transport;
use rdmalab_wire::packet::ICRC_BYTES;

use crate::adapter::SimQp;
use crate::device;
use crate::event::Event;
use crate::ids::QpId;
use crate::kernel::World;
use crate::packets::{Packets, To};
use crate::time::Ps;

/// The rules of an adapter, and the packets that wait because of them.
pub(crate) struct Faults {
    chain: Chain,
    deferred: Deferred<Box<Packets>>,
    /// The time for which [`Event::Deferred`] is scheduled.
    scheduled: Option<Ps>,
    /// How many packets one of the rules applied to.
    pub(crate) disturbed: u64,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.chain.fmt(f)
    }
}

/// What becomes of a packet that is about to leave.
#[derive(Debug, Default)]
pub(crate) struct Departure {
    /// It leaves later: nothing is to be sent now.
    pub(crate) is_deferred: bool,
    /// Its invariant CRC is wrong.
    pub(crate) is_spoilt: bool,
    /// The rules that applied to it, for people.
    pub(crate) rules: String,
}

impl Faults {
    /// The rules of a specification, armed when the simulation begins.
    ///
    /// # Errors
    /// Which part of the specification is wrong: one line.
    pub(crate) fn parse(text: &str) -> Result<Box<Faults>, String> {
        let rules = Specification::parse(text).map_err(|error| error.to_string())?;
        Ok(Box::new(Faults {
            chain: rules.into_chain(0),
            deferred: Deferred::default(),
            scheduled: None,
            disturbed: 0,
        }))
    }

    fn rules(&self, met: u64) -> String {
        let labels = self.chain.labels().iter().enumerate();
        let met = labels.filter(|(index, _)| met >> index & 1 != 0).map(|(_, label)| &**label);
        met.collect::<Vec<_>>().join("; ")
    }
}

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
            Reply::Answer(_) if !info.in_order => {}
            Reply::Answer(Answer::RnrNak) => qp.qp.answer_rnr_nak(info.psn),
            Reply::Answer(Answer::Nak(code)) => {
                let ((), mut effects) =
                    self.engine(id, qp, |qp, env| qp.answer_nak(info.psn, code, env));
                self.apply(id, qp, &mut effects, Ps::ZERO);
            }
        }
        self.note(id.node, || "the adapter drops what arrived, by a rule".to_owned());
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
}

/// The view of a packet that leaves. Rules see a RoCEv2 network, whatever the link is.
fn leaving(packets: &Packets) -> Option<PacketInfo> {
    let headers = expand::headers_of(&packets.train, packets.transport)?;
    let train = &packets.train;
    let is_datagram = packets.transport == Transport::Ud;
    Some(PacketInfo {
        flow: Flow {
            source: address_of(device::gid_of(packets.from.node)),
            destination: destination_of(packets.destination),
            destination_qp: train.dst_qpn,
            source_qp: if is_datagram { train.src_qpn } else { Qpn::new(0) },
            is_response: packets.is_response(),
        },
        local_qp: train.src_qpn,
        medium: Medium::Network,
        class: Class::of(headers.bth.opcode, headers.aeth.map(|aeth| aeth.syndrome)),
        psn: train.first_psn,
        psns: train.packets,
        transmission: None,
        in_order: false,
        bytes: (headers.bth.opcode.header_bytes() + ICRC_BYTES) as u32 + train.payload_bytes,
        payload: Payload { bytes: train.payload_bytes, is_inline: packets.is_inline },
    })
}

/// The view of a packet that arrived at a queue pair.
fn arrived(qp: &SimQp, packets: &Packets) -> Option<PacketInfo> {
    let info = leaving(packets)?;
    let is_request = qp.qp.qp_type == QpType::Rc && !packets.is_response();
    let in_order = is_request && !qp.qp.expected_psn().is_before(packets.train.first_psn);
    let flow = Flow { destination_qp: qp.qp.qpn, ..info.flow };
    Some(PacketInfo { flow, local_qp: qp.qp.qpn, in_order, ..info })
}
