//! Posted work requests that the adapter has not read yet. A message that needs such a receive
//! stalls and gets no RNR NAK; such a send is not planned.

use rdmalab_engine::backend::{QpInit, RecvWr, SendWr};
use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::qp::attr::Limits;
use rdmalab_engine::qp::recv_queue::{HeldRecv, SharedRecvQueue, TakeRecv};
use rdmalab_engine::qp::{Accept, Env, Plan, Qp};
use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_engine::vocab::*;
use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::ids::{PathMtu, Psn, Qpn};

const SGE: Sge = Sge { addr: 0x1000, length: 64, lkey: 1 };

/// A driver with a shared receive queue, which collects completions.
struct Driver {
    srq: SharedRecvQueue,
    sent: Vec<(u64, WcStatus)>,
    received: Vec<(u64, WcStatus)>,
}

impl Driver {
    fn new() -> Driver {
        Driver {
            srq: SharedRecvQueue::new(PdId(1), 4, 1, 0),
            sent: Vec::new(),
            received: Vec::new(),
        }
    }
}

impl Env for Driver {
    fn key(&self, _: u32) -> Option<KeyEntry> {
        None
    }
    fn take_shared(&mut self, held: &mut HeldRecv) -> TakeRecv {
        self.srq.take(held).0
    }
    fn send_completion(&mut self, wc: Wc, _: u32) {
        self.sent.push((wc.wr_id, wc.status));
    }
    fn recv_completion(&mut self, wc: Wc, _: bool) {
        self.received.push((wc.wr_id, wc.status));
    }
    fn invalidate(&mut self, _: u32) -> bool {
        false
    }
    fn event(&mut self, _: AsyncEventType) {}
}

/// A reliable connection in RTS.
fn connected(with_srq: bool, driver: &mut Driver) -> Qp {
    use QpAttrMask as M;
    let cap = QpCap {
        max_send_wr: 4,
        max_recv_wr: 4,
        max_send_sge: 1,
        max_recv_sge: 1,
        ..QpCap::default()
    };
    let init = QpInit::<(), ()> {
        qp_type: QpType::Rc,
        send_cq: &(),
        recv_cq: &(),
        srq: with_srq.then_some(&()),
        cap,
        sq_sig_all: true,
        cookie: 0,
    };
    let mut qp = Qp::new(Qpn::new(5), PdId(1), &init, PathMtu::Mtu1024);
    let limits = Limits {
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        ports: 1,
        pkey_table_len: 1,
        gid_table_len: 2,
        active_mtu: 5,
    };
    let mut attr = QpAttr {
        port_num: 1,
        path_mtu: PathMtu::Mtu1024 as u32,
        dest_qp_num: 6,
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    };
    attr.ah_attr.port_num = 1;
    let to_rtr = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let to_rts = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
    for (state, mask) in [
        (QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS),
        (QpState::Rtr, to_rtr | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER),
        (QpState::Rts, to_rts),
    ] {
        attr.qp_state = state;
        qp.modify(&attr, M::STATE | mask, &limits, driver).expect("a legal transition");
    }
    qp
}

/// The peer's next SEND: one packet of 8 bytes that requests an acknowledgement.
fn arriving(psn: u32) -> Train {
    let mut train = Train::new(TrainKind::Send, Qpn::new(5), Qpn::new(6), Psn::new(psn));
    train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST | TrainFlags::ACK_REQ);
    train.payload_bytes = 8;
    train
}

fn next_syndrome(qp: &mut Qp, driver: &mut Driver) -> Option<Syndrome> {
    qp.next_response(1024, driver).map(|response| response.train.syndrome)
}

#[test]
fn a_message_stalls_while_the_receive_that_is_posted_was_not_fetched() {
    for with_srq in [false, true] {
        let mut driver = Driver::new();
        let mut qp = connected(with_srq, &mut driver);
        for wr_id in [7, 8] {
            let wr = RecvWr { wr_id, sges: &[SGE] };
            match with_srq {
                true => driver.srq.queue.push(&wr).unwrap(),
                false => qp.post_recv(&wr).unwrap(),
            }
        }
        let train = arriving(0);
        for _ in 0..2 {
            assert!(matches!(qp.accept(&train, &mut driver), Accept::Stall));
            assert_eq!(next_syndrome(&mut qp, &mut driver), None, "a stall is not answered");
        }
        let queue = qp.rq.as_mut().unwrap_or(&mut driver.srq.queue);
        queue.fetch(1);
        let Accept::Place(placement) = qp.accept(&train, &mut driver) else {
            panic!("the receive was fetched");
        };
        qp.retire_request(&train, &placement, Ok(()), &mut driver);
        assert_eq!(driver.received, [(7, WcStatus::Success)]);
        assert_eq!(next_syndrome(&mut qp, &mut driver), Some(Syndrome::ACK));
        assert!(matches!(qp.accept(&arriving(1), &mut driver), Accept::Stall), "one was fetched");
    }
}

#[test]
fn a_message_meets_rnr_when_nothing_is_posted() {
    for with_srq in [false, true] {
        let mut driver = Driver::new();
        let mut qp = connected(with_srq, &mut driver);
        assert!(matches!(qp.accept(&arriving(0), &mut driver), Accept::Done));
        let syndrome = next_syndrome(&mut qp, &mut driver);
        assert!(matches!(syndrome, Some(Syndrome::RnrNak(_))), "{syndrome:?}");
    }
}

/// Posts a SEND as a driver does; `wr_id` is its position.
fn post(qp: &mut Qp, position: u32) {
    let wr = SendWr {
        wr_id: position as u64,
        opcode: WrOpcode::Send,
        flags: SendFlags::NONE,
        imm_or_rkey: 0,
        sges: &[SGE],
        remote_addr: 0,
        rkey: 0,
        compare_add: 0,
        swap: 0,
        ud: None,
        bind: None,
    };
    assert_eq!(qp.post_send(&wr, 0), Ok(position));
}

#[test]
fn a_send_is_planned_when_it_was_fetched() {
    let mut driver = Driver::new();
    let mut qp = connected(false, &mut driver);
    post(&mut qp, 0);
    post(&mut qp, 1);
    assert!(!qp.may_send());
    assert!(matches!(qp.plan(4096), Plan::Idle));
    assert!(qp.plan_single(64).is_none() && qp.lane_candidate().is_none());
    assert!(!qp.send_idle(), "it is posted all the same");

    qp.sq.fetch(1);
    assert!(matches!(qp.plan(4096), Plan::Send { position: 0, .. }));
    qp.retire_sent(0, true, Ok(()), &mut driver);
    assert!(matches!(qp.plan(4096), Plan::Idle), "the second was not fetched");

    qp.fetch_sends();
    let single = qp.plan_single(64).expect("a small SEND");
    assert_eq!(single.wqe().wr_id, 1);
}

#[test]
fn an_error_flushes_what_was_not_fetched() {
    let mut driver = Driver::new();
    let mut qp = connected(false, &mut driver);
    post(&mut qp, 0);
    qp.fetch_sends();
    post(&mut qp, 1);
    qp.post_recv(&RecvWr { wr_id: 9, sges: &[SGE] }).unwrap();
    qp.enter_error(&mut driver);
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(driver.sent, [(0, flushed), (1, flushed)]);
    assert_eq!(driver.received, [(9, flushed)]);
    assert_eq!((qp.sq.unfetched(), qp.send_idle()), (0, true));
}

#[test]
fn a_batch_is_taken_back_before_it_is_fetched() {
    let mut driver = Driver::new();
    let mut qp = connected(false, &mut driver);
    post(&mut qp, 0);
    qp.fetch_sends();
    post(&mut qp, 1);
    post(&mut qp, 2);
    qp.sq.unpush_to(1);
    assert_eq!((qp.sq.posted, qp.sq.fetched(), qp.sq.unfetched()), (1, 1, 0));
    post(&mut qp, 1);
}
