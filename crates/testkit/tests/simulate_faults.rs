//! The effect of each rule of `--faults` on the protocol, packet by packet in virtual time. The
//! simulated link applies the rules in the same way as the soft device.

use rdmalab_engine::backend::SendWr;
use rdmalab_engine::vocab::*;
use rdmalab_link::packet::Class;
use rdmalab_testing::seeds;
use rdmalab_testkit::sim::{LEFT, Pair, PairConfig, RIGHT, SentPacket, blank, datagram_to};
use rdmalab_wire::ids::PathMtu;

use QpState as S;
use WcStatus as W;

/// The local ACK time-out of [`pair`]: 4.096 us x 2^10.
const TIMEOUT_NS: u64 = 4096 << 10;
const MTU_BYTES: usize = 1024;

fn pair(qp_type: QpType, rules: &str) -> Pair {
    let mut config = PairConfig::new(qp_type);
    config.mtu = PathMtu::Mtu1024;
    config.psn = [5, 0x2000];
    config.attr.timeout = 10;
    let mut pair = Pair::new(config);
    pair.disturb(rules);
    pair
}

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Posts SENDs of these lengths with their receives.
fn post_sends(pair: &mut Pair, lengths: &[usize]) -> Vec<(u64, Vec<u8>)> {
    let mut expected = Vec::new();
    for (wr_id, length) in (1..).zip(lengths) {
        let grh = if pair.world.qp(LEFT).qp.qp_type == QpType::Ud { 40 } else { 0 };
        let into = pair.receive(RIGHT, wr_id, length + grh);
        let data = text(*length);
        let sge = pair.buffer(LEFT, &data);
        let ud = (grh > 0).then(|| datagram_to(pair.world.qp(RIGHT).qp.qpn, 0x1111_1111));
        pair.post(LEFT, SendWr { sges: &[sge], ud, ..blank(wr_id, WrOpcode::Send) }).unwrap();
        expected.push((into.addr + grh as u64, data));
    }
    expected
}

/// Posts SENDs, runs until nothing is left to do, and checks that each arrived once and in order.
fn sends_arrive(pair: &mut Pair, lengths: &[usize]) {
    let expected = post_sends(pair, lengths);
    pair.world.settle();
    let done: Vec<(u64, WcStatus)> = (1..).zip(lengths).map(|(n, _)| (n, W::Success)).collect();
    assert_eq!((pair.sent(LEFT), pair.received(RIGHT)), (done.clone(), done));
    for (addr, data) in expected {
        assert!(pair.device(RIGHT).memory.read(addr, data.len()) == data, "another payload");
    }
    assert_eq!((pair.state(LEFT), pair.state(RIGHT)), (S::Rts, S::Rts));
}

/// How often packets of these classes were sent, by PSN.
fn times(pair: &Pair, classes: &[Class]) -> Vec<(u32, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for one in pair.injector().sent_packets.iter().filter(|one| classes.contains(&one.class)) {
        *counts.entry(one.psn.get()).or_default() += 1;
    }
    counts.into_iter().collect()
}

fn of(pair: &Pair, class: Class) -> Vec<SentPacket> {
    pair.injector().sent_packets.iter().filter(|one| one.class == class).copied().collect()
}

/// When the last packet was sent.
fn last_ns(pair: &Pair) -> u64 {
    pair.injector().sent_packets.iter().map(|one| one.at_ns).max().expect("a packet")
}

#[test]
fn without_a_match_nothing_is_different() {
    let mut pair = pair(QpType::Rc, "drop over network; drop of atomic; drop psn 99; drop 0%");
    sends_arrive(&mut pair, &[3000, 10]);
    assert_eq!(times(&pair, &[Class::Send]), [(5, 1), (6, 1), (7, 1), (8, 1)]);
    assert_eq!(pair.injector().met(), [0, 0, 0, 0]);
    assert!(last_ns(&pair) < TIMEOUT_NS);
}

#[test]
fn a_lost_acknowledgement_is_asked_for_again() {
    let mut pair = pair(QpType::Rc, "drop nth 1 of ack");
    sends_arrive(&mut pair, &[100]);
    // After the time-out the request is retransmitted; the responder only acknowledges it.
    assert_eq!(times(&pair, &[Class::Send]), [(5, 2)]);
    assert_eq!(of(&pair, Class::Ack).len(), 2);
    assert!(of(&pair, Class::Send)[1].at_ns >= TIMEOUT_NS);
}

#[test]
fn a_gap_is_reported_at_once() {
    let mut pair = pair(QpType::Rc, "drop nth 2 of send");
    sends_arrive(&mut pair, &[4 * MTU_BYTES]);
    // The NAK names the gap, so no time-out is needed.
    assert_eq!(of(&pair, Class::Nak).len(), 1);
    assert_eq!(of(&pair, Class::Nak)[0].psn.get(), 6);
    assert_eq!(times(&pair, &[Class::Send]), [(5, 1), (6, 2), (7, 2), (8, 2)]);
    assert!(last_ns(&pair) < TIMEOUT_NS);
}

#[test]
fn a_lost_nak_is_a_time_out() {
    let mut pair = pair(QpType::Rc, "drop nth 2 of send; drop nth 1 of nak");
    sends_arrive(&mut pair, &[4 * MTU_BYTES]);
    // A responder sends one NAK per gap (IBA C9-110), so only the time-out helps.
    assert_eq!(of(&pair, Class::Nak).len(), 1);
    assert!(last_ns(&pair) >= TIMEOUT_NS);
}

#[test]
fn a_lost_last_packet_is_a_time_out() {
    let mut pair = pair(QpType::Rc, "drop first psn 8 of send");
    sends_arrive(&mut pair, &[4 * MTU_BYTES]);
    assert_eq!(of(&pair, Class::Nak).len(), 0);
    assert_eq!(pair.injector().met(), [1]);
    assert!(last_ns(&pair) >= TIMEOUT_NS);
}

#[test]
fn a_packet_number_is_a_packet() {
    let mut pair = pair(QpType::Rc, "drop first psn 6..7 of send");
    sends_arrive(&mut pair, &[10, 10, 10, 10]);
    assert_eq!(pair.injector().met(), [2]);
    let lost: Vec<u32> = (pair.injector().sent_packets.iter())
        .filter(|one| one.fate.lost)
        .map(|one| one.psn.get())
        .collect();
    assert_eq!(lost, [6, 7]);
}

/// A lost READ response makes the requester repeat the READ from there; the data arrive once.
#[test]
fn a_lost_response_is_read_again() {
    let mut pair = pair(QpType::Rc, "drop nth 2 of read-response");
    let data = text(3 * MTU_BYTES);
    let (addr, rkey) = pair.region(RIGHT, &data, Access::REMOTE_READ);
    let into = pair.buffer(LEFT, &vec![0; data.len()]);
    let read = SendWr { sges: &[into], remote_addr: addr, rkey, ..blank(1, WrOpcode::Read) };
    pair.post(LEFT, read).unwrap();
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::Success)]);
    assert!(pair.device(LEFT).memory.read(into.addr, data.len()) == data);
    assert_eq!(of(&pair, Class::Read).len(), 2);
    assert!(times(&pair, &[Class::ReadResponse]).iter().any(|(_, times)| *times > 1));
}

/// When the response to an atomic is lost, the responder repeats the result that it has stored.
#[test]
fn a_lost_answer_of_an_atomic_is_answered_again() {
    let mut pair = pair(QpType::Rc, "drop nth 1 of atomic-response; duplicate of atomic");
    let (addr, rkey) = pair.region(RIGHT, &[0; 8], Access::REMOTE_ATOMIC);
    let into = pair.buffer(LEFT, &[0xff; 8]);
    let add = SendWr {
        sges: &[into],
        remote_addr: addr,
        rkey,
        compare_add: 3,
        ..blank(1, WrOpcode::FetchAdd)
    };
    pair.post(LEFT, add).unwrap();
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::Success)]);
    assert_eq!(pair.device(RIGHT).memory.read(addr, 8), 3u64.to_ne_bytes());
    assert_eq!(pair.device(LEFT).memory.read(into.addr, 8), [0; 8]);
}

#[test]
fn what_comes_twice_is_taken_once() {
    let mut rc = pair(QpType::Rc, "duplicate");
    sends_arrive(&mut rc, &[100, 3000]);
    assert!(of(&rc, Class::Send).iter().all(|one| one.fate.copies == 1));
    // A datagram has nothing by which a receiver could recognise a duplicate.
    let mut ud = pair(QpType::Ud, "duplicate nth 1");
    post_sends(&mut ud, &[100, 200]);
    ud.receive(RIGHT, 3, 300);
    ud.world.settle();
    assert_eq!(ud.received(RIGHT).len(), 3);
}

#[test]
fn what_is_overtaken_is_a_gap() {
    let mut rc = pair(QpType::Rc, "reorder 2 nth 2 of send");
    sends_arrive(&mut rc, &[5 * MTU_BYTES]);
    // The third packet finds a gap, which the late second packet fills.
    let naks: Vec<u32> = of(&rc, Class::Nak).iter().map(|one| one.psn.get()).collect();
    assert_eq!(naks, [6]);
    // UC does not fill a gap: the message is lost. Its late first packet takes a receive and waits
    // for the rest. (A shorter buffer would give a length error, which ends the queue pair.)
    let mut uc = pair(QpType::Uc, "reorder 1 nth 1 of send");
    post_sends(&mut uc, &[3 * MTU_BYTES, 2 * MTU_BYTES]);
    uc.world.settle();
    assert_eq!(uc.received(RIGHT), [(1, WcStatus::Success)]);
    assert_eq!(uc.world.qp(RIGHT).received()[0].wc.byte_len as usize, 2 * MTU_BYTES);
    // Datagrams just arrive in another order.
    let mut ud = pair(QpType::Ud, "reorder 1 nth 1 of send");
    post_sends(&mut ud, &[100, 100]);
    ud.world.settle();
    let first = ud.world.qp(RIGHT).received();
    assert_eq!(first.len(), 2);
    assert_eq!(of(&ud, Class::Send)[0].fate.behind, 1);
}

/// Flips random bits: the invariant CRC detects each flip that matters, and RC retransmits the
/// packet.
#[test]
fn what_is_damaged_is_dropped() {
    for seed in seeds(200) {
        let mut rc = pair(QpType::Rc, &format!("seed={seed}; corrupt nth 2,5 of request"));
        sends_arrive(&mut rc, &[3 * MTU_BYTES]);
        assert!(rc.injector().met()[0] >= 1);
    }
    let mut uc = pair(QpType::Uc, "corrupt nth 2");
    post_sends(&mut uc, &[3 * MTU_BYTES, 100]);
    uc.world.settle();
    assert_eq!(uc.received(RIGHT).len(), 1);
}

#[test]
fn a_delay_is_waited_for() {
    let mut late = pair(QpType::Rc, "delay 50us of ack; delay 20us of send");
    sends_arrive(&mut late, &[10]);
    assert_eq!(of(&late, Class::Send).len(), 1);
    assert!(late.world.now_ns >= 70_000 && late.world.now_ns < TIMEOUT_NS);
    // Longer than the time-out: the request is retransmitted, and the responder executes it once.
    let mut later = pair(QpType::Rc, "delay 6ms of ack");
    sends_arrive(&mut later, &[10]);
    assert_eq!(of(&later, Class::Send).len(), 2);
    // Random delays between two bounds.
    let mut jitter = pair(QpType::Ud, "delay 10us jitter 90us");
    post_sends(&mut jitter, &[10; 50]);
    jitter.world.settle();
    let due = |one: &SentPacket| one.fate.delay_ns;
    let dues: Vec<u64> = of(&jitter, Class::Send).iter().map(due).collect();
    assert!(dues.iter().all(|ns| (10_000..100_000).contains(ns)), "{dues:?}");
    assert!(dues.iter().max().unwrap() - dues.iter().min().unwrap() > 40_000, "{dues:?}");
}

#[test]
fn a_rate_is_a_queue() {
    let mut rc = pair(QpType::Rc, "rate 100Mbit of request");
    sends_arrive(&mut rc, &[20 * MTU_BYTES]);
    let bits: u64 = of(&rc, Class::Send).iter().map(|one| u64::from(one.bytes) * 8).sum();
    assert!(rc.world.now_ns >= bits * 10, "{bits} bits within {} ns", rc.world.now_ns);
    assert!(rc.world.now_ns < bits * 10 + TIMEOUT_NS);
}

#[test]
fn a_direction_is_disturbed_alone() {
    for (rules, requests, answers) in [
        ("drop nth 1 from fd00::1", 2, 1),
        ("drop nth 1 to fd00::1", 2, 2),
        ("drop nth 1 to 0x201", 2, 1),
        ("drop nth 1 to 0x101", 2, 2),
        ("drop nth 1 to fd00::9", 1, 1),
    ] {
        let mut rc = pair(QpType::Rc, rules);
        sends_arrive(&mut rc, &[10]);
        let counts = (of(&rc, Class::Send).len(), of(&rc, Class::Ack).len());
        assert_eq!(counts, (requests, answers), "{rules}");
    }
}

#[test]
fn a_rule_that_spares_the_first_and_hits_every_repetition_exhausts_the_retries() {
    let mut rc = pair(QpType::Rc, "drop first psn 5; drop again of send");
    fails_after_all_retries(&mut rc);
    assert_eq!(times(&rc, &[Class::Send]), [(5, 8), (6, 8)]);
}

/// Checks that two SENDs fail because no acknowledgement arrives.
fn fails_after_all_retries(pair: &mut Pair) {
    post_sends(pair, &[10, 10]);
    pair.world.settle();
    assert_eq!(pair.sent(LEFT), [(1, W::RetryExcErr), (2, W::WrFlushErr)]);
    assert_eq!(pair.state(LEFT), S::Err);
    // One transmission and seven retries, each after a time-out.
    let sent = of(pair, Class::Send);
    assert_eq!(sent.iter().filter(|one| one.psn.get() == 5).count(), 8);
    assert!(pair.world.now_ns >= 8 * TIMEOUT_NS);
}

#[test]
fn a_partition_that_stays_ends_the_connection() {
    fails_after_all_retries(&mut pair(QpType::Rc, "partition 0s..1000s"));
    // Only responses are lost: the requests arrive, but the requester never learns it.
    let mut deaf = pair(QpType::Rc, "partition 0s..1000s to 0x101");
    fails_after_all_retries(&mut deaf);
    assert_eq!(deaf.received(RIGHT), [(1, W::Success), (2, W::Success)]);
}

#[test]
fn a_partition_that_heals_in_time_is_survived() {
    for heal_ms in [1, 5, 20] {
        let mut rc = pair(QpType::Rc, &format!("partition 0s..{heal_ms}ms"));
        sends_arrive(&mut rc, &[3000, 10]);
        assert!(rc.world.now_ns >= heal_ms * 1_000_000);
        assert!(rc.injector().met()[0] > 0);
        let lost = |one: &&SentPacket| one.fate.lost;
        let last =
            rc.injector().sent_packets.iter().filter(lost).map(|one| one.at_ns).max().unwrap();
        assert!(last < heal_ms * 1_000_000);
    }
}

/// A partition that ends after the last retry does not revive the connection, but a new one works.
#[test]
fn a_partition_that_heals_too_late_needs_a_new_connection() {
    let mut rc = pair(QpType::Rc, "partition 0s..200ms");
    fails_after_all_retries(&mut rc);
    let heals_ns = 200_000_000;
    assert!(rc.world.now_ns < heals_ns);
    rc.world.now_ns = heals_ns;
    for at in [LEFT, RIGHT] {
        let reset = QpAttr { qp_state: S::Reset, ..QpAttr::default() };
        rc.world.modify(at, &reset, QpAttrMask::STATE);
        rc.connect(at);
    }
    let sge = rc.buffer(LEFT, b"again");
    rc.receive(RIGHT, 9, 5);
    rc.post(LEFT, SendWr { sges: &[sge], ..blank(9, WrOpcode::Send) }).unwrap();
    rc.world.settle();
    assert_eq!(rc.sent(LEFT).last(), Some(&(9, W::Success)));
}

#[test]
fn a_window_of_time_ends() {
    let mut rc = pair(QpType::Rc, "drop of send ..9ms");
    sends_arrive(&mut rc, &[10]);
    // Lost at 0, after one time-out and after two; the next transmission is later than 9 ms.
    assert_eq!((rc.injector().met(), of(&rc, Class::Send).len()), (&[3][..], 4));
    let mut later = pair(QpType::Rc, "drop of send 1ms..2ms");
    sends_arrive(&mut later, &[10]);
    assert_eq!(later.injector().met(), [0]);
}

#[test]
fn chances_are_those_of_the_seed() {
    let play = |seed: u32| {
        let mut rc = pair(QpType::Rc, &format!("seed={seed}; drop 20%; duplicate 10%"));
        sends_arrive(&mut rc, &[2000; 20]);
        let sent_packets = rc.injector().sent_packets.iter();
        sent_packets.map(|one| (one.flow, one.psn, one.fate)).collect::<Vec<_>>()
    };
    assert_eq!(play(1), play(1));
    assert_ne!(play(1), play(2));
}
