//! Taking a window's former binding back without waiting on the spot.
//!
//! A work request that invalidates or binds a window is complete when nobody copies any more by
//! what the key table said before. An initiator may be in the middle of such a copy, and may be
//! stopped there, so whoever sends for the QP does not wait: the request stays where it is, and is
//! looked at again with everybody's progress.

use rdmalab_engine::vocab::WrOpcode;
use rdmalab_ring::epoch::Visits;

use crate::layout;
use crate::process::Process;
use crate::qp::{Invalidation, QpInner, QpObject};

/// Whose copies a window's former binding may have allowed.
#[derive(Clone, Copy)]
pub(crate) enum KeyUsers {
    /// Nobody's: it was bound to nothing.
    Nobody,
    /// Those of the QP at the other end of the connection: process slot and index.
    Peer(u16, usize),
    /// Anybody's who has a QP in the domain.
    Everybody,
}

impl Process {
    /// Begins to wait for `users`, on behalf of `own`, whose lock the caller holds. The table was
    /// changed before.
    pub(crate) fn begin_invalidation(
        &self,
        users: KeyUsers,
        own: &QpObject,
        position: u32,
    ) -> Invalidation {
        let none = Invalidation { position, visits: Visits::default(), local_qps: Vec::new() };
        let other = |qp: &&'static QpObject| qp.index != own.index;
        match users {
            KeyUsers::Nobody => none,
            KeyUsers::Peer(slot, index) if slot == self.slot => {
                let local_qps = self.qps.at(index).filter(other).into_iter().collect();
                Invalidation { local_qps, ..none }
            }
            KeyUsers::Peer(slot, _) => {
                Invalidation { visits: self.lanes.inside_now(Some(slot)), ..none }
            }
            KeyUsers::Everybody => {
                let local_qps = self.qps.all().filter(other).collect();
                Invalidation { position, visits: self.lanes.inside_now(None), local_qps }
            }
        }
    }

    /// Whether nobody is left.
    pub(crate) fn is_invalidated(&self, invalidation: &mut Invalidation) -> bool {
        // Its lock was free once, so what it copied before is done, and what it copies next is
        // checked against the table of now.
        invalidation.local_qps.retain(|qp| qp.inner.try_lock().is_none());
        let left =
            self.lanes.have_left(&mut invalidation.visits, |slot| self.initiator_alive(slot));
        left && invalidation.local_qps.is_empty()
    }
}

impl QpInner {
    /// Changes the table as the bind or local invalidate at `position` asks, and begins to wait
    /// for those that used the window before. `None` when it must not be changed.
    pub(crate) fn change_window(&mut self, position: u32) -> Option<Box<Invalidation>> {
        let (process, object) = (self.links.process, self.links.object);
        let wqe = self.qp.sq.wqe(position);
        let users = match wqe.opcode {
            WrOpcode::LocalInv => {
                if !process.keys.retract_window(wqe.imm_or_rkey, object.index) {
                    return None;
                }
                // A type 2 window is its QP's, and so its QP's peer's alone.
                KeyUsers::Peer(self.remote_process(), layout::index_of(self.qp.remote_qpn))
            }
            _ => {
                let bind = *self.qp.sq.bind(position)?;
                match process.keys.bind_window(&bind, self.qp.pd, self.qp.qpn).ok()? {
                    true => KeyUsers::Everybody,
                    false => KeyUsers::Nobody,
                }
            }
        };
        Some(Box::new(process.begin_invalidation(users, object, position)))
    }
}
