//! A page fault at the responder: an RNR NAK to a request that needs no receive.

use crate::event::{Event, Step};
use crate::finding::Findings;
use crate::kind::Kind;
use crate::rule::Rule;
use crate::rules::rnr_storm::overcome;

/// The rule.
pub struct ServerFault;

impl Rule for ServerFault {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        let Event::RnrOver { ask, naks, is_answered } = step.event else { return false };
        if step.is_explained || ask.needs_receive() {
            return false;
        }
        let occurrence = overcome(ask, &naks, is_answered, step.now);
        found.add(Kind::ServerFault, Some(step.side), occurrence);
        true
    }
}
