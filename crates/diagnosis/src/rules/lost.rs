//! A lost packet that a later one revealed.

use rdmalab_trace::show::time;
use rdmalab_wire::opcode::Transport;

use crate::event::{Event, Step, Why};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// The rule.
pub struct Lost;

impl Rule for Lost {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        if step.is_explained {
            return false;
        }
        let occurrence = match step.event {
            Event::Again { ask, why: Why::Nak(nak), is_start: true, .. } => {
                let cost_ns = step.now.since(ask.last);
                let what = format!(
                    "{} was lost behind the place of capture, and repeated {} later",
                    ask.name(),
                    time(cost_ns)
                );
                Occurrence::new(what, cost_ns)
                    .shown(ask.last, format!("{}, lost", ask.name()))
                    .shown(nak, "NAK for the gap")
                    .shown(step.now, "repetition")
            }
            Event::Again { ask, why: Why::MissingResponse(late), is_start: true, .. } => {
                let cost_ns = step.now.since(ask.last);
                let what = format!("a response to {} was lost", ask.name());
                Occurrence::new(what, cost_ns)
                    .shown(ask.last, ask.name())
                    .shown(late, "a later answer")
                    .shown(step.now, "repetition")
            }
            Event::Filled { gap, nak } => {
                let cost_ns = step.now.since(gap);
                let what = "a packet was lost before the place of capture";
                let mut occurrence =
                    Occurrence::new(what, cost_ns).shown(gap, "the packet after the lost one");
                if let Some(nak) = nak {
                    occurrence = occurrence.shown(nak, "NAK for the gap");
                }
                occurrence.shown(step.now, "the lost one again")
            }
            Event::Gap if step.transport == Transport::Uc => {
                let doubt = "the missing packets may only be missing in the capture";
                found.doubt(Kind::Lost, Some(step.side), doubt);
                Occurrence::new("packets are missing; UC does not repeat them", 0)
                    .shown(step.now, "the packet after the gap")
            }
            _ => return false,
        };
        found.add(Kind::Lost, Some(step.side), occurrence);
        true
    }
}
