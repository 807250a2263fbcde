//! A peer that is the only one to communicate gets a connected socket (network namespaces). No
//! message is lost when the socket is made or closed. The device closes it before a program sleeps,
//! needs packet headers, or shares the port. The tests use UC, which does not repair a loss.

mod support;

use std::time::{Duration, Instant};

use rdmalab_engine::backend::{Backend, SendWr};
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;
use support::net::{MTU_1024, Net, connect, enter};
use support::node::*;
use support::{Link, Role, Topology};

/// After this many checks the socket must be gone.
const LOOKS_MAX: u32 = 200_000;
/// How long an end tries in total to get a connected socket. On a quiet machine it needs a tenth of
/// that, but an end whose peer gets no processor hardly ever communicates alone for long enough.
const TRYING: Duration = Duration::from_secs(20);
/// A spinning process gets at least this share of a processor unless others need it too.
const QUIET_PERCENT: u64 = 90;
/// Receives that are posted.
const RECEIVES: u32 = 120;
/// Messages that one end sends without waiting: more than one poll takes.
const BURST: u32 = 100;
/// How often sockets are made and closed.
const TURNS: u32 = 3;

const ROLES: &[(&str, Role)] = &[
    ("talks", talks),
    ("sleeps", sleeps),
    ("expects", expects),
    ("shares", shares),
    ("joins", joins),
];

#[test]
fn child_process_entry() {
    support::play(ROLES);
}

/// The number of connected sockets on the device's port of this host.
fn flows() -> usize {
    let table =
        std::fs::read_to_string("/proc/thread-self/net/udp6").expect("the table of sockets");
    let ends = table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        Some((words.next()?, words.next()?))
    });
    ends.filter(|(local, remote)| local.ends_with(":12B7") && !remote.ends_with(":0000")).count()
}

/// One of two ends that send in turns.
struct Talker {
    node: Node,
    endpoint: Endpoint,
    mem: Mem,
    link: Link,
    begins: bool,
    sent: u32,
    heard: u32,
    met: Instant,
    /// How often both ends had a connected socket.
    had: u32,
}

/// Processor time that this process has used.
fn processor_time() -> Duration {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a live structure.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut used) };
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

impl Talker {
    fn meet(
        topology: &mut Topology,
        channel: Option<&rdmalab_softnic::Channel>,
        node: Node,
    ) -> Talker {
        let link = topology.link(1 - topology.index);
        let mut setup = Setup::new(QpType::Uc).mtu(MTU_1024);
        (setup.cap.max_send_wr, setup.cap.max_recv_wr) = (2 * BURST, RECEIVES);
        let cq = node.cq(512, channel, 7);
        let endpoint = node.endpoint_on(&setup, &cq, &cq, None);
        let mem = node.mem(4096, Kind::Heap);
        connect(&node, &endpoint, &link, 1);
        (0..RECEIVES).for_each(|_| endpoint.recv(1, &[mem.sge(0, 64)]));
        link.sync();
        let (begins, met) = (topology.index == 0, Instant::now());
        Talker { node, endpoint, mem, link, begins, sent: 0, heard: 0, met, had: 0 }
    }

    fn send(&mut self) {
        let sges = [self.mem.sge(64, 32)];
        let flags =
            if self.sent.is_multiple_of(16) { SendFlags::SIGNALED } else { SendFlags::NONE };
        let message = wr(WrOpcode::SendImm, &sges);
        self.endpoint.send(SendWr { flags, imm_or_rkey: self.sent, ..message });
        self.sent += 1;
    }

    /// Whether the completion is a receive; checks that it holds the next message.
    fn is_next(&mut self, wc: Wc) -> bool {
        assert_eq!(wc.status, WcStatus::Success);
        if wc.opcode != WcOpcode::Recv {
            return false;
        }
        assert_eq!(wc.imm_or_rkey, self.heard, "the next one, and none lost");
        self.heard += 1;
        self.endpoint.recv(1, &[self.mem.sge(0, 64)]);
        true
    }

    fn receive(&mut self) {
        while {
            let wc = wait(&self.endpoint.recv_cq);
            !self.is_next(wc)
        } {}
    }

    fn trip(&mut self) {
        if self.begins {
            self.send();
            self.receive();
        } else {
            self.receive();
            self.send();
        }
    }

    /// Makes round trips until both ends have a connected socket, or the time is up.
    fn talk_until_both_have_one(&mut self) {
        let (began, used) = (Instant::now(), processor_time());
        loop {
            (0..64).for_each(|_| self.trip());
            // Both ends must get the same result, and the socket may close between two checks.
            let goes_on = self.met.elapsed() < TRYING;
            let share = (processor_time() - used).div_duration_f64(began.elapsed());
            let ours = [flows() as u64, u64::from(goes_on), (100.0 * share) as u64];
            self.link.put(&ours);
            let theirs = self.link.get();
            let [flows, goes_on, share] = std::array::from_fn(|i| ours[i].min(theirs[i]));
            if flows == 1 {
                self.had += 1;
                return;
            }
            if goes_on == 0 {
                let excused = self.had > 0 || share < QUIET_PERCENT;
                assert!(excused, "no socket of its own, with {share} % of two processors");
                return;
            }
        }
    }

    /// Prints that the test is skipped if both ends never had a connected socket.
    fn part(self, test: &str) {
        if self.had == 0 && self.begins {
            let reason = "other programs kept the ends from talking alone";
            rdmalab_testing::skipped(test, reason);
        }
    }
}

/// Repeats: round trips, then a stream from one end, then silence.
fn talks(mut topology: Topology) {
    enter(1 + topology.index as u64);
    let mut talker = Talker::meet(&mut topology, None, Node::open(0));
    for _ in 0..TURNS {
        talker.talk_until_both_have_one();
        for _ in 0..40 {
            match talker.begins {
                true => (0..BURST).for_each(|_| talker.send()),
                false => (0..BURST).for_each(|_| talker.receive()),
            }
            talker.trip();
        }
        talker.talk_until_both_have_one();
        for looks in 0.. {
            assert!(looks < LOOKS_MAX, "silence does not end it");
            let none = poll_for(&talker.endpoint.recv_cq, 5).is_empty();
            assert!(none, "nobody speaks");
            if flows() == 0 {
                break;
            }
        }
        talker.link.sync();
    }
    talker.part("nothing_is_lost_when_a_socket_comes_and_goes");
}

#[test]
fn nothing_is_lost_when_a_socket_comes_and_goes() {
    let Some(net) = Net::of("nothing_is_lost_when_a_socket_comes_and_goes", 2) else { return };
    net.start(&[("talks", &[]), ("talks", &[])]).finish();
}

/// Both make round trips; then the second sleeps on its channel, in the verb or on its descriptor.
fn sleeps(mut topology: Topology) {
    enter(1 + topology.index as u64);
    let node = Node::open(0);
    let channel = SoftNic::create_channel(&node.ctx).expect("a channel");
    let inside = topology.args[0] == 1;
    let mut talker = Talker::meet(&mut topology, Some(&channel), node);
    for _ in 0..TURNS {
        talker.talk_until_both_have_one();
        for _ in 0..100 {
            if talker.begins {
                talker.link.get();
                talker.send();
                poll(&talker.endpoint.send_cq, 4);
                continue;
            }
            SoftNic::req_notify_cq(&talker.endpoint.recv_cq, false).expect("an armed CQ");
            talker.link.put(&[0]);
            let fd = SoftNic::channel_fd(&channel).expect("a descriptor");
            assert!(inside || readable(fd, 20_000), "nobody woke it");
            SoftNic::wait_channel(&channel, rdmalab_engine::backend::Deadline::Never)
                .expect("an event");
            talker.receive();
        }
    }
    talker.part("a_sleeping_caller_is_woken_by_packets");
}

#[test]
fn a_sleeping_caller_is_woken_by_packets() {
    let Some(net) = Net::of("a_sleeping_caller_is_woken_by_packets", 2) else { return };
    for inside in [0, 1] {
        net.start(&[("sleeps", &[inside]), ("sleeps", &[inside])]).finish();
    }
}

/// Makes enough round trips to earn a connected socket many times; there must be none at the end.
fn talk_without(talker: &mut Talker) {
    (0..4000).for_each(|_| talker.trip());
    talker.link.put(&[flows() as u64]);
    assert_eq!((flows(), talker.link.get()), (0, vec![0]));
}

/// Both make round trips; then both create a UD queue pair.
fn expects(mut topology: Topology) {
    enter(1 + topology.index as u64);
    let mut talker = Talker::meet(&mut topology, None, Node::open(0));
    talker.talk_until_both_have_one();
    let _datagrams = talker.node.endpoint(&Setup::new(QpType::Ud));
    talk_without(&mut talker);
    talker.part("a_process_with_ud_queue_pairs_has_one_socket");
}

#[test]
fn a_process_with_ud_queue_pairs_has_one_socket() {
    let Some(net) = Net::of("a_process_with_ud_queue_pairs_has_one_socket", 2) else { return };
    net.start(&[("expects", &[]), ("expects", &[])]).finish();
}

/// Both make round trips; then another process of each host opens the device.
fn shares(mut topology: Topology) {
    enter(1 + topology.index as u64);
    let mut talker = Talker::meet(&mut topology, None, Node::open(0));
    talker.talk_until_both_have_one();
    let other = topology.link(topology.index + 2);
    other.put(&[1]);
    while {
        talker.trip();
        let here = other.ready(0);
        talker.link.put(&[here.into()]);
        talker.link.get()[0] == 0 || !here
    } {}
    other.get();
    talk_without(&mut talker);
    other.put(&[2]);
    talker.part("a_shared_port_has_one_socket");
}

fn joins(mut topology: Topology) {
    enter(topology.index as u64 - 1);
    let other = topology.link(topology.index - 2);
    other.get();
    let _node = Node::open(0);
    other.put(&[1]);
    other.get();
}

#[test]
fn a_shared_port_has_one_socket() {
    let Some(net) = Net::of("a_shared_port_has_one_socket", 2) else { return };
    net.start(&[("shares", &[]), ("shares", &[]), ("joins", &[]), ("joins", &[])]).finish();
}
