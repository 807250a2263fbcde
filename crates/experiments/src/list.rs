//! The list of experiments: a line for each. Help texts, plans, sweeps, studies, records and
//! reports take from here what there is.

use std::ops::RangeInclusive;

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;
use serde::{Deserialize, Serialize};

use crate::common::limits::Limits;
use crate::common::option::Opt;
use crate::common::params::Common;
use crate::common::rules::Fault;
use crate::common::words::no_such;
use crate::workload::{Places, Workload};

macro_rules! experiments {
    ($($name:ident: $module:ident,)+) => {
        /// An experiment: what is done, and what is looked at.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Experiment {
            $(#[doc = concat!("The one in `", stringify!($module), "/`.")] $name,)+
        }

        /// The options that an experiment has to itself.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) enum Own {
            $($name(crate::$module::$name),)+
        }

        impl Experiment {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// What is known of it without a point.
            const fn about(self) -> About {
                match self {
                    $(Self::$name => About::of::<crate::$module::$name>(),)+
                }
            }

            /// What it does unless told otherwise.
            pub(crate) fn defaults(self) -> (Common, Own) {
                match self {
                    $(Self::$name => (
                        crate::$module::$name::COMMON,
                        Own::$name(crate::$module::$name::OWN),
                    ),)+
                }
            }
        }

        impl Own {
            /// Whose they are.
            pub fn experiment(&self) -> Experiment {
                match self {
                    $(Self::$name(_) => Experiment::$name,)+
                }
            }

            /// The same, without their type.
            pub fn erased(&self) -> &dyn Erased {
                match self {
                    $(Self::$name(own) => own,)+
                }
            }

            /// The same, to be changed.
            pub fn erased_mut(&mut self) -> &mut dyn Erased {
                match self {
                    $(Self::$name(own) => own,)+
                }
            }

            /// See [`Workload::run`].
            pub fn run<R: Rank + Sync>(
                &self,
                common: &Common,
                rank: &R,
                context: &Context,
                limits: &Limits,
            ) -> Result<Outcome, Stopped> {
                match self {
                    $(Self::$name(own) => own.run(common, rank, context, limits),)+
                }
            }
        }
    };
}

experiments! {
    Oneway: oneway,
    Ping: ping,
    Blast: blast,
    Overhead: overhead,
    Mr: mr,
    Connect: connect,
    Timeout: timeout,
    Recvq: recvq,
    Rpc: rpc,
    Fan: fan,
}

/// What an experiment says of itself.
#[derive(Clone)]
struct About {
    name: &'static str,
    summary: &'static str,
    ranks: RangeInclusive<usize>,
    waits: bool,
    samples_each: bool,
    samples_runs: bool,
    options: fn() -> Vec<&'static Opt>,
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
            options: || W::OPTIONS.iter().map(|choice| choice.opt()).collect(),
        }
    }
}

impl Experiment {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.about().name
    }

    /// What it measures, in one sentence.
    #[must_use]
    pub fn summary(self) -> &'static str {
        self.about().summary
    }

    /// How many ranks it takes, at least and at most. As many as at least unless asked otherwise.
    #[must_use]
    pub fn ranks(self) -> RangeInclusive<usize> {
        self.about().ranks
    }

    /// Whether it can be run by so many ranks.
    ///
    /// # Errors
    /// A sentence that says how many it takes.
    pub fn takes(self, count: usize) -> Result<(), String> {
        let (least, most) = self.ranks().into_inner();
        match count {
            count if (least..=most).contains(&count) => Ok(()),
            count if least == most => Err(format!("{self} is run by {least} ranks, not {count}")),
            count => Err(format!("{self} is run by {least} to {most} ranks, not {count}")),
        }
    }

    /// Whether it waits for answers of the device, so that a short try tells how long it takes.
    #[must_use]
    pub fn waits(self) -> bool {
        self.about().waits
    }

    /// Whether each counted message has a sample, from which quantiles follow.
    #[must_use]
    pub fn samples_each(self) -> bool {
        self.about().samples_each
    }

    /// Whether its samples are runs, so that a shorter measurement keeps these.
    #[must_use]
    pub fn samples_runs(self) -> bool {
        self.about().samples_runs
    }

    /// Its options, in the order of a help text.
    #[must_use]
    pub fn options(self) -> Vec<&'static Opt> {
        (self.about().options)()
    }

    /// Those that use an option, as words.
    pub(crate) fn users(name: &str) -> Vec<&'static str> {
        let uses = |e: &&Self| e.options().iter().any(|option| option.name == name);
        Self::ALL.iter().filter(uses).map(|e| e.name()).collect()
    }
}

impl std::fmt::Display for Experiment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Experiment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase().replace('-', "_");
        let found = Self::ALL.iter().find(|experiment| experiment.name() == lower);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|experiment| experiment.name()).collect();
            no_such("experiment", text, &names)
        })
    }
}

macro_rules! erased {
    ($($name:ident($($arg:ident: $type:ty),+) -> $result:ty;)+) => {
        /// A [`Workload`] without its type, for all that needs no `Rank`.
        pub(crate) trait Erased {
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
    message_ns(common: &Common) -> f64;
    pause_ns(common: &Common) -> f64;
    window(common: &Common) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Point;

    #[test]
    fn each_has_a_name_of_its_own_by_which_it_is_found() {
        for experiment in Experiment::ALL {
            let name = experiment.name();
            assert_eq!(name.parse(), Ok(*experiment));
            assert_eq!(Point::default_for(*experiment).experiment(), *experiment);
            assert!(!experiment.summary().ends_with('.'), "{name}");
        }
        let unknown = "pong".parse::<Experiment>().unwrap_err();
        assert!(
            unknown.contains("\"pong\" is no experiment") && unknown.contains("ping"),
            "{unknown}"
        );
    }

    #[test]
    fn an_experiment_takes_as_many_ranks_as_it_says() {
        assert_eq!(Experiment::Rpc.ranks(), 2..=5);
        assert_eq!(Experiment::Rpc.takes(5), Ok(()));
        assert!(Experiment::Rpc.takes(6).unwrap_err().contains("2 to 5 ranks, not 6"));
        assert!(Experiment::Ping.takes(3).unwrap_err().contains("by 2 ranks, not 3"));
    }
}
