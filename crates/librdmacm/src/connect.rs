//! Connecting, accepting, rejecting and disconnecting.

use core::ffi::{c_int, c_void};

use rdmalab_abi::*;
use rdmalab_engine::cm::code_ns;
use rdmalab_wire::cm::{IpHeader, Path, Rej, Rep, Req, SidrRep, SidrReq, reason};
use rdmalab_wire::ids::{Psn, Qpn};

use crate::blocking::wait_for_event;
use crate::cm_id::{CmId, own};
use crate::conn_params::{HOP_LIMIT, PACKET_LIFE_TIME, PKEY, is_datagram};
use crate::errno::{CallResult, Errno, answer, failed};
use crate::establish::{establish, wrong_state};
use crate::id::ack_last_event;
use crate::os::{now_ns, random};
use crate::process::process;
use crate::qp;
use crate::state::{IdState, service_of};

/// Response time-out of both sides, encoded: 4.096 us x 2^20, which is 4.3 s.
const RESPONSE_TIMEOUT: u8 = 20;
/// Max CM Retries of a REQ.
const MAX_RETRIES: u8 = 15;
/// Target ACK delay, encoded: 4.096 us x 2^15, which is 134 ms.
const ACK_DELAY: u8 = 15;

/// The values of an `rdma_conn_param`, or the defaults if the program passed none.
struct Wanted<'a> {
    private_data: &'a [u8],
    flow_control: bool,
    retry_count: u8,
    rnr_retry_count: u8,
    srq: bool,
    qp_num: u32,
    responder_resources: Option<u8>,
    initiator_depth: Option<u8>,
}

/// # Safety
/// `param` is null, or it and its private data are valid for `'a`.
unsafe fn wanted<'a>(param: *const rdma_conn_param) -> Wanted<'a> {
    // SAFETY: the caller's contract.
    let Some(param) = (unsafe { param.as_ref() }) else {
        return Wanted {
            private_data: &[],
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qp_num: 0,
            responder_resources: None,
            initiator_depth: None,
        };
    };
    let length = usize::from(param.private_data_len);
    let private_data = match param.private_data.is_null() || length == 0 {
        true => &[][..],
        // SAFETY: the caller's contract.
        false => unsafe { std::slice::from_raw_parts(param.private_data.cast::<u8>(), length) },
    };
    // 255 stands for the device's maximum.
    let given = |count: u8| (u32::from(count) != RDMA_MAX_RESP_RES).then_some(count);
    Wanted {
        private_data,
        flow_control: param.flow_control != 0,
        retry_count: param.retry_count & 7,
        rnr_retry_count: param.rnr_retry_count & 7,
        srq: param.srq != 0,
        qp_num: param.qp_num,
        responder_resources: given(param.responder_resources),
        initiator_depth: given(param.initiator_depth),
    }
}

/// Joins the parts of the private data in a field of fixed length.
fn fill<const N: usize>(call: &str, parts: &[&[u8]]) -> CallResult<[u8; N]> {
    let mut whole = [0; N];
    let length: usize = parts.iter().map(|part| part.len()).sum();
    if length > N {
        let own = parts.last().map_or(0, |part| part.len());
        return Err(failed(libc::EINVAL, call, || {
            format!("{own} bytes of private data do not fit: {} do", N - (length - own))
        }));
    }
    let mut at = 0;
    for part in parts {
        whole[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Ok(whole)
}

fn check_depths(own: &CmId, wanted: &Wanted<'_>) -> CallResult<()> {
    let Some(device) = own.device() else { return Err(Errno(libc::EINVAL)) };
    if own.ps() != RDMA_PS_TCP {
        return Ok(());
    }
    let (responder, initiator) = (device.max_responder_resources, device.max_initiator_depth);
    if wanted.responder_resources.is_some_and(|count| count > responder)
        || wanted.initiator_depth.is_some_and(|count| count > initiator)
    {
        return Err(failed(libc::EINVAL, "rdma_connect or rdma_accept", || {
            format!("the device answers {responder} READs at a time and asks for {initiator}")
        }));
    }
    Ok(())
}

/// Number of the queue pair, and whether it uses an SRQ. Both come from the id's queue pair, or
/// from the program's parameters if the id has none.
fn queue_pair(own: &CmId, wanted: &Wanted<'_>) -> (Qpn, bool) {
    // SAFETY: the id's queue pair is alive until `rdma_destroy_qp`.
    match unsafe { own.qp().as_ref() } {
        Some(qp) => (Qpn::new(qp.qp_num), !qp.srq.is_null()),
        None => (Qpn::new(wanted.qp_num), wanted.srq),
    }
}

/// Sends a REQ to the peer; the result comes as an event. Returns 0, or -1 and `errno`.
pub unsafe fn rdma_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the caller's id and parameters.
    answer(unsafe { connect(id, conn_param) })
}

/// See [`rdma_connect`].
pub unsafe fn connect(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let (own, wanted) = unsafe { (own(id)?, wanted(param)) };
    if own.qp().is_null() && param.is_null() && own.ps() == RDMA_PS_TCP {
        return Err(failed(libc::EINVAL, "rdma_connect", || {
            "without a queue pair on the id, its number must be in the parameters".to_owned()
        }));
    }
    check_depths(own, &wanted)?;
    let Some(device) = own.device() else { return Err(Errno(libc::EINVAL)) };
    own.set_initiator_depth(wanted.initiator_depth.unwrap_or(device.max_initiator_depth));
    own.set_responder_resources(
        wanted.responder_resources.unwrap_or(device.max_responder_resources),
    );
    let mut cm = process()?.lock();
    let guid = cm.manager.guid();
    let state = cm.id(own.number)?;
    let (Some(to), Some(source), Some(destination)) = (state.peer, state.source, state.destination)
    else {
        return Err(failed(libc::EINVAL, "rdma_connect", || {
            "resolve the address and the route first".to_owned()
        }));
    };
    if state.comm.is_some() {
        return Err(Errno(libc::EINVAL));
    }
    let header = IpHeader {
        source_port: source.port(),
        source: same_family(source.ip(), destination.ip()),
        destination: destination.ip(),
    }
    .to_bytes();
    let service_id = service_of(state.ps, destination.port());
    let connect_data = own.connect_data().clone();
    let parts = [&header[..], &connect_data, wanted.private_data];
    let comm = if is_datagram(state.ps) {
        let private_data = fill::<{ SidrReq::PRIVATE_BYTES }>("rdma_connect", &parts)?;
        let req = SidrReq { request_id: 0, pkey: PKEY, service_id, private_data };
        let response_ns = code_ns(RESPONSE_TIMEOUT) + code_ns(PACKET_LIFE_TIME + 1);
        cm.manager.ask_service(now_ns(), to, req, response_ns)
    } else {
        let private_data = fill::<{ Req::PRIVATE_BYTES }>("rdma_connect", &parts)?;
        let mut req = request(own, state, &wanted, private_data);
        req.service_id = service_id;
        req.ca_guid = guid;
        cm.manager.connect(now_ns(), to, req)
    };
    let comm = comm.map_err(|error| wrong_state("rdma_connect", error))?;
    cm.attach(own.number, comm);
    cm.process_outputs();
    drop(cm);
    own.connect_data().clear();
    // SAFETY: as above.
    unsafe { wait_for_event(id) }
}

/// Converts `ip` to the family of `like`: the header in the REQ's private data has one IP version.
fn same_family(ip: std::net::IpAddr, like: std::net::IpAddr) -> std::net::IpAddr {
    match (ip, like) {
        (std::net::IpAddr::V4(v4), std::net::IpAddr::V6(_)) => v4.to_ipv6_mapped().into(),
        (v6, std::net::IpAddr::V4(_)) => match v6.to_canonical() {
            std::net::IpAddr::V6(_) => crate::address::loopback(like),
            v4 => v4,
        },
        (same, _) => same,
    }
}

/// The REQ of a connection. The caller fills in service id and CA GUID.
fn request(
    own: &CmId,
    state: &mut IdState,
    wanted: &Wanted<'_>,
    private_data: [u8; Req::PRIVATE_BYTES],
) -> Req {
    let (qpn, srq) = queue_pair(own, wanted);
    let params = &mut state.params;
    let (lid, mtu, is_ethernet) =
        own.device().map_or((0, 1, true), |device| (device.lid, device.mtu, device.is_ethernet));
    params.rq_psn = Psn::new(random());
    params.mtu = mtu;
    params.retry_count = wanted.retry_count;
    params.rnr_retry_count = wanted.rnr_retry_count;
    params.ack_timeout = state.ack_timeout.unwrap_or(PACKET_LIFE_TIME + 1);
    params.traffic_class = state.tos;
    let (service_type, extended_transport) = match state.qp_type {
        IBV_QPT_UC => (1, 0),
        IBV_QPT_XRC_SEND => (3, 1),
        _ => (0, 0),
    };
    // On Ethernet packets are routed by GID, so both LIDs are permissive.
    let lids = if is_ethernet { (0xffff, 0xffff) } else { (lid, params.remote_lid) };
    Req {
        local_id: 0,
        service_id: 0,
        ca_guid: 0,
        qkey: 0,
        qpn,
        responder_resources: own.responder_resources(),
        initiator_depth: own.initiator_depth(),
        remote_response_timeout: RESPONSE_TIMEOUT,
        service_type,
        flow_control: wanted.flow_control,
        starting_psn: params.rq_psn,
        local_response_timeout: RESPONSE_TIMEOUT,
        retry_count: wanted.retry_count,
        pkey: PKEY,
        path_mtu: mtu,
        rnr_retry_count: wanted.rnr_retry_count,
        max_cm_retries: MAX_RETRIES,
        srq,
        extended_transport,
        path: Path {
            local_lid: lids.0,
            remote_lid: lids.1,
            local_gid: params.local_gid,
            remote_gid: params.remote_gid,
            flow_label: random() & 0xf_ffff,
            rate: 0,
            traffic_class: state.tos,
            hop_limit: HOP_LIMIT,
            service_level: 0,
            is_subnet_local: false,
            ack_timeout: params.ack_timeout,
        },
        private_data,
    }
}

/// Accepts a connection request; returns 0, or -1 and `errno`.
pub unsafe fn rdma_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the caller's id and parameters.
    answer(unsafe { accept(id, conn_param) })
}

/// See [`rdma_accept`].
pub unsafe fn accept(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let (own, wanted) = unsafe { (own(id)?, wanted(param)) };
    if own.qp().is_null() && param.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    check_depths(own, &wanted)?;
    let Some(device) = own.device() else { return Err(Errno(libc::EINVAL)) };
    own.set_initiator_depth(
        wanted.initiator_depth.unwrap_or(own.initiator_depth().min(device.max_initiator_depth)),
    );
    own.set_responder_resources(
        wanted
            .responder_resources
            .unwrap_or(own.responder_resources().min(device.max_responder_resources)),
    );
    if is_datagram(own.ps()) {
        return accept_datagram(own, &wanted);
    }
    qp::to_rtr(own, Some(own.responder_resources()))?;
    qp::to_rts(own, Some(own.initiator_depth()))?;
    let accepted = accept_connection(own, &wanted);
    if accepted.is_err() {
        qp::to_error(own);
    }
    accepted?;
    // SAFETY: as above.
    unsafe { wait_for_event(id) }
}

fn accept_connection(own: &CmId, wanted: &Wanted<'_>) -> CallResult<()> {
    let private_data = fill::<{ Rep::PRIVATE_BYTES }>("rdma_accept", &[wanted.private_data])?;
    let (qpn, srq) = queue_pair(own, wanted);
    let mut cm = process()?.lock();
    let ca_guid = cm.manager.guid();
    let state = cm.id(own.number)?;
    let Some(comm) = state.comm else { return Err(Errno(libc::EINVAL)) };
    let params = &mut state.params;
    params.initiator_depth = own.initiator_depth();
    params.responder_resources = own.responder_resources();
    let rep = Rep {
        local_id: 0,
        remote_id: 0,
        qkey: 0,
        qpn,
        starting_psn: params.rq_psn,
        responder_resources: own.responder_resources(),
        initiator_depth: own.initiator_depth(),
        target_ack_delay: ACK_DELAY,
        failover: 0,
        flow_control: wanted.flow_control,
        rnr_retry_count: wanted.rnr_retry_count,
        srq,
        ca_guid,
        private_data,
    };
    let done = cm.manager.accept(now_ns(), comm, rep);
    cm.process_outputs();
    done.map_err(|error| wrong_state("rdma_accept", error))
}

fn accept_datagram(own: &CmId, wanted: &Wanted<'_>) -> CallResult<()> {
    let private_data = fill::<{ SidrRep::PRIVATE_BYTES }>("rdma_accept", &[wanted.private_data])?;
    let (qpn, _) = queue_pair(own, wanted);
    let mut cm = process()?.lock();
    let state = cm.id(own.number)?;
    let Some(comm) = state.comm else { return Err(Errno(libc::EINVAL)) };
    let rep = SidrRep {
        request_id: 0,
        status: 0,
        info_length: 0,
        qpn,
        service_id: 0,
        qkey: RDMA_UDP_QKEY,
        info: [0; SidrRep::INFO_BYTES],
        private_data,
    };
    let done = cm.manager.answer_service(comm, rep);
    cm.process_outputs();
    drop(cm);
    if own.is_sync() {
        ack_last_event(own);
    }
    done.map_err(|error| wrong_state("rdma_accept", error))
}

/// Rejects a connection request; returns 0, or -1 and `errno`.
pub unsafe fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    let data = match private_data.is_null() || private_data_len == 0 {
        true => &[][..],
        // SAFETY: the caller's bytes.
        false => unsafe {
            std::slice::from_raw_parts(private_data.cast::<u8>(), usize::from(private_data_len))
        },
    };
    // SAFETY: the caller's id.
    answer(unsafe { own(id) }.and_then(|own| reject(own, data)))
}

fn reject(own: &CmId, data: &[u8]) -> CallResult<()> {
    let mut cm = process()?.lock();
    let state = cm.id(own.number)?;
    let (Some(comm), ps) = (state.comm, state.ps) else { return Err(Errno(libc::EINVAL)) };
    let done = if is_datagram(ps) {
        let private_data = fill::<{ SidrRep::PRIVATE_BYTES }>("rdma_reject", &[data])?;
        // Status 2: refused.
        let rep = SidrRep {
            request_id: 0,
            status: 2,
            info_length: 0,
            qpn: Qpn::default(),
            service_id: 0,
            qkey: 0,
            info: [0; SidrRep::INFO_BYTES],
            private_data,
        };
        cm.manager.answer_service(comm, rep)
    } else {
        let private_data = fill::<{ Rej::PRIVATE_BYTES }>("rdma_reject", &[data])?;
        cm.manager.reject(comm, reason::CONSUMER, private_data)
    };
    cm.process_outputs();
    done.map_err(|error| wrong_state("rdma_reject", error))
}

/// Rejects a connection request because of the peer's ECE options: here an ordinary reject. Returns
/// 0, or -1 and `errno`.
pub unsafe fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: the caller's id and bytes.
    unsafe { rdma_reject(id, private_data, private_data_len) }
}

/// Reports a queue pair event that came before the RTU; returns 0, or -1 and `errno`.
pub unsafe fn rdma_notify(id: *mut rdma_cm_id, event: u32) -> c_int {
    // SAFETY: the caller's id.
    answer(unsafe { own(id) }.and_then(|own| {
        let mut cm = process()?.lock();
        let Some(comm) = cm.id(own.number)?.comm else { return Err(Errno(libc::EINVAL)) };
        if event != IBV_EVENT_COMM_EST {
            return Err(Errno(libc::EINVAL));
        }
        let done = cm.manager.notify_established(comm);
        cm.process_outputs();
        done.map_err(|error| wrong_state("rdma_notify", error))
    }))
}

/// Ends a connection; returns 0, or -1 and `errno`.
pub unsafe fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's id.
    answer(unsafe { disconnect(id) })
}

/// See [`rdma_disconnect`].
pub unsafe fn disconnect(id: *mut rdma_cm_id) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let own = unsafe { own(id)? };
    if own.verbs().is_null() {
        return Err(Errno(libc::EINVAL));
    }
    qp::to_error(own);
    let mut cm = process()?.lock();
    let Some(comm) = cm.id(own.number)?.comm else { return Err(Errno(libc::EINVAL)) };
    // As in the kernel, disconnecting a connection that has ended is no error.
    let _already_over = cm.manager.disconnect(now_ns(), comm);
    cm.process_outputs();
    drop(cm);
    // SAFETY: as above.
    unsafe { wait_for_event(id) }
}

/// Ends a connection without waiting for its event.
///
/// # Safety
/// The id is one of ours.
pub unsafe fn drop_connection(id: *mut rdma_cm_id) -> CallResult<()> {
    // SAFETY: the caller's contract.
    let own = unsafe { own(id)? };
    qp::to_error(own);
    let mut cm = process()?.lock();
    let Some(comm) = cm.id(own.number)?.comm else { return Ok(()) };
    let done = cm.manager.disconnect(now_ns(), comm);
    cm.process_outputs();
    done.map_err(|error| wrong_state("rclose", error))
}

/// Sends the RTU, if the program moves its queue pair to RTS itself; 0, or -1 and `errno`.
pub unsafe fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's id.
    answer(unsafe { own(id) }.and_then(|own| match own.qp().is_null() {
        true => establish(own),
        false => Err(Errno(libc::EINVAL)),
    }))
}
