//! A duplicate storm: many requests are repeated that had been answered.

use std::collections::BTreeMap;

use crate::event::{Event, SideId, Stamp, Step, Why};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// So many repetitions, and one in so many requests, are a storm.
const REPEATS: u64 = 32;
const ONE_IN: u64 = 5;

#[derive(Default)]
struct Counts {
    sent: u64,
    repeats: u64,
    copies: u64,
    first: Option<Stamp>,
    last: Stamp,
}

/// The rule.
#[derive(Default)]
pub struct Duplicates {
    of: BTreeMap<SideId, Counts>,
}

impl Rule for Duplicates {
    fn see(&mut self, step: &Step<'_>, _found: &mut Findings) -> bool {
        let is_repeat = match step.event {
            Event::Sent(_) => false,
            Event::AgainUnseen => true,
            Event::Again { why: Why::Copy, .. } => true,
            Event::Again { ask, .. } => ask.answer.is_some(),
            _ => return false,
        };
        let counts = self.of.entry(step.side).or_default();
        counts.sent += 1;
        if is_repeat && !step.is_explained {
            counts.repeats += 1;
            let is_copy = matches!(step.event, Event::Again { why: Why::Copy, .. });
            counts.copies += u64::from(is_copy);
            counts.first.get_or_insert(step.now);
            counts.last = step.now;
        }
        false
    }

    fn end(&mut self, found: &mut Findings) {
        for (side, counts) in &self.of {
            let Some(first) = counts.first else { continue };
            if counts.repeats < REPEATS || counts.repeats * ONE_IN < counts.sent {
                continue;
            }
            let what = format!(
                "{} of {} request packets were sent although they had been answered, or twice at \
                 once ({} of them)",
                counts.repeats, counts.sent, counts.copies
            );
            let occurrence = Occurrence::new(what, 0)
                .shown(first, "the first of them")
                .shown(counts.last, "the last of them");
            found.add(Kind::Duplicates, Some(*side), occurrence);
        }
    }
}
