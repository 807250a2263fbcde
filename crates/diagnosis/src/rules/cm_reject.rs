//! A connection that was rejected.

use rdmalab_wire::cm::{Mad, Message, reason};

use crate::event::{Event, Step};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;

/// The rule.
pub struct CmReject;

impl Rule for CmReject {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        let Event::Packet(packet) = step.event else { return false };
        if packet.start.is_empty() {
            return false;
        }
        let Ok(Mad { message: Message::Rej(rej), .. }) = Mad::parse(&packet.start) else {
            return false;
        };
        let why = match rej.reason {
            reason::NO_QP => "the peer has no queue pair left",
            reason::NO_RESOURCES => "the peer has no resources left",
            reason::TIMEOUT => "the sender gave up waiting for an answer",
            reason::INVALID_COMM_ID => "the peer does not know this connection",
            reason::INVALID_SERVICE_ID => "no process listens on that port",
            reason::STALE_CONNECTION => "the peer still has an older connection of the queue pair",
            reason::CONSUMER => "the program refused",
            _ => "see IBA vol. 1, table 115",
        };
        let what = format!("a connection was rejected with reason {}: {why}", rej.reason);
        let occurrence = Occurrence::new(what, 0).shown(step.now, "REJ");
        found.add(Kind::CmReject, Some(step.side), occurrence);
        false
    }
}
