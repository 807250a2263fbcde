//! Encodes a train as a slot of a shared ring, and decodes it.
//!
//! A slot has a 32-bit head and seven words. Short payloads are in the slot itself, so that a small
//! message costs one cache line; longer ones are in the ring's data area. Another process wrote the
//! slot, so decoding checks everything that later code relies on. A datagram to a multicast group
//! has the group's GID in words 5 and 6, and its payload in the data area.
//!
//! - head: destination QPN 24, kind 4, transport service 2, unused 1, form 1 bits.
//! - 0: flags 8, PSN 24, payload bytes 32; of datagrams: payload bytes 16, hop limit 8, traffic
//!   class 8.
//! - 1: source QPN 24, syndrome 8, immediate data or MSN 32; datagrams have the index of the source
//!   GID instead of the syndrome.
//! - 2: fold (packets 24, messages 24); for datagrams: Q_Key 32, SLID 16, SL 8, index of the
//!   destination GID 8.
//! - 3 to 6 of SEND and responses: up to 32 bytes of payload, or its position and the packets.
//! - 4 of a datagram, from bit 24, unless it is payload: flow label 20. A datagram with a flow
//!   label has its payload in the data area.
//! - 3 to 6 of WRITE and READ requests: up to 16 bytes of payload, or its position and the packets;
//!   address; key 32 and length 32.
//! - 3 to 6 of atomics: compare, swap or add, address, key; of atomic responses: the value.

use rdmalab_engine::train::{Fold, Train, TrainFlags, TrainKind};
use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::ids::{MASK_24, Msn, Psn, Qpn, RKey};
use rdmalab_wire::opcode::Transport;

/// Payload bytes that fit into the slot of a SEND or a response.
pub(crate) const SHORT_BYTES: u32 = 32;
/// Payload bytes that fit into the slot of a WRITE.
pub(crate) const SHORT_WRITE_BYTES: u32 = 16;

const FORM_SHORT: u32 = 0;
const FORM_DATA: u32 = 1;
/// Position of the transport service in the head.
const SERVICE_SHIFT: u32 = 2;
/// Position of the flow label in word 4.
const FLOW_LABEL_SHIFT: u32 = 24;

/// Seven words of a slot.
pub(crate) type Body = [u64; 7];

/// The place of a train's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotPayload {
    /// In the words of the body, from word 3.
    Short,
    /// At this position of the data area.
    Data(u64),
}

/// Whether the payload of `train` fits into its slot.
#[inline(always)]
pub(crate) fn fits_slot(train: &Train, service: Transport) -> bool {
    let limit = match train.kind {
        TrainKind::Write => SHORT_WRITE_BYTES,
        _ => SHORT_BYTES,
    };
    let has_flow_label = service == Transport::Ud && train.compare >> 16 != 0;
    let payload_fits = train.payload_bytes <= limit && train.packets == 1 && !has_flow_label;
    payload_fits && train.dst_qpn != Qpn::MULTICAST
        || train.kind == TrainKind::ReadRequest
        || train.payload_bytes == 0
}

/// Encodes the head and words 0 to 2 and, if they are used, 3 to 6. The caller then writes a short
/// payload over the words from 3 on.
#[inline(always)]
pub(crate) fn encode(train: &Train, payload: SlotPayload, service: Transport) -> (u32, Body) {
    let is_datagram = service == Transport::Ud;
    let form = match payload {
        SlotPayload::Short => FORM_SHORT,
        SlotPayload::Data(_) => FORM_DATA,
    };
    let head = head_of(train.dst_qpn, train.kind, service, form);
    let imm = if train.kind.is_response() { train.msn.get() } else { train.imm_or_rkey };
    let mut body = [0; 7];
    body[0] = train.flags.0 as u64
        | (train.first_psn.get() as u64) << 8
        | (train.payload_bytes as u64) << 32;
    let [sgid_index, dgid_index, ..] = train.rkey.0.to_le_bytes();
    let extra = if is_datagram { sgid_index } else { train.syndrome.byte() };
    body[1] = train.src_qpn.get() as u64 | (extra as u64) << 24 | (imm as u64) << 32;
    body[2] = if is_datagram {
        // Hop limit and traffic class.
        body[0] |= train.compare << 48;
        let ends = (train.slid as u64) << 32 | (dgid_index as u64) << 56;
        train.qkey as u64 | ends | (train.sl as u64) << 48
    } else {
        train.fold.packets as u64 | (train.fold.messages as u64) << 24
    };
    if let SlotPayload::Data(position) = payload {
        body[3] = position;
        body[4] = train.packets as u64;
    }
    match train.kind {
        TrainKind::Write => {
            body[5] = train.remote_addr;
            body[6] = train.rkey.0 as u64 | (train.dma_bytes as u64) << 32;
        }
        TrainKind::ReadRequest => {
            body[4] = train.packets as u64;
            body[5] = train.remote_addr;
            body[6] = train.rkey.0 as u64 | (train.dma_bytes as u64) << 32;
        }
        TrainKind::CmpSwap | TrainKind::FetchAdd => {
            body[3] = train.compare;
            body[4] = train.swap_add;
            body[5] = train.remote_addr;
            body[6] = train.rkey.0 as u64;
        }
        TrainKind::AtomicResponse => body[3] = train.swap_add,
        TrainKind::Send if is_datagram => {
            body[4] |= (train.compare >> 16) << FLOW_LABEL_SHIFT;
            if train.dst_qpn == Qpn::MULTICAST {
                body[5] = train.remote_addr;
                body[6] = train.swap_add;
            }
        }
        _ => {}
    }
    (head, body)
}

/// The head has two bits for the service.
const _: () = assert!((Transport::Cnp as u32) < 4);

#[inline(always)]
fn head_of(dst_qpn: Qpn, kind: TrainKind, service: Transport, form: u32) -> u32 {
    dst_qpn.get() << 8 | (kind as u32) << 4 | (service as u32) << SERVICE_SHIFT | form
}

/// Whether a slot holds a packet of this transport service.
#[inline(always)]
pub(crate) fn is_of(head: u32, service: Transport) -> bool {
    head >> SERVICE_SHIFT & 3 == service as u32
}

/// Whether the payload of a slot is in the data area.
#[inline(always)]
pub(crate) fn has_data(head: u32) -> bool {
    head & 1 == FORM_DATA
}

/// Destination QPN of a slot.
#[inline]
pub(crate) fn destination(head: u32) -> Qpn {
    Qpn::new(head >> 8)
}

/// Decodes a slot; `None` if it is invalid.
#[inline(always)]
pub(crate) fn decode(head: u32, body: &Body) -> Option<(Train, SlotPayload)> {
    let kind = TrainKind::from_number((head >> 4) as u8 & 15)?;
    let src_qpn = Qpn::new(body[1] as u32);
    let mut train = Train::new(kind, destination(head), src_qpn, Psn::new((body[0] >> 8) as u32));
    train.flags = TrainFlags(body[0] as u8);
    train.payload_bytes = (body[0] >> 32) as u32;
    let upper = (body[1] >> 32) as u32;
    if kind.is_response() {
        train.msn = Msn::new(upper);
        train.syndrome = Syndrome::from_byte((body[1] >> 24) as u8)?;
    } else {
        train.imm_or_rkey = upper;
    }
    let payload = if head & 1 == FORM_DATA {
        train.packets = body[4] as u32;
        SlotPayload::Data(body[3])
    } else {
        SlotPayload::Short
    };
    if is_of(head, Transport::Ud) {
        decode_datagram(body, payload, &mut train);
    } else {
        train.fold =
            Fold { packets: body[2] as u32 & MASK_24, messages: (body[2] >> 24) as u32 & MASK_24 };
    }
    let limit = match kind {
        TrainKind::Write => {
            train.remote_addr = body[5];
            train.rkey = RKey(body[6] as u32);
            train.dma_bytes = (body[6] >> 32) as u32;
            SHORT_WRITE_BYTES
        }
        TrainKind::ReadRequest => {
            train.packets = body[4] as u32;
            train.remote_addr = body[5];
            train.rkey = RKey(body[6] as u32);
            train.dma_bytes = (body[6] >> 32) as u32;
            0
        }
        TrainKind::CmpSwap | TrainKind::FetchAdd => {
            train.compare = body[3];
            train.swap_add = body[4];
            train.remote_addr = body[5];
            train.rkey = RKey(body[6] as u32);
            train.dma_bytes = 8;
            0
        }
        TrainKind::AtomicResponse => {
            train.swap_add = body[3];
            0
        }
        TrainKind::Ack => 0,
        TrainKind::Send if train.dst_qpn == Qpn::MULTICAST => {
            train.remote_addr = body[5];
            train.swap_add = body[6];
            0
        }
        _ => SHORT_BYTES,
    };
    let too_long = payload == SlotPayload::Short && train.payload_bytes > limit;
    if too_long || train.packets == 0 || train.packets > MASK_24 {
        return None;
    }
    Some((train, payload))
}

/// The fields of a datagram that trains of connections do not have.
#[inline(always)]
fn decode_datagram(body: &Body, payload: SlotPayload, train: &mut Train) {
    train.payload_bytes &= 0xffff;
    train.compare = body[0] >> 48;
    if payload != SlotPayload::Short || train.payload_bytes == 0 {
        train.compare |= (body[4] >> FLOW_LABEL_SHIFT & 0xf_ffff) << 16;
    }
    if payload != SlotPayload::Short {
        train.packets &= MASK_24;
    }
    train.qkey = body[2] as u32;
    train.slid = (body[2] >> 32) as u16;
    train.sl = (body[2] >> 48) as u8;
    let indices = [(body[1] >> 24) as u8, (body[2] >> 56) as u8, 0, 0];
    train.rkey = RKey(u32::from_le_bytes(indices));
}

/// A SEND of one packet without a fold: the most frequent kind of train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Single {
    pub(crate) src_qpn: Qpn,
    pub(crate) psn: Psn,
    pub(crate) flags: TrainFlags,
    pub(crate) payload_bytes: u32,
    pub(crate) imm: u32,
}

/// Index of the word where a short payload begins.
pub(crate) const PAYLOAD_WORD: usize = 3;

/// The words of a slot that hold a short payload.
pub(crate) type ShortPayload = [u64; 4];

const _: () = assert!(size_of::<ShortPayload>() == SHORT_BYTES as usize);

/// Encodes as [`encode`] does. `short` is the payload, if that is [`SlotPayload::Short`].
#[inline(always)]
pub(crate) fn encode_single(
    dst_qpn: Qpn,
    send: &Single,
    service: Transport,
    payload: SlotPayload,
    short: ShortPayload,
) -> (u32, Body) {
    let (form, [a, b, c, d]) = match payload {
        SlotPayload::Short => (FORM_SHORT, short),
        SlotPayload::Data(position) => (FORM_DATA, [position, 1, 0, 0]),
    };
    let head = head_of(dst_qpn, TrainKind::Send, service, form);
    let first =
        send.flags.0 as u64 | (send.psn.get() as u64) << 8 | (send.payload_bytes as u64) << 32;
    let syndrome = (Syndrome::ACK.byte() as u64) << 24;
    let second = send.src_qpn.get() as u64 | syndrome | (send.imm as u64) << 32;
    (head, [first, second, 0, a, b, c, d])
}

/// Whether a slot holds a SEND.
#[inline(always)]
pub(crate) fn is_send(head: u32) -> bool {
    head >> 4 & 15 == TrainKind::Send as u32
}

/// Decodes a slot that holds such a train of a service, with its payload in the slot or in the data
/// area; for all others `None`, and [`decode`] is needed.
#[inline(always)]
pub(crate) fn decode_single(
    head: u32,
    service: Transport,
    body: &Body,
    in_data_area: bool,
) -> Option<Single> {
    let payload_bytes = (body[0] >> 32) as u32;
    let (form, fits) = match in_data_area {
        false => (FORM_SHORT, payload_bytes <= SHORT_BYTES),
        true => (FORM_DATA, body[4] == 1),
    };
    let expected = head_of(Qpn::new(0), TrainKind::Send, service, form);
    let is_single = head & 0xff == expected && fits && body[2] == 0;
    is_single.then(|| Single {
        src_qpn: Qpn::new(body[1] as u32),
        psn: Psn::new((body[0] >> 8) as u32),
        flags: TrainFlags(body[0] as u8),
        payload_bytes,
        imm: (body[1] >> 32) as u32,
    })
}

/// Encodes an acknowledgement that is no NAK as [`encode`] does.
#[inline(always)]
pub(crate) fn encode_ack(
    dst_qpn: Qpn,
    src_qpn: Qpn,
    (psn, msn): (Psn, Msn),
    service: Transport,
) -> (u32, Body) {
    let flags = u64::from(TrainFlags::FIRST | TrainFlags::LAST);
    let syndrome = u64::from(Syndrome::ACK.byte()) << 24;
    let first = flags | u64::from(psn.get()) << 8;
    let second = u64::from(src_qpn.get()) | syndrome | u64::from(msn.get()) << 32;
    (head_of(dst_qpn, TrainKind::Ack, service, FORM_SHORT), [first, second, 0, 0, 0, 0, 0])
}

/// Decodes a slot that holds such an acknowledgement of a service: its sender and its PSN. For all
/// others `None`, and [`decode`] is needed.
#[inline(always)]
pub(crate) fn decode_ack(head: u32, service: Transport, body: &Body) -> Option<(Qpn, Psn)> {
    let expected = head_of(Qpn::new(0), TrainKind::Ack, service, FORM_SHORT);
    let is_ack = head & 0xff == expected
        && body[0] as u8 == TrainFlags::FIRST | TrainFlags::LAST
        && body[0] >> 32 == 0
        && (body[1] >> 24) as u8 == Syndrome::ACK.byte()
        && body[2] == 0;
    is_ack.then(|| (Qpn::new(body[1] as u32), Psn::new((body[0] >> 8) as u32)))
}

/// The packet of a slot that holds a SEND of one packet without a fold, or an acknowledgement, of a
/// reliable connection.
pub(crate) struct ShortPacket {
    /// [`capture_key`] of its train.
    pub(crate) key: u64,
    /// The last word of the BTH.
    pub(crate) psn: [u8; 4],
    /// The word after the BTH, if there is one.
    pub(crate) more: [u8; 4],
}

impl ShortPacket {
    #[inline(always)]
    pub(crate) fn of(slot_head: u32, body: &Body) -> ShortPacket {
        let upper = (body[1] >> 32) as u32;
        let flags = TrainFlags(body[0] as u8);
        let more = match is_send(slot_head) {
            true => upper.to_ne_bytes(),
            // Syndrome and MSN.
            false => (body[1] as u32 & !MASK_24 | upper & MASK_24).to_be_bytes(),
        };
        let payload_bytes = (body[0] >> 32) as u32;
        ShortPacket {
            key: capture_key(flags, payload_bytes),
            psn: psn_word(flags, (body[0] >> 8) as u32 & MASK_24),
            more,
        }
    }
}

/// Whether the packet of a SEND has immediate data. A SEND with a key to invalidate takes no short
/// way.
#[inline(always)]
pub(crate) fn has_more(body: &Body) -> bool {
    TrainFlags(body[0] as u8).has(TrainFlags::IMM)
}

/// Packets of a connection of the same kind and with the same key have the same headers below the
/// BTH, the same BTH but for its last word, and the same length.
#[inline(always)]
pub(crate) fn capture_key(flags: TrainFlags, payload_bytes: u32) -> u64 {
    u64::from(payload_bytes) << 32 | u64::from(flags.0 & !TrainFlags::ACK_REQ)
}

/// The last word of the BTH.
#[inline(always)]
pub(crate) fn psn_word(flags: TrainFlags, psn: u32) -> [u8; 4] {
    (psn | u32::from(flags.has(TrainFlags::ACK_REQ)) << 31).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use rdmalab_engine::train::GrhFields;

    use super::*;

    fn round_trip(train: Train, payload: SlotPayload, service: Transport) {
        let (head, body) = encode(&train, payload, service);
        assert_eq!(destination(head), train.dst_qpn);
        assert!(is_of(head, service));
        assert_eq!(decode(head, &body), Some((train, payload)));
    }

    #[test]
    fn every_kind_survives() {
        for number in 0..8 {
            let kind = TrainKind::from_number(number).unwrap();
            let mut train = Train::new(kind, Qpn::new(0xabcdef), Qpn::new(77), Psn::new(0xfffffe));
            train.flags = TrainFlags(0x5b);
            match kind {
                TrainKind::Write | TrainKind::ReadRequest => {
                    train.remote_addr = 0x1234_5678_9abc_def0;
                    train.rkey = RKey(0xdead_beef);
                    train.dma_bytes = 1 << 31;
                }
                TrainKind::CmpSwap | TrainKind::FetchAdd => {
                    train.remote_addr = 8;
                    train.rkey = RKey(5);
                    train.dma_bytes = 8;
                    train.compare = u64::MAX;
                    train.swap_add = 3;
                }
                TrainKind::AtomicResponse => train.swap_add = u64::MAX - 1,
                _ => {}
            }
            if kind.is_response() {
                train.msn = Msn::new(99);
                train.syndrome = Syndrome::from_byte(0x2c).unwrap();
            } else {
                train.imm_or_rkey = 0x0102_0304;
            }
            train.fold = Fold { packets: 0xff_ffff, messages: 5 };
            if kind == TrainKind::ReadRequest {
                train.packets = 1 << 23;
            }
            round_trip(train, SlotPayload::Short, Transport::Rc);
            round_trip(train, SlotPayload::Short, Transport::Uc);
        }
    }

    #[test]
    fn single_sends_are_encoded_as_all_trains_are() {
        let (src_qpn, dst_qpn, psn) = (Qpn::new(77), Qpn::new(0xabcdef), Psn::new(0xfffffe));
        let mut train = Train::new(TrainKind::Send, dst_qpn, src_qpn, psn);
        train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST | TrainFlags::IMM);
        train.imm_or_rkey = 0x0102_0304;
        for (payload, payload_bytes) in
            [(SlotPayload::Short, SHORT_BYTES), (SlotPayload::Data(1 << 40), 4096)]
        {
            train.payload_bytes = payload_bytes;
            let (flags, imm) = (train.flags, train.imm_or_rkey);
            let send = Single { src_qpn, psn, flags, payload_bytes, imm };
            let (head, mut body) = encode(&train, payload, Transport::Rc);
            if payload == SlotPayload::Short {
                body[PAYLOAD_WORD..].copy_from_slice(&[1, 2, 3, 4]);
            }
            let encoded = encode_single(dst_qpn, &send, Transport::Rc, payload, [1, 2, 3, 4]);
            assert_eq!(encoded, (head, body));
            let has_data = has_data(head);
            let decode = |body: &Body| decode_single(head, Transport::Rc, body, has_data);
            assert_eq!(decode(&body), Some(send));
            let other = decode_single(head, Transport::Uc, &body, has_data);
            assert_eq!(other, None, "another service");
            let other = decode_single(head ^ FORM_DATA, Transport::Rc, &body, has_data);
            assert_eq!(other, None, "another form");
            body[2] = 1;
            assert_eq!(decode(&body), None, "a fold");
            body[2] = 0;
            body[0] += 1 << 32;
            body[4] += 1;
            assert_eq!(decode(&body), None, "33 bytes in the slot, or two packets");
        }
    }

    #[test]
    fn an_acknowledgement_has_one_encoding() {
        let (psn, msn) = (Psn::new(0x00ff_fffe), Msn::new(0x0087_6543));
        let mut train = Train::new(TrainKind::Ack, Qpn::new(0x00ab_cdef), Qpn::new(77), psn);
        train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST);
        (train.msn, train.syndrome) = (msn, Syndrome::ACK);
        let encoded = encode(&train, SlotPayload::Short, Transport::Rc);
        let ends = (train.dst_qpn, train.src_qpn);
        assert_eq!(encode_ack(ends.0, ends.1, (psn, msn), Transport::Rc), encoded);
        let (head, body) = encoded;
        assert_eq!(decode_ack(head, Transport::Rc, &body), Some((ends.1, psn)));
        assert_eq!(decode_ack(head, Transport::Uc, &body), None, "another service");
        train.syndrome = Syndrome::from_byte(0x60).unwrap();
        let (head, body) = encode(&train, SlotPayload::Short, Transport::Rc);
        assert_eq!(decode_ack(head, Transport::Rc, &body), None, "a NAK");
    }

    #[test]
    fn what_is_taken_for_a_single_send_is_one() {
        let mut random = rdmalab_random::Random::new(1);
        let mut found = 0;
        for _ in 0..100_000 {
            // Small numbers, so that most slots differ from a single SEND in few bits.
            let kind = random.below(2) as u32;
            let head = 77 << 8 | kind << 4 | random.below(8) as u32;
            let few = |random: &mut rdmalab_random::Random| random.below(3);
            let mut body: Body = std::array::from_fn(|_| few(&mut random));
            body[0] |= random.below(40) << 32 | random.below(256);
            body[2] = random.below(2) * few(&mut random);
            let Some(single) = decode_single(head, Transport::Rc, &body, has_data(head)) else {
                continue;
            };
            let (train, payload) = decode(head, &body).expect("a sound slot");
            assert_eq!((train.kind, train.packets), (TrainKind::Send, 1));
            assert_eq!(train.fold, Fold::default());
            assert_eq!((train.first_psn, train.flags), (single.psn, single.flags));
            assert_eq!((train.src_qpn, train.imm_or_rkey), (single.src_qpn, single.imm));
            assert_eq!(train.payload_bytes, single.payload_bytes);
            assert_eq!(payload != SlotPayload::Short, has_data(head));
            found += 1;
        }
        assert!(found > 1000, "{found}");
    }

    #[test]
    fn long_payload_and_datagrams_survive() {
        let mut train = Train::new(TrainKind::Write, Qpn::new(1), Qpn::new(2), Psn::new(3));
        train.packets = 16;
        train.payload_bytes = 65536;
        train.dma_bytes = 1 << 20;
        round_trip(train, SlotPayload::Data(1 << 40), Transport::Rc);
        let mut train = Train::new(TrainKind::Send, Qpn::new(1), Qpn::new(2), Psn::new(3));
        train.qkey = 0x1111_1111;
        train.slid = 2;
        train.sl = 7;
        train.rkey = RKey(0xfe01);
        train.payload_bytes = 32;
        let mut grh = GrhFields { traffic_class: 0xa5, hop_limit: 0x5a, flow_label: 0 };
        train.compare = grh.pack();
        assert!(fits_slot(&train, Transport::Ud));
        round_trip(train, SlotPayload::Short, Transport::Ud);
        grh.flow_label = 0xf_edcb;
        train.compare = grh.pack();
        assert!(!fits_slot(&train, Transport::Ud), "the flow label is where the payload would be");
        round_trip(train, SlotPayload::Data(1 << 40), Transport::Ud);
        train.payload_bytes = 0;
        assert!(fits_slot(&train, Transport::Ud));
        round_trip(train, SlotPayload::Short, Transport::Ud);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(decode(9 << 4, &[0; 7]).is_none());
        let mut body = [0; 7];
        body[0] = 33 << 32;
        assert!(decode(0, &body).is_none());
        body[0] = 64 << 32;
        assert!(decode(FORM_DATA, &body).is_none(), "zero packets");
    }
}
