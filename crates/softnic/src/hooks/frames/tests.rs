//! Captures of slots, of trains with templates, and of trains without are compared.

use rdmalab_engine::train::TrainKind;
use rdmalab_wire::ids::{Msn, Psn};

use super::*;
use crate::codec::{Single, SlotPayload};

/// A capture whose writer thread does not run, with what is to be recorded.
struct Captured {
    tap: Tap,
    transport: Transport,
    /// Of trains.
    templates: Option<FlowTemplates>,
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
        let templates = has_templates.then(FlowTemplates::new);
        Captured { tap, transport: Transport::Rc, templates, paths }
    }

    fn record_train(&self, direction: Direction, train: &Train, data: *const u8) {
        let (transport, mtu) = (self.transport, PathMtu::Mtu256);
        let headers = Cow::Borrowed(&self.paths.headers[0]);
        let frames =
            Frames { device: 0, headers, mtu, transport, templates: self.templates.as_ref() };
        frames.record(&self.tap, direction, train, data, "", false);
    }

    fn record_slot(&self, direction: Direction, slot: (u32, &Body), data: *const u8) {
        self.paths.record_slot(&self.tap, direction, slot, data);
    }

    /// Forgets the templates, and how many there were.
    fn forget(&mut self) {
        self.templates = self.templates.take().map(|_| FlowTemplates::new());
        self.paths = SharedPaths::new(0, self.paths.headers);
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
    by_train.record_train(out, &train, data);
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
    by_train.record_train(into, &train, nothing);
    by_slot.record_slot(into, (head, &body), nothing);
}

#[test]
fn a_slot_is_captured_as_its_train() {
    for (prefix, train, slot) in [(V4, "train-v4", "slot-v4"), (V6, "train-v6", "slot-v6")] {
        slots_are_captured_as_their_trains(
            &Captured::new(train, prefix, false),
            &mut Captured::new(slot, prefix, false),
        );
    }
}

fn slots_are_captured_as_their_trains(by_train: &Captured, by_slot: &mut Captured) {
    let payload: Vec<u8> = (0..4110).map(|at| at as u8).collect();
    for flags in 0..8 {
        let flag = |bit: u32, flag| if flags >> bit & 1 == 1 { flag } else { 0 };
        let flags = flag(0, TrainFlags::ACK_REQ)
            | flag(1, TrainFlags::SOLICITED)
            | flag(2, TrainFlags::IMM);
        for bytes in [1, 31, 32, 33, 64, 1023, 1024, 4096] {
            by_slot.forget();
            // The fourth packet makes a template.
            for number in 0..6 {
                let payload = &payload[number..number + bytes];
                record_send((by_train, by_slot), number as u32, flags, payload);
                record_ack((by_train, by_slot), number as u32);
            }
        }
    }
    assert!(by_slot.tap.waiting_bytes() < by_train.tap.waiting_bytes(), "no template was used");
    let (expected, found) = (by_train.tap.queued(), by_slot.tap.queued());
    assert_eq!(expected.blocks, found.blocks);
    assert_eq!((found.seen, found.dropped, found.cut), (768, 0, 0));
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
                captured.transport = service;
                captured
            };
            trains_are_captured_alike(&captured(false), &mut captured(true));
        }
    }
}

fn trains_are_captured_alike(general: &Captured, short: &mut Captured) {
    let payload: Vec<u8> = (0..5000).map(|at| (at * 7) as u8).collect();
    for kind in 0..=7 {
        let kind = TrainKind::from_number(kind).unwrap();
        let has_payload =
            matches!(kind, TrainKind::Send | TrainKind::Write | TrainKind::ReadResponse);
        // All flags that say what the packets look like.
        for flags in 0..0x40 {
            for bytes in [0, 1, 40, 63, 64, 256, 257, 1024] {
                short.forget();
                // The fourth train of a kind makes a template, if not one before.
                for number in 0..6u32 {
                    let mut train = train_of(kind, flags, number);
                    train.payload_bytes = if has_payload { bytes } else { 0 };
                    if has_payload {
                        train.packets = bytes.div_ceil(256).max(1);
                    }
                    let from = payload[number as usize..].as_ptr();
                    general.record_train(Direction::Out, &train, from);
                    short.record_train(Direction::Out, &train, from);
                }
                if !has_payload {
                    break;
                }
            }
        }
        let (least, most) = (short.tap.waiting_bytes(), general.tap.waiting_bytes());
        // Not all services have all kinds.
        assert!(least < most || most == 0, "{kind:?}: no template was used");
        let (expected, found) = (general.tap.queued(), short.tap.queued());
        assert!(expected.blocks == found.blocks, "{kind:?}");
        assert_eq!((expected.seen, expected.cut), (found.seen, found.cut));
        general.tap.empty();
        short.tap.empty();
    }
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
    let mut by_train = Captured::new("trains", V4, true);
    let mut by_slot = Captured::new("slots", V4, false);
    let payload = [7; 4000];
    let lengths = (0..80_000).map(|number| 1 + number / 20);
    // Packets of these lengths have templates until the queue is full.
    let lengths = lengths.chain((0..1_000_000).map(|number| 4000 - number % 2));
    let mut last = 0;
    for (number, bytes) in lengths.enumerate() {
        if bytes > last {
            by_train.forget();
            by_slot.forget();
            last = bytes;
        }
        record_send((&by_train, &by_slot), number as u32 % 100, 0, &payload[..bytes]);
    }
    let (expected, found) = (by_train.tap.queued(), by_slot.tap.queued());
    assert!(expected.blocks == found.blocks, "the captures differ");
    let counts = |q: &super::super::tap::Queued| (q.seen, q.dropped, q.cut);
    assert_eq!(counts(&expected), counts(&found));
    assert!(found.seen == 1_080_000 && found.dropped > 0 && found.cut > 0);
}

/// While packets are cut, those that are just short enough stay whole, and the others are counted,
/// with and without templates.
#[test]
fn cut_packets_are_counted_alike() {
    // Besides headers and ICRC, 128 bytes hold 70 or 50 bytes of payload and pad.
    for (prefix, version, longest) in [(V4, 4, 68), (V6, 6, 48)] {
        let general = Captured::new(&format!("general-{version}"), prefix, false);
        let mut short = Captured::new(&format!("short-{version}"), prefix, false);
        let payload = [3; 4096];
        let record = |short: &Captured, bytes: usize, count| {
            (0..count).for_each(|at| record_send((&general, short), at, 0, &payload[..bytes]));
        };
        // These get templates while they are not cut.
        record(&short, longest + 1, 4);
        record(&short, longest + 2, 8);
        // More than a quarter of the queue.
        let mut filler = train_of(TrainKind::Write, TrainFlags::FIRST | TrainFlags::LAST, 0);
        (filler.payload_bytes, filler.packets) = (4096, 16);
        for captured in [&general, &short] {
            let data = payload.as_ptr();
            (0..4300).for_each(|_| captured.record_train(Direction::Out, &filler, data));
        }
        let before = [general.tap.queued(), short.tap.queued()];
        let waiting = short.tap.waiting_bytes();
        record(&short, longest + 1, 6);
        record(&short, longest + 2, 6);
        let waiting = short.tap.waiting_bytes() - waiting;
        assert!(waiting < 12 * 128, "{waiting} bytes: no template was used");
        for bytes in longest - 9..=longest + 10 {
            short.forget();
            record(&short, bytes, 6);
        }
        let after = [general.tap.queued(), short.tap.queued()];
        let [expected, found] = [0, 1].map(|at| &after[at].blocks[before[at].blocks.len()..]);
        assert!(expected == found, "the blocks differ");
        assert_eq!([0, 1].map(|at| after[at].cut - before[at].cut), [72; 2]);
    }
}

/// Captures datagrams of changing ends, with headers made anew and with those of their flow. `make`
/// and `known` return the headers.
fn datagrams_are_captured_alike(
    name: &str,
    trains: &[Train],
    flow: &DatagramFlow,
    make: impl Fn(usize) -> FrameHeaders,
    known: impl Fn(usize) -> FrameHeaders,
) {
    let [general, short] = [("general", false), ("short", true)]
        .map(|(kind, has_templates)| Captured::new(&format!("{name}-{kind}"), V6, has_templates));
    let payload = [5; 64];
    for (at, train) in trains.iter().enumerate() {
        // The fourth makes a template.
        for number in 0..5 {
            let mut train = *train;
            (train.first_psn, train.qkey) = (Psn::new(number), number << 8);
            for (captured, headers, templates) in
                [(&general, make(at), None), (&short, known(at), Some(&flow.templates))]
            {
                let (headers, transport) = (Cow::Owned(headers), Transport::Ud);
                let mtu = PathMtu::Mtu256;
                let frames = Frames { device: 1, headers, mtu, transport, templates };
                frames.record(&captured.tap, Direction::In, &train, payload.as_ptr(), "", false);
            }
        }
    }
    assert!(short.tap.waiting_bytes() < general.tap.waiting_bytes(), "no template was used");
    let (expected, found) = (general.tap.queued(), short.tap.queued());
    assert!(expected.blocks == found.blocks, "the captures differ");
    let mut frames: Vec<&[u8]> = blocks_of(&expected.blocks).step_by(5).collect();
    frames.sort_unstable();
    frames.dedup();
    assert_eq!(frames.len(), trains.len(), "the ends are not seen in the frames");
}

fn blocks_of(mut blocks: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*blocks.get(4..)?.first_chunk()?);
        let (block, rest) = blocks.split_at(length as usize);
        blocks = rest;
        Some(block)
    })
}

fn datagram() -> Train {
    let mut train = Train::new(TrainKind::Send, ENDS.1, ENDS.0, Psn::new(0));
    train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST | TrainFlags::GRH);
    (train.payload_bytes, train.slid) = (64, 1);
    train
}

#[test]
fn received_datagrams_have_the_headers_of_their_ends() {
    let with = |change: &dyn Fn(&mut Train)| {
        let mut train = datagram();
        change(&mut train);
        train
    };
    let fields = GrhFields { traffic_class: 3, hop_limit: 9, flow_label: 77 };
    let trains = [
        datagram(),
        with(&|train| train.src_qpn = Qpn::new(78)),
        with(&|train| train.slid = 2),
        with(&|train| train.rkey = RKey(0x0101)),
        with(&|train| train.compare = fields.pack()),
        with(&|train| {
            (train.flags.0, train.compare) = (train.flags.0 & !TrainFlags::GRH, fields.pack());
            train.imm_or_rkey = 1;
            train.src_qpn = Qpn::new(79);
        }),
        with(&|train| {
            train.dst_qpn = Qpn::MULTICAST;
            (train.remote_addr, train.swap_add) = (0xff12_0000_0000_0000, 1);
        }),
        with(&|train| {
            train.dst_qpn = Qpn::MULTICAST;
            (train.remote_addr, train.swap_add) = (0xff12_0000_0000_0000, 2);
        }),
    ];
    let flow = DatagramFlow::new();
    let make = |at: usize| received_headers(&trains[at], 1);
    let known = |at: usize| flow.received(&trains[at], 1);
    datagrams_are_captured_alike("received", &trains, &flow, make, known);
}

#[test]
fn sent_datagrams_have_the_headers_of_their_address() {
    let gid = |device| device::gid_of(device, 0).expect("a GID");
    let by_gid = AhAttr { dgid: gid(0), is_global: true, hop_limit: 7, ..AhAttr::default() };
    let ahs = [
        by_gid,
        AhAttr { dgid: gid(1), ..by_gid },
        AhAttr { flow_label: 5, ..by_gid },
        AhAttr { traffic_class: 6, ..by_gid },
        AhAttr { hop_limit: 8, ..by_gid },
    ];
    // As `RingPath::address` fills them.
    let trains = ahs.map(|ah| {
        let AhAttr { traffic_class, hop_limit, flow_label, .. } = ah;
        let mut train = datagram();
        train.compare = GrhFields { traffic_class, hop_limit, flow_label }.pack();
        train
    });
    let flow = DatagramFlow::new();
    let make = |at: usize| sent_path(&trains[at], 0, &ahs[at]);
    let known = |at: usize| flow.sent(&trains[at], 0, &ahs[at]);
    datagrams_are_captured_alike("sent", &trains, &flow, make, known);
}
