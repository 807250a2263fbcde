//! Several processes of a host (network namespaces) share one socket: which one reads it while its
//! reader is stopped, and after the reader continues.

mod support;

use rdmalab_engine::vocab::*;
use support::net::{MTU_1024, Net, connect, enter, other_owner};
use support::node::*;
use support::{Processes, Role, Topology, until, until_stopped};

/// Messages sent in one batch.
const MESSAGES: u64 = 20;
/// Eight time-outs of 268 ms: on a busy machine a thread may wait long for a processor.
const TIMEOUT: u8 = 16;
/// The index of the process on the second host.
const HUB: usize = 0;

const ROLES: &[(&str, Role)] = &[("hub", hub), ("member", member)];

/// Orders for a member, which answers after each.
const OPEN: u64 = 1;
const WRITE: u64 = 2;
const END: u64 = 3;
/// With a process id: wait until that process holds the socket's lock.
const SEE_OWNER: u64 = 4;

#[test]
fn child_process_entry() {
    support::play(ROLES);
}

/// On the second host: accepts members one after the other; all of them write into its memory.
fn hub(mut topology: Topology) {
    enter(2);
    let node = Node::open(0);
    let members: Vec<_> = topology.args.iter().map(|member| *member as usize).collect();
    let met = members.into_iter().map(|member| {
        let link = topology.link(member);
        let (setup, mem) = (setup(), node.mem(4096, Kind::Heap));
        let endpoint = node.endpoint(&setup);
        connect(&node, &endpoint, &link, 1);
        link.put(&[mem.addr(), mem.rkey as u64]);
        (endpoint, mem, link)
    });
    let _kept: Vec<_> = met.collect();
    assert_eq!(topology.parent.get(), [END]);
}

fn setup() -> Setup {
    Setup { timeout: TIMEOUT, ..Setup::new(QpType::Rc).mtu(MTU_1024) }
}

/// On the first host: follows the test's orders.
fn member(mut topology: Topology) {
    enter(1);
    let link = topology.link(HUB);
    assert_eq!(topology.parent.get(), [OPEN]);
    let node = Node::open(0);
    let (endpoint, mem) = (node.endpoint(&setup()), node.mem(4096, Kind::Heap));
    connect(&node, &endpoint, &link, 1);
    let theirs = link.get();
    loop {
        topology.parent.put(&[std::process::id().into()]);
        match topology.parent.get()[..] {
            [WRITE] => {
                for _ in 0..MESSAGES {
                    let sges = [mem.sge(0, 64)];
                    endpoint.run(rdma(WrOpcode::Write, &sges, theirs[0], theirs[1] as u32));
                }
            }
            [SEE_OWNER, pid] => until("the lock changes hands", || other_owner() == Some(pid)),
            [END] => return,
            ref other => panic!("what is {other:?}?"),
        }
    }
}

/// Gives a member an order, and waits until the member has done it.
fn order(processes: &Processes, member: usize, words: &[u64]) {
    processes.link(member).put(words);
    let pid = processes.link(member).get();
    assert_eq!(pid, [processes.pid(member) as u64], "{words:?}");
}

fn stop(processes: &Processes, member: usize) {
    processes.signal(member, libc::SIGSTOP);
    until_stopped(processes.pid(member));
}

/// The processes on the host whose reader is stopped.
const MEMBERS: [usize; 3] = [1, 2, 3];

fn start(net: &Net) -> Processes {
    net.start(&[("hub", &[1, 2, 3]), ("member", &[]), ("member", &[]), ("member", &[])])
}

#[test]
fn another_process_reads_while_the_reader_is_stopped() {
    let test = "another_process_reads_while_the_reader_is_stopped";
    let Some(net) = Net::of(test, 2) else { return };
    let mut processes = start(&net);
    let [first, second, third] = MEMBERS;
    for member in [first, second] {
        order(&processes, member, &[OPEN]);
        order(&processes, member, &[WRITE]);
    }
    order(&processes, second, &[SEE_OWNER, processes.pid(first) as u64]);
    stop(&processes, first);
    order(&processes, second, &[WRITE]);
    // A process that starts now gets the socket from the present reader. If that reader dies, only
    // unread packets in the socket show it, because the stopped process still holds the lock.
    order(&processes, third, &[OPEN]);
    processes.kill(second);
    order(&processes, third, &[WRITE]);
    processes.signal(first, libc::SIGCONT);
    order(&processes, first, &[SEE_OWNER, processes.pid(third) as u64]);
    order(&processes, first, &[WRITE]);
    order(&processes, third, &[WRITE]);
    processes.kill(third);
    order(&processes, first, &[WRITE]);
    for member in [first, HUB] {
        processes.link(member).put(&[END]);
        processes.expect_end(member);
    }
}

/// With no packet in the socket, no process notices that its reader is stopped.
#[test]
fn a_new_process_gets_the_socket_while_its_owner_is_stopped() {
    let test = "a_new_process_gets_the_socket_while_its_owner_is_stopped";
    let Some(net) = Net::of(test, 2) else { return };
    let mut processes = start(&net);
    let [first, second, third] = MEMBERS;
    for member in [first, second] {
        order(&processes, member, &[OPEN]);
    }
    stop(&processes, first);
    order(&processes, third, &[OPEN]);
    order(&processes, third, &[WRITE]);
    order(&processes, second, &[WRITE]);
    // One of these two reads now, without the lock. One exits, and the other takes over.
    processes.link(second).put(&[END]);
    processes.expect_end(second);
    order(&processes, third, &[WRITE]);
    // The lock's owner dies while it is stopped.
    processes.kill(first);
    order(&processes, third, &[WRITE]);
    for member in [third, HUB] {
        processes.link(member).put(&[END]);
        processes.expect_end(member);
    }
}
