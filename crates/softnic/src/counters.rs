//! What this process counted beside its queue pairs, and the sum of those that are gone.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rdmalab_engine::qp::Tally;

use crate::clock::now_ns;

/// What the queue pairs of a process counted that exist no more, and where the sum goes.
pub(crate) struct Counters {
    pub(crate) past: Mutex<Tally>,
    /// Queue pairs that were made.
    pub(crate) queue_pairs: AtomicU64,
    /// Trains that were dropped since this was last reported.
    pub(crate) dropped: AtomicU64,
    /// Trains that were dropped and reported.
    pub(crate) reported_drops: AtomicU64,
    /// Devices that are open now.
    pub(crate) open: AtomicU64,
    /// The file for all of it.
    pub(crate) file: Option<PathBuf>,
}

impl Counters {
    /// All zero; the environment tells whether a file is written.
    pub(crate) fn from_environment() -> Counters {
        let directory = std::env::var_os("RDMALAB_COUNTERS").filter(|name| !name.is_empty());
        // A process ID may be used again while the directory exists.
        let name = format!("{}-{}", std::process::id(), now_ns());
        Counters {
            past: Mutex::new(Tally::default()),
            queue_pairs: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            reported_drops: AtomicU64::new(0),
            open: AtomicU64::new(0),
            file: directory.map(|directory| Path::new(&directory).join(name)),
        }
    }

    /// A queue pair was made.
    pub(crate) fn queue_pair_made(&self) {
        self.queue_pairs.fetch_add(1, Ordering::Relaxed);
    }

    /// A queue pair is destroyed, which had counted this.
    pub(crate) fn queue_pair_gone(&self, tally: &Tally) {
        self.past.lock().add(tally);
    }

    /// A train was dropped.
    pub(crate) fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// How many trains were dropped since this was called last.
    pub(crate) fn take_dropped(&self) -> u64 {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        self.reported_drops.fetch_add(dropped, Ordering::Relaxed);
        dropped
    }
}
