//! The receive queue of a queue pair: fills it, and posts used receives again, several at a time.

use rdmalab_rank::Stopped;
use rdmalab_verbs::{Mr, RecvBatch, RecvRequest, Sge};

use crate::common::completions::{failed, tag_of, thread_of};
use crate::common::endpoint::Endpoint;
use crate::common::layout::Layout;
use crate::common::params::Common;
use crate::common::thread_tag::place_of;

/// Most receives posted at a time.
const STEP_MAX: usize = 32;
/// Receives posted again at a time, and receives that a queue holds.
pub(crate) fn steps(common: &Common, layout: &Layout) -> (usize, usize) {
    let rx = common.rx_depth as usize;
    let step = STEP_MAX.min((rx / 4).max(1));
    let step = 1 << step.ilog2();
    // Where each message has a place of its own, no two receives may share one.
    let own = layout.in_places / common.qps as usize;
    let most = if layout.is_apart { own.max(1) } else { rx };
    let step = step.min(most);
    (step, rx.min(most) / step * step)
}

/// Receives of one queue pair.
pub(crate) struct RecvQueue<'a> {
    end: &'a Endpoint,
    qp: usize,
    batches: Vec<RecvBatch<'a>>,
    next: usize,
    step: u64,
    taken: u64,
    /// Set to the number of receives of each thread, if threads share the queue pair. Then a
    /// message may arrive in another thread's receive; each used receive is posted again itself,
    /// and the batches hold the receives of all threads.
    each: Option<usize>,
    /// Receives posted again so far.
    pub reposted: u64,
}

impl<'a> RecvQueue<'a> {
    /// With the receive queue filled.
    pub fn new(end: &'a Endpoint, common: &Common, qp: usize) -> Result<Self, Stopped> {
        let layout = &end.layout;
        let (step, depth) = steps(common, layout);
        let place = |j: usize| (qp * depth + j) % layout.in_places;
        let each = common.tags_payload().then_some(depth);
        let step = if each.is_some() { 1 } else { step };
        let of = |mr: &'a Mr, tag: u64| -> Vec<RecvBatch<'a>> {
            let sges: Vec<[Sge<'a>; 1]> = (0..depth)
                .map(|j| [mr.sge(layout.recv_at(place(j)), layout.recv_bytes())])
                .collect();
            let requests: Vec<_> = sges
                .iter()
                .enumerate()
                .map(|(j, sges)| RecvRequest::new(sges).wr_id(place(j) as u64 | tag))
                .collect();
            requests.chunks(step).map(RecvBatch::new).collect()
        };
        let (batches, first) = match each {
            None => (of(&end.mr, end.tag), 0),
            Some(depth) => {
                let memories = end.thread_tag.memories(&end.mr).iter().enumerate();
                let all = memories.flat_map(|(thread, mr)| of(mr, tag_of(thread))).collect();
                (all, thread_of(end.tag) * depth)
            }
        };
        let (next, step) = (first, step as u64);
        let mut recv_queue = Self { end, qp, batches, next, step, taken: 0, each, reposted: 0 };
        for _ in 0..depth as u64 / step {
            recv_queue.post()?;
        }
        Ok(recv_queue)
    }

    fn post(&mut self) -> Result<(), Stopped> {
        let posted = self.end.qps[self.qp].post_recv_batch(&mut self.batches[self.next]);
        posted.map_err(|e| self.end.diagnose(failed(e)))?;
        self.next = if self.next + 1 == self.batches.len() { 0 } else { self.next + 1 };
        Ok(())
    }

    /// The receive of that number was used up. Receives are posted again some at a time.
    #[inline]
    pub fn used(&mut self, wr_id: u64) -> Result<(), Stopped> {
        self.taken += 1;
        if let Some(depth) = self.each {
            let own = place_of(wr_id).wrapping_sub(self.qp * depth);
            self.next = (thread_of(wr_id) * depth + own).min(self.batches.len() - 1);
        }
        if self.taken - self.reposted >= self.step {
            self.post()?;
            self.reposted += self.step;
        }
        Ok(())
    }

    /// For a receiver that polls its memory: nothing is posted.
    pub fn empty(end: &'a Endpoint, qp: usize) -> Self {
        Self { end, qp, batches: Vec::new(), next: 0, step: 1, taken: 0, each: None, reposted: 0 }
    }
}
