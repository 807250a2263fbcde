//! The connection manager of the verbs crate, on our librdmacm and the soft device of this process.

use std::time::Duration;

use rdmalab_testkit::programs::WaitLimit;
use rdmalab_verbs::{
    Access, CmAddress, CmChannel, CmEvent, CmEventKind, CmId, ConnParam, Context, Cq,
    MULTICAST_QPN, Pd, Qp, QpState, QpType, RecvRequest, SendRequest, UDP_QKEY,
};
use rustix::io::Errno;

use crate::two::device;

/// A wait that only a hang outlasts.
const LONG: Duration = Duration::from_secs(60);

fn channel() -> CmChannel {
    let context = device().open().expect("it opens");
    let manager = context.library().connection_manager().expect("ours");
    manager.create_channel().expect("a channel")
}

fn event(channel: &CmChannel, kind: CmEventKind) -> CmEvent {
    let event = WaitLimit::of(LONG).in_slices(|slice| channel.wait(slice).expect("an event"));
    let event = event.expect("one in time");
    assert_eq!(event.kind, kind, "{event:?}");
    event
}

/// A listener on loopback, and its address.
fn listener(channel: &CmChannel) -> (CmId, CmAddress) {
    let id = channel.create_id().expect("an id");
    id.bind(&CmAddress::loopback()).expect("loopback is ours");
    id.listen(8).expect("it listens");
    let at = CmAddress::loopback().with_port(id.port());
    (id, at)
}

/// An id whose address and route are resolved.
fn resolved(channel: &CmChannel, to: &CmAddress) -> CmId {
    let id = channel.create_id().expect("an id");
    assert!(id.context().is_none());
    id.resolve_address(to, 1000).expect("it looks");
    assert_eq!(event(channel, CmEventKind::AddressResolved).key, id.key());
    id.resolve_route(1000).expect("it looks");
    event(channel, CmEventKind::RouteResolved);
    id
}

/// A queue pair on an id, with its CQ, in the device that the manager chose.
struct Endpoint {
    qp: Qp,
    cq: Cq,
    pd: Pd,
    context: Context,
}

fn end(id: &CmId) -> Endpoint {
    let context = id.context().expect("a device");
    assert_eq!(context.device_name(), "soft0");
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq(16, None).expect("a queue");
    let builder = || Qp::builder(QpType::Rc, &cq, &cq);
    let qp = builder().build_on(id, &pd).expect("a queue pair");
    assert_eq!(qp.state(), Ok(QpState::Init));
    let again = builder().build_on(id, &pd).expect_err("it has one");
    assert_eq!(again.errno, Errno::INVAL.raw_os_error());
    Endpoint { qp, cq, pd, context }
}

/// Two connected ends: the active one and the passive one.
fn connected() -> [(Endpoint, CmId, CmChannel); 2] {
    let (here, there) = (channel(), channel());
    let (listener, at) = listener(&there);
    let id = resolved(&here, &at);
    let ours = end(&id);
    id.connect(&ConnParam { private_data: b"hello", ..ConnParam::default() }).expect("it asks");
    let request = event(&there, CmEventKind::ConnectRequest);
    assert_eq!((request.key, &request.private_data[..5]), (listener.key(), &b"hello"[..]));
    let asked = request.request.expect("an id");
    let theirs = end(&asked);
    asked.accept(&ConnParam::default()).expect("it accepts");
    assert_eq!(event(&here, CmEventKind::Established).key, id.key());
    assert_eq!(event(&there, CmEventKind::Established).key, asked.key());
    [(ours, id, here), (theirs, asked, there)]
}

#[test]
fn a_connection_carries_messages_and_ends_at_both_ends() {
    let [(ours, id, here), (theirs, asked, there)] = connected();
    for end in [&ours, &theirs] {
        assert_eq!(end.qp.state(), Ok(QpState::ReadyToSend));
        // The kernel's connection manager leaves this value, too.
        assert_eq!(end.qp.min_rnr_timer(), Ok(0));
        end.qp.set_min_rnr_timer(12).expect("it can be changed");
        assert_eq!(end.qp.min_rnr_timer(), Ok(12));
    }
    let memory = |end: &Endpoint| {
        let buffer = end.context.alloc_buffer(4096).expect("memory");
        end.pd.register(&buffer, Access::LOCAL_WRITE).expect("a region")
    };
    let (from, to) = (memory(&ours), memory(&theirs));
    from.buffer().write_u64(0, 0x1234_5678_9abc);
    theirs.qp.post_recv(&[RecvRequest::new(&[to.sge(0, 8)])]).expect("a receive");
    ours.qp.post_send(&[SendRequest::send(&[from.sge(0, 8)]).signaled()]).expect("a send");
    for end in [&ours, &theirs] {
        let mut polled = std::iter::repeat_with(|| end.cq.poll_one().expect("a queue"));
        assert!(polled.find_map(|found| found).expect("a completion").is_ok());
    }
    assert_eq!(to.buffer().read_u64(0), 0x1234_5678_9abc);
    id.disconnect().expect("it ends");
    assert_eq!(event(&there, CmEventKind::Disconnected).key, asked.key());
    asked.disconnect().expect("it answers");
    assert_eq!(event(&here, CmEventKind::Disconnected).key, id.key());
    assert_eq!(ours.qp.state(), Ok(QpState::Error));
}

/// Handles may be dropped in any order and on any thread: a queue pair keeps its id alive, and the
/// id keeps the device.
#[test]
fn what_is_needed_stays() {
    let [(ours, id, here), (theirs, asked, there)] = connected();
    drop((id, here, asked, there));
    for Endpoint { qp, cq, pd, context } in [ours, theirs] {
        drop((cq, pd, context));
        assert_eq!(qp.state(), Ok(QpState::ReadyToSend));
        std::thread::spawn(move || drop(qp)).join().expect("it goes");
    }
}

#[test]
fn requests_are_refused_aloud_or_by_dropping_them() {
    let (here, there) = (channel(), channel());
    let (_listener, at) = listener(&there);
    for aloud in [true, false] {
        let id = resolved(&here, &at);
        let _end = end(&id);
        id.connect(&ConnParam::default()).expect("it asks");
        let request = event(&there, CmEventKind::ConnectRequest).request.expect("an id");
        if aloud {
            request.reject().expect("it refuses");
        }
        drop(request);
        let refused = event(&here, CmEventKind::Rejected);
        assert_eq!((refused.key, refused.status > 0), (id.key(), true), "{refused:?}");
    }
    assert!(there.wait(Duration::from_millis(1)).expect("it can be asked").is_none());
}

#[test]
fn who_does_not_listen_refuses() {
    let here = channel();
    let (gone, unused) = listener(&here);
    drop(gone);
    let id = resolved(&here, &unused);
    let _end = end(&id);
    id.connect(&ConnParam::default()).expect("it asks");
    event(&here, CmEventKind::Rejected);
    let far: CmAddress = "192.0.2.1:1".parse().expect("an address");
    let id = here.create_id().expect("an id");
    let refused = id.bind(&far).expect_err("it is not ours");
    assert_eq!(refused.errno, Errno::ADDRNOTAVAIL.raw_os_error());
}

#[test]
fn a_group_is_joined_and_an_address_of_another_kind_is_refused() {
    let channel = channel();
    let id = channel.create_datagram_id().expect("an id");
    id.bind(&CmAddress::loopback()).expect("loopback is ours");
    assert_eq!(id.device_port(), 1);
    id.join(&"239.255.1.2:0".parse().unwrap()).expect("a group");
    let joined = event(&channel, CmEventKind::MulticastJoined);
    let group = joined.group.expect("which it is");
    assert_eq!((joined.key, group.qkey, group.path.port_num), (id.key(), UDP_QKEY, 1));
    assert!(group.at.lid >= 0xc000 && group.at.gid.is_multicast(), "{group:?}");
    assert_eq!((group.at.qpn, group.path.sgid_index.is_some()), (MULTICAST_QPN, true));
    let refused = id.join(&"192.0.2.1:0".parse().unwrap()).expect_err("no group");
    assert_eq!(refused.errno, Errno::INVAL.raw_os_error(), "{refused}");
    let reliable = channel.create_id().expect("an id");
    reliable.bind(&CmAddress::loopback()).expect("loopback is ours");
    reliable.join(&"239.255.1.2:0".parse().unwrap()).expect_err("it is for connections");
}
