//! Lines over the values of a parameter: their axes, and the number of charts.

use rdmalab_measure::{Quantity, unit};

use crate::chart::{Chart, MAX_LINES, WIDE_RATIO, sentence, tick, x_text};
use crate::published::{self, PlacedValue};
use crate::svg::{self, Axis, Labels, Line, Rule};
use crate::value::heading;

/// The subject of a chart of lines, and the parameter along which it runs.
pub struct LineChart<'a> {
    /// The parameter along which they run.
    pub x: &'a str,
    /// The quantity of the y axis.
    pub quantity: Quantity,
    /// The meaning of a mark, in words.
    pub how: &'a str,
    /// Findings along `x`.
    pub rules: Vec<Rule>,
    /// Published values, each with the name of its line.
    pub published: Vec<PlacedValue>,
}

/// Charts of at most [`MAX_LINES`] lines each, about equally many in each, over the same axes.
pub fn several(id: &str, title: &str, over: &LineChart, lines: &[Line]) -> Vec<Chart> {
    let count = lines.len().div_ceil(MAX_LINES).max(1);
    let parts = lines.chunks(lines.len().div_ceil(count).max(1)).enumerate();
    let one = |(i, part): (usize, &[Line])| {
        let title = match count {
            1 => title.to_owned(),
            n => format!("{title} ({} of {n})", i + 1),
        };
        draw(&format!("{id}{i}"), title, over, part, lines)
    };
    parts.map(one).collect()
}

/// Lines over axes that hold the values of `all`.
pub(super) fn draw(
    id: &str,
    title: String,
    over: &LineChart,
    lines: &[Line],
    all: &[Line],
) -> Chart {
    let LineChart { x, quantity, how, rules, published } = over;
    let marks = || all.iter().flat_map(|l| &l.marks);
    let x_axis = x_axis(x, marks().map(|m| m.x).collect());
    let printed = || published.iter().map(|at| at.value);
    let high = marks().map(|m| m.interval.map_or(m.y, |i| i.1.max(m.y))).chain(printed());
    let low = marks().map(|m| m.interval.map_or(m.y, |i| i.0.min(m.y))).chain(printed());
    let y_axis = y_axis(*quantity, (ends(low).0, ends(high).1));
    let names: Vec<&str> = lines.iter().map(|l| l.name.as_str()).collect();
    let here: Vec<&PlacedValue> = published.iter().filter(|at| at.is_of_one(&names)).collect();
    let found: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    let found = match found.as_slice() {
        [] => String::new(),
        found => format!(" Found: {}.", found.join(", ")),
    };
    let description = format!(
        "{} over {}, {how}. Lines: {}.{found}{} The numbers are in the table below.",
        quantity.name(),
        heading(x),
        names.join(", "),
        published::described(&here)
    );
    let labels = Labels { id: id.to_owned(), title: title.clone(), description };
    let svg = svg::lines(&labels, &x_axis, &y_axis, lines, rules, &published::marks(&here, &names));
    Chart::new(title, svg)
}

/// The least and the largest.
pub(super) fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let start = (f64::INFINITY, f64::NEG_INFINITY);
    let (low, high) = values.fold(start, |(low, high), v| (low.min(v), high.max(v)));
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

fn x_axis(name: &str, values: Vec<f64>) -> Axis {
    let (low, high) = ends(values.iter().copied());
    let text = |v: f64| x_text(name, v);
    let label = sentence(&heading(name));
    let is_binary = |v: &f64| v.log2().fract() == 0.0;
    if low <= 0.0 || high < 8.0 * low {
        svg::linear_axis(&label, (low, high), 5, text)
    } else if unit::of_name(name) == Some("bytes") || values.iter().all(is_binary) {
        svg::binary_axis(&format!("{label} (log)"), (low, high), text)
    } else {
        svg::value_axis(&label, (low, high), text)
    }
}

fn y_axis(quantity: Quantity, (low, high): (f64, f64)) -> Axis {
    let text = |v: f64| if v == 0.0 { "0".to_owned() } else { tick(&quantity.format(v)) };
    let name = sentence(quantity.name());
    if quantity.suffix() != "share" && low > 0.0 && high > WIDE_RATIO * low {
        svg::log_axis(&format!("{name} (log)"), (low, high), text)
    } else {
        svg::linear_axis(&name, (low.min(0.0), high), 5, text)
    }
}
