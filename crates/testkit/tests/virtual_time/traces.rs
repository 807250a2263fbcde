//! Without delays an adapter sends what the driver of the testkit's world sends for the same
//! program: the same packets of each queue pair, in the same order.

use std::collections::BTreeMap;
use std::io::Write;

use rdmalab_engine::backend::SendWr;
use rdmalab_engine::train::TrainKind;
use rdmalab_engine::vocab::{self, WrOpcode};
use rdmalab_link::expand;
use rdmalab_random::Random;
use rdmalab_rank::Rank;
use rdmalab_sim::{CaptureFile, SimRank, capture_head};
use rdmalab_testing::seeds;
use rdmalab_testkit::sim::{At, Pair, PairConfig, blank, datagram_to};
use rdmalab_trace::{Capture, Seen};
use rdmalab_verbs::{QpType, RecvRequest, SendRequest};
use rdmalab_wire::ids::PathMtu;
use rdmalab_wire::opcode::{Opcode, Operation, Transport};
use tempfile::NamedTempFile;

use crate::lab::{Endpoint, QKEY, Shape, connect, device_of, model, wait};

/// How many seeds to play without `RDMALAB_SEEDS`.
const SEEDS: u64 = 60;
/// The longest message, and where requests of a rank read and write at the other one.
const BYTES: usize = 20_000;
const MTU: u32 = 1024;
/// Queue pairs between the two ranks.
const QPS: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Op {
    Send(usize),
    Write(usize),
    Read(usize),
    Add,
}

/// What both ranks do.
#[derive(Debug)]
struct Program {
    qp_type: QpType,
    /// The requests of each rank over each of its queue pairs.
    ops: [[Vec<Op>; QPS]; 2],
    /// Each request is posted when the one before it is complete, and not with it.
    one_by_one: bool,
}

/// Opcode, PSN and bytes of payload of a packet.
type Packet = (Opcode, u32, usize);

/// The packets by rank and queue pair of the sender, and whether they are responses.
type Traces = BTreeMap<(usize, usize, bool), Vec<Packet>>;

fn program(seed: u64) -> Program {
    let mut random = Random::new(seed);
    let qp_type = random.pick(&[QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud]);
    let mut op = || {
        let bytes = random.pick(&[0, 1, 64, 1000, 1024, 1025, 5000, BYTES as u64]);
        let bytes = random.below(bytes + 1) as usize;
        match (qp_type, random.below(8)) {
            (QpType::Ud, _) => Op::Send(bytes.min(MTU as usize)),
            (_, 0..4) => Op::Send(bytes),
            (QpType::Rc, 4 | 5) => Op::Read(bytes),
            (QpType::Rc, 6) => Op::Add,
            _ => Op::Write(bytes),
        }
    };
    let mut ops = || [(); QPS].map(|()| (0..8).map(|_| op()).collect());
    Program { qp_type, ops: [ops(), ops()], one_by_one: random.chance(500) }
}

/// Whether responses of this kind answer a request of their own. Which acknowledgements are sent
/// depends on how many requests arrive before the engine asks for the next one.
fn is_counted(program: &Program, opcode: Opcode) -> bool {
    program.one_by_one || opcode.operation() != Operation::Acknowledge
}

/// The packets in the world of the testkit.
fn of_world(program: &Program) -> Traces {
    let (qp_type, transport) = match program.qp_type {
        QpType::Rc => (vocab::QpType::Rc, Transport::Rc),
        QpType::Uc => (vocab::QpType::Uc, Transport::Uc),
        QpType::Ud => (vocab::QpType::Ud, Transport::Ud),
    };
    let mut config = PairConfig::new(qp_type);
    config.mtu = PathMtu::Mtu1024;
    config.psn = [100, 101];
    (config.attr.max_rd_atomic, config.attr.max_dest_rd_atomic) = (8, 8);
    config.attr.qkey = QKEY;
    let mut pair = Pair::new(config);
    for qp in 1..QPS {
        for device in &mut pair.world.devices {
            device.create_qp(qp_type, config.cap, false, false, config.mtu);
        }
        for device in 0..2 {
            pair.connect(At { device, qp });
        }
    }
    pair.world.link.kept = Some(Vec::new());
    let places = pair.world.places();
    for at in &places {
        let sends = program.ops[1 - at.device][at.qp].iter();
        for _ in sends.filter(|op| matches!(op, Op::Send(_))) {
            pair.receive(*at, 0, BYTES + 40);
        }
    }
    let targets = [0, 1].map(|device| {
        pair.region(At { device: 1 - device, qp: 0 }, &[0; BYTES], config.attr.qp_access_flags)
    });
    for index in 0..8 {
        for at in &places {
            post_in_world(&mut pair, *at, program.ops[at.device][at.qp][index], targets);
        }
        if program.one_by_one {
            pair.world.settle();
        }
    }
    pair.world.settle();
    let mut traces = Traces::new();
    for (data, mtu) in pair.world.link.kept.take().unwrap() {
        let from = pair.world.find(data.train.src_qpn).unwrap();
        for index in 0..expand::packets_of(&data.train) {
            let (train, _) = data.train.packet(index, mtu);
            let opcode = expand::opcode_of(&train, transport).unwrap();
            // A READ request has the bytes that it asks for, and no payload.
            let is_request = train.kind == TrainKind::ReadRequest;
            let bytes = if is_request { 0 } else { train.payload_bytes as usize };
            if is_counted(program, opcode) {
                let of = (from.device, from.qp, opcode.is_response());
                traces.entry(of).or_default().push((opcode, train.first_psn.get(), bytes));
            }
        }
    }
    traces
}

fn post_in_world(pair: &mut Pair, at: At, op: Op, targets: [(u64, u32); 2]) {
    let (opcode, bytes) = match op {
        Op::Send(bytes) => (WrOpcode::Send, bytes),
        Op::Write(bytes) => (WrOpcode::Write, bytes),
        Op::Read(bytes) => (WrOpcode::Read, bytes),
        Op::Add => (WrOpcode::FetchAdd, 8),
    };
    let sge = pair.buffer(at, &vec![0; bytes]);
    let (remote_addr, rkey) = targets[at.device];
    let other = pair.world.qp(pair.other(at)).qp.qpn;
    let to = datagram_to(other, QKEY);
    let is_datagram = pair.world.qp(at).qp.qp_type == vocab::QpType::Ud;
    let ud = is_datagram.then_some(to);
    let wr = SendWr { sges: &[sge], remote_addr, rkey, ud, ..blank(0, opcode) };
    pair.post(at, wr).unwrap();
}

/// The packets of adapters without delays.
fn of_adapters(program: &Program) -> Traces {
    let files = [(); 2].map(|()| NamedTempFile::new().unwrap());
    let writers = files.iter().enumerate().map(|(rank, file)| {
        let mut file = file.reopen().unwrap();
        file.write_all(&capture_head("sim", rank)).unwrap();
        Box::new(file) as CaptureFile
    });
    let profile = model(&[("mtu_bytes", MTU.into())]);
    let simulation = rdmalab_sim::Simulation::new(&profile, 2, Default::default());
    let simulation = simulation.with_capture(writers.collect(), 0);
    let device = device_of(&simulation);
    let (results, report) = simulation.run(|rank| {
        let shape = Shape {
            qp_type: program.qp_type,
            bytes: 2 * (BYTES + 40),
            inline: 0,
            ..Shape::default()
        };
        let ends = [(); QPS].map(|()| connect(rank, &device, shape));
        play(rank, &ends, program)?;
        Ok(ends.map(|end| end.qp.qp_num()))
    });
    assert_eq!(report.capture_error, None);
    let numbers: Vec<[u32; QPS]> = results.into_iter().map(Result::unwrap).collect();
    let mut traces = Traces::new();
    for (rank, file) in files.iter().enumerate() {
        let mut capture = Capture::open(file.path()).unwrap();
        while let Some(frame) = capture.next_frame().unwrap() {
            let seen = Seen::of(&frame).unwrap();
            let bth = seen.headers.bth;
            let to = numbers[1 - rank].iter().position(|number| *number == bth.dest_qp.get());
            // A queue pair is connected to the one with its own place.
            if let Some(qp) = to.filter(|_| is_counted(program, bth.opcode)) {
                let of = (rank, qp, bth.opcode.is_response());
                traces.entry(of).or_default().push((bth.opcode, bth.psn.get(), seen.payload_bytes));
            }
        }
    }
    traces
}

fn play(
    rank: &SimRank,
    ends: &[Endpoint; QPS],
    program: &Program,
) -> Result<(), rdmalab_rank::Stopped> {
    let me = rank.index();
    for (end, theirs) in ends.iter().zip(&program.ops[1 - me]) {
        let sges = [end.mr.sge(BYTES + 40, BYTES + 40)];
        for _ in theirs.iter().filter(|op| matches!(op, Op::Send(_))) {
            end.qp.post_recv(&[RecvRequest::new(&sges)]).unwrap();
        }
    }
    rank.barrier()?;
    for index in 0..8 {
        for (end, own) in ends.iter().zip(&program.ops[me]) {
            post_on_adapter(end, own[index]);
        }
        if program.one_by_one {
            for end in ends {
                wait(rank, &end.send_cq);
            }
            rank.barrier()?;
        }
    }
    for (end, theirs) in ends.iter().zip(&program.ops[1 - me]) {
        if !program.one_by_one {
            for _ in 0..8 {
                wait(rank, &end.send_cq);
            }
        }
        for _ in theirs.iter().filter(|op| matches!(op, Op::Send(_))) {
            wait(rank, &end.recv_cq);
        }
    }
    rank.barrier()
}

fn post_on_adapter(end: &Endpoint, op: Op) {
    let bytes = match op {
        Op::Send(bytes) | Op::Write(bytes) | Op::Read(bytes) => bytes,
        Op::Add => 8,
    };
    let sges = [end.mr.sge(0, bytes)];
    let request = match op {
        Op::Send(_) => SendRequest::send(&sges),
        Op::Write(_) => SendRequest::write(&sges, &end.peer, 0),
        Op::Read(_) => SendRequest::read(&sges, &end.peer, 0),
        Op::Add => SendRequest::fetch_add(&sges, &end.peer, 0, 1),
    };
    end.qp.post_send(&[end.addressed(request).signaled()]).unwrap();
}

#[test]
fn without_delays_adapters_send_what_the_driver_of_the_testkit_sends() {
    for seed in seeds(SEEDS) {
        let program = program(seed);
        let (world, adapters) = (of_world(&program), of_adapters(&program));
        assert!(!world.is_empty());
        assert_eq!(
            world.keys().collect::<Vec<_>>(),
            adapters.keys().collect::<Vec<_>>(),
            "seed {seed}: {program:?}"
        );
        for (of, expected) in &world {
            assert_eq!(&adapters[of], expected, "seed {seed}, {of:?}: {program:?}");
        }
    }
}
