//! Completion channels between processes: no wake-up is lost, whichever way a program waits, and
//! idle programs use no processor time.

mod support;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::{Channel, SoftNic};
use support::node::*;
use support::*;

/// Messages of a ping-pong inside the verb, each way.
const ROUNDS: u64 = 10_000;
/// As [`ROUNDS`], for waits on the descriptor: there each message needs the progress thread.
const POLLED_ROUNDS: u64 = 10_000;

#[test]
fn child_process_entry() {
    play(&[
        ("blocks", |topology| alone(topology, block)),
        ("polls", |topology| alone(topology, poll_descriptor)),
        ("two threads", two_threads),
        ("solicited", solicited),
        ("asks", asks),
        ("idle", idle),
    ]);
}

/// An endpoint with one CQ on a channel.
struct Eventful {
    endpoint: Endpoint,
    channel: Channel,
    mem: Mem,
}

impl Eventful {
    fn connect(node: &Node, link: &Link, cookie: u64) -> Eventful {
        let channel = SoftNic::create_channel(&node.ctx).expect("a channel");
        let cq = node.cq(256, Some(&channel), cookie);
        let endpoint = node.endpoint_on(&Setup::new(QpType::Rc), &cq, &cq, None);
        let mem = node.mem(4096, Kind::Heap);
        endpoint.to_init();
        (0..32).for_each(|_| endpoint.recv(1, &[mem.sge(0, 64)]));
        endpoint.connect_from_init_over(link);
        Eventful { endpoint, channel, mem }
    }

    fn arm(&self, solicited_only: bool) {
        SoftNic::req_notify_cq(&self.endpoint.recv_cq, solicited_only).expect("an armed CQ");
    }

    /// Waits for one receive as the manual describes it: arm, poll, sleep.
    fn wait_receive(&self, wait: fn(&Channel) -> u64, cookie: u64) {
        loop {
            for wc in poll(&self.endpoint.recv_cq, 1) {
                assert_eq!(wc.status, WcStatus::Success);
                if wc.opcode == WcOpcode::Recv {
                    self.endpoint.recv(1, &[self.mem.sge(0, 64)]);
                    return;
                }
            }
            self.arm(false);
            let late = poll(&self.endpoint.recv_cq, 1);
            if let Some(wc) = late.first() {
                assert_eq!(wc.status, WcStatus::Success);
                if wc.opcode == WcOpcode::Recv {
                    self.endpoint.recv(1, &[self.mem.sge(0, 64)]);
                    return;
                }
                continue;
            }
            assert_eq!(wait(&self.channel), cookie);
        }
    }

    /// Sends a message; one in 16 is signaled, so that the send queue does not fill.
    fn send(&self, round: u64) {
        let flags = if round.is_multiple_of(16) { SendFlags::SIGNALED } else { SendFlags::NONE };
        self.endpoint.send(SendWr { flags, ..wr(WrOpcode::Send, &[self.mem.sge(64, 32)]) });
    }
}

/// Waits for an event in the verb.
fn block(channel: &Channel) -> u64 {
    SoftNic::wait_channel(channel, Deadline::Never).expect("an event")
}

/// Waits for the descriptor to become readable, as programs with their own event loop do.
fn poll_descriptor(channel: &Channel) -> u64 {
    let fd = SoftNic::channel_fd(channel).expect("a descriptor");
    assert!(becomes_readable(fd), "no event came");
    SoftNic::wait_channel(channel, Deadline::Never).expect("an event")
}

fn alone(mut topology: Topology, wait: fn(&Channel) -> u64) {
    ping_pong(&topology.link(1 - topology.index), topology.index, topology.args[0], wait);
}

fn ping_pong(link: &Link, side: usize, rounds: u64, wait: fn(&Channel) -> u64) {
    let node = Node::open(0);
    let eventful = Eventful::connect(&node, link, 40 + side as u64);
    for round in 0..rounds {
        if side == 0 {
            eventful.send(round);
            eventful.wait_receive(wait, 40);
        } else {
            eventful.wait_receive(wait, 41);
            eventful.send(round);
        }
    }
    link.sync();
}

#[test]
fn no_wake_up_is_lost_inside_the_verb() {
    Processes::start(&[("blocks", &[ROUNDS]), ("blocks", &[ROUNDS])]).finish();
}

#[test]
fn no_wake_up_is_lost_on_the_descriptor() {
    Processes::start(&[("polls", &[POLLED_ROUNDS]), ("polls", &[POLLED_ROUNDS])]).finish();
}

#[test]
fn one_blocks_and_the_other_polls() {
    Processes::start(&[("blocks", &[POLLED_ROUNDS]), ("polls", &[POLLED_ROUNDS])]).finish();
}

/// Two threads of a process, each waiting on a channel of its own.
fn two_threads(mut topology: Topology) {
    let side = topology.index;
    let links = [topology.link(1 - side), topology.link(1 - side)];
    let threads =
        links.map(|link| std::thread::spawn(move || ping_pong(&link, side, ROUNDS, block)));
    for thread in threads {
        thread.join().expect("a thread");
    }
}

#[test]
fn two_threads_block_on_channels_of_their_own() {
    let roles: &[(&str, &[u64])] = &[("two threads", &[]), ("two threads", &[])];
    Processes::start_plan(&Plan { roles, links: 2, env: &[] }).finish();
}

/// With `solicited_only`, only solicited messages and failures raise an event.
fn solicited(mut topology: Topology) {
    let link = topology.link(1);
    let node = Node::open(0);
    let eventful = Eventful::connect(&node, &link, 9);
    let fd = SoftNic::channel_fd(&eventful.channel).expect("a descriptor");
    for _ in 0..20 {
        eventful.arm(true);
        link.sync();
        // The unsolicited messages have arrived without an event.
        link.sync();
        assert!(!readable(fd, 0), "a plain message woke");
        link.sync();
        assert_eq!(poll_descriptor(&eventful.channel), 9);
        let mut seen = 0;
        until("all messages", || {
            for wc in poll(&eventful.endpoint.recv_cq, 8) {
                assert_eq!(wc.status, WcStatus::Success);
                eventful.endpoint.recv(1, &[eventful.mem.sge(0, 64)]);
                seen += 1;
            }
            seen == 4
        });
    }
    eventful.arm(true);
    eventful.endpoint.to_state(QpState::Err);
    assert_eq!(poll_descriptor(&eventful.channel), 9);
    assert_eq!(wait(&eventful.endpoint.recv_cq).status, WcStatus::WrFlushErr);
    link.sync();
}

fn asks(mut topology: Topology) {
    let link = topology.link(0);
    let node = Node::open(0);
    let endpoint = node.endpoint(&Setup::new(QpType::Rc));
    endpoint.connect_over(&link);
    let mem = node.mem(64, Kind::Heap);
    for _ in 0..20 {
        link.sync();
        for _ in 0..3 {
            endpoint.run(wr(WrOpcode::Send, &[mem.sge(0, 8)]));
        }
        link.sync();
        link.sync();
        let flags = SendFlags::SOLICITED;
        endpoint.run(SendWr { flags, ..wr(WrOpcode::Send, &[mem.sge(0, 8)]) });
    }
    link.sync();
}

#[test]
fn only_solicited_messages_wake_who_asked_for_those() {
    Processes::start(&[("solicited", &[]), ("asks", &[])]).finish();
}

/// How long a process stays idle at a time, ms.
const REST_MS: u64 = 1000;
/// How much processor time it may use in that time, us.
const IDLE_US: u64 = 20_000;
/// How often to try, because other work (a page fault, a thread that ends) may use more.
const RESTS: usize = 3;

/// After traffic, with everything still open, sleeps in one of the ways that programs use. That
/// must take no processor time.
fn idle(mut topology: Topology) {
    let link = topology.link(1 - topology.index);
    let node = Node::open(0);
    let eventful = Eventful::connect(&node, &link, 5);
    for round in 0..200 {
        eventful.send(round);
        eventful.wait_receive(block, 5);
    }
    let mut used_us = Vec::new();
    for _ in 0..RESTS {
        used_us.push(rest(&eventful, &link, [topology.args[0], topology.index as u64]));
        let is_idle = used_us.iter().any(|us| *us < IDLE_US);
        link.put(&[is_idle.into()]);
        if link.get() == [1] && is_idle {
            break;
        }
    }
    let is_idle = used_us.iter().any(|us| *us < IDLE_US);
    assert!(is_idle, "{used_us:?} us of processor time for nothing, each time");
}

/// Sleeps once; returns the processor time used, us.
fn rest(eventful: &Eventful, link: &Link, way_and_index: [u64; 2]) -> u64 {
    poll_for(&eventful.endpoint.recv_cq, 20);
    link.sync();
    // A message that arrived between arming and polling has left an event.
    while readable(SoftNic::channel_fd(&eventful.channel).expect("a descriptor"), 0) {
        assert_eq!(block(&eventful.channel), 5);
    }
    eventful.arm(false);
    // The progress thread goes on watching for a moment after the last call.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let before_us = cpu_time_us();
    match way_and_index {
        [0, 0] => {
            let came = readable(
                SoftNic::channel_fd(&eventful.channel).expect("a descriptor"),
                REST_MS as i32,
            );
            assert!(!came, "nothing came");
        }
        // Blocked in the verb until the other side, after its own sleep, sends a message.
        [1, 0] => assert_eq!(block(&eventful.channel), 5),
        _ => std::thread::sleep(std::time::Duration::from_millis(REST_MS)),
    }
    let used_us = cpu_time_us() - before_us;
    if way_and_index == [1, 1] {
        eventful.send(0);
    }
    link.sync();
    used_us
}

#[test]
fn idle_means_no_processor_time() {
    for way in [0, 1] {
        let args: &[u64] = &[way];
        Processes::start(&[("idle", args), ("idle", args)]).finish();
    }
}
