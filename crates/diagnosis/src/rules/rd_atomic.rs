//! READs and atomics that wait because only few may be under way.

use std::collections::BTreeMap;

use crate::event::{Event, SideId, Stamp, Step};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// A limit above this is not small; adapters offer 16.
const SMALL: usize = 4;
/// READs that are needed for a judgement.
const READS: u64 = 64;
/// A READ that leaves so soon after an answer was waiting for it.
const SOON_NS: u64 = 10_000;
/// So many READs of ten have to leave so soon.
const MOST: u64 = 8;

#[derive(Default)]
struct Counts {
    under_way: usize,
    peak: usize,
    reads: u64,
    waited: u64,
    /// When the last place became free while all were taken.
    freed: Option<Stamp>,
    /// When all places were taken, and since when in total.
    full_since: Option<Stamp>,
    full_ns: u64,
    first: Stamp,
    last: Stamp,
}

/// The rule.
#[derive(Default)]
pub struct SmallRdAtomic {
    of: BTreeMap<SideId, Counts>,
}

impl Rule for SmallRdAtomic {
    fn see(&mut self, step: &Step<'_>, _found: &mut Findings) -> bool {
        match step.event {
            Event::Sent(ask) if ask.returns_data() => {
                self.of.entry(step.side).or_default().sent(step.now);
            }
            Event::Answered(ask) if ask.returns_data() => {
                self.of.entry(step.side).or_default().answered(step.now);
            }
            _ => {}
        }
        false
    }

    fn end(&mut self, found: &mut Findings) {
        for (side, counts) in &self.of {
            let is_small = (2..=SMALL).contains(&counts.peak) && counts.reads >= READS;
            if !is_small || counts.waited * 10 < counts.reads * MOST {
                continue;
            }
            let what = format!(
                "never more than {} of {} READs and atomics were under way, and {} left just when \
                 one before was answered",
                counts.peak, counts.reads, counts.waited
            );
            let occurrence = Occurrence::new(what, counts.full_ns)
                .shown(counts.first, "first READ")
                .shown(counts.last, "last READ that waited");
            found.add(Kind::SmallRdAtomic, Some(*side), occurrence);
            let doubt = "a program that keeps so many READs posted, and no more, looks the same";
            found.doubt(Kind::SmallRdAtomic, Some(*side), doubt);
        }
    }
}

impl Counts {
    fn sent(&mut self, now: Stamp) {
        if self.reads == 0 {
            self.first = now;
        }
        self.reads += 1;
        self.under_way += 1;
        if self.freed.take().is_some_and(|freed| now.since(freed) <= SOON_NS) {
            self.waited += 1;
            self.last = now;
        }
        if self.under_way > self.peak {
            (self.peak, self.full_ns) = (self.under_way, 0);
        }
        if self.under_way == self.peak {
            self.full_since = Some(now);
        }
    }

    fn answered(&mut self, now: Stamp) {
        if let Some(since) = self.full_since.take() {
            self.full_ns = self.full_ns.saturating_add(now.since(since));
            self.freed = Some(now);
        }
        self.under_way = self.under_way.saturating_sub(1);
    }
}
