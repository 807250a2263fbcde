//! Captures as a stream: numbers as Wireshark gives them, order, and the pairs of a first pass.

use std::path::{Path, PathBuf};

use rdmalab_trace::survey::{FLOWS_MAX, PSNS_EACH_MAX};
use rdmalab_trace::{Packets, Seen, Survey, read};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn every_capture() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path("")).expect("the captures");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let is_capture = |file: &PathBuf| file.extension().is_some_and(|end| end == "pcap");
    let mut files: Vec<PathBuf> = files.filter(is_capture).collect();
    files.sort();
    assert!(files.len() > 20);
    files
}

#[test]
fn frames_have_the_numbers_of_wireshark() {
    let numbers = |name: &str| -> Vec<u64> {
        let packets = Packets::open(&path(name)).expect("a capture");
        packets.map(|packet| packet.frame).collect()
    };
    assert_eq!(numbers("rping_reject.pcap"), [1, 2]);
    let mcast = numbers("mckey.pcap");
    assert_eq!((mcast.len(), mcast.last()), (5, Some(&7)));
    assert!(mcast.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn a_survey_finds_the_pairs_that_a_trace_finds() {
    for file in every_capture() {
        let trace = read(&file).expect("a capture");
        let mut packets = Packets::open(&file).expect("a capture");
        let mut survey = Survey::default();
        let all: Vec<Seen> = packets.by_ref().collect();
        all.iter().for_each(|packet| survey.take(packet));
        let directory = survey.finish();
        assert_eq!(*packets.tally(), trace.tally, "{}", file.display());
        let known: Vec<_> =
            trace.conversations.iter().map(|c| (c.a, c.b, c.mtu_bytes, c.rows.len())).collect();
        let found = directory.pairs.iter().enumerate().map(|(number, pair)| {
            let own = |packet: &&Seen| directory.place(packet).is_some_and(|at| at.0 == number);
            (pair.a, pair.b, pair.mtu_bytes, all.iter().filter(own).count())
        });
        assert_eq!(found.collect::<Vec<_>>(), known, "{}", file.display());
    }
}

#[test]
fn packets_come_in_order_of_time_where_a_file_has_them_otherwise() {
    let whole = std::fs::read(path("read_lat.pcap")).expect("a capture");
    let (header, mut rest) = whole.split_at(24);
    let mut records = Vec::new();
    while rest.len() > 16 {
        let length = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize + 16;
        records.push(&rest[..length]);
        rest = &rest[length..];
    }
    records.reverse();
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), [header, &records.concat()].concat()).expect("room for it");
    let packets: Vec<Seen> = Packets::open(file.path()).expect("a capture").collect();
    assert_eq!(packets.len(), 100);
    assert!(packets.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
    assert!(packets[0].frame > packets[99].frame, "numbers are those of the file");
}

#[test]
fn a_survey_is_bounded() {
    let packet = Packets::open(&path("read_lat.pcap")).expect("a capture").next().expect("a READ");
    let with = |qpn: u32, psn: u32| {
        let mut packet = packet.clone();
        packet.headers.bth.dest_qp = rdmalab_wire::ids::Qpn::new(qpn);
        packet.headers.bth.psn = rdmalab_wire::ids::Psn::new(psn);
        packet
    };
    let mut survey = Survey::default();
    for psn in 0..2 * PSNS_EACH_MAX as u32 {
        survey.take(&with(2, psn));
    }
    for qpn in 3..3 + FLOWS_MAX as u32 {
        survey.take(&with(qpn, 0));
    }
    let directory = survey.finish();
    assert!(directory.is_full);
    assert_eq!(directory.pairs.len(), FLOWS_MAX);
    assert!(directory.place(&with(2 + FLOWS_MAX as u32, 0)).is_none());
    assert!(directory.place(&with(2, 77)).is_some());
}
