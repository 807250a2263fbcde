//! Random programs on random adapters, half of them under fault rules, half with On-Demand Paging:
//! every byte arrives where it belongs, every request completes once and in order, and atomics are
//! executed once.

use std::sync::atomic::{AtomicU64, Ordering};

use rdmalab_random::Random;
use rdmalab_rank::Rank;
use rdmalab_sim::{Parameters, Profile, SimRank};
use rdmalab_testing::{only_seed, play_each, seeds};
use rdmalab_verbs::{Cq, RecvRequest, SendRequest, Wc};

use crate::lab::{Endpoint, Shape, connect, lab, model};

/// How many seeds to play without `RDMALAB_SEEDS`. `.ci/run` plays 10 000.
const SEEDS: u64 = 500;
/// Places for messages in the memory of an end, and the bytes of each.
const PLACES: usize = 24;
const PLACE: usize = 20 << 10;
/// The memory of an end: what it sends, what it receives, what it reads, what the peer writes, the
/// results of atomics, and the counter that the peer adds to.
const SENT: usize = 0;
const RECEIVED: usize = PLACES * PLACE;
const READ: usize = 2 * PLACES * PLACE;
const WRITTEN: usize = 3 * PLACES * PLACE;
const RESULTS: usize = 4 * PLACES * PLACE;
const COUNTER: usize = RESULTS + PLACES * 8;
const BYTES: usize = COUNTER + 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Send { bytes: usize, is_inline: bool },
    Write { bytes: usize },
    Read { bytes: usize },
    Add { add: u64 },
}

/// The program of one rank.
#[derive(Clone, Debug)]
struct Program {
    ops: Vec<Op>,
    /// How many requests may be under way.
    window: usize,
    /// How long it waits before it posts each receive, ns.
    receives_late_ns: u64,
    list: usize,
}

impl Program {
    /// Fills what these requests take from the memory of rank `rank`, and no more: of most places
    /// only a small part is used.
    fn fill_sent(&self, end: &Endpoint, rank: usize, is_taken: impl Fn(&Op) -> bool) {
        for (index, op) in self.ops.iter().enumerate().filter(|(_, op)| is_taken(op)) {
            let from = index * PLACE;
            let bytes: Vec<u8> = (from..from + op.bytes()).map(|at| content(rank, at)).collect();
            end.mr.buffer().write_bytes(SENT + from, &bytes);
        }
    }
}

impl Op {
    fn bytes(&self) -> usize {
        match *self {
            Op::Send { bytes, .. } | Op::Write { bytes } | Op::Read { bytes } => bytes,
            Op::Add { .. } => 8,
        }
    }
}

fn program(random: &mut Random) -> Program {
    let count = random.between(1, PLACES as u64) as usize;
    let op = |random: &mut Random| {
        let bytes = match random.below(4) {
            0 => random.below(65),
            1 => random.below(4097),
            _ => random.below(PLACE as u64 + 1),
        } as usize;
        match random.below(8) {
            0..4 => Op::Send { bytes, is_inline: bytes <= 64 && random.chance(500) },
            4 | 5 => Op::Write { bytes },
            6 => Op::Read { bytes },
            _ => Op::Add { add: random.below(1 << 40) },
        }
    };
    Program {
        ops: (0..count).map(|_| op(random)).collect(),
        window: random.between(1, 8) as usize,
        receives_late_ns: if random.chance(300) { random.below(30_000) } else { 0 },
        list: random.between(1, 3) as usize,
    }
}

/// A model with any value for each time, and any choice of its parts.
fn adapter(random: &mut Random) -> Profile {
    let mut profile = model(&[]);
    let rates = ["bus_mb_per_s", "link_mb_per_s", "copy_mb_per_s"];
    for parameter in Parameters::ALL {
        let value = match parameter.name {
            "mtu_bytes" => random.pick(&[256.0, 512.0, 1024.0, 2048.0, 4096.0]),
            "recv_chunk_bytes" => random.pick(&[0.0, 64.0, 512.0]),
            "context_sets" => random.pick(&[0.0, 1.0, 16.0]),
            "max_rd_atomic" => 16.0,
            "odp_resolve_ns" => random.between(1, 200_000) as f64,
            // Else a lost packet takes longer than ranks wait.
            "ack_timeout_min_code" => random.below(15) as f64,
            name if name.starts_with("max_") || name.ends_with("_stride_bytes") => continue,
            name if rates.contains(&name) => random.pick(&[0.0, 800.0, 4000.0, 12_500.0]),
            _ if parameter.is_whole => {
                random.between(parameter.min as u64, (parameter.max as u64).min(300)) as f64
            }
            _ if random.chance(300) => parameter.min,
            _ => parameter.min + random.below(2_000_000) as f64 / 1e3,
        };
        profile.set(parameter.name, value).unwrap();
    }
    profile
}

/// Rules for half of all seeds: losses, damage, copies, delays and reordering.
fn rules(random: &mut Random) -> Option<String> {
    let kinds = ["drop", "corrupt", "duplicate", "reorder 2", "delay 7us"];
    let rule = |random: &mut Random| {
        let (kind, share) = (random.pick(&kinds), random.between(1, 30));
        let of = random.pick(&["", " of request", " of response"]);
        format!("{kind} {}.{}%{of}", share / 10, share % 10)
    };
    let rules = (0..random.below(4)).map(|_| rule(random)).collect::<Vec<_>>().join("; ");
    (!rules.is_empty() && random.chance(667)).then(|| format!("seed={}; {rules}", random.below(99)))
}

/// Byte `at` of the memory of rank `rank` that it sends from.
fn content(rank: usize, at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b1) >> 11) as u8 ^ rank as u8
}

fn expect_bytes(end: &Endpoint, at: usize, from: usize, offset: usize, bytes: usize, what: &str) {
    let mut found = vec![0; bytes];
    end.mr.buffer().read_bytes(at, &mut found);
    for (index, byte) in found.iter().enumerate() {
        assert_eq!(*byte, content(from, offset + index), "{what}: byte {index} of {bytes}");
    }
}

fn polled(cq: &Cq) -> Option<Wc> {
    let wc = cq.poll_one().unwrap();
    if let Some(wc) = &wc {
        assert!(wc.is_ok(), "{:?}", wc.status());
    }
    wc
}

/// Posts the requests from `first` on, `count` of them.
fn post(end: &Endpoint, ops: &[Op], first: usize, count: usize) {
    let sges: Vec<_> = (first..first + count)
        .map(|index| match ops[index] {
            Op::Send { bytes, .. } | Op::Write { bytes } => {
                [end.mr.sge(SENT + index * PLACE, bytes)]
            }
            Op::Read { bytes } => [end.mr.sge(READ + index * PLACE, bytes)],
            Op::Add { .. } => [end.mr.sge(RESULTS + index * 8, 8)],
        })
        .collect();
    let request = |(place, index): (usize, usize)| {
        let sges = &sges[place];
        let at = (index * PLACE) as u64;
        let request = match ops[index] {
            Op::Send { is_inline: true, .. } => SendRequest::send(sges).inline_data(),
            Op::Send { .. } => SendRequest::send(sges),
            Op::Write { .. } => SendRequest::write(sges, &end.peer, WRITTEN as u64 + at),
            Op::Read { .. } => SendRequest::read(sges, &end.peer, SENT as u64 + at),
            Op::Add { add } => SendRequest::fetch_add(sges, &end.peer, COUNTER as u64, add),
        };
        request.wr_id(index as u64).signaled()
    };
    let requests: Vec<_> = (first..first + count).enumerate().map(request).collect();
    end.qp.post_send(&requests).unwrap();
}

/// Where a rank is in its program.
struct Play<'a> {
    rank: &'a SimRank,
    end: &'a Endpoint,
    own: &'a Program,
    theirs: &'a Program,
    /// Which requests of the peer are SENDs.
    sent: Vec<usize>,
    posted: usize,
    done: usize,
    ready: usize,
    received: usize,
}

impl Play<'_> {
    fn is_over(&self) -> bool {
        self.done == self.own.ops.len() && self.received == self.sent.len()
    }

    fn may_receive(&self) -> bool {
        self.ready < self.sent.len() && self.ready < self.received + 4
    }

    fn may_post(&self) -> bool {
        self.posted < self.own.ops.len() && self.posted < self.done + self.own.window
    }

    fn step(&mut self) {
        let (rank, end) = (self.rank, self.end);
        if self.may_receive() {
            rank.think(self.own.receives_late_ns).unwrap();
            let sges = [end.mr.sge(RECEIVED + self.ready * PLACE, PLACE)];
            let receive = RecvRequest::new(&sges).wr_id(self.ready as u64);
            end.qp.post_recv(&[receive]).unwrap();
            self.ready += 1;
        }
        if self.may_post() {
            let room = self.done + self.own.window - self.posted;
            let count = self.own.list.min(self.own.ops.len() - self.posted).min(room);
            post(end, &self.own.ops, self.posted, count);
            self.posted += count;
        }
        let look = || {
            let found = polled(&end.send_cq).map(|wc| (true, wc));
            found.or_else(|| polled(&end.recv_cq).map(|wc| (false, wc)))
        };
        let goes_on = self.may_receive() || self.may_post();
        match if goes_on { look() } else { Some(rank.spin(look).unwrap()) } {
            None => {}
            Some((true, wc)) => self.sent_one(&wc),
            Some((false, wc)) => self.received_one(&wc),
        }
    }

    fn sent_one(&mut self, wc: &Wc) {
        let (done, other) = (self.done, 1 - self.rank.index());
        assert_eq!(wc.wr_id(), done as u64, "in order, and each once");
        if let Op::Read { bytes } = self.own.ops[done] {
            expect_bytes(self.end, READ + done * PLACE, other, done * PLACE, bytes, "a READ");
        }
        self.done += 1;
    }

    fn received_one(&mut self, wc: &Wc) {
        let (received, other) = (self.received, 1 - self.rank.index());
        assert_eq!(wc.wr_id(), received as u64, "in order, and each once");
        let from = self.sent[received];
        let Op::Send { bytes, .. } = self.theirs.ops[from] else { unreachable!() };
        assert_eq!(wc.byte_len() as usize, bytes);
        expect_bytes(self.end, RECEIVED + received * PLACE, other, from * PLACE, bytes, "a SEND");
        self.received += 1;
    }

    /// What the peer wrote and added.
    fn check_memory(&self) {
        let (end, other) = (self.end, 1 - self.rank.index());
        let mut sum = 0u64;
        for (index, op) in self.theirs.ops.iter().enumerate() {
            match *op {
                Op::Write { bytes } => {
                    let at = index * PLACE;
                    expect_bytes(end, WRITTEN + at, other, at, bytes, "a WRITE");
                }
                Op::Add { add } => sum = sum.wrapping_add(add),
                Op::Send { .. } | Op::Read { .. } => {}
            }
        }
        assert_eq!(end.mr.buffer().read_u64(COUNTER), sum, "each atomic is executed once");
        assert!(polled(&end.send_cq).is_none() && polled(&end.recv_cq).is_none());
    }
}

fn play(rank: &SimRank, end: &Endpoint, own: &Program, theirs: &Program) {
    let me = rank.index();
    own.fill_sent(end, me, |op| matches!(op, Op::Send { .. } | Op::Write { .. }));
    theirs.fill_sent(end, me, |op| matches!(op, Op::Read { .. }));
    let is_send = |index: &usize| matches!(theirs.ops[*index], Op::Send { .. });
    let sent = (0..theirs.ops.len()).filter(is_send).collect();
    rank.barrier().unwrap();
    let mut play = Play { rank, end, own, theirs, sent, posted: 0, done: 0, ready: 0, received: 0 };
    while !play.is_over() {
        play.step();
    }
    rank.barrier().unwrap();
    // An acknowledgement may arrive before the bytes of its WRITE are in memory.
    rank.sleep(10_000_000).unwrap();
    play.check_memory();
}

/// Returns how many packets were disturbed.
fn run(seed: u64) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let profile = adapter(&mut random);
    let programs = [program(&mut random), program(&mut random)];
    let on_demand = [random.chance(300), random.chance(300)];
    let (mut simulation, device) = lab(&profile, 2);
    if let Some(rules) = rules(&mut random) {
        simulation = simulation.with_faults(&rules, 0)?;
    }
    let (results, report) = simulation.run(|rank| {
        let on_demand = on_demand[rank.index()];
        let shape = Shape { bytes: BYTES, on_demand, ..Shape::default() };
        let end = connect(rank, &device, shape);
        play(rank, &end, &programs[rank.index()], &programs[1 - rank.index()]);
        Ok(())
    });
    let all: Result<Vec<()>, _> = results.into_iter().collect();
    all.map(|_| report.disturbed.iter().sum()).map_err(|why| why.to_string())
}

#[test]
fn random_programs_on_random_adapters_keep_every_byte() {
    let seeds = seeds(SEEDS);
    let disturbed = AtomicU64::new(0);
    play_each(seeds.clone(), |seed| {
        let packets = run(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        disturbed.fetch_add(packets, Ordering::Relaxed);
    });
    let count = seeds.end - seeds.start;
    assert!(
        only_seed().is_some() || disturbed.into_inner() > count,
        "too few packets were disturbed to prove anything"
    );
}
