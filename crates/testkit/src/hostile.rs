//! Anything that a program, a ring or a network can do to a queue pair, in any order. Nothing may
//! panic, and the engine may grant no access outside the registered regions.
//!
//! The choices come from bytes, so that a fuzzer and a seeded test share this driver. It moves no
//! payload, so regions may be as large as an address space.

use crate::sim::{Deadlines, Device, LIMITS, PD};
use rdmalab_driver::timers;
use rdmalab_engine::backend::{MwBind, RecvWr, SendWr};
use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::qp::recv_queue::SharedRecvQueue;
use rdmalab_engine::qp::{
    Accept, AtomicJob, CopyError, Placement, PlacementTarget, Plan, Qp, Response, ResponsePlacement,
};
use rdmalab_engine::train::{Fold, Train, TrainFlags, TrainKind};
use rdmalab_engine::vocab::*;
use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::ids::{Msn, PathMtu, Psn, Qpn, RKey};

/// Choices, read from a byte string until it is used up.
struct Choices<'a> {
    bytes: &'a [u8],
}

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else {
            return 0;
        };
        self.bytes = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A number of any magnitude, often a small one or one just below a limit.
    fn number(&mut self) -> u32 {
        match self.byte() {
            0..=99 => self.byte() as u32,
            100..=149 => (self.byte() as u32) << (self.byte() % 25),
            150..=179 => (1u32 << (self.byte() % 32)).wrapping_sub(self.byte() as u32 % 3),
            180..=199 => u32::MAX - (self.byte() as u32 % 3),
            _ => self.word() & 0xffff,
        }
    }
}

/// A step whose first half is done and whose second half is not.
enum Half {
    Request(Train, Placement),
    Atomic(AtomicJob),
    Response(ResponsePlacement),
    Sent(u32, bool),
}

struct Hostile<'a> {
    choices: Choices<'a>,
    device: Device,
    halves: Vec<Half>,
    now_ns: u64,
    freed: u32,
    keys: Vec<u32>,
}

/// Where the granted regions lie.
const BASE: u64 = 1 << 40;

/// Plays the choices in `bytes` against one queue pair.
pub fn play(bytes: &[u8]) {
    let mut choices = Choices { bytes };
    let ty = [QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud][choices.byte() as usize % 4];
    let mtu = PathMtu::from_ibv(choices.byte() as u32 % 5 + 1).expect("a path MTU");
    let cap = QpCap {
        max_send_wr: choices.byte() as u32 % 9,
        max_recv_wr: choices.byte() as u32 % 9,
        max_send_sge: 3,
        max_recv_sge: 3,
        max_inline_data: 64,
    };
    let mut device = Device::new(0);
    let with_srq = choices.byte() > 200;
    device.srq = with_srq.then(|| SharedRecvQueue::new(PD, 8, 3, 2));
    device.create_qp(ty, cap, choices.byte() > 128, with_srq, mtu);
    let rights = Access(0xf);
    let keys = vec![
        device.register(BASE, 1 << 33, rights),
        device.register(BASE + 5, 1000, rights),
        device.register(BASE, 4096, Access::NONE),
        device.window(BASE, 64, rights, Qpn::new(0x101)),
    ];
    let mut hostile = Hostile { choices, device, halves: Vec::new(), now_ns: 0, freed: 0, keys };
    hostile.connect();
    while !hostile.choices.bytes.is_empty() {
        hostile.step();
    }
}

impl Hostile<'_> {
    fn step(&mut self) {
        match self.choices.byte() % 16 {
            0 | 1 => self.post_send(),
            2 => self.post_recv(),
            3 | 4 => self.plan(),
            5..=9 => self.receive(),
            10 => self.answer(),
            11 | 12 => self.retire(),
            13 => self.tick(),
            14 => self.lane(),
            _ => self.rare(),
        }
        let qp = &self.device.qps[0].qp;
        let sq = &qp.sq;
        assert!(sq.outstanding() <= qp.attr.cap.max_send_wr);
        assert!(sq.begun.wrapping_sub(sq.oldest) <= sq.outstanding());
    }

    fn modify(&mut self, attr: &QpAttr, mask: QpAttrMask) {
        let (qp, mut env) = self.device.split(0);
        // A refusal is a valid result: the states come in any order.
        let _refused = qp.modify(attr, mask, &LIMITS, &mut env).is_err();
        self.freed = self.freed.min(self.device.qps[0].qp.sq.posted);
    }

    fn connect(&mut self) {
        use QpAttrMask as M;
        let ty = self.device.qps[0].qp.qp_type;
        let mut attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            path_mtu: self.device.qps[0].qp.mtu as u32,
            dest_qp_num: 0x101,
            rq_psn: self.choices.number(),
            sq_psn: self.choices.number(),
            qp_access_flags: Access(if self.choices.byte() < 230 { 0xf } else { 1 }),
            max_rd_atomic: self.choices.byte() % 5,
            max_dest_rd_atomic: self.choices.byte() % 5,
            min_rnr_timer: self.choices.byte() % 32,
            timeout: self.choices.byte() % 32,
            retry_cnt: self.choices.byte() % 8,
            rnr_retry: self.choices.byte() % 8,
            ..QpAttr::default()
        };
        attr.ah_attr.port_num = 1;
        let rights = if ty == QpType::Ud { M::QKEY } else { M::ACCESS_FLAGS };
        self.modify(&attr, M::STATE | M::PKEY_INDEX | M::PORT | rights);
        attr.qp_state = QpState::Rtr;
        let connected = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        let mask = match ty {
            QpType::Ud => M::STATE,
            QpType::Uc => connected,
            QpType::Rc => connected | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER,
        };
        self.modify(&attr, mask);
        attr.qp_state = QpState::Rts;
        let timers = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        let timers = if ty == QpType::Rc { timers } else { QpAttrMask::NONE };
        self.modify(&attr, M::STATE | M::SQ_PSN | timers);
    }

    fn rare(&mut self) {
        let state = self.choices.byte();
        if state < 40 {
            let reset = QpAttr::default();
            self.modify(&reset, QpAttrMask::STATE);
            self.freed = 0;
            // A reset discards the planned sends together with the queue.
            self.halves.retain(|half| !matches!(half, Half::Sent(..)));
            self.connect();
        } else if state < 60 {
            let key = self.key();
            self.device.keys.remove(&key);
        } else {
            let state = QpState::ALL[state as usize % QpState::ALL.len()];
            let attr = QpAttr { qp_state: state, en_sqd_async_notify: true, ..QpAttr::default() };
            self.modify(&attr, QpAttrMask::STATE);
        }
    }

    fn key(&mut self) -> u32 {
        let choice = self.choices.byte() as usize;
        self.keys.get(choice % 5).copied().unwrap_or(choice as u32)
    }

    fn sges(&mut self) -> Vec<Sge> {
        (0..self.choices.byte() % 5)
            .map(|_| Sge {
                addr: BASE + self.choices.byte() as u64,
                length: self.choices.number(),
                lkey: self.key(),
            })
            .collect()
    }

    fn post_send(&mut self) {
        let sges = self.sges();
        let bind = MwBind {
            mw_rkey: self.key(),
            new_rkey: self.key(),
            mr_lkey: self.key(),
            addr: BASE,
            length: 1,
            access: Access::REMOTE_READ,
        };
        let opcode = WrOpcode::ALL[self.choices.byte() as usize % WrOpcode::ALL.len()];
        let flags = self.choices.byte();
        let wr = SendWr {
            wr_id: 1,
            opcode,
            flags: SendFlags(flags as u32 & 15),
            imm_or_rkey: self.key(),
            sges: &sges,
            remote_addr: BASE + self.choices.byte() as u64,
            rkey: self.key(),
            compare_add: 1,
            swap: 2,
            ud: (self.choices.byte() < 230).then(|| crate::sim::datagram_to(Qpn::new(0x101), 0)),
            bind: (self.choices.byte() < 230).then_some(bind),
        };
        let freed = self.freed;
        let (qp, mut env) = self.device.split(0);
        if qp.post_send(&wr, freed).is_ok() && matches!(qp.state, QpState::Err | QpState::Sqe) {
            qp.flush_sends(&mut env);
        } else if flags < 200 {
            // Otherwise the adapter reads this WQE together with the next one, or never.
            qp.fetch_sends();
        }
    }

    fn post_recv(&mut self) {
        let sges = self.sges();
        let wr = RecvWr { wr_id: 1, sges: &sges };
        let late = self.choices.byte() > 200;
        if let Some(srq) = &mut self.device.srq {
            let _full = srq.queue.push(&wr).is_err();
            srq.queue.fetch(if late { 0 } else { u32::MAX });
            return;
        }
        let (qp, mut env) = self.device.split(0);
        let posted = qp.post_recv(&wr).is_ok();
        if posted && qp.state == QpState::Err {
            qp.flush_receives(&mut env);
        } else if !late {
            qp.fetch_receives();
        }
    }

    fn plan(&mut self) {
        let max_payload = self.choices.number();
        let answer = self.choices.byte();
        if let Some(polled) = self.device.poll_sent(0).last() {
            self.freed = polled.sq_free_to;
        }
        let (qp, mut env) = self.device.split(0);
        match qp.plan(max_payload) {
            Plan::Idle => {}
            Plan::Local { position } => qp.retire_local(position, answer < 200, &mut env),
            Plan::WrongLength { position } => {
                qp.retire_sent(position, true, Err(CopyError::Length), &mut env);
            }
            Plan::Send { train, position, offset } => {
                let wqe = qp.sq.wqe(position);
                assert!(train.is_plausible(qp.mtu), "{train:?}");
                let end = offset as u64 + train.payload_bytes as u64;
                assert!(end <= wqe.length as u64, "{train:?} of {wqe:?}");
                let last = train.flags.has(TrainFlags::LAST);
                self.halves.push(Half::Sent(position, last));
            }
        }
    }

    /// A random train whose fields are near the expected values.
    fn draw_train(&mut self) -> Train {
        let kind = TrainKind::from_number(self.choices.byte() % 8).unwrap_or(TrainKind::Ack);
        let qp = &self.device.qps[0].qp;
        let near = if kind.is_response() { qp.next_new_psn() } else { qp.expected_psn() };
        let psn = match self.choices.byte() {
            0..=99 => near,
            100..=199 => near.sub(self.choices.byte() as u32 % 16),
            200..=219 => near.add(self.choices.byte() as u32 % 4),
            _ => Psn::new(self.choices.word()),
        };
        let mut train = Train::new(kind, Qpn::new(0x101), Qpn::new(0x101), psn);
        train.flags = TrainFlags(self.choices.byte());
        train.payload_bytes = self.choices.number();
        train.dma_bytes = match self.choices.byte() {
            0..=150 => train.payload_bytes,
            _ => self.choices.number(),
        };
        let mtu = self.device.qps[0].qp.mtu;
        let fitting =
            if kind == TrainKind::ReadRequest { train.dma_bytes } else { train.payload_bytes };
        train.packets = match self.choices.byte() {
            0..=199 => mtu.packets(fitting),
            _ => self.choices.number(),
        };
        train.imm_or_rkey = self.key();
        train.remote_addr = (BASE - 1).wrapping_add(self.choices.number() as u64);
        if self.choices.byte() > 250 {
            train.remote_addr = u64::MAX - self.choices.byte() as u64;
        }
        train.rkey = RKey(self.key());
        train.msn = Msn::new(self.choices.byte() as u32);
        if let Some(syndrome) = Syndrome::from_byte(self.choices.byte()) {
            train.syndrome = syndrome;
        }
        if self.choices.byte() > 200 {
            let (packets, messages) = (self.choices.number(), self.choices.number());
            train.fold = Fold { packets, messages };
        }
        train
    }

    fn receive(&mut self) {
        let train = self.draw_train();
        let (qp, mut env) = self.device.split(0);
        // A driver that tries the fast path first, and cannot place the payload.
        if train.first_psn.get().is_multiple_of(2) {
            let _ = qp.accept_single_train(&train, &mut env);
        }
        match qp.accept(&train, &mut env) {
            Accept::Done | Accept::Drop(_) | Accept::Stall => {}
            Accept::Place(placement) => {
                check_placement(qp, &train, &placement);
                self.halves.push(Half::Request(train, placement));
            }
            Accept::Atomic(job) => {
                check_granted(&job.entry, job.host_addr, 8);
                assert!(job.host_addr.is_multiple_of(8));
                self.halves.push(Half::Atomic(job));
            }
            Accept::PlaceResponse(placement) => {
                let wqe = qp.sq.wqe(placement.position);
                assert!(wqe.opcode.is_read_or_atomic());
                assert!(placement.offset as u64 + placement.bytes as u64 <= wqe.length as u64);
                if !placement.is_atomic {
                    let end = placement.skip_bytes as u64 + placement.bytes as u64;
                    assert!(end <= train.payload_bytes as u64);
                }
                self.halves.push(Half::Response(placement));
            }
        }
        // Mostly retire at once, as the soft adapter does; sometimes much later, or never.
        if self.choices.byte() < 180 {
            self.retire();
        }
    }

    fn retire(&mut self) {
        if self.halves.is_empty() {
            return;
        }
        let index = self.choices.byte() as usize % self.halves.len();
        let half = self.halves.remove(index);
        let error = match self.choices.byte() {
            0..=229 => None,
            230..=240 => Some(CopyError::Protection),
            _ => Some(CopyError::Fault),
        };
        let result = error.map_or(Ok(()), Err);
        let (qp, mut env) = self.device.split(0);
        match half {
            Half::Request(train, placement) => {
                qp.retire_request(&train, &placement, result, &mut env);
            }
            Half::Atomic(job) => qp.retire_atomic(&job, result.map(|()| 1), &mut env),
            Half::Response(placement) => qp.retire_response(&placement, result, &mut env),
            Half::Sent(position, last) => qp.retire_sent(position, last, result, &mut env),
        }
    }

    fn answer(&mut self) {
        let max_payload = self.choices.number();
        let fails = self.choices.byte() > 230;
        let (qp, mut env) = self.device.split(0);
        let Some(Response { train, data }) = qp.next_response(max_payload, &mut env) else {
            return;
        };
        assert!(train.is_plausible(qp.mtu), "{train:?}");
        if let Some((host_addr, entry)) = data {
            check_granted(&entry, host_addr, train.payload_bytes as u64);
            if fails {
                qp.fail_read(train.first_psn, CopyError::Fault, &mut env);
            }
        }
    }

    fn tick(&mut self) {
        self.now_ns += (self.choices.number() as u64) << (self.choices.byte() % 20);
        let (qp, mut env) = self.device.split(0);
        qp.on_timer(self.now_ns, &mut env);
        timers::arm(qp, &mut Deadlines { now_ns: self.now_ns, infinite_ns: 1_000_000 });
    }

    fn lane(&mut self) {
        let (qp, mut env) = self.device.split(0);
        if let Some(position) = qp.lane_candidate() {
            qp.retire_lane(position, &mut env);
        }
    }
}

fn check_granted(entry: &KeyEntry, host_addr: u64, bytes: u64) {
    let first = entry.host_address(entry.iova);
    assert!(host_addr >= first && host_addr - first + bytes <= entry.length);
}

fn check_placement(qp: &Qp, train: &Train, placement: &Placement) {
    let end = placement.skip_bytes as u64 + placement.bytes as u64;
    assert!(end <= train.payload_bytes as u64, "{placement:?} of {train:?}");
    match placement.target {
        PlacementTarget::Nothing => assert_eq!(placement.bytes, 0),
        PlacementTarget::Receive { offset } => {
            let room: u64 = qp.held_recv().sges().iter().map(|sge| sge.length as u64).sum();
            assert!(offset + placement.bytes as u64 <= room);
        }
        PlacementTarget::Memory { host_addr, entry } => {
            check_granted(&entry, host_addr, placement.bytes as u64);
        }
    }
}
