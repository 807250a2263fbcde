//! Several processes of a host (network namespaces) and one socket: who reads it when its reader
//! exits or is killed.

mod support;

use std::sync::{Mutex, PoisonError};

use rdmalab_engine::vocab::*;
use support::net::{Net, connect, enter};
use support::node::*;
use support::{Cast, Link, Plan, Role, Stage, until_stopped};

/// Path MTU 1024, which fits an Ethernet interface.
const MTU_1024: u32 = 3;
/// Messages of one go.
const MESSAGES: u64 = 20;

const ROLES: &[(&str, Role)] = &[
    ("parting", parting),
    ("partner", partner),
    ("heir", heir),
    ("owner", owner),
    ("writer", writer),
    ("target", target),
    ("bystander", bystander),
];

#[test]
fn child_process_entry() {
    support::play(ROLES);
}

fn start(net: &Net, roles: &[(&str, &[u64])]) -> Cast {
    Cast::start_plan(&Plan { roles, links: 1, env: &net.env() })
}

/// Eight time-outs of 67 ms.
fn connected(node: &Node, link: &Link) -> (Endpoint, Mem) {
    let setup = Setup::new(QpType::Rc).mtu(MTU_1024);
    let (endpoint, mem) = (node.endpoint(&setup), node.mem(4096, Kind::Heap));
    connect(node, &endpoint, link, 1);
    (endpoint, mem)
}

fn send_all(endpoint: &Endpoint, mem: &Mem) {
    for _ in 0..MESSAGES {
        endpoint.run(wr(WrOpcode::Send, &[mem.sge(0, 64)]));
    }
}

/// What a process still has to say when it exits, and to whom it tells that it has begun.
static LAST_WORDS: Mutex<Option<(Endpoint, Mem, Option<Link>)>> = Mutex::new(None);

/// Runs after the device's own handler. A panic in it aborts the process, which the test sees.
extern "C" fn last_words() {
    let words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (endpoint, mem, heir) = words.expect("it was set before the end");
    if let Some(heir) = heir {
        heir.put(&[1]);
        assert_eq!(heir.get(), [2], "the heir is through");
    }
    send_all(&endpoint, &mem);
}

/// Reads its host's socket, exits, and sends while it exits: what destructors of C++ do.
fn parting(mut stage: Stage) {
    // SAFETY: the handler touches statics only. Handlers run in the opposite order, so this one
    // after the device's.
    unsafe { libc::atexit(last_words) };
    enter(1);
    let node = Node::open(0);
    let (endpoint, mem) = connected(&node, &stage.link(1));
    let heir = (stage.args[0] == 1).then(|| stage.link(2));
    if let Some(heir) = &heir {
        // Now it may open the device; and now it has.
        heir.sync();
        heir.sync();
    }
    let mut words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    *words = Some((endpoint, mem, heir));
}

/// On the other host: receives from all of the first.
fn partner(mut stage: Stage) {
    enter(2);
    let node = Node::open(0);
    let froms: Vec<usize> = stage.args.iter().map(|from| *from as usize).collect();
    let ends: Vec<(Endpoint, Mem)> =
        froms.iter().map(|from| connected(&node, &stage.link(*from))).collect();
    for (endpoint, mem) in &ends {
        for id in 0..MESSAGES {
            endpoint.recv(id, &[mem.sge(0, 64)]);
        }
    }
    // The heir's are through first.
    for (endpoint, _) in ends.iter().rev() {
        for _ in 0..MESSAGES {
            assert_eq!(endpoint.recv_done().status, WcStatus::Success);
        }
    }
    // What it acknowledged last may have got lost: a moment for who asks again.
    poll_for(&ends[0].0.recv_cq, 300);
}

/// On the first host too: sends while the owner of the socket is held up in its last handlers.
fn heir(mut stage: Stage) {
    enter(1);
    let owner = stage.link(0);
    owner.sync();
    let node = Node::open(0);
    let (endpoint, mem) = connected(&node, &stage.link(1));
    owner.sync();
    assert_eq!(owner.get(), [1], "it is about to exit");
    send_all(&endpoint, &mem);
    owner.put(&[2]);
    // It passes on what is for the other, until that has ended.
    assert_eq!(owner.try_get(), None);
}

#[test]
fn who_exits_alone_still_hears_of_the_network() {
    let Some(net) = Net::of("who_exits_alone_still_hears_of_the_network", 2) else { return };
    start(&net, &[("parting", &[0]), ("partner", &[0])]).finish();
}

#[test]
fn who_exits_leaves_the_socket_to_its_heir() {
    let Some(net) = Net::of("who_exits_leaves_the_socket_to_its_heir", 2) else { return };
    start(&net, &[("parting", &[1]), ("partner", &[0, 2]), ("heir", &[])]).finish();
}

/// Reads its host's socket until it is killed.
fn owner(stage: Stage) {
    enter(1);
    let _node = Node::open(0);
    stage.parent.put(&[1]);
    stage.parent.get();
}

/// Writes into the target's memory, before and after the death of whom it is told of.
fn writer(mut stage: Stage) {
    enter(2);
    let node = Node::open(0);
    let link = stage.link(2);
    let (endpoint, mem) = connected(&node, &link);
    let theirs = link.get();
    let write = || {
        let sges = [mem.sge(0, 64)];
        endpoint.run(rdma(WrOpcode::Write, &sges, theirs[0], theirs[1] as u32));
    };
    write();
    stage.parent.put(&[1]);
    assert_eq!(stage.parent.get(), [2]);
    // All eight time-outs together are shorter than what a process has to say hello.
    for _ in 0..MESSAGES {
        write();
    }
    link.sync();
}

/// Inherits the socket.
fn target(mut stage: Stage) {
    enter(1);
    let link = stage.link(1);
    assert_eq!(stage.parent.get(), [1], "the owner is there");
    let node = Node::open(0);
    let (_endpoint, mem) = connected(&node, &link);
    link.put(&[mem.addr(), mem.rkey as u64]);
    link.sync();
}

/// A process of the target's host that uses no network, and that it never met.
fn bystander(stage: Stage) {
    // SAFETY: nobody else reads or changes the environment now.
    unsafe { std::env::remove_var("RDMALAB_INTERFACE") };
    enter(1);
    assert_eq!(stage.parent.get(), [1], "the target is there");
    let _node = Node::open(0);
    stage.parent.put(&[2]);
    stage.parent.get();
}

#[test]
fn who_does_not_answer_keeps_no_heir_from_reading() {
    let Some(net) = Net::of("who_does_not_answer_keeps_no_heir_from_reading", 2) else { return };
    let mut cast =
        start(&net, &[("owner", &[]), ("writer", &[]), ("target", &[]), ("bystander", &[])]);
    assert_eq!(cast.link(0).get(), [1]);
    cast.link(2).put(&[1]);
    assert_eq!(cast.link(1).get(), [1]);
    cast.link(3).put(&[1]);
    assert_eq!(cast.link(3).get(), [2]);
    cast.signal(3, libc::SIGSTOP);
    until_stopped(cast.pid(3));
    cast.kill(0);
    cast.link(1).put(&[2]);
    cast.expect_end(1);
    cast.expect_end(2);
    cast.kill(3);
}
