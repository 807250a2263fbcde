//! A queue pair counts what it sends, what it sends again and why.

use super::single_tests::{Recorder, qp};
use super::*;
use crate::backend::SendWr;
use crate::train::{TrainFlags, TrainKind};
use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::ids::Psn;

/// The syndrome of an RNR NAK, and that of a PSN sequence error.
const RNR_NAK: u8 = 0x20;
const SEQUENCE_NAK: u8 = 0x60;

fn post(qp: &mut Qp, opcode: WrOpcode, length: u32) {
    let wr = SendWr {
        wr_id: 1,
        opcode,
        flags: SendFlags::SIGNALED,
        imm_or_rkey: 0,
        sges: &[Sge { addr: 1, length, lkey: 2 }],
        remote_addr: 64,
        rkey: 9,
        compare_add: 0,
        swap: 0,
        ud: None,
        bind: None,
    };
    let freed = qp.sq.oldest;
    qp.post_send(&wr, freed).unwrap();
    qp.fetch_sends();
}

/// Sends everything that may be sent; returns the number of packets.
fn send(qp: &mut Qp, recorder: &mut Recorder) -> u32 {
    let mut packets = 0;
    while let Plan::Send { train, position, .. } = qp.plan(1 << 20) {
        packets += train.packets;
        qp.retire_sent(position, train.flags.has(TrainFlags::LAST), Ok(()), recorder);
    }
    packets
}

fn answer(qp: &mut Qp, psn: Psn, syndrome: Option<u8>, recorder: &mut Recorder) {
    let mut ack = Train::new(TrainKind::Ack, qp.qpn, qp.remote_qpn, psn);
    ack.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST);
    if let Some(byte) = syndrome {
        ack.syndrome = Syndrome::from_byte(byte).unwrap();
    }
    qp.accept(&ack, recorder);
}

fn expire(qp: &mut Qp, recorder: &mut Recorder) {
    qp.arm_timer(0);
    qp.on_timer(u64::MAX, recorder);
}

#[test]
fn what_is_sent_again_is_counted_with_its_reason() {
    let (mut qp, mut recorder) = (qp(false), Recorder::default());
    qp.attr.timeout = 1;
    let first = qp.next_new_psn();
    // Three packets of 256 bytes at most.
    post(&mut qp, WrOpcode::Write, 700);
    assert_eq!(send(&mut qp, &mut recorder), 3);
    let mut expected = Tally { request_packets: 3, ..Tally::default() };
    assert_eq!(qp.tally(), expected, "nothing is complete, nothing was lost");

    expire(&mut qp, &mut recorder);
    assert_eq!(send(&mut qp, &mut recorder), 3);
    (expected.time_outs, expected.request_packets, expected.repeated_packets) = (1, 6, 3);
    assert_eq!(qp.tally(), expected);

    // The first packet is acknowledged by the NAK, so two are repeated.
    answer(&mut qp, first.add(1), Some(SEQUENCE_NAK), &mut recorder);
    assert_eq!(send(&mut qp, &mut recorder), 2);
    (expected.sequence_naks, expected.request_packets, expected.repeated_packets) = (1, 8, 5);
    assert_eq!(qp.tally(), expected);

    answer(&mut qp, first.add(2), Some(RNR_NAK), &mut recorder);
    expire(&mut qp, &mut recorder);
    assert_eq!(send(&mut qp, &mut recorder), 1);
    (expected.rnr_naks, expected.request_packets, expected.repeated_packets) = (1, 9, 6);
    assert_eq!(qp.tally(), expected, "the end of a pause is no time-out");

    answer(&mut qp, first.add(2), None, &mut recorder);
    expected.messages = 1;
    assert_eq!(qp.tally(), expected);
}

#[test]
fn a_repeated_read_is_one_packet_and_the_last_time_out_a_failure() {
    let (mut qp, mut recorder) = (qp(false), Recorder::default());
    (qp.attr.timeout, qp.attr.retry_cnt) = (1, 1);
    qp.req.start(Psn::new(7), 1, 7);
    post(&mut qp, WrOpcode::Read, 700);
    post(&mut qp, WrOpcode::Send, 8);
    send(&mut qp, &mut recorder);
    expire(&mut qp, &mut recorder);
    send(&mut qp, &mut recorder);
    let sent = Tally { request_packets: 4, repeated_packets: 2, ..Tally::default() };
    assert_eq!(qp.tally(), Tally { time_outs: 1, ..sent });
    expire(&mut qp, &mut recorder);
    assert_eq!(qp.state, QpState::Err);
    let expected = Tally { time_outs: 2, failed_requests: 1, ..sent };
    assert_eq!(qp.tally(), expected, "the SEND behind it was flushed");
    let limits = attr::Limits {
        max_rd_atomic: 2,
        max_dest_rd_atomic: 2,
        ports: 1,
        pkey_table_len: 1,
        gid_table_len: 1,
        active_mtu: 256,
    };
    qp.modify(&QpAttr::default(), QpAttrMask::STATE, &limits, &mut recorder).unwrap();
    assert_eq!((qp.state, qp.tally()), (QpState::Reset, expected), "RESET keeps them");

    let mut sum = expected;
    sum.add(&Tally { messages: 3, rnr_naks: u64::MAX, ..expected });
    assert_eq!((sum.messages, sum.time_outs, sum.rnr_naks), (3, 4, u64::MAX));
}

#[test]
fn what_the_responder_sends_is_counted_by_kind() {
    let (mut qp, mut recorder) = (qp(false), Recorder::default());
    let mut request = |qp: &mut Qp, kind, psn| {
        let mut train = Train::new(kind, qp.qpn, qp.remote_qpn, psn);
        train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST | TrainFlags::ACK_REQ);
        if let Accept::Place(placement) = qp.accept(&train, &mut recorder) {
            qp.retire_request(&train, &placement, Ok(()), &mut recorder);
        }
        while qp.next_response(1 << 20, &mut recorder).is_some() {}
        qp.tally()
    };
    let first = qp.expected_psn();
    let mut expected = Tally { acks_sent: 1, ..Tally::default() };
    assert_eq!(request(&mut qp, TrainKind::Write, first), expected);
    // There is no receive.
    expected.rnr_naks_sent = 1;
    assert_eq!(request(&mut qp, TrainKind::Send, first.add(1)), expected);
    assert_eq!(request(&mut qp, TrainKind::Write, first.add(3)), expected, "one NAK for a gap");
    expected.rnr_naks_sent = 2;
    assert_eq!(request(&mut qp, TrainKind::Send, first.add(1)), expected);
    expected.acks_sent = 2;
    assert_eq!(request(&mut qp, TrainKind::Write, first.add(1)), expected);
    expected.sequence_naks_sent = 1;
    assert_eq!(request(&mut qp, TrainKind::Write, first.add(3)), expected);
    expected.acks_sent = 3;
    assert_eq!(request(&mut qp, TrainKind::Write, first), expected, "a duplicate");
}
