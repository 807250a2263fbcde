//! Properties over arbitrary packets and arbitrary bytes.

use core::net::Ipv4Addr;
use proptest::prelude::*;
use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::error::{EmitError, ParseError};
use rdmalab_wire::frame::{Datagram, EthernetFrame, InfinibandFrame, Network, emit_infiniband};
use rdmalab_wire::grh::Grh;
use rdmalab_wire::headers::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ieth, ImmDt, Reth};
use rdmalab_wire::icrc::{Icrc, IdSolver, icrc_ipv4, icrc_ipv6, solve_ipv4_id};
use rdmalab_wire::ids::{Gid, Lid, Msn, PKey, Psn, QKey, Qpn, RKey};
use rdmalab_wire::ip::{Ethernet, Ipv4, Udp};
use rdmalab_wire::lrh::{LinkNext, Lrh, vcrc};
use rdmalab_wire::opcode::Opcode;
use rdmalab_wire::packet::{CNP_PAYLOAD_BYTES, Headers, Packet, pad_count};

fn base_header() -> impl Strategy<Value = Bth> {
    let opcode = prop::sample::select(Opcode::ALL);
    let flags = prop::array::uniform5(any::<bool>());
    (opcode, flags, any::<u16>(), any::<u32>(), any::<u32>()).prop_map(
        |(opcode, [solicited_event, mig_req, fecn, becn, ack_req], pkey, qpn, psn)| Bth {
            solicited_event,
            mig_req,
            pkey: PKey(pkey),
            fecn,
            becn,
            ack_req,
            ..Bth::new(opcode, Qpn::new(qpn), Psn::new(psn))
        },
    )
}

/// Headers with random values, including the extended headers that the opcode requires.
fn headers() -> impl Strategy<Value = Headers> {
    let syndrome = any::<u8>().prop_filter_map("reserved syndrome", Syndrome::from_byte);
    (base_header(), any::<[u64; 3]>(), any::<[u32; 4]>(), syndrome).prop_map(
        |(bth, [a, b, c], [k, l, m, n], syndrome)| {
            let op = bth.opcode;
            let atomic_eth =
                AtomicEth { virtual_address: a, rkey: RKey(k), swap_or_add: b, compare: c };
            let reth = Reth { virtual_address: a, rkey: RKey(k), dma_length: l };
            let deth = Deth { qkey: QKey(k), source_qp: Qpn::new(l) };
            Headers {
                bth,
                deth: op.has_deth().then_some(deth),
                reth: op.has_reth().then_some(reth),
                atomic_eth: op.has_atomic_eth().then_some(atomic_eth),
                aeth: op.has_aeth().then_some(Aeth { syndrome, msn: Msn::new(l) }),
                atomic_ack_eth: op.has_atomic_ack_eth().then_some(AtomicAckEth { original: b }),
                immdt: op.has_immdt().then_some(ImmDt(m)),
                ieth: op.has_ieth().then_some(Ieth(RKey(n))),
            }
        },
    )
}

/// Headers with a matching pad count, the payload, and a value for the ICRC.
fn packet_parts() -> impl Strategy<Value = (Headers, Vec<u8>, u32)> {
    (headers(), prop::collection::vec(any::<u8>(), 0..300), any::<u32>()).prop_map(
        |(mut headers, mut payload, icrc)| {
            match headers.bth.opcode {
                Opcode::Cnp => payload.resize(CNP_PAYLOAD_BYTES, 0),
                opcode if !opcode.has_payload() => payload.clear(),
                _ => {}
            }
            headers.bth.pad_count = pad_count(payload.len());
            (headers, payload, icrc)
        },
    )
}

fn ipv4(id: u16, packet_bytes: usize, (source, destination): (u32, u32), class: u8) -> Ipv4 {
    Ipv4 {
        type_of_service: class,
        total_length: (packet_bytes + 28) as u16,
        identification: id,
        dont_fragment: true,
        time_to_live: 64,
        protocol: Ipv4::UDP,
        source: Ipv4Addr::from_bits(source),
        destination: Ipv4Addr::from_bits(destination),
    }
}

fn ipv6(packet_bytes: usize, source: [u8; 16], destination: [u8; 16]) -> Grh {
    Grh {
        traffic_class: 2,
        flow_label: 0x12345,
        payload_length: (packet_bytes + 8) as u16,
        next_header: Grh::NEXT_UDP,
        hop_limit: 64,
        source: Gid(source),
        destination: Gid(destination),
    }
}

fn write(headers: Headers, payload: &[u8], icrc: u32) -> Vec<u8> {
    let packet = Packet { headers, payload, icrc };
    let mut bytes = vec![0xaa; packet.wire_bytes()];
    assert_eq!(packet.emit(&mut bytes), Ok(bytes.len()));
    bytes
}

/// Replaces the last four bytes by the CRC.
fn seal(bytes: &mut [u8], icrc: impl FnOnce(&[u8]) -> u32) {
    let end = bytes.len() - 4;
    let crc = icrc(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
}

/// Whether a receiver would accept the datagram.
fn accepts(bytes: &[u8]) -> bool {
    Datagram::parse(bytes).is_ok_and(|datagram| {
        Packet::parse(datagram.packet).is_ok_and(|packet| packet.icrc == datagram.icrc())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_written_is_read((headers, payload, icrc) in packet_parts()) {
        let bytes = write(headers, &payload, icrc);
        prop_assert_eq!(Packet::parse(&bytes), Ok(Packet { headers, payload: &payload, icrc }));
    }

    #[test]
    fn a_shorter_packet_is_never_taken_for_the_whole(
        (headers, payload, icrc) in packet_parts(),
        cut in 1usize..64,
    ) {
        let bytes = write(headers, &payload, icrc);
        let short = &bytes[..bytes.len().saturating_sub(cut)];
        match Packet::parse(short) {
            Ok(packet) => {
                // The parser misses only whole words cut from the payload; the CRC then differs.
                prop_assert_eq!(cut % 4, 0);
                prop_assert_eq!(packet.headers, headers);
                prop_assert_eq!(packet.payload.len() + cut, payload.len());
            }
            Err(ParseError::Truncated { needed, got }) => {
                prop_assert_eq!(got, short.len());
                prop_assert!(needed > got && needed <= bytes.len());
            }
            Err(_) => {}
        }
    }

    #[test]
    fn no_buffer_too_short_is_overrun(
        (headers, payload, icrc) in packet_parts(),
        cut in 1usize..99,
    ) {
        let packet = Packet { headers, payload: &payload, icrc };
        let needed = packet.wire_bytes();
        let got = needed.saturating_sub(cut);
        let mut out = vec![0; got];
        prop_assert_eq!(packet.emit(&mut out), Err(EmitError::BufferTooSmall { needed, got }));
        prop_assert!(out.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = Datagram::parse(&bytes);
        let _ = EthernetFrame::parse(&bytes);
        let _ = InfinibandFrame::parse(&bytes);
        if let Ok(packet) = Packet::parse(&bytes) {
            // An accepted packet can be written, and is then the same packet without reserved bits.
            let again = write(packet.headers, packet.payload, packet.icrc);
            prop_assert_eq!(Packet::parse(&again), Ok(packet));
        }
    }

    #[test]
    fn damaged_frames_never_panic(
        (headers, payload, icrc) in packet_parts(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        over_v6 in any::<bool>(),
    ) {
        let packet = write(headers, &payload, icrc);
        let (network, ethertype) = if over_v6 {
            (Network::V6(ipv6(packet.len(), [1; 16], [2; 16])), Ethernet::IPV6)
        } else {
            (Network::V4(ipv4(7, packet.len(), (1, 2), 0)), Ethernet::IPV4)
        };
        let ethernet = Ethernet { destination: [2; 6], source: [4; 6], ethertype };
        let udp = Udp::roce(50000, packet.len() as u16);
        let datagram = Datagram { network, udp, packet: &packet };
        let frame = EthernetFrame { ethernet, vlan: over_v6.then_some(100), datagram };
        let mut bytes = vec![0; frame.wire_bytes()];
        prop_assert_eq!(frame.emit(&mut bytes), Ok(bytes.len()));
        prop_assert_eq!(EthernetFrame::parse(&bytes), Ok(frame));
        for (at, mask) in damage {
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
        }
        if let Ok(frame) = EthernetFrame::parse(&bytes) {
            let _ = frame.datagram.icrc();
            if let Ok(packet) = Packet::parse(frame.datagram.packet) {
                let again = write(packet.headers, packet.payload, packet.icrc);
                prop_assert_eq!(Packet::parse(&again), Ok(packet));
            }
        }
    }

    #[test]
    fn the_identification_is_recovered(
        (headers, payload, _) in packet_parts(),
        id in any::<u16>(),
        addresses in any::<(u32, u32)>(),
        class in any::<u8>(),
        port in any::<u16>(),
    ) {
        let mut bytes = write(headers, &payload, 0);
        let ip = ipv4(id, bytes.len(), addresses, class);
        let udp = Udp::roce(port, bytes.len() as u16);
        seal(&mut bytes, |covered| icrc_ipv4(&ip, &udp, covered, &[]));
        // A socket knows neither the identification nor the fields that routers may change.
        let seen = Ipv4 { identification: 0, type_of_service: 0, time_to_live: 1, ..ip };
        prop_assert_eq!(solve_ipv4_id(&seen, &udp, &bytes), Some(id));
        let solver = IdSolver::for_packet_bytes(bytes.len() + 4);
        prop_assert_eq!(solver.solve(&seen, &udp, &bytes), None, "solver of another length");
    }

    #[test]
    fn a_recovered_identification_verifies_or_there_is_none(
        (headers, payload, icrc) in packet_parts(),
    ) {
        let bytes = write(headers, &payload, icrc);
        let ip = ipv4(0, bytes.len(), (1, 2), 0);
        let udp = Udp::roce(50000, bytes.len() as u16);
        let covered = &bytes[..bytes.len() - 4];
        match solve_ipv4_id(&ip, &udp, &bytes) {
            Some(id) => {
                let ip = Ipv4 { identification: id, ..ip };
                prop_assert_eq!(icrc_ipv4(&ip, &udp, covered, &[]), icrc);
            }
            // Each identification gives another CRC, so none of these samples may match.
            None => for id in [0, 1, 0x8000, 0xffff, icrc as u16] {
                let ip = Ipv4 { identification: id, ..ip };
                prop_assert_ne!(icrc_ipv4(&ip, &udp, covered, &[]), icrc);
            }
        }
    }

    #[test]
    fn the_crc_does_not_depend_on_the_pieces(
        (headers, payload, _) in packet_parts(),
        first in any::<prop::sample::Index>(),
        second in any::<prop::sample::Index>(),
    ) {
        let bytes = write(headers, &payload, 0);
        let covered = &bytes[..bytes.len() - 4];
        let udp = Udp::roce(50000, bytes.len() as u16);
        let ip = ipv6(bytes.len(), [1; 16], [2; 16]);
        let whole = icrc_ipv6(&ip, &udp, covered, &[]);
        let head = 12 + first.index(covered.len() - 11);
        let (head, rest) = covered.split_at(head);
        let (middle, tail) = rest.split_at(second.index(rest.len() + 1));
        prop_assert_eq!(icrc_ipv6(&ip, &udp, head, &[middle, tail]), whole);
        prop_assert_eq!(Icrc::ipv6(&ip, &udp).of_packet(&bytes), whole);
        prop_assert_eq!(Icrc::of_packet_over_ipv6(&ip, &udp, &bytes), whole);
        let ip = ipv4(0, bytes.len(), (1, 2), 7);
        let whole = icrc_ipv4(&ip, &udp, covered, &[]);
        prop_assert_eq!(Icrc::of_packet_over_ipv4(&ip, &udp, &bytes), whole);
    }

    #[test]
    fn one_flipped_bit_is_detected_over_ipv6(
        (headers, payload, _) in packet_parts(),
        bit in any::<prop::sample::Index>(),
        addresses in any::<[[u8; 16]; 2]>(),
    ) {
        let mut packet = write(headers, &payload, 0);
        let ip = ipv6(packet.len(), addresses[0], addresses[1]);
        let udp = Udp::roce(50000, packet.len() as u16);
        seal(&mut packet, |covered| icrc_ipv6(&ip, &udp, covered, &[]));
        let mut bytes = [&ip.to_bytes()[..], &udp.to_bytes(), &packet].concat();
        prop_assert!(accepts(&bytes));
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 0x80 >> (bit % 8);
        prop_assert_eq!(accepts(&bytes), is_variant_in_ipv6(bit), "bit {}", bit);
    }

    #[test]
    fn infiniband_packets_are_read_and_checked(
        (headers, payload, _) in packet_parts(),
        lids in any::<(u16, u16)>(),
        lanes in (0u8..16, 0u8..16),
        global in any::<bool>(),
    ) {
        let mut packet = write(headers, &payload, 0);
        let grh = global.then(|| Grh {
            payload_length: packet.len() as u16,
            next_header: Grh::NEXT_IBA,
            ..ipv6(0, [3; 16], [4; 16])
        });
        let lrh = Lrh {
            virtual_lane: lanes.0,
            service_level: 5,
            next: if global { LinkNext::Global } else { LinkNext::Local },
            destination: Lid(lids.0),
            packet_words: ((8 + if global { 40 } else { 0 } + packet.len()) / 4) as u16,
            source: Lid(lids.1),
        };
        let mut icrc = Icrc::infiniband(&lrh, grh.as_ref());
        icrc.transport(&packet[..packet.len() - 4]);
        seal(&mut packet, |_| icrc.finish());
        let mut out = vec![0; 600];
        let length = emit_infiniband(&lrh, grh.as_ref(), &packet, &mut out).unwrap();
        let frame = InfinibandFrame::parse(&out[..length]).unwrap();
        prop_assert_eq!((frame.lrh, frame.grh, frame.packet), (lrh, grh, &packet[..]));
        let icrc = Packet::parse(frame.packet).unwrap().icrc;
        prop_assert_eq!(frame.icrc(), icrc);
        prop_assert_eq!(frame.vcrc, Some(frame.expected_vcrc()));
        // A switch that moves the packet to another virtual lane changes only the variant CRC.
        out[0] = lanes.1 << 4;
        let moved = InfinibandFrame::parse(&out[..length]).unwrap();
        prop_assert_eq!(moved.icrc(), icrc);
        prop_assert_eq!(moved.expected_vcrc(), vcrc(&out[..length - 2]));
        prop_assert_eq!(moved.vcrc == Some(moved.expected_vcrc()), lanes.0 == lanes.1);
        // The end of the capture may lack the variant CRC, but nothing else.
        let bare = InfinibandFrame::parse(&out[..length - 2]).unwrap();
        prop_assert_eq!(bare.vcrc, None);
        prop_assert!(InfinibandFrame::parse(&out[..length - 3]).is_err());
    }
}

/// Whether routers may change this bit of an IPv6 RoCEv2 datagram; bit 0 is the most significant
/// one of the first byte.
fn is_variant_in_ipv6(bit: usize) -> bool {
    match bit / 8 {
        0 => bit % 8 >= 4,
        1..=3 | 7 => true,
        // UDP checksum, and the byte of the BTH that holds the congestion marks.
        46 | 47 | 52 => true,
        _ => false,
    }
}

#[test]
fn headers_of_another_opcode_are_not_written() {
    let mut headers = Headers::new(Bth::new(Opcode::RcWriteOnly, Qpn::new(2), Psn::new(3)));
    let mut out = [0; 64];
    assert_eq!(headers.emit(&mut out), Err(EmitError::HeadersMismatch));
    headers.reth = Some(Reth { virtual_address: 1, rkey: RKey(2), dma_length: 3 });
    assert_eq!(headers.emit(&mut out), Ok(28));
    headers.immdt = Some(ImmDt(4));
    assert_eq!(headers.emit(&mut out), Err(EmitError::HeadersMismatch));
}

#[test]
fn what_the_form_forbids_is_refused_with_its_reason() {
    let ack = Headers {
        aeth: Some(Aeth { syndrome: Syndrome::ACK, msn: Msn::new(1) }),
        ..Headers::new(Bth::new(Opcode::RcAcknowledge, Qpn::new(2), Psn::new(3)))
    };
    let good = write(ack, &[], 0);
    let with_payload = [&good[..16], &[0; 4], &good[16..]].concat();
    assert_eq!(Packet::parse(&with_payload), Err(ParseError::PayloadLength(4)));
    let unaligned = [&good[..16], &[0; 3], &good[16..]].concat();
    assert_eq!(Packet::parse(&unaligned), Err(ParseError::Unaligned(3)));
    let mut padded = good.clone();
    padded[1] |= 0x10;
    let error = ParseError::PadCount { pad: 1, available: 0 };
    assert_eq!(Packet::parse(&padded), Err(error));
    let short = ParseError::Truncated { needed: 20, got: 16 };
    assert_eq!(Packet::parse(&good[..16]), Err(short));
    let mut out = [0; 64];
    let packet = Packet { headers: ack, payload: &[0; 4], icrc: 0 };
    assert_eq!(packet.emit(&mut out), Err(EmitError::PayloadLength(4)));
    let cnp = Headers::new(Bth::new(Opcode::Cnp, Qpn::new(2), Psn::new(0)));
    let packet = Packet { headers: cnp, payload: &[0; 12], icrc: 0 };
    assert_eq!(packet.emit(&mut out), Err(EmitError::PayloadLength(12)));
    let mut padded = write(cnp, &[0; 16], 0);
    padded[1] |= 0x20;
    assert_eq!(Packet::parse(&padded), Err(ParseError::PayloadLength(14)));
    let send = Headers::new(Bth::new(Opcode::RcSendOnly, Qpn::new(2), Psn::new(3)));
    let packet = Packet { headers: send, payload: &[0; 3], icrc: 0 };
    assert_eq!(packet.emit(&mut out), Err(EmitError::PadCount(1)));
}
