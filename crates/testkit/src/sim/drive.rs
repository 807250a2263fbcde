//! One device's part of the driver: moves the bytes between the two halves of the engine's steps,
//! as a soft adapter does. Everything that is placed is checked against what the engine granted.

use super::device::{Device, DeviceEnv, PD};
use super::link::Parcel;
use super::memory::{Memory, pieces};
use rdmalab_engine::backend::MwBind;
use rdmalab_engine::mr::{self, KeyEntry, KeyKind};
use rdmalab_engine::qp::{
    Accept, AtomicJob, AtomicOp, CopyError, Placement, PlacementTarget, Plan, Qp, Response,
    ResponsePlacement,
};
use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_engine::vocab::*;
use rdmalab_wire::ids::Qpn;

/// An accepted train between its two halves.
#[derive(Debug)]
pub enum Step {
    /// A request's payload.
    Request { due_ns: u64, parcel: Parcel, placement: Placement, sges: Vec<Sge> },
    /// An atomic.
    Atomic { due_ns: u64, job: AtomicJob },
    /// A response's payload.
    Response { due_ns: u64, parcel: Parcel, placement: ResponsePlacement },
}

impl Step {
    /// When it is to be retired.
    pub fn due_ns(&self) -> u64 {
        match self {
            Step::Request { due_ns, .. }
            | Step::Atomic { due_ns, .. }
            | Step::Response { due_ns, .. } => *due_ns,
        }
    }
}

/// What came of offering a train.
pub enum Offered {
    /// It was handled or dropped.
    Done,
    /// It is to be offered again.
    Stalled(Parcel),
    /// Its second half is to be done.
    Step(Step),
}

impl Device {
    /// Offers a train that arrived to QP `qp`.
    pub fn offer(&mut self, qp: usize, parcel: Parcel, due_ns: u64) -> Offered {
        if self.short_ways && self.take_single(qp, &parcel) {
            return Offered::Done;
        }
        let (engine, mut env, _) = self.split(qp);
        match engine.accept(&parcel.train, &mut env) {
            Accept::Done | Accept::Drop(_) => Offered::Done,
            Accept::Stall => Offered::Stalled(parcel),
            Accept::Place(placement) => {
                let sges = engine.held_recv().sges().to_vec();
                Offered::Step(Step::Request { due_ns, parcel, placement, sges })
            }
            Accept::Atomic(job) => Offered::Step(Step::Atomic { due_ns, job }),
            Accept::PlaceResponse(placement) => {
                Offered::Step(Step::Response { due_ns, parcel, placement })
            }
        }
    }

    /// The short way in; false leaves the train as it is.
    fn take_single(&mut self, qp: usize, parcel: &Parcel) -> bool {
        let (engine, mut env, memory) = self.split(qp);
        let Some(single) = engine.accept_single_train(&parcel.train) else { return false };
        let placed = scatter(&parcel.payload, &[single.target], 0, &env, memory);
        if placed.is_ok() {
            single.retire(&mut env);
        }
        placed.is_ok()
    }

    /// The short way out.
    fn next_single(&mut self, qp: usize) -> Option<Parcel> {
        let (engine, env, memory) = self.split(qp);
        let single = engine.plan_single(engine.mtu.bytes())?;
        let (src_qpn, dst_qpn, _) = single.ends();
        let mut train = Train::new(TrainKind::Send, dst_qpn, src_qpn, single.psn);
        train.flags = single.flags;
        train.payload_bytes = single.wqe().length;
        train.imm_or_rkey = single.wqe().imm_or_rkey;
        let payload = match single.wqe().is_inline() {
            true => single.inline().to_vec(),
            false => gather(single.sges(), 0, train.payload_bytes, &env, memory).ok()?,
        };
        single.retire();
        Some(Parcel { train, payload })
    }

    /// Does the second half of a step.
    pub fn finish(&mut self, qp: usize, step: Step) {
        let (engine, mut env, memory) = self.split(qp);
        // The queues were flushed: the program may have taken its buffers back.
        let void = matches!(engine.state, QpState::Err | QpState::Reset);
        match step {
            Step::Request { parcel, placement, sges, .. } => {
                let result = match void {
                    true => Ok(()),
                    false => place(&parcel, &placement, &sges, &env, memory),
                };
                engine.retire_request(&parcel.train, &placement, result, &mut env);
            }
            Step::Atomic { job, .. } => {
                let result = match void {
                    true => Err(CopyError::Fault),
                    false => execute(&job, &env, memory),
                };
                engine.retire_atomic(&job, result, &mut env);
            }
            Step::Response { parcel, placement, .. } => {
                let result = match void {
                    true => Ok(()),
                    false => place_response(engine, &parcel, &placement, &env, memory),
                };
                engine.retire_response(&placement, result, &mut env);
            }
        }
    }

    /// What QP `qp` answers next.
    pub fn next_answer(&mut self, qp: usize, max_payload: u32) -> Option<Parcel> {
        loop {
            let (engine, mut env, memory) = self.split(qp);
            match engine.next_response(max_payload, &mut env)? {
                Response::Train(train) => return Some(Parcel { train, payload: Vec::new() }),
                Response::Data { train, host_addr, entry } => {
                    let Some(entry) = entry else {
                        assert_eq!(train.payload_bytes, 0);
                        return Some(Parcel { train, payload: Vec::new() });
                    };
                    assert_granted(&entry, host_addr, train.payload_bytes);
                    if env.keys.contains_key(&entry.key) {
                        let payload = memory.read(host_addr, train.payload_bytes as usize).to_vec();
                        return Some(Parcel { train, payload });
                    }
                    engine.fail_read(train.first_psn, CopyError::Fault, &mut env);
                }
            }
        }
    }

    /// What QP `qp` requests next; executes its local operations on the way.
    pub fn next_request(&mut self, qp: usize, max_payload: u32) -> Option<Parcel> {
        if self.short_ways
            && let Some(parcel) = self.next_single(qp)
        {
            return Some(parcel);
        }
        loop {
            let (engine, mut env, memory) = self.split(qp);
            match engine.plan(max_payload) {
                Plan::Idle => return None,
                Plan::Local { position } => {
                    let ok = execute_local(engine, position, &mut env);
                    engine.retire_local(position, ok, &mut env);
                }
                Plan::Send { train, position, offset } => {
                    let payload = fetch(engine, position, offset, &train, &env, memory);
                    let result = payload.as_ref().map(|_| ()).map_err(|error| *error);
                    let last = train.flags.has(TrainFlags::LAST);
                    engine.retire_sent(position, last, result, &mut env);
                    if let Ok(payload) = payload {
                        return Some(Parcel { train, payload });
                    }
                }
            }
        }
    }
}

fn assert_granted(entry: &KeyEntry, host_addr: u64, bytes: u32) {
    let first = entry.host_address(entry.iova);
    assert!(
        host_addr >= first && host_addr - first + bytes as u64 <= entry.length,
        "{bytes} bytes at {host_addr:#x} are outside {entry:?}"
    );
}

/// Reads the payload of a request train.
fn fetch(
    qp: &Qp,
    position: u32,
    offset: u32,
    train: &Train,
    env: &DeviceEnv<'_>,
    memory: &Memory,
) -> Result<Vec<u8>, CopyError> {
    let bytes = train.payload_bytes as usize;
    if qp.sq.wqe(position).is_inline() {
        return Ok(qp.sq.inline(position)[offset as usize..][..bytes].to_vec());
    }
    gather(qp.sq.sges(position), offset, train.payload_bytes, env, memory)
}

/// Reads `bytes` bytes of a gather list from `offset`.
fn gather(
    sges: &[Sge],
    offset: u32,
    bytes: u32,
    env: &DeviceEnv<'_>,
    memory: &Memory,
) -> Result<Vec<u8>, CopyError> {
    let mut payload = Vec::with_capacity(bytes as usize);
    if bytes > 0 {
        for piece in pieces(sges, offset as u64, bytes as u64) {
            let entry = env.keys.get(&piece.sge.lkey);
            let addr =
                mr::check_local(entry, PD, &piece.sge, false).map_err(|_| CopyError::Protection)?;
            payload.extend_from_slice(memory.read(addr, piece.sge.length as usize));
        }
    }
    Ok(payload)
}

/// Writes `payload` to byte `offset` of a scatter list.
pub fn scatter(
    payload: &[u8],
    sges: &[Sge],
    offset: u64,
    env: &DeviceEnv<'_>,
    memory: &mut Memory,
) -> Result<(), CopyError> {
    if payload.is_empty() {
        return Ok(());
    }
    for piece in pieces(sges, offset, payload.len() as u64) {
        let entry = env.keys.get(&piece.sge.lkey);
        let addr =
            mr::check_local(entry, PD, &piece.sge, true).map_err(|_| CopyError::Protection)?;
        memory.write(addr, &payload[piece.from..][..piece.sge.length as usize]);
    }
    Ok(())
}

fn place(
    parcel: &Parcel,
    placement: &Placement,
    sges: &[Sge],
    env: &DeviceEnv<'_>,
    memory: &mut Memory,
) -> Result<(), CopyError> {
    let payload = &parcel.payload[placement.skip_bytes as usize..][..placement.bytes as usize];
    match placement.target {
        PlacementTarget::Nothing => {
            assert_eq!(placement.bytes, 0);
            Ok(())
        }
        PlacementTarget::Receive { offset } => scatter(payload, sges, offset, env, memory),
        PlacementTarget::Memory { host_addr, entry } => {
            assert_granted(&entry, host_addr, placement.bytes);
            if !env.keys.contains_key(&entry.key) {
                return Err(CopyError::Fault);
            }
            memory.write(host_addr, payload);
            Ok(())
        }
    }
}

/// Executes an atomic; returns the value before it.
pub fn execute(
    job: &AtomicJob,
    env: &DeviceEnv<'_>,
    memory: &mut Memory,
) -> Result<u64, CopyError> {
    assert_granted(&job.entry, job.host_addr, 8);
    if !env.keys.contains_key(&job.entry.key) {
        return Err(CopyError::Fault);
    }
    Ok(apply(job.op, job.host_addr, memory))
}

/// Applies an atomic to the word at `addr`; returns the value before it.
pub fn apply(op: AtomicOp, addr: u64, memory: &mut Memory) -> u64 {
    let original = memory.word(addr);
    let new = match op {
        AtomicOp::CmpSwap { compare, swap } if compare == original => swap,
        AtomicOp::CmpSwap { .. } => original,
        AtomicOp::FetchAdd { add } => original.wrapping_add(add),
    };
    memory.write(addr, &new.to_ne_bytes());
    original
}

fn place_response(
    qp: &Qp,
    parcel: &Parcel,
    placement: &ResponsePlacement,
    env: &DeviceEnv<'_>,
    memory: &mut Memory,
) -> Result<(), CopyError> {
    let sges = qp.sq.sges(placement.position);
    if placement.is_atomic {
        return scatter(&placement.original.to_ne_bytes(), sges, 0, env, memory);
    }
    let payload = &parcel.payload[placement.skip_bytes as usize..][..placement.bytes as usize];
    scatter(payload, sges, placement.offset as u64, env, memory)
}

/// Executes a bind or a local invalidate of QP `qp`.
fn execute_local(qp: &Qp, position: u32, env: &mut DeviceEnv<'_>) -> bool {
    let wqe = qp.sq.wqe(position);
    match qp.sq.bind(position) {
        Some(bind) if wqe.opcode == WrOpcode::BindMw => execute_bind(bind, qp.qpn, env),
        _ => {
            let rkey = wqe.imm_or_rkey;
            let ours = env
                .keys
                .get(&rkey)
                .is_some_and(|entry| entry.kind == KeyKind::WindowType2 && entry.qpn == qp.qpn);
            ours && env.keys.remove(&rkey).is_some()
        }
    }
}

fn execute_bind(bind: &MwBind, qpn: Qpn, env: &mut DeviceEnv<'_>) -> bool {
    let Some(region) = env.keys.get(&bind.mr_lkey).copied() else {
        return false;
    };
    let inside = bind.addr >= region.iova
        && bind.addr - region.iova + bind.length <= region.length
        && region.access.contains(Access::MW_BIND);
    if !inside {
        return false;
    }
    let window = KeyEntry {
        key: bind.new_rkey,
        kind: KeyKind::WindowType2,
        iova: bind.addr,
        length: bind.length,
        access: bind.access,
        qpn,
        ..region
    };
    env.keys.insert(bind.new_rkey, window);
    true
}
