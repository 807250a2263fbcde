//! What the destruction of a queue pair waits for, and the withdrawal of memory.

use std::sync::mpsc;
use std::time::Duration;

use rdmalab_testing::WaitLimit;
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

/// A context with a PD and a CQ.
fn open() -> (Pd, Cq) {
    let context = SoftNic.open(0).expect("a device");
    let pd = SoftNic::alloc_pd(&context).expect("a PD");
    let (timestamps, ignore_overrun) = (false, false);
    let init = CqInit { cqe: 16, channel: None, timestamps, ignore_overrun, cookie: 1 };
    let (cq, _) = SoftNic::create_cq(&context, init).expect("a CQ");
    (pd, cq)
}

/// A thread that copies for one queue pair holds its lock. Destroying another one, which is
/// connected within the process, must not wait for it: only for the QP at the other end.
#[test]
fn only_the_other_end_is_waited_for() {
    let (pd, cq) = open();
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
    assert_eq!(
        WaitLimit::of(PATIENCE).receive(&ended),
        Ok(true),
        "it waits for a QP that is not its peer"
    );
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
    assert_eq!(WaitLimit::of(PATIENCE).receive(&ended), Ok(true));
}

/// After a RESET that gave up waiting, the queue pair names no peer any more, but a process may
/// still be stopped in its copy.
#[test]
fn an_initiator_that_a_reset_gave_up_on_is_waited_for() {
    let (pd, cq) = open();
    let (qp, qpn) = make(&pd, &cq);
    let waits = |qp: &SoftQp| {
        let mut guard = qp.0.inner.lock();
        let inner = alive(&mut guard, qp.1).expect("it lives");
        matches!(Initiator::of(inner), Initiator::Elsewhere)
    };
    assert!(!waits(&qp), "it was never connected");
    connect(&qp, qpn);
    {
        let mut guard = qp.0.inner.lock();
        let inner = alive(&mut guard, qp.1).expect("it lives");
        let reset = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
        let next = inner.qp.modify(&reset, QpAttrMask::STATE, &modify_limits(), &mut inner.links);
        assert_eq!(next, Ok(QpState::Reset));
    }
    assert!(waits(&qp), "nobody has waited yet");
    let reset = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
    SoftNic::modify_qp(&qp, &reset, QpAttrMask::STATE).expect("RESET");
    assert!(!waits(&qp), "RESET has waited");
    SoftNic::destroy_qp(&qp).expect("it is destroyed");
}

/// Withdrawing memory locks the queue pairs that are in use at that moment, not all of the process.
#[test]
fn a_deregistration_locks_busy_queue_pairs_only() {
    const COUNT: usize = 200;
    let (pd, cq) = open();
    let process = pd.1;
    let qps: Vec<SoftQp> = (0..COUNT).map(|_| make(&pd, &cq).0).collect();
    let is_ours = |object: &&QpObject| qps.iter().any(|qp| qp.0.index == object.index);
    let ours_busy = || Copiers::of(process).busy_qps().filter(is_ours).count();
    std::thread::scope(|scope| {
        assert_eq!(scope.spawn(ours_busy).join().expect("it counts"), 0);
        let (first, last) = (qps[0].0.inner.lock(), qps[COUNT - 1].0.inner.lock());
        assert_eq!(scope.spawn(ours_busy).join().expect("it counts"), 2);
        drop((first, last));
    });

    let mut memory = [0u8; 64];
    let (addr, bytes) = (memory.as_mut_ptr() as u64, memory.len() as u64);
    let (region, _) = SoftNic::reg_mr(&pd, addr, bytes, addr, Access::LOCAL_WRITE).expect("an MR");
    let busy = qps[0].0.inner.lock();
    let (done, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| done.send(SoftNic::dereg_mr(&region).is_ok()));
        let waits = ended.recv_timeout(Duration::from_millis(50));
        assert_eq!(waits, Err(mpsc::RecvTimeoutError::Timeout), "a thread may be copying");
        drop(busy);
        assert_eq!(WaitLimit::of(PATIENCE).receive(&ended), Ok(true));
    });
    for qp in &qps {
        SoftNic::destroy_qp(qp).expect("it is destroyed");
    }
}
