//! Several processes of a host (network namespaces) and one socket: who reads it while its reader
//! is stopped, and who does when it goes on.

mod support;

use rdmalab_engine::vocab::*;
use support::net::{MTU_1024, Net, connect, enter, other_owner};
use support::node::*;
use support::{Cast, Role, Stage, until, until_stopped};

/// Messages of one go.
const MESSAGES: u64 = 20;
/// 268 ms for an acknowledgement, eight times: on a busy machine a thread may be away for long.
const TIMEOUT: u8 = 16;
/// The only one on the other host.
const HUB: usize = 0;

const ROLES: &[(&str, Role)] = &[("hub", hub), ("member", member)];

/// What a member is told to do; it answers when it has.
const OPEN: u64 = 1;
const WRITE: u64 = 2;
const END: u64 = 3;
/// With a process: to wait until that one has the lock of the socket.
const SEE_OWNER: u64 = 4;

#[test]
fn child_process_entry() {
    support::play(ROLES);
}

/// On the second host: its memory is written by all members, one after the other of which comes.
fn hub(mut stage: Stage) {
    enter(2);
    let node = Node::open(0);
    let members: Vec<_> = stage.args.iter().map(|member| *member as usize).collect();
    let met = members.into_iter().map(|member| {
        let link = stage.link(member);
        let (setup, mem) = (setup(), node.mem(4096, Kind::Heap));
        let endpoint = node.endpoint(&setup);
        connect(&node, &endpoint, &link, 1);
        link.put(&[mem.addr(), mem.rkey as u64]);
        (endpoint, mem, link)
    });
    let _kept: Vec<_> = met.collect();
    assert_eq!(stage.parent.get(), [END]);
}

fn setup() -> Setup {
    Setup { timeout: TIMEOUT, ..Setup::new(QpType::Rc).mtu(MTU_1024) }
}

/// On the first host: does what it is told.
fn member(mut stage: Stage) {
    enter(1);
    let link = stage.link(HUB);
    assert_eq!(stage.parent.get(), [OPEN]);
    let node = Node::open(0);
    let (endpoint, mem) = (node.endpoint(&setup()), node.mem(4096, Kind::Heap));
    connect(&node, &endpoint, &link, 1);
    let theirs = link.get();
    loop {
        stage.parent.put(&[std::process::id().into()]);
        match stage.parent.get()[..] {
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

/// Tells a member to do something, and waits until it has.
fn order(cast: &Cast, member: usize, words: &[u64]) {
    cast.link(member).put(words);
    let pid = cast.link(member).get();
    assert_eq!(pid, [cast.pid(member) as u64], "{words:?}");
}

fn stop(cast: &Cast, member: usize) {
    cast.signal(member, libc::SIGSTOP);
    until_stopped(cast.pid(member));
}

/// The processes of the host whose reader is stopped.
const MEMBERS: [usize; 3] = [1, 2, 3];

fn start(net: &Net) -> Cast {
    net.start(&[("hub", &[1, 2, 3]), ("member", &[]), ("member", &[]), ("member", &[])])
}

#[test]
fn another_process_reads_while_the_reader_is_stopped() {
    let test = "another_process_reads_while_the_reader_is_stopped";
    let Some(net) = Net::of(test, 2) else { return };
    let mut cast = start(&net);
    let [first, second, third] = MEMBERS;
    for member in [first, second] {
        order(&cast, member, &[OPEN]);
        order(&cast, member, &[WRITE]);
    }
    order(&cast, second, &[SEE_OWNER, cast.pid(first) as u64]);
    stop(&cast, first);
    order(&cast, second, &[WRITE]);
    // One that comes meanwhile gets the socket from who reads now; and when that one dies, nothing
    // tells of it but what it leaves lying: the lock is with the one that is stopped.
    order(&cast, third, &[OPEN]);
    cast.kill(second);
    order(&cast, third, &[WRITE]);
    cast.signal(first, libc::SIGCONT);
    order(&cast, first, &[SEE_OWNER, cast.pid(third) as u64]);
    order(&cast, first, &[WRITE]);
    order(&cast, third, &[WRITE]);
    cast.kill(third);
    order(&cast, first, &[WRITE]);
    for member in [first, HUB] {
        cast.link(member).put(&[END]);
        cast.expect_end(member);
    }
}

/// Nothing lies in the socket, so nobody knows that its reader is stopped.
#[test]
fn a_new_process_gets_the_socket_while_its_owner_is_stopped() {
    let test = "a_new_process_gets_the_socket_while_its_owner_is_stopped";
    let Some(net) = Net::of(test, 2) else { return };
    let mut cast = start(&net);
    let [first, second, third] = MEMBERS;
    for member in [first, second] {
        order(&cast, member, &[OPEN]);
    }
    stop(&cast, first);
    order(&cast, third, &[OPEN]);
    order(&cast, third, &[WRITE]);
    order(&cast, second, &[WRITE]);
    // Either of these two reads now, without the lock. One exits, with the other as its standby.
    cast.link(second).put(&[END]);
    cast.expect_end(second);
    order(&cast, third, &[WRITE]);
    // It dies while it is stopped.
    cast.kill(first);
    order(&cast, third, &[WRITE]);
    for member in [third, HUB] {
        cast.link(member).put(&[END]);
        cast.expect_end(member);
    }
}
