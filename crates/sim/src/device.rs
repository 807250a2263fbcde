//! What a simulated device says of itself, and its addresses.

use rdmalab_engine::backend::{
    DeviceCaps, GidEntry, GidType, LinkLayer, PortInfo, VerbsError, VerbsResult,
};
use rdmalab_engine::odp::OdpCaps;
use rdmalab_engine::qp::Adapter;
use rdmalab_engine::qp::attr::Limits;
use rdmalab_engine::train::{GrhFields, Train, TrainFlags};
use rdmalab_wire::ids::{Gid, PathMtu};

use crate::parameters::Parameters;
use crate::time::Ps;

/// Completions of a completion queue.
pub(crate) const MAX_CQE: u32 = 4_194_303;
/// Memory regions and windows of a node.
pub(crate) const MAX_KEYS: usize = 1 << 20;

/// The LID of a node's port.
pub(crate) fn lid_of(node: usize) -> u16 {
    node as u16 + 1
}

/// The node whose port has this LID.
pub(crate) fn node_of_lid(lid: u16) -> Option<usize> {
    usize::from(lid).checked_sub(1)
}

/// The GUID of a node: locally administered, and the same in every simulation.
pub(crate) fn guid_of(node: usize) -> u64 {
    0x0273_696d_0000_0000 | node as u64
}

/// The GID of a node's port: link-local, from its GUID.
pub(crate) fn gid_of(node: usize) -> Gid {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[8..].copy_from_slice(&guid_of(node).to_be_bytes());
    Gid(gid)
}

/// The node whose port has this GID.
pub(crate) fn node_of_gid(gid: Gid) -> Option<usize> {
    let guid = u64::from_be_bytes(std::array::from_fn(|i| gid.0[8 + i]));
    let node = (guid & 0xffff_ffff) as usize;
    (gid_of(node) == gid).then_some(node)
}

/// The largest payload of a packet.
pub(crate) fn mtu(parameters: &Parameters) -> PathMtu {
    PathMtu::from_bytes(parameters.mtu_bytes).unwrap_or(PathMtu::Mtu4096)
}

/// What a modify call may ask for.
pub(crate) fn limits(parameters: &Parameters) -> Limits {
    Limits {
        max_rd_atomic: parameters.max_rd_atomic as u8,
        max_dest_rd_atomic: parameters.max_rd_atomic as u8,
        ports: 1,
        pkey_table_len: 1,
        gid_table_len: 1,
        active_mtu: mtu(parameters) as u32,
    }
}

/// What the engine needs to know of the adapter.
pub(crate) fn adapter(parameters: &Parameters) -> Adapter {
    Adapter {
        ack_timeout_min_code: parameters.ack_timeout_min_code as u8,
        rnr_wait_percent: parameters.rnr_wait_percent,
        discards_while_paused: parameters.rnr_discards_responses == 1,
        serves_faulted_reads: parameters.odp_serves_faulted_reads == 1,
        page_fault_pause_ns: parameters.odp_repeat_ns.whole_ns(),
    }
}

pub(crate) fn caps(node: usize, parameters: &Parameters) -> DeviceCaps {
    DeviceCaps {
        fw_ver: format!("{}+simulated", env!("CARGO_PKG_VERSION")),
        node_guid: guid_of(node),
        sys_image_guid: guid_of(node),
        max_mr_size: 1 << 46,
        page_size_cap: 0xffff_f000,
        vendor_id: 0x72_646d,
        vendor_part_id: 0x7369,
        hw_ver: 1,
        max_qp: (1 << crate::ids::QP_BITS) - 2,
        max_qp_wr: parameters.max_wr,
        // IBV_DEVICE_: CURR_QP_STATE_MOD, SYS_IMAGE_GUID, RC_RNR_NAK_GEN, SRQ_RESIZE, MEM_WINDOW,
        // MEM_MGT_EXTENSIONS, MEM_WINDOW_TYPE_2B.
        device_cap_flags: 1 << 7 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 21 | 1 << 24,
        max_sge: parameters.max_sge,
        max_sge_rd: parameters.max_sge,
        max_cq: 65_536,
        max_cqe: MAX_CQE,
        max_mr: MAX_KEYS as u32,
        max_pd: 65_536,
        max_qp_rd_atom: parameters.max_rd_atomic,
        max_res_rd_atom: parameters.max_rd_atomic << 14,
        max_qp_init_rd_atom: parameters.max_rd_atomic,
        atomic_cap: 1,
        max_mw: MAX_KEYS as u32,
        max_mcast_grp: 4096,
        max_mcast_qp_attach: 65_536,
        max_total_mcast_qp_attach: 65_536,
        max_ah: 1 << 20,
        max_srq: 65_536,
        max_srq_wr: parameters.max_wr,
        max_srq_sge: parameters.max_sge,
        max_pkeys: 1,
        local_ca_ack_delay: parameters.ack_timeout_min_code as u8,
        phys_port_cnt: 1,
        max_inline_data: parameters.max_inline_bytes,
        completion_timestamp_mask: u64::MAX,
        hca_core_clock_khz: 1_000_000,
        odp: match parameters.odp_resolve_ns {
            Ps::ZERO => OdpCaps::default(),
            _ => OdpCaps::ALL,
        },
    }
}

pub(crate) fn port(node: usize, port: u8, parameters: &Parameters) -> VerbsResult<PortInfo> {
    check_port(port)?;
    let mtu = mtu(parameters) as u32;
    Ok(PortInfo {
        active: true,
        max_mtu: mtu,
        active_mtu: mtu,
        gid_tbl_len: 1,
        port_cap_flags: 0,
        max_msg_sz: 1 << 31,
        pkey_tbl_len: 1,
        lid: lid_of(node),
        sm_lid: 1,
        lmc: 0,
        max_vl_num: 1,
        // 4x of 25 Gbit/s, for tools that print it. The profile decides how fast the link is.
        active_width: 2,
        active_speed: 32,
        phys_state: 5,
        link_layer: LinkLayer::InfiniBand,
    })
}

pub(crate) fn check_port(port: u8) -> VerbsResult<()> {
    match port {
        1 => Ok(()),
        _ => Err(VerbsError::invalid(format!("port {port}: simulated devices have only port 1"))),
    }
}

pub(crate) fn gid_entry(node: usize, index: u32) -> VerbsResult<GidEntry> {
    match index {
        0 => Ok(GidEntry { gid: gid_of(node), gid_type: GidType::Ib, ifindex: 0 }),
        _ => Err(VerbsError::invalid(format!(
            "GID index {index}: the table has one entry; choose 0"
        ))),
    }
}

/// The GRH that the receiver of a datagram finds before it.
pub(crate) fn routing_header(train: &Train, node: usize) -> [u8; 40] {
    let chosen = GrhFields::unpack(train.compare);
    let mut grh = [0; 40];
    let first = 6 << 28 | u32::from(chosen.traffic_class) << 20 | chosen.flow_label;
    grh[..4].copy_from_slice(&first.to_be_bytes());
    let payload = train.payload_bytes.div_ceil(4) * 4 + 12 + 8 + 4;
    grh[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    (grh[6], grh[7]) = (0x1b, chosen.hop_limit);
    let from = node_of_lid(train.slid).unwrap_or(0);
    grh[8..24].copy_from_slice(&gid_of(from).0);
    let is_group = train.flags.has(TrainFlags::GRH) && train.remote_addr >> 56 == 0xff;
    if is_group {
        grh[24..32].copy_from_slice(&train.remote_addr.to_be_bytes());
        grh[32..].copy_from_slice(&train.swap_add.to_be_bytes());
    } else {
        grh[24..].copy_from_slice(&gid_of(node).0);
    }
    grh
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_back_to_their_node() {
        for node in [0, 1, 1023] {
            assert_eq!(node_of_lid(lid_of(node)), Some(node));
            assert_eq!(node_of_gid(gid_of(node)), Some(node));
        }
        assert_eq!((node_of_lid(0), node_of_gid(Gid([0; 16]))), (None, None));
    }
}
