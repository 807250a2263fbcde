//! The list of experiments, one line for each. Help texts, plans, sweeps, studies, records and
//! reports are made from this list. A program may [add] its own experiments.

use std::sync::OnceLock;

use rdmalab_measure::Method;
use rdmalab_rank::Rank;
use rdmalab_rank::process::ProcessRank;

use crate::common::option::Opt;
use crate::common::words::no_such;
use crate::experiment::Experiment;
use crate::runner::Runner;

macro_rules! experiments {
    ($($name:ident: $module:ident::$workload:ident,)+) => {
        impl Experiment {
            $(
                #[doc = concat!("The one in `", stringify!($module), "/`.")]
                pub const $name: Self = Self::of::<crate::$module::$workload>();
            )+

            /// The experiments that are part of rdmalab.
            const STANDARD: &[Self] = &[$(Self::$name),+];
        }

        /// The runners of the experiments that are part of rdmalab.
        pub(crate) fn standard<R: Rank + Sync>() -> Vec<Runner<R>> {
            vec![$(Runner::of::<crate::$module::$workload>()),+]
        }
    };
}

experiments! {
    ONEWAY: oneway::Oneway,
    PING: ping::Ping,
    BLAST: blast::Blast,
    OVERHEAD: overhead::Overhead,
    MR: mr::Mr,
    CONNECT: connect::Connect,
    TIMEOUT: timeout::Timeout,
    ODP: odp::Odp,
    RECVQ: recvq::Recvq,
    RPC: rpc::Rpc,
    FAN: fan::Fan,
}

/// The experiments that the program added.
static ADDED: OnceLock<Vec<Runner<ProcessRank>>> = OnceLock::new();

/// Adds experiments of the program to those of rdmalab. Every process that is a rank must call
/// this once, before anything reads the list of experiments.
///
/// # Errors
/// A name is in use or has other characters than it may have, an option differs from one of the
/// same name, or this is the second call.
pub fn add(added: Vec<Runner<ProcessRank>>) -> Result<(), String> {
    let mut known = Experiment::STANDARD.to_vec();
    for new in added.iter().map(Runner::experiment) {
        fits(new, &known)?;
        known.push(new);
    }
    ADDED.set(added).map_err(|_| "experiments were added before: add all at once".to_owned())
}

/// Checks that an experiment has a name and options that can stand beside those of `known`.
fn fits(new: Experiment, known: &[Experiment]) -> Result<(), String> {
    if known.contains(&new) {
        return Err(format!("there are two experiments {new}: choose another name"));
    }
    if !is_word(new.name(), '_') || new.name() == "help" {
        return Err(format!(
            "{:?} is not allowed as the name of an experiment: use lower-case letters, digits and \
             _",
            new.name()
        ));
    }
    let all: Vec<&Opt> = known.iter().chain([&new]).flat_map(|e| e.options()).collect();
    for option in new.options() {
        // A record has the experiment under that name, beside the options.
        if !is_word(option.name, '-') || option.name == "experiment" {
            return Err(format!(
                "--{} of {new} is not allowed as an option: use lower-case letters, digits and -",
                option.name
            ));
        }
        if let Some(other) = all.iter().find(|other| other.clashes_with(option)) {
            return Err(format!(
                "--{} of {new} differs from the option --{} of other experiments: choose another \
                 name and letter",
                option.name, other.name
            ));
        }
    }
    Ok(())
}

/// Whether `text` consists of lower-case letters, digits and `joint`, and begins with a letter.
fn is_word(text: &str, joint: char) -> bool {
    let is_one = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == joint;
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_one)
}

/// The experiments that the program added.
pub(crate) fn added() -> &'static [Runner<ProcessRank>] {
    ADDED.get().map_or(&[], Vec::as_slice)
}

impl Opt {
    /// Whether the two options cannot be on the same command line.
    fn clashes_with(&self, other: &Self) -> bool {
        let same_letter = self.letter.is_some() && self.letter == other.letter;
        self != other && (self.name == other.name || same_letter)
    }
}

impl Experiment {
    /// All experiments.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::STANDARD.iter().copied().chain(added().iter().map(Runner::experiment))
    }

    /// The one that `rdmalab advise` uses for this kind of measurement.
    ///
    /// # Panics
    /// Never: a test holds that there is one for each kind.
    #[must_use]
    pub fn of_method(method: Method) -> Self {
        let mut standard = Self::STANDARD.iter().copied();
        standard.find(|one| one.method() == Some(method)).expect("each method has an experiment")
    }
}

impl std::str::FromStr for Experiment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase().replace('-', "_");
        Self::all().find(|experiment| experiment.name() == lower).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            no_such("experiment", text, &names)
        })
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_measure::{Outcome, Quantity};
    use rdmalab_rank::Stopped;
    use rdmalab_verbs::Context;

    use super::*;
    use crate::common::limits::Limits;
    use crate::common::option::{Choice, Field, choices, number_field};
    use crate::common::options::SIZE;
    use crate::common::params::Common;
    use crate::point::Point;
    use crate::workload::Workload;

    #[test]
    fn each_has_a_name_of_its_own_by_which_it_is_found() {
        for experiment in Experiment::all() {
            let name = experiment.name();
            assert_eq!(name.parse(), Ok(experiment));
            assert_eq!(Point::default_for(experiment).experiment(), experiment);
            assert!(!experiment.summary().ends_with('.'), "{name}");
        }
        let unknown = "pong".parse::<Experiment>().unwrap_err();
        assert!(
            unknown.contains("\"pong\" is not a valid experiment") && unknown.contains("ping"),
            "{unknown}"
        );
    }

    /// An experiment of that name with an option of that name and letter.
    macro_rules! other {
        ($name:literal, $option:literal, $letter:expr) => {{
            #[derive(Clone)]
            struct Other {
                number: u32,
            }
            const NUMBER: Field<Other> =
        number_field!($option, $letter, number: u32, 0..=9u64, "N", "", "a number");
            impl Workload for Other {
                const NAME: &'static str = $name;
                const SUMMARY: &'static str = "nothing";
                const OPTIONS: &'static [Choice<Self>] = choices! { Common [SIZE] Own [NUMBER] };
                const COMMON: Common = Common::DEFAULT;
                const OWN: Self = Self { number: 1 };
                fn quantities(&self, _: &Common) -> Vec<Quantity> {
                    Vec::new()
                }
                fn message_ns(&self, _: &Common) -> f64 {
                    1.0
                }
                fn run<R: Rank + Sync>(
                    &self,
                    _: &Common,
                    _: &R,
                    _: &Context,
                    _: &Limits,
                ) -> Result<Outcome, Stopped> {
                    Ok(Outcome::default())
                }
            }
            fits(Experiment::of::<Other>(), Experiment::STANDARD)
        }};
    }

    #[test]
    fn an_experiment_that_clashes_is_refused() {
        assert_eq!(other!("other", "number", Some('N')), Ok(()));
        let says = |found: Result<(), String>, what: &str| {
            let why = found.expect_err(what);
            assert!(why.contains(what), "{why}");
        };
        says(other!("ping", "number", None), "two experiments ping");
        says(other!("help", "number", None), "is not allowed as the name");
        says(other!("other-one", "number", None), "is not allowed as the name");
        says(other!("Other", "number", None), "is not allowed as the name");
        says(other!("other", "qps", None), "differs from the option --qps");
        says(other!("other", "number", Some('s')), "differs from the option");
        says(other!("other", "a_number", None), "is not allowed as an option");
        says(other!("other", "experiment", None), "is not allowed as an option");
    }

    #[test]
    fn each_method_has_one_experiment() {
        for method in Method::ALL {
            let all = Experiment::all().filter(|one| one.method() == Some(method));
            assert_eq!(all.collect::<Vec<_>>(), [Experiment::of_method(method)], "{method:?}");
            // `advise` measures all of them with the same ranks.
            assert_eq!(Experiment::of_method(method).ranks(), 2..=2, "{method:?}");
        }
    }

    #[test]
    fn an_experiment_takes_as_many_ranks_as_it_says() {
        assert_eq!(Experiment::RPC.ranks(), 2..=5);
        assert_eq!(Experiment::RPC.takes(5), Ok(()));
        assert!(Experiment::RPC.takes(6).unwrap_err().contains("2 to 5 ranks, not 6"));
        assert!(Experiment::PING.takes(3).unwrap_err().contains("exactly 2 ranks, not 3"));
    }
}
