//! Two ways for the same requests: the local lane compared with the ring, the short way of SENDs of
//! one packet compared with the general steps, and captured requests with others. The same random
//! verbs, legal and illegal, must give the same memory, completions and final QP states. A seed
//! replays a run: `RDMALAB_SEED=N cargo test -p rdmalab-softnic --test differential`.

mod support;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_random::Random;
use rdmalab_softnic::{SoftNic, Srq};
use rdmalab_testing::{regressions, seeds_times};
use support::node::*;
use support::*;

/// Size of each side's memory: one half is read, the other written.
const ROOM: usize = 256 << 10;
/// Bytes of one receive.
const RECEIVE: usize = 20_000;
/// Receives posted at the start: more than an episode uses.
const RECEIVES: usize = 80;
/// Connections of one seed.
const EPISODES: u64 = 6;
/// The most requests of a batch of small SENDs: as many as a send queue holds.
const BURST: u64 = 64;
/// A batch of other requests.
const BATCH: u64 = 7;
/// What a seed plays, its fourth number: any verbs, or mostly SENDs of one packet, to a receive
/// queue of the queue pair or to a shared one.
const ANY_VERBS: u64 = 0;
const SMALL_SENDS: u64 = 1;
const SMALL_SENDS_TO_SRQ: u64 = 2;
/// Rules that are armed and disturb nothing, for they speak of packets between hosts. With a rule
/// armed, a process does not use the short way.
const ARMED: (&str, &str) = ("RDMALAB_FAULTS", "drop over network");
/// Marks the last message of a UC episode.
const LAST: u32 = 0x1a57;

#[test]
fn child_process_entry() {
    play(&[
        ("initiator", |mut topology| {
            let words = initiate(&topology.link(1), &topology.args);
            topology.parent.put(&words);
        }),
        ("responder", |mut topology| {
            let words = respond(&topology.link(0), &topology.args);
            topology.parent.put(&words);
        }),
        ("both", both),
    ]);
}

fn both(topology: Topology) {
    let (a, b) = Link::pair();
    let args = topology.args.clone();
    let responder = std::thread::spawn(move || respond(&b, &args));
    let mut words = initiate(&a, &topology.args);
    words.extend(responder.join().expect("the responder"));
    topology.parent.put(&words);
}

/// FNV-1a over a copy of the memory.
fn digest(mem: &Mem) -> u64 {
    let bytes = mem.read(0, mem.len);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn fill_at_random(mem: &Mem, random: &mut Random) {
    let bytes: Vec<u8> = (0..mem.len / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    mem.write(0, &bytes);
}

/// The parts of a completion that must be equal.
fn essence(wc: &Wc) -> [u64; 5] {
    let good = wc.status == WcStatus::Success;
    let with_length = good && matches!(wc.opcode, WcOpcode::RdmaRead | WcOpcode::Recv);
    [
        wc.wr_id,
        wc.status as u64,
        if good { wc.opcode as u64 } else { 0 },
        if with_length { wc.byte_len as u64 } else { 0 },
        if good && wc.wc_flags.contains(WcFlags::WITH_IMM) { wc.imm_or_rkey as u64 } else { 0 },
    ]
}

fn transport(args: &[u64]) -> QpType {
    QpType::from_ibv(args[2] as u32).expect("a transport")
}

/// The setup for the QP of an episode; sometimes the responder's QP lacks an access right.
fn setup(args: &[u64], episode: u64, responder: bool) -> Setup {
    let mut random = Random::new(args[0] ^ episode << 32);
    let mut setup = Setup::new(transport(args)).mtu(1 + random.below(5) as u32);
    let lacking = match random.below(6) {
        0 => Access::REMOTE_WRITE,
        1 => Access::REMOTE_READ,
        2 => Access::REMOTE_ATOMIC,
        _ => Access::NONE,
    };
    if responder {
        setup.access = ALL_RIGHTS.without(lacking);
    }
    setup.cap.max_recv_wr = RECEIVES as u32;
    setup
}

/// The responder's memory as it describes it.
struct Target {
    addr: u64,
    /// Keys: all rights, no write, no read, of another domain, invalidated.
    keys: [u32; 5],
}

/// Posts the requests of one episode and writes the results into `report`.
struct Author<'a> {
    random: Random,
    endpoint: &'a Endpoint,
    mem: &'a Mem,
    read_only: &'a Mem,
    target: Target,
    next_id: u64,
    /// A fence is needed: a READ or atomic may be incomplete, or its target may be sent.
    fence: bool,
    /// A READ or atomic finds its local fault when its response arrives. Whether later requests
    /// are executed before that is a matter of time, unless they have a fence.
    fails_late: bool,
    /// Most requests are SENDs of one packet.
    is_small: bool,
}

impl Author<'_> {
    /// One chance in `n`.
    fn chance(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    fn length(&mut self) -> usize {
        let length = match self.random.below(if self.is_small { 12 } else { 4 }) {
            // What a slot of the ring holds, and a little more.
            4..8 => self.random.below(36),
            // What a packet holds, and a little more.
            8.. => self.random.below((128 << self.endpoint.setup.mtu) + 9),
            0 => self.random.below(40),
            1 => self.random.below(1024),
            2 => self.random.below(9000),
            _ => [0, 8, 4096, 4097, 16_384][self.random.below(5) as usize],
        };
        length as usize
    }

    /// Up to four elements of our memory, to be read or to be written.
    fn local(&mut self, length: usize, write: bool) -> Vec<Sge> {
        let mut sges = Vec::new();
        let mut left = length;
        let half = ROOM / 2;
        while left > 0 && sges.len() < 4 {
            let is_last = sges.len() == 3 || self.is_small && !self.chance(8);
            let take = if is_last { left } else { 1 + self.random.below(left as u64) as usize };
            // Elements that are written do not overlap: each lies in its own quarter.
            let quarter = half / 4;
            let at = match write {
                true => {
                    half + sges.len() * quarter
                        + self.random.below((quarter - take) as u64) as usize
                }
                false => self.random.below((half - take) as u64) as usize,
            };
            sges.push(self.mem.sge(at, take));
            left -= take;
        }
        if self.chance(60) && !sges.is_empty() {
            // A local fault: a wrong lkey, or memory without local write access.
            sges[0] = match self.chance(2) && write {
                true => self.read_only.sge(0, (sges[0].length as usize).min(4096)),
                false => Sge { lkey: sges[0].lkey ^ 0x5500, ..sges[0] },
            };
            self.fails_late |= write;
        }
        sges
    }

    /// A remote address and rkey, sometimes wrong.
    fn remote(&mut self, length: usize) -> (u64, u32) {
        let offset = self.random.below((ROOM - length) as u64);
        let good = (self.target.addr + offset, self.target.keys[0]);
        match self.random.below(240) {
            0..=3 => (good.0, self.target.keys[1 + self.random.below(4) as usize]),
            4 => (self.target.addr + (ROOM - length) as u64 + 1, good.1),
            5 => (self.target.addr - 1, good.1),
            6 => (good.0, good.1 ^ 1),
            7 => (u64::MAX - 3, good.1),
            _ => good,
        }
    }

    fn post_one(&mut self, is_signaled: bool) {
        let rc = self.endpoint.setup.qp_type == QpType::Rc;
        let opcode = match self.random.below(if rc { 11 } else { 7 }) {
            _ if self.is_small && !self.chance(16) => match self.chance(4) {
                true => WrOpcode::SendImm,
                false => WrOpcode::Send,
            },
            0..=3 => WrOpcode::Write,
            4 => WrOpcode::WriteImm,
            5 => WrOpcode::Send,
            6 => WrOpcode::SendImm,
            7 | 8 => WrOpcode::Read,
            9 => WrOpcode::FetchAdd,
            _ => WrOpcode::CmpSwap,
        };
        let atomic = matches!(opcode, WrOpcode::FetchAdd | WrOpcode::CmpSwap);
        let mut length = if atomic { 8 } else { self.length() };
        if self.chance(150) && opcode == WrOpcode::Send {
            length = RECEIVE + 1;
        }
        let sges = self.local(length, opcode.is_read_or_atomic());
        let length: usize = sges.iter().map(|sge| sge.length as usize).sum();
        let (mut addr, rkey) = self.remote(length);
        if atomic && !self.chance(40) {
            addr &= !7;
        }
        let mut flags = if is_signaled { SendFlags::SIGNALED } else { SendFlags::NONE };
        if self.is_small && self.chance(8) {
            flags = flags | SendFlags::SOLICITED;
        }
        if !opcode.is_read_or_atomic() && length <= 1024 && self.chance(3) {
            flags = flags | SendFlags::INLINE;
        }
        // No READ or atomic uses the memory of SENDs, which otherwise would not go the short way.
        let is_small_send = self.is_small && matches!(opcode, WrOpcode::Send | WrOpcode::SendImm);
        let is_fenced = self.fence && !is_small_send || self.chance(8);
        if is_fenced || self.fails_late {
            flags = flags | SendFlags::FENCE;
        }
        self.fence |= opcode.is_read_or_atomic();
        self.next_id += 1;
        let (compare_add, swap) = (self.random.below(3), self.random.next_u64());
        self.endpoint.send(SendWr {
            wr_id: self.next_id,
            flags,
            imm_or_rkey: self.next_id as u32,
            compare_add,
            swap,
            ..rdma(opcode, &sges, addr, rkey)
        });
    }

    /// Posts batches until a request fails or few receives are left; the completions go into
    /// `report`.
    fn write(&mut self, report: &mut Vec<u64>) {
        while self.next_id < RECEIVES as u64 - BATCH {
            let most = if self.is_small && self.chance(3) { BURST } else { BATCH };
            let batch = 1 + self.random.below(most.min(RECEIVES as u64 - BATCH - self.next_id));
            self.fence = false;
            for left in (0..batch).rev() {
                let is_quiet = self.is_small && left > 0 && self.chance(2);
                self.post_one(!is_quiet);
            }
            let mut failed = false;
            // The last one has a completion in any case, and all others before it.
            loop {
                let wc = self.endpoint.send_done();
                failed |= wc.status != WcStatus::Success;
                report.extend(essence(&wc));
                if wc.wr_id == self.next_id {
                    break;
                }
            }
            if failed {
                break;
            }
        }
    }
}

fn initiate(link: &Link, args: &[u64]) -> Vec<u64> {
    let node = Node::open(0);
    let mem = node.mem(ROOM, Kind::Heap);
    let read_only = node.mem_with(4096, Kind::Heap, Access::REMOTE_READ);
    let mut random = Random::new(args[0]);
    fill_at_random(&mem, &mut random);
    let theirs = link.get();
    let mut report = Vec::new();
    for episode in 0..EPISODES {
        let endpoint = node.endpoint(&setup(args, episode, false));
        endpoint.connect_over(link);
        let keys = std::array::from_fn(|at| theirs[1 + at] as u32);
        let mut author = Author {
            random: Random::new(random.next_u64()),
            endpoint: &endpoint,
            mem: &mem,
            read_only: &read_only,
            target: Target { addr: theirs[0], keys },
            next_id: 0,
            fence: false,
            fails_late: false,
            is_small: args[3] != ANY_VERBS,
        };
        author.write(&mut report);
        if endpoint.setup.qp_type == QpType::Uc {
            let state = endpoint.state();
            report.push(state as u64);
            if state == QpState::Sqe {
                endpoint.to_state(QpState::Rts);
            }
            endpoint.run(SendWr { imm_or_rkey: LAST, ..wr(WrOpcode::SendImm, &[]) });
        }
        link.put(&[episode]);
        link.get();
        report.extend([endpoint.state() as u64, digest(&mem)]);
        SoftNic::destroy_qp(&endpoint.qp).expect("destruction");
    }
    report
}

fn respond(link: &Link, args: &[u64]) -> Vec<u64> {
    let node = Node::open(0);
    let other = Node::open(0);
    let mem = node.mem(ROOM, Kind::from_arg(args[1]));
    fill_at_random(&mem, &mut Random::new(!args[0]));
    let with = |node: &Node, access| node.register(mem.at, mem.len, access);
    let no_write = with(&node, Access::LOCAL_WRITE | Access::REMOTE_READ);
    let no_read = with(&node, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let (foreign, gone) = (with(&other, ALL_RIGHTS), with(&node, ALL_RIGHTS));
    SoftNic::dereg_mr(&gone.mr).expect("deregistration");
    let inbox = node.mem(RECEIVES * RECEIVE, Kind::Heap);
    let keys = [mem.rkey, no_write.rkey, no_read.rkey, foreign.rkey, gone.rkey];
    let mut words = vec![mem.addr()];
    words.extend(keys.map(u64::from));
    link.put(&words);
    let mut report = Vec::new();
    for episode in 0..EPISODES {
        let srq = (args[3] == SMALL_SENDS_TO_SRQ).then(|| shared_receives(&node));
        let setup = setup(args, episode, true);
        let cqs = (node.cq(setup.cqe, None, 1), node.cq(setup.cqe, None, 2));
        let endpoint = node.endpoint_on(&setup, &cqs.0, &cqs.1, srq.as_ref());
        endpoint.to_init();
        let mut random = Random::new(args[0] ^ !episode);
        for at in 0..RECEIVES {
            // Of one piece, or of two that are not next to each other.
            let first = if random.below(8) == 0 { random.below(64) as usize } else { 0 };
            let base = at * RECEIVE;
            let sges = [inbox.sge(base, first), inbox.sge(base + first, RECEIVE - first)];
            let sges = if first == 0 { &sges[1..] } else { &sges[..] };
            match &srq {
                Some(srq) => {
                    let wr = RecvWr { wr_id: at as u64, sges };
                    SoftNic::post_srq_recv(srq, std::iter::once(wr)).expect("a receive is taken");
                }
                None => endpoint.recv(at as u64, sges),
            }
        }
        endpoint.connect_from_init_over(link);
        let found = collect(link, &endpoint, srq.is_some());
        report.extend(found.iter().flat_map(essence));
        // A message that does not fit may leave its first packets, or nothing.
        for wc in found.iter().filter(|wc| wc.status != WcStatus::Success) {
            inbox.fill(wc.wr_id as usize * RECEIVE, RECEIVE, 0);
        }
        report.extend([found.len() as u64, endpoint.state() as u64, digest(&mem), digest(&inbox)]);
        SoftNic::destroy_qp(&endpoint.qp).expect("destruction");
        if let Some(srq) = srq {
            SoftNic::destroy_srq(&srq).expect("destruction");
        }
        link.put(&[]);
    }
    report
}

fn shared_receives(node: &Node) -> Srq {
    let init = SrqInit { max_wr: RECEIVES as u32, max_sge: 2, srq_limit: 0, cookie: 1 };
    SoftNic::create_srq(&node.pd, init).expect("an SRQ").0
}

/// Polls until the initiator has ended the episode and no completion can follow. Returns the
/// completions.
fn collect(link: &Link, endpoint: &Endpoint, is_shared: bool) -> Vec<Wc> {
    let (mut found, mut over, mut last) = (vec![], false, endpoint.setup.qp_type == QpType::Rc);
    until("the episode ends", || {
        for wc in poll(&endpoint.recv_cq, 16) {
            last |= wc.imm_or_rkey == LAST && wc.wc_flags.contains(WcFlags::WITH_IMM);
            found.push(wc);
        }
        if !over {
            over = link.ready(0);
            return false;
        }
        // On RC all messages have arrived when the initiator has its completions. A QP in ERR
        // flushes all receives, except those of a shared queue.
        match endpoint.state() {
            QpState::Err if !is_shared => found.len() == RECEIVES,
            _ => last && poll(&endpoint.recv_cq, 0).is_empty(),
        }
    });
    found.extend(poll(&endpoint.recv_cq, RECEIVES));
    link.get();
    found
}

/// The reports of both sides under these environment variables.
fn reports(roles: &[(&str, &[u64])], env: &[(&str, &str)]) -> Vec<Vec<u64>> {
    let mut processes = Processes::start_plan(&Plan { roles, links: 1, env });
    let reports = (0..roles.len()).map(|index| processes.link(index).get()).collect();
    (0..roles.len()).for_each(|index| processes.expect_end(index));
    reports
}

/// The environments of the two ways.
type Ways<'a> = [&'a [(&'a str, &'a str)]; 2];

const LANE_AND_RING: Ways<'_> = [&[("RDMALAB_LANE", "on")], &[("RDMALAB_LANE", "off")]];
const SHORT_AND_GENERAL: Ways<'_> = [&[("RDMALAB_LANE", "off")], &[("RDMALAB_LANE", "off"), ARMED]];

fn compare(ways: Ways<'_>, names: &[&str], args: &[u64]) {
    let roles: Vec<(&str, &[u64])> = names.iter().map(|name| (*name, args)).collect();
    let [one, other] = ways.map(|env| reports(&roles, env));
    for (index, name) in names.iter().enumerate() {
        let (one, other) = (&one[index], &other[index]);
        let at = one.iter().zip(other).position(|(a, b)| a != b);
        let shown = at.map(|at| {
            let around = |words: &[u64]| -> Vec<u64> {
                words[at.saturating_sub(10)..].iter().take(20).copied().collect()
            };
            (at, around(one), around(other))
        });
        assert!(at.is_none() && one.len() == other.len(), "seed {args:?}, {name}: {shown:?}");
        assert!(one.len() > 20, "something was reported");
    }
}

/// Compares the ways with seeds; their fourth number is `what`.
fn compare_seeds(
    ways: Ways<'_>,
    names: &[&str],
    qp_type: QpType,
    what: u64,
    seeds: impl Iterator<Item = u64>,
) {
    for seed in seeds {
        eprintln!("seed {seed}");
        compare(ways, names, &[seed, seed % 2, qp_type as u64, what]);
    }
}

const TWO_PROCESSES: &[&str] = &["initiator", "responder"];
const ONE_PROCESS: &[&str] = &["both"];

#[test]
fn lane_and_ring_agree_on_rc() {
    compare_seeds(LANE_AND_RING, TWO_PROCESSES, QpType::Rc, ANY_VERBS, seeds_times(1, 40));
}

#[test]
fn lane_and_ring_agree_on_uc() {
    compare_seeds(LANE_AND_RING, TWO_PROCESSES, QpType::Uc, ANY_VERBS, seeds_times(1001, 10));
}

#[test]
fn lane_and_ring_agree_within_a_process() {
    compare_seeds(LANE_AND_RING, ONE_PROCESS, QpType::Rc, ANY_VERBS, seeds_times(2001, 20));
}

#[test]
fn the_short_way_and_the_general_one_agree() {
    let seeds = regressions(&[8001]).chain(seeds_times(3001, 30));
    compare_seeds(SHORT_AND_GENERAL, TWO_PROCESSES, QpType::Rc, SMALL_SENDS, seeds);
}

#[test]
fn the_short_way_and_the_general_one_agree_with_a_shared_receive_queue() {
    let seeds = seeds_times(4001, 20);
    compare_seeds(SHORT_AND_GENERAL, TWO_PROCESSES, QpType::Rc, SMALL_SENDS_TO_SRQ, seeds);
}

#[test]
fn the_short_way_and_the_general_one_agree_within_a_process() {
    compare_seeds(SHORT_AND_GENERAL, ONE_PROCESS, QpType::Rc, SMALL_SENDS, seeds_times(5001, 20));
}

/// Captured packets go ways of their own. What waits for the file must not be mixed up with what
/// the program receives.
#[test]
fn a_capture_changes_no_result() {
    let name = format!("rdmalab-differential-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("a.pcapng").display().to_string();
    let ways: Ways<'_> = [SHORT_AND_GENERAL[0], &[("RDMALAB_CAPTURE", &file)]];
    compare_seeds(ways, TWO_PROCESSES, QpType::Rc, ANY_VERBS, seeds_times(6001, 4));
    compare_seeds(ways, TWO_PROCESSES, QpType::Uc, ANY_VERBS, seeds_times(7001, 2));
    compare_seeds(ways, TWO_PROCESSES, QpType::Rc, SMALL_SENDS, seeds_times(3001, 4));
    let captures = std::fs::read_dir(&directory).expect("the directory").flatten();
    let bytes: u64 = captures.map(|file| file.metadata().map_or(0, |data| data.len())).sum();
    assert!(bytes > 100_000, "{bytes} bytes were captured");
    let _ = std::fs::remove_dir_all(&directory);
}
