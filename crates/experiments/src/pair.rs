//! A connected queue pair between two ranks, for programs with their own measuring loops such as
//! `rdmalab bench self`. It is set up as in the experiments, and [`PairSender`] counts the free
//! slots of the send queue as the experiments do.

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Context, Cq, Mr, Qp, QpState, RemoteBuffer, SendBatch, SendRequest, Wc};

use crate::common::completions::failed;
use crate::common::limits::Limits;
use crate::common::links::{LinkOptions, Links};
use crate::common::params::{Common, Signal};
use crate::common::send_queue::Account;
use crate::common::sender::TAKEN;

/// One end of a pair.
pub struct Pair {
    links: Links,
    remote: RemoteBuffer,
}

impl Pair {
    /// Creates a queue pair and `bytes` of memory, and connects the queue pair to that of the other
    /// rank. `common` says how; its queue depths are lowered to the limits of the device. Both
    /// ranks have to synchronize once more before either of them sends.
    ///
    /// # Errors
    /// When the device refuses something, or the other rank fails.
    pub fn connect<R: Rank>(
        rank: &R,
        context: &Context,
        common: &Common,
        bytes: usize,
        inline_bytes: u32,
    ) -> Result<Self, Stopped> {
        let limits = Limits::query(context, common.port).map_err(failed)?;
        let options = LinkOptions {
            to: &[1 - rank.index().min(1)],
            bytes,
            inline: inline_bytes,
            tx: common.tx_depth.min(limits.max_qp_wr),
            rx: common.rx_depth.min(limits.max_qp_wr),
            srq: false,
            max_sge: 1,
        };
        // A GID index makes sense only on a port that is addressed by GIDs.
        let gid_index = common.gid_index.filter(|_| limits.needs_gid);
        let common = Common { gid_index, ..common.clone() };
        let links = Links::connect(rank, context, &limits, &common, &options)?;
        let far = links.remotes.first().ok_or_else(|| failed("there is no other rank"))?;
        let remote = far.memory;
        Ok(Self { links, remote })
    }

    /// The queue pair, ready to send.
    #[must_use]
    pub fn qp(&self) -> &Qp {
        &self.links.qps[0]
    }

    /// Where sends complete. Not to be polled beside a [`PairSender`].
    #[must_use]
    pub fn send_cq(&self) -> &Cq {
        self.links.send.cq()
    }

    /// A sender that posts `list` copies of the request at a time. At most `capacity` requests are
    /// under way, and one in `signal_every` has a completion. A sender polls all completions of
    /// sends, so there may be one at a time, which is finished before the next one is made.
    ///
    /// # Panics
    /// When `list` is 0, or more than `capacity`: then no post would ever fit.
    #[must_use]
    pub fn sender<'a>(
        &'a self,
        request: SendRequest<'_, 'a>,
        list: u32,
        capacity: u32,
        signal_every: u32,
    ) -> PairSender<'a> {
        assert!((1..=capacity).contains(&list), "a list of {list} requests of {capacity}");
        PairSender {
            pair: self,
            qp: self.qp(),
            cq: self.links.send.cq(),
            batch: SendBatch::new(&vec![request; list as usize]),
            account: Account::new(capacity.into(), Signal::Every(signal_every)),
            wcs: [Wc::default(); TAKEN],
        }
    }

    /// The completion queue of the receive queue.
    #[must_use]
    pub fn recv_cq(&self) -> &Cq {
        self.links.recv.cq()
    }

    /// The memory of this end.
    #[must_use]
    pub fn mr(&self) -> &Mr {
        &self.links.mr
    }

    /// The memory of the other end.
    #[must_use]
    pub fn remote(&self) -> &RemoteBuffer {
        &self.remote
    }

    /// Inline bytes that the device granted.
    #[must_use]
    pub fn inline_bytes(&self) -> u32 {
        self.links.inline_bytes
    }

    /// Why a completion failed; for a flushed request, why the first failed request failed. `what`
    /// is `send` or `receive`.
    #[must_use]
    pub fn explain(&self, wc: &Wc, what: &str) -> Stopped {
        self.links.explain(wc, what)
    }

    /// Why the first failed request failed, if any did.
    #[must_use]
    pub fn first_failure(&self) -> Option<Stopped> {
        self.links.cause()
    }

    /// Checks that the queue pair still works. While it works, this polls no completions.
    ///
    /// # Errors
    /// Why the queue pair no longer works.
    pub fn check(&self) -> Result<(), Stopped> {
        match self.qp().state().map_err(failed)? {
            QpState::Error | QpState::SendQueueError => {
                let unknown = || failed("the queue pair is in the error state");
                Err(self.first_failure().unwrap_or_else(unknown))
            }
            _ => Ok(()),
        }
    }
}

/// Posts the same list of requests again and again, without ever waiting.
pub struct PairSender<'a> {
    pair: &'a Pair,
    qp: &'a Qp,
    cq: &'a Cq,
    batch: SendBatch<'a>,
    account: Account,
    /// Buffer for polled completions.
    wcs: [Wc; TAKEN],
}

impl PairSender<'_> {
    /// Requests in each post.
    #[inline]
    #[must_use]
    pub fn list(&self) -> u64 {
        self.batch.len() as u64
    }

    /// Requests whose slots are taken.
    #[inline]
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.account.under_way()
    }

    /// Requests that may be under way.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.account.capacity()
    }

    /// Whether all that was posted has completed, or will.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.account.is_flushed()
    }

    /// Sets the immediate data of the next post.
    pub fn set_imm(&mut self, imm: u32) {
        self.batch.set_imm(self.batch.len() - 1, imm);
    }

    /// Posts the list once; there must be room for it. With `flush`, the last request is signalled,
    /// so that its completion covers everything posted so far.
    ///
    /// # Errors
    /// Why the device refuses the post, or why an earlier request failed.
    #[inline]
    pub fn post(&mut self, flush: bool) -> Result<(), Stopped> {
        let (last, list) = (self.batch.len() - 1, self.list());
        debug_assert!(self.account.room() >= list, "there is no room for {list} requests");
        let signals = self.account.take_list(list, list, flush);
        if signals {
            self.batch.set_signaled(last, true);
            self.batch.set_wr_id(last, self.account.posted());
        }
        let posted = self.qp.post_send_batch(&mut self.batch);
        posted.map_err(|e| self.pair.first_failure().unwrap_or_else(|| failed(e)))?;
        if signals {
            self.batch.set_signaled(last, false);
        }
        Ok(())
    }

    /// Polls the available completions and returns their number.
    ///
    /// # Errors
    /// When the queue cannot be polled, or a request failed.
    #[inline]
    pub fn poll(&mut self) -> Result<usize, Stopped> {
        let count = self.cq.poll(&mut self.wcs).map_err(failed)?;
        for wc in &self.wcs[..count] {
            match wc.is_ok() {
                true => self.account.free(wc.wr_id()),
                false => return Err(self.pair.explain(wc, "send")),
            }
        }
        Ok(count)
    }
}
