//! Frames of real devices: their fields as an independent dissector shows them, the invariant CRC,
//! the identification recovered from the CRC, and the same bytes when written again.

use rdmalab_wire::frame::{EthernetFrame, Network};
use rdmalab_wire::icrc::solve_ipv4_id;
use rdmalab_wire::ip::Ipv4;
use rdmalab_wire::opcode::Opcode;
use rdmalab_wire::packet::{Headers, Packet};
use std::collections::BTreeSet;

const FRAMES: &str = include_str!("fixtures/frames.txt");

struct Fixture {
    name: &'static str,
    fields: Vec<(&'static str, &'static str)>,
    bytes: Vec<u8>,
}

fn fixtures() -> Vec<Fixture> {
    let mut lines = FRAMES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut found = Vec::new();
    while let Some(title) = lines.next() {
        let mut words = title.split(' ');
        let name = words.next().unwrap();
        let fields = words.map(|word| word.split_once('=').unwrap()).collect();
        let bytes = unpack(lines.next().unwrap());
        found.push(Fixture { name, fields, bytes });
    }
    found
}

fn unpack(line: &str) -> Vec<u8> {
    let byte = |hex: &str| u8::from_str_radix(hex, 16).unwrap();
    let mut bytes = Vec::new();
    for piece in line.split(' ') {
        match piece.split_once('*') {
            Some((hex, count)) => bytes.extend(vec![byte(hex); count.parse().unwrap()]),
            None => bytes.extend((0..piece.len() / 2).map(|i| byte(&piece[2 * i..2 * i + 2]))),
        }
    }
    bytes
}

/// The fields of `headers` in the notation of the fixture file. Whole lines are compared, so
/// missing and extra fields are found as well as wrong ones.
fn describe(headers: &Headers, icrc: u32) -> Vec<(&'static str, String)> {
    let bth = &headers.bth;
    let mut fields = vec![
        ("opcode", bth.opcode.byte() as u64),
        ("se", bth.solicited_event as u64),
        ("mig", bth.mig_req as u64),
        ("pad", bth.pad_count as u64),
        ("qp", bth.dest_qp.get() as u64),
        ("ack", bth.ack_req as u64),
        ("psn", bth.psn.get() as u64),
    ];
    if let Some(deth) = headers.deth {
        fields.extend([("qkey", deth.qkey.0 as u64), ("srcqp", deth.source_qp.get() as u64)]);
    }
    if let Some(reth) = headers.reth {
        fields.extend([("va", reth.virtual_address), ("rkey", reth.rkey.0 as u64)]);
        fields.push(("len", reth.dma_length as u64));
    }
    if let Some(atomic) = headers.atomic_eth {
        fields.extend([("va", atomic.virtual_address), ("rkey", atomic.rkey.0 as u64)]);
        fields.extend([("swapadd", atomic.swap_or_add), ("compare", atomic.compare)]);
    }
    if let Some(aeth) = headers.aeth {
        fields.extend([("syndrome", aeth.syndrome.byte() as u64), ("msn", aeth.msn.get() as u64)]);
    }
    if let Some(ack) = headers.atomic_ack_eth {
        fields.push(("original", ack.original));
    }
    if let Some(imm) = headers.immdt {
        fields.push(("imm", imm.0 as u64));
    }
    let mut fields: Vec<_> = fields.into_iter().map(|(k, v)| (k, v.to_string())).collect();
    fields.push(("icrc", format!("{:08x}", icrc.swap_bytes())));
    fields
}

#[test]
fn fields_are_those_of_another_dissector() {
    for fixture in fixtures() {
        let frame = EthernetFrame::parse(&fixture.bytes).expect(fixture.name);
        let packet = Packet::parse(frame.datagram.packet).expect(fixture.name);
        let found = describe(&packet.headers, packet.icrc);
        let found: Vec<_> = found.iter().map(|(k, v)| (*k, v.as_str())).collect();
        assert_eq!(found, fixture.fields, "{}", fixture.name);
    }
}

#[test]
fn every_invariant_crc_verifies() {
    for fixture in fixtures() {
        let frame = EthernetFrame::parse(&fixture.bytes).unwrap();
        let packet = Packet::parse(frame.datagram.packet).unwrap();
        assert_eq!(frame.datagram.icrc(), packet.icrc, "{}", fixture.name);
    }
}

#[test]
fn what_was_read_is_written_as_it_was() {
    for fixture in fixtures() {
        let frame = EthernetFrame::parse(&fixture.bytes).unwrap();
        let packet = Packet::parse(frame.datagram.packet).unwrap();
        let mut out = vec![0xee; fixture.bytes.len()];
        let length = packet.emit(&mut out).expect(fixture.name);
        assert_eq!(&out[..length], frame.datagram.packet, "{}", fixture.name);
        out.fill(0xee);
        assert_eq!(frame.emit(&mut out), Ok(fixture.bytes.len()), "{}", fixture.name);
        assert_eq!(out, fixture.bytes, "{}", fixture.name);
    }
}

#[test]
fn the_identification_is_recovered() {
    let mut recovered = 0;
    for fixture in fixtures() {
        let frame = EthernetFrame::parse(&fixture.bytes).unwrap();
        let Network::V4(ip) = frame.datagram.network else {
            continue;
        };
        let hidden = Ipv4 { identification: 0x5555, ..ip };
        let found = solve_ipv4_id(&hidden, &frame.datagram.udp, frame.datagram.packet);
        assert_eq!(found, Some(ip.identification), "{}", fixture.name);
        recovered += 1;
    }
    assert_eq!(recovered, 34);
}

#[test]
fn the_payload_lies_where_the_packet_says() {
    for fixture in fixtures() {
        let frame = EthernetFrame::parse(&fixture.bytes).unwrap();
        let packet = Packet::parse(frame.datagram.packet).unwrap();
        let pad = packet.headers.bth.pad_count as usize;
        let range = packet.payload_range();
        assert_eq!(&frame.datagram.packet[range.clone()], packet.payload);
        assert_eq!(range.end + pad + 4, frame.datagram.packet.len(), "{}", fixture.name);
    }
}

#[test]
fn the_fixtures_cover_all_but_the_named_opcodes() {
    let seen: BTreeSet<u8> = fixtures()
        .iter()
        .map(|fixture| {
            let frame = EthernetFrame::parse(&fixture.bytes).unwrap();
            Packet::parse(frame.datagram.packet).unwrap().headers.bth.opcode.byte()
        })
        .collect();
    let missing: Vec<_> =
        Opcode::ALL.iter().copied().filter(|opcode| !seen.contains(&opcode.byte())).collect();
    use Opcode::*;
    let known = [
        RcSendLastImm,
        RcSendOnlyImm,
        RcSendLastInv,
        RcSendOnlyInv,
        UcSendLastImm,
        UcSendOnlyImm,
        UcWriteLastImm,
        UcWriteOnly,
        UcWriteOnlyImm,
    ];
    assert_eq!(missing, known);
}
