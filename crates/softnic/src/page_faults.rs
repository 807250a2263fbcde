//! Page faults of queue pairs, and what happens when pages come.

use std::collections::BTreeSet;
use std::time::Duration;

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::mr::{KeyEntry, KeyKind};
use rdmalab_engine::odp::{self, Advice, Side, Span};
use rdmalab_engine::vocab::{PdId, Sge};
use rdmalab_wire::ids::Qpn;

use crate::memory_watch;
use crate::paging::{Due, PagingState};
use crate::peer::key_entry;
use crate::process::Process;
use crate::profile;
use crate::qp::QpObject;

/// How long to wait for the lock of a queue pair that is told that pages have come, ns.
const RETRY_NS: u64 = 20_000;

/// How often a thread that waits for prefetched pages looks.
const LOOK: Duration = Duration::from_micros(50);

/// Lets the kernel map the pages of a range, as far as it can (`MADV_POPULATE_*`, Linux 5.14).
fn populate(advice: Advice, host_addr: u64, bytes: u64) -> VerbsResult<()> {
    let how = match advice {
        Advice::Prefetch => libc::MADV_POPULATE_READ,
        Advice::PrefetchWrite => libc::MADV_POPULATE_WRITE,
        Advice::PrefetchNoFault => return Ok(()),
    };
    let page = rdmalab_ring::seg::page_bytes() as u64;
    let first = host_addr / page * page;
    let length = (host_addr + bytes - first) as usize;
    // SAFETY: it maps pages that the process may access already, and changes no content.
    let result = unsafe { libc::madvise(first as *mut libc::c_void, length, how) };
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOMEM | libc::EFAULT) if result != 0 => Err(VerbsError::new(
            VerbsError::EFAULT,
            format!("{bytes} bytes at {host_addr:#x}: not all of it is mapped in this process"),
        )),
        // An older kernel maps them at the first access.
        _ => Ok(()),
    }
}

#[cold]
fn say_that_changes_are_seen_late() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        crate::warn(
            "the kernel does not tell this process of changes of its memory map (userfaultfd). So \
             on-demand paging looks for them, at most every 50 ms: a page may stay with the device \
             for so long after munmap, mremap, madvise or mprotect",
        );
    });
}

/// What happened so far to pages of the on-demand regions of this process.
pub fn page_counters() -> odp::Counters {
    Process::existing().and_then(|process| process.paging.totals()).unwrap_or_default()
}

impl Process {
    /// [`rdmalab_engine::qp::Env::access_pages`] of a queue pair, whose lock the caller holds.
    #[cold]
    pub(crate) fn access_pages(
        &self,
        (object, qpn): (&QpObject, Qpn),
        entry: &KeyEntry,
        span: &Span,
        side: Side,
    ) -> u64 {
        let key = match entry.kind {
            KeyKind::Region => Some(entry.key),
            KeyKind::WindowType1 | KeyKind::WindowType2 => self.keys.region_of(entry),
        };
        let Some(key) = key else { return span.bytes };
        let mut state = self.paging.lock_for_access();
        let present = state.pages.access(key, span, qpn, side);
        if present < span.bytes {
            state.waiting.insert(object.index);
            self.fetch(&mut state);
        }
        present
    }

    /// [`rdmalab_engine::qp::Env::holds_fault_nak`] of a queue pair, whose lock the caller holds.
    #[cold]
    pub(crate) fn holds_fault_nak(&self, object: &QpObject, is_read: bool) -> bool {
        let all = profile::adapter_values();
        let delay_ns = if is_read { all.odp_read_nak_ns } else { all.odp_nak_ns };
        if delay_ns == 0 {
            return false;
        }
        let mut state = self.paging.lock();
        state.schedule(crate::clock::now_ns() + delay_ns, Due::Nak(object.index));
        self.fetch(&mut state);
        true
    }

    /// Fetches pages of on-demand regions before they are accessed; if `flush`, waits for them.
    pub(crate) fn advise(
        &self,
        pd: PdId,
        advice: Advice,
        flush: bool,
        sges: &[Sge],
    ) -> VerbsResult<()> {
        let key = |key| self.keys.view.lookup(key).and_then(key_entry);
        let ranges = odp::advised(key, pd, advice, sges)?;
        for (_, host_addr, bytes) in &ranges {
            populate(advice, *host_addr, *bytes)?;
        }
        // Asks again for pages that were taken away meanwhile. A region that another thread
        // deregisters has all its pages.
        let are_there = || {
            let mut state = self.paging.lock();
            let mut all = true;
            for (key, host_addr, bytes) in &ranges {
                state.pages.prefetch(*key, *host_addr, *bytes);
                all &= state.pages.is_present(*key, *host_addr, *bytes);
            }
            self.fetch(&mut state);
            all
        };
        let mut is_done = are_there();
        while flush && !is_done {
            std::thread::sleep(LOOK);
            self.let_pages_come(crate::clock::now_ns());
            is_done = are_there();
        }
        Ok(())
    }

    /// A region begins, without pages if it is an on-demand one.
    pub(crate) fn begin_paging(&'static self, entry: &KeyEntry) {
        if entry.on_demand {
            if !self.paging.watch.start() && !memory_watch::is_forbidden() {
                say_that_changes_are_seen_late();
            }
            let mut state = self.paging.lock();
            state.pages.register(entry.key);
            self.paging.note(&state);
        } else {
            self.end_paging(entry.key);
        }
    }

    /// A region is gone: queue pairs that wait for its pages are told.
    pub(crate) fn end_paging(&self, key: u32) {
        if !self.paging.has_work() {
            return;
        }
        let mut state = self.paging.lock();
        if let Some(counters) = state.pages.counters(key) {
            let all = counters.named().map(|(name, count)| format!("{name} {count}"));
            crate::debug(&format!("region with lkey {key:#x}: {}", all.join(", ")));
        }
        state.pages.deregister(key);
        state.end_watch(&self.paging.watch);
        if !state.waiting.is_empty() {
            state.schedule(crate::clock::now_ns(), Due::Retry);
        }
        self.fetch(&mut state);
    }

    fn fetch(&self, state: &mut PagingState) {
        state.fetch_raised(crate::clock::now_ns(), &self.paging.watch);
        self.paging.note(state);
        if let Some(at_ns) = state.next_ns() {
            self.set_deadline(at_ns);
        }
    }

    /// Lets pages come that are due, and tells the queue pairs that wait for some. The caller holds
    /// no lock of a queue pair.
    pub(crate) fn let_pages_come(&self, now_ns: u64) {
        if !self.paging.has_work() {
            return;
        }
        let (waiting, naks) = {
            let mut state = self.paging.lock();
            if state.next_ns().is_none_or(|at_ns| at_ns > now_ns) {
                state.next_ns().into_iter().for_each(|at_ns| self.set_deadline(at_ns));
                return;
            }
            state.advance(now_ns);
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.naks))
        };
        let mut busy = Vec::new();
        for index in waiting.iter().chain(&naks).collect::<BTreeSet<_>>() {
            let Some(object) = self.qps.at(*index as usize) else { continue };
            let Some(mut guard) = object.inner.try_lock() else {
                busy.push(*index);
                continue;
            };
            if let Some(inner) = guard.as_mut() {
                for _ in naks.iter().filter(|nak| *nak == index) {
                    inner.qp.release_fault_nak();
                }
                if waiting.contains(index) {
                    inner.qp.pages_arrived(&mut inner.links);
                }
                inner.transmit();
                inner.settle();
            }
        }
        let mut state = self.paging.lock();
        if !busy.is_empty() {
            state.naks.extend(naks.iter().filter(|index| busy.contains(index)));
            state.waiting.extend(busy.iter().filter(|index| waiting.contains(index)));
            state.schedule(now_ns + RETRY_NS, Due::Retry);
        }
        self.paging.note(&state);
        state.next_ns().into_iter().for_each(|at_ns| self.set_deadline(at_ns));
    }
}
