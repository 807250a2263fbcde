//! The right completion status, NAK code and asynchronous event for each error.

use rdmalab_engine::backend::{MwBind, RecvWr, SendWr};
use rdmalab_engine::vocab::*;
use rdmalab_testkit::sim::{Faults, LEFT, Pair, PairConfig, RIGHT, blank};
use rdmalab_wire::ids::PathMtu;

use QpState as S;
use WcStatus as W;

const RIGHTS: Access = Access(
    Access::LOCAL_WRITE.0
        | Access::REMOTE_WRITE.0
        | Access::REMOTE_READ.0
        | Access::REMOTE_ATOMIC.0
        | Access::MW_BIND.0,
);

fn rc() -> Pair {
    Pair::new(PairConfig::new(QpType::Rc))
}

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Posts `wr` and one SEND after it, settles, and checks the completions and states of both ends.
fn expect_fatal(pair: &mut Pair, wr: SendWr<'_>, status: WcStatus, right: QpState) {
    pair.post(LEFT, wr).unwrap();
    let sge = pair.buffer(LEFT, b"behind");
    let behind = SendWr { sges: &[sge], ..blank(99, WrOpcode::Send) };
    pair.world.post_send(LEFT, &behind).unwrap();
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(wr.wr_id, status), (99, W::WrFlushErr)]);
    assert_eq!((pair.state(LEFT), pair.state(RIGHT)), (S::Err, right));
}

#[test]
fn a_send_arrives_and_both_ends_learn_of_it() {
    let mut pair = rc();
    let data = text(3000);
    let into = pair.receive(RIGHT, 5, 4000);
    let sge = pair.buffer(LEFT, &data);
    let flags = SendFlags::SOLICITED;
    let wr = SendWr { sges: &[sge], flags, imm_or_rkey: 77, ..blank(1, WrOpcode::SendImm) };
    pair.post(LEFT, wr).unwrap();
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::Success)]);
    let got = pair.world.qp(RIGHT).received()[0];
    assert_eq!((got.wc.wr_id, got.wc.status, got.wc.byte_len), (5, W::Success, 3000));
    assert_eq!((got.wc.opcode, got.wc.wc_flags), (WcOpcode::Recv, WcFlags::WITH_IMM));
    assert_eq!((got.wc.imm_or_rkey, got.solicited), (77, true));
    assert_eq!(pair.device(RIGHT).memory.read(into.addr, 3000), data);
    assert!(pair.world.qp(RIGHT).qp.send_idle());
}

#[test]
fn rtr_tells_that_communication_is_established() {
    let mut pair = rc();
    let reset = QpAttr { qp_state: S::Reset, ..QpAttr::default() };
    pair.world.modify(RIGHT, &reset, QpAttrMask::STATE);
    pair.make_ready_to_receive(RIGHT);
    pair.receive(RIGHT, 1, 8);
    let sge = pair.buffer(LEFT, b"x");
    pair.post(LEFT, SendWr { sges: &[sge], ..blank(1, WrOpcode::Send) }).unwrap();
    pair.world.settle();
    assert_eq!(pair.world.qp(RIGHT).events(), [AsyncEventType::CommEst]);
}

#[test]
fn zero_length_messages_of_each_kind() {
    let mut pair = rc();
    let (addr, rkey) = pair.region(RIGHT, b"untouched", RIGHTS);
    pair.receive(RIGHT, 1, 0);
    pair.receive(RIGHT, 2, 0);
    let remote = SendWr { remote_addr: addr, rkey, ..blank(0, WrOpcode::Write) };
    pair.post(LEFT, blank(1, WrOpcode::Send)).unwrap();
    pair.post(LEFT, SendWr { wr_id: 2, ..remote }).unwrap();
    let imm = SendWr { wr_id: 3, opcode: WrOpcode::WriteImm, imm_or_rkey: 9, ..remote };
    pair.post(LEFT, imm).unwrap();
    // A READ of 0 bytes accesses nothing, so the responder does not check the key (C9-88).
    pair.post(LEFT, SendWr { wr_id: 4, opcode: WrOpcode::Read, rkey: 0xdead, ..remote }).unwrap();
    pair.world.settle();
    let done: Vec<_> = (1..=4).map(|wr_id| (wr_id, W::Success)).collect();
    assert_eq!(pair.sent(LEFT), done);
    assert_eq!(pair.received(RIGHT), [(1, W::Success), (2, W::Success)]);
    let got = pair.world.qp(RIGHT).received()[1].wc;
    assert_eq!((got.opcode, got.byte_len, got.imm_or_rkey), (WcOpcode::RecvRdmaWithImm, 0, 9));
}

#[test]
fn remote_access_errors() {
    type Change = fn(&mut Pair, &mut SendWr<'_>);
    let cases: [(&str, WrOpcode, Change); 8] = [
        ("no such key", WrOpcode::Write, |_, wr| wr.rkey ^= 0x8000_0000),
        ("beyond the end", WrOpcode::Write, |_, wr| wr.remote_addr += 1),
        ("before the start", WrOpcode::Read, |_, wr| wr.remote_addr -= 1),
        ("a key without the right to write", WrOpcode::Write, |pair, wr| {
            wr.rkey = pair.device(RIGHT).register(wr.remote_addr, 64, Access::REMOTE_READ);
        }),
        ("a key without the right to read", WrOpcode::Read, |pair, wr| {
            wr.rkey = pair.device(RIGHT).register(wr.remote_addr, 64, Access::REMOTE_WRITE);
        }),
        ("a QP without the right to read", WrOpcode::Read, |pair, _| {
            let rights = QpAttr { qp_access_flags: Access::REMOTE_WRITE, ..QpAttr::default() };
            pair.world.modify(RIGHT, &rights, QpAttrMask::ACCESS_FLAGS);
        }),
        ("another QP's window", WrOpcode::Write, |pair, wr| {
            let other = pair.world.qp(LEFT).qp.qpn;
            wr.rkey = pair.device(RIGHT).window(wr.remote_addr, 64, RIGHTS, other);
        }),
        ("another protection domain", WrOpcode::Write, |pair, wr| {
            pair.device(RIGHT).keys.get_mut(&wr.rkey).unwrap().pd = PdId(1);
        }),
    ];
    for (name, opcode, change) in cases {
        let mut pair = rc();
        let (addr, rkey) = pair.region(RIGHT, &[1; 64], RIGHTS);
        let sge = pair.buffer(LEFT, &[2; 64]);
        let mut wr = SendWr { sges: &[sge], remote_addr: addr, rkey, ..blank(1, opcode) };
        change(&mut pair, &mut wr);
        println!("{name}");
        expect_fatal(&mut pair, wr, W::RemAccessErr, S::Err);
        assert_eq!(pair.world.qp(RIGHT).events(), [AsyncEventType::QpAccessErr], "{name}");
        assert_eq!(pair.device(RIGHT).memory.read(addr, 64), [1; 64], "{name}");
    }
}

#[test]
fn a_receive_that_is_too_short() {
    let mut pair = rc();
    pair.receive(RIGHT, 4, 2999);
    pair.receive(RIGHT, 5, 10);
    let sge = pair.buffer(LEFT, &text(3000));
    let wr = SendWr { sges: &[sge], ..blank(1, WrOpcode::Send) };
    expect_fatal(&mut pair, wr, W::RemInvReqErr, S::Err);
    assert_eq!(pair.received(RIGHT), [(4, W::LocLenErr), (5, W::WrFlushErr)]);
}

/// An atomic brings 8 bytes home. Where the scatter list has other than 8, the target must not
/// change: a program that finds an error takes it to be untouched.
#[test]
fn an_atomic_of_another_length_fails_before_the_target_changes() {
    for length in [0, 4, 7, 9, 16] {
        for (opcode, lane) in
            [(WrOpcode::FetchAdd, 0), (WrOpcode::CmpSwap, 0), (WrOpcode::FetchAdd, 1000)]
        {
            let mut pair = rc();
            pair.world.knobs.lane = lane;
            let (addr, rkey) = pair.region(RIGHT, &[0; 8], RIGHTS);
            let sge = Sge { length, ..pair.buffer(LEFT, &[0; 16]) };
            let at = SendWr { remote_addr: addr, rkey, ..blank(1, opcode) };
            let wr = SendWr { sges: &[sge], compare_add: 0, swap: 1, ..at };
            pair.post(LEFT, SendWr { compare_add: u64::from(opcode == WrOpcode::FetchAdd), ..wr })
                .unwrap();
            pair.world.settle();
            assert_eq!(pair.sent(LEFT), [(1, W::LocLenErr)], "{opcode:?} of {length}");
            assert_eq!((pair.state(LEFT), pair.state(RIGHT)), (S::Err, S::Rts));
            assert_eq!(pair.device(RIGHT).memory.word(addr), 0, "{opcode:?} of {length}");
        }
    }
}

#[test]
fn local_protection_errors_of_the_sender() {
    let mut pair = rc();
    let before = pair.buffer(LEFT, b"before");
    pair.receive(RIGHT, 1, 64);
    let wr = SendWr { sges: &[before], ..blank(7, WrOpcode::Send) };
    pair.world.post_send(LEFT, &wr).unwrap();
    let mut sge = pair.buffer(LEFT, b"secret");
    sge.lkey ^= 0x4000;
    pair.post(LEFT, SendWr { sges: &[sge], ..blank(1, WrOpcode::Send) }).unwrap();
    pair.world.settle();
    // The earlier, unsignaled send succeeds without a completion; the failure is reported after it.
    assert_eq!(pair.sent(LEFT), [(1, W::LocProtErr)]);
    assert_eq!(pair.received(RIGHT), [(1, W::Success)]);
    assert_eq!((pair.state(LEFT), pair.state(RIGHT)), (S::Err, S::Rts));
}

#[test]
fn a_read_into_memory_that_may_not_be_written() {
    let mut pair = rc();
    let (addr, rkey) = pair.region(RIGHT, &[1; 64], RIGHTS);
    let mut sge = pair.buffer(LEFT, &[0; 64]);
    sge.lkey = pair.device(LEFT).register(sge.addr, 64, Access::NONE);
    let wr = SendWr { sges: &[sge], remote_addr: addr, rkey, ..blank(1, WrOpcode::Read) };
    // The peer answers the next request with RNR NAKs, which the failed requester ignores.
    expect_fatal(&mut pair, wr, W::LocProtErr, S::Rts);
    assert_eq!(pair.device(LEFT).memory.read(sge.addr, 64), [0; 64]);
}

#[test]
fn a_receive_buffer_that_may_not_be_written() {
    let mut pair = rc();
    let mut into = pair.buffer(RIGHT, &[0; 64]);
    into.lkey = pair.device(RIGHT).register(into.addr, 64, Access::NONE);
    pair.world.post_recv(RIGHT, &RecvWr { wr_id: 4, sges: &[into] }).unwrap();
    let sge = pair.buffer(LEFT, &[1; 64]);
    let wr = SendWr { sges: &[sge], ..blank(1, WrOpcode::Send) };
    expect_fatal(&mut pair, wr, W::RemOpErr, S::Err);
    assert_eq!(pair.received(RIGHT), [(4, W::LocProtErr)]);
}

#[test]
fn rnr_for_ever_and_rnr_exhausted() {
    for (rnr_retry, status) in [(7, W::Success), (2, W::RnrRetryExcErr)] {
        let mut config = PairConfig::new(QpType::Rc);
        config.attr.rnr_retry = rnr_retry;
        let mut pair = Pair::new(config);
        let sge = pair.buffer(LEFT, &text(5000));
        pair.post(LEFT, SendWr { sges: &[sge], ..blank(1, WrOpcode::Send) }).unwrap();
        let begun_ns = pair.world.now_ns;
        // Timer code 12 is 0.64 ms, so the RNR wait expires more than twice in this time.
        pair.world.run(begun_ns + 3_000_000);
        pair.receive(RIGHT, 1, 5000);
        pair.world.settle();
        assert_eq!(pair.sent(LEFT), [(1, status)]);
        assert_eq!(pair.received(RIGHT).len(), (status == W::Success) as usize);
        assert_eq!(pair.state(RIGHT), S::Rts);
    }
}

#[test]
fn a_write_with_immediate_waits_for_a_receive_on_its_last_packet() {
    let mut pair = rc();
    let data = text(5000);
    let (addr, rkey) = pair.region(RIGHT, &[0; 5000], RIGHTS);
    let sge = pair.buffer(LEFT, &data);
    let wr = SendWr {
        sges: &[sge],
        remote_addr: addr,
        rkey,
        imm_or_rkey: 3,
        ..blank(1, WrOpcode::WriteImm)
    };
    pair.post(LEFT, wr).unwrap();
    pair.world.run(100_000);
    assert_eq!(pair.device(RIGHT).memory.read(addr, 4096), &data[..4096]);
    assert_eq!(pair.device(RIGHT).memory.read(addr + 4096, 904), [0; 904]);
    assert_eq!(pair.world.qp(RIGHT).qp.expected_psn().get(), 0x10 + 4);
    pair.receive(RIGHT, 6, 0);
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::Success)]);
    assert_eq!(pair.device(RIGHT).memory.read(addr, 5000), data);
    let got = pair.world.qp(RIGHT).received()[0].wc;
    assert_eq!((got.wr_id, got.byte_len, got.imm_or_rkey), (6, 5000, 3));
}

#[test]
fn retries_are_exhausted_when_nobody_answers() {
    for retry_cnt in [0, 3] {
        let mut config = PairConfig::new(QpType::Rc);
        config.attr.retry_cnt = retry_cnt;
        let mut pair = Pair::new(config);
        pair.world.link.faults.partitioned = true;
        let sge = pair.buffer(LEFT, b"hello");
        pair.post(LEFT, SendWr { sges: &[sge], ..blank(1, WrOpcode::Send) }).unwrap();
        pair.world.settle();
        assert_eq!(pair.sent(LEFT), [(1, W::RetryExcErr)]);
        assert_eq!(pair.world.link.sent, 1 + retry_cnt as u64);
        // 4.096 us x 2^14 for each attempt.
        assert_eq!(pair.world.now_ns, (4096 << 14) * (1 + retry_cnt as u64));
    }
}

#[test]
fn a_healthy_unsignalled_send_costs_no_retry() {
    let mut config = PairConfig::new(QpType::Rc);
    config.attr.retry_cnt = 0;
    let mut pair = Pair::new(config);
    let sge = pair.buffer(LEFT, b"hello");
    pair.receive(RIGHT, 1, 64);
    pair.receive(RIGHT, 2, 64);
    let wr = SendWr { sges: &[sge], ..blank(1, WrOpcode::Send) };
    pair.post(LEFT, wr).unwrap();
    pair.world.post_send(LEFT, &SendWr { wr_id: 2, ..wr }).unwrap();
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::Success)]);
    assert_eq!((pair.state(LEFT), pair.received(RIGHT).len()), (S::Rts, 2));
    assert!(pair.world.qp(LEFT).qp.send_idle());
}

#[test]
fn one_loss_in_a_long_read_costs_one_retry() {
    let mut config = PairConfig::new(QpType::Rc);
    config.attr.retry_cnt = 1;
    config.mtu = PathMtu::Mtu256;
    let mut pair = Pair::new(config);
    pair.world.knobs.max_train_bytes = 256;
    let data = text(64 << 10);
    let (addr, rkey) = pair.region(RIGHT, &data, RIGHTS);
    let sge = pair.buffer(LEFT, &vec![0; data.len()]);
    let wr = SendWr { sges: &[sge], remote_addr: addr, rkey, ..blank(1, WrOpcode::Read) };
    pair.post(LEFT, wr).unwrap();
    while pair.world.work() {}
    // The request has arrived; now some of the first responses are lost.
    pair.world.now_ns = pair.world.link.next_ns().unwrap();
    pair.world.link.faults.drop = 20;
    pair.world.work();
    pair.world.link.faults = Faults::default();
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::Success)]);
    assert_eq!(pair.device(LEFT).memory.read(sge.addr, data.len()), data);
    assert!(pair.world.link.sent > 257, "nothing was lost: choose another seed");
}

#[test]
fn what_is_posted_in_error_is_flushed() {
    for srq_limit in [None, Some(0)] {
        let mut config = PairConfig::new(QpType::Rc);
        config.srq_limit = srq_limit;
        let mut pair = Pair::new(config);
        pair.receive(LEFT, 1, 8);
        let error = QpAttr { qp_state: S::Err, ..QpAttr::default() };
        pair.world.modify(LEFT, &error, QpAttrMask::STATE);
        pair.world.post_send(LEFT, &blank(2, WrOpcode::Send)).unwrap();
        assert_eq!(pair.sent(LEFT), [(2, W::WrFlushErr)]);
        pair.receive(LEFT, 3, 8);
        // Receives of an SRQ are not flushed, since all its QPs use them; an event is raised.
        let (flushed, events): (&[_], &[_]) = match srq_limit {
            None => (&[(1, W::WrFlushErr), (3, W::WrFlushErr)], &[]),
            Some(_) => (&[], &[AsyncEventType::QpLastWqeReached]),
        };
        assert_eq!(pair.received(LEFT), flushed);
        assert_eq!(pair.world.qp(LEFT).events(), events);
    }
}

#[test]
fn a_region_that_goes_away_within_a_message() {
    let mut pair = rc();
    pair.world.knobs.max_train_bytes = 1024;
    let (addr, rkey) = pair.region(RIGHT, &[0; 8192], RIGHTS);
    let sge = pair.buffer(LEFT, &text(8192));
    let wr = SendWr { sges: &[sge], remote_addr: addr, rkey, ..blank(1, WrOpcode::Write) };
    pair.post(LEFT, wr).unwrap();
    while pair.world.work() {}
    // Invalidate the key after some packets have arrived.
    pair.world.now_ns = pair.world.link.next_ns().unwrap();
    pair.world.work();
    let taken = pair.world.qp(RIGHT).qp.expected_psn().get() - 0x10;
    assert!((1..8).contains(&taken), "{taken} packets: choose another seed");
    pair.device(RIGHT).keys.remove(&rkey);
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::RemAccessErr)]);
    assert_eq!(pair.world.qp(RIGHT).events(), [AsyncEventType::QpAccessErr]);
    let taken = taken as usize * 1024;
    assert_eq!(pair.device(RIGHT).memory.read(addr, taken), &text(8192)[..taken]);
    let rest = 8192 - taken;
    assert_eq!(pair.device(RIGHT).memory.read(addr + taken as u64, rest), vec![0; rest]);
}

#[test]
fn a_region_that_goes_away_between_the_halves() {
    for opcode in [WrOpcode::Write, WrOpcode::FetchAdd] {
        let mut pair = rc();
        pair.world.knobs.late_retire = 1000;
        let (addr, rkey) = pair.region(RIGHT, &[0; 8], RIGHTS);
        let sge = pair.buffer(LEFT, &[1; 8]);
        let wr = SendWr { sges: &[sge], remote_addr: addr, rkey, ..blank(1, opcode) };
        pair.post(LEFT, wr).unwrap();
        while pair.world.work() {}
        pair.world.now_ns = pair.world.link.next_ns().unwrap();
        while pair.world.work() {}
        assert!(!pair.world.qp(RIGHT).is_quiet());
        pair.device(RIGHT).keys.remove(&rkey);
        pair.world.settle();
        assert_eq!(pair.sent(LEFT), [(1, W::RemOpErr)]);
        assert_eq!(pair.world.qp(RIGHT).events(), [AsyncEventType::QpFatal]);
        assert_eq!(pair.device(RIGHT).memory.word(addr), 0);
    }
}

#[test]
fn reset_between_the_halves_forgets() {
    let mut pair = rc();
    pair.world.knobs.late_retire = 1000;
    let into = pair.receive(RIGHT, 1, 64);
    let sge = pair.buffer(LEFT, b"late");
    pair.post(LEFT, SendWr { sges: &[sge], ..blank(1, WrOpcode::Send) }).unwrap();
    while pair.world.work() {}
    pair.world.now_ns = pair.world.link.next_ns().unwrap();
    while pair.world.work() {}
    let reset = QpAttr { qp_state: S::Reset, ..QpAttr::default() };
    pair.world.modify(RIGHT, &reset, QpAttrMask::STATE);
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::RetryExcErr)]);
    assert_eq!(pair.received(RIGHT), []);
    assert_eq!(pair.device(RIGHT).memory.read(into.addr, 4), [0; 4]);
}

#[test]
fn send_with_invalidate_takes_the_window_back() {
    for ours in [true, false] {
        let mut pair = rc();
        let owner = if ours { RIGHT } else { LEFT };
        let (addr, _) = pair.region(RIGHT, &[0; 64], RIGHTS);
        let qpn = pair.world.qp(owner).qp.qpn;
        let window = pair.device(RIGHT).window(addr, 64, RIGHTS, qpn);
        pair.receive(RIGHT, 1, 64);
        let sge = pair.buffer(LEFT, b"done");
        let wr = SendWr { sges: &[sge], imm_or_rkey: window, ..blank(1, WrOpcode::SendInv) };
        pair.post(LEFT, wr).unwrap();
        pair.world.settle();
        if ours {
            let got = pair.world.qp(RIGHT).received()[0].wc;
            assert_eq!((got.wc_flags, got.imm_or_rkey), (WcFlags::WITH_INV, window));
            assert_eq!(pair.sent(LEFT), [(1, W::Success)]);
        } else {
            // Class J: the receiver alone learns of it, and the requester gets no NAK.
            assert_eq!(pair.sent(LEFT), [(1, W::RetryExcErr)]);
            assert_eq!(pair.received(RIGHT), [(1, W::LocProtErr)]);
            assert_eq!(pair.state(RIGHT), S::Err);
        }
        assert_eq!(pair.device(RIGHT).keys.contains_key(&window), !ours);
    }
}

/// A WRITE with immediate to a key that does not exist: the receive that it would have completed
/// ends with a local access error (IBA vol. 1, 11.6.2), the next one is flushed. Without
/// immediate, and where only a later packet has it, all are flushed.
#[test]
fn a_refused_write_with_immediate_ends_its_receive() {
    for (opcode, length, expected) in [
        (WrOpcode::WriteImm, 8, W::LocAccessErr),
        (WrOpcode::Write, 8, W::WrFlushErr),
        (WrOpcode::WriteImm, 3000, W::WrFlushErr),
    ] {
        let mut pair = rc();
        let (addr, rkey) = pair.region(RIGHT, &[0; 64], RIGHTS);
        pair.receive(RIGHT, 1, 64);
        pair.receive(RIGHT, 2, 64);
        let sge = pair.buffer(LEFT, &text(length));
        let (remote_addr, rkey) = (addr, rkey ^ 0x5500);
        let wr = SendWr { sges: &[sge], remote_addr, rkey, ..blank(1, opcode) };
        pair.post(LEFT, wr).unwrap();
        pair.world.settle();
        assert_eq!(pair.sent(LEFT), [(1, W::RemAccessErr)]);
        assert_eq!(pair.received(RIGHT), [(1, expected), (2, W::WrFlushErr)]);
    }
}

#[test]
fn binding_and_invalidating_locally() {
    let mut pair = rc();
    let (addr, lkey) = pair.region(RIGHT, &[0; 64], RIGHTS);
    let new_rkey = 0x7777;
    let bind = MwBind {
        mw_rkey: 0x7700,
        new_rkey,
        mr_lkey: lkey,
        addr,
        length: 8,
        access: Access::REMOTE_WRITE,
    };
    pair.post(RIGHT, SendWr { bind: Some(bind), ..blank(1, WrOpcode::BindMw) }).unwrap();
    pair.world.settle();
    let sge = pair.buffer(LEFT, &[5; 8]);
    let write =
        SendWr { sges: &[sge], remote_addr: addr, rkey: new_rkey, ..blank(1, WrOpcode::Write) };
    pair.post(LEFT, write).unwrap();
    pair.world.settle();
    assert_eq!(pair.device(RIGHT).memory.read(addr, 8), [5; 8]);
    let invalidate = SendWr { imm_or_rkey: new_rkey, ..blank(2, WrOpcode::LocalInv) };
    pair.post(RIGHT, invalidate).unwrap();
    pair.world.settle();
    assert_eq!(pair.sent(RIGHT), [(1, W::Success), (2, W::Success)]);
    pair.post(RIGHT, SendWr { wr_id: 3, ..invalidate }).unwrap();
    pair.world.settle();
    assert_eq!(pair.sent(RIGHT)[2], (3, W::MwBindErr));
    assert_eq!(pair.state(RIGHT), S::Err);
}

#[test]
fn local_operations_are_executed_once_when_going_back() {
    let mut pair = rc();
    let (addr, _) = pair.region(LEFT, &[0; 64], RIGHTS);
    let qpn = pair.world.qp(LEFT).qp.qpn;
    let window = pair.device(LEFT).window(addr, 64, RIGHTS, qpn);
    let sge = pair.buffer(LEFT, b"before");
    let send = SendWr { sges: &[sge], ..blank(1, WrOpcode::Send) };
    pair.post(LEFT, send).unwrap();
    pair.post(LEFT, SendWr { imm_or_rkey: window, ..blank(2, WrOpcode::LocalInv) }).unwrap();
    pair.post(LEFT, SendWr { wr_id: 3, ..send }).unwrap();
    // The first send gets RNR NAKs until a receive is posted, so all requests are sent again.
    pair.world.run(2_000_000);
    pair.receive(RIGHT, 1, 64);
    pair.receive(RIGHT, 2, 64);
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::Success), (2, W::Success), (3, W::Success)]);
}

#[test]
fn atomics_return_what_was_there() {
    let mut pair = rc();
    let (addr, rkey) = pair.region(RIGHT, &41u64.to_ne_bytes(), RIGHTS);
    let old = pair.buffer(LEFT, &[0; 8]);
    let at = SendWr { sges: &[old], remote_addr: addr, rkey, ..blank(1, WrOpcode::FetchAdd) };
    pair.post(LEFT, SendWr { compare_add: 1, ..at }).unwrap();
    pair.world.settle();
    assert_eq!(pair.device(LEFT).memory.word(old.addr), 41);
    let swap = SendWr { opcode: WrOpcode::CmpSwap, wr_id: 2, compare_add: 42, swap: 7, ..at };
    pair.post(LEFT, swap).unwrap();
    pair.world.settle();
    assert_eq!(pair.device(LEFT).memory.word(old.addr), 42);
    pair.post(LEFT, SendWr { wr_id: 3, ..swap }).unwrap();
    pair.world.settle();
    assert_eq!(pair.device(LEFT).memory.word(old.addr), 7);
    assert_eq!(pair.device(RIGHT).memory.word(addr), 7);
    let wc = pair.world.qp(LEFT).sent()[1].wc;
    assert_eq!((wc.opcode, wc.byte_len), (WcOpcode::CompSwap, 8));
}

#[test]
fn atomics_need_aligned_words() {
    let mut pair = rc();
    let (addr, rkey) = pair.region(RIGHT, &[0; 16], RIGHTS);
    let old = pair.buffer(LEFT, &[0; 8]);
    let remote_addr = addr + 4;
    let wr = SendWr { sges: &[old], remote_addr, rkey, ..blank(1, WrOpcode::FetchAdd) };
    expect_fatal(&mut pair, wr, W::RemInvReqErr, S::Err);
}
