//! Targets that call no verb because they sleep, compute, or are stopped. One-sided operations on
//! their memory complete nevertheless.

mod support;

use rdmalab_engine::vocab::*;
use support::node::*;
use support::*;

/// The target's state after it sent its address.
const SLEEPS: u64 = 0;
const COMPUTES: u64 = 1;
const STOPPED: u64 = 2;
/// Receives that the target posted.
const RECEIVES: usize = 16;

#[test]
fn child_process_entry() {
    play(&[("initiator", initiator), ("target", target)]);
}

fn target(mut topology: Topology) {
    let (kind, mood) = (Kind::from_arg(topology.args[0]), topology.args[1]);
    let node = Node::open(0);
    let link = topology.link(0);
    let endpoint = node.endpoint(&Setup::new(QpType::Rc));
    let mem = node.mem(1 << 20, kind);
    endpoint.to_init();
    (0..RECEIVES).for_each(|at| endpoint.recv(at as u64, &[mem.sge(4096 * (1 + at), 4096)]));
    endpoint.connect_from_init_over(&link);
    mem.write(8, &5u64.to_le_bytes());
    link.put(&[mem.addr(), mem.rkey as u64]);
    topology.parent.put(&[]);
    // From here on this process calls no verb. The initiator ends the test by a write.
    while mem.word(16) == 0 {
        if mood == COMPUTES {
            std::hint::black_box((0..10_000u64).fold(0, |sum, at| sum ^ (at * at)));
        } else {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    assert_eq!(mem.word(8), 9);
    topology.parent.get();
}

fn initiator(mut topology: Topology) {
    let (kind, mood, lane) =
        (Kind::from_arg(topology.args[0]), topology.args[1], topology.args[2] == 1);
    let node = Node::open(0);
    let link = topology.link(1);
    let endpoint = node.endpoint(&Setup::new(QpType::Rc));
    endpoint.connect_over(&link);
    let theirs = link.get();
    let (addr, rkey) = (theirs[0], theirs[1] as u32);
    let mem = node.mem(1 << 20, Kind::Heap);
    if mood == STOPPED && kind == Kind::Shared {
        // The first use requests the memory's descriptor, and only a running process hands it over.
        // The test stops the process after that.
        until("the memory is mapped", || {
            endpoint.run(rdma(WrOpcode::Write, &[mem.sge(0, 8)], addr + 32, rkey));
            std::thread::sleep(std::time::Duration::from_millis(1));
            mappings("rdmalab-buffer") > 0
        });
    }
    topology.parent.put(&[]);
    topology.parent.get();
    one_sided(&endpoint, &mem, addr, rkey);
    if mood != STOPPED || (kind == Kind::Shared && lane) {
        atomics(&endpoint, &mem, addr, rkey);
    }
    topology.parent.put(&[]);
    topology.parent.get();
    if mood == STOPPED && !(kind == Kind::Shared && lane) {
        atomics(&endpoint, &mem, addr, rkey);
    }
    for at in 0..RECEIVES {
        mem.fill(0, 4096, at as u8 + 1);
        endpoint.run(wr(WrOpcode::Send, &[mem.sge(0, 4096)]));
        let there = addr + 4096 * (1 + at as u64);
        endpoint.run(rdma(WrOpcode::Read, &[mem.sge(8192, 4096)], there, rkey));
        assert_eq!(mem.read(8192, 4096), [at as u8 + 1; 4096], "message {at}");
    }
    endpoint.run(rdma(WrOpcode::Write, &[mem.sge(0, 8)], addr + 16, rkey));
}

fn one_sided(endpoint: &Endpoint, mem: &Mem, addr: u64, rkey: u32) {
    for length in [8, 32, 4096, 100_000, 900_000] {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
        mem.write(0, &bytes);
        endpoint.run(rdma(WrOpcode::Write, &[mem.sge(0, length)], addr + 64, rkey));
        mem.fill(0, length, 0);
        endpoint.run(rdma(WrOpcode::Read, &[mem.sge(0, length)], addr + 64, rkey));
        assert!(mem.read(0, length) == bytes, "{length} bytes came back");
    }
}

fn atomics(endpoint: &Endpoint, mem: &Mem, addr: u64, rkey: u32) {
    let sges = [mem.sge(0, 8)];
    let operation = |opcode, compare_add, swap| {
        endpoint.run(rdmalab_engine::backend::SendWr {
            compare_add,
            swap,
            ..rdma(opcode, &sges, addr + 8, rkey)
        });
        mem.word(0)
    };
    assert_eq!(operation(WrOpcode::FetchAdd, 2, 0), 5);
    assert_eq!(operation(WrOpcode::CmpSwap, 7, 9), 7);
    assert_eq!(operation(WrOpcode::CmpSwap, 7, 11), 9);
}

fn play_with(mood: u64, kind: u64, lane: &str) {
    let args = [kind, mood, u64::from(lane == "on")];
    let roles: &[(&str, &[u64])] = &[("initiator", &args), ("target", &args)];
    let plan = Plan { roles, links: 1, env: &[("RDMALAB_LANE", lane)] };
    let mut processes = Processes::start_plan(&plan);
    processes.link(1).get();
    processes.link(0).get();
    if mood == STOPPED {
        processes.signal(1, libc::SIGSTOP);
    }
    processes.link(0).put(&[]);
    processes.link(0).get();
    if mood == STOPPED {
        processes.signal(1, libc::SIGCONT);
    }
    processes.link(0).put(&[]);
    processes.expect_end(0);
    processes.link(1).put(&[]);
    processes.expect_end(1);
}

#[test]
fn a_target_that_sleeps_is_served() {
    for (kind, lane) in [(0, "on"), (1, "on"), (0, "off"), (1, "off")] {
        play_with(SLEEPS, kind, lane);
    }
}

#[test]
fn a_target_that_computes_is_served() {
    for (kind, lane) in [(0, "on"), (1, "on"), (0, "off"), (1, "off")] {
        play_with(COMPUTES, kind, lane);
    }
}

#[test]
fn memory_of_a_stopped_target_is_written_and_read() {
    for kind in [0, 1] {
        play_with(STOPPED, kind, "on");
    }
}
