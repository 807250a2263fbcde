//! A time-out: a request is repeated, and nothing asked for that.

use rdmalab_trace::show::time;
use rdmalab_wire::aeth::AckTimeout;

use crate::event::{Event, Step, Why};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// A time-out may take so many times its nominal length (IBA vol. 1, 9.7.6.1.3).
const LONGEST: u64 = 4;

/// The rule.
pub struct Timeout;

impl Rule for Timeout {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        let Event::Again { ask, why, is_start: true, .. } = step.event else { return false };
        if step.is_explained || !matches!(why, Why::Silence | Why::Answered(_)) {
            return false;
        }
        let waited_ns = step.now.since(ask.last);
        let reason = match why {
            Why::Answered(_) => "its answer was lost behind the place of capture, or came too late",
            _ => "no answer came",
        };
        let what = format!(
            "{} was repeated after {}: {reason}{}",
            ask.name(),
            time(waited_ns),
            codes(waited_ns)
        );
        let mut occurrence = Occurrence::new(what, waited_ns).shown(ask.last, ask.name());
        if let Why::Answered(answer) = why {
            occurrence = occurrence.shown(answer, "its answer");
        }
        found.add(Kind::Timeout, Some(step.side), occurrence.shown(step.now, "repetition"));
        if !step.has_both {
            let doubt = "the capture has no answers of the responder";
            found.doubt(Kind::Timeout, Some(step.side), doubt);
        }
        true
    }
}

/// The codes of the time-out that fit a wait.
fn codes(waited_ns: u64) -> String {
    let fits = |code: &u8| {
        let nominal = AckTimeout::new(*code).and_then(AckTimeout::nanoseconds);
        nominal.is_some_and(|ns| (ns..=ns.saturating_mul(LONGEST)).contains(&waited_ns))
    };
    let all: Vec<u8> = (1..32).filter(fits).collect();
    match (all.first(), all.last()) {
        (Some(low), Some(high)) if low != high => format!(" (`timeout` {low} to {high})"),
        (Some(code), _) => format!(" (`timeout` {code})"),
        _ => String::new(),
    }
}
