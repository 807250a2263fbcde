//! Charts of operations that are done over time, page by page: of series `page 0`, `page 1` and so
//! on, whose samples are the times until the operations of the page were done.

use rdmalab_measure::stats;

use super::lines::ends;
use crate::chart::{Chart, MAX_LINES, Scope, samples, sentence, tick};
use crate::model::{Group, Model, PAGE, Row};
use crate::svg::{self, Labels, Line, Mark};
use crate::warnings::place;

/// Number of marks on a line: more would overlap.
const MARKS: usize = 32;

/// Most points of a record with charts, unless the page is complete.
const MAX_ROWS: usize = 3;

/// The charts of all pages at the first of their groups, and none at the others.
pub fn of_pages(model: &Model, group: &Group, id: &str, scope: &Scope) -> Vec<Chart> {
    let groups = model.groups();
    let mut labels = groups.iter().filter(|one| one.quantity == group.quantity);
    let first = labels.find(|one| one.label.starts_with(PAGE)).map(|one| one.label);
    if first != Some(group.label) {
        return Vec::new();
    }
    let rows = group.rows.iter().take(scope.of_rows(group.rows.len(), MAX_ROWS)).enumerate();
    rows.flat_map(|(i, (row, _))| of_row(model, group, row, &format!("{id}o{i}"))).collect()
}

fn of_row(model: &Model, group: &Group, row: &Row, id: &str) -> Vec<Chart> {
    let Some(point) = row.points.first() else { return Vec::new() };
    let trials = point.count("trials").unwrap_or(1).max(1) as f64;
    let is_page = |label: &str| label.starts_with(PAGE);
    let series = point.series.iter().filter(|s| s.quantity == group.quantity && is_page(&s.label));
    let line = |series| -> Option<Line> {
        let mut sorted = samples(model.record, series)?;
        stats::sort(&mut sorted);
        let each = sorted.len().div_ceil(MARKS).max(1);
        let picked = (0..sorted.len()).filter(|i| i % each == 0 || i + 1 == sorted.len());
        let mark = |i: usize| {
            let (done, at) = ((i + 1) as f64 / trials, sorted[i]);
            let text = format!("{} done at {}", number(done), group.quantity.format(at));
            Mark { x: at, y: done, interval: None, text }
        };
        Some(Line { name: series.label.clone(), marks: picked.map(mark).collect() })
    };
    let lines: Vec<Line> = series.filter_map(line).filter(|l| !l.marks.is_empty()).collect();
    let marks = || lines.iter().flat_map(|line| &line.marks);
    let most = ends(marks().map(|m| m.y)).1;
    let time = |ns: f64| tick(&group.quantity.format(ns));
    // Some wait for a time-out, a thousand times as long as others.
    let x = svg::value_axis("Time since the first post", ends(marks().map(|m| m.x)), time);
    let y = svg::linear_axis("Operations done", (0.0, most), 5, number);
    let place = match place(model, row) {
        nothing if nothing.is_empty() => nothing,
        place => format!(", at {place}"),
    };
    let parts = lines.chunks(MAX_LINES).enumerate();
    let chart = |(i, part): (usize, &[Line])| {
        let title = format!("Operations of each page that are done{place}");
        let names: Vec<&str> = part.iter().map(|line| line.name.as_str()).collect();
        let description = format!(
            "{title}, over the time since the first post, an average of the trials: {}.",
            names.join(", ")
        );
        let title = sentence(&title);
        let labels = Labels { id: format!("{id}{i}"), title: title.clone(), description };
        Chart::new(title, svg::lines(&labels, &x, &y, part, &[], &[]))
    };
    parts.map(chart).collect()
}

/// A number of operations: a part of one, where it is an average.
fn number(count: f64) -> String {
    tick(&format!("{count:.1}"))
}
