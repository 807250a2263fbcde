//! Completion queues: completions become visible some time after the adapter has written them.

use std::collections::VecDeque;

use rdmalab_engine::cq::Notify;
use rdmalab_engine::vocab::Wc;

use crate::ids::QpId;
use crate::time::Ps;
use crate::timeline::StepId;
use crate::way::Due;

/// A completion on its way to the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cqe {
    pub(crate) wc: Wc,
    pub(crate) solicited: bool,
    /// The queue pair, and the position up to which its send queue is free after the poll.
    pub(crate) frees: Option<(QpId, u32)>,
    /// When it became visible.
    pub(crate) at: Ps,
    /// Its queue pair is destroyed: nobody polls it.
    pub(crate) is_void: bool,
    /// The step of the timeline at which it became visible.
    pub(crate) step: StepId,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) capacity: usize,
    pub(crate) channel: Option<usize>,
    pub(crate) cookie: u64,
    pub(crate) ignores_overrun: bool,
    pub(crate) users: usize,
    pub(crate) is_overrun: bool,
    pub(crate) notify: Notify,
    /// Not written yet, with the time before which they may not be.
    pub(crate) waiting: VecDeque<(Ps, Cqe)>,
    /// Written, and not visible yet.
    pub(crate) written: VecDeque<(Due, Cqe)>,
    pub(crate) visible: VecDeque<Cqe>,
    /// When the last one that was written becomes visible: they keep their order.
    pub(crate) last: Ps,
}

impl CompletionQueue {
    pub(crate) fn new(capacity: usize, channel: Option<usize>, cookie: u64, ignore: bool) -> Self {
        CompletionQueue {
            capacity,
            channel,
            cookie,
            ignores_overrun: ignore,
            users: 0,
            is_overrun: false,
            notify: Notify::Disarmed,
            waiting: VecDeque::new(),
            written: VecDeque::new(),
            visible: VecDeque::new(),
            last: Ps::ZERO,
        }
    }

    /// Asks for an event.
    pub(crate) fn request_notify(&mut self, solicited_only: bool) {
        let notify = if solicited_only { Notify::Solicited } else { Notify::Any };
        self.notify = self.notify.strengthen(notify);
    }

    /// Takes the oldest visible completion.
    pub(crate) fn pop(&mut self) -> Option<Cqe> {
        self.visible.pop_front()
    }

    /// Voids the completions of a queue pair that is destroyed.
    pub(crate) fn purge(&mut self, qp_num: u32) {
        self.visible.retain(|cqe| cqe.wc.qp_num != qp_num);
        self.waiting.retain(|(_, cqe)| cqe.wc.qp_num != qp_num);
        // Each of these has an event, which takes it.
        for (_, cqe) in &mut self.written {
            cqe.is_void |= cqe.wc.qp_num == qp_num;
        }
    }

    /// How many it holds.
    pub(crate) fn len(&self) -> usize {
        let written = self.written.iter().filter(|(_, cqe)| !cqe.is_void).count();
        self.waiting.len() + written + self.visible.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cqe(wr_id: u64, qp_num: u32) -> Cqe {
        let wc = Wc { wr_id, qp_num, ..Wc::BLANK };
        Cqe { wc, solicited: false, frees: None, at: Ps::ZERO, is_void: false, step: 0 }
    }

    #[test]
    fn completions_of_a_destroyed_queue_pair_are_not_polled() {
        let mut queue = CompletionQueue::new(4, None, 0, false);
        queue.visible.extend([cqe(1, 7), cqe(2, 8), cqe(3, 7)]);
        queue.purge(7);
        assert_eq!(queue.pop().map(|cqe| cqe.wc.wr_id), Some(2));
        assert!(queue.pop().is_none());
    }
}
