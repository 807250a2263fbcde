//! An RNR storm: one request got many RNR NAKs.

use rdmalab_trace::show::time;

use crate::event::{Ask, Event, Refusals, Stamp, Step};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// So many NAKs to one request are possible only with rnr_retry = 7, which is without end: 6
/// retries allow 7.
const NAKS: u32 = 8;

/// The rule.
pub struct RnrStorm;

impl Rule for RnrStorm {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        let Event::RnrOver { ask, naks, is_answered } = step.event else { return false };
        if step.is_explained || naks.naks < NAKS {
            return false;
        }
        let occurrence = overcome(ask, &naks, is_answered, step.now);
        found.add(Kind::RnrStorm, Some(step.side), occurrence);
        if !ask.needs_receive() {
            let finding = found.finding(Kind::RnrStorm, Some(step.side));
            finding.cause = format!("{}. {}", Kind::ServerFault.cause(), finding.kind.cause());
            finding.remedy = Kind::ServerFault.remedy().to_owned();
        }
        true
    }
}

/// A request that was refused by RNR NAKs for a while.
pub fn overcome(ask: &Ask, naks: &Refusals, is_answered: bool, now: Stamp) -> Occurrence {
    let count = match naks.naks {
        1 => "an RNR NAK".to_owned(),
        n => format!("{n} RNR NAKs"),
    };
    let end = if is_answered { now } else { naks.last };
    let cost_ns = end.since(ask.first);
    let wait = time(naks.wait_ns);
    let what = match is_answered {
        true => format!(
            "{} got {count} (wait {wait} or more) and was answered after {}",
            ask.name(),
            time(cost_ns)
        ),
        false => format!("{} got {count} (wait {wait} or more) and was not answered", ask.name()),
    };
    let mut occurrence =
        Occurrence::new(what, cost_ns).shown(ask.first, ask.name()).shown(naks.first, "RNR NAK");
    if ask.sends > 1 {
        occurrence = occurrence.shown(ask.last, "last repetition");
    }
    if is_answered {
        return occurrence.shown(now, "answer");
    }
    occurrence
}
