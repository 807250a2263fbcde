//! A NAK for an invalid request.

use rdmalab_wire::aeth::NakCode;

use crate::event::{Ask, Event, Stamp, Step};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// The rule.
pub struct LengthError;

impl Rule for LengthError {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        let Event::Nak { code, ask, .. } = step.event else { return false };
        if !matches!(code, NakCode::InvalidRequest | NakCode::InvalidRdRequest) {
            return false;
        }
        found.add(Kind::LengthError, Some(step.side), refusal(ask, step.now, "as invalid"));
        true
    }
}

/// A request that the responder refused for good.
pub fn refusal(ask: Option<&Ask>, now: Stamp, why: &str) -> Occurrence {
    match ask {
        Some(ask) => Occurrence::new(format!("the responder refused {} {why}", ask.name()), 0)
            .shown(ask.last, ask.name())
            .shown(now, "NAK"),
        None => {
            Occurrence::new(format!("the responder refused a request {why}"), 0).shown(now, "NAK")
        }
    }
}
