//! `oneway`: the time of each message from one end to the other, as in potter2018.
//!
//! Rank 0 stamps before the post (`t_subm`) and after it polled the completion (`t_comp`); rank 1
//! after it noticed the arrival (`t_recv`). Completions are looked for after each post and during
//! pauses, and waited for where the queue is full or a pause is slept through.

mod layout;
mod options;
mod receive;
mod send;

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::endpoint::Endpoint;
use crate::common::layout::Layout;
use crate::common::limits::Limits;
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::{Common, Op};
use crate::common::rules::{Fault, NUMBER_BYTES, must, write_is_looked_for};
use crate::common::threads::{self, Traffic};
use crate::workload::{ResultKind, ResultShape, Workload, transfer_ns};
pub(crate) use options::Oneway;
use options::{BURST, STAMPS, Stamps};

impl Workload for Oneway {
    const NAME: &'static str = "oneway";
    const SUMMARY: &'static str = "one-way time of each message, from before its post to after \
        its arrival, with the time of its completion";
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [TRANSPORT OP SIZE MESSAGES RUNS WARM_UP INLINE SIGNAL_EVERY POLL POLL_SEND]
        Common [POLL_RECV]
        Own [BURST]
        Common [PAUSE PAUSE_BY RATE ARRIVALS DURATION QPS THREADS SHARE_QP MTU SL TX_DEPTH RX_DEPTH]
        Common [OUTSTANDING_READS FLOW]
        Own [STAMPS]
        Common [TOUCH MEMORY PORT GID_INDEX TIMEOUT RETRY_CNT RNR_RETRY MIN_RNR_TIMER SEED LINK SIM]
    };
    /// The runs of potter2018, with the pause of its figures over sizes, so that no message waits
    /// behind another. At least 10^5 samples, so that a 99.99th percentile means something.
    const COMMON: Common = Common {
        op: Op::SendImm,
        messages: 8000,
        runs: 25,
        pause_ns: 5500,
        tx_depth: 512,
        rx_depth: 4096,
        ..Common::DEFAULT
    };
    const OWN: Self =
        Self { burst: 0, stamps: Stamps { send: false, recv: true, comp: true, post: false } };
    const SAMPLES_EACH: bool = true;
    const CALIBRATES: &'static [&'static str] = &[
        // One-way times, and completions of short messages and of long ones.
        "--size 8,4K --inline off --messages 100 --runs 5",
    ];

    fn check(&self, common: &Common, _: &Limits) -> Result<(), Fault> {
        must(!common.op.reads(), "op", || {
            "READs and atomics are round trips, without a one-way time: choose another op, or \
             `ping`"
                .to_owned()
        })?;
        let is_numbered = !common.op.has_imm();
        must(!is_numbered || common.size_bytes >= NUMBER_BYTES, "size", || {
            format!(
                "the payload carries the message's number of {NUMBER_BYTES} bytes: choose \
                 {NUMBER_BYTES} or more, or --op {}_imm",
                common.op
            )
        })?;
        must(common.rate_per_s == 0 || self.burst == 0, "burst", || {
            "it cannot be combined with --rate: choose 0".to_owned()
        })?;
        write_is_looked_for(common)?;
        self.stamps.check(common)
    }

    fn series(&self, _: &Common) -> u64 {
        let stamps = &self.stamps;
        [stamps.recv, stamps.send, stamps.comp, stamps.post].map(u64::from).iter().sum()
    }

    fn quantities(&self, _: &Common) -> Vec<Quantity> {
        let mut all = vec![Quantity::OneWay, Quantity::Rate];
        let optional = [
            (self.stamps.send, Quantity::OneWayFromCopy),
            (self.stamps.comp, Quantity::CompletionTime),
            (self.stamps.post, Quantity::PostCost),
        ];
        all.extend(optional.iter().filter(|(is_taken, _)| *is_taken).map(|(_, what)| *what));
        all
    }

    fn results(&self, _: &Common) -> &'static [ResultShape] {
        match self.stamps.send {
            true => &[
                (Quantity::OneWay, "t_lat", ResultKind::OfMessages),
                (Quantity::OneWayFromCopy, "t_lat_send", ResultKind::OfMessages),
            ],
            false => &[
                (Quantity::OneWay, "t_lat", ResultKind::OfMessages),
                (Quantity::CompletionTime, "t_lat_comp", ResultKind::OfMessages),
                (Quantity::CpuShare, "rank 0", ResultKind::Figure),
            ],
        }
    }

    fn message_ns(&self, common: &Common) -> f64 {
        1000.0 + transfer_ns(common)
    }

    fn pause_ns(&self, common: &Common) -> f64 {
        common.pause_ns as f64 / self.burst.max(1) as f64
    }

    fn window(&self, _: &Common) -> u64 {
        self.burst.max(1)
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

impl Traffic for Oneway {
    fn layout(&self, common: &Common) -> Layout {
        layout::layout(common, self)
    }

    fn measure<R: Rank>(
        &self,
        common: &Common,
        rank: &R,
        end: &Endpoint,
    ) -> Result<Outcome, Stopped> {
        match rank.index() {
            0 => send::run(common, self, rank, end),
            _ => receive::run(common, self, rank, end),
        }
    }
}
