//! The local lane: an initiator that can reach its peer's memory executes a one-sided operation
//! itself, under the rights that the peer's responder would check.
//!
//! A lane is no [`Path`](crate::Path): it carries no trains. The request is complete when its bytes
//! have moved, so there is nothing to acknowledge, to repeat, or to receive.

use rdmalab_engine::mr::{self, KeyEntry};
use rdmalab_engine::qp::{AtomicOp, Qp};
use rdmalab_engine::vocab::{Access, PdId, WrOpcode};
use rdmalab_wire::ids::Qpn;

use crate::memory::Host;

/// The initiator's knowledge of the queue pair at the other end.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Whether its state accepts requests.
    pub can_receive: bool,
    /// Its protection domain.
    pub pd: PdId,
    /// The accesses that it grants its peer.
    pub access: Access,
    /// The queue pair that it is connected to.
    pub remote_qpn: Qpn,
}

/// Memory of the target that the operation may touch.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// Address of the first byte in the target process.
    pub host_addr: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The region or window.
    pub entry: KeyEntry,
}

/// The memory of a peer within reach.
pub trait Lane<H: Host> {
    /// The queue pair at the other end of `qp`.
    fn target(&self, qp: &Qp) -> Target;

    /// Looks up a key of the target.
    fn key(&self, rkey: u32) -> Option<KeyEntry>;

    /// Moves the bytes of the operation at `position`. Returns `false`, and changes nothing, if it
    /// must be sent on the path.
    fn move_bytes(&mut self, qp: &Qp, host: &mut H, position: u32, granted: &Granted) -> bool;
}

/// Executes the one-sided operation at `position`: checks the rights, moves the bytes, and retires
/// the request. Returns `false` if it must be sent on the path, where the responder answers it.
#[inline(always)]
pub fn execute<H: Host>(qp: &mut Qp, lane: &mut impl Lane<H>, host: &mut H, position: u32) -> bool {
    let target = lane.target(qp);
    let is_done = match check(qp, position, &target, |rkey| lane.key(rkey)) {
        None => false,
        Some(None) => true,
        Some(Some(granted)) => lane.move_bytes(qp, host, position, &granted),
    };
    if is_done {
        qp.retire_lane(position, host);
    }
    is_done
}

/// Checks the operation at `position` as the target's responder would; `key` looks up a key of the
/// target. `Some(None)`: the operation transfers no byte. `None`: it must be sent on the path.
#[inline]
fn check(
    qp: &Qp,
    position: u32,
    target: &Target,
    key: impl FnOnce(u32) -> Option<KeyEntry>,
) -> Option<Option<Granted>> {
    let wqe = qp.sq.wqe(position);
    let (need, bytes) = match wqe.opcode {
        WrOpcode::Write => (Access::REMOTE_WRITE, u64::from(wqe.length)),
        WrOpcode::Read => (Access::REMOTE_READ, u64::from(wqe.length)),
        _ => (Access::REMOTE_ATOMIC, 8),
    };
    if !target.can_receive || target.remote_qpn != qp.qpn || !target.access.contains(need) {
        return None;
    }
    if bytes == 0 {
        return Some(None);
    }
    if need == Access::REMOTE_ATOMIC && !wqe.remote_addr.is_multiple_of(8) {
        return None;
    }
    let entry = key(wqe.rkey)?;
    let (rkey, addr, qpn) = (wqe.rkey, wqe.remote_addr, qp.remote_qpn);
    let checked = mr::check_remote(Some(&entry), rkey, target.pd, qpn, need, addr, bytes);
    Some(Some(Granted { host_addr: checked.ok()?, bytes, entry }))
}

/// The operation of the atomic at `position`.
#[inline]
pub fn atomic_of(qp: &Qp, position: u32) -> AtomicOp {
    let wqe = qp.sq.wqe(position);
    match wqe.opcode {
        WrOpcode::CmpSwap => AtomicOp::CmpSwap { compare: wqe.compare_add, swap: wqe.swap },
        _ => AtomicOp::FetchAdd { add: wqe.compare_add },
    }
}
