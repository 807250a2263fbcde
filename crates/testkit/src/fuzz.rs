//! The bodies of the fuzz targets for packets and configurations. They are functions so that seeded
//! tests (`tests/simulate_packets.rs`) can run them without a fuzzer. The fuzz target of the engine
//! is [`crate::hostile`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rdmalab_link::address::FourTuple;
use rdmalab_link::expand::{self, MAX_OVERHEAD_BYTES};
use rdmalab_link::receive::{self, Expected, Verifier};
use rdmalab_trace::{Frame, Link, Trace, show};
use rdmalab_wire::frame::{Datagram, EthernetFrame, InfinibandFrame, Network};
use rdmalab_wire::icrc::{icrc_ipv4, solve_ipv4_id};
use rdmalab_wire::ids::{PathMtu, Qpn};
use rdmalab_wire::ip::Ipv4;
use rdmalab_wire::opcode::Transport;
use rdmalab_wire::packet::{ICRC_BYTES, Packet};

/// Feeds any bytes to every parser of the wire crate. No parser may panic. A packet that is parsed,
/// written and parsed again must give the same value. Returns whether a parser accepted the bytes.
pub fn wire_parse(bytes: &[u8]) -> bool {
    let mut any = packet(bytes);
    if let Ok(frame) = EthernetFrame::parse(bytes) {
        let mut again = vec![0; frame.wire_bytes()];
        assert_eq!(frame.emit(&mut again), Ok(again.len()));
        assert_eq!(EthernetFrame::parse(&again), Ok(frame));
        datagram(&frame.datagram);
        any = true;
    }
    if let Ok(found) = Datagram::parse(bytes) {
        datagram(&found);
        any = true;
    }
    if let Ok(frame) = InfinibandFrame::parse(bytes) {
        let _ = (frame.icrc(), frame.expected_vcrc());
        packet(frame.packet);
        any = true;
    }
    any
}

fn packet(bytes: &[u8]) -> bool {
    let Ok(packet) = Packet::parse(bytes) else { return false };
    assert_eq!(packet.wire_bytes(), bytes.len());
    assert_eq!(&bytes[packet.payload_range()], packet.payload);
    let mut again = vec![0; bytes.len()];
    assert_eq!(packet.emit(&mut again), Ok(bytes.len()));
    assert_eq!(Packet::parse(&again), Ok(packet));
    true
}

fn datagram(datagram: &Datagram<'_>) {
    packet(datagram.packet);
    let icrc = datagram.icrc();
    let Network::V4(ip) = datagram.network else { return };
    let Some((covered, trailer)) = datagram.packet.split_last_chunk::<ICRC_BYTES>() else { return };
    assert_eq!(icrc_ipv4(&ip, &datagram.udp, covered, &[]), icrc);
    // A fuzzer cannot guess a CRC. So check the solver with the trailer that the packet has, and
    // with the correct trailer, for which the solver must find the original identification.
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

/// Takes any bytes as a datagram from the network, with a correct invariant CRC half of the time.
/// Nothing may panic and no damaged packet may be accepted. An accepted packet becomes a train, and
/// sending that train must give the same packet. Returns whether the packet was accepted. The
/// effect of trains on a queue pair is tested by [`crate::hostile`].
pub fn link_receive(bytes: &[u8]) -> bool {
    let Some((&[how, id], rest)) = bytes.split_first_chunk::<2>() else { return false };
    let address = |last: u8| match how & 1 {
        0 => IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
        _ => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())),
    };
    let (source, destination) = (address(1), address(2));
    let tuple = FourTuple { source, destination, source_port: 4791, destination_port: 4791 };
    let transport = [Transport::Rc, Transport::Uc, Transport::Ud][usize::from(how >> 1) % 3];
    let expected = Expected {
        transport,
        can_receive: how & 8 == 0,
        between: Some((source, destination)),
        remote_qpn: Qpn::new(7),
        qkey: 0x1111_1111,
        mtu: PathMtu::Mtu1024,
    };
    let mut packet = rest.to_vec();
    if how & 16 == 0 && packet.len() >= 16 {
        expand::seal(&tuple, u16::from(id), &mut packet);
    }
    let Ok(read) = receive::parse(&packet) else { return false };
    if receive::check(&read, &expected, &tuple).is_err() {
        return false;
    }
    let Ok(found) = Verifier::default().verify(&tuple, &read, &packet) else { return false };
    let train = receive::train_of(&read.headers, read.payload.len(), &expected);
    let Ok(train) = train else { return false };
    let mut again = vec![0; train.payload_bytes as usize + MAX_OVERHEAD_BYTES];
    let parts = expand::write_headers(&train, transport, &mut again).expect("it was a packet");
    again.truncate(parts.packet_bytes);
    again[parts.payload_at..parts.payload_at + parts.payload_bytes].copy_from_slice(read.payload);
    expand::seal(&tuple, found, &mut again);
    let twice = receive::parse(&again).expect("it is a packet");
    let same = receive::train_of(&twice.headers, twice.payload.len(), &expected);
    assert_eq!((same, twice.payload), (Ok(train), read.payload));
    true
}

/// Takes any bytes as the frames of a capture. Nothing may panic, each frame is counted once, and
/// the note on a frame is one line without control characters. Returns the number of packets.
///
/// A frame is one byte for its link type, two for its length, and its data; the last may be cut.
pub fn trace_read(bytes: &[u8]) -> usize {
    let mut trace = Trace::default();
    let mut rest = bytes;
    while let Some((&[how, low, high], behind)) = rest.split_first_chunk::<3>() {
        let original_bytes = usize::from(u16::from_le_bytes([low, high]));
        let (kept, next) = behind.split_at(original_bytes.min(behind.len()));
        rest = next;
        let link = [
            Link::Ethernet,
            Link::RawIp,
            Link::Infiniband,
            Link::Erf,
            Link::LinuxSll,
            Link::LinuxSll2,
            Link::Null,
            Link::Other(147),
        ][usize::from(how) % 8];
        // Times may go backwards, and a comment may be any text of another program.
        let at_ns = (trace.tally.frames * 1000) ^ u64::from(how >> 6);
        let comment = String::from_utf8_lossy(&kept[..kept.len().min(usize::from(how >> 5))]);
        let bytes = kept.to_vec();
        let comment = comment.into_owned();
        let (number, interface) = (trace.tally.frames + 1, u32::from(how >> 7));
        trace.take(&Frame { number, interface, at_ns, link, bytes, original_bytes, comment });
    }
    trace.finish();
    let rows: usize = trace.conversations.iter().map(|c| c.rows.len()).sum();
    let malformed: u64 = trace.tally.malformed.iter().map(|(_, count)| count).sum();
    assert_eq!(rows as u64 + malformed + trace.tally.foreign, trace.tally.frames);
    for row in trace.conversations.iter().flat_map(|c| &c.rows) {
        let (opcode, syndrome) = (row.packet.headers.bth.opcode, show::syndrome(&row.packet));
        let notes = row.notes.iter().map(ToString::to_string);
        for text in notes.chain([show::opcode(opcode), syndrome]) {
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
    rows
}

/// Reads any text as a configuration, in both syntaxes. Nothing may panic, each error has a text,
/// and what is printed of a tree is read again as the same tree. Returns whether it was accepted.
pub fn config_read(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    // No text of a fuzzer may read files or the environment.
    let text = text.replace('@', "").replace("${", "");
    let mut any = false;
    for name in ["a.conf", "a.json"] {
        match rdmalab_config::parse(name, &text) {
            Ok(tree) if name == "a.conf" && !text.trim_start().starts_with('{') => {
                let again = rdmalab_config::parse("b.conf", &tree.to_string());
                assert_eq!(again.map_err(|errors| errors[0].to_string()), Ok(tree));
                any = true;
            }
            Ok(_) => any = true,
            Err(errors) => assert!(errors.iter().all(|e| !e.to_string().is_empty())),
        }
    }
    any
}
