//! Whether any program of this host has a connection manager.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rdmalab_ring::mad_socket;

/// How long a result is used again, ns, so that a flood of datagrams causes few reads of the list.
const CACHED_NS: u64 = 1_000_000;

/// The last result: whether any program of this host has a connection manager.
#[derive(Default)]
pub(crate) struct ManagerPresence {
    looked_at_ns: AtomicU64,
    has_managers: AtomicBool,
}

impl ManagerPresence {
    pub(super) fn has_managers(&self) -> bool {
        let now_ns = crate::clock::now_ns();
        if now_ns > self.looked_at_ns.load(Ordering::Relaxed) + CACHED_NS {
            self.looked_at_ns.store(now_ns, Ordering::Relaxed);
            // If the list cannot be read, no answer does less harm than a wrong answer.
            let found = mad_socket::any_slot_claimed().unwrap_or(true);
            self.has_managers.store(found, Ordering::Relaxed);
        }
        self.has_managers.load(Ordering::Relaxed)
    }
}
