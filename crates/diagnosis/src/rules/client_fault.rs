//! A page fault at the requester: a READ or an atomic was answered, and repeated after about 0.5 ms
//! without a time-out.

use std::ops::Range;

use rdmalab_trace::show::time;

use crate::event::{Ask, Event, Stamp, Step, Why};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// Published: 0.5 to 0.8 ms (Fukuoka, 2021).
pub const INTERVAL_NS: Range<u64> = 300_000..1_200_000;

/// The rule.
pub struct ClientFault;

impl Rule for ClientFault {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        let Event::Again { ask, why: Why::Answered(answer), is_start: true, .. } = step.event
        else {
            return false;
        };
        let is_soon = INTERVAL_NS.contains(&step.now.since(ask.last));
        if step.is_explained || !ask.returns_data() || !is_soon {
            return false;
        }
        found.add(Kind::ClientFault, Some(step.side), fault(ask, Some(answer), step.now));
        let doubt = "a time-out of about 1 ms, whose answer was lost behind the place of capture, \
                     looks the same";
        found.doubt(Kind::ClientFault, Some(step.side), doubt);
        true
    }
}

/// A request whose answer was dropped.
pub fn fault(ask: &Ask, answer: Option<Stamp>, now: Stamp) -> Occurrence {
    let waited = now.since(ask.last);
    let name = ask.name();
    let what = match answer {
        Some(_) => format!("{name} was answered, and repeated {} later", time(waited)),
        None => format!("{name} was repeated {} later", time(waited)),
    };
    let mut occurrence = Occurrence::new(what, waited).shown(ask.last, ask.name());
    if let Some(answer) = answer {
        occurrence = occurrence.shown(answer, "response, dropped by the requester");
    }
    occurrence.shown(now, "repetition")
}
