//! Where things lie in the memory of an end. Both ends have the same layout for the same point, so
//! that each knows the other's.

use rdmalab_verbs::UD_GRH_BYTES;

use crate::point::{Experiment, Op, Point, Transport};

/// Alignment of a message: a cache line.
const LINE: usize = 64;
/// Alignment of what peers write beside messages.
const PAGE: usize = 4096;
/// Memory that `oneway` gives to messages that need places of their own.
const PLACES_BYTES: usize = 64 << 20;

/// The layout: words of control, messages going out, messages coming in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of a message.
    pub size: usize,
    /// Bytes from one place to the next.
    pub stride: usize,
    /// Places for messages going out.
    pub out_places: usize,
    /// Places for messages coming in.
    pub in_places: usize,
    /// Bytes in a place before a message: sent ones.
    pub lead: usize,
    /// The same, of received ones: behind the GRH on UD.
    pub grh: usize,
    words: usize,
}

impl Layout {
    pub fn of(point: &Point) -> Self {
        let size = point.size_bytes as usize;
        let grh = if point.transport == Transport::Ud { UD_GRH_BYTES } else { 0 };
        let stride = (size + grh).next_multiple_of(LINE);
        let fit = (PLACES_BYTES / stride).max(1);
        let (tx, rx) = (point.tx_depth as usize, point.rx_depth as usize);
        let (out_places, in_places) = match point.experiment {
            // Whose a message is, or which, has to be read before another one comes there.
            Experiment::Blast | Experiment::Ping
                if point.tags_payload() || point.numbers_payload() =>
            {
                let qps = point.qps as usize;
                let out = if point.experiment == Experiment::Blast { point.buffers } else { 1 };
                (out as usize, rx.min(fit / qps).max(1) * qps)
            }
            Experiment::Blast => (point.buffers as usize, point.buffers as usize),
            Experiment::Overhead => (point.list as usize, point.list as usize),
            Experiment::Ping | Experiment::Recvq => (1, 1),
            // They have memory of their own.
            Experiment::Fan
            | Experiment::Mr
            | Experiment::Connect
            | Experiment::Rpc
            | Experiment::Timeout => (1, 1),
            Experiment::Oneway => {
                // A place for each message under way, where it says something of itself.
                let numbered = !point.op.has_imm();
                // Receives of several queue pairs may not share one either.
                let qps = point.qps as usize;
                let shares = if point.op.writes() { 1 } else { qps };
                let each = rx.min(fit / shares).max(1);
                let in_places = if numbered || point.stamps.send { each * shares } else { 1 };
                match (numbered, point.op) {
                    (true, Op::Write) => (in_places, in_places),
                    (true, _) => (tx.min(fit).max(qps), in_places),
                    (false, _) => (1, in_places),
                }
            }
        };
        // A WRITE that is looked for ends with its number, in one aligned word.
        let looked_for = point.experiment == Experiment::Oneway && point.op == Op::Write;
        let lead = if looked_for { stride - size } else { 0 };
        // One word for each queue pair, and one to say that all is over.
        let words = point.qps as usize + 1;
        Self { size, stride, out_places, in_places, lead, grh, words }
    }

    /// A word that the peer writes; one for each queue pair.
    pub fn heard(&self, index: usize) -> usize {
        8 * index
    }

    /// The word that the peer writes when all is over.
    pub fn over(&self) -> usize {
        8 * (self.words - 1)
    }

    /// The word from which the peer's [`Layout::heard`] is written.
    pub fn told(&self, index: usize) -> usize {
        self.control() / 2 + 8 * index
    }

    fn control(&self) -> usize {
        2 * (8 * self.words).next_multiple_of(PAGE)
    }

    /// A message going out.
    pub fn out_at(&self, place: usize) -> usize {
        self.control() + place * self.stride + self.lead
    }

    fn in_start(&self) -> usize {
        (self.control() + self.out_places * self.stride).next_multiple_of(PAGE)
    }

    /// Where a receive of that place begins.
    pub fn recv_at(&self, place: usize) -> usize {
        self.in_start() + place * self.stride
    }

    /// Where a message that came in begins.
    pub fn in_at(&self, place: usize) -> usize {
        self.recv_at(place) + self.lead + self.grh
    }

    /// Bytes of a receive.
    pub fn recv_bytes(&self) -> usize {
        self.size + self.grh
    }

    /// All of it.
    pub fn bytes(&self) -> usize {
        self.in_start() + self.in_places * self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_numbers_are_aligned() {
        for (transport, op) in
            [(Transport::Rc, Op::Write), (Transport::Rc, Op::SendImm), (Transport::Ud, Op::Send)]
        {
            for size_bytes in [8, 9, 32, 63, 64, 65, 1000, 4096] {
                let base = Point::default_for(Experiment::Oneway);
                let layout = Layout::of(&Point { transport, op, size_bytes, ..base });
                let size = size_bytes as usize;
                assert!(layout.heard(0) < layout.over() && layout.over() < layout.told(0));
                assert!(layout.told(1) + 8 <= layout.out_at(0));
                let last = layout.out_places - 1;
                assert!(layout.out_at(last) + size <= layout.recv_at(0));
                let last = layout.in_places - 1;
                assert!(layout.in_at(last) + size <= layout.bytes());
                assert!(
                    layout.recv_at(0) + layout.recv_bytes() <= layout.recv_at(0) + layout.stride
                );
                if op == Op::Write {
                    assert!((layout.in_at(1) + size).is_multiple_of(8));
                } else {
                    assert!(layout.in_at(0).is_multiple_of(8));
                }
            }
        }
    }
}
