//! Messages and memory within one process.

mod support;

use std::sync::mpsc;
use std::time::Duration;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;
use rdmalab_testing::WaitLimit;
use support::PATIENCE;
use support::node::*;

/// Two datagram endpoints of this process, the second with `channel` for its receives.
fn endpoints(node: &Node, cq: &rdmalab_softnic::Cq) -> (Endpoint, Endpoint) {
    let setup = Setup::new(QpType::Ud);
    let first = node.endpoint(&setup);
    let second = node.endpoint_on(&setup, &node.cq(64, None, 3), cq, None);
    first.connect(second.address());
    second.connect(first.address());
    (first, second)
}

/// The sender calls no further verb, and yet the receiver wakes up. Only the bell can wake it,
/// since no timer waits for an acknowledgement of a datagram.
#[test]
fn a_sleeper_is_woken_by_a_sender_that_does_nothing_more() {
    let node = Node::open(0);
    let channel = SoftNic::create_channel(&node.ctx).unwrap();
    let cq = node.cq(64, Some(&channel), 9);
    let (sender, receiver) = endpoints(&node, &cq);
    let mem = node.mem(4096, Kind::Heap);
    for round in 0..20 {
        receiver.recv(round, &[mem.sge(0, 1024)]);
        SoftNic::req_notify_cq(&cq, false).unwrap();
        let (woken, hears) = mpsc::channel();
        let sleeping = channel.clone();
        let sleeper = std::thread::spawn(move || {
            let cookie = SoftNic::wait_channel(&sleeping, Deadline::Never).unwrap();
            woken.send(cookie).unwrap();
        });
        // Long enough for the progress thread to sleep as well.
        std::thread::sleep(Duration::from_millis(20));
        let sges = [mem.sge(2048, 100)];
        let to = ud(receiver.address());
        sender.send(SendWr { ud: Some(to), ..wr(WrOpcode::Send, &sges) });
        assert_eq!(WaitLimit::of(PATIENCE).receive(&hears), Ok(9), "round {round}");
        sleeper.join().unwrap();
        assert_eq!(wait(&cq).wr_id, round);
        assert_eq!(sender.send_done().status, WcStatus::Success);
    }
}

/// A wait with a deadline returns nothing then, and not earlier.
#[test]
fn a_wait_ends_at_its_deadline() {
    let node = Node::open(0);
    let channel = SoftNic::create_channel(&node.ctx).unwrap();
    let until = SoftNic::read_clock(&node.ctx) + 20_000_000;
    for end in [Deadline::Now, Deadline::At(until)] {
        let nothing = SoftNic::wait_channel(&channel, end).unwrap_err();
        assert_eq!(nothing.errno, VerbsError::EAGAIN);
        let nothing = SoftNic::wait_async_event(&node.ctx, end).unwrap_err();
        assert_eq!(nothing.errno, VerbsError::EAGAIN);
    }
    assert!(SoftNic::read_clock(&node.ctx) >= until);
}

/// A region cannot be deregistered while a window is bound to it; it can after a bind of length 0.
#[test]
fn a_region_outlives_its_windows() {
    let node = Node::open(0);
    let setup = Setup::new(QpType::Rc);
    let (first, second) = (node.endpoint(&setup), node.endpoint(&setup));
    first.connect(second.address());
    second.connect(first.address());
    let (mem, source) = (node.mem(4096, Kind::Heap), node.mem(4096, Kind::Heap));
    let (_window, mw_rkey) = SoftNic::alloc_mw(&node.pd, MwType::Type2).unwrap();
    let bind = |mw_rkey, new_rkey, length| MwBind {
        mw_rkey,
        new_rkey,
        mr_lkey: mem.lkey,
        addr: mem.addr(),
        length,
        access: Access::REMOTE_WRITE,
    };
    let new_rkey = mw_rkey ^ 0x55;
    second.run(SendWr { bind: Some(bind(mw_rkey, new_rkey, 64)), ..wr(WrOpcode::BindMw, &[]) });
    let sges = [source.sge(0, 64)];
    source.fill(0, 64, 7);
    first.run(rdma(WrOpcode::Write, &sges, mem.addr(), new_rkey));
    assert_eq!(mem.read(0, 64), [7; 64]);
    let busy = SoftNic::dereg_mr(&mem.mr).expect_err("a window is bound");
    assert_eq!(busy.errno, libc::EBUSY, "{busy:?}");
    first.run(rdma(WrOpcode::Write, &sges, mem.addr(), new_rkey));
    second.run(SendWr { imm_or_rkey: new_rkey, ..wr(WrOpcode::LocalInv, &[]) });
    SoftNic::dereg_mr(&mem.mr).expect("nothing is bound");
}

/// A queue pair of another transport service does not write, although each end names the other: on
/// a network its packets would be dropped (IBA vol. 1, 9.6.1.3).
#[test]
fn a_write_of_another_service_changes_nothing() {
    let node = Node::open(0);
    let mem = node.mem(4096, Kind::Heap);
    mem.write(0, &[1; 8]);
    for (from, to) in [(QpType::Uc, QpType::Rc), (QpType::Rc, QpType::Uc)] {
        let setup = Setup { timeout: 8, retry_cnt: 1, ..Setup::new(from) };
        let (sender, target) = (node.endpoint(&setup), node.endpoint(&Setup::new(to)));
        sender.connect(target.address());
        target.connect(sender.address());
        let sges = [mem.sge(0, 8)];
        let write = rdma(WrOpcode::Write, &sges, mem.addr() + 2048, mem.rkey);
        sender.send(SendWr { flags: SendFlags::SIGNALED, ..write });
        let status = sender.send_done().status;
        let expected = if from == QpType::Rc { WcStatus::RetryExcErr } else { WcStatus::Success };
        assert_eq!(status, expected);
        assert_eq!(mem.read(2048, 8), [0; 8], "{from:?} to {to:?}");
    }
}
