//! `connect`: making connections, plainly or by the connection manager (`managed`).
//!
//! Plainly: both ends create queue pairs, exchange their numbers, bring them to RTS, and
//! synchronize again, since a request that arrives too early is retried only after a time-out. Then
//! rank 0 sends a first message over each. All connections of a run stay until its end.

mod managed;
mod options;
mod plain;
mod shared;

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::effort::{Begin, Effort};
use crate::common::limits::Limits;
use crate::common::local_end::device_facts;
use crate::common::lockstep::cut_short;
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::{Common, Op, Transport};
use crate::common::rules::{Fault, must};
use crate::workload::Workload;
use managed::Managed;
pub(crate) use options::Connect;
use options::{BY, By};
use plain::Making;

impl Workload for Connect {
    const NAME: &'static str = "connect";
    const SUMMARY: &'static str = "making connected queue pairs, step by step, until the first \
        message has arrived: time of each step, and how many a second";
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [TRANSPORT RUNS LIST QPS MTU SL TX_DEPTH RX_DEPTH PORT GID_INDEX TIMEOUT RETRY_CNT]
        Common [RNR_RETRY MIN_RNR_TIMER]
        Own [BY]
        Common [SEED LINK SIM]
    };
    const COMMON: Common = Common {
        op: Op::Write,
        size_bytes: 8,
        messages: 1,
        runs: 20,
        warm_up: 0,
        tx_depth: 16,
        rx_depth: 16,
        ..Common::DEFAULT
    };
    const OWN: Self = Self { by: By::Plain };
    const WAITS: bool = false;
    const CALIBRATES: &'static [&'static str] = &[""];

    fn check(&self, common: &Common, limits: &Limits) -> Result<(), Fault> {
        must(common.transport != Transport::Ud, "transport", || {
            "datagrams need no connection: choose rc or uc".to_owned()
        })?;
        must(self.by != By::RdmaCm || common.transport == Transport::Rc, "by", || {
            "rdma_cm makes reliable connections only: choose --transport rc, or --by plain"
                .to_owned()
        })?;
        must(self.by != By::RdmaCm || limits.kind != "sim", "by", || {
            format!("{} has no connection manager: choose --by plain", limits.device)
        })
    }

    fn quantities(&self, _: &Common) -> Vec<Quantity> {
        vec![Quantity::SetupTime, Quantity::CallCost, Quantity::Rate]
    }

    fn message_ns(&self, common: &Common) -> f64 {
        300_000.0 * f64::from(common.qps)
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        let list = if common.list == 0 { common.qps } else { common.list } as usize;
        match self.by {
            By::Plain => {
                let mut making = Making::new(rank, context, limits, common)?;
                runs(rank, context, common, &mut making, |making| making.part(list))
                    .map(|end| end.with(rank, |outcome| making.outcome(outcome)))
            }
            By::RdmaCm => {
                let mut managed = Managed::new(rank, context, limits, common)?;
                runs(rank, context, common, &mut managed, |managed| managed.part(list))
                    .map(|end| end.with(rank, |outcome| managed.outcome(outcome)))
            }
        }
    }
}

/// All runs, with what they cost.
struct Ended {
    outcome: Outcome,
    effort: Effort,
}

impl Ended {
    /// What rank 0 has found goes in front of the effort.
    fn with<R: Rank>(mut self, rank: &R, found: impl FnOnce(&mut Outcome)) -> Outcome {
        if rank.index() == 0 {
            found(&mut self.outcome);
        }
        self.effort.push(&mut self.outcome, &format!("rank {}", rank.index()));
        self.outcome
    }
}

fn runs<R: Rank, T>(
    rank: &R,
    context: &Context,
    common: &Common,
    making: &mut T,
    part: impl Fn(&mut T) -> Result<bool, Stopped>,
) -> Result<Ended, Stopped> {
    let (mut outcome, mut effort) = (Outcome::default(), Effort::default());
    for _ in 0..common.runs {
        let begin = Begin::now(rank);
        let result = part(making);
        begin.end(rank, &mut effort);
        let goes_on = *result.as_ref().unwrap_or(&true);
        outcome.cut_short = match goes_on {
            true => cut_short(result.map(drop))?,
            false => Some(Stopped::Asked.to_string()),
        };
        if outcome.cut_short.is_some() {
            break;
        }
    }
    device_facts(context, &mut outcome);
    Ok(Ended { outcome, effort })
}
