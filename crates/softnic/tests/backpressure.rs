//! Senders that are faster than their receivers: posted messages wait in memory that does not grow,
//! and arrive once the receiver takes them.

mod support;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use support::node::*;
use support::*;

/// Messages posted while nobody polls, and the length of the longest: far more than a ring holds.
const MESSAGES: usize = 4096;
const LENGTH: usize = 64 << 10;

/// The length of a message. With `kind` 0 all are long; with 1 most are one packet, of which some
/// fit into a slot of the ring, and all together are more than it holds.
fn length_of(kind: u64, number: u32) -> usize {
    match (kind, number % 16) {
        (0, _) => LENGTH,
        (_, 0) => 10_000,
        (_, 1..=3) => 16,
        (_, 4..=7) => 1000,
        _ => 4096,
    }
}

/// Where a message begins in the sender's memory.
fn start_of(kind: u64, number: u32) -> usize {
    number as usize % (LENGTH - length_of(kind, number) + 1)
}

/// Where the receiver puts it. The long ones are equal, and share a place.
fn place_of(kind: u64, number: usize) -> usize {
    if kind == 0 { 0 } else { number * 10_000 }
}

fn pattern(at: usize) -> u8 {
    (at * 31 / 8) as u8
}

/// Its scatter/gather elements: every tenth has two.
fn pieces(mem: &Mem, kind: u64, number: u32) -> Vec<Sge> {
    let (length, start) = (length_of(kind, number), start_of(kind, number));
    match number % 10 {
        0 => vec![mem.sge(start, 7), mem.sge(start + 7, length - 7)],
        _ => vec![mem.sge(start, length)],
    }
}

#[test]
fn child_process_entry() {
    play(&[("flood", flood), ("reader", reader)]);
}

fn setup(qp_type: QpType) -> Setup {
    let mut setup = Setup { timeout: 9, retry_cnt: 2, cqe: 8192, ..Setup::new(qp_type) };
    (setup.cap.max_send_wr, setup.cap.max_recv_wr) = (MESSAGES as u32, MESSAGES as u32);
    setup
}

/// Resident memory of this process in bytes, including segments mapped from other processes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("own status");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("VmRSS");
    let kib: usize = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("kB");
    kib << 10
}

fn flood(mut topology: Topology) {
    let qp_type = QpType::from_ibv(topology.args[0] as u32).expect("a transport");
    let node = Node::open(0);
    let link = topology.link(1);
    let endpoint = node.endpoint(&setup(qp_type));
    endpoint.connect_over(&link);
    link.get();
    let mem = node.mem(LENGTH, Kind::Heap);
    (0..LENGTH).for_each(|at| mem.fill(at, 1, pattern(at)));
    // The test stops the receiver once the connection exists.
    topology.parent.put(&[]);
    topology.parent.get();
    let before = resident();
    for number in 0..MESSAGES as u32 {
        let sges = pieces(&mem, topology.args[1], number);
        endpoint.send(SendWr { imm_or_rkey: number, ..wr(WrOpcode::SendImm, &sges) });
    }
    if qp_type == QpType::Rc {
        let early = poll_for(&endpoint.send_cq, 150);
        assert!(early.is_empty(), "nobody is there to answer: {early:?}");
    } else {
        let early = poll_for(&endpoint.send_cq, 50);
        assert!(early.iter().all(|wc| wc.status == WcStatus::Success), "{early:?}");
        assert!(early.len() < MESSAGES, "a ring holds less than that");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
    topology.parent.put(&[]);
    link.get();
}

fn reader(mut topology: Topology) {
    let qp_type = QpType::from_ibv(topology.args[0] as u32).expect("a transport");
    let node = Node::open(0);
    let link = topology.link(0);
    let endpoint = node.endpoint(&setup(qp_type));
    let kind = topology.args[1];
    let longest = if kind == 0 { LENGTH } else { 10_000 };
    let mem = node.mem(place_of(kind, MESSAGES) + LENGTH, Kind::Heap);
    endpoint.to_init();
    (0..MESSAGES).for_each(|at| endpoint.recv(at as u64, &[mem.sge(place_of(kind, at), longest)]));
    endpoint.connect_from_init_over(&link);
    link.put(&[]);
    topology.parent.get();
    for number in 0..MESSAGES as u32 {
        let wc = endpoint.recv_done();
        let length = length_of(kind, number);
        assert_eq!((wc.status, wc.imm_or_rkey), (WcStatus::Success, number));
        assert_eq!(wc.byte_len as usize, length);
        let content = mem.read(place_of(kind, number as usize), length);
        let sent = (start_of(kind, number)..).map(pattern);
        assert!(content.into_iter().eq(sent.take(length)), "message {number}");
    }
    link.put(&[]);
}

#[test]
fn a_reader_that_stands_still_holds_nothing_but_the_sender() {
    for (qp_type, kind) in [(QpType::Rc, 0), (QpType::Uc, 0), (QpType::Rc, 1)] {
        let args: &[u64] = &[qp_type as u64, kind];
        let mut processes = Processes::start(&[("flood", args), ("reader", args)]);
        processes.link(0).get();
        processes.signal(1, libc::SIGSTOP);
        until_stopped(processes.pid(1));
        processes.link(0).put(&[]);
        processes.link(0).get();
        processes.link(1).put(&[]);
        processes.signal(1, libc::SIGCONT);
        processes.expect_end(1);
        processes.expect_end(0);
    }
}
