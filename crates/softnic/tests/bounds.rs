//! Each capability at its limit and one beyond: the first works, the second is refused with a
//! sentence that names the limit.

mod support;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;
use rdmalab_testing::skipped;
use support::node::*;
use support::*;

const MAX_WR: u32 = 16_384;
const MAX_CQE: u32 = 4_194_303;
/// Completions of a CQ that is filled.
const FILLED_CQE: u32 = 131_072;
const MAX_SGE: u32 = 32;
const MAX_INLINE: u32 = 1024;
const MAX_QP: u32 = 16_384;
const MAX_KEYS: u32 = 65_536;
const MAX_MESSAGE: u64 = 1 << 31;

#[test]
fn child_process_entry() {
    play(&[
        ("work requests", work_requests),
        ("completions", completions),
        ("largest queue", largest_queue),
        ("pieces", pieces),
        ("inline", inline),
        ("queue pairs", queue_pairs),
        ("regions", regions),
        ("attributes", attributes),
        ("messages", messages),
        ("gibibyte", gibibyte),
        ("domains", domains),
    ]);
}

fn alone(role: &str) {
    Processes::start(&[(role, &[])]).finish();
}

/// Checks a refusal: it names the limit and the argument that was too large.
fn refused<T>(result: VerbsResult<T>, limit: u64) {
    let Err(error) = result else { panic!("beyond {limit}, and accepted") };
    assert!(matches!(error.errno, VerbsError::EINVAL | VerbsError::ENOMEM), "{error:?}");
    assert!(error.message.contains(&limit.to_string()), "{limit} is not in: {error}");
}

fn with_cap(change: impl FnOnce(&mut QpCap)) -> Setup {
    let mut setup = Setup::new(QpType::Rc);
    setup.cap = QpCap { max_send_wr: 1, max_recv_wr: 1, ..QpCap::default() };
    change(&mut setup.cap);
    setup
}

fn create(node: &Node, setup: &Setup) -> VerbsResult<()> {
    let cq = node.cq(1, None, 0);
    let init = QpInit {
        qp_type: setup.qp_type,
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: setup.cap,
        sq_sig_all: false,
        cookie: 0,
    };
    SoftNic::create_qp(&node.pd, init).map(drop)
}

fn connected(node: &Node, setup: &Setup) -> (Endpoint, Endpoint) {
    let (a, b) = (node.endpoint(setup), node.endpoint(setup));
    a.connect(b.address());
    b.connect(a.address());
    (a, b)
}

fn work_requests(_stage: Topology) {
    let node = Node::open(0);
    let mem = node.mem(4096, Kind::Heap);
    let caps = SoftNic::query_device(&node.ctx);
    assert_eq!((caps.max_qp_wr, caps.max_srq_wr), (MAX_WR, MAX_WR));
    let mut setup = with_cap(|cap| {
        (cap.max_send_wr, cap.max_recv_wr) = (MAX_WR, MAX_WR);
        (cap.max_send_sge, cap.max_recv_sge) = (1, 1);
    });
    setup.cqe = MAX_WR;
    let (a, b) = connected(&node, &setup);
    let sges = [mem.sge(0, 8)];
    (0..MAX_WR).for_each(|wr_id| b.recv(wr_id.into(), &sges));
    let more = RecvWr { wr_id: 0, sges: &sges };
    let full = SoftNic::post_recv(&b.qp, std::iter::once(more));
    assert_eq!(full, Err((0, PostError::QueueFull)));
    let unsignalled = SendWr { flags: SendFlags::NONE, ..wr(WrOpcode::Send, &sges) };
    (1..MAX_WR).for_each(|_| a.send(unsignalled));
    a.send(wr(WrOpcode::Send, &sges));
    assert_eq!(a.post(unsignalled), Err(PostError::QueueFull));
    for wr_id in 0..u64::from(MAX_WR) {
        let wc = b.recv_done();
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success));
    }
    assert_eq!(a.send_done().status, WcStatus::Success);
    refused(create(&node, &with_cap(|cap| cap.max_send_wr = MAX_WR + 1)), MAX_WR.into());
    refused(create(&node, &with_cap(|cap| cap.max_recv_wr = MAX_WR + 1)), MAX_WR.into());
    let srq = |max_wr, max_sge| {
        let init = SrqInit { max_wr, max_sge, srq_limit: 0, cookie: 0 };
        SoftNic::create_srq(&node.pd, init)
    };
    let (full_srq, _) = srq(MAX_WR, 1).expect("an SRQ at the bound");
    let wrs = (0..MAX_WR).map(|wr_id| RecvWr { wr_id: wr_id.into(), sges: &sges });
    SoftNic::post_srq_recv(&full_srq, wrs).expect("as many receives");
    let full = SoftNic::post_srq_recv(&full_srq, std::iter::once(more));
    assert_eq!(full, Err((0, PostError::QueueFull)));
    refused(srq(MAX_WR + 1, 1), MAX_WR.into());
    refused(srq(1, MAX_SGE + 1), MAX_SGE.into());
    refused(SoftNic::modify_srq(&full_srq, Some(MAX_WR + 1), None), MAX_WR.into());
    refused(SoftNic::modify_srq(&full_srq, None, Some(MAX_WR + 1)), MAX_WR.into());
}

#[test]
fn work_requests_of_a_queue() {
    alone("work requests");
}

fn completions(_stage: Topology) {
    let node = Node::open(0);
    assert_eq!(SoftNic::query_device(&node.ctx).max_cqe, MAX_CQE);
    let (send_cq, recv_cq) = (node.cq(64, None, 1), node.cq(FILLED_CQE, None, 2));
    let setup = Setup::new(QpType::Rc);
    let a = node.endpoint_on(&setup, &send_cq, &send_cq, None);
    let b = node.endpoint_on(&setup, &send_cq, &recv_cq, None);
    a.connect(b.address());
    b.connect(a.address());
    for number in 0..u64::from(FILLED_CQE) {
        b.recv(number, &[]);
        if number % 32 == 31 {
            (0..31)
                .for_each(|_| a.send(SendWr { flags: SendFlags::NONE, ..wr(WrOpcode::Send, &[]) }));
            a.run(wr(WrOpcode::Send, &[]));
        }
    }
    let (mut next, all) = (0, u64::from(FILLED_CQE));
    while next < all {
        for wc in wait_some(&recv_cq, 1024) {
            assert_eq!((wc.wr_id, wc.status), (next, WcStatus::Success));
            next += 1;
        }
    }
    assert!(
        !readable(SoftNic::async_fd(&node.ctx).expect("a descriptor"), 0),
        "nothing overflowed"
    );
    let init =
        |cqe| CqInit { cqe, channel: None, timestamps: false, ignore_overrun: false, cookie: 0 };
    refused(SoftNic::create_cq(&node.ctx, init(MAX_CQE + 1)), MAX_CQE.into());
    refused(SoftNic::resize_cq(&send_cq, MAX_CQE + 1), MAX_CQE.into());
    assert_eq!(SoftNic::resize_cq(&send_cq, MAX_CQE), Ok(MAX_CQE));
    assert!(SoftNic::create_cq(&node.ctx, init(0)).is_err());
}

#[test]
fn completions_of_a_queue() {
    alone("completions");
}

/// Memory of this process that is there, in bytes.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: u64 = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
    pages * 4096
}

/// The largest CQ takes memory for completions that wait, not for those that could.
fn largest_queue(_stage: Topology) {
    let node = Node::open(0);
    let (send_cq, recv_cq) = (node.cq(MAX_CQE, None, 1), node.cq(64, None, 2));
    let setup = Setup::new(QpType::Rc);
    let a = node.endpoint_on(&setup, &send_cq, &send_cq, None);
    let b = node.endpoint_on(&setup, &recv_cq, &recv_cq, None);
    a.connect(b.address());
    b.connect(a.address());
    let before = resident_bytes();
    // All slots together would take 350 MB, those of as many completions as this 80 MB.
    for _ in 0..1_000_000 {
        b.recv(1, &[]);
        a.run(wr(WrOpcode::Send, &[]));
        b.recv_done();
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
}

#[test]
fn the_largest_queue_takes_memory_for_what_waits() {
    alone("largest queue");
}

fn pieces(_stage: Topology) {
    let node = Node::open(0);
    assert_eq!(SoftNic::query_device(&node.ctx).max_sge, MAX_SGE);
    let mem = node.mem(1 << 16, Kind::Heap);
    let setup = with_cap(|cap| (cap.max_send_sge, cap.max_recv_sge) = (MAX_SGE, MAX_SGE));
    let (a, b) = connected(&node, &setup);
    let count = MAX_SGE as usize;
    (0..1 << 15).for_each(|at| mem.write(at, &[at as u8]));
    // Gathers 100 bytes out of every 200, and scatters them in pieces of other sizes.
    let from: Vec<Sge> = (0..count).map(|at| mem.sge(200 * at, 100)).collect();
    let to: Vec<Sge> = (0..count).map(|at| mem.sge((1 << 15) + 400 * at, 95 + at % 21)).collect();
    b.recv(1, &to);
    a.run(wr(WrOpcode::Send, &from));
    let wc = b.recv_done();
    assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 100 * MAX_SGE));
    let gathered: Vec<u8> = (0..count).flat_map(|at| mem.read(200 * at, 100)).collect();
    let lengths = to.iter().map(|sge| sge.length as usize);
    let scattered: Vec<u8> = lengths
        .enumerate()
        .flat_map(|(at, length)| mem.read((1 << 15) + 400 * at, length))
        .collect();
    assert!(scattered[..gathered.len()] == gathered[..]);
    let mut more = from.clone();
    more.push(mem.sge(0, 1));
    assert_eq!(a.post(wr(WrOpcode::Send, &more)), Err(PostError::TooManySges));
    let wr = RecvWr { wr_id: 0, sges: &more };
    let result = SoftNic::post_recv(&b.qp, std::iter::once(wr));
    assert_eq!(result, Err((0, PostError::TooManySges)));
    refused(create(&node, &with_cap(|cap| cap.max_send_sge = MAX_SGE + 1)), MAX_SGE.into());
    refused(create(&node, &with_cap(|cap| cap.max_recv_sge = MAX_SGE + 1)), MAX_SGE.into());
}

#[test]
fn pieces_of_a_message() {
    alone("pieces");
}

fn inline(_stage: Topology) {
    let node = Node::open(0);
    let mem = node.mem(4096, Kind::Heap);
    assert_eq!(SoftNic::query_device(&node.ctx).max_inline_data, MAX_INLINE);
    let (a, _b) = connected(&node, &with_cap(|cap| cap.max_inline_data = MAX_INLINE));
    let bytes = [0x3c; MAX_INLINE as usize + 1];
    let piece = |length| [Sge { addr: bytes.as_ptr() as u64, length, lkey: 0 }];
    let post = |sges: &[Sge]| {
        let flags = SendFlags::INLINE | SendFlags::SIGNALED;
        a.post(SendWr { flags, ..rdma(WrOpcode::Write, sges, mem.addr(), mem.rkey) })
    };
    assert_eq!(post(&piece(MAX_INLINE)), Ok(()));
    assert_eq!(a.send_done().status, WcStatus::Success);
    assert_eq!(mem.read(0, 1024), bytes[..1024]);
    assert_eq!(post(&piece(MAX_INLINE + 1)), Err(PostError::InlineTooLong));
    let nowhere = Sge { addr: 8, length: 8, lkey: 0 };
    assert_eq!(post(&[nowhere]), Err(PostError::Fault));
    refused(
        create(&node, &with_cap(|cap| cap.max_inline_data = MAX_INLINE + 1)),
        MAX_INLINE.into(),
    );
}

#[test]
fn inline_bytes() {
    alone("inline");
}

fn queue_pairs(_stage: Topology) {
    let node = Node::open(0);
    assert_eq!(SoftNic::query_device(&node.ctx).max_qp, MAX_QP);
    let setup = with_cap(|_| {});
    let cq = node.cq(16, None, 0);
    let mut all = Vec::new();
    // In the last process slot, the last number belongs to the multicast QP.
    let first = node.endpoint_on(&setup, &cq, &cq, None);
    let room = if first.qpn >> 14 == 1023 { MAX_QP - 1 } else { MAX_QP };
    all.push(first);
    (1..room).for_each(|_| all.push(node.endpoint_on(&setup, &cq, &cq, None)));
    refused(create(&node, &setup), MAX_QP.into());
    let mut numbers: Vec<u32> = all.iter().map(|endpoint| endpoint.qpn).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), all.len(), "each has a number of its own");
    let (last, other) = (all.len() - 1, all.len() / 2);
    all[last].connect(all[other].address());
    all[other].connect(all[last].address());
    all[other].recv(3, &[]);
    all[last].send(wr(WrOpcode::Send, &[]));
    let mut ids = [wait(&cq), wait(&cq)].map(|wc| (wc.status, wc.wr_id));
    ids.sort_unstable();
    assert_eq!(ids, [(WcStatus::Success, 0), (WcStatus::Success, 3)]);
    all.iter().for_each(|endpoint| SoftNic::destroy_qp(&endpoint.qp).expect("destruction"));
    create(&node, &setup).expect("there is room again");
}

#[test]
fn queue_pairs_of_a_process() {
    alone("queue pairs");
}

fn regions(_stage: Topology) {
    let node = Node::open(0);
    let at = pages(4096);
    let all: Vec<Mem> = (0..MAX_KEYS).map(|_| node.register(at, 4096, ALL_RIGHTS)).collect();
    let mut keys: Vec<u32> = all.iter().map(|mem| mem.rkey).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), all.len());
    refused(SoftNic::reg_mr(&node.pd, at as u64, 1, at as u64, ALL_RIGHTS), MAX_KEYS.into());
    refused(SoftNic::alloc_mw(&node.pd, MwType::Type1), MAX_KEYS.into());
    // The last region works like the first.
    let (a, _b) = connected(&node, &with_cap(|cap| cap.max_send_sge = 1));
    for mem in [&all[0], &all[all.len() - 1]] {
        a.run(rdma(WrOpcode::Write, &[mem.sge(0, 8)], mem.addr() + 8, mem.rkey));
    }
    SoftNic::dereg_mr(&all[5].mr).expect("deregistration");
    let again = node.register(at, 4096, ALL_RIGHTS);
    assert_ne!(again.rkey, all[5].rkey, "a key is not used again so soon");
}

#[test]
fn regions_of_a_process() {
    alone("regions");
}

fn attributes(_stage: Topology) {
    let node = Node::open(0);
    let mem = node.mem(1 << 16, Kind::Heap);
    let (a, _b) =
        connected(&node, &Setup { mtu: MTU_4096, rd_atomic: 16, ..Setup::new(QpType::Rc) });
    let sges: Vec<[Sge; 1]> = (0..32).map(|at| [mem.sge(1024 * at, 1024)]).collect();
    for sges in &sges {
        a.send(rdma(WrOpcode::Read, sges, mem.addr() + (1 << 15), mem.rkey));
    }
    (0..32).for_each(|_| assert_eq!(a.send_done().status, WcStatus::Success));
    for (mtu, rd_atomic, named) in [(MTU_4096 + 1, 16, "path_mtu"), (5, 17, "max_dest_rd_atomic")] {
        let endpoint = node.endpoint(&Setup::new(QpType::Rc));
        endpoint.to_init();
        use QpAttrMask as M;
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            path_mtu: mtu,
            max_dest_rd_atomic: rd_atomic,
            ah_attr: ah(1),
            ..QpAttr::default()
        };
        let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        let mask = mask | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        let error = SoftNic::modify_qp(&endpoint.qp, &attr, mask).expect_err("too large");
        assert_eq!(error.errno, VerbsError::EINVAL);
        assert!(error.message.contains(named), "{error}");
        assert_eq!(endpoint.state(), QpState::Init, "nothing was changed");
    }
    assert!(SoftNic::query_port(&node.ctx, 2).is_err_and(|error| error.message.contains("port 2")));
    assert!(SoftNic::query_gid(&node.ctx, 1, 2).is_err());
    assert!(SoftNic::query_pkey(&node.ctx, 1, 1).is_err());
    refused(SoftNic.open(2).map(drop), 1);
}

#[test]
fn attributes_of_a_connection() {
    alone("attributes");
}

/// The longest message. The QP is in SQD, so nothing is sent.
fn messages(_stage: Topology) {
    let node = Node::open(0);
    assert_eq!(
        u64::from(SoftNic::query_port(&node.ctx, 1).expect("port 1").max_msg_sz),
        MAX_MESSAGE
    );
    let mem = node.mem(64, Kind::Heap);
    let (a, _b) = connected(&node, &Setup::new(QpType::Rc));
    a.to_state(QpState::Sqd);
    let piece = |length: u64| Sge { addr: mem.addr(), length: length as u32, lkey: mem.lkey };
    let write = |sges: &[Sge]| a.post(rdma(WrOpcode::Write, sges, mem.addr(), mem.rkey));
    assert_eq!(write(&[piece(MAX_MESSAGE)]), Ok(()));
    assert_eq!(write(&[piece(MAX_MESSAGE - 1), piece(1)]), Ok(()));
    assert_eq!(write(&[piece(MAX_MESSAGE + 1)]), Err(PostError::TooLong));
    assert_eq!(write(&[piece(MAX_MESSAGE), piece(1)]), Err(PostError::TooLong));
    let many = [piece(u32::MAX.into()); 8];
    assert_eq!(write(&many), Err(PostError::TooLong), "sums do not wrap");
    // UD allows only one packet, UC no READ.
    let (d, e) = (node.endpoint(&Setup::new(QpType::Ud)), node.endpoint(&Setup::new(QpType::Uc)));
    d.connect(d.address());
    e.connect(e.address());
    let big = node.mem(8192, Kind::Heap);
    let datagram = |length| {
        let sges = [big.sge(0, length)];
        d.post(SendWr { ud: Some(ud(d.address())), ..wr(WrOpcode::Send, &sges) })
    };
    assert_eq!(datagram(4096), Ok(()));
    assert_eq!(d.send_done().status, WcStatus::Success);
    assert_eq!(datagram(4097), Ok(()));
    assert_eq!(d.send_done().status, WcStatus::LocLenErr);
    let sges = [big.sge(0, 8)];
    let read = e.post(rdma(WrOpcode::Read, &sges, big.addr(), big.rkey));
    assert_eq!(read, Err(PostError::BadOpcode));
}

#[test]
fn the_longest_message() {
    alone("messages");
}

fn gibibyte(_stage: Topology) {
    let node = Node::open(0);
    let (from, to) = (node.mem(1 << 30, Kind::Heap), node.mem(1 << 30, Kind::Heap));
    for at in (0..1 << 30).step_by(4096) {
        from.write(at, &(at as u64 * 0x9e37_79b9).to_le_bytes());
    }
    let (a, b) = connected(&node, &Setup::new(QpType::Rc).mtu(1));
    b.recv(1, &[to.sge(0, 1 << 30)]);
    a.run(wr(WrOpcode::Send, &[from.sge(0, 1 << 30)]));
    assert_eq!(b.recv_done().byte_len, 1 << 30);
    for at in (0..1 << 30).step_by(4096) {
        assert_eq!(to.word(at), at as u64 * 0x9e37_79b9);
    }
}

#[test]
fn a_gibibyte_in_packets_of_256_bytes() {
    if std::env::var_os("RDMALAB_SLOW").is_none() {
        let reason = "needs 2 GiB of memory and some seconds; RDMALAB_SLOW=1 runs it";
        return skipped("a_gibibyte_in_packets_of_256_bytes", reason);
    }
    alone("gibibyte");
}

/// A verb refuses objects of different devices.
fn domains(_stage: Topology) {
    let (here, there) = (Node::open(0), Node::open(1));
    let (own, foreign) = (here.cq(4, None, 0), there.cq(4, None, 0));
    let init = |send_cq, recv_cq| QpInit {
        qp_type: QpType::Rc,
        send_cq,
        recv_cq,
        srq: None,
        cap: QpCap { max_send_wr: 1, max_recv_wr: 1, ..QpCap::default() },
        sq_sig_all: false,
        cookie: 0,
    };
    SoftNic::create_qp(&here.pd, init(&own, &own)).expect("one device");
    for (send_cq, recv_cq) in [(&foreign, &own), (&own, &foreign)] {
        let result = SoftNic::create_qp(&here.pd, init(send_cq, recv_cq)).map(drop);
        let error = result.expect_err("a CQ of another device");
        assert_eq!(error.errno, VerbsError::EINVAL, "{error}");
    }
    let init = SrqInit { max_wr: 1, max_sge: 1, srq_limit: 0, cookie: 0 };
    let (srq, _) = SoftNic::create_srq(&there.pd, init).expect("an SRQ");
    let init = QpInit { srq: Some(&srq), ..init_of(&own) };
    let error = SoftNic::create_qp(&here.pd, init).map(drop).expect_err("an SRQ of another device");
    assert_eq!(error.errno, VerbsError::EINVAL, "{error}");
    let channel = SoftNic::create_channel(&there.ctx).expect("a channel");
    let init = CqInit {
        cqe: 1,
        channel: Some(&channel),
        timestamps: false,
        ignore_overrun: false,
        cookie: 0,
    };
    let error = SoftNic::create_cq(&here.ctx, init).map(drop).expect_err("a channel of another");
    assert_eq!(error.errno, VerbsError::EINVAL, "{error}");
}

fn init_of(cq: &rdmalab_softnic::Cq) -> QpInit<'_, rdmalab_softnic::Cq, rdmalab_softnic::Srq> {
    QpInit {
        qp_type: QpType::Rc,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        cap: QpCap { max_send_wr: 1, ..QpCap::default() },
        sq_sig_all: false,
        cookie: 0,
    }
}

#[test]
fn devices_do_not_mix() {
    alone("domains");
}
