//! Processes on hosts of their own (network namespaces): traffic over a network that loses and
//! damages packets, packets of foreign senders, multicast, and QP1.

mod support;

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::ops::Range;
use std::time::{Duration, Instant};

use rdmalab_engine::backend::Backend;
use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_engine::vocab::*;
use rdmalab_link::address::{FourTuple, gid_of};
use rdmalab_link::expand;
use rdmalab_link::hook::{Direction, PacketContext, PacketHook, Verdict};
use rdmalab_random::Random;
use rdmalab_softnic::management::{MAD_BYTES, ManagementPort, process_slot};
use rdmalab_softnic::{SoftNic, network_drops, set_packet_hook};
use rdmalab_testing::seeds_times;
use rdmalab_wire::ids::{Gid, Psn, Qpn};
use rdmalab_wire::opcode::Transport;
use support::net::{MTU_1024, Net, ah_of, connect, enter};
use support::node::*;
use support::storm::{ROOM, Storm};
use support::{Role, Topology, until};

const ROLES: &[(&str, Role)] = &[
    ("storm", storm),
    ("letters", letters),
    ("victim", victim),
    ("attacker", attacker),
    ("listener", listener),
    ("speaker", speaker),
    ("manager", manager),
];

#[test]
fn child_process_entry() {
    support::play(ROLES);
}

/// How many packets were dropped for a reason.
fn drops(reason: &str) -> u64 {
    network_drops().iter().find(|(name, _)| *name == reason).expect("a reason").1
}

/// Loses and damages outgoing packets, decided by seed and packet alone.
struct Weather {
    seed: u64,
    /// How many packets in a thousand.
    lost: u64,
    damaged: u64,
}

impl PacketHook for Weather {
    fn outgoing(&self, context: &PacketContext, packet: &mut [u8]) -> Verdict {
        if context.direction == Direction::In {
            return Verdict::Pass;
        }
        let flow = u64::from(context.destination_qp.get()) << 32 | u64::from(packet[0]) << 24;
        let which = u64::from(context.psn.get()) << 8 | u64::from(context.transmission);
        let mut random = Random::new(self.seed ^ flow ^ which.wrapping_mul(0x9e37_79b9));
        let fate = random.below(1000);
        if fate < self.lost {
            return Verdict::Drop;
        }
        if fate < self.lost + self.damaged {
            let at = random.below(packet.len() as u64) as usize;
            packet[at] ^= 1 << random.below(8);
        }
        Verdict::Pass
    }
}

/// Random operations of every kind in both directions; all must succeed.
fn storm(mut topology: Topology) {
    let (seed, gid_index, lost) = (topology.args[0], topology.args[1] as u8, topology.args[2]);
    enter(topology.index as u64 + 1);
    let link = topology.link(1 - topology.index);
    let node = Node::open(0);
    if lost > 0 {
        let damaged = if gid_index == 2 { lost } else { 0 };
        set_packet_hook(Box::new(Weather { seed, lost, damaged })).expect("a network");
    }
    // Eight time-outs of 67 ms: with one packet in ten lost that is enough, and a busy machine
    // seldom takes the processor away for so long.
    let setup = Setup { timeout: 14, ..Setup::new(QpType::Rc).mtu(MTU_1024) };
    let (endpoint, mem) = (node.endpoint(&setup), node.mem(ROOM, Kind::Heap));
    connect(&node, &endpoint, &link, gid_index);
    link.put(&[mem.addr(), mem.rkey as u64]);
    let theirs = link.get();
    let theirs = (theirs[0], theirs[1] as u32);
    let mut storm = Storm::new(endpoint, mem, theirs, seed + topology.index as u64);
    link.sync();
    let end = Instant::now() + Duration::from_secs(3);
    while storm.done < 400 || Instant::now() < end {
        assert!(storm.step(), "{:?}", storm.failed);
    }
    // This side posts no more, but the other side may still need its receives.
    let mut told = false;
    until("both ends are through", || {
        assert!(storm.answer(), "{:?}", storm.failed);
        if storm.sends == 0 && !told {
            link.put(&[1]);
            told = true;
        }
        told && link.ready(0)
    });
    assert_eq!(link.get(), [1]);
    if lost > 0 {
        assert!(drops("dropped by a rule or quirk") > 0, "the weather was fine");
    }
    link.sync();
}

#[test]
fn a_storm_over_a_network() {
    let Some(net) = Net::of("a_storm_over_a_network", 2) else { return };
    for gid_index in [1, 2] {
        let args: &[u64] = &[1, gid_index, 0];
        net.start(&[("storm", args), ("storm", args)]).finish();
    }
}

#[test]
fn a_storm_over_a_network_that_loses_packets() {
    let Some(net) = Net::of("a_storm_over_a_network_that_loses_packets", 2) else { return };
    for seed in seeds_times(1, 2) {
        for (gid_index, lost) in [(1, 10), (2, 30)] {
            let args: &[u64] = &[seed, gid_index, lost];
            net.start(&[("storm", args), ("storm", args)]).finish();
        }
    }
}

/// What loses packets: our rules, or the kernel.
const OUR_WEATHER: u64 = 1;
const THE_KERNELS: u64 = 2;

/// One end sends messages of many lengths, writes them and reads them back; both check every byte.
/// Packets are lost, and the receiver may sleep between messages.
fn letters(mut topology: Topology) {
    let (seed, gid_index, sleeps) =
        (topology.args[0], topology.args[1] as u8, topology.args[2] == 1);
    enter(topology.index as u64 + 1);
    let link = topology.link(1 - topology.index);
    let node = Node::open(0);
    if topology.args[3] == OUR_WEATHER {
        set_packet_hook(Box::new(Weather { seed, lost: 20, damaged: 5 })).expect("a network");
    }
    // The retries last for as long as a busy machine may keep a process from its processor.
    let setup = Setup { timeout: 14, ..Setup::new(QpType::Rc).mtu(MTU_1024) };
    let (endpoint, mem) = (node.endpoint(&setup), node.mem(ROOM, Kind::Heap));
    connect(&node, &endpoint, &link, gid_index);
    link.put(&[mem.addr(), mem.rkey as u64]);
    let theirs = link.get();
    let mut random = Random::new(seed);
    let content = |round: u64, length: usize| -> Vec<u8> {
        let mut random = Random::new(round ^ seed << 32);
        (0..length).map(|_| random.next_u64() as u8).collect()
    };
    for round in 0..60 {
        let length = [1, 7, 1023, 1024, 1025, 50_000, 200_000][random.below(7) as usize];
        let bytes = content(round, length);
        if topology.index == 0 {
            mem.write(0, &bytes);
            link.sync();
            match round % 3 {
                0 => drop(endpoint.run(wr(WrOpcode::Send, &[mem.sge(0, length)]))),
                1 => {
                    let sges = [mem.sge(0, length)];
                    let there = rdma(WrOpcode::WriteImm, &sges, theirs[0], theirs[1] as u32);
                    endpoint.run(there);
                }
                _ => {
                    let sges = [mem.sge(ROOM / 2, length)];
                    mem.fill(ROOM / 2, length, 0);
                    endpoint.run(rdma(WrOpcode::Read, &sges, theirs[0], theirs[1] as u32));
                    assert_eq!(mem.read(ROOM / 2, length), bytes, "seed {seed} round {round}");
                }
            }
            link.sync();
            continue;
        }
        match round % 3 {
            2 => mem.write(0, &bytes),
            _ => endpoint.recv(round, &[mem.sge(0, ROOM)]),
        }
        link.sync();
        if round % 3 != 2 {
            if sleeps {
                // The progress thread handles packets that arrive meanwhile.
                std::thread::sleep(Duration::from_millis(20));
            }
            let wc = endpoint.recv_done();
            assert_eq!((wc.status, wc.byte_len as usize), (WcStatus::Success, length));
            assert_eq!(mem.read(0, length), bytes, "seed {seed} round {round}");
        }
        link.sync();
    }
}

/// Exchanges messages over IPv4 without sleeps and over IPv6 with sleeps.
fn exchange_letters(net: &Net, weather: u64, seeds: Range<u64>) {
    for seed in seeds {
        for (gid_index, sleeps) in [(1, 0), (2, 1)] {
            let args: &[u64] = &[seed, gid_index, sleeps, weather];
            net.start(&[("letters", args), ("letters", args)]).finish();
        }
    }
}

#[test]
fn every_byte_arrives_however_many_packets_are_lost() {
    let Some(net) = Net::of("every_byte_arrives_however_many_packets_are_lost", 2) else { return };
    exchange_letters(&net, OUR_WEATHER, seeds_times(11, 1));
}

/// Exchanges messages with `count` seeds while a queue discipline of the kernel drops some packets
/// of both hosts.
fn letters_through(test: &str, queue: &str, count: u64) {
    let Some(net) = Net::of(test, 2) else { return };
    if !net.queue(test, queue) {
        return;
    }
    exchange_letters(&net, THE_KERNELS, seeds_times(11, count));
    let dropped = [1, 2].map(|host| net.dropped(host));
    println!("{queue}: {dropped:?} dropped");
    assert!(dropped.iter().all(|count| *count > 0), "{queue}: {dropped:?} dropped");
}

/// The queue handles a run of segments as one packet: some 180 of each host per seed.
#[test]
fn every_byte_arrives_over_a_link_that_loses_packets() {
    letters_through("every_byte_arrives_over_a_link_that_loses_packets", "netem loss 3%", 4);
}

/// A queue shorter than a burst: each long message overflows it.
#[test]
fn every_byte_arrives_through_a_short_queue() {
    let queue = "tbf rate 100mbit burst 4kb limit 24kb";
    letters_through("every_byte_arrives_through_a_short_queue", queue, 1);
}

/// The target of the foreign packets: nothing may complete, and no byte may change.
fn victim(mut topology: Topology) {
    enter(1);
    let (friend, foe) = (topology.link(1), topology.link(2));
    let node = Node::open(0);
    let setup = Setup::new(QpType::Rc).mtu(MTU_1024);
    let (endpoint, mem) = (node.endpoint(&setup), node.mem(ROOM, Kind::Heap));
    connect(&node, &endpoint, &friend, 1);
    mem.fill(0, ROOM, 0x77);
    for id in 0..8 {
        endpoint.recv(id, &[mem.sge(0, 4096)]);
    }
    foe.put(&[endpoint.qpn as u64, mem.addr(), mem.rkey as u64]);
    until("the attack is over", || {
        assert!(poll(&endpoint.recv_cq, 4).is_empty(), "a stranger's message was taken");
        foe.ready(0)
    });
    assert_eq!(foe.get(), [7]);
    assert!(poll_for(&endpoint.recv_cq, 50).is_empty());
    assert_eq!(mem.read(0, ROOM), vec![0x77; ROOM], "a stranger changed memory");
    assert_eq!(endpoint.state(), QpState::Rts);
    for reason in
        ["malformed", "no such queue pair", "not from the connected peer", "invariant CRC"]
    {
        assert!(drops(reason) > 0, "{reason}: {:?}", network_drops());
    }
    // The connection still works.
    friend.sync();
    let wc = endpoint.recv_done();
    assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 64));
    friend.sync();
}

/// Sends all kinds of packets from plain sockets; if told to, acts as the friend instead.
fn attacker(mut topology: Topology) {
    let is_friend = topology.args[0] == 1;
    enter(topology.index as u64 + 1);
    let link = topology.link(0);
    if is_friend {
        let node = Node::open(0);
        let setup = Setup::new(QpType::Rc).mtu(MTU_1024);
        let (endpoint, mem) = (node.endpoint(&setup), node.mem(4096, Kind::Heap));
        connect(&node, &endpoint, &link, 1);
        link.sync();
        endpoint.run(wr(WrOpcode::Send, &[mem.sge(0, 64)]));
        return link.sync();
    }
    let words = link.get();
    let socket = UdpSocket::bind("10.92.0.3:4791").expect("a socket");
    let tuple = FourTuple {
        source: "10.92.0.3".parse().unwrap(),
        destination: "10.92.0.1".parse().unwrap(),
        source_port: 4791,
        destination_port: 4791,
    };
    let mut random = Random::new(topology.args[1]);
    for shot in 0..20_000u64 {
        let mut bytes = packet(&mut random, words[0] as u32, words[1], words[2] as u32);
        match shot % 4 {
            0 => expand::seal(&tuple, 0, &mut bytes),
            1 => drop(bytes.pop()),
            2 => bytes.iter_mut().take(64).for_each(|byte| *byte = random.next_u64() as u8),
            // The CRC is right for the friend's address, which is not the datagram's source.
            _ => {
                let friend = FourTuple { source: "10.92.0.2".parse().unwrap(), ..tuple };
                expand::seal(&friend, 0, &mut bytes);
            }
        }
        if shot % 64 == 63 {
            // To the multicast QP instead of the connected QP, so that the CRC is checked.
            bytes[..].fill(0);
            bytes[..12].copy_from_slice(&[0x64, 0, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0, 0, 0, 1]);
            bytes.resize(12 + 8 + 64 + 4, 9);
        }
        let _ = socket.send_to(&bytes, "10.92.0.1:4791");
        if shot % 32 == 0 {
            // Do not overflow the victim's socket buffer.
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    link.put(&[7]);
}

/// A packet that would do harm if the receiver accepted it.
fn packet(random: &mut Random, qpn: u32, addr: u64, rkey: u32) -> Vec<u8> {
    let kind = TrainKind::from_number(random.below(8) as u8).expect("a kind");
    let qpn = if random.below(4) == 0 { random.next_u64() as u32 } else { qpn };
    let psn = Psn::new(0x00ff_fff0 + random.below(3) as u32);
    let mut train = Train::new(kind, Qpn::new(qpn), Qpn::new(1), psn);
    train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST | TrainFlags::ACK_REQ);
    (train.remote_addr, train.rkey) = (addr, rdmalab_wire::ids::RKey(rkey));
    if matches!(kind, TrainKind::Send | TrainKind::Write | TrainKind::ReadResponse) {
        train.payload_bytes = random.below(1025) as u32;
        train.dma_bytes = train.payload_bytes;
    }
    let mut bytes = vec![0x55; train.payload_bytes as usize + expand::MAX_OVERHEAD_BYTES];
    let parts = expand::write_headers(&train, Transport::Rc, &mut bytes).expect("a packet");
    bytes.truncate(parts.packet_bytes);
    bytes
}

#[test]
fn packets_of_strangers_do_nothing() {
    let Some(net) = Net::of("packets_of_strangers_do_nothing", 3) else { return };
    for seed in seeds_times(1, 1) {
        let roles: [(&str, &[u64]); 3] =
            [("victim", &[]), ("attacker", &[1, seed]), ("attacker", &[0, seed])];
        net.start(&roles).finish();
    }
}

/// The kernel's default hop limit for unicast, but not for multicast.
const USUAL_HOPS: u8 = 64;
/// The traffic class and the flow label of datagrams.
const TRAFFIC_CLASS: u8 = 0x28;
const FLOW_LABEL: u32 = 0x1_2345;

/// The groups of the multicast test, over each version of IP, and the GID index of their senders.
/// The last has a scope that no kernel sends on a network.
const GROUPS: [(&str, u8); 3] = [("239.92.1.2", 1), ("ff15::92", 2), ("ff01::92", 2)];

fn group(number: u64) -> Gid {
    gid_of(GROUPS[number as usize].0.parse().expect("an address"))
}

fn datagram_endpoint(node: &Node) -> Endpoint {
    let endpoint = node.endpoint(&Setup::new(QpType::Ud));
    endpoint.to_init();
    endpoint.to_state(QpState::Rtr);
    endpoint.to_rts();
    endpoint
}

/// Joins a group and receives its messages, which begin with their number. None may arrive twice,
/// however many are sent until every listener got one.
fn listener(topology: Topology) {
    let (host, group) = (topology.args[0], group(topology.args[1]));
    enter(host);
    let node = Node::open(0);
    let (endpoint, mem) = (datagram_endpoint(&node), node.mem(4096, Kind::Heap));
    SoftNic::attach_mcast(&endpoint.qp, group, 0).expect("a group");
    let receive = |slot: u64| endpoint.recv(slot, &[mem.sge(slot as usize * 256, 256)]);
    (0..16).for_each(receive);
    topology.parent.put(&[1]);
    let mut received = BTreeSet::new();
    let mut check = |wc: Wc| {
        assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 40 + 64), "{wc:?}");
        let message = mem.read(wc.wr_id as usize * 256 + 40, 64);
        assert_eq!(message[1..], vec![0xab; 63]);
        assert!(received.insert(message[0]), "{} came twice", message[0]);
    };
    let wc = endpoint.recv_done();
    let header = mem.read(wc.wr_id as usize * 256, 40);
    check(wc);
    if host != 1 {
        // From the network, with its IP header.
        let hops = match group.is_multicast() {
            false => {
                assert_eq!((header[20], &header[36..40]), (0x45, &group.0[12..]));
                header[28]
            }
            true => {
                assert_eq!(&header[24..], &group.0[..], "as it was joined");
                let first = u32::from_be_bytes(header[..4].try_into().expect("four bytes"));
                let chosen = 6 << 28 | u32::from(TRAFFIC_CLASS) << 20 | FLOW_LABEL;
                assert_eq!(first, chosen, "the address vector's: {first:x}");
                header[7]
            }
        };
        assert_eq!(hops, USUAL_HOPS, "the address vector's");
        until("the one before comes, and is dropped", || drops("queue key") > 0);
    }
    receive(wc.wr_id);
    topology.parent.put(&[2]);
    while !topology.parent.ready(0) {
        for wc in poll(&endpoint.recv_cq, 1) {
            check(wc);
            receive(wc.wr_id);
        }
    }
    for wc in poll_for(&endpoint.recv_cq, 100) {
        check(wc);
    }
    SoftNic::detach_mcast(&endpoint.qp, group, 0).expect("it is in the group");
}

/// Sends a message to a group, after one with a wrong Q_Key, and repeats both until all listeners
/// got one. A datagram may be lost, for example to a process that does not send its hello in time.
fn speaker(topology: Topology) {
    enter(1);
    let node = Node::open(0);
    let (endpoint, mem) = (datagram_endpoint(&node), node.mem(4096, Kind::Heap));
    mem.fill(0, 64, 0xab);
    topology.parent.put(&[1]);
    assert_eq!(topology.parent.get(), [1]);
    let ah = AhAttr {
        hop_limit: USUAL_HOPS,
        traffic_class: TRAFFIC_CLASS,
        flow_label: FLOW_LABEL,
        ..ah_of(group(topology.args[0]), GROUPS[topology.args[0] as usize].1)
    };
    let sges = [mem.sge(0, 64)];
    for number in 0..=u8::MAX {
        mem.fill(0, 1, number);
        for remote_qkey in [QKEY ^ 1, QKEY] {
            let ud = Some(UdAddress { ah, remote_qpn: Qpn::MULTICAST, remote_qkey });
            endpoint.run(rdmalab_engine::backend::SendWr { ud, ..wr(WrOpcode::Send, &sges) });
        }
        if topology.parent.ready(500) {
            break;
        }
    }
    assert_eq!(topology.parent.get(), [2]);
}

/// Two members on the speaker's host, two on another behind one port, one on a third host.
#[test]
fn a_group_reaches_every_process_of_every_host() {
    let Some(net) = Net::of("a_group_reaches_every_process_of_every_host", 3) else { return };
    for index in 0..GROUPS.len() as u64 {
        let (one, two, three) = ([1, index], [2, index], [3, index]);
        let roles: [(&str, &[u64]); 6] = [
            ("speaker", &[index]),
            ("listener", &one),
            ("listener", &one),
            ("listener", &two),
            ("listener", &two),
            ("listener", &three),
        ];
        let processes = net.start(&roles);
        (0..6).for_each(|child| assert_eq!(processes.link(child).get(), [1]));
        processes.link(0).put(&[1]);
        (1..6).for_each(|child| assert_eq!(processes.link(child).get(), [2]));
        (0..6).for_each(|child| processes.link(child).put(&[2]));
        processes.finish();
    }
}

/// A MAD may be lost like any datagram: the sender repeats it after this time.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The answer to each MAD.
const ANSWER: [u8; MAD_BYTES] = [9; MAD_BYTES];

/// Sends a MAD to QP1 of another host until one arrives, and answers those that arrive.
fn manager(mut topology: Topology) {
    enter(topology.args[0]);
    let port = ManagementPort::open().expect("QP1");
    assert_eq!(u64::from(process_slot().expect("a slot")), u64::from(process_slot().unwrap()));
    let link = topology.link(1 - topology.index);
    link.sync();
    let (own, is_same_host) = (port.gids()[1], topology.args[0] == topology.args[1]);
    match topology.index {
        0 => ask(&port, is_same_host),
        _ => {
            let mut is_asked = false;
            until("the MAD comes, and its answer arrives", || match port.receive() {
                // Every process of a host gets all its MADs, even its own.
                Some(found) if is_same_host && found.mad == ANSWER => false,
                Some(found) => {
                    assert_eq!((found.source_qp, found.to, found.mad[17]), (1, own, 17));
                    port.send(1, found.from, &ANSWER).expect("a way back");
                    is_asked = true;
                    false
                }
                None => is_asked && link.ready(0),
            });
        }
    }
    link.sync();
}

/// Sends a MAD until one arrives: the answer, or its own if the other process is on the same host.
fn ask(port: &ManagementPort, is_same_host: bool) {
    let to = match is_same_host {
        true => port.gids()[1],
        false => gid_of("10.92.0.2".parse().unwrap()),
    };
    let mad: [u8; MAD_BYTES] = std::array::from_fn(|i| i as u8);
    let (mut found, mut again_at) = (None, Instant::now());
    until("a MAD comes", || {
        if Instant::now() >= again_at {
            port.send(1, to, &mad).expect("a way");
            again_at = Instant::now() + ASK_AGAIN;
        }
        found = port.receive();
        found.is_some()
    });
    let found = found.expect("a MAD");
    assert_eq!(found.source_qp, 1);
    assert_eq!(found.mad, if is_same_host { mad } else { ANSWER });
}

#[test]
fn management_datagrams_find_qp1_here_and_there() {
    let Some(net) = Net::of("management_datagrams_find_qp1_here_and_there", 2) else { return };
    net.start(&[("manager", &[1, 2]), ("manager", &[2, 1])]).finish();
    net.start(&[("manager", &[1, 1]), ("manager", &[1, 1])]).finish();
}
