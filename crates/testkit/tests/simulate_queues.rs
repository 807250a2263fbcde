//! Queues, windows and states: which request waits for which, and which one is refused.

use rdmalab_engine::backend::{PostError, SendWr};
use rdmalab_engine::vocab::*;
use rdmalab_testing::seeds;
use rdmalab_testkit::sim::{LEFT, Pair, PairConfig, RIGHT, blank, datagram_to};

use QpState as S;
use WcStatus as W;

const RIGHTS: Access = Access(
    Access::LOCAL_WRITE.0
        | Access::REMOTE_WRITE.0
        | Access::REMOTE_READ.0
        | Access::REMOTE_ATOMIC.0,
);

fn rc() -> Pair {
    Pair::new(PairConfig::new(QpType::Rc))
}

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn more_reads_than_the_responder_has_room_for() {
    let mut config = PairConfig::new(QpType::Rc);
    config.attr.max_rd_atomic = 2;
    config.attr.max_dest_rd_atomic = 1;
    let mut pair = Pair::new(config);
    let (addr, rkey) = pair.region(RIGHT, &[1; 64], RIGHTS);
    let sge = pair.buffer(LEFT, &[0; 64]);
    let read = SendWr { sges: &[sge], remote_addr: addr, rkey, ..blank(1, WrOpcode::Read) };
    // Both requests arrive before the first is answered.
    pair.post(LEFT, read).unwrap();
    pair.post(LEFT, SendWr { wr_id: 2, ..read }).unwrap();
    while pair.world.work() {}
    pair.world.now_ns += 2_000;
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::Success), (2, W::RemInvReqErr)]);
    assert_eq!(pair.world.qp(RIGHT).events(), [AsyncEventType::QpReqErr]);
}

#[test]
fn reads_wait_for_max_rd_atomic_and_fences_for_reads() {
    let mut config = PairConfig::new(QpType::Rc);
    config.attr.max_rd_atomic = 1;
    config.attr.max_dest_rd_atomic = 1;
    let mut pair = Pair::new(config);
    let (addr, rkey) = pair.region(RIGHT, &[1; 64], RIGHTS);
    let first = pair.buffer(LEFT, &[0; 64]);
    let second = pair.buffer(LEFT, &[0; 64]);
    let new = pair.buffer(LEFT, &[2; 64]);
    let at = SendWr { remote_addr: addr, rkey, ..blank(1, WrOpcode::Read) };
    pair.post(LEFT, SendWr { sges: &[first], ..at }).unwrap();
    pair.post(LEFT, SendWr { sges: &[second], wr_id: 2, ..at }).unwrap();
    let flags = SendFlags::FENCE;
    let write = SendWr { sges: &[new], wr_id: 3, opcode: WrOpcode::Write, flags, ..at };
    pair.post(LEFT, write).unwrap();
    while pair.world.work() {}
    assert_eq!(pair.world.link.sent, 1, "one READ at a time");
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::Success), (2, W::Success), (3, W::Success)]);
    assert_eq!(pair.device(LEFT).memory.read(second.addr, 64), [1; 64]);
    assert_eq!(pair.device(RIGHT).memory.read(addr, 64), [2; 64]);
}

#[test]
fn what_is_refused_when_it_is_posted() {
    let mut pair = rc();
    let long = Sge { addr: 0, length: 1 << 31, lkey: 1 };
    let send = blank(1, WrOpcode::Send);
    fn post(pair: &mut Pair, wr: SendWr<'_>) -> Result<(), PostError> {
        pair.world.post_send(LEFT, &wr).map(|_| ())
    }
    assert_eq!(post(&mut pair, SendWr { sges: &[long, long], ..send }), Err(PostError::TooLong));
    assert_eq!(post(&mut pair, SendWr { sges: &[long; 5], ..send }), Err(PostError::TooManySges));
    let bytes = pair.buffer(LEFT, &[0; 257]);
    let inline = SendWr { sges: &[bytes], flags: SendFlags::INLINE, ..send };
    assert_eq!(post(&mut pair, inline), Err(PostError::InlineTooLong));
    let read = SendWr { opcode: WrOpcode::Read, ..inline };
    assert_eq!(post(&mut pair, read), Err(PostError::InlineAnswer));
    let add = SendWr { opcode: WrOpcode::FetchAdd, ..inline };
    assert_eq!(post(&mut pair, add), Err(PostError::InlineAnswer));
    for _ in 0..64 {
        post(&mut pair, send).unwrap();
    }
    assert_eq!(post(&mut pair, send), Err(PostError::QueueFull));
    let mut config = PairConfig::new(QpType::Rc);
    config.attr.max_rd_atomic = 0;
    let mut pair = Pair::new(config);
    assert_eq!(post(&mut pair, blank(1, WrOpcode::Read)), Err(PostError::NoRdAtomic));
    let reset = QpAttr { qp_state: S::Reset, ..QpAttr::default() };
    pair.world.modify(LEFT, &reset, QpAttrMask::STATE);
    assert_eq!(post(&mut pair, send), Err(PostError::BadState));
}

#[test]
fn slots_are_free_when_the_completion_behind_them_is_polled() {
    let mut config = PairConfig::new(QpType::Rc);
    config.cap.max_send_wr = 4;
    let mut pair = Pair::new(config);
    for wr_id in 0..8 {
        pair.receive(RIGHT, wr_id, 0);
    }
    let send = |wr_id| blank(wr_id, WrOpcode::Send);
    pair.world.post_send(LEFT, &send(0)).unwrap();
    pair.world.post_send(LEFT, &send(1)).unwrap();
    pair.post(LEFT, send(2)).unwrap();
    pair.world.post_send(LEFT, &send(3)).unwrap();
    pair.world.settle();
    assert_eq!(pair.world.post_send(LEFT, &send(4)), Err(PostError::QueueFull));
    assert_eq!(pair.device(LEFT).poll_sent(0).len(), 1);
    for wr_id in 4..7 {
        pair.world.post_send(LEFT, &send(wr_id)).unwrap();
    }
    // The fourth send is unsignaled, and no later send has completed.
    assert_eq!(pair.world.post_send(LEFT, &send(7)), Err(PostError::QueueFull));
}

#[test]
fn sqd_drains_what_was_begun_and_holds_the_rest() {
    let mut config = PairConfig::new(QpType::Rc);
    // No packet requests an acknowledgement, and there is no time-out.
    config.attr.timeout = 0;
    let mut pair = Pair::new(config);
    pair.world.knobs.infinite_ns = 1 << 60;
    pair.receive(RIGHT, 1, 0);
    pair.receive(RIGHT, 2, 0);
    pair.world.post_send(LEFT, &blank(1, WrOpcode::Send)).unwrap();
    while pair.world.work() {}
    let drain = QpAttr { qp_state: S::Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
    pair.world.modify(LEFT, &drain, QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY);
    assert!(pair.world.qp(LEFT).qp.query().sq_draining);
    pair.post(LEFT, blank(2, WrOpcode::Send)).unwrap();
    pair.world.run(1_000_000);
    assert_eq!(pair.world.qp(LEFT).events(), [AsyncEventType::SqDrained]);
    assert!(!pair.world.qp(LEFT).qp.query().sq_draining);
    assert_eq!((pair.sent(LEFT).len(), pair.received(RIGHT).len()), (0, 1));
    let on = QpAttr { qp_state: S::Rts, ..QpAttr::default() };
    pair.world.modify(LEFT, &on, QpAttrMask::STATE);
    pair.world.run(2_000_000);
    assert_eq!(pair.sent(LEFT), [(2, W::Success)]);
}

#[test]
fn sqe_flushes_sends_goes_on_receiving_and_recovers() {
    let mut pair = Pair::new(PairConfig::new(QpType::Uc));
    let good = pair.buffer(LEFT, &text(3000));
    let mut bad = good;
    bad.lkey = 0;
    let send = SendWr { sges: &[good], ..blank(1, WrOpcode::Send) };
    pair.post(LEFT, send).unwrap();
    pair.post(LEFT, SendWr { sges: &[bad], wr_id: 2, ..send }).unwrap();
    pair.post(LEFT, SendWr { wr_id: 3, ..send }).unwrap();
    for wr_id in 0..3 {
        pair.receive(RIGHT, wr_id, 3000);
    }
    let into = pair.receive(LEFT, 9, 3000);
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::Success), (2, W::LocProtErr), (3, W::WrFlushErr)]);
    assert_eq!(pair.state(LEFT), S::Sqe);
    pair.post(LEFT, SendWr { wr_id: 4, ..send }).unwrap();
    assert_eq!(pair.sent(LEFT)[3], (4, W::WrFlushErr));
    let back = pair.buffer(RIGHT, &text(3000));
    pair.post(RIGHT, SendWr { sges: &[back], ..send }).unwrap();
    pair.world.settle();
    assert_eq!(pair.device(LEFT).memory.read(into.addr, 3000), text(3000));
    let on = QpAttr { qp_state: S::Rts, ..QpAttr::default() };
    pair.world.modify(LEFT, &on, QpAttrMask::STATE);
    let sent = pair.world.link.sent;
    pair.post(LEFT, SendWr { wr_id: 5, ..send }).unwrap();
    pair.world.settle();
    assert_eq!(pair.world.link.sent, sent + 1, "nothing that was flushed is sent after all");
    assert_eq!(pair.sent(LEFT)[4], (5, W::Success));
    assert_eq!(pair.received(RIGHT), [(0, W::Success), (1, W::Success)]);
}

#[test]
fn datagrams_are_checked_and_dropped_in_silence() {
    let mut pair = Pair::new(PairConfig::new(QpType::Ud));
    let qpn = pair.world.qp(RIGHT).qp.qpn;
    let sge = pair.buffer(LEFT, &text(1024));
    let to = |qkey| SendWr { ud: Some(datagram_to(qpn, qkey)), ..blank(1, WrOpcode::Send) };
    pair.post(LEFT, SendWr { sges: &[sge], ..to(0x1111_1111) }).unwrap();
    pair.world.settle();
    assert_eq!(pair.received(RIGHT), [], "no receive was posted");
    let into = pair.receive(RIGHT, 1, 1024 + 40);
    pair.receive(RIGHT, 2, 1023 + 40);
    pair.post(LEFT, SendWr { sges: &[sge], ..to(0x2222_2222) }).unwrap();
    pair.world.settle();
    assert_eq!(pair.received(RIGHT), [], "another Q_Key");
    // With its top bit set, the Q_Key of the request is replaced by the QP's own.
    pair.post(LEFT, SendWr { sges: &[sge], ..to(0x8000_0000) }).unwrap();
    pair.world.settle();
    let got = pair.world.qp(RIGHT).received()[0].wc;
    assert_eq!((got.byte_len, got.src_qp), (1064, pair.world.qp(LEFT).qp.qpn.get()));
    assert_eq!(pair.device(RIGHT).memory.read(into.addr + 40, 1024), text(1024));
    pair.post(LEFT, SendWr { sges: &[sge], ..to(0x1111_1111) }).unwrap();
    pair.world.settle();
    assert_eq!(pair.received(RIGHT).len(), 1, "a receive that is too short stays posted");
    assert_eq!(pair.state(RIGHT), S::Rts);
    let shorter = Sge { length: 1023, ..sge };
    pair.post(LEFT, SendWr { sges: &[shorter], ..to(0x1111_1111) }).unwrap();
    pair.world.settle();
    assert_eq!(pair.received(RIGHT)[1], (2, W::Success), "the next datagram takes it");
    assert_eq!(pair.post(LEFT, blank(1, WrOpcode::Send)), Err(PostError::BadAddress));
    assert_eq!(
        pair.post(LEFT, SendWr { opcode: WrOpcode::Write, ..to(0) }),
        Err(PostError::BadOpcode)
    );
    let two = [sge, Sge { length: 1, ..sge }];
    pair.post(LEFT, SendWr { sges: &two, ..to(0) }).unwrap();
    pair.world.settle();
    let sent = pair.sent(LEFT);
    assert_eq!(sent.last().map(|wc| wc.1), Some(W::LocLenErr), "a datagram above the path MTU");
}

/// Sends `bytes` to the other end of an unreliable transport.
fn send_unreliably(pair: &mut Pair, bytes: usize) {
    let qpn = pair.world.qp(RIGHT).qp.qpn;
    let sge = pair.buffer(LEFT, &text(bytes));
    let is_ud = pair.world.qp(LEFT).qp.qp_type == QpType::Ud;
    let ud = is_ud.then(|| datagram_to(qpn, 0x1111_1111));
    pair.post(LEFT, SendWr { ud, sges: &[sge], ..blank(1, WrOpcode::Send) }).unwrap();
    pair.world.settle();
}

/// A receive of the QP's own queue stays posted, and the next message takes it. One of an SRQ has
/// left its queue, and completes with an error. The QP goes on in both cases (IBA 9.9.6.3, classes
/// D and E).
#[test]
fn a_message_longer_than_its_receive_ends_no_unreliable_queue_pair() {
    for (qp_type, long, short, grh) in [(QpType::Ud, 1000, 500, 40), (QpType::Uc, 3000, 1500, 0)] {
        for srq_limit in [None, Some(0)] {
            let mut pair = Pair::new(PairConfig { srq_limit, ..PairConfig::new(qp_type) });
            let first = pair.receive(RIGHT, 1, short + grh);
            let second = pair.receive(RIGHT, 2, short + grh);
            send_unreliably(&mut pair, long);
            send_unreliably(&mut pair, short);
            let (into, expected) = match srq_limit {
                None => (first, vec![(1, W::Success)]),
                Some(_) => (second, vec![(1, W::LocLenErr), (2, W::Success)]),
            };
            assert_eq!(pair.received(RIGHT), expected, "{qp_type:?}, SRQ {srq_limit:?}");
            let arrived = pair.device(RIGHT).memory.read(into.addr + grh as u64, short);
            assert_eq!(arrived, text(short), "{qp_type:?}");
            assert_eq!((pair.state(LEFT), pair.state(RIGHT)), (S::Rts, S::Rts));
        }
    }
}

#[test]
fn a_shared_receive_queue_serves_and_tells_its_limit_once() {
    let mut config = PairConfig::new(QpType::Rc);
    config.srq_limit = Some(2);
    let mut pair = Pair::new(config);
    for wr_id in 0..3 {
        pair.receive(RIGHT, wr_id, 64);
    }
    for wr_id in 0..3 {
        pair.post(LEFT, blank(wr_id, WrOpcode::Send)).unwrap();
    }
    pair.world.settle();
    assert_eq!(pair.received(RIGHT), [(0, W::Success), (1, W::Success), (2, W::Success)]);
    assert_eq!(pair.device(RIGHT).srq_limit_events, 1);
}

#[test]
fn a_completion_of_before_a_reset_frees_nothing_after_it() {
    let mut config = PairConfig::new(QpType::Rc);
    config.cap.max_send_wr = 2;
    let mut pair = Pair::new(config);
    for wr_id in 0..2 {
        pair.receive(RIGHT, wr_id, 0);
        pair.post(LEFT, blank(wr_id, WrOpcode::Send)).unwrap();
    }
    pair.world.settle();
    let reset = QpAttr { qp_state: S::Reset, ..QpAttr::default() };
    pair.world.modify(LEFT, &reset, QpAttrMask::STATE);
    pair.connect(LEFT);
    // Queue positions start again at 0, and the old completions are polled only now.
    assert_eq!(pair.device(LEFT).poll_sent(0).len(), 2);
    pair.post(LEFT, blank(2, WrOpcode::Send)).unwrap();
    pair.post(LEFT, blank(3, WrOpcode::Send)).unwrap();
    assert_eq!(pair.post(LEFT, blank(4, WrOpcode::Send)), Err(PostError::QueueFull));
}

/// A receive that was posted in time but fetched late delays the message. It does not cost an RNR
/// retry; the sender has none.
#[test]
fn late_fetches_delay_messages_and_fail_none() {
    for seed in seeds(100) {
        for srq_limit in [None, Some(0)] {
            let mut config = PairConfig { seed, srq_limit, ..PairConfig::new(QpType::Rc) };
            config.attr.rnr_retry = 0;
            let mut pair = Pair::new(config);
            pair.world.knobs.late_fetch = 1000;
            pair.receive(RIGHT, 1, 0);
            pair.post(LEFT, blank(2, WrOpcode::Send)).unwrap();
            pair.world.work();
            assert_eq!(pair.world.link.sent, 0, "sent before it was fetched");
            pair.world.settle();
            assert_eq!(pair.received(RIGHT), [(1, W::Success)]);
            pair.post(LEFT, blank(3, WrOpcode::Send)).unwrap();
            pair.world.settle();
            assert_eq!(pair.sent(LEFT), [(2, W::Success), (3, W::RnrRetryExcErr)], "seed {seed}");
        }
    }
}
