//! `mr`: registering and deregistering memory, compared with copying as many bytes into memory that
//! is registered already. A program with a message in unregistered memory has this choice.
//!
//! Only rank 0 works; rank 1 has nothing to do.

use rdmalab_measure::outcome::Combination;
use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Access, Buffer, Context, Pd};

use crate::common::completions::failed;
use crate::common::effort::{Begin, Effort};
use crate::common::limits::Limits;
use crate::common::local_end::device_facts;
use crate::common::lockstep::cut_short;
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::{Common, Memory as Kind};
use crate::common::samples::{parts, stamp_memory};
use crate::workload::{ResultKind, ResultShape, Workload, transfer_ns};

/// It has no options of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mr;

impl Workload for Mr {
    const NAME: &'static str = "mr";
    const SUMMARY: &'static str = "registering and deregistering memory, and copying as much \
        instead: from which size on registering is cheaper";
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [SIZE MESSAGES RUNS WARM_UP TOUCH MEMORY PORT SEED LINK SIM]
    };
    const COMMON: Common = Common {
        size_bytes: 64 << 10,
        messages: 200,
        warm_up: 20,
        memory: Kind::Private,
        ..Common::DEFAULT
    };
    const OWN: Self = Self;
    const WAITS: bool = false;
    const CALIBRATES: &'static [&'static str] = &["--size 4K,64K,1M"];

    fn series(&self, _: &Common) -> u64 {
        4
    }

    fn quantities(&self, _: &Common) -> Vec<Quantity> {
        vec![Quantity::CallCost]
    }

    fn results(&self, _: &Common) -> &'static [ResultShape] {
        &[
            (Quantity::CallCost, "register + deregister", ResultKind::OfMessages),
            (Quantity::CallCost, "copy", ResultKind::OfMessages),
        ]
    }

    fn message_ns(&self, common: &Common) -> f64 {
        3000.0 + 3.0 * transfer_ns(common)
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        _: &Limits,
    ) -> Result<Outcome, Stopped> {
        let mut outcome = Outcome::default();
        device_facts(context, &mut outcome);
        if rank.index() > 0 {
            return Ok(outcome);
        }
        let bytes = common.size_bytes as usize;
        let no = |e| failed(format!("cannot allocate {bytes} bytes to register: {e}"));
        let user = match common.memory {
            Kind::Device => context.alloc_buffer(bytes),
            Kind::Private => Buffer::private(bytes),
        };
        let (user, bounce) = (user.map_err(no)?, context.alloc_buffer(bytes).map_err(no)?);
        user.fill(0, bytes, 1);
        bounce.fill(0, bytes, 0);
        let pd = context.alloc_pd().map_err(failed)?;
        // The copy goes to registered memory.
        let _registered = pd.register(&bounce, RIGHTS).map_err(failed)?;
        let memory = |_| stamp_memory(common.total() as usize, common.touch);
        let mut rounds = Rounds {
            rank,
            pd,
            source: vec![1; bytes],
            user,
            bounce,
            ticks: [0, 1, 2].map(memory),
            done: 0,
        };
        let mut effort = Effort::default();
        for count in parts(common) {
            let begin = Begin::now(rank);
            let result = rounds.part(count);
            begin.end(rank, &mut effort);
            if let Some(why) = cut_short(result)? {
                outcome.cut_short = Some(why);
                break;
            }
        }
        outcome.push_fact("backing", rounds.user.backing());
        rounds.series(common, &mut outcome);
        effort.push(&mut outcome, "rank 0");
        Ok(outcome)
    }
}

/// Rights of the regions: rights of the peer would cost no extra time.
const RIGHTS: Access = Access::LOCAL_WRITE;

/// Labels of the series, in the order of a round.
const LABELS: [&str; 3] = ["register", "deregister", "copy"];

struct Rounds<'a, R> {
    rank: &'a R,
    pd: Pd,
    source: Vec<u8>,
    user: Buffer,
    bounce: Buffer,
    /// Ticks of register, deregister and copy.
    ticks: [Vec<u64>; 3],
    done: usize,
}

impl<R: Rank> Rounds<'_, R> {
    fn part(&mut self, count: u64) -> Result<(), Stopped> {
        for _ in 0..count {
            // Also fails if the rank is asked to stop.
            self.rank.spin_for(0, || None::<()>)?;
            let begin = self.rank.now();
            let region = self.pd.register(&self.user, RIGHTS).map_err(failed)?;
            let registered = self.rank.now();
            drop(region);
            let gone = self.rank.now();
            self.bounce.copy_in(0, &self.source);
            self.rank.copied(self.source.len() as u64);
            let copied = self.rank.now();
            let stamps = [begin, registered, gone, copied];
            for (log, pair) in self.ticks.iter_mut().zip(stamps.windows(2)) {
                log[self.done] = pair[1].0.wrapping_sub(pair[0].0);
            }
            self.done += 1;
        }
        Ok(())
    }

    fn series(&self, common: &Common, outcome: &mut Outcome) {
        let clock = self.rank.clock();
        let time = |ticks: u64| clock.ns_between(Stamp(0), Stamp(ticks));
        let warm_up = (common.warm_up as usize).min(self.done);
        for (ticks, label) in self.ticks.iter().zip(LABELS) {
            let samples = ticks[..self.done].iter().map(|t| time(*t)).collect();
            outcome.push_series(Quantity::CallCost, label, warm_up, samples);
        }
        outcome.push_derived(
            Quantity::CallCost,
            "register + deregister",
            Combination::Sum,
            &[0, 1],
        );
        outcome.push_count("registered", self.done as u64);
    }
}
