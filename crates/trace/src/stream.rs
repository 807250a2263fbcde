//! A capture as a stream of packets, in bounded memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use rdmalab_wire::error::ParseError;

use crate::file::{Capture, Frame, ReadError};
use crate::packet::{Seen, Unread};

/// Packets that wait for earlier ones: captures of several interfaces are not always in order.
pub const REORDERED_MAX: usize = 4096;

/// What a capture has besides packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames in the capture.
    pub frames: u64,
    /// Frames of other protocols.
    pub foreign: u64,
    /// RDMA frames that cannot be read: the first error of each kind, and the number of frames.
    pub malformed: Vec<(ParseError, u64)>,
    /// Packets that were lost while capturing, as the file says.
    pub dropped: u64,
    /// Why the capture ends early, if it does.
    pub cut_short: Option<String>,
}

impl Tally {
    /// Counts a frame; its packet, if it is one.
    pub fn take(&mut self, frame: &Frame) -> Option<Seen> {
        self.frames += 1;
        match Seen::of(frame) {
            Ok(seen) => return Some(seen),
            Err(Unread::Foreign) => self.foreign += 1,
            Err(Unread::Malformed(reason)) => {
                let kind = std::mem::discriminant(&reason);
                let mut kinds = self.malformed.iter_mut();
                match kinds.find(|(first, _)| std::mem::discriminant(first) == kind) {
                    Some((_, count)) => *count += 1,
                    None => self.malformed.push((reason, 1)),
                }
            }
        }
        None
    }
}

/// A packet that waits, ordered by time, and by place in the file where times are equal.
struct Waiting(Seen);

impl Waiting {
    fn key(&self) -> (u64, u64) {
        (self.0.at_ns, self.0.frame)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The packets of a capture, in order of time, as far as [`REORDERED_MAX`] packets of memory allow.
/// A capture that ends in the middle of a frame, or is damaged, gives what came before.
pub struct Packets {
    capture: Capture,
    tally: Tally,
    waiting: BinaryHeap<Reverse<Waiting>>,
    is_read: bool,
}

impl Packets {
    /// Opens a pcap or pcapng file.
    ///
    /// # Errors
    /// When there is no such file, or it is neither.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let capture = Capture::open(path)?;
        let (tally, waiting) = (Tally::default(), BinaryHeap::new());
        Ok(Self { capture, tally, waiting, is_read: false })
    }

    /// What was counted so far: complete after the last packet.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    fn fill(&mut self) {
        while !self.is_read && self.waiting.len() <= REORDERED_MAX {
            match self.capture.next_frame() {
                Ok(Some(frame)) => {
                    let seen = self.tally.take(&frame);
                    self.waiting.extend(seen.map(|seen| Reverse(Waiting(seen))));
                }
                Ok(None) => self.is_read = true,
                Err(reason) => {
                    self.tally.cut_short = Some(reason.to_string());
                    self.is_read = true;
                }
            }
        }
        self.tally.dropped = self.capture.dropped();
    }
}

impl Iterator for Packets {
    type Item = Seen;

    fn next(&mut self) -> Option<Seen> {
        self.fill();
        self.waiting.pop().map(|Reverse(Waiting(seen))| seen)
    }
}
