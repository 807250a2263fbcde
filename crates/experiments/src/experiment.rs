//! An experiment and its own options, with their types erased: the interface for all code that
//! needs no `Rank`.

use std::any::Any;
use std::fmt::{self, Debug};
use std::ops::RangeInclusive;

use rdmalab_measure::{Method, Quantity};

use crate::common::limits::Limits;
use crate::common::option::{Choice, Opt};
use crate::common::params::Common;
use crate::common::rules::Fault;
use crate::workload::{Places, ResultShape, Workload};

/// An experiment: the work that is done, and the quantities that are measured.
#[derive(Clone, Copy)]
pub struct Experiment(&'static About);

/// The properties of an experiment that do not depend on a point.
struct About {
    name: &'static str,
    summary: &'static str,
    ranks: RangeInclusive<usize>,
    waits: bool,
    samples_each: bool,
    samples_runs: bool,
    method: Option<Method>,
    calibrates: &'static [&'static str],
    options: fn() -> Vec<&'static Opt>,
    defaults: fn() -> (Common, Own),
}

impl About {
    const fn of<W: Workload>() -> Self {
        Self {
            name: W::NAME,
            summary: W::SUMMARY,
            ranks: W::RANKS,
            waits: W::WAITS,
            samples_each: W::SAMPLES_EACH,
            samples_runs: W::SAMPLES_RUNS,
            method: W::METHOD,
            calibrates: W::CALIBRATES,
            options: || W::OPTIONS.iter().map(|choice| choice.opt()).collect(),
            defaults: || (W::COMMON, Own::new(W::OWN)),
        }
    }
}

impl Experiment {
    /// The experiment that a workload implements.
    #[must_use]
    pub const fn of<W: Workload>() -> Self {
        Self(const { &About::of::<W>() })
    }

    /// The default options.
    pub(crate) fn defaults(self) -> (Common, Own) {
        (self.0.defaults)()
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// What it measures, in one sentence.
    #[must_use]
    pub fn summary(self) -> &'static str {
        self.0.summary
    }

    /// The least and the most ranks that it takes. The default is the least.
    #[must_use]
    pub fn ranks(self) -> RangeInclusive<usize> {
        self.0.ranks.clone()
    }

    /// Checks whether `count` ranks can run it.
    ///
    /// # Errors
    /// A sentence that says how many it takes.
    pub fn takes(self, count: usize) -> Result<(), String> {
        let (least, most) = self.ranks().into_inner();
        match count {
            count if (least..=most).contains(&count) => Ok(()),
            count if least == most => {
                Err(format!("{self} needs exactly {least} ranks, not {count}"))
            }
            count => Err(format!("{self} needs {least} to {most} ranks, not {count}")),
        }
    }

    /// Whether it waits for the device, so that a short trial run tells how long it takes.
    #[must_use]
    pub fn waits(self) -> bool {
        self.0.waits
    }

    /// Whether each counted message has a sample, from which quantiles follow.
    #[must_use]
    pub fn samples_each(self) -> bool {
        self.0.samples_each
    }

    /// Whether each run is one sample, so that a shorter measurement keeps the number of runs.
    #[must_use]
    pub fn samples_runs(self) -> bool {
        self.0.samples_runs
    }

    /// The kind of measurement for which `rdmalab advise` uses it.
    #[must_use]
    pub fn method(self) -> Option<Method> {
        self.0.method
    }

    /// The sweeps of it that `rdmalab calibrate` measures, each as options of a command line.
    #[must_use]
    pub fn calibrates(self) -> &'static [&'static str] {
        self.0.calibrates
    }

    /// Its options, in the order of a help text.
    #[must_use]
    pub fn options(self) -> Vec<&'static Opt> {
        (self.0.options)()
    }
}

impl PartialEq for Experiment {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Experiment {}

impl Debug for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The options that only one experiment has; they also identify the experiment.
pub(crate) struct Own(Box<dyn Erased>);

impl Own {
    pub fn new<W: Workload>(own: W) -> Self {
        Self(Box::new(own))
    }

    pub fn erased(&self) -> &dyn Erased {
        &*self.0
    }

    pub fn erased_mut(&mut self) -> &mut dyn Erased {
        &mut *self.0
    }

    /// The options as a `W`, if that is their type.
    pub fn downcast<W: Workload>(&self) -> Option<&W> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }
}

impl Clone for Own {
    fn clone(&self) -> Self {
        Self(self.0.boxed())
    }
}

impl PartialEq for Own {
    fn eq(&self, other: &Self) -> bool {
        self.0.experiment() == other.0.experiment() && self.0.own_options() == other.0.own_options()
    }
}

impl Eq for Own {}

impl Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(self.0.experiment().name()).field(&self.0.own_options()).finish()
    }
}

macro_rules! erased {
    ($($name:ident($($arg:ident: $type:ty),+) -> $result:ty;)+) => {
        /// A [`Workload`] with its type erased, for all code that needs no `Rank`.
        pub(crate) trait Erased: Any + Send + Sync {
            /// Which experiment.
            fn experiment(&self) -> Experiment;
            /// A copy.
            fn boxed(&self) -> Box<dyn Erased>;
            /// The options that no other experiment has, with their values.
            fn own_options(&self) -> Vec<(&'static str, String)>;
            /// The value of an option; `None` where it has no such option.
            fn get(&self, common: &Common, name: &str) -> Option<String>;
            /// Changes the value of an option; `None` where it has no such option.
            fn set(
                &mut self,
                common: &mut Common,
                name: &str,
                text: &str,
            ) -> Option<Result<(), String>>;
            $(
                #[doc = concat!("See [`Workload::", stringify!($name), "`].")]
                fn $name(&self, $($arg: $type),+) -> $result;
            )+
        }

        impl<W: Workload> Erased for W {
            fn experiment(&self) -> Experiment {
                Experiment::of::<W>()
            }

            fn boxed(&self) -> Box<dyn Erased> {
                Box::new(self.clone())
            }

            fn own_options(&self) -> Vec<(&'static str, String)> {
                let own = W::OPTIONS.iter().filter_map(Choice::own);
                own.map(|field| (field.opt.name, (field.get)(self))).collect()
            }

            fn get(&self, common: &Common, name: &str) -> Option<String> {
                let choice = W::OPTIONS.iter().find(|choice| choice.opt().name == name)?;
                Some(choice.get(common, self))
            }

            fn set(
                &mut self,
                common: &mut Common,
                name: &str,
                text: &str,
            ) -> Option<Result<(), String>> {
                let choice = W::OPTIONS.iter().find(|choice| choice.opt().name == name)?;
                Some(choice.set(common, self, text))
            }
            $(
                fn $name(&self, $($arg: $type),+) -> $result {
                    Workload::$name(self, $($arg),+)
                }
            )+
        }
    };
}

erased! {
    check(common: &Common, limits: &Limits) -> Result<(), Fault>;
    check_queues(common: &Common) -> Result<(), Fault>;
    check_ranks(ranks: usize) -> Result<(), Fault>;
    memory(common: &Common) -> Places;
    series(common: &Common) -> u64;
    quantities(common: &Common) -> Vec<Quantity>;
    results(common: &Common) -> &'static [ResultShape];
    message_ns(common: &Common) -> f64;
    pause_ns(common: &Common) -> f64;
    window(common: &Common) -> u64;
    pages_on_demand(common: &Common) -> bool;
}
