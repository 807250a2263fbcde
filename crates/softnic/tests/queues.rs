//! The guarantees of queues: slots, overflow, receivers that are not ready, limits, and the events
//! that report them.

mod support;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;
use support::node::*;
use support::*;

#[test]
fn child_process_entry() {
    play(&[
        ("slots", slots),
        ("batches", batches),
        ("overflow", overflow),
        ("late receiver", late_receiver),
        ("eager sender", eager_sender),
        ("shared receiver", shared_receiver),
        ("foreign domain", foreign_domain),
        ("tired sender", tired_sender),
        ("never ready", never_ready),
        ("states", states),
        ("access", access),
    ]);
}

/// Two connected endpoints in one process.
fn pair(node: &Node, setup: &Setup) -> (Endpoint, Endpoint) {
    let (a, b) = (node.endpoint(setup), node.endpoint(setup));
    a.connect(b.address());
    b.connect(a.address());
    (a, b)
}

fn small() -> Setup {
    let mut setup = Setup::new(QpType::Rc);
    setup.cap.max_send_wr = 8;
    setup
}

/// A send queue slot becomes free only when a later signaled completion has been polled.
fn slots(topology: Topology) {
    let node = Node::open(0);
    let mem = node.mem(4096, Kind::from_arg(topology.args[0]));
    let (a, b) = pair(&node, &small());
    let sges = [mem.sge(0, 8)];
    let write = rdma(WrOpcode::Write, &sges, mem.addr() + 64, mem.rkey);
    let unsignalled = SendWr { flags: SendFlags::NONE, ..write };
    for round in 0..50u64 {
        mem.write(0, &(round + 1).to_le_bytes());
        (0..7).for_each(|_| a.send(unsignalled));
        until("the writes are done", || {
            poll(&b.recv_cq, 1);
            mem.word(64) == round + 1
        });
        // The requests are done, but no completion was polled: the slots stay occupied.
        a.send(SendWr { wr_id: round, ..write });
        assert_eq!(a.post(unsignalled), Err(PostError::QueueFull), "the queue holds eight");
        poll_for(&b.recv_cq, 1);
        assert_eq!(a.post(unsignalled), Err(PostError::QueueFull), "not polled yet");
        let wc = a.send_done();
        assert_eq!((wc.wr_id, wc.status), (round, WcStatus::Success));
    }
    // Half of the queue is after a signaled request: polling that one frees only the slots before.
    (0..3).for_each(|_| a.send(unsignalled));
    a.send(write);
    (0..4).for_each(|_| a.send(unsignalled));
    a.send_done();
    (0..4).for_each(|_| a.send(unsignalled));
    assert_eq!(a.post(unsignalled), Err(PostError::QueueFull), "four are free, not more");
    // Flushed requests complete, signaled or not, and so free their slots.
    let (a, b) = pair(&node, &small());
    b.to_state(QpState::Reset);
    (0..8).for_each(|wr_id| a.send(SendWr { wr_id, ..wr_unsignalled(&sges) }));
    a.to_state(QpState::Err);
    for wr_id in 0..8 {
        let wc = a.send_done();
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::WrFlushErr));
    }
    a.send(SendWr { wr_id: 99, ..unsignalled });
    let wc = a.send_done();
    assert_eq!((wc.wr_id, wc.status), (99, WcStatus::WrFlushErr));
}

/// An unsignaled SEND.
fn wr_unsignalled(sges: &[Sge]) -> SendWr<'_> {
    SendWr { flags: SendFlags::NONE, ..wr(WrOpcode::Send, sges) }
}

#[test]
fn send_slots_are_freed_by_polling_a_later_completion() {
    for kind in [0, 1] {
        Processes::start(&[("slots", &[kind])]).finish();
    }
}

/// A batch is posted completely or not at all, if any of its requests is invalid.
fn batches(_stage: Topology) {
    let node = Node::open(0);
    let mem = node.mem(4096, Kind::Heap);
    let (a, b) = pair(&node, &small());
    let sges = [mem.sge(0, 8)];
    let write = |wr_id| SendWr {
        wr_id,
        ..rdma(WrOpcode::Write, &sges, mem.addr() + 64 + 8 * wr_id, mem.rkey)
    };
    let gone = pages(4096);
    // SAFETY: a mapping of this test that nothing refers to.
    assert_eq!(unsafe { libc::mprotect(gone.cast(), 4096, libc::PROT_NONE) }, 0);
    let nowhere = [Sge { addr: gone as u64, length: 8, lkey: 0 }];
    let inline = SendFlags::SIGNALED | SendFlags::INLINE;
    let faulty = SendWr { flags: inline, ..rdma(WrOpcode::Write, &nowhere, mem.addr(), mem.rkey) };
    let many = [mem.sge(0, 8); 9];
    let wide = rdma(WrOpcode::Write, &many, mem.addr(), mem.rkey);
    mem.write(0, &1u64.to_le_bytes());
    let all = |wrs: &[SendWr<'_>]| SoftNic::post_send_all(&a.qp, wrs.iter().copied());
    for _ in 0..3 {
        assert_eq!(all(&[write(0), write(1), faulty]), Err((2, PostError::Fault)));
        assert_eq!(all(&[write(0), wide, write(1)]), Err((1, PostError::TooManySges)));
        let nine: Vec<_> = (0..9).map(write).collect();
        assert_eq!(all(&nine), Err((8, PostError::QueueFull)));
        assert_eq!(poll_for(&a.send_cq, 2).len() + poll(&b.recv_cq, 1).len(), 0);
        assert_eq!(mem.read(64, 128), [0; 128], "nothing was executed");
        // All slots are still free, and later requests are not mixed with the refused ones.
        let eight: Vec<_> = (0..8).map(|wr_id| SendWr { wr_id: 8 + wr_id, ..write(9) }).collect();
        assert_eq!(all(&eight), Ok(()));
        for wr_id in 8..16 {
            let wc = a.send_done();
            assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success));
        }
        mem.fill(64 + 72, 8, 0);
    }
}

#[test]
fn a_batch_is_posted_whole_or_not_at_all() {
    Processes::start(&[("batches", &[])]).finish();
}

fn next_event(node: &Node) -> AsyncEvent {
    let fd = SoftNic::async_fd(&node.ctx).expect("a descriptor");
    assert!(becomes_readable(fd), "an asynchronous event comes");
    SoftNic::wait_async_event(&node.ctx, Deadline::Never).expect("an event")
}

/// More completions than the CQ holds give an event and an error; they are not silently lost.
fn overflow(_stage: Topology) {
    let node = Node::open(0);
    let mem = node.mem(64, Kind::Heap);
    let setup = Setup::new(QpType::Rc);
    let (send_cq, recv_cq) = (node.cq(4, None, 31), node.cq(64, None, 32));
    let a = node.endpoint_on(&setup, &send_cq, &recv_cq, None);
    let b = node.endpoint(&setup);
    a.connect(b.address());
    b.connect(a.address());
    let sges = [mem.sge(0, 8)];
    (0..9).for_each(|_| a.send(rdma(WrOpcode::Write, &sges, mem.addr() + 8, mem.rkey)));
    poll_for(&b.recv_cq, 5);
    let event = next_event(&node);
    assert_eq!(event, AsyncEvent { event_type: AsyncEventType::CqErr, element: 31 });
    let mut out = [std::mem::MaybeUninit::uninit(); 16];
    assert_eq!(SoftNic::poll_cq(&send_cq, &mut out), Ok(4), "what fitted is there");
    let error = SoftNic::poll_cq(&send_cq, &mut out).expect_err("completions were lost");
    assert!(error.message.contains("overflow"), "{error}");
    assert!(!readable(SoftNic::async_fd(&node.ctx).expect("a descriptor"), 0), "told once");
}

#[test]
fn a_completion_queue_that_overflows_says_so() {
    Processes::start(&[("overflow", &[])]).finish();
}

/// Posts its receives late; nothing is lost.
fn late_receiver(mut topology: Topology) {
    let node = Node::open(0);
    let link = topology.link(1);
    let mem = node.mem(4096, Kind::Heap);
    let endpoint = node.endpoint(&Setup { min_rnr_timer: 5, ..Setup::new(QpType::Rc) });
    endpoint.connect_over(&link);
    link.put(&[mem.addr(), mem.rkey as u64]);
    assert!(poll_for(&endpoint.recv_cq, 30).is_empty());
    for number in 0..20u64 {
        std::thread::sleep(std::time::Duration::from_millis(number % 3));
        endpoint.recv(number, &[mem.sge(0, 64)]);
        let wc = endpoint.recv_done();
        assert_eq!((wc.wr_id, wc.status), (number, WcStatus::Success));
        assert_eq!(mem.word(0), number);
        // A WRITE after a SEND that waits for a receive must wait as well.
        assert!(mem.word(1024) <= number + 1, "overtaken");
    }
    link.sync();
    assert_eq!(mem.word(1024), 20);
}

fn eager_sender(mut topology: Topology) {
    let node = Node::open(0);
    let link = topology.link(0);
    let mem = node.mem(4096, Kind::Heap);
    let endpoint = node.endpoint(&Setup::new(QpType::Rc));
    endpoint.connect_over(&link);
    let theirs = link.get();
    for number in 0..20u64 {
        let slot = 64 * number as usize;
        mem.write(slot, &number.to_le_bytes());
        endpoint.send(wr(WrOpcode::Send, &[mem.sge(slot, 8)]));
        mem.write(slot + 8, &(number + 1).to_le_bytes());
        let sges = [mem.sge(slot + 8, 8)];
        endpoint.send(rdma(WrOpcode::Write, &sges, theirs[0] + 1024, theirs[1] as u32));
    }
    for _ in 0..40 {
        assert_eq!(endpoint.send_done().status, WcStatus::Success);
    }
    link.sync();
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    for lane in ["on", "off"] {
        let roles: &[(&str, &[u64])] = &[("late receiver", &[]), ("eager sender", &[])];
        Processes::start_plan(&Plan { roles, links: 1, env: &[("RDMALAB_LANE", lane)] }).finish();
    }
}

/// Gives up on a receiver that is never ready, after the retries that its attributes set.
fn tired_sender(mut topology: Topology) {
    let node = Node::open(0);
    let link = topology.link(1);
    let mem = node.mem(64, Kind::Heap);
    for rnr_retry in [0, 1, 3, 6] {
        let endpoint = node.endpoint(&Setup { rnr_retry, ..Setup::new(QpType::Rc) });
        endpoint.connect_over(&link);
        endpoint.send(SendWr { wr_id: 1, ..wr(WrOpcode::Send, &[mem.sge(0, 8)]) });
        endpoint.send(SendWr { wr_id: 2, ..wr(WrOpcode::Send, &[mem.sge(0, 8)]) });
        let (first, second) = (endpoint.send_done(), endpoint.send_done());
        assert_eq!((first.wr_id, first.status), (1, WcStatus::RnrRetryExcErr));
        assert_eq!((second.wr_id, second.status), (2, WcStatus::WrFlushErr));
        assert_eq!(endpoint.state(), QpState::Err);
        link.sync();
    }
}

fn never_ready(mut topology: Topology) {
    let node = Node::open(0);
    let link = topology.link(0);
    for _ in 0..4 {
        let endpoint = node.endpoint(&Setup { min_rnr_timer: 1, ..Setup::new(QpType::Rc) });
        endpoint.connect_over(&link);
        link.sync();
        assert_eq!(endpoint.state(), QpState::Rts, "the receiver has done nothing wrong");
    }
}

#[test]
fn a_receiver_that_is_never_ready_is_given_up() {
    Processes::start(&[("tired sender", &[]), ("never ready", &[])]).finish();
}

/// An SRQ: its limit, several QPs that take its receives, and the last WQE of a QP in ERR.
fn shared_receiver(_stage: Topology) {
    let node = Node::open(0);
    let mem = node.mem(4096, Kind::Heap);
    let init = SrqInit { max_wr: 16, max_sge: 2, srq_limit: 0, cookie: 51 };
    let (srq, info) = SoftNic::create_srq(&node.pd, init).expect("an SRQ");
    assert!(info.max_wr >= 16 && info.max_sge >= 2);
    let (send_cq, recv_cq) = (node.cq(64, None, 1), node.cq(64, None, 2));
    let setup = Setup { cookie: 52, ..Setup::new(QpType::Rc) };
    let receivers: Vec<Endpoint> =
        (0..3).map(|_| node.endpoint_on(&setup, &send_cq, &recv_cq, Some(&srq))).collect();
    let senders: Vec<Endpoint> = (0..3).map(|_| node.endpoint(&setup)).collect();
    for (receiver, sender) in receivers.iter().zip(&senders) {
        receiver.connect(sender.address());
        sender.connect(receiver.address());
    }
    let sges = [mem.sge(0, 64)];
    let wrs = (0..12).map(|wr_id| RecvWr { wr_id, sges: &sges });
    SoftNic::post_srq_recv(&srq, wrs).expect("twelve receives");
    SoftNic::modify_srq(&srq, None, Some(8)).expect("a limit");
    for round in 0..4 {
        senders[round % 3].run(wr(WrOpcode::Send, &sges));
        assert_eq!(wait(&recv_cq).qp_num, receivers[round % 3].qpn);
    }
    assert!(!readable(SoftNic::async_fd(&node.ctx).expect("a descriptor"), 0), "eight are left");
    senders[0].run(wr(WrOpcode::Send, &sges));
    let event = next_event(&node);
    let expected = AsyncEvent { event_type: AsyncEventType::SrqLimitReached, element: 51 };
    assert_eq!(event, expected);
    assert_eq!(SoftNic::query_srq(&srq).expect("an SRQ").srq_limit, 0, "one event a limit");
    receivers[1].to_state(QpState::Err);
    let event = next_event(&node);
    let expected = AsyncEvent { event_type: AsyncEventType::QpLastWqeReached, element: 52 };
    assert_eq!(event, expected);
    // The other QPs can use the seven receives that are left.
    assert_eq!(wait(&recv_cq).status, WcStatus::Success);
    for _ in 0..7 {
        senders[2].run(wr(WrOpcode::Send, &sges));
        assert_eq!(wait(&recv_cq).status, WcStatus::Success);
    }
    let refused = SoftNic::destroy_srq(&srq).expect_err("QPs use it");
    assert_eq!(refused.errno, VerbsError::EBUSY);
}

#[test]
fn a_shared_receive_queue_serves_and_tells() {
    Processes::start(&[("shared receiver", &[])]).finish();
}

/// Receives of an SRQ are checked against the SRQ's protection domain, not the QP's.
fn foreign_domain(_stage: Topology) {
    let node = Node::open(0);
    let other = SoftNic::alloc_pd(&node.ctx).expect("a PD");
    let init = SrqInit { max_wr: 4, max_sge: 1, srq_limit: 0, cookie: 1 };
    let (srq, _) = SoftNic::create_srq(&other, init).expect("an SRQ");
    let mem = node.mem(4096, Kind::Heap);
    let (_mr, info) =
        SoftNic::reg_mr(&other, mem.addr(), 4096, mem.addr(), Access::LOCAL_WRITE).expect("an MR");
    let connected = || {
        let (send_cq, recv_cq) = (node.cq(64, None, 1), node.cq(64, None, 2));
        let setup = Setup::new(QpType::Rc);
        let receiver = node.endpoint_on(&setup, &send_cq, &recv_cq, Some(&srq));
        let sender = node.endpoint(&setup);
        receiver.connect(sender.address());
        sender.connect(receiver.address());
        (sender, receiver)
    };
    let receive = |lkey| {
        let sges = [Sge { addr: mem.addr() + 2048, length: 64, lkey }];
        let wrs = std::iter::once(RecvWr { wr_id: 1, sges: &sges });
        SoftNic::post_srq_recv(&srq, wrs).expect("a receive");
    };
    mem.write(0, &[7; 64]);
    let (sender, receiver) = connected();
    receive(info.lkey);
    sender.run(wr(WrOpcode::Send, &[mem.sge(0, 64)]));
    assert_eq!(receiver.recv_done().status, WcStatus::Success);
    assert_eq!(mem.read(2048, 64), [7; 64]);
    mem.write(0, &[8; 64]);
    let (sender, receiver) = connected();
    receive(mem.lkey);
    sender.send(wr(WrOpcode::Send, &[mem.sge(0, 64)]));
    assert_eq!(receiver.recv_done().status, WcStatus::LocProtErr, "a key of the QP's domain");
    assert_eq!(sender.send_done().status, WcStatus::RemOpErr);
    assert_eq!(mem.read(2048, 64), [7; 64], "nothing was written");
}

#[test]
fn receives_of_an_srq_are_of_its_protection_domain() {
    Processes::start(&[("foreign domain", &[])]).finish();
}

/// The requests that each state accepts, and the events of a QP.
fn states(_stage: Topology) {
    let node = Node::open(0);
    let mem = node.mem(4096, Kind::Heap);
    let sges = [mem.sge(0, 8)];
    let (a, b) = (node.endpoint(&small()), node.endpoint(&small()));
    assert_eq!(a.post(wr(WrOpcode::Send, &sges)), Err(PostError::BadState), "RESET");
    a.to_init();
    a.recv(1, &sges);
    assert_eq!(a.post(wr(WrOpcode::Send, &sges)), Err(PostError::BadState), "INIT");
    a.to_rtr(b.address());
    b.connect(a.address());
    b.run(wr(WrOpcode::Send, &sges));
    let event = next_event(&node);
    let expected = AsyncEvent { event_type: AsyncEventType::CommEst, element: 7 };
    assert_eq!(event, expected, "traffic before RTS");
    assert_eq!(a.recv_done().wr_id, 1);
    a.to_rts();
    // SQD holds posted requests back, and reports the drain if requested.
    let drain = QpAttr { qp_state: QpState::Sqd, en_sqd_async_notify: true, ..QpAttr::default() };
    let mask = QpAttrMask::STATE | QpAttrMask::EN_SQD_ASYNC_NOTIFY;
    SoftNic::modify_qp(&a.qp, &drain, mask).expect("SQD");
    assert_eq!(next_event(&node).event_type, AsyncEventType::SqDrained);
    a.send(rdma(WrOpcode::Write, &sges, mem.addr() + 8, mem.rkey));
    assert!(poll_for(&a.send_cq, 20).is_empty(), "SQD starts nothing");
    a.to_state(QpState::Rts);
    assert_eq!(a.send_done().status, WcStatus::Success);
    // RESET discards all requests, and the QP can be used again.
    b.recv(5, &sges);
    a.to_state(QpState::Reset);
    b.to_state(QpState::Reset);
    assert!(poll(&b.recv_cq, 4).is_empty(), "RESET completes nothing");
    a.connect(b.address());
    b.to_init();
    b.recv(6, &sges);
    b.to_rtr(a.address());
    b.to_rts();
    a.run(wr(WrOpcode::Send, &sges));
    assert_eq!(b.recv_done().wr_id, 6);
    // In ERR, the requests of a batch before its refused one are flushed like all others.
    b.to_state(QpState::Err);
    let many = [mem.sge(0, 8); 33];
    let batch = [RecvWr { wr_id: 7, sges: &sges }, RecvWr { wr_id: 8, sges: &many }];
    let refused = SoftNic::post_recv(&b.qp, batch.into_iter());
    assert_eq!(refused, Err((1, PostError::TooManySges)));
    let flushed = b.recv_done();
    assert_eq!((flushed.wr_id, flushed.status), (7, WcStatus::WrFlushErr));
}

#[test]
fn states_take_what_they_should() {
    Processes::start(&[("states", &[])]).finish();
}

/// A peer that exceeds its access rights: the responder's QP reports it.
fn access(_stage: Topology) {
    let node = Node::open(0);
    let mem = node.mem(4096, Kind::Heap);
    let sges = [mem.sge(0, 8)];
    let (a, b) = pair(&node, &Setup { cookie: 61, ..small() });
    a.send(rdma(WrOpcode::Write, &sges, mem.addr() + 4090, mem.rkey));
    assert_eq!(a.send_done().status, WcStatus::RemAccessErr);
    let event = next_event(&node);
    let expected = AsyncEvent { event_type: AsyncEventType::QpAccessErr, element: 61 };
    assert_eq!(event, expected);
    assert_eq!(b.state(), QpState::Err);
    let (a, b) = pair(&node, &Setup { cookie: 62, ..small() });
    b.recv(1, &[mem.sge(0, 4)]);
    a.send(wr(WrOpcode::Send, &sges));
    assert_eq!(a.send_done().status, WcStatus::RemInvReqErr);
    assert_eq!(b.recv_done().status, WcStatus::LocLenErr);
}

#[test]
fn a_responder_hears_of_its_peers_faults() {
    Processes::start(&[("access", &[])]).finish();
}
