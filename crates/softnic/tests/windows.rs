//! Memory windows between processes: the owner binds a window, the peer uses it, either end
//! invalidates it, and both ends get errors if the peer uses a window without the right.

mod support;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_random::Random;
use rdmalab_softnic::{Mw, SoftNic};
use support::node::*;
use support::*;

#[test]
fn child_process_entry() {
    play(&[
        ("type 1 owner", type_1_owner),
        ("type 2 owner", type_2_owner),
        ("racing owner", racing_owner),
        ("careful owner", careful_owner),
        ("user", user),
        ("writer", writer),
    ]);
}

/// The owner's orders for the user.
const CONNECT: u64 = 0;
const WRITE: u64 = 1;
const READ: u64 = 2;
const ADD: u64 = 3;
const SEND: u64 = 4;
const SEND_INV: u64 = 5;
const END: u64 = 6;

/// Offset of the window in the owner's memory, and its length.
const AT: usize = 512;
const LENGTH: u64 = 256;

/// Executes the owner's orders over the connection, and reports the results.
fn user(mut topology: Topology) {
    let (node, link) = (Node::open(0), topology.link(0));
    let mem = node.mem(4096, Kind::Heap);
    let mut endpoint: Option<Endpoint> = None;
    loop {
        let words = link.get();
        let [order, addr, key, length] = words[..] else { panic!("four numbers: {words:?}") };
        let (key, sges) = (key as u32, [mem.sge(0, length as usize)]);
        let request = match order {
            CONNECT => {
                let fresh = node.endpoint(&Setup::new(QpType::Rc));
                fresh.connect_over(&link);
                if let Some(old) = endpoint.replace(fresh) {
                    SoftNic::destroy_qp(&old.qp).expect("an old QP");
                }
                continue;
            }
            WRITE => rdma(WrOpcode::Write, &sges, addr, key),
            READ => rdma(WrOpcode::Read, &sges, addr, key),
            ADD => SendWr { compare_add: 1, ..rdma(WrOpcode::FetchAdd, &sges, addr, key) },
            SEND => wr(WrOpcode::Send, &sges),
            SEND_INV => SendWr { imm_or_rkey: key, ..wr(WrOpcode::SendInv, &sges) },
            _ => return,
        };
        if order == WRITE {
            mem.fill(0, length as usize, 0xab);
        }
        let endpoint = endpoint.as_ref().expect("connected first");
        endpoint.send(request);
        let wc = endpoint.send_done();
        link.put(&[wc.status as u64, mem.word(0), endpoint.state() as u64]);
    }
}

/// The owner of the window.
struct Owner {
    node: Node,
    link: Link,
    mem: Mem,
    endpoint: Endpoint,
}

impl Owner {
    fn new(topology: &mut Topology) -> Owner {
        let (node, link) = (Node::open(0), topology.link(1));
        let mem = node.mem(8192, Kind::from_arg(topology.args[0]));
        link.put(&[CONNECT, 0, 0, 0]);
        let endpoint = node.endpoint(&Setup::new(QpType::Rc));
        endpoint.connect_over(&link);
        Owner { node, link, mem, endpoint }
    }

    /// Connects again after an error. The old QP is destroyed, or returned if `keep_old`.
    fn reconnect(&mut self, keep_old: bool) -> Option<Endpoint> {
        self.link.put(&[CONNECT, 0, 0, 0]);
        let fresh = self.node.endpoint(&Setup::new(QpType::Rc));
        if !keep_old {
            SoftNic::destroy_qp(&self.endpoint.qp).expect("an old QP");
        }
        fresh.connect_over(&self.link);
        let old = std::mem::replace(&mut self.endpoint, fresh);
        keep_old.then_some(old)
    }

    /// Gives the user an order; returns the status, and the first word of the user's memory.
    fn ask(&self, order: u64, offset: usize, key: u32, length: u64) -> (WcStatus, u64) {
        self.link.put(&[order, self.mem.addr() + offset as u64, key.into(), length]);
        let words = self.link.get();
        let status = WcStatus::from_ibv(words[0] as u32).expect("a status");
        let failed = words[2] == QpState::Err as u64;
        assert_eq!(failed, status != WcStatus::Success, "the user's QP after {status:?}");
        (status, words[1])
    }

    /// The operation must succeed; returns the word.
    fn granted(&self, order: u64, offset: usize, key: u32, length: u64) -> u64 {
        let (status, word) = self.ask(order, offset, key, length);
        assert_eq!(status, WcStatus::Success, "order {order}");
        word
    }

    /// The operation must fail: the user gets an error, our QP is in ERR with an access event, and
    /// memory is unchanged. Then both connect again.
    fn refused(&mut self, order: u64, offset: usize, key: u32, length: u64) {
        let before = self.mem.read(0, self.mem.len);
        assert_eq!(self.ask(order, offset, key, length).0, WcStatus::RemAccessErr);
        until("our QP hears of it", || self.endpoint.state() == QpState::Err);
        let event = SoftNic::wait_async_event(&self.node.ctx, Deadline::Never).expect("an event");
        assert_eq!(event.event_type, AsyncEventType::QpAccessErr);
        assert!(self.mem.read(0, self.mem.len) == before, "refused, but done");
        self.reconnect(false);
    }

    fn bind(&self, mw_rkey: u32, new_rkey: u32, length: u64, access: Access) -> WcStatus {
        let bind = MwBind {
            mw_rkey,
            new_rkey,
            mr_lkey: self.mem.lkey,
            addr: self.mem.addr() + AT as u64,
            length,
            access,
        };
        self.endpoint.send(SendWr { bind: Some(bind), ..wr(WrOpcode::BindMw, &[]) });
        self.endpoint.send_done().status
    }

    fn bound(&self, mw_rkey: u32, new_rkey: u32, access: Access) {
        assert_eq!(self.bind(mw_rkey, new_rkey, LENGTH, access), WcStatus::Success);
    }

    fn window(&self, mw_type: MwType) -> (Mw, u32) {
        SoftNic::alloc_mw(&self.node.pd, mw_type).expect("a window")
    }

    fn end(&self) {
        self.link.put(&[END, 0, 0, 0]);
    }
}

fn type_1_owner(mut topology: Topology) {
    let mut owner = Owner::new(&mut topology);
    let (window, unbound) = owner.window(MwType::Type1);
    owner.refused(WRITE, AT, unbound, 8);
    let first = SoftNic::next_mw_rkey(&window);
    let zero_based = Access::REMOTE_WRITE | Access::ZERO_BASED;
    assert_eq!(owner.bind(unbound, first, LENGTH, zero_based), WcStatus::MwBindErr);
    owner.reconnect(false);
    owner.bound(unbound, first, Access::REMOTE_WRITE);
    owner.granted(WRITE, AT, first, LENGTH);
    assert_eq!(owner.mem.read(AT, LENGTH as usize), [0xab; LENGTH as usize]);
    assert_eq!(owner.mem.read(AT + LENGTH as usize, 8), [0; 8]);
    owner.refused(READ, AT, first, 8);
    owner.refused(WRITE, AT, first, LENGTH + 1);
    owner.refused(WRITE, AT - 8, first, 16);
    // Every QP of the domain may use a type 1 window, even one created after the bind. The key from
    // the previous bind is invalid.
    owner.mem.write(AT, &7u64.to_le_bytes());
    let second = SoftNic::next_mw_rkey(&window);
    owner.bound(first, second, Access::REMOTE_READ | Access::REMOTE_ATOMIC);
    assert_eq!(owner.granted(READ, AT, second, 8), 7);
    assert_eq!(owner.granted(ADD, AT, second, 8), 7);
    assert_eq!(owner.mem.word(AT), 8);
    owner.refused(READ, AT, first, 8);
    owner.refused(WRITE, AT, second, 8);
    let busy = SoftNic::dereg_mr(&owner.mem.mr).expect_err("a window is bound");
    assert_eq!(busy.errno, VerbsError::EBUSY);
    // A type 1 window cannot be invalidated; a bind of length 0 unbinds it.
    let (status, _) = invalidate(&owner.endpoint, second);
    assert_eq!(status, WcStatus::MwBindErr);
    owner.reconnect(false);
    let third = SoftNic::next_mw_rkey(&window);
    assert_eq!(owner.bind(second, third, 0, Access::NONE), WcStatus::Success);
    owner.refused(READ, AT, second, 8);
    owner.refused(READ, AT, third, 8);
    SoftNic::dealloc_mw(&window).expect("a window that is bound to nothing");
    SoftNic::dereg_mr(&owner.mem.mr).expect("a region without windows");
    owner.end();
}

fn invalidate(endpoint: &Endpoint, key: u32) -> (WcStatus, WcOpcode) {
    endpoint.send(SendWr { imm_or_rkey: key, ..wr(WrOpcode::LocalInv, &[]) });
    let wc = endpoint.send_done();
    (wc.status, wc.opcode)
}

fn type_2_owner(mut topology: Topology) {
    let mut owner = Owner::new(&mut topology);
    let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let (window, unbound) = owner.window(MwType::Type2);
    owner.refused(WRITE, AT, unbound, 8);
    // A window of the second type is not unbound by a bind of length 0.
    assert_eq!(owner.bind(unbound, unbound, 0, Access::NONE), WcStatus::MwBindErr);
    owner.reconnect(false);
    // The owner chooses the low byte of the key. The device keeps the other bytes.
    let key = unbound ^ 0x5a;
    owner.bound(unbound, key ^ 0xabcd_ef00, all);
    owner.granted(WRITE, AT, key, LENGTH);
    assert_eq!(owner.granted(ADD, AT, key, 8), u64::from_ne_bytes([0xab; 8]));
    assert_eq!(owner.granted(READ, AT, key, 8), u64::from_ne_bytes([0xab; 8]) + 1);
    // A bound window must be invalidated before it can be bound again.
    assert_eq!(owner.bind(key, key ^ 1, LENGTH, all), WcStatus::MwBindErr);
    let old = owner.reconnect(true).expect("the QP that the window belongs to");
    // No other QP may use it, even one of the same domain with the same peer.
    owner.refused(WRITE, AT, key, 8);
    let busy = SoftNic::dereg_mr(&owner.mem.mr).expect_err("a window is bound");
    assert_eq!(busy.errno, VerbsError::EBUSY);
    // Destroying its QP unbinds the window.
    SoftNic::destroy_qp(&old.qp).expect("a QP with a bound window");
    owner.refused(READ, AT, key, 8);
    owner.bound(key, key ^ 2, all);
    let key = key ^ 2;
    owner.granted(WRITE, AT, key, 8);
    let done = (WcStatus::Success, WcOpcode::LocalInv);
    assert_eq!(invalidate(&owner.endpoint, key), done);
    owner.refused(WRITE, AT, key, 8);
    owner.refused(READ, AT, key, 8);
    owner.bound(key, key ^ 3, all);
    let key = key ^ 3;
    send_with_invalidate(&mut owner, key);
    SoftNic::dealloc_mw(&window).expect("an invalidated window");
    SoftNic::dereg_mr(&owner.mem.mr).expect("a region without windows");
    owner.end();
}

/// The user invalidates the window by a SEND; with a wrong key the receiver's connection
/// ends.
fn send_with_invalidate(owner: &mut Owner, key: u32) {
    let receives = [owner.mem.sge(4096, 64)];
    owner.endpoint.recv(1, &receives);
    owner.endpoint.recv(2, &receives);
    owner.granted(SEND, 0, 0, 8);
    assert_eq!(owner.endpoint.recv_done().wc_flags, WcFlags::NONE);
    owner.granted(WRITE, AT, key, 8);
    owner.granted(SEND_INV, 0, key, 8);
    let wc = owner.endpoint.recv_done();
    assert_eq!((wc.wr_id, wc.status, wc.byte_len), (2, WcStatus::Success, 8));
    assert_eq!((wc.wc_flags, wc.imm_or_rkey), (WcFlags::WITH_INV, key));
    owner.refused(WRITE, AT, key, 8);
    // Wrong: the key of another window, a region's key, and a key that is already invalid.
    for wrong in [key ^ 0x100, owner.mem.rkey, key] {
        owner.endpoint.recv(3, &receives);
        let (status, _) = owner.ask(SEND_INV, 0, wrong, 8);
        // The requester gets no NAK (IBA vol. 1, 9.9.6.3, class J).
        assert_eq!(status, WcStatus::RetryExcErr, "{wrong:#x}");
        let wc = owner.endpoint.recv_done();
        assert_eq!((wc.wr_id, wc.status), (3, WcStatus::LocProtErr), "{wrong:#x}");
        assert_eq!(owner.endpoint.state(), QpState::Err);
        owner.reconnect(false);
    }
    // The attempt has not invalidated the region's key.
    owner.granted(WRITE, 0, owner.mem.rkey, 8);
}

fn both_ways(role: &str) {
    for (kind, lane) in [(0, "on"), (1, "on"), (0, "off")] {
        let args = [kind];
        let roles: &[(&str, &[u64])] = &[(role, &args), ("user", &[])];
        Processes::start_plan(&Plan { roles, links: 1, env: &[("RDMALAB_LANE", lane)] }).finish();
    }
}

#[test]
fn a_window_of_the_first_type_is_the_domains() {
    both_ways("type 1 owner");
}

#[test]
fn a_window_of_the_second_type_is_its_qps() {
    both_ways("type 2 owner");
}

/// Writes through a window until a WRITE is refused; `rounds` times.
fn writer(mut topology: Topology) {
    let (rounds, most) = (topology.args[0], topology.args[1] as usize);
    let (node, link) = (Node::open(0), topology.link(0));
    let mem = node.mem(most, Kind::Heap);
    let lengths = [8, 64.min(most), most / 2, most];
    let mut random = Random::new(5);
    for _ in 0..rounds {
        let endpoint = node.endpoint(&Setup::new(QpType::Rc));
        endpoint.connect_over(&link);
        let words = link.get();
        let (addr, key) = (words[0], words[1] as u32);
        let mut counter = 0u64;
        let status = loop {
            counter += 1;
            mem.write(0, &counter.to_le_bytes());
            mem.write(most - 8, &counter.to_le_bytes());
            let length = if most > 1 << 20 { most } else { lengths[random.below(4) as usize] };
            endpoint.send(rdma(WrOpcode::Write, &[mem.sge(0, length)], addr, key));
            let wc = endpoint.send_done();
            if wc.status != WcStatus::Success {
                break wc.status;
            }
        };
        link.put(&[status as u64]);
        SoftNic::destroy_qp(&endpoint.qp).expect("a QP in ERR");
    }
}

/// Connects to the writer, and gives it a window over the whole of `mem`.
fn open_window(node: &Node, link: &Link, mem: &Mem, mw_rkey: u32, key: u32) -> Endpoint {
    let endpoint = node.endpoint(&Setup::new(QpType::Rc));
    endpoint.connect_over(link);
    let bind = MwBind {
        mw_rkey,
        new_rkey: key,
        mr_lkey: mem.lkey,
        addr: mem.addr(),
        length: mem.len as u64,
        access: Access::REMOTE_WRITE,
    };
    endpoint.run(SendWr { bind: Some(bind), ..wr(WrOpcode::BindMw, &[]) });
    link.put(&[mem.addr(), key.into()]);
    endpoint
}

/// A WRITE may be refused before the invalidation completes. It ends the connection and so flushes
/// the invalidation; even then the writer writes no more.
fn done_or_flushed((status, opcode): (WcStatus, WcOpcode)) {
    assert!(matches!(status, WcStatus::Success | WcStatus::WrFlushErr), "{status:?}");
    assert_eq!(opcode, WcOpcode::LocalInv);
}

/// After the invalidation has completed, nothing is written any more.
fn racing_owner(mut topology: Topology) {
    let (rounds, most) = (topology.args[0], topology.args[1] as usize);
    let (node, link) = (Node::open(0), topology.link(1));
    let (_window, mut key) =
        SoftNic::alloc_mw(&node.pd, MwType::Type2).expect("a window of the second type");
    let mut random = Random::new(6);
    for _ in 0..rounds {
        let mem = node.mem(most, Kind::from_arg(topology.args[2]));
        let endpoint = open_window(&node, &link, &mem, key, key ^ 1);
        key ^= 1;
        until("the writer writes", || {
            poll(&endpoint.recv_cq, 1);
            mem.word(0) > 3
        });
        std::thread::sleep(std::time::Duration::from_micros(random.below(500)));
        done_or_flushed(invalidate(&endpoint, key));
        let then = mem.read(0, mem.len);
        for _ in 0..50 {
            poll(&endpoint.recv_cq, 1);
            assert!(mem.read(0, mem.len) == then, "memory changed after the invalidation");
        }
        let status = WcStatus::from_ibv(link.get()[0] as u32);
        assert_eq!(status, Some(WcStatus::RemAccessErr));
        assert!(mem.read(0, mem.len) == then, "memory changed late");
        SoftNic::dereg_mr(&mem.mr).expect("nothing is bound");
        SoftNic::destroy_qp(&endpoint.qp).expect("a QP in ERR");
    }
}

#[test]
fn an_invalidated_window_is_not_written_any_more() {
    for (kind, lane) in [(0, "on"), (1, "on"), (0, "off")] {
        let args = [20, 1 << 16, kind];
        let roles: &[(&str, &[u64])] = &[("racing owner", &args), ("writer", &args)];
        Processes::start_plan(&Plan { roles, links: 1, env: &[("RDMALAB_LANE", lane)] }).finish();
    }
}

/// Invalidates a window while its only user is stopped in the middle of a copy through it. The
/// request waits, everything else goes on.
fn careful_owner(mut topology: Topology) {
    let (rounds, most) = (topology.args[0], topology.args[1] as usize);
    let (node, link) = (Node::open(0), topology.link(1));
    let mem = node.mem(most, Kind::Shared);
    let (a, b) = (node.endpoint(&Setup::new(QpType::Rc)), node.endpoint(&Setup::new(QpType::Rc)));
    a.connect(b.address());
    b.connect(a.address());
    let (_window, mut key) =
        SoftNic::alloc_mw(&node.pd, MwType::Type2).expect("a window of the second type");
    let mut held = 0;
    for _ in 0..rounds {
        mem.fill(0, 8, 0);
        mem.fill(most - 8, 8, 0);
        let endpoint = open_window(&node, &link, &mem, key, key ^ 1);
        key ^= 1;
        until("the writer uses the lane", || {
            poll(&endpoint.recv_cq, 1);
            mem.word(most - 8) > 3
        });
        // The test stops the writer.
        topology.parent.put(&[]);
        topology.parent.get();
        let last = mem.word(most - 8);
        endpoint.send(SendWr { imm_or_rkey: key, ..wr(WrOpcode::LocalInv, &[]) });
        let early = poll_for(&endpoint.send_cq, 30);
        // Meanwhile this thread and the progress thread serve other connections.
        b.recv(1, &[]);
        a.run(wr(WrOpcode::Send, &[]));
        assert_eq!(b.recv_done().status, WcStatus::Success);
        held += u64::from(early.is_empty());
        topology.parent.put(&[held]);
        let wc = early.first().copied().unwrap_or_else(|| endpoint.send_done());
        done_or_flushed((wc.status, wc.opcode));
        assert!(mem.word(most - 8) - last <= 1, "only what was under way is finished");
        let then = mem.word(0);
        let status = WcStatus::from_ibv(link.get()[0] as u32);
        assert_eq!(status, Some(WcStatus::RemAccessErr));
        assert_eq!(mem.word(0), then, "memory changed after the invalidation");
        SoftNic::destroy_qp(&endpoint.qp).expect("a QP in ERR");
    }
    topology.parent.put(&[held]);
}

#[test]
fn an_invalidation_waits_for_a_stopped_initiator_and_nobody_else_does() {
    let args = [6, 64 << 20];
    let mut processes = Processes::start(&[("careful owner", &args), ("writer", &args)]);
    for _ in 0..args[0] {
        processes.link(0).get();
        processes.signal(1, libc::SIGSTOP);
        until_stopped(processes.pid(1));
        processes.link(0).put(&[]);
        processes.link(0).get();
        processes.signal(1, libc::SIGCONT);
    }
    // The writer copies nearly all the time, so at least one stop was in the middle of a copy.
    assert!(processes.link(0).get()[0] > 0, "the writer was never stopped in a copy");
    processes.expect_end(0);
    processes.expect_end(1);
}
