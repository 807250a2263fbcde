//! Reasons to doubt a comparison, as sentences.

use rdmalab_measure::group::distinct_by_key;
use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::stats::MIN_RUNS;
use rdmalab_measure::text::{count_of, first_few, plural};
use rdmalab_record::{Device, Record};

use super::comparison::{self, Comparison, Row, SideSummary};
use super::head::{OR, all};
use crate::delivery::lost;
use crate::model::group_name;
use crate::value::fmt_count;

/// Below this ratio of effective samples to samples, a side gets a caution.
const DEPENDENT: f64 = 0.25;

/// Most points that a sentence names.
const NAMED: usize = 3;

/// The reasons to doubt a comparison.
pub fn cautions(comparison: &Comparison, a: &[Record], b: &[Record]) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(same) = a.iter().find(|one| b.iter().any(|other| other.dir == one.dir)) {
        let dir = same.dir.display();
        found.push(format!("A and B both hold {dir}: it does not differ from itself"));
    }
    let of = |records: &[Record], what: &dyn Fn(&Device) -> String| {
        all(records.iter().map(|record| what(&record.header.device)))
    };
    let both = |what: &dyn Fn(&Device) -> String| {
        let (left, right) = (of(a, what), of(b, what));
        // A side with several values gets a caution, as two sides that differ.
        (left != right || left.contains(OR)).then_some((left, right))
    };
    if let Some((left, right)) = both(&|device| device.kind.to_string()) {
        found.push(format!(
            "A is a {left} device and B a {right} one: the difference is one of kinds, not of speed"
        ));
    }
    let profile = |device: &Device| device.profile.clone().unwrap_or_else(|| "none".to_owned());
    if let Some((left, right)) = both(&profile) {
        found.push(format!(
            "A is under the profile {left} and B under {right}: the difference is one of profiles, \
             not of speed"
        ));
    }
    for (record, letter) in a.iter().map(|r| (r, "A")).chain(b.iter().map(|r| (r, "B"))) {
        found.extend(record.damage.iter().map(|what| format!("{letter}: {what}")));
    }
    for (n, letter) in comparison.alone.iter().zip(["A", "B"]) {
        if *n > 0 {
            let (points, has) = (count_of(*n, "point"), plural(*n, "has", "have"));
            let is = plural(*n, "is", "are");
            found.push(format!("{points} of {letter} {has} no partner, and {is} left out"));
        }
    }
    for (records, letter) in [(a, "A"), (b, "B")] {
        match comparison::cut_short(records) {
            0 => {}
            1 => found.push(format!("a run of {letter} was cut short, and is left out")),
            n => found.push(format!("{n} runs of {letter} were cut short, and are left out")),
        }
    }
    found.extend(in_time(a, b));
    if comparison.rows.iter().any(|row| row.within.is_some()) {
        found.push(
            "intervals in brackets are of samples within one run: they do not cover differences \
             between runs, so no verdict follows from them"
                .to_owned(),
        );
    } else {
        found.extend(few(comparison));
    }
    found.extend(clocks(comparison));
    found.extend(obstacles(comparison));
    found.extend(dependence(comparison));
    found.extend(losses(a, "A"));
    found.extend(losses(b, "B"));
    found
}

/// How many messages of a side were lost.
fn losses(records: &[Record], letter: &str) -> Option<String> {
    let points = || records.iter().flat_map(Record::whole_points);
    let lost = points().map(lost).fold(0, u64::saturating_add);
    let n = usize::try_from(lost).unwrap_or(usize::MAX);
    let (messages, were) = (plural(n, "message", "messages"), plural(n, "was", "were"));
    (lost > 0).then(|| {
        format!(
            "{} {messages} of {letter} {were} lost: its numbers are of those that arrived",
            fmt_count(lost)
        )
    })
}

/// Whether one side as a whole was measured before the other: a change of the machine between them
/// would look like a difference between the sides.
fn in_time(a: &[Record], b: &[Record]) -> Option<String> {
    let span = |records: &'_ [Record]| -> Option<(String, String)> {
        let starts = || records.iter().flat_map(|r| &r.points).map(|point| &point.started_utc);
        Some((starts().min()?.clone(), starts().max()?.clone()))
    };
    let (of_a, of_b) = (span(a)?, span(b)?);
    let (first, second) = match (of_a.1 < of_b.0, of_b.1 < of_a.0) {
        (true, _) => ("A", "B"),
        (_, true) => ("B", "A"),
        _ => return None,
    };
    Some(format!(
        "measured one after the other, {first} before {second}: other changes meanwhile, such as \
         the machine's load, would look like a difference; to exclude this, measure in turns (A, \
         B, A, B ..., each record with its --condition) and compare all records"
    ))
}

/// Cautions about sides with few runs or records.
fn few(comparison: &Comparison) -> Vec<String> {
    let mut found = Vec::new();
    let rows = || comparison.rows.iter();
    let runs = rows().filter(|row| row.a.records.max(row.b.records) < 2);
    let runs = runs.map(|row| row.a.runs.min(row.b.runs)).min().unwrap_or(0);
    if (2..MIN_RUNS).contains(&runs) {
        found.push(format!(
            "{runs} runs of a side: with so few the intervals are wide; measure with --repeat \
             {MIN_RUNS} or more"
        ));
    }
    // One record beside several: the variation between records is known from the other side only.
    let several = |row: &Row| match (row.a.records, row.b.records) {
        (a, 0..2) => a,
        (0..2, b) => b,
        (a, b) => a.min(b),
    };
    let records = rows().map(several).filter(|records| *records > 1).min().unwrap_or(0);
    if (2..MIN_RUNS).contains(&records) {
        found.push(format!(
            "{records} records of a side, each of which counts as one number whatever its runs: \
             with so few the intervals are wide; measure more records, in turns"
        ));
    }
    if rows().any(|row| (row.a.records.min(row.b.records), several(row) > 1) == (1, true)) {
        found.push(
            "one side is a single record: its uncertainty is estimated from the differences \
             between the records of the other side"
                .to_owned(),
        );
    }
    found
}

/// How far times between two hosts may be off.
fn clocks(comparison: &Comparison) -> Option<String> {
    let largest = |of: fn(&Row) -> f64| comparison.rows.iter().map(of).fold(0.0, f64::max);
    let (a, b) = (largest(|row| row.a.clock_error_ns), largest(|row| row.b.clock_error_ns));
    (a + b > 0.0).then(|| {
        format!(
            "one-way times between two hosts contain the difference of their clocks, up to {} in \
             A and {} in B: the intervals are wider by both, more runs do not make them narrower, \
             and there is no delta",
            fmt_ns(a),
            fmt_ns(b)
        )
    })
}

/// The reasons why pairs could not be compared, each once.
fn obstacles(comparison: &Comparison) -> Vec<String> {
    let of = |row: &'_ Row| Some((row.obstacle.clone()?, group_name(row.quantity, &row.label)));
    let reasons = distinct_by_key(comparison.rows.iter().filter_map(of));
    let sentence =
        |(reason, names): &(String, Vec<String>)| format!("{}: {reason}", first_few(names, NAMED));
    reasons.iter().map(sentence).collect()
}

fn dependence(comparison: &Comparison) -> Option<String> {
    let sides = comparison.rows.iter().flat_map(|row| [&row.a, &row.b]);
    let share = |known: &SideSummary| Some(known.effective_n? / known.n as f64);
    let worst = sides.filter_map(|known| Some((share(known)?, known)));
    let (share, known) = worst.min_by(|x, y| x.0.total_cmp(&y.0))?;
    (share < DEPENDENT).then(|| {
        format!(
            "successive samples depend on each other: at the worst point {} of them are worth {} \
             independent ones; the intervals are made from {} and account for this",
            fmt_count(known.n as u64),
            fmt_count(known.effective_n.unwrap_or(0.0).round() as u64),
            if known.runs > 1 { "whole runs" } else { "blocks" }
        )
    })
}
