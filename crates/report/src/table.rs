//! Tables for a terminal: plain characters and no colours, so that pipes and NO_COLOR need no
//! special treatment.

use std::fmt;

use rdmalab_measure::Quantity;
use rdmalab_measure::group::distinct_by_key;
use rdmalab_measure::text::first_few;
use rdmalab_record::{Record, Skipped};

use crate::delivery::delivery;
use crate::grid::Grid;
use crate::model::{Group, Merged, Model, PAGE, PEER, Row, TAIL, TENTH, device_line, group_name};
use crate::value::{fmt_count, heading, named, percentile, shown, unbreakable};
use crate::warnings::warnings;

/// Shown instead of a percentile that the samples do not support.
pub const TOO_SMALL: &str = "n too small";

/// Quantiles of the body, shown if a table of times has room for them.
const BODY: [f64; 1] = [TENTH];

/// The column of the effective number of samples. A table has it if a row's samples know less than
/// [`WORTH`] of what as many independent ones would.
const EFFECTIVE: &str = "effective n";
const WORTH: f64 = 0.5;

/// An interval of times whose ends differ by this factor, or that begins at 0, says nothing.
const MEANINGLESS: f64 = 100.0;

/// Most parameters in the head of a table: experiments name the most important ones first.
const MAX_CONSTANT: usize = 8;

/// Properties of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal.
    pub columns: usize,
    /// Whether block characters may be used.
    pub is_unicode: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { columns: 100, is_unicode: true }
    }
}

/// A record as text: what was measured, one table for each quantity, one for the figures, one for
/// messages that did not arrive once and in order, skipped points, and warnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    text: String,
}

impl Table {
    /// The tables of a record.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        let model = Model::of(record);
        let mut parts = vec![head(&model)];
        parts.extend(tables(&model));
        parts.extend(figures(&model));
        parts.extend(messages(&model));
        if !record.skipped.is_empty() {
            parts.push(skipped(&model));
        }
        parts.extend(found(&model));
        let warnings = warnings(record);
        if !warnings.is_empty() {
            parts.push(warnings.iter().map(|w| wrapped_sentence("warning: ", w)).collect());
        }
        Self { text: parts.join("\n") }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The findings over all points; only some of them if there are many.
fn found(model: &Model) -> Option<String> {
    const SHOWN: usize = 12;
    let all = model.findings;
    let mut text: String = all
        .iter()
        .take(SHOWN)
        .map(|finding| wrapped_sentence("found: ", &finding.sentence))
        .collect();
    if all.len() > SHOWN {
        text +=
            &wrapped_sentence("found: ", &format!("{} more: see --format json", all.len() - SHOWN));
    }
    (!all.is_empty()).then_some(text)
}

fn head(model: &Model) -> String {
    let record = model.record;
    let mut text = format!("{} on {}\n", record.header.experiment, device_line(record));
    let constant = model.constant.iter().take(MAX_CONSTANT);
    let mut constant: Vec<String> = constant.map(|(name, v)| named(name, v)).collect();
    let more = model.constant.len().saturating_sub(MAX_CONSTANT);
    if more > 0 {
        constant.push(format!("and {more} more in the record"));
    }
    if !constant.is_empty() {
        text += &wrapped("with ", &commas(constant));
    }
    let facts: Vec<String> = model
        .facts()
        .into_iter()
        .map(|name| format!("{} {}", heading(name), model.fact(name)))
        .collect();
    if !facts.is_empty() {
        text += &wrapped("got ", &commas(facts));
    }
    text
}

fn commas(mut items: Vec<String>) -> Vec<String> {
    let all_but_last = items.len().saturating_sub(1);
    items[..all_but_last].iter_mut().for_each(|item| item.push(','));
    items
}

/// The names of the parameters that vary.
pub fn parameter_heads(model: &Model) -> Vec<String> {
    model.varying.iter().map(|name| heading(name)).collect()
}

/// The values of a row's parameters that vary.
pub fn parameter_cells(model: &Model, row: &Row) -> Vec<String> {
    let value = |name: &&str| row.parameters.get(*name).map_or("-".into(), |v| shown(name, v));
    model.varying.iter().map(value).collect()
}

/// A sentence, wrapped into lines.
pub fn wrapped_sentence(start: &str, text: &str) -> String {
    let text = unbreakable(text);
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    wrapped(start, &words).replace('\u{a0}', " ")
}

/// Items, wrapped into lines that are aligned behind `start`. An item is broken only if it does not
/// fit in a line.
fn wrapped(start: &str, items: &[String]) -> String {
    const COLUMNS: usize = 98;
    let letters = |text: &str| text.chars().count();
    let of_item = |item: &String| -> Vec<String> {
        match letters(start) + letters(item) > COLUMNS {
            true => item.split(' ').map(str::to_owned).collect(),
            false => vec![item.clone()],
        }
    };
    let mut lines = vec![start.to_owned()];
    for item in items.iter().flat_map(of_item) {
        let line = lines.last_mut().expect("there is a first line");
        if line.len() > start.len() && letters(line) + letters(&item) > COLUMNS {
            lines.push(format!("{:1$}{item} ", "", start.len()));
        } else {
            *line += &format!("{item} ");
        }
    }
    lines.iter().map(|l| format!("{}\n", l.trim_end())).collect()
}

/// The columns of a table of times, after the parameters.
pub fn time_heads(group: &Group) -> Vec<String> {
    heads_of(group, Quantiles::default())
}

/// The quantiles of a table of times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantiles<'a> {
    /// Quantiles of the body, before those of the tail.
    pub body: &'a [f64],
    /// Leaves out the first unsupported quantile of the tail: a warning below says the same.
    pub supported_only: bool,
    /// Leaves out the place of the largest sample in its series: JSON, CSV and the page show it.
    pub is_placeless: bool,
}

impl<'a> Quantiles<'a> {
    /// All columns, with these quantiles of the body.
    pub const fn with(body: &'a [f64]) -> Self {
        Self { body, supported_only: false, is_placeless: false }
    }
}

/// The columns of [`time_heads`] for other quantiles.
pub fn heads_of(group: &Group, quantiles: Quantiles) -> Vec<String> {
    let any = |f: fn(&Merged) -> bool| group.rows.iter().any(|(_, m)| f(m));
    let mut heads = Vec::new();
    if any(|m| m.runs > 1) {
        heads.push("runs".to_owned());
    }
    heads.push("n".to_owned());
    if any(|m| m.worth.is_some_and(|share| share < WORTH)) {
        heads.push(EFFECTIVE.to_owned());
    }
    heads.extend(["min", "median", "95 % interval"].map(str::to_owned));
    if any(|m| m.run_spread.is_some()) {
        heads.push("between runs".to_owned());
    }
    heads.extend(quantiles.body.iter().map(|q| percentile(*q)));
    // Only the first unsupported quantile has a column: those beyond would repeat its note.
    let beyond = TAIL.iter().position(|q| group.rows.iter().all(|(_, m)| m.quantile(*q).is_none()));
    let shown = beyond.map_or(TAIL.len(), |first| first + usize::from(!quantiles.supported_only));
    heads.extend(TAIL[..shown].iter().map(|q| percentile(*q)));
    heads.push("max".to_owned());
    if !quantiles.is_placeless {
        heads.push("at sample".to_owned());
    }
    if any(|m| m.lost > 0) {
        heads.push("lost".to_owned());
    }
    heads
}

/// The cells below [`time_heads`].
pub fn time_cells(group: &Group, merged: &Merged) -> Vec<String> {
    cells_of(group, merged, Quantiles::default())
}

/// The cells below [`heads_of`].
pub fn cells_of(group: &Group, merged: &Merged, quantiles: Quantiles) -> Vec<String> {
    let heads = heads_of(group, quantiles);
    let format = |value| group.quantity.format(value);
    let cell = |head: &String| match head.as_str() {
        "runs" => merged.runs.to_string(),
        "n" => fmt_count(merged.n),
        EFFECTIVE => merged.effective_n.map_or("-".to_owned(), |n| fmt_count(n.round() as u64)),
        "lost" => fmt_count(merged.lost),
        _ if merged.n == 0 => "-".to_owned(),
        "min" => format(merged.min),
        "median" if !merged.is_supported => TOO_SMALL.to_owned(),
        "median" => format(merged.median),
        "95 % interval" => match merged.interval.filter(|_| merged.is_supported) {
            Some((low, high)) => interval(group.quantity, low, high),
            None => "-".to_owned(),
        },
        "between runs" => {
            merged.run_spread.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
        }
        "max" => format(merged.max),
        "at sample" => match (merged.max_index, merged.runs) {
            (None, _) => "-".to_owned(),
            (Some(i), 1) => fmt_count(i),
            (Some(i), _) => format!("{} (run {})", fmt_count(i), merged.max_run),
        },
        tail => {
            let q = quantiles.body.iter().copied().chain(TAIL).find(|q| percentile(*q) == tail);
            q.and_then(|q| merged.quantile(q)).map_or(TOO_SMALL.to_owned(), format)
        }
    };
    heads.iter().map(cell).collect()
}

/// `1.02 - 1.05 us`: the unit only once if both ends have the same. An interval that says nothing
/// about the size of a time is "unknown".
fn interval(quantity: Quantity, low: f64, high: f64) -> String {
    if quantity.unit() == "ns" && low >= 0.0 && low < high && high >= MEANINGLESS * low {
        return "unknown".to_owned();
    }
    let (low, high) = (quantity.format(low), quantity.format(high));
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((number, a)), Some((_, b))) if a == b => format!("{number} - {high}"),
        _ => format!("{low} - {high}"),
    }
}

/// A table for each quantity; several peers, or pages, share one.
fn tables(model: &Model) -> Vec<String> {
    let groups = model.groups();
    let is_one = |a: &Group, b: &Group| {
        let kinds = [PEER, PAGE];
        let is_it = |kind: &&str| a.label.starts_with(*kind) && b.label.starts_with(*kind);
        a.quantity == b.quantity && kinds.iter().any(is_it)
    };
    let runs = groups.chunk_by(is_one);
    runs.map(|run| match run {
        [group] => times(model, group),
        several => times_of_several(model, several),
    })
    .collect()
}

/// The times of the peers of a fan, or of pages, one below the other.
fn times_of_several(model: &Model, peers: &[Group]) -> String {
    let kind = if peers[0].label.starts_with(PEER) { PEER } else { PAGE };
    let quantity = peers[0].quantity;
    let mut lines_of = Vec::new();
    for (number, row) in model.rows.iter().enumerate() {
        for peer in peers {
            let is_it = |(of, _): &&(&Row, Merged)| std::ptr::eq(*of, row);
            if let Some((_, merged)) = peer.rows.iter().find(is_it) {
                lines_of.push((number, peer.label, merged.clone()));
            }
        }
    }
    let rows = lines_of.iter().map(|(i, _, merged)| (&model.rows[*i], merged.clone())).collect();
    let all = Group { quantity, label: "", rows };
    let text_columns = text_columns(model);
    let table = with_what_fits(&all, |quantiles| {
        let mut heads = parameter_heads(model);
        heads.push(kind.trim().to_owned());
        let keys = heads.len();
        heads.extend(heads_of(&all, quantiles));
        let mut table = Grid::new(heads, keys, text_columns);
        for ((_, label, _), (row, merged)) in lines_of.iter().zip(&all.rows) {
            let mut cells = parameter_cells(model, row);
            cells.push(label.trim_start_matches(kind).to_owned());
            cells.extend(cells_of(&all, merged, quantiles));
            table.push(cells);
        }
        table
    });
    format!("{} of each {}\n{table}", quantity.name(), kind.trim())
}

fn times(model: &Model, group: &Group) -> String {
    let text_columns = text_columns(model);
    let table = with_what_fits(group, |quantiles| {
        let mut heads = parameter_heads(model);
        let keys = heads.len();
        heads.extend(heads_of(group, quantiles));
        let mut table = Grid::new(heads, keys, text_columns);
        for (row, merged) in &group.rows {
            let mut cells = parameter_cells(model, row);
            cells.extend(cells_of(group, merged, quantiles));
            table.push(cells);
        }
        table
    });
    format!("{}\n{table}", group_name(group.quantity, group.label))
}

/// A table of times with quantiles of the body, if the samples have them and it fits. Otherwise
/// columns that can be spared are left out step by step; if that is not enough, the table has all
/// standard columns, in parts.
fn with_what_fits(group: &Group, table: impl Fn(Quantiles) -> Grid) -> String {
    let is_there = |q: &f64| group.rows.iter().any(|(_, merged)| merged.quantile(*q).is_some());
    let body: Vec<f64> = BODY.into_iter().filter(is_there).collect();
    let with = |body, supported_only, is_placeless| {
        table(Quantiles { body, supported_only, is_placeless })
    };
    let mut tries = [(&*body, false), (&*body, true), (&[], false), (&[], true)]
        .into_iter()
        .map(|(body, supported_only)| with(body, supported_only, false))
        .chain(std::iter::once_with(|| with(&[], true, true)));
    tries.find(Grid::fits).unwrap_or_else(|| table(Quantiles::default())).text()
}

/// The number of columns, from the left, that hold words.
fn text_columns(model: &Model) -> usize {
    let is_word = |name: &&&str| {
        model.rows.iter().any(|r| r.parameters.get(**name).is_some_and(|v| v.is_string()))
    };
    model.varying.iter().take_while(is_word).count()
}

/// The table of rates, bandwidths and shares: a column for each.
fn figures(model: &Model) -> Option<String> {
    let figures = model.figures();
    if figures.is_empty() {
        return None;
    }
    let mut heads = parameter_heads(model);
    let keys = heads.len();
    heads.extend(figures.iter().map(|(quantity, label)| group_name(*quantity, label)));
    let mut table = Grid::new(heads, keys, text_columns(model));
    for row in &model.rows {
        let mut cells = parameter_cells(model, row);
        cells.extend(figures.iter().map(|(quantity, label)| {
            row.figure(*quantity, label).map_or("-".to_owned(), |v| quantity.format(v))
        }));
        table.push(cells);
    }
    Some(table.text())
}

/// The columns and rows of the table of messages, with the parameters; `None` if all arrived once
/// and in order.
pub fn message_rows(model: &Model) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let (heads, cells) = delivery(model)?;
    let row = |(row, cells)| [parameter_cells(model, row), cells].concat();
    let rows = model.rows.iter().zip(cells).map(row).collect();
    Some(([parameter_heads(model), heads].concat(), rows))
}

/// What became of the messages.
fn messages(model: &Model) -> Option<String> {
    let (heads, rows) = message_rows(model)?;
    let mut table = Grid::new(heads, model.varying.len(), text_columns(model));
    rows.into_iter().for_each(|cells| table.push(cells));
    Some(format!("messages\n{}", table.text()))
}

/// One line for each reason, with the first few points that were skipped for it.
fn skipped(model: &Model) -> String {
    const NAMED: usize = 4;
    let of = |skipped: &'_ Skipped| (skipped.reason.clone(), model.skipped_place(skipped));
    let reasons = distinct_by_key(model.record.skipped.iter().map(of));
    let line = |(reason, places): &(String, Vec<String>)| {
        wrapped_sentence("skipped ", &format!("{}: {reason}", first_few(places, NAMED)))
    };
    reasons.iter().map(line).collect()
}
