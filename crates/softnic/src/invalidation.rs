//! Waits until the former binding of a window is out of use, without blocking.
//!
//! A work request that binds or invalidates a window is complete when no thread copies any more by
//! the former entry of the key table. An initiator may be in the middle of such a copy, and may be
//! stopped there. So the sending thread does not wait: the request stays in its queue, and every
//! thread that makes progress checks it again.

use rdmalab_ring::epoch::Visits;

use crate::keys::KeyUsers;
use crate::process::Process;
use crate::qp::{Invalidation, QpObject};

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
            self.lanes.have_left(&mut invalidation.visits, |slot| self.peers.initiator_alive(slot));
        left && invalidation.local_qps.is_empty()
    }
}
