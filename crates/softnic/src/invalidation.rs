//! Waits, without blocking, until no thread uses the former binding of a window any more.
//!
//! A work request that binds or invalidates a window is complete when no thread copies by the
//! former entry of the key table any more. An initiator may be in such a copy, and may even be
//! stopped there. So the sending thread does not wait: the request stays in its queue, and every
//! thread that makes progress checks it again.

use rdmalab_ring::epoch::Visits;

use crate::keys::KeyUsers;
use crate::process::Process;
use crate::qp::{Invalidation, QpObject};

impl Process {
    /// Begins to wait for `users`, on behalf of `own`, whose lock the caller holds. The caller has
    /// already changed the key table.
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
                let local_qps = self.busy_qps().filter(other).collect();
                Invalidation { position, visits: self.lanes.inside_now(None), local_qps }
            }
        }
    }

    /// Whether all those threads have finished.
    pub(crate) fn is_invalidated(&self, invalidation: &mut Invalidation) -> bool {
        // If a QP's lock was free once, its old copies are done, and new ones use the new table.
        invalidation.local_qps.retain(|qp| qp.inner.try_lock().is_none());
        let left =
            self.lanes.have_left(&mut invalidation.visits, |slot| self.peers.initiator_alive(slot));
        left && invalidation.local_qps.is_empty()
    }
}
