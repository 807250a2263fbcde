//! The multicast groups that queue pairs of this process joined.

use std::collections::BTreeMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::train::Train;
use rdmalab_link::address::{groups_at, is_group};
use rdmalab_wire::ids::{Gid, Qpn};

/// Number of QPs of one process in one group (`max_mcast_qp_attach`).
const MAX_MEMBERS: usize = 256;
/// Number of groups of one process (`max_mcast_grp`).
const MAX_GROUPS: usize = 4096;

/// The groups and their members.
#[derive(Default)]
pub(crate) struct Groups {
    members: Mutex<BTreeMap<Gid, Vec<Qpn>>>,
}

impl Groups {
    /// The members of a group.
    pub(crate) fn members(&self, gid: &Gid) -> Vec<Qpn> {
        self.members.lock().get(gid).cloned().unwrap_or_default()
    }

    /// The members of all groups whose packets are sent to an address, each once, with its group.
    pub(crate) fn members_at(&self, address: IpAddr) -> Vec<(Qpn, Gid)> {
        let groups = self.members.lock();
        let mut members: Vec<(Qpn, Gid)> = Vec::new();
        for gid in groups_at(address) {
            for qpn in groups.get(&gid).into_iter().flatten() {
                if members.iter().all(|(known, _)| known != qpn) {
                    members.push((*qpn, gid));
                }
            }
        }
        members
    }

    /// Adds a QP to a group; adding it twice does nothing. `join` joins the group on the network,
    /// and is called before each member is added.
    ///
    /// # Errors
    /// `gid` is not a group, a limit is reached, or `join` failed.
    pub(crate) fn join(
        &self,
        gid: Gid,
        qpn: Qpn,
        join: impl FnOnce() -> VerbsResult<()>,
    ) -> VerbsResult<()> {
        if !is_group(gid) {
            return Err(VerbsError::invalid(format!(
                "{gid:?} is no multicast GID: those begin with ff, or are ::ffff:224.0.0.0/100"
            )));
        }
        let mut groups = self.members.lock();
        if groups.len() >= MAX_GROUPS && !groups.contains_key(&gid) {
            return Err(VerbsError::no_room(format!("soft devices allow {MAX_GROUPS} groups")));
        }
        let members = groups.get(&gid).map_or(&[][..], Vec::as_slice);
        if members.contains(&qpn) {
            return Ok(());
        }
        if members.len() >= MAX_MEMBERS {
            return Err(VerbsError::no_room(format!(
                "soft devices allow {MAX_MEMBERS} QPs of a process in a group"
            )));
        }
        join()?;
        groups.entry(gid).or_default().push(qpn);
        Ok(())
    }

    /// Removes a QP from a group; `leave` is called if it was the last member.
    ///
    /// # Errors
    /// The QP is not in the group.
    pub(crate) fn leave(&self, gid: Gid, qpn: Qpn, leave: impl FnOnce(&Gid)) -> VerbsResult<()> {
        let mut groups = self.members.lock();
        let members = groups.get_mut(&gid).filter(|members| members.contains(&qpn));
        let Some(members) = members else {
            return Err(VerbsError::invalid("the QP is not in this group"));
        };
        members.retain(|member| *member != qpn);
        if members.is_empty() {
            groups.remove(&gid);
            leave(&gid);
        }
        Ok(())
    }

    /// Removes a QP from every group; `leave` is called for each group that has no members then.
    pub(crate) fn leave_all(&self, qpn: Qpn, leave: impl Fn(&Gid)) {
        let mut groups = self.members.lock();
        for members in groups.values_mut() {
            members.retain(|member| *member != qpn);
        }
        groups.retain(|gid, members| {
            if members.is_empty() {
                leave(gid);
            }
            !members.is_empty()
        });
    }
}

/// The group to which a multicast datagram is sent.
pub(crate) fn gid_of(train: &Train) -> Gid {
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&train.remote_addr.to_be_bytes());
    gid[8..].copy_from_slice(&train.swap_add.to_be_bytes());
    Gid(gid)
}

/// The group to which a datagram is sent; `None` if the destination is not a group.
pub(crate) fn group_of(train: &Train) -> Option<Gid> {
    Some(gid_of(train)).filter(|gid| is_group(*gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_the_network_refuses_is_not_kept() {
        let groups = Groups::default();
        let (gid, qpn) = (Gid([0xff; 16]), Qpn::new(5));
        let refused = groups.join(gid, qpn, || Err(VerbsError::no_room("no more memberships")));
        assert!(refused.is_err());
        assert!(groups.members.lock().is_empty(), "an empty group counts towards the limit");
        assert_eq!(groups.join(gid, qpn, || Ok(())), Ok(()));
        assert_eq!(groups.members(&gid), [qpn]);
    }
}
