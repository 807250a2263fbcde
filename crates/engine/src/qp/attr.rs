//! The rules of `ibv_modify_qp`: which transitions a queue pair has, which attributes each of them
//! needs and allows, and which values those may take (IBA vol. 1, 10.3.1 and 11.2.5.2).
//!
//! Pure functions over data: the [table](table::TABLE) lists the attributes of each transition,
//! [`check_modify`] applies it, [`ModifyError`] says what was wrong and what to do. A call that is
//! refused changes nothing, as `ibv_modify_qp` promises.

use rdmalab_wire::ids::{MASK_24, PathMtu};

use crate::vocab::{QpAttr, QpAttrMask, QpState, QpType};

mod error;
mod names;
pub mod table;
#[cfg(test)]
mod tests;

pub use error::ModifyError;
pub use names::{AttrNames, state_name, type_name};

use QpAttrMask as M;

/// Every bit that `enum ibv_qp_attr_mask` defines.
pub const KNOWN_ATTRS: QpAttrMask = QpAttrMask(0x001f_ffff | M::RATE_LIMIT.0);

/// The largest `timeout`, a 5-bit exponent (IBA vol. 1, 9.7.6.1.3).
pub const MAX_TIMEOUT: u8 = 31;
/// The largest `retry_cnt`: 3 bits.
pub const MAX_RETRY_CNT: u8 = 7;
/// The largest `rnr_retry`: 3 bits, and this value means for ever (IBA vol. 1, 9.7.5.2.8).
pub const MAX_RNR_RETRY: u8 = 7;
/// The largest `min_rnr_timer`: the 5 bits of the syndrome that carry it (IBA vol. 1, 9.7.5.2.8).
pub const MAX_RNR_TIMER: u8 = 31;
/// The largest service level: the 4 bits of the local route header (IBA vol. 1, 7.7).
pub const MAX_SL: u8 = 15;
/// `IBV_MIG_MIGRATED`: the state in which a QP without an alternate path always is.
const MIG_MIGRATED: u32 = 0;

/// Limits of the device and its port, against which the caller's values are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most READs and atomics that a requester may keep in flight (`max_qp_init_rd_atom`).
    pub max_rd_atomic: u8,
    /// Most READs and atomics that a responder can hold (`max_qp_rd_atom`).
    pub max_dest_rd_atomic: u8,
    /// Ports of the device (`phys_port_cnt`), numbered from 1.
    pub ports: u8,
    /// Entries of a port's partition table (`pkey_tbl_len`).
    pub pkey_table_len: u16,
    /// Entries of a port's GID table (`gid_tbl_len`).
    pub gid_table_len: u32,
    /// The port's active MTU as numbered by `enum ibv_mtu`: no path can have a larger one.
    pub active_mtu: u32,
}

/// Checks a modify call for a QP of type `qp_type` in state `current`, and returns the state that
/// it leads to. Nothing is changed; only the members of `attr` that `mask` names are looked at.
///
/// Without `IBV_QP_STATE` in `mask` the state stays, which INIT, RTS and SQD allow. The order of
/// the checks: unknown bits, `cur_qp_state`, the transition, what is missing, what is too much,
/// values in the order of their bits, support. Whether the address vector fits the QP's port needs
/// the QP: [`check_path_port`].
///
/// `flow_label` is not checked: as on hardware, its low 20 bits count.
///
/// # Errors
/// The first thing that is wrong, as a [`ModifyError`].
pub fn check_modify(
    qp_type: QpType,
    current: QpState,
    mask: QpAttrMask,
    attr: &QpAttr,
    limits: &Limits,
) -> Result<QpState, ModifyError> {
    let unknown = mask.without(KNOWN_ATTRS);
    if !unknown.is_empty() {
        return Err(ModifyError::UnknownAttrs { bits: unknown });
    }
    if mask.contains(M::CUR_STATE) && attr.cur_qp_state != current {
        let assumed = attr.cur_qp_state;
        return Err(ModifyError::CurStateMismatch { assumed, actual: current });
    }
    let next = if mask.contains(M::STATE) { attr.qp_state } else { current };
    check_mask(qp_type, current, next, mask)?;
    check_values(mask, attr, limits)?;
    check_path_migration(mask, attr)?;
    Ok(next)
}

/// Checks that a modify call leaves its address vector on the QP's own port.
///
/// `qp_port` is the port that the QP was given in RESET→INIT. INIT→RTR must name the same in
/// `ah_attr.port_num`. In SQD, `port_num` and `ah_attr.port_num` must agree when both are given; an
/// address vector alone moves the QP to its port, as on Linux.
///
/// # Errors
/// [`ModifyError::PathPortMismatch`].
pub fn check_path_port(
    current: QpState,
    qp_port: u8,
    mask: QpAttrMask,
    attr: &QpAttr,
) -> Result<(), ModifyError> {
    let qp_port = if mask.contains(M::PORT) {
        attr.port_num
    } else if current == QpState::Init {
        qp_port
    } else {
        attr.ah_attr.port_num
    };
    if mask.contains(M::AV) && attr.ah_attr.port_num != qp_port {
        return Err(ModifyError::PathPortMismatch { qp_port, path_port: attr.ah_attr.port_num });
    }
    Ok(())
}

/// Whether the table has the transition, and `mask` has what the transition needs and no more.
fn check_mask(
    qp_type: QpType,
    from: QpState,
    to: QpState,
    mask: QpAttrMask,
) -> Result<(), ModifyError> {
    let Some(rule) = table::rule(qp_type, from, to) else {
        return Err(ModifyError::InvalidTransition { qp_type, from, to });
    };
    let missing = rule.required.without(mask);
    if !missing.is_empty() {
        return Err(ModifyError::MissingAttrs { qp_type, from, to, missing });
    }
    let unexpected = mask.without(rule.allowed());
    if !unexpected.is_empty() {
        return Err(ModifyError::UnexpectedAttrs { qp_type, from, to, unexpected });
    }
    Ok(())
}

/// A member of [`QpAttr`] with the half-open range of its values, `min .. end`.
struct Bound {
    attr: QpAttrMask,
    member: &'static str,
    value: u32,
    min: u32,
    end: u32,
}

/// A [`Bound`] from 0 to `max`, `max` included.
fn at_most(attr: QpAttrMask, member: &'static str, value: u8, max: u8) -> Bound {
    Bound { attr, member, value: value.into(), min: 0, end: u32::from(max) + 1 }
}

/// A [`Bound`] of 24 bits.
fn in_24_bits(attr: QpAttrMask, member: &'static str, value: u32) -> Bound {
    Bound { attr, member, value, min: 0, end: MASK_24 + 1 }
}

/// A [`Bound`] to the ports of the device.
fn a_port(attr: QpAttrMask, member: &'static str, value: u8, limits: &Limits) -> Bound {
    Bound { attr, member, value: value.into(), min: 1, end: u32::from(limits.ports) + 1 }
}

/// Checks every value that `mask` names; fails for the first, by its bit, that is out of range.
fn check_values(mask: QpAttrMask, attr: &QpAttr, limits: &Limits) -> Result<(), ModifyError> {
    let ah = &attr.ah_attr;
    // Without a GRH the source GID is not looked at, so any index will do.
    let gids = if ah.is_global { limits.gid_table_len } else { u32::MAX };
    let bounds = [
        Bound {
            attr: M::PKEY_INDEX,
            member: "pkey_index",
            value: attr.pkey_index.into(),
            min: 0,
            end: limits.pkey_table_len.into(),
        },
        a_port(M::PORT, "port_num", attr.port_num, limits),
        a_port(M::AV, "ah_attr.port_num", ah.port_num, limits),
        at_most(M::AV, "ah_attr.sl", ah.sl, MAX_SL),
        Bound {
            attr: M::AV,
            member: "ah_attr.grh.sgid_index",
            value: ah.sgid_index.into(),
            min: 0,
            end: gids,
        },
        Bound {
            attr: M::PATH_MTU,
            member: "path_mtu",
            value: attr.path_mtu,
            min: PathMtu::Mtu256 as u32,
            end: limits.active_mtu.min(PathMtu::Mtu4096 as u32) + 1,
        },
        at_most(M::TIMEOUT, "timeout", attr.timeout, MAX_TIMEOUT),
        at_most(M::RETRY_CNT, "retry_cnt", attr.retry_cnt, MAX_RETRY_CNT),
        at_most(M::RNR_RETRY, "rnr_retry", attr.rnr_retry, MAX_RNR_RETRY),
        in_24_bits(M::RQ_PSN, "rq_psn", attr.rq_psn),
        at_most(M::MAX_QP_RD_ATOMIC, "max_rd_atomic", attr.max_rd_atomic, limits.max_rd_atomic),
        at_most(M::MIN_RNR_TIMER, "min_rnr_timer", attr.min_rnr_timer, MAX_RNR_TIMER),
        in_24_bits(M::SQ_PSN, "sq_psn", attr.sq_psn),
        at_most(
            M::MAX_DEST_RD_ATOMIC,
            "max_dest_rd_atomic",
            attr.max_dest_rd_atomic,
            limits.max_dest_rd_atomic,
        ),
        in_24_bits(M::DEST_QPN, "dest_qp_num", attr.dest_qp_num),
    ];
    bounds.iter().filter(|bound| mask.contains(bound.attr)).try_for_each(Bound::check)
}

impl Bound {
    /// Whether the value is in its range.
    fn check(&self) -> Result<(), ModifyError> {
        let Bound { attr, member, value, min, end } = *self;
        if (min..end).contains(&value) {
            return Ok(());
        }
        // An empty range has no inclusive form that starts at 0; 1 ..= 0 says the same.
        let (min, max) = if end > min { (min, end - 1) } else { (1, 0) };
        Err(ModifyError::OutOfRange { attr, member, value, min, max })
    }
}

/// Whether the call asks for automatic path migration, which is not supported. Setting the
/// migration state to what it always is passes.
fn check_path_migration(mask: QpAttrMask, attr: &QpAttr) -> Result<(), ModifyError> {
    let refused = if mask.contains(M::ALT_PATH) {
        M::ALT_PATH
    } else if mask.contains(M::PATH_MIG_STATE) && attr.path_mig_state != MIG_MIGRATED {
        M::PATH_MIG_STATE
    } else {
        return Ok(());
    };
    Err(ModifyError::PathMigration { attr: refused })
}
