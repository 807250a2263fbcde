//! Values: the bounds of each member, the port of the path, and what is not supported.

use super::*;
use crate::backend::VerbsError;

/// A member to set in a [`QpAttr`].
type Setter = fn(&mut QpAttr, u32);

/// Every checked member: its bit, its setter, its smallest and largest value under [`LIMITS`], and
/// the largest value that the member can hold.
const RANGES: [(QpAttrMask, Setter, u32, u32, u32); 15] = [
    (M::PKEY_INDEX, |a, v| a.pkey_index = v as u16, 0, 2, 0xffff),
    (M::PORT, |a, v| a.port_num = v as u8, 1, 2, 255),
    (M::AV, |a, v| a.ah_attr.port_num = v as u8, 1, 2, 255),
    (M::AV, |a, v| a.ah_attr.sl = v as u8, 0, 15, 255),
    (M::AV, set_sgid_index, 0, 1, 255),
    (M::PATH_MTU, |a, v| a.path_mtu = v, 1, 4, u32::MAX),
    (M::TIMEOUT, |a, v| a.timeout = v as u8, 0, 31, 255),
    (M::RETRY_CNT, |a, v| a.retry_cnt = v as u8, 0, 7, 255),
    (M::RNR_RETRY, |a, v| a.rnr_retry = v as u8, 0, 7, 255),
    (M::RQ_PSN, |a, v| a.rq_psn = v, 0, 0xff_ffff, u32::MAX),
    (M::MAX_QP_RD_ATOMIC, |a, v| a.max_rd_atomic = v as u8, 0, 16, 255),
    (M::MIN_RNR_TIMER, |a, v| a.min_rnr_timer = v as u8, 0, 31, 255),
    (M::SQ_PSN, |a, v| a.sq_psn = v, 0, 0xff_ffff, u32::MAX),
    (M::MAX_DEST_RD_ATOMIC, |a, v| a.max_dest_rd_atomic = v as u8, 0, 12, 255),
    (M::DEST_QPN, |a, v| a.dest_qp_num = v, 0, 0xff_ffff, u32::MAX),
];

fn set_sgid_index(attr: &mut QpAttr, value: u32) {
    attr.ah_attr.is_global = true;
    attr.ah_attr.sgid_index = value as u8;
}

#[test]
fn values_are_checked_at_both_ends() {
    for (bit, set, min, max, largest) in RANGES {
        // Every transition that takes the attribute checks it.
        each_transition(|rule, from| {
            if !rule.allowed().contains(bit) {
                return;
            }
            let mask = rule.required | M::STATE | bit;
            let verdict = |value: u32| {
                let mut attr = attr_of(rule, from);
                set(&mut attr, value);
                check(rule.qp_type, from, mask, &attr)
            };
            for value in [min, max] {
                assert_eq!(verdict(value), Ok(rule.to), "{rule}: {bit:?} {value}");
            }
            for bad in [min.checked_sub(1), Some(max + 1), Some(largest)].into_iter().flatten() {
                match verdict(bad) {
                    Err(ModifyError::OutOfRange { attr, value, min: low, max: high, .. }) => {
                        assert_eq!((attr, value, low, high), (bit, bad, min, max), "{rule}");
                    }
                    other => panic!("{rule}: {bit:?} {bad} gave {other:?}"),
                }
            }
        });
    }
}

#[test]
fn values_outside_the_mask_are_not_looked_at() {
    let mut attr = good_attr(QpState::Err);
    for (_, set, _, _, largest) in RANGES {
        set(&mut attr, largest);
    }
    attr.path_mig_state = 3;
    assert_eq!(check(QpType::Rc, QpState::Rts, M::STATE, &attr), Ok(QpState::Err));
}

#[test]
fn a_source_gid_counts_only_with_a_grh() {
    let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let mut attr = good_attr(QpState::Rtr);
    attr.ah_attr.sgid_index = 200;
    assert_eq!(check(QpType::Uc, QpState::Init, mask, &attr), Ok(QpState::Rtr));
    attr.ah_attr.is_global = true;
    assert!(check(QpType::Uc, QpState::Init, mask, &attr).is_err());
}

#[test]
fn an_empty_table_has_no_index() {
    let limits = Limits { gid_table_len: 0, ..LIMITS };
    let mask = M::AV;
    let mut attr = good_attr(QpState::Sqd);
    attr.ah_attr.is_global = true;
    let error = check_modify(QpType::Uc, QpState::Sqd, mask, &attr, &limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ah_attr.grh.sgid_index is 0, and this device allows none (IBV_QP_AV)"
    );
}

#[test]
fn path_migration_is_not_supported() {
    let rts = QpState::Rts;
    let refused = |attr| Err(ModifyError::PathMigration { attr });
    let mut attr = good_attr(rts);
    assert_eq!(check(QpType::Rc, rts, M::ALT_PATH, &attr), refused(M::ALT_PATH));
    // A QP without an alternate path is always MIGRATED; REARM and ARMED are refused.
    assert_eq!(check(QpType::Rc, rts, M::PATH_MIG_STATE, &attr), Ok(rts));
    for state in [1, 2, u32::MAX] {
        attr.path_mig_state = state;
        let verdict = check(QpType::Rc, rts, M::PATH_MIG_STATE, &attr);
        assert_eq!(verdict, refused(M::PATH_MIG_STATE));
        assert_eq!(verdict.unwrap_err().errno(), 95);
    }
}

#[test]
fn the_path_leaves_by_the_port_of_the_qp() {
    let attr = |port_num, path_port| QpAttr {
        port_num,
        ah_attr: AhAttr { port_num: path_port, ..AhAttr::default() },
        ..QpAttr::default()
    };
    let mismatch = |qp_port, path_port| Err(ModifyError::PathPortMismatch { qp_port, path_port });
    let (init, sqd) = (QpState::Init, QpState::Sqd);
    assert_eq!(check_path_port(init, 1, M::STATE | M::AV, &attr(9, 1)), Ok(()));
    assert_eq!(check_path_port(init, 1, M::STATE | M::AV, &attr(9, 2)), mismatch(1, 2));
    assert_eq!(check_path_port(init, 1, M::STATE | M::PORT, &attr(2, 9)), Ok(()));
    assert_eq!(check_path_port(sqd, 1, M::AV, &attr(9, 2)), Ok(()));
    assert_eq!(check_path_port(sqd, 1, M::AV | M::PORT, &attr(2, 2)), Ok(()));
    assert_eq!(check_path_port(sqd, 1, M::AV | M::PORT, &attr(1, 2)), mismatch(1, 2));
}

#[test]
fn messages_about_values_teach() {
    let mut attr = good_attr(QpState::Rtr);
    attr.path_mtu = 5;
    let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    assert_eq!(
        message(QpType::Uc, QpState::Init, mask, &attr),
        "path_mtu is 5, must be 1 ..= 4 (IBV_QP_PATH_MTU: an enum ibv_mtu, 1 = 256 B ... 5 = 4096 \
         B, up to the port's active_mtu)"
    );
    attr.path_mtu = 1;
    attr.ah_attr.port_num = 0;
    assert_eq!(
        message(QpType::Uc, QpState::Init, mask, &attr),
        "ah_attr.port_num is 0, must be 1 ..= 2 (IBV_QP_AV)"
    );
    let mismatch = ModifyError::PathPortMismatch { qp_port: 1, path_port: 2 };
    assert_eq!(
        mismatch.to_string(),
        "ah_attr.port_num is 2, but the QP belongs to port 1: set ah_attr.port_num to 1"
    );
}

#[test]
fn a_verb_reports_the_number_and_the_sentence() {
    let error = ModifyError::PathPortMismatch { qp_port: 1, path_port: 2 };
    assert_eq!(VerbsError::from(error), VerbsError::invalid(error.to_string()));
    let error = ModifyError::PathMigration { attr: M::ALT_PATH };
    assert_eq!(VerbsError::from(error), VerbsError::unsupported(error.to_string()));
}

#[test]
fn no_port_raises_the_path_mtu_beyond_4096() {
    let mut attr = good_attr(QpState::Rtr);
    let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let limits = Limits { active_mtu: 9, ..LIMITS };
    let mut with_mtu = |path_mtu| {
        attr.path_mtu = path_mtu;
        check_modify(QpType::Uc, QpState::Init, mask, &attr, &limits)
    };
    assert_eq!(with_mtu(5), Ok(QpState::Rtr));
    assert!(matches!(with_mtu(6), Err(ModifyError::OutOfRange { max: 5, .. })));
}
