//! Compares the table with expectations that have a line per attribute and a column per transition,
//! and the checks with every cell.

use super::table::{Origin, Rule, TABLE, rule};
use super::*;
use crate::vocab::{Access, AhAttr};

mod values;

/// The columns of the expectations below, left to right.
const COLUMNS: [(QpState, QpState); 9] = [
    (QpState::Reset, QpState::Init),
    (QpState::Init, QpState::Init),
    (QpState::Init, QpState::Rtr),
    (QpState::Rtr, QpState::Rts),
    (QpState::Rts, QpState::Rts),
    (QpState::Rts, QpState::Sqd),
    (QpState::Sqd, QpState::Sqd),
    (QpState::Sqd, QpState::Rts),
    (QpState::Sqe, QpState::Rts),
];

/// R required, O optional, - refused; X where the type has no such transition.
const RC: &str = "
    CUR_STATE           - - - O O - - O X
    EN_SQD_ASYNC_NOTIFY - - - - - O - - X
    ACCESS_FLAGS        R O O O O - O O X
    PKEY_INDEX          R O O - - - O - X
    PORT                R O - - - - O - X
    QKEY                - - - - - - - - X
    AV                  - - R - - - O - X
    PATH_MTU            - - R - - - - - X
    TIMEOUT             - - - R - - O - X
    RETRY_CNT           - - - R - - O - X
    RNR_RETRY           - - - R - - O - X
    RQ_PSN              - - R - - - - - X
    MAX_QP_RD_ATOMIC    - - - R - - O - X
    ALT_PATH            - - O O O - O O X
    MIN_RNR_TIMER       - - R O O - O O X
    SQ_PSN              - - - R - - - - X
    MAX_DEST_RD_ATOMIC  - - R - - - O - X
    PATH_MIG_STATE      - - - O O - O O X
    CAP                 - - - - - - - - X
    DEST_QPN            - - R - - - - - X
    RATE_LIMIT          - - - - - - - - X";

const UC: &str = "
    CUR_STATE           - - - O O - - O O
    EN_SQD_ASYNC_NOTIFY - - - - - O - - -
    ACCESS_FLAGS        R O O O O - O O O
    PKEY_INDEX          R O O - - - O - -
    PORT                R O - - - - - - -
    QKEY                - - - - - - - - -
    AV                  - - R - - - O - -
    PATH_MTU            - - R - - - - - -
    TIMEOUT             - - - - - - - - -
    RETRY_CNT           - - - - - - - - -
    RNR_RETRY           - - - - - - - - -
    RQ_PSN              - - R - - - - - -
    MAX_QP_RD_ATOMIC    - - - - - - - - -
    ALT_PATH            - - O O O - O O -
    MIN_RNR_TIMER       - - - - - - - - -
    SQ_PSN              - - - R - - - - -
    MAX_DEST_RD_ATOMIC  - - - - - - - - -
    PATH_MIG_STATE      - - - O O - O O -
    CAP                 - - - - - - - - -
    DEST_QPN            - - R - - - - - -
    RATE_LIMIT          - - - - - - - - -";

const UD: &str = "
    CUR_STATE           - - - O O - - O O
    EN_SQD_ASYNC_NOTIFY - - - - - O - - -
    ACCESS_FLAGS        - - - - - - - - -
    PKEY_INDEX          R O O - - - O - -
    PORT                R O - - - - - - -
    QKEY                R O O O O - O O O
    AV                  - - - - - - - - -
    PATH_MTU            - - - - - - - - -
    TIMEOUT             - - - - - - - - -
    RETRY_CNT           - - - - - - - - -
    RNR_RETRY           - - - - - - - - -
    RQ_PSN              - - - - - - - - -
    MAX_QP_RD_ATOMIC    - - - - - - - - -
    ALT_PATH            - - - - - - - - -
    MIN_RNR_TIMER       - - - - - - - - -
    SQ_PSN              - - - R - - - - -
    MAX_DEST_RD_ATOMIC  - - - - - - - - -
    PATH_MIG_STATE      - - - - - - - - -
    CAP                 - - - - - - - - -
    DEST_QPN            - - - - - - - - -
    RATE_LIMIT          - - - - - - - - -";

const LIMITS: Limits = Limits {
    max_rd_atomic: 16,
    max_dest_rd_atomic: 12,
    ports: 2,
    pkey_table_len: 3,
    gid_table_len: 2,
    active_mtu: 4,
};

/// Attributes whose every value is fine for [`LIMITS`].
fn good_attr(to: QpState) -> QpAttr {
    QpAttr {
        qp_state: to,
        path_mtu: 3,
        qp_access_flags: Access::REMOTE_WRITE,
        ah_attr: AhAttr { port_num: 1, ..AhAttr::default() },
        port_num: 1,
        ..QpAttr::default()
    }
}

fn bits(mask: QpAttrMask) -> impl Iterator<Item = QpAttrMask> {
    (0..u32::BITS).map(|bit| QpAttrMask(1 << bit)).filter(move |bit| mask.contains(*bit))
}

/// Calls `visit` for each rule with each state that it starts from.
fn each_transition(mut visit: impl FnMut(&Rule, QpState)) {
    for rule in &TABLE {
        for &from in QpState::ALL.iter().filter(|from| rule.from.covers(**from)) {
            visit(rule, from);
        }
    }
}

/// `good_attr` for a transition, with the state it starts from as `cur_qp_state`.
fn attr_of(rule: &Rule, from: QpState) -> QpAttr {
    QpAttr { cur_qp_state: from, ..good_attr(rule.to) }
}

fn check(qp_type: QpType, from: QpState, mask: QpAttrMask, attr: &QpAttr) -> Verdict {
    check_modify(qp_type, from, mask, attr, &LIMITS)
}

type Verdict = Result<QpState, ModifyError>;

#[test]
fn every_cell_is_as_expected() {
    for (qp_type, lines) in [(QpType::Rc, RC), (QpType::Uc, UC), (QpType::Ud, UD)] {
        let mut seen = M::STATE;
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap();
            let attr = bits(KNOWN_ATTRS).find(|bit| bit.names().eq([name])).expect(name);
            seen = seen | attr;
            let cells: Vec<_> = words.collect();
            assert_eq!(cells.len(), COLUMNS.len(), "{name}");
            for (cell, (from, to)) in cells.into_iter().zip(COLUMNS) {
                let found = match rule(qp_type, from, to) {
                    None => "X",
                    Some(rule) if rule.required.contains(attr) => "R",
                    Some(rule) if rule.optional.contains(attr) => "O",
                    Some(_) => "-",
                };
                assert_eq!(found, cell, "{name} in {from:?} to {to:?} of {qp_type:?}");
            }
        }
        assert_eq!(seen, KNOWN_ATTRS, "the expectation of {qp_type:?} names every attribute");
    }
}

#[test]
fn there_are_no_other_transitions() {
    for &qp_type in QpType::ALL {
        for &from in QpState::ALL {
            for &to in QpState::ALL {
                let no_sqe = qp_type == QpType::Rc && from == QpState::Sqe;
                let legal = matches!(to, QpState::Err | QpState::Reset)
                    || COLUMNS.contains(&(from, to)) && !(no_sqe && to == QpState::Rts);
                assert_eq!(rule(qp_type, from, to).is_some(), legal, "{qp_type:?} {from:?} {to:?}");
                if !legal {
                    let verdict = check(qp_type, from, M::STATE, &good_attr(to));
                    assert_eq!(verdict, Err(ModifyError::InvalidTransition { qp_type, from, to }));
                }
            }
        }
    }
}

#[test]
fn rules_are_unambiguous() {
    for (i, a) in TABLE.iter().enumerate() {
        assert!(!a.required.intersects(a.optional), "{a}");
        assert!(!(a.required | a.optional).contains(M::STATE), "{a}");
        for b in &TABLE[i + 1..] {
            let overlap = QpState::ALL.iter().any(|s| a.from.covers(*s) && b.from.covers(*s));
            assert!(!(a.qp_type == b.qp_type && a.to == b.to && overlap), "{a} / {b}");
        }
    }
}

#[test]
fn the_required_attributes_suffice() {
    each_transition(|rule, from| {
        let verdict = check(rule.qp_type, from, rule.required | M::STATE, &attr_of(rule, from));
        assert_eq!(verdict, Ok(rule.to), "{rule}");
    });
}

#[test]
fn the_optional_attributes_are_taken() {
    each_transition(|rule, from| {
        let mask = rule.allowed().without(M::ALT_PATH);
        assert_eq!(check(rule.qp_type, from, mask, &attr_of(rule, from)), Ok(rule.to), "{rule}");
    });
}

#[test]
fn a_missing_attribute_is_named() {
    let mut dropped = 0;
    each_transition(|rule, from| {
        for missing in bits(rule.required) {
            let mask = rule.allowed().without(missing);
            let expected =
                ModifyError::MissingAttrs { qp_type: rule.qp_type, from, to: rule.to, missing };
            let verdict = check(rule.qp_type, from, mask, &attr_of(rule, from));
            assert_eq!(verdict, Err(expected), "{rule}");
            dropped += 1;
        }
    });
    assert_eq!(dropped, 3 + 3 + 3 + 6 + 4 + 5 + 1 + 1, "R cells of the expectations");
}

#[test]
fn all_missing_attributes_are_named_at_once() {
    each_transition(|rule, from| {
        // Without a required attribute there is nothing to miss.
        if rule.required.is_empty() {
            return;
        }
        match check(rule.qp_type, from, M::STATE, &attr_of(rule, from)) {
            Err(ModifyError::MissingAttrs { missing, .. }) => assert_eq!(missing, rule.required),
            other => panic!("{rule}: {other:?}"),
        }
    });
}

#[test]
fn an_attribute_too_many_is_named() {
    each_transition(|rule, from| {
        for unexpected in bits(KNOWN_ATTRS.without(rule.allowed())) {
            let mask = rule.required | M::STATE | unexpected;
            let expected = ModifyError::UnexpectedAttrs {
                qp_type: rule.qp_type,
                from,
                to: rule.to,
                unexpected,
            };
            let verdict = check(rule.qp_type, from, mask, &attr_of(rule, from));
            assert_eq!(verdict, Err(expected), "{rule}");
        }
    });
}

#[test]
fn what_is_missing_comes_before_what_is_too_much() {
    let verdict = check(QpType::Rc, QpState::Rtr, M::STATE | M::DEST_QPN, &good_attr(QpState::Rts));
    assert!(matches!(verdict, Err(ModifyError::MissingAttrs { .. })), "{verdict:?}");
}

#[test]
fn without_the_state_bit_the_state_stays() {
    // `qp_state` is ignored if the mask does not name it.
    let attr = QpAttr { qkey: 7, ..good_attr(QpState::Err) };
    for state in [QpState::Init, QpState::Rts, QpState::Sqd] {
        assert_eq!(check(QpType::Ud, state, M::QKEY, &attr), Ok(state));
    }
    for from in [QpState::Rtr, QpState::Sqe] {
        let expected = ModifyError::InvalidTransition { qp_type: QpType::Ud, from, to: from };
        assert_eq!(check(QpType::Ud, from, M::QKEY, &attr), Err(expected));
    }
}

#[test]
fn a_wrong_current_state_is_told() {
    let attr = QpAttr { cur_qp_state: QpState::Sqe, ..good_attr(QpState::Rts) };
    let mask = M::STATE | M::CUR_STATE;
    assert_eq!(check(QpType::Uc, QpState::Sqe, mask, &attr), Ok(QpState::Rts));
    let expected = ModifyError::CurStateMismatch { assumed: QpState::Sqe, actual: QpState::Rts };
    assert_eq!(check(QpType::Uc, QpState::Rts, mask, &attr), Err(expected));
    // Values that the mask does not name are not checked.
    assert_eq!(check(QpType::Uc, QpState::Rts, M::STATE, &attr), Ok(QpState::Rts));
}

#[test]
fn undefined_bits_are_not_supported() {
    for bit in bits(QpAttrMask(!KNOWN_ATTRS.0)) {
        let verdict = check(QpType::Rc, QpState::Rts, M::STATE | bit, &good_attr(QpState::Err));
        let error = verdict.unwrap_err();
        assert_eq!(error, ModifyError::UnknownAttrs { bits: bit });
        assert_eq!(error.errno(), 95);
    }
    // The bits that are defined are those with a name.
    for bit in (0..u32::BITS).map(|bit| QpAttrMask(1 << bit)) {
        assert_eq!(bit.names().count() == 1, KNOWN_ATTRS.contains(bit), "{bit:?}");
    }
}

/// The message of a refused call.
fn message(qp_type: QpType, from: QpState, mask: QpAttrMask, attr: &QpAttr) -> String {
    let error = check(qp_type, from, mask, attr).unwrap_err();
    assert_eq!(error.errno(), 22, "{error}");
    error.to_string()
}

#[test]
fn messages_about_the_mask_teach() {
    let (rtr, rts) = (good_attr(QpState::Rtr), good_attr(QpState::Rts));
    let given = M::STATE | M::AV | M::PATH_MTU | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    assert_eq!(
        message(QpType::Rc, QpState::Init, given, &rtr),
        "INIT→RTR on an RC QP also needs IBV_QP_RQ_PSN, IBV_QP_DEST_QPN: set rq_psn, dest_qp_num \
         and these bits of attr_mask"
    );
    assert_eq!(
        message(QpType::Ud, QpState::Init, M::STATE | M::AV, &rtr),
        "INIT→RTR on a UD QP does not take IBV_QP_AV: clear these bits of attr_mask; it takes \
         IBV_QP_STATE, IBV_QP_PKEY_INDEX, IBV_QP_QKEY; a datagram's destination comes with its \
         work request"
    );
    assert_eq!(
        message(QpType::Uc, QpState::Init, M::SQ_PSN, &rts),
        "INIT→INIT on a UC QP does not take IBV_QP_SQ_PSN: clear these bits of attr_mask; it \
         takes IBV_QP_STATE, IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT; to leave INIT, \
         set IBV_QP_STATE and qp_state"
    );
}

#[test]
fn messages_about_states_teach() {
    let rts = good_attr(QpState::Rts);
    assert_eq!(
        message(QpType::Rc, QpState::Init, M::STATE, &rts),
        "an RC QP cannot go INIT→RTS: from INIT it can go to INIT, RTR, ERR, RESET"
    );
    assert_eq!(
        message(QpType::Ud, QpState::Rtr, M::QKEY, &rts),
        "a UD QP in RTR takes no change in place (IBV_QP_STATE is not in attr_mask, or qp_state \
         is RTR): from RTR it can go to RTS, ERR, RESET"
    );
    let stale = QpAttr { cur_qp_state: QpState::Sqd, ..rts };
    assert_eq!(
        message(QpType::Ud, QpState::Sqe, M::STATE | M::CUR_STATE, &stale),
        "cur_qp_state says SQD, but the QP is in SQE: query it, or leave IBV_QP_CUR_STATE out of \
         attr_mask"
    );
}

#[test]
fn the_table_prints() {
    assert_eq!(
        rule(QpType::Ud, QpState::Rtr, QpState::Rts).unwrap().to_string(),
        "UD   RTR→RTS   required: IBV_QP_SQ_PSN; optional: IBV_QP_CUR_STATE, IBV_QP_QKEY"
    );
    let to_err = TABLE.iter().find(|r| r.from == Origin::Any && r.to == QpState::Err).unwrap();
    assert_eq!(to_err.to_string(), "RC   any→ERR   required: none; optional: none");
    assert_eq!(AttrNames(M::AV | QpAttrMask(1 << 21)).to_string(), "IBV_QP_AV, bit 21");
}
