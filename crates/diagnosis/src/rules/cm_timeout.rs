//! A message of the connection manager that was repeated before it was answered.

use std::collections::BTreeMap;

use rdmalab_trace::Address;
use rdmalab_trace::show::time;
use rdmalab_wire::cm::{Mad, Message};

use crate::event::{Event, SideId, Stamp, Step};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// Requests that are remembered.
const REMEMBERED: usize = 4096;

struct Asked {
    side: SideId,
    name: &'static str,
    first: Stamp,
    last: Stamp,
    sends: u32,
}

/// The rule.
#[derive(Default)]
pub struct CmTimeout {
    /// By the sender and its identifier.
    asked: BTreeMap<(Address, u32), Asked>,
}

impl Rule for CmTimeout {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        let Event::Packet(packet) = step.event else { return false };
        if packet.start.is_empty() {
            return false;
        }
        let Ok(Mad { message, .. }) = Mad::parse(&packet.start) else { return false };
        let answered = match &message {
            Message::Rep(m) => Some(m.remote_id),
            Message::Rej(m) => Some(m.remote_id),
            Message::Mra(m) => Some(m.remote_id),
            Message::Rtu(m) => Some(m.remote_id),
            Message::SidrRep(m) => Some(m.request_id),
            _ => None,
        };
        let asked = answered.and_then(|id| self.asked.remove(&(packet.to, id)));
        if let Some(asked) = asked {
            close(&asked, Some(step.now), found);
        }
        let id = match &message {
            Message::Req(m) => m.local_id,
            Message::Rep(m) => m.local_id,
            Message::SidrReq(m) => m.request_id,
            _ => return false,
        };
        let id = (packet.from, id);
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.last = step.now;
            asked.sends += 1;
        } else if self.asked.len() < REMEMBERED {
            let (side, name, now) = (step.side, message.name(), step.now);
            self.asked.insert(id, Asked { side, name, first: now, last: now, sends: 1 });
        }
        false
    }

    fn end(&mut self, found: &mut Findings) {
        for asked in std::mem::take(&mut self.asked).into_values() {
            // The answer to a REP is optional: data may come instead.
            if asked.name != "REP" || asked.sends > 1 {
                close(&asked, None, found);
            }
        }
    }
}

fn close(asked: &Asked, answer: Option<Stamp>, found: &mut Findings) {
    let Asked { side, name, first, last, sends } = asked;
    if *sends < 2 && answer.is_some() {
        return;
    }
    let cost_ns = answer.unwrap_or(*last).since(*first);
    let end = match answer {
        Some(_) => format!("answered after {}", time(cost_ns)),
        None => "not answered".to_owned(),
    };
    let times = if *sends == 1 { "once".to_owned() } else { format!("{sends} times") };
    let what = format!("{name} was sent {times} and {end}");
    let mut occurrence = Occurrence::new(what, cost_ns).shown(*first, *name);
    if *sends > 1 {
        occurrence = occurrence.shown(*last, "last repetition");
    }
    if let Some(answer) = answer {
        occurrence = occurrence.shown(answer, "answer");
    }
    found.add(Kind::CmTimeout, Some(*side), occurrence);
    if answer.is_none() && *sends == 1 {
        let doubt = "the capture may end, or lack packets, before the answer";
        found.doubt(Kind::CmTimeout, Some(*side), doubt);
    }
}
