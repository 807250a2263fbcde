//! The link-layer address of a peer on another host (network namespaces): the device waits for a
//! host that has not answered yet, and reports a host that does not exist.

mod support;

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use rdmalab_engine::backend::Backend;
use rdmalab_engine::vocab::*;
use rdmalab_link::address::gid_of;
use rdmalab_softnic::SoftNic;
use rdmalab_testing::again_while;
use support::net::{MTU_1024, Net, ah_of, connect, enter};
use support::node::*;
use support::{Role, Topology};

/// The GID of the IPv4 address.
const IPV4: u8 = 1;
/// How long a host does not answer: longer than all retries of a queue pair with `timeout` 14. The
/// kernel repeats its question each second.
const SILENT: Duration = Duration::from_millis(1300);
/// A host that lost its processor may be silent for longer than this. Then the device may give up,
/// which it does after 3.5 s.
const TOO_LONG: Duration = Duration::from_millis(2800);

const ROLES: &[(&str, Role)] = &[("early", early), ("late", late), ("lonely", lonely)];

#[test]
fn child_process_entry() {
    support::play(ROLES);
}

fn opened() -> (Node, Endpoint, Mem) {
    let node = Node::open(0);
    let setup = Setup { timeout: 14, ..Setup::new(QpType::Rc).mtu(MTU_1024) };
    let (endpoint, mem) = (node.endpoint(&setup), node.mem(4096, Kind::Heap));
    (node, endpoint, mem)
}

/// Connects to a host that does not answer yet, and sends at once.
fn early(mut topology: Topology) {
    enter(1);
    let link = topology.link(1);
    let (node, endpoint, mem) = opened();
    link.sync();
    connect(&node, &endpoint, &link, IPV4);
    let wc = endpoint.run(wr(WrOpcode::Send, &[mem.sge(0, 64)]));
    assert_eq!(wc.status, WcStatus::Success);
    link.sync();
}

/// Makes this host answer or ignore ARP requests. Unlike `ip`, this needs no kernel lock that other
/// processes of the machine hold.
fn answer_requests(answers: bool) {
    let mode = if answers { "0" } else { "8" };
    std::fs::write("/proc/sys/net/ipv4/conf/eth0/arp_ignore", mode).expect("root's");
}

/// A host that answers no ARP request for a while and reports how long, ms. It already has the
/// address of the other host, since its own request would tell that host its address.
fn late(mut topology: Topology) {
    enter(2);
    let link = topology.link(0);
    let (node, endpoint, mem) = opened();
    endpoint.to_init();
    endpoint.recv(1, &[mem.sge(0, 4096)]);
    answer_requests(false);
    link.sync();
    let (silent, parent) = (Instant::now(), topology.parent);
    // A thread starts in the network namespace of its creator.
    let answers = std::thread::spawn(move || {
        std::thread::sleep(SILENT);
        answer_requests(true);
        parent.put(&[silent.elapsed().as_millis() as u64]);
    });
    connect(&node, &endpoint, &link, IPV4);
    assert_eq!(endpoint.recv_done().status, WcStatus::Success);
    answers.join().expect("it answers");
    link.sync();
}

#[test]
fn an_address_that_is_not_resolved_yet_is_waited_for() {
    let once = || {
        let net = Net::of("an_address_that_is_not_resolved_yet_is_waited_for", 2)?;
        net.introduce(2, 1);
        let processes = net.start(&[("early", &[]), ("late", &[])]);
        let silent = Duration::from_millis(processes.link(1).get()[0]);
        Some((silent, processes, net))
    };
    let why = format!("a thread that sleeps for {SILENT:?} took longer than {TOO_LONG:?}");
    let is_late = |(silent, ..): &(Duration, _, _)| *silent > TOO_LONG;
    let found = again_while(&why, once, |found| found.as_ref().is_some_and(is_late));
    let Some((silent, processes, _net)) = found else { return };
    assert!(silent <= TOO_LONG, "{why}: {silent:?}");
    processes.finish();
}

/// Connects to an address that no host has.
fn lonely(_stage: Topology) {
    use QpAttrMask as M;
    enter(1);
    let (_node, endpoint, _mem) = opened();
    endpoint.to_init();
    let nobody = IpAddr::V4(Ipv4Addr::new(10, 92, 0, 77));
    let attr = QpAttr {
        qp_state: QpState::Rtr,
        path_mtu: MTU_1024,
        dest_qp_num: 77,
        min_rnr_timer: 1,
        max_dest_rd_atomic: 1,
        ah_attr: ah_of(gid_of(nobody), IPV4),
        ..QpAttr::default()
    };
    let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let mask = mask | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let refused = SoftNic::modify_qp(&endpoint.qp, &attr, mask).expect_err("there is nobody");
    assert_eq!(refused.errno, libc::ETIMEDOUT, "{refused:?}");
    assert!(refused.message.contains("10.92.0.77") && refused.message.contains("eth0"));
    assert_eq!(endpoint.state(), QpState::Init, "a refused change changes nothing");
}

#[test]
fn an_address_that_nobody_has_is_told_of() {
    let Some(net) = Net::of("an_address_that_nobody_has_is_told_of", 1) else { return };
    net.start(&[("lonely", &[])]).finish();
}
