//! An attacker who is not on the path: he sends packets with the addresses and queue pair numbers
//! of a connection, sees none of its packets, and knows neither its PSNs nor its keys. He must not
//! end the connection, delay it for long, or change a byte.
//!
//! `RDMALAB_SEEDS=N` plays so many seeds, `RDMALAB_SEED=N` one.

use rdmalab_engine::backend::SendWr;
use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_engine::vocab::*;
use rdmalab_random::Random;
use rdmalab_testing::{play_each, seeds};
use rdmalab_testkit::sim::{LEFT, Pair, PairConfig, RIGHT, TrainData, blank};
use rdmalab_wire::aeth::{NakCode, Syndrome};
use rdmalab_wire::ids::{Psn, Qpn, RKey};

/// Seeds that are played when `RDMALAB_SEEDS` does not say. `.ci/run` plays 10 000.
const SEEDS: u64 = 500;
/// Requests of the connection.
const REQUESTS: u64 = 40;
/// Bytes of each.
const BYTES: usize = 3000;
/// A PSN that is so near to one in use is an on-path attacker's.
const NEAR: i32 = 64;

const REQUEST_KINDS: [TrainKind; 5] = [
    TrainKind::Send,
    TrainKind::Write,
    TrainKind::ReadRequest,
    TrainKind::CmpSwap,
    TrainKind::FetchAdd,
];

const RESPONSES: [(TrainKind, Syndrome); 5] = [
    (TrainKind::Ack, Syndrome::ACK),
    (TrainKind::Ack, Syndrome::Nak(NakCode::RemoteAccessError)),
    (TrainKind::Ack, Syndrome::Nak(NakCode::PsnSequenceError)),
    (TrainKind::ReadResponse, Syndrome::ACK),
    (TrainKind::AtomicResponse, Syndrome::ACK),
];

struct Attacker {
    random: Random,
}

impl Attacker {
    /// A request with a PSN behind or ahead of the expected one, never that one itself: of 2^24
    /// packets one would hit it.
    fn request(&mut self, expected: Psn, from: Qpn, to: Qpn) -> TrainData {
        let distance = match self.random.below(4) {
            0 => 2 + self.random.below(100) as u32,
            1 => 1 + self.random.below(1 << 22) as u32,
            _ => 0u32.wrapping_sub(1 + self.random.below(200) as u32),
        };
        let kind = self.random.pick(&REQUEST_KINDS);
        let mut train = Train::new(kind, to, from, expected.add(distance));
        train.flags = TrainFlags(self.random.next_u32() as u8 & !TrainFlags::GRH);
        train.rkey = RKey(self.random.next_u32());
        train.remote_addr = self.random.next_u64() & !7;
        train.dma_bytes = 1 + self.random.below(1024) as u32;
        train.swap_add = self.random.next_u64();
        self.with_payload(train, matches!(kind, TrainKind::Send | TrainKind::Write))
    }

    /// An answer to a request that is not outstanding.
    fn response(&mut self, next: Psn, from: Qpn, to: Qpn) -> TrainData {
        let (kind, syndrome) = self.random.pick(&RESPONSES);
        let mut psn = Psn::new(self.random.next_u32() & 0x00ff_ffff);
        while psn.distance_from(next).abs() < NEAR * 16 {
            psn = psn.add(1 << 20);
        }
        let mut train = Train::new(kind, to, from, psn);
        train.flags = TrainFlags(self.random.below(4) as u8);
        train.syndrome = syndrome;
        self.with_payload(train, kind == TrainKind::ReadResponse)
    }

    fn with_payload(&mut self, mut train: Train, has_payload: bool) -> TrainData {
        let bytes = if has_payload { 1 + self.random.below(1024) as usize } else { 0 };
        train.payload_bytes = bytes as u32;
        TrainData { train, payload: self.random.bytes(bytes) }
    }

    /// One packet, to either end.
    fn strike(&mut self, pair: &mut Pair, next: Psn) {
        let (left, right) = (pair.world.qp(LEFT).qp.qpn, pair.world.qp(RIGHT).qp.qpn);
        if self.random.chance(600) {
            let expected = pair.world.qp(RIGHT).qp.expected_psn();
            let forged = self.request(expected, left, right);
            pair.world.give(RIGHT, forged);
        } else {
            let forged = self.response(next, right, left);
            pair.world.give(LEFT, forged);
        }
    }
}

fn play(seed: u64) {
    let mut attacker = Attacker { random: Random::new(seed) };
    let first_psn = attacker.random.next_u32() & 0x00ff_ffff;
    let config = PairConfig { seed, psn: [first_psn, 0x2000], ..PairConfig::new(QpType::Rc) };
    let mut pair = Pair::new(config);
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let there = attacker.random.bytes(BYTES);
    let (read_from, read_key) = pair.region(RIGHT, &there, rights | Access::LOCAL_WRITE);
    let (write_to, write_key) = pair.region(RIGHT, &[0; BYTES], rights | Access::LOCAL_WRITE);
    let (word, word_key) = pair.region(RIGHT, &[0; 8], rights | Access::LOCAL_WRITE);
    let mut added = 0;
    for wr_id in 0..REQUESTS {
        let bytes = attacker.random.bytes(BYTES);
        let sge = pair.buffer(LEFT, &bytes);
        let eight = Sge { length: 8, ..sge };
        let at = |opcode, remote_addr, rkey| SendWr { remote_addr, rkey, ..blank(wr_id, opcode) };
        let kind = attacker.random.below(4);
        let into = match kind {
            0 => pair.receive(RIGHT, wr_id, BYTES).addr,
            _ => write_to,
        };
        let sges = [if kind == 3 { eight } else { sge }];
        let wr = match kind {
            0 => blank(wr_id, WrOpcode::Send),
            1 => at(WrOpcode::Write, write_to, write_key),
            2 => at(WrOpcode::Read, read_from, read_key),
            _ => SendWr { compare_add: 1, ..at(WrOpcode::FetchAdd, word, word_key) },
        };
        pair.post(LEFT, SendWr { sges: &sges, ..wr }).expect("room");
        let until_ns = pair.world.now_ns + attacker.random.below(20_000);
        for _ in 0..attacker.random.below(6) {
            attacker.strike(&mut pair, Psn::new(first_psn));
            pair.world.run(until_ns);
        }
        pair.world.settle();
        assert_eq!(pair.sent(LEFT).last(), Some(&(wr_id, WcStatus::Success)), "seed {seed}");
        added += u64::from(kind == 3);
        let arrived = match kind {
            0 | 1 => pair.device(RIGHT).memory.read(into, BYTES) == bytes,
            2 => pair.device(LEFT).memory.read(sge.addr, BYTES) == there,
            _ => true,
        };
        assert!(arrived, "seed {seed}: request {wr_id} has other bytes");
        assert_eq!(pair.device(RIGHT).memory.word(word), added, "seed {seed}");
    }
    assert!(pair.device(RIGHT).memory.read(read_from, BYTES) == there, "seed {seed}: overwritten");
    for end in [LEFT, RIGHT] {
        assert_eq!(pair.state(end), QpState::Rts, "seed {seed}");
        let event = |event: &AsyncEventType| *event != AsyncEventType::CommEst;
        assert!(!pair.world.qp(end).events().iter().any(event), "seed {seed}");
    }
}

#[test]
fn an_attacker_who_sees_nothing_changes_nothing() {
    play_each(seeds(SEEDS), play);
}
