//! Sends and receives of a queue pair while a hook is active.

use std::borrow::Cow;

use rdmalab_driver::Step;
use rdmalab_engine::train::{GrhFields, Train};
use rdmalab_engine::vocab::{AhAttr, QpType};
use rdmalab_link::address::FourTuple;
use rdmalab_link::drops::Drop;
use rdmalab_link::expand;
use rdmalab_link::frame_headers::FrameHeaders;
use rdmalab_link::hook::Direction;
use rdmalab_link::packet::{Class, Flow, Medium, PacketInfo, Payload};
use rdmalab_link::quirk::{Answer, Reply};
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::packet::ICRC_BYTES;

use super::{QpInner, QpLinks, transport_of};
use crate::codec::Body;
use crate::hooks::Hooks;
use crate::hooks::faults::Faults;
use crate::hooks::frames::{Frames, SharedPaths, ends, shared_headers};
use crate::hooks::path::{FaultyPath, Known};
use crate::ring_path::RingPath;

impl QpLinks {
    /// Captures the slot of a packet that takes a short way. A payload that is not in the slot lies
    /// at `data`.
    #[inline(always)]
    pub(super) fn tap_slot(&self, direction: Direction, slot: (u32, &Body), data: *const u8) {
        let (Some(tap), Some(known)) = (self.short_tap, &self.shared_paths) else {
            return debug_assert!(false, "a short way without a capture or an address");
        };
        known.record_slot(tap, direction, slot, data);
    }
}

impl QpInner {
    /// Sends over a peer's ring, wrapped into the hooks.
    #[inline(never)]
    pub(super) fn through(
        &mut self,
        hooks: &Hooks,
        ring: &mut RingPath<'_>,
        send: impl FnOnce(&mut QpInner, &mut FaultyPath<'_, RingPath<'_>>) -> Step,
    ) -> Step {
        let peer = ring.peer;
        // Taken out, so that it can be borrowed together with the rest of `self`.
        let (paths, flows) = (self.links.shared_paths.take(), self.links.datagram_flows.take());
        let known = match (&paths, &flows) {
            (Some(paths), _) => Known::Connection(paths),
            (None, Some(flows)) => Known::Datagrams(&flows[0]),
            (None, None) => Known::Nothing,
        };
        let ends = (&self.qp, &self.links);
        let mut path = hooks.around(ring, peer, ends, known, || self.headers(), false);
        let sent = send(self, &mut path);
        (self.links.shared_paths, self.links.datagram_flows) = (paths, flows);
        sent
    }

    /// The headers of sent packets; those of a datagram are set when it is addressed.
    pub(super) fn headers(&self) -> FrameHeaders {
        match self.links.is_datagram() {
            true => shared_headers(Default::default(), self.qp.qpn, GrhFields::default()),
            false => self.make_shared_headers()[0],
        }
    }

    /// For a connection on this host: the headers of sent packets, and of received ones. What the
    /// peer chose for its headers is not known here, and is shown as what this end chose.
    #[cold]
    fn make_shared_headers(&self) -> [FrameHeaders; 2] {
        let (ours, theirs) = ends(self.links.pd.context.device, &self.qp.attr.ah_attr);
        let AhAttr { traffic_class, hop_limit, flow_label, .. } = self.qp.attr.ah_attr;
        let chosen = GrhFields { traffic_class, hop_limit, flow_label };
        [
            shared_headers((ours, theirs), self.qp.qpn, chosen),
            shared_headers((theirs, ours), self.qp.remote_qpn, chosen),
        ]
    }

    /// Stores the headers of a connection, after its address or peer was set.
    pub(crate) fn remember_shared_paths(&mut self) {
        let is_needed = self.links.hooks.is_some() && !self.links.is_datagram();
        let device = self.links.pd.context.device;
        let paths = is_needed.then(|| SharedPaths::new(device, self.make_shared_headers()));
        self.links.shared_paths = paths.map(Box::new);
    }

    /// Captures a train from the ring; its payload lies at `bytes`.
    #[inline(never)]
    pub(crate) fn tap_in(&self, train: &Train, bytes: *const u8) {
        let Some(tap) = self.links.hooks.and_then(|hooks| hooks.tap) else { return };
        let (device, headers) = (self.links.pd.context.device, self.arrival_headers(train));
        let (mtu, transport) = (self.qp.mtu, transport_of(self.qp.qp_type));
        let templates = match (&self.links.shared_paths, &self.links.datagram_flows) {
            (Some(paths), _) => Some(&paths.templates[1]),
            (None, Some(flows)) => Some(&flows[1].templates),
            (None, None) => None,
        };
        let frames = Frames { device, headers, mtu, transport, templates };
        frames.record(tap, Direction::In, train, bytes, "", false);
    }

    /// The headers of a train from the ring.
    fn arrival_headers(&self, train: &Train) -> Cow<'_, FrameHeaders> {
        let device = self.links.pd.context.device;
        match (&self.links.shared_paths, &self.links.datagram_flows) {
            (_, Some(flows)) => Cow::Owned(flows[1].received(train, device)),
            (Some(known), None) => Cow::Borrowed(&known.headers[1]),
            (None, None) => Cow::Owned(self.make_shared_headers()[1]),
        }
    }

    /// Captures a train from the ring, whose payload lies at `bytes`, and asks the quirks about it.
    /// Returns whether the engine shall take it.
    #[inline(never)]
    pub(crate) fn ring_arrival(&mut self, train: &Train, bytes: *const u8) -> bool {
        self.tap_in(train, bytes);
        self.ring_accepted(train)
    }

    /// Asks the quirks about a train from the ring, as [`QpInner::ring_arrival`] does.
    pub(crate) fn ring_accepted(&mut self, train: &Train) -> bool {
        let Some(faults) = self.arrival_faults() else { return true };
        let tuple = *self.arrival_headers(train).tuple();
        self.is_accepted(faults, train, &tuple, Medium::Memory).is_ok_and(|accepted| accepted)
    }

    /// Asks the quirks about a packet from the network. Returns whether the engine shall take it;
    /// `false` if a quirk answered it.
    ///
    /// # Errors
    /// A quirk dropped the packet.
    #[inline(never)]
    pub(crate) fn network_arrival(
        &mut self,
        train: &Train,
        tuple: &FourTuple,
    ) -> Result<bool, Drop> {
        match self.arrival_faults() {
            Some(faults) => self.is_accepted(faults, train, tuple, Medium::Network),
            None => Ok(true),
        }
    }

    /// The fault rules, if one of them needs to see arriving packets.
    fn arrival_faults(&self) -> Option<&'static Faults> {
        let faults = self.links.hooks.and_then(|hooks| hooks.faults)?;
        (faults.watches_arrivals() && self.qp.state.can_receive()).then_some(faults)
    }

    fn is_accepted(
        &mut self,
        faults: &Faults,
        train: &Train,
        tuple: &FourTuple,
        medium: Medium,
    ) -> Result<bool, Drop> {
        let Some(packet) = self.arrived(train, tuple, medium) else { return Ok(true) };
        match faults.packet_arrived(&packet) {
            Reply::Accept => return Ok(true),
            Reply::Drop => return Err(Drop::Hook),
            // A request of a reliable connection can be answered only after all requests before it.
            Reply::Answer(_) if !packet.is_in_order() => return Err(Drop::Hook),
            Reply::Answer(Answer::RnrNak) => self.qp.answer_rnr_nak(packet.psn),
            Reply::Answer(Answer::Nak(code)) => {
                self.qp.answer_nak(packet.psn, code, &mut self.links);
            }
        }
        Ok(false)
    }

    /// The view of an arrived train that quirks get.
    fn arrived(&self, train: &Train, tuple: &FourTuple, medium: Medium) -> Option<PacketInfo> {
        let opcode = expand::opcode_of(train, transport_of(self.qp.qp_type))?;
        let is_response = train.kind.is_response();
        let source_qp = if self.links.is_datagram() { train.src_qpn } else { Qpn::new(0) };
        let is_request = self.qp.qp_type == QpType::Rc && !is_response;
        Some(PacketInfo {
            flow: Flow {
                source: tuple.source,
                destination: tuple.destination,
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
            standing: is_request.then(|| self.qp.standing(train.first_psn)),
            bytes: opcode.header_bytes() as u32 + train.payload_bytes + ICRC_BYTES as u32,
            payload: Payload { bytes: train.payload_bytes, is_inline: false },
        })
    }
}
