//! Events of a simulation, in the order of their times; equal times in the order of scheduling.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rdmalab_engine::odp::Page;

use crate::ids::{Part, QpId};
use crate::packets::{Leaving, Packets};
use crate::task::TaskId;
use crate::time::Ps;
use crate::timeline::StepId;

/// What happens at a time.
#[derive(Debug)]
pub(crate) enum Event {
    /// A task goes on; void if the task was resumed by something else meanwhile.
    Resume { task: TaskId, wait: u32 },
    /// The time limit of a task's looks may be over.
    LookLimit { task: TaskId },
    /// The adapter learns of posted sends up to position `posted`. `wqe`: the write contained the
    /// WQE itself (BlueFlame).
    Doorbell { qp: QpId, posted: u32, wqe: bool },
    /// The adapter has read the send WQEs up to position `posted`.
    SendWqes { qp: QpId, posted: u32 },
    /// The adapter goes on to read send WQEs.
    MoreSendWqes { qp: QpId },
    /// The send engine of an adapter takes its next queue pair.
    SendTurn { node: usize },
    /// The payload of planned packets is read from memory now.
    PayloadRead(Box<Packets>),
    /// Packets have their payload, and leave the adapter as soon as the link is free.
    Depart(Box<Packets>),
    /// The last packet of a request of an unreliable transport may have left.
    Left(Box<Leaving>),
    /// A packet that fault rules deferred is due.
    Deferred { node: usize },
    /// A part that several flows share has to book more packets.
    Book { part: Part },
    /// The first packet has reached the switch.
    AtSwitch(Box<Packets>),
    /// The switch sends a multicast to all its destinations.
    Replicate(Box<Packets>),
    /// The last packet has reached the adapter of node `node`.
    Arrive { node: usize, packets: Box<Packets> },
    /// The receive engine offers the oldest packets of a queue pair to it.
    Offer { qp: QpId },
    /// The adapter has read this many receive WQEs of a queue pair's own queue.
    RecvWqes { qp: QpId, count: u32 },
    /// The same of a shared receive queue.
    SrqWqes { node: usize, srq: usize, count: u32 },
    /// The bytes of the adapter's oldest write may be in memory.
    Write { node: usize },
    /// The adapter writes the completions of a queue whose time has come.
    WriteCompletions { node: usize, cq: usize },
    /// The oldest completion that was written to a completion queue can be polled.
    Completion { node: usize, cq: usize },
    /// The timer of a queue pair may be due.
    Timer { qp: QpId },
    /// A page has come that an adapter found missing.
    PageArrives { node: usize, page: Page },
    /// A queue pair with a fault context learns that its pages have come.
    PageResume { node: usize, context: u64 },
}

impl Event {
    /// Whether it only lets a task go on.
    pub(crate) fn is_of_tasks(&self) -> bool {
        matches!(self, Event::Resume { .. } | Event::LookLimit { .. })
    }

    /// Whether it is what an adapter does for a queue pair; packets on links are not.
    fn is_of(&self, id: QpId) -> bool {
        match self {
            Event::Doorbell { qp, .. }
            | Event::SendWqes { qp, .. }
            | Event::MoreSendWqes { qp }
            | Event::Offer { qp }
            | Event::RecvWqes { qp, .. }
            | Event::Timer { qp } => *qp == id,
            Event::PayloadRead(packets) | Event::Depart(packets) => packets.from == id,
            Event::Left(leaving) => leaving.qp == id,
            _ => false,
        }
    }
}

/// When an event happens, its place in the order of scheduling, and where the event is kept: in one
/// number, so that the heap compares and moves no more than that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Scheduled(u128);

/// Bits for the place where an event is kept; those above count what was scheduled.
const SLOT_BITS: u32 = 24;

impl Scheduled {
    fn new(at: Ps, sequence: u64, slot: usize) -> Scheduled {
        assert!(
            slot >> SLOT_BITS == 0,
            "more than {} events are scheduled: simulate fewer ranks or messages in flight",
            1 << SLOT_BITS
        );
        debug_assert!(sequence >> (u64::BITS - SLOT_BITS) == 0, "too many events");
        Scheduled(u128::from(at.0) << u64::BITS | u128::from(sequence << SLOT_BITS) | slot as u128)
    }

    fn at(self) -> Ps {
        Ps((self.0 >> u64::BITS) as u64)
    }

    fn sequence(self) -> u64 {
        self.0 as u64 >> SLOT_BITS
    }

    fn slot(self) -> usize {
        (self.0 as u64 & ((1 << SLOT_BITS) - 1)) as usize
    }
}

/// The events that are still to come.
#[derive(Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<Scheduled>>,
    /// The events, and places for more.
    slots: Vec<Option<Event>>,
    /// The places that are free.
    free: Vec<usize>,
    sequence: u64,
    /// The steps that events come from, if there is a timeline.
    causes: Option<Box<Causes>>,
}

/// Which step of a timeline led to each event.
#[derive(Default)]
struct Causes {
    /// The step that events come from which are scheduled now.
    now: StepId,
    /// That of the event that was taken last.
    taken: StepId,
    /// That of each event to come, by its sequence.
    of: BTreeMap<u64, StepId>,
}

impl EventQueue {
    /// Schedules an event.
    pub(crate) fn push(&mut self, at: Ps, event: Event) {
        self.sequence += 1;
        if self.causes.is_some() {
            self.note_cause();
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(event);
                slot
            }
            None => {
                self.slots.push(Some(event));
                self.slots.len() - 1
            }
        };
        self.heap.push(Reverse(Scheduled::new(at, self.sequence, slot)));
    }

    /// Drops what an adapter still does for a queue pair.
    pub(crate) fn drop_events_of(&mut self, id: QpId) {
        let EventQueue { heap, slots, free, causes, .. } = self;
        heap.retain(|Reverse(next)| {
            let event = &mut slots[next.slot()];
            let is_kept = event.as_ref().is_some_and(|event| !event.is_of(id));
            if !is_kept {
                *event = None;
                free.push(next.slot());
                if let Some(causes) = causes {
                    causes.of.remove(&next.sequence());
                }
            }
            is_kept
        });
    }

    /// All events, in no order.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.slots.iter().flatten()
    }

    /// The next event and its time.
    pub(crate) fn peek(&self) -> Option<(Ps, &Event)> {
        let Reverse(next) = self.heap.peek()?;
        Some((next.at(), self.slots[next.slot()].as_ref()?))
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<(Ps, Event)> {
        let Reverse(next) = self.heap.pop()?;
        if let Some(causes) = &mut self.causes {
            causes.taken = causes.of.remove(&next.sequence()).unwrap_or(0);
        }
        let event = self.slots[next.slot()].take()?;
        self.free.push(next.slot());
        Some((next.at(), event))
    }

    /// The event with this sequence comes from the step that is known now.
    #[cold]
    fn note_cause(&mut self) {
        if let Some(causes) = &mut self.causes {
            causes.of.insert(self.sequence, causes.now);
        }
    }

    /// From now on it is known which step each event comes from.
    pub(crate) fn keep_causes(&mut self) {
        self.causes = Some(Box::default());
    }

    /// The step that leads to what is scheduled now; 0 if there is no timeline.
    pub(crate) fn cause(&self) -> StepId {
        self.causes.as_ref().map_or(0, |causes| causes.now)
    }

    /// What is scheduled from now on comes from this step.
    pub(crate) fn set_cause(&mut self, step: StepId) {
        if let Some(causes) = &mut self.causes {
            causes.now = step;
        }
    }

    /// What is scheduled from now on comes from the step of the event that was taken last.
    pub(crate) fn follow_taken(&mut self) {
        if let Some(causes) = &mut self.causes {
            causes.now = causes.taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_their_order() {
        let mut queue = EventQueue::default();
        let turn = |node| Event::SendTurn { node };
        for (at, node) in [(5, 0), (3, 1), (5, 2), (3, 3), (5, 4)] {
            queue.push(Ps(at), turn(node));
        }
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop())
            .map(|(_, event)| if let Event::SendTurn { node } = event { node } else { 99 })
            .collect();
        assert_eq!(order, [1, 3, 0, 2, 4]);
    }
}
