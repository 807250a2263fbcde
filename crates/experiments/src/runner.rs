//! The one step in running an experiment that needs the types of both the rank and the workload.

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::completions::failed;
use crate::common::limits::Limits;
use crate::common::params::Common;
use crate::experiment::{Experiment, Own};
use crate::workload::Workload;

/// Runs one experiment on ranks of type `R`.
pub struct Runner<R> {
    experiment: Experiment,
    run: fn(&Own, &Common, &R, &Context, &Limits) -> Result<Outcome, Stopped>,
}

impl<R: Rank + Sync> Runner<R> {
    /// The runner of a workload.
    #[must_use]
    pub const fn of<W: Workload>() -> Self {
        Self {
            experiment: Experiment::of::<W>(),
            run: |own, common, rank, context, limits| match own.downcast::<W>() {
                Some(own) => own.run(common, rank, context, limits),
                None => Err(failed(format!("these are not options of {}", W::NAME))),
            },
        }
    }

    /// Runs the experiment with checked options; `own` must be options of this experiment.
    pub(crate) fn run(
        &self,
        own: &Own,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        (self.run)(own, common, rank, context, limits)
    }

    /// Which experiment.
    #[must_use]
    pub const fn experiment(&self) -> Experiment {
        self.experiment
    }
}
