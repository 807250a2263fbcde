//! Any bytes as a datagram from the network, with a right invariant CRC half of the time: nothing
//! panics, nothing damaged is taken, and what is taken becomes a train that is the same packet when
//! it is sent again. What trains do to a queue pair is `engine_ops`' business.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmalab_link::expand::{self, MAX_OVERHEAD_BYTES};
use rdmalab_link::path::Path;
use rdmalab_link::receive::{self, Expected, Verifier};
use rdmalab_wire::ids::{PathMtu, Qpn};
use rdmalab_wire::opcode::Transport;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fuzz_target!(|bytes: &[u8]| {
    let Some((&[how, id], rest)) = bytes.split_first_chunk::<2>() else { return };
    let address = |last: u8| match how & 1 {
        0 => IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
        _ => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())),
    };
    let (source, destination) = (address(1), address(2));
    let path = Path { source, destination, source_port: 4791, destination_port: 4791 };
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
        expand::seal(&path, u16::from(id), &mut packet);
    }
    let Ok(read) = receive::parse(&packet) else { return };
    if receive::check(&read, &expected, &path).is_err() {
        return;
    }
    let Ok(found) = Verifier::default().verify(&path, &read, &packet) else { return };
    let Ok(train) = receive::train_of(&read.headers, read.payload.len(), &expected) else { return };
    let mut again = vec![0; train.payload_bytes as usize + MAX_OVERHEAD_BYTES];
    let parts = expand::write_headers(&train, transport, &mut again).expect("it was a packet");
    again.truncate(parts.packet_bytes);
    again[parts.payload_at..parts.payload_at + parts.payload_bytes].copy_from_slice(read.payload);
    expand::seal(&path, found, &mut again);
    let twice = receive::parse(&again).expect("it is a packet");
    let same = receive::train_of(&twice.headers, twice.payload.len(), &expected);
    assert_eq!((same, twice.payload), (Ok(train), read.payload));
});
