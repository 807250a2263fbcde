//! Captures of the Linux kernel's rxe, read as conversations.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rdmalab_trace::conversation::{Direction, Note};
use rdmalab_trace::packet::Icrc;
use rdmalab_trace::{Address, Capture, Trace, read, show};
use rdmalab_wire::frame::{Datagram, emit_infiniband};
use rdmalab_wire::icrc::Icrc as IcrcOf;
use rdmalab_wire::ids::Lid;
use rdmalab_wire::lrh::{LinkNext, Lrh};
use rdmalab_wire::opcode::Transport;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn trace(name: &str) -> Trace {
    let trace = read(&path(name)).expect("a capture");
    assert_eq!(trace.tally.cut_short, None, "{name}");
    trace
}

/// Every RoCE capture with its number of conversations. Those of the connection manager count too,
/// and each direction of UC, since no packet shows which two belong together.
const ROCE: [(&str, usize); 22] = [
    ("atomic_cas.pcap", 1),
    ("loss_atomic.pcap", 1),
    ("loss_rc_pingpong.pcap", 1),
    ("mckey.pcap", 1),
    ("rc_pingpong_events.pcap", 1),
    ("rc_pingpong_ipv6.pcap", 1),
    ("rc_pingpong_mtu256.pcap", 1),
    ("rdma_client_server.pcap", 2),
    ("read_lat.pcap", 1),
    ("rping.pcap", 2),
    ("rping_reject.pcap", 1),
    ("rstream.pcap", 2),
    ("send_lat.pcap", 1),
    ("send_lat_uc.pcap", 2),
    ("send_lat_ud.pcap", 1),
    ("uc_pingpong.pcap", 2),
    ("ucmatose.pcap", 3),
    ("ud_pingpong.pcap", 1),
    ("udaddy.pcap", 3),
    ("write_lat.pcap", 1),
    ("write_lat_rdmacm.pcap", 3),
    ("write_lat_uc.pcap", 2),
];

/// The only iWARP capture, which has no RoCE packets.
const IWARP: &str = "siw_rping.pcap";

#[test]
fn no_capture_is_forgotten() {
    let entries = std::fs::read_dir(path("")).expect("the captures").map(|e| e.expect("an entry"));
    let names = entries.map(|entry| entry.file_name().into_string().expect("a name"));
    let found: BTreeSet<String> =
        names.filter(|name| name.ends_with(".pcap") && name != IWARP).collect();
    assert_eq!(found, ROCE.iter().map(|(name, _)| (*name).to_owned()).collect());
}

#[test]
fn every_packet_of_the_kernel_is_read_and_its_icrc_is_right() {
    for (name, conversations) in ROCE {
        let trace = trace(name);
        assert!(trace.tally.malformed.is_empty(), "{name}: {:?}", trace.tally.malformed);
        let rows: Vec<_> = trace.conversations.iter().flat_map(|c| &c.rows).collect();
        assert_eq!(rows.len() as u64 + trace.tally.foreign, trace.tally.frames, "{name}");
        assert!(!rows.is_empty(), "{name}");
        assert!(rows.iter().all(|row| row.packet.icrc == Icrc::Good), "{name}");
        assert_eq!((trace.conversations.len(), trace.crowded_psns), (conversations, 0), "{name}");
        let mut others = trace.conversations.iter().filter(|c| c.transport != Transport::Uc);
        assert!(others.all(|c| c.a.qpn.is_some() && c.b.qpn.is_some()), "{name}");
    }
}

/// In two captures netem dropped 3 % of the packets before they were captured: in one it dropped
/// some, in the other by chance none.
#[test]
fn what_was_lost_is_in_the_capture_that_lost_it_and_in_no_other() {
    for (name, _) in ROCE {
        let trace = trace(name);
        let all = |is: fn(&Note) -> bool| -> usize {
            trace.conversations.iter().map(|c| c.rows_with(is)).sum()
        };
        let found = (
            all(|note| matches!(note, Note::Gap { .. })),
            all(|note| matches!(note, Note::Repeated { .. })),
            all(|note| matches!(note, Note::GoBack)),
            all(|note| matches!(note, Note::Stale)),
        );
        let expected = if name == "loss_rc_pingpong.pcap" { (3, 34, 4, 0) } else { (0, 0, 0, 0) };
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn both_directions_of_a_connection_find_each_other() {
    for name in ["loss_atomic.pcap", "read_lat.pcap", "rc_pingpong_events.pcap"] {
        let trace = trace(name);
        let rc: Vec<_> =
            trace.conversations.iter().filter(|c| c.transport == Transport::Rc).collect();
        assert_eq!(rc.len(), 1, "{name}");
        assert!(rc[0].a.qpn.is_some() && rc[0].b.qpn.is_some(), "{name}");
        let back = rc[0].rows.iter().filter(|row| row.direction == Direction::Back).count();
        assert!(back > 0 && back < rc[0].rows.len(), "{name}");
        // Nothing was lost: each response has its request, and nothing is repeated.
        let odd = rc[0].rows_with(|note| {
            matches!(note, Note::Stale | Note::Gap { .. } | Note::Repeated { .. })
        });
        assert_eq!(odd, 0, "{name}");
    }
}

#[test]
fn the_connection_manager_tells_who_belongs_together() {
    let trace = trace("rping.pcap");
    let names: Vec<&str> = trace
        .conversations
        .iter()
        .flat_map(|c| &c.rows)
        .flat_map(|row| &row.notes)
        .filter_map(|note| match note {
            Note::Cm(name) => Some(*name),
            _ => None,
        })
        .collect();
    assert_eq!(names[..3], ["REQ", "REP", "RTU"]);
    assert!(names.contains(&"DREQ") && names.contains(&"DREP"));
    assert_eq!(trace.conversations.len(), 2, "the manager's, and one connection");
}

#[test]
fn datagrams_are_told_apart_by_their_source() {
    let trace = trace("send_lat_ud.pcap");
    let ud: Vec<_> = trace.conversations.iter().filter(|c| c.transport == Transport::Ud).collect();
    assert_eq!(ud.len(), 1);
    assert!(ud[0].rows.iter().any(|row| row.direction == Direction::Back));
}

#[test]
fn a_capture_of_something_else_has_no_conversation() {
    let trace = trace(IWARP);
    assert!(trace.conversations.is_empty());
    assert_eq!(trace.tally.foreign, trace.tally.frames);
}

#[test]
fn a_lost_packet_is_a_gap_and_its_repetition_is_named() {
    // Remove the third request, and repeat the fifth.
    let bytes = std::fs::read(path("loss_atomic.pcap")).unwrap();
    let (header, records) = split(&bytes);
    let is_request =
        |record: &[u8]| record.get(16 + 42).is_some_and(|op| (0x13..=0x14).contains(op));
    let requests: Vec<usize> = (0..records.len()).filter(|i| is_request(records[*i])).collect();
    let mut file = header.to_vec();
    for (i, record) in records.iter().enumerate() {
        if i != requests[2] {
            file.extend_from_slice(record);
        }
        if i == requests[4] {
            file.extend_from_slice(record);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let changed = directory.path().join("changed.pcap");
    std::fs::write(&changed, file).unwrap();
    let trace = read(&changed).unwrap();
    let all = |is: fn(&Note) -> bool| -> usize {
        trace.conversations.iter().map(|c| c.rows_with(is)).sum()
    };
    assert_eq!(all(|note| matches!(note, Note::Gap { psns: 1 })), 1);
    assert_eq!(all(|note| matches!(note, Note::Repeated { .. })), 1);
    // The response to the removed request now has no request.
    assert_eq!(all(|note| matches!(note, Note::Stale)), 1);
}

/// The header of a little-endian pcap file, and its records with their headers.
fn split(bytes: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let (header, mut rest) = bytes.split_at(24);
    let mut records = Vec::new();
    while rest.len() > 16 {
        let length = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize + 16;
        records.push(&rest[..length]);
        rest = &rest[length..];
    }
    (header, records)
}

/// Two connections of the kernel at the same time, without their setup packets, and with all PSNs
/// starting at 0. On one host the QP numbers are swapped, so that they do not help. This makes the
/// ICRC wrong, which does not matter here.
#[test]
fn connections_that_begin_alike_are_told_apart_by_time() {
    const QPN: usize = 16 + 42 + 5;
    const PSN: usize = QPN + 4;
    // The last byte of the destination's address.
    const TO: usize = 16 + 33;
    // The first PSNs of the four ends.
    const FIRST: [u32; 4] = [15_644_331, 11_045_656, 12_216_694, 11_936_656];
    let bytes = std::fs::read(path("ucmatose.pcap")).unwrap();
    let (header, records) = split(&bytes);
    let mut file = header.to_vec();
    for record in records {
        let psn = u32::from_be_bytes([0, record[PSN], record[PSN + 1], record[PSN + 2]]);
        let from_zero = FIRST.iter().map(|first| psn.wrapping_sub(*first)).find(|psn| *psn < 5);
        if let Some(psn) = from_zero {
            let mut record = record.to_vec();
            record[PSN..PSN + 3].copy_from_slice(&psn.to_be_bytes()[1..]);
            if record[TO] == 3 {
                record[QPN + 2] ^= 0x2f ^ 0x30;
            }
            file.extend(record);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let changed = directory.path().join("changed.pcap");
    std::fs::write(&changed, file).unwrap();
    let trace = read(&changed).unwrap();
    let ends = trace.conversations.iter().map(|c| (c.a.qpn, c.b.qpn, c.rows.len()));
    let expected = [(Some(0x2e), Some(0x30), 20), (Some(0x2f), Some(0x2f), 20)];
    assert_eq!(ends.collect::<Vec<_>>(), expected);
}

#[test]
fn a_damaged_packet_is_named_and_a_damaged_file_keeps_what_came_before() {
    let whole = std::fs::read(path("read_lat.pcap")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let changed = directory.path().join("changed.pcap");
    // The last byte of a packet lies in its ICRC.
    let (header, records) = split(&whole);
    let is_roce = |record: &&[u8]| record.get(16 + 36..16 + 38) == Some(&[0x12, 0xb7]);
    let kept: Vec<&[u8]> = records.into_iter().filter(is_roce).collect();
    let mut bytes = [header, &kept.concat()].concat();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&changed, &bytes).unwrap();
    let trace = read(&changed).unwrap();
    let bad: usize =
        trace.conversations.iter().map(|c| c.rows_with(|note| matches!(note, Note::BadIcrc))).sum();
    assert_eq!(bad, 1);
    bytes.truncate(bytes.len() - 10);
    std::fs::write(&changed, &bytes).unwrap();
    let shorter = read(&changed).unwrap();
    assert!(shorter.tally.cut_short.is_some());
    assert_eq!(shorter.tally.frames + 1, trace.tally.frames);
}

#[test]
fn what_is_no_capture_is_refused_with_its_name() {
    for content in [&b""[..], b"ab", b"not a capture at all, however long it may be"] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let refused = read(file.path()).unwrap_err().to_string();
        assert!(refused.contains("capture") && refused.contains("tmp"), "{refused}");
    }
    assert!(read(Path::new("/does/not/exist")).is_err());
}

#[test]
fn words_name_what_was_seen() {
    let trace = trace("read_lat.pcap");
    let rc = trace.conversations.iter().find(|c| c.transport == Transport::Rc).unwrap();
    let words: Vec<String> =
        rc.rows.iter().take(2).map(|r| show::opcode(r.packet.headers.bth.opcode)).collect();
    assert_eq!(words, ["READ", "READ response only"]);
    assert_eq!(show::length_bytes(&rc.rows[0].packet), Some(2));
}

/// A SEND of the kernel, in the form it would have on an InfiniBand link.
fn on_infiniband(lids: [u16; 2]) -> Vec<u8> {
    let mut capture = Capture::open(&path("send_lat_ud.pcap")).expect("a capture");
    let packet = loop {
        let frame = capture.next_frame().expect("a frame").expect("one of RoCE");
        match Datagram::parse(&frame.bytes[14..]) {
            Ok(datagram) => break datagram.packet.to_vec(),
            Err(_) => continue,
        }
    };
    let lrh = Lrh {
        virtual_lane: 0,
        service_level: 0,
        next: LinkNext::Local,
        destination: Lid(lids[1]),
        packet_words: ((Lrh::BYTES + packet.len()) / 4) as u16,
        source: Lid(lids[0]),
    };
    let (body, _) = packet.split_at(packet.len() - 4);
    let mut icrc = IcrcOf::infiniband(&lrh, None);
    icrc.transport(body);
    let packet = [body, &icrc.finish().to_le_bytes()].concat();
    let mut out = vec![0; packet.len() + 64];
    let length = emit_infiniband(&lrh, None, &packet, &mut out).expect("it fits");
    out.truncate(length);
    out
}

/// A record in Extensible Record Format: time, type, flags, lengths, extension headers, frame.
fn erf(kind: u8, extensions: &[u8], frame: &[u8]) -> Vec<u8> {
    let record_bytes = (16 + extensions.len() + frame.len()) as u16;
    let mut record = vec![0, 0, 0, 0, 1, 0, 0, 0, kind, 4];
    record.extend(record_bytes.to_be_bytes());
    record.extend([0, 0]);
    record.extend((frame.len() as u16).to_be_bytes());
    record.extend(extensions);
    record.extend(frame);
    record
}

/// ibdump writes captures as ERF (Endace's types reference; link type 197), whose packets begin
/// with the local route header (IBA vol. 1, 7.7).
#[test]
fn a_capture_of_ibdump_is_read() {
    let packet = on_infiniband([3, 7]);
    let records = [
        erf(21, &[], &packet),
        erf(21 | 0x80, &[0x83, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0], &packet),
        erf(2, &[], &[0; 60]),
    ];
    let mut pcap: Vec<u8> = Vec::new();
    for word in [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65_535, 197] {
        pcap.extend(word.to_le_bytes());
    }
    for record in &records {
        let length = record.len() as u32;
        for word in [1_700_000_000, 0, length, length] {
            pcap.extend(word.to_le_bytes());
        }
        pcap.extend(record);
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &pcap).expect("room for it");
    let trace = read(file.path()).expect("a capture");
    assert_eq!(
        (trace.tally.frames, trace.tally.foreign, trace.tally.cut_short.as_deref()),
        (3, 1, None)
    );
    assert!(trace.tally.malformed.is_empty(), "{:?}", trace.tally.malformed);
    let rows: Vec<_> = trace.conversations.iter().flat_map(|c| &c.rows).collect();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!((row.packet.from, row.packet.to), (Address::Lid(3), Address::Lid(7)));
        assert_eq!(row.packet.icrc, Icrc::Good);
    }
}
