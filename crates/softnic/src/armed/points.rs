//! The points beside [`super::Gate`] and [`super::network`] at which quirks are asked: packets that
//! arrived, timers, completions, resets. Each costs one test while nothing is armed.

use rdmalab_engine::qp::TimerKind;
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::{QpType, Wc};
use rdmalab_link::drops::Drop;
use rdmalab_link::expand;
use rdmalab_link::packet::{Class, Flow, Medium, PacketInfo, Payload};
use rdmalab_link::path::Path;
use rdmalab_link::quirk::{Answer, Completion, Reply};
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::packet::ICRC_BYTES;

use super::faults::Faults;
use super::{Armed, transport_of};
use crate::qp::QpInner;

impl Armed {
    /// A timer of a queue pair fired.
    pub(crate) fn timer_fired(&self, qp: Qpn, kind: TimerKind) {
        if let Some(faults) = self.faults {
            faults.timer_fired(qp, kind);
        }
    }

    /// A work request completed.
    #[cold]
    pub(crate) fn message_completed(&self, wc: &Wc, is_receive: bool) {
        if let Some(faults) = self.faults {
            let Wc { wr_id, status, qp_num, .. } = *wc;
            let qp = Qpn::new(qp_num);
            faults.message_completed(&Completion { qp, wr_id, status, is_receive });
        }
    }

    /// A queue pair was reset or destroyed.
    pub(crate) fn queue_pair_reset(&self, qp: Qpn) {
        if let Some(faults) = self.faults {
            faults.queue_pair_reset(qp);
        }
    }
}

impl QpInner {
    /// Captures a train that came through the ring, whose payload lies at `bytes`, and asks quirks
    /// about it. Returns whether the engine takes it.
    #[inline(never)]
    pub(crate) fn ring_arrival(&mut self, train: &Train, bytes: *const u8) -> bool {
        self.tap_in(train, bytes);
        let Some(faults) = self.arrival_faults() else { return true };
        let path = *self.arrival_headers(train).path();
        self.is_accepted(faults, train, &path, Medium::Memory).is_ok_and(|accepted| accepted)
    }

    /// Asks quirks about a packet from the network. Returns whether the engine takes it; not when
    /// they answered it.
    ///
    /// # Errors
    /// They dropped it.
    #[inline(never)]
    pub(crate) fn network_arrival(&mut self, train: &Train, path: &Path) -> Result<bool, Drop> {
        match self.arrival_faults() {
            Some(faults) => self.is_accepted(faults, train, path, Medium::Network),
            None => Ok(true),
        }
    }

    /// The faults that have to be told of packets that arrive.
    fn arrival_faults(&self) -> Option<&'static Faults> {
        let faults = self.links.armed.and_then(|armed| armed.faults)?;
        (faults.watches_arrivals() && self.qp.state.can_receive()).then_some(faults)
    }

    fn is_accepted(
        &mut self,
        faults: &Faults,
        train: &Train,
        path: &Path,
        medium: Medium,
    ) -> Result<bool, Drop> {
        let Some(packet) = self.arrived(train, path, medium) else { return Ok(true) };
        match faults.packet_arrived(&packet) {
            Reply::Accept => return Ok(true),
            Reply::Drop => return Err(Drop::Hook),
            // Another transport answers nothing.
            Reply::Answer(_) if self.qp.qp_type != QpType::Rc => return Err(Drop::Hook),
            Reply::Answer(Answer::RnrNak) => self.qp.answer_rnr_nak(packet.psn),
            Reply::Answer(Answer::Nak(code)) => {
                self.qp.answer_nak(packet.psn, code, &mut self.links);
            }
        }
        Ok(false)
    }

    /// An arrived train as quirks see it.
    fn arrived(&self, train: &Train, path: &Path, medium: Medium) -> Option<PacketInfo> {
        let opcode = expand::opcode_of(train, transport_of(self.qp.qp_type))?;
        let is_response = train.kind.is_response();
        let source_qp = if self.links.datagram { train.src_qpn } else { Qpn::new(0) };
        let is_request = self.qp.qp_type == QpType::Rc && !is_response;
        Some(PacketInfo {
            flow: Flow {
                source: path.source,
                destination: path.destination,
                destination_qp: self.qp.qpn,
                source_qp,
                is_response,
            },
            local_qp: self.qp.qpn,
            medium,
            class: Class::of(opcode, opcode.has_aeth().then_some(train.syndrome)),
            psn: train.first_psn,
            psns: train.packets,
            transmission: None,
            in_order: is_request && !self.qp.expected_psn().is_before(train.first_psn),
            bytes: opcode.header_bytes() as u32 + train.payload_bytes + ICRC_BYTES as u32,
            payload: Payload { bytes: train.payload_bytes, is_inline: false },
        })
    }
}
