//! The list of experiments: a line for each. Help texts, plans, sweeps, studies, records and
//! reports take from here what there is. A program may [add] experiments of its own.

use std::sync::OnceLock;

use rdmalab_rank::Rank;
use rdmalab_rank::process::ProcessRank;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::common::option::Opt;
use crate::common::words::no_such;
use crate::experiment::{Experiment, Own};
use crate::runner::Runner;

macro_rules! experiments {
    ($($name:ident: $module:ident::$workload:ident,)+) => {
        impl Experiment {
            $(
                #[doc = concat!("The one in `", stringify!($module), "/`.")]
                pub const $name: Self = Self::of::<crate::$module::$workload>();
            )+

            /// Those that rdmalab comes with.
            const STANDARD: &[Self] = &[$(Self::$name),+];
        }

        /// How a rank runs those that rdmalab comes with.
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
    RECVQ: recvq::Recvq,
    RPC: rpc::Rpc,
    FAN: fan::Fan,
}

/// Those that the program added.
static ADDED: OnceLock<Vec<Runner<ProcessRank>>> = OnceLock::new();

/// Adds experiments of the program to those that rdmalab comes with. To be called once, by every
/// process that is a rank, before anything asks what experiments there are.
///
/// # Errors
/// A name or letter that is in use, an option that means something else elsewhere, or a second
/// call.
pub fn add(added: Vec<Runner<ProcessRank>>) -> Result<(), String> {
    let mut known = Experiment::STANDARD.to_vec();
    for runner in &added {
        let new = runner.experiment();
        if known.contains(&new) {
            return Err(format!("there are two experiments {new}: choose another name"));
        }
        known.push(new);
        let all: Vec<&Opt> = known.iter().flat_map(|experiment| experiment.options()).collect();
        for option in new.options() {
            if let Some(other) = all.iter().find(|other| other.clashes_with(option)) {
                return Err(format!(
                    "--{} of {new} is another option than --{} of other experiments: choose \
                     another name and letter",
                    option.name, other.name
                ));
            }
        }
    }
    ADDED.set(added).map_err(|_| "experiments were added before: add all at once".to_owned())
}

/// Those that the program added.
pub(crate) fn added() -> &'static [Runner<ProcessRank>] {
    ADDED.get().map_or(&[], Vec::as_slice)
}

impl Opt {
    /// Whether both cannot be options of one command line.
    fn clashes_with(&self, other: &Self) -> bool {
        let same_letter = self.letter.is_some() && self.letter == other.letter;
        self != other && (self.name == other.name || same_letter)
    }
}

impl Experiment {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::STANDARD.iter().copied().chain(added().iter().map(Runner::experiment))
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

impl<'de> Deserialize<'de> for Own {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (name, texts) = <(String, Vec<(String, String)>)>::deserialize(deserializer)?;
        let experiment: Experiment = name.parse().map_err(D::Error::custom)?;
        let (mut common, mut own) = experiment.defaults();
        for (option, text) in texts {
            let set = own.erased_mut().set(&mut common, &option, &text);
            set.unwrap_or_else(|| Err(format!("{experiment} has no option --{option}")))
                .map_err(D::Error::custom)?;
        }
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Point;

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
            unknown.contains("\"pong\" is no experiment") && unknown.contains("ping"),
            "{unknown}"
        );
    }

    #[test]
    fn an_experiment_takes_as_many_ranks_as_it_says() {
        assert_eq!(Experiment::RPC.ranks(), 2..=5);
        assert_eq!(Experiment::RPC.takes(5), Ok(()));
        assert!(Experiment::RPC.takes(6).unwrap_err().contains("2 to 5 ranks, not 6"));
        assert!(Experiment::PING.takes(3).unwrap_err().contains("by 2 ranks, not 3"));
    }
}
