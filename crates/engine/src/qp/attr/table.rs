//! A table of the attributes that each transition of a queue pair needs and allows.
//!
//! Sources: IBA vol. 1, 10.3.1 (states) and 11.2.5.2 (Modify Queue Pair), and the table that Linux
//! enforces for every adapter (`ib_modify_qp_is_ok`). Where the two differ, a cell follows Linux,
//! so that what passes here passes on hardware, with two exceptions that IBA 10.3.1 settles: ERR
//! can be entered from RESET, and RC, which never enters SQE, has no way from SQE to RTS.

use core::fmt;

use crate::vocab::{QpAttrMask, QpState, QpType};

use super::names::{AttrNames, state_name, type_name};

use QpAttrMask as M;
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
use QpType::{Rc, Uc, Ud};

/// The states from which a [`Rule`] starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// This state only.
    Is(QpState),
    /// Every state, the target included.
    Any,
}

impl Origin {
    /// Whether a QP in `state` may use the rule.
    #[inline]
    pub const fn covers(self, state: QpState) -> bool {
        match self {
            Origin::Is(from) => from as u32 == state as u32,
            Origin::Any => true,
        }
    }
}

/// One legal transition of one type of queue pair.
///
/// `IBV_QP_STATE` is in neither set: it is what asks for a change of state, so it belongs to every
/// transition, and to an in-place change (INIT→INIT, RTS→RTS, SQD→SQD) it may be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The transport service.
    pub qp_type: QpType,
    /// The state before.
    pub from: Origin,
    /// The state after.
    pub to: QpState,
    /// Attributes without which the call fails.
    pub required: QpAttrMask,
    /// Attributes that may be added.
    pub optional: QpAttrMask,
}

impl Rule {
    /// Every attribute that this transition takes, `IBV_QP_STATE` included.
    #[inline]
    pub const fn allowed(&self) -> QpAttrMask {
        self.required.union(self.optional).union(M::STATE)
    }
}

impl fmt::Display for Rule {
    /// One line of the table, for people: type, transition, required, optional.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match self.from {
            Origin::Is(state) => state_name(state),
            Origin::Any => "any",
        };
        write!(f, "{} {from:>5}→{:<5}", type_name(self.qp_type), state_name(self.to))?;
        write!(f, " required: {}", AttrNames(self.required))?;
        write!(f, "; optional: {}", AttrNames(self.optional))
    }
}

/// The rule for moving a QP of type `qp_type` from `from` to `to`; `None` when there is no such
/// transition.
pub fn rule(qp_type: QpType, from: QpState, to: QpState) -> Option<&'static Rule> {
    TABLE.iter().find(|r| r.qp_type == qp_type && r.from.covers(from) && r.to == to)
}

/// The states that a modify call can move a QP of type `qp_type` to from `from`, in the order of
/// [`TABLE`]; `from` itself is among them where attributes can be changed in place.
pub fn next_states(qp_type: QpType, from: QpState) -> impl Iterator<Item = QpState> {
    TABLE.iter().filter(move |r| r.qp_type == qp_type && r.from.covers(from)).map(|r| r.to)
}

/// The union of `attrs`.
const fn all(attrs: &[QpAttrMask]) -> QpAttrMask {
    let mut mask = M::NONE;
    let mut i = 0;
    while i < attrs.len() {
        mask = mask.union(attrs[i]);
        i += 1;
    }
    mask
}

/// A row that starts from one state.
const fn row(
    qp_type: QpType,
    from: QpState,
    to: QpState,
    required: &[QpAttrMask],
    optional: &[QpAttrMask],
) -> Rule {
    Rule { qp_type, from: Origin::Is(from), to, required: all(required), optional: all(optional) }
}

/// A row that starts from any state and takes nothing but the new state.
const fn from_any(qp_type: QpType, to: QpState) -> Rule {
    Rule { qp_type, from: Origin::Any, to, required: M::NONE, optional: M::NONE }
}

/// The port, partition and access rights of a connected QP.
const CONNECTED_PORT: QpAttrMask = all(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]);
/// The port, partition and queue key of a datagram QP.
const DATAGRAM_PORT: QpAttrMask = all(&[M::PKEY_INDEX, M::PORT, M::QKEY]);
/// The path and peer of a connection, and the first PSN of its receive side.
const CONNECTION: QpAttrMask = all(&[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN]);
/// Retries of an RC requester, and the number of READs and atomics that it keeps in flight.
const RC_REQUESTER: QpAttrMask =
    all(&[M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::MAX_QP_RD_ATOMIC]);
/// Optional attributes of a connected QP while its connection is made.
const CONNECTING: QpAttrMask = all(&[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX]);
/// Optional attributes of a UC QP while it runs.
const RUNNING: QpAttrMask = all(&[M::ACCESS_FLAGS, M::ALT_PATH, M::PATH_MIG_STATE]);
/// Optional attributes of an RC QP while it runs.
const RC_RUNNING: QpAttrMask = all(&[RUNNING, M::MIN_RNR_TIMER]);
/// Attributes that an RC QP needs to receive, besides its connection.
const RC_RESPONDER: QpAttrMask = all(&[M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER]);
/// Optional attributes of an RC QP while its send queue is drained, besides [`RC_RUNNING`].
const RC_DRAINED: QpAttrMask =
    all(&[M::PORT, M::PKEY_INDEX, M::AV, RC_REQUESTER, M::MAX_DEST_RD_ATOMIC]);

/// Every legal transition: 32 rows. The rows of one transition stand together, in the order RC, UC,
/// UD.
pub const TABLE: [Rule; 32] = [
    row(Rc, Reset, Init, &[CONNECTED_PORT], &[]),
    row(Uc, Reset, Init, &[CONNECTED_PORT], &[]),
    row(Ud, Reset, Init, &[DATAGRAM_PORT], &[]),
    row(Rc, Init, Init, &[], &[CONNECTED_PORT]),
    row(Uc, Init, Init, &[], &[CONNECTED_PORT]),
    row(Ud, Init, Init, &[], &[DATAGRAM_PORT]),
    row(Rc, Init, Rtr, &[CONNECTION, RC_RESPONDER], &[CONNECTING]),
    row(Uc, Init, Rtr, &[CONNECTION], &[CONNECTING]),
    row(Ud, Init, Rtr, &[], &[M::PKEY_INDEX, M::QKEY]),
    row(Rc, Rtr, Rts, &[RC_REQUESTER, M::SQ_PSN], &[M::CUR_STATE, RC_RUNNING]),
    row(Uc, Rtr, Rts, &[M::SQ_PSN], &[M::CUR_STATE, RUNNING]),
    row(Ud, Rtr, Rts, &[M::SQ_PSN], &[M::CUR_STATE, M::QKEY]),
    row(Rc, Rts, Rts, &[], &[M::CUR_STATE, RC_RUNNING]),
    row(Uc, Rts, Rts, &[], &[M::CUR_STATE, RUNNING]),
    row(Ud, Rts, Rts, &[], &[M::CUR_STATE, M::QKEY]),
    row(Rc, Rts, Sqd, &[], &[M::EN_SQD_ASYNC_NOTIFY]),
    row(Uc, Rts, Sqd, &[], &[M::EN_SQD_ASYNC_NOTIFY]),
    row(Ud, Rts, Sqd, &[], &[M::EN_SQD_ASYNC_NOTIFY]),
    row(Rc, Sqd, Sqd, &[], &[RC_DRAINED, RC_RUNNING]),
    row(Uc, Sqd, Sqd, &[], &[M::PKEY_INDEX, M::AV, RUNNING]),
    row(Ud, Sqd, Sqd, &[], &[M::PKEY_INDEX, M::QKEY]),
    row(Rc, Sqd, Rts, &[], &[M::CUR_STATE, RC_RUNNING]),
    row(Uc, Sqd, Rts, &[], &[M::CUR_STATE, RUNNING]),
    row(Ud, Sqd, Rts, &[], &[M::CUR_STATE, M::QKEY]),
    row(Uc, Sqe, Rts, &[], &[M::CUR_STATE, M::ACCESS_FLAGS]),
    row(Ud, Sqe, Rts, &[], &[M::CUR_STATE, M::QKEY]),
    from_any(Rc, Err),
    from_any(Uc, Err),
    from_any(Ud, Err),
    from_any(Rc, Reset),
    from_any(Uc, Reset),
    from_any(Ud, Reset),
];
