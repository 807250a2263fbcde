//! The surroundings of a queue pair, as the engine and the driver see them. What the engine says is
//! collected in [`Effects`], because its time is decided afterwards.

use std::collections::BTreeMap;

use rdmalab_driver::{Host, Memory};
use rdmalab_engine::backend::MwBind;
use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::odp::{Paging, Side, Span};
use rdmalab_engine::qp::recv_queue::{HeldRecv, TakeRecv};
use rdmalab_engine::qp::{AtomicOp, CopyError, Env, GRH_BYTES, Qp};
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::*;
use rdmalab_engine::window;
use rdmalab_wire::ids::Qpn;

use crate::adapter::{SimQp, Srq};
use crate::completion::Cqe;
use crate::device;
use crate::ids::QpId;
use crate::kernel::World;
use crate::memory::{self, From, Piece};
use crate::time::Ps;

/// What the engine said in one step.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Completions: whether for the send queue, and the completion.
    pub(crate) completions: Vec<(bool, Cqe)>,
    /// Places to which payload goes.
    pub(crate) pieces: Vec<Piece>,
    /// Bytes of these that are not in the payload.
    pub(crate) header: Vec<u8>,
    pub(crate) events: Vec<AsyncEventType>,
    /// The limit of the shared receive queue is reached.
    pub(crate) limit_reached: bool,
    /// A page was missing.
    pub(crate) page_is_missing: bool,
}

/// The surroundings of one queue pair.
pub(crate) struct NodeEnv<'a> {
    pub(crate) id: QpId,
    pub(crate) qpn: Qpn,
    pub(crate) pd: PdId,
    pub(crate) keys: &'a mut BTreeMap<u32, KeyEntry>,
    pub(crate) bindings: &'a mut BTreeMap<u32, u32>,
    pub(crate) srq: Option<&'a mut Srq>,
    pub(crate) pages: &'a mut Paging,
    pub(crate) effects: &'a mut Effects,
    /// The payload that arrived, if the step is about some.
    pub(crate) payload: &'a [u8],
}

impl World {
    /// Lets the engine act on a queue pair; returns what it said. See [`World::apply`].
    pub(crate) fn engine<T>(
        &mut self,
        id: QpId,
        qp: &mut SimQp,
        act: impl FnOnce(&mut Qp, &mut NodeEnv<'_>) -> T,
    ) -> (T, Effects) {
        self.engine_with(id, qp, &[], act)
    }

    /// The same, and brings into effect what the engine said.
    pub(crate) fn step<T>(
        &mut self,
        id: QpId,
        qp: &mut SimQp,
        act: impl FnOnce(&mut Qp, &mut NodeEnv<'_>) -> T,
    ) -> T {
        let (result, mut effects) = self.engine(id, qp, act);
        self.apply(id, qp, &mut effects, Ps::ZERO);
        result
    }

    /// The same as [`World::engine`] for a step that writes parts of `payload` to memory.
    pub(crate) fn engine_with<T>(
        &mut self,
        id: QpId,
        qp: &mut SimQp,
        payload: &[u8],
        act: impl FnOnce(&mut Qp, &mut NodeEnv<'_>) -> T,
    ) -> (T, Effects) {
        let mut effects = Effects::default();
        let node = &mut self.nodes[id.node];
        let mut env = NodeEnv {
            id,
            qpn: qp.qp.qpn,
            pd: qp.qp.pd,
            keys: &mut node.keys,
            bindings: &mut node.bindings,
            srq: qp.srq.and_then(|srq| node.srqs[srq].as_mut()),
            pages: &mut node.paging.pages,
            effects: &mut effects,
            payload,
        };
        let result = act(&mut qp.qp, &mut env);
        if effects.page_is_missing {
            self.wait_for_page(id);
        }
        (result, effects)
    }

    /// Brings into effect what the engine said, but for its writes: completions follow `earliest`.
    pub(crate) fn apply(&mut self, id: QpId, qp: &SimQp, effects: &mut Effects, earliest: Ps) {
        for (is_send, cqe) in effects.completions.drain(..) {
            let cq = if is_send { qp.send_cq } else { qp.recv_cq };
            self.write_completion(id.node, cq, cqe, earliest);
        }
        if effects.events.is_empty() && !effects.limit_reached {
            return;
        }
        let node = &mut self.nodes[id.node];
        for event in effects.events.drain(..) {
            node.events.push_back((event, qp.cookie));
        }
        if std::mem::take(&mut effects.limit_reached)
            && let Some(srq) = qp.srq.and_then(|srq| node.srqs[srq].as_ref())
        {
            node.events.push_back((AsyncEventType::SrqLimitReached, srq.cookie));
        }
        self.happened(id.node);
    }
}

impl NodeEnv<'_> {
    /// A completion of this queue pair, which becomes visible later.
    fn cqe(&self, wc: Wc, solicited: bool, frees: Option<u32>) -> Cqe {
        let frees = frees.map(|position| (self.id, position));
        Cqe { wc, solicited, frees, at: Ps::ZERO, is_void: false, step: 0 }
    }

    /// Whether a region that was granted before still covers these bytes of memory.
    pub(crate) fn covers(&self, region: &KeyEntry, host_addr: u64, bytes: u32) -> bool {
        let is_covered = |now: &KeyEntry| memory::covers(now, host_addr, bytes as usize);
        self.keys.get(&region.key).is_some_and(is_covered)
    }

    fn bind(&mut self, bind: &MwBind) -> bool {
        let Some(window) = self.keys.get(&bind.mw_rkey) else { return false };
        let region = |key| self.keys.get(&key).copied();
        let Some(entry) = window::bind(bind, window, region, self.pd, self.qpn) else {
            return false;
        };
        self.keys.remove(&bind.mw_rkey);
        self.bindings.remove(&bind.mw_rkey);
        if entry.length > 0 {
            self.bindings.insert(entry.key, bind.mr_lkey);
        }
        self.keys.insert(entry.key, entry);
        true
    }
}

impl Env for NodeEnv<'_> {
    fn key(&self, key: u32) -> Option<KeyEntry> {
        self.keys.get(&key).copied()
    }

    fn take_shared(&mut self, held: &mut HeldRecv) -> TakeRecv {
        let Some(srq) = &mut self.srq else { return TakeRecv::Empty };
        let (taken, limit_reached) = srq.queue.take(held);
        self.effects.limit_reached |= limit_reached;
        taken
    }

    fn send_completion(&mut self, wc: Wc, sq_free_to: u32) {
        let cqe = self.cqe(wc, false, Some(sq_free_to));
        self.effects.completions.push((true, cqe));
    }

    fn recv_completion(&mut self, wc: Wc, solicited: bool) {
        let cqe = self.cqe(wc, solicited, None);
        self.effects.completions.push((false, cqe));
    }

    fn invalidate(&mut self, rkey: u32) -> bool {
        let Some(window) = self.keys.get_mut(&rkey) else { return false };
        let is_ours = window::may_invalidate(window, self.qpn);
        if is_ours {
            *window = window::unbound(window);
            self.bindings.remove(&rkey);
        }
        is_ours
    }

    fn event(&mut self, event: AsyncEventType) {
        self.effects.events.push(event);
    }

    fn has_on_demand(&self) -> bool {
        !self.pages.is_empty()
    }

    fn access_pages(&mut self, region: &KeyEntry, span: &Span, side: Side) -> u64 {
        let key = self.bindings.get(&region.key).copied().unwrap_or(region.key);
        let present = self.pages.access(key, span, self.qpn, side);
        self.effects.page_is_missing |= present < span.bytes;
        present
    }
}

impl Memory for NodeEnv<'_> {
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

    /// The key was checked at this time: by the engine, or by [`NodeEnv::covers`].
    fn read(
        &self,
        _region: &KeyEntry,
        host_addr: u64,
        bytes: u32,
        to: &mut &mut [u8],
    ) -> Result<(), CopyError> {
        let (here, rest) = std::mem::take(to).split_at_mut(bytes as usize);
        memory::read(host_addr, here);
        *to = rest;
        Ok(())
    }

    /// The bytes are written when the bus has carried them.
    fn write(
        &mut self,
        region: &KeyEntry,
        host_addr: u64,
        bytes: u32,
        from: &mut &[u8],
    ) -> Result<(), CopyError> {
        let (here, rest) = from.split_at(bytes as usize);
        let at = (here.as_ptr() as usize).wrapping_sub(self.payload.as_ptr() as usize);
        let is_payload = at <= self.payload.len() && here.len() <= self.payload.len() - at;
        let place = match is_payload {
            true => From::Payload(at),
            false => From::Header(self.effects.header.len()),
        };
        if !is_payload {
            self.effects.header.extend_from_slice(here);
        }
        self.effects.pieces.push(Piece {
            addr: host_addr,
            bytes: here.len(),
            from: place,
            key: region.key,
        });
        *from = rest;
        Ok(())
    }

    fn atomic(
        &mut self,
        _region: &KeyEntry,
        host_addr: u64,
        op: AtomicOp,
    ) -> Result<u64, CopyError> {
        Ok(memory::atomic(host_addr, op))
    }
}

impl Host for NodeEnv<'_> {
    fn execute_local(&mut self, qp: &Qp, position: u32) -> Option<bool> {
        let wqe = qp.sq.wqe(position);
        Some(match (wqe.opcode, qp.sq.bind(position)) {
            (WrOpcode::BindMw, Some(bind)) => self.bind(&bind.clone()),
            _ => self.invalidate(wqe.imm_or_rkey),
        })
    }

    fn routing_header(&self, train: &Train) -> [u8; GRH_BYTES as usize] {
        device::routing_header(train, self.id.node)
    }
}
