//! The fuzz targets for packets, without a fuzzer. From a seed, captured frames of the kernel are
//! changed in a few bytes, cut, joined or replaced. The targets `wire_parse.rs`, `link_receive.rs`
//! and `trace_read.rs` in `fuzz/fuzz_targets` run the same functions with a fuzzer's bytes.
//!
//! `RDMALAB_SEEDS=N` plays that number of seeds, `RDMALAB_SEED=N` plays one.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use rdmalab_link::address::FourTuple;
use rdmalab_link::expand;
use rdmalab_link::receive::{self, Expected, Verifier};
use rdmalab_random::Random;
use rdmalab_testing::{only_seed, regressions, seeds};
use rdmalab_testkit::fuzz;
use rdmalab_trace::file::Capture;
use rdmalab_wire::frame::{Datagram, EthernetFrame, Network};
use rdmalab_wire::ids::{PathMtu, Qpn};
use rdmalab_wire::packet::Packet;

/// How many seeds to play without `RDMALAB_SEEDS`.
const SEEDS: u64 = 100_000;

/// Seeds that once found a bug.
const REGRESSIONS: &[u64] = &[];

/// All frames of the kernel's captures, with the names of the files.
fn captures() -> Vec<(String, Vec<u8>)> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data");
    let entries = std::fs::read_dir(&directory).expect("the captures");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let mut frames = Vec::new();
    for tuple in paths.iter().filter(|tuple| tuple.extension().is_some_and(|e| e == "pcap")) {
        let name = tuple.file_stem().expect("a name").to_string_lossy().into_owned();
        let mut capture = Capture::open(tuple).expect("a capture");
        while let Some(frame) = capture.next_frame().expect("a whole capture") {
            frames.push((name.clone(), frame.bytes));
        }
    }
    frames
}

/// The golden frames of the wire crate: opcodes that no capture has, among them a CNP.
fn golden() -> Vec<(String, Vec<u8>)> {
    let text = include_str!("../../wire/tests/fixtures/frames.txt");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<&str> = lines.collect();
    lines.chunks(2).map(|pair| ("golden".to_owned(), unpack(pair[1]))).collect()
}

/// Parses bytes in hex; `xx*n` stands for n bytes xx.
fn unpack(line: &str) -> Vec<u8> {
    let byte = |hex: &str| u8::from_str_radix(hex, 16).expect("hex");
    let piece = |piece: &str| match piece.split_once('*') {
        Some((hex, count)) => vec![byte(hex); count.parse().expect("a number")],
        None => (0..piece.len() / 2).map(|i| byte(&piece[2 * i..2 * i + 2])).collect(),
    };
    line.split(' ').flat_map(piece).collect()
}

/// The fields that decide which code a frame exercises.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Form {
    /// EtherType and IP protocol of a frame that is not RoCEv2.
    Foreign(Vec<u8>),
    /// Whether it is IPv6, the first two bytes of the BTH (opcode, flags, pad), whether it requests
    /// an acknowledgement, the payload length, the syndrome, and the attribute of a management
    /// datagram.
    Ours(bool, [u8; 2], bool, usize, Option<u8>, Option<[u8; 2]>),
}

impl Form {
    fn of(bytes: &[u8]) -> Self {
        let Ok(frame) = EthernetFrame::parse(bytes) else {
            let is_v6 = bytes.get(12) == Some(&0x86);
            return Self::Foreign(vec![bytes[12], bytes[if is_v6 { 20 } else { 23 }]]);
        };
        let packet = Packet::parse(frame.datagram.packet).expect("a packet of the kernel");
        let (bth, payload) = (&packet.headers.bth, packet.payload);
        let is_management = bth.dest_qp == Qpn::new(1);
        Self::Ours(
            matches!(frame.datagram.network, Network::V6(_)),
            [frame.datagram.packet[0], frame.datagram.packet[1]],
            bth.ack_req,
            payload.len(),
            packet.headers.aeth.map(|aeth| aeth.syndrome.byte()),
            is_management.then(|| [payload[16], payload[17]]),
        )
    }
}

/// One frame of each form from each capture, so that requests and their responses are included.
fn frames() -> Vec<Vec<u8>> {
    let mut seen = BTreeSet::new();
    let all = captures().into_iter().chain(golden());
    let new = all.filter(|(file, bytes)| seen.insert((file.clone(), Form::of(bytes))));
    new.map(|(_, bytes)| bytes).collect()
}

/// The frames for the fuzzers include every form that a capture or a golden frame has.
#[test]
fn the_frames_have_every_form_that_was_captured() {
    let frames = frames();
    let forms: BTreeSet<Form> = frames.iter().map(|bytes| Form::of(bytes)).collect();
    let all: BTreeSet<Form> =
        captures().iter().chain(&golden()).map(|(_, bytes)| Form::of(bytes)).collect();
    assert_eq!(forms, all);
    let opcodes: BTreeSet<u8> = forms
        .iter()
        .filter_map(|form| match form {
            Form::Ours(_, [opcode, _], ..) => Some(*opcode),
            Form::Foreign(_) => None,
        })
        .collect();
    let v6 = forms.iter().filter(|form| matches!(form, Form::Ours(true, ..))).count();
    assert_eq!((opcodes.len(), forms.len(), v6, frames.len()), (29, 60, 5, 143));
}

/// A frame with random damage, or with none.
fn spoilt(frames: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = frames[random.below(frames.len() as u64) as usize].clone();
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next_u32() as u8),
            2 => {
                let length = random.below(20) as usize;
                bytes.extend(random.bytes(length));
            }
            3 => {
                let other = &frames[random.below(frames.len() as u64) as usize];
                bytes.truncate(at);
                bytes.extend(other.iter().skip(at));
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    bytes
}

/// Input for [`fuzz::link_receive`]: two bytes of choices for the receiver, then the packet.
fn received(frame: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = random.bytes(2);
    match EthernetFrame::parse(frame) {
        Ok(found) => bytes.extend(found.datagram.packet),
        // The offset at which a packet begins over IPv4.
        Err(_) => bytes.extend(frame.iter().skip(42)),
    }
    bytes
}

/// A capture of up to eight frames, in the form of [`fuzz::trace_read`].
fn captured(frames: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=random.below(8) {
        let frame = spoilt(frames, random);
        // Most frames keep their link type, Ethernet.
        let link = if random.below(8) == 0 {
            random.next_u32() as u8
        } else {
            (random.below(8) << 5) as u8
        };
        bytes.push(link);
        bytes.extend((frame.len() as u16).to_le_bytes());
        bytes.extend(frame);
    }
    bytes
}

/// Whether the parsers accepted it, whether the receiver did, and the packets of a capture.
fn play(frames: &[Vec<u8>], seed: u64) -> (bool, bool, usize) {
    let mut random = Random::new(seed);
    let bytes = match random.below(8) {
        0 => {
            let length = random.below(200) as usize;
            random.bytes(length)
        }
        _ => spoilt(frames, &mut random),
    };
    let packet = received(&bytes, &mut random);
    let capture = captured(frames, &mut random);
    let run =
        || (fuzz::wire_parse(&bytes), fuzz::link_receive(&packet), fuzz::trace_read(&capture));
    let Ok(taken) = catch_unwind(AssertUnwindSafe(run)) else {
        panic!(
            "seed {seed}: RDMALAB_SEED={seed} plays it alone; frame {bytes:02x?}, \
             capture {capture:02x?}"
        );
    };
    taken
}

#[test]
fn no_bytes_are_too_strange() {
    let frames = frames();
    let played = seeds(SEEDS);
    let seeds = played.end - played.start;
    let (mut parsed, mut taken, mut traced) = (0u64, 0u64, 0usize);
    for seed in regressions(REGRESSIONS).chain(played) {
        let (by_parser, by_receiver, by_trace) = play(&frames, seed);
        traced += by_trace;
        parsed += u64::from(by_parser);
        taken += u64::from(by_receiver);
    }
    if only_seed().is_some() {
        return;
    }
    // Otherwise this would test little but refusals.
    assert!(parsed > seeds / 4, "{parsed} of {seeds} parsed");
    assert!(taken > seeds / 100, "{taken} of {seeds} taken by the receiver");
    assert!(traced as u64 > seeds, "{traced} packets in {seeds} captures");
}

/// A packet of the kernel becomes a train, and sending that train gives the same packet, except for
/// one flag that only our packets have set.
#[test]
fn every_packet_of_the_kernel_is_a_train_and_again_that_packet() {
    let mut packets = 0;
    for (file, bytes) in captures() {
        let Ok(frame) = EthernetFrame::parse(&bytes) else { continue };
        let (tuple, identification) = path_of(&frame.datagram);
        let read = receive::parse(frame.datagram.packet).expect(&file);
        let transport = read.headers.bth.opcode.transport();
        let expected = Expected {
            transport,
            can_receive: true,
            between: Some((tuple.source, tuple.destination)),
            remote_qpn: Qpn::new(7),
            qkey: read.headers.deth.map_or(0, |deth| deth.qkey.0),
            mtu: PathMtu::Mtu1024,
        };
        assert_eq!(receive::check(&read, &expected, &tuple), Ok(()), "{file}");
        let found = Verifier::default().verify(&tuple, &read, frame.datagram.packet);
        assert_eq!(found, Ok(identification), "{file}");
        let train = receive::train_of(&read.headers, read.payload.len(), &expected).expect(&file);
        let mut again = vec![0xee; read.wire_bytes()];
        let parts = expand::write_headers(&train, transport, &mut again).expect(&file);
        let payload = parts.payload_at..parts.payload_at + parts.payload_bytes;
        again[payload].copy_from_slice(read.payload);
        assert_eq!((again[1] & MIG_REQ, frame.datagram.packet[1] & MIG_REQ), (MIG_REQ, 0));
        again[1] &= !MIG_REQ;
        expand::seal(&tuple, identification, &mut again);
        assert_eq!(again, frame.datagram.packet, "{file}");
        packets += 1;
    }
    assert_eq!(packets, 2568);
}

/// The migration state in a BTH (IBA vol. 1, 9.2.3), which has no use in RoCE: our packets say
/// "migrated", as those of adapters do, and rxe's say "rearm".
const MIG_REQ: u8 = 0x40;

/// Addresses and ports of a datagram, and its IPv4 identification.
fn path_of(datagram: &Datagram<'_>) -> (FourTuple, u16) {
    let (source, destination, identification): (IpAddr, IpAddr, u16) = match datagram.network {
        Network::V4(ip) => (ip.source.into(), ip.destination.into(), ip.identification),
        Network::V6(ip) => (ip.source.0.into(), ip.destination.0.into(), 0),
    };
    let udp = &datagram.udp;
    let (source_port, destination_port) = (udp.source_port, udp.destination_port);
    (FourTuple { source, destination, source_port, destination_port }, identification)
}

/// Writes the frames of the kernel's captures as the initial corpus of the fuzzers.
#[test]
#[ignore = "for fuzzers: cargo test -p rdmalab-testkit --test simulate_packets -- --ignored"]
fn the_corpus_of_the_fuzzers() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut random = Random::new(1);
    let mut taken = 0;
    for (number, frame) in frames().into_iter().enumerate() {
        let packet = received(&frame, &mut random);
        let mut capture = vec![0];
        capture.extend((frame.len() as u16).to_le_bytes());
        capture.extend(&frame);
        taken += usize::from(fuzz::link_receive(&packet));
        for (target, bytes) in
            [("wire_parse", &frame), ("link_receive", &packet), ("trace_read", &capture)]
        {
            let directory = corpus.join(target);
            std::fs::create_dir_all(&directory).expect("the repository is writable");
            let file = directory.join(format!("kernel-{number:04}"));
            std::fs::write(file, bytes).expect("the repository is writable");
        }
    }
    assert!(taken > 0, "no packet is one for a receiver");
}
