//! Device quirks that depend on earlier messages, over shared memory and over UDP. Times have only
//! lower bounds, because a busy machine may take longer.

mod support;

use std::time::{Duration, Instant};

use rdmalab_engine::vocab::*;
use rdmalab_softnic::{choose_hooks, hooks};
use support::net::{MTU_1024, Net, connect, enter};
use support::node::*;
use support::*;

const SHARED_MEMORY: u64 = 0;
const NETWORK: u64 = 1;
const BYTES: usize = 3000;

#[test]
fn child_process_entry() {
    play(&[("client", client), ("server", server), ("dammed", dammed), ("brief", brief)]);
}

/// A connection over the medium that the test chose.
fn connected(topology: &mut Topology, faults: Option<&str>) -> (Node, Endpoint, Link) {
    let by_network = topology.args[0] == NETWORK;
    if by_network {
        enter(topology.index as u64 + 1);
    }
    choose_hooks(None, faults.map(str::to_owned)).expect("in time");
    let link = topology.link(1 - topology.index);
    let node = Node::open(0);
    let setup = Setup { timeout: 14, ..Setup::new(QpType::Rc).mtu(MTU_1024) };
    let endpoint = node.endpoint(&setup);
    if by_network {
        connect(&node, &endpoint, &link, 1);
    } else {
        endpoint.connect_over(&link);
    }
    (node, endpoint, link)
}

/// Drops the response to the second READ once, and answers the first SEND with an RNR NAK.
fn server(mut topology: Topology) {
    let (node, endpoint, link) =
        connected(&mut topology, Some("drop-response 2; rnr-nak nth 1 of send"));
    let mem = node.mem(4 * BYTES, Kind::Heap);
    (0..3).for_each(|at| mem.fill(at * BYTES, BYTES, at as u8 + 1));
    endpoint.recv(1, &[mem.sge(3 * BYTES, 8)]);
    link.put(&[mem.addr(), mem.rkey as u64]);
    assert_eq!(endpoint.recv_done().status, WcStatus::Success);
    link.sync();
    // Three packets of a response, and one SEND.
    assert_eq!(hooks().disturbed_packets, 4);
}

fn client(mut topology: Topology) {
    let (node, endpoint, link) = connected(&mut topology, None);
    let mem = node.mem(3 * BYTES, Kind::Heap);
    let theirs = link.get();
    let (addr, rkey) = (theirs[0], theirs[1] as u32);
    for at in 0..3 {
        let there = addr + (at * BYTES) as u64;
        endpoint.send(rdma(WrOpcode::Read, &[mem.sge(at * BYTES, BYTES)], there, rkey));
    }
    (0..3).for_each(|_| assert_eq!(endpoint.send_done().status, WcStatus::Success));
    for at in 0..3 {
        assert_eq!(mem.read(at * BYTES, BYTES), vec![at as u8 + 1; BYTES]);
    }
    endpoint.run(wr(WrOpcode::Send, &[mem.sge(0, 8)]));
    link.sync();
}

#[test]
fn the_response_to_the_second_read_is_lost_between_processes() {
    Processes::start(&[("client", &[SHARED_MEMORY]), ("server", &[SHARED_MEMORY])]).finish();
}

#[test]
fn the_response_to_the_second_read_is_lost_between_hosts() {
    let Some(net) = Net::of("a lost response", 2) else { return };
    net.start(&[("client", &[NETWORK]), ("server", &[NETWORK])]).finish();
}

/// The second of two READs is posted during the RNR wait of the first. It arrives while the
/// responder serves the repeated first READ, is lost, and is repeated after its time-out.
fn dammed(_stage: Topology) {
    let faults = "rnr-nak nth 1 of read; damming 200ms..300ms";
    choose_hooks(None, Some(faults.to_owned())).expect("in time");
    let node = Node::open(0);
    // An ACK time-out of 537 ms, and an RNR timer of 10 ms.
    let (timeout, wait) = (Duration::from_nanos(4096 << 17), Duration::from_millis(10));
    let setup = Setup { timeout: 17, min_rnr_timer: 20, ..Setup::new(QpType::Rc) };
    let (a, b) = (node.endpoint(&setup), node.endpoint(&setup));
    a.connect(b.address());
    b.connect(a.address());
    let mem = node.mem(4096, Kind::Heap);
    mem.fill(0, 64, 7);
    let read = |at| a.send(rdma(WrOpcode::Read, &[mem.sge(at, 64)], mem.addr(), mem.rkey));
    let began = Instant::now();
    read(1024);
    assert!(poll_for(&a.send_cq, (wait / 3).as_millis() as u64).is_empty());
    read(2048);
    (0..2).for_each(|_| assert_eq!(a.send_done().status, WcStatus::Success));
    assert!(began.elapsed() >= wait + timeout, "{:?}", began.elapsed());
    assert_eq!((mem.read(1024, 64), mem.read(2048, 64)), (vec![7; 64], vec![7; 64]));
}

#[test]
fn a_read_is_dammed_until_its_time_out() {
    Processes::start(&[("dammed", &[])]).finish();
}

/// Messages of a connection that loses what comes out of order. Each is delayed by 5 us: none
/// arrives sooner, and none that arrived soon after that counts as late.
fn brief(_stage: Topology) {
    const DELAY: Duration = Duration::from_micros(5);
    const LATE: Duration = Duration::from_micros(1);
    const ROUNDS: usize = 100;
    const BURST: usize = 8;
    choose_hooks(None, Some("delay 5us of send".to_owned())).expect("in time");
    let node = Node::open(0);
    let (a, b) = (node.endpoint(&Setup::new(QpType::Uc)), node.endpoint(&Setup::new(QpType::Uc)));
    a.connect(b.address());
    b.connect(a.address());
    let mem = node.mem(4096, Kind::Heap);
    for round in 0..ROUNDS {
        let burst = if round % 2 == 0 { 1 } else { BURST };
        (0..burst).for_each(|at| b.recv(at as u64, &[mem.sge(2048 + at * 8, 8)]));
        let began = Instant::now();
        for at in 0..burst {
            mem.fill(at * 8, 8, (round + at) as u8);
            a.send(wr(WrOpcode::Send, &[mem.sge(at * 8, 8)]));
        }
        for at in 0..burst {
            let done = b.recv_done();
            // It was posted after the beginning, and left before now.
            let most = began.elapsed();
            assert!(most >= DELAY, "round {round}: {most:?}");
            assert_eq!((done.status, done.wr_id), (WcStatus::Success, at as u64));
            assert_eq!(mem.read(2048 + at * 8, 8), [(round + at) as u8; 8]);
        }
        (0..burst).for_each(|_| assert_eq!(a.send_done().status, WcStatus::Success));
    }
    let delays = hooks().delays;
    assert_eq!(delays.left as usize, ROUNDS / 2 * (1 + BURST));
    assert!(delays.late_ns >= delays.late * LATE.as_nanos() as u64, "{delays:?}");
}

#[test]
fn a_brief_delay_is_never_shorter() {
    Processes::start(&[("brief", &[])]).finish();
}
