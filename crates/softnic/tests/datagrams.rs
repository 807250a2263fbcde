//! Datagrams between processes: processes join and leave groups, members die, and stopped receivers
//! delay nobody else.

mod support;

use std::time::Instant;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;
use rdmalab_wire::ids::{Gid, Lid, Qpn};
use support::node::*;
use support::*;

#[test]
fn child_process_entry() {
    play(&[
        ("group sender", group_sender),
        ("streamer", streamer),
        ("hasty sender", hasty_sender),
        ("member", member),
        ("late member", late_member),
        ("busy sender", busy_sender),
        ("receiver", receiver),
        ("chooser", chooser),
    ]);
}

/// The routing header (GRH) before each datagram in a receive buffer.
const GRH: usize = 40;
/// Receives that a member posts.
const RECEIVES: usize = 64;
/// Members besides the sender.
const MEMBERS: usize = 2;

fn group(number: u8) -> Gid {
    let mut gid = [0; 16];
    (gid[0], gid[1], gid[15]) = (0xff, 0x0e, number);
    Gid(gid)
}

fn to_group(number: u8) -> UdAddress {
    let ah = AhAttr {
        dgid: group(number),
        dlid: Lid(0xc001),
        is_global: true,
        port_num: 1,
        ..AhAttr::default()
    };
    UdAddress { ah, remote_qpn: Qpn::MULTICAST, remote_qkey: QKEY }
}

fn datagram_endpoint(node: &Node) -> Endpoint {
    let endpoint = node.endpoint(&Setup::new(QpType::Ud));
    endpoint.connect(endpoint.address());
    endpoint
}

/// Numbers from here on are greetings. At its first datagram a sender exchanges hellos with the
/// members; datagrams to a member that does not answer in time are lost. So the sender repeats
/// greetings until every member got one, and only then sends the datagrams that count.
const GREETING: u64 = 1 << 32;

/// Waits for the next datagram that is not a greeting; returns its number.
fn receive(endpoint: &Endpoint, mem: &Mem) -> u64 {
    loop {
        let number = hear_any(endpoint, mem);
        if number < GREETING {
            return number;
        }
    }
}

/// Waits for the next datagram; returns its number.
fn hear_any(endpoint: &Endpoint, mem: &Mem) -> u64 {
    let wc = endpoint.recv_done();
    assert_eq!(wc.status, WcStatus::Success);
    let slot = wc.wr_id as usize * 64;
    let number = u64::from_le_bytes(mem.read(slot + GRH, 8).try_into().expect("8 bytes"));
    endpoint.recv(wc.wr_id, &[mem.sge(slot, 64)]);
    number
}

fn post_all(endpoint: &Endpoint, mem: &Mem) {
    for slot in 0..RECEIVES {
        endpoint.recv(slot as u64, &[mem.sge(64 * slot, 64)]);
    }
}

/// As the test says, sends greetings to group 1, or numbers to group 1 and one datagram to group 2.
fn group_sender(topology: Topology) {
    let node = Node::open(0);
    let mem = node.mem(64 * RECEIVES, Kind::Heap);
    let (sender, own) = (datagram_endpoint(&node), datagram_endpoint(&node));
    post_all(&own, &mem);
    SoftNic::attach_mcast(&own.qp, group(1), 0xc001).expect("a member in the sender's process");
    let words = node.mem(64, Kind::Heap);
    let send = |number: u64, to| {
        words.write(0, &number.to_le_bytes());
        let sges = [words.sge(0, 8)];
        sender.run(SendWr { ud: Some(to), ..wr(WrOpcode::Send, &sges) });
    };
    loop {
        match topology.parent.get()[..] {
            [GREETING] => {
                for number in GREETING.. {
                    send(number, to_group(1));
                    assert_eq!(hear_any(&own, &mem), number, "in the sender's own process");
                    if topology.parent.ready(500) {
                        break;
                    }
                }
            }
            [first, count] => {
                send(u64::MAX, to_group(2));
                for number in first..first + count {
                    send(number, to_group(1));
                    assert_eq!(receive(&own, &mem), number, "in the sender's own process");
                }
                topology.parent.put(&[]);
            }
            _ => return,
        }
    }
}

/// Receives as many datagrams as the test says, and reports their numbers.
fn member(topology: Topology) {
    let node = Node::open(0);
    let mem = node.mem(64 * RECEIVES, Kind::Heap);
    let (joined, outside) = (datagram_endpoint(&node), datagram_endpoint(&node));
    post_all(&joined, &mem);
    outside.recv(0, &[mem.sge(0, 64)]);
    let attach = || SoftNic::attach_mcast(&joined.qp, group(1), 0xc001);
    attach().expect("a group");
    attach().expect("the same group again");
    topology.parent.put(&[]);
    loop {
        match topology.parent.get()[..] {
            [0] => SoftNic::detach_mcast(&joined.qp, group(1), 0xc001).expect("a member"),
            [GREETING] => {
                assert!(hear_any(&joined, &mem) >= GREETING, "nothing else was sent yet");
                topology.parent.put(&[]);
            }
            [count] => {
                let received: Vec<u64> = (0..count).map(|_| receive(&joined, &mem)).collect();
                topology.parent.put(&received);
            }
            _ => break,
        }
        assert!(poll_for(&outside.recv_cq, 2).is_empty(), "it joined nothing");
    }
    assert!(poll_for(&joined.recv_cq, 20).is_empty(), "what was sent after it left");
    let again = SoftNic::detach_mcast(&joined.qp, group(1), 0xc001).expect_err("left already");
    assert_eq!(again.errno, VerbsError::EINVAL);
}

/// Sends from and to each of the GIDs, and checks the GIDs in the routing header.
fn chooser(topology: Topology) {
    let nodes = [0, 1].map(Node::open);
    let ends = nodes.each_ref().map(datagram_endpoint);
    let into = nodes[1].mem(64, Kind::Heap);
    let words = nodes[0].mem(64, Kind::Heap);
    let gid =
        |node: &Node, index: u8| SoftNic::query_gid(&node.ctx, 1, index.into()).expect("a GID").gid;
    for (from, to) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
        ends[1].recv(0, &[into.sge(0, 64)]);
        let (sgid, dgid) = (gid(&nodes[0], from), gid(&nodes[1], to));
        let ah =
            AhAttr { dgid, sgid_index: from, is_global: true, port_num: 1, ..AhAttr::default() };
        let to = UdAddress { ah, remote_qpn: Qpn::new(ends[1].qpn), remote_qkey: QKEY };
        let sges = [words.sge(0, 8)];
        ends[0].run(SendWr { ud: Some(to), ..wr(WrOpcode::Send, &sges) });
        let wc = ends[1].recv_done();
        assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 48));
        assert!(wc.wc_flags.contains(WcFlags::GRH));
        assert_eq!(into.read(8, 16), sgid.0, "the source");
        assert_eq!(into.read(24, 16), dgid.0, "the destination");
    }
    topology.parent.put(&[]);
}

/// Programs answer a datagram by its header, which must have the GIDs that the sender chose.
#[test]
fn the_routing_header_names_what_was_chosen() {
    let processes = Processes::start(&[("chooser", &[])]);
    processes.link(0).get();
    processes.finish();
}

/// Makes the sender exchange hellos with all members.
fn meet(processes: &Processes) {
    processes.link(0).put(&[GREETING]);
    (1..=MEMBERS).for_each(|at| processes.link(at).put(&[GREETING]));
    (1..=MEMBERS).for_each(|at| drop(processes.link(at).get()));
}

#[test]
fn a_group_is_joined_and_left_by_processes() {
    let mut processes =
        Processes::start(&[("group sender", &[]), ("member", &[]), ("member", &[])]);
    (1..=MEMBERS).for_each(|at| drop(processes.link(at).get()));
    meet(&processes);
    let send = |processes: &Processes, first, count| {
        processes.link(0).put(&[first, count]);
        processes.link(0).get();
    };
    let received = |processes: &Processes, at: usize, first: u64, count: u64| {
        processes.link(at).put(&[count]);
        let expected: Vec<u64> = (first..first + count).collect();
        assert_eq!(processes.link(at).get(), expected, "member {at}");
    };
    send(&processes, 1, 20);
    (1..=MEMBERS).for_each(|at| received(&processes, at, 1, 20));
    // The second leaves the group; the first stays.
    processes.link(2).put(&[0]);
    processes.link(2).put(&[]);
    processes.expect_end(2);
    send(&processes, 21, 20);
    received(&processes, 1, 21, 20);
    processes.link(0).put(&[]);
    processes.expect_end(0);
    processes.link(1).put(&[0]);
    processes.link(1).put(&[]);
    processes.finish();
}

#[test]
fn a_member_that_is_killed_is_missed_by_nobody() {
    let mut processes =
        Processes::start(&[("group sender", &[]), ("member", &[]), ("member", &[])]);
    (1..=MEMBERS).for_each(|at| drop(processes.link(at).get()));
    meet(&processes);
    for round in 0..10u64 {
        processes.link(0).put(&[1 + 20 * round, 20]);
        if round == 1 {
            processes.kill(2);
        }
        processes.link(0).get();
        processes.link(1).put(&[20]);
        let expected: Vec<u64> = (1 + 20 * round..21 + 20 * round).collect();
        assert_eq!(processes.link(1).get(), expected, "round {round}");
    }
    processes.link(0).put(&[]);
    processes.expect_end(0);
    processes.link(1).put(&[0]);
    processes.link(1).put(&[]);
    processes.expect_end(1);
}

/// While one process of the group is stopped, all other members receive everything, and the sender
/// does not wait for the stopped one for ever.
#[test]
fn a_stopped_member_holds_up_nobody_else() {
    let mut processes =
        Processes::start(&[("group sender", &[]), ("member", &[]), ("member", &[])]);
    (1..=MEMBERS).for_each(|at| drop(processes.link(at).get()));
    // Exchange hellos while all members can answer.
    meet(&processes);
    processes.link(0).put(&[1, 1]);
    processes.link(0).get();
    for at in 1..=MEMBERS {
        processes.link(at).put(&[1]);
        assert_eq!(processes.link(at).get(), [1], "member {at}");
    }
    processes.signal(2, libc::SIGSTOP);
    until_stopped(processes.pid(2));
    // More than a ring holds. The sender receives each of them itself.
    processes.link(0).put(&[2, 20_000]);
    processes.link(0).get();
    processes.signal(2, libc::SIGCONT);
    // Each member has posted this many receives.
    let expected: Vec<u64> = (2..2 + RECEIVES as u64).collect();
    for at in 1..=MEMBERS {
        processes.link(at).put(&[RECEIVES as u64]);
        assert_eq!(processes.link(at).get(), expected, "member {at}");
        // Reposted receives may complete too, so end the member here.
        processes.kill(at);
    }
    processes.link(0).put(&[]);
    processes.finish();
}

/// Number and length of the datagrams that a streamer posts at once: enough for two rings.
const STREAM: (u64, usize) = (600, 4000);

/// Sends to a group of which it is a member, and polls only afterwards.
fn streamer(topology: Topology) {
    let (count, length) = STREAM;
    let node = Node::open(0);
    let plain = Setup::new(QpType::Ud);
    let cap = QpCap { max_send_wr: 1024, max_recv_wr: 1024, ..plain.cap };
    let endpoint = node.endpoint(&Setup { cap, cqe: 1024, ..plain });
    endpoint.connect(endpoint.address());
    let words = node.mem(8 * count as usize + length, Kind::Heap);
    let into = node.mem(count as usize * 4096, Kind::Heap);
    SoftNic::attach_mcast(&endpoint.qp, group(3), 0xc001).expect("a group");
    for number in 0..count {
        words.write(8 * number as usize, &number.to_le_bytes());
        endpoint.recv(number, &[into.sge(4096 * number as usize, 4096)]);
    }
    for number in 0..count {
        let sges = [words.sge(8 * number as usize, length)];
        let flags = SendFlags::SIGNALED;
        endpoint.send(SendWr { ud: Some(to_group(3)), flags, ..wr(WrOpcode::Send, &sges) });
    }
    for number in 0..count {
        let wc = endpoint.recv_done();
        assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, number));
        let received = into.read(4096 * number as usize + GRH, 8);
        assert_eq!(received, number.to_le_bytes(), "one was lost, and there were receives for all");
        assert_eq!(endpoint.send_done().status, WcStatus::Success);
    }
    topology.parent.put(&[]);
}

/// A datagram to a group waits for room in each member's ring.
#[test]
fn a_stream_to_a_group_waits_for_its_members() {
    let processes = Processes::start(&[("streamer", &[])]);
    processes.link(0).get();
    processes.finish();
}

/// Datagrams that a hasty sender sends.
const HASTY: u64 = 10;

/// A new process sends to a group that it has not joined, and destroys its QP without polling. An
/// adapter would have sent everything by then. Reports how long that took, ms.
fn hasty_sender(topology: Topology) {
    topology.parent.get();
    let node = Node::open(0);
    let sender = datagram_endpoint(&node);
    let words = node.mem(64, Kind::Heap);
    let began = Instant::now();
    for number in 1..=HASTY {
        words.write(0, &number.to_le_bytes());
        let sges = [words.sge(0, 8)];
        let flags = SendFlags::INLINE;
        sender.send(SendWr { ud: Some(to_group(1)), flags, ..wr(WrOpcode::Send, &sges) });
    }
    SoftNic::destroy_qp(&sender.qp).expect("a QP");
    topology.parent.put(&[began.elapsed().as_millis() as u64]);
}

/// A member that starts when the test says so.
fn late_member(topology: Topology) {
    topology.parent.get();
    member(topology);
}

/// A sender does not wait for members that send no hello for 200 ms. If the sender itself lost its
/// processor for that long, the round proves nothing.
#[test]
fn what_is_sent_before_the_qp_goes_is_heard() {
    let mut judged = 0;
    for round in 0..20 {
        let processes =
            Processes::start(&[("hasty sender", &[]), ("member", &[]), ("member", &[])]);
        (1..=MEMBERS).for_each(|at| drop(processes.link(at).get()));
        processes.link(0).put(&[]);
        if processes.link(0).get()[0] >= 150 {
            continue;
        }
        for at in 1..=MEMBERS {
            processes.link(at).put(&[HASTY]);
            let expected: Vec<u64> = (1..=HASTY).collect();
            assert_eq!(processes.link(at).get(), expected, "round {round}, member {at}");
            processes.link(at).put(&[0]);
            processes.link(at).put(&[]);
        }
        processes.finish();
        judged += 1;
        if judged == 5 {
            return;
        }
    }
    assert!(judged > 0, "it took too long each time");
}

/// A join returns only after every sender that knows the members has received of the new one.
#[test]
fn a_join_that_returned_is_known() {
    const ROUNDS: usize = 5;
    let mut roles: Vec<(&str, &[u64])> = vec![("late member", &[]); ROUNDS + 1];
    roles[0] = ("group sender", &[]);
    let processes = Processes::start(&roles);
    let send = |first: u64, count: u64| {
        processes.link(0).put(&[first, count]);
        processes.link(0).get();
    };
    send(1, 3);
    for newcomer in 1..=ROUNDS {
        processes.link(newcomer).put(&[]);
        processes.link(newcomer).get();
        let first = 10 * newcomer as u64;
        send(first, 3);
        for at in 1..=newcomer {
            processes.link(at).put(&[3]);
            let expected: Vec<u64> = (first..first + 3).collect();
            assert_eq!(processes.link(at).get(), expected, "member {at} of {newcomer}");
        }
    }
    (1..=ROUNDS).for_each(|at| processes.link(at).put(&[0]));
    (0..=ROUNDS).for_each(|at| processes.link(at).put(&[]));
    processes.finish();
}

/// The last number that a receiver reports.
const NO_MORE: u64 = u64::MAX;

/// Reports its address, then each datagram until it is told to stop.
fn receiver(mut topology: Topology) {
    let node = Node::open(0);
    let mem = node.mem(64 * RECEIVES, Kind::Heap);
    let link = topology.link(0);
    let endpoint = datagram_endpoint(&node);
    post_all(&endpoint, &mem);
    link.put(&[endpoint.qpn.into(), endpoint.lid.into()]);
    while !link.ready(0) {
        for wc in poll(&endpoint.recv_cq, 16) {
            let slot = wc.wr_id as usize * 64;
            link.put(&[mem.word(slot + GRH)]);
            endpoint.recv(wc.wr_id, &[mem.sge(slot, 64)]);
        }
    }
    link.put(&[NO_MORE]);
}

/// Reported by a busy sender if its datagram had completed before it polled.
const OVER: u64 = 1;

/// One QP sends to a stopped process and to a running one.
fn busy_sender(mut topology: Topology) {
    let node = Node::open(0);
    let mem = node.mem(4096, Kind::Heap);
    let (stopped, alive) = (topology.link(1), topology.link(2));
    let address = |words: &[u64]| Address { qpn: words[0] as u32, lid: words[1] as u16 };
    let (to_stopped, to_alive) = (address(&stopped.get()), address(&alive.get()));
    let endpoint = datagram_endpoint(&node);
    let known = topology.args[0] == 1;
    let send = |to, number: u64, flags| {
        mem.write(0, &number.to_le_bytes());
        let sges = [mem.sge(0, 8)];
        let flags = flags | SendFlags::INLINE;
        endpoint.post(SendWr { ud: Some(ud(to)), flags, ..wr(WrOpcode::Send, &sges) })
    };
    if known {
        send(to_stopped, 1, SendFlags::SIGNALED).expect("a datagram");
        assert_eq!(endpoint.send_done().status, WcStatus::Success);
        assert_eq!(stopped.get(), [1]);
    }
    topology.parent.put(&[]);
    topology.parent.get();
    if !known {
        // No hello yet. The post must not wait for one, else the datagram would be complete now.
        send(to_stopped, 2, SendFlags::SIGNALED).expect("a datagram");
        if !poll(&endpoint.send_cq, 1).is_empty() {
            return topology.parent.put(&[OVER]);
        }
        assert_eq!(endpoint.send_done().status, WcStatus::Success, "lost, which UD may");
    }
    // More than the ring holds.
    for number in 0..20_000 {
        send(to_stopped, number, SendFlags::SIGNALED).expect("a datagram");
        assert_eq!(endpoint.send_done().status, WcStatus::Success);
    }
    for number in 100..150 {
        send(to_alive, number, SendFlags::SIGNALED).expect("a datagram");
        assert_eq!(endpoint.send_done().status, WcStatus::Success);
        assert_eq!(alive.get(), [number]);
    }
    topology.parent.put(&[]);
    // After SIGCONT the receiver gets what the ring held, and then all later datagrams.
    topology.parent.get();
    until("the receiver that was stopped answers", || {
        send(to_stopped, 77_777, SendFlags::SIGNALED).expect("a datagram");
        assert_eq!(endpoint.send_done().status, WcStatus::Success);
        while stopped.ready(1) {
            if stopped.get() == [77_777] {
                return true;
            }
        }
        false
    });
    for link in [stopped, alive] {
        link.put(&[]);
        // Exiting earlier would break the link of a receiver that still reports datagrams.
        while link.get() != [NO_MORE] {}
    }
}

#[test]
fn a_stopped_receiver_holds_up_nobody_else() {
    for known in [0, 1] {
        // It is also complete at the poll if the sender loses its processor for 200 ms before.
        assert!((0..5).any(|_| is_held_up_by_nobody(known)), "the post waited for the hello");
    }
}

/// Returns whether the sender could poll while its first datagram waited for the hello.
fn is_held_up_by_nobody(known: u64) -> bool {
    let mut processes =
        Processes::start(&[("busy sender", &[known]), ("receiver", &[]), ("receiver", &[])]);
    processes.link(0).get();
    processes.signal(1, libc::SIGSTOP);
    until_stopped(processes.pid(1));
    processes.link(0).put(&[]);
    if processes.link(0).get() == [OVER] {
        return false;
    }
    processes.signal(1, libc::SIGCONT);
    processes.link(0).put(&[]);
    processes.expect_end(0);
    processes.finish();
    true
}
