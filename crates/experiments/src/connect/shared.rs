//! What both ways of making connections have in common.

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Access, Context, Cq, Mr, Pd, Qp, RemoteBuffer, SendRequest, Wc};

use super::options::By;
use crate::common::completions::{failed, timed_out};
use crate::common::endpoint::WORD;
use crate::common::limits::Limits;
use crate::common::params::Common;

/// What a peer may do over the connections.
pub(super) fn rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE
}

/// Bytes of memory: what is written from and what is written to.
const MEMORY_BYTES: usize = 4096;

/// What all connections share.
pub(super) struct Shared {
    pub pd: Pd,
    pub cq: Cq,
    pub mr: Mr,
}

impl Shared {
    pub fn new(context: &Context, limits: &Limits, common: &Common) -> Result<Self, Stopped> {
        let pd = context.alloc_pd().map_err(failed)?;
        let buffer = context.alloc_buffer(MEMORY_BYTES).map_err(failed)?;
        buffer.fill(0, MEMORY_BYTES, 0);
        let mr = pd.register(&buffer, rights()).map_err(failed)?;
        let list = if common.list == 0 { common.qps } else { common.list };
        let cq = context.create_cq(list.clamp(16, limits.max_cqe), None).map_err(failed)?;
        Ok(Self { pd, cq, mr })
    }

    /// A WRITE over each, all at once.
    pub fn first_messages<'a, R: Rank>(
        &self,
        rank: &R,
        qps: impl ExactSizeIterator<Item = &'a Qp>,
        memory: &RemoteBuffer,
    ) -> Result<(), Stopped> {
        let sges = [self.mr.sge(0, WORD)];
        let mut left = qps.len();
        for qp in qps {
            let request = SendRequest::write(&sges, memory, 2 * WORD as u64).signaled();
            qp.post_send(&[request]).map_err(failed)?;
        }
        let mut wcs = [Wc::default(); 16];
        let patience_ns = rank.patience_ns();
        while left > 0 {
            let found = rank.spin_for(patience_ns, || match self.cq.poll(&mut wcs) {
                Ok(0) => None,
                other => Some(other),
            })?;
            let found = found.ok_or_else(|| timed_out(patience_ns, "the first message"))?;
            let found = found.map_err(failed)?;
            for wc in &wcs[..found] {
                wc.status().map_err(|status| failed(format!("the first message: {status}")))?;
            }
            left -= found;
        }
        Ok(())
    }
}

/// What both ways of making connections report alike.
pub(super) fn outcome(to: &mut Outcome, by: By, made: u64, whole: Vec<f64>) {
    let total_ns: f64 = whole.iter().sum();
    if total_ns > 0.0 {
        to.push_figure(Quantity::Rate, "connections", made as f64 / total_ns * 1e9);
    }
    to.push_count("connections", made);
    to.push_fact("by", by);
    to.push_series(Quantity::SetupTime, "of a list, until it is used", 0, whole);
}
