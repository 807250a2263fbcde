//! Multicast groups of datagram QPs.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_wire::ids::{Gid, Qpn};

use crate::process::Process;

/// QPs of one process in one group (`max_mcast_qp_attach`).
const MAX_MEMBERS: usize = 256;
/// Groups of one process (`max_mcast_grp`).
const MAX_GROUPS: usize = 4096;

/// The groups that QPs of this process joined.
#[derive(Default)]
pub(crate) struct Groups {
    members: Mutex<BTreeMap<Gid, Vec<Qpn>>>,
}

impl Groups {
    /// The members of a group.
    pub(crate) fn members(&self, gid: &Gid) -> Vec<Qpn> {
        self.members.lock().get(gid).cloned().unwrap_or_default()
    }
}

impl Process {
    /// Adds a QP to a group; adding it twice does nothing.
    pub(crate) fn join_group(&self, gid: Gid, qpn: Qpn) -> VerbsResult<()> {
        if !gid.is_multicast() {
            return Err(VerbsError::invalid(format!(
                "{gid:?} is no multicast GID: those begin with ff"
            )));
        }
        let mut groups = self.groups.members.lock();
        if groups.len() >= MAX_GROUPS && !groups.contains_key(&gid) {
            return Err(VerbsError::no_room(format!("soft devices allow {MAX_GROUPS} groups")));
        }
        let members = groups.entry(gid).or_default();
        if members.contains(&qpn) {
            return Ok(());
        }
        if members.len() >= MAX_MEMBERS {
            return Err(VerbsError::no_room(format!(
                "soft devices allow {MAX_MEMBERS} QPs of a process in a group"
            )));
        }
        members.push(qpn);
        Ok(())
    }

    /// Removes a QP from a group.
    pub(crate) fn leave_group(&self, gid: Gid, qpn: Qpn) -> VerbsResult<()> {
        let mut groups = self.groups.members.lock();
        let members = groups.get_mut(&gid).filter(|members| members.contains(&qpn));
        let Some(members) = members else {
            return Err(VerbsError::invalid("the QP is not in this group"));
        };
        members.retain(|member| *member != qpn);
        if members.is_empty() {
            groups.remove(&gid);
        }
        Ok(())
    }

    /// Removes a QP from every group.
    pub(crate) fn leave_groups(&self, qpn: Qpn) {
        let mut groups = self.groups.members.lock();
        for members in groups.values_mut() {
            members.retain(|member| *member != qpn);
        }
        groups.retain(|_, members| !members.is_empty());
    }
}
