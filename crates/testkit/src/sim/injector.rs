//! The rules and quirks of `--faults` in the simulation. One chain judges each packet as in the
//! soft device, and the same code as there defers packets, in virtual time. The chain stands for
//! the chains of all devices, since quirks keep their state by queue pair.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use super::device::{Received, Sent};
use super::step::TrainData;
use rdmalab_engine::qp::{Qp, TimerKind};
use rdmalab_engine::train::Train;
use rdmalab_link::address::FourTuple;
use rdmalab_link::deferred::Deferred;
use rdmalab_link::expand::{self, MAX_OVERHEAD_BYTES};
use rdmalab_link::packet::{Class, Flow, Medium, PacketInfo, Payload};
use rdmalab_link::quirk::{Chain, Completion, Fate, Reply};
use rdmalab_link::receive::{self, Expected, Verifier};
use rdmalab_wire::ids::{PathMtu, Psn, Qpn};
use rdmalab_wire::ip::ROCE_V2_PORT;
use rdmalab_wire::opcode::Transport;
use rdmalab_wire::packet::ICRC_BYTES;

/// A packet that the rules judged, whether they dropped it or not.
#[derive(Clone, Copy, Debug)]
pub struct SentPacket {
    /// When it was sent.
    pub at_ns: u64,
    /// Its flow.
    pub flow: Flow,
    /// Its class.
    pub class: Class,
    /// Its PSN.
    pub psn: Psn,
    /// Its size on the wire.
    pub bytes: u32,
    /// What the rules did with it.
    pub fate: Fate,
}

/// Rules and quirks, with the packets that they have met.
#[derive(Debug)]
pub struct FaultInjector {
    chain: Chain,
    transport: Transport,
    deferred: Deferred<TrainData>,
    /// How many send and receive completions of each queue pair the quirks were told of.
    told: BTreeMap<Qpn, (usize, usize)>,
    /// Every packet so far.
    pub sent_packets: Vec<SentPacket>,
}

/// The address of a device of the simulation.
pub fn address_of(device: u32) -> IpAddr {
    // IPv6: over IPv4 the receiver needs part of the invariant CRC to find the identification.
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, device as u16).into()
}

impl FaultInjector {
    /// Rules and quirks for queue pairs of one transport, on all devices.
    pub fn new(chain: Chain, transport: Transport) -> Self {
        let (deferred, told, sent_packets) = Default::default();
        FaultInjector { chain, transport, deferred, told, sent_packets }
    }

    /// Packets that each rule or quirk met.
    pub fn met(&self) -> &[u64] {
        self.chain.met()
    }

    /// Judges a packet that leaves its device. Returns the packet if it is to be sent at once.
    pub fn pass(
        &mut self,
        now_ns: u64,
        mut train_data: TrainData,
        mtu: PathMtu,
    ) -> Option<TrainData> {
        let packet = self.packet_of(&train_data, train_data.train.src_qpn);
        let fate = self.chain.packet_leaves(&packet, now_ns);
        let PacketInfo { flow, class, psn, bytes, .. } = packet;
        self.sent_packets.push(SentPacket { at_ns: now_ns, flow, class, psn, bytes, fate });
        fate.damage(&mut train_data.payload);
        let tuple = path_of(&train_data.train);
        let is_spoilt =
            fate.corrupt.is_some_and(|bit| !self.survives(&tuple, &train_data, mtu, bit));
        if fate.lost || is_spoilt {
            return None;
        }
        let size = train_data.payload.len();
        let deferral =
            self.deferred.defer(&flow, &fate, now_ns, false, || (size, train_data.clone()));
        deferral.sends_now.then_some(train_data)
    }

    /// Whether quirks have to be told of arriving packets.
    pub fn watches_arrivals(&self) -> bool {
        self.chain.watches_arrivals()
    }

    /// Asks the quirks about a packet that arrived at its device, for this queue pair.
    pub fn arrived(&mut self, now_ns: u64, train_data: &TrainData, qp: &Qp) -> Reply {
        if !self.watches_arrivals() {
            return Reply::Accept;
        }
        let packet = self.packet_of(train_data, train_data.train.dst_qpn);
        let is_request = self.transport == Transport::Rc && !packet.flow.is_response;
        let standing = is_request.then(|| qp.standing(packet.psn));
        self.chain.packet_arrived(&PacketInfo { standing, ..packet }, now_ns).reply
    }

    /// Tells the quirks that a timer of a queue pair expired.
    pub fn timer_fired(&mut self, now_ns: u64, qp: Qpn, kind: TimerKind) {
        self.chain.timer_fired(qp, kind, now_ns);
    }

    /// Takes all completions of a queue pair so far, and tells the quirks the new ones.
    pub fn completed(&mut self, now_ns: u64, qp: Qpn, sent: &[Sent], received: &[Received]) {
        let told = self.told.entry(qp).or_default();
        let sent_from = std::mem::replace(&mut told.0, sent.len());
        let received_from = std::mem::replace(&mut told.1, received.len());
        let sent = sent[sent_from..].iter().map(|sent| (sent.wc, false));
        let received = received[received_from..].iter().map(|received| (received.wc, true));
        for (wc, is_receive) in sent.chain(received) {
            let completion = Completion { qp, wr_id: wc.wr_id, status: wc.status, is_receive };
            self.chain.message_completed(&completion, now_ns);
        }
    }

    /// The packet as the quirks at the device of `local_qp` see it.
    fn packet_of(&self, train_data: &TrainData, local_qp: Qpn) -> PacketInfo {
        let train = &train_data.train;
        let tuple = path_of(train);
        let headers = expand::headers_of(train, self.transport).expect("a packet");
        let bytes = headers.bth.opcode.header_bytes() + train_data.payload.len() + ICRC_BYTES;
        let connected = self.transport != Transport::Ud;
        PacketInfo {
            flow: Flow {
                source: tuple.source,
                destination: tuple.destination,
                destination_qp: train.dst_qpn,
                source_qp: if connected { Qpn::new(0) } else { train.src_qpn },
                is_response: train.kind.is_response(),
            },
            local_qp,
            medium: Medium::Memory,
            class: Class::of(headers.bth.opcode, headers.aeth.map(|aeth| aeth.syndrome)),
            psn: train.first_psn,
            psns: train.packets,
            transmission: None,
            standing: None,
            bytes: bytes as u32,
            // The simulation does not record where the sender took the payload from.
            payload: Payload { bytes: train.payload_bytes, is_inline: false },
        }
    }

    /// When the next deferred packet is due.
    pub fn next_ns(&self) -> Option<u64> {
        self.deferred.next_ns()
    }

    /// Takes the next deferred packet that is due.
    pub fn take_due(&mut self, now_ns: u64) -> Option<TrainData> {
        self.deferred.take_due(now_ns).map(|(_, train_data)| train_data)
    }

    /// Whether a receiver accepts a packet with one bit flipped: only if the bit has no effect.
    fn survives(&self, tuple: &FourTuple, train_data: &TrainData, mtu: PathMtu, bit: u64) -> bool {
        let train = &train_data.train;
        let mut bytes = vec![0; train_data.payload.len() + MAX_OVERHEAD_BYTES];
        let parts = expand::write_headers(train, self.transport, &mut bytes).expect("a packet");
        bytes.truncate(parts.packet_bytes);
        let payload = parts.payload_at..parts.payload_at + parts.payload_bytes;
        bytes[payload].copy_from_slice(&train_data.payload);
        expand::seal(tuple, 0, &mut bytes);
        let expected = Expected {
            transport: self.transport,
            can_receive: true,
            between: Some((tuple.source, tuple.destination)),
            remote_qpn: train.src_qpn,
            qkey: train.qkey,
            mtu,
        };
        let read = |bytes: &[u8]| {
            let packet = receive::parse(bytes).ok()?;
            receive::check(&packet, &expected, tuple).ok()?;
            Verifier::default().verify(tuple, &packet, bytes).ok()?;
            let train = receive::train_of(&packet.headers, packet.payload.len(), &expected).ok()?;
            Some((train, packet.payload.to_vec()))
        };
        let sent = read(&bytes).expect("a packet that nobody changed is taken");
        let bit = bit as usize % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let got = read(&bytes);
        assert!(got.is_none() || got == Some(sent), "a damaged packet is taken: {got:?}");
        got.is_some()
    }
}

fn path_of(train: &Train) -> FourTuple {
    FourTuple {
        source: address_of(train.src_qpn.get() >> 8),
        destination: address_of(train.dst_qpn.get() >> 8),
        source_port: ROCE_V2_PORT,
        destination_port: ROCE_V2_PORT,
    }
}
