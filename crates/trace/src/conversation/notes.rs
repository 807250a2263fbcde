//! What each packet of a conversation meant.

use std::collections::BTreeMap;

use rdmalab_wire::aeth::{NakCode, Syndrome};
use rdmalab_wire::ids::Psn;
use rdmalab_wire::opcode::{Operation, Transport};

use super::{Conversation, Direction, Note, Row};
use crate::packet::{Icrc, Seen};

/// A message of the connection manager (IBA vol. 1, 12.6; MAD header 13.4.2).
pub struct Cm {
    /// Its name.
    pub name: &'static str,
    /// The sender's number of the conversation.
    pub local: u32,
    /// The receiver's.
    pub remote: u32,
    /// The sender's queue pair, where the message tells it.
    pub qpn: Option<u32>,
}

/// Queue pair 1 is the general service interface.
const GSI: u32 = 1;
/// Management class of the connection manager.
const CLASS_CM: u8 = 0x07;
/// Where the message begins behind the MAD header.
const DATA: usize = 24;

impl Cm {
    /// Reads the message that a packet carries, if it carries one.
    pub fn of(packet: &Seen) -> Option<Self> {
        if packet.headers.bth.dest_qp.get() != GSI {
            return None;
        }
        let bytes = packet.start.as_slice();
        if bytes.first() != Some(&1) || bytes.get(1) != Some(&CLASS_CM) {
            return None;
        }
        let word = |at: usize| {
            let bytes = bytes.get(DATA + at..DATA + at + 4)?;
            Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        let attribute = u16::from_be_bytes([*bytes.get(16)?, *bytes.get(17)?]);
        let (name, qpn_at) = match attribute {
            0x10 => ("REQ", Some(32)),
            0x11 => ("MRA", None),
            0x12 => ("REJ", None),
            0x13 => ("REP", Some(12)),
            0x14 => ("RTU", None),
            0x15 => ("DREQ", None),
            0x16 => ("DREP", None),
            0x17 => ("SIDR_REQ", None),
            0x18 => ("SIDR_REP", None),
            0x19 => ("LAP", None),
            0x1a => ("APR", None),
            _ => return None,
        };
        let qpn = qpn_at.and_then(word).map(|word| word >> 8);
        Some(Self { name, local: word(0)?, remote: word(4)?, qpn })
    }
}

/// What one end has sent.
#[derive(Default)]
struct Sent {
    /// The PSN that comes next; `None` before the first.
    next: Option<Psn>,
    /// When a PSN was last sent.
    at_ns: BTreeMap<u32, u64>,
}

/// PSNs that are remembered for each end; older ones are forgotten.
const REMEMBERED: usize = 1 << 16;

/// Adds the notes to all rows.
pub fn annotate(conversation: &mut Conversation) {
    let mtu = conversation.mtu_bytes;
    let transport = conversation.transport;
    let mut ends = [Sent::default(), Sent::default()];
    for row in &mut conversation.rows {
        let own = usize::from(row.direction == Direction::Back);
        let mut notes = Vec::new();
        if row.packet.icrc == Icrc::Bad {
            notes.push(Note::BadIcrc);
        } else if row.packet.headers.bth.opcode.is_response() {
            notes.extend(answer(row, &mut ends[1 - own]));
        } else if matches!(transport, Transport::Rc | Transport::Uc) {
            notes.extend(request(row, &mut ends[own], mtu));
        }
        notes.extend(Cm::of(&row.packet).map(|message| Note::Cm(message.name)));
        let comment = row.packet.comment.as_str();
        notes.extend((!comment.is_empty()).then(|| Note::Comment(comment.to_owned())));
        row.notes = notes;
    }
}

/// PSNs that a request takes: a READ takes one for each packet of its answer (IBA 9.7.3).
fn psns(packet: &Seen, mtu: Option<u32>) -> u32 {
    match (packet.headers.bth.opcode.operation(), &packet.headers.reth, mtu) {
        (Operation::ReadRequest, Some(reth), Some(mtu)) if mtu > 0 => {
            reth.dma_length.div_ceil(mtu).max(1)
        }
        _ => 1,
    }
}

fn request(row: &Row, sent: &mut Sent, mtu: Option<u32>) -> Vec<Note> {
    let (psn, now) = (row.packet.headers.bth.psn, row.packet.at_ns);
    let mut notes = Vec::new();
    let expected = sent.next.unwrap_or(psn);
    let distance = psn.distance_from(expected);
    if distance < 0 {
        let before = sent.at_ns.get(&psn.get());
        notes.push(Note::Repeated { after_ns: before.map_or(0, |at| now.saturating_sub(*at)) });
    } else if distance > 0 {
        notes.push(Note::Gap { packets: distance as u32 });
    }
    let end = psn.add(psns(&row.packet, mtu));
    if end.distance_from(expected) > 0 || sent.next.is_none() {
        sent.next = Some(end);
    }
    if sent.at_ns.len() >= REMEMBERED {
        sent.at_ns.clear();
    }
    // Of a READ each PSN of the answer, so that each part of it finds its question.
    for step in 0..psns(&row.packet, mtu).min(REMEMBERED as u32) {
        sent.at_ns.insert(psn.add(step).get(), now);
    }
    notes
}

fn answer(row: &Row, asked: &mut Sent) -> Vec<Note> {
    let (psn, now) = (row.packet.headers.bth.psn, row.packet.at_ns);
    let mut notes = Vec::new();
    let syndrome = row.packet.headers.aeth.map(|aeth| aeth.syndrome);
    match asked.at_ns.get(&psn.get()) {
        Some(at) => notes.push(Note::Answers { after_ns: now.saturating_sub(*at) }),
        // A NAK for a gap names a PSN that did not come by.
        None if matches!(syndrome, Some(Syndrome::Nak(NakCode::PsnSequenceError))) => {}
        None => notes.push(Note::Stale),
    }
    match syndrome {
        Some(Syndrome::RnrNak(timer)) => {
            notes.push(Note::NotReady { wait_ns: timer.nanoseconds() });
        }
        Some(Syndrome::Nak(NakCode::PsnSequenceError)) => notes.push(Note::GoBack),
        Some(Syndrome::Nak(code)) => notes.push(Note::Refused(code)),
        Some(Syndrome::Ack { .. }) | None => {}
    }
    notes
}
