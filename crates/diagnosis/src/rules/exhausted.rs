//! Retries exhausted: a request was repeated, never answered, and not repeated any more.

use std::collections::HashMap;

use rdmalab_trace::show::time;

use crate::event::{Event, SideId, Stamp, Step};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// An RNR wait may take so many times its minimum: adapters take 3.5 (Fukuoka, 2021).
const RNR_FACTOR: u64 = 10;
/// The longest time-out in multiples of the shortest one of the same code (IBA 9.7.6.1.3).
const TIMEOUT_FACTOR: u64 = 4;

/// The rule.
#[derive(Default)]
pub struct Exhausted {
    /// Requesters whose last word was an RNR NAK, with the wait that it asked for.
    refused: HashMap<SideId, (Stamp, u64)>,
    /// When each requester last sent something new.
    newest: HashMap<SideId, Stamp>,
}

impl Rule for Exhausted {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        match step.event {
            Event::Sent(_) => drop(self.newest.insert(step.side, step.now)),
            Event::Rnr(_, wait_ns) => drop(self.refused.insert(step.side, (step.now, wait_ns))),
            Event::Again { .. } | Event::Answered(_) => drop(self.refused.remove(&step.side)),
            Event::Unanswered(ask) if !step.is_explained => {
                let refused = self.refused.get(&step.side);
                // A queue pair that gave up sends nothing more.
                let newest = self.newest.get(&step.side);
                let goes_on = newest.is_some_and(|at| at.at_ns > ask.last.at_ns);
                if goes_on || (ask.sends < 2 && refused.is_none()) {
                    return false;
                }
                let tries = ask.sends;
                let waited_ns = ask.last.since(ask.first);
                let times = match tries {
                    1 => "once".to_owned(),
                    n => format!("{n} times within {}", time(waited_ns)),
                };
                let what = format!("{} was sent {times} and never answered", ask.name());
                let mut occurrence = Occurrence::new(what, waited_ns)
                    .shown(ask.first, ask.name())
                    .shown(ask.last, "last repetition");
                let mut patience_ns = ask
                    .previous
                    .map_or(0, |previous| ask.last.since(previous).saturating_mul(TIMEOUT_FACTOR));
                if let Some((nak, wait_ns)) = refused {
                    occurrence = occurrence.shown(*nak, "RNR NAK");
                    patience_ns = wait_ns.saturating_mul(RNR_FACTOR);
                }
                found.add(Kind::Exhausted, Some(step.side), occurrence);
                if step.now.since(ask.last) < patience_ns {
                    let doubt = "the capture ends before it is certain that no repetition follows";
                    found.doubt(Kind::Exhausted, Some(step.side), doubt);
                }
                if !step.has_both {
                    let doubt = "the capture has no answers of the responder";
                    found.doubt(Kind::Exhausted, Some(step.side), doubt);
                }
                return true;
            }
            _ => {}
        }
        false
    }
}
