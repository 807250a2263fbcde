//! The file in which this process leaves what it counted, for `rdmalab exec --repeat`.
//!
//! `RDMALAB_COUNTERS` names a directory. A process writes one small file there: when it opens a
//! device, when it closes one, and when it exits. Each line is a name and a number. The first line
//! says in which of the three states it was written, so a reader knows whether the numbers are the
//! last ones: a process that was killed, or that became another program, leaves `open`, with the
//! counts of the queue pairs that were destroyed before.
//!
//! If something happened to pages of on-demand regions, the last lines say when:
//! `page_interval_ns N`, and for each interval of that length in which it happened `pages` with the
//! interval's begin in ns of `CLOCK_MONOTONIC` and the numbers of faults, invalidations and
//! prefetches.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use rdmalab_engine::odp;
use rdmalab_engine::qp::Tally;

use crate::counters::Counters;
use crate::hooks::choice;
use crate::process::Process;
use crate::qp::QpObject;
use crate::qp_table::QpTable;

/// How often the lock of a queue pair is tried: a thread that runs has left it by then.
const LOCK_ATTEMPTS: u32 = 1000;
/// How long another thread that writes the file is waited for.
const WRITER_WAIT: Duration = Duration::from_millis(100);

impl Counters {
    /// A device was opened.
    pub(crate) fn device_opened(&self, qps: &QpTable<QpObject>) {
        self.open.fetch_add(1, Ordering::Relaxed);
        if self.file.is_some() {
            static ONCE: std::sync::Once = std::sync::Once::new();
            ONCE.call_once(|| {
                // SAFETY: the handler reads the leaked state of the process only.
                unsafe { libc::atexit(at_exit) };
            });
            self.leave("open", qps);
        }
    }

    /// A device was closed.
    pub(crate) fn device_closed(&self, qps: &QpTable<QpObject>) {
        let less = |open: u64| Some(open.saturating_sub(1));
        let before = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let is_last = before.is_ok_and(|before| before <= 1);
        self.leave(if is_last { "closed" } else { "open" }, qps);
    }

    /// What all queue pairs counted, and how many are in use and not among them.
    fn of_all_queue_pairs(&self, qps: &QpTable<QpObject>) -> (Tally, u64) {
        self.of_queue_pairs(|tally| {
            let mut uncounted = 0;
            for object in qps.all() {
                let guard = (0..LOCK_ATTEMPTS).find_map(|attempt| {
                    if attempt > 0 {
                        std::thread::yield_now();
                    }
                    object.inner.try_lock()
                });
                match guard {
                    Some(guard) => guard.iter().for_each(|inner| tally.add(&inner.qp.tally())),
                    None => uncounted += 1,
                }
            }
            uncounted
        })
    }

    fn leave(&self, state: &str, qps: &QpTable<QpObject>) {
        /// Threads write one after the other. A signal handler may have interrupted one.
        static WRITING: Mutex<()> = Mutex::new(());
        let Some(file) = &self.file else { return };
        let Some(_writing) = WRITING.try_lock_for(WRITER_WAIT) else { return };
        let text = self.in_words(state, qps);
        // Renamed, so that a reader never finds half of it.
        let fresh = file.with_extension("new");
        let written = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, file));
        if let Err(error) = written {
            crate::debug_once(&format!("RDMALAB_COUNTERS: {}: {error}", file.display()));
        }
    }

    fn in_words(&self, state: &str, qps: &QpTable<QpObject>) -> String {
        // While the program runs, locking its queue pairs would disturb what it measures.
        let (tally, uncounted) = match state {
            "open" => self.of_queue_pairs(|_| 0),
            _ => self.of_all_queue_pairs(qps),
        };
        let disturbed = choice::hooks().disturbed_packets;
        let between_hosts = crate::udp::hook::network_drops();
        let (waits, late_waits) = waits();
        let made = [("queue_pairs", self.queue_pairs.load(Ordering::Relaxed))];
        let lines = [
            ("dropped_trains", self.dropped.load(Ordering::Relaxed)),
            ("dropped_between_hosts", between_hosts.iter().map(|(_, count)| count).sum()),
            ("disturbed_packets", disturbed),
            ("waits", waits),
            ("late_waits", late_waits),
            ("uncounted_queue_pairs", uncounted),
        ];
        let buffers = crate::program_memory::counts();
        let buffers = buffers.map(|(shared, private)| {
            [("shared_buffers", shared), ("buffers_left_private", private)]
        });
        let (pages, timeline) = crate::mr::page_history();
        let pages = (pages != Default::default()).then(|| pages.named()).into_iter().flatten();
        let mut text = format!("{state}\n");
        let all = made.into_iter().chain(tally.named()).chain(lines).chain(pages);
        for (name, value) in all.chain(buffers.into_iter().flatten()) {
            let _ = writeln!(text, "{name} {value}");
        }
        text + &when(&timeline)
    }
}

/// The lines that say when something happened to pages.
fn when(timeline: &odp::Timeline) -> String {
    let mut text = String::new();
    for (start_ns, pages) in timeline.intervals() {
        if text.is_empty() {
            text = format!("page_interval_ns {}\n", timeline.interval_ns());
        }
        let [faults, invalidations, prefetches] = pages.named().map(|(_, count)| count);
        let _ = writeln!(text, "pages {start_ns} {faults} {invalidations} {prefetches}");
    }
    text
}

/// What the queue pairs of this process counted so far, also those that are gone; `None` if another
/// thread keeps one of them locked. Call it before and after a measurement, not during it.
pub fn tally() -> Option<Tally> {
    let Some(process) = Process::existing() else { return Some(Tally::default()) };
    let (tally, uncounted) = process.counters.of_all_queue_pairs(&process.qps);
    (uncounted == 0).then_some(tally)
}

/// How many waits of 50 us or more for pages, held RNR NAKs and pauses have ended under a profile
/// that pages, and how many of them lasted more than a tenth too long.
pub fn waits() -> (u64, u64) {
    Process::existing().map_or((0, 0), |process| process.timers.delays.counts())
}

extern "C" fn at_exit() {
    if let Some(process) = Process::existing() {
        process.counters.leave("exited", &process.qps);
    }
}
