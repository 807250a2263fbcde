//! Shows a train of shared memory as it would look on a network: its headers and its frames.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

use rdmalab_engine::train::{GrhFields, Train, TrainFlags, TrainKind};
use rdmalab_engine::vocab::AhAttr;
use rdmalab_link::address::{FourTuple, IpFields, address_of};
use rdmalab_link::expand::{self, MAX_OVERHEAD_BYTES};
use rdmalab_link::frame_headers::FrameHeaders;
use rdmalab_link::hook::Direction;
use rdmalab_link::pcapng::Template;
use rdmalab_wire::headers::Bth;
use rdmalab_wire::ids::{Gid, PathMtu, Qpn};
use rdmalab_wire::ip::ROCE_V2_PORT;
use rdmalab_wire::opcode::Transport;

use super::tap::{Again, Entry, Record, Tap};
use crate::codec::{self, Body, ShortPacket, ShortPayload};
use crate::device;

/// A GID of a port of this host, of the same address family as `like`.
pub(super) fn gid_like(device: u32, like: Gid) -> Gid {
    let v4 = address_of(like).is_ipv4();
    let all = (0..device::gid_count()).filter_map(|index| device::gid_of(device, index));
    all.into_iter().find(|gid| address_of(*gid).is_ipv4() == v4).unwrap_or(like)
}

pub(super) fn first_gid(device: u32) -> Gid {
    device::gid_of(device.min(device::count() - 1), 0).unwrap_or_default()
}

/// What a frame shows whose sender chose nothing.
pub(super) const UNCHOSEN: GrhFields = GrhFields { traffic_class: 0, hop_limit: 64, flow_label: 0 };

/// The headers of frames from `source` to `destination`, as if they had gone over a network, with
/// the fields that the sender chose; a hop limit of 0 is the system's default. The source port is
/// derived from the sender's QPN, as adapters do.
pub(crate) fn shared_headers(
    (source, destination): (Gid, Gid),
    src_qpn: Qpn,
    chosen: GrhFields,
) -> FrameHeaders {
    let tuple = FourTuple {
        source: address_of(source),
        destination: address_of(destination),
        source_port: 0xc000 | src_qpn.get() as u16 & 0x3fff,
        destination_port: ROCE_V2_PORT,
    };
    let GrhFields { traffic_class, hop_limit, flow_label } = chosen;
    let hop_limit = if hop_limit == 0 { UNCHOSEN.hop_limit } else { hop_limit };
    FrameHeaders::of(tuple, &IpFields { traffic_class, hop_limit, flow_label, identification: 0 })
}

/// The GIDs of a connection on this host: ours and the peer's.
pub(crate) fn ends(device: u32, ah: &AhAttr) -> (Gid, Gid) {
    let by_gid = ah.is_global && ah.dgid != Gid::default();
    let theirs = if by_gid { ah.dgid } else { first_gid(u32::from(ah.dlid.0).saturating_sub(1)) };
    let ours = device::gid_of(device, u32::from(ah.sgid_index)).filter(|_| by_gid);
    let ours = ours.filter(|gid| address_of(*gid).is_ipv4() == address_of(theirs).is_ipv4());
    (ours.unwrap_or_else(|| gid_like(device, theirs)), theirs)
}

/// The fields that the sender of a datagram chose.
fn chosen_by(train: &Train) -> GrhFields {
    let has_grh = train.flags.has(TrainFlags::GRH);
    if has_grh { GrhFields::unpack(train.compare) } else { UNCHOSEN }
}

/// The headers of a datagram that was sent from a device of this host to a group.
fn group_path(train: &Train, source: u32) -> FrameHeaders {
    let group = crate::groups::gid_of(train);
    shared_headers((gid_like(source, group), group), train.src_qpn, chosen_by(train))
}

/// The headers of a datagram that this host sends: from `device` to `to`.
pub(super) fn sent_path(train: &Train, device: u32, to: &AhAttr) -> FrameHeaders {
    match train.dst_qpn == Qpn::MULTICAST {
        true => group_path(train, device),
        false => datagram_path(train, datagram_device(to)),
    }
}

/// The headers of a datagram that `device` received from this host.
pub(crate) fn received_headers(train: &Train, device: u32) -> FrameHeaders {
    match train.dst_qpn == Qpn::MULTICAST {
        true => group_path(train, u32::from(train.slid.saturating_sub(1))),
        false => datagram_path(train, device),
    }
}

/// The headers of a datagram to a port of this host: the same at both ends.
fn datagram_path(train: &Train, device: u32) -> FrameHeaders {
    let (source, destination) = device::gids_of(train, device).unwrap_or_default();
    let source = match address_of(source).is_ipv4() == address_of(destination).is_ipv4() {
        true => source,
        // A frame cannot go from IPv4 to IPv6.
        false => gid_like(u32::from(train.slid.saturating_sub(1)), destination),
    };
    shared_headers((source, destination), train.src_qpn, chosen_by(train))
}

/// The device of this host that a datagram goes to.
fn datagram_device(ah: &AhAttr) -> u32 {
    let by_gid = device::with_gid(ah.dgid).filter(|_| ah.is_global);
    by_gid.unwrap_or_else(|| u32::from(ah.dlid.0).saturating_sub(1)).min(device::count() - 1)
}

/// A train of shared memory, shown as frames on a network.
pub(crate) struct Frames<'a> {
    pub(crate) device: u32,
    /// Those of a connection are made once. They are borrowed, because the load from a fresh copy
    /// would have to wait for its own stores.
    pub(crate) headers: Cow<'a, FrameHeaders>,
    pub(crate) mtu: PathMtu,
    pub(crate) transport: Transport,
    /// The templates of packets with these headers.
    pub(crate) templates: Option<&'a FlowTemplates>,
}

/// What earlier packets of one flow and direction have in common, by the kind of their trains.
pub(crate) struct FlowTemplates([Cell<Template>; KINDS]);

/// Kinds of trains.
const KINDS: usize = TrainKind::Ack as usize + 1;

impl FlowTemplates {
    pub(crate) fn new() -> FlowTemplates {
        FlowTemplates([const { Cell::new(Template::NONE) }; KINDS])
    }
}

impl Frames<'_> {
    pub(crate) fn record(
        &self,
        tap: &Tap,
        direction: Direction,
        train: &Train,
        bytes: *const u8,
        comment: &str,
        spoilt: bool,
    ) {
        if expand::packets_of(train) == 1 {
            // Borrow the train: a load from a copy would wait for the copy's smaller stores.
            return self.record_packet(tap, direction, train, bytes, (comment, spoilt));
        }
        for index in 0..expand::packets_of(train) {
            let (packet, at) = train.packet(index, self.mtu);
            let from = bytes.wrapping_add(at as usize);
            self.record_packet(tap, direction, &packet, from, (comment, spoilt));
        }
    }

    fn record_packet(
        &self,
        tap: &Tap,
        direction: Direction,
        packet: &Train,
        from: *const u8,
        (comment, spoilt): (&str, bool),
    ) {
        let is_plain = comment.is_empty() && !spoilt;
        let Some(templates) = self.templates.filter(|_| is_plain) else {
            let Some(entry) = self.entry(tap, packet) else { return };
            return self.record_at(entry, direction, (packet, from), (comment, spoilt), None);
        };
        let template = &templates.0[packet.kind as usize];
        let known = template.get();
        let key = codec::capture_key(packet.flags, packet.payload_bytes);
        let psn = codec::psn_word(packet.flags, packet.first_psn.get());
        if known.is_of(key)
            && let Some(mut again) = tap.again(self.device, &known, psn)
        {
            let (tail_bytes, place) = (again.tail_bytes, again.place());
            let at = expand::write_extended(packet, self.transport, place).unwrap_or_default();
            debug_assert!(at <= tail_bytes, "cut within its headers");
            // SAFETY: as in `record_at`; the key contains the payload's length.
            unsafe { copy_payload(from, place, at..tail_bytes) };
            return again.queue();
        }
        self.record_and_learn(tap, direction, (packet, from), (template, key));
    }

    /// Captures a packet without a template, and perhaps makes it one.
    #[cold]
    #[inline(never)]
    fn record_and_learn(
        &self,
        tap: &Tap,
        direction: Direction,
        packet: (&Train, *const u8),
        (place, key): (&Cell<Template>, u64),
    ) {
        let Some(entry) = self.entry(tap, packet.0) else { return };
        let mut template = place.get();
        let learn = entry.wants(&mut template, key).then_some((&mut template, key));
        self.record_at(entry, direction, packet, ("", false), learn);
        place.set(template);
    }

    fn entry<'t>(&self, tap: &'t Tap, packet: &Train) -> Option<Entry<'t>> {
        tap.entry(self.device, packet.payload_bytes as usize + MAX_OVERHEAD_BYTES)
    }

    #[inline]
    fn record_at(
        &self,
        entry: Entry<'_>,
        direction: Direction,
        (packet, from): (&Train, *const u8),
        (comment, spoilt): (&str, bool),
        learn: Option<(&mut Template, u64)>,
    ) {
        let payload_bytes = packet.payload_bytes as usize;
        let Some(opcode) = expand::opcode_of(packet, self.transport) else { return };
        let head_bytes = opcode.header_bytes();
        let record = Record {
            direction,
            headers: &self.headers,
            bytes: head_bytes + payload_bytes,
            complete: false,
            spoilt,
            comment,
        };
        let fill = |place: &mut [u8]| {
            // The headers of every packet are kept in full.
            let Some((head, place)) = place.split_at_mut_checked(head_bytes) else {
                return debug_assert!(false, "cut within its headers");
            };
            expand::write_head(packet, opcode, head);
            // SAFETY: the sender, or the check of the ring, made sure that the payload lies at
            // `from`; `place` is no longer than the packet's part of the payload.
            unsafe { copy_payload(from, place, 0..place.len()) };
        };
        let tail_bytes = record.bytes - Bth::BYTES;
        entry.record(&record, fill, learn.map(|(template, key)| (template, key, tail_bytes)));
    }
}

/// Copies what is kept of a payload to a range of its place in the queue. The copy uses pointers
/// because the peer may write there.
///
/// # Safety
/// As many bytes can be read at `from`.
#[inline(always)]
unsafe fn copy_payload(from: *const u8, place: &mut [u8], range: Range<usize>) {
    let Some(place) = place.get_mut(range) else {
        return debug_assert!(false, "no room for the payload");
    };
    if !place.is_empty() {
        // SAFETY: by the contract; the queue is this process's alone.
        unsafe { std::ptr::copy_nonoverlapping(from, place.as_mut_ptr(), place.len()) };
    }
}

/// A connection on this host, as captures show it.
pub(crate) struct SharedPaths {
    pub(crate) device: u32,
    /// The headers of sent packets, and of received ones.
    pub(crate) headers: [FrameHeaders; 2],
    /// Of sent packets, and of received ones.
    pub(crate) templates: [FlowTemplates; 2],
}

impl SharedPaths {
    pub(crate) fn new(device: u32, headers: [FrameHeaders; 2]) -> SharedPaths {
        SharedPaths { device, headers, templates: [FlowTemplates::new(), FlowTemplates::new()] }
    }

    /// Captures the packet of a slot that takes a short way, as [`Frames::record`] captures its
    /// train: a SEND of one packet or an acknowledgement. A payload that is not in the slot lies at
    /// `data`.
    #[inline(always)]
    pub(crate) fn record_slot(
        &self,
        tap: &Tap,
        direction: Direction,
        (head, body): (u32, &Body),
        data: *const u8,
    ) {
        let kind = if codec::is_send(head) { TrainKind::Send } else { TrainKind::Ack };
        let template = &self.templates[place_of(direction)].0[kind as usize];
        let ShortPacket { key, psn, more } = ShortPacket::of(head, body);
        let known = template.get();
        if known.is_of(key)
            && let Some(mut again) = tap.again(self.device, &known, psn)
        {
            // SAFETY: as in `Frames::record_at`. The key contains the payload's length.
            unsafe { write_tail(&mut again, (head, body), more, data) };
            return again.queue();
        }
        self.record_slowly(tap, direction, (head, body), data);
    }

    /// Captures the packet of a slot, and perhaps keeps it as the template.
    #[cold]
    #[inline(never)]
    fn record_slowly(
        &self,
        tap: &Tap,
        direction: Direction,
        (head, body): (u32, &Body),
        data: *const u8,
    ) {
        let Some((train, _)) = codec::decode(head, body) else { return };
        let place = place_of(direction);
        let template = &self.templates[place].0[train.kind as usize];
        let headers = Cow::Borrowed(&self.headers[place]);
        // It is one packet, whatever the MTU.
        let (device, mtu, transport) = (self.device, PathMtu::Mtu256, Transport::Rc);
        let frames = Frames { device, headers, mtu, transport, templates: None };
        let from = match codec::has_data(head) {
            false => (&raw const body[codec::PAYLOAD_WORD]).cast(),
            true => data,
        };
        let key = codec::capture_key(train.flags, train.payload_bytes);
        frames.record_and_learn(tap, direction, (&train, from), (template, key));
    }
}

/// Where the headers and templates of a direction are.
#[inline(always)]
fn place_of(direction: Direction) -> usize {
    match direction {
        Direction::Out => 0,
        Direction::In => 1,
    }
}

/// Writes what follows the BTH of a slot's packet: `more`, if there is such a word, and the payload.
///
/// # Safety
/// A payload that is not in the slot can be read at `data`.
#[inline(always)]
unsafe fn write_tail(again: &mut Again<'_>, slot: (u32, &Body), more: [u8; 4], data: *const u8) {
    let ((head, body), tail_bytes, place) = (slot, again.tail_bytes, again.place());
    place[..more.len()].copy_from_slice(&more);
    if !codec::is_send(head) {
        return;
    }
    let at = if codec::has_more(body) { more.len() } else { 0 };
    if codec::has_data(head) {
        // SAFETY: by the contract.
        return unsafe { copy_payload(data, place, at..tail_bytes) };
    }
    // A copy of constant length is the cheapest.
    let words: Option<&ShortPayload> = body[codec::PAYLOAD_WORD..].first_chunk();
    let bytes =
        place.get_mut(at..).and_then(|place| place.as_chunks_mut::<8>().0.first_chunk_mut());
    if let (Some(words), Some::<&mut [[u8; 8]; 4]>(bytes)) = (words, bytes) {
        *bytes = words.map(u64::to_ne_bytes);
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_engine::train::TrainKind;
    use rdmalab_wire::ids::{Msn, Psn};

    use super::*;
    use crate::codec::{Single, SlotPayload};

    /// A capture whose writer thread does not run, with what is to be recorded.
    struct Captured {
        tap: Tap,
        frames: Frames<'static>,
        paths: SharedPaths,
    }

    impl Captured {
        /// Trains are captured with templates, or without.
        fn new(name: &str, prefix: [u8; 12], has_templates: bool) -> Captured {
            let name = format!("rdmalab-{name}-{}.pcapng", std::process::id());
            let path = std::env::temp_dir().join(name);
            let tap = Tap::open(&path, 65_535).unwrap();
            std::fs::remove_file(path).unwrap();
            let gid = |last: u8| {
                let mut gid = Gid([last; 16]);
                gid.0[..12].copy_from_slice(&prefix);
                gid
            };
            let headers = shared_headers((gid(1), gid(2)), Qpn::new(77), UNCHOSEN);
            let paths = SharedPaths::new(0, [headers; 2]);
            let (headers, mtu) = (Cow::Owned(headers), PathMtu::Mtu256);
            let templates: &FlowTemplates = Box::leak(Box::new(FlowTemplates::new()));
            let templates = has_templates.then_some(templates);
            let frames = Frames { device: 0, headers, mtu, transport: Transport::Rc, templates };
            Captured { tap, frames, paths }
        }

        fn record_slot(&self, direction: Direction, slot: (u32, &Body), data: *const u8) {
            self.paths.record_slot(&self.tap, direction, slot, data);
        }
    }

    const V4: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    const V6: [u8; 12] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const ENDS: (Qpn, Qpn) = (Qpn::new(77), Qpn::new(0xab_cdef));

    /// Captures a SEND by its train, and by its slot.
    fn record_send(
        (by_train, by_slot): (&Captured, &Captured),
        number: u32,
        flags: u8,
        payload: &[u8],
    ) {
        let (psn, payload_bytes) = (Psn::new(number * 0x10_0101), payload.len() as u32);
        let mut train = Train::new(TrainKind::Send, ENDS.1, ENDS.0, psn);
        train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST | flags);
        (train.payload_bytes, train.imm_or_rkey) = (payload_bytes, 0x0102_0304 + number);
        let (flags, imm) = (train.flags, train.imm_or_rkey);
        let send = Single { src_qpn: ENDS.0, psn, flags, payload_bytes, imm };
        let mut short = [0; 4];
        let place = match payload_bytes <= codec::SHORT_BYTES {
            true => SlotPayload::Short,
            false => SlotPayload::Data(64),
        };
        if place == SlotPayload::Short {
            let mut bytes = [0; 32];
            bytes[..payload.len()].copy_from_slice(payload);
            for (word, bytes) in short.iter_mut().zip(bytes.chunks(8)) {
                *word = u64::from_ne_bytes(bytes.try_into().unwrap());
            }
        }
        let (head, body) = codec::encode_single(ENDS.1, &send, Transport::Rc, place, short);
        let (out, data) = (Direction::Out, payload.as_ptr());
        by_train.frames.record(&by_train.tap, out, &train, data, "", false);
        by_slot.record_slot(out, (head, &body), data);
    }

    fn record_ack((by_train, by_slot): (&Captured, &Captured), number: u32) {
        let (psn, msn) = (Psn::new(number * 5), Msn::new(number * 0x10_0203));
        let mut train = Train::new(TrainKind::Ack, ENDS.1, ENDS.0, psn);
        train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST);
        train.msn = msn;
        train.syndrome = rdmalab_wire::aeth::Syndrome::ACK;
        let (head, body) = codec::encode_ack(ENDS.1, ENDS.0, (psn, msn), Transport::Rc);
        let (into, nothing) = (Direction::In, std::ptr::null());
        by_train.frames.record(&by_train.tap, into, &train, nothing, "", false);
        by_slot.record_slot(into, (head, &body), nothing);
    }

    #[test]
    fn a_slot_is_captured_as_its_train() {
        for (prefix, train, slot) in [(V4, "train-v4", "slot-v4"), (V6, "train-v6", "slot-v6")] {
            slots_are_captured_as_their_trains(
                &Captured::new(train, prefix, false),
                &Captured::new(slot, prefix, false),
            );
        }
    }

    fn slots_are_captured_as_their_trains(by_train: &Captured, by_slot: &Captured) {
        let payload: Vec<u8> = (0..4110).map(|at| at as u8).collect();
        for flags in 0..8 {
            let flag = |bit: u32, flag| if flags >> bit & 1 == 1 { flag } else { 0 };
            let flags = flag(0, TrainFlags::ACK_REQ)
                | flag(1, TrainFlags::SOLICITED)
                | flag(2, TrainFlags::IMM);
            for bytes in [1, 31, 32, 33, 64, 1023, 1024, 4096] {
                // The third packet and later ones find the second one's block as a template.
                for number in 0..5 {
                    let payload = &payload[number..number + bytes];
                    record_send((by_train, by_slot), number as u32, flags, payload);
                    record_ack((by_train, by_slot), number as u32);
                }
            }
        }
        let (expected, found) = (by_train.tap.queued(), by_slot.tap.queued());
        assert_eq!(expected.blocks, found.blocks);
        assert_eq!((found.seen, found.dropped, found.cut), (640, 0, 0));
    }

    /// Trains of each kind, of one packet and of several, with and without templates.
    #[test]
    fn templates_change_no_capture() {
        let services = [Transport::Rc, Transport::Uc, Transport::Ud];
        for (at, service) in services.into_iter().enumerate() {
            for (prefix, version) in [(V4, 4), (V6, 6)] {
                let captured = |has_templates: bool| {
                    let name = format!("templates-{at}-{version}-{has_templates}");
                    let mut captured = Captured::new(&name, prefix, has_templates);
                    captured.frames.transport = service;
                    captured
                };
                trains_are_captured_alike(&captured(false), &captured(true));
            }
        }
    }

    fn trains_are_captured_alike(general: &Captured, short: &Captured) {
        let payload: Vec<u8> = (0..5000).map(|at| (at * 7) as u8).collect();
        let mut waits_less = false;
        for kind in 0..=7 {
            let kind = TrainKind::from_number(kind).unwrap();
            let has_payload =
                matches!(kind, TrainKind::Send | TrainKind::Write | TrainKind::ReadResponse);
            // All flags that say what the packets look like.
            for flags in 0..0x40 {
                for bytes in [0, 1, 40, 63, 64, 256, 257, 1024] {
                    for number in 0..4u32 {
                        let mut train = train_of(kind, flags, number);
                        train.payload_bytes = if has_payload { bytes } else { 0 };
                        if has_payload {
                            train.packets = bytes.div_ceil(256).max(1);
                        }
                        let from = payload[number as usize..].as_ptr();
                        for captured in [general, short] {
                            let (tap, out) = (&captured.tap, Direction::Out);
                            captured.frames.record(tap, out, &train, from, "", false);
                        }
                    }
                    if !has_payload {
                        break;
                    }
                }
            }
            waits_less |= short.tap.waiting_bytes() < general.tap.waiting_bytes();
            let (expected, found) = (general.tap.queued(), short.tap.queued());
            assert!(expected.blocks == found.blocks, "{kind:?}");
            assert_eq!((expected.seen, expected.cut), (found.seen, found.cut));
            [general, short].into_iter().for_each(|captured| captured.tap.empty());
        }
        assert!(waits_less, "no template was used");
    }

    /// A train whose fields have values of their own.
    fn train_of(kind: TrainKind, flags: u8, number: u32) -> Train {
        let mut train = Train::new(kind, ENDS.1, ENDS.0, Psn::new(number * 0x10_0101));
        train.flags = TrainFlags(flags);
        train.imm_or_rkey = 0x0102_0304 + number;
        (train.remote_addr, train.dma_bytes) = (0x1_0203_0405_0607 << number, 0x7000 + number);
        train.rkey = rdmalab_wire::ids::RKey(0x0a0b_0c0d + number);
        (train.swap_add, train.compare) = (u64::MAX - u64::from(number), u64::from(number) << 40);
        train.syndrome = rdmalab_wire::aeth::Syndrome::ACK;
        (train.msn, train.qkey) = (Msn::new(number * 3), 0x1111_1111 * number);
        train
    }

    /// Packets are cut and left out at the same places, and counted.
    #[test]
    fn a_full_queue_has_the_same_effect_on_slots_and_trains() {
        let (by_train, by_slot) =
            (Captured::new("trains", V4, true), Captured::new("slots", V4, false));
        let payload = [7; 4000];
        for number in 0..1_100_000 {
            let payload = &payload[..1 + number / 5 % payload.len()];
            record_send((&by_train, &by_slot), number as u32 % 100, 0, payload);
        }
        let (expected, found) = (by_train.tap.queued(), by_slot.tap.queued());
        assert!(expected.blocks == found.blocks, "the captures differ");
        let counts = |q: &super::super::tap::Queued| (q.seen, q.dropped, q.cut);
        assert_eq!(counts(&expected), counts(&found));
        assert!(found.seen == 1_100_000 && found.dropped > 0 && found.cut > 0);
    }
}
