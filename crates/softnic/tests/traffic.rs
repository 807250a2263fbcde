//! Every opcode of RC, UC and UD, at the message sizes around limits, between processes and within
//! one. The data must arrive unchanged, and no other byte may change.

mod support;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use support::node::*;
use support::*;

/// Number of bytes on each side of a message that must stay unchanged.
const FENCE: usize = 64;
/// Their value.
const FENCE_BYTE: u8 = 0xee;
/// The opcodes that carry a payload from the initiator.
const PUSHES: [WrOpcode; 4] =
    [WrOpcode::Write, WrOpcode::WriteImm, WrOpcode::Send, WrOpcode::SendImm];

#[test]
fn child_process_entry() {
    play(&[
        ("talker", |mut topology| talk(&topology.link(1), &Run::new(&topology.args, 0))),
        ("listener", |mut topology| listen(&topology.link(0), &Run::new(&topology.args, 1))),
        ("loopback", loopback),
        ("ring of three", ring_of_three),
        ("threads", threads),
        ("shared queue", shared_queue),
        ("everybody", everybody),
    ]);
}

/// One side's parameters.
struct Run {
    qp_type: QpType,
    mtu: u32,
    kind: Kind,
    device: u32,
    sizes: Vec<usize>,
}

impl Run {
    /// Arguments: transport, MTU, kind of memory, whether the listener is on `soft1`, whether
    /// messages are huge.
    fn new(args: &[u64], side: u32) -> Run {
        let qp_type = QpType::from_ibv(args[0] as u32).expect("a transport");
        let mtu = args[1] as u32;
        let bytes = 128_usize << mtu;
        let mut sizes = vec![0, 1, 7, 8, 9, 31, 32, 33, bytes - 1, bytes];
        if qp_type != QpType::Ud {
            sizes.extend([bytes + 1, 2 * bytes, 32_767, 32_768, 32_769, 1 << 20]);
        }
        if args[4] == 1 {
            sizes = vec![64 << 20];
        }
        Run {
            qp_type,
            mtu,
            kind: Kind::from_arg(args[2]),
            device: if args[3] == 1 { side } else { 0 },
            sizes,
        }
    }

    fn setup(&self) -> Setup {
        Setup { access: ALL_RIGHTS, ..Setup::new(self.qp_type).mtu(self.mtu) }
    }

    fn room(&self) -> usize {
        self.sizes.iter().max().expect("sizes") + 2 * FENCE + 40
    }

    fn opcodes(&self) -> &'static [WrOpcode] {
        if self.qp_type == QpType::Ud { &PUSHES[2..] } else { &PUSHES }
    }
}

/// Byte `at` of message `number`.
fn byte(number: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8) ^ number.wrapping_mul(0x6d)) as u8
}

fn pattern(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| byte(number, at)).collect()
}

/// A message of `length` bytes at FENCE, in up to five uneven pieces.
fn pieces(mem: &Mem, length: usize, number: usize) -> Vec<Sge> {
    let count = [1, 2, 5][number % 3].min(length.max(1));
    let (mut sges, mut at) = (Vec::new(), 0);
    for left in (1..=count).rev() {
        let take = if left == 1 { length - at } else { (length - at) / (left + 1) };
        sges.push(mem.sge(FENCE + at, take));
        at += take;
    }
    sges
}

fn check_fences(mem: &Mem, length: usize, what: &str) {
    for at in [0, FENCE + length] {
        assert!(mem.read(at, FENCE).iter().all(|b| *b == FENCE_BYTE), "{what}: beside at {at}");
    }
}

/// The immediate data and flags of message `number`.
fn imm(opcode: WrOpcode, number: usize) -> (u32, bool) {
    let has = matches!(opcode, WrOpcode::WriteImm | WrOpcode::SendImm);
    (if has { 0xabcd_0000 | number as u32 } else { 0 }, has)
}

/// The active side.
fn talk(link: &Link, run: &Run) {
    let node = Node::open(run.device);
    let endpoint = node.endpoint(&run.setup());
    let to = endpoint.connect_over(link);
    let mem = node.mem(run.room(), run.kind);
    let theirs = link.get();
    let mut number = 0;
    for size in &run.sizes {
        for opcode in run.opcodes() {
            for inline in [false, true] {
                if inline && *size > 1024 {
                    continue;
                }
                push(link, &endpoint, &mem, to, &theirs, (*opcode, *size, number, inline));
                number += 1;
            }
        }
        if run.qp_type == QpType::Rc {
            pull(link, &endpoint, &mem, &theirs, *size, number);
            number += 1;
        }
    }
    if run.qp_type == QpType::Rc {
        atomics(link, &endpoint, &mem, &theirs);
    }
    link.sync();
}

fn push(
    link: &Link,
    endpoint: &Endpoint,
    mem: &Mem,
    to: Address,
    theirs: &[u64],
    (opcode, size, number, inline): (WrOpcode, usize, usize, bool),
) {
    link.sync();
    mem.write(FENCE, &pattern(number, size));
    let sges = pieces(mem, size, number);
    let (imm_or_rkey, _) = imm(opcode, number);
    endpoint.run(SendWr {
        flags: if inline { SendFlags::INLINE } else { SendFlags::NONE },
        imm_or_rkey,
        ud: (endpoint.setup.qp_type == QpType::Ud).then(|| ud(to)),
        ..rdma(opcode, &sges, theirs[0] + FENCE as u64, theirs[1] as u32)
    });
    link.sync();
}

/// READ: the listener provides the message.
fn pull(link: &Link, endpoint: &Endpoint, mem: &Mem, theirs: &[u64], size: usize, number: usize) {
    mem.fill(0, mem.len, FENCE_BYTE);
    link.sync();
    let sges = pieces(mem, size, number);
    let wc = endpoint.run(rdma(WrOpcode::Read, &sges, theirs[0] + FENCE as u64, theirs[1] as u32));
    assert_eq!(wc.byte_len, size as u32);
    assert_eq!(mem.read(FENCE, size), pattern(number, size), "READ of {size}");
    check_fences(mem, size, "READ");
    link.sync();
}

fn atomics(link: &Link, endpoint: &Endpoint, mem: &Mem, theirs: &[u64]) {
    link.sync();
    let sges = [mem.sge(8, 8)];
    let (addr, rkey) = (theirs[0] + 16, theirs[1] as u32);
    for step in 0..100u64 {
        let before = step * 7;
        let add = SendWr { compare_add: 3, ..rdma(WrOpcode::FetchAdd, &sges, addr, rkey) };
        endpoint.run(add);
        assert_eq!(mem.word(8), before);
        let swap = SendWr {
            compare_add: before + 3,
            swap: before + 7,
            ..rdma(WrOpcode::CmpSwap, &sges, addr, rkey)
        };
        endpoint.run(swap);
        assert_eq!(mem.word(8), before + 3);
        let vain = SendWr { compare_add: 1, ..swap };
        endpoint.run(vain);
        assert_eq!(mem.word(8), before + 7);
    }
    link.sync();
}

/// The passive side, with the same steps.
fn listen(link: &Link, run: &Run) {
    let node = Node::open(run.device);
    let endpoint = node.endpoint(&run.setup());
    endpoint.connect_over(link);
    let mem = node.mem(run.room(), run.kind);
    link.put(&[mem.addr(), mem.rkey as u64]);
    let mut number = 0;
    for size in &run.sizes {
        for opcode in run.opcodes() {
            for inline in [false, true] {
                if inline && *size > 1024 {
                    continue;
                }
                take(link, &endpoint, &mem, run, (*opcode, *size, number));
                number += 1;
            }
        }
        if run.qp_type == QpType::Rc {
            mem.write(FENCE, &pattern(number, *size));
            link.sync();
            link.sync();
            number += 1;
        }
    }
    if run.qp_type == QpType::Rc {
        mem.write(16, &[0; 8]);
        link.sync();
        link.sync();
        assert_eq!(mem.word(16), 700);
    }
    link.sync();
}

fn take(
    link: &Link,
    endpoint: &Endpoint,
    mem: &Mem,
    run: &Run,
    (opcode, size, number): (WrOpcode, usize, usize),
) {
    mem.fill(0, mem.len, FENCE_BYTE);
    let header = if run.qp_type == QpType::Ud { 40 } else { 0 };
    let two_sided = opcode.consumes_receive();
    if two_sided {
        // One element more than the sender uses, so that their boundaries differ.
        let mut sges = pieces(mem, header + size, number + 1);
        if matches!(opcode, WrOpcode::WriteImm) {
            sges.clear();
        }
        endpoint.recv(number as u64, &sges);
    }
    link.sync();
    if two_sided {
        let wc = endpoint.recv_done();
        assert_eq!((wc.wr_id, wc.status), (number as u64, WcStatus::Success), "{wc:?}");
        assert_eq!(wc.byte_len as usize, header + size, "{opcode:?}");
        let (imm, has) = imm(opcode, number);
        assert_eq!(wc.wc_flags.contains(WcFlags::WITH_IMM), has);
        assert!(!has || wc.imm_or_rkey == imm, "{wc:?}");
        let expected = match opcode {
            WrOpcode::WriteImm => WcOpcode::RecvRdmaWithImm,
            _ => WcOpcode::Recv,
        };
        assert_eq!(wc.opcode, expected);
    }
    link.sync();
    let body = FENCE + header;
    let want = pattern(number, size);
    if run.qp_type == QpType::Uc && !two_sided {
        // On UC the completion of a WRITE does not show that the data have arrived.
        until("a UC WRITE arrives", || {
            poll(&endpoint.recv_cq, 1);
            mem.read(body, size) == want
        });
    }
    assert!(mem.read(body, size) == want, "{:?} {opcode:?} {size}: bytes", run.qp_type);
    check_fences(mem, header + size, &format!("{opcode:?} {size}"));
}

fn pair_of(args: &[u64]) {
    Processes::start(&[("talker", args), ("listener", args)]).finish();
}

#[test]
fn rc_carries_every_opcode_between_processes() {
    for (mtu, kind, other_device) in [(1, 0, 0), (3, 1, 1), (5, 0, 1), (5, 1, 0)] {
        pair_of(&[QpType::Rc as u64, mtu, kind, other_device, 0]);
    }
}

#[test]
fn uc_carries_every_opcode_between_processes() {
    for (mtu, kind, other_device) in [(1, 1, 0), (5, 0, 1)] {
        pair_of(&[QpType::Uc as u64, mtu, kind, other_device, 0]);
    }
}

#[test]
fn ud_carries_sends_between_processes() {
    for (kind, other_device) in [(0, 0), (1, 1)] {
        pair_of(&[QpType::Ud as u64, 5, kind, other_device, 0]);
    }
}

#[test]
fn huge_messages_arrive() {
    for (qp_type, mtu, kind) in [(QpType::Rc, 5, 0), (QpType::Rc, 1, 1), (QpType::Uc, 5, 1)] {
        pair_of(&[qp_type as u64, mtu, kind, 0, 1]);
    }
}

#[test]
fn huge_messages_arrive_by_the_ring() {
    let args = [QpType::Rc as u64, 5, 0, 0, 1];
    let roles: &[(&str, &[u64])] = &[("talker", &args), ("listener", &args)];
    Processes::start_plan(&Plan { roles, links: 1, env: &[("RDMALAB_LANE", "off")] }).finish();
}

/// Both ends in one process.
fn loopback(topology: Topology) {
    let (a, b) = Link::pair();
    let args = topology.args.clone();
    let listener = std::thread::spawn(move || listen(&b, &Run::new(&args, 1)));
    talk(&a, &Run::new(&topology.args, 0));
    listener.join().expect("the listener");
}

#[test]
fn a_process_talks_to_itself() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        for kind in [0, 1] {
            let args = [qp_type as u64, 5, kind, 1, 0];
            Processes::start(&[("loopback", &args)]).finish();
        }
    }
}

/// Is the active side for the next process and, meanwhile, the passive one for the process before.
fn ring_of_three(mut topology: Topology) {
    let me = topology.index;
    // Each pair has two links; on the first, the process with the lower index is active.
    let mut link_for = |other: usize, talks: usize| {
        let (first, second) = (topology.link(other), topology.link(other));
        if talks == me.min(other) { first } else { second }
    };
    let next = link_for((me + 1) % 3, me);
    let previous = (me + 2) % 3;
    let before = link_for(previous, previous);
    let args = topology.args.clone();
    let listener = std::thread::spawn(move || listen(&before, &Run::new(&args, 1)));
    talk(&next, &Run::new(&topology.args, 0));
    listener.join().expect("the listener");
}

#[test]
fn three_processes_talk_at_once() {
    for qp_type in [QpType::Rc, QpType::Ud] {
        let args: &[u64] = &[qp_type as u64, 5, 0, 0, 0];
        let roles: &[(&str, &[u64])] =
            &[("ring of three", args), ("ring of three", args), ("ring of three", args)];
        Processes::start_plan(&Plan { roles, links: 2, env: &[] }).finish();
    }
}

/// Four threads, each with a QP and CQs of its own, to the same peer.
fn threads(mut topology: Topology) {
    let other = 1 - topology.index;
    let links: Vec<Link> = (0..4).map(|_| topology.link(other)).collect();
    let talks = topology.index == 0;
    let workers = links.into_iter().enumerate().map(|(at, link)| {
        let args = [[QpType::Rc as u64, QpType::Uc as u64][at % 2], 5, (at / 2) as u64, 0, 0];
        std::thread::spawn(move || match talks {
            true => talk(&link, &Run::new(&args, 0)),
            false => listen(&link, &Run::new(&args, 1)),
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.join().expect("a thread");
    }
}

#[test]
fn threads_share_the_way_to_a_peer() {
    let roles: &[(&str, &[u64])] = &[("threads", &[]), ("threads", &[])];
    Processes::start_plan(&Plan { roles, links: 4, env: &[] }).finish();
}

/// Requests that each thread of `shared_queue` posts.
const EACH: u64 = 2000;

/// Four threads post to QPs that share their CQs, and poll those at the same time.
fn shared_queue(mut topology: Topology) {
    let link = topology.link(1 - topology.index);
    let node = Node::open(0);
    let setup = Setup { cqe: 1024, ..Setup::new(QpType::Rc) };
    let (send_cq, recv_cq) = (node.cq(1024, None, 1), node.cq(1024, None, 2));
    let mem = node.mem(4096, Kind::Heap);
    let endpoints: Vec<Endpoint> =
        (0..4).map(|_| node.endpoint_on(&setup, &send_cq, &recv_cq, None)).collect();
    for endpoint in &endpoints {
        endpoint.connect_over(&link);
    }
    if topology.index == 0 {
        let done: Vec<_> = (0..4 * EACH).map(|_| std::sync::atomic::AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for (thread, endpoint) in endpoints.iter().enumerate() {
                let (mem, done) = (&mem, &done);
                scope.spawn(move || post_and_poll(thread as u64, endpoint, mem, done));
            }
        });
        assert!(done.iter().all(|count| count.load(ORDER) == 1), "each completes once");
    } else {
        receive_in_order(&endpoints, &mem, 4 * EACH);
    }
    link.sync();
}

const ORDER: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

fn post_and_poll(
    thread: u64,
    endpoint: &Endpoint,
    mem: &Mem,
    done: &[std::sync::atomic::AtomicU32],
) {
    let sges = [mem.sge(0, 16)];
    let mut posted = 0;
    // Each thread also polls completions of other threads' QPs, so all end when everything is done.
    until("all is done", || {
        while posted < EACH {
            let wr_id = thread * EACH + posted;
            let imm_or_rkey = posted as u32;
            let wr = SendWr { wr_id, imm_or_rkey, ..wr(WrOpcode::SendImm, &sges) };
            match endpoint.post(wr) {
                Ok(()) => posted += 1,
                Err(PostError::QueueFull) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        for wc in poll(&endpoint.send_cq, 8) {
            assert_eq!(wc.status, WcStatus::Success);
            done[wc.wr_id as usize].fetch_add(1, ORDER);
        }
        posted == EACH && done.iter().all(|count| count.load(ORDER) > 0)
    });
}

/// Receives on all endpoints and reposts; the messages of each QP must arrive in order.
fn receive_in_order(endpoints: &[Endpoint], mem: &Mem, messages: u64) {
    let sges = [mem.sge(64, 16)];
    for endpoint in endpoints {
        (0..64).for_each(|_| endpoint.recv(0, &sges));
    }
    let (mut next, mut count) = ([0; 4], 0);
    until("all messages", || {
        for wc in poll(&endpoints[0].recv_cq, 16) {
            assert_eq!(wc.status, WcStatus::Success);
            let of = endpoints.iter().position(|endpoint| endpoint.qpn == wc.qp_num);
            let of = of.expect("one of ours");
            assert_eq!(wc.imm_or_rkey, next[of], "in order");
            next[of] += 1;
            endpoints[of].recv(0, &sges);
            count += 1;
        }
        count == messages
    });
}

#[test]
fn threads_share_a_queue() {
    Processes::start(&[("shared queue", &[]), ("shared queue", &[])]).finish();
}

/// The number of processes of `everybody`, and of the messages from each to each other.
const CROWD: usize = 20;
const LETTERS: usize = 50;

/// All to all, small messages.
fn everybody(mut topology: Topology) {
    let node = Node::open(topology.index as u32 % 2);
    let setup = Setup { cqe: 8192, ..Setup::new(QpType::Rc) };
    let (send_cq, recv_cq) = (node.cq(8192, None, 1), node.cq(8192, None, 2));
    let mem = node.mem(1 << 16, Kind::Heap);
    let mut others = Vec::new();
    let me = topology.index;
    for other in (0..CROWD).filter(|other| *other != me) {
        let endpoint = node.endpoint_on(&setup, &send_cq, &recv_cq, None);
        endpoint.connect_over(&topology.link(other));
        (0..LETTERS).for_each(|_| endpoint.recv(other as u64, &[mem.sge(0, 32)]));
        others.push(endpoint);
    }
    topology.parent.sync();
    let sges = [mem.sge(64, 32)];
    for number in 0..LETTERS as u32 {
        for endpoint in &others {
            endpoint.send(SendWr { imm_or_rkey: number, ..wr(WrOpcode::SendImm, &sges) });
        }
    }
    let expected = others.len() * LETTERS;
    let (mut next, mut received, mut sent) = ([0; CROWD], 0, 0);
    until("all letters", || {
        for wc in poll(&recv_cq, 64) {
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            assert_eq!(wc.imm_or_rkey, next[wc.wr_id as usize], "in order");
            next[wc.wr_id as usize] += 1;
            received += 1;
        }
        let done = poll(&send_cq, 64);
        assert!(done.iter().all(|wc| wc.status == WcStatus::Success), "{done:?}");
        sent += done.len();
        received == expected && sent == expected
    });
    topology.parent.sync();
}

#[test]
fn twenty_processes_talk_to_each_other() {
    let roles: Vec<(&str, &[u64])> = (0..CROWD).map(|_| ("everybody", &[] as &[u64])).collect();
    let processes = Processes::start(&roles);
    for _ in 0..2 {
        (0..CROWD).for_each(|index| processes.link(index).sync());
    }
    processes.finish();
}
