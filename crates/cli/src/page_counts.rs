//! Page faults, invalidations and prefetches in results.

use rdmalab_measure::{Outcome, at_rank};

/// Adds what happened to pages of on-demand regions.
pub fn push_pages<'a>(
    measured: &mut Outcome,
    rank: usize,
    pages: impl IntoIterator<Item = (&'a str, u64)>,
) {
    for (name, count) in pages {
        measured.push_count(&at_rank(name, rank), count);
    }
}
