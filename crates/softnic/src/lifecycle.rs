//! The life of a queue pair: creation, modification, connection, destruction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdmalab_engine::backend::*;
use rdmalab_engine::qp::Qp;
use rdmalab_engine::qp::attr::Limits;
use rdmalab_engine::vocab::*;
use rdmalab_wire::ids::Qpn;

use crate::copiers::Copiers;
use crate::device;
use crate::handles::{Cq, Pd, SoftQp, Srq, alive, limit_error};
use crate::hooks::Hooks;
use crate::hooks::frames::DatagramFlow;
use crate::layout::{self, QP_INDEX_BITS, QpWord};
use crate::process::Process;
use crate::profile::{self, limits};
use crate::qp::{QpInner, QpLinks, QpObject, transport_of};
use crate::stream::StreamDetector;
use crate::udp::UdpIo;
use crate::udp::congestion::CongestionWindow;
use crate::udp::delayed_ack::DelayedAck;
use crate::udp::nagle::Nagle;

/// How often the rings are polled before a connection begins: enough for a full ring.
const STALE_LOOKS: u32 = 64;

/// Creates a QP in a free place of the process.
pub(crate) fn create(pd: &Pd, init: QpInit<'_, Cq, Srq>) -> VerbsResult<(SoftQp, Qpn, QpCap)> {
    let process = pd.1;
    process.check_usable()?;
    let context = &pd.0.context;
    context.check_owns(&init.send_cq.0.context, "the send CQ")?;
    context.check_owns(&init.recv_cq.0.context, "the receive CQ")?;
    if let Some(srq) = init.srq {
        context.check_owns(&srq.0.pd.context, "the SRQ")?;
    }
    check_same_device(pd, &init)?;
    let granted = grant(&init)?;
    if let Some(udp) = UdpIo::of(process).filter(|_| init.qp_type == QpType::Ud) {
        udp.expect_datagrams()?;
    }
    let object = process.qps.allocate(|index| QpObject::new(process, index))?;
    let qpn = Qpn::new((process.host.slot as u32) << QP_INDEX_BITS | object.index);
    let init = QpInit { cap: granted, ..init };
    let is_shown = process.hooks.is_some() && init.qp_type == QpType::Ud;
    let links = QpLinks {
        object,
        process,
        pd: pd.0.clone(),
        send_cq: init.send_cq.0.cq.clone(),
        recv_cq: init.recv_cq.0.cq.clone(),
        srq: init.srq.map(|srq| srq.0.clone()),
        cookie: init.cookie,
        peer: None,
        pushed: 0,
        stream: StreamDetector::default(),
        published: QpWord::CLOSED,
        service: transport_of(init.qp_type),
        lost: 0,
        invalidation: None,
        mapped: None,
        route: None,
        shared_paths: None,
        datagram_flows: is_shown.then(|| Box::new([DatagramFlow::new(), DatagramFlow::new()])),
        delayed_ack: DelayedAck::default(),
        nagle: Nagle::default(),
        congestion: CongestionWindow::default(),
        hooks: process.hooks,
        has_short_ways: process.hooks.is_none() && !profile::pages_may_be_missing(),
        short_tap: process.hooks.and_then(Hooks::short_tap),
        grh: None,
    };
    process.counters.queue_pair_made();
    links.send_cq.users.fetch_add(1, Ordering::Relaxed);
    links.recv_cq.users.fetch_add(1, Ordering::Relaxed);
    if let Some(srq) = &links.srq {
        srq.users.fetch_add(1, Ordering::Relaxed);
    }
    pd.0.add_object();
    object.sq_freed.store(0, Ordering::Release);
    let mut qp = Qp::new(qpn, pd.0.id, &init, device::active_mtu());
    *qp.adapter = profile::engine_adapter();
    *object.inner.lock() = Some(QpInner { qp, links });
    Ok((SoftQp(object, qpn), qpn, granted))
}

/// Modifies a QP. RTR waits for the handshake with the peer, RESET drops all earlier state.
pub(crate) fn modify(qp: &SoftQp, attr: &QpAttr, mask: QpAttrMask) -> VerbsResult<QpState> {
    let process = qp.0.process;
    process.check_usable()?;
    if mask.contains(QpAttrMask::STATE) && attr.qp_state == QpState::Rtr {
        forget_stale_trains(qp)?;
    }
    if let Some(network) = process.network().filter(|_| mask.contains(QpAttrMask::AV)) {
        network.check_address(&attr.ah_attr)?;
    }
    let (initiator, next) = {
        let mut guard = qp.0.inner.lock();
        let inner = alive(&mut guard, qp.1)?;
        inner.send_delayed();
        let initiator = Initiator::of(inner);
        let next = inner.qp.modify(attr, mask, &modify_limits(), &mut inner.links)?;
        if mask.contains(QpAttrMask::AV) {
            inner.route_to_peer();
            inner.remember_shared_paths();
        }
        inner.publish();
        (initiator, next)
    };
    match next {
        QpState::Rtr if mask.contains(QpAttrMask::STATE) => connect(qp)?,
        QpState::Reset => {
            initiator.wait(process)?;
            let mut guard = qp.0.inner.lock();
            let inner = alive(&mut guard, qp.1)?;
            inner.forget_everything();
            inner.links.invalidation = None;
            if let Some(hooks) = inner.links.hooks {
                hooks.queue_pair_reset(qp.1);
            }
            process.paging.forget_qp(qp.1);
        }
        // SQD: an ACK may have to be requested.
        QpState::Rts | QpState::Sqd | QpState::Err => {
            let mut guard = qp.0.inner.lock();
            alive(&mut guard, qp.1)?.transmit();
        }
        _ => {}
    }
    Ok(next)
}

/// Destroys a QP. When this returns, no thread uses it any more.
pub(crate) fn destroy(qp: &SoftQp) -> VerbsResult<()> {
    let process = qp.0.process;
    if process.is_defunct() {
        return Ok(());
    }
    crate::datagram::linger(qp.0, qp.1);
    let initiator = {
        let mut guard = qp.0.inner.lock();
        let inner = alive(&mut guard, qp.1)?;
        inner.send_delayed();
        let initiator = Initiator::of(inner);
        let links = &mut inner.links;
        links.published = QpWord::CLOSED;
        process.qps.words.store(qp.0.index as usize, QpWord::CLOSED);
        initiator
    };
    process.keys.retract_windows_of(qp.1);
    initiator.wait(process)?;
    let place = &qp.0.inner;
    let wait = || drop(place.lock());
    let try_take = || place.try_lock().map(|mut inner| inner.take());
    if let Some(inner) = process.counters.queue_pair_gone(wait, try_take, |inner| inner.qp.tally())
    {
        let links = inner.links;
        if let Some(hooks) = links.hooks {
            hooks.queue_pair_reset(qp.1);
        }
        process.paging.forget_qp(qp.1);
        if links.lost > 0 {
            crate::debug(&format!(
                "QP {:#x}: {} of its packets had no receiver: the peer process did not exist, had \
                 died, did not answer, or took nothing out of its full ring",
                qp.1.get(),
                links.lost
            ));
        }
        for cq in [&links.send_cq, &links.recv_cq] {
            cq.purge(qp.1.get());
            cq.users.fetch_sub(1, Ordering::Release);
        }
        if let Some(srq) = &links.srq {
            srq.users.fetch_sub(1, Ordering::Release);
        }
        links.pd.context.forget(links.cookie);
        if links.is_datagram() {
            process.groups.leave_all(qp.1, |gid| process.network.leave(gid));
        }
        links.pd.remove_object();
        process.qps.release(qp.0.index);
    }
    Ok(())
}

/// Who may be executing a one-sided operation on a QP that is being closed. A QP word names one
/// initiator, the QP at the other end of the connection, and `rdmalab_driver::lane::execute`
/// refuses any other. So a closed QP waits for that one only, however many QPs the process has. A
/// QP that is connected anew went through RESET, which has waited for the initiator before.
enum Initiator {
    /// No QP: it was never connected on this host.
    None,
    /// A QP of this process. Its threads do not enter the lane; they copy under its lock.
    Here(Qpn),
    /// A QP of another process, which enters the lane.
    Elsewhere,
}

impl Initiator {
    fn of(inner: &QpInner) -> Initiator {
        match inner.qp.remote_qpn {
            // RESET clears the number at once and the peer after it has waited, so a peer without a
            // number is one that RESET gave up on.
            qpn if qpn.get() == 0 && inner.links.peer.is_none() => Initiator::None,
            qpn if qpn.get() == 0 => Initiator::Elsewhere,
            qpn if layout::process_of(qpn) == inner.links.process.host.slot => Initiator::Here(qpn),
            _ => Initiator::Elsewhere,
        }
    }

    /// Waits until an operation that began before the QP's word was withdrawn has ended. The caller
    /// holds no QP's lock.
    fn wait(self, process: &Process) -> VerbsResult<()> {
        match self {
            Initiator::None => Ok(()),
            Initiator::Here(qpn) => {
                if let Some(object) = process.qps.at(layout::index_of(qpn)) {
                    drop(object.inner.lock());
                }
                Ok(())
            }
            Initiator::Elsewhere => Copiers::of(process).wait_for_lanes(),
        }
    }
}

/// Checks that a QP and the objects that it uses belong to one open device.
fn check_same_device(pd: &Pd, init: &QpInit<'_, Cq, Srq>) -> VerbsResult<()> {
    let context = &pd.0.context;
    let same = Arc::ptr_eq(context, &init.send_cq.0.context)
        && Arc::ptr_eq(context, &init.recv_cq.0.context)
        && init.srq.is_none_or(|srq| Arc::ptr_eq(context, &srq.0.pd.context));
    if !same {
        return Err(VerbsError::invalid(
            "the PD, CQs and SRQ of a QP must come from one open device (one ibv_context)",
        ));
    }
    Ok(())
}

fn modify_limits() -> Limits {
    let limits = limits();
    Limits {
        max_rd_atomic: limits.max_qp_init_rd_atom as u8,
        max_dest_rd_atomic: limits.max_qp_rd_atom as u8,
        ports: 1,
        pkey_table_len: 1,
        gid_table_len: device::gid_count(),
        active_mtu: device::active_mtu() as u32,
    }
}

/// Called before a connection begins: polls the rings, so that trains for an earlier connection are
/// dropped while the QP cannot receive. In a ring they would stay, unlike on a network.
fn forget_stale_trains(qp: &SoftQp) -> VerbsResult<()> {
    let process = qp.0.process;
    for _ in 0..STALE_LOOKS {
        if process.poll_rings() == 0 {
            break;
        }
    }
    Ok(())
}

/// Checks the requested capacities against the device's limits, and returns the granted ones.
fn grant(init: &QpInit<'_, Cq, Srq>) -> VerbsResult<QpCap> {
    let limits = limits();
    let most = QpCap {
        max_send_wr: limits.max_qp_wr,
        max_recv_wr: limits.max_qp_wr,
        max_send_sge: limits.max_sge,
        max_recv_sge: limits.max_sge,
        max_inline_data: limits.max_inline_data,
    };
    let refused =
        |(what, asked, limit): (&str, u32, u32)| limit_error(what, asked.into(), limit.into());
    let mut cap = init.cap.grant(&most, init.srq.is_none()).map_err(refused)?;
    cap.max_inline_data = cap.max_inline_data.next_multiple_of(8).min(limits.max_inline_data);
    Ok(cap)
}

/// Completes the handshake with the peer's process. If that fails, the QP has no peer and its
/// requests time out, as on a fabric where the peer is gone.
fn connect(qp: &SoftQp) -> VerbsResult<()> {
    let (process, slot, here) = {
        let mut guard = qp.0.inner.lock();
        let inner = alive(&mut guard, qp.1)?;
        if inner.qp.qp_type == QpType::Ud {
            return Ok(());
        }
        let here = device::is_here(&inner.qp.attr.ah_attr);
        (inner.links.process, inner.remote_process(), here)
    };
    let peer = if here { process.host.peer_for_connection(slot) } else { None };
    let mut guard = qp.0.inner.lock();
    let links = &mut alive(&mut guard, qp.1)?.links;
    links.peer = peer;
    links.mapped = None;
    Ok(())
}

#[cfg(test)]
mod tests;
