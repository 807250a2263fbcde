//! Captures are read back with `pcap-file` and with this project's own parsers.

use std::net::IpAddr;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use proptest::prelude::*;
use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_wire::frame::EthernetFrame;
use rdmalab_wire::ids::{Psn, Qpn};
use rdmalab_wire::opcode::Transport;
use rdmalab_wire::packet::Packet;

use super::*;
use crate::address::IpFields;
use crate::expand;

fn tuple(v6: bool) -> FourTuple {
    let (source, destination): (IpAddr, IpAddr) = match v6 {
        true => ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap()),
        false => ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()),
    };
    FourTuple { source, destination, source_port: 0xc123, destination_port: 4791 }
}

/// A file with one SEND of `payload`, finished.
fn file(v6: bool, payload: &[u8], comment: &str, snap: usize, dropped: u64) -> Vec<u8> {
    let mut train = Train::new(TrainKind::Send, Qpn::new(0x11), Qpn::new(0x22), Psn::new(7));
    train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST);
    train.payload_bytes = payload.len() as u32;
    let mut head = [0; 64];
    let headers = expand::headers_of(&train, Transport::Rc).unwrap();
    let head_bytes = headers.emit(&mut head).unwrap();
    let mut out = Vec::new();
    section(&mut out, "test", "a comment");
    interface(&mut out, "soft0", "one", 65_535);
    interface(&mut out, "soft1", "two", 65_535);
    let headers = FrameHeaders::of(tuple(v6), &IpFields { hop_limit: 64, ..IpFields::default() });
    let capture = Capture {
        interface: 1,
        at_ns: 1_700_000_000_123_456_789,
        direction: Direction::Out,
        headers: &headers,
        bytes: head_bytes + payload.len(),
        complete: false,
        spoilt: false,
        comment,
        dropped,
        snap,
    };
    let whole = [&head[..head_bytes], payload].concat();
    // Earlier contents of the buffer must not show in the block.
    let mut place = vec![0xee; BLOCK_OVERHEAD + whole.len()];
    let block = packet(&mut place, &capture, |to| to.copy_from_slice(&whole[..to.len()]));
    let length = block.expect("room");
    assert!(packet(&mut place[..length - 1], &capture, |_| ()).is_none());
    out.extend_from_slice(&place[..length]);
    statistics(&mut out, 1, 5, 3, 2);
    Checksums::default().finish(&mut out);
    out
}

fn is_right(v6: bool, payload: &[u8], comment: &str) {
    let file = file(v6, payload, comment, 65_535, 0);
    let mut reader = PcapNgReader::new(file.as_slice()).unwrap();
    let mut packets = 0;
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(block) = block.unwrap() else { continue };
        packets += 1;
        assert_eq!(block.interface_id, 1);
        assert_eq!(block.timestamp.as_nanos(), 1_700_000_000_123_456_789);
        assert_eq!(block.original_len as usize, block.data.len());
        let frame = EthernetFrame::parse(&block.data).unwrap();
        assert_eq!(frame.wire_bytes(), block.data.len());
        let parsed = Packet::parse(frame.datagram.packet).unwrap();
        assert_eq!(parsed.payload, payload);
        assert_eq!(parsed.icrc, frame.datagram.icrc());
        if v6 {
            assert_eq!(sum6(&block.data[14..]), 0xffff, "UDP checksum");
        }
        let said = block
            .options
            .iter()
            .any(|option| matches!(option, EnhancedPacketOption::Comment(text) if text == comment));
        assert_eq!(said, !comment.is_empty());
    }
    assert_eq!(packets, 1);
}

/// The sum over a whole datagram, checksum included: all ones if the checksum is right.
fn sum6(datagram: &[u8]) -> u64 {
    let mut sum = 17 + (datagram.len() - 40) as u64;
    for pair in datagram[8..].chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

proptest! {
    #[test]
    fn every_packet_reads_back(
        payload in prop::collection::vec(any::<u8>(), 0..600),
        v6: bool,
        comment in "[a-z]{0,9}",
    ) {
        is_right(v6, &payload, &comment);
    }
}

#[test]
fn less_is_kept_where_less_is_asked_for() {
    let payload = [7; 300];
    let file = file(true, &payload, "", 200, 9);
    let mut reader = PcapNgReader::new(file.as_slice()).unwrap();
    let mut any = false;
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(block) = block.unwrap() else { continue };
        any = true;
        assert_eq!((block.data.len(), block.original_len), (200, 14 + 48 + 12 + 300 + 4));
        assert!(block.options.contains(&EnhancedPacketOption::DropCount(9)));
        assert!(block.options.contains(&EnhancedPacketOption::Flags(2)));
    }
    assert!(any);
}

#[test]
fn long_comments_are_cut_at_a_letter() {
    is_right(false, &[1], &"ä".repeat(COMMENT_MAX / 2));
    let file = file(false, &[1], &"aä".repeat(COMMENT_MAX), 65_535, 0);
    let mut reader = PcapNgReader::new(file.as_slice()).unwrap();
    while let Some(block) = reader.next_block() {
        block.unwrap();
    }
    assert!(file.len() < 1000);
}

#[test]
fn damaged_blocks_are_left_alone() {
    for bytes in [&[6, 0, 0, 0, 0, 0, 0, 0][..], &[6, 0, 0, 0, 8, 0, 0, 0], &[6, 0, 0, 0, 99]] {
        let mut copy = bytes.to_vec();
        Checksums::default().finish(&mut copy);
        assert_eq!(copy, bytes);
    }
}

/// The block of a frame of a flow, with a packet of any bytes.
fn frame(flow: u16, v6: bool, bytes: &[u8], complete: bool, spoilt: bool) -> Vec<u8> {
    let tuple = FourTuple { source_port: flow, ..tuple(v6) };
    let headers = FrameHeaders::of(tuple, &IpFields { hop_limit: 64, ..IpFields::default() });
    let capture = Capture {
        interface: 0,
        at_ns: 0,
        direction: Direction::In,
        headers: &headers,
        bytes: bytes.len(),
        complete,
        spoilt,
        comment: "",
        dropped: 0,
        snap: 65_535,
    };
    let mut place = vec![0xee; BLOCK_OVERHEAD + bytes.len()];
    let length = packet(&mut place, &capture, |to| to.copy_from_slice(bytes)).unwrap();
    place.truncate(length);
    place
}

proptest! {
    /// Frames of several flows and lengths, whose headers are partly known from earlier ones.
    #[test]
    fn checksums_do_not_depend_on_earlier_frames(
        frames in prop::collection::vec((0..4u16, any::<bool>(), 12..40usize, 0..8u8), 1..60),
    ) {
        let mut checksums = Checksums::default();
        for (number, (flow, v6, length, kind)) in frames.into_iter().enumerate() {
            // Flows 0 and 16, and 1 and 17, share a place.
            let flow = 0xc000 + flow % 2 + 16 * (flow / 2);
            let (complete, spoilt) = (kind == 0, kind == 1);
            let bytes: Vec<u8> = (1..=length).map(|at| (number * 7 + at * at) as u8 | 1).collect();
            let mut block = frame(flow, v6, &bytes, complete, spoilt);
            checksums.finish(&mut block);
            let kept = u32::from_ne_bytes(block[20..24].try_into().unwrap()) as usize;
            let frame = EthernetFrame::parse(&block[DATA_AT..DATA_AT + kept]).unwrap();
            let datagram = frame.datagram;
            prop_assert_eq!(datagram.udp.source_port, flow);
            prop_assert_eq!(&datagram.packet[..bytes.len()], &bytes[..]);
            if v6 {
                prop_assert_eq!(sum6(&block[DATA_AT + 14..DATA_AT + kept]), 0xffff);
            }
            if !complete {
                let icrc = u32::from_le_bytes(*datagram.packet.last_chunk().unwrap());
                prop_assert_eq!(icrc, datagram.icrc() ^ if spoilt { u32::MAX } else { 0 });
            }
        }
    }
}

/// The block of a packet of `bytes` that count up.
fn counting(v6: bool, bytes: usize, at_ns: u64, dropped: u64, snap: usize) -> Vec<u8> {
    let headers = FrameHeaders::of(tuple(v6), &IpFields::default());
    let capture = Capture {
        interface: 1,
        at_ns,
        direction: Direction::Out,
        headers: &headers,
        bytes,
        complete: false,
        spoilt: false,
        comment: "",
        dropped,
        snap,
    };
    let mut block = vec![0xee; BLOCK_OVERHEAD + capture.bytes];
    let fill = |place: &mut [u8]| count_up(place, 0);
    let length = packet(&mut block, &capture, fill).unwrap();
    block.truncate(length);
    block
}

fn count_up(place: &mut [u8], from: usize) {
    place.iter_mut().enumerate().for_each(|(at, byte)| *byte = (from + at) as u8);
}

fn below_bytes(v6: bool) -> usize {
    FrameHeaders::of(tuple(v6), &IpFields::default()).frame_bytes(0)
}

/// The packet of [`counting`] in short form.
fn short(form: &Form, at_ns: u64) -> Vec<u8> {
    let mut out = vec![0xdd; form.bytes() + TAIL_ROOM];
    count_up(form.write(&mut out, (at_ns, [8, 9, 10, 11])).expect("room"), 12);
    out.truncate(form.bytes());
    out
}

/// What a file gets from a queue.
fn assembled(assembler: &mut Assembler, queue: &mut [u8], fresh: Vec<Definition>) -> Vec<u8> {
    let mut file = Vec::new();
    let written = assembler.assemble(queue, fresh, |blocks| {
        file.extend_from_slice(blocks);
        Ok(())
    });
    written.unwrap();
    file
}

/// Learns a packet of [`counting`] with a tail of 80 bytes.
fn learn(pair: &TemplatePair, templates: &mut Templates, key: u64) {
    pair.learn(key, &counting(false, 92, 5, 0, 65_535), (below_bytes(false), 80), templates);
}

fn is_known(pair: &TemplatePair, templates: &Templates, key: u64) -> bool {
    pair.of(key).is_some_and(|template| templates.forms(&template).is_some())
}

#[test]
fn a_template_is_a_whole_packet_that_came_four_times() {
    let (pair, mut templates) = (TemplatePair::new(), Templates::default());
    let wanted: Vec<bool> = (0..5).map(|_| pair.wants(7, &templates)).collect();
    assert_eq!(wanted, [false, false, false, true, true]);
    let (whole, cut) = (counting(false, 92, 5, 0, 65_535), counting(false, 92, 5, 1, 128));
    assert_eq!(whole.len(), cut.len(), "what is cut off is as long as the option");
    pair.learn(7, &cut, (below_bytes(false), 80), &mut templates);
    assert!(!is_known(&pair, &templates, 7), "a block that is cut");
    learn(&pair, &mut templates, 7);
    assert!(is_known(&pair, &templates, 7) && pair.of(8).is_none());
    assert!((0..100).all(|_| !pair.wants(7, &templates)));
    pair.forget();
    assert!(pair.of(7).is_none());
}

#[test]
fn a_displaced_template_is_learnt_again_in_its_place() {
    let (pair, mut templates) = (TemplatePair::new(), Templates::default());
    [7, 8].into_iter().for_each(|key| learn(&pair, &mut templates, key));
    for number in 0..template::TEMPLATES {
        assert_eq!(is_known(&pair, &templates, 7), number < template::TEMPLATES - 1);
        learn(&TemplatePair::new(), &mut templates, 9);
        if number % 1000 == 0 {
            templates.take_fresh();
        }
    }
    assert!(!is_known(&pair, &templates, 8) && (0..100).any(|_| pair.wants(8, &templates)));
    learn(&pair, &mut templates, 8);
    assert!(is_known(&pair, &templates, 8) && pair.of(7).is_some());
}

/// How many templates a pair learns of packets with these keys, and how many packets use one.
fn learnt(keys: impl Iterator<Item = u64>) -> (usize, usize) {
    let (pair, mut templates) = (TemplatePair::new(), Templates::default());
    let mut uses = 0;
    for key in keys {
        uses += usize::from(is_known(&pair, &templates, key));
        if pair.wants(key, &templates) {
            learn(&pair, &mut templates, key);
        }
    }
    (templates.take_fresh().len(), uses)
}

#[test]
fn packets_that_alternate_get_few_templates() {
    let (count, uses) = learnt((0..10_000).map(|number| number % 2));
    assert_eq!(count, 2);
    assert!(uses > 9900, "{uses}");
    let (count, uses) = learnt((0..10_000).map(|number| number % 3));
    assert!(count <= 12 && uses > 5000, "{count} {uses}");
    assert_eq!(learnt(0..10_000), (0, 0));
    // A packet that is rare does not displace others.
    let rare = |number: u64| if number.is_multiple_of(100) { number } else { number % 2 };
    let (count, uses) = learnt((0..10_000).map(rare));
    assert!(count <= 2 && uses > 9800, "{count} {uses}");
    // In a second phase, the packets have other keys.
    let (count, uses) = learnt((0..10_000).map(|number| number / 5000));
    assert!(count == 2 && uses > 9900, "{count} {uses}");
}

#[test]
fn definitions_that_wait_are_bounded() {
    let mut templates = Templates::default();
    let mut learn = || {
        let pair = TemplatePair::new();
        learn(&pair, &mut templates, 7);
        pair.of(7).is_some()
    };
    assert!((0..template::FRESH).all(|_| learn()));
    assert!(!learn());
    assert_eq!(templates.take_fresh().len(), template::FRESH);
    self::learn(&TemplatePair::new(), &mut templates, 7);
    assert_eq!(templates.take_fresh().len(), 1);
}

/// A template takes the place of an older one between the packets of the two, and a name in the
/// queue comes again.
#[test]
fn a_place_is_used_again() {
    let mut templates = Templates::after((1 << 30) - 2);
    let (mut assembler, mut expected, mut file) = (Assembler::default(), vec![], vec![]);
    let mut old = None;
    for number in 0..=template::TEMPLATES {
        let mut queue = vec![];
        let bytes = 12 + number % 50;
        let (pair, block) = (TemplatePair::new(), counting(false, bytes, 1, 0, 65_535));
        let last = number == template::TEMPLATES;
        let form = |template: Option<Template>, templates: &Templates| {
            short(&templates.forms(&template.expect("a template")).expect("known").whole, 2)
        };
        if last {
            queue.extend(form(old, &templates));
            expected.extend(counting(false, 12, 2, 0, 65_535));
        }
        pair.learn(1, &block, (below_bytes(false), bytes - 12), &mut templates);
        old = old.or(pair.of(1));
        if number < 3 || last {
            queue.extend_from_slice(&block);
            queue.extend(form(pair.of(1), &templates));
            expected.extend(block);
            expected.extend(counting(false, bytes, 2, 0, 65_535));
        }
        file.extend(assembled(&mut assembler, &mut queue, templates.take_fresh()));
    }
    assert!(templates.forms(&old.expect("a template")).is_none());
    Checksums::default().finish(&mut expected);
    assert!(file == expected, "the blocks differ");
}

#[test]
fn the_packets_before_a_damaged_one_are_written() {
    let (pair, mut templates) = (TemplatePair::new(), Templates::default());
    learn(&pair, &mut templates, 7);
    let template = pair.of(7).expect("a template");
    let form = short(&templates.forms(&template).expect("its forms").whole, 5);
    let good = counting(false, 92, 5, 0, 65_535);
    let damaged = [&form[..form.len() - 4], &[0; 8], &[0xff; 32], &good[..good.len() - 4]];
    let fresh = templates.take_fresh();
    for bad in damaged {
        let mut queue = [&good, bad].concat();
        let (mut assembler, mut file) = (Assembler::default(), vec![]);
        let found = assembler.assemble(&mut queue, fresh.clone(), |blocks| {
            file.extend_from_slice(blocks);
            Ok(())
        });
        assert_eq!(found.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
        let mut expected = good.clone();
        Checksums::default().finish(&mut expected);
        assert!(file == expected);
    }
}

/// Packets in short form, whole and cut, between ordinary blocks: as many as fill several batches.
#[test]
fn a_short_form_becomes_the_block_of_its_packet() {
    let (mut templates, mut queue, mut expected) = (Templates::default(), vec![], vec![]);
    let mut assembler = Assembler::default();
    let mut file = Vec::new();
    for (number, tail_bytes) in (0..1300).chain([2000, 4096]).enumerate() {
        let (v6, bytes, at_ns) = (number % 2 == 0, 12 + tail_bytes, number as u64);
        let (pair, block) = (TemplatePair::new(), counting(v6, bytes, at_ns, 0, 65_535));
        pair.learn(1, &block, (below_bytes(v6), tail_bytes), &mut templates);
        let forms = templates.forms(&pair.of(1).expect("a template")).expect("its forms");
        assert_eq!(forms.cut.is_some(), block.len() > counting(v6, bytes, 0, 0, 128).len());
        expected.extend_from_slice(&block);
        queue.extend_from_slice(&block);
        for (form, snap) in [(Some(&forms.whole), 65_535), (forms.cut.as_ref(), CUT_BYTES)] {
            let Some(form) = form else { continue };
            expected.extend(counting(v6, bytes, at_ns + 1, 0, snap));
            queue.extend(short(form, at_ns + 1));
        }
        let mut out = vec![0; form_room(&forms.whole) - 1];
        assert!(forms.whole.write(&mut out, (0, [0; 4])).is_none(), "no room");
        if number % 700 == 0 {
            file.extend(assembled(&mut assembler, &mut queue, templates.take_fresh()));
            queue.clear();
        }
    }
    file.extend(assembled(&mut assembler, &mut queue, templates.take_fresh()));
    Checksums::default().finish(&mut expected);
    assert!(file == expected, "the blocks differ");
}

fn form_room(form: &Form) -> usize {
    form.bytes().max(form.bytes() - form.tail_bytes().next_multiple_of(4) + TAIL_ROOM)
}
