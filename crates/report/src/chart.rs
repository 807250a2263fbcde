//! What all charts share: how much is drawn, and how names and values are written in them.

use rdmalab_measure::unit;
use rdmalab_record::{Object, Record, SeriesSummary};
use serde_json::Value;

use crate::model::Model;
use crate::published::PublishedValue;
use crate::value::named;

/// Lines in one chart: beyond, neither colours nor names can be told apart.
pub const MAX_LINES: usize = 6;

/// Rows from which on not even a page that draws all has a chart for each.
const MANY: usize = 6;

/// Fewer samples have no shape to show.
pub const MIN_SAMPLES: usize = 30;

/// From this ratio on an axis is logarithmic.
pub const WIDE_RATIO: f64 = 5.0;

/// A chart with its caption.
pub struct Chart {
    /// The caption.
    pub caption: String,
    /// The picture.
    pub svg: String,
    /// Whether it is seen at once; details are folded.
    pub is_main: bool,
}

impl Chart {
    /// A chart that is seen at once.
    pub fn new(caption: String, svg: String) -> Self {
        Self { caption, svg, is_main: true }
    }

    /// The same chart, folded below the main ones.
    pub fn aside(self) -> Self {
        Self { is_main: false, ..self }
    }
}

/// How much is drawn, and which published values beside it.
#[derive(Clone, Copy, Default)]
pub struct Scope<'a> {
    /// Whether every series has its place in a chart; else as many as a glance takes, and the
    /// table has the rest.
    pub is_whole: bool,
    /// Whether only what compares is drawn, and nothing of one line alone.
    pub is_brief: bool,
    /// Whether bars go from the 10 % to the 90 % quantile instead of being intervals of the median.
    pub has_deciles: bool,
    /// Published values.
    pub published: &'a [PublishedValue<'a>],
}

impl Scope<'_> {
    /// A bound that only a glance has.
    pub fn at_most(&self, few: usize) -> usize {
        if self.is_whole { usize::MAX } else { few }
    }

    /// How many of `n` rows have a chart each: all of them where everything is drawn and they are
    /// not many.
    pub fn of_rows(&self, n: usize, few: usize) -> usize {
        if self.is_whole && n <= MANY { n } else { few }
    }
}

/// What else varies, as a name.
pub fn family(model: &Model, x: &str, parameters: &Object) -> String {
    let others = model.varying.iter().filter(|name| **name != x && !follows(model, name));
    let name = others.filter_map(|name| Some(word_of(name, parameters.get(*name)?)));
    name.collect::<Vec<_>>().join(" ")
}

/// A value in the name of a line: a word says what it is, a number needs its name.
pub fn word_of(name: &str, value: &Value) -> String {
    value.as_str().map_or_else(|| named(name, value), str::to_owned)
}

/// Whether a parameter equals an earlier one in each row, as with `--poll`: it is named once.
fn follows(model: &Model, name: &str) -> bool {
    let before = model.varying.iter().take_while(|other| **other != name);
    let is_same = |other: &&str| -> bool {
        model.rows.iter().all(|row| row.parameters.get(*other) == row.parameters.get(name))
    };
    before.into_iter().any(is_same)
}

/// `1 us` of `1.00 us`.
pub fn tick(text: &str) -> String {
    let (number, unit) = text.split_once(' ').map_or((text, None), |(n, u)| (n, Some(u)));
    let short = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    unit.map_or(short.to_owned(), |unit| format!("{short} {unit}"))
}

/// The first letter large.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |c| c.to_uppercase().chain(letters).collect())
}

/// The samples that count.
pub fn samples(record: &Record, series: &SeriesSummary) -> Option<Vec<f64>> {
    let samples = record.samples(series).ok()?;
    let warm_up = usize::try_from(series.summary.warm_up).unwrap_or(usize::MAX);
    Some(samples.into_iter().skip(warm_up).filter(|s| s.is_finite()).collect())
}

/// A value of a parameter, as ticks and marks say it.
pub fn x_text(name: &str, value: f64) -> String {
    match unit::of_name(name) {
        Some("per_s") if value == 0.0 => "0".to_owned(),
        Some(known @ ("bytes" | "ns" | "per_s")) => tick_of(value, known),
        _ if name == "size" => tick_of(value, "bytes"),
        _ => tick(&format!("{value:.2}")),
    }
}

/// A size stays as it is: a tick between two bytes is no size, and linear axes have round ones.
fn tick_of(value: f64, unit: &str) -> String {
    let text = unit::format(value, unit);
    if unit == "bytes" { text } else { tick(&text) }
}
