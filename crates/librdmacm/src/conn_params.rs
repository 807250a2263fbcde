//! Path and negotiated parameters of a connection, from which its queue pair gets its attributes.

use rdmalab_abi::ibv_ah_attr;
use rdmalab_wire::cm::port_space;
use rdmalab_wire::ids::{Gid, Psn, Qpn};

use crate::device::PORT;

/// P_Key of every path.
pub const PKEY: u16 = 0xffff;
/// Hop limit of every path.
pub const HOP_LIMIT: u8 = 64;
/// Packet lifetime of every path, encoded: 4.096 us x 2^18, the kernel's value for RoCE.
pub const PACKET_LIFE_TIME: u8 = 18;

/// Path, packet sequence numbers and limits of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnParams {
    pub sgid_index: u8,
    pub local_gid: Gid,
    pub remote_gid: Gid,
    pub remote_lid: u16,
    pub remote_qpn: Qpn,
    pub rq_psn: Psn,
    pub sq_psn: Psn,
    pub mtu: u8,
    pub initiator_depth: u8,
    pub responder_resources: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub ack_timeout: u8,
    pub traffic_class: u8,
    /// The peer's Q_Key, for datagrams.
    pub qkey: u32,
}

impl ConnParams {
    /// The address vector of the peer.
    pub fn address_vector(&self) -> ibv_ah_attr {
        let mut ah = ibv_ah_attr::zeroed();
        ah.grh.dgid.raw = self.remote_gid.0;
        ah.grh.sgid_index = self.sgid_index;
        ah.grh.hop_limit = HOP_LIMIT;
        ah.grh.traffic_class = self.traffic_class;
        // 0xffff is the permissive LID: packets are routed by GID.
        ah.dlid = if self.remote_lid == 0xffff { 0 } else { self.remote_lid };
        ah.is_global = 1;
        ah.port_num = PORT;
        ah
    }
}

/// Whether ids of a port space exchange datagrams: such ids resolve a service (SIDR) instead.
pub fn is_datagram(ps: u32) -> bool {
    ps == u32::from(port_space::UDP) || ps == u32::from(port_space::IPOIB)
}
