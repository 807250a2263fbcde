//! Which changes of a model changed results: one that changed none is worth a word.

use std::collections::{BTreeMap, BTreeSet};

use rdmalab_experiments::Point;
use rdmalab_measure::Outcome as Measured;

/// The results of points, by their options without `--sim`, and by that.
#[derive(Default)]
pub struct Effects(BTreeMap<String, BTreeMap<String, u64>>);

impl Effects {
    /// Notes the results of a point.
    pub fn note(&mut self, point: &Point, measured: &[(usize, Measured)]) {
        let options = point.experiment().options();
        let others = options.iter().filter(|option| option.name != "sim");
        let others: Vec<String> =
            others.map(|option| format!("{}={}", option.name, option.get(point))).collect();
        let samples = measured.iter().flat_map(|(_, one)| &one.series).flat_map(|s| &s.samples);
        let figures = measured.iter().flat_map(|(_, one)| &one.figures).map(|f| &f.value);
        let of_point = self.0.entry(others.join(" ")).or_default();
        let digest = samples.chain(figures).fold(0xcbf2_9ce4_8422_2325, digested);
        of_point.insert(point.common.model.to_string(), digest);
    }

    /// The changes that changed no result, beside another change of the same points.
    pub fn idle(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self.0.values().flat_map(BTreeMap::keys).collect();
        let first = |models: &BTreeMap<String, u64>, model: &str| {
            let base = models.get("profile").or_else(|| models.values().next());
            base.is_some() && models.get(model) == base
        };
        let is_idle = |model: &&&String| {
            let seen = self.0.values().filter(|models| models.contains_key(**model));
            let others = self.0.values().any(|models| models.len() > 1);
            others && *model.as_str() != *"profile" && seen.clone().all(|m| first(m, model))
        };
        let idle: Vec<String> = all.iter().filter(is_idle).map(|model| (*model).clone()).collect();
        // Without the profile to compare with, only a parameter that changes nothing at all counts.
        let has_profile = self.0.values().any(|models| models.contains_key("profile"));
        if has_profile || (idle.len() > 1 && idle.len() == all.len()) { idle } else { Vec::new() }
    }
}

/// A number that stands for all numbers so far (FNV-1a, by words).
fn digested(digest: u64, number: &f64) -> u64 {
    (digest ^ number.to_bits()).wrapping_mul(0x100_0000_01b3).rotate_left(17)
}

#[cfg(test)]
mod tests {
    use rdmalab_experiments::{Experiment, Point};
    use rdmalab_measure::Quantity;

    use super::*;

    fn noted(results: &[(&str, f64)]) -> Vec<String> {
        let mut effects = Effects::default();
        for (model, value) in results {
            let model = model.parse().unwrap();
            let point = Point::default_for(Experiment::PING).with(|common| common.model = model);
            let mut outcome = Measured::default();
            outcome.push_figure(Quantity::Rate, "", *value);
            effects.note(&point, &[(0, outcome)]);
        }
        effects.idle()
    }

    #[test]
    fn a_change_without_effect_is_named() {
        assert_eq!(noted(&[("profile", 1.0), ("a=1", 1.0), ("b=1", 2.0)]), ["a=1"]);
        assert_eq!(noted(&[("a=1", 1.0), ("a=2", 1.0)]), ["a=1", "a=2"]);
        assert!(noted(&[("a=1", 1.0), ("a=2", 2.0)]).is_empty());
        assert!(noted(&[("a=1", 1.0), ("a=2", 1.0), ("a=3", 2.0)]).is_empty());
        assert!(noted(&[("a=1", 1.0)]).is_empty() && noted(&[("profile", 1.0)]).is_empty());
    }
}
