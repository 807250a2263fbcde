//! A process does not accumulate resources of others: neither rings of processes that have ended,
//! nor memory that a peer has freed.

mod support;

use rdmalab_engine::backend::Backend;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::{SoftNic, free_shared};
use support::node::*;
use support::*;

/// How many processes start and end, and how many buffers are made and freed.
const ROUNDS: u64 = 12;

#[test]
fn child_process_entry() {
    play(&[("host", host), ("guests", guests), ("writer", writer), ("spender", spender)]);
}

/// The number of open descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("own descriptors").count()
}

/// Communicates with one process after the other.
fn host(mut topology: Topology) {
    let (node, link) = (Node::open(0), topology.link(1));
    let mem = node.mem(4096, Kind::Heap);
    let cq = node.cq(1, None, 3);
    let held = || (mappings("rdmalab-ring"), mappings("rdmalab-nic"), descriptors());
    let before = held();
    for round in 0..ROUNDS {
        let endpoint = node.endpoint(&Setup::new(QpType::Rc));
        endpoint.to_init();
        endpoint.recv(round, &[mem.sge(0, 64)]);
        endpoint.connect_from_init_over(&link);
        assert_eq!(endpoint.recv_done().status, WcStatus::Success);
        assert!(held().0 > before.0, "a guest's rings are seen");
        link.sync();
        SoftNic::destroy_qp(&endpoint.qp).expect("a QP");
    }
    until("nothing is left of the dead", || {
        poll(&cq, 1);
        held() == before
    });
}

/// Starts processes that each send one message and exit.
fn guests(mut topology: Topology) {
    let link = topology.link(0);
    for _ in 0..ROUNDS {
        // SAFETY: the child uses the C library's allocator, which survives a fork, and threads of
        // its own only; it ends itself.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: a timer of this process; its signal ends a child that hangs.
            unsafe { libc::alarm(60) };
            let node = Node::open(0);
            let mem = node.mem(4096, Kind::Heap);
            let endpoint = node.endpoint(&Setup::new(QpType::Rc));
            endpoint.connect_over(&link);
            endpoint.run(wr(WrOpcode::Send, &[mem.sge(0, 8)]));
            link.sync();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: our own child; the pointer is to a live integer.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0, "a guest");
    }
}

#[test]
fn rings_of_processes_that_came_and_went_are_let_go() {
    Processes::start(&[("host", &[]), ("guests", &[])]).finish();
}

/// Makes memory, lets the peer write to it, and frees it.
fn spender(mut topology: Topology) {
    let (node, link) = (Node::open(0), topology.link(1));
    let endpoint = node.endpoint(&Setup::new(QpType::Rc));
    endpoint.connect_over(&link);
    for _ in 0..ROUNDS {
        let mem = node.mem(1 << 16, Kind::Shared);
        link.put(&[mem.addr(), mem.rkey.into()]);
        until("the other end has written", || {
            poll(&endpoint.recv_cq, 1);
            link.ready(0)
        });
        link.get();
        SoftNic::dereg_mr(&mem.mr).expect("deregistration");
        // SAFETY: the only region in it is deregistered, and nothing refers to it.
        unsafe { free_shared(mem.at) };
    }
    link.sync();
}

/// Writes until it has mapped the peer's memory.
fn writer(mut topology: Topology) {
    let (node, link) = (Node::open(0), topology.link(0));
    let mem = node.mem(64, Kind::Heap);
    let endpoint = node.endpoint(&Setup::new(QpType::Rc));
    endpoint.connect_over(&link);
    let mut most = 0;
    for round in 0..ROUNDS {
        let words = link.get();
        let before = mappings("rdmalab-buffer");
        let mut looks = 0;
        // When a mapping is removed at the same time, the count does not show the new one, so a few
        // rounds may miss it. No mapping is removed in the first round.
        until("the peer's memory is mapped", || {
            endpoint.run(rdma(WrOpcode::Write, &[mem.sge(0, 8)], words[0], words[1] as u32));
            std::thread::sleep(std::time::Duration::from_micros(200));
            looks += 1;
            mappings("rdmalab-buffer") > before || (round > 0 && looks == 200)
        });
        most = most.max(mappings("rdmalab-buffer"));
        link.put(&[]);
    }
    link.sync();
    assert!(most > 0);
    // The queue pair may keep the last mapping.
    until("freed memory is let go", || {
        poll(&endpoint.recv_cq, 1);
        mappings("rdmalab-buffer") <= 1
    });
}

#[test]
fn memory_that_a_peer_has_freed_is_let_go() {
    Processes::start(&[("spender", &[]), ("writer", &[])]).finish();
}
