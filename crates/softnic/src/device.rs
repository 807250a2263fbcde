//! The devices: their identity, their capabilities, and the addresses of their ports.

use std::sync::OnceLock;

use rdmalab_engine::backend::*;
use rdmalab_engine::train::{GrhFields, Train, TrainFlags};
use rdmalab_engine::vocab::AhAttr;
use rdmalab_wire::ids::{Gid, PathMtu};

pub(crate) use crate::limits::*;
use crate::profile::{self, limits};
use crate::udp::interface;

/// `soft0` and `soft1`: two adapters on one fabric.
pub(crate) const DEVICES: u32 = 2;
/// Entries of a port's GID table.
pub(crate) const GIDS: u32 = 2;

/// Number of devices: one on a network interface; without an interface two, which reach each other.
pub(crate) fn count() -> u32 {
    if interface::usable().is_some() { 1 } else { DEVICES }
}

/// Entries of a port's GID table that are in use.
pub(crate) fn gid_count() -> u32 {
    interface::usable().map_or(GIDS, |interface| interface.gids.len() as u32)
}

/// The longest payload of a packet on a port's link now.
pub(crate) fn active_mtu() -> PathMtu {
    let link = interface::usable().map_or(PORT_MTU, |interface| interface.mtu);
    PathMtu::from_bytes(limits().active_mtu).map_or(link, |mtu| mtu.min(link))
}

/// Vendor ID: "rdm" in ASCII. IEEE has not assigned it to a maker of adapters.
const VENDOR_ID: u32 = 0x72_646d;
/// perftest decides by this number whether it sends inline: for an unknown number it sets inline to
/// 0. Its list has 4115 as a device that takes inline data.
const VENDOR_PART_ID: u32 = 4115;

/// How ports present themselves (`RDMALAB_PERSONALITY`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Personality {
    /// Link layer InfiniBand: LIDs, and GIDs as well.
    InfiniBand,
    /// Link layer Ethernet: GIDs only.
    Ethernet,
}

pub(crate) fn personality() -> VerbsResult<Personality> {
    let asked = std::env::var("RDMALAB_PERSONALITY");
    if let Some(interface) = interface::named()? {
        if asked.is_ok_and(|name| name == "infiniband") {
            return Err(VerbsError::invalid(format!(
                "RDMALAB_PERSONALITY is infiniband, but the port on interface {} is Ethernet \
                 (RoCE): leave one of them out",
                interface.name
            )));
        }
        return Ok(Personality::Ethernet);
    }
    match asked {
        Err(_) => Ok(Personality::InfiniBand),
        Ok(name) if name.is_empty() || name == "infiniband" => Ok(Personality::InfiniBand),
        Ok(name) if name == "ethernet" => Ok(Personality::Ethernet),
        Ok(name) => Err(VerbsError::invalid(format!(
            "RDMALAB_PERSONALITY is {name:?}: it must be \"infiniband\" or \"ethernet\""
        ))),
    }
}

/// FNV-1a, to derive identifiers from names. It only needs to be stable.
fn fnv1a(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ *byte as u64).wrapping_mul(0x100_0000_01b3))
}

/// The node GUID. It is derived from the host, that is from boot, network namespace and user, and
/// is locally administered.
pub(crate) fn guid_of(device: u32) -> u64 {
    static HOST: OnceLock<u64> = OnceLock::new();
    let host = *HOST.get_or_init(|| {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = std::fs::read_link("/proc/thread-self/ns/net").unwrap_or_default();
        // SAFETY: takes and touches nothing.
        let user = unsafe { libc::getuid() };
        let hash = fnv1a(0xcbf2_9ce4_8422_2325, &boot);
        let hash = fnv1a(hash, namespace.as_os_str().as_encoded_bytes());
        fnv1a(hash, &user.to_le_bytes())
    });
    (host & 0x00ff_ffff_ffff_fff0) | 0x0200_0000_0000_0000 | device as u64
}

/// The LID of a device's port.
pub(crate) fn lid_of(device: u32) -> u16 {
    device as u16 + 1
}

/// The first device of this host that has this GID.
pub(crate) fn with_gid(gid: Gid) -> Option<u32> {
    let has = |device: &u32| (0..gid_count()).any(|index| gid_of(*device, index) == Some(gid));
    (0..count()).find(has)
}

/// An entry of a port's GID table. Without an interface, entry 0 is link-local from the GUID, and
/// entry 1 an IPv4-mapped loopback address, one for each device.
pub(crate) fn gid_of(device: u32, index: u32) -> Option<Gid> {
    if let Some(interface) = interface::usable() {
        return interface.gids.get(index as usize).copied();
    }
    let mut gid = [0u8; 16];
    match index {
        0 => {
            gid[..2].copy_from_slice(&[0xfe, 0x80]);
            gid[8..].copy_from_slice(&guid_of(device).to_be_bytes());
        }
        1 => {
            gid[10..12].copy_from_slice(&[0xff, 0xff]);
            gid[12..].copy_from_slice(&[127, 0, 0, 1 + device as u8]);
        }
        _ => return None,
    }
    Some(Gid(gid))
}

/// Whether an address vector leads to a port of this host.
pub(crate) fn is_here(ah: &AhAttr) -> bool {
    let by_lid = (1..=DEVICES as u16).contains(&ah.dlid.0);
    if !ah.is_global {
        return by_lid;
    }
    let by_gid = (0..count())
        .any(|device| (0..gid_count()).any(|index| gid_of(device, index) == Some(ah.dgid)));
    by_gid || (by_lid && ah.dgid == Gid::default())
}

/// The index of a GID in the table of a port of this host; 0 if it is not there.
pub(crate) fn gid_index_of(gid: Gid) -> u8 {
    let at = |index: &u32| (0..count()).any(|device| gid_of(device, *index) == Some(gid));
    (0..gid_count()).find(at).unwrap_or(0) as u8
}

/// Source and destination of a datagram for a port of this device, as its sender chose them. If the
/// sender chose none or an invalid one, it is the port's first GID.
pub(crate) fn gids_of(train: &Train, device: u32) -> Option<(Gid, Gid)> {
    let source = u32::from(train.slid.saturating_sub(1)).min(count() - 1);
    let [sgid_index, dgid_index, ..] = train.rkey.0.to_le_bytes();
    let gid = |device, index: u8| gid_of(device, index.into()).or_else(|| gid_of(device, 0));
    // The train of a multicast datagram has the group's GID.
    let group = crate::groups::group_of(train);
    gid(source, sgid_index).zip(group.or_else(|| gid(device, dgid_index)))
}

/// Whether the ports are Ethernet. It is found out once, because each datagram needs it.
fn is_ethernet() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| personality() == Ok(Personality::Ethernet))
}

/// What the routing header of a datagram shows that was sent without one.
const WITHOUT_GRH: GrhFields = GrhFields { traffic_class: 0, hop_limit: 0xff, flow_label: 0 };

/// The GRH before a datagram for a port of this device; both ends are ports of this host. Programs
/// check that it names them: UCX drops datagrams that seem to be for others.
pub(crate) fn grh_of(train: &Train, device: u32) -> [u8; 40] {
    let mut grh = [0u8; 40];
    let payload = train.payload_bytes.div_ceil(4) * 4 + 12 + 8 + 4;
    let has_grh = train.flags.has(TrainFlags::GRH);
    let chosen = if has_grh { GrhFields::unpack(train.compare) } else { WITHOUT_GRH };
    let first = 6 << 28 | u32::from(chosen.traffic_class) << 20 | chosen.flow_label;
    grh[..4].copy_from_slice(&first.to_be_bytes());
    grh[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    // Next header: IBA transport (IBA vol. 1, 8.3.3), or UDP.
    grh[6] = if is_ethernet() { 17 } else { 0x1b };
    grh[7] = chosen.hop_limit;
    if let Some((sgid, dgid)) = gids_of(train, device) {
        grh[8..24].copy_from_slice(&sgid.0);
        grh[24..40].copy_from_slice(&dgid.0);
    }
    grh
}

/// The version, followed by the profile's name, so that programs that show the version show both.
fn firmware() -> String {
    let version = env!("CARGO_PKG_VERSION");
    profile::profile().map_or(version.to_owned(), |profile| format!("{version}+{}", profile.name))
}

pub(crate) fn caps(device: u32) -> DeviceCaps {
    let limits = limits();
    DeviceCaps {
        fw_ver: firmware(),
        node_guid: guid_of(device),
        sys_image_guid: guid_of(0),
        max_mr_size: 1 << 46,
        page_size_cap: 0xffff_f000,
        vendor_id: VENDOR_ID,
        vendor_part_id: VENDOR_PART_ID,
        hw_ver: 1,
        max_qp: limits.max_qp,
        max_qp_wr: limits.max_qp_wr,
        device_cap_flags: CAP_FLAGS,
        max_sge: limits.max_sge,
        max_sge_rd: limits.max_sge,
        max_cq: MAX_CQS,
        max_cqe: limits.max_cqe,
        max_mr: limits.max_mr,
        max_pd: MAX_PDS,
        max_qp_rd_atom: limits.max_qp_rd_atom,
        max_res_rd_atom: limits.max_qp_rd_atom * limits.max_qp,
        max_qp_init_rd_atom: limits.max_qp_init_rd_atom,
        // IBV_ATOMIC_HCA. The device's atomics are those of the processor, so they are atomic
        // towards the program as well, which is IBV_ATOMIC_GLOB. But UCX uses atomics only if it
        // finds HCA, which adapters report.
        atomic_cap: 1,
        max_mw: limits.max_mr,
        max_mcast_grp: 4096,
        max_mcast_qp_attach: 256,
        max_total_mcast_qp_attach: 65_536,
        max_ah: 1 << 20,
        max_srq: MAX_SRQS,
        max_srq_wr: limits.max_srq_wr,
        max_srq_sge: limits.max_srq_sge,
        max_pkeys: 1,
        local_ca_ack_delay: match crate::profile::engine_adapter().ack_timeout_min_code {
            0 => 15,
            code => code,
        },
        phys_port_cnt: 1,
        max_inline_data: limits.max_inline_data,
        completion_timestamp_mask: u64::MAX,
        hca_core_clock_khz: 1_000_000,
        odp: rdmalab_engine::odp::OdpCaps::ALL,
    }
}

/// The index of `lo` in every network namespace (`LOOPBACK_IFINDEX` in the kernel's
/// `include/net/flow.h`). Without a named interface the device reaches only this host.
const LOOPBACK_IFINDEX: u32 = 1;

/// IBV_DEVICE_: CURR_QP_STATE_MOD, PORT_ACTIVE_EVENT, SYS_IMAGE_GUID, RC_RNR_NAK_GEN, SRQ_RESIZE,
/// MEM_WINDOW, MEM_MGT_EXTENSIONS, MEM_WINDOW_TYPE_2B.
const CAP_FLAGS: u32 = 1 << 7 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 21 | 1 << 24;

pub(crate) fn port(device: u32) -> VerbsResult<PortInfo> {
    let ethernet = personality()? == Personality::Ethernet;
    let active = interface::usable().is_none_or(|interface| interface.is_running());
    Ok(PortInfo {
        active,
        max_mtu: PORT_MTU as u32,
        active_mtu: active_mtu() as u32,
        gid_tbl_len: gid_count(),
        // IBV_PORT_: CM_SUP; extended speeds and the like do not apply.
        port_cap_flags: 1 << 16,
        max_msg_sz: 1 << 31,
        pkey_tbl_len: 1,
        lid: if ethernet { 0 } else { lid_of(device) },
        sm_lid: if ethernet { 0 } else { 1 },
        lmc: 0,
        max_vl_num: 1,
        // 4x of 25 Gbit/s: a plausible value for tools that print it. It limits nothing.
        active_width: 2,
        active_speed: 32,
        // LinkUp, or Disabled.
        phys_state: if active { 5 } else { 3 },
        link_layer: if ethernet { LinkLayer::Ethernet } else { LinkLayer::InfiniBand },
    })
}

pub(crate) fn gid_entry(device: u32, index: u32) -> VerbsResult<GidEntry> {
    let gid = gid_of(device, index).ok_or_else(|| {
        let last = gid_count() - 1;
        VerbsError::invalid(format!("GID index {index}: the table has entries 0 to {last}"))
    })?;
    // Each GID of a RoCE port belongs to a network interface.
    let (gid_type, own) = match personality()? {
        Personality::InfiniBand => (GidType::Ib, 0),
        Personality::Ethernet => (GidType::RoceV2, LOOPBACK_IFINDEX),
    };
    let ifindex = interface::usable().map_or(own, |interface| interface.index);
    Ok(GidEntry { gid, gid_type, ifindex })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmalab_engine::train::TrainKind;
    use rdmalab_wire::ids::{Psn, Qpn, RKey};

    #[test]
    fn the_header_of_a_datagram_names_both_ends_or_the_group() {
        let mut train = Train::new(TrainKind::Send, Qpn::new(7), Qpn::new(8), Psn::new(0));
        let ends = |train: &Train, device| {
            let grh = grh_of(train, device);
            let half = |at: usize| Gid(std::array::from_fn(|i| grh[at + i]));
            (half(8), half(24))
        };
        for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            train.slid = lid_of(from);
            assert_eq!(ends(&train, to), (gid_of(from, 0).unwrap(), gid_of(to, 0).unwrap()));
        }
        // The GIDs that the sender chose, and the first ones if those do not exist.
        train.slid = lid_of(0);
        train.rkey = RKey(u32::from_le_bytes([1, 1, 0, 0]));
        assert_eq!(ends(&train, 1), (gid_of(0, 1).unwrap(), gid_of(1, 1).unwrap()));
        assert_eq!(gid_index_of(gid_of(1, 1).unwrap()), 1);
        train.rkey = RKey(u32::from_le_bytes([200, 201, 0, 0]));
        assert_eq!(ends(&train, 1), (gid_of(0, 0).unwrap(), gid_of(1, 0).unwrap()));
        train.remote_addr = 0xff0e << 48;
        train.swap_add = 5;
        let (_, group) = ends(&train, 0);
        assert_eq!((group.0[0], group.0[1], group.0[15]), (0xff, 0x0e, 5));
    }
}
