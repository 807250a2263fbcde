//! Messages of the connection manager, parsed and written again: those of the kernel, and random
//! ones.

use proptest::prelude::*;
use rdmalab_wire::cm::*;
use rdmalab_wire::error::ParseError;
use rdmalab_wire::ids::{Gid, Psn, Qpn};
use std::collections::BTreeMap;
use std::net::IpAddr;

const FIXTURES: &str = include_str!("fixtures/cm.txt");

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

fn fixtures() -> BTreeMap<&'static str, Vec<u8>> {
    let mut lines = FIXTURES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut found = BTreeMap::new();
    while let Some(name) = lines.next() {
        found.insert(name, unpack(lines.next().unwrap()));
    }
    found
}

fn parsed(name: &str) -> Message {
    Mad::parse(&fixtures()[name]).unwrap().message
}

#[test]
fn every_datagram_of_the_kernel_is_written_again_byte_for_byte() {
    let fixtures = fixtures();
    assert_eq!(fixtures.len(), 10);
    for (name, bytes) in &fixtures {
        let mad = Mad::parse(bytes).unwrap();
        assert_eq!(mad.to_bytes().as_slice(), bytes.as_slice(), "{name}");
        let kind = name.split('-').next().unwrap();
        assert_eq!(mad.message.name().to_lowercase(), kind);
    }
}

#[test]
fn a_request_has_the_fields_that_a_dissector_shows() {
    let Message::Req(req) = parsed("req-rping") else { panic!("not a REQ") };
    assert_eq!(req.local_id, 0xa423_b7c8);
    assert_eq!(req.service_id, service_id(port_space::TCP, 7174));
    assert_eq!(req.ca_guid, 0x5054_00ff_fe77_0003);
    assert_eq!((req.qpn.get(), req.starting_psn.get()), (0x2c, 0xa7_f3c5));
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!((req.remote_response_timeout, req.local_response_timeout), (20, 20));
    assert_eq!((req.retry_count, req.rnr_retry_count, req.max_cm_retries), (7, 7, 15));
    assert_eq!((req.pkey, req.path_mtu, req.srq, req.flow_control), (0xffff, 3, false, false));
    let path = req.path;
    assert_eq!((path.local_lid, path.remote_lid), (0xffff, 0xffff));
    assert_eq!(path.local_gid.to_ip(), IpAddr::from([10, 77, 0, 3]));
    assert_eq!(path.remote_gid, Gid::of_ip(IpAddr::from([10, 77, 0, 2])));
    assert_eq!((path.flow_label, path.rate, path.hop_limit), (0xc_c230, 0, 64));
    assert_eq!((path.ack_timeout, path.is_subnet_local, path.service_level), (19, false, 0));
    let ip = IpHeader::parse(&req.private_data).unwrap();
    assert_eq!(ip.source_port, 0xec96);
    assert_eq!(ip.source, IpAddr::from([10, 77, 0, 3]));
    assert_eq!(ip.destination, IpAddr::from([10, 77, 0, 2]));
    assert_eq!(ip.to_bytes(), req.private_data[..36]);
}

#[test]
fn answers_have_the_fields_that_a_dissector_shows() {
    let Message::Rep(rep) = parsed("rep-rping") else { panic!("not a REP") };
    assert_eq!((rep.local_id, rep.remote_id), (0x60d6_db6a, 0xa423_b7c8));
    assert_eq!((rep.qpn, rep.starting_psn), (Qpn::new(0x2c), Psn::new(0x78_22c0)));
    assert_eq!((rep.responder_resources, rep.initiator_depth), (1, 1));
    assert_eq!((rep.target_ack_delay, rep.rnr_retry_count, rep.srq), (15, 7, false));
    assert_eq!(rep.ca_guid, 0x5054_00ff_fe77_0002);
    let Message::Rej(rej) = parsed("rej-rping") else { panic!("not a REJ") };
    assert_eq!((rej.local_id, rej.remote_id), (0, 0xa223_b7c8));
    assert_eq!((rej.about, rej.reason), (0, reason::INVALID_SERVICE_ID));
    let Message::Dreq(dreq) = parsed("dreq-rping") else { panic!("not a DREQ") };
    assert_eq!(dreq.remote_qpn, Qpn::new(0x2c));
    let Message::SidrRep(rep) = parsed("sidr_rep-udaddy") else { panic!("not a SIDR_REP") };
    assert_eq!((rep.status, rep.qpn.get(), rep.qkey), (0, 0x30, 0x0123_4567));
    assert_eq!(rep.service_id, service_id(port_space::UDP, 7174));
}

#[test]
fn a_datagram_names_whom_it_is_for() {
    let fixtures = fixtures();
    let addressee = |name: &str| Mad::addressee(&fixtures[name]).unwrap();
    assert_eq!(addressee("req-rping"), Addressee::Service(0x0106_1c06));
    assert_eq!(addressee("sidr_req-udaddy"), Addressee::Service(0x0111_1c06));
    assert_eq!(addressee("rep-rping"), Addressee::Communication(0xa423_b7c8));
    assert_eq!(addressee("dreq-rping"), Addressee::Communication(0x60d6_db6a));
    assert_eq!(addressee("sidr_rep-udaddy"), Addressee::Communication(0xa123_b7c8));
}

#[test]
fn what_is_no_datagram_of_ours_is_refused() {
    let good = fixtures()["req-rping"].clone();
    assert_eq!(Mad::parse(&good[..255]), Err(ParseError::LengthField(255)));
    for at in [0, 1, 2, 3, 16, 17] {
        let mut bad = good.clone();
        bad[at] ^= 0x80;
        assert!(matches!(Mad::parse(&bad), Err(ParseError::NextHeader(_))), "byte {at}");
    }
}

#[test]
fn an_unknown_address_header_is_refused() {
    let Message::Req(req) = parsed("req-rping") else { panic!("not a REQ") };
    let mut bytes = req.private_data;
    bytes[0] = 0x10;
    assert_eq!(IpHeader::parse(&bytes), None);
    bytes[0] = 0;
    bytes[1] = 0x50;
    assert_eq!(IpHeader::parse(&bytes), None);
    assert_eq!(IpHeader::parse(&bytes[..35]), None);
}

proptest! {
    /// Whatever the bytes are, a parsed message can be written, and parsing it again gives the same
    /// value.
    #[test]
    fn any_body_is_read_and_written(
        attribute in 0x10u16..=0x18,
        transaction in any::<u64>(),
        body in proptest::collection::vec(any::<u8>(), 232),
    ) {
        let mut bytes = vec![1, 7, 2, 3, 0, 0, 0, 0];
        bytes.extend(transaction.to_be_bytes());
        bytes.extend(attribute.to_be_bytes());
        bytes.extend([0; 6]);
        bytes.extend(&body);
        let mad = Mad::parse(&bytes).unwrap();
        prop_assert_eq!(mad.message.attribute(), attribute);
        prop_assert_eq!(mad.transaction, transaction);
        prop_assert_eq!(Mad::parse(&mad.to_bytes()).unwrap(), mad);
    }

    #[test]
    fn addresses_survive(port in any::<u16>(), a in any::<[u8; 16]>(), b in any::<[u8; 16]>()) {
        let header =
            IpHeader { source_port: port, source: a.into(), destination: b.into() };
        prop_assert_eq!(IpHeader::parse(&header.to_bytes()), Some(header));
        let v4 = |x: [u8; 16]| IpAddr::from([x[0], x[1], x[2], x[3]]);
        let header = IpHeader { source_port: port, source: v4(a), destination: v4(b) };
        prop_assert_eq!(IpHeader::parse(&header.to_bytes()), Some(header));
        prop_assert_eq!(Gid::of_ip(v4(a)).to_ip(), v4(a));
    }
}
