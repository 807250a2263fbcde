//! The fault rules and quirks of an adapter, and what they see of a packet.

use rdmalab_link::address::{address_of, destination_of};
use rdmalab_link::deferred::Deferred;
use rdmalab_link::expand;
use rdmalab_link::packet::{Class, Flow, Medium, PacketInfo, Payload};
use rdmalab_link::quirk::Chain;
use rdmalab_link::specification::Specification;
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::opcode::Transport;
use rdmalab_wire::packet::ICRC_BYTES;

use crate::capture::frame_headers;
use crate::device;
use crate::packets::Packets;
use crate::time::Ps;

/// The rules of an adapter, and the packets that wait because of them.
pub(crate) struct Faults {
    pub(crate) chain: Chain,
    pub(crate) deferred: Deferred<Box<Packets>>,
    /// The time for which the next departure of a deferred packet is scheduled.
    pub(crate) scheduled: Option<Ps>,
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
    /// The rules of a specification, armed when the simulation begins. Each stream draws others.
    ///
    /// # Errors
    /// Which part of the specification is wrong: one line.
    pub(crate) fn parse(text: &str, stream: u64) -> Result<Box<Faults>, String> {
        let rules = Specification::parse(text).map_err(|error| error.to_string())?;
        let rules = rules.with_stream(stream);
        Ok(Box::new(Faults {
            chain: rules.into_chain(0),
            deferred: Deferred::unbounded(),
            scheduled: None,
            disturbed: 0,
        }))
    }

    /// The rules that applied to a packet, for people.
    pub(crate) fn rules(&self, met: u64) -> String {
        let labels = self.chain.labels().iter().enumerate();
        let met = labels.filter(|(index, _)| met >> index & 1 != 0).map(|(_, label)| &**label);
        met.collect::<Vec<_>>().join("; ")
    }
}

/// The view of a packet that leaves. Rules see a RoCEv2 network, whatever the link is.
pub(crate) fn leaving(packets: &Packets) -> Option<PacketInfo> {
    let headers = expand::headers_of(&packets.train, packets.transport)?;
    let train = &packets.train;
    let padded = train.payload_bytes.next_multiple_of(4) as usize;
    let bytes = headers.bth.opcode.header_bytes() + padded + ICRC_BYTES;
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
        standing: None,
        bytes: frame_headers(packets).frame_bytes(bytes) as u32,
        payload: Payload { bytes: train.payload_bytes, is_inline: packets.is_inline },
    })
}
