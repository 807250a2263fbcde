//! Small requests to another host that are posted one by one: they leave together, and none is left
//! behind by a program that does not poll.

mod support;

use rdmalab_engine::backend::SendWr;
use rdmalab_engine::vocab::*;
use support::net::{MTU_1024, Net, connect, enter};
use support::node::*;
use support::{Link, Topology, play, until};

/// Requests of the test that counts datagrams, on each queue pair.
const COUNTED: u64 = 2000;
/// How many are outstanding at most.
const OUTSTANDING: u64 = 60;
/// Requests that are posted by a program that then stops calling the device.
const LEFT: u64 = 40;
const QPS: u64 = 4;

#[test]
fn child_process_entry() {
    play(&[("sender", sender), ("receiver", receiver)]);
}

/// Datagrams that this thread's network namespace has sent; a run that the kernel segments is one.
fn datagrams_sent() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("the counters");
    let mut udp = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (udp.next().expect("names"), udp.next().expect("values"));
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs.find(|(name, _)| *name == "OutDatagrams").expect("the counter");
    value.parse().expect("a number")
}

fn endpoints(node: &Node, topology: &mut Topology) -> (Vec<Endpoint>, Link) {
    let plain = Setup::new(QpType::Rc).mtu(MTU_1024);
    let setup = Setup { cqe: 4096, cap: QpCap { max_recv_wr: 4096, ..plain.cap }, ..plain };
    let link = topology.link(1 - topology.index);
    let made: Vec<_> = (0..QPS).map(|_| node.endpoint(&setup)).collect();
    made.iter().for_each(|endpoint| connect(node, endpoint, &link, 1));
    (made, link)
}

fn sender(mut topology: Topology) {
    enter(1);
    let node = Node::open(0);
    let (endpoints, link) = endpoints(&node, &mut topology);
    let mem = node.mem(4096, Kind::Heap);
    link.sync();
    let before = datagrams_sent();
    let (mut posted, mut done) = (vec![0; endpoints.len()], vec![0; endpoints.len()]);
    let sges = [mem.sge(0, 64)];
    while done.iter().sum::<u64>() < COUNTED * QPS {
        for (index, endpoint) in endpoints.iter().enumerate() {
            while posted[index] < COUNTED && posted[index] - done[index] < OUTSTANDING {
                endpoint.send(wr(WrOpcode::Send, &sges));
                posted[index] += 1;
            }
        }
        for (index, endpoint) in endpoints.iter().enumerate() {
            for wc in poll(&endpoint.send_cq, 64) {
                assert_eq!(wc.status, WcStatus::Success);
                done[index] += 1;
            }
        }
    }
    let sent = datagrams_sent() - before;
    eprintln!("{} requests in {sent} sends", COUNTED * QPS);
    assert!(sent < COUNTED * QPS / 2, "{sent} sends");
    // From here on this thread does not call the device until all have arrived.
    for left in 1..=LEFT {
        let flags = if left == LEFT { SendFlags::SIGNALED } else { SendFlags::NONE };
        endpoints[0].send(SendWr { flags, ..wr(WrOpcode::Send, &sges) });
    }
    until("all requests have arrived", || topology.parent.ready(0));
    topology.parent.get();
    assert_eq!(endpoints[0].send_done().status, WcStatus::Success);
}

fn receiver(mut topology: Topology) {
    enter(2);
    let node = Node::open(0);
    let (endpoints, link) = endpoints(&node, &mut topology);
    let mem = node.mem(4096, Kind::Heap);
    // All of them: a sender that found no receive would send its requests again, and count them.
    for endpoint in &endpoints {
        (0..COUNTED + LEFT).for_each(|_| endpoint.recv(0, &[mem.sge(0, 64)]));
    }
    link.sync();
    let mut left = COUNTED * QPS + LEFT;
    until("every message has come", || {
        for endpoint in &endpoints {
            for wc in poll(&endpoint.recv_cq, 64) {
                assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 64));
                left -= 1;
            }
        }
        left == 0
    });
    topology.parent.put(&[]);
    // Acknowledges the last ones, until the sender has ended.
    until("the sender has ended", || {
        poll(&endpoints[0].recv_cq, 1);
        topology.parent.ready(0)
    });
}

#[test]
fn small_requests_leave_together_and_none_stays() {
    let Some(net) = Net::of("small_requests_leave_together_and_none_stays", 2) else { return };
    let mut processes = net.start(&[("sender", &[]), ("receiver", &[])]);
    processes.link(1).get();
    processes.link(0).put(&[]);
    processes.expect_end(0);
    processes.link(1).put(&[]);
    processes.expect_end(1);
}
