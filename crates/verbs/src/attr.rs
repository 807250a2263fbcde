//! Attributes of devices and ports.

use std::ffi::CStr;
use std::net::Ipv6Addr;

use rdmalab_abi as abi;

/// Capabilities of a device: the part of `ibv_device_attr_ex` that programs need to choose one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttr {
    /// Version of the firmware, as text.
    pub fw_ver: String,
    /// GUID of the node, host byte order.
    pub node_guid: u64,
    /// IEEE OUI of the vendor.
    pub vendor_id: u32,
    /// The vendor's number for the part.
    pub vendor_part_id: u32,
    /// Most queue pairs.
    pub max_qp: u32,
    /// Most work requests in one queue.
    pub max_qp_wr: u32,
    /// Most scatter/gather entries in a request.
    pub max_sge: u32,
    /// Most completion queues.
    pub max_cq: u32,
    /// Most entries in one completion queue.
    pub max_cqe: u32,
    /// Most memory regions.
    pub max_mr: u32,
    /// Longest memory region, in bytes.
    pub max_mr_bytes: u64,
    /// Most READs and atomics that a queue pair serves at once as responder.
    pub max_qp_rd_atom: u32,
    /// Most READs and atomics that a queue pair may have in flight as requester.
    pub max_qp_init_rd_atom: u32,
    /// Whether the device supports atomics.
    pub has_atomics: bool,
    /// Most shared receive queues.
    pub max_srq: u32,
    /// Most work requests in a shared receive queue.
    pub max_srq_wr: u32,
    /// Most scatter entries in a receive of a shared receive queue.
    pub max_srq_sge: u32,
    /// Most memory windows.
    pub max_mw: u32,
    /// Whether the device supports on-demand paging.
    pub has_on_demand_paging: bool,
    /// The local ACK delay of the device, as a time-out code: 4.096 us x 2^n.
    pub local_ca_ack_delay: u8,
    /// Number of ports.
    pub phys_port_cnt: u8,
}

impl DeviceAttr {
    pub(crate) fn from_raw(raw: &abi::ibv_device_attr_ex) -> Self {
        let a = &raw.orig_attr;
        // Counts are signed in C, and never negative.
        let count = |n: i32| u32::try_from(n).unwrap_or(0);
        Self {
            fw_ver: text(&a.fw_ver),
            node_guid: u64::from_be(a.node_guid),
            vendor_id: a.vendor_id,
            vendor_part_id: a.vendor_part_id,
            max_qp: count(a.max_qp),
            max_qp_wr: count(a.max_qp_wr),
            max_sge: count(a.max_sge),
            max_cq: count(a.max_cq),
            max_cqe: count(a.max_cqe),
            max_mr: count(a.max_mr),
            max_mr_bytes: a.max_mr_size,
            max_qp_rd_atom: count(a.max_qp_rd_atom),
            max_qp_init_rd_atom: count(a.max_qp_init_rd_atom),
            has_atomics: a.atomic_cap != abi::IBV_ATOMIC_NONE,
            max_srq: count(a.max_srq),
            max_srq_wr: count(a.max_srq_wr),
            max_srq_sge: count(a.max_srq_sge),
            max_mw: count(a.max_mw),
            has_on_demand_paging: raw.odp_caps.general_caps & abi::IBV_ODP_SUPPORT != 0,
            local_ca_ack_delay: a.local_ca_ack_delay,
            phys_port_cnt: a.phys_port_cnt,
        }
    }
}

/// State of a port (IBA 7.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No link.
    Down,
    /// There is a link, but no subnet manager has configured the port yet.
    Initializing,
    /// Configured, not yet in use.
    Armed,
    /// In use.
    Active,
    /// An unknown number.
    Other(u32),
}

impl std::fmt::Display for PortState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Down => f.pad("down"),
            Self::Initializing => f.pad("initializing"),
            Self::Armed => f.pad("armed"),
            Self::Active => f.pad("active"),
            Self::Other(number) => write!(f, "state {number}"),
        }
    }
}

/// The kind of addresses of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// By LIDs; GIDs across subnets.
    InfiniBand,
    /// By GIDs (RoCE).
    Ethernet,
    /// The device does not say.
    Unspecified,
}

impl std::fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Unspecified => "unspecified",
        })
    }
}

/// Path MTU: payload bytes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Mtu {
    M256,
    M512,
    M1024,
    M2048,
    M4096,
}

impl Mtu {
    /// From the code, as in C; larger codes give 4096.
    #[must_use]
    pub const fn from_raw(code: u32) -> Self {
        match code {
            0 | abi::IBV_MTU_256 => Self::M256,
            abi::IBV_MTU_512 => Self::M512,
            abi::IBV_MTU_1024 => Self::M1024,
            abi::IBV_MTU_2048 => Self::M2048,
            _ => Self::M4096,
        }
    }

    /// The code, as in C.
    #[must_use]
    pub const fn raw(self) -> u32 {
        match self {
            Self::M256 => abi::IBV_MTU_256,
            Self::M512 => abi::IBV_MTU_512,
            Self::M1024 => abi::IBV_MTU_1024,
            Self::M2048 => abi::IBV_MTU_2048,
            Self::M4096 => abi::IBV_MTU_4096,
        }
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        128 << self.raw()
    }
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAttr {
    /// Whether the port is up.
    pub state: PortState,
    /// The largest MTU in use on it.
    pub active_mtu: Mtu,
    /// Longest message, in bytes.
    pub max_msg_bytes: u32,
    /// Base local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Entries of the GID table.
    pub gid_tbl_len: u32,
    /// Entries of the P_Key table.
    pub pkey_tbl_len: u16,
    /// The kind of addresses of peers.
    pub link_layer: LinkLayer,
}

impl PortAttr {
    pub(crate) fn from_raw(raw: &abi::ibv_port_attr) -> Self {
        Self {
            state: match raw.state {
                abi::IBV_PORT_DOWN => PortState::Down,
                abi::IBV_PORT_INIT => PortState::Initializing,
                abi::IBV_PORT_ARMED => PortState::Armed,
                abi::IBV_PORT_ACTIVE => PortState::Active,
                other => PortState::Other(other),
            },
            active_mtu: Mtu::from_raw(raw.active_mtu),
            max_msg_bytes: raw.max_msg_sz,
            lid: raw.lid,
            gid_tbl_len: u32::try_from(raw.gid_tbl_len).unwrap_or(0),
            pkey_tbl_len: raw.pkey_tbl_len,
            link_layer: match raw.link_layer {
                abi::IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
                abi::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
                _ => LinkLayer::Unspecified,
            },
        }
    }

    /// Whether an address needs a global route (a GID).
    #[must_use]
    pub fn needs_gid(&self) -> bool {
        self.link_layer == LinkLayer::Ethernet
    }
}

/// The protocol of a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidType {
    /// InfiniBand.
    InfiniBand,
    /// RoCE over Ethernet.
    RoceV1,
    /// RoCE over UDP.
    RoceV2,
    /// An unknown number.
    Other(u32),
}

impl std::fmt::Display for GidType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InfiniBand => f.pad("IB"),
            Self::RoceV1 => f.pad("RoCEv1"),
            Self::RoceV2 => f.pad("RoCEv2"),
            Self::Other(number) => write!(f, "type {number}"),
        }
    }
}

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The identifier; a GID is written as an IPv6 address.
    pub gid: Ipv6Addr,
    /// Its place in the table.
    pub index: u32,
    /// Its protocol.
    pub gid_type: GidType,
}

impl GidEntry {
    pub(crate) fn from_raw(raw: &abi::ibv_gid_entry) -> Self {
        Self {
            gid: gid(&raw.gid),
            index: raw.gid_index,
            gid_type: match raw.gid_type {
                abi::IBV_GID_TYPE_IB => GidType::InfiniBand,
                abi::IBV_GID_TYPE_ROCE_V1 => GidType::RoceV1,
                abi::IBV_GID_TYPE_ROCE_V2 => GidType::RoceV2,
                other => GidType::Other(other),
            },
        }
    }
}

/// A GID from its bytes.
pub(crate) fn gid(raw: &abi::ibv_gid) -> Ipv6Addr {
    // SAFETY: both members of the union are 16 plain bytes.
    Ipv6Addr::from(unsafe { raw.raw })
}

/// A text field of C, up to its final zero.
fn text(field: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|c| *c as u8).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map_or_else(|_| String::new(), |s| s.to_string_lossy().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_knows_its_bytes() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!((Mtu::from_raw(code).raw(), Mtu::from_raw(code).bytes()), (code, bytes));
        }
    }

    #[test]
    fn text_ends_at_its_zero_or_at_the_end() {
        assert_eq!(text(&[b'a' as _, b'b' as _, 0, b'c' as _]), "ab");
        assert_eq!(text(&[b'a' as _, b'b' as _]), "ab");
    }
}
