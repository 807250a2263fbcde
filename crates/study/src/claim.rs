//! `claims.toml`: what a study says, and which of our numbers its values are held against.

use std::collections::BTreeMap;

use rdmalab_measure::Quantity;
use rdmalab_record::DeviceKind;
use serde::Deserialize;

use crate::error::{self, Error};
use crate::plan::Plan;
use crate::published::{Published, Reliability};
use crate::value::{self, Absent, Value};

/// A statement of a study, in a form that can be held against measurements.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its key.
    pub key: String,
    /// What it says, in words of ours.
    pub says: String,
    /// The one side: a number of a figure.
    pub left: Operand,
    /// How they relate.
    pub relation: Relation,
    /// The other side; what it does not name is as on the left.
    pub right: Operand,
    /// For which values of a parameter.
    #[serde(default)]
    pub range: Option<Range>,
    /// As a share. For `<` and `>`: the least difference that counts. Else: how near is near.
    #[serde(default)]
    pub tolerance: f64,
    /// Left is compared with so many times right; for `x` it is the statement itself.
    #[serde(default)]
    pub factor: Option<f64>,
    /// Whether it says so of every point: then not even so few contradictions as chance makes are
    /// let pass. Of no use with lines that cross, whose points differ by what it says.
    #[serde(default)]
    pub every: bool,
    /// Where the study says it.
    pub source: String,
    /// Kinds of devices on which it can be seen; empty: all.
    #[serde(default)]
    pub on: Vec<DeviceKind>,
    /// Why not on others.
    #[serde(default)]
    pub because: String,
}

/// How two sides relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Relation {
    /// The left one is smaller.
    #[serde(rename = "<")]
    Less,
    /// The left one is larger.
    #[serde(rename = ">")]
    More,
    /// They are equal within the tolerance.
    #[serde(rename = "~")]
    Near,
    /// The left one is [`Claim::factor`] times the right one, within the tolerance.
    #[serde(rename = "x")]
    Times,
    /// Within the range the left one is smaller first, and larger in the end.
    #[serde(rename = "rises above")]
    RisesAbove,
    /// Within the range the left one is larger first, and smaller in the end.
    #[serde(rename = "falls below")]
    FallsBelow,
}

impl Relation {
    /// Whether it is of two lines that cross.
    #[must_use]
    pub const fn crosses(self) -> bool {
        matches!(self, Self::RisesAbove | Self::FallsBelow)
    }

    /// Its sign, for people.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::More => ">",
            Self::Near => "≈",
            Self::Times => "×",
            Self::RisesAbove => "rises above",
            Self::FallsBelow => "falls below",
        }
    }
}

/// A number of a figure, or a published one, or a plain one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operand {
    /// The figure's key.
    pub figure: Option<String>,
    /// The sweep's name; all of the figure's if not given.
    pub sweep: Option<String>,
    /// The quantity, by its field name, as `one_way_ns`.
    pub quantity: Option<String>,
    /// Instead of a quantity: what was found in several points together, as `crossover`.
    pub finding: Option<String>,
    /// Which number of the finding; its value, if not given. `found` is 1 where there is one, and 0
    /// where there is none.
    pub number: Option<String>,
    /// Which of several series of the quantity, or whose finding.
    pub label: Option<String>,
    /// Which number of the series.
    pub stat: Option<Stat>,
    /// Instead of a number of the series: the share of its samples above this, in the unit of the
    /// quantity.
    pub above: Option<f64>,
    /// What parameters have to be.
    #[serde(default, rename = "where")]
    pub place: BTreeMap<String, toml::Value>,
    /// The metric of a published value.
    pub published: Option<String>,
    /// A plain number, in the unit of the quantity.
    pub value: Option<f64>,
}

/// A number of a series; of a figure there is one.
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
    /// Its quantile, if it is one.
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

    /// The share of samples that lie below it, if it is known.
    #[must_use]
    pub const fn share(self) -> Option<f64> {
        match self {
            Self::Min => Some(0.0),
            Self::Max => Some(1.0),
            other => other.quantile(),
        }
    }

    /// Its word.
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

/// Values of a parameter, ends included.
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

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimsFile {
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    #[serde(default, rename = "value")]
    pub values: Vec<Value>,
    #[serde(default, rename = "absent")]
    pub absent: Vec<Absent>,
}

impl ClaimsFile {
    pub(crate) fn parse(
        file: &str,
        text: &str,
        plan: &Plan,
        published: &[Published],
    ) -> Result<Self, Error> {
        let found: Self = toml::from_str(text).map_err(|e| error::toml(file, text, &e))?;
        let wrong = |what: String| Error { file: file.to_owned(), what };
        for (i, claim) in found.claims.iter().enumerate() {
            let at = |what: String| wrong(format!("claim {:?}: {what}", claim.key));
            if found.claims[..i].iter().any(|other| other.key == claim.key) {
                return Err(at("there are two of that key".to_owned()));
            }
            claim.check(plan, published).map_err(at)?;
        }
        value::check(&found.values, &found.absent, plan, published).map_err(wrong)?;
        Ok(found)
    }
}

impl Claim {
    fn check(&self, plan: &Plan, published: &[Published]) -> Result<(), String> {
        self.left.check_in(plan).map_err(|what| format!("left: {what}"))?;
        let right = &self.right;
        if let Some(metric) = &right.published {
            is_published(published, metric).map_err(|what| format!("right: {what}"))?;
            is_certain(published, metric).map_err(|what| format!("right: {what}"))?;
        } else if right.value.is_none() {
            self.right_operand().check_in(plan).map_err(|what| format!("right: {what}"))?;
        }
        if !(0.0..1.0).contains(&self.tolerance) {
            return Err(format!("tolerance = {}: a share, from 0 to below 1", self.tolerance));
        }
        if self.factor.is_some_and(|f| f <= 0.0 || !f.is_finite()) {
            return Err("factor: a number above 0".to_owned());
        }
        if self.relation == Relation::Times && self.factor.is_none() {
            return Err("relation \"x\" needs a factor".to_owned());
        }
        if self.relation.crosses() && self.range.is_none() {
            return Err(format!("relation {:?} needs a range", self.relation.sign()));
        }
        if self.relation.crosses() && self.every {
            return Err(format!("`every` does not go with relation {:?}", self.relation.sign()));
        }
        if let Some(range) = self.range.as_ref().filter(|range| range.from > range.to) {
            return Err(format!("range: from = {} is above to = {}", range.from, range.to));
        }
        if self.on.is_empty() != self.because.is_empty() {
            return Err("`on` (kinds of devices) and `because` belong together".to_owned());
        }
        Ok(())
    }

    /// The right side with what it takes over from the left.
    #[must_use]
    pub fn right_operand(&self) -> Operand {
        self.right.with_defaults_of(&self.left)
    }
}

impl Operand {
    /// The quantity that it names.
    #[must_use]
    pub fn quantity(&self) -> Option<Quantity> {
        let name = self.quantity.as_deref()?;
        Quantity::ALL.into_iter().find(|q| q.field() == name)
    }

    /// It, with what it does not name as another side has it.
    #[must_use]
    pub fn with_defaults_of(&self, other: &Self) -> Self {
        let (other, mut side) = (other.clone(), self.clone());
        // Another figure has other sweeps.
        if side.figure.is_none() {
            side.sweep = side.sweep.or(other.sweep);
        }
        side.figure = side.figure.or(other.figure);
        if side.quantity.is_none() && side.finding.is_none() {
            side.number = side.number.or(other.number);
            side.above = side.above.or(other.above);
            (side.quantity, side.finding) = (other.quantity, other.finding);
        }
        side.label = side.label.or(other.label);
        side.stat = side.stat.or(other.stat);
        for (name, value) in other.place {
            side.place.entry(name).or_insert(value);
        }
        side
    }

    /// What it is, for people: `median round trip`, `pattern: base_ns`.
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

    /// Whether it names a number of a figure.
    pub(crate) fn check_in(&self, plan: &Plan) -> Result<(), String> {
        let Some(key) = &self.figure else { return Err("it names no figure".to_owned()) };
        let Some(figure) = plan.figure(key) else {
            let keys: Vec<&str> = plan.figures.iter().map(|f| f.key.as_str()).collect();
            return Err(format!("there is no figure {key:?}; there are {}", keys.join(", ")));
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
                return Err("a finding has no `quantity`, no `stat` and no `above`".to_owned());
            }
            return Ok(());
        }
        if self.above.is_some() && self.stat.is_some() {
            return Err("a share `above` a limit is of all samples: it has no `stat`".to_owned());
        }
        if self.number.is_some() {
            return Err("`number` is one of a `finding`".to_owned());
        }
        if self.quantity().is_none() {
            let fields: Vec<&str> = Quantity::ALL.into_iter().map(Quantity::field).collect();
            return Err(format!(
                "there is no quantity {:?}; there are {}",
                self.quantity.as_deref().unwrap_or(""),
                fields.join(", ")
            ));
        }
        Ok(())
    }
}

pub(crate) fn is_published(published: &[Published], metric: &str) -> Result<(), String> {
    match published.iter().find(|p| p.metric == metric) {
        Some(found) if found.in_base().is_some() => Ok(()),
        Some(found) => Err(format!("{metric:?} is {:?} {}, no number", found.value, found.unit)),
        None => Err(format!("published.csv has no metric {metric:?}")),
    }
}

/// What the study itself, or arithmetic, contradicts is shown; nothing is judged by it.
fn is_certain(published: &[Published], metric: &str) -> Result<(), String> {
    let is_it = |p: &&Published| p.metric == metric && p.kind == Reliability::Contested;
    match published.iter().find(is_it) {
        Some(_) => Err(format!(
            "{metric:?} is contested: such values are shown, and no claim is judged by one"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn parse(text: &str) -> Result<ClaimsFile, String> {
        let plan = "key='a'\ntitle='T'\nsource='S'\nhardware='H'\n[[figure]]\nkey='f'\ntitle='F'\n\
                    [[figure.sweep]]\nname='s'\nrun='ping'\n";
        let plan = Plan::parse("plan", plan).unwrap();
        let rows = "metric,value,unit,tolerance,kind,place,what\nm,5,us,,context,,\n\
                    w,so,-,,context,,\nd,5,us,,contested,,\n";
        let published = Published::parse("csv", rows).unwrap();
        ClaimsFile::parse("a/claims.toml", text, &plan, &published).map_err(|e| e.to_string())
    }

    fn claim(changes: &[(&str, &str)]) -> Result<ClaimsFile, String> {
        let mut lines = vec![
            ("key", "'c'"),
            ("says", "'s'"),
            ("left", "{figure='f', quantity='round_trip_ns', where={op='send'}}"),
            ("relation", "'<'"),
            ("right", "{where={op='write'}}"),
            ("source", "'p. 1'"),
        ];
        for change in changes {
            lines.retain(|line| line.0 != change.0);
            lines.push(*change);
        }
        let text: Vec<String> = lines.iter().map(|(k, v)| format!("{k} = {v}")).collect();
        parse(&format!("[[claim]]\n{}\n", text.join("\n")))
    }

    #[test]
    fn the_right_side_takes_over_what_it_does_not_name() {
        let file = claim(&[]).unwrap();
        let right = file.claims[0].right_operand();
        assert_eq!(right.quantity(), Some(Quantity::RoundTrip));
        assert_eq!(right.place["op"].as_str(), Some("write"));
        let left = ("left", "{figure='f', finding='pattern', number='base_ns'}");
        let of = |right| claim(&[left, ("right", right)]).unwrap().claims[0].right_operand();
        let right = of("{where={op='write'}}");
        assert_eq!(right.described(), "pattern: base_ns");
        // Another kind of number has its own name.
        assert_eq!(of("{quantity='round_trip_ns'}").described(), "median round trip");
        assert_eq!(of("{finding='knee'}").described(), "knee");
    }

    #[test]
    fn errors_name_file_key_and_what_is_allowed() {
        for (change, said) in [
            (("left", "{quantity='round_trip_ns'}"), "claim \"c\": left: it names no figure"),
            (("left", "{figure='g', quantity='round_trip_ns'}"), "there are f"),
            (("left", "{figure='f', quantity='rtt'}"), "no quantity \"rtt\"; there are one_way_ns"),
            (("left", "{figure='f', sweep='t', quantity='rate_per_s'}"), "it has s"),
            (("left", "{figure='f', finding='knee', stat='max'}"), "a finding has no `quantity`"),
            (("left", "{figure='f', quantity='rate_per_s', above=1, stat='max'}"), "no `stat`"),
            (("left", "{figure='f', quantity='rate_per_s', number='a_ns'}"), "of a `finding`"),
            (("relation", "'='"), "unknown variant `=`, expected one of `<`"),
            (("relation", "'x'"), "needs a factor"),
            (("relation", "'rises above'"), "needs a range"),
            (("right", "{published='n'}"), "no metric \"n\""),
            (("right", "{published='w'}"), "no number"),
            (("right", "{published='d'}"), "\"d\" is contested: such values are shown"),
            (("tolerance", "2"), "a share"),
            (("every", "'yes'"), "expected a boolean"),
            (("on", "['system']"), "belong together"),
            (("range", "{parameter='size_bytes', from=9, to=1}"), "is above"),
            (("colour", "1"), "unknown field `colour`"),
        ] {
            let found = claim(&[change]).expect_err(said);
            assert!(found.starts_with("a/claims.toml: ") && found.contains(said), "{found}");
        }
    }

    #[test]
    fn the_book_names_every_number_of_a_series() {
        let chapter = include_str!("../../../docs/book/src/studies.md");
        let (_, list) = chapter.split_once("`stat` chooses ").unwrap();
        let (list, _) = list.split_once(';').unwrap();
        for stat in [
            Stat::Median,
            Stat::Mean,
            Stat::Min,
            Stat::Max,
            Stat::P10,
            Stat::P90,
            Stat::P99,
            Stat::P999,
        ] {
            assert!(list.contains(&format!("`{}`", stat.name())), "{} in {list}", stat.name());
        }
    }
}
