//! Converts C structures to and from the vocabulary of the engine.

use core::ffi::c_int;

use rdmalab_abi::*;
use rdmalab_engine::backend::{DeviceCaps, PortInfo, VerbsError, VerbsResult};
use rdmalab_engine::vocab::{Access, AhAttr, QpAttr, QpAttrMask, QpCap, QpState};
use rdmalab_wire::ids::{Gid, Lid};

use crate::device::put_string;

/// The bytes of a GID.
pub(crate) fn gid_from_c(gid: &ibv_gid) -> Gid {
    // SAFETY: every bit pattern is a valid array of bytes.
    Gid(unsafe { gid.raw })
}

/// A GID as a C structure.
pub(crate) fn gid_to_c(gid: Gid) -> ibv_gid {
    ibv_gid { raw: gid.0 }
}

/// An address.
pub(crate) fn ah_attr_from_c(attr: &ibv_ah_attr) -> AhAttr {
    AhAttr {
        dgid: gid_from_c(&attr.grh.dgid),
        flow_label: attr.grh.flow_label,
        sgid_index: attr.grh.sgid_index,
        hop_limit: attr.grh.hop_limit,
        traffic_class: attr.grh.traffic_class,
        dlid: Lid(attr.dlid),
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        is_global: attr.is_global != 0,
        port_num: attr.port_num,
    }
}

/// An address as a C structure.
pub(crate) fn ah_attr_to_c(attr: &AhAttr) -> ibv_ah_attr {
    let mut c = ibv_ah_attr::zeroed();
    c.grh.dgid = gid_to_c(attr.dgid);
    c.grh.flow_label = attr.flow_label;
    c.grh.sgid_index = attr.sgid_index;
    c.grh.hop_limit = attr.hop_limit;
    c.grh.traffic_class = attr.traffic_class;
    c.dlid = attr.dlid.0;
    c.sl = attr.sl;
    c.src_path_bits = attr.src_path_bits;
    c.static_rate = attr.static_rate;
    c.is_global = u8::from(attr.is_global);
    c.port_num = attr.port_num;
    c
}

/// Capacities.
pub(crate) fn cap_from_c(cap: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// Capacities as a C structure.
pub(crate) fn cap_to_c(cap: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// Rights of a region: the optional bits are dropped, as the manual page demands; bits that no
/// header defines are refused.
pub(crate) fn access_from_c(access: u32) -> VerbsResult<Access> {
    let mandatory = access & !Access::OPTIONAL_RANGE;
    let unknown = mandatory & !Access::KNOWN;
    if unknown != 0 {
        let known = Access::KNOWN;
        return Err(VerbsError::invalid(format!(
            "access {access:#x} has the unknown bits {unknown:#x}; only {known:#x} are defined"
        )));
    }
    Ok(Access(mandatory))
}

/// Every bit of `ibv_qp_attr_mask` that is defined.
const MASK_KNOWN: u32 = ((IBV_QP_DEST_QPN << 1) - 1) | IBV_QP_RATE_LIMIT;

/// Which attributes a modify call carries.
pub(crate) fn attr_mask_from_c(mask: c_int) -> VerbsResult<QpAttrMask> {
    let unknown = mask as u32 & !MASK_KNOWN;
    if unknown != 0 {
        return Err(VerbsError::invalid(format!(
            "attr_mask {mask:#x} has the unknown bits {unknown:#x}"
        )));
    }
    Ok(QpAttrMask(mask as u32))
}

/// A state, if the mask names it; otherwise the field may hold anything.
fn state_from_c(value: u32, is_given: bool, member: &str) -> VerbsResult<QpState> {
    if !is_given {
        return Ok(QpState::Reset);
    }
    QpState::from_ibv(value)
        .ok_or_else(|| VerbsError::invalid(format!("{member} {value} is no state of a QP (0..=6)")))
}

/// Attributes of a QP as raw numbers; the engine checks them.
pub(crate) fn qp_attr_from_c(attr: &ibv_qp_attr, mask: QpAttrMask) -> VerbsResult<QpAttr> {
    let has = |bit| mask.contains(bit);
    Ok(QpAttr {
        qp_state: state_from_c(attr.qp_state, has(QpAttrMask::STATE), "qp_state")?,
        cur_qp_state: state_from_c(attr.cur_qp_state, has(QpAttrMask::CUR_STATE), "cur_qp_state")?,
        path_mtu: attr.path_mtu,
        path_mig_state: attr.path_mig_state,
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: Access(attr.qp_access_flags),
        cap: cap_from_c(&attr.cap),
        ah_attr: ah_attr_from_c(&attr.ah_attr),
        alt_ah_attr: ah_attr_from_c(&attr.alt_ah_attr),
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        en_sqd_async_notify: attr.en_sqd_async_notify != 0,
        sq_draining: attr.sq_draining != 0,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        rate_limit: attr.rate_limit,
    })
}

/// Attributes of a QP as a C structure.
pub(crate) fn qp_attr_to_c(attr: &QpAttr) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: attr.qp_state as u32,
        cur_qp_state: attr.cur_qp_state as u32,
        path_mtu: attr.path_mtu,
        path_mig_state: attr.path_mig_state,
        qkey: attr.qkey,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        dest_qp_num: attr.dest_qp_num,
        qp_access_flags: attr.qp_access_flags.0,
        cap: cap_to_c(&attr.cap),
        ah_attr: ah_attr_to_c(&attr.ah_attr),
        alt_ah_attr: ah_attr_to_c(&attr.alt_ah_attr),
        pkey_index: attr.pkey_index,
        alt_pkey_index: attr.alt_pkey_index,
        en_sqd_async_notify: u8::from(attr.en_sqd_async_notify),
        sq_draining: u8::from(attr.sq_draining),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port_num,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: attr.alt_port_num,
        alt_timeout: attr.alt_timeout,
        rate_limit: attr.rate_limit,
    }
}

/// A count as a C `int`; larger limits become `INT_MAX`.
fn count(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// The result of `ibv_query_device`.
pub(crate) fn device_attr_to_c(caps: &DeviceCaps) -> ibv_device_attr {
    let mut c = ibv_device_attr::zeroed();
    put_string(&mut c.fw_ver, &caps.fw_ver);
    c.node_guid = caps.node_guid.to_be();
    c.sys_image_guid = caps.sys_image_guid.to_be();
    c.max_mr_size = caps.max_mr_size;
    c.page_size_cap = caps.page_size_cap;
    c.vendor_id = caps.vendor_id;
    c.vendor_part_id = caps.vendor_part_id;
    c.hw_ver = caps.hw_ver;
    c.max_qp = count(caps.max_qp);
    c.max_qp_wr = count(caps.max_qp_wr);
    c.device_cap_flags = caps.device_cap_flags;
    c.max_sge = count(caps.max_sge);
    c.max_sge_rd = count(caps.max_sge_rd);
    c.max_cq = count(caps.max_cq);
    c.max_cqe = count(caps.max_cqe);
    c.max_mr = count(caps.max_mr);
    c.max_pd = count(caps.max_pd);
    c.max_qp_rd_atom = count(caps.max_qp_rd_atom);
    c.max_res_rd_atom = count(caps.max_res_rd_atom);
    c.max_qp_init_rd_atom = count(caps.max_qp_init_rd_atom);
    c.atomic_cap = caps.atomic_cap;
    c.max_mw = count(caps.max_mw);
    c.max_mcast_grp = count(caps.max_mcast_grp);
    c.max_mcast_qp_attach = count(caps.max_mcast_qp_attach);
    c.max_total_mcast_qp_attach = count(caps.max_total_mcast_qp_attach);
    c.max_ah = count(caps.max_ah);
    c.max_srq = count(caps.max_srq);
    c.max_srq_wr = count(caps.max_srq_wr);
    c.max_srq_sge = count(caps.max_srq_sge);
    c.max_pkeys = caps.max_pkeys;
    c.local_ca_ack_delay = caps.local_ca_ack_delay;
    c.phys_port_cnt = caps.phys_port_cnt;
    c
}

/// The result of `ibv_query_device_ex`. Fields that are not set stay zero: this device has no TSO,
/// RSS, raw packets, tag matching, moderation, device memory or PCI atomics.
pub(crate) fn device_attr_ex_to_c(caps: &DeviceCaps) -> ibv_device_attr_ex {
    let mut c = ibv_device_attr_ex::zeroed();
    c.orig_attr = device_attr_to_c(caps);
    c.odp_caps.general_caps = caps.odp.general;
    let by_transport = &mut c.odp_caps.per_transport_caps;
    by_transport.rc_odp_caps = caps.odp.rc;
    by_transport.uc_odp_caps = caps.odp.uc;
    by_transport.ud_odp_caps = caps.odp.ud;
    c.completion_timestamp_mask = caps.completion_timestamp_mask;
    c.hca_core_clock = caps.hca_core_clock_khz;
    c.device_cap_flags_ex = u64::from(caps.device_cap_flags);
    c.phys_port_cnt_ex = u32::from(caps.phys_port_cnt);
    c
}

/// The result of `ibv_query_port`.
pub(crate) fn port_attr_to_c(info: &PortInfo) -> ibv_port_attr {
    let mut c = ibv_port_attr::zeroed();
    c.state = if info.active { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
    c.max_mtu = info.max_mtu;
    c.active_mtu = info.active_mtu;
    c.gid_tbl_len = count(info.gid_tbl_len);
    c.port_cap_flags = info.port_cap_flags;
    c.max_msg_sz = info.max_msg_sz;
    c.pkey_tbl_len = info.pkey_tbl_len;
    c.lid = info.lid;
    c.sm_lid = info.sm_lid;
    c.lmc = info.lmc;
    c.max_vl_num = info.max_vl_num;
    c.active_width = info.active_width;
    c.active_speed = info.active_speed;
    c.phys_state = info.phys_state;
    c.link_layer = info.link_layer as u8;
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_rights_are_dropped_and_unknown_ones_refused() {
        let relaxed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
        assert_eq!(access_from_c(relaxed), Ok(Access::LOCAL_WRITE));
        assert_eq!(access_from_c(1 << 8).map_err(|e| e.errno), Err(VerbsError::EINVAL));
    }

    #[test]
    fn attributes_survive_the_way_to_c_and_back() {
        let attr = QpAttr {
            qp_state: QpState::Rts,
            cur_qp_state: QpState::Rtr,
            timeout: 14,
            retry_cnt: 7,
            alt_ah_attr: AhAttr { dlid: Lid(7), is_global: true, ..AhAttr::default() },
            rate_limit: 9,
            ..QpAttr::default()
        };
        let mask = QpAttrMask::STATE | QpAttrMask::CUR_STATE;
        assert_eq!(qp_attr_from_c(&qp_attr_to_c(&attr), mask), Ok(attr));
    }

    #[test]
    fn a_state_counts_only_when_the_mask_carries_it() {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = 77;
        assert!(qp_attr_from_c(&attr, QpAttrMask::QKEY).is_ok());
        assert!(qp_attr_from_c(&attr, QpAttrMask::STATE).is_err());
        assert!(attr_mask_from_c(1 << 21).is_err());
        assert_eq!(attr_mask_from_c(1 << 25), Ok(QpAttrMask::RATE_LIMIT));
    }

    #[test]
    fn a_limit_beyond_int_is_the_largest_int() {
        assert_eq!(count(u32::MAX), c_int::MAX);
    }
}
