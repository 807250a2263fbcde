//! An MTU mismatch: the ends send packets of different length within messages, or only packets up
//! to some length arrive.

use std::collections::HashMap;

use rdmalab_trace::conversation::inner_bytes;

use crate::event::{Event, SideId, Stamp, Step};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

#[derive(Default)]
struct Known {
    /// By end: the payload of packets that are not the last of their message.
    inner: [Option<(u32, Stamp)>; 2],
    is_reported: bool,
    /// By requester: the largest payload that was answered, if one was.
    answered: [Option<u32>; 2],
}

/// The rule.
#[derive(Default)]
pub struct Mtu {
    of: HashMap<usize, Known>,
}

impl Rule for Mtu {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        let known = self.of.entry(step.side.pair).or_default();
        let own = usize::from(!step.side.is_first);
        match step.event {
            Event::Packet(packet) => {
                let Some(bytes) = inner_bytes(packet) else { return false };
                // The requester of this step sent the packet, unless it is a response to it.
                let from = match packet.headers.bth.opcode.is_response() {
                    true => 1 - own,
                    false => own,
                };
                known.inner[from] = Some((bytes, step.now));
                differ(known, step.side, found);
            }
            Event::Answered(ask) => {
                known.answered[own] = known.answered[own].max(Some(ask.payload_bytes));
            }
            Event::Unanswered(ask) if ask.sends > 1 => {
                let Some(largest) = known.answered[own] else { return false };
                if ask.payload_bytes < 256 || ask.payload_bytes <= largest {
                    return false;
                }
                let what = format!(
                    "{} with {} bytes of payload was sent {} times and never answered; packets up \
                     to {largest} bytes were",
                    ask.name(),
                    ask.payload_bytes,
                    ask.sends
                );
                let occurrence = Occurrence::new(what, ask.last.since(ask.first))
                    .shown(ask.first, ask.name())
                    .shown(ask.last, "last repetition");
                found.add(Kind::Mtu, Some(step.side), occurrence);
                let doubt = "the responder may have vanished just before the first larger packet";
                found.doubt(Kind::Mtu, Some(step.side), doubt);
            }
            _ => {}
        }
        false
    }
}

fn differ(known: &mut Known, side: SideId, found: &mut Findings) {
    let [Some((one, at)), Some((other, then))] = known.inner else { return };
    if one == other || known.is_reported {
        return;
    }
    known.is_reported = true;
    let what = format!("one end sends packets of {one} bytes of payload, the other of {other}");
    let mut frames = [(at, one), (then, other)];
    frames.sort_by_key(|(at, _)| at.at_ns);
    let mut occurrence = Occurrence::new(what, 0);
    for (at, bytes) in frames {
        occurrence = occurrence.shown(at, format!("{bytes} bytes, more to follow"));
    }
    found.add(Kind::Mtu, Some(SideId { is_first: true, ..side }), occurrence);
}
