//! Code that several examples share.

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;

type Qp = <SoftNic as Backend>::Qp;

/// Moves a queue pair to RTS, connected to QP `remote` of this host, with remote write access.
pub fn connect(qp: &Qp, remote: u32) -> VerbsResult<()> {
    let mut attr = QpAttr { qp_state: QpState::Init, port_num: 1, ..QpAttr::default() };
    attr.qp_access_flags = Access::REMOTE_WRITE;
    let mask = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT;
    SoftNic::modify_qp(qp, &attr, mask | QpAttrMask::ACCESS_FLAGS)?;
    attr.qp_state = QpState::Rtr;
    attr.path_mtu = 5;
    attr.dest_qp_num = remote;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.dlid = rdmalab_wire::ids::Lid(1);
    attr.ah_attr.port_num = 1;
    let rtr = QpAttrMask::STATE | QpAttrMask::AV | QpAttrMask::PATH_MTU | QpAttrMask::DEST_QPN;
    let rtr = rtr | QpAttrMask::RQ_PSN | QpAttrMask::MAX_DEST_RD_ATOMIC;
    SoftNic::modify_qp(qp, &attr, rtr | QpAttrMask::MIN_RNR_TIMER)?;
    attr.qp_state = QpState::Rts;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    let rts = QpAttrMask::STATE | QpAttrMask::TIMEOUT | QpAttrMask::RETRY_CNT;
    let rts = rts | QpAttrMask::RNR_RETRY | QpAttrMask::SQ_PSN | QpAttrMask::MAX_QP_RD_ATOMIC;
    SoftNic::modify_qp(qp, &attr, rts).map(drop)
}
