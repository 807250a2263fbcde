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
use rdmalab_link::pcapng::TemplatePair;
use rdmalab_wire::headers::Bth;
use rdmalab_wire::ids::{Gid, PathMtu, Qpn, RKey};
use rdmalab_wire::ip::ROCE_V2_PORT;
use rdmalab_wire::opcode::Transport;

use super::tap::{Entry, Record, ShortEntry, Tap};
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
fn received_headers(train: &Train, device: u32) -> FrameHeaders {
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

/// What earlier packets of one flow and direction have in common, by the kind of their trains and
/// their place in the message: the first, middle and last packets of long messages alternate.
pub(crate) struct FlowTemplates([TemplatePair; KINDS * PLACES]);

/// Kinds of trains.
const KINDS: usize = TrainKind::Ack as usize + 1;
/// Places in a message.
const PLACES: usize = (TrainFlags::FIRST | TrainFlags::LAST) as usize + 1;

impl FlowTemplates {
    pub(crate) fn new() -> FlowTemplates {
        FlowTemplates([const { TemplatePair::new() }; KINDS * PLACES])
    }

    /// Forgets the templates of SENDs. There are no other datagrams.
    fn forget_sends(&self) {
        let first = TrainKind::Send as usize * PLACES;
        self.0[first..first + PLACES].iter().for_each(TemplatePair::forget);
    }

    #[inline(always)]
    fn of(&self, kind: TrainKind, flags: TrainFlags) -> &TemplatePair {
        &self.0[kind as usize * PLACES + usize::from(flags.0) % PLACES]
    }
}

/// What the headers of a datagram are made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DatagramEnds {
    Sent { to: AhAttr, dst_qpn: Qpn },
    Received { qpns: [Qpn; 2], slid: u16, gid_indices: RKey, chosen: Option<u64>, group: [u64; 2] },
}

impl DatagramEnds {
    fn of_received(train: &Train) -> DatagramEnds {
        DatagramEnds::Received {
            qpns: [train.src_qpn, train.dst_qpn],
            slid: train.slid,
            gid_indices: train.rkey,
            chosen: train.flags.has(TrainFlags::GRH).then_some(train.compare),
            group: [train.remote_addr, train.swap_add],
        }
    }
}

/// The datagrams that a queue pair sends, or those that it receives. As long as they have the same
/// ends, their headers are made once, and they share templates.
pub(crate) struct DatagramFlow {
    last: Cell<Option<(DatagramEnds, FrameHeaders)>>,
    pub(crate) templates: FlowTemplates,
}

impl DatagramFlow {
    pub(crate) fn new() -> DatagramFlow {
        DatagramFlow { last: Cell::new(None), templates: FlowTemplates::new() }
    }

    /// [`sent_path`] of a datagram to one queue pair.
    pub(super) fn sent(&self, train: &Train, device: u32, to: &AhAttr) -> FrameHeaders {
        let ends = DatagramEnds::Sent { to: *to, dst_qpn: train.dst_qpn };
        self.headers(ends, || sent_path(train, device, to))
    }

    /// [`received_headers`] of a datagram.
    pub(crate) fn received(&self, train: &Train, device: u32) -> FrameHeaders {
        self.headers(DatagramEnds::of_received(train), || received_headers(train, device))
    }

    /// The headers of the last datagram.
    pub(super) fn last_headers(&self) -> Option<FrameHeaders> {
        self.last.get().map(|(_, headers)| headers)
    }

    fn headers(&self, ends: DatagramEnds, make: impl FnOnce() -> FrameHeaders) -> FrameHeaders {
        match self.last.get() {
            Some((last, headers)) if last == ends => headers,
            _ => {
                let headers = make();
                self.last.set(Some((ends, headers)));
                self.templates.forget_sends();
                headers
            }
        }
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
        let pair = templates.of(packet.kind, packet.flags);
        let key = codec::capture_key(packet.flags, packet.payload_bytes);
        let psn = codec::psn_word(packet.flags, packet.first_psn.get());
        if let Some(known) = pair.of(key)
            && let Some(mut entry) = tap.short_entry(self.device, &known, psn)
        {
            let (tail_bytes, place) = (entry.tail_bytes, entry.place());
            let headers = expand::write_extended(packet, self.transport, place);
            let at = headers.unwrap_or(tail_bytes);
            debug_assert!(at <= tail_bytes, "cut within its headers");
            let end = tail_bytes.min(at + packet.payload_bytes as usize);
            // SAFETY: as in `record_at`; no more than the payload is copied.
            unsafe { copy_payload(from, place, at..end) };
            return entry.queue();
        }
        self.record_and_learn(tap, direction, (packet, from), (pair, key));
    }

    /// Captures a packet without a template, and perhaps makes it one.
    #[cold]
    #[inline(never)]
    fn record_and_learn(
        &self,
        tap: &Tap,
        direction: Direction,
        packet: (&Train, *const u8),
        (pair, key): (&TemplatePair, u64),
    ) {
        let Some(entry) = self.entry(tap, packet.0) else { return };
        let learn = entry.wants(pair, key).then_some((pair, key));
        self.record_at(entry, direction, packet, ("", false), learn);
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
        learn: Option<(&TemplatePair, u64)>,
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
        entry.record(&record, fill, learn.map(|(pair, key)| (pair, key, tail_bytes)));
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
        let whole = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST);
        let pair = self.templates[place_of(direction)].of(kind, whole);
        let ShortPacket { key, psn, more } = ShortPacket::of(head, body);
        if let Some(known) = pair.of(key)
            && let Some(mut entry) = tap.short_entry(self.device, &known, psn)
        {
            // SAFETY: as in `Frames::record_at`. The key contains the payload's length.
            unsafe { write_tail(&mut entry, (head, body), more, data) };
            return entry.queue();
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
        let pair = self.templates[place].of(train.kind, train.flags);
        let headers = Cow::Borrowed(&self.headers[place]);
        // It is one packet, whatever the MTU.
        let (device, mtu, transport) = (self.device, PathMtu::Mtu256, Transport::Rc);
        let frames = Frames { device, headers, mtu, transport, templates: None };
        let from = match codec::has_data(head) {
            false => (&raw const body[codec::PAYLOAD_WORD]).cast(),
            true => data,
        };
        let key = codec::capture_key(train.flags, train.payload_bytes);
        frames.record_and_learn(tap, direction, (&train, from), (pair, key));
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

/// Writes what follows the BTH of a slot's packet: `more`, if there is such a word, and the
/// payload.
///
/// # Safety
/// A payload that is not in the slot can be read at `data`.
#[inline(always)]
unsafe fn write_tail(
    entry: &mut ShortEntry<'_>,
    slot: (u32, &Body),
    more: [u8; 4],
    data: *const u8,
) {
    let ((head, body), tail_bytes, place) = (slot, entry.tail_bytes, entry.place());
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
mod tests;
