//! The rules of losses, refusals, limits and connections.

use std::collections::BTreeSet;

use rdmalab_diagnosis::{Kind, text};
use rdmalab_wire::aeth::NakCode;
use rdmalab_wire::cm::{Drep, Mad, Message, Rej, SidrReq};
use rdmalab_wire::opcode::Opcode;

use crate::builder::{MS, Script, US, frames, only};

fn set<const N: usize>(kinds: [Kind; N]) -> BTreeSet<Kind> {
    BTreeSet::from(kinds)
}

/// SENDs that are all answered.
fn clean(count: u32) -> Script {
    let mut script = Script::new();
    for psn in 0..count {
        let at = u64::from(psn) * 20 * US;
        script.send(at, psn).ack(at + 5 * US, psn);
    }
    script
}

#[test]
fn what_is_fine_is_called_fine() {
    let report = clean(100).report();
    assert!(report.findings.is_empty() && report.doubts.is_empty(), "{report:#?}");
    assert!(text::text(&report, 20).starts_with("nothing wrong in 200 packets of 1 pair within"));
}

#[test]
fn an_rnr_storm_needs_many_naks_to_one_request() {
    let storm = |naks: u64| {
        let mut script = Script::new();
        for i in 0..naks {
            script.send(i * 2 * MS, 0).rnr(i * 2 * MS + 5 * US, 0);
        }
        script.send(naks * 2 * MS, 0).ack(naks * 2 * MS + 5 * US, 0);
        script
    };
    assert_eq!(storm(8).kinds(), set([Kind::RnrStorm]));
    assert_eq!(storm(7).kinds(), set([Kind::MissingReceive]));
}

#[test]
fn a_loss_that_a_nak_reveals_is_no_timeout() {
    // Seen by the capture, and lost behind it.
    let mut script = Script::new();
    script.send(0, 0).send(US, 1).ack(5 * US, 0).send(10 * US, 2);
    script.nak(15 * US, 1, NakCode::PsnSequenceError).send(20 * US, 1).send(21 * US, 2);
    script.ack(30 * US, 2);
    let report = script.report();
    assert_eq!(frames(&only(&report, Kind::Lost)), [2, 5, 6]);
    assert_eq!(script.kinds(), set([Kind::Lost]));
    // Lost before the capture.
    script.packets.remove(1);
    assert_eq!(script.kinds(), set([Kind::Lost]));
    // Nothing reveals it but time.
    let mut script = Script::new();
    script.send(0, 0).send(67 * MS, 0).ack(68 * MS, 0);
    let report = script.report();
    let timeout = only(&report, Kind::Timeout);
    assert_eq!((timeout.cost_ns, timeout.count), (67 * MS, 1));
    // 4.096 us x 2^12 is 16.8 ms and x 2^13 33.6 ms; 67 ms are up to four times that.
    assert!(timeout.occurrences[0].what.contains("`timeout` 12 to 13"), "{timeout:?}");
    assert_eq!(script.kinds(), set([Kind::Timeout]));
}

#[test]
fn a_missing_response_of_a_read_is_a_loss() {
    let mut script = Script::new();
    script.read(0, 0).read(US, 1).response(6 * US, 1).read(20 * US, 0).read(21 * US, 1);
    script.response(25 * US, 0).response(26 * US, 1);
    assert_eq!(script.kinds(), set([Kind::Lost]));
}

#[test]
fn a_psn_that_was_never_sent_is_a_psn_error() {
    let mut script = Script::new();
    script.send(0, 5).nak(5 * US, 900, NakCode::PsnSequenceError);
    assert!(script.kinds().contains(&Kind::PsnError));
    // A PSN of the gap before it is a loss that is not repaired yet.
    let mut script = clean(10);
    script.send(MS, 11).nak(MS + 5 * US, 10, NakCode::PsnSequenceError);
    script.send(MS + 10 * US, 10).send(MS + 11 * US, 11).ack(2 * MS, 11);
    assert_eq!(script.kinds(), set([Kind::Lost]));
}

#[test]
fn many_repetitions_of_what_was_answered_are_a_storm() {
    let twice = |repeated: u32| {
        let mut script = clean(100);
        for psn in 0..repeated {
            // Twice at once, as a network duplicates.
            script.send(u64::from(psn) * 20 * US + US, psn);
        }
        script
    };
    assert_eq!(twice(60).kinds(), set([Kind::Duplicates]));
    assert_eq!(twice(10).kinds(), set([]));
}

#[test]
fn retries_that_end_without_an_answer_are_exhausted() {
    let mut script = clean(10);
    for i in 0..8 {
        script.send(MS + i * 67 * MS, 10);
    }
    let report = script.report();
    let exhausted = only(&report, Kind::Exhausted);
    assert_eq!(exhausted.cost_ns, 7 * 67 * MS);
    assert!(exhausted.doubts.iter().any(|doubt| doubt.contains("capture ends")));
    script.send(5000 * MS, 11).ack(5000 * MS + US, 11);
    assert!(!script.kinds().contains(&Kind::Exhausted), "it was answered after all");
}

#[test]
fn refusals_for_good_are_told_apart() {
    for (code, kind) in [
        (NakCode::RemoteAccessError, Kind::AccessError),
        (NakCode::RemoteOperationalError, Kind::AccessError),
        (NakCode::InvalidRequest, Kind::LengthError),
    ] {
        let mut script = clean(3);
        script.ask(MS, Opcode::RcWriteOnly, 3, 100).nak(MS + 5 * US, 3, code);
        let report = script.report();
        assert_eq!(frames(&only(&report, kind)), [7, 8]);
        assert_eq!(script.kinds(), set([kind]));
    }
}

/// A WRITE of two packets in one direction, and a response of two in the other.
fn two_ways(request: usize, response: usize) -> Script {
    let mut script = Script::new();
    script.ask(0, Opcode::RcWriteFirst, 0, request).ask(US, Opcode::RcWriteLast, 1, 10);
    script.ack(5 * US, 1).ask(10 * US, Opcode::RcReadRequest, 2, response + 10);
    script.data(15 * US, Opcode::RcReadResponseFirst, 2, response);
    script.data(16 * US, Opcode::RcReadResponseLast, 3, 10);
    script
}

#[test]
fn ends_of_different_mtu_do_not_fit() {
    let mut script = two_ways(4096, 1024);
    let report = script.report();
    assert_eq!(frames(&only(&report, Kind::Mtu)), [1, 5]);
    assert!(!two_ways(1024, 1024).kinds().contains(&Kind::Mtu));
    // A path that carries less than both ends believe.
    script = clean(10);
    for i in 0..8 {
        script.ask(MS + i * 67 * MS, Opcode::RcSendFirst, 10, 4096);
    }
    assert!(script.kinds().contains(&Kind::Mtu));
}

fn mad(message: Message) -> Mad {
    Mad { transaction: 1, message }
}

#[test]
fn a_connection_that_is_rejected_says_why() {
    let rej = Rej {
        local_id: 0,
        remote_id: 77,
        about: 0,
        reason: 8,
        info_length: 0,
        info: [0; Rej::INFO_BYTES],
        private_data: [0; Rej::PRIVATE_BYTES],
    };
    let mut script = Script::new();
    script.manager(0, false, &mad(Message::Rej(rej)));
    let reject = only(&script.report(), Kind::CmReject);
    assert!(reject.occurrences[0].what.contains("no process listens"), "{reject:?}");
}

#[test]
fn a_message_of_the_manager_without_answer_is_named() {
    let request = |id| {
        mad(Message::SidrReq(SidrReq {
            request_id: id,
            pkey: 0xffff,
            service_id: 5,
            private_data: [0; SidrReq::PRIVATE_BYTES],
        }))
    };
    let mut script = Script::new();
    script.manager(0, true, &request(5)).manager(2000 * MS, true, &request(5));
    let report = script.report();
    let timeout = only(&report, Kind::CmTimeout);
    assert_eq!((timeout.cost_ns, frames(&timeout)), (2000 * MS, vec![1, 2]));
    // What needs no answer.
    let drep = Drep { local_id: 1, remote_id: 2, private_data: [0; Drep::PRIVATE_BYTES] };
    let mut script = Script::new();
    script.manager(0, true, &mad(Message::Drep(drep)));
    assert_eq!(script.kinds(), set([]));
}

/// READs of which at most `depth` are under way, each sent just after an answer or a while later.
fn reads(depth: u32, pause: u64) -> Script {
    let mut script = Script::new();
    let trip = 50 * US;
    for i in 0..200 {
        let at = u64::from(i / depth) * (trip + pause) + u64::from(i % depth) * 2 * US;
        script.read(at, i).response(at + trip, i);
    }
    script
}

#[test]
fn few_reads_that_wait_for_each_other_are_named() {
    let report = reads(2, 500).report();
    let small = only(&report, Kind::SmallRdAtomic);
    assert!(small.cost_ns > 4 * MS && small.doubts.len() == 1, "{small:?}");
    for (depth, pause) in [(1, 500), (2, 100 * US), (16, 500)] {
        assert_eq!(reads(depth, pause).kinds(), set([]), "{depth} with {pause} ns");
    }
}

#[test]
fn what_waits_behind_a_repetition_is_counted() {
    let behind = |count: u32| {
        let mut script = Script::new();
        for round in [0, 67 * MS] {
            for psn in 0..=count {
                script.send(round + u64::from(psn) * US, psn);
            }
        }
        script.ack(68 * MS, count);
        script
    };
    assert_eq!(behind(5).kinds(), set([Kind::Timeout, Kind::HeadOfLine]));
    assert_eq!(behind(3).kinds(), set([Kind::Timeout]));
}

#[test]
fn a_capture_of_one_direction_says_so() {
    let mut script = Script::new();
    script.send(0, 0).send(67 * MS, 0).send(68 * MS, 1);
    let report = script.report();
    assert!(report.doubts.iter().any(|doubt| doubt.contains("only one direction")));
    assert!(only(&report, Kind::Timeout).doubts.iter().any(|d| d.contains("no answers")));
}

#[test]
fn a_capture_with_gaps_says_so() {
    let mut script = clean(10);
    script.packets.retain(|p| p.headers.bth.psn.get() != 9 || p.headers.aeth.is_some());
    let report = script.report();
    assert!(report.findings.is_empty());
    assert!(report.doubts.iter().any(|doubt| doubt.contains("has gaps")), "{report:#?}");
}

#[test]
fn the_text_names_frames_cause_and_remedy() {
    let mut script = Script::new();
    script.send(0, 0).send(67 * MS, 0).ack(68 * MS, 0);
    let shown = text::text(&script.report(), 20);
    for expected in
        ["1. time-out: once, 67.0 ms", "frame 1 (SEND only (PSN 0))", "Cause:", "Remedy:"]
    {
        assert!(shown.contains(expected), "no {expected:?} in\n{shown}");
    }
    assert!(shown.lines().all(|line| line.chars().count() <= 92), "{shown}");
    assert!(shown.ends_with("the costliest: time-out, 67.0 ms.\n"), "{shown}");
}
