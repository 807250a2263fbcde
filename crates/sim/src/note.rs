//! Adds steps to the timeline of a message.

use std::sync::atomic::Ordering;

use crate::component::Component;
use crate::kernel::{Sim, World};
use crate::packets::{Packets, Source};
use crate::time::Ps;
use crate::timeline::{StepId, kind_name};

impl Sim {
    /// Adds a step of the caller, as [`World::note`].
    pub(crate) fn note(&self, node: usize, component: Component, what: &'static str) {
        if self.has_timeline.load(Ordering::Relaxed) {
            self.with(|world| world.note(node, component, || what.to_owned()));
        }
    }

    /// A look of a rank at its memory finds what it waits for.
    pub(crate) fn note_look(&self, node: usize) {
        if self.has_timeline.load(Ordering::Relaxed) {
            self.with(|world| {
                let written = world.timeline.as_ref().map_or(0, |timeline| timeline.written(node));
                world.caused_by(written);
                world.note(node, Component::Poll, || "a look finds what came".to_owned());
            });
        }
    }
}

impl World {
    /// A rank begins a post.
    pub(crate) fn note_post(&mut self, node: usize) {
        let cause = self.queue.cause();
        match self.timeline.as_mut().filter(|timeline| timeline.rank == node) {
            Some(timeline) => {
                let id = timeline.begin_post(self.now, cause);
                self.queue.set_cause(id);
            }
            None => self.note(node, Component::Program, || "the post begins".to_owned()),
        }
    }

    /// Adds a step to the timeline, if there is one. What is scheduled from now on comes from it.
    #[inline]
    pub(crate) fn note(
        &mut self,
        node: usize,
        component: Component,
        what: impl FnOnce() -> String,
    ) {
        if self.timeline.is_some() {
            self.note_at(self.now, node, component, what);
        }
    }

    /// The same for what will happen at a time.
    #[cold]
    fn note_at(
        &mut self,
        at: Ps,
        node: usize,
        component: Component,
        what: impl FnOnce() -> String,
    ) {
        if let Some(timeline) = self.timeline.as_mut() {
            let id = timeline.add((at, node, component), self.queue.cause(), what);
            self.queue.set_cause(id);
        }
    }

    /// The next step comes from this one, if it was later than the one that it would come from.
    fn caused_by(&mut self, other: StepId) {
        if let Some(timeline) = self.timeline.as_ref() {
            let id = timeline.later(self.queue.cause(), other);
            self.queue.set_cause(id);
        }
    }

    /// The adapter reads the payload of packets, or has it from the WQE. Half of the round trip on
    /// the bus is still to come.
    pub(crate) fn note_payload(&mut self, packets: &Packets) {
        let (node, bytes) = (packets.from.node, packets.train.payload_bytes);
        if self.timeline.is_none() || bytes == 0 {
            return;
        }
        let what = || format!("{bytes} bytes of payload are read");
        let is_read = self.parameters.wqe_read > 0 && !packets.is_inline;
        match packets.source {
            Source::Request(_) | Source::Response(Some(_)) if is_read => {
                self.note(node, Component::PayloadRead, what);
                let at = self.now + self.nodes[node].engines.bus.answer_time();
                self.note_at(at, node, Component::PayloadRead, || {
                    "the payload is in the adapter".to_owned()
                });
            }
            _ => self.note(node, Component::SendEngine, what),
        }
    }

    /// Packets leave a switch at a time. Copies of a multicast come from the same step.
    pub(crate) fn note_switch(&mut self, at: Ps, packets: &Packets) {
        let Some(timeline) = self.timeline.as_ref() else { return };
        let cause = self.queue.cause();
        if let Some((Component::Switch, reached)) = timeline.what_led_to(cause) {
            self.queue.set_cause(reached);
        }
        let kind = kind_name(packets.train.kind);
        self.note_at(at, packets.from.node, Component::Switch, || {
            format!("the {kind} leaves the switch")
        });
    }

    /// The adapter has read receive WQEs.
    pub(crate) fn note_receive_wqes(&mut self, node: usize) {
        self.note(node, Component::ReceiveWqe, || "the adapter has receive WQEs".to_owned());
    }

    /// Bytes are in memory.
    pub(crate) fn note_write(&mut self, node: usize, bytes: usize) {
        self.note(node, Component::MemoryWrite, || format!("{bytes} bytes are in memory"));
        if let Some(timeline) = self.timeline.as_mut() {
            timeline.note_written(node, self.queue.cause());
        }
    }

    /// The completion that was added last to a queue is visible.
    pub(crate) fn note_visible(&mut self, node: usize, cq: usize, is_send: bool) {
        if self.timeline.is_none() {
            return;
        }
        let of = if is_send { "send" } else { "receive" };
        self.note(node, Component::Completion, || format!("the completion of the {of} is visible"));
        let queue = self.nodes[node].cqs.get_mut(cq).and_then(Option::as_mut);
        if let Some(cqe) = queue.and_then(|queue| queue.visible.back_mut()) {
            cqe.step = self.queue.cause();
        }
    }

    /// A poll finds completions, the first of which became visible with the step `visible`.
    pub(crate) fn note_poll(&mut self, node: usize, taken: usize, visible: StepId) {
        self.caused_by(visible);
        self.note(node, Component::Poll, || match taken {
            1 => "a poll finds a completion".to_owned(),
            _ => format!("a poll finds {taken} completions"),
        });
    }
}
