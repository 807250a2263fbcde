//! Notes on the packets of a conversation.

use std::collections::BTreeMap;

use rdmalab_wire::aeth::{NakCode, Syndrome};
use rdmalab_wire::ids::Psn;
use rdmalab_wire::opcode::{Operation, Transport};

use super::model::{Conversation, Direction, Note, Row};
use crate::packet::{Icrc, Seen};

/// A message of the connection manager (IBA vol. 1, 12.6; MAD header 13.4.2).
pub struct Cm {
    /// Its name.
    pub name: &'static str,
    /// The sender's communication identifier.
    pub local: u32,
    /// The receiver's communication identifier.
    pub remote: u32,
    /// The sender's queue pair, if the message contains it.
    pub qpn: Option<u32>,
}

/// Queue pair 1 is the general service interface.
const GSI: u32 = 1;
/// Management class of the connection manager.
const CLASS_CM: u8 = 0x07;
/// Offset of the message after the MAD header.
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

/// The requests that one end has sent.
#[derive(Default)]
struct Sent {
    /// The PSN that comes next; `None` before the first.
    next: Option<Psn>,
    /// When a PSN was last sent.
    at_ns: Times,
}

/// When each PSN was last sent: ranges, by their first PSN, that do not overlap. Ranges, because a
/// READ takes one PSN for each packet of its response, up to millions.
#[derive(Default)]
struct Times(BTreeMap<u32, Range>);

/// A range of PSNs; its first PSN is the key in the map.
#[derive(Clone, Copy)]
struct Range {
    /// The PSN after its last one, at most 2^24.
    end: u32,
    at_ns: u64,
}

/// Ranges that are kept for each end; when there are more, all are dropped.
const REMEMBERED: usize = 1 << 16;
/// Number of PSNs.
const PSNS: u32 = 1 << 24;

impl Times {
    fn get(&self, psn: Psn) -> Option<u64> {
        let (_, range) = self.0.range(..=psn.get()).next_back()?;
        (psn.get() < range.end).then_some(range.at_ns)
    }

    /// Records that `count` PSNs from `first` on were sent at that time.
    fn put(&mut self, first: Psn, count: u32, at_ns: u64) {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        let first = first.get();
        let end = first + count;
        self.put_range(first, Range { end: end.min(PSNS), at_ns });
        if end > PSNS {
            self.put_range(0, Range { end: end - PSNS, at_ns });
        }
    }

    fn put_range(&mut self, first: u32, range: Range) {
        // An older range that begins before this one keeps only its parts outside it.
        if let Some((_, before)) = self.0.range_mut(..first).next_back()
            && before.end > first
        {
            let old = *before;
            before.end = first;
            if old.end > range.end {
                self.0.insert(range.end, old);
            }
        }
        while let Some((&inner, &old)) = self.0.range(first..range.end).next() {
            self.0.remove(&inner);
            if old.end > range.end {
                self.0.insert(range.end, old);
            }
        }
        self.0.insert(first, range);
    }
}

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

/// PSNs that a request takes: a READ takes one for each packet of its response (IBA 9.7.3). At most
/// half of all PSNs, because more could not be told from earlier ones.
fn psns(packet: &Seen, mtu: Option<u32>) -> u32 {
    match (packet.headers.bth.opcode.operation(), &packet.headers.reth, mtu) {
        (Operation::ReadRequest, Some(reth), Some(mtu)) if mtu > 0 => {
            reth.dma_length.div_ceil(mtu).clamp(1, PSNS / 2 - 1)
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
        let before = sent.at_ns.get(psn);
        notes.push(Note::Repeated { after_ns: before.map_or(0, |at| now.saturating_sub(at)) });
    } else if distance > 0 {
        notes.push(Note::Gap { psns: distance as u32 });
    }
    let count = psns(&row.packet, mtu);
    let end = psn.add(count);
    if end.distance_from(expected) > 0 || sent.next.is_none() {
        sent.next = Some(end);
    }
    // All PSNs of a READ, so that each packet of its response is matched with it.
    sent.at_ns.put(psn, count, now);
    notes
}

fn answer(row: &Row, asked: &mut Sent) -> Vec<Note> {
    let (psn, now) = (row.packet.headers.bth.psn, row.packet.at_ns);
    let mut notes = Vec::new();
    let syndrome = row.packet.headers.aeth.map(|aeth| aeth.syndrome);
    match asked.at_ns.get(psn) {
        Some(at) => notes.push(Note::Answers { after_ns: now.saturating_sub(at) }),
        // A NAK for a gap names a PSN that the capture does not have.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_gives_way_to_a_later_one_where_they_overlap() {
        let mut times = Times::default();
        let last = PSNS - 1;
        times.put(Psn::new(last - 9), 20, 1);
        assert_eq!(times.0.len(), 2, "around the end");
        times.put(Psn::new(last), 2, 2);
        times.put(Psn::new(5), 1, 3);
        for (psn, at) in [
            (last - 10, None),
            (last - 9, Some(1)),
            (last - 1, Some(1)),
            (last, Some(2)),
            (0, Some(2)),
            (1, Some(1)),
            (4, Some(1)),
            (5, Some(3)),
            (6, Some(1)),
            (9, Some(1)),
            (10, None),
        ] {
            assert_eq!(times.get(Psn::new(psn)), at, "{psn}");
        }
        times.put(Psn::new(0), 10, 4);
        assert_eq!((0..10).map(|psn| times.get(Psn::new(psn))).collect::<Vec<_>>(), [Some(4); 10]);
        assert_eq!(times.0.len(), 3);
    }

    #[test]
    fn a_read_of_any_length_is_one_range() {
        let mut times = Times::default();
        for i in 0..1000 {
            times.put(Psn::new(i * 3), PSNS / 2 - 1, i.into());
        }
        assert!(times.0.len() <= 1001, "{} ranges", times.0.len());
        for i in 0..2 * REMEMBERED as u32 {
            times.put(Psn::new(2 * i), 1, 0);
            assert!(times.0.len() <= REMEMBERED + 3);
        }
    }
}
