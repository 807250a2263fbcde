//! `recvq`: round trips over a receive queue, as in mordkovich2013.
//!
//! Both ranks receive into a queue of `--rx-depth` buffers and say how they return them. Each round
//! trip is kept in order, at both ends, since the *pattern* is the result: what a full turn of the
//! queue, a cache of requests or a region's entry costs comes back after so many messages.
//!
//! One stamp a trip, as in `ping`: the end of one is the begin of the next, so that returning
//! buffers is counted where it is done. Only after a pause a trip of rank 0 has a stamp of its own.
//! A trip of rank 1 begins when its answer is posted, and so has rank 0's pause in it.

mod buffers;
mod check;
mod options;
mod trips;

use rdmalab_measure::{Method, Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::limits::Limits;
use crate::common::links::{LinkOptions, Links};
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::Common;
use crate::common::rules::Fault;
use crate::workload::{ResultKind, ResultShape, Workload, transfer_ns};
use buffers::{Buffers, Refill};
pub(crate) use options::Recvq;
use options::{
    MISSING, QUEUE, Queue, REGIONS, REGIONS_BY, RETURN, RETURN_WHEN, RegionsBy, Return, ReturnWhen,
};
use trips::Trips;

impl Workload for Recvq {
    const NAME: &'static str = "recvq";
    const SUMMARY: &'static str = "round trips over a receive queue, in order of measurement: the \
        period, the places and the heights of repeating patterns";
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [TRANSPORT OP SIZE MESSAGES RUNS WARM_UP INLINE SIGNAL_EVERY POLL POLL_SEND]
        Common [POLL_RECV PAUSE PAUSE_BY MTU SL TX_DEPTH RX_DEPTH TOUCH MEMORY PORT GID_INDEX]
        Common [TIMEOUT RETRY_CNT RNR_RETRY MIN_RNR_TIMER]
        Own [QUEUE]
        Common [MAX_SGE]
        Own [REGIONS REGIONS_BY MISSING RETURN RETURN_WHEN]
        Common [SEED LINK SIM]
    };
    const METHOD: Option<Method> = Some(Method::ReceiveQueue);
    /// As mordkovich2013 has it; an RNR NAK asks for 10 us, and does not hide all else.
    const COMMON: Common = Common {
        size_bytes: 128,
        messages: 10_000,
        warm_up: 100,
        rx_depth: 32,
        min_rnr_timer: 1,
        ..Common::DEFAULT
    };
    const OWN: Self = Self {
        queue: Queue::Own,
        regions: 1,
        regions_by: RegionsBy::Block,
        missing: 0,
        return_at: Return::Every(1),
        return_when: ReturnWhen::After,
    };

    fn check(&self, common: &Common, limits: &Limits) -> Result<(), Fault> {
        check::check(common, self, limits)
    }

    fn quantities(&self, _: &Common) -> Vec<Quantity> {
        vec![Quantity::RoundTrip, Quantity::Period, Quantity::PeakHeight]
    }

    fn results(&self, _: &Common) -> &'static [ResultShape] {
        &[
            (Quantity::RoundTrip, "rank 0", ResultKind::OfMessages),
            (Quantity::RoundTrip, "rank 1", ResultKind::OfMessages),
        ]
    }

    fn message_ns(&self, common: &Common) -> f64 {
        1000.0 + 2.0 * transfer_ns(common)
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        let size = common.size_bytes as usize;
        let incoming = size.next_multiple_of(PAGE);
        let want = LinkOptions {
            to: &[1 - rank.index()],
            bytes: incoming + size,
            inline: common.inline.wanted_bytes(common.size_bytes),
            tx: common.tx_depth,
            rx: common.rx_depth,
            srq: self.queue == Queue::Srq,
            max_sge: common.max_sge,
        };
        let links = Links::connect(rank, context, limits, common, &want)?;
        let buffers = Buffers::new(rank, context, &links, common, self)?;
        let sges = buffers.sges();
        let requests = buffers.requests(&sges);
        let refill = Refill::new(&links, &requests, self.return_at)?;
        let trips = Trips::new((common, self), rank, &links, refill, incoming);
        match rank.index() {
            0 => trips.client(),
            _ => trips.server(),
        }
    }
}

/// Bytes between what goes out and what a WRITE brings in.
const PAGE: usize = 4096;
