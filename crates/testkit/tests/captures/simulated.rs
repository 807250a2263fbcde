//! All packets that the engine sends in the simulations are well formed for `tshark`: every opcode,
//! with random fields, including packets that no installed program sends.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use rdmalab_engine::train::TrainKind;
use rdmalab_engine::vocab::QpType;
use rdmalab_link::address::{FourTuple as Way, IpFields};
use rdmalab_link::expand;
use rdmalab_link::frame_headers::FrameHeaders;
use rdmalab_link::hook::Direction;
use rdmalab_link::pcapng::{self, Capture, Checksums};
use rdmalab_testkit::programs::{self, tshark};
use rdmalab_testkit::sim::TrainData;
use rdmalab_testkit::workload::{Player, Scenario};
use rdmalab_wire::ids::PathMtu;
use rdmalab_wire::opcode::Transport;

use super::{Directory, WRONG, is_well_formed};

/// How many seeds to capture; together they use every opcode.
const SEEDS: u64 = 150;

/// The packets of a workload from BTH to payload, as they would be on a network.
fn packets_of(seed: u64) -> Vec<Vec<u8>> {
    let scenario = Scenario::new(seed);
    let transport = match scenario.config.qp_type {
        QpType::Rc => Transport::Rc,
        QpType::Uc => Transport::Uc,
        QpType::Ud => Transport::Ud,
    };
    let mut player = Player::new(&scenario);
    player.pair.world.link.kept = Some(Vec::new());
    player.play();
    let kept = player.pair.world.link.kept.take().unwrap_or_default();
    kept.iter()
        .flat_map(|(train_data, mtu)| packets_of_parcel(train_data, *mtu, transport))
        .collect()
}

fn packets_of_parcel(train_data: &TrainData, mtu: PathMtu, transport: Transport) -> Vec<Vec<u8>> {
    let packet = |index| {
        let (train, from) = match train_data.train.kind {
            TrainKind::ReadRequest => (train_data.train, 0),
            _ => train_data.train.packet(index, mtu),
        };
        let payload = match train.kind {
            TrainKind::ReadRequest => &[][..],
            _ => &train_data.payload[from as usize..][..train.payload_bytes as usize],
        };
        let mut bytes = vec![0; payload.len() + expand::MAX_OVERHEAD_BYTES];
        let parts = expand::write_headers(&train, transport, &mut bytes).expect("a packet");
        bytes.truncate(parts.payload_at + payload.len());
        bytes[parts.payload_at..].copy_from_slice(payload);
        bytes
    };
    (0..expand::packets_of(&train_data.train)).map(packet).collect()
}

/// Writes a capture of packets between two hosts, every second packet over IPv6.
fn write(file: &Path, packets: &[Vec<u8>]) {
    let v4 = |last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last));
    let v6 = |last| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
    let headers = [(v4(1), v4(2)), (v6(1), v6(2))].map(|(source, destination)| {
        let way = Way { source, destination, source_port: 0xc000, destination_port: 4791 };
        FrameHeaders::of(way, &IpFields { hop_limit: 64, ..IpFields::default() })
    });
    let mut out = Vec::new();
    pcapng::section(&mut out, "simulation", "");
    pcapng::interface(&mut out, "soft0", "", u32::MAX);
    for (number, packet) in packets.iter().enumerate() {
        let capture = Capture {
            interface: 0,
            at_ns: number as u64,
            direction: Direction::Out,
            headers: &headers[number % 2],
            bytes: packet.len(),
            complete: false,
            spoilt: false,
            comment: "",
            dropped: 0,
            snap: usize::MAX,
        };
        let start = out.len();
        out.resize(start + packet.len() + pcapng::BLOCK_OVERHEAD, 0);
        let fill = |place: &mut [u8]| place.copy_from_slice(packet);
        let length = pcapng::packet(&mut out[start..], &capture, fill).expect("room");
        out.truncate(start + length);
    }
    Checksums::default().finish(&mut out);
    std::fs::write(file, out).expect("a capture");
}

#[test]
fn everything_that_the_engine_sends_is_well_formed() {
    let directory = Directory::new("simulated");
    let file = directory.file("a.pcapng");
    let packets: Vec<Vec<u8>> = (0..SEEDS).flat_map(packets_of).collect();
    write(Path::new(&file), &packets);
    let count = is_well_formed(Path::new(&file), "simulated");
    assert_eq!(count, packets.len() as u64);
    let opcodes: BTreeSet<u8> = packets.iter().map(|packet| packet[0]).collect();
    let rc = [0x00..=0x14, 0x16..=0x17];
    let all = rc.into_iter().flatten().chain(0x20..=0x2b).chain([0x64, 0x65]);
    assert_eq!(opcodes, all.collect());
    let Some(strange) = tshark(Path::new(&file), WRONG) else {
        return programs::skipped("simulated packets with tshark", "not installed");
    };
    assert!(strange.is_empty(), "{:?}", &strange[..strange.len().min(3)]);
    let shown = tshark(Path::new(&file), "infiniband.bth").unwrap_or_default();
    assert_eq!(shown.len(), packets.len());
    // tshark must also find a packet that ends within its headers.
    let with_more = |packet: &&Vec<u8>| packet[0] == 0x06;
    let mut cut = packets.iter().find(with_more).expect("the first packet of a WRITE").clone();
    cut.truncate(20);
    write(Path::new(&file), &[packets[0].clone(), cut, packets[1].clone()]);
    assert_eq!(tshark(Path::new(&file), WRONG).map(|wrong| wrong.len()), Some(1));
}
