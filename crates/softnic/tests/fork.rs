//! Programs that fork: the parent goes on, verbs on inherited objects fail cleanly in the child,
//! and the child can open its own device.

mod support;

use std::mem::MaybeUninit;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::{Channel, SoftNic};
use support::node::*;
use support::storm::*;
use support::*;

#[test]
fn child_process_entry() {
    play(&[("forker", forker), ("partner", partner), ("busy forker", busy_forker)]);
}

/// Runs `work` in a forked child with its own time limit; returns the child's process id.
fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: the child uses the C library's allocator, which survives a fork, and threads of its
    // own only.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: a timer of this process; its signal ends a child that hangs.
        unsafe { libc::alarm(20) };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if result.is_ok() { 0 } else { 1 }) };
    }
    pid
}

/// Waits for a child and calls `meanwhile` until it ends; it must succeed.
fn reap(pid: i32, mut meanwhile: impl FnMut()) {
    let mut status = 0;
    until("the forked child ends", || {
        meanwhile();
        // SAFETY: our own child; the pointer is to a live integer.
        unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) == pid }
    });
    assert_eq!(status, 0, "exit {}, signal {}", status >> 8, status & 127);
}

/// The objects that a child inherits.
struct Inherited {
    node: Node,
    endpoint: Endpoint,
    mem: Mem,
    channel: Channel,
}

/// Each verb on an object from before the fork returns, and fails where it would act.
fn use_inherited(inherited: &Inherited) {
    let Inherited { node, endpoint, mem, channel } = inherited;
    let sges = [mem.sge(0, 8)];
    let refused = |result: VerbsResult<()>| {
        let error = result.expect_err("an object of the parent");
        assert_eq!(error.errno, VerbsError::ENODEV, "{error}");
    };
    assert!(endpoint.post(wr(WrOpcode::Send, &sges)).is_err(), "a send");
    let recv = RecvWr { wr_id: 0, sges: &sges };
    assert!(SoftNic::post_recv(&endpoint.qp, std::iter::once(recv)).is_err(), "a receive");
    let reset = QpAttr::default();
    refused(SoftNic::modify_qp(&endpoint.qp, &reset, QpAttrMask::STATE).map(drop));
    refused(SoftNic::reg_mr(&node.pd, mem.addr(), 8, mem.addr(), ALL_RIGHTS).map(drop));
    refused(SoftNic::alloc_pd(&node.ctx).map(drop));
    refused(SoftNic::create_channel(&node.ctx).map(drop));
    refused(SoftNic::wait_channel(channel, Deadline::Never).map(drop));
    let init =
        CqInit { cqe: 1, channel: None, timestamps: false, ignore_overrun: false, cookie: 0 };
    refused(SoftNic::create_cq(&node.ctx, init).map(drop));
    // Completions from before the fork may still be polled; afterwards polling fails.
    let mut out = [MaybeUninit::uninit(); 512];
    let polled = (0..3).map(|_| SoftNic::poll_cq(&endpoint.recv_cq, &mut out).map(drop));
    refused(polled.last().expect("three polls"));
    // A child may destroy what it inherited. That must neither hang nor affect the parent.
    SoftNic::dereg_mr(&mem.mr).expect("teardown");
    SoftNic::destroy_qp(&endpoint.qp).expect("teardown");
    SoftNic::destroy_cq(&endpoint.send_cq).expect("teardown");
    SoftNic::destroy_cq(&endpoint.recv_cq).expect("teardown");
    SoftNic::destroy_channel(channel).expect("teardown");
    SoftNic::dealloc_pd(&node.pd).expect("teardown");
    SoftNic::close(&node.ctx).expect("teardown");
}

/// The child opens its own device, and communicates with the process at the other end of the link.
fn talk_as_child(link: &Link) {
    let node = Node::open(1);
    let mem = node.mem(4096, Kind::Heap);
    talk(&node.endpoint(&Setup::new(QpType::Rc)), link, &mem);
}

/// Connects, sends a message, and reads the other side's memory.
fn talk(endpoint: &Endpoint, link: &Link, mem: &Mem) {
    endpoint.connect_over(link);
    mem.write(0, &77u64.to_le_bytes());
    link.put(&[mem.addr(), mem.rkey as u64]);
    let theirs = link.get();
    endpoint.run(wr(WrOpcode::Send, &[mem.sge(0, 8)]));
    endpoint.run(rdma(WrOpcode::Read, &[mem.sge(8, 8)], theirs[0], theirs[1] as u32));
    assert_eq!(mem.word(8), 77);
    link.sync();
}

fn inherit(node: &Node) -> Inherited {
    let channel = SoftNic::create_channel(&node.ctx).expect("a channel");
    let (send_cq, recv_cq) = (node.cq(64, None, 1), node.cq(64, Some(&channel), 2));
    let endpoint = node.endpoint_on(&Setup::new(QpType::Rc), &send_cq, &recv_cq, None);
    Inherited { node: node.clone(), endpoint, mem: node.mem(4096, Kind::Shared), channel }
}

fn storm_over(node: &Node, link: &Link, seed: u64) -> Storm {
    let mem = node.mem(ROOM, Kind::Shared);
    let endpoint = node.endpoint(&Setup::new(QpType::Rc));
    endpoint.connect_over(link);
    link.put(&[mem.addr(), mem.rkey as u64]);
    let words = link.get();
    Storm::new(endpoint, mem, (words[0], words[1] as u32), seed)
}

fn run_some(storm: &mut Storm, count: u64) {
    let goal = storm.done + count;
    until("traffic flows", || {
        assert!(storm.step(), "{:?}", storm.failed);
        storm.done >= goal
    });
}

/// Forks several times during traffic with a partner.
fn forker(mut topology: Topology) {
    let node = Node::open(0);
    let partner_link = topology.link(1);
    let mut storm = storm_over(&node, &partner_link, 5);
    for _ in 0..6 {
        run_some(&mut storm, 300);
        let (own, theirs) = Link::pair();
        let inherited = inherit(&node);
        let pid = fork(|| {
            use_inherited(&inherited);
            talk_as_child(&theirs);
        });
        drop(theirs);
        let own = &own;
        // The parent communicates with its own child while the traffic with the partner goes on.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                inherited.endpoint.to_init();
                inherited.endpoint.recv(0, &[inherited.mem.sge(64, 8)]);
                let to = own.get();
                own.put(&[inherited.endpoint.qpn as u64, inherited.endpoint.lid as u64]);
                let to = Address { qpn: to[0] as u32, lid: to[1] as u16 };
                inherited.endpoint.to_rtr(to);
                inherited.endpoint.to_rts();
                own.sync();
                finish_talk(&inherited, own);
            });
            run_some(&mut storm, 300);
        });
        reap(pid, || assert!(storm.step(), "{:?}", storm.failed));
    }
    run_some(&mut storm, 300);
    topology.parent.put(&[]);
    until("the test ends", || {
        storm.answer();
        topology.parent.ready(0)
    });
}

/// The parent's side of `talk`.
fn finish_talk(inherited: &Inherited, link: &Link) {
    let Inherited { endpoint, mem, .. } = inherited;
    mem.write(0, &77u64.to_le_bytes());
    link.put(&[mem.addr(), mem.rkey as u64]);
    let theirs = link.get();
    let wc = endpoint.recv_done();
    assert_eq!(wc.status, WcStatus::Success);
    assert_eq!(mem.word(64), 77);
    endpoint.run(rdma(WrOpcode::Read, &[mem.sge(8, 8)], theirs[0], theirs[1] as u32));
    link.sync();
}

fn partner(mut topology: Topology) {
    let node = Node::open(0);
    let mut storm = storm_over(&node, &topology.link(0), 6);
    topology.parent.put(&[]);
    while !topology.parent.ready(0) {
        storm.answer();
    }
}

#[test]
fn a_child_has_a_device_of_its_own_and_the_parent_keeps_his() {
    let mut processes = Processes::start(&[("forker", &[]), ("partner", &[])]);
    processes.link(1).get();
    processes.link(0).get();
    processes.link(0).put(&[]);
    processes.expect_end(0);
    processes.link(1).put(&[]);
    processes.expect_end(1);
}

/// Forks while other threads are in verbs. They may hold locks at that moment, and the child must
/// not wait for these.
fn busy_forker(mut topology: Topology) {
    let node = Node::open(0);
    let link = topology.link(1);
    let mut storm = storm_over(&node, &link, 7);
    let shared = Inherited {
        node: node.clone(),
        endpoint: storm.endpoint.clone(),
        mem: storm.mem.clone(),
        channel: SoftNic::create_channel(&node.ctx).expect("a channel"),
    };
    let over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(order) {
                assert!(storm.step(), "{:?}", storm.failed);
            }
        });
        let forks = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..60 {
                let pid = fork(|| use_inherited(&shared));
                reap(pid, std::thread::yield_now);
            }
        }));
        // Set this even after a panic, so that the thread ends.
        over.store(true, order);
        assert!(forks.is_ok());
    });
    run_some(&mut storm, 300);
    topology.parent.put(&[]);
}

#[test]
fn a_fork_while_threads_are_inside_verbs() {
    let mut processes = Processes::start(&[("busy forker", &[]), ("partner", &[])]);
    processes.link(1).get();
    processes.link(0).get();
    processes.expect_end(0);
    processes.link(1).put(&[]);
    processes.expect_end(1);
}
