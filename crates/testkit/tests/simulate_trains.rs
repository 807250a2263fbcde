//! Trains: the receiver treats a train and its single packets alike, and the longest messages stay
//! within the PSN window.

use rdmalab_engine::backend::SendWr;
use rdmalab_engine::qp::{Accept, CopyError, Plan, Qp};
use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_engine::vocab::*;
use rdmalab_random::Random;
use rdmalab_testing::seeds;
use rdmalab_testkit::sim::{Knobs, LEFT, Pair, PairConfig, RIGHT, TrainData, blank, cut};
use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::ids::{PathMtu, Psn};

/// All visible state of a receiver: completions, events, responses, queue pair, memory.
fn looks(pair: &mut Pair, at: rdmalab_testkit::sim::At) -> String {
    let mut answers = Vec::new();
    while let Some(answer) = pair.device(at).next_answer(at.qp, u32::MAX) {
        answers.push(answer);
    }
    let sim = pair.world.qp(at);
    let told = format!("{:?} {:?} {:?}", sim.sent(), sim.received(), sim.events());
    let memory = &pair.world.devices[at.device].memory;
    let memory = memory.read(memory.base(), memory.size() as usize);
    let digest = memory.iter().fold(0u64, |h, b| (h ^ *b as u64).wrapping_mul(0x100_0000_01b3));
    // The queue pair's whole state except the counter that invalidates plans in flight.
    format!("{told}\n{answers:?}\n{digest:x}\n{:?}", sim.qp)
}

fn offer(pair: &mut Pair, at: rdmalab_testkit::sim::At, train_data: TrainData) {
    pair.world.give(at, train_data);
    pair.world.accept_all(at);
}

/// Trains that an RC or UC requester sent. Some overlap earlier ones, and some are missing.
fn draw_trains(pair: &mut Pair, random: &mut Random, target: (u64, u32)) -> Vec<TrainData> {
    let mut trains = Vec::new();
    for wr_id in 0..random.between(1, 8) {
        let length = random.pick(&[0, 1, 255, 256, 257, 1000, 2048, 5000]);
        let bytes = random.bytes(length);
        let sge = pair.buffer(LEFT, &bytes);
        let connected = pair.world.qp(LEFT).qp.qp_type == QpType::Uc;
        let opcode = match connected {
            true => random.pick(&[WrOpcode::Send, WrOpcode::WriteImm, WrOpcode::Write]),
            false => random.pick(&[
                WrOpcode::Send,
                WrOpcode::WriteImm,
                WrOpcode::Write,
                WrOpcode::Read,
                WrOpcode::FetchAdd,
            ]),
        };
        let element = [if opcode == WrOpcode::FetchAdd { Sge { length: 8, ..sge } } else { sge }];
        let wr = SendWr {
            sges: &element,
            remote_addr: target.0,
            rkey: if random.chance(50) { 0 } else { target.1 },
            imm_or_rkey: 5,
            ..blank(wr_id, opcode)
        };
        pair.post(LEFT, wr).unwrap();
        while let Some(train_data) = pair.device(LEFT).next_request(0, 2048) {
            trains.push(train_data);
        }
    }
    // Lose, repeat and overlap some trains.
    let mtu = PathMtu::Mtu256;
    let mut out = Vec::new();
    for train_data in trains {
        if random.chance(60) {
            continue;
        }
        let packets = train_data.train.packets;
        if train_data.train.kind != TrainKind::ReadRequest && packets > 1 && random.chance(200) {
            let count = random.between(1, packets as u64) as u32;
            out.push(cut(&train_data, 0, count, mtu));
        }
        out.push(train_data.clone());
        if random.chance(100) {
            out.push(train_data);
        }
    }
    out
}

#[test]
fn a_train_and_its_packets_are_the_same_to_a_responder() {
    for seed in seeds(1500) {
        let mut random = Random::new(seed);
        let mut config = PairConfig::new(random.pick(&[QpType::Rc, QpType::Rc, QpType::Uc]));
        config.mtu = PathMtu::Mtu256;
        config.psn = [0xff_fff0, 3];
        let make = |random: &mut Random| {
            let mut pair = Pair::new(config);
            let target = pair.region(RIGHT, &[0; 6000], Access(0xf));
            for wr_id in 0..random.below(7) {
                pair.receive(RIGHT, wr_id, 4000);
            }
            (pair, target)
        };
        let mut again = random.clone();
        let (mut whole, target) = make(&mut random);
        let (mut single, _) = make(&mut again);
        for train_data in draw_trains(&mut whole, &mut random, target) {
            let packets = match train_data.train.kind {
                TrainKind::ReadRequest => 1,
                _ => train_data.train.packets,
            };
            for index in 0..packets {
                let packet = match packets {
                    1 => train_data.clone(),
                    _ => cut(&train_data, index, 1, config.mtu),
                };
                offer(&mut single, RIGHT, packet);
            }
            let train = train_data.train;
            offer(&mut whole, RIGHT, train_data);
            let (ended, rc) = (whole.state(RIGHT) == QpState::Err, config.qp_type == QpType::Rc);
            let (whole, single) = (looks(&mut whole, RIGHT), looks(&mut single, RIGHT));
            if ended || !rc {
                // A failed message may leave data in memory: compare completions and events only.
                let told = |text: &str| text.lines().next().map(str::to_owned);
                assert_eq!(told(&whole), told(&single), "seed {seed}: {train:?}");
                break;
            }
            assert_eq!(whole, single, "seed {seed}: {train:?}");
        }
    }
}

#[test]
fn a_response_and_its_packets_are_the_same_to_a_requester() {
    for seed in seeds(300) {
        let mut random = Random::new(seed);
        let mut config = PairConfig::new(QpType::Rc);
        config.mtu = PathMtu::Mtu256;
        config.psn = [0xff_fffe, 3];
        let length = random.between(300, 4000) as usize;
        let make = || {
            let mut pair = Pair::new(config);
            let (remote_addr, rkey) =
                pair.region(RIGHT, &Random::new(9).bytes(length), Access(0xf));
            for wr_id in 0..2 {
                let sge = pair.buffer(LEFT, &vec![0; length]);
                let read = blank(wr_id, WrOpcode::Read);
                pair.post(LEFT, SendWr { sges: &[sge], remote_addr, rkey, ..read }).unwrap();
                let request = pair.device(LEFT).next_request(0, 1).unwrap();
                offer(&mut pair, RIGHT, request);
            }
            pair
        };
        let (mut whole, mut single) = (make(), make());
        let max_payload = random.between(256, 5000) as u32;
        while let Some(answer) = whole.device(RIGHT).next_answer(0, max_payload) {
            if random.chance(100) {
                continue;
            }
            for index in 0..answer.train.packets {
                let packet = match answer.train.packets {
                    1 => answer.clone(),
                    _ => cut(&answer, index, 1, config.mtu),
                };
                offer(&mut single, LEFT, packet);
            }
            offer(&mut whole, LEFT, answer);
            assert_eq!(looks(&mut whole, LEFT), looks(&mut single, LEFT), "seed {seed}");
        }
    }
}

/// A requester that sends 2 GiB from a small memory: the payloads are never read.
fn giant(opcode: WrOpcode, psn: u32) -> Pair {
    let mut config = PairConfig::new(QpType::Rc);
    config.mtu = PathMtu::Mtu256;
    config.psn = [psn, 0];
    let mut pair = Pair::new(config);
    pair.world.knobs = Knobs::default();
    let lkey = pair.lkeys[0];
    let sges = [Sge { addr: pair.device(LEFT).memory.base(), length: 1 << 31, lkey }];
    let wr = SendWr { sges: &sges, ..blank(1, opcode) };
    pair.post(LEFT, wr).unwrap();
    pair.post(LEFT, SendWr { wr_id: 2, ..wr }).unwrap();
    pair
}

fn acknowledge(pair: &mut Pair, psn: Psn, syndrome: Syndrome) {
    let (qp, mut env) = pair.device(LEFT).split(0);
    let mut ack = Train::new(TrainKind::Ack, qp.qpn, qp.remote_qpn, psn);
    ack.syndrome = syndrome;
    assert!(matches!(qp.accept(&ack, &mut env), Accept::Done));
}

fn next_train(qp: &mut Qp, max_payload: u32) -> Option<(Train, u32, u32)> {
    match qp.plan(max_payload) {
        Plan::Send { train, position, offset } => Some((train, position, offset)),
        _ => None,
    }
}

#[test]
fn two_gibibytes_at_the_smallest_mtu_stay_within_the_window() {
    const WINDOW: u64 = 1 << 22;
    const PACKETS: u64 = 1 << 23;
    for max_payload in [1 << 20, 3_000_000, u32::MAX] {
        let start = 0xff_0000;
        let mut pair = giant(WrOpcode::Send, start);
        let (mut sent, mut acked, mut trains) = (0u64, 0u64, 0);
        while sent < 2 * PACKETS {
            let planned = next_train(&mut pair.world.devices[0].qps[0].qp, max_payload);
            let Some((train, position, offset)) = planned else {
                // The window is full, so a packet in it must have requested an acknowledgement.
                assert_eq!(sent - acked, WINDOW);
                acked = sent;
                let last = Psn::new((start as u64 + sent - 1) as u32);
                acknowledge(&mut pair, last, Syndrome::ACK);
                continue;
            };
            let place = position as u64 * PACKETS + offset as u64 / 256;
            assert_eq!(place, sent);
            assert_eq!(train.first_psn, Psn::new((start as u64 + sent) as u32));
            assert_eq!(train.payload_bytes, train.packets * 256);
            sent += train.packets as u64;
            assert!(sent - acked <= WINDOW);
            assert_eq!(train.flags.has(TrainFlags::LAST), sent.is_multiple_of(PACKETS));
            trains += 1;
        }
        assert!(trains >= 4);
        acknowledge(&mut pair, Psn::new(start - 1), Syndrome::ACK);
        assert_eq!(pair.sent(LEFT), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    }
}

#[test]
fn a_full_window_has_asked_for_an_acknowledgement() {
    let mut pair = giant(WrOpcode::Write, 7);
    let qp = &mut pair.world.devices[0].qps[0].qp;
    let mut asked = 0;
    while let Some((train, ..)) = next_train(qp, 64 << 10) {
        asked += train.flags.has(TrainFlags::ACK_REQ) as u32;
    }
    assert!(asked >= 3);
}

#[test]
fn a_read_of_half_the_psn_space_goes_alone_and_can_be_repeated() {
    let mut pair = giant(WrOpcode::Read, 0xff_ffff);
    let first = Psn::new(0xff_ffff);
    let qp = &mut pair.world.devices[0].qps[0].qp;
    let (train, position, _) = next_train(qp, 1).unwrap();
    assert_eq!((train.packets, train.dma_bytes, position), (1 << 23, 1 << 31, 0));
    assert!(next_train(qp, 1).is_none(), "the second READ waits for the first");
    // The responder executes the request, and executes it again as a duplicate.
    let (remote_addr, rkey) = {
        let device = pair.device(RIGHT);
        let base = device.memory.base();
        (base, device.register(base, 1 << 32, Access(0xf)))
    };
    let request = Train { remote_addr, rkey: rdmalab_wire::ids::RKey(rkey), ..train };
    let (qp, mut env) = pair.device(RIGHT).split(0);
    for _ in 0..2 {
        // Both queue pairs start at the same PSN.
        assert!(matches!(qp.accept(&request, &mut env), Accept::Done));
        assert_eq!(qp.expected_psn(), first.add(1 << 23));
    }
    // The response comes in several trains; the last one completes the READ.
    let mut answers = Vec::new();
    while let Some(response) = qp.next_response(1 << 30, &mut env) {
        assert!(response.data.is_some(), "{response:?}");
        answers.push(response.train);
    }
    let bytes: u64 = answers.iter().map(|train| train.payload_bytes as u64).sum();
    assert_eq!(bytes, 2 << 31, "the READ and its repetition");
    let (qp, mut env) = pair.device(LEFT).split(0);
    for answer in &answers {
        if let Accept::PlaceResponse(placement) = qp.accept(answer, &mut env) {
            assert_eq!(placement.offset as u64 >> 8, placement.offset as u64 / 256);
            qp.retire_response(&placement, Ok(()), &mut env);
        }
    }
    assert_eq!(pair.sent(LEFT), [(1, WcStatus::Success)]);
    let qp = &mut pair.world.devices[0].qps[0].qp;
    assert_eq!(next_train(qp, 1).unwrap().0.first_psn, first.add(1 << 23));
}

#[test]
fn a_late_acknowledgement_within_a_repeated_message_is_caught_up_with() {
    let mut pair = giant(WrOpcode::Write, 100);
    let (qp, mut env) = pair.device(LEFT).split(0);
    for _ in 0..4 {
        next_train(qp, 100 * 256).unwrap();
    }
    qp.arm_timer(1);
    assert!(qp.on_timer(u64::MAX, &mut env));
    assert_eq!(next_train(qp, 100 * 256).unwrap().0.first_psn, Psn::new(100));
    // The first transmission was only slow: the peer has received 250 packets.
    acknowledge(&mut pair, Psn::new(349), Syndrome::ACK);
    let qp = &mut pair.world.devices[0].qps[0].qp;
    let (train, _, offset) = next_train(qp, 100 * 256).unwrap();
    assert_eq!((train.first_psn, offset), (Psn::new(350), 250 * 256));
}

#[test]
fn a_failed_repetition_does_not_matter_when_the_first_copy_arrived() {
    let mut pair = Pair::new(PairConfig::new(QpType::Rc));
    for wr_id in 1..=3 {
        pair.post(LEFT, blank(wr_id, WrOpcode::Send)).unwrap();
    }
    let (qp, mut env) = pair.device(LEFT).split(0);
    assert!(next_train(qp, 256).is_some() && next_train(qp, 256).is_some());
    qp.arm_timer(1);
    assert!(qp.on_timer(u64::MAX, &mut env));
    let (_, first, _) = next_train(qp, 256).unwrap();
    let (_, second, _) = next_train(qp, 256).unwrap();
    qp.retire_sent(first, true, Ok(()), &mut env);
    qp.retire_sent(second, true, Err(CopyError::Protection), &mut env);
    assert!(next_train(qp, 256).is_none(), "nothing follows a failed request");
    acknowledge(&mut pair, Psn::new(0x11), Syndrome::ACK);
    assert_eq!(pair.sent(LEFT), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    let qp = &mut pair.world.devices[0].qps[0].qp;
    assert_eq!(next_train(qp, 256).unwrap().0.first_psn, Psn::new(0x12));
}

#[test]
fn what_the_lane_executed_is_folded_in_once() {
    let mut pair = Pair::new(PairConfig::new(QpType::Rc));
    pair.receive(RIGHT, 1, 64);
    let (remote_addr, rkey) = pair.region(RIGHT, &[0; 64], Access(0xf));
    let sge = pair.buffer(LEFT, &[1; 64]);
    let write = SendWr { sges: &[sge], remote_addr, rkey, ..blank(1, WrOpcode::Write) };
    pair.world.knobs.lane = 1000;
    pair.post(LEFT, write).unwrap();
    pair.post(LEFT, SendWr { wr_id: 2, ..write }).unwrap();
    pair.world.settle();
    assert_eq!((pair.sent(LEFT).len(), pair.world.link.sent), (2, 0));
    assert_eq!(pair.world.qp(RIGHT).qp.expected_psn(), Psn::new(0x10));
    pair.post(LEFT, blank(3, WrOpcode::Send)).unwrap();
    let train_data = pair.device(LEFT).next_request(0, 64).unwrap();
    assert_eq!((train_data.train.fold.packets, train_data.train.fold.messages), (2, 2));
    pair.post(LEFT, SendWr { wr_id: 4, opcode: WrOpcode::Write, ..write }).unwrap();
    offer(&mut pair, RIGHT, train_data.clone());
    assert_eq!(pair.world.qp(RIGHT).qp.expected_psn(), Psn::new(0x13));
    let next = pair.device(LEFT).next_request(0, 64).unwrap();
    assert_eq!(next.train.fold.packets, 0);
    offer(&mut pair, RIGHT, next);
    // The same train again must not move the expected PSN back.
    offer(&mut pair, RIGHT, train_data);
    assert_eq!(pair.world.qp(RIGHT).qp.expected_psn(), Psn::new(0x14));
    assert_eq!(pair.received(RIGHT), [(1, WcStatus::Success)]);
    pair.world.settle();
    assert_eq!(pair.sent(LEFT).len(), 4);
}
