//! Common parts of all charts: how much is drawn, and how names and values are written.

use rdmalab_measure::unit;
use rdmalab_record::{Object, Record, SeriesSummary};
use serde_json::Value;

use crate::model::Model;
use crate::published::PublishedValue;
use crate::value::named;

/// Most lines in one chart: of more, colours and names cannot be distinguished.
pub const MAX_LINES: usize = 6;

/// Up to this many rows, a complete page has a chart for each of them.
const MANY: usize = 6;

/// The least number of samples for a distribution.
pub const MIN_SAMPLES: usize = 30;

/// From this ratio of its ends on, an axis is logarithmic.
pub const WIDE_RATIO: f64 = 5.0;

/// A chart with its caption.
pub struct Chart {
    /// The caption.
    pub caption: String,
    /// The picture.
    pub svg: String,
    /// Whether it is visible at once; details are folded.
    pub is_main: bool,
}

impl Chart {
    /// A chart that is visible at once.
    pub fn new(caption: String, svg: String) -> Self {
        Self { caption, svg, is_main: true }
    }

    /// The same chart, folded below the main ones.
    pub fn aside(self) -> Self {
        Self { is_main: false, ..self }
    }
}

/// How much is drawn, and which published values are beside it.
#[derive(Clone, Copy, Default)]
pub struct Scope<'a> {
    /// Whether every series is drawn; otherwise a few are, and the table has the others.
    pub is_whole: bool,
    /// Whether only charts that compare are drawn, and none with a single line.
    pub is_brief: bool,
    /// Whether bars go from the 10 % to the 90 % quantile instead of showing the median's interval.
    pub has_deciles: bool,
    /// A value in the unit of the samples: the share of samples above it is drawn.
    pub above: Option<u64>,
    /// Published values.
    pub published: &'a [PublishedValue<'a>],
}

impl Scope<'_> {
    /// A limit that does not apply if everything is drawn.
    pub fn at_most(&self, few: usize) -> usize {
        if self.is_whole { usize::MAX } else { few }
    }

    /// How many of `n` rows have their own chart: all if everything is drawn and they are few.
    pub fn of_rows(&self, n: usize, few: usize) -> usize {
        if self.is_whole && n <= MANY { n } else { few }
    }
}

/// A name from the parameters that vary besides `x`.
pub fn family(model: &Model, x: &str, parameters: &Object) -> String {
    let others = model.varying.iter().filter(|name| **name != x && !follows(model, name));
    let name = others.filter_map(|name| Some(word_of(name, parameters.get(*name)?)));
    name.collect::<Vec<_>>().join(" ")
}

/// A value in the name of a line: a word explains itself, a number needs its parameter's name.
pub fn word_of(name: &str, value: &Value) -> String {
    value.as_str().map_or_else(|| named(name, value), str::to_owned)
}

/// Whether a parameter equals an earlier one in each row, as with `--poll`; then only one is named.
fn follows(model: &Model, name: &str) -> bool {
    let before = model.varying.iter().take_while(|other| **other != name);
    let is_same = |other: &&str| -> bool {
        model.rows.iter().all(|row| row.parameters.get(*other) == row.parameters.get(name))
    };
    before.into_iter().any(is_same)
}

/// The text without trailing zeros: `1 us` for `1.00 us`.
pub fn tick(text: &str) -> String {
    let (number, unit) = text.split_once(' ').map_or((text, None), |(n, u)| (n, Some(u)));
    let short = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    unit.map_or(short.to_owned(), |unit| format!("{short} {unit}"))
}

/// The text with its first letter in upper case.
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

/// A value of a parameter, as in ticks and marks.
pub fn x_text(name: &str, value: f64) -> String {
    match unit::of_name(name) {
        Some("per_s") if value == 0.0 => "0".to_owned(),
        Some(known @ ("bytes" | "ns" | "per_s")) => tick_of(value, known),
        _ if name == "size" => tick_of(value, "bytes"),
        _ => tick(&format!("{value:.2}")),
    }
}

/// Sizes are not shortened: they are whole bytes, and linear axes have round ticks.
fn tick_of(value: f64, unit: &str) -> String {
    let text = unit::format(value, unit);
    if unit == "bytes" { text } else { tick(&text) }
}
