//! Each packet of each capture is parsed and encoded again, and must have the same bytes.
//!
//! A table lists the packets of each file, as counted by another dissector (tshark 4.0), so that a
//! packet that we skip is noticed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rdmalab_trace::Link;
use rdmalab_trace::file::{Capture, Frame};
use rdmalab_wire::cm::Mad;
use rdmalab_wire::error::ParseError::{IpHeaderLength, NextHeader};
use rdmalab_wire::frame::{Datagram, EthernetFrame};
use rdmalab_wire::packet::Packet;

/// For each file: the number of other frames, packets by opcode, and messages of the connection
/// manager among them.
const CONTENTS: &[(&str, usize, &str, &str)] = &[
    ("atomic_cas", 29, "12: 50, 13: 50", ""),
    ("loss_atomic", 44, "12: 60, 14: 60", ""),
    ("loss_rc_pingpong", 13, "00: 127, 01: 258, 02: 126, 11: 146", ""),
    ("mckey", 4, "65: 5", ""),
    ("rc_pingpong_events", 11, "04: 20, 11: 20", ""),
    ("rc_pingpong_ipv6", 16, "00: 20, 01: 40, 02: 20, 11: 20", ""),
    ("rc_pingpong_mtu256", 11, "00: 10, 01: 140, 02: 10, 11: 10", ""),
    ("rdma_client_server", 1, "04: 2, 11: 2, 64: 5", CONNECTION),
    ("read_lat", 29, "0c: 50, 10: 50", ""),
    ("rping", 0, "04: 20, 0a: 5, 0c: 5, 10: 5, 11: 25, 64: 5", CONNECTION),
    ("rping_reject", 0, "64: 2", "REJ: 1, REQ: 1"),
    ("rstream", 0, "06: 20, 09: 20, 0b: 5, 11: 25, 64: 5", CONNECTION),
    ("send_lat", 29, "04: 100, 11: 100", ""),
    ("send_lat_uc", 29, "24: 100", ""),
    ("send_lat_ud", 29, "64: 100", ""),
    ("siw_rping", 50, "", ""),
    ("uc_pingpong", 11, "20: 40, 21: 80, 22: 40", ""),
    ("ucmatose", 0, "04: 20, 11: 20, 64: 10", "DREP: 2, DREQ: 2, REP: 2, REQ: 2, RTU: 2"),
    ("ud_pingpong", 11, "64: 40", ""),
    ("udaddy", 0, "64: 4, 65: 20", "SIDR_REP: 2, SIDR_REQ: 2"),
    ("write_lat", 25, "0a: 100, 11: 100", ""),
    // One DREQ was captured twice.
    (
        "write_lat_rdmacm",
        0,
        "04: 20, 0a: 40, 11: 60, 64: 11",
        "DREP: 2, DREQ: 3, REP: 2, REQ: 2, RTU: 2",
    ),
    ("write_lat_uc", 26, "26: 40, 27: 40, 28: 40", ""),
];

/// The messages of one connection from request to end.
const CONNECTION: &str = "DREP: 1, DREQ: 1, REP: 1, REQ: 1, RTU: 1";

/// The queue pair of general services (IBA vol. 1, 3.9.4).
const GSI: u32 = 1;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn frames(name: &str) -> Vec<Frame> {
    let mut capture = Capture::open(&directory().join(format!("{name}.pcap"))).expect(name);
    let mut frames = Vec::new();
    while let Some(frame) = capture.next_frame().expect(name) {
        assert_eq!((frame.link, frame.bytes.len()), (Link::Ethernet, frame.original_bytes));
        frames.push(frame);
    }
    frames
}

/// Whether a frame is UDP to port 4791, found without the parser under test.
fn is_roce(bytes: &[u8]) -> bool {
    let (protocol_at, port_at) = match bytes[12..14] {
        [0x08, 0x00] => (23, 36),
        [0x86, 0xdd] => (20, 56),
        _ => return false,
    };
    bytes[protocol_at] == 17 && bytes[port_at..port_at + 2] == 4791u16.to_be_bytes()
}

/// The counts, in the notation of [`CONTENTS`].
fn words(counts: &BTreeMap<String, usize>) -> String {
    let each = counts.iter().map(|(name, count)| format!("{name}: {count}"));
    each.collect::<Vec<_>>().join(", ")
}

/// The message of the connection manager that a packet carries.
fn mad(packet: &Packet<'_>) -> Option<Mad> {
    let is_general = packet.headers.bth.dest_qp.get() == GSI;
    is_general.then(|| Mad::parse(packet.payload).expect("a message of the connection manager"))
}

/// Writes the frame again from its parsed headers. The connection manager's message is written from
/// its fields too, and the CRC is computed.
fn written_again(frame: &EthernetFrame<'_>, packet: &Packet<'_>) -> Vec<u8> {
    let message = mad(packet).map(|mad| mad.to_bytes());
    let payload = message.as_ref().map_or(packet.payload, |bytes| bytes.as_slice());
    let mut inner = vec![0xee; packet.wire_bytes()];
    let unsealed = Packet { payload, icrc: 0, ..*packet };
    unsealed.emit(&mut inner).expect("a packet is written");
    let icrc = Datagram { packet: &inner, ..frame.datagram }.icrc();
    Packet { icrc, ..unsealed }.emit(&mut inner).expect("a packet is written");
    let datagram = Datagram { packet: &inner, ..frame.datagram };
    let mut outer = vec![0xee; frame.wire_bytes()];
    let length = EthernetFrame { datagram, ..*frame }.emit(&mut outer).expect("a frame is written");
    assert_eq!(length, outer.len());
    outer
}

#[test]
fn every_packet_of_every_capture_is_written_again_byte_for_byte() {
    let mut packets = 0;
    for (name, foreign, by_opcode, by_message) in CONTENTS {
        let (mut others, mut opcodes, mut messages) = (0, BTreeMap::new(), BTreeMap::new());
        for (number, frame) in frames(name).iter().enumerate() {
            let place = format!("{name}, frame {}", number + 1);
            if !is_roce(&frame.bytes) {
                let refused = EthernetFrame::parse(&frame.bytes);
                // IGMP uses an option in the IP header (router alert).
                let is_foreign = |e| matches!(e, NextHeader(_) | IpHeaderLength(6));
                assert!(refused.is_err_and(is_foreign), "{place}: {refused:?}");
                others += 1;
                continue;
            }
            let found = EthernetFrame::parse(&frame.bytes).expect(&place);
            let packet = Packet::parse(found.datagram.packet).expect(&place);
            assert_eq!(found.datagram.icrc(), packet.icrc, "{place}");
            assert_eq!(written_again(&found, &packet), frame.bytes, "{place}");
            let opcode = format!("{:02x}", packet.headers.bth.opcode.byte());
            *opcodes.entry(opcode).or_default() += 1;
            if let Some(mad) = mad(&packet) {
                *messages.entry(mad.message.name().to_owned()).or_default() += 1;
            }
            packets += 1;
        }
        let found = (others, words(&opcodes), words(&messages));
        assert_eq!(found, (*foreign, by_opcode.to_string(), by_message.to_string()), "{name}");
    }
    assert_eq!(packets, 2568);
}

#[test]
fn no_capture_is_left_out() {
    let names = std::fs::read_dir(directory()).expect("the captures");
    let mut names: Vec<String> = names
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .filter_map(|name| name.strip_suffix(".pcap").map(str::to_owned))
        .collect();
    names.sort();
    let known: Vec<&str> = CONTENTS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, known);
}
