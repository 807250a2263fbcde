//! Bar charts, for records in which no varying parameter is a number to draw lines over.

use rdmalab_measure::Quantity;

use crate::chart::{Chart, Scope, family, samples, sentence, tick};
use crate::model::{Group, Model, Row, group_name};
use crate::published;
use crate::svg::{self, Bar, Labels};
use crate::warnings::place;

/// Most bars in a chart.
const MAX_BARS: usize = 16;

/// Longest name that is not shortened.
const MAX_NAME: usize = 48;

/// Bars of the medians.
pub fn median_ranking(model: &Model, group: &Group, id: &str, scope: &Scope) -> Vec<Chart> {
    let each = group.rows.iter().filter(|(_, m)| m.n > 0).map(|(row, m)| {
        let text = group.quantity.format(m.median);
        (
            *row,
            Bar { name: named(model, row, ""), class: 0, value: m.median, text, marks: Vec::new() },
        )
    });
    let title = format!("Median {}", group_name(group.quantity, group.label));
    let bars = with_theirs(each.collect(), group.quantity, group.label, scope, Some("median"));
    rank(id, title, bars, scope)
}

/// Bars of the share of samples above a value, over all runs of each row.
pub fn share_above(
    model: &Model,
    group: &Group,
    bound: u64,
    id: &str,
    scope: &Scope,
) -> Vec<Chart> {
    let each = group.rows.iter().filter_map(|(row, _)| {
        let runs = row.points.iter().filter_map(|p| p.series(group.quantity, group.label));
        let all: Vec<f64> = runs.filter_map(|one| samples(model.record, one)).flatten().collect();
        let above = all.iter().filter(|sample| **sample > bound as f64).count();
        let value = (!all.is_empty()).then(|| above as f64 / all.len() as f64)?;
        let text = tick(&format!("{:.3} %", value * 100.0));
        Some(Bar { name: named(model, row, ""), class: 0, value, text, marks: Vec::new() })
    });
    let name = sentence(&group_name(group.quantity, group.label));
    let title = format!("{name}: share above {}", group.quantity.format(bound as f64));
    rank(id, title, each.collect(), scope)
}

/// Bars of a figure, with a colour for each label.
pub fn figure_ranking(
    model: &Model,
    quantity: Quantity,
    labels: &[&str],
    id: &str,
    scope: &Scope,
) -> Vec<Chart> {
    let mut all: Vec<Bar> = Vec::new();
    for row in &model.rows {
        for (class, label) in labels.iter().enumerate() {
            let Some(value) = row.figure(quantity, label) else { continue };
            let (name, text) = (named(model, row, label), quantity.format(value));
            let bar = Bar { name, class, value, text, marks: Vec::new() };
            all.extend(with_theirs(vec![(row, bar)], quantity, label, scope, None));
        }
    }
    rank(id, sentence(quantity.name()), all, scope)
}

/// The name of a row's bar. If it is too long, words stand without the names of their parameters.
fn named(model: &Model, row: &Row, label: &str) -> String {
    let joined = |place: String| {
        let what = [place.as_str(), label];
        what.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let whole = joined(place(model, row));
    match whole.chars().count() {
        n if n > MAX_NAME => joined(family(model, "", row.parameters)),
        _ => whole,
    }
}

/// Bars with the published values beside them.
fn with_theirs(
    bars: Vec<(&Row, Bar)>,
    quantity: Quantity,
    label: &str,
    scope: &Scope,
    stat: Option<&str>,
) -> Vec<Bar> {
    let own = scope.published.iter().filter(|t| t.is_of(quantity, label));
    let own: Vec<_> = own.filter(|t| stat.is_none_or(|stat| t.stat() == stat)).collect();
    let marked = |(row, mut bar): (&Row, Bar)| {
        let here = own.iter().filter(|t| t.matches_row(row));
        bar.marks =
            here.map(|t| t.at((0.0, 0.0), None)).map(|at| published::mark(&at, None)).collect();
        bar
    };
    bars.into_iter().map(marked).collect()
}

fn rank(id: &str, title: String, mut bars: Vec<Bar>, scope: &Scope) -> Vec<Chart> {
    let all = bars.len();
    bars.truncate(scope.at_most(MAX_BARS));
    let values = bars.iter().flat_map(|b| b.marks.iter().map(|m| m.y).chain([b.value]));
    let end = values.fold(0.0, f64::max);
    if bars.is_empty() || end <= 0.0 {
        return Vec::new();
    }
    let count = bars.len().div_ceil(MAX_BARS);
    let one = |(i, part): (usize, &[Bar])| {
        let title = match count {
            1 if part.len() < all => format!("{title} (the first {MAX_BARS} of {all})"),
            1 => title.clone(),
            n => format!("{title} ({} of {n})", i + 1),
        };
        let said = |bar: &Bar| {
            let published = bar.marks.iter().map(|m| format!(" ({})", m.text));
            format!("{}: {}{}", bar.name, bar.text, published.collect::<String>())
        };
        let description = part.iter().map(said).collect::<Vec<_>>().join("; ");
        let id = if i == 0 { id.to_owned() } else { format!("{id}-{i}") };
        let labels = Labels { id, title: title.clone(), description };
        Chart::new(title, svg::ranking(&labels, end, part))
    };
    // Charts have about equally many bars.
    bars.chunks(bars.len().div_ceil(count)).enumerate().map(one).collect()
}
