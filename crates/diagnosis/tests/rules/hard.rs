//! Cases in which a rule is easily misled: captures that begin late, very many packets, very short
//! waits, and very long READs.

use std::collections::BTreeSet;

use rdmalab_diagnosis::{FirstPass, Kind};
use rdmalab_trace::Tally;
use rdmalab_wire::aeth::NakCode;
use rdmalab_wire::opcode::Opcode;

use crate::builder::{MS, Script, US, frames, only};

fn set<const N: usize>(kinds: [Kind; N]) -> BTreeSet<Kind> {
    BTreeSet::from(kinds)
}

#[test]
fn a_capture_that_begins_late_has_no_psn_error() {
    // The NAK names what was sent before the capture, and the requester goes back to it.
    let mut script = Script::new();
    script.send(0, 100).nak(5 * US, 98, NakCode::PsnSequenceError);
    script.send(10 * US, 98).send(11 * US, 99).send(12 * US, 100).ack(20 * US, 100);
    assert!(!script.kinds().contains(&Kind::PsnError));
    // The NAK is the first packet.
    let mut script = Script::new();
    script.nak(0, 98, NakCode::PsnSequenceError).send(5 * US, 98).ack(10 * US, 98);
    assert_eq!(script.kinds(), set([]));
    // The requester never had that PSN: it repeats its first one. The two are known to belong
    // together by an earlier connection.
    let script = |repeated: u32| {
        let mut script = Script::new();
        script.send(0, 9).ack(5 * US, 9);
        script.send(MS, 0x50_0000).nak(MS + 5 * US, 0x4f_0000, NakCode::PsnSequenceError);
        script.send(2 * MS, repeated);
        script
    };
    let report = script(0x50_0000).report();
    let error = only(&report, Kind::PsnError);
    assert!(error.occurrences[0].what.contains("expects PSN 5177344"), "{error:?}");
    assert!(!script(0x4f_0000).kinds().contains(&Kind::PsnError));
}

/// A READ of three packets, of whose response `packets` come, and which is repeated at that time.
fn long_read(packets: &[u32], repeated: u64) -> Script {
    let mut script = Script::new();
    let opcodes =
        [Opcode::RcReadResponseFirst, Opcode::RcReadResponseMiddle, Opcode::RcReadResponseLast];
    script.ask(0, Opcode::RcReadRequest, 0, 3000);
    let answer = |script: &mut Script, at: u64, packets: &[u32]| {
        for psn in packets {
            let bytes = if *psn == 2 { 952 } else { 1024 };
            script.data(at + u64::from(*psn) * US, opcodes[*psn as usize], *psn, bytes);
        }
    };
    answer(&mut script, 5 * US, packets);
    script.ask(repeated, Opcode::RcReadRequest, 0, 3000);
    answer(&mut script, repeated + 5 * US, &[0, 1, 2]);
    script
}

#[test]
fn a_lost_middle_of_a_response_is_no_time_out() {
    let report = long_read(&[0, 2], 20 * US).report();
    assert_eq!(frames(&only(&report, Kind::Lost)), [1, 3, 4]);
    assert_eq!(long_read(&[0, 2], 20 * US).kinds(), set([Kind::Lost]));
    // All came, or the last one did not: only time makes the requester ask again.
    assert_eq!(long_read(&[0, 1, 2], 67 * MS).kinds(), set([Kind::Timeout]));
    assert_eq!(long_read(&[0, 1], 67 * MS).kinds(), set([Kind::Timeout]));
    // Nobody asks again: the capture lacks the packet.
    let mut script = long_read(&[0, 2], 20 * US);
    script.packets.truncate(3);
    script.ask(MS, Opcode::RcSendOnly, 3, 100).ack(MS + 5 * US, 3);
    assert_eq!(script.kinds(), set([]));
}

/// A SEND that is refused so many times with a timer of 0.01 ms.
fn short_waits(naks: u64) -> Script {
    let mut script = Script::new();
    for i in 0..naks {
        script.send(i * 20 * US, 0).rnr_of(i * 20 * US + 5 * US, 0, 1);
    }
    script.send(naks * 20 * US, 0).ack(naks * 20 * US + 5 * US, 0);
    script
}

#[test]
fn short_rnr_waits_are_no_copies() {
    let report = short_waits(20).report();
    assert_eq!((report.copies, report.doubts.len()), (0, 0), "{report:#?}");
    assert_eq!(short_waits(20).kinds(), set([Kind::RnrStorm]));
    // The same with each packet twice.
    let mut script = short_waits(20);
    for packet in script.packets.clone() {
        script.packets.push(rdmalab_trace::Seen { at_ns: packet.at_ns + US, ..packet });
    }
    let report = script.report();
    assert_eq!(report.copies, 42);
    assert_eq!(script.kinds(), set([Kind::RnrStorm]));
}

/// Two READs of 40 000 packets each are under way; the first one is repeated after so long.
fn longest_reads(repeated: u64) -> Script {
    let (mut script, bytes) = (Script::new(), 40_000 * 1024);
    script.ask(0, Opcode::RcReadRequest, 0, bytes).ask(US, Opcode::RcReadRequest, 40_000, bytes);
    script.data(5 * US, Opcode::RcReadResponseFirst, 0, 1024);
    script.ask(repeated, Opcode::RcReadRequest, 0, bytes);
    script
}

#[test]
fn reads_of_very_many_packets_are_one_connection() {
    let report = longest_reads(67 * MS).report();
    assert_eq!(frames(&only(&report, Kind::Timeout)), [1, 4]);
    // A PSN as far away that is none of theirs is another connection.
    let mut script = longest_reads(67 * MS);
    script.packets.pop();
    script.send(67 * MS, 0xf0_0000).ack(67 * MS + 5 * US, 0xf0_0000);
    assert_eq!(script.kinds(), set([]));
}

#[test]
fn what_is_open_is_found_when_another_connection_follows() {
    let exhausted = || {
        let mut script = Script::new();
        script.send(0, 9).ack(5 * US, 9);
        for i in 0..8 {
            script.send(MS + i * 67 * MS, 10);
        }
        script
    };
    let mut script = exhausted();
    script.send(9000 * MS, 0x50_0000).ack(9000 * MS + 5 * US, 0x50_0000);
    assert!(script.kinds().contains(&Kind::Exhausted));
    // It was answered before.
    let mut script = exhausted();
    script.ack(8000 * MS, 10);
    script.send(9000 * MS, 0x50_0000).ack(9000 * MS + 5 * US, 0x50_0000);
    assert!(!script.kinds().contains(&Kind::Exhausted));
}

#[test]
fn too_many_packets_at_two_places_are_no_storm() {
    // Each packet at two places, with so many packets between that the first is forgotten.
    let script = |count: u32| {
        let mut script = Script::new();
        for psn in 0..count {
            script.send(u64::from(psn) * 10, psn);
        }
        script.packets
    };
    let report = |count: u32| {
        let packets = script(count);
        let all = || (1..=2).flat_map(|file| packets.iter().map(move |packet| (file, packet)));
        let mut first = FirstPass::default();
        all().for_each(|(file, packet)| first.take(file, packet));
        let mut second = first.finish();
        all().for_each(|(file, packet)| second.take(file, packet));
        second.finish(Vec::new(), &[Tally::default()])
    };
    let many = report(70_000);
    assert!(many.findings.iter().all(|found| found.kind != Kind::Duplicates), "{many:#?}");
    assert!(many.doubts.iter().any(|doubt| doubt.contains("cannot be told")), "{many:#?}");
    let few = report(60_000);
    assert!(few.copies == 60_000 && !few.doubts.iter().any(|doubt| doubt.contains("told")));
}

/// 4000 queue pairs, each with a READ that is answered, and one whose second READ is lost.
fn four_thousand(first_psn: impl Fn(u32) -> u32) -> Script {
    const LOSER: u32 = 1234;
    let mut script = Script::new();
    for connection in 0..4000 {
        script.connection = connection;
        let (at, psn) = (u64::from(connection) * US, first_psn(connection));
        script.read(at, psn).response(at + 5 * US, psn);
        let at = 10 * MS + at;
        script.read(at, psn + 1);
        if connection == LOSER {
            script.read(at + 67 * MS, psn + 1).response(at + 67 * MS + 5 * US, psn + 1);
        } else {
            script.response(at + 5 * US, psn + 1);
        }
    }
    script
}

#[test]
fn four_thousand_queue_pairs_are_told_apart_or_the_doubt_is_named() {
    let report = four_thousand(|connection| 1000 * connection).report();
    let lost = only(&report, Kind::Timeout);
    assert_eq!((lost.requester.as_str(), lost.count), ("10.0.0.1 QP 0x5d2", 1), "{report:#?}");
    assert!((66 * MS..=67 * MS).contains(&lost.cost_ns), "{lost:#?}");
    assert_eq!((report.findings.len(), report.doubts.len()), (1, 0), "{report:#?}");
    // When all begin with PSN 0, a response may belong to any of them. The repetition is found in
    // the requests alone, and to whom they belong is a doubt.
    let report = four_thousand(|_| 0).report();
    assert_eq!(only(&report, Kind::Timeout).count, 1, "{report:#?}");
    assert!(report.doubts.iter().any(|doubt| doubt.contains("PSN 0")), "{:?}", report.doubts);
}
