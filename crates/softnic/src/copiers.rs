//! Waits for the threads that may copy to or from the memory of this process by entries of the key
//! table that were changed.
//!
//! Threads of this process copy under the lock of a queue pair, initiators in other processes in
//! the lane. A verb that deregisters memory waits for all of them. A work request that binds or
//! invalidates a window is complete when no thread copies by the former entry any more, but the
//! sending thread does not wait, because an initiator may be stopped in the middle of a copy: the
//! request stays in its queue, and every thread that makes progress checks it again.

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_ring::biased;
use rdmalab_ring::epoch::{LaneSlots, Visits};

use crate::keys::KeyUsers;
use crate::peer_table::PeerTable;
use crate::process::Process;
use crate::qp::{Invalidation, QpObject};
use crate::qp_table::QpTable;

/// How long `dereg_mr` and similar verbs wait for an initiator in the middle of a copy, ns.
const LANE_WAIT_NS: u64 = 10_000_000_000;

/// How long [`Copiers::wait_for_own_copies`] waits, ns.
const OWN_COPIES_WAIT_NS: u64 = 1_000_000_000;

/// The threads that may copy to or from the memory of a process.
#[derive(Clone, Copy)]
pub(crate) struct Copiers<'a> {
    /// Threads of the process copy under the locks of these.
    qps: &'a QpTable<QpObject>,
    /// Initiators in other processes copy in a lane of these.
    lanes: &'a LaneSlots,
    peers: &'a PeerTable,
}

impl<'a> Copiers<'a> {
    /// Those of a process.
    pub(crate) fn of(process: &'a Process) -> Copiers<'a> {
        Copiers { qps: &process.qps, lanes: &process.lanes, peers: &process.host.peers }
    }

    /// Waits until no thread copies by entries that the key table had before this call. Threads of
    /// this process copy under a QP's lock, initiators in our lane. The caller holds no QP's lock.
    ///
    /// # Errors
    /// As [`Copiers::wait_for_lanes`].
    pub(crate) fn wait_for_copies(self) -> VerbsResult<()> {
        for object in self.busy_qps() {
            drop(object.inner.lock());
        }
        self.wait_for_lanes()
    }

    /// Waits until no copy of this process that began before this call is in progress. If the
    /// calling thread has interrupted one itself, in a signal handler, this takes a second.
    pub(crate) fn wait_for_own_copies(self) {
        let give_up_ns = crate::clock::now_ns() + OWN_COPIES_WAIT_NS;
        for object in self.busy_qps() {
            while object.inner.try_lock().is_none() && crate::clock::now_ns() < give_up_ns {
                std::thread::yield_now();
            }
        }
    }

    /// The QPs that threads of this process had locked before this call and may not have released
    /// since. A thread that locks a QP later sees what the caller did before. So there are hardly
    /// more than threads at work, however many QPs the process has.
    pub(crate) fn busy_qps(self) -> impl Iterator<Item = &'static QpObject> + 'a {
        biased::fence_holders();
        self.qps.all().filter(|object| object.inner.may_be_held())
    }

    /// Waits until no other process executes a one-sided operation that began before this call.
    /// After that no process uses table entries that were retracted before the call.
    ///
    /// # Errors
    /// `EBUSY` if an initiator is stopped for too long in the middle of an operation.
    pub(crate) fn wait_for_lanes(self) -> VerbsResult<()> {
        let give_up_ns = crate::clock::now_ns() + LANE_WAIT_NS;
        let alive = |slot| self.peers.initiator_alive(slot);
        self.lanes.wait_quiescent(alive, || crate::clock::now_ns() > give_up_ns).map_err(|_| {
            VerbsError::busy(
                "another process has been stopped in the middle of a copy into this memory for \
                 10 s: let it run (SIGCONT) or kill it, then try again",
            )
        })
    }

    /// Begins to wait for `users`, on behalf of `own`, whose lock the caller holds. The caller has
    /// already changed the key table.
    pub(crate) fn begin_invalidation(
        self,
        users: KeyUsers,
        own: &QpObject,
        position: u32,
    ) -> Invalidation {
        let none = Invalidation { position, visits: Visits::default(), local_qps: Vec::new() };
        let other = |qp: &&'static QpObject| qp.index != own.index;
        match users {
            KeyUsers::Nobody => none,
            KeyUsers::Peer(slot, index) if slot == self.peers.own_slot() => {
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
    pub(crate) fn is_invalidated(self, invalidation: &mut Invalidation) -> bool {
        // If a QP's lock was free once, its old copies are done, and new ones use the new table.
        invalidation.local_qps.retain(|qp| qp.inner.try_lock().is_none());
        let left =
            self.lanes.have_left(&mut invalidation.visits, |slot| self.peers.initiator_alive(slot));
        left && invalidation.local_qps.is_empty()
    }
}
