//! What the destruction of a queue pair waits for.

use std::sync::mpsc;
use std::time::Duration;

use rdmalab_wire::ids::Lid;

use super::*;
use crate::SoftNic;

/// How long a destruction may take before the test says that it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

const LIMITS: QpCap =
    QpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };

fn make(pd: &Pd, cq: &Cq) -> (SoftQp, Qpn) {
    let qp_type = QpType::Uc;
    let (send_cq, recv_cq, cap) = (cq, cq, LIMITS);
    let init = QpInit { qp_type, send_cq, recv_cq, srq: None, cap, sq_sig_all: false, cookie: 1 };
    let (qp, qpn, _) = SoftNic::create_qp(pd, init).expect("a QP");
    (qp, qpn)
}

fn connect(qp: &SoftQp, to: Qpn) {
    use QpAttrMask as M;
    let init = QpAttr { qp_state: QpState::Init, port_num: 1, ..QpAttr::default() };
    let mask = M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS;
    SoftNic::modify_qp(qp, &init, mask).expect("INIT");
    let ah_attr = AhAttr { dlid: Lid(crate::device::lid_of(0)), port_num: 1, ..AhAttr::default() };
    let rtr = QpAttr {
        qp_state: QpState::Rtr,
        path_mtu: 3,
        dest_qp_num: to.get(),
        ah_attr,
        ..QpAttr::default()
    };
    let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    SoftNic::modify_qp(qp, &rtr, mask).expect("RTR");
}

/// A thread that copies for one queue pair holds its lock. Destroying another one, which is
/// connected within the process, must not wait for it: only for the QP at the other end.
#[test]
fn only_the_other_end_is_waited_for() {
    let context = SoftNic.open(0).expect("a device");
    let pd = SoftNic::alloc_pd(&context).expect("a PD");
    let (timestamps, ignore_overrun) = (false, false);
    let init = CqInit { cqe: 16, channel: None, timestamps, ignore_overrun, cookie: 1 };
    let (cq, _) = SoftNic::create_cq(&context, init).expect("a CQ");
    let [(first, first_qpn), (second, second_qpn), (other, _)] = [(); 3].map(|()| make(&pd, &cq));
    connect(&first, second_qpn);
    connect(&second, first_qpn);
    let destroy_in_thread = |qp: SoftQp| {
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || done.send(SoftNic::destroy_qp(&qp).is_ok()));
        ended
    };

    let busy = other.0.inner.lock();
    let ended = destroy_in_thread(first);
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(true), "it waits for a QP that is not its peer");
    drop(busy);

    // The first is gone; a QP at its other end would be waited for.
    let (third, third_qpn) = make(&pd, &cq);
    let (fourth, fourth_qpn) = make(&pd, &cq);
    connect(&third, fourth_qpn);
    connect(&fourth, third_qpn);
    let busy = third.0.inner.lock();
    let ended = destroy_in_thread(fourth);
    let waits = ended.recv_timeout(Duration::from_millis(50));
    assert_eq!(waits, Err(mpsc::RecvTimeoutError::Timeout), "the peer may be copying");
    drop(busy);
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(true));
}
