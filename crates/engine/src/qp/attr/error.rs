//! Why a modify call was refused, with the answer in the error.

use core::fmt;

use crate::backend::VerbsError;
use crate::vocab::{QpAttrMask, QpState, QpType};

use super::names::{AttrNames, state_name, with_article};
use super::table::{next_states, rule};

use QpAttrMask as M;

/// Why [`check_modify`](super::check_modify) or [`check_path_port`](super::check_path_port) refused
/// a call. The QP is unchanged whenever one is returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModifyError {
    /// `attr_mask` has bits that libibverbs does not define.
    UnknownAttrs {
        /// Those bits.
        bits: QpAttrMask,
    },
    /// `cur_qp_state` is not the state of the QP.
    CurStateMismatch {
        /// The state that the caller assumed.
        assumed: QpState,
        /// The actual state.
        actual: QpState,
    },
    /// There is no such transition (IBA vol. 1, 10.3.1).
    InvalidTransition {
        /// The transport service.
        qp_type: QpType,
        /// The state of the QP.
        from: QpState,
        /// The state asked for; `from` when `IBV_QP_STATE` was not in `attr_mask`.
        to: QpState,
    },
    /// The transition needs more.
    MissingAttrs {
        /// The transport service.
        qp_type: QpType,
        /// The state of the QP.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// The complete set of attributes that are required and not in `attr_mask`.
        missing: QpAttrMask,
    },
    /// The transition does not take all of this.
    UnexpectedAttrs {
        /// The transport service.
        qp_type: QpType,
        /// The state of the QP.
        from: QpState,
        /// The state asked for; `from` when `IBV_QP_STATE` was not in `attr_mask`.
        to: QpState,
        /// The complete set of attributes that are in `attr_mask` and not allowed.
        unexpected: QpAttrMask,
    },
    /// A value that the specification or the device does not allow.
    OutOfRange {
        /// The bit of `attr_mask` that carried the value.
        attr: QpAttrMask,
        /// The member of `struct ibv_qp_attr` that holds it.
        member: &'static str,
        /// The value, as given.
        value: u32,
        /// The smallest that is allowed.
        min: u32,
        /// The largest that is allowed; below `min` when the device allows none.
        max: u32,
    },
    /// Alternate paths and automatic path migration (IBA vol. 1, 17.2.8) are not supported.
    PathMigration {
        /// `ALT_PATH` or `PATH_MIG_STATE`.
        attr: QpAttrMask,
    },
    /// The address vector names a port other than the QP's.
    PathPortMismatch {
        /// `port_num` of the QP.
        qp_port: u8,
        /// `ah_attr.port_num`.
        path_port: u8,
    },
}

impl ModifyError {
    /// The error number that `ibv_modify_qp` returns: `EOPNOTSUPP` if no correction of the call
    /// would help, else `EINVAL`.
    pub const fn errno(&self) -> i32 {
        match self {
            ModifyError::UnknownAttrs { .. } | ModifyError::PathMigration { .. } => {
                VerbsError::EOPNOTSUPP
            }
            _ => VerbsError::EINVAL,
        }
    }
}

impl core::error::Error for ModifyError {}

impl From<ModifyError> for VerbsError {
    fn from(error: ModifyError) -> Self {
        VerbsError::new(error.errno(), error.to_string())
    }
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ModifyError::UnknownAttrs { bits } => write!(
                f,
                "attr_mask has {}, which libibverbs does not define: clear it",
                AttrNames(bits)
            ),
            ModifyError::CurStateMismatch { assumed, actual } => write!(
                f,
                "cur_qp_state says {}, but the QP is in {}: query it, or leave IBV_QP_CUR_STATE \
                 out of attr_mask",
                state_name(assumed),
                state_name(actual)
            ),
            ModifyError::InvalidTransition { qp_type, from, to } => {
                fmt_transition(f, qp_type, from, to)
            }
            ModifyError::MissingAttrs { qp_type, from, to, missing } => write!(
                f,
                "{}→{} on {} QP also needs {}: set {} and these bits of attr_mask",
                state_name(from),
                state_name(to),
                with_article(qp_type),
                AttrNames(missing),
                Members(missing)
            ),
            ModifyError::UnexpectedAttrs { qp_type, from, to, unexpected } => {
                fmt_unexpected(f, qp_type, from, to, unexpected)
            }
            ModifyError::OutOfRange { attr, member, value, min, max } => {
                fmt_range(f, attr, member, value, min, max)
            }
            ModifyError::PathMigration { attr } => write!(
                f,
                "{}: this device has no automatic path migration (IBV_DEVICE_AUTO_PATH_MIG); \
                 leave it out of attr_mask",
                AttrNames(attr)
            ),
            ModifyError::PathPortMismatch { qp_port, path_port } => write!(
                f,
                "ah_attr.port_num is {path_port}, but the QP belongs to port {qp_port}: set \
                 ah_attr.port_num to {qp_port}"
            ),
        }
    }
}

/// Writes an [`ModifyError::InvalidTransition`] with the transitions that are allowed.
fn fmt_transition(
    f: &mut fmt::Formatter<'_>,
    qp_type: QpType,
    from: QpState,
    to: QpState,
) -> fmt::Result {
    let (name, target) = (state_name(from), state_name(to));
    if from == to {
        write!(
            f,
            "{} QP in {name} takes no change in place (IBV_QP_STATE is not in attr_mask, or \
             qp_state is {name})",
            with_article(qp_type)
        )?;
    } else {
        write!(f, "{} QP cannot go {name}→{target}", with_article(qp_type))?;
    }
    write!(f, ": from {name} it can go to ")?;
    for (i, state) in next_states(qp_type, from).enumerate() {
        write!(f, "{}{}", if i > 0 { ", " } else { "" }, state_name(state))?;
    }
    Ok(())
}

/// Writes an [`ModifyError::UnexpectedAttrs`] with what is allowed, and why some are not.
fn fmt_unexpected(
    f: &mut fmt::Formatter<'_>,
    qp_type: QpType,
    from: QpState,
    to: QpState,
    unexpected: QpAttrMask,
) -> fmt::Result {
    let (name, target) = (state_name(from), state_name(to));
    write!(
        f,
        "{name}→{target} on {} QP does not take {}: clear these bits of attr_mask",
        with_article(qp_type),
        AttrNames(unexpected)
    )?;
    if let Some(rule) = rule(qp_type, from, to) {
        write!(f, "; it takes {}", AttrNames(rule.allowed()))?;
    }
    if from == to {
        write!(f, "; to leave {name}, set IBV_QP_STATE and qp_state")?;
    }
    if qp_type == QpType::Ud && unexpected.intersects(M::AV | M::DEST_QPN) {
        write!(f, "; a datagram's destination comes with its work request")?;
    }
    if unexpected.contains(M::CAP) {
        write!(f, "; the queues of this device cannot be resized")?;
    }
    if unexpected.contains(M::RATE_LIMIT) {
        write!(f, "; only raw packet QPs can be paced")?;
    }
    Ok(())
}

/// Writes an [`ModifyError::OutOfRange`] with the unit or origin of its limit.
fn fmt_range(
    f: &mut fmt::Formatter<'_>,
    attr: QpAttrMask,
    member: &str,
    value: u32,
    min: u32,
    max: u32,
) -> fmt::Result {
    write!(f, "{member} is {value}")?;
    if min > max {
        write!(f, ", and this device allows none")?;
    } else {
        write!(f, ", must be {min} ..= {max}")?;
    }
    let why = match attr {
        M::PATH_MTU => "an enum ibv_mtu, 1 = 256 B ... 5 = 4096 B, up to the port's active_mtu",
        M::TIMEOUT => "the time is 4.096 us x 2^timeout; 0 waits for ever",
        M::RNR_RETRY => "7 retries for ever",
        M::MIN_RNR_TIMER => "a code for a time: 1 = 10 us ... 31 = 491.52 ms, 0 = 655.36 ms",
        M::RQ_PSN | M::SQ_PSN | M::DEST_QPN => "24 bits",
        M::MAX_QP_RD_ATOMIC => "the device's max_qp_init_rd_atom",
        M::MAX_DEST_RD_ATOMIC => "the device's max_qp_rd_atom",
        M::PKEY_INDEX => "the port's pkey_tbl_len",
        M::PORT => "the device's phys_port_cnt",
        _ => return write!(f, " ({})", AttrNames(attr)),
    };
    write!(f, " ({}: {why})", AttrNames(attr))
}

/// Writes the members of `struct ibv_qp_attr` that a mask stands for.
struct Members(QpAttrMask);

/// The members whose names differ from the name of their bit.
const RENAMED: [(QpAttrMask, &str); 5] = [
    (M::ACCESS_FLAGS, "qp_access_flags"),
    (M::PORT, "port_num"),
    (M::AV, "ah_attr"),
    (M::MAX_QP_RD_ATOMIC, "max_rd_atomic"),
    (M::DEST_QPN, "dest_qp_num"),
];

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for bit in (0..u32::BITS).map(|bit| QpAttrMask(1 << bit)) {
            if !self.0.contains(bit) {
                continue;
            }
            write!(f, "{separator}")?;
            separator = ", ";
            match RENAMED.iter().find(|(mask, _)| *mask == bit) {
                Some((_, member)) => write!(f, "{member}")?,
                None => {
                    for c in bit.names().flat_map(str::chars) {
                        write!(f, "{}", c.to_ascii_lowercase())?;
                    }
                }
            }
        }
        Ok(())
    }
}
