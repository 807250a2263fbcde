//! The driver's part for one device: its memory, which checks every access against the regions that
//! the engine granted; a path for one train; and second halves of steps that may run later.

use super::device::{Device, DeviceEnv, PD};
use super::step::{Step, TrainData};
use rdmalab_driver::{self as driver, Host, Memory, Path, Step as Sent, Unsent};
use rdmalab_engine::backend::MwBind;
use rdmalab_engine::mr::{KeyEntry, KeyKind};
use rdmalab_engine::qp::{Accept, AtomicOp, CopyError, Env as _, GRH_BYTES, Qp};
use rdmalab_engine::train::{Train, TrainKind};
use rdmalab_engine::vocab::*;
use rdmalab_engine::window;
use rdmalab_wire::ids::Qpn;
use std::ops::Range;

/// The result of offering a train.
pub enum Offered {
    /// The train was handled or dropped.
    Done,
    /// The train must be offered again.
    Stalled(TrainData),
    /// The second half of the step is still to be done.
    Step(Step),
}

/// A path that has room for one train.
struct OneTrain {
    max_payload: u32,
    train_data: Option<TrainData>,
}

impl Path<DeviceEnv<'_>> for OneTrain {
    fn request_room(&mut self, _qp: &Qp) -> Option<u32> {
        Some(self.max_payload)
    }

    fn push(
        &mut self,
        train: &Train,
        _is_inline: bool,
        mut fill: impl FnMut(Range<u32>, &mut [u8]) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        let mut payload = vec![0; train.payload_bytes as usize];
        if !payload.is_empty() {
            fill(0..train.payload_bytes, &mut payload).map_err(Unsent::whole)?;
        }
        self.train_data = Some(TrainData { train: *train, payload });
        Ok(())
    }
}

impl Device {
    /// The short ways know nothing of pages.
    fn uses_short_ways(&self) -> bool {
        self.short_ways && self.paged.is_none()
    }

    /// Offers a train that arrived to QP `qp`.
    pub fn offer(&mut self, qp: usize, train_data: TrainData, due_ns: u64) -> Offered {
        if self.uses_short_ways() && self.take_single(qp, &train_data) {
            return Offered::Done;
        }
        let (engine, mut env) = self.split(qp);
        match engine.accept(&train_data.train, &mut env) {
            Accept::Done | Accept::Drop(_) => Offered::Done,
            Accept::Stall => Offered::Stalled(train_data),
            accepted => Offered::Step(Step { due_ns, train_data, accepted }),
        }
    }

    /// The fast path for an arriving SEND; false leaves the train unhandled.
    fn take_single(&mut self, qp: usize, train_data: &TrainData) -> bool {
        let (engine, mut env) = self.split(qp);
        let single = engine.accept_single_train(&train_data.train, &mut env);
        let Some(single) = single else { return false };
        let (target, bytes) = (single.target, train_data.train.payload_bytes);
        let mut payload = &train_data.payload[..];
        let placed = driver::scatter(&mut env, single.pd, &[target], 0, bytes, &mut payload);
        if placed.is_ok() {
            single.retire(&mut env);
        }
        placed.is_ok()
    }

    /// The fast path for a SEND to be sent.
    fn next_single(&mut self, qp: usize) -> Option<TrainData> {
        let (engine, env) = self.split(qp);
        let single = engine.plan_single(engine.mtu.bytes())?;
        let (src_qpn, dst_qpn, pd) = single.ends();
        let mut train = Train::new(TrainKind::Send, dst_qpn, src_qpn, single.psn);
        train.flags = single.flags;
        train.payload_bytes = single.wqe().length;
        train.imm_or_rkey = single.wqe().imm_or_rkey;
        let mut payload = vec![0; train.payload_bytes as usize];
        match single.wqe().is_inline() {
            true => payload.copy_from_slice(single.inline()),
            false => {
                let range = 0..train.payload_bytes;
                driver::gather(&env, pd, single.sges(), range, &mut payload).ok()?;
            }
        }
        single.retire();
        Some(TrainData { train, payload })
    }

    /// Does the second half of a step.
    pub fn finish(&mut self, qp: usize, step: &Step) {
        let (engine, mut env) = self.split(qp);
        let Step { train_data, accepted, .. } = step;
        match engine.is_void(accepted) {
            true => driver::abandon(engine, &mut env, &train_data.train, accepted),
            false => {
                driver::finish(engine, &mut env, &train_data.train, &train_data.payload, accepted)
            }
        }
    }

    /// The next response of QP `qp`.
    pub fn next_answer(&mut self, qp: usize, max_payload: u32) -> Option<TrainData> {
        let (engine, mut env) = self.split(qp);
        let mut path = OneTrain { max_payload, train_data: None };
        while path.train_data.is_none() {
            if driver::send_response(engine, &mut path, &mut env) != Sent::Done {
                break;
            }
        }
        path.train_data
    }

    /// The next request of QP `qp`; executes local operations that precede it.
    pub fn next_request(&mut self, qp: usize, max_payload: u32) -> Option<TrainData> {
        let train_data = self.uses_short_ways().then(|| self.next_single(qp)).flatten();
        let (engine, mut env) = self.split(qp);
        let mut path = OneTrain { max_payload, train_data };
        while path.train_data.is_none() {
            if driver::send_request(engine, &mut path, &mut env) != Sent::Done {
                break;
            }
        }
        path.train_data
    }
}

impl DeviceEnv<'_> {
    /// Whether a key that granted the bytes at `host_addr` has been invalidated since. Panics when
    /// the key did not grant these bytes.
    fn is_gone(&self, region: &KeyEntry, host_addr: u64, bytes: u32) -> bool {
        let first = region.host_address(region.iova);
        assert!(
            host_addr >= first && host_addr - first + u64::from(bytes) <= region.length,
            "{bytes} bytes at {host_addr:#x} are outside {region:?}"
        );
        !self.keys.contains_key(&region.key)
    }
}

impl Memory for DeviceEnv<'_> {
    type Destination<'a> = &'a mut [u8];
    type Bytes<'a> = &'a [u8];

    fn bytes(bytes: &[u8]) -> &[u8] {
        bytes
    }

    fn skip(bytes: &mut &[u8], count: u32) {
        *bytes = &bytes[count as usize..];
    }

    fn put(bytes: &[u8], to: &mut &mut [u8]) -> Result<(), CopyError> {
        let (here, rest) = std::mem::take(to).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        *to = rest;
        Ok(())
    }

    fn read(
        &self,
        region: &KeyEntry,
        host_addr: u64,
        bytes: u32,
        to: &mut &mut [u8],
    ) -> Result<(), CopyError> {
        if self.is_gone(region, host_addr, bytes) {
            return Err(CopyError::Fault);
        }
        Self::put(self.memory.read(host_addr, bytes as usize), to)
    }

    fn write(
        &mut self,
        region: &KeyEntry,
        host_addr: u64,
        bytes: u32,
        from: &mut &[u8],
    ) -> Result<(), CopyError> {
        if self.is_gone(region, host_addr, bytes) {
            return Err(CopyError::Fault);
        }
        let (here, rest) = from.split_at(bytes as usize);
        self.memory.write(host_addr, here);
        *from = rest;
        Ok(())
    }

    fn atomic(
        &mut self,
        region: &KeyEntry,
        host_addr: u64,
        op: AtomicOp,
    ) -> Result<u64, CopyError> {
        if self.is_gone(region, host_addr, 8) {
            return Err(CopyError::Fault);
        }
        Ok(self.memory.atomic(host_addr, op))
    }
}

impl Host for DeviceEnv<'_> {
    fn execute_local(&mut self, qp: &Qp, position: u32) -> Option<bool> {
        let wqe = qp.sq.wqe(position);
        let executed = match qp.sq.bind(position) {
            Some(bind) if wqe.opcode == WrOpcode::BindMw => self.bind(bind, qp.qpn),
            _ => self.invalidate(wqe.imm_or_rkey),
        };
        Some(executed)
    }

    fn routing_header(&self, _train: &Train) -> [u8; GRH_BYTES as usize] {
        unreachable!("simulated datagrams have no routing header")
    }
}

impl DeviceEnv<'_> {
    fn bind(&mut self, bind: &MwBind, qpn: Qpn) -> bool {
        let Some(region) = self.keys.get(&bind.mr_lkey).copied() else {
            return false;
        };
        // Windows are not allocated here: whatever key the program names is one.
        let unbound =
            KeyEntry { key: bind.mw_rkey, kind: KeyKind::WindowType2, length: 0, ..region };
        let Some(window) = window::bind(bind, &unbound, |_| Some(region), PD, qpn) else {
            return false;
        };
        self.keys.insert(window.key, window);
        if let Some(paged) = &mut self.paged {
            paged.pages.register(window.key);
        }
        true
    }
}
