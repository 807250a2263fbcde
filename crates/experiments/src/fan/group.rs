//! The multicast group of `--to group`: rank 0 sends to it, and the others have joined it.
//!
//! On the soft device, a queue pair that is attached to a group gets the messages sent to it. A
//! network forwards them only to ports that joined: an InfiniBand port asks the subnet manager,
//! which gives the group its LID, and an Ethernet port tells switches and its own filters (IGMP,
//! MLD). All ranks, also the sender, join through the connection manager. An Ethernet port without
//! an IP address does not join: this works only in networks that flood multicast.

use core::net::{Ipv4Addr, Ipv6Addr};

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{
    AddressHandle, CmAddress, CmChannel, CmEventKind, CmGroup, CmId, Context, Kind, LinkLayer,
    MULTICAST_QPN, Path, QpEndpoint,
};

use crate::common::completions::failed;
use crate::common::connection::QKEY;
use crate::common::limits::Limits;
use crate::common::links::Links;
use crate::common::params::Common;
use crate::common::rdma_cm;

/// A group, as long as it is kept.
#[derive(Default)]
pub(super) struct Group {
    /// Where rank 0 sends to.
    ah: Option<AddressHandle>,
    _membership: Option<Membership>,
}

impl Group {
    /// Joins the group of this run.
    pub(super) fn join<R: Rank>(
        rank: &R,
        context: &Context,
        limits: &Limits,
        links: &Links,
        common: &Common,
    ) -> Result<Group, Stopped> {
        // A rank that has nobody to talk to has no part in it.
        let is_member = !links.qps.is_empty();
        let applicant = match is_member {
            true => Applicant::find(context, limits, common)?,
            false => None,
        };
        let own = links.qps.first().map(|qp| qp.endpoint(&links.path, 0)).transpose();
        let is_ipv4 = match (&applicant, own.map_err(failed)?) {
            (Some(applicant), _) => applicant.is_ipv4,
            (None, own) => own.is_some_and(|own| own.gid.to_ipv4_mapped().is_some()),
        };
        // Runs on one network need different groups, and all ranks of a run need the same group.
        let said = [&rank.now().0.to_le_bytes()[..], &[u8::from(is_ipv4)]].concat();
        let all = rank.exchange(&said)?;
        let first = all.first().and_then(|said| said.split_first_chunk::<8>());
        let (stamp, is_ipv4) =
            first.ok_or_else(|| failed("the handshake of rank 0 is not understood"))?;
        let gid = group_gid(*is_ipv4 == [1], u64::from_le_bytes(*stamp));
        let Some(qp) = links.qps.first() else { return Ok(Group::default()) };
        let granted = applicant.map(|applicant| applicant.join(rank, gid)).transpose()?;
        let (at, path) = match &granted {
            Some(membership) => (membership.group.at, membership.group.path),
            None => by_itself(gid, &links.path),
        };
        if rank.index() != 0 {
            qp.join(at.gid, at.lid).map_err(failed)?;
            return Ok(Group { ah: None, _membership: granted });
        }
        let ah = links.pd.create_ah(&at, &path).map_err(failed)?;
        Ok(Group { ah: Some(ah), _membership: granted })
    }

    pub(super) fn ah(&self) -> Option<AddressHandle> {
        self.ah.clone()
    }
}

/// A group that is used without joining, and the path to it. On InfiniBand it has its own LID.
fn by_itself(gid: Ipv6Addr, path: &Path) -> (QpEndpoint, Path) {
    let low = u16::from_be_bytes([gid.octets()[14], gid.octets()[15]]) & 0x3fff;
    let lid = if path.sgid_index.is_none() { (0xc000 | low).min(0xfffe) } else { 0 };
    let at = QpEndpoint { lid, qpn: MULTICAST_QPN, psn: 0, gid };
    (at, Path { sgid_index: path.sgid_index.or(Some(0)), ..*path })
}

/// The address of a group of this run, of the version of IP that its members use.
fn group_gid(is_ipv4: bool, stamp: u64) -> Ipv6Addr {
    let stamp = stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (stamp >> shift) as u16);
    if is_ipv4 {
        // Administratively scoped, of this site (RFC 2365, 6.1).
        let [high, low] = a.to_be_bytes();
        return Ipv4Addr::new(239, 255, high, low).to_ipv6_mapped();
    }
    // Transient, of this link (RFC 4291, 2.7).
    Ipv6Addr::new(0xff12, 0, 0, 0, a, b, c, d)
}

/// A port that is to be let into a group.
struct Applicant {
    id: CmId,
    channel: CmChannel,
    is_ipv4: bool,
}

/// A port that the network let into a group, as long as this lives.
struct Membership {
    group: CmGroup,
    _id: CmId,
    _channel: CmChannel,
}

fn refused(why: impl std::fmt::Display) -> Stopped {
    failed(format!("--to group needs a connection manager to join the multicast group: {why}"))
}

impl Applicant {
    /// One where a network is to be asked. The soft device's grants each group; it is asked where
    /// its port is InfiniBand and our librdmacm is there.
    fn find(
        context: &Context,
        limits: &Limits,
        common: &Common,
    ) -> Result<Option<Applicant>, Stopped> {
        let port = context.query_port(common.port).map_err(failed)?;
        let found = Applicant::new(context, limits, common);
        match (port.link_layer, context.kind()) {
            (LinkLayer::InfiniBand, Kind::System) => found.map(Some),
            (LinkLayer::InfiniBand, _) | (_, Kind::System) => Ok(found.ok()),
            _ => Ok(None),
        }
    }

    fn new(context: &Context, limits: &Limits, common: &Common) -> Result<Applicant, Stopped> {
        let manager = context.library().connection_manager().map_err(refused)?;
        let channel = manager.create_channel().map_err(refused)?;
        let create = || channel.create_datagram_id();
        let (id, _, own) = rdma_cm::bound(context, limits, common, create).map_err(refused)?;
        Ok(Applicant { id, channel, is_ipv4: own.is_ipv4() })
    }

    fn join<R: Rank>(self, rank: &R, gid: Ipv6Addr) -> Result<Membership, Stopped> {
        let Applicant { id, channel, .. } = self;
        let address = CmAddress::of_gid(gid).ok_or_else(|| refused("no such address"))?;
        id.join(&address).map_err(refused)?;
        let event = rdma_cm::event(rank, &channel, "the multicast group")?;
        match (event.kind, event.group) {
            (CmEventKind::MulticastJoined, Some(group)) if group.qkey == QKEY => {
                Ok(Membership { group, _id: id, _channel: channel })
            }
            (CmEventKind::MulticastJoined, Some(CmGroup { qkey, .. })) => {
                Err(refused(format!("{address} has the Q_Key {qkey:#x}, not {QKEY:#x}")))
            }
            (kind, _) => {
                let status = event.status;
                Err(refused(format!(
                    "the network refused the multicast group {address} ({kind:?}, status {status})"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_a_group_of_its_own() {
        let v4 = group_gid(true, 1).to_ipv4_mapped().expect("of IPv4");
        assert!(v4.is_multicast() && v4.octets()[..2] == [239, 255]);
        assert_ne!(group_gid(true, 2), group_gid(true, 1));
        let v6 = group_gid(false, 1);
        assert!(v6.is_multicast() && v6 != group_gid(false, 2));
        assert!(CmAddress::of_gid(v6).is_some(), "the connection manager joins it");
        let (at, path) = by_itself(v6, &Path::by_lid(1));
        assert!((0xc000..=0xfffe).contains(&at.lid) && path.sgid_index == Some(0));
        assert_eq!(by_itself(v6, &Path::by_gid(1, 3)).0.lid, 0, "Ethernet has none");
    }
}
