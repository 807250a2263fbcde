//! Published values and what of ours stands beside each: a number, what follows from two of them,
//! or why there is none.

use rdmalab_measure::stats::{Runs, run_shift};
use serde::Deserialize;

use crate::claim::{Operand, is_published};
use crate::judge::ratio;
use crate::measurement::{Basis, Measurement, SweepResult, Unit, cells, hull};
use crate::plan::Plan;
use crate::published::Published;

/// A published value, and which of our numbers stands beside it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The metric in `published.csv`.
    pub metric: String,
    /// Ours.
    pub ours: Operand,
    /// Ours is divided by this; what it does not name is as in `ours`.
    #[serde(default)]
    pub over: Option<Operand>,
    /// Instead: this is taken from ours.
    #[serde(default)]
    pub less: Option<Operand>,
    /// The difference is divided by so much: for growth per peer.
    #[serde(default)]
    pub per: Option<f64>,
    /// How the ratio is told.
    #[serde(default, rename = "as")]
    pub form: RatioForm,
    /// Why it is shown beside ours, and not judged by.
    #[serde(default)]
    pub shown: Option<String>,
}

/// How a ratio is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioForm {
    /// As it is.
    #[default]
    Ratio,
    /// What is more than 1.
    Increase,
    /// What is less than 1.
    Reduction,
}

/// Published values that nothing here produces.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// Metrics in `published.csv`; one that ends in `*` stands for all that begin so.
    pub metrics: Vec<String>,
    /// Why: half a sentence, after "not produced here:".
    pub because: String,
}

impl Absent {
    /// Whether it is of that metric.
    #[must_use]
    pub fn names(&self, metric: &str) -> bool {
        self.metrics.iter().any(|name| match name.strip_suffix('*') {
            Some(start) => metric.starts_with(start),
            None => name == metric,
        })
    }
}

/// What is wrong with the entries of a file.
pub(crate) fn check(
    values: &[Value],
    absent: &[Absent],
    plan: &Plan,
    published: &[Published],
) -> Result<(), String> {
    for (i, value) in values.iter().enumerate() {
        let at = |what: String| format!("value {:?}: {what}", value.metric);
        is_published(published, &value.metric).map_err(at)?;
        value.check(plan).map_err(at)?;
        if values[..i].iter().any(|other| other.metric == value.metric) {
            return Err(at("there are two of that metric".to_owned()));
        }
        if absent.iter().any(|a| a.names(&value.metric)) {
            return Err(at("it is both of ours and absent: choose one".to_owned()));
        }
    }
    for entry in absent {
        let unknown = entry.metrics.iter().find(|metric| {
            let one = Absent { metrics: vec![(*metric).clone()], because: String::new() };
            !published.iter().any(|p| one.names(&p.metric))
        });
        if let Some(metric) = unknown {
            return Err(format!("absent {metric:?}: published.csv has no such metric"));
        }
        if entry.because.trim().is_empty() {
            return Err(format!("absent {}: because says why", entry.metrics.join(", ")));
        }
    }
    Ok(())
}

impl Value {
    fn check(&self, plan: &Plan) -> Result<(), String> {
        self.ours.check_in(plan).map_err(|what| format!("ours: {what}"))?;
        for (name, side) in [("over", &self.over), ("less", &self.less)] {
            if let Some(side) = side {
                let whole = side.with_defaults_of(&self.ours);
                whole.check_in(plan).map_err(|what| format!("{name}: {what}"))?;
            }
        }
        if self.over.is_some() && self.less.is_some() {
            return Err("`over` and `less` do not go together".to_owned());
        }
        if self.form != RatioForm::Ratio && self.over.is_none() {
            return Err("`as` tells a ratio: it needs `over`".to_owned());
        }
        if self.per.is_some() && self.less.is_none() {
            return Err("`per` is of a difference: it needs `less`".to_owned());
        }
        if self.shown.as_ref().is_some_and(|why| why.trim().is_empty()) {
            return Err("shown says why it is not judged".to_owned());
        }
        if self.per.is_some_and(|per| per <= 0.0 || !per.is_finite()) {
            return Err("per: a number above 0".to_owned());
        }
        Ok(())
    }

    /// Ours, for people: `median round trip`.
    #[must_use]
    pub fn described(&self) -> String {
        let ours = self.ours.described();
        match (&self.over, &self.less, self.form) {
            (Some(_), _, RatioForm::Ratio) => format!("ratio of two: {ours}"),
            (Some(_), _, RatioForm::Increase) => format!("by how much one is more: {ours}"),
            (Some(_), _, RatioForm::Reduction) => format!("by how much one is less: {ours}"),
            (_, Some(_), _) => match self.per {
                Some(per) => format!("difference of two over {per}: {ours}"),
                None => format!("difference of two: {ours}"),
            },
            _ => ours,
        }
    }

    /// Ours, or why there is none.
    pub(crate) fn cell(&self, parts: &[SweepResult]) -> Result<Measurement, String> {
        let ours = one(parts, &self.ours)?;
        if let Some(over) = &self.over {
            let over = one(parts, &over.with_defaults_of(&self.ours))?;
            return Ok(self.told(&ours, &over));
        }
        let Some(less) = &self.less else { return Ok(ours) };
        let less = one(parts, &less.with_defaults_of(&self.ours))?;
        let per = self.per.unwrap_or(1.0);
        let value = (ours.value - less.value) / per;
        let interval = difference(&ours, &less).map(|(low, high)| (low / per, high / per));
        Ok(following(&ours, &less, value, interval))
    }

    fn told(&self, ours: &Measurement, over: &Measurement) -> Measurement {
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

/// What follows from two numbers: as well known as both together.
fn following(
    one: &Measurement,
    other: &Measurement,
    value: f64,
    interval: Option<(f64, f64)>,
) -> Measurement {
    Measurement {
        value,
        interval,
        exact: interval,
        n: one.n.min(other.n),
        runs: one.runs.min(other.runs),
        basis: Basis::Together,
        of_runs: Vec::new(),
        clock_error_ns: one.clock_error_ns.max(other.clock_error_ns),
        ..one.clone()
    }
}

/// Between what a difference lies, by what the runs of both differ by and what their samples leave
/// open. `None` where there is one run of either.
fn difference(ours: &Measurement, less: &Measurement) -> Option<(f64, f64)> {
    let by_ends = |o: (f64, f64), l: (f64, f64)| (o.0 - l.1, o.1 - l.0);
    let runs = |cell: &Measurement| {
        let each: Vec<Vec<f64>> = cell.of_runs.iter().map(|value| vec![*value]).collect();
        Runs::of_session(&each).with_common_error(cell.clock_error_ns)
    };
    if ours.of_runs.is_empty() || less.of_runs.is_empty() {
        return Some(by_ends(ours.ends()?, less.ends()?));
    }
    let between = run_shift(&runs(less), &runs(ours), 0.5, 0.95)?.interval?;
    let within = ours.interval.zip(less.interval).map(|(o, l)| by_ends(o, l));
    Some(hull((between.low, between.high), within))
}

/// The one number that a side means.
fn one(parts: &[SweepResult], side: &Operand) -> Result<Measurement, String> {
    let mut found = cells(parts, side, None)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        n => Err(format!("{n} points of ours fit")),
    }
}

#[cfg(test)]
mod tests {
    use crate::claim::tests::parse;

    #[test]
    fn errors_name_the_metric_and_what_is_allowed() {
        let side = "{figure='f',quantity='rate_per_s'}";
        let value = |metric: &str, rest: &str| {
            format!("[[value]]\nmetric='{metric}'\nours={side}\n{rest}\n")
        };
        let twice = [value("m", ""), value("m", "")].concat();
        let both = [value("m", ""), "[[absent]]\nmetrics=['m']\nbecause='b'".to_owned()].concat();
        for (text, said) in [
            (value("q", ""), "value \"q\": published.csv has no metric"),
            (value("m", "over={figure='g'}"), "over: there is no figure \"g\""),
            (value("m", "over={}\nless={}"), "do not go together"),
            (value("m", "as='increase'"), "it needs `over`"),
            (value("m", "per=2"), "it needs `less`"),
            (value("m", "less={}\nper=0"), "a number above 0"),
            (value("m", "shown=''"), "shown says why"),
            (twice, "there are two of that metric"),
            (both, "choose one"),
            ("[[absent]]\nmetrics=['q*']\nbecause='b'".to_owned(), "\"q*\": published.csv has no"),
            ("[[absent]]\nmetrics=['m']\nbecause=' '".to_owned(), "absent m: because says why"),
        ] {
            let found = parse(&text).expect_err(said);
            assert!(found.contains(said), "{found}");
        }
        let fine = [
            value("m", "over={where={op='send'}}"),
            "[[absent]]\nmetrics=['d', 'w*']\n\
            because='of another layer'"
                .to_owned(),
        ]
        .concat();
        let file = parse(&fine).unwrap();
        assert!(file.absent[0].names("w") && !file.absent[0].names("m"));
    }
}
