//! Operands of claims and published values: each names a number of certain points.

use std::collections::BTreeMap;

use rdmalab_measure::Quantity;
use rdmalab_record::{Object, word};
use serde::Deserialize;
use serde_json::Value;

use crate::plan::Plan;

/// A number of a figure, a published number, or a constant.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operand {
    /// The figure's key.
    pub figure: Option<String>,
    /// The sweep's name; if not given, all sweeps of the figure.
    pub sweep: Option<String>,
    /// The quantity, by the name of its field, such as `one_way_ns`.
    pub quantity: Option<String>,
    /// Instead of a quantity: a finding over several points, such as `crossover`.
    pub finding: Option<String>,
    /// The number of the finding; if not given, its value. `found` is 1 if there is such a finding,
    /// and 0 if there is none.
    pub number: Option<String>,
    /// Selects one of several series of the quantity, or the series of a finding.
    pub label: Option<String>,
    /// The statistic of the series.
    pub stat: Option<Stat>,
    /// Instead of a statistic: the share of the series' samples above this value, in the unit of
    /// the quantity.
    pub above: Option<f64>,
    /// Required values of parameters.
    #[serde(default, rename = "where")]
    pub place: BTreeMap<String, toml::Value>,
    /// The metric of a published value.
    pub published: Option<String>,
    /// A constant, in the unit of the quantity.
    pub value: Option<f64>,
    /// Takes no field from another operand, such as places that its figure does not have.
    #[serde(default)]
    pub alone: bool,
}

/// A statistic of a series; a figure has one number only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Stat {
    /// The median.
    #[default]
    #[serde(rename = "median")]
    Median,
    /// The mean.
    #[serde(rename = "mean")]
    Mean,
    /// The least sample.
    #[serde(rename = "min")]
    Min,
    /// The largest sample.
    #[serde(rename = "max")]
    Max,
    /// The 10th percentile; records before version 4 have none.
    #[serde(rename = "p10")]
    P10,
    /// The 90th percentile.
    #[serde(rename = "p90")]
    P90,
    /// The 99th percentile.
    #[serde(rename = "p99")]
    P99,
    /// The 99.9th percentile.
    #[serde(rename = "p99.9")]
    P999,
}

impl Stat {
    /// The quantile, if the statistic is one.
    #[must_use]
    pub const fn quantile(self) -> Option<f64> {
        match self {
            Self::Median => Some(0.5),
            Self::P10 => Some(0.1),
            Self::P90 => Some(0.9),
            Self::P99 => Some(0.99),
            Self::P999 => Some(0.999),
            Self::Mean | Self::Min | Self::Max => None,
        }
    }

    /// The share of samples that lie below the statistic, if it is known.
    #[must_use]
    pub const fn share(self) -> Option<f64> {
        match self {
            Self::Min => Some(0.0),
            Self::Max => Some(1.0),
            other => other.quantile(),
        }
    }

    /// The word in `claims.toml`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Max => "max",
            Self::P10 => "p10",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
        }
    }
}

/// Values of a parameter, both ends included.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The parameter, as records name it: `size_bytes`.
    pub parameter: String,
    /// The least.
    pub from: f64,
    /// The largest.
    pub to: f64,
}

impl Operand {
    /// The quantity that the operand names.
    #[must_use]
    pub fn quantity(&self) -> Option<Quantity> {
        let name = self.quantity.as_deref()?;
        Quantity::ALL.into_iter().find(|q| q.field() == name)
    }

    /// The operand, with all fields that it does not set taken from another one.
    #[must_use]
    pub fn with_defaults_of(&self, other: &Self) -> Self {
        let (other, mut operand) = (other.clone(), self.clone());
        if self.alone {
            return operand;
        }
        // The sweep's name is not taken from another figure.
        if operand.figure.is_none() {
            operand.sweep = operand.sweep.or(other.sweep);
        }
        operand.figure = operand.figure.or(other.figure);
        if operand.quantity.is_none() && operand.finding.is_none() {
            operand.number = operand.number.or(other.number);
            operand.above = operand.above.or(other.above);
            (operand.quantity, operand.finding) = (other.quantity, other.finding);
        }
        operand.label = operand.label.or(other.label);
        operand.stat = operand.stat.or(other.stat);
        for (name, value) in other.place {
            operand.place.entry(name).or_insert(value);
        }
        operand
    }

    /// The operand in words: `median round trip`, `pattern: base_ns`.
    #[must_use]
    pub fn described(&self) -> String {
        match (&self.finding, &self.number) {
            (Some(finding), None) => finding.replace('_', " "),
            (Some(finding), Some(number)) => format!("{}: {number}", finding.replace('_', " ")),
            (None, _) if self.above.is_some() => {
                let quantity = self.quantity().unwrap_or(Quantity::MessageTime);
                let above = quantity.format(self.above.unwrap_or_default());
                format!("share of {} above {above}", quantity.name())
            }
            (None, _) => {
                let stat = self.stat.unwrap_or(Stat::Median).name();
                format!("{stat} {}", self.quantity().map_or("", Quantity::name))
            }
        }
    }

    /// Whether a point with these parameters is one that the operand and the range ask for. If the
    /// operand itself fixes the range's parameter, the range is ignored.
    pub(crate) fn matches(&self, parameters: &Object, range: Option<&Range>) -> bool {
        let has = |(name, wanted): (String, &toml::Value)| {
            parameters.get(&name).is_some_and(|value| word(value) == toml_text(wanted))
        };
        let range = range.filter(|range| !self.place.contains_key(&range.parameter));
        let in_range = |range: &Range| {
            let value = parameters.get(&range.parameter).and_then(Value::as_f64);
            value.is_some_and(|v| range.from <= v && v <= range.to)
        };
        self.place.iter().flat_map(spelled_out).all(has) && range.is_none_or(in_range)
    }

    /// Whether the operand asks for series or figures with this label.
    pub(crate) fn matches_label(&self, label: &str) -> bool {
        self.label.as_ref().is_none_or(|wanted| wanted == label)
    }

    /// Names of the parameters that the operand fixes.
    pub(crate) fn fixed(&self) -> Vec<String> {
        self.place.iter().flat_map(spelled_out).map(|(name, _)| name).collect()
    }

    /// Checks that the operand names a number of a figure.
    pub(crate) fn check_in(&self, plan: &Plan) -> Result<(), String> {
        let Some(key) = &self.figure else { return Err("it does not name a figure".to_owned()) };
        let Some(figure) = plan.figure(key) else {
            let keys: Vec<&str> = plan.figures.iter().map(|f| f.key.as_str()).collect();
            return Err(format!("there is no figure {key:?}; the figures are {}", keys.join(", ")));
        };
        if let Some(name) = self.sweep.as_ref()
            && !figure.sweeps.iter().any(|sweep| sweep.name == *name)
        {
            let names: Vec<&str> = figure.sweeps.iter().map(|s| s.name.as_str()).collect();
            return Err(format!(
                "figure {key:?} has no sweep {name:?}; it has {}",
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ));
        }
        if self.finding.is_some() {
            if self.quantity.is_some() || self.stat.is_some() || self.above.is_some() {
                return Err("a finding cannot have `quantity`, `stat` or `above`".to_owned());
            }
            return Ok(());
        }
        if self.above.is_some() && self.stat.is_some() {
            return Err(
                "a share `above` a limit counts all samples: it cannot have `stat`".to_owned()
            );
        }
        if self.number.is_some() {
            return Err("`number` needs a `finding`".to_owned());
        }
        if self.quantity().is_none() {
            let fields: Vec<&str> = Quantity::ALL.into_iter().map(Quantity::field).collect();
            return Err(format!(
                "there is no quantity {:?}; the quantities are {}",
                self.quantity.as_deref().unwrap_or(""),
                fields.join(", ")
            ));
        }
        Ok(())
    }
}

/// Replaces `poll` by the parameters for the polling of both ends.
fn spelled_out<'a>((name, value): (&'a String, &'a toml::Value)) -> Vec<(String, &'a toml::Value)> {
    match name.as_str() {
        "poll" => vec![("poll_send".to_owned(), value), ("poll_recv".to_owned(), value)],
        _ => vec![(name.clone(), value)],
    }
}

fn toml_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(yes) => yes.to_string(),
        _ => String::new(),
    }
}
