//! Requests that wait behind one that is repeated.

use rdmalab_trace::show::time;

use crate::event::{Event, Step, Why};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// So many requests have to wait, for so long.
const BEHIND: usize = 4;
const WAIT_NS: u64 = 1_000_000;

/// The rule. It explains nothing: what they wait for has another rule.
pub struct HeadOfLine;

impl Rule for HeadOfLine {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        let Event::Again { ask, why, is_start: true, behind } = step.event else { return false };
        let waited_ns = step.now.since(ask.last);
        if why == Why::Copy || behind < BEHIND || waited_ns < WAIT_NS {
            return false;
        }
        let what = format!(
            "{behind} packets waited {} behind {} until it was repeated",
            time(waited_ns),
            ask.name()
        );
        let occurrence = Occurrence::new(what, waited_ns)
            .shown(ask.last, ask.name())
            .shown(step.now, "repetition");
        found.add(Kind::HeadOfLine, Some(step.side), occurrence);
        false
    }
}
