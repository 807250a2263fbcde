//! Any bytes into every parser of the wire crate: no panic, and what a parser takes can be written
//! again and is then the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmalab_wire::frame::{Datagram, EthernetFrame, InfinibandFrame, Network};
use rdmalab_wire::icrc::{icrc_ipv4, solve_ipv4_id};
use rdmalab_wire::ip::Ipv4;
use rdmalab_wire::packet::{ICRC_BYTES, Packet};

fuzz_target!(|bytes: &[u8]| {
    packet(bytes);
    if let Ok(frame) = EthernetFrame::parse(bytes) {
        let mut again = vec![0; frame.wire_bytes()];
        assert_eq!(frame.emit(&mut again), Ok(again.len()));
        assert_eq!(EthernetFrame::parse(&again), Ok(frame));
        datagram(&frame.datagram);
    }
    if let Ok(found) = Datagram::parse(bytes) {
        datagram(&found);
    }
    if let Ok(frame) = InfinibandFrame::parse(bytes) {
        let _ = (frame.icrc(), frame.expected_vcrc());
        packet(frame.packet);
    }
});

fn packet(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    assert_eq!(packet.wire_bytes(), bytes.len());
    assert_eq!(&bytes[packet.payload_range()], packet.payload);
    let mut again = vec![0; bytes.len()];
    assert_eq!(packet.emit(&mut again), Ok(bytes.len()));
    assert_eq!(Packet::parse(&again), Ok(packet));
}

fn datagram(datagram: &Datagram<'_>) {
    packet(datagram.packet);
    let icrc = datagram.icrc();
    let Network::V4(ip) = datagram.network else { return };
    let Some((covered, trailer)) = datagram.packet.split_last_chunk::<ICRC_BYTES>() else { return };
    assert_eq!(icrc_ipv4(&ip, &datagram.udp, covered, &[]), icrc);
    // A fuzzer cannot guess a CRC. So check the solver on the trailer that is there, and on the
    // right one, which must give back the identification.
    if let Some(identification) = solve_ipv4_id(&ip, &datagram.udp, datagram.packet) {
        let ip = Ipv4 { identification, ..ip };
        let expected = u32::from_le_bytes(*trailer);
        assert_eq!(icrc_ipv4(&ip, &datagram.udp, covered, &[]), expected);
    }
    let sealed = [covered, &icrc.to_le_bytes()].concat();
    let hidden = Ipv4 { identification: 0, ..ip };
    let found = solve_ipv4_id(&hidden, &datagram.udp, &sealed);
    assert_eq!(found, Some(ip.identification));
}
