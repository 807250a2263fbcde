//! The local lane compared with the ring: the same random verbs, legal and illegal, must give the
//! same memory, completions and final QP states. A seed replays a run: `RDMALAB_SEED=N cargo test
//! -p rdmalab-softnic --test differential`.

mod support;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_random::Random;
use rdmalab_softnic::SoftNic;
use rdmalab_testing::seeds_times;
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
}

impl Author<'_> {
    /// One chance in `n`.
    fn chance(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    fn length(&mut self) -> usize {
        let length = match self.random.below(4) {
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
            let take =
                if sges.len() == 3 { left } else { 1 + self.random.below(left as u64) as usize };
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

    fn post_one(&mut self) {
        let rc = self.endpoint.setup.qp_type == QpType::Rc;
        let opcode = match self.random.below(if rc { 11 } else { 7 }) {
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
        let mut flags = SendFlags::SIGNALED;
        if !opcode.is_read_or_atomic() && length <= 1024 && self.chance(3) {
            flags = flags | SendFlags::INLINE;
        }
        if self.fence || self.chance(8) {
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
        for _ in 0..10 {
            let batch = 1 + self.random.below(7);
            self.fence = false;
            (0..batch).for_each(|_| self.post_one());
            let mut failed = false;
            for _ in 0..batch {
                let wc = self.endpoint.send_done();
                failed |= wc.status != WcStatus::Success;
                report.extend(essence(&wc));
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
        let endpoint = node.endpoint(&setup(args, episode, true));
        endpoint.to_init();
        (0..RECEIVES).for_each(|at| endpoint.recv(at as u64, &[inbox.sge(at * RECEIVE, RECEIVE)]));
        endpoint.connect_from_init_over(link);
        let seen = collect(link, &endpoint, &mut report);
        report.extend([seen, endpoint.state() as u64, digest(&mem), digest(&inbox)]);
        SoftNic::destroy_qp(&endpoint.qp).expect("destruction");
        link.put(&[]);
    }
    report
}

/// Polls until the initiator has ended the episode and no completion can follow.
fn collect(link: &Link, endpoint: &Endpoint, report: &mut Vec<u64>) -> u64 {
    let (mut seen, mut over, mut last) = (0, false, endpoint.setup.qp_type == QpType::Rc);
    until("the episode ends", || {
        for wc in poll(&endpoint.recv_cq, 16) {
            report.extend(essence(&wc));
            last |= wc.imm_or_rkey == LAST && wc.wc_flags.contains(WcFlags::WITH_IMM);
            seen += 1;
        }
        if !over {
            over = link.ready(0);
            return false;
        }
        // On RC all messages have arrived when the initiator has its completions. A QP in ERR
        // flushes all receives.
        match endpoint.state() {
            QpState::Err => seen == RECEIVES as u64,
            _ => last && poll(&endpoint.recv_cq, 0).is_empty(),
        }
    });
    for wc in poll(&endpoint.recv_cq, RECEIVES) {
        report.extend(essence(&wc));
        seen += 1;
    }
    link.get();
    seen
}

/// The reports of both sides with the lane on or off.
fn reports(roles: &[(&str, &[u64])], lane: &str) -> Vec<Vec<u64>> {
    let mut processes =
        Processes::start_plan(&Plan { roles, links: 1, env: &[("RDMALAB_LANE", lane)] });
    let reports = (0..roles.len()).map(|index| processes.link(index).get()).collect();
    (0..roles.len()).for_each(|index| processes.expect_end(index));
    reports
}

fn compare(names: &[&str], args: &[u64]) {
    let roles: Vec<(&str, &[u64])> = names.iter().map(|name| (*name, args)).collect();
    let (lane, ring) = (reports(&roles, "on"), reports(&roles, "off"));
    for (index, name) in names.iter().enumerate() {
        let (lane, ring) = (&lane[index], &ring[index]);
        let at = lane.iter().zip(ring).position(|(a, b)| a != b);
        let shown = at.map(|at| {
            let around = |words: &[u64]| -> Vec<u64> {
                words[at.saturating_sub(10)..].iter().take(20).copied().collect()
            };
            (at, around(lane), around(ring))
        });
        assert!(at.is_none() && lane.len() == ring.len(), "seed {args:?}, {name}: {shown:?}");
        assert!(lane.len() > 20, "something was reported");
    }
}

fn compare_seeds(names: &[&str], qp_type: QpType, first: u64, count: u64) {
    for seed in seeds_times(first, count) {
        eprintln!("seed {seed}");
        compare(names, &[seed, seed % 2, qp_type as u64]);
    }
}

#[test]
fn lane_and_ring_agree_on_rc() {
    compare_seeds(&["initiator", "responder"], QpType::Rc, 1, 40);
}

#[test]
fn lane_and_ring_agree_on_uc() {
    compare_seeds(&["initiator", "responder"], QpType::Uc, 1001, 10);
}

#[test]
fn lane_and_ring_agree_within_a_process() {
    compare_seeds(&["both"], QpType::Rc, 2001, 20);
}
