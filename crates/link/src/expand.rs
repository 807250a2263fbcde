//! From a train to the bytes of its packets.

use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_wire::headers::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ieth, ImmDt, Reth};
use rdmalab_wire::ids::{QKey, RKey};
use rdmalab_wire::opcode::{Opcode, Transport};
use rdmalab_wire::packet::{Headers, ICRC_BYTES, MAX_HEADER_BYTES, pad_count};

use crate::address::FourTuple;

/// Bytes that a packet takes beyond its payload, at most: headers, pad, invariant CRC.
pub const MAX_OVERHEAD_BYTES: usize = MAX_HEADER_BYTES + 3 + ICRC_BYTES;

/// Number of packets that a train takes on a network. A READ request is one packet, however many
/// PSNs its response takes.
#[inline]
pub fn packets_of(train: &Train) -> u32 {
    if train.kind == TrainKind::ReadRequest { 1 } else { train.packets }
}

/// Where the parts of a packet lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// The payload begins here.
    pub payload_at: usize,
    /// Bytes of payload.
    pub payload_bytes: usize,
    /// Bytes of the whole packet, BTH to ICRC.
    pub packet_bytes: usize,
}

/// The opcode of a train of one packet; `None` where the transport has none.
#[inline]
pub fn opcode_of(train: &Train, transport: Transport) -> Option<Opcode> {
    let flags = train.flags;
    let (first, last) = (flags.has(TrainFlags::FIRST), flags.has(TrainFlags::LAST));
    let imm = flags.has(TrainFlags::IMM) as u8;
    // First, middle, last, last with immediate, only, only with immediate.
    let place = match (first, last) {
        (true, false) => 0,
        (false, false) => 1,
        (false, true) => 2 + imm,
        (true, true) => 4 + imm,
    };
    let byte = match train.kind {
        TrainKind::Send if flags.has(TrainFlags::INV) && last => 0x16 + first as u8,
        TrainKind::Send => place,
        TrainKind::Write => 6 + place,
        TrainKind::ReadRequest => 0x0c,
        TrainKind::ReadResponse => match (first, last) {
            (true, false) => 0x0d,
            (false, false) => 0x0e,
            (false, true) => 0x0f,
            (true, true) => 0x10,
        },
        TrainKind::Ack => 0x11,
        TrainKind::AtomicResponse => 0x12,
        TrainKind::CmpSwap => 0x13,
        TrainKind::FetchAdd => 0x14,
    };
    let service = match transport {
        Transport::Rc => 0,
        Transport::Uc => 0x20,
        Transport::Ud => 0x60,
        Transport::Cnp => return None,
    };
    Opcode::from_byte(service | byte)
}

/// The headers of a train of one packet.
pub fn headers_of(train: &Train, transport: Transport) -> Option<Headers> {
    let opcode = opcode_of(train, transport)?;
    Some(Headers {
        deth: opcode.has_deth().then(|| deth_of(train)),
        reth: opcode.has_reth().then(|| reth_of(train)),
        atomic_eth: opcode.has_atomic_eth().then(|| atomic_eth_of(train)),
        aeth: opcode.has_aeth().then(|| aeth_of(train)),
        atomic_ack_eth: opcode.has_atomic_ack_eth().then(|| atomic_ack_eth_of(train)),
        immdt: opcode.has_immdt().then(|| immdt_of(train)),
        ieth: opcode.has_ieth().then(|| ieth_of(train)),
        ..Headers::new(bth_of(train, opcode))
    })
}

/// Writes the headers of a train of one packet to the start of `out` and returns their length.
/// `opcode` is the result of [`opcode_of`]. `None` if the headers do not fit.
#[inline]
pub fn write_head(train: &Train, opcode: Opcode, out: &mut [u8]) -> Option<usize> {
    let (bth, rest) = out.split_first_chunk_mut()?;
    *bth = bth_of(train, opcode).to_bytes();
    // The most frequent packets have a BTH only: a short cut.
    if opcode.header_bytes() == Bth::BYTES {
        return Some(Bth::BYTES);
    }
    Some(Bth::BYTES + write_extended(train, opcode.transport(), rest)?)
}

/// Writes the headers behind the BTH of a train of one packet to the start of `out`, and returns
/// their length. `None` if they do not fit. The train has an opcode.
#[inline]
pub fn write_extended(train: &Train, transport: Transport, out: &mut [u8]) -> Option<usize> {
    let flags = train.flags;
    let (first, last) = (flags.has(TrainFlags::FIRST), flags.has(TrainFlags::LAST));
    let mut at = 0;
    if transport == Transport::Ud {
        put(out, &mut at, deth_of(train).to_bytes())?;
    }
    match train.kind {
        TrainKind::Write if !first => {}
        TrainKind::Write | TrainKind::ReadRequest => put(out, &mut at, reth_of(train).to_bytes())?,
        TrainKind::CmpSwap | TrainKind::FetchAdd => {
            put(out, &mut at, atomic_eth_of(train).to_bytes())?;
        }
        TrainKind::ReadResponse if !first && !last => {}
        TrainKind::Ack | TrainKind::ReadResponse => put(out, &mut at, aeth_of(train).to_bytes())?,
        TrainKind::AtomicResponse => {
            put(out, &mut at, aeth_of(train).to_bytes())?;
            put(out, &mut at, atomic_ack_eth_of(train).to_bytes())?;
        }
        TrainKind::Send => {}
    }
    let is_message = matches!(train.kind, TrainKind::Send | TrainKind::Write);
    if is_message && last {
        if train.kind == TrainKind::Send && flags.has(TrainFlags::INV) {
            put(out, &mut at, ieth_of(train).to_bytes())?;
        } else if flags.has(TrainFlags::IMM) {
            put(out, &mut at, immdt_of(train).to_bytes())?;
        }
    }
    Some(at)
}

#[inline]
fn put<const BYTES: usize>(out: &mut [u8], at: &mut usize, bytes: [u8; BYTES]) -> Option<()> {
    *out.get_mut(*at..)?.first_chunk_mut()? = bytes;
    *at += BYTES;
    Some(())
}

#[inline]
fn deth_of(train: &Train) -> Deth {
    Deth { qkey: QKey(train.qkey), source_qp: train.src_qpn }
}

#[inline]
fn reth_of(train: &Train) -> Reth {
    Reth { virtual_address: train.remote_addr, rkey: train.rkey, dma_length: train.dma_bytes }
}

#[inline]
fn atomic_eth_of(train: &Train) -> AtomicEth {
    AtomicEth {
        virtual_address: train.remote_addr,
        rkey: train.rkey,
        swap_or_add: train.swap_add,
        compare: train.compare,
    }
}

#[inline]
fn aeth_of(train: &Train) -> Aeth {
    Aeth { syndrome: train.syndrome, msn: train.msn }
}

#[inline]
fn atomic_ack_eth_of(train: &Train) -> AtomicAckEth {
    AtomicAckEth { original: train.swap_add }
}

#[inline]
fn immdt_of(train: &Train) -> ImmDt {
    ImmDt(u32::from_be(train.imm_or_rkey))
}

#[inline]
fn ieth_of(train: &Train) -> Ieth {
    Ieth(RKey(train.imm_or_rkey))
}

#[inline]
fn bth_of(train: &Train, opcode: Opcode) -> Bth {
    let mut bth = Bth::new(opcode, train.dst_qpn, train.first_psn);
    bth.solicited_event = train.flags.has(TrainFlags::SOLICITED);
    bth.ack_req = train.flags.has(TrainFlags::ACK_REQ);
    bth.mig_req = true;
    bth.pad_count = pad_count(train.payload_bytes as usize);
    bth
}

/// Writes the headers and the pad of a train of one packet ([`Train::packet`]) to the start of
/// `out`. The caller then copies the payload in between and calls [`seal`]. `None` if the transport
/// has no such packet, or if the packet does not fit.
#[inline]
pub fn write_headers(train: &Train, transport: Transport, out: &mut [u8]) -> Option<Parts> {
    let payload_at = write_head(train, opcode_of(train, transport)?, out)?;
    let payload_bytes = train.payload_bytes as usize;
    let padded = payload_bytes.checked_next_multiple_of(4)?;
    let packet_bytes = payload_at.checked_add(padded)?.checked_add(ICRC_BYTES)?;
    out.get_mut(payload_at + payload_bytes..packet_bytes)?.fill(0);
    Some(Parts { payload_at, payload_bytes, packet_bytes })
}

/// Writes the invariant CRC to the end of an otherwise complete packet. `identification` is the
/// value that the IPv4 header will have; over IPv6 it is ignored.
#[inline]
pub fn seal(tuple: &FourTuple, identification: u16, packet: &mut [u8]) {
    let icrc = tuple.icrc(identification, packet);
    if let Some(trailer) = packet.last_chunk_mut::<ICRC_BYTES>() {
        *trailer = icrc.to_le_bytes();
    }
}
