//! Deferred packets: delayed packets wait for a time, reordered packets for others to overtake
//! them.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::packet::Flow;
use crate::quirk::Fate;

/// Number of waiting packets, at most.
pub const MAX_DEFERRED: usize = 8192;
/// Bytes of waiting packets, at most.
pub const MAX_DEFERRED_BYTES: usize = 16 << 20;
/// How long a packet waits at most for others to overtake it, ns. They may never come.
pub const OVERTAKING_NS: u64 = 10_000_000;

/// There is no room for another packet, which is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// The result of [`Deferred::defer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deferral {
    /// The packet itself is to be sent now.
    pub sends_now: bool,
    /// This packet was the last one that had to overtake a deferred packet. That packet is due now.
    pub released: bool,
    /// Number of copies that are lost because there was no room.
    pub overflowed: u64,
}

/// A packet that waits for its time. Packets with equal times go in the order of arrival.
#[derive(Debug)]
struct Timed<T> {
    flow: Flow,
    due_ns: u64,
    number: u64,
    bytes: usize,
    packet: T,
}

impl<T> PartialEq for Timed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Timed<T> {}

impl<T> PartialOrd for Timed<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Timed<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due_ns, self.number).cmp(&(other.due_ns, other.number))
    }
}

/// A packet that waits to be overtaken.
#[derive(Debug)]
struct Overtaken<T> {
    left: u32,
    timed: Timed<T>,
}

/// The waiting packets. `T` is the driver's representation of a packet.
#[derive(Debug)]
pub struct Deferred<T> {
    timed: BinaryHeap<Reverse<Timed<T>>>,
    overtaken: Vec<Overtaken<T>>,
    bytes: usize,
    number: u64,
    /// Packets and bytes that may wait.
    most: (usize, usize),
}

impl<T> Default for Deferred<T> {
    fn default() -> Self {
        let most = (MAX_DEFERRED, MAX_DEFERRED_BYTES);
        Deferred { timed: BinaryHeap::new(), overtaken: Vec::new(), bytes: 0, number: 0, most }
    }
}

impl<T> Deferred<T> {
    /// No packets, with room for any number of them.
    pub fn unbounded() -> Self {
        Deferred { most: (usize::MAX, usize::MAX), ..Deferred::default() }
    }

    /// Number of waiting packets.
    pub fn len(&self) -> usize {
        self.timed.len() + self.overtaken.len()
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take_in(
        &mut self,
        flow: Flow,
        due_ns: u64,
        bytes: usize,
        packet: T,
    ) -> Result<Timed<T>, Full> {
        if self.len() >= self.most.0 || self.bytes + bytes > self.most.1 {
            return Err(Full);
        }
        self.bytes += bytes;
        self.number += 1;
        Ok(Timed { flow, due_ns, number: self.number, bytes, packet })
    }

    /// Defers the copies of a packet, and the packet itself, as `fate` says; `fate` must not be a
    /// loss. `packet` makes a copy and returns its length and the copy. A packet that is to leave
    /// at once is deferred as well if it would overtake others of its flow: those that are due but
    /// not sent yet, or one that is being sent just now (`is_busy`).
    pub fn defer(
        &mut self,
        flow: &Flow,
        fate: &Fate,
        now_ns: u64,
        is_busy: bool,
        mut packet: impl FnMut() -> (usize, T),
    ) -> Deferral {
        let is_prompt = fate.behind == 0 && fate.delay_ns == 0;
        let sends_now = is_prompt && !is_busy && !self.is_overdue(flow, now_ns);
        let mut deferral = Deferral { sends_now, ..Deferral::default() };
        for copy in 0..fate.copies + !sends_now as u32 {
            let (bytes, packet) = packet();
            let deferred = match copy == fate.copies && fate.behind > 0 {
                true => self.behind(*flow, fate.behind, now_ns, bytes, packet),
                false => self.until(*flow, now_ns.saturating_add(fate.delay_ns), bytes, packet),
            };
            deferral.overflowed += deferred.is_err() as u64;
        }
        if fate.behind == 0 {
            deferral.released = self.passed(flow, now_ns);
        }
        deferral
    }

    /// Whether a delayed packet of a flow is due and not taken yet.
    fn is_overdue(&self, flow: &Flow, now_ns: u64) -> bool {
        let is_any = self.timed.peek().is_some_and(|Reverse(first)| first.due_ns <= now_ns);
        let is_it =
            |Reverse(timed): &Reverse<Timed<T>>| timed.flow == *flow && timed.due_ns <= now_ns;
        is_any && self.timed.iter().any(is_it)
    }

    /// Holds a packet until `due_ns`.
    ///
    /// # Errors
    /// [`Full`].
    pub fn until(&mut self, flow: Flow, due_ns: u64, bytes: usize, packet: T) -> Result<(), Full> {
        let timed = self.take_in(flow, due_ns, bytes, packet)?;
        self.timed.push(Reverse(timed));
        Ok(())
    }

    /// Holds a packet for `OVERTAKING_NS`, or until `behind` later packets of its flow have passed.
    ///
    /// # Errors
    /// [`Full`].
    pub fn behind(
        &mut self,
        flow: Flow,
        behind: u32,
        now_ns: u64,
        bytes: usize,
        packet: T,
    ) -> Result<(), Full> {
        let timed = self.take_in(flow, now_ns.saturating_add(OVERTAKING_NS), bytes, packet)?;
        self.overtaken.push(Overtaken { left: behind, timed });
        Ok(())
    }

    /// A packet of a flow has passed. Returns whether a deferred packet is due now because of that.
    pub fn passed(&mut self, flow: &Flow, now_ns: u64) -> bool {
        let mut any = false;
        for waiting in self.overtaken.iter_mut().filter(|waiting| waiting.timed.flow == *flow) {
            waiting.left = waiting.left.saturating_sub(1);
            if waiting.left == 0 {
                waiting.timed.due_ns = now_ns;
                any = true;
            }
        }
        any
    }

    /// Time when the next packet is due, ns.
    pub fn next_ns(&self) -> Option<u64> {
        let overtaken = self.overtaken.iter().map(|waiting| waiting.timed.due_ns).min();
        let timed = self.timed.peek().map(|Reverse(timed)| timed.due_ns);
        [overtaken, timed].into_iter().flatten().min()
    }

    /// Takes the next packet that is due, and its flow.
    pub fn take_due(&mut self, now_ns: u64) -> Option<(Flow, T)> {
        let at = self.overtaken.iter().position(|waiting| waiting.timed.due_ns <= now_ns);
        let timed = match at {
            Some(at) => self.overtaken.remove(at).timed,
            None if self.timed.peek()?.0.due_ns <= now_ns => self.timed.pop()?.0,
            None => return None,
        };
        self.bytes -= timed.bytes;
        Some((timed.flow, timed.packet))
    }
}
