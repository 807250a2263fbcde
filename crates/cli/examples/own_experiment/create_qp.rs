//! `create_qp`: how long it takes to create a queue pair, and to destroy it, by how deep its queues
//! are and how much it takes inline. Rank 0 does all of it; rank 1 has nothing to do.

use std::fmt::Display;

use rdmalab_experiments::shared::{MESSAGES, PORT, RX_DEPTH, TX_DEPTH, WARM_UP};
use rdmalab_experiments::{Choice, Common, Fault, Field, Limits, Workload};
use rdmalab_experiments::{choices, number_field};
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Context, Qp, QpType};

/// Its own options.
#[derive(Clone)]
pub struct CreateQp {
    /// Bytes that a request may take inline.
    max_inline: u32,
}

const MAX_INLINE: Field<CreateQp> = number_field!(
    "max-inline", None, max_inline: u32, 0..=1u64 << 16, "BYTES", "bytes",
    "inline bytes that the queue pair asks for"
);

impl Workload for CreateQp {
    const NAME: &'static str = "create_qp";
    const SUMMARY: &'static str = "creating and destroying a queue pair";
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [MESSAGES WARM_UP TX_DEPTH RX_DEPTH PORT]
        Own [MAX_INLINE]
    };
    const COMMON: Common = Common { messages: 1000, warm_up: 10, ..Common::DEFAULT };
    const OWN: Self = Self { max_inline: 0 };
    const WAITS: bool = false;

    fn check(&self, _: &Common, limits: &Limits) -> Result<(), Fault> {
        let most = limits.max_inline_bytes;
        if self.max_inline > most {
            return Err(("max-inline", format!("{} grants at most {most}", limits.device)));
        }
        Ok(())
    }

    fn series(&self, _: &Common) -> u64 {
        2
    }

    fn quantities(&self, _: &Common) -> Vec<Quantity> {
        vec![Quantity::CallCost]
    }

    fn message_ns(&self, _: &Common) -> f64 {
        50_000.0
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        _: &Limits,
    ) -> Result<Outcome, Stopped> {
        let mut outcome = Outcome::default();
        if rank.index() > 0 {
            return Ok(outcome);
        }
        let pd = context.alloc_pd().map_err(failed)?;
        let cq = context.create_cq(common.tx_depth + common.rx_depth, None).map_err(failed)?;
        let (mut created, mut destroyed) = (Vec::new(), Vec::new());
        for _ in 0..common.total() {
            if rank.is_asked_to_stop() {
                outcome.cut_short = Some("interrupted".to_owned());
                break;
            }
            let begin = rank.now();
            let qp = Qp::builder(QpType::Rc, &cq, &cq)
                .max_send_wr(common.tx_depth)
                .max_recv_wr(common.rx_depth)
                .max_inline_data(self.max_inline)
                .build(&pd)
                .map_err(failed)?;
            let made = rank.now();
            drop(qp);
            let gone = rank.now();
            created.push(rank.clock().ns_between(begin, made));
            destroyed.push(rank.clock().ns_between(made, gone));
        }
        let warm_up = created.len().min(common.warm_up as usize);
        outcome.push_series(Quantity::CallCost, "create", warm_up, created);
        outcome.push_series(Quantity::CallCost, "destroy", warm_up, destroyed);
        Ok(outcome)
    }
}

fn failed(why: impl Display) -> Stopped {
    Stopped::Failed(why.to_string())
}
