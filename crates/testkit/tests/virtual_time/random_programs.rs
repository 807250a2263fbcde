//! Random programs on random adapters, over all transports, one queue pair or several, with own
//! receive queues or a shared one; half of them under fault rules, half with On-Demand Paging.
//!
//! Every byte arrives where it belongs, every request completes once and in order, and atomics are
//! executed once. Over UC and UD messages may be lost, but only under fault rules.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use rdmalab_random::Random;
use rdmalab_rank::Rank;
use rdmalab_sim::{Parameters, Profile, SimRank};
use rdmalab_testing::{only_seed, play_each, seeds};
use rdmalab_verbs::{Cq, QpType, RecvRequest, SendRequest, UD_GRH_BYTES, Wc};

use crate::lab::{Endpoint, Host, Shape, lab, model};

/// How many seeds to play without `RDMALAB_SEEDS`. `.ci/run` plays 10 000.
const SEEDS: u64 = 500;
/// Places for messages in the memory of a rank, and the bytes of each. Each request of any queue
/// pair has its own.
const PLACES: usize = 24;
const PLACE: usize = 20 << 10;
/// The memory of a rank: what it sends, what it receives, what it reads, what the peer writes, the
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

/// What both ranks agree on.
#[derive(Clone, Copy, Debug)]
struct Setting {
    qp_type: QpType,
    /// Queue pairs between them.
    qps: usize,
    /// Bytes of the longest message.
    most_bytes: usize,
    /// Whether every message arrives.
    is_lossless: bool,
}

/// The program of one rank.
#[derive(Clone, Debug)]
struct Program {
    /// The requests of each queue pair.
    ops: Vec<Vec<Op>>,
    /// How many requests of a queue pair may be under way.
    window: usize,
    /// How long it waits before it posts each receive, ns.
    receives_late_ns: u64,
    list: usize,
    has_srq: bool,
}

impl Setting {
    /// The place in memory of a request.
    fn place(&self, qp: usize, index: usize) -> usize {
        qp * (PLACES / self.qps) + index
    }

    /// Bytes of a receive before those of the message.
    fn header(&self) -> usize {
        if self.qp_type == QpType::Ud { UD_GRH_BYTES } else { 0 }
    }
}

impl Program {
    fn all(&self) -> impl Iterator<Item = (usize, usize, &Op)> {
        let ops = self.ops.iter().enumerate();
        ops.flat_map(|(qp, ops)| ops.iter().enumerate().map(move |(index, op)| (qp, index, op)))
    }

    /// Fills what these requests take from the memory of rank `rank`, and no more: of most places
    /// only a small part is used.
    fn fill_sent(&self, setting: &Setting, end: &Endpoint, rank: usize, is_taken: fn(&Op) -> bool) {
        for (qp, index, op) in self.all().filter(|(_, _, op)| is_taken(op)) {
            let from = setting.place(qp, index) * PLACE;
            let bytes: Vec<u8> = (from..from + op.bytes()).map(|at| content(rank, at)).collect();
            end.mr.buffer().write_bytes(SENT + from, &bytes);
        }
    }

    /// How many messages it sends over each queue pair that take a receive.
    fn sends(&self) -> Vec<usize> {
        let is_send = |op: &&Op| matches!(op, Op::Send { .. });
        self.ops.iter().map(|ops| ops.iter().filter(is_send).count()).collect()
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

fn program(random: &mut Random, setting: &Setting) -> Program {
    let op = |random: &mut Random| {
        let bytes = match random.below(4) {
            0 => random.below(65),
            1 => random.below(4097),
            _ => random.below(PLACE as u64 + 1),
        } as usize;
        let bytes = bytes.min(setting.most_bytes);
        match (setting.qp_type, random.below(8)) {
            (QpType::Ud, _) | (_, 0..4) => {
                Op::Send { bytes, is_inline: bytes <= 64 && random.chance(500) }
            }
            (QpType::Rc, 6) => Op::Read { bytes },
            (QpType::Rc, 7) => Op::Add { add: random.below(1 << 40) },
            _ => Op::Write { bytes },
        }
    };
    let most = (PLACES / setting.qps) as u64;
    let mut ops = || {
        let count = random.between(1, most);
        (0..count).map(|_| op(random)).collect()
    };
    Program {
        ops: (0..setting.qps).map(|_| ops()).collect(),
        window: random.between(1, 8) as usize,
        receives_late_ns: if random.chance(300) { random.below(30_000) } else { 0 },
        list: random.between(1, 3) as usize,
        has_srq: random.chance(300),
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

/// The bytes at `at` are those that rank `from` sends from `offset` on; with `may_lack`, or none.
fn expect_bytes(
    end: &Endpoint,
    at: usize,
    (from, offset, bytes): (usize, usize, usize),
    may_lack: bool,
    what: &str,
) {
    let mut found = vec![0; bytes];
    end.mr.buffer().read_bytes(at, &mut found);
    for (index, byte) in found.iter().enumerate() {
        let expected = content(from, offset + index);
        let is_right = *byte == expected || may_lack && *byte == 0;
        assert!(is_right, "{what}: byte {index} of {bytes} is {byte}, not {expected}");
    }
}

fn polled(cq: &Cq) -> Option<Wc> {
    let wc = cq.poll_one().unwrap();
    if let Some(wc) = &wc {
        assert!(wc.is_ok(), "{:?}", wc.status());
    }
    wc
}

/// Where a rank is with one of its queue pairs.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    posted: usize,
    done: usize,
    ready: usize,
    received: usize,
    /// The request that the last message came from.
    last: Option<usize>,
}

/// Where a rank is in its program.
struct Play<'a> {
    rank: &'a SimRank,
    setting: Setting,
    host: &'a Host,
    ends: &'a [Endpoint],
    own: &'a Program,
    theirs: &'a Program,
    /// By queue pair.
    at: Vec<Progress>,
    /// The queue pair with each number.
    numbers: BTreeMap<u32, usize>,
    /// How many messages will take a receive of each queue pair.
    expected: Vec<usize>,
}

impl Play<'_> {
    fn is_reliable(&self) -> bool {
        self.setting.qp_type == QpType::Rc
    }

    /// Whether all is done that can be waited for.
    fn is_over(&self) -> bool {
        let is_over = |(qp, at): (usize, &Progress)| {
            at.done == self.own.ops[qp].len()
                && (!self.setting.is_lossless || at.received == self.expected[qp])
        };
        self.at.iter().enumerate().all(is_over)
    }

    fn may_receive(&self, qp: usize) -> bool {
        let at = self.at[qp];
        // What nobody repeats finds its receive posted.
        at.ready < self.expected[qp] && (!self.is_reliable() || at.ready < at.received + 4)
    }

    fn may_post(&self, qp: usize) -> bool {
        let at = self.at[qp];
        at.posted < self.own.ops[qp].len() && at.posted < at.done + self.own.window
    }

    /// Posts a receive for a message over a queue pair. Those of a shared queue serve all.
    fn receive(&mut self, qp: usize) {
        let place = self.setting.place(qp, self.at[qp].ready);
        let sges = [self.ends[qp].mr.sge(RECEIVED + place * PLACE, PLACE)];
        let receive = RecvRequest::new(&sges).wr_id(place as u64);
        match &self.host.srq {
            Some(srq) => srq.post_recv(&[receive]).unwrap(),
            None => self.ends[qp].qp.post_recv(&[receive]).unwrap(),
        }
        self.at[qp].ready += 1;
    }

    /// Posts the next requests of a queue pair.
    fn post(&mut self, qp: usize) {
        let (end, at, ops) = (&self.ends[qp], self.at[qp], &self.own.ops[qp]);
        let room = at.done + self.own.window - at.posted;
        let range = at.posted..at.posted + self.own.list.min(ops.len() - at.posted).min(room);
        let place = |index| self.setting.place(qp, index);
        let sge = |index: usize| match ops[index] {
            Op::Send { bytes, .. } | Op::Write { bytes } => {
                [end.mr.sge(SENT + place(index) * PLACE, bytes)]
            }
            Op::Read { bytes } => [end.mr.sge(READ + place(index) * PLACE, bytes)],
            Op::Add { .. } => [end.mr.sge(RESULTS + place(index) * 8, 8)],
        };
        let sges: Vec<_> = range.clone().map(sge).collect();
        let request = |(sges, index): (_, usize)| {
            let there = (place(index) * PLACE) as u64;
            let request = match ops[index] {
                Op::Send { is_inline: true, .. } => SendRequest::send(sges).inline_data(),
                Op::Send { .. } => SendRequest::send(sges),
                Op::Write { .. } => SendRequest::write(sges, &end.peer, WRITTEN as u64 + there),
                Op::Read { .. } => SendRequest::read(sges, &end.peer, SENT as u64 + there),
                Op::Add { add } => SendRequest::fetch_add(sges, &end.peer, COUNTER as u64, add),
            };
            let is_send = matches!(ops[index], Op::Send { .. });
            let request = if is_send { request.with_imm(index as u32) } else { request };
            end.addressed(request).wr_id(index as u64).signaled()
        };
        let requests: Vec<_> =
            sges.iter().map(|sge| &sge[..]).zip(range.clone()).map(request).collect();
        end.qp.post_send(&requests).unwrap();
        self.at[qp].posted = range.end;
    }

    fn look(&self) -> Option<(bool, Wc)> {
        let end = &self.ends[0];
        let found = polled(&end.send_cq).map(|wc| (true, wc));
        found.or_else(|| polled(&end.recv_cq).map(|wc| (false, wc)))
    }

    fn take(&mut self, (is_send, wc): (bool, Wc)) {
        if is_send { self.sent_one(&wc) } else { self.received_one(&wc) }
    }

    fn step(&mut self) {
        for qp in 0..self.setting.qps {
            if self.may_receive(qp) {
                self.rank.think(self.own.receives_late_ns).unwrap();
                self.receive(qp);
            }
            if self.may_post(qp) {
                self.post(qp);
            }
        }
        let goes_on = (0..self.setting.qps).any(|qp| self.may_receive(qp) || self.may_post(qp));
        let found = match goes_on {
            true => self.look(),
            false => Some(self.rank.spin(|| self.look()).unwrap()),
        };
        if let Some(found) = found {
            self.take(found);
        }
    }

    fn sent_one(&mut self, wc: &Wc) {
        let (qp, other) = (self.numbers[&wc.qp_num()], 1 - self.rank.index());
        let done = self.at[qp].done;
        assert_eq!(wc.wr_id(), done as u64, "in order, and each once");
        if let Op::Read { bytes } = self.own.ops[qp][done] {
            let at = self.setting.place(qp, done) * PLACE;
            expect_bytes(&self.ends[qp], READ + at, (other, at, bytes), false, "a READ");
        }
        self.at[qp].done += 1;
    }

    fn received_one(&mut self, wc: &Wc) {
        let (qp, other) = (self.numbers[&wc.qp_num()], 1 - self.rank.index());
        let from = wc.imm().unwrap() as usize;
        if self.setting.is_lossless {
            let later = self.at[qp].last.map_or(0, |last| last + 1);
            let between = &self.theirs.ops[qp][later..from];
            let is_skipped = between.iter().any(|op| matches!(op, Op::Send { .. }));
            assert!(!is_skipped, "messages arrive in order: {from} after {later}");
        }
        self.at[qp].last = Some(from);
        if self.host.srq.is_none() && self.setting.is_lossless {
            let place = self.setting.place(qp, self.at[qp].received);
            assert_eq!(wc.wr_id(), place as u64, "in order, and each once");
        }
        let Op::Send { bytes, .. } = self.theirs.ops[qp][from] else { unreachable!() };
        let header = self.setting.header();
        assert_eq!(wc.byte_len() as usize, header + bytes);
        let at = RECEIVED + wc.wr_id() as usize * PLACE + header;
        let from = self.setting.place(qp, from) * PLACE;
        expect_bytes(&self.ends[qp], at, (other, from, bytes), false, "a SEND");
        self.at[qp].received += 1;
    }

    /// What the peer wrote and added.
    fn check_memory(&self) {
        let (end, other) = (&self.ends[0], 1 - self.rank.index());
        let mut sum = 0u64;
        for (qp, index, op) in self.theirs.all() {
            match *op {
                Op::Write { bytes } => {
                    let at = self.setting.place(qp, index) * PLACE;
                    let may_lack = !self.setting.is_lossless;
                    expect_bytes(end, WRITTEN + at, (other, at, bytes), may_lack, "a WRITE");
                }
                Op::Add { add } => sum = sum.wrapping_add(add),
                Op::Send { .. } | Op::Read { .. } => {}
            }
        }
        assert_eq!(end.mr.buffer().read_u64(COUNTER), sum, "each atomic is executed once");
    }

    fn run(&mut self) {
        let me = self.rank.index();
        let is_sent = |op: &Op| matches!(op, Op::Send { .. } | Op::Write { .. });
        self.own.fill_sent(&self.setting, &self.ends[0], me, is_sent);
        let is_read = |op: &Op| matches!(op, Op::Read { .. });
        self.theirs.fill_sent(&self.setting, &self.ends[0], me, is_read);
        if !self.is_reliable() {
            for qp in 0..self.setting.qps {
                (0..self.expected[qp]).for_each(|_| self.receive(qp));
            }
        }
        self.rank.barrier().unwrap();
        while !self.is_over() {
            self.step();
        }
        self.rank.barrier().unwrap();
        // An acknowledgement may arrive before the bytes of its WRITE are in memory, and nobody
        // says when the last message arrives that may be lost.
        self.rank.sleep(50_000_000).unwrap();
        while let Some(found) = self.look() {
            assert!(!self.setting.is_lossless, "nothing completes twice: {found:?}");
            self.take(found);
        }
        self.check_memory();
    }
}

/// Returns how many packets were disturbed.
fn run(seed: u64) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let profile = adapter(&mut random);
    let qp_type = random.pick(&[QpType::Rc, QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud]);
    let rules = rules(&mut random);
    let setting = Setting {
        qp_type,
        qps: random.between(1, 3) as usize,
        most_bytes: match qp_type {
            QpType::Ud => profile.parameters.mtu_bytes as usize,
            _ => PLACE,
        },
        is_lossless: qp_type == QpType::Rc || rules.is_none(),
    };
    let programs = [(); 2].map(|()| program(&mut random, &setting));
    let on_demand = [(); 2].map(|()| qp_type == QpType::Rc && random.chance(400));
    let (mut simulation, device) = lab(&profile, 2);
    if let Some(rules) = rules {
        simulation = simulation.with_faults(&rules, 0)?;
    }
    let (results, report) = simulation.run(|rank| {
        let me = rank.index();
        let (own, theirs) = (&programs[me], &programs[1 - me]);
        let shape = Shape { qp_type, bytes: BYTES, on_demand: on_demand[me], ..Shape::default() };
        let host = Host::new(&device, shape, own.has_srq);
        let ends: Vec<Endpoint> =
            (0..setting.qps).map(|_| host.connect(rank, shape, 1 - me)).collect();
        let numbers = ends.iter().enumerate().map(|(qp, end)| (end.qp.qp_num(), qp)).collect();
        let (at, expected) = (vec![Progress::default(); setting.qps], theirs.sends());
        Play { rank, setting, host: &host, ends: &ends, own, theirs, at, numbers, expected }.run();
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
