//! A NAK for a remote access error, or an operational one.

use rdmalab_wire::aeth::NakCode;

use crate::event::{Event, Step};
use crate::finding::Findings;
use crate::kind::Kind;
use crate::rule::Rule;
use crate::rules::length::refusal;

/// The rule.
pub struct AccessError;

impl Rule for AccessError {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        let Event::Nak { code, ask, .. } = step.event else { return false };
        let why = match code {
            NakCode::RemoteAccessError => "for its key, range or rights",
            NakCode::RemoteOperationalError => "since it failed itself (operational error)",
            _ => return false,
        };
        found.add(Kind::AccessError, Some(step.side), refusal(ask, step.now, why));
        true
    }
}
