//! Attaches the queue pair of an id to multicast groups, and detaches it.

use rdmalab_abi::*;
use rdmalab_wire::ids::Qpn;

use crate::channel::Event;
use crate::cm_id::{CmId, Group};
use crate::conn_params::ConnParams;
use crate::device::verbs;
use crate::errno::{Errno, verb};
use crate::event_queue::{EventParam, QueuedEvent};
use crate::process::process;

/// Attaches the queue pair of an id to a group that it joined, and fills in the event; `false` if
/// the id has left the group.
pub fn attach(own: &CmId, event: &mut Event, queued: &QueuedEvent) -> bool {
    let EventParam::Group { number, mgid, mlid, qkey } = queued.param else { return false };
    let params = ConnParams { remote_gid: mgid, remote_lid: mlid, ..params_of(own) };
    let qp = own.qp();
    let mut groups = own.groups();
    let Some(group) = groups.iter_mut().find(|group| group.number == number) else {
        return false;
    };
    let mut ud = rdma_ud_param::zeroed();
    ud.private_data = group.context;
    ud.ah_attr = params.address_vector();
    ud.qp_num = Qpn::MULTICAST.get();
    ud.qkey = qkey;
    event.public.param = rdma_cm_event_param { ud };
    if qp.is_null() || group.is_send_only {
        return true;
    }
    let gid = ibv_gid { raw: mgid.0 };
    // SAFETY: the id's queue pair, and a GID that lives during the call.
    match verbs().and_then(|verbs| verb(unsafe { (verbs.attach_mcast)(qp, &raw const gid, mlid) }))
    {
        Ok(()) => group.is_attached = true,
        Err(Errno(errno)) => {
            event.public.event = RDMA_CM_EVENT_MULTICAST_ERROR;
            event.public.status = -errno;
        }
    }
    true
}

fn params_of(own: &CmId) -> ConnParams {
    let known = |number| process().ok()?.lock().id(number).ok().map(|id| id.params);
    known(own.number).unwrap_or_default()
}

/// Detaches the queue pair of an id from a group, and drops the join event if it was not fetched.
pub fn leave(own: &CmId, group: &Group) {
    if let Ok(process) = process() {
        let cm = process.lock();
        let is_it = |queued: &QueuedEvent| match queued.param {
            EventParam::Group { number, .. } => queued.id == own.number && number == group.number,
            _ => false,
        };
        if let Some(state) = cm.ids.get(&own.number) {
            state.queue.take_all(is_it);
        }
    }
    let qp = own.qp();
    if !group.is_attached || qp.is_null() {
        return;
    }
    let gid = ibv_gid { raw: group.mgid.0 };
    if let Ok(verbs) = verbs() {
        // SAFETY: the id's queue pair, and a GID that lives during the call.
        unsafe { (verbs.detach_mcast)(qp, &raw const gid, group.mlid) };
    }
}
