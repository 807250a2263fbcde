//! A comparison for people.

use rdmalab_measure::Quantity;
use rdmalab_measure::stats::{Interval, LEAST_P, Verdict};

use super::comparison::{Comparison, Row, SideSummary};
use crate::grid::Grid;
use crate::model::group_name;
use crate::table::wrapped_sentence;
use crate::value::{fmt_count, heading, percentile, shown};

/// Up to this many rows, deciles are shown without an option.
const FEW: usize = 8;

pub fn text(comparison: &Comparison, all: bool) -> String {
    let mut parts = vec![head(comparison)];
    let groups = comparison.rows.chunk_by(|x, y| group(x) == group(y));
    parts.extend(groups.clone().map(|rows| table(comparison, rows)));
    if all || comparison.rows.len() <= FEW {
        parts.extend(groups.filter_map(|rows| deciles(comparison, rows)));
    }
    let cautions = &comparison.cautions;
    if !cautions.is_empty() {
        parts.push(cautions.iter().map(|c| wrapped_sentence("warning: ", c)).collect());
    }
    parts.push(summary(comparison));
    parts.join("\n")
}

pub fn group(row: &Row) -> (Quantity, &str, bool) {
    (row.quantity, &row.label, row.a.units.is_some())
}

fn head(comparison: &Comparison) -> String {
    let mut text = String::new();
    for (letter, i) in [("A  ", 0), ("B  ", 1)] {
        let side = format!("{}: {}", comparison.names[i], comparison.descriptions[i]);
        text += &wrapped_sentence(letter, &side);
    }
    let differing: Vec<String> =
        comparison.differing.iter().map(|(name, a, b)| format!("{name} {a} | {b}")).collect();
    if !differing.is_empty() {
        text += &wrapped_sentence("A | B differ in ", &differing.join(", "));
    }
    text
}

/// `median` or `p99`.
pub fn at(q: f64) -> String {
    if q == 0.5 { "median".to_owned() } else { percentile(q) }
}

pub fn places(comparison: &Comparison, row: &Row) -> Vec<String> {
    let names = comparison.varying.iter();
    names.map(|name| row.place.get(name).map_or("-".into(), |v| shown(name, v))).collect()
}

fn grid_of(comparison: &Comparison, heads: &[&str]) -> Grid {
    let mut all: Vec<String> = comparison.varying.iter().map(|name| heading(name)).collect();
    let is_word = |name: &&String| {
        comparison.rows.iter().any(|r| r.place.get(name.as_str()).is_some_and(|v| v.is_string()))
    };
    let words = comparison.varying.iter().take_while(is_word).count();
    let keys = all.len();
    all.extend(heads.iter().map(|head| (*head).to_owned()));
    Grid::new(all, keys, words)
}

/// Whether an interval of ratios says something: its ends differ by less than a factor of 100.
pub fn is_meaningful(interval: &Interval) -> bool {
    interval.high / interval.low < 100.0
}

/// Columns that are left out if a table is too wide, in this order: JSON and the page have all.
const SPARED: [&str; 3] = ["worth", "n", "delta"];

/// The columns of a table; a table of figures has fewer.
fn heads_of(is_figure: bool) -> Vec<&'static str> {
    let mut heads =
        vec!["runs", "n", "worth", "A", "B", "change", "interval", "delta", "p", "verdict"];
    heads.retain(|head| !is_figure || !SPARED.contains(head));
    heads
}

fn table(comparison: &Comparison, rows: &[Row]) -> String {
    let first = &rows[0];
    let is_figure = first.a.units.is_none();
    let with = |heads: &[&str]| {
        let mut grid = grid_of(comparison, heads);
        for row in rows {
            let cells = heads.iter().map(|head| cell(comparison, row, head));
            grid.push(places(comparison, row).into_iter().chain(cells).collect());
        }
        grid
    };
    let without = |spared: usize| {
        let mut heads = heads_of(is_figure);
        heads.retain(|head| !SPARED[..spared].contains(head));
        with(&heads)
    };
    let grid = (0..=SPARED.len()).map(without).find(Grid::fits).unwrap_or_else(|| without(0));
    let mean =
        if rows.iter().any(|row| row.is_of_means) { "geometric mean over runs of " } else { "" };
    let what =
        if is_figure { String::new() } else { format!("{} of ", at(comparison.options.quantile)) };
    let name = group_name(first.quantity, &first.label);
    let count = match comparison.rows.len() {
        1 => "with its 95 % interval".to_owned(),
        n => format!("with 95 % intervals for all {n} comparisons together"),
    };
    format!("{mean}{what}{name}, {count}\n{}", grid.text())
}

/// The cell of a row below a head.
fn cell(comparison: &Comparison, row: &Row, head: &str) -> String {
    let both = |f: &dyn Fn(&SideSummary) -> String| {
        let (a, b) = (f(&row.a), f(&row.b));
        if a == b { a } else { format!("{a} | {b}") }
    };
    let missing = || "-".to_owned();
    match head {
        "runs" => both(&|known| known.runs.to_string()),
        "n" => both(&|known| fmt_count(known.n as u64)),
        "worth" => {
            both(&|known| known.effective_n.map_or_else(missing, |n| fmt_count(n.round() as u64)))
        }
        "A" => row.quantity.format(row.a.value),
        "B" => row.quantity.format(row.b.value),
        "change" => row.ratio.map_or_else(missing, |ratio| change(ratio.value)),
        "interval" => interval(row),
        "delta" => row.dominance.map_or_else(missing, |d| format!("{:+.2}", d.delta.value)),
        "p" => row.p_value.map_or_else(missing, probability),
        _ => verdict(comparison, row),
    }
}

/// `+3.1 %`; a change beyond a factor of two as a factor.
pub fn change(ratio: f64) -> String {
    match ratio {
        r if !r.is_finite() => "-".to_owned(),
        r if (0.5..=2.0).contains(&r) => format!("{:+.1} %", (r - 1.0) * 100.0),
        r => factor(r),
    }
}

/// `x 2.15`; a very large or small factor as a power of ten: `x 3e9`.
fn factor(ratio: f64) -> String {
    if (0.01..1000.0).contains(&ratio) { format!("x {ratio:.2}") } else { format!("x {ratio:.0e}") }
}

/// Changes that belong together, all in the same form.
pub fn changes<const N: usize>(ratios: [f64; N]) -> [String; N] {
    let is_small = |ratio: &f64| !ratio.is_finite() || (0.5..=2.0).contains(ratio);
    if ratios.iter().all(is_small) {
        return ratios.map(change);
    }
    ratios.map(|ratio| if ratio.is_finite() { factor(ratio) } else { change(ratio) })
}

/// The interval of the change; "unknown" if it says nothing; in brackets if it comes from the
/// samples of one run only.
pub fn interval(row: &Row) -> String {
    let ends = |i: Interval| match is_meaningful(&i) {
        true => changes([i.low, i.high]).join(" .. "),
        false => "unknown".to_owned(),
    };
    match (row.ratio.and_then(|ratio| ratio.interval), row.within) {
        (Some(interval), _) => ends(interval),
        (None, Some(within)) => format!("({})", ends(within)),
        (None, None) => "-".to_owned(),
    }
}

pub fn probability(p: f64) -> String {
    match p {
        p if p <= LEAST_P * 1e3 => "< 1e-9".to_owned(),
        p if p < 0.001 => format!("{p:.0e}"),
        p => format!("{p:.3}"),
    }
}

pub fn verdict(comparison: &Comparison, row: &Row) -> String {
    let threshold = percent(comparison.options.threshold);
    match row.verdict {
        verdict if row.is_regression => format!("{} (beyond {threshold})", verdict.name()),
        verdict => verdict.name().to_owned(),
    }
}

pub fn percent(share: f64) -> String {
    let text = format!("{:.3}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The shift function: the parts of the distribution in which the sides differ.
fn deciles(comparison: &Comparison, rows: &[Row]) -> Option<String> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.deciles.len() == 9).collect();
    let first = rows.first()?;
    let mut grid =
        grid_of(comparison, &["p10", "p20", "p30", "p40", "p50", "p60", "p70", "p80", "p90"]);
    for row in &rows {
        let mut cells = places(comparison, row);
        cells.extend(row.deciles.iter().map(|shift| {
            // An interval within one run shows nothing about the next run.
            let is_sure = row.a.runs.min(row.b.runs) > 1
                && shift.interval.is_some_and(|interval| !interval.covers(0.0));
            let sign = if shift.value >= 0.0 { "+" } else { "" };
            let star = if is_sure { "*" } else { " " };
            format!("{sign}{}{star}", row.quantity.format(shift.value))
        }));
        grid.push(cells);
    }
    let name = group_name(first.quantity, &first.label);
    Some(format!(
        "shift of the deciles of {name}, B - A (* where the 95 % interval of that one leaves out \
         0)\n{}",
        grid.text()
    ))
}

/// The number of rows for each verdict that was reached.
pub fn counts(comparison: &Comparison) -> Vec<(usize, Verdict)> {
    let count = |verdict| comparison.verdicts().filter(|v| *v == verdict).count();
    let all = Verdict::ALL.map(|verdict| (count(verdict), verdict));
    all.into_iter().filter(|(n, _)| *n > 0).collect()
}

/// The last line, for scripts and people.
fn summary(comparison: &Comparison) -> String {
    let counts = counts(comparison);
    let counts: Vec<String> =
        counts.iter().map(|(n, verdict)| format!("{n} {}", verdict.name())).collect();
    format!(
        "{}; worse by more than {}: {}\n",
        counts.join(", "),
        percent(comparison.options.threshold),
        comparison.regressions()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_as_long_as_they_say_something() {
        for (ratio, text) in [
            (1.031, "+3.1 %"),
            (2.5, "x 2.50"),
            (0.25, "x 0.25"),
            (3.4e40, "x 3e40"),
            (2e-7, "x 2e-7"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(change(ratio), text);
        }
        assert_eq!(changes([1.0, 3e-9, 5e9]), ["x 1.00", "x 3e-9", "x 5e9"]);
    }
}
