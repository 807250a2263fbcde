//! The unit of work between two engines: a run of consecutive packets of one message.
//!
//! Shared memory carries a train in one slot, a network link expands it into packets, a simulator
//! carries it as one event. `accept(train)` and `accept` of each of its packets give the same
//! state, completions and acknowledgements; [`Train::packet`] is that expansion.

use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::ids::{Msn, PathMtu, Psn, Qpn, RKey};

/// Packets of the longest message: 2^31 bytes at a path MTU of 256.
pub const MAX_PACKETS: u32 = 1 << 23;

/// The kind of packets of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TrainKind {
    /// SEND, of any variant.
    Send = 0,
    /// RDMA WRITE, with or without immediate.
    Write = 1,
    /// RDMA READ request; `packets` counts the PSNs of its response.
    ReadRequest = 2,
    /// RDMA READ response.
    ReadResponse = 3,
    /// Compare and swap request.
    CmpSwap = 4,
    /// Fetch and add request.
    FetchAdd = 5,
    /// Response of an atomic, with the value before it.
    AtomicResponse = 6,
    /// ACK, RNR NAK or NAK.
    Ack = 7,
}

impl TrainKind {
    /// From its number; `None` for a number that names none.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Send,
            1 => Self::Write,
            2 => Self::ReadRequest,
            3 => Self::ReadResponse,
            4 => Self::CmpSwap,
            5 => Self::FetchAdd,
            6 => Self::AtomicResponse,
            7 => Self::Ack,
            _ => return None,
        })
    }

    /// Whether this goes to the requester's side (completer) of its destination.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(self, Self::ReadResponse | Self::AtomicResponse | Self::Ack)
    }
}

/// Bits of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrainFlags(pub u8);

impl TrainFlags {
    /// The first packet begins its message.
    pub const FIRST: u8 = 1;
    /// The last packet ends its message.
    pub const LAST: u8 = 1 << 1;
    /// The requester asks for an acknowledgement of the last packet.
    pub const ACK_REQ: u8 = 1 << 2;
    /// Raise a solicited event.
    pub const SOLICITED: u8 = 1 << 3;
    /// `imm_or_rkey` is immediate data.
    pub const IMM: u8 = 1 << 4;
    /// `imm_or_rkey` is a key to invalidate.
    pub const INV: u8 = 1 << 5;
    /// A datagram that carries a routing header.
    pub const GRH: u8 = 1 << 6;

    /// Whether any of `bits` is set.
    #[inline]
    pub const fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }
}

/// Operations that the initiator executed itself in the destination's memory just before this
/// train: the responder never saw them, so it advances over them when the train arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fold {
    /// Packets that those operations would have taken.
    pub packets: u32,
    /// Messages that they were.
    pub messages: u32,
}

/// 1..n consecutive packets of one message. The payload travels beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Train {
    /// Destination QP.
    pub dst_qpn: Qpn,
    /// Sending QP: known to both ends of a connection, carried for datagrams (DETH).
    pub src_qpn: Qpn,
    /// The kind of the packets.
    pub kind: TrainKind,
    /// Their position in the message, and further flags.
    pub flags: TrainFlags,
    /// PSN of the first packet.
    pub first_psn: Psn,
    /// How many PSNs the train takes; at least 1.
    pub packets: u32,
    /// Payload bytes that travel with it.
    pub payload_bytes: u32,
    /// Immediate data as given by the sender, or the key to invalidate.
    pub imm_or_rkey: u32,
    /// Remote address (RETH, AtomicETH), on the first train of a message.
    pub remote_addr: u64,
    /// Remote key (RETH, AtomicETH).
    pub rkey: RKey,
    /// Length of the whole message (RETH).
    pub dma_bytes: u32,
    /// Swap value, or the addend (AtomicETH); the original value (AtomicAckETH).
    pub swap_add: u64,
    /// Compare value (AtomicETH); of a datagram, its [`GrhFields`].
    pub compare: u64,
    /// Syndrome (AETH).
    pub syndrome: Syndrome,
    /// Message sequence number (AETH).
    pub msn: Msn,
    /// Queue key (DETH).
    pub qkey: u32,
    /// The sender's LID (LRH).
    pub slid: u16,
    /// Service level (LRH).
    pub sl: u8,
    /// The operations that the local lane executed before this train.
    pub fold: Fold,
}

/// The fields of the routing header (GRH) that the sender of a datagram chooses (IBA vol. 1, 8.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GrhFields {
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
}

impl GrhFields {
    /// As one word: hop limit, traffic class from bit 8, flow label from bit 16.
    #[inline]
    pub const fn pack(self) -> u64 {
        let flow_label = (self.flow_label & 0xf_ffff) as u64;
        self.hop_limit as u64 | (self.traffic_class as u64) << 8 | flow_label << 16
    }

    /// From that word.
    #[inline]
    pub const fn unpack(word: u64) -> GrhFields {
        GrhFields {
            hop_limit: word as u8,
            traffic_class: (word >> 8) as u8,
            flow_label: (word >> 16) as u32 & 0xf_ffff,
        }
    }
}

impl Train {
    /// A train of `kind` with everything else zero.
    #[inline]
    pub const fn new(kind: TrainKind, dst_qpn: Qpn, src_qpn: Qpn, first_psn: Psn) -> Self {
        Train {
            dst_qpn,
            src_qpn,
            kind,
            flags: TrainFlags(0),
            first_psn,
            packets: 1,
            payload_bytes: 0,
            imm_or_rkey: 0,
            remote_addr: 0,
            rkey: RKey(0),
            dma_bytes: 0,
            swap_add: 0,
            compare: 0,
            syndrome: Syndrome::ACK,
            msn: Msn::new(0),
            qkey: 0,
            slid: 0,
            sl: 0,
            fold: Fold { packets: 0, messages: 0 },
        }
    }

    /// PSN of the last packet.
    #[inline]
    pub const fn last_psn(&self) -> Psn {
        self.first_psn.add(self.packets.wrapping_sub(1))
    }

    /// Whether the fields agree with each other on a path of `mtu`. A train comes from a ring or a
    /// network and may hold anything. Errors that a responder answers with a NAK (a payload that
    /// does not fill its packets) pass.
    #[inline]
    pub const fn is_plausible(&self, mtu: PathMtu) -> bool {
        match self.kind {
            TrainKind::Send | TrainKind::Write | TrainKind::ReadResponse => {
                self.packets.wrapping_sub(1) < MAX_PACKETS
            }
            TrainKind::ReadRequest => self.packets == mtu.packets(self.dma_bytes),
            TrainKind::CmpSwap
            | TrainKind::FetchAdd
            | TrainKind::AtomicResponse
            | TrainKind::Ack => self.packets == 1,
        }
    }

    /// Packet `index` of this train as a train of one packet, and where its payload begins. READ
    /// requests are one packet already, whatever PSNs their responses take.
    pub fn packet(&self, index: u32, mtu: PathMtu) -> (Train, u32) {
        debug_assert!(index < self.packets, "packet {index} of a train of {}", self.packets);
        if matches!(self.kind, TrainKind::ReadRequest) || self.packets == 1 {
            return (*self, 0);
        }
        let offset = index.wrapping_mul(mtu.bytes());
        let last = index + 1 == self.packets;
        let mut one = *self;
        one.first_psn = self.first_psn.add(index);
        one.packets = 1;
        one.payload_bytes = self.payload_bytes.saturating_sub(offset).min(mtu.bytes());
        if index > 0 {
            one.flags.0 &= !TrainFlags::FIRST;
            one.fold = Fold::default();
        }
        if !last {
            let ends = TrainFlags::LAST
                | TrainFlags::ACK_REQ
                | TrainFlags::SOLICITED
                | TrainFlags::IMM
                | TrainFlags::INV;
            one.flags.0 &= !ends;
        }
        (one, offset)
    }
}
