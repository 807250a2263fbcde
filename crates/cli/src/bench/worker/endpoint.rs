//! A queue pair and its memory, at one end.

use std::cell::Cell;

use rdmalab_experiments::{Common, Memory, Pair, PairSender};
use rdmalab_rank::Rank;
use rdmalab_verbs::{Context, Cq, Mr, Qp, RecvBatch, RecvRequest, SendRequest, Sge, Wc};

use super::spin::{Spin, Stopped};
use crate::bench::task::{Op, Setup};

/// Local ACK time-out: 268 ms. With all retries this is 2.1 s, and 6.4 s over UDP, where the soft
/// device waits longer for each. Both ends are bound to a processor, and on a busy machine one of
/// them may have to wait two seconds for it.
const ACK_TIMEOUT: u8 = 16;
/// Depth of the send queue.
const SEND_DEPTH: u32 = 512;
/// Depth of the receive queue.
pub const RECV_DEPTH: u32 = 2048;
/// One in this many sends is signaled.
const SIGNAL_EVERY: u32 = 64;
/// From this size on, each message is signaled, and few are in flight.
const BULK_BYTES: usize = 256 << 10;
/// Bulk messages in flight.
const BULK_DEPTH: u32 = 4;
/// Requested inline size; adapters commonly grant it.
const INLINE_BYTES: u32 = 220;
/// Bytes of a credit; its number is the immediate data.
pub const CREDIT_BYTES: usize = 16;
const PAGE: usize = 4096;

/// A queue pair and its memory. Messages are sent from the first half and received into the second.
pub struct Endpoint {
    /// Handles of objects that `pair` owns, for the hot loops.
    qp: Qp,
    recv_cq: Cq,
    mr: Mr,
    pair: Pair,
    /// Offset of the second half.
    half: usize,
    recv_depth: u32,
    posted: Cell<u32>,
}

fn text(error: impl std::fmt::Display) -> Stopped {
    error.to_string()
}

impl Endpoint {
    /// Connects a queue pair to that of the other rank, and posts its receives. A barrier of both
    /// ranks has to follow before one of them sends.
    pub fn connect<R: Rank>(rank: &R, context: &Context, setup: &Setup) -> Result<Self, Stopped> {
        let half = setup.bytes_max.max(CREDIT_BYTES).next_multiple_of(PAGE);
        let memory = if setup.private_memory { Memory::Private } else { Memory::Device };
        let common = Common {
            memory,
            tx_depth: SEND_DEPTH,
            rx_depth: RECV_DEPTH,
            timeout: ACK_TIMEOUT,
            gid_index: Some(setup.gid_index),
            ..Common::DEFAULT
        };
        let pair = Pair::connect(rank, context, &common, 2 * half, INLINE_BYTES).map_err(text)?;
        let end = Self {
            qp: pair.qp().clone(),
            recv_cq: pair.recv_cq().clone(),
            mr: pair.mr().clone(),
            half,
            recv_depth: RECV_DEPTH.min(pair.qp().cap().max_recv_wr),
            posted: Cell::new(0),
            pair,
        };
        end.fill_receive_queue()?;
        Ok(end)
    }

    /// The memory: outgoing messages start at 0, incoming ones at [`Endpoint::incoming`].
    pub fn memory(&self) -> &rdmalab_verbs::Buffer {
        self.mr.buffer()
    }

    /// Offset of incoming messages.
    pub fn incoming(&self) -> usize {
        self.half
    }

    /// Depth of the receive queue.
    pub fn recv_depth(&self) -> u32 {
        self.recv_depth
    }

    /// A list of receives, each for the longest message.
    pub fn receives(&self, count: usize) -> RecvBatch<'_> {
        let sges = [self.mr.sge(self.half, self.half)];
        RecvBatch::new(&vec![RecvRequest::new(&sges); count])
    }

    /// Posts a list of receives.
    #[inline]
    pub fn post_receives(&self, batch: &mut RecvBatch<'_>) -> Result<(), Stopped> {
        self.posted.set(self.posted.get() + batch.len() as u32);
        self.qp.post_recv_batch(batch).map_err(text)
    }

    /// Posts receives until the receive queue is full.
    pub fn fill_receive_queue(&self) -> Result<(), Stopped> {
        let mut one = self.receives(1);
        while self.posted.get() < self.recv_depth {
            self.post_receives(&mut one)?;
        }
        Ok(())
    }

    /// Polls for received messages, without waiting.
    #[inline]
    pub fn poll(&self, wcs: &mut [Wc]) -> Result<usize, Stopped> {
        let count = self.recv_cq.poll(wcs).map_err(text)?;
        self.posted.set(self.posted.get() - count as u32);
        match wcs[..count].iter().find(|wc| !wc.is_ok()) {
            None => Ok(count),
            Some(wc) => Err(text(self.pair.explain(wc, "receive"))),
        }
    }

    /// Waits for the next message.
    #[inline]
    pub fn receive(&self, spin: Spin) -> Result<Wc, Stopped> {
        let mut wcs = [Wc::default()];
        let look = || match self.poll(&mut wcs) {
            Ok(0) => None,
            Ok(_) => Some(Ok(())),
            Err(reason) => Some(Err(reason)),
        };
        spin.until(look, || self.check())??;
        Ok(wcs[0])
    }

    /// Reports a send that has failed. Completions of successful sends are left to the sender.
    pub fn check(&self) -> Result<(), Stopped> {
        self.pair.check().map_err(text)
    }

    /// A sender of messages of this length, with `list` requests per post.
    pub fn sender(&self, op: Op, bytes: usize, list: usize) -> Result<Sender<'_>, Stopped> {
        let remote = self.pair.remote();
        let sges: [Sge<'_>; 1] = [self.mr.sge(0, bytes)];
        let request = match op {
            Op::Send => SendRequest::send(&sges),
            Op::Write => SendRequest::write(&sges, remote, self.half as u64),
        };
        Ok(self.sender_of(request, bytes, list))
    }

    /// A sender of credits; their numbers are immediate data ([`Sender::set_imm`]).
    pub fn credits(&self) -> Result<Sender<'_>, Stopped> {
        let sges = [self.mr.sge(0, CREDIT_BYTES)];
        Ok(self.sender_of(SendRequest::send(&sges).with_imm(0), CREDIT_BYTES, 1))
    }

    fn sender_of<'a>(
        &'a self,
        request: SendRequest<'_, 'a>,
        bytes: usize,
        list: usize,
    ) -> Sender<'a> {
        // The full inline size or none, so that rows are comparable with those of earlier versions.
        let is_granted = self.pair.inline_bytes() >= INLINE_BYTES;
        let inline = is_granted && bytes <= INLINE_BYTES as usize;
        let request = if inline { request.inline_data() } else { request };
        let depth = self.qp.cap().max_send_wr.min(SEND_DEPTH);
        let (depth, signal_every) =
            if bytes < BULK_BYTES { (depth, SIGNAL_EVERY) } else { (BULK_DEPTH.min(depth), 1) };
        let list = list.clamp(1, signal_every as usize) as u32;
        Sender(self.pair.sender(request, list, depth, signal_every))
    }
}

/// Posts the same message repeatedly, and waits for room in the send queue.
pub struct Sender<'a>(PairSender<'a>);

impl Sender<'_> {
    /// Number of requests per post.
    pub fn list(&self) -> u64 {
        self.0.list()
    }

    /// Changes the immediate data of the next posts.
    pub fn set_imm(&mut self, imm: u32) {
        self.0.set_imm(imm);
    }

    /// Posts the list once, after waiting for room in the send queue. With `is_last` it has a
    /// completion.
    #[inline]
    pub fn post(&mut self, spin: Spin, is_last: bool) -> Result<(), Stopped> {
        let most = self.0.capacity() - self.0.list();
        if self.0.under_way() > most {
            self.reap(spin, most)?;
        }
        self.0.post(is_last).map_err(text)
    }

    /// Polls for completions until at most `rest` requests are outstanding.
    fn reap(&mut self, spin: Spin, rest: u64) -> Result<(), Stopped> {
        while self.0.under_way() > rest {
            let look = || match self.0.poll() {
                Ok(0) => None,
                other => Some(other),
            };
            spin.until(look, || Ok(()))?.map_err(text)?;
        }
        Ok(())
    }

    /// Polls for completions if half of the send queue is outstanding.
    #[inline]
    pub fn reap_some(&mut self, spin: Spin) -> Result<(), Stopped> {
        if self.0.under_way() >= self.0.capacity() / 2 { self.reap_ready(spin) } else { Ok(()) }
    }

    #[cold]
    fn reap_ready(&mut self, spin: Spin) -> Result<(), Stopped> {
        // One in 64 requests has a completion, and a queue of 128 or more is half in use.
        self.reap(spin, self.0.capacity() / 2)
    }

    /// Waits until no request is outstanding.
    pub fn finish(mut self, spin: Spin) -> Result<(), Stopped> {
        if !self.0.is_flushed() {
            return Err("a run has to end with a request that has a completion".to_owned());
        }
        self.reap(spin, 0)
    }
}
