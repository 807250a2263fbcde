//! Posts messages from requests that are built once, and counts the slots of their queue.

use rdmalab_rank::Stopped;
use rdmalab_verbs::{Mr, RemoteBuffer, SendBatch, SendRequest, Sge, Wc};

use crate::common::completions::failed;
use crate::common::connection::QKEY;
use crate::common::endpoint::Endpoint;
use crate::common::params::{Common, Op};
use crate::common::send_queue::Account;

/// Lower bits of a `wr_id`, which hold the count of requests; the queue pair is above them, and
/// above that the thread, if threads share queue pairs ([`crate::common::completions::tag_of`]).
const COUNT_BITS: u32 = 40;
/// Bits of the queue pair.
const QP_BITS: u32 = 16;
/// Completions taken at a time.
pub(crate) const TAKEN: usize = 16;

/// The `wr_id` of a request: the queue pair, and the number of its requests including this one.
pub(crate) fn wr_id(qp: usize, count: u64) -> u64 {
    (qp as u64) << COUNT_BITS | count & ((1 << COUNT_BITS) - 1)
}

/// The queue pair and the count.
pub(crate) fn from_wr_id(wr_id: u64) -> (usize, u64) {
    let qp = wr_id >> COUNT_BITS & ((1 << QP_BITS) - 1);
    (qp as usize, wr_id & ((1 << COUNT_BITS) - 1))
}

/// Posts the messages of one queue pair, place by place, round and round.
pub(crate) struct Sender<'a> {
    end: &'a Endpoint,
    qp: usize,
    batch: SendBatch<'a>,
    has_imm: bool,
    places: usize,
    at: usize,
    pub account: Account,
}

/// Where messages go out from and come to: (outgoing place, incoming place) of each request.
pub(crate) type Places = Vec<(usize, usize)>;

impl<'a> Sender<'a> {
    /// A sender through the given queue pair, with at most `capacity` requests under way.
    pub fn new(
        end: &'a Endpoint,
        common: &Common,
        op: Op,
        qp: usize,
        places: &Places,
        capacity: u64,
    ) -> Self {
        let (layout, count) = (&end.layout, common.sge);
        let pieces: Vec<Vec<Sge<'a>>> = places
            .iter()
            .map(|(from, _)| pieces(&end.mr, layout.out_at(*from), layout.size, count))
            .collect();
        let requests: Vec<_> = places
            .iter()
            .zip(&pieces)
            .map(|((_, to), sges)| request(end, op, qp, sges, *to))
            .collect();
        Self {
            end,
            qp,
            batch: SendBatch::new(&requests),
            has_imm: op.has_imm(),
            places: places.len(),
            at: 0,
            account: Account::new(capacity, common.signal_every),
        }
    }

    /// Requests before the list begins anew.
    #[inline]
    pub fn until_end(&self) -> usize {
        self.places - self.at
    }

    /// Which of the places is the next one's.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Posts `count` requests as one list; `number` is the first message's. `next` and `flush` as
    /// for [`Account::take`].
    #[inline]
    pub fn post(
        &mut self,
        count: usize,
        number: u64,
        next: u64,
        flush: bool,
    ) -> Result<(), Stopped> {
        self.prepare(count, number, next, flush);
        self.submit(count)
    }

    /// All of [`Sender::post`] but the call.
    #[inline]
    pub fn prepare(&mut self, count: usize, number: u64, next: u64, flush: bool) {
        for i in 0..count {
            let is_last = i + 1 == count;
            let (next, flush) = (if is_last { next } else { 0 }, is_last && flush);
            let index = self.at + i;
            let signals = self.account.take(next, flush);
            self.batch.set_signaled(index, signals);
            if signals {
                let number = wr_id(self.qp, self.account.posted());
                self.batch.set_wr_id(index, number | self.end.tag);
            }
            if self.has_imm {
                let imm = self.end.thread_tag.imm((number + i as u64) as u32);
                self.batch.set_imm(index, imm);
            }
        }
    }

    /// The call.
    #[inline]
    pub fn submit(&mut self, count: usize) -> Result<(), Stopped> {
        let posted = self.end.qps[self.qp].post_send_part(&mut self.batch, self.at, count);
        posted.map_err(|e| self.end.diagnose(failed(e)))?;
        self.at += count;
        if self.at == self.places {
            self.at = 0;
        }
        Ok(())
    }
}

/// Memory as so many pieces of about the same length, one behind the other.
pub(crate) fn pieces(mr: &Mr, at: usize, bytes: usize, count: u32) -> Vec<Sge<'_>> {
    let count = count as usize;
    let edge = |i: usize| bytes * i / count;
    (0..count).map(|i| mr.sge(at + edge(i), edge(i + 1) - edge(i))).collect()
}

fn request<'s, 'a>(
    end: &'a Endpoint,
    op: Op,
    qp: usize,
    sges: &'s [Sge<'a>],
    to: usize,
) -> SendRequest<'s, 'a> {
    let at = end.layout.in_at(to) as u64;
    let request = match op {
        Op::Send | Op::SendImm => SendRequest::send(sges),
        Op::Write | Op::WriteImm | Op::WriteRead => SendRequest::write(sges, &end.peer.memory, at),
        Op::Read => SendRequest::read(sges, &end.peer.memory, at),
        Op::FetchAdd | Op::CmpSwap => atomic(op, sges, &end.peer.memory, at),
    };
    let request = if op.has_imm() { request.with_imm(0) } else { request };
    let request = if end.inline && op.has_payload() { request.inline_data() } else { request };
    match end.peer.ahs.get(qp) {
        Some(ah) => request.to(ah, end.peer.qpns[qp], QKEY),
        None => request,
    }
}

/// An atomic on eight bytes of the peer's memory, whose old value comes into `result`.
pub(crate) fn atomic<'s, 'a>(
    op: Op,
    result: &'s [Sge<'a>],
    memory: &RemoteBuffer,
    at: u64,
) -> SendRequest<'s, 'a> {
    match op {
        // The memory begins with zeros, so the comparison holds each time.
        Op::CmpSwap => SendRequest::compare_swap(result, memory, at, 0, 0),
        _ => SendRequest::fetch_add(result, memory, at, 1),
    }
}

/// Takes completions of sends: calls `with(queue pair, count)` for each, at once.
#[inline]
pub(crate) fn each_completion(
    end: &Endpoint,
    wcs: &[Wc],
    mut with: impl FnMut(usize, u64),
) -> Result<(), Stopped> {
    for wc in wcs {
        if !wc.is_ok() {
            return Err(end.explain(wc, "send"));
        }
        let (qp, count) = from_wr_id(wc.wr_id());
        with(qp, count);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{from_wr_id, wr_id};
    use crate::common::completions::tag_of;

    #[test]
    fn a_number_comes_back_whosever_it_is() {
        for (qp, count) in [(0, 0), (65_535, 1), (7, (1 << 40) - 1)] {
            for thread in [0, 1, 63] {
                assert_eq!(from_wr_id(wr_id(qp, count) | tag_of(thread)), (qp, count));
            }
        }
    }
}
