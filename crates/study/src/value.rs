//! Published values and our number beside each: a measured number, a ratio or difference of two, or
//! the reason why there is none.

use rdmalab_record::Object;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::lookup::{SweepResult, measurements};
use crate::measurement::{Measurement, Unit, difference, following, ratio};
use crate::operand::Operand;
use crate::plan::Plan;
use crate::published::{Published, Reliability, is_published};

/// A published value, and our number that is shown beside it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The metric in `published.csv`.
    pub metric: String,
    /// Our number that is shown beside it.
    pub ours: Operand,
    /// Our number is divided by this one. Fields that it does not name are taken from `ours`.
    #[serde(default)]
    pub over: Option<Operand>,
    /// Instead of `over`: this number, or each of a list, is subtracted from ours.
    #[serde(default, deserialize_with = "one_or_many")]
    pub less: Vec<Operand>,
    /// The difference is divided by this: for growth per peer.
    #[serde(default)]
    pub per: Option<f64>,
    /// How the ratio is expressed.
    #[serde(default, rename = "as")]
    pub form: RatioForm,
    /// Why our number is only shown beside it, and not compared with it.
    #[serde(default)]
    pub shown: Option<String>,
}

/// How a ratio is expressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioForm {
    /// As it is.
    #[default]
    Ratio,
    /// The ratio minus 1: by how much ours is more.
    Increase,
    /// 1 minus the ratio: by how much ours is less.
    Reduction,
}

/// Published values, and why no experiment here produces them, or why they are contested.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Because {
    /// Metrics in `published.csv`; a name that ends in `*` stands for all with that beginning.
    pub metrics: Vec<String>,
    /// The reason: half a sentence, after "not produced here:" or "contested:".
    pub because: String,
}

impl Because {
    /// Whether the entry is about that metric.
    #[must_use]
    pub fn names(&self, metric: &str) -> bool {
        self.metrics.iter().any(|name| match name.strip_suffix('*') {
            Some(start) => metric.starts_with(start),
            None => name == metric,
        })
    }

    /// Checks an entry of the list `list` that names values of a kind.
    fn check(
        &self,
        list: &str,
        published: &[Published],
        is_of_kind: impl Fn(&Published) -> bool,
    ) -> Result<(), String> {
        let unknown = self.metrics.iter().find(|metric| {
            let one = Self { metrics: vec![(*metric).clone()], because: String::new() };
            !published.iter().any(|p| is_of_kind(p) && one.names(&p.metric))
        });
        if let Some(metric) = unknown {
            let kind = if list == "contested" { "contested " } else { "" };
            return Err(format!("{list} {metric:?}: published.csv has no such {kind}metric"));
        }
        if self.because.trim().is_empty() {
            return Err(format!(
                "{list} {}: `because` must give the reason",
                self.metrics.join(", ")
            ));
        }
        Ok(())
    }
}

/// Checks the entries of a file, and reports what is wrong.
pub(crate) fn check(
    values: &[Value],
    (absent, contested): (&[Because], &[Because]),
    plan: &Plan,
    published: &[Published],
) -> Result<(), String> {
    for (i, value) in values.iter().enumerate() {
        let at = |what: String| format!("value {:?}: {what}", value.metric);
        is_published(published, &value.metric).map_err(at)?;
        value.check(plan).map_err(at)?;
        if values[..i].iter().any(|other| other.metric == value.metric) {
            return Err(at("this metric is used twice".to_owned()));
        }
        if absent.iter().any(|a| a.names(&value.metric)) {
            return Err(at("it has both `ours` and `absent`: remove one".to_owned()));
        }
    }
    absent.iter().try_for_each(|entry| entry.check("absent", published, |_| true))?;
    let is_contested = |p: &Published| p.kind == Reliability::Contested;
    contested.iter().try_for_each(|entry| entry.check("contested", published, is_contested))
}

impl Value {
    fn check(&self, plan: &Plan) -> Result<(), String> {
        self.ours.check_in(plan).map_err(|what| format!("ours: {what}"))?;
        if self.ours.alone {
            return Err("ours: it takes nothing from others: remove `alone`".to_owned());
        }
        let over = self.over.iter().map(|side| ("over", side));
        for (name, side) in over.chain(self.less.iter().map(|side| ("less", side))) {
            let whole = side.with_defaults_of(&self.ours);
            whole.check_in(plan).map_err(|what| format!("{name}: {what}"))?;
        }
        if self.over.is_some() && !self.less.is_empty() {
            return Err("`over` and `less` cannot be combined".to_owned());
        }
        if self.form != RatioForm::Ratio && self.over.is_none() {
            return Err("`as` describes a ratio: it needs `over`".to_owned());
        }
        if self.per.is_some() && self.less.is_empty() {
            return Err("`per` divides a difference: it needs `less`".to_owned());
        }
        if self.shown.as_ref().is_some_and(|why| why.trim().is_empty()) {
            return Err("`shown` must say why the value is not judged".to_owned());
        }
        if self.per.is_some_and(|per| per <= 0.0 || !per.is_finite()) {
            return Err("`per` must be above 0".to_owned());
        }
        Ok(())
    }

    /// Whether the value can be drawn beside a point with these parameters. A ratio, a difference,
    /// a share and a finding cannot: they are not numbers of one point.
    #[must_use]
    pub fn matches_point(&self, parameters: &Object) -> bool {
        self.ours.above.is_none() && self.is_of_point(parameters)
    }

    /// Whether the value is the share of the samples above
    /// [`Operand::above`](crate::Operand::above) at a point with these parameters.
    #[must_use]
    pub fn is_share_of(&self, parameters: &Object) -> bool {
        self.ours.above.is_some() && self.is_of_point(parameters)
    }

    /// Whether it is one of our numbers as it is, neither a ratio nor a difference.
    pub(crate) fn is_plain(&self) -> bool {
        self.over.is_none() && self.less.is_empty()
    }

    /// The numbers of ours that it is made of.
    pub(crate) fn sides(&self) -> Vec<Operand> {
        let other =
            self.over.iter().chain(&self.less).map(|side| side.with_defaults_of(&self.ours));
        std::iter::once(self.ours.clone()).chain(other).collect()
    }

    fn is_of_point(&self, parameters: &Object) -> bool {
        self.is_plain() && self.ours.finding.is_none() && self.ours.matches(parameters, None)
    }

    /// Our number in words: `median round trip`.
    #[must_use]
    pub fn described(&self) -> String {
        let ours = self.ours.described();
        match (&self.over, &self.less[..], self.form) {
            (Some(_), _, RatioForm::Ratio) => format!("ratio of two: {ours}"),
            (Some(_), _, RatioForm::Increase) => format!("by how much one is more: {ours}"),
            (Some(_), _, RatioForm::Reduction) => format!("by how much one is less: {ours}"),
            (_, [], _) => ours,
            (_, less, _) => {
                let of = if less.len() == 1 { "two" } else { "several" };
                let over = self.per.map_or_else(String::new, |per| format!(" over {per}"));
                format!("difference of {of}{over}: {ours}")
            }
        }
    }

    /// Our number, or why there is none.
    pub(crate) fn cell(&self, parts: &[SweepResult]) -> Result<Measurement, String> {
        let ours = one(parts, &self.ours)?;
        if let Some(over) = &self.over {
            let over = one(parts, &over.with_defaults_of(&self.ours))?;
            return Ok(self.ratio_of(&ours, &over));
        }
        let Some(per) = (!self.less.is_empty()).then(|| self.per.unwrap_or(1.0)) else {
            return Ok(ours);
        };
        let mut left = ours;
        for less in &self.less {
            let less = one(parts, &less.with_defaults_of(&self.ours))?;
            let interval = difference(&left, &less);
            left = following(&left, &less, left.value - less.value, interval);
        }
        let interval = left.interval.map(|(low, high)| (low / per, high / per));
        Ok(Measurement { value: left.value / per, interval, exact: interval, ..left })
    }

    fn ratio_of(&self, ours: &Measurement, over: &Measurement) -> Measurement {
        let form = |ratio: f64| match self.form {
            RatioForm::Ratio => ratio,
            RatioForm::Increase => ratio - 1.0,
            RatioForm::Reduction => 1.0 - ratio,
        };
        let (value, ends) = ratio(ours, over);
        let ends = ends.map(|(low, high)| (form(low), form(high)));
        let interval = ends.map(|(a, b)| (a.min(b), a.max(b)));
        let unit = Unit::Named("share".to_owned());
        Measurement { unit, ..following(ours, over, form(value), interval) }
    }
}

/// One operand, or a list of them.
fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Operand>, D::Error> {
    let value = toml::Value::deserialize(from)?;
    let all = if let toml::Value::Array(all) = value { all } else { vec![value] };
    if all.is_empty() {
        return Err(D::Error::custom("`less` names nothing"));
    }
    all.into_iter().map(Operand::deserialize).collect::<Result<_, _>>().map_err(D::Error::custom)
}

/// The single number that an operand names.
fn one(parts: &[SweepResult], operand: &Operand) -> Result<Measurement, String> {
    let mut found = measurements(parts, operand, None)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        n => Err(format!("{n} points of ours fit")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_stands_beside_what_has_all_that_it_names() {
        let ours = "metric='m'\nours={figure='f', where={poll='busy', size_bytes=8}}";
        let value: Value = toml::from_str(ours).unwrap();
        let fits =
            |parameters: serde_json::Value| value.matches_point(parameters.as_object().unwrap());
        let both = json!({ "size_bytes": 8, "poll_send": "busy", "poll_recv": "busy", "x": 1 });
        assert!(fits(both));
        assert!(!fits(json!({ "size_bytes": 8, "poll_send": "busy", "poll_recv": "event" })));
        assert!(!fits(json!({ "size_bytes": 64, "poll_send": "busy", "poll_recv": "busy" })));
        assert!(!fits(json!({ "size_bytes": 8 })));
        let one = json!({ "size_bytes": 8 });
        for (rest, fits) in [("", true), ("over={}", false), ("less={}", false)] {
            let text = format!("metric='m'\nours={{figure='f', where={{size_bytes=8}}}}\n{rest}");
            let value: Value = toml::from_str(&text).unwrap();
            assert_eq!(value.matches_point(one.as_object().unwrap()), fits, "{rest}");
        }
        let found: Value = toml::from_str("metric='m'\nours={finding='knee'}").unwrap();
        assert!(!found.matches_point(one.as_object().unwrap()));
        assert!(!value.is_share_of(one.as_object().unwrap()));
    }

    #[test]
    fn a_share_is_of_its_point_and_is_no_number_of_it() {
        let ours = "metric='m'\nours={quantity='q', above=600, where={size_bytes=8}}";
        let value: Value = toml::from_str(ours).unwrap();
        let (own, other) = (json!({ "size_bytes": 8 }), json!({ "size_bytes": 64 }));
        assert!(value.is_share_of(own.as_object().unwrap()));
        assert!(!value.is_share_of(other.as_object().unwrap()));
        assert!(!value.matches_point(own.as_object().unwrap()));
    }
}
