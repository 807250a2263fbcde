//! Deferred packets: delayed ones wait for their time, reordered ones until others overtook them.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::packet::Flow;
use crate::quirk::Fate;

/// Packets that wait at a time, at most.
pub const MAX_DEFERRED: usize = 8192;
/// Bytes of them, at most.
pub const MAX_DEFERRED_BYTES: usize = 16 << 20;
/// How long a packet waits for others to overtake it, ns: they may never come.
pub const OVERTAKING_NS: u64 = 10_000_000;

/// There is no room: what does not fit is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// What [`Deferred::defer`] made of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deferral {
    /// The packet itself is to be sent now.
    pub sends_now: bool,
    /// This packet was the last that had to overtake a deferred one, which is due now.
    pub released: bool,
    /// Copies that found no room, and are lost.
    pub overflowed: u64,
}

/// A packet that waits for its time. Equal times go by arrival.
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

/// See the module's text. `T` is whatever the driver sends.
#[derive(Debug)]
pub struct Deferred<T> {
    timed: BinaryHeap<Reverse<Timed<T>>>,
    overtaken: Vec<Overtaken<T>>,
    bytes: usize,
    number: u64,
}

impl<T> Default for Deferred<T> {
    fn default() -> Self {
        Deferred { timed: BinaryHeap::new(), overtaken: Vec::new(), bytes: 0, number: 0 }
    }
}

impl<T> Deferred<T> {
    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.timed.len() + self.overtaken.len()
    }

    /// Whether none waits.
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
        if self.len() >= MAX_DEFERRED || self.bytes + bytes > MAX_DEFERRED_BYTES {
            return Err(Full);
        }
        self.bytes += bytes;
        self.number += 1;
        Ok(Timed { flow, due_ns, number: self.number, bytes, packet })
    }

    /// Defers what `fate` says of a packet that is not lost, beside or instead of what is sent now;
    /// `packet` makes a copy and says how many bytes that is. What is to go at once waits all the
    /// same while others of its flow are due and not sent yet, and where `is_busy` says that one of
    /// them is just being sent: it would overtake them.
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
            deferral.released = self.passed(flow);
        }
        deferral
    }

    /// Whether a packet of a flow that was delayed is due, and still here.
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

    /// Holds a packet until `behind` more of its flow have passed, or for `OVERTAKING_NS`.
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

    /// A packet of a flow has passed. Returns whether something is due now because of it.
    pub fn passed(&mut self, flow: &Flow) -> bool {
        let mut any = false;
        for waiting in self.overtaken.iter_mut().filter(|waiting| waiting.timed.flow == *flow) {
            waiting.left = waiting.left.saturating_sub(1);
            if waiting.left == 0 {
                waiting.timed.due_ns = 0;
                any = true;
            }
        }
        any
    }

    /// When the next packet is due, ns.
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
