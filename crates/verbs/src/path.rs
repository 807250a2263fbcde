//! The path to a peer.

use rdmalab_abi as abi;

use crate::endpoint::QpEndpoint;

/// The path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The local port, from 1.
    pub port_num: u8,
    /// Index of the local GID; `None` addresses by LID alone.
    pub sgid_index: Option<u8>,
    /// Service level.
    pub sl: u8,
    /// Hop limit, with a GID.
    pub hop_limit: u8,
    /// Traffic class, with a GID.
    pub traffic_class: u8,
}

impl Path {
    /// Through this port, by LID.
    #[must_use]
    pub const fn by_lid(port_num: u8) -> Self {
        Self { port_num, sgid_index: None, sl: 0, hop_limit: 64, traffic_class: 0 }
    }

    /// Through this port, by GID, from the local GID with this index.
    #[must_use]
    pub const fn by_gid(port_num: u8, sgid_index: u8) -> Self {
        Self { sgid_index: Some(sgid_index), ..Self::by_lid(port_num) }
    }

    pub(crate) fn to_raw(self, to: &QpEndpoint) -> abi::ibv_ah_attr {
        let mut attr = abi::ibv_ah_attr::zeroed();
        attr.dlid = to.lid;
        attr.sl = self.sl;
        attr.port_num = self.port_num;
        if let Some(sgid_index) = self.sgid_index {
            attr.is_global = 1;
            attr.grh.dgid = abi::ibv_gid { raw: to.gid.octets() };
            attr.grh.sgid_index = sgid_index;
            attr.grh.hop_limit = self.hop_limit;
            attr.grh.traffic_class = self.traffic_class;
        }
        attr
    }
}
