//! `ping`: round trips, as in macarthur2012.
//!
//! Rank 0 sends a message, rank 1 answers in the same way; or rank 1 does nothing while rank 0
//! READs, WRITEs and READs back, or does atomics. One stamp a round trip: the end of one is the
//! begin of the next, so that the time to post receives again is counted, and spent while a message
//! is under way. Only after a pause a round trip has a stamp of its own to begin with.

mod log;
mod marks;
mod options;
mod passive;
mod trips;

use rdmalab_measure::{Method, Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::endpoint::Endpoint;
use crate::common::layout::Layout;
use crate::common::limits::Limits;
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::{Common, Op};
use crate::common::pattern;
use crate::common::rules::{Fault, share_of_send_queue, write_is_looked_for};
use crate::common::threads::{self, Traffic};
use crate::workload::{ResultKind, ResultShape, Workload, transfer_ns};
pub(crate) use options::Ping;
use options::{UNSIGNALLED, Unsignalled};
use trips::Trips;

/// A WRITE, a READ, and a WRITE that frees the slot of an earlier one.
const REQUESTS: u32 = 3;

impl Workload for Ping {
    const NAME: &'static str = "ping";
    const SUMMARY: &'static str = "round trips: one rank sends and the other one answers, or is \
        passive and is read, written, or changed by atomics";
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [TRANSPORT OP SIZE MESSAGES RUNS WARM_UP INLINE SIGNAL_EVERY POLL]
        Common [POLL_SEND POLL_RECV PAUSE PAUSE_BY RATE ARRIVALS DURATION SGE QPS THREADS SHARE_QP]
        Common [MTU SL TX_DEPTH RX_DEPTH OUTSTANDING_READS]
        Own [UNSIGNALLED]
        Common [VERIFY TOUCH MEMORY PORT GID_INDEX TIMEOUT RETRY_CNT RNR_RETRY MIN_RNR_TIMER]
        Common [LOST_AFTER SEED LINK SIM]
    };
    const COMMON: Common = Common::DEFAULT;
    const OWN: Self = Self { unsignalled: Unsignalled::Write };
    const SAMPLES_EACH: bool = true;
    const METHOD: Option<Method> = Some(Method::RoundTrips);
    const CALIBRATES: &'static [&'static str] = &[
        // Latency: inline or read over the bus, short and long.
        "--size 8,64,256 --inline off,on --messages 1000",
        "--size 1K,4K,16K,64K --inline off --messages 1000",
        // A target that looks at memory, and one that only answers.
        "--op write --size 8,4K --inline off --messages 1000",
        "--op read --size 8,4K,64K --messages 1000",
        // Events, and with a pause those of a processor that fell asleep.
        "--poll event --size 8 --messages 1000",
        "--poll event --size 8 --pause 500us --messages 100 --warm-up 10",
    ];

    fn check(&self, common: &Common, _: &Limits) -> Result<(), Fault> {
        if common.verify {
            pattern::check(common)?;
        }
        if common.threads > 1 {
            share_of_send_queue(common, REQUESTS)?;
        }
        write_is_looked_for(common)
    }

    fn quantities(&self, common: &Common) -> Vec<Quantity> {
        let mut all = vec![Quantity::RoundTrip, Quantity::Rate];
        all.extend((!common.op.reads()).then_some(Quantity::HalfRoundTrip));
        all.extend((common.rate_per_s == 0).then_some(Quantity::Bandwidth));
        all
    }

    fn results(&self, common: &Common) -> &'static [ResultShape] {
        match common.op.reads() {
            true => &[
                (Quantity::RoundTrip, "", ResultKind::OfMessages),
                (Quantity::CpuShare, "rank 0", ResultKind::Figure),
            ],
            false => &[
                (Quantity::RoundTrip, "", ResultKind::OfMessages),
                (Quantity::HalfRoundTrip, "elapsed / 2n", ResultKind::Figure),
            ],
        }
    }

    fn message_ns(&self, common: &Common) -> f64 {
        let base_ns = if common.op == Op::WriteRead { 2000.0 } else { 1000.0 };
        base_ns + 2.0 * transfer_ns(common)
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        threads::run(self, common, rank, context, limits)
    }
}

impl Traffic for Ping {
    fn layout(&self, common: &Common) -> Layout {
        let is_checked = common.verify && matches!(common.op, Op::Send | Op::SendImm);
        if !common.tags_payload() && !is_checked {
            return Layout::new(common, 1, 1);
        }
        // A message has to be read before the next one overwrites it.
        let qps = common.qps as usize;
        let each = (common.rx_depth as usize).min(Layout::most_places(common) / qps).max(1);
        Layout::new(common, 1, each * qps).apart(true)
    }

    fn measure<R: Rank>(
        &self,
        common: &Common,
        rank: &R,
        end: &Endpoint,
    ) -> Result<Outcome, Stopped> {
        match (rank.index(), common.op.reads()) {
            (0, false) => Trips::new(rank, end, common)?.client(),
            (0, true) => passive::client(common, self, rank, end),
            (_, false) => Trips::new(rank, end, common)?.server(),
            (_, true) => passive::server(common, rank, end),
        }
    }
}
