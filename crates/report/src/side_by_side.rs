//! Sweeps of one figure side by side: equal rows of each, and ratios of the first to the others.

use maud::{Markup, html};
use rdmalab_measure::Quantity;
use rdmalab_record::Record;
use serde_json::Value;

use crate::chart::{Chart, sentence, word_of};
use crate::charts::{self, LineChart};
use crate::model::{Group, Merged, Model, Row, group_name};
use crate::page::{figures_of, table};
use crate::svg::Line;
use crate::table::TOO_SMALL;
use crate::value::{heading, order, shown};

/// A sweep as columns of the table.
struct SweepColumn<'m, 'a> {
    /// The name of the sweep.
    name: &'m str,
    model: &'m Model<'a>,
    /// The first quantity that the sweep measured.
    group: Group<'m>,
}

/// A table and charts of the named sweeps for their common rows; empty for a single sweep.
pub fn side_by_side(records: &[(&str, &Record)], id: &str) -> Markup {
    let models: Vec<(&str, Model)> = records.iter().map(|(n, r)| (*n, Model::of(r))).collect();
    let side = |(name, model)| -> Option<SweepColumn> {
        let group = Model::groups(model).into_iter().next()?;
        Some(SweepColumn { name, model, group })
    };
    let sides: Vec<SweepColumn> =
        models.iter().filter_map(|(name, model)| side((name, model))).collect();
    if sides.len() < 2 {
        return html! {};
    }
    let common = common(&sides);
    html! {
        h3 { "Side by side" }
        p.meaning { (meaning(&sides)) }
        (figures_of(&lines(&sides, &common, id)))
        (rows(&sides, &common))
    }
}

/// Describes the columns.
fn meaning(sides: &[SweepColumn]) -> String {
    let each = sides.iter().map(|side| {
        format!("{} is the {}", side.name, group_name(side.group.quantity, side.group.label))
    });
    let each = each.collect::<Vec<_>>().join(", ");
    format!(
        "{}. Least and median over all repetitions; a ratio is of medians, with the ends that \
         their intervals of 95 % allow.",
        sentence(&each)
    )
}

/// Parameters that all sweeps have and that differ between some of their rows.
fn common<'a>(sides: &[SweepColumn<'_, 'a>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in sides.iter().flat_map(|side| side.model.varying.iter().copied()) {
        let has = |row: &Row| row.parameters.contains_key(name);
        if !names.contains(&name) && sides.iter().all(|side| side.model.rows.iter().all(has)) {
            names.push(name);
        }
    }
    names
}

fn rows(sides: &[SweepColumn], common: &[&str]) -> Markup {
    let place = |row: &Row| -> Vec<Value> {
        common.iter().map(|name| row.parameters.get(*name).cloned().unwrap_or_default()).collect()
    };
    let mut places: Vec<Vec<Value>> = Vec::new();
    for (row, _) in sides.iter().flat_map(|side| &side.group.rows) {
        if !places.contains(&place(row)) {
            places.push(place(row));
        }
    }
    places.sort_by(|a, b| {
        let each = a.iter().zip(b).map(|(a, b)| order(Some(a), Some(b)));
        each.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    });
    let mut heads: Vec<String> = common.iter().map(|name| heading(name)).collect();
    for (i, side) in sides.iter().enumerate() {
        heads.extend([format!("{}: min", side.name), format!("{}: median", side.name)]);
        if i > 0 {
            heads.push(format!("{} / {}", sides[0].name, side.name));
        }
    }
    let line = |at: &Vec<Value>| {
        let found = |side: &SweepColumn| -> Option<(Quantity, Merged)> {
            let (_, merged) = side.group.rows.iter().find(|(row, _)| place(row) == *at)?;
            Some((side.group.quantity, merged.clone()))
        };
        let mut cells: Vec<String> = common.iter().zip(at).map(|(n, v)| shown(n, v)).collect();
        let first = found(&sides[0]);
        for (i, side) in sides.iter().enumerate() {
            let own = found(side);
            cells.extend(numbers(own.as_ref()));
            if i > 0 {
                cells.push(ratio(first.as_ref(), own.as_ref()));
            }
        }
        cells
    };
    table("Side by side", &heads, common.len(), places.iter().map(line))
}

fn numbers(found: Option<&(Quantity, Merged)>) -> [String; 2] {
    match found {
        None => ["-", "-"].map(str::to_owned),
        Some((_, m)) if m.n == 0 => ["-", "-"].map(str::to_owned),
        Some((quantity, m)) => {
            let median = if m.is_supported { quantity.format(m.median) } else { TOO_SMALL.into() };
            [quantity.format(m.min), median]
        }
    }
}

fn ratio(a: Option<&(Quantity, Merged)>, b: Option<&(Quantity, Merged)>) -> String {
    let Some(((_, a), (_, b))) = a.zip(b) else { return "-".to_owned() };
    if !a.is_supported || !b.is_supported || b.median <= 0.0 {
        return "-".to_owned();
    }
    let value = a.median / b.median;
    match a.interval.zip(b.interval) {
        Some((a, b)) if b.0 > 0.0 => {
            format!("{value:.2} ({:.2} - {:.2})", a.0 / b.1, a.1 / b.0)
        }
        _ => format!("{value:.2}"),
    }
}

/// A line for each sweep and each combination of the other common parameters.
fn lines(sides: &[SweepColumn], common: &[&str], id: &str) -> Vec<Chart> {
    let Some(x) = charts::along(sides[0].model, &["size"]) else { return Vec::new() };
    let mut lines: Vec<(String, Line)> = Vec::new();
    for side in sides {
        for (row, merged) in side.group.rows.iter().filter(|(_, m)| m.is_supported) {
            let Some(at) = row.parameters.get(x).and_then(Value::as_f64) else { continue };
            let others = common.iter().filter(|name| **name != x);
            let others = others.filter_map(|n| Some(word_of(n, row.parameters.get(*n)?)));
            let family = others.collect::<Vec<_>>().join(" ");
            let name = format!("{family} {}", side.name).trim().to_owned();
            let mark = charts::median_mark(side.group.quantity, x, at, merged);
            match lines.iter_mut().find(|(_, line)| line.name == name) {
                Some((_, line)) => line.marks.push(mark),
                None => lines.push((family, Line { name, marks: vec![mark] })),
            }
        }
    }
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    let each = lines.into_iter().map(|(_, mut line)| {
        line.marks.sort_by(|a, b| a.x.total_cmp(&b.x));
        line
    });
    let lines: Vec<Line> = each.collect();
    let quantity = sides[0].group.quantity;
    let title = format!("Median {} side by side over {}", quantity.name(), heading(x));
    let how = "medians with 95 % intervals";
    let over = LineChart { x, quantity, how, rules: Vec::new(), published: Vec::new() };
    if lines.is_empty() { Vec::new() } else { charts::several(id, &title, &over, &lines) }
}
