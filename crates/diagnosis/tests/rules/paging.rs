//! Page faults, damming and flood.

use std::collections::BTreeSet;

use rdmalab_diagnosis::Kind;
use rdmalab_wire::aeth::NakCode;

use crate::builder::{MS, Script, US, diagnose, frames, only};

/// The fragment of an application in the study (fukuoka2021, 6.1.1; published.csv argo.trace.*), in
/// microseconds: the SEND left 26 us after the response, and was lost.
fn argo() -> Script {
    let mut script = Script::new();
    script.read(70_816 * US, 0).rnr(72_510 * US, 0).read(77_290 * US, 0);
    script.response(77_993 * US, 0).send(78_019 * US, 1).response(78_845 * US, 0);
    script.ack(1_739_344 * US, 1);
    script
}

#[test]
fn the_published_fragment_is_damming() {
    let report = argo().report();
    let damming = only(&report, Kind::Damming);
    assert_eq!(damming.cost_ns, 1_661_325 * US);
    assert_eq!(frames(&damming), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(report.findings[0].kind, Kind::Damming, "the costliest first");
    assert!(damming.doubts.iter().any(|doubt| doubt.contains("not in the capture")));
    let kinds: BTreeSet<Kind> = report.findings.iter().map(|f| f.kind).collect();
    assert_eq!(kinds, BTreeSet::from([Kind::Damming, Kind::ServerFault]));
}

#[test]
fn the_same_with_the_repetition_in_the_capture_is_damming() {
    let mut script = argo();
    script.packets.pop();
    script.send(1_739_340 * US, 1).ack(1_739_344 * US, 1);
    let damming = only(&script.report(), Kind::Damming);
    assert_eq!(damming.cost_ns, 1_661_321 * US);
    assert!(script.kinds().iter().all(|kind| *kind != Kind::Timeout));
}

/// Two READs, the second of which is sent during the wait and lost; a third one reveals it.
#[test]
fn a_later_operation_that_reveals_the_gap_is_damming_too() {
    let mut script = Script::new();
    script.read(0, 0).rnr(140 * US, 0).read(4560 * US, 0).read(4562 * US, 1);
    script.response(4640 * US, 0).read(9000 * US, 2);
    script.nak(9005 * US, 1, NakCode::PsnSequenceError).read(9010 * US, 1).read(9011 * US, 2);
    script.response(9015 * US, 1).response(9016 * US, 2);
    let damming = only(&script.report(), Kind::Damming);
    assert_eq!(damming.cost_ns, 4448 * US);
    assert!(damming.occurrences[0].what.contains("a later request"));
    assert!(!script.kinds().contains(&Kind::Lost));
}

/// At the requester: the response is dropped, the READ repeated, the second READ lost.
#[test]
fn damming_after_a_fault_of_the_requester() {
    let mut script = Script::new();
    script.read(0, 0).response(5 * US, 0).read(300 * US, 1).read(527 * US, 0);
    script.response(620 * US, 0).read(540_000 * US, 1).response(540_005 * US, 1);
    let report = script.report();
    assert_eq!(only(&report, Kind::Damming).cost_ns, 539_700 * US);
    assert_eq!(only(&report, Kind::ClientFault).count, 1);
}

#[test]
fn plain_loss_is_no_damming() {
    let mut script = Script::new();
    script.read(0, 0).response(5 * US, 0).send(30 * US, 1);
    script.send(500 * MS, 1).ack(500 * MS + 5 * US, 1);
    assert_eq!(script.kinds(), BTreeSet::from([Kind::Timeout]));
    // Long after a fault, too.
    let mut script = Script::new();
    script.read(0, 0).rnr(140 * US, 0).read(4560 * US, 0).response(4640 * US, 0);
    script.send(20 * MS, 1).send(500 * MS, 1).ack(501 * MS, 1);
    assert_eq!(script.kinds(), BTreeSet::from([Kind::ServerFault, Kind::Timeout]));
    // And where the responder answers nothing at all after the fault.
    let mut script = Script::new();
    script.read(0, 0).rnr(140 * US, 0).read(4560 * US, 0).send(4562 * US, 1);
    script.read(500 * MS, 0).send(500 * MS + US, 1).response(501 * MS, 0).ack(501 * MS, 1);
    assert!(!script.kinds().contains(&Kind::Damming));
}

#[test]
fn a_fault_of_the_responder_is_an_rnr_nak_to_what_needs_no_receive() {
    let mut script = Script::new();
    script.read(0, 0).rnr(141 * US, 0).read(4565 * US, 0).response(4639 * US, 0);
    let report = script.report();
    let fault = only(&report, Kind::ServerFault);
    assert_eq!((fault.cost_ns, frames(&fault)), (4639 * US, vec![1, 2, 3, 4]));
    assert_eq!(fault.requester, "10.0.0.1 QP 0x100");
    // A SEND needs a receive.
    let mut script = Script::new();
    script.send(0, 0).rnr(5 * US, 0).send(2 * MS, 0).ack(2 * MS + 5 * US, 0);
    assert_eq!(script.kinds(), BTreeSet::from([Kind::MissingReceive]));
}

#[test]
fn a_fault_of_the_requester_is_a_repetition_of_what_was_answered() {
    let mut script = Script::new();
    script.read(0, 0).response(5 * US, 0).read(527 * US, 0).response(620 * US, 0);
    assert_eq!(script.kinds(), BTreeSet::from([Kind::ClientFault]));
    // Not answered, and not so soon: a time-out.
    let mut script = Script::new();
    script.read(0, 0).read(527 * US, 0).response(620 * US, 0);
    assert_eq!(script.kinds(), BTreeSet::from([Kind::Timeout]));
    let mut script = Script::new();
    script.read(0, 0).response(5 * US, 0).read(67 * MS, 0).response(67 * MS + 5 * US, 0);
    assert_eq!(script.kinds(), BTreeSet::from([Kind::Timeout]));
}

fn repeated_reads(connections: u32, repeats: u64) -> Script {
    let mut script = Script::new();
    for connection in 0..connections {
        script.connection = connection;
        let begin = u64::from(connection) * US;
        // Other PSNs for each, so that the directions are told apart.
        for i in 0..=repeats {
            script.read(begin + i * 500 * US, 1000 * connection);
            script.response(begin + i * 500 * US + 5 * US, 1000 * connection);
        }
    }
    script
}

#[test]
fn reads_of_many_queue_pairs_that_are_repeated_again_and_again_are_a_flood() {
    let report = repeated_reads(20, 12).report();
    let flood = only(&report, Kind::Flood);
    assert_eq!(flood.cost_ns, 6019 * US);
    assert!(flood.occurrences[0].what.contains("20 queue pairs were repeated 200 times"));
    assert_eq!(flood.queue_pairs.len(), 16);
    // One queue pair has a long fault, and a few repetitions are faults.
    assert!(!repeated_reads(1, 12).kinds().contains(&Kind::Flood));
    assert_eq!(repeated_reads(20, 2).kinds(), BTreeSet::from([Kind::ClientFault]));
}

#[test]
fn a_flood_of_queue_pairs_that_cannot_be_told_apart_is_found_with_doubt() {
    let mut script = repeated_reads(50, 12);
    for packet in &mut script.packets {
        packet.headers.bth.psn = rdmalab_wire::ids::Psn::new(0);
    }
    let report = script.report();
    let flood = only(&report, Kind::Flood);
    assert!(flood.doubts.iter().any(|doubt| doubt.contains("responses were not found")));
    assert!(report.doubts.iter().any(|doubt| doubt.contains("PSN 0")), "{:?}", report.doubts);
}

#[test]
fn a_file_with_each_packet_twice_is_no_flood() {
    let mut script = Script::new();
    for connection in 0..20 {
        script.connection = connection;
        for i in 0..20 {
            let at = u64::from(i) * 500 * US + u64::from(connection) * US;
            script.read(at, 1000 * connection + i).response(at + 5 * US, 1000 * connection + i);
        }
    }
    let once = script.packets.clone();
    let clean = script.report();
    assert!(clean.findings.is_empty() && clean.copies == 0, "{:#?}", clean.findings);
    // On the same interface, and on another one.
    for interface in [0, 1] {
        let mut twice = Vec::new();
        for packet in &once {
            twice.push(packet.clone());
            let mut copy = packet.clone();
            (copy.at_ns, copy.interface) = (packet.at_ns + 300, interface);
            twice.push(copy);
        }
        twice.sort_by_key(|packet| packet.at_ns);
        let report = diagnose(&twice);
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        assert_eq!((report.packets, report.copies), (800, 800));
        let named = report.doubts.iter().any(|doubt| doubt.contains("captured twice"));
        assert_eq!(named, interface == 0);
    }
}
