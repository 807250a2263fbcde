//! A sequence NAK that names a PSN which was never sent.

use rdmalab_wire::aeth::NakCode;

use crate::event::{Event, Step};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// The rule.
pub struct PsnError;

impl Rule for PsnError {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        let Event::Nak { code: NakCode::PsnSequenceError, psn, ask: None, is_gap, is_first } =
            step.event
        else {
            return false;
        };
        // What the NAK answers may have been sent before the capture began.
        if is_gap || (is_first && step.has_both) {
            return false;
        }
        let what = format!("the responder expects PSN {}, which was never sent", psn.get());
        let occurrence =
            Occurrence::new(what, 0).shown(step.now, format!("NAK, PSN {} expected", psn.get()));
        found.add(Kind::PsnError, Some(step.side), occurrence);
        if !step.has_both {
            let doubt = "the requests were not found: in a capture of one direction a lost packet \
                         looks the same";
            found.doubt(Kind::PsnError, Some(step.side), doubt);
        }
        true
    }
}
