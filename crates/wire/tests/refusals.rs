//! Errors below the transport are reported with their reason, layer by layer: each test damages one
//! field of a good frame.

use core::net::Ipv4Addr;
use rdmalab_wire::error::{EmitError, ParseError};
use rdmalab_wire::frame::{Datagram, EthernetFrame, InfinibandFrame, Network, emit_infiniband};
use rdmalab_wire::grh::Grh;
use rdmalab_wire::headers::Bth;
use rdmalab_wire::icrc::{IdSolver, icrc_ipv4};
use rdmalab_wire::ids::{Gid, Lid, Psn, Qpn};
use rdmalab_wire::ip::{Ethernet, Ipv4, Udp};
use rdmalab_wire::lrh::{LinkNext, Lrh};
use rdmalab_wire::opcode::Opcode;
use rdmalab_wire::packet::{Headers, Packet};

/// BTH and ICRC of a SEND without payload.
fn packet() -> Vec<u8> {
    let headers = Headers::new(Bth::new(Opcode::RcSendOnly, Qpn::new(2), Psn::new(3)));
    let packet = Packet { headers, payload: &[], icrc: 0x0102_0304 };
    let mut bytes = vec![0; packet.wire_bytes()];
    packet.emit(&mut bytes).unwrap();
    bytes
}

fn ipv4() -> Ipv4 {
    Ipv4 {
        type_of_service: 0,
        total_length: 44,
        identification: 0,
        dont_fragment: true,
        time_to_live: 64,
        protocol: Ipv4::UDP,
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
    }
}

fn grh(next_header: u8) -> Grh {
    Grh {
        traffic_class: 1,
        flow_label: 0xf_edcb,
        payload_length: 16,
        next_header,
        hop_limit: 7,
        source: Gid([1; 16]),
        destination: Gid([2; 16]),
    }
}

/// An Ethernet frame with that packet over IPv4, and with `byte` at offset `at`.
fn ethernet_with(at: usize, byte: u8) -> Vec<u8> {
    let packet = packet();
    let datagram =
        Datagram { network: Network::V4(ipv4()), udp: Udp::roce(50000, 16), packet: &packet };
    let ethernet = Ethernet { destination: [2; 6], source: [4; 6], ethertype: Ethernet::IPV4 };
    let frame = EthernetFrame { ethernet, vlan: None, datagram };
    let mut bytes = vec![0; frame.wire_bytes()];
    assert_eq!(frame.emit(&mut bytes), Ok(58));
    assert_eq!(EthernetFrame::parse(&bytes), Ok(frame));
    bytes[at] = byte;
    bytes
}

fn refusal(bytes: &[u8]) -> ParseError {
    EthernetFrame::parse(bytes).unwrap_err()
}

#[test]
fn ethernet_ip_and_udp() {
    assert_eq!(refusal(&ethernet_with(13, 6)), ParseError::NextHeader(0x0806), "ARP");
    assert_eq!(refusal(&ethernet_with(14, 0x55)), ParseError::IpVersion(5));
    assert_eq!(refusal(&ethernet_with(17, 19)), ParseError::LengthField(19));
    assert_eq!(refusal(&ethernet_with(23, 6)), ParseError::NextHeader(6), "TCP");
    assert_eq!(refusal(&ethernet_with(37, 0xb8)), ParseError::UdpPort(4792));
    assert_eq!(refusal(&ethernet_with(39, 23)), ParseError::LengthField(23));
    assert_eq!(refusal(&ethernet_with(39, 25)), ParseError::LengthField(25));
    let longer = ParseError::Truncated { needed: 25, got: 24 };
    assert_eq!(refusal(&ethernet_with(17, 45)), longer);
    let mut mislabelled = ethernet_with(0, 2);
    mislabelled[12..14].copy_from_slice(&Ethernet::IPV6.to_be_bytes());
    assert_eq!(refusal(&mislabelled), ParseError::NextHeader(Ethernet::IPV6));
    assert_eq!(Datagram::parse(&[]), Err(ParseError::Truncated { needed: 20, got: 0 }));
}

#[test]
fn ethernet_padding_is_no_part_of_the_datagram() {
    let mut bytes = ethernet_with(0, 2);
    bytes.extend([0xee; 2]);
    let frame = EthernetFrame::parse(&bytes).unwrap();
    assert_eq!(frame.datagram.packet, packet());
}

#[test]
fn infiniband_headers() {
    let lrh = Lrh {
        virtual_lane: 0,
        service_level: 0,
        next: LinkNext::Global,
        destination: Lid(1),
        packet_words: 16,
        source: Lid(2),
    };
    let grh = grh(Grh::NEXT_IBA);
    let mut good = [0; 66];
    assert_eq!(emit_infiniband(&lrh, Some(&grh), &packet(), &mut good), Ok(66));
    let frame = InfinibandFrame::parse(&good).unwrap();
    assert_eq!((frame.lrh, frame.grh, frame.packet), (lrh, Some(grh), &packet()[..]));
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        InfinibandFrame::parse(&bytes).map(|frame| frame.lrh)
    };
    assert_eq!(with(1, 0), Err(ParseError::NextHeader(0)), "raw EtherType");
    assert_eq!(with(1, 1), Err(ParseError::NextHeader(1)), "raw IPv6");
    assert_eq!(with(4, 0xf8), Ok(lrh), "the high five bits of the length are reserved");
    assert_eq!(with(5, 1), Err(ParseError::LengthField(4)), "shorter than its own header");
    assert_eq!(with(8, 0x50), Err(ParseError::IpVersion(5)));
    assert_eq!(with(13, 15), Err(ParseError::LengthField(15)));
    assert_eq!(with(14, 17), Err(ParseError::NextHeader(17)));
    let short = EmitError::BufferTooSmall { needed: 66, got: 65 };
    assert_eq!(emit_infiniband(&lrh, Some(&grh), &packet(), &mut [0; 65]), Err(short));
}

#[test]
fn headers_alone_do_not_fit_a_shorter_buffer() {
    let headers = Packet::parse(&packet()).unwrap().headers;
    let mut out = [0; 12];
    assert_eq!(headers.emit(&mut out), Ok(12));
    let short = EmitError::BufferTooSmall { needed: 12, got: 11 };
    assert_eq!(headers.emit(&mut out[..11]), Err(short));
}

#[test]
fn a_solver_serves_one_length() {
    let (ip, udp) = (ipv4(), Udp::roce(50000, 16));
    let mut bytes = packet();
    let crc = icrc_ipv4(&ip, &udp, &bytes[..12], &[]);
    bytes[12..].copy_from_slice(&crc.to_le_bytes());
    // For identification 0 the arithmetic of every length would give the right result.
    assert_eq!(IdSolver::for_packet_bytes(16).solve(&ip, &udp, &bytes), Some(0));
    assert_eq!(IdSolver::for_packet_bytes(20).solve(&ip, &udp, &bytes), None);
}

#[test]
fn a_datagram_receiver_finds_the_ipv4_header_at_the_end_of_the_grh() {
    let area = ipv4().to_grh_area();
    assert_eq!(area[..20], [0; 20]);
    assert_eq!(area[20..], ipv4().to_bytes());
}

#[test]
fn the_ipv6_header_has_its_fields_where_rfc_8200_puts_them() {
    let mut expected = vec![0x60, 0x1f, 0xed, 0xcb, 0, 16, 17, 7];
    expected.extend([1; 16]);
    expected.extend([2; 16]);
    let header = grh(Grh::NEXT_UDP);
    assert_eq!(header.to_bytes()[..], expected);
    assert_eq!(Grh::from_bytes(&header.to_bytes()), Ok(header));
}
