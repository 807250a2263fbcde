//! A connected queue pair between two ranks, for programs that have loops of their own, as
//! `rdmalab bench self` has: set up like those of the experiments, and without their work.

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Context, Cq, Mr, Qp, QpState, RemoteBuffer, Wc};

use crate::common::completions::failed;
use crate::common::limits::Limits;
use crate::common::links::{LinkOptions, Links};
use crate::common::params::Common;

/// One end of a pair.
pub struct Pair {
    links: Links,
    remote: RemoteBuffer,
}

impl Pair {
    /// Creates a queue pair and `bytes` of memory, and connects it to that of the other rank.
    /// `common` says how; its queue depths are lowered to what the device can. Both ranks have to
    /// meet once more before one of them sends.
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
        // Only a port that is addressed by GIDs takes the index of one.
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

    /// Where sends complete.
    #[must_use]
    pub fn send_cq(&self) -> &Cq {
        self.links.send.cq()
    }

    /// Where receives complete.
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

    /// Why a completion is no success; for a flushed request, why the first one failed. `what` is
    /// `send` or `receive`.
    #[must_use]
    pub fn explain(&self, wc: &Wc, what: &str) -> Stopped {
        self.links.explain(wc, what)
    }

    /// Why the first request failed, where one did.
    #[must_use]
    pub fn first_failure(&self) -> Option<Stopped> {
        self.links.cause()
    }

    /// Whether the queue pair still works. Leaves its completions alone as long as it does.
    ///
    /// # Errors
    /// Why it does not.
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
