//! Trains become packets, and the packets become the same trains; frames of the Linux kernel are
//! read and written byte for byte. `simulate_trains` tests that the engine ends in the same state
//! for a train and for its packets. Together this shows that a network changes nothing.

use proptest::prelude::*;
use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_link::address::FourTuple;
use rdmalab_link::drops::Drop;
use rdmalab_link::expand::{self, MAX_OVERHEAD_BYTES};
use rdmalab_link::receive::{self, Expected, Verifier};
use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::frame::{EthernetFrame, Network};
use rdmalab_wire::ids::{Msn, PathMtu, Psn, Qpn, RKey};
use rdmalab_wire::opcode::Transport;

const OURS: Qpn = Qpn::new(0x04_c001);
const THEIRS: Qpn = Qpn::new(0x08_4002);

fn tuple(v6: bool) -> FourTuple {
    let (source, destination) = if v6 { ("fe80::1", "fe80::2") } else { ("10.0.0.1", "10.0.0.2") };
    FourTuple {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        source_port: 4791,
        destination_port: 4791,
    }
}

fn expected(transport: Transport, tuple: &FourTuple, mtu: PathMtu) -> Expected {
    Expected {
        transport,
        can_receive: true,
        between: (transport != Transport::Ud).then_some((tuple.source, tuple.destination)),
        remote_qpn: OURS,
        qkey: 0x1111_1111,
        mtu,
    }
}

fn payload(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + (i >> 8)) as u8).collect()
}

/// The bytes of packet `index` of a train.
fn packet(
    train: &Train,
    index: u32,
    mtu: PathMtu,
    to: Transport,
    tuple: &FourTuple,
    id: u16,
) -> Vec<u8> {
    let (one, at) = train.packet(index, mtu);
    let mut bytes = vec![0xee; one.payload_bytes as usize + MAX_OVERHEAD_BYTES];
    let parts = expand::write_headers(&one, to, &mut bytes).expect("a packet");
    let all = payload(train.payload_bytes);
    let from = &all[at as usize..at as usize + one.payload_bytes as usize];
    bytes[parts.payload_at..parts.payload_at + parts.payload_bytes].copy_from_slice(from);
    bytes.truncate(parts.packet_bytes);
    expand::seal(tuple, id, &mut bytes);
    bytes
}

/// A train of any kind that an engine may send.
fn trains() -> impl Strategy<Value = (Train, Transport, PathMtu)> {
    let shape = (0u8..8, 0u8..3, 1u32..=5, 1u32..5, 0u32..4096, any::<u8>());
    (shape, any::<[u32; 6]>(), any::<[u64; 3]>()).prop_map(
        |((kind, transport, mtu, packets, rest, bits), words, longs)| {
            let kind = TrainKind::from_number(kind).unwrap();
            let mtu = PathMtu::from_ibv(mtu).unwrap();
            let transport = match (transport, kind) {
                (1, TrainKind::Send | TrainKind::Write) => Transport::Uc,
                (2, TrainKind::Send) => Transport::Ud,
                _ => Transport::Rc,
            };
            let mut train = Train::new(kind, THEIRS, OURS, Psn::new(words[0]));
            let whole = TrainFlags::FIRST | TrainFlags::LAST;
            let carries =
                matches!(kind, TrainKind::Send | TrainKind::Write | TrainKind::ReadResponse);
            train.flags = TrainFlags(if carries { bits & whole } else { whole });
            let last = rest % (mtu.bytes() + 1);
            if carries && transport != Transport::Ud {
                train.packets = packets;
                let full = (packets - 1) * mtu.bytes();
                let ends = train.flags.has(TrainFlags::LAST);
                train.payload_bytes = full + if ends { last } else { mtu.bytes() };
            } else if carries {
                (train.flags, train.payload_bytes) = (TrainFlags(whole | TrainFlags::GRH), last);
                train.qkey = 0x1111_1111;
            }
            fill(&mut train, transport, bits, &words, &longs);
            if kind == TrainKind::ReadRequest {
                train.packets = mtu.packets(train.dma_bytes);
            }
            (train, transport, mtu)
        },
    )
}

/// Sets the fields that this kind of train has at its place in the message.
fn fill(train: &mut Train, transport: Transport, bits: u8, words: &[u32; 6], longs: &[u64; 3]) {
    let kind = train.kind;
    let is_message = matches!(kind, TrainKind::Send | TrainKind::Write);
    if is_message && train.flags.has(TrainFlags::LAST) {
        train.flags.0 |= bits & TrainFlags::SOLICITED;
        if bits & TrainFlags::IMM != 0 {
            train.flags.0 |= TrainFlags::IMM;
        } else if bits & TrainFlags::INV != 0
            && kind == TrainKind::Send
            && transport == Transport::Rc
        {
            train.flags.0 |= TrainFlags::INV;
        }
        if train.flags.has(TrainFlags::IMM | TrainFlags::INV) {
            train.imm_or_rkey = words[1];
        }
    }
    if transport == Transport::Rc && !kind.is_response() {
        train.flags.0 |= bits & TrainFlags::ACK_REQ;
    }
    let begins = train.flags.has(TrainFlags::FIRST);
    if kind == TrainKind::ReadRequest || kind == TrainKind::Write && begins {
        (train.remote_addr, train.rkey) = (longs[0], RKey(words[2]));
        train.dma_bytes = words[3];
    }
    if matches!(kind, TrainKind::CmpSwap | TrainKind::FetchAdd) {
        (train.remote_addr, train.rkey, train.dma_bytes) = (longs[0], RKey(words[2]), 8);
        (train.swap_add, train.compare) = (longs[1], longs[2]);
    }
    if kind == TrainKind::AtomicResponse {
        train.swap_add = longs[1];
    }
    if kind.is_response() {
        train.syndrome = Syndrome::from_byte(bits & 0x3f).unwrap_or(Syndrome::ACK);
        train.msn = Msn::new(words[4]);
    }
}

/// The train as a receiver sees it: packets in the middle of a message lack some fields.
fn as_received(mut one: Train) -> Train {
    if one.kind == TrainKind::Write && !one.flags.has(TrainFlags::FIRST) {
        (one.remote_addr, one.rkey, one.dma_bytes) = (0, RKey(0), 0);
    }
    if one.kind == TrainKind::ReadResponse && !one.flags.has(TrainFlags::FIRST | TrainFlags::LAST) {
        (one.syndrome, one.msn) = (Syndrome::ACK, Msn::new(0));
    }
    if !one.flags.has(TrainFlags::IMM | TrainFlags::INV) {
        one.imm_or_rkey = 0;
    }
    one
}

proptest! {
    #[test]
    fn what_goes_out_comes_in(
        (train, transport, mtu) in trains(),
        v6: bool,
        id: u16,
    ) {
        let tuple = tuple(v6);
        let expected = expected(transport, &tuple, mtu);
        let all = payload(train.payload_bytes);
        let mut verifier = Verifier::default();
        for index in 0..expand::packets_of(&train) {
            let bytes = packet(&train, index, mtu, transport, &tuple, id);
            let read = receive::parse(&bytes).unwrap();
            prop_assert_eq!(receive::check(&read, &expected, &tuple), Ok(()));
            let found = verifier.verify(&tuple, &read, &bytes);
            prop_assert_eq!(found, Ok(if v6 { 0 } else { id }));
            let (one, at) = train.packet(index, mtu);
            let got = receive::train_of(&read.headers, read.payload.len(), &expected).unwrap();
            prop_assert_eq!(got, as_received(one));
            let from = &all[at as usize..at as usize + one.payload_bytes as usize];
            prop_assert_eq!(read.payload, from);
        }
    }

    /// Over IPv6 the receiver checks the whole CRC, which detects every single flipped bit. Over
    /// IPv4 it uses half of the CRC to find the identification. The rest detects flipped bits too,
    /// except one in 65 536, which the kernel's UDP checksum detects.
    #[test]
    fn a_flipped_bit_is_found((train, transport, mtu) in trains(), at: prop::sample::Index) {
        let tuple = tuple(true);
        let mut bytes = packet(&train, 0, mtu, transport, &tuple, 0);
        let bit = at.index(bytes.len() * 8);
        // Switches may change the low six bits of BTH byte 4 and the congestion marks.
        prop_assume!(bit / 8 != 4);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let taken = receive::parse(&bytes).and_then(|read| {
            Verifier::default().verify(&tuple, &read, &bytes)
        });
        prop_assert!(taken.is_err());
    }

    #[test]
    fn any_bytes_are_refused_quietly(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let tuple = tuple(false);
        let expected = expected(Transport::Rc, &tuple, PathMtu::Mtu1024);
        if let Ok(read) = receive::parse(&bytes) {
            let _ = receive::check(&read, &expected, &tuple);
            let _ = Verifier::default().verify(&tuple, &read, &bytes);
            let _ = receive::train_of(&read.headers, read.payload.len(), &expected);
        }
    }
}

#[test]
fn strangers_are_refused_for_a_reason() {
    let mtu = PathMtu::Mtu1024;
    let mut train = Train::new(TrainKind::Send, THEIRS, OURS, Psn::new(7));
    train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST);
    let good = packet(&train, 0, mtu, Transport::Rc, &tuple(false), 0);
    let want = expected(Transport::Rc, &tuple(false), mtu);
    let check = |bytes: &[u8], want: &Expected, tuple: &FourTuple| {
        receive::parse(bytes).and_then(|read| receive::check(&read, want, tuple))
    };
    assert_eq!(check(&good, &want, &tuple(false)), Ok(()));
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        check(&bytes, &want, &tuple(false))
    };
    assert_eq!(with(1, good[1] | 1), Err(Drop::TransportVersion));
    assert_eq!(with(0, 0x1e), Err(Drop::Opcode));
    assert_eq!(with(0, 0x24), Err(Drop::Transport));
    assert_eq!(with(2, 0x12), Err(Drop::PKey));
    assert_eq!(check(&good[..15], &want, &tuple(false)), Err(Drop::Malformed));
    let elsewhere = FourTuple { source: "10.0.0.3".parse().unwrap(), ..tuple(false) };
    assert_eq!(check(&good, &want, &elsewhere), Err(Drop::Address));
    let closed = Expected { can_receive: false, ..want };
    assert_eq!(check(&good, &closed, &tuple(false)), Err(Drop::State));
    train.qkey = 5;
    let datagram = packet(&train, 0, mtu, Transport::Ud, &tuple(false), 0);
    let ud = expected(Transport::Ud, &tuple(false), mtu);
    assert_eq!(check(&datagram, &ud, &tuple(false)), Err(Drop::QKey));
    let mut nobody = good.clone();
    nobody[5..8].fill(0);
    assert_eq!(check(&nobody, &want, &tuple(false)), Err(Drop::NoSuchQp));
}

/// Frames that the Linux kernel's `rdma_rxe` sent (the fixtures of `wire`).
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    const FRAMES: &str = include_str!("../../wire/tests/fixtures/frames.txt");
    let lines: Vec<&str> =
        FRAMES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let byte = |hex: &str| u8::from_str_radix(hex, 16).unwrap();
    let unpack = |line: &str| {
        let mut bytes = Vec::new();
        for piece in line.split(' ') {
            match piece.split_once('*') {
                Some((hex, count)) => bytes.extend(vec![byte(hex); count.parse().unwrap()]),
                None => bytes.extend((0..piece.len() / 2).map(|i| byte(&piece[2 * i..2 * i + 2]))),
            }
        }
        bytes
    };
    lines.chunks(2).map(|pair| (pair[0].split(' ').next().unwrap(), unpack(pair[1]))).collect()
}

#[test]
fn frames_of_the_kernel_become_trains_and_the_same_bytes_again() {
    let mut seen = 0;
    for (name, bytes) in frames() {
        let frame = EthernetFrame::parse(&bytes).expect(name);
        let (source, destination) = match frame.datagram.network {
            Network::V4(ip) => (ip.source.into(), ip.destination.into()),
            Network::V6(ip) => (
                rdmalab_link::address::address_of(ip.source),
                rdmalab_link::address::address_of(ip.destination),
            ),
        };
        let tuple = FourTuple {
            source,
            destination,
            source_port: frame.datagram.udp.source_port,
            destination_port: 4791,
        };
        let original = frame.datagram.packet;
        let read = receive::parse(original).expect(name);
        let transport = read.headers.bth.opcode.transport();
        let id = Verifier::default().verify(&tuple, &read, original).expect(name);
        let expected = expected(transport, &tuple, PathMtu::Mtu1024);
        let train = match receive::train_of(&read.headers, read.payload.len(), &expected) {
            Ok(train) => train,
            Err(reason) => {
                assert_eq!((transport, reason), (Transport::Cnp, Drop::Opcode), "{name}");
                continue;
            }
        };
        let mut out = vec![0; original.len() + MAX_OVERHEAD_BYTES];
        let parts = expand::write_headers(&train, transport, &mut out).expect(name);
        out.truncate(parts.packet_bytes);
        out[parts.payload_at..parts.payload_at + parts.payload_bytes].copy_from_slice(read.payload);
        // The kernel's driver sends 0 as migration state.
        out[1] = out[1] & !0x40 | original[1] & 0x40;
        expand::seal(&tuple, id, &mut out);
        assert_eq!(out, original, "{name}");
        seen += 1;
    }
    assert!(seen > 30, "{seen}");
}
