//! Multicast groups that the connection manager joins.

use std::net::Ipv6Addr;

use rdmalab_abi as abi;

use crate::endpoint::QpEndpoint;
use crate::path::Path;

/// The Q_Key of all datagrams between ids, groups included.
pub const UDP_QKEY: u32 = abi::RDMA_UDP_QKEY;

/// Where datagrams go: to a group that was joined, whose LID the subnet manager has assigned on
/// InfiniBand, or to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmGroup {
    /// Its LID and GID, and the number of the queue pair that takes them.
    pub at: QpEndpoint,
    /// The Q_Key that its datagrams must carry.
    pub qkey: u32,
    /// The path to it.
    pub path: Path,
}

impl CmGroup {
    /// That of an event.
    pub(super) fn of(ud: &abi::rdma_ud_param) -> Self {
        let (ah, grh) = (&ud.ah_attr, &ud.ah_attr.grh);
        let path = Path {
            sl: ah.sl,
            hop_limit: grh.hop_limit,
            traffic_class: grh.traffic_class,
            ..Path::by_gid(ah.port_num, grh.sgid_index)
        };
        // SAFETY: both ways to see a GID are 16 bytes of which each value is valid.
        let gid = Ipv6Addr::from(unsafe { grh.dgid.raw });
        Self { at: QpEndpoint { lid: ah.dlid, qpn: ud.qp_num, psn: 0, gid }, qkey: ud.qkey, path }
    }
}
