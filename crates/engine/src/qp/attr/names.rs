//! States, transport services and attribute masks in the words of the specification and of programs.

use core::fmt;

use crate::vocab::{QpAttrMask, QpState, QpType};

/// The name of a state as the specification writes it.
pub const fn state_name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Sqd => "SQD",
        QpState::Sqe => "SQE",
        QpState::Err => "ERR",
    }
}

/// The name of a transport service as the specification writes it.
pub const fn type_name(qp_type: QpType) -> &'static str {
    match qp_type {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
    }
}

/// [`type_name`] with its article.
pub(super) const fn with_article(qp_type: QpType) -> &'static str {
    match qp_type {
        QpType::Rc => "an RC",
        QpType::Uc => "a UC",
        QpType::Ud => "a UD",
    }
}

/// Writes a mask with the names that programs use: `IBV_QP_AV, IBV_QP_RQ_PSN`. A bit without a
/// name is written as its number, an empty mask as `none`.
#[derive(Clone, Copy, Debug)]
pub struct AttrNames(pub QpAttrMask);

impl fmt::Display for AttrNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "none");
        }
        let mut separator = "";
        for name in self.0.names() {
            write!(f, "{separator}IBV_QP_{name}")?;
            separator = ", ";
        }
        for bit in (0..u32::BITS).filter(|bit| self.0.0 >> bit & 1 != 0) {
            if QpAttrMask(1 << bit).names().next().is_none() {
                write!(f, "{separator}bit {bit}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}
