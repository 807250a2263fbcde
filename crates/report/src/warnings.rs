//! What makes the numbers of a record doubtful, and what to do about it. Said once for the whole
//! record, with the worst case, not once for each point.

use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::stats::MIN_BEYOND;
use rdmalab_record::Record;

use crate::model::{Group, Merged, Model, Row, TAIL, group_name};
use crate::value::{grouped, heading, percentile, shown};

/// A median is well known when its interval is not wider than this share of it.
const WIDE: f64 = 0.05;

/// From here on successive samples say so much about each other that intervals are too narrow by a
/// fifth or more: the variance of a mean grows by (1 + r) / (1 - r).
const DEPENDENT: f64 = 0.2;

/// Sentences about the record, the most important first.
#[must_use]
pub fn warnings(record: &Record) -> Vec<String> {
    let model = Model::of(record);
    let mut found = record.damage.clone();
    unfinished(record, &mut found);
    clock(record, &mut found);
    for group in model.groups() {
        lost(&group, &mut found);
        negative(&model, &group, &mut found);
        wide(&model, &group, &mut found);
        dependent(&model, &group, &mut found);
    }
    too_few(&model, &mut found);
    reported(record, &mut found);
    found
}

fn unfinished(record: &Record, found: &mut Vec<String>) {
    let missing = record.unfinished_points();
    if missing > 0 {
        found.push(format!(
            "{missing} of {} planned points are missing: the run was ended early",
            record.header.planned_points
        ));
    }
    for point in &record.points {
        if let Some(reason) = &point.cut_short {
            let mut whole = record.whole_points();
            let counts = match whole.any(|other| other.parameters == point.parameters) {
                true => "; it does not count beside whole runs of the same",
                false => "",
            };
            found.push(format!("point {} was cut short: {reason}{counts}", point.number));
        }
    }
}

fn clock(record: &Record, found: &mut Vec<String>) {
    let clock = record.environment.get("clock");
    let reason = clock.and_then(|c| c.get("fallback_reason")).and_then(|r| r.as_str());
    if let Some(reason) = reason {
        found.push(format!(
            "the kernel's clock took the times, which costs more and is not fenced: {reason}"
        ));
    }
}

fn lost(group: &Group, found: &mut Vec<String>) {
    let (n, lost) = group.rows.iter().fold((0, 0), |(n, lost), (_, m)| (n + m.n, lost + m.lost));
    let name = group_name(group.quantity, group.label);
    if n == 0 {
        found.push(format!("{name}: not one sample came back"));
    } else if lost > 0 {
        let share = lost as f64 / (n + lost) as f64 * 100.0;
        let messages = if lost == 1 { "message was" } else { "messages were" };
        found.push(format!(
            "{name}: {} {messages} lost ({share:.2} %); the numbers speak of those that arrived",
            grouped(lost)
        ));
    }
}

fn negative(model: &Model, group: &Group, found: &mut Vec<String>) {
    let count: u64 = group.rows.iter().map(|(_, m)| m.negative).sum();
    if count > 0 {
        let worst = worst(group, |m| (m.negative > 0).then_some(-m.min));
        found.push(format!(
            "{}: {} samples are below zero{}: the clocks of the two ends disagree by at least \
             that; pin both ends to one socket, or trust the round trip only",
            group_name(group.quantity, group.label),
            grouped(count),
            worst.map_or(String::new(), |(row, m)| format!(
                ", down to {}{}",
                fmt_ns(m.min),
                at(model, row)
            ))
        ));
    }
}

fn wide(model: &Model, group: &Group, found: &mut Vec<String>) {
    let is_wide = |m: &Merged| m.relative_width().filter(|w| *w > WIDE);
    let count = group.rows.iter().filter(|(_, m)| is_wide(m).is_some()).count();
    if let Some((row, m)) = worst(group, is_wide) {
        found.push(format!(
            "{}: the median is not known well at {count} of {} points (interval wider than {:.0} % \
             of it; worst {:.0} %{}): pin both ends, quiet the machine, or measure more",
            group_name(group.quantity, group.label),
            group.rows.len(),
            WIDE * 100.0,
            is_wide(m).unwrap_or(0.0) * 100.0,
            at(model, row)
        ));
    }
}

fn dependent(model: &Model, group: &Group, found: &mut Vec<String>) {
    // Independent samples stay within 2 / sqrt(n) in 19 of 20 series; few samples show anything.
    let chance = |m: &Merged| 2.0 / (m.least_n as f64).sqrt();
    let strength = |m: &Merged| m.lag1.map(f64::abs).filter(|r| *r > DEPENDENT.max(chance(m)));
    let count = group.rows.iter().filter(|(_, m)| strength(m).is_some()).count();
    if let Some((row, m)) = worst(group, strength) {
        found.push(format!(
            "{}: successive samples depend on each other at {count} of {} points (rank correlation \
             up to {:.2}{}{}), so intervals are too narrow: compare the medians of repeated runs",
            group_name(group.quantity, group.label),
            group.rows.len(),
            m.lag1.unwrap_or(0.0),
            at(model, row),
            m.worth.map_or(String::new(), |share| format!(
                "; its samples are worth {:.0} % of as many independent ones",
                share * 100.0
            ))
        ));
    }
}

fn too_few(model: &Model, found: &mut Vec<String>) {
    let groups = model.groups();
    let lacking = |q: f64| {
        let rows = groups.iter().flat_map(|g| &g.rows);
        let without = rows.filter(|(_, m)| m.n > 0 && m.quantile(q).is_none());
        without.map(|(_, m)| m.least_n).min()
    };
    let first = [0.5].into_iter().chain(TAIL).find_map(|q| Some((q, lacking(q)?)));
    if let Some((q, n)) = first {
        let needed = (MIN_BEYOND / (1.0 - q).min(q)).round() as u64;
        found.push(format!(
            "too few samples for {} and beyond: it needs {} in a series, the shortest has {}; \
             measure more",
            if q == 0.5 { "the median".to_owned() } else { percentile(q) },
            grouped(needed),
            grouped(n)
        ));
    }
}

/// What the experiment itself said, once each.
fn reported(record: &Record, found: &mut Vec<String>) {
    let mut seen: Vec<(&str, usize)> = Vec::new();
    for warning in record.points.iter().flat_map(|p| &p.warnings) {
        match seen.iter_mut().find(|(text, _)| *text == warning.as_str()) {
            Some((_, count)) => *count += 1,
            None => seen.push((warning, 1)),
        }
    }
    for (text, count) in seen {
        found.push(match count {
            1 => text.to_owned(),
            n => format!("{text} (at {n} points)"),
        });
    }
}

/// The row where `badness` is largest.
fn worst<'g>(
    group: &'g Group<'g>,
    badness: impl Fn(&Merged) -> Option<f64>,
) -> Option<(&'g Row<'g>, &'g Merged)> {
    let bad = group.rows.iter().filter_map(|(row, m)| Some((badness(m)?, *row, m)));
    bad.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, row, m)| (row, m))
}

/// Which point, by what varies: `size 64 B, op send`; empty where nothing does.
pub fn place(model: &Model, row: &Row) -> String {
    let each = model.varying.iter().filter_map(|name| {
        Some(format!("{} {}", heading(name), shown(name, row.parameters.get(*name)?)))
    });
    each.collect::<Vec<_>>().join(", ")
}

/// ` at size 64 B`; nothing where there is but one.
fn at(model: &Model, row: &Row) -> String {
    match place(model, row) {
        only if only.is_empty() => only,
        place => format!(" at {place}"),
    }
}
