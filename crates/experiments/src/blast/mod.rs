//! `blast`: messages one way as fast as they go, as in macarthur2012.
//!
//! Rank 0 keeps `buffers` messages under way, round robin over the queue pairs, in lists. Rank 1
//! counts the messages that it notices. It does not notice plain WRITE, READ and atomics: rank 0
//! counts their completions, which on RC mean that the message arrived. A run has one stamp at its
//! begin and one at its end; with `--rate`, each message has one when it is due and one when it is
//! over.

mod both;
mod open;
mod options;
mod part;
mod rates;
pub(crate) mod receive;
mod send;

use rdmalab_measure::{Method, Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::endpoint::Endpoint;
use crate::common::layout::Layout;
use crate::common::limits::Limits;
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::{Common, Op, Signal};
use crate::common::pattern;
use crate::common::rules::{Fault, must};
use crate::common::threads::{self, Traffic};
use crate::workload::{Places, ResultKind, ResultShape, Workload, transfer_ns};
pub(crate) use options::Blast;
use options::{BIDIRECTIONAL, BUFFERS, STAMP_EVERY};
use part::numbers_payload;

impl Workload for Blast {
    const NAME: &'static str = "blast";
    const SUMMARY: &'static str = "messages one way as fast as they go: rate, bandwidth, and the \
        processor time of both ends";
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [TRANSPORT OP SIZE MESSAGES RUNS WARM_UP INLINE SIGNAL_EVERY POLL]
        Common [POLL_SEND POLL_RECV RATE ARRIVALS DURATION SGE]
        Own [BUFFERS BIDIRECTIONAL]
        Common [LIST QPS THREADS SHARE_QP MTU SL TX_DEPTH RX_DEPTH OUTSTANDING_READS VERIFY FLOW]
        Common [TOUCH]
        Own [STAMP_EVERY]
        Common [MEMORY PORT GID_INDEX TIMEOUT RETRY_CNT RNR_RETRY MIN_RNR_TIMER SEED LINK SIM]
    };
    const COMMON: Common = Common {
        size_bytes: 64 << 10,
        messages: 20_000,
        runs: 5,
        outstanding_reads: 16,
        ..Common::DEFAULT
    };
    const OWN: Self = Self { buffers: 64, is_bidirectional: false, stamp_every: 0 };
    const SAMPLES_RUNS: bool = true;
    const METHOD: Option<Method> = Some(Method::Flood);
    const CALIBRATES: &'static [&'static str] = &[
        // Rates.
        "--size 8 --inline off,on --list 1,16 --messages 2000 --runs 1",
        "--size 4K,64K --inline off --messages 2000 --runs 1",
    ];

    fn check(&self, common: &Common, limits: &Limits) -> Result<(), Fault> {
        must(common.op != Op::WriteRead, "op", || {
            "write_read measures a round trip; blast measures one direction: choose write or \
             read, or `ping`"
                .to_owned()
        })?;
        must(common.rate_per_s == 0 || common.list == 1, "list", || {
            "it cannot be combined with --rate, which posts messages one by one: choose 1"
                .to_owned()
        })?;
        if common.verify {
            must(matches!(common.op, Op::Send | Op::SendImm), "op", || {
                "--verify needs a receiver that knows where each message lies: choose send or \
                 send_imm, or `ping`"
                    .to_owned()
            })?;
            pattern::check(common)?;
        }
        if self.is_bidirectional { both::check(common, self, limits) } else { Ok(()) }
    }

    fn check_queues(&self, common: &Common) -> Result<(), Fault> {
        let (buffers, list, qps) = (self.buffers, common.list, common.qps);
        must(list <= buffers, "list", || {
            format!(
                "one post has {list} requests, but there are only {buffers} buffers: choose \
                 --buffers {list} or more"
            )
        })?;
        must(qps <= buffers, "qps", || {
            format!(
                "{qps} queue pairs need at least {qps} buffers; there are {buffers}: choose \
                 --buffers {qps} or more"
            )
        })?;
        must(list <= common.tx_depth, "list", || {
            format!(
                "a send queue holds only {} requests: choose a larger --tx-depth",
                common.tx_depth
            )
        })?;
        must(!common.op.needs_receives() || list <= common.rx_depth, "list", || {
            format!(
                "a receive queue holds only {} requests: choose a larger --rx-depth",
                common.rx_depth
            )
        })?;
        must(u64::from(buffers) <= u64::from(common.tx_depth) * u64::from(qps), "buffers", || {
            format!(
                "the {qps} send queues of {} requests together hold fewer: choose a larger \
                 --tx-depth",
                common.tx_depth
            )
        })?;
        let Signal::Every(every) = common.signal_every else { return Ok(()) };
        let share = (buffers / qps).max(1);
        must(every <= share, "signal-every", || {
            format!(
                "all {share} buffers of a queue pair are in flight before the first completion: \
                 choose {share} or less, or max"
            )
        })
    }

    fn memory(&self, _: &Common) -> Places {
        let directions = if self.is_bidirectional { 2 } else { 1 };
        Places { count: directions * u64::from(self.buffers), option: "buffers" }
    }

    fn series(&self, _: &Common) -> u64 {
        0
    }

    fn quantities(&self, common: &Common) -> Vec<Quantity> {
        let mut all = vec![Quantity::MessageTime, Quantity::Rate, Quantity::Bandwidth];
        // If only the sender notices a message, the time ends with its completion.
        let paced = [Quantity::OneWay, Quantity::CompletionTime];
        all.extend(paced.into_iter().filter(|_| common.rate_per_s > 0));
        all
    }

    fn results(&self, _: &Common) -> &'static [ResultShape] {
        &[
            (Quantity::Rate, "", ResultKind::Figure),
            (Quantity::Bandwidth, "", ResultKind::Figure),
            (Quantity::MessageTime, "", ResultKind::Figure),
            (Quantity::CpuShare, "rank 0", ResultKind::Figure),
            (Quantity::CpuShare, "rank 1", ResultKind::Figure),
            (Quantity::MessageTime, "runs", ResultKind::OfRuns),
        ]
    }

    fn message_ns(&self, common: &Common) -> f64 {
        100.0 + transfer_ns(common)
    }

    fn window(&self, _: &Common) -> u64 {
        self.buffers.into()
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        match self.is_bidirectional {
            true => both::run(self, common, rank, context, limits),
            false => threads::run(self, common, rank, context, limits),
        }
    }
}

impl Traffic for Blast {
    fn layout(&self, common: &Common) -> Layout {
        let buffers = self.buffers as usize;
        if !common.tags_payload() && !numbers_payload(common) && !common.verify {
            return Layout::new(common, buffers, buffers);
        }
        // The thread or the number of a message has to be read before the next one overwrites it.
        let qps = common.qps as usize;
        let each = (common.rx_depth as usize).min(Layout::most_places(common) / qps).max(1);
        Layout::new(common, buffers, each * qps).apart(true)
    }

    fn measure<R: Rank>(
        &self,
        common: &Common,
        rank: &R,
        end: &Endpoint,
    ) -> Result<Outcome, Stopped> {
        match rank.index() {
            0 => send::run(common, self, rank, end),
            _ => receive::run(common, self.stamp_every, rank, end),
        }
    }
}
