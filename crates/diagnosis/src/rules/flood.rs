//! Packet flood: READs of several queue pairs are repeated at intervals that are no time-outs,
//! although they were answered.

use std::collections::BTreeMap;

use crate::event::{Ask, Event, SideId, Stamp, Step, Why};
use crate::finding::{Findings, NAMED_MAX, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;
use crate::rules::client_fault::{INTERVAL_NS, fault};

/// A request that was sent so often before is more than a page fault: a fault takes up to 1 ms.
const SENDS: u32 = 3;
/// So many queue pairs are a flood; with fewer it is a long page fault.
const SIDES: usize = 3;

/// The repetitions of one requester beyond those of a page fault.
struct Repeats {
    count: u64,
    ask: Ask,
    last: Stamp,
    has_both: bool,
}

/// The rule.
#[derive(Default)]
pub struct Flood {
    of: BTreeMap<SideId, Repeats>,
}

impl Rule for Flood {
    fn see(&mut self, step: &Step<'_>, _found: &mut Findings) -> bool {
        let Event::Again { ask, why, .. } = step.event else { return false };
        let is_answered = matches!(why, Why::Answered(_)) || ask.answer.is_some();
        let may_be = is_answered || (!step.has_both && why == Why::Silence);
        let is_soon = INTERVAL_NS.contains(&step.now.since(ask.last));
        if !(ask.returns_data() && may_be && is_soon && ask.sends >= SENDS) {
            return false;
        }
        let repeats = self.of.entry(step.side).or_insert(Repeats {
            count: 0,
            ask: *ask,
            last: step.now,
            has_both: step.has_both,
        });
        repeats.count += 1;
        repeats.last = step.now;
        true
    }

    fn end(&mut self, found: &mut Findings) {
        if self.of.len() < SIDES {
            for (side, repeats) in &self.of {
                let mut occurrence = fault(&repeats.ask, None, repeats.last);
                occurrence.what += &format!(", and {} times more", repeats.count);
                found.add(Kind::ClientFault, Some(*side), occurrence);
            }
            return;
        }
        let count: u64 = self.of.values().map(|repeats| repeats.count).sum();
        let first = self.of.values().map(|r| r.ask.first).min_by_key(|at| at.at_ns);
        let last = self.of.values().map(|r| r.last).max_by_key(|at| at.at_ns);
        let (Some(first), Some(last)) = (first, last) else { return };
        let queue_pairs = self.of.len();
        let what = format!(
            "READs of {queue_pairs} queue pairs were repeated {count} times without a time-out, \
             beyond what page faults need"
        );
        let mut occurrence = Occurrence::new(what, last.since(first)).shown(first, "first READ");
        let mut worst: Vec<(&SideId, &Repeats)> = self.of.iter().collect();
        worst.sort_by_key(|(side, repeats)| (std::cmp::Reverse(repeats.count), **side));
        for (_, repeats) in worst.iter().take(4) {
            let name = repeats.ask.name();
            let times = repeats.ask.sends as u64 + repeats.count;
            occurrence = occurrence.shown(repeats.last, format!("{name}, sent {times} times"));
        }
        found.add(Kind::Flood, None, occurrence);
        let finding = found.finding(Kind::Flood, None);
        let named = worst.iter().take(NAMED_MAX).map(|(side, _)| side.pair.to_string());
        finding.queue_pairs = named.collect();
        if self.of.values().any(|repeats| !repeats.has_both) {
            let doubt = "the responses were not found: a responder that does not answer, with a \
                         time-out of 1 ms, looks the same";
            finding.doubts.insert(doubt.into());
        }
    }
}
