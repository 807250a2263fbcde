//! A device under a profile: it reports lower limits, enforces them, and delays packets in addition
//! to the user's fault rules.

mod support;

use std::time::{Duration, Instant};

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::{Cq, SoftNic, SoftQp, choose_hooks, choose_profile, hooks, profile};
use support::node::*;
use support::*;

const LOW: &str = "name = \"low\"\ntitle = \"t\"\nimitates = \"nothing\"\nlacks = \"all\"\n[limits]
max_qp = 3\nmax_qp_wr = 20\nmax_sge = 2\nmax_cqe = 40\nmax_mr = 2\nmax_srq_wr = 10
max_srq_sge = 1\nmax_qp_rd_atom = 4\nmax_qp_init_rd_atom = 2\nmax_inline_data = 60
active_mtu = 1024\n";

#[test]
fn child_process_entry() {
    play(&[
        ("lowered", lowered),
        ("used", used),
        ("late", late),
        ("missing", missing),
        ("ideal", ideal),
    ]);
}

fn alone(role: &str) {
    Processes::start(&[(role, &[])]).finish();
}

/// Chooses a profile with this text for this process.
fn under(text: &str) {
    let path = std::env::temp_dir().join(format!("rdmalab-low-{}.toml", std::process::id()));
    std::fs::write(&path, text).expect("a file");
    let chosen = choose_profile(path.to_str().expect("a path"));
    std::fs::remove_file(&path).expect("it was there");
    assert_eq!(chosen, Ok(()));
}

/// Checks a refusal: its error number, and a message with the excess, the limit and the profile.
fn refused<T>(result: VerbsResult<T>, errno: i32, parts: &[&str]) {
    let Err(error) = result else { panic!("{parts:?}: accepted") };
    assert_eq!(error.errno, errno, "{error}");
    assert!(parts.iter().all(|part| error.message.contains(part)), "{parts:?}: {error}");
    assert!(error.message.contains("under the profile low"), "{error}");
}

const BOUND: QpCap = QpCap {
    max_send_wr: 20,
    max_recv_wr: 20,
    max_send_sge: 2,
    max_recv_sge: 2,
    max_inline_data: 60,
};

fn create(node: &Node, cq: &Cq, cap: QpCap) -> VerbsResult<(SoftQp, QpCap)> {
    let init = QpInit {
        qp_type: QpType::Rc,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        cap,
        sq_sig_all: false,
        cookie: 0,
    };
    SoftNic::create_qp(&node.pd, init).map(|(qp, _, granted)| (qp, granted))
}

fn lowered(_stage: Topology) {
    under(LOW);
    let node = Node::open(0);
    let caps = SoftNic::query_device(&node.ctx);
    assert_eq!((caps.max_qp, caps.max_qp_wr, caps.max_sge, caps.max_sge_rd), (3, 20, 2, 2));
    assert_eq!((caps.max_cqe, caps.max_mr, caps.max_srq_wr, caps.max_srq_sge), (40, 2, 10, 1));
    assert_eq!((caps.max_qp_rd_atom, caps.max_qp_init_rd_atom, caps.max_inline_data), (4, 2, 60));
    assert!(caps.fw_ver.ends_with("+low"), "{}", caps.fw_ver);
    let port = SoftNic::query_port(&node.ctx, 1).expect("port 1");
    assert_eq!((port.active_mtu, port.max_mtu), (3, 5));
    let (inval, nomem) = (VerbsError::EINVAL, VerbsError::ENOMEM);
    let cqe =
        |cqe| CqInit { cqe, channel: None, timestamps: false, ignore_overrun: false, cookie: 0 };
    let (cq, _) = SoftNic::create_cq(&node.ctx, cqe(40)).expect("a CQ at the bound");
    refused(SoftNic::create_cq(&node.ctx, cqe(41)), inval, &["cqe 41", "up to 40"]);
    refused(SoftNic::resize_cq(&cq, 41), inval, &["cqe 41", "up to 40"]);
    let (first, granted) = create(&node, &cq, BOUND).expect("a QP at the bounds");
    assert_eq!(granted, BOUND, "what is granted is no more than the bound");
    for (cap, what, limit) in [
        (QpCap { max_send_wr: 21, ..BOUND }, "max_send_wr 21", "up to 20"),
        (QpCap { max_recv_wr: 21, ..BOUND }, "max_recv_wr 21", "up to 20"),
        (QpCap { max_send_sge: 3, ..BOUND }, "max_send_sge 3", "up to 2"),
        (QpCap { max_recv_sge: 3, ..BOUND }, "max_recv_sge 3", "up to 2"),
        (QpCap { max_inline_data: 61, ..BOUND }, "max_inline_data 61", "up to 60"),
    ] {
        refused(create(&node, &cq, cap), inval, &[what, limit]);
    }
    for _ in 1..3 {
        create(&node, &cq, BOUND).expect("three in all");
    }
    refused(create(&node, &cq, BOUND), nomem, &["3 QPs", "destroy some"]);
    SoftNic::destroy_qp(&first).expect("destruction");
    create(&node, &cq, BOUND).expect("there is room again");
    let srq = |max_wr, max_sge| {
        SoftNic::create_srq(&node.pd, SrqInit { max_wr, max_sge, srq_limit: 0, cookie: 0 })
    };
    let (shared, _) = srq(10, 1).expect("an SRQ at the bounds");
    refused(srq(11, 1), inval, &["SRQ max_wr 11", "up to 10"]);
    refused(srq(1, 2), inval, &["SRQ max_sge 2", "up to 1"]);
    refused(SoftNic::modify_srq(&shared, Some(11), None), inval, &["up to 10"]);
    let at = pages(4096);
    let _two = [(); 2].map(|()| node.register(at, 4096, ALL_RIGHTS));
    let region = SoftNic::reg_mr(&node.pd, at as u64, 1, at as u64, ALL_RIGHTS);
    refused(region, nomem, &["2 memory regions"]);
    refused(SoftNic::alloc_mw(&node.pd, MwType::Type1), nomem, &["2 memory regions"]);
}

#[test]
fn limits_are_reported_and_enforced() {
    alone("lowered");
}

/// Connections at the limits carry data, and attributes beyond the limits are refused.
fn used(_stage: Topology) {
    under(LOW);
    let node = Node::open(0);
    let mem = node.mem(8192, Kind::Heap);
    let setup = Setup { cap: BOUND, cqe: 40, mtu: 3, rd_atomic: 2, ..Setup::new(QpType::Rc) };
    let (a, b) = (node.endpoint(&setup), node.endpoint(&setup));
    a.connect(b.address());
    b.connect(a.address());
    mem.fill(0, 4096, 7);
    a.run(rdma(WrOpcode::Write, &[mem.sge(0, 4096)], mem.addr() + 4096, mem.rkey));
    assert_eq!(mem.read(4096, 4096), [7; 4096]);
    // Limits alone delay no packet and do not close the lane.
    let state = hooks();
    assert_eq!((state.faults, state.disturbed_packets), (None, 0));
    let third = node.endpoint(&setup);
    third.to_init();
    for (mtu, dest, named) in [(4, 2, "path_mtu"), (3, 5, "max_dest_rd_atomic")] {
        use QpAttrMask as M;
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            path_mtu: mtu,
            max_dest_rd_atomic: dest,
            ah_attr: ah(1),
            ..QpAttr::default()
        };
        let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        let mask = mask | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        let error = SoftNic::modify_qp(&third.qp, &attr, mask).expect_err("too large");
        assert_eq!(error.errno, VerbsError::EINVAL);
        assert!(error.message.contains(named), "{error}");
    }
}

#[test]
fn connections_stay_within_them() {
    alone("used");
}

/// A profile's rules and a user's rules both apply, but only the user's count as disturbances.
fn late(_stage: Topology) {
    let rules = "rules = [\"delay 30ms of send\"]\n[limits]";
    under(&LOW.replace("[limits]", rules).replace("max_qp = 3", "max_qp = 4"));
    choose_hooks(None, Some("delay 40ms of write".to_owned())).expect("in time");
    let node = Node::open(0);
    let mem = node.mem(4096, Kind::Heap);
    let setup = Setup { cap: BOUND, cqe: 40, mtu: 3, rd_atomic: 2, ..Setup::new(QpType::Rc) };
    let (a, b) = (node.endpoint(&setup), node.endpoint(&setup));
    a.connect(b.address());
    b.connect(a.address());
    let sges = [mem.sge(0, 8)];
    b.recv(1, &sges);
    let began = Instant::now();
    assert_eq!(a.run(wr(WrOpcode::Send, &sges)).status, WcStatus::Success);
    assert!(began.elapsed() >= Duration::from_millis(30), "the profile's rule");
    assert_eq!(hooks().disturbed_packets, 0);
    let began = Instant::now();
    a.run(rdma(WrOpcode::Write, &sges, mem.addr() + 64, mem.rkey));
    assert!(began.elapsed() >= Duration::from_millis(40), "the user's rule");
    let state = hooks();
    assert_eq!(state.faults.as_deref(), Some("delay 40ms of write"));
    assert_eq!(state.disturbed_packets, 1);
    assert_eq!(profile().map(|profile| profile.name.as_str()), Some("low"));
    assert!(choose_profile("late-ack").expect_err("too late").contains("too late"));
}

#[test]
fn what_is_late_by_the_profile_is_no_fault() {
    alone("late");
}

/// Without the requested profile there is no device.
fn missing(_stage: Topology) {
    let said = choose_profile("late-akc").expect_err("there is none");
    assert!(said.contains("is late-ack meant?"), "{said}");
    let error = SoftNic.devices().expect_err("no device");
    assert_eq!((error.errno, error.message.as_str()), (VerbsError::EINVAL, said.as_str()));
    assert_eq!(SoftNic.open(0).map(drop).expect_err("neither").errno, VerbsError::EINVAL);
}

#[test]
fn without_its_profile_there_is_no_device() {
    alone("missing");
}

/// A profile that changes nothing leaves no name anywhere.
fn ideal(_stage: Topology) {
    assert_eq!(choose_profile("ideal"), Ok(()));
    let node = Node::open(0);
    let caps = SoftNic::query_device(&node.ctx);
    assert_eq!((profile(), caps.max_inline_data), (None, 1024));
    assert!(!caps.fw_ver.contains('+'), "{}", caps.fw_ver);
}

#[test]
fn the_ideal_one_is_the_device_itself() {
    alone("ideal");
}
