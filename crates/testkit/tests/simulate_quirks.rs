//! The effect of stateful quirks on the protocol, in virtual time: a lost response to one of two
//! READs, and packet damming in its three known forms (Fukuoka, Sato and Taura, "Pitfalls of
//! InfiniBand with On-Demand Paging", ISPASS 2021). Each case also runs without the quirk.

use rdmalab_engine::backend::SendWr;
use rdmalab_engine::vocab::*;
use rdmalab_link::packet::Class;
use rdmalab_testing::{only_seed, seeds};
use rdmalab_testkit::sim::{LEFT, Pair, PairConfig, RIGHT, blank};

use WcStatus as W;

/// The local ACK time-out: 4.096 us x 2^11.
const TIMEOUT_NS: u64 = 4096 << 11;
/// `min_rnr_timer` 14: the wait after an RNR NAK.
const RNR_NS: u64 = 1_280_000;
/// The longest service time of a repeated READ, plus time for packets to travel.
const SERVICE_NS: u64 = 1_600_000;
/// How many seeds to play without `RDMALAB_SEEDS`.
const SEEDS: u64 = 50;
const BYTES: usize = 100;

/// A page fault at the responder, as a requester sees it: an RNR NAK answers the first READ.
const SERVER_FAULT: &str = "rnr-nak first nth 1 of read";

fn pair(seed: u64, faults: &str) -> Pair {
    let mut config = PairConfig::new(QpType::Rc);
    config.seed = seed;
    config.attr.timeout = 11;
    config.attr.min_rnr_timer = 14;
    let mut pair = Pair::new(config);
    pair.disturb(&format!("seed={seed}; {faults}"));
    pair
}

/// Posts a READ; returns the address of its buffer.
fn post_read(pair: &mut Pair, wr_id: u64) -> u64 {
    let (addr, rkey) = pair.region(RIGHT, &[wr_id as u8; BYTES], Access::REMOTE_READ);
    let into = pair.buffer(LEFT, &[0; BYTES]);
    let read = SendWr { sges: &[into], remote_addr: addr, rkey, ..blank(wr_id, WrOpcode::Read) };
    pair.post(LEFT, read).unwrap();
    into.addr
}

fn post_send(pair: &mut Pair, wr_id: u64) {
    pair.receive(RIGHT, wr_id, BYTES);
    let sge = pair.buffer(LEFT, &[wr_id as u8; BYTES]);
    pair.post(LEFT, SendWr { sges: &[sge], ..blank(wr_id, WrOpcode::Send) }).unwrap();
}

/// Runs until nothing is left to do, and checks that `count` requests succeeded. Returns the
/// virtual time since the start, ns.
fn settle(pair: &mut Pair, count: u64) -> u64 {
    pair.world.settle();
    let done: Vec<(u64, WcStatus)> = (1..=count).map(|wr_id| (wr_id, W::Success)).collect();
    assert_eq!(pair.sent(LEFT), done);
    pair.world.now_ns
}

fn sent(pair: &Pair, class: Class) -> usize {
    pair.injector().sent_packets.iter().filter(|one| one.class == class).count()
}

/// Two READs are outstanding together. The response to the second was sent, but is lost.
#[test]
fn the_response_to_the_second_of_two_reads_is_lost() {
    for (faults, loses) in [("drop-response 2", true), ("drop-response 3", false)] {
        for seed in seeds(SEEDS) {
            let mut pair = pair(seed, faults);
            let into = [post_read(&mut pair, 1), post_read(&mut pair, 2)];
            let took_ns = settle(&mut pair, 2);
            for (data, addr) in (1..).zip(into) {
                assert_eq!(pair.device(LEFT).memory.read(addr, BYTES), [data; BYTES]);
            }
            assert_eq!(pair.injector().met(), [u64::from(loses)]);
            assert_eq!(took_ns >= TIMEOUT_NS, loses, "{faults}: {took_ns} ns");
            assert_eq!(sent(&pair, Class::ReadResponse), 2 + usize::from(loses));
        }
    }
}

/// The first of two READs meets a page fault, the second is posted during the RNR wait. Then both
/// are sent together. The second is lost, and only the time-out reveals that.
#[test]
fn the_second_of_two_reads_is_dammed_until_the_time_out() {
    for seed in seeds(SEEDS) {
        let two_reads = |faults: &str| {
            let mut pair = pair(seed, faults);
            post_read(&mut pair, 1);
            pair.world.run(RNR_NS / 2);
            post_read(&mut pair, 2);
            let took_ns = settle(&mut pair, 2);
            (took_ns, pair.injector().met().to_vec(), sent(&pair, Class::Nak))
        };
        let (took_ns, met, naks) = two_reads(SERVER_FAULT);
        assert!((RNR_NS..RNR_NS + SERVICE_NS).contains(&took_ns), "{took_ns} ns");
        assert_eq!((met, naks), (vec![1], 1));
        let (took_ns, met, naks) = two_reads(&format!("{SERVER_FAULT}; damming"));
        assert!(took_ns >= RNR_NS + TIMEOUT_NS, "seed {seed}: {took_ns} ns");
        // The responder sent nothing but the RNR NAK. Damming delayed the response to the first
        // READ, and dropped the second one, which is new to the responder after the time-out.
        assert_eq!((met, naks), (vec![1, 2], 1));
    }
}

/// A third READ, posted after the service, arrives without the second: the NAK for the gap saves
/// the time-out. A third one that is posted during the RNR wait is lost together with the second.
#[test]
fn a_third_read_saves_the_time_out_unless_it_is_dammed_too() {
    for seed in seeds(SEEDS) {
        let three_reads = |third_ns: u64| {
            let mut pair = pair(seed, &format!("{SERVER_FAULT}; damming"));
            post_read(&mut pair, 1);
            pair.world.run(RNR_NS / 2);
            post_read(&mut pair, 2);
            pair.world.run(third_ns);
            post_read(&mut pair, 3);
            let took_ns = settle(&mut pair, 3);
            (took_ns, sent(&pair, Class::Nak))
        };
        let (took_ns, naks) = three_reads(RNR_NS + SERVICE_NS);
        assert!(took_ns < RNR_NS + 2 * SERVICE_NS + RNR_NS, "seed {seed}: {took_ns} ns");
        assert_eq!(naks, 2, "an RNR NAK, and one for the gap");
        let (took_ns, naks) = three_reads(RNR_NS * 3 / 4);
        assert!(took_ns >= RNR_NS + TIMEOUT_NS, "seed {seed}: {took_ns} ns");
        assert_eq!(naks, 1);
    }
}

/// A READ is repeated because its response is late. The late response arrives first and completes
/// the READ. A SEND that is posted then is lost while the responder serves the repeated READ.
#[test]
fn a_send_after_its_read_completed_is_dammed_by_the_repetition() {
    let late_ns = TIMEOUT_NS + 20_000;
    let faults =
        format!("delay {late_ns}ns nth 1 of read-response; delay 1ms nth 2 of read-response");
    for seed in seeds(SEEDS) {
        let read_then_send = |faults: &str| {
            let mut pair = pair(seed, faults);
            post_read(&mut pair, 1);
            let mut now_ns = 0;
            while pair.sent(LEFT).is_empty() {
                now_ns += 1_000;
                pair.world.run(now_ns);
            }
            assert!((late_ns..late_ns + 10_000).contains(&now_ns), "{now_ns} ns");
            assert_eq!(sent(&pair, Class::Read), 2);
            post_send(&mut pair, 2);
            settle(&mut pair, 2) - now_ns
        };
        let took_ns = read_then_send(&faults);
        assert!(took_ns < SERVICE_NS, "{took_ns} ns");
        let took_ns = read_then_send(&format!("{faults}; damming"));
        assert!(took_ns >= TIMEOUT_NS, "seed {seed}: {took_ns} ns");
    }
}

/// The same seed gives the same service time; another seed gives another one.
#[test]
fn a_service_lasts_as_its_seed_says() {
    let delays = |seed: u64| {
        let mut pair = pair(seed, &format!("{SERVER_FAULT}; damming"));
        post_read(&mut pair, 1);
        settle(&mut pair, 1);
        pair.injector().sent_packets.iter().map(|one| one.fate.delay_ns).max().expect("a packet")
    };
    let all: Vec<u64> = seeds(SEEDS).map(delays).collect();
    assert_eq!(all, seeds(SEEDS).map(delays).collect::<Vec<_>>());
    assert!(all.iter().all(|ns| (74_000..1_500_000).contains(ns)), "{all:?}");
    if only_seed().is_some() {
        return;
    }
    assert!(all.iter().max().unwrap() > &1_300_000 && all.iter().min().unwrap() < &300_000);
}
