//! `odp`: operations on memory that an adapter does not know yet, as in fukuoka2021.
//!
//! Memory that is registered for on-demand paging is not pinned. An adapter's first access to each
//! page faults, whatever the processor did with it before, and the adapter waits for the driver: a
//! responder sends RNR NAKs (IBA 9.7.5.2.8), a requester drops the response and asks again. Rank 0
//! posts a few operations, with a pause between them, and waits for all; rank 1 only has memory.
//! Each trial has new memory, regions and queue pairs at both ends.

mod end;
mod layout;
mod options;
mod result;
mod trial;

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::process::FRAME_BYTES_MAX;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::effort::{Begin, Effort};
use crate::common::limits::Limits;
use crate::common::local_end::device_facts;
use crate::common::lockstep::cut_short;
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::{Common, Op};
use crate::common::rules::{Fault, SAMPLES_MAX, must};
use crate::workload::{Places, ResultKind, ResultShape, Workload};
use end::{Setting, TrialEnd};
use layout::Plan;
pub(crate) use options::Odp;
use options::{
    FAULT, INTERVAL, OPERATIONS, SECOND_OP, SECOND_PAGE, SecondOp, SecondPage, Side, WARM,
    WORK_AROUND, WORK_AROUND_AFTER, Warm, WorkAround,
};
use result::{Trials, series_of_each};
use trial::{Client, Trial};

/// The kinds of packets among the results.
const KINDS: usize = 6;

/// The results that studies refer to.
const RESULTS: [ResultShape; 5 + KINDS] = [
    (Quantity::ExecutionTime, "", ResultKind::Figure),
    (Quantity::ExecutionTime, "trials", ResultKind::OfRuns),
    (Quantity::CompletionTime, "", ResultKind::OfMessages),
    (Quantity::TimeoutShare, "", ResultKind::Figure),
    (Quantity::CpuShare, "rank 0", ResultKind::Figure),
    (Quantity::Packets, "requests of rank 0", ResultKind::Figure),
    (Quantity::Packets, "repeated requests of rank 0", ResultKind::Figure),
    (Quantity::Packets, "responses of rank 1", ResultKind::Figure),
    (Quantity::Packets, "ACKs of rank 1", ResultKind::Figure),
    (Quantity::Packets, "RNR NAKs of rank 1", ResultKind::Figure),
    (Quantity::Packets, "sequence NAKs of rank 1", ResultKind::Figure),
];

impl Workload for Odp {
    const NAME: &'static str = "odp";
    const SUMMARY: &'static str = "operations on memory registered for on-demand paging, whose \
        pages the adapters do not know yet: their time, and how often a time-out is in it";
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [OP SIZE]
        Own [FAULT OPERATIONS INTERVAL SECOND_OP SECOND_PAGE WARM WORK_AROUND WORK_AROUND_AFTER]
        Common [RUNS QPS MTU SL OUTSTANDING_READS PORT GID_INDEX TIMEOUT RETRY_CNT RNR_RETRY]
        Common [MIN_RNR_TIMER SEED LINK SIM]
    };
    const COMMON: Common = Common {
        op: Op::Read,
        size_bytes: 100,
        messages: 1,
        runs: 10,
        warm_up: 0,
        tx_depth: 1,
        rx_depth: 1,
        outstanding_reads: 4,
        min_rnr_timer: 14,
        ..Common::DEFAULT
    };
    const OWN: Self = Self {
        fault: Side::Both,
        operations: 2,
        interval_ns: 0,
        second_op: SecondOp::Same,
        second_page: SecondPage::Same,
        warm: Warm::None,
        work_around: WorkAround::None,
        work_around_after_ns: 1_000_000,
    };
    const WAITS: bool = false;
    const SAMPLES_RUNS: bool = true;

    fn check(&self, common: &Common, limits: &Limits) -> Result<(), Fault> {
        must(matches!(common.op, Op::Read | Op::Write | Op::Send), "op", || {
            "odp measures read, write and send only: choose one of these".to_owned()
        })?;
        must(self.fault == Side::None || limits.has_on_demand_paging, "fault", || {
            format!(
                "{} has no on-demand paging, so no access page-faults: choose --fault none, an \
                 adapter with on-demand paging (`rdmalab devices` lists them), or a soft device \
                 with --profile connectx4",
                limits.device
            )
        })?;
        must(common.timeout > 0, "timeout", || {
            "0 disables the time-out, and lost packets are never repeated: choose 1 to 31"
                .to_owned()
        })?;
        let sends = common.op == Op::Send || self.second_op == SecondOp::Send;
        must(self.work_around != WorkAround::Repeat || !sends, "work-around", || {
            "a SEND that is repeated needs a receive of its own: choose dummy, or --op read or \
             write"
                .to_owned()
        })?;
        self.check_second(common)?;
        self.check_counts(common, limits)
    }

    fn memory(&self, common: &Common) -> Places {
        // A second page is one more place, or less.
        let apart = u64::from(self.second_page == SecondPage::Other);
        let more = apart * (layout::PAGE as u64).div_ceil(common.size_bytes);
        Places { count: u64::from(self.operations) + more, option: "operations" }
    }

    fn quantities(&self, _: &Common) -> Vec<Quantity> {
        vec![
            Quantity::ExecutionTime,
            Quantity::CompletionTime,
            Quantity::TimeoutShare,
            // Which its device counts, if it can.
            Quantity::Packets,
        ]
    }

    fn results(&self, _: &Common) -> &'static [ResultShape] {
        // Without paging a soft device executes one-sided operations without packets.
        let without = RESULTS.len() - KINDS;
        if self.fault == Side::None { &RESULTS[..without] } else { &RESULTS[..] }
    }

    /// Of a trial.
    fn message_ns(&self, common: &Common) -> f64 {
        /// Making queue pairs and memory, and a fault.
        const TRIAL_NS: f64 = 5e6;
        let of = f64::from(self.operations);
        let pauses_ns = self.interval_ns as f64 * (of - 1.0);
        TRIAL_NS + 300_000.0 * f64::from(common.qps) + 1000.0 * of + pauses_ns
    }

    fn pages_on_demand(&self, _: &Common) -> bool {
        self.fault != Side::None
    }

    fn window(&self, _: &Common) -> u64 {
        self.operations.into()
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        let plan = Plan::of(common, self);
        let setting = Setting::new(context, limits, common, plan, self.pages_at(rank.index()));
        let least_timeout_ns = least_timeout_ns(common, limits);
        let limit_ns = limit_ns(common, least_timeout_ns);
        let mut trials = Trials::new(plan, least_timeout_ns as f64);
        let (mut outcome, mut effort) = (Outcome::default(), Effort::default());
        for _ in 0..common.runs {
            let begin = Begin::now(rank);
            let result = trial(rank, &setting, self.interval_ns, limit_ns);
            begin.end(rank, &mut effort);
            let ended = result.map(|ended| match ended {
                Ended::Measured(trial) => trials.add(trial),
                Ended::Served => {}
                Ended::Stopped => outcome.cut_short = Some(Stopped::Asked.to_string()),
            });
            outcome.cut_short = outcome.cut_short.take().or(cut_short(ended)?);
            if outcome.cut_short.is_some() {
                break;
            }
        }
        device_facts(context, &mut outcome);
        if rank.index() == 0 {
            trials.outcome(&mut outcome);
        }
        effort.push(&mut outcome, &format!("rank {}", rank.index()));
        Ok(outcome)
    }
}

impl Odp {
    /// Whether the memory of a rank is registered for on-demand paging.
    fn pages_at(&self, rank: usize) -> bool {
        match self.fault {
            Side::None => false,
            Side::Server => rank == 1,
            Side::Client => rank == 0,
            Side::Both => true,
        }
    }

    /// What is said of a second operation needs one, and what is said of other pages needs some.
    fn check_second(&self, common: &Common) -> Result<(), Fault> {
        let is_one = self.operations == 1;
        let needs =
            || "a second operation needs two in a trial: choose --operations 2 or more".to_owned();
        must(!is_one || self.second_op == SecondOp::Same, "second-op", needs)?;
        must(!is_one || self.second_page == SecondPage::Same, "second-page", needs)?;
        let is_cold = self.warm == Warm::None;
        must(is_cold || !Plan::of(common, self).other_pages().is_empty(), "warm", || {
            "all operations use the pages of the first one: choose --second-page other, or more \
             or larger operations"
                .to_owned()
        })
    }

    fn check_counts(&self, common: &Common, limits: &Limits) -> Result<(), Fault> {
        let plan = Plan::of(common, self);
        let (depth, most) = (plan.depth() as u64, u64::from(limits.max_qp_wr));
        must(depth <= most, "operations", || {
            format!(
                "each queue pair gets {depth} requests, but a queue of {} holds at most {most}: \
                 choose fewer --operations, or more --qps",
                limits.device
            )
        })?;
        let all = depth * u64::from(common.qps);
        must(all <= limits.max_cqe.into(), "operations", || {
            format!(
                "{all} completions are needed, but a completion queue of {} holds at most {}: \
                 choose fewer operations",
                limits.device, limits.max_cqe
            )
        })?;
        let samples = u64::from(self.operations).saturating_mul(common.runs);
        let series = series_of_each(&plan);
        // What an end hands in is one frame, with some room for the rest.
        let most = SAMPLES_MAX.min((FRAME_BYTES_MAX as u64 / 2) / (8 * series));
        must(samples <= most, "operations", || {
            format!(
                "all runs together take {samples} samples; the limit is {most}: reduce \
                 --operations or --runs"
            )
        })?;
        let (reads, most) = (u32::from(common.outstanding_reads), limits.max_rd_atomic);
        must(!plan.reads() || reads <= most, "outstanding-reads", || {
            format!(
                "a queue pair of {} has at most {most} outstanding READs: choose {most} or less",
                limits.device
            )
        })
    }
}

/// T_tr (IBA 9.7.6.1.3): the least time after which a request is sent again. A code below the
/// device's local ACK delay has no effect.
fn least_timeout_ns(common: &Common, limits: &Limits) -> u64 {
    4096 << common.timeout.max(limits.ack_delay_code).min(31)
}

/// The longest time without a completion: what an adapter may take until a request fails, and some
/// more; of that not less, and not more than this.
const LIMIT_NS: std::ops::RangeInclusive<u64> = 20_000_000_000..=600_000_000_000;

fn limit_ns(common: &Common, least_timeout_ns: u64) -> u64 {
    let attempts = u64::from(common.retry_cnt) + 1;
    least_timeout_ns.saturating_mul(attempts * 5).clamp(*LIMIT_NS.start(), *LIMIT_NS.end())
}

/// How a trial ended.
enum Ended {
    /// At rank 0.
    Measured(Trial),
    /// At rank 1.
    Served,
    /// An end was asked to stop.
    Stopped,
}

fn trial<R: Rank>(
    rank: &R,
    setting: &Setting,
    interval_ns: u64,
    limit_ns: u64,
) -> Result<Ended, Stopped> {
    let Some(end) = TrialEnd::connect(rank, setting)? else { return Ok(Ended::Stopped) };
    let is_server = rank.index() == 1;
    if is_server {
        end.post_receives(&setting.plan)?;
    }
    rank.exchange_to_end(&[])?;
    if is_server {
        let said = rank.exchange_at_leisure(&IS_WELL)?;
        let is_well = said.iter().all(|bytes| bytes[..] == IS_WELL);
        return Ok(if is_well { Ended::Served } else { Ended::Stopped });
    }
    let mut client = Client::new(rank, &end, &setting.plan, interval_ns, limit_ns);
    let result = client.warm().and_then(|()| client.run());
    // No end may destroy its queue pairs while the other one still answers.
    let over = rank.exchange_to_end(if result.is_ok() { &IS_WELL } else { &IS_OVER });
    let trial = result?;
    over?;
    Ok(Ended::Measured(trial))
}

/// What rank 0 says after a trial: whether there may be another one.
const IS_WELL: [u8; 1] = [1];
const IS_OVER: [u8; 1] = [0];
