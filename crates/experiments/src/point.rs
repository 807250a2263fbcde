//! One measurement as data: everything that both ends have to know.

use rdmalab_measure::Quantity;
use serde::{Deserialize, Serialize};

use crate::common::option::{Opt, OptionError};
use crate::common::params::Common;
use crate::common::rules::Fault;
use crate::duration::ALL_TRIALS_SHARE;
use crate::experiment::{Experiment, Own};
use crate::options::unused;
use crate::workload::ResultShape;

/// One measurement: an experiment with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The options that several experiments have.
    pub common: Common,
    /// The options that only this experiment has.
    pub(crate) own: Own,
}

/// A point as it travels to the ranks, which may be of another program: the options of the
/// experiment alone go as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlainPoint {
    experiment: String,
    common: Common,
    own: Vec<(String, String)>,
}

impl From<&Point> for PlainPoint {
    fn from(point: &Point) -> Self {
        let own = point.own.erased().own_options().into_iter();
        Self {
            experiment: point.experiment().name().to_owned(),
            common: point.common.clone(),
            own: own.map(|(name, text)| (name.to_owned(), text)).collect(),
        }
    }
}

impl TryFrom<PlainPoint> for Point {
    type Error = String;

    fn try_from(plain: PlainPoint) -> Result<Self, String> {
        let mut point = Self::default_for(plain.experiment.parse()?);
        for (name, text) in plain.own {
            point.set(&name, &text).map_err(|error| error.to_string())?;
        }
        point.common = plain.common;
        Ok(point)
    }
}

/// A point that cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// The option whose value is too large, or the second one of two that contradict each other.
    pub option: &'static str,
    /// Its value.
    pub value: String,
    /// Why, the limit, and what to do.
    pub reason: String,
}

impl std::fmt::Display for Impossible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "--{} {}: {}", self.option, self.value, self.reason)
    }
}

impl std::error::Error for Impossible {}

impl Point {
    /// The value of `--rate` that asks for a curve over several rates.
    pub const SWEEP: u64 = Common::SWEEP;

    /// The default point of an experiment.
    #[must_use]
    pub fn default_for(experiment: Experiment) -> Self {
        let (common, own) = experiment.defaults();
        Self { common, own }
    }

    /// Which experiment.
    #[must_use]
    pub fn experiment(&self) -> Experiment {
        self.own.erased().experiment()
    }

    /// A copy with changed common options.
    #[must_use]
    pub fn with(&self, change: impl FnOnce(&mut Common)) -> Self {
        let mut point = self.clone();
        change(&mut point.common);
        point
    }

    /// The value of the option of that name; `None` where the experiment has no such option.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        self.own.erased().get(&self.common, name)
    }

    /// Changes the option of that name.
    ///
    /// # Errors
    /// The text is no value of the option, or the experiment has no such option.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), OptionError> {
        let set = self.own.erased_mut().set(&mut self.common, name, text.trim());
        match set {
            Some(Ok(())) => Ok(()),
            Some(Err(reason)) => Err(OptionError { option: name.to_owned(), reason }),
            None => Err(unused(self.experiment(), name)),
        }
    }

    /// All quantities that the point may measure. A run may lack some of them because messages were
    /// lost, clocks could not be compared, or no pattern was found in the receive queue.
    #[must_use]
    pub fn quantities(&self) -> Vec<Quantity> {
        let mut all = self.own.erased().quantities(&self.common);
        all.extend([Quantity::CpuShare, Quantity::KernelShare]);
        all
    }

    /// The results that claims and published values of studies refer to.
    #[must_use]
    pub fn results(&self) -> &'static [ResultShape] {
        self.own.erased().results(&self.common)
    }

    /// The most messages under way before the sender has to wait for one of them.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.own.erased().window(&self.common)
    }

    /// Whether it registers memory that is paged on demand.
    #[must_use]
    pub fn pages_on_demand(&self) -> bool {
        self.own.erased().pages_on_demand(&self.common)
    }

    /// Estimated time of a message, in nanoseconds, on a device that answers in a microsecond.
    #[must_use]
    pub fn message_ns(&self) -> f64 {
        self.own.erased().message_ns(&self.common)
    }

    /// Estimated time of the point, in seconds, if a message takes `message_ns` when the sender
    /// does not pause.
    #[must_use]
    pub fn expected_s(&self, message_ns: f64) -> f64 {
        let paced_ns = match self.common.rate_per_s {
            0 => self.own.erased().pause_ns(&self.common),
            Self::SWEEP => message_ns,
            rate => 1e9 / rate as f64,
        };
        let each_s = message_ns.max(paced_ns) / 1e9;
        match self.common.duration_ns {
            0 => 0.05 + self.common.total() as f64 * each_s,
            ns => {
                let measured_s = ns as f64 / 1e9 * (1.0 + ALL_TRIALS_SHARE);
                0.05 + measured_s + self.common.warm_up as f64 * each_s
            }
        }
    }

    /// The point as it is measured in the given repetition, counted from 0.
    #[must_use]
    pub fn repeated(self, repetition: usize) -> Self {
        Self { common: self.common.repeated(repetition), ..self }
    }

    /// Checks whether the options of the point allow `ranks` ranks, beyond the experiment's range.
    ///
    /// # Errors
    /// The option that asks for more.
    pub fn check_ranks(&self, ranks: usize) -> Result<(), Impossible> {
        self.own.erased().check_ranks(ranks).map_err(|fault| self.impossible(fault))
    }

    /// Adds the option's value to the finding of a rule.
    pub(crate) fn impossible(&self, (option, reason): Fault) -> Impossible {
        Impossible { option, value: self.get(option).unwrap_or_default(), reason }
    }
}

impl Opt {
    /// The value of the option at a point, as text that [`Opt::set`] takes; empty if the experiment
    /// does not use the option.
    #[must_use]
    pub fn get(&self, point: &Point) -> String {
        point.get(self.name).unwrap_or_default()
    }

    /// Sets the option of a point.
    ///
    /// # Errors
    /// As [`Point::set`].
    pub fn set(&self, point: &mut Point, text: &str) -> Result<(), OptionError> {
        point.set(self.name, text)
    }

    /// Whether an experiment uses it.
    #[must_use]
    pub fn applies_to(&self, experiment: Experiment) -> bool {
        experiment.options().iter().any(|option| option.name == self.name)
    }
}
