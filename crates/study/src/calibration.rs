//! The published values by which a model's parameters were chosen: it does not predict these.

use std::collections::BTreeSet;

use crate::study::Study;
use crate::value::Value;

/// Which published values of a study a model's parameters were chosen by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    metrics: BTreeSet<String>,
    /// Those by which options of the plan were chosen, on the model of the study's adapter.
    of_plan: BTreeSet<String>,
    is_of_study: bool,
}

impl Calibration {
    /// The calibration of a simulated device, `sim:NAME`. `sources` are the sources that its
    /// profile gives for calibrated parameters. A source names a value of the study if it begins
    /// with the study's key and has the value's metric as a word, as in
    /// `mordkovich2013: n16.srq.base 3.17 us`.
    #[must_use]
    pub fn of_model<'a>(
        study: &Study,
        device: &str,
        sources: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let key = &study.plan.key;
        let mut metrics = BTreeSet::new();
        for source in sources {
            let words: Vec<&str> = words(source).collect();
            if words.first() == Some(&key.as_str()) {
                let names = study.published.iter().map(|p| p.metric.as_str());
                metrics.extend(names.filter(|name| words.contains(name)).map(str::to_owned));
            }
        }
        let profile = device.strip_prefix("sim:");
        let is_of_study = profile.is_some() && profile == study.plan.sim.profile.as_deref();
        let of_plan = study.plan.figures.iter().flat_map(|figure| figure.calibrated_by.clone());
        let of_plan = of_plan.filter(|_| is_of_study).collect();
        Self { is_of_study, metrics, of_plan }
    }

    /// Whether the model stands for the study's adapter: the plan names it.
    #[must_use]
    pub const fn is_of_study(&self) -> bool {
        self.is_of_study
    }

    /// Whether its sources name values of the study.
    #[must_use]
    pub fn names_values(&self) -> bool {
        !self.metrics.is_empty()
    }

    fn names(&self, metric: &str) -> bool {
        self.metrics.contains(metric) || self.of_plan.contains(metric)
    }

    /// The calibrating values that a value is one of, or follows from; empty if it is predicted. A
    /// ratio or difference follows if each of its two numbers is a calibrating value.
    pub(crate) fn behind(&self, study: &Study, value: &Value) -> Vec<String> {
        if self.names(&value.metric) {
            return vec![value.metric.clone()];
        }
        let plain = study.values.iter().filter(|v| v.is_plain() && self.names(&v.metric));
        let named = |side| plain.clone().find(|v| v.ours == side).map(|v| v.metric.clone());
        let sides: Option<Vec<String>> = value.sides().into_iter().map(named).collect();
        sides.unwrap_or_default()
    }
}

/// The words of a source; metrics have dots and underscores within.
fn words(source: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    source.split(move |c| !is_part(c)).map(|word| word.trim_matches(['.', '-']))
}
