//! Tests of the crate with a library that only records its calls.

use std::sync::Arc;

use rdmalab_abi as abi;

use crate::mock::{library, memory};
use crate::*;

fn open() -> Context {
    library().devices().unwrap()[0].open().unwrap()
}

fn rc_pair_side(context: &Context) -> (Pd, Cq, Qp) {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8, None).unwrap();
    let qp = Qp::builder(QpType::Rc, &cq, &cq).build(&pd).unwrap();
    (pd, cq, qp)
}

#[test]
fn objects_go_in_the_order_that_verbs_demand() {
    let context = open();
    let channel = context.create_channel().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8, Some(&channel)).unwrap();
    let srq = pd.create_srq(4, 1).unwrap();
    let buffer = Buffer::private(64).unwrap();
    let mr = pd.register(&buffer, Access::LOCAL_WRITE).unwrap();
    let qp = Qp::builder(QpType::Rc, &cq, &cq).srq(&srq).build(&pd).unwrap();
    // The worst order: objects that others need are dropped first.
    drop((context, channel, buffer, cq, srq, pd));
    let before = memory(|m| std::mem::take(&mut m.log));
    assert!(before.iter().all(|call| call.starts_with('+')), "{before:?}");
    drop((mr, qp));
    let order = memory(|m| std::mem::take(&mut m.log));
    let at = |what: &str| order.iter().position(|call| call == what).expect(what);
    assert_eq!(order.len(), 8, "{order:?}");
    for (first, then) in [
        ("-qp", "-cq"),
        ("-qp", "-srq"),
        ("-cq", "-channel"),
        ("-srq", "-pd"),
        ("-mr", "-pd"),
        ("-channel", "-context"),
        ("-pd", "-context"),
        ("-context", "-device"),
    ] {
        assert!(at(first) < at(then), "{first} after {then}: {order:?}");
    }
}

#[test]
fn memory_outlives_a_region_that_is_not_given_back() {
    let context = open();
    let pd = context.alloc_pd().unwrap();
    let buffer = Buffer::private(4096).unwrap();
    let addr = buffer.addr();
    let mr = pd.register(&buffer, Access::LOCAL_WRITE).unwrap();
    memory(|m| m.keeps_regions = true);
    drop((mr, buffer));
    // The kernel would reuse the address of an unmapped mapping for the same length.
    let others: Vec<Buffer> = (0..4).map(|_| Buffer::private(4096).unwrap()).collect();
    assert!(others.iter().all(|other| other.addr() != addr));
}

#[test]
fn a_long_list_is_posted_whole_and_in_order() {
    let context = open();
    let (pd, _cq, qp) = rc_pair_side(&context);
    let mr = pd.register(&Buffer::private(64).unwrap(), Access::LOCAL_WRITE).unwrap();
    let sge = [mr.sge(8, 8)];
    let requests: Vec<SendRequest> =
        (0..40).map(|i| SendRequest::send(&sge).wr_id(i).signaled()).collect();
    qp.post_send(&requests).unwrap();
    let posted = memory(|m| std::mem::take(&mut m.posted));
    let ids: Vec<u64> = posted.iter().map(|p| p.0).collect();
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
    let expected = (abi::IBV_WR_SEND, abi::IBV_SEND_SIGNALED, mr.buffer().addr() + 8);
    assert!(posted.iter().all(|p| (p.1, p.2, p.3) == expected));
    for refused in [0, 15, 16, 39] {
        memory(|m| m.refuse_wr_id = Some(refused));
        let error = qp.post_send(&requests).unwrap_err();
        assert_eq!((error.posted as u64, error.is_full()), (refused, true));
        assert_eq!(memory(|m| std::mem::take(&mut m.posted)).len() as u64, refused);
    }
}

#[test]
fn receives_are_posted_like_sends() {
    let context = open();
    let (pd, _cq, qp) = rc_pair_side(&context);
    let srq = pd.create_srq(4, 1).unwrap();
    let mr = pd.register(&Buffer::private(64).unwrap(), Access::LOCAL_WRITE).unwrap();
    let sge = [mr.sge(0, 64)];
    let requests: Vec<RecvRequest> = (0..20).map(|i| RecvRequest::new(&sge).wr_id(i)).collect();
    qp.post_recv(&requests).unwrap();
    srq.post_recv(&requests).unwrap();
    assert_eq!(memory(|m| std::mem::take(&mut m.posted)).len(), 40);
    memory(|m| m.refuse_wr_id = Some(17));
    assert_eq!(qp.post_recv(&requests).unwrap_err().posted, 17);
    assert_eq!(srq.post_recv(&requests).unwrap_err().posted, 17);
    let mut batch = RecvBatch::new(&requests);
    assert_eq!(qp.post_recv_batch(&mut batch).unwrap_err().posted, 17);
    assert_eq!((batch.len(), batch.bytes()), (20, 20 * 64));
}

#[test]
fn a_batch_survives_its_move_and_its_changes() {
    let context = open();
    let (pd, _cq, qp) = rc_pair_side(&context);
    let mr = pd.register(&Buffer::private(64).unwrap(), Access::LOCAL_WRITE).unwrap();
    let to = RemoteBuffer { addr: 4096, bytes: 64, rkey: 7 };
    let mut batch = {
        // The lists of pieces are dropped before the batch is posted; the memory is not.
        let (one, two) = ([mr.sge(0, 8)], [mr.sge(16, 8), mr.sge(32, 8)]);
        let write = SendRequest::write(&two, &to, 8).with_imm(3).wr_id(2);
        SendBatch::new(&[SendRequest::send(&one).wr_id(1).inline_data(), write])
    };
    batch.set_signaled(1, true);
    batch.set_wr_id(0, 10);
    let mut moved = batch;
    qp.post_send_batch(&mut moved).unwrap();
    let start = mr.buffer().addr();
    let posted = memory(|m| std::mem::take(&mut m.posted));
    assert_eq!(
        posted,
        [
            (10, abi::IBV_WR_SEND, abi::IBV_SEND_INLINE, start),
            (2, abi::IBV_WR_RDMA_WRITE_WITH_IMM, abi::IBV_SEND_SIGNALED, start + 16),
        ]
    );
    assert_eq!((moved.len(), moved.bytes()), (2, 24));
    moved.set_signaled(1, false);
    memory(|m| m.refuse_wr_id = Some(2));
    assert_eq!(qp.post_send_batch(&mut moved).unwrap_err().posted, 1);
    qp.post_send_batch(&mut SendBatch::new(&[])).unwrap();
}

#[test]
fn a_part_of_a_batch_is_a_list_of_its_own() {
    let context = open();
    let (pd, _cq, qp) = rc_pair_side(&context);
    let mr = pd.register(&Buffer::private(64).unwrap(), Access::LOCAL_WRITE).unwrap();
    let sges = [mr.sge(0, 8)];
    let requests: Vec<_> = (0..5).map(|i| SendRequest::send(&sges).wr_id(i)).collect();
    let mut batch = SendBatch::new(&requests);
    let posted = || memory(|m| std::mem::take(&mut m.posted)).into_iter().map(|p| p.0);
    qp.post_send_part(&mut batch, 1, 3).unwrap();
    assert!(posted().eq([1, 2, 3]));
    qp.post_send_part(&mut batch, 4, 1).unwrap();
    assert!(posted().eq([4]));
    // The whole list is still whole.
    qp.post_send_batch(&mut batch).unwrap();
    assert!(posted().eq(0..5));
    memory(|m| m.refuse_wr_id = Some(3));
    assert_eq!(qp.post_send_part(&mut batch, 2, 2).unwrap_err().posted, 1);
}

#[test]
fn each_transport_names_its_attributes() {
    let context = open();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8, None).unwrap();
    let path = Path::by_lid(1);
    let steps = |qp_type| {
        let qp = Qp::builder(qp_type, &cq, &cq).build(&pd).unwrap();
        let endpoint = qp.endpoint(&path, 0x1ff_ffff).unwrap();
        assert_eq!((endpoint.lid, endpoint.qpn, endpoint.psn), (9, 0xabc, 0xff_ffff));
        qp.to_init(1, Access::REMOTE_WRITE, 5).unwrap();
        let init = memory(|m| m.last_mask);
        qp.to_rtr(&ReadyToReceive::new(endpoint, path, Mtu::M1024)).unwrap();
        let rtr = memory(|m| m.last_mask);
        qp.to_rts(&ReadyToSend::new(endpoint.psn)).unwrap();
        [init, rtr, memory(|m| m.last_mask)]
    };
    // As the manual page of ibv_modify_qp lists them.
    assert_eq!(steps(QpType::Rc), [0x39, 0x12_9181, 0x1_2e01]);
    assert_eq!(steps(QpType::Uc), [0x39, 0x10_1181, 0x1_0001]);
    assert_eq!(steps(QpType::Ud), [0x71, 0x1, 0x1_0001]);
}

#[test]
fn completions_are_decoded() {
    let context = open();
    let cq = context.create_cq(8, None).unwrap();
    let mut good = abi::ibv_wc::zeroed();
    good.wr_id = 7;
    good.opcode = abi::IBV_WC_RECV_RDMA_WITH_IMM;
    good.wc_flags = abi::IBV_WC_WITH_IMM;
    good.imm_data = 0x0102_0304u32.to_be();
    let mut bad = abi::ibv_wc::zeroed();
    bad.status = abi::IBV_WC_RETRY_EXC_ERR;
    memory(|m| m.completions = vec![good, bad]);
    let mut wcs = [Wc::default(); 4];
    assert_eq!(cq.poll(&mut wcs), Ok(2));
    assert_eq!((wcs[0].wr_id(), wcs[0].imm(), wcs[0].status()), (7, Some(0x0102_0304), Ok(())));
    assert_eq!((wcs[0].opcode(), wcs[0].invalidated_rkey()), (WcOpcode::RecvRdmaWithImm, None));
    assert_eq!((wcs[1].status(), wcs[1].is_ok()), (Err(WcStatus::RetryExceeded), false));
    assert_eq!(cq.poll_one(), Ok(None));
}

#[test]
fn errors_carry_the_verb_the_number_and_the_sentence() {
    let context = open();
    let pd = context.alloc_pd().unwrap();
    let buffer = Buffer::private(64).unwrap();
    let error = pd.register(&buffer, Access::REMOTE_WRITE).unwrap_err();
    assert_eq!(error.to_string(), "ibv_reg_mr: REMOTE_WRITE needs LOCAL_WRITE");
    // The message of another verb is not used for this error.
    let error = context.query_port(2).unwrap_err();
    assert_eq!((error.verb, error.errno, error.sentence), ("ibv_query_port", libc::EINVAL, None));
    let error = context.query_gid(1, 4).unwrap_err();
    assert_eq!(error.errno, libc::ENODATA);
    let cq = context.create_cq(8, None).unwrap();
    assert_eq!(cq.resize(16).unwrap_err().errno, libc::EOPNOTSUPP);
}

#[test]
fn queries_are_translated() {
    let devices = library().devices().unwrap();
    assert_eq!((devices[0].name().as_str(), devices[0].kind()), ("mock0", Kind::Sim));
    assert_eq!(devices[0].guid(), 0x0102_0304_0506_0708);
    let context = devices[0].open().unwrap();
    drop(devices);
    assert_eq!(context.query_device().unwrap().max_qp_wr, 77);
    let port = context.query_port(1).unwrap();
    assert_eq!((port.state, port.active_mtu, port.lid), (PortState::Active, Mtu::M2048, 9));
}

#[test]
#[should_panic(expected = "of a region of 64")]
fn a_piece_beyond_its_region_is_refused() {
    let context = open();
    let pd = context.alloc_pd().unwrap();
    let mr = pd.register(&Buffer::private(64).unwrap(), Access::LOCAL_WRITE).unwrap();
    let _ = mr.sge(60, 5);
}

#[test]
fn a_library_of_an_instance_keeps_it_as_long_as_anything_of_it() {
    let instance = Arc::new(library().devices().unwrap());
    let table = *library().table();
    let kept = instance.clone();
    let list = move || Ok(kept.iter().map(|device| device.raw).collect());
    let library = Library::of_instance(table, Kind::Sim, instance_of(Box::new(list)));
    let device = library.devices().unwrap().remove(0);
    drop(library);
    let context = device.open().unwrap();
    drop(device);
    let domain = context.alloc_pd().unwrap();
    assert_eq!(context.kind(), Kind::Sim);
    drop(context);
    assert_eq!(Arc::strong_count(&instance), 2, "the domain keeps all that it needs");
    drop(domain);
    assert_eq!(Arc::strong_count(&instance), 1);
}

#[test]
fn an_instance_without_devices_says_why() {
    let table = *library().table();
    let none = instance_of(Box::new(|| Err(libc::ENODEV)));
    let library = Library::of_instance(table, Kind::Sim, none);
    let error = library.devices().unwrap_err();
    assert_eq!((error.verb, error.errno), ("ibv_get_device_list", libc::ENODEV));
}

fn instance_of(devices: Box<ListDevices>) -> Instance {
    Instance {
        devices,
        wait_event: |_, _, _, _| libc::EAGAIN,
        wait_async_event: |_, _, _| libc::EAGAIN,
        last_error: || None,
    }
}
