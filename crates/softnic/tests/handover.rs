//! Several processes of a host (network namespaces) share one socket: which one reads it after its
//! reader has exited or was killed.

mod support;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdmalab_engine::backend::Backend;
use rdmalab_engine::vocab::*;
use rdmalab_link::address::gid_of;
use rdmalab_softnic::SoftNic;
use support::net::{MTU_1024, Net, connect, enter, other_owner};
use support::node::*;
use support::{Link, Role, Topology, until_stopped};

/// Messages sent in one batch.
const MESSAGES: u64 = 20;
/// Eight time-outs of 537 ms: on a busy machine a thread may wait long for a processor.
const TIMEOUT: u8 = 17;
/// How long a test waits for a process to reach the point where it blocks, or to go wrong. No test
/// depends on the process getting there.
const A_MOMENT: Duration = Duration::from_millis(300);

const ROLES: &[(&str, Role)] = &[
    ("parting", parting),
    ("partner", partner),
    ("standby", standby),
    ("owner", owner),
    ("writer", writer),
    ("target", target),
    ("bystander", bystander),
];

#[test]
fn child_process_entry() {
    support::play(ROLES);
}

fn connected(node: &Node, link: &Link) -> (Endpoint, Mem) {
    let setup = Setup { timeout: TIMEOUT, ..Setup::new(QpType::Rc).mtu(MTU_1024) };
    let (endpoint, mem) = (node.endpoint(&setup), node.mem(4096, Kind::Heap));
    connect(node, &endpoint, link, 1);
    (endpoint, mem)
}

fn send_all(endpoint: &Endpoint, mem: &Mem) {
    for _ in 0..MESSAGES {
        endpoint.run(wr(WrOpcode::Send, &[mem.sge(0, 64)]));
    }
}

/// The endpoint for sending at exit, and a link to the standby, if any.
static LAST_WORDS: Mutex<Option<(Endpoint, Mem, Option<Link>)>> = Mutex::new(None);

/// Runs at exit after the device's own handler. A panic aborts the process, so the test fails.
extern "C" fn last_words() {
    let words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (endpoint, mem, standby) = words.expect("it was set before the end");
    if let Some(standby) = standby {
        standby.put(&[1]);
        let pid = standby.get()[0];
        assert_eq!(other_owner(), Some(pid), "the standby is through, and has the socket");
    }
    send_all(&endpoint, &mem);
}

/// What else is there when the reader of the socket exits: no other process, a standby, or a
/// standby that is stopped at that moment.
const ALONE: u64 = 0;
const A_STANDBY: u64 = 1;
const SLOW_STANDBY: u64 = 2;

/// Reads its host's socket, exits, and sends during exit, as a C++ destructor may.
fn parting(mut topology: Topology) {
    // SAFETY: the handler touches statics only. Handlers run in the opposite order, so this one
    // after the device's.
    unsafe { libc::atexit(last_words) };
    enter(1);
    let node = Node::open(0);
    let (endpoint, mem) = connected(&node, &topology.link(1));
    let standby = (topology.args[0] != ALONE).then(|| topology.link(2));
    if let Some(standby) = &standby {
        // Now it may open the device; and now it has.
        standby.sync();
        standby.sync();
        assert_eq!(other_owner(), None, "it is this process");
    }
    if topology.args[0] == SLOW_STANDBY {
        topology.parent.sync();
    }
    let mut words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    *words = Some((endpoint, mem, standby));
}

/// On the other host: receives from all processes of the first.
fn partner(mut topology: Topology) {
    enter(2);
    let node = Node::open(0);
    let froms: Vec<usize> = topology.args.iter().map(|from| *from as usize).collect();
    let ends: Vec<(Endpoint, Mem)> =
        froms.iter().map(|from| connected(&node, &topology.link(*from))).collect();
    for (endpoint, mem) in &ends {
        for id in 0..MESSAGES {
            endpoint.recv(id, &[mem.sge(0, 64)]);
        }
    }
    // The standby sends all its messages first.
    for (endpoint, _) in ends.iter().rev() {
        for _ in 0..MESSAGES {
            assert_eq!(endpoint.recv_done().status, WcStatus::Success);
        }
    }
    // The last acknowledgement may be lost: keep polling so that a retransmission is answered.
    poll_for(&ends[0].0.recv_cq, 300);
}

/// Also on the first host: sends while the exit handlers keep the socket's owner from ending.
fn standby(mut topology: Topology) {
    enter(1);
    let owner = topology.link(0);
    owner.sync();
    let node = Node::open(0);
    let (endpoint, mem) = connected(&node, &topology.link(1));
    owner.sync();
    assert_eq!(owner.get(), [1], "it is about to exit");
    send_all(&endpoint, &mem);
    owner.put(&[std::process::id().into()]);
    // This process forwards packets to the other until the other has ended.
    assert_eq!(owner.try_get(), None);
}

#[test]
fn a_process_that_exits_alone_keeps_reading() {
    let Some(net) = Net::of("a_process_that_exits_alone_keeps_reading", 2) else { return };
    net.start(&[("parting", &[ALONE]), ("partner", &[0])]).finish();
}

#[test]
fn an_exiting_owner_hands_over_to_its_standby() {
    let Some(net) = Net::of("an_exiting_owner_hands_over_to_its_standby", 2) else { return };
    net.start(&[("parting", &[A_STANDBY]), ("partner", &[0, 2]), ("standby", &[])]).finish();
}

/// As on a busy machine, where the standby's thread has to wait for a processor.
#[test]
fn an_exiting_owner_hands_over_to_a_late_standby() {
    let test = "an_exiting_owner_hands_over_to_a_late_standby";
    let Some(net) = Net::of(test, 2) else { return };
    let processes =
        net.start(&[("parting", &[SLOW_STANDBY]), ("partner", &[0, 2]), ("standby", &[])]);
    let standby = 2;
    assert_eq!(processes.link(0).get(), [u64::MAX], "both are connected");
    processes.signal(standby, libc::SIGSTOP);
    until_stopped(processes.pid(standby));
    processes.link(0).put(&[u64::MAX]);
    std::thread::sleep(A_MOMENT);
    processes.signal(standby, libc::SIGCONT);
    processes.finish();
}

/// Reads its host's socket until it is killed.
fn owner(topology: Topology) {
    enter(1);
    let _node = Node::open(0);
    topology.parent.put(&[1]);
    topology.parent.get();
}

/// Writes into the target's memory before and after the owner's death, which the test announces.
fn writer(mut topology: Topology) {
    enter(2);
    let node = Node::open(0);
    let link = topology.link(2);
    let (endpoint, mem) = connected(&node, &link);
    let theirs = link.get();
    let write = || {
        let sges = [mem.sge(0, 64)];
        endpoint.run(rdma(WrOpcode::Write, &sges, theirs[0], theirs[1] as u32));
    };
    write();
    topology.parent.sync();
    mem.fill(0, 64, MARK);
    for _ in 0..MESSAGES {
        write();
    }
    link.sync();
}

/// The value that the writer writes after the owner's death.
const MARK: u8 = 0x5a;

/// Takes over the socket. Before the owner's death it joins a group, and the join returns when the
/// bystander's time to answer is over. For the takeover that time would begin at the death. So data
/// that arrive before the join returns show that the takeover did not wait for the bystander.
fn target(mut topology: Topology) {
    enter(1);
    let link = topology.link(1);
    assert_eq!(topology.parent.get(), [1], "the owner is there");
    let node = Node::open(0);
    let (_endpoint, mem) = connected(&node, &link);
    link.put(&[mem.addr(), mem.rkey as u64]);
    let member = node.endpoint(&Setup::new(QpType::Ud));
    topology.parent.sync();
    topology.parent.put(&[2]);
    let group = gid_of("239.92.1.2".parse().expect("an address"));
    SoftNic::attach_mcast(&member.qp, group, 0).expect("a group");
    assert_eq!(mem.read(0, 1), [MARK], "nobody read the socket while the bystander was silent");
    link.sync();
}

/// A process on the target's host that uses no network and has exchanged no hello with the target.
fn bystander(topology: Topology) {
    // SAFETY: nobody else reads or changes the environment now.
    unsafe { std::env::remove_var("RDMALAB_INTERFACE") };
    enter(1);
    assert_eq!(topology.parent.get(), [1], "the target is there");
    let _node = Node::open(0);
    topology.parent.put(&[2]);
    topology.parent.get();
}

#[test]
fn an_unresponsive_process_does_not_delay_the_standby() {
    let Some(net) = Net::of("an_unresponsive_process_does_not_delay_the_standby", 2) else {
        return;
    };
    let mut processes =
        net.start(&[("owner", &[]), ("writer", &[]), ("target", &[]), ("bystander", &[])]);
    assert_eq!(processes.link(0).get(), [1]);
    processes.link(2).put(&[1]);
    assert_eq!(processes.link(1).get(), [u64::MAX], "the writer has written");
    processes.link(3).put(&[1]);
    assert_eq!(processes.link(3).get(), [2]);
    processes.signal(3, libc::SIGSTOP);
    until_stopped(processes.pid(3));
    processes.link(2).sync();
    assert_eq!(processes.link(2).get(), [2], "it is about to introduce itself");
    std::thread::sleep(A_MOMENT);
    processes.kill(0);
    processes.link(1).put(&[u64::MAX]);
    processes.expect_end(1);
    processes.expect_end(2);
    processes.kill(3);
}
