//! Published values of a study, placed in our charts.

use rdmalab_measure::Quantity;
use rdmalab_study::{Published, Reliability, Stat, Study, SweepResult, Value};

use crate::model::{Model, Row, headline};
use crate::svg;

/// A published value that is a number, and our number that is shown beside it.
pub struct PublishedValue<'a> {
    published: &'a Published,
    value: &'a Value,
    /// The published number, in the unit of the quantity.
    number: f64,
    /// The label of our series or figure, if the quantity has several.
    label: String,
}

/// Where a published value lies in a chart.
#[derive(Clone, Debug)]
pub struct PlacedValue {
    /// The name of the line that it belongs to.
    pub line: Option<String>,
    /// The x position: a place, or a range.
    pub ends: (f64, f64),
    /// The y position.
    pub value: f64,
    /// The statistic of the series that the value is.
    pub stat: &'static str,
    /// How far it can be trusted.
    pub kind: Reliability,
    /// Its name in a legend.
    pub name: String,
    /// The number as text, with the word "published".
    pub shown: String,
    /// The text of the tooltip.
    pub text: String,
}

impl<'a> PublishedValue<'a> {
    /// The published values of a sweep.
    pub fn of(study: &'a Study, part: &SweepResult, model: &Model) -> Vec<Self> {
        let one = |value: &'a Value| {
            let ours = &value.ours;
            let is_here = ours.figure.as_ref() == Some(&part.figure)
                && ours.sweep.as_ref().is_none_or(|name| *name == part.sweep);
            let published = study.published.iter().find(|p| p.metric == value.metric);
            let published = published.filter(|_| is_here)?;
            let number = published.in_base().filter(|number| number.is_finite())?;
            let label = match &ours.label {
                Some(label) => label.clone(),
                None => only_label(model, ours.quantity()?)?,
            };
            Some(Self { published, value, number, label })
        };
        study.values.iter().filter_map(one).collect()
    }

    /// Whether it belongs to this series or figure.
    pub fn is_of(&self, quantity: Quantity, label: &str) -> bool {
        self.value.ours.quantity() == Some(quantity) && self.label == label
    }

    /// The value and the share of the samples below that value, if it is about the samples of this
    /// series in this row.
    pub fn of_samples(&self, quantity: Quantity, label: &str, row: &Row) -> Option<(f64, f64)> {
        if !self.is_of(quantity, label) {
            return None;
        }
        match self.value.ours.above {
            Some(value) => {
                let is_here = self.value.is_share_of(row.parameters);
                is_here.then_some((value, 1.0 - self.number))
            }
            None => {
                let stat = self.value.ours.stat.unwrap_or(Stat::Median);
                stat.share().filter(|_| self.matches_row(row)).map(|share| (self.number, share))
            }
        }
    }

    /// The statistic of the series that the value is.
    pub fn stat(&self) -> &'static str {
        self.value.ours.stat.unwrap_or(Stat::Median).name()
    }

    /// Whether it belongs to this row.
    pub fn matches_row(&self, row: &Row) -> bool {
        self.value.matches_point(row.parameters)
    }

    /// The value, placed at these ends of the x axis.
    pub fn at(&self, ends: (f64, f64), line: Option<String>) -> PlacedValue {
        let Published { value, unit, kind, place, what, .. } = self.published;
        PlacedValue {
            line,
            ends,
            value: self.number,
            stat: self.stat(),
            kind: *kind,
            name: format!("published ({}, {place})", kind.name()),
            shown: match self.value.ours.quantity() {
                Some(quantity) => format!("published {}", quantity.format(self.number)),
                None => format!("published {value} {unit}"),
            },
            text: format!("published: {what}: {value} {unit} ({}, {place})", kind.name()),
        }
    }

    /// The places of the value along `x`, one for each line with a row that it belongs to.
    pub fn along<'r, 'm: 'r>(
        &self,
        x: &str,
        rows: impl Iterator<Item = &'r Row<'m>>,
        name: impl Fn(&Row) -> String,
    ) -> Vec<PlacedValue> {
        let mut lines: Vec<(String, (f64, f64))> = Vec::new();
        for row in rows.filter(|row| self.matches_row(row)) {
            let at = row.parameters.get(x).and_then(serde_json::Value::as_f64);
            let (Some(at), name) = (at, name(row)) else { continue };
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, ends)) => *ends = (ends.0.min(at), ends.1.max(at)),
                None => lines.push((name, (at, at))),
            }
        }
        lines.into_iter().map(|(name, ends)| self.at(ends, Some(name))).collect()
    }
}

/// The label to use if the study names none: that of the first series, or of the headline figure.
fn only_label(model: &Model, quantity: Quantity) -> Option<String> {
    let points = || model.record.points.iter();
    let series = points().flat_map(|p| &p.series).find(|s| s.quantity == quantity);
    let figures = points().flat_map(|p| &p.figures).filter(|f| f.quantity == quantity);
    let label = series.map(|s| s.label.as_str());
    label.or_else(|| headline(figures.map(|f| f.label.as_str()))).map(str::to_owned)
}

impl PlacedValue {
    /// Whether it belongs to one of these lines, or to no line.
    pub fn is_of_one(&self, names: &[&str]) -> bool {
        self.line.as_deref().is_none_or(|line| names.contains(&line))
    }
}

/// The marks of values that belong to lines of these names. A value of several lines is drawn once.
pub fn marks(all: &[&PlacedValue], names: &[&str]) -> Vec<svg::PublishedMark> {
    let mut drawn: Vec<svg::PublishedMark> = Vec::new();
    for at in all {
        let line = names.iter().position(|name| at.line.as_deref() == Some(*name));
        let one = mark(at, line);
        match drawn.iter_mut().find(|other| (&other.text, other.ends) == (&one.text, one.ends)) {
            Some(known) => known.line = None,
            None => drawn.push(one),
        }
    }
    drawn
}

/// The mark of a value, in the colour of a line.
pub fn mark(at: &PlacedValue, line: Option<usize>) -> svg::PublishedMark {
    let PlacedValue { ends, value, kind, name, shown, text, .. } = at.clone();
    svg::PublishedMark { line, ends, y: value, kind, name, shown, text, is_upright: false }
}

/// The mark of a value in a chart whose x axis has the values: at the value, or at `place` if the
/// study published a share of samples.
pub fn upright(
    at: &PlacedValue,
    line: Option<usize>,
    place: Option<(f64, f64)>,
) -> svg::PublishedMark {
    let (x, y) = place.unwrap_or((at.value, 0.0));
    let shown = at.shown.replacen("published", &format!("published {}", at.stat), 1);
    let PlacedValue { ends: _, kind, name, text, .. } = at.clone();
    svg::PublishedMark { line, ends: (x, x), y, kind, name, shown, text, is_upright: true }
}

/// The values in words, for readers who cannot see the chart.
pub fn described(all: &[&PlacedValue]) -> String {
    beside_sentence(&all.iter().map(|at| at.text.as_str()).collect::<Vec<_>>())
}

/// Texts that belong beside a chart, as a sentence.
pub fn beside_sentence(texts: &[&str]) -> String {
    if texts.is_empty() { String::new() } else { format!(" Beside: {}.", texts.join("; ")) }
}
