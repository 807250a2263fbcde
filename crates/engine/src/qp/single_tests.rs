//! The fast paths decide and change exactly what the general paths do.

use super::*;
use crate::backend::{QpInit, RecvWr, SendWr};
use crate::mr::{Backing, KeyKind};
use crate::qp::recv_queue::RecvQueue;
use crate::train::{Fold, TrainFlags, TrainKind};
use rdmalab_random::Random;
use rdmalab_wire::ids::{Psn, RKey};

/// A driver that only records the engine's calls, and has a shared receive queue.
#[derive(Default)]
pub(super) struct Recorder {
    calls: Vec<String>,
    shared: Option<RecvQueue>,
    /// How many RNR NAKs for page faults are held back; `None`: they leave at once.
    pub(super) held_naks: Option<u64>,
}

impl Env for Recorder {
    fn key(&self, key: u32) -> Option<KeyEntry> {
        Some(KeyEntry {
            key,
            kind: KeyKind::Region,
            iova: 0,
            length: 1 << 30,
            host_delta: 0,
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            pd: PdId(1),
            qpn: Qpn::new(0),
            on_demand: false,
            backing: Backing::default(),
        })
    }
    fn take_shared(&mut self, held: &mut HeldRecv) -> TakeRecv {
        self.shared.as_mut().map_or(TakeRecv::Empty, |queue| queue.take(held))
    }
    fn send_completion(&mut self, wc: Wc, sq_free_to: u32) {
        self.calls.push(format!("{wc:?} {sq_free_to}"));
    }
    fn recv_completion(&mut self, wc: Wc, solicited: bool) {
        self.calls.push(format!("{wc:?} {solicited}"));
    }
    fn invalidate(&mut self, _: u32) -> bool {
        true
    }
    fn event(&mut self, event: AsyncEventType) {
        self.calls.push(format!("{event:?}"));
    }
    fn hold_fault_nak(&mut self, _: bool) -> Option<u64> {
        let held = self.held_naks.as_mut()?;
        *held += 1;
        Some(*held)
    }
}

pub(super) fn qp(with_srq: bool) -> Qp {
    let cap = QpCap {
        max_send_wr: 16,
        max_recv_wr: 8,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline_data: 64,
    };
    let (send_cq, recv_cq, srq, cookie) = (&(), &(), with_srq.then_some(&()), 0);
    let (qp_type, sq_sig_all) = (QpType::Rc, false);
    let init = QpInit { qp_type, send_cq, recv_cq, srq, cap, sq_sig_all, cookie };
    let mut qp = Qp::new(Qpn::new(5), PdId(1), &init, PathMtu::Mtu256);
    qp.remote_qpn = Qpn::new(6);
    qp.state = QpState::Rts;
    qp.established = true;
    (qp.attr.max_rd_atomic, qp.attr.retry_cnt, qp.attr.rnr_retry) = (2, 7, 7);
    qp.req.start(Psn::new(0xff_fff0), 7, 7);
    qp.attr.qp_access_flags = Access::REMOTE_WRITE;
    qp.attr.rq_psn = 0xff_ffe0;
    qp.start_responder();
    qp
}

/// The state of a QP without the receive WQE that it held last, whose content does not matter when
/// none is held.
fn state_of(qp: &Qp) -> String {
    let mut qp = qp.clone();
    qp.resp.held = HeldRecv::EMPTY;
    format!("{qp:?}")
}

fn send_one(qp: &mut Qp, random: &mut Random) {
    const OPCODES: [WrOpcode; 9] = [
        WrOpcode::Send,
        WrOpcode::Send,
        WrOpcode::Send,
        WrOpcode::Send,
        WrOpcode::Send,
        WrOpcode::SendImm,
        WrOpcode::SendInv,
        WrOpcode::Write,
        WrOpcode::Read,
    ];
    let opcode = OPCODES[random.below(9) as usize];
    let mut flags = SendFlags::NONE;
    for (flag, odds) in [
        (SendFlags::SIGNALED, 8),
        (SendFlags::SOLICITED, 3),
        (SendFlags::FENCE, 9),
        (SendFlags::INLINE, 2),
    ] {
        if random.below(odds) == 0 && (flag != SendFlags::INLINE || opcode != WrOpcode::Read) {
            flags = flags | flag;
        }
    }
    let sge = |length| Sge { addr: 1, length, lkey: 2 };
    let most = [40, 300][random.below(2) as usize];
    let sges = [sge(random.below(most) as u32), sge(random.below(2) as u32 * 3)];
    let wr = SendWr {
        wr_id: random.below(1000),
        opcode,
        flags,
        imm_or_rkey: 77,
        sges: &sges[..1 + random.below(2) as usize],
        remote_addr: 64,
        rkey: 9,
        compare_add: 0,
        swap: 0,
        ud: None,
        bind: None,
    };
    let freed = qp.sq.oldest;
    let _ = qp.post_send(&wr, freed);
    // Now and then the adapter reads a request only with the next one.
    if !wr.wr_id.is_multiple_of(10) {
        qp.fetch_sends();
    }
}

/// Answers what was sent, as a peer may: acknowledgements, and now and then a NAK.
fn answer(qp: &mut Qp, random: &mut Random, recorder: &mut Recorder) {
    let in_flight = qp.req.psn_limit.distance_from(qp.req.acked_psn) as u64;
    if in_flight == 0 {
        return;
    }
    let psn = qp.req.acked_psn.add(random.below(in_flight) as u32);
    let mut ack = Train::new(TrainKind::Ack, qp.qpn, qp.remote_qpn, psn);
    ack.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST);
    match random.below(40) {
        0 => ack.syndrome = rdmalab_wire::aeth::Syndrome::from_byte(0x2c).unwrap(),
        1 => ack.syndrome = rdmalab_wire::aeth::Syndrome::from_byte(0x60).unwrap(),
        _ => {}
    }
    qp.accept(&ack, recorder);
    if qp.req.is_paused() && random.below(2) == 0 {
        qp.on_timer(u64::MAX, recorder);
    }
}

#[test]
fn a_single_send_is_what_plan_would_send() {
    let (mut taken, mut left) = (0, 0);
    for seed in 0..300 {
        let (mut random, mut qp, mut recorder) =
            (Random::new(seed), qp(false), Recorder::default());
        let max_bytes = [32, qp.mtu.bytes()][seed as usize % 2];
        for _ in 0..200 {
            if random.below(3) > 0 {
                send_one(&mut qp, &mut random);
            }
            if random.below(4) == 0 {
                answer(&mut qp, &mut random, &mut recorder);
            }
            if qp.state != QpState::Rts {
                break;
            }
            let mut twin = qp.clone();
            let planned = twin.plan(1024);
            let Some(single) = qp.plan_single(max_bytes) else {
                left += u32::from(!matches!(planned, Plan::Idle));
                qp = twin;
                continue;
            };
            let Plan::Send { train, position, offset: 0 } = planned else {
                panic!("seed {seed}: a single send, but plan says {planned:?}");
            };
            let (src_qpn, dst_qpn, _) = single.ends();
            let mut expected = Train::new(TrainKind::Send, dst_qpn, src_qpn, single.psn);
            expected.flags = single.flags;
            expected.payload_bytes = single.wqe().length;
            expected.imm_or_rkey = single.wqe().imm_or_rkey;
            // Fields that a SEND does not carry.
            (expected.remote_addr, expected.rkey) = (train.remote_addr, train.rkey);
            expected.dma_bytes = train.dma_bytes;
            assert_eq!(train, expected, "seed {seed}");
            assert_eq!(train.fold, Fold::default());
            single.retire();
            twin.retire_sent(position, true, Ok(()), &mut Recorder::default());
            assert_eq!(state_of(&qp), state_of(&twin), "seed {seed}");
            taken += 1;
        }
    }
    assert!(taken > 1000 && left > 1000, "{taken} singles, {left} others");
}

#[test]
fn a_plain_acknowledgement_ends_as_accept_does() {
    let (mut taken, mut left) = (0, 0);
    for seed in 0..300 {
        let (mut random, mut qp, mut recorder) =
            (Random::new(seed), qp(false), Recorder::default());
        for _ in 0..200 {
            send_one(&mut qp, &mut random);
            while let Plan::Send { train, position, .. } = qp.plan(1024) {
                let is_last = train.flags.has(TrainFlags::LAST);
                qp.retire_sent(position, is_last, Ok(()), &mut recorder);
            }
            if random.below(5) == 0 {
                answer(&mut qp, &mut random, &mut recorder);
            }
            let psn = qp.req.acked_psn.add(random.below(12) as u32).sub(2);
            let mut ack = Train::new(TrainKind::Ack, qp.qpn, qp.remote_qpn, psn);
            ack.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST);
            let (mut twin, before) = (qp.clone(), state_of(&qp));
            let [mut general, mut short] = [(); 2].map(|()| Recorder::default());
            let accepted = twin.accept(&ack, &mut general);
            if qp.accept_plain_ack(psn, &mut short) {
                assert!(matches!(accepted, Accept::Done), "seed {seed}: {accepted:?}");
                assert_eq!(state_of(&qp), state_of(&twin), "seed {seed}");
                assert_eq!(short.calls, general.calls, "seed {seed}");
                taken += 1;
            } else {
                assert_eq!((state_of(&qp), short.calls.len()), (before, 0), "seed {seed}");
                left += 1;
            }
            qp = twin;
            if qp.state != QpState::Rts {
                break;
            }
        }
    }
    assert!(taken > 1000 && left > 1000, "{taken} plain acknowledgements, {left} others");
}

/// A train that may be the expected SEND, or differ from it in one thing.
fn arrival(qp: &Qp, random: &mut Random) -> Train {
    let mut psn = qp.expected_psn();
    let mut flags = TrainFlags::FIRST | TrainFlags::LAST;
    let mut kind = TrainKind::Send;
    let (mut bytes, mut fold) = (1 + random.below(40) as u32, Fold::default());
    for flag in [TrainFlags::ACK_REQ, TrainFlags::SOLICITED, TrainFlags::IMM] {
        if random.below(2) == 0 {
            flags |= flag;
        }
    }
    match random.below(60) {
        0 => psn = psn.add(random.below(3) as u32),
        1 => psn = psn.sub(random.below(3) as u32),
        2 => flags = (flags & !TrainFlags::IMM) | TrainFlags::INV,
        3 => (flags, bytes) = (TrainFlags::FIRST, 256),
        4 => flags &= !TrainFlags::FIRST,
        5 => (kind, flags, bytes) = (TrainKind::Write, TrainFlags::FIRST, 256),
        6..=15 => bytes = random.below(300) as u32,
        16 => bytes = 256,
        17 => fold = Fold { packets: 1, messages: 1 },
        _ => {}
    }
    let mut train = Train::new(kind, qp.qpn, qp.remote_qpn, psn);
    train.flags = TrainFlags(flags);
    train.payload_bytes = bytes;
    train.imm_or_rkey = 0x0a0b_0c0d;
    train.fold = fold;
    (train.rkey, train.dma_bytes) = (RKey(9), 1000);
    train
}

/// Posts receives to the QP, or to its shared queue.
fn post_receives(qp: &mut Qp, shared: &mut Option<RecvQueue>, random: &mut Random) {
    for wr_id in 0..random.below(3) {
        let sge = Sge { addr: 64, length: 10 + random.below(300) as u32, lkey: 3 };
        let sges = [sge, sge];
        let wr = RecvWr { wr_id, sges: &sges[..1 + (random.below(5) == 0) as usize] };
        let _ = match shared {
            Some(queue) => queue.push(&wr),
            None => qp.post_recv(&wr),
        };
    }
    if random.below(5) > 0 {
        qp.fetch_receives();
        shared.iter_mut().for_each(RecvQueue::fetch_all);
    }
}

/// Takes a train by the general path.
fn accept(qp: &mut Qp, train: &Train, env: &mut Recorder) -> Accept {
    let accepted = qp.accept(train, env);
    if let Accept::Place(placement) = &accepted {
        qp.retire_request(train, placement, Ok(()), env);
    }
    accepted
}

#[test]
fn a_single_receive_ends_as_accept_and_retire_do() {
    let (mut taken, mut left) = ([0, 0], 0);
    for seed in 0..1200 {
        let with_srq = seed % 2 == 1;
        let (mut random, mut qp) = (Random::new(seed), qp(with_srq));
        let mut shared = with_srq.then(|| RecvQueue::new(PdId(2), 8, 2));
        for _ in 0..100 {
            post_receives(&mut qp, &mut shared, &mut random);
            if random.below(3) == 0 {
                while qp.next_response(1024, &mut Recorder::default()).is_some() {}
            }
            let mut twin = qp.clone();
            let [mut general, mut short] =
                [(); 2].map(|()| Recorder { shared: shared.clone(), ..Recorder::default() });
            let train = arrival(&qp, &mut random);
            let accepted = accept(&mut twin, &train, &mut general);
            // Now and then the payload cannot be placed. The general path goes on then, too.
            let is_placed = random.below(10) > 0;
            if let Some(single) = qp.accept_single_train(&train, &mut short).filter(|_| is_placed) {
                let (target, pd) = (single.target, single.pd);
                single.retire(&mut short);
                let Accept::Place(placement) = accepted else {
                    panic!("seed {seed}: a single receive, but accept says {accepted:?}");
                };
                assert!(matches!(placement.target, PlacementTarget::Receive { offset: 0 }));
                let held = twin.held_recv();
                let [sge] = held.sges() else { panic!("seed {seed}: {held:?}") };
                assert_eq!((target.addr, target.lkey, pd), (sge.addr, sge.lkey, held.pd));
                assert_eq!(target.length, placement.bytes, "seed {seed}");
                taken[usize::from(with_srq)] += 1;
            } else {
                // It may have taken a receive from the shared queue. The general path goes on.
                let again = accept(&mut qp, &train, &mut short);
                assert_eq!(format!("{again:?}"), format!("{accepted:?}"), "seed {seed}");
                left += 1;
            }
            assert_eq!(short.calls, general.calls, "seed {seed}");
            assert_eq!(state_of(&qp), state_of(&twin), "seed {seed}");
            let waiting = |recorder: &Recorder| format!("{:?}", recorder.shared);
            assert_eq!(waiting(&short), waiting(&general), "seed {seed}");
            shared = short.shared;
            if qp.state != QpState::Rts {
                break;
            }
        }
    }
    assert!(taken.iter().all(|taken| *taken > 1000) && left > 1000, "{taken:?}, {left} others");
}
