//! Two records, or two sets of records, side by side: points matched by their parameters, and for
//! each quantity the difference, its size and its certainty.

mod cautions;
mod comparison;
mod head;
mod json;
mod page;
mod pair;
mod text;

use std::cmp::Ordering;
use std::collections::HashMap;

use rdmalab_measure::Quantity;
use rdmalab_measure::stats::Verdict;
use rdmalab_measure::text::count_of;
use rdmalab_record::{Object, Record};
use serde_json::Value;

use crate::model::is_derived;
use crate::value::order;

pub use comparison::{CONFIDENCE, Comparison, Options, Side};
use comparison::{Pair, PointGroup, Row, cut_short, names};

impl Comparison {
    /// Compares two sides.
    ///
    /// # Errors
    /// The sides have nothing in common (the error lists what each has), or one has a record twice.
    pub fn of(a: Side, b: Side, options: &Options) -> Result<Self, String> {
        [a, b].iter().try_for_each(once_each)?;
        let sides = [cells(a.records), cells(b.records)];
        let varying = varying(&sides);
        let [left, right] = &sides;
        let key = |cell: &PointGroup| -> Vec<Option<String>> {
            varying.iter().map(|name| cell.parameters.get(*name).map(Value::to_string)).collect()
        };
        let partners: HashMap<_, &PointGroup> =
            right.iter().map(|cell| (key(cell), cell)).collect();
        let mut pairs = Vec::new();
        let mut alone = [0, right.len()];
        for cell in left {
            match partners.get(&key(cell)) {
                Some(other) => {
                    alone[1] -= 1;
                    pairs.extend(pairs_of(cell, other, &varying, options));
                }
                None => alone[0] += 1,
            }
        }
        if pairs.is_empty() {
            return Err(nothing_in_common(a, b, &sides, &varying, options));
        }
        arrange(&mut pairs, &varying);
        let count = pairs.len();
        let rows: Vec<Row> = pairs.iter().map(|pair| pair::row(pair, options, count)).collect();
        let differing = head::differing(&sides, &varying, [a.records, b.records]);
        let mut found = Self {
            options: options.clone(),
            names: [a.name.to_owned(), b.name.to_owned()],
            descriptions: [head::describe(a.records), head::describe(b.records)],
            differing,
            varying: varying.iter().map(|name| (*name).to_owned()).collect(),
            rows,
            alone,
            cautions: Vec::new(),
        };
        found.cautions = cautions::cautions(&found, a.records, b.records);
        Ok(found)
    }

    /// Number of pairs that were compared.
    #[must_use]
    pub fn compared(&self) -> usize {
        self.rows.len()
    }

    /// Number of pairs of which the second side is certainly worse by more than the threshold.
    #[must_use]
    pub fn regressions(&self) -> usize {
        self.rows.iter().filter(|row| row.is_regression).count()
    }

    /// The verdicts, in the order of the tables.
    pub fn verdicts(&self) -> impl Iterator<Item = Verdict> + '_ {
        self.rows.iter().map(|row| row.verdict)
    }

    /// For people; with `all`, the deciles are shown even if there are many points.
    #[must_use]
    pub fn text(&self, all: bool) -> String {
        text::text(self, all)
    }

    /// A page that needs only a browser.
    #[must_use]
    pub fn page(&self) -> String {
        page::page(self)
    }

    /// One JSON document, indented, with a line feed at the end.
    #[must_use]
    pub fn json(&self) -> String {
        json::json(self)
    }
}

/// Refuses a record that is given twice: without differences, all results would look certain.
fn once_each(side: &Side) -> Result<(), String> {
    let mut dirs: Vec<_> = side.records.iter().map(|record| &record.dir).collect();
    dirs.sort_unstable();
    match dirs.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(format!("{} is given twice: name each record once", pair[0].display())),
    }
}

/// Points of equal parameters. Runs that were cut short do not count: they did not end as planned.
fn cells(records: &[Record]) -> Vec<PointGroup<'_>> {
    let mut cells: Vec<PointGroup> = Vec::new();
    let mut places: HashMap<Vec<(&str, String)>, usize> = HashMap::new();
    for record in records {
        for point in record.whole_points() {
            let each = point.parameters.iter();
            let mut key: Vec<_> = each.map(|(k, v)| (k.as_str(), v.to_string())).collect();
            key.sort_unstable();
            let at = *places.entry(key).or_insert_with(|| {
                cells.push(PointGroup { parameters: &point.parameters, points: Vec::new() });
                cells.len() - 1
            });
            cells[at].points.push((record, point));
        }
    }
    cells
}

/// Names of parameters with several values within a side: points are matched by these. A parameter
/// that differs only between the sides is the subject of the comparison.
fn varying<'a>(sides: &[Vec<PointGroup<'a>>; 2]) -> Vec<&'a str> {
    let varies = |cells: &Vec<PointGroup>, name: &str| {
        let mut values = cells.iter().map(|cell| cell.parameters.get(name));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    names(sides).into_iter().filter(|name| sides.iter().any(|side| varies(side, name))).collect()
}

/// The pairs of what both points measured.
fn pairs_of<'a>(
    a: &'a PointGroup<'a>,
    b: &'a PointGroup<'a>,
    varying: &[&str],
    options: &Options,
) -> Vec<Pair<'a>> {
    let wanted = |quantity: Quantity, label: &str| {
        let name = format!("{} {label}", quantity.name());
        match &options.only {
            Some(only) => name.contains(only.as_str()),
            // To compare them, too, would count one change several times.
            None => !is_derived(label),
        }
    };
    let place: Object = varying
        .iter()
        .map(|name| ((*name).to_owned(), a.parameters.get(*name).cloned().unwrap_or(Value::Null)))
        .collect();
    let mut keys = keys(a);
    let others = self::keys(b);
    keys.retain(|key| others.contains(key) && wanted(key.0, key.1));
    let pair = |(quantity, label, is_figure)| Pair {
        place: place.clone(),
        quantity,
        label,
        is_figure,
        cells: [a, b],
    };
    keys.into_iter().map(pair).collect()
}

/// The measured numbers of a cell: quantity, label, and whether it is a single number.
fn keys<'a>(cell: &PointGroup<'a>) -> Vec<(Quantity, &'a str, bool)> {
    let mut keys = Vec::new();
    for (_, point) in &cell.points {
        let series = point.series.iter().filter(|s| !s.quantity.is_of_intervals());
        let series = series.map(|s| (s.quantity, s.label.as_str(), false));
        let figures = point.figures.iter().map(|f| (f.quantity, f.label.as_str(), true));
        for key in series.chain(figures) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    keys
}

/// Sorts pairs by the first appearance of their quantities, then by parameters.
fn arrange(pairs: &mut [Pair], varying: &[&str]) {
    let mut groups = Vec::new();
    for pair in pairs.iter() {
        let group = (pair.quantity, pair.label.to_owned(), pair.is_figure);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let group = |pair: &Pair| {
        groups
            .iter()
            .position(|g| (g.0, g.1.as_str(), g.2) == (pair.quantity, pair.label, pair.is_figure))
    };
    pairs.sort_by(|a, b| {
        let each = varying.iter().map(|name| order(a.place.get(*name), b.place.get(*name)));
        group(a).cmp(&group(b)).then(each.fold(Ordering::Equal, Ordering::then))
    });
}

fn nothing_in_common(
    a: Side,
    b: Side,
    sides: &[Vec<PointGroup>; 2],
    varying: &[&str],
    options: &Options,
) -> String {
    let has = |side: &Side, cells: &[PointGroup]| {
        let mut what: Vec<&str> = cells.iter().flat_map(keys).map(|key| key.0.name()).collect();
        what.sort_unstable();
        what.dedup();
        let points = side.records.iter().map(|r| r.points.len()).sum::<usize>();
        let cut = match cut_short(side.records) {
            0 => String::new(),
            n => format!(", {n} of them cut short"),
        };
        let points = match points {
            0 => return format!("{} has no points", side.name),
            n => count_of(n, "point"),
        };
        // If all runs were cut short, nothing is left to compare.
        let of = if what.is_empty() { String::new() } else { format!(" of {}", what.join(", ")) };
        format!("{} has {points}{cut}{of}", side.name)
    };
    let only = options.only.as_ref().map(|only| format!(" whose name contains {only:?}"));
    format!(
        "nothing to compare{}: {}; {}; points are matched by {}",
        only.unwrap_or_default(),
        has(&a, &sides[0]),
        has(&b, &sides[1]),
        if varying.is_empty() { "nothing".to_owned() } else { varying.join(", ") }
    )
}
