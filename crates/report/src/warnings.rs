//! Reasons to doubt the numbers of a record, and what to do about them. Each is stated once for the
//! whole record, with the worst case, and not for each point.

use std::collections::BTreeSet;

use rdmalab_measure::Quantity;
use rdmalab_measure::group::gather;
use rdmalab_measure::outcome::IS_HIDDEN;
use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::stats::MIN_BEYOND;
use rdmalab_measure::text::{and_more, plural};
use rdmalab_record::Record;

use crate::model::{Group, Merged, Model, Row, TAIL, group_name};
use crate::value::{fmt_count, named, percentile};

/// A median is well known if its interval is at most this share of it.
const WIDE: f64 = 0.05;

/// From this correlation of successive samples on, intervals are wider by a fifth or more: the
/// variance of a mean grows by (1 + r) / (1 - r).
const DEPENDENT: f64 = 0.2;

/// Most names in one sentence; the others are only counted.
const NAMED: usize = 8;

/// Sentences about the record, the most important first.
#[must_use]
pub fn warnings(record: &Record) -> Vec<String> {
    let model = Model::of(record);
    let groups = model.groups();
    let mut found = record.damage.clone();
    found.extend(unfinished(record));
    found.extend(cut_short(record));
    found.extend(clock(record));
    found.extend(silent(&groups));
    found.extend(lost(&groups));
    found.extend(negative(&model, &groups));
    found.extend(wide(&model, &groups));
    found.extend(dependent(&model, &groups));
    found.extend(too_few(&groups));
    found.extend(reported(record));
    found
}

fn unfinished(record: &Record) -> Option<String> {
    let (missing, planned) = (record.unfinished_points(), record.header.planned_points);
    let are = if missing == 1 { "is" } else { "are" };
    (missing > 0).then(|| {
        format!("{missing} of {planned} planned points {are} missing: the run was ended early")
    })
}

/// One sentence for each reason, with the points that were cut short.
fn cut_short(record: &Record) -> Vec<String> {
    let mut reasons = Vec::new();
    for point in &record.points {
        if let Some(reason) = &point.cut_short {
            let mut whole = record.whole_points();
            let is_beside = whole.any(|other| other.parameters == point.parameters);
            gather(&mut reasons, (reason, is_beside), point.number.to_string());
        }
    }
    let sentence = |((reason, is_beside), numbers): &((&String, bool), Vec<String>)| {
        let n = numbers.len();
        let counts = match is_beside {
            true if n == 1 => "; it does not count beside whole runs of the same",
            true => "; they do not count beside whole runs of the same",
            false => "",
        };
        let (point, was) = (plural(n, "point", "points"), plural(n, "was", "were"));
        format!("{point} {} {was} cut short: {reason}{counts}", and_more(numbers, NAMED))
    };
    reasons.iter().map(sentence).collect()
}

fn clock(record: &Record) -> Option<String> {
    let clock = record.environment.get("clock");
    let reason = clock.and_then(|c| c.get("fallback_reason")).and_then(|r| r.as_str());
    reason.map(|reason| {
        format!("the kernel's clock took the times, which costs more and is not fenced: {reason}")
    })
}

/// A group that a warning is about: the number of its bad rows, and the worst of them.
struct Struck<'g> {
    group: &'g Group<'g>,
    rows: usize,
    worst: (f64, &'g Row<'g>, &'g Merged),
}

/// The groups with at least one bad row.
fn struck<'g>(groups: &'g [Group], badness: impl Fn(&Merged) -> Option<f64>) -> Vec<Struck<'g>> {
    let of = |group: &'g Group<'g>| {
        let bad = group.rows.iter().filter_map(|(row, m)| Some((badness(m)?, *row, m)));
        let worst = bad.clone().max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Struck { group, rows: bad.count(), worst })
    };
    groups.iter().filter_map(of).collect()
}

/// The group with the worst row.
fn worst<'a, 'g>(struck: &'a [Struck<'g>]) -> Option<&'a Struck<'g>> {
    struck.iter().max_by(|a, b| a.worst.0.total_cmp(&b.worst.0))
}

/// The names of groups, each quantity once: `round trip (all threads, thread 0 and thread 1)`.
fn names<'g>(groups: impl Iterator<Item = &'g Group<'g>>) -> String {
    let mut quantities = Vec::new();
    groups.for_each(|group| gather(&mut quantities, group.quantity, group.label.to_owned()));
    let name = |(quantity, labels): &(Quantity, Vec<String>)| match labels.as_slice() {
        [only] => group_name(*quantity, only),
        several => {
            let is_named = |label: &&String| !label.is_empty();
            let named: Vec<&String> = several.iter().filter(is_named).collect();
            let whole = if named.len() < several.len() { "as a whole, " } else { "" };
            format!("{} ({whole}{})", quantity.name(), and_more(&named, NAMED))
        }
    };
    quantities.iter().map(name).collect::<Vec<_>>().join("; ")
}

/// ` at 3 of 4 points`, ` at 5 of 8 series`; empty if there is only one.
fn share(struck: &[Struck]) -> String {
    let all: usize = struck.iter().map(|one| one.group.rows.len()).sum();
    let count: usize = struck.iter().map(|one| one.rows).sum();
    let what = if struck.len() > 1 { "series" } else { "points" };
    if all > 1 { format!(" at {count} of {all} {what}") } else { String::new() }
}

/// The place of the worst row, if there are several: ` of round trip, thread 1 at size 64 B`.
fn place_of(model: &Model, struck: &[Struck], worst: &Struck) -> String {
    let name = match struck {
        [_] => String::new(),
        _ => format!(" of {}", group_name(worst.group.quantity, worst.group.label)),
    };
    format!("{name}{}", at(model, worst.worst.1))
}

fn silent(groups: &[Group]) -> Option<String> {
    let is_silent = |g: &&Group| g.rows.iter().all(|(_, m)| m.n == 0);
    let silent: Vec<&Group> = groups.iter().filter(is_silent).collect();
    (!silent.is_empty()).then(|| format!("{}: no sample arrived", names(silent.iter().copied())))
}

/// Groups with the same losses share a sentence.
fn lost(groups: &[Group]) -> Vec<String> {
    let mut losses: Vec<((u64, u64), Vec<&Group>)> = Vec::new();
    for group in groups {
        let rows = group.rows.iter();
        let (n, lost) = rows.fold((0, 0), |(n, lost), (_, m)| (n + m.n, lost + m.lost));
        if n > 0 && lost > 0 {
            gather(&mut losses, (n, lost), group);
        }
    }
    let sentence = |((n, lost), groups): &((u64, u64), Vec<&Group>)| {
        let share = *lost as f64 / (n + lost) as f64 * 100.0;
        let messages = if *lost == 1 { "message was" } else { "messages were" };
        format!(
            "{}: {} {messages} lost ({share:.2} %); the numbers are of those that arrived",
            names(groups.iter().copied()),
            fmt_count(*lost)
        )
    };
    losses.iter().map(sentence).collect()
}

fn negative(model: &Model, groups: &[Group]) -> Option<String> {
    let struck = struck(groups, |m| (m.negative > 0).then_some(-m.min));
    let rows = struck.iter().flat_map(|one| &one.group.rows);
    let count: u64 = rows.map(|(_, m)| m.negative).sum();
    let samples = if count == 1 { "sample is" } else { "samples are" };
    worst(&struck).map(|found| {
        format!(
            "{}: {} {samples} below zero, down to {}{}: the clocks of the two ends disagree by at \
             least that; pin both ends to one socket, or trust the round trip only",
            names(struck.iter().map(|one| one.group)),
            fmt_count(count),
            fmt_ns(found.worst.2.min),
            place_of(model, &struck, found)
        )
    })
}

fn wide(model: &Model, groups: &[Group]) -> Option<String> {
    let struck = struck(groups, |m| m.relative_width().filter(|w| *w > WIDE));
    worst(&struck).map(|found| {
        format!(
            "{}: the median is imprecise{} (interval wider than {:.0} % of it; worst {:.0} %{}): \
             pin both ends, quiet the machine, or measure more",
            names(struck.iter().map(|one| one.group)),
            share(&struck),
            WIDE * 100.0,
            found.worst.0 * 100.0,
            place_of(model, &struck, found)
        )
    })
}

fn dependent(model: &Model, groups: &[Group]) -> Option<String> {
    // With independent samples, 19 of 20 series stay within 2 / sqrt(n); few samples show nothing.
    let chance = |m: &Merged| 2.0 / (m.least_n as f64).sqrt();
    let strength = |m: &Merged| m.lag1.map(f64::abs).filter(|r| *r > DEPENDENT.max(chance(m)));
    let struck = struck(groups, strength);
    worst(&struck).map(|found| {
        let merged = found.worst.2;
        format!(
            "{}: successive samples depend on each other{} (rank correlation up to {:.2}{}{}), \
             so intervals are wider; what changes more slowly than a run shows only between \
             repeated runs",
            names(struck.iter().map(|one| one.group)),
            share(&struck),
            merged.lag1.unwrap_or(0.0),
            place_of(model, &struck, found),
            merged.effective_n.map_or(String::new(), |n| format!(
                "; its {} samples say as much as {} independent ones, {} % of their number",
                fmt_count(merged.n),
                fmt_count((n.round() as u64).max(1)),
                percent(n / merged.n as f64)
            ))
        )
    })
}

/// A share in percent, which is never rounded to 0.
fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent < 1.0 => "less than 1".to_owned(),
        percent => format!("{percent:.0}"),
    }
}

fn too_few(groups: &[Group]) -> Option<String> {
    let lacking = |q: f64| {
        let rows = groups.iter().flat_map(|g| &g.rows);
        let without = rows.filter(|(_, m)| m.n > 0 && m.quantile(q).is_none());
        without.map(|(_, m)| m.least_n).min()
    };
    let (q, n) = [0.5].into_iter().chain(TAIL).find_map(|q| Some((q, lacking(q)?)))?;
    let needed = (MIN_BEYOND / (1.0 - q).min(q)).round() as u64;
    Some(format!(
        "too few samples for {} and beyond: it needs {} in a series, the shortest has {}; measure \
         more",
        if q == 0.5 { "the median".to_owned() } else { percentile(q) },
        fmt_count(needed),
        fmt_count(n)
    ))
}

/// The warnings of the experiment. Warnings that differ only in numbers, or in the label that they
/// are about, are given once.
fn reported(record: &Record) -> Vec<String> {
    let mut kinds = Vec::new();
    for point in &record.points {
        for warning in &point.warnings {
            let (label, text) = warning.split_once(IS_HIDDEN).unwrap_or(("", warning));
            gather(&mut kinds, numberless(text), Said { at: point.number, label, text });
        }
    }
    kinds.iter().map(|(_, all)| together(all)).collect()
}

/// A warning of a point.
struct Said<'a> {
    at: u64,
    /// The label of the series that the warning says is not shown, if it says so.
    label: &'a str,
    text: &'a str,
}

/// Merges warnings that differ only in numbers and labels.
fn together(all: &[Said]) -> String {
    let first = all[0].text;
    let points: BTreeSet<u64> = all.iter().map(|said| said.at).collect();
    let often = match (points.len(), all.iter().all(|said| said.text == first)) {
        (1, true) => String::new(),
        (1, false) => " (so or with other numbers)".to_owned(),
        (n, true) => format!(" (at {n} points)"),
        (n, false) => format!(" (so or with other numbers at {n} points)"),
    };
    let mut labels: Vec<&str> = all.iter().map(|said| said.label).collect();
    labels.sort_unstable();
    labels.dedup();
    match labels.as_slice() {
        [""] => format!("{first}{often}"),
        [one] => format!("{one}{IS_HIDDEN}{first}{often}"),
        several => {
            let are = IS_HIDDEN.replacen(" is ", " are ", 1);
            format!("{}{are}{first}{often}", and_more(several, NAMED))
        }
    }
}

/// Units that may follow a number without a blank.
const UNITS: [&str; 9] = ["", "ns", "us", "ms", "s", "B", "K", "M", "x"];

/// A text without its numbers: `5.20 us` and `813 ns` become equal. Names and addresses that begin
/// with digits are no numbers: `2slow`, `192.0.2.7`.
fn numberless(text: &str) -> String {
    let is_unit = |word: &str| ["ns", "us", "ms", "s"].contains(&word.trim_end_matches([',', ':']));
    let mut kept = Vec::new();
    let mut is_after_number = false;
    for word in text.split(' ') {
        let is_dropped = is_number(word) || is_after_number && is_unit(word);
        is_after_number = is_number(word);
        if !is_dropped {
            kept.push(word);
        }
    }
    kept.join(" ")
}

/// Whether the word is a number, with or without a unit, and with any punctuation around it.
fn is_number(word: &str) -> bool {
    let bare = word.trim_start_matches(['(', '-']).trim_end_matches([')', ',', ':', ';', '.', '%']);
    let digits = bare.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(bare.len());
    let (value, unit) = bare.split_at(digits);
    let is_value = |text: &str| text.parse::<f64>().is_ok();
    is_value(value) && (UNITS.contains(&unit) || is_value(bare))
}

/// The row by the parameters that vary: `size 64 B, op send`; empty if none does.
pub fn place(model: &Model, row: &Row) -> String {
    let each =
        model.varying.iter().filter_map(|name| Some(named(name, row.parameters.get(*name)?)));
    each.collect::<Vec<_>>().join(", ")
}

/// ` at size 64 B`; empty if there is only one row.
fn at(model: &Model, row: &Row) -> String {
    match place(model, row) {
        only if only.is_empty() => only,
        place => format!(" at {place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_left_out_and_names_that_begin_with_digits_are_not() {
        for (one, other) in [
            ("waited 3 times", "waited 1 024 times"),
            (
                "its median, 5.20 us (at 4K, 20us late), is",
                "its median, 813 ns (at 64, 1ms late), is",
            ),
            ("by 2e-87; or 12%.", "by 0.5; or 99.9%."),
        ] {
            assert_eq!(numberless(one), numberless(other));
        }
        for (one, other) in [
            ("under the profile 2slow (", "under the profile 4slow ("),
            ("under the profile 4k-line:", "under the profile 8k-line:"),
            ("no answer of 192.0.2.7", "no answer of 192.0.2.8"),
            ("1:n took", "2:n took"),
        ] {
            assert_ne!(numberless(one), numberless(other));
        }
    }

    #[test]
    fn a_small_share_is_not_called_none() {
        assert_eq!(
            [0.000_4, 0.009_9, 0.01, 0.484].map(percent),
            ["less than 1", "less than 1", "1", "48"]
        );
    }
}
