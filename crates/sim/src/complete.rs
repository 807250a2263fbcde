//! Adapters write completions, which become visible some time later and may raise an event.

use rdmalab_engine::cq::Notify;
use rdmalab_engine::vocab::AsyncEventType;

use crate::completion::Cqe;
use crate::event::Event;
use crate::ids::Part;
use crate::kernel::World;
use crate::span::Span;
use crate::time::Ps;

/// Bytes of a completion, as adapters write it.
const CQE_BYTES: u64 = 64;

impl World {
    /// Writes a completion to a queue, after `earliest`.
    pub(crate) fn write_completion(&mut self, node: usize, cq: usize, cqe: Cqe, earliest: Ps) {
        let host = &mut self.nodes[node];
        let Some(queue) = host.cqs.get_mut(cq).and_then(Option::as_mut) else { return };
        if queue.len() >= queue.capacity {
            if !queue.ignores_overrun && !queue.is_overrun {
                queue.is_overrun = true;
                let cookie = queue.cookie;
                host.events.push_back((AsyncEventType::CqErr, cookie));
                self.happened(node);
            }
            return;
        }
        if earliest > self.now || !queue.waiting.is_empty() {
            // The bus is free for others until then; the completions of a queue keep their order.
            queue.waiting.push_back((earliest, cqe));
            let at = earliest.max(self.now);
            return self.queue.push(at, Event::WriteCompletions { node, cq });
        }
        self.write_now(node, cq, cqe);
    }

    /// Writes the completions whose time has come.
    pub(crate) fn write_completions(&mut self, node: usize, cq: usize) {
        loop {
            let queue = self.nodes[node].cqs.get_mut(cq).and_then(Option::as_mut);
            let Some(queue) = queue else { return };
            let Some((earliest, cqe)) = queue.waiting.front().copied() else { return };
            if earliest > self.now {
                return;
            }
            queue.waiting.pop_front();
            self.write_now(node, cq, cqe);
        }
    }

    fn write_now(&mut self, node: usize, cq: usize, cqe: Cqe) {
        let completion = self.parameters.completion_ns;
        let host = &mut self.nodes[node];
        let Some(queue) = host.cqs.get_mut(cq).and_then(Option::as_mut) else { return };
        let written = host.engines.bus.write(Span::at(self.now), CQE_BYTES);
        queue.last = queue.last.max(written.at() + completion);
        queue.written.push_back((written, cqe));
        self.queue.push(queue.last, Event::Completion { node, cq });
        self.keep_booking(Part::Bus(node));
    }

    /// The oldest completion that was written becomes visible, unless reads have delayed its write.
    pub(crate) fn complete(&mut self, node: usize, cq: usize) {
        let host = &mut self.nodes[node];
        let Some(queue) = host.cqs.get_mut(cq).and_then(Option::as_mut) else { return };
        let Some((written, _)) = queue.written.front() else { return };
        let at = written.at() + self.parameters.completion_ns;
        if at > self.now {
            queue.last = queue.last.max(at);
            return self.queue.push(at, Event::Completion { node, cq });
        }
        let Some((_, mut cqe)) = queue.written.pop_front() else { return };
        if cqe.is_void {
            return;
        }
        cqe.at = self.now;
        queue.visible.push_back(cqe);
        let is_due = queue.notify.is_due(cqe.solicited, cqe.wc.status);
        let (channel, cookie) = (queue.channel, queue.cookie);
        if is_due {
            queue.notify = Notify::Disarmed;
        }
        self.note_visible(node, cq, cqe.frees.is_some());
        self.tell_completion(node, &cqe.wc, cqe.frees.is_none());
        if let Some(channel) = channel.filter(|_| is_due) {
            self.raise(node, channel, cookie);
        }
        self.happened(node);
    }
}
