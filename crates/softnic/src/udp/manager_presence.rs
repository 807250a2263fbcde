//! Whether some program of this host has a connection manager.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rdmalab_ring::mad_socket;

/// How long what was found out about the host's programs is believed, ns: a flood of datagrams
/// shall not make us read the kernel's list for each.
const CACHED_NS: u64 = 1_000_000;

/// Whether somebody on this host answers for himself, as far as we know.
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
            // Where the list cannot be read, silence does less harm than a wrong answer.
            let found = mad_socket::any_slot_claimed().unwrap_or(true);
            self.has_managers.store(found, Ordering::Relaxed);
        }
        self.has_managers.load(Ordering::Relaxed)
    }
}
