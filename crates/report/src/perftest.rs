//! perftest's text, for people and scripts that parse it: the same columns at the same places. The
//! numbers are computed as in other reports: the largest sample is shown (perftest leaves the two
//! largest out), and the standard deviation is not cut to whole microseconds.

use rdmalab_measure::group::by_key;
use rdmalab_measure::outcome::Figure;
use rdmalab_measure::{Quantity, stats};
use rdmalab_record::{Point, Record, SeriesSummary};

use crate::model::{Model, device_line, headline, is_derived};
use crate::value::named;

/// The line of dashes above and below a table.
const RULE: &str = "---------------------------------------------------------------------------\
                    ------------";

const LATENCY_HEAD: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    \
                            t_avg[usec]    t_stdev[usec]   99% percentile[usec]   \
                            99.9% percentile[usec] ";

const BANDWIDTH_HEAD: &str = " #bytes     #iterations    BW peak[MiB/sec]    \
                              BW average[MiB/sec]   MsgRate[Mpps]";

/// Parameters that contain the size of a message.
const SIZES: [&str; 2] = ["size_bytes", "size"];

/// Times that perftest's table may hold; the first one that was measured is used.
const TIMES: [Quantity; 5] = [
    Quantity::HalfRoundTrip,
    Quantity::RoundTrip,
    Quantity::OneWay,
    Quantity::CompletionTime,
    Quantity::OneWayFromCopy,
];

/// The text, and the notes on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Perftest {
    /// For standard output.
    pub text: String,
    /// For standard error: what the numbers describe, and how they differ from perftest's.
    pub notes: Vec<String>,
}

/// The record as perftest prints it: a latency table if there are samples of a time, and a
/// bandwidth table if there are rates.
#[must_use]
pub fn perftest(record: &Record) -> Perftest {
    let mut notes = vec![format!("device {}", device_line(record))];
    let families = families(record);
    if families.len() > 1 {
        let names: Vec<&str> = families.iter().map(|(name, _)| name.as_str()).collect();
        notes.push(format!("one table each, in this order: {}", names.join("; ")));
    }
    let mut text = String::new();
    for (_, points) in families {
        let latency: Vec<String> = points.iter().filter_map(|p| latency(p, &mut notes)).collect();
        let bandwidth: Vec<String> =
            points.iter().filter_map(|p| bandwidth(p, &mut notes)).collect();
        for (head, lines) in [(LATENCY_HEAD, latency), (BANDWIDTH_HEAD, bandwidth)] {
            if !lines.is_empty() {
                let lines = lines.join("\n");
                text += &format!("{RULE}\n{head}\n{lines}\n{RULE}\n");
            }
        }
    }
    if text.is_empty() {
        notes.push("perftest has no table for what was measured".to_owned());
    }
    Perftest { text, notes }
}

/// Points that differ only in their size, sorted by size: perftest's tables have no other column.
fn families(record: &Record) -> Vec<(String, Vec<&Point>)> {
    let model = Model::of(record);
    let others: Vec<&str> = model.varying.iter().filter(|n| !SIZES.contains(*n)).copied().collect();
    let mut families = by_key(model.rows.iter().flat_map(|row| {
        let each = others.iter().filter_map(|n| Some(named(n, row.parameters.get(*n)?)));
        let name = each.collect::<Vec<_>>().join(", ");
        row.points.iter().map(move |point| (name.clone(), *point))
    }));
    for (_, points) in &mut families {
        points.sort_by_key(|p| (bytes(p), p.repetition));
    }
    families
}

fn bytes(point: &Point) -> u64 {
    let size = SIZES.iter().find_map(|name| point.parameters.get(*name));
    size.and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// Whether both directions carry the operation, so that perftest halves the time.
fn is_halved(series: &SeriesSummary, point: &Point) -> bool {
    let op = ["op", "opcode"].iter().find_map(|name| point.parameters.get(*name)?.as_str());
    series.quantity == Quantity::RoundTrip && !op.is_some_and(is_passive)
}

/// Whether the target does nothing for an operation, so that only one direction carries it.
fn is_passive(op: &str) -> bool {
    op.contains("read") || ["fetch_add", "cmp_swap"].contains(&op)
}

fn latency(point: &Point, notes: &mut Vec<String>) -> Option<String> {
    let of = |q: &Quantity| point.series.iter().find(|s| s.quantity == *q);
    let series = TIMES.iter().find_map(of)?;
    let summary = &series.summary;
    if summary.n == 0 {
        return None;
    }
    let halved = is_halved(series, point);
    let name = if halved { Quantity::HalfRoundTrip } else { series.quantity };
    note(notes, format!("the times are: {name}; t_max is the largest of all samples"));
    for (q, name) in [(0.99, "99%"), (0.999, "99.9%")] {
        if !stats::supports_quantile(summary.n, q) {
            note(notes, format!("{} samples are too few for the {name} percentile", summary.n));
        }
    }
    let divisor = if halved { 2e3 } else { 1e3 };
    let us = |ns: f64| ns / divisor;
    let at = |q| summary.quantile(q).map_or(f64::NAN, |v| us(v.value));
    let iterations = summary.n + summary.lost;
    if summary.lost > 0 {
        note(notes, "lost messages are counted as iterations, and have no time".to_owned());
    }
    Some(format!(
        " {:<7} {iterations}          {:<7.2}        {:<7.2}      {:<7.2}  \t       {:<7.2}     \
         \t{:<7.2}\t\t{:<7.2} \t\t{:<7.2}",
        bytes(point),
        us(summary.min),
        us(summary.max),
        us(summary.median()),
        us(summary.mean),
        us(summary.stdev),
        at(0.99),
        at(0.999),
    ))
}

/// The headline figure of that quantity.
fn figure(point: &Point, quantity: Quantity) -> Option<f64> {
    let is_it = |f: &&Figure| f.quantity == quantity && !is_derived(&f.label);
    let of_it = point.figures.iter().filter(is_it);
    let label = headline(of_it.clone().map(|f| f.label.as_str()))?;
    of_it.filter(|f| f.label == label).map(|f| f.value).next()
}

fn bandwidth(point: &Point, notes: &mut Vec<String>) -> Option<String> {
    let rate = figure(point, Quantity::Rate);
    let bandwidth = figure(point, Quantity::Bandwidth);
    let size = bytes(point) as f64;
    let bandwidth = bandwidth.or_else(|| rate.map(|r| r * size))?;
    let rate = rate.unwrap_or(bandwidth / size);
    // No time stamp is taken per message, so there is no peak, as with perftest's -N.
    note(notes, "BW peak is not measured, and 0.00 as with perftest's -N".to_owned());
    let received = point.count("received").or_else(|| point.count("sent"));
    let asked = point.parameters.get("messages").and_then(serde_json::Value::as_u64);
    Some(format!(
        " {:<7}    {:<10}       {:<7.2}            {:<7.2}\t\t   {:<7.6}",
        bytes(point),
        received.or(asked).unwrap_or(0),
        0.0,
        bandwidth / f64::from(1 << 20),
        rate / 1e6,
    ))
}

fn note(notes: &mut Vec<String>, text: String) {
    if !notes.contains(&text) {
        notes.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::test_points;

    #[test]
    fn a_round_trip_has_no_bandwidth_table() {
        let mut point = test_points::point(&[("1 / RTT", 9e6)]);
        point.parameters.insert("size_bytes".to_owned(), 8.into());
        assert_eq!(bandwidth(&point, &mut Vec::new()), None);
    }

    #[test]
    fn what_a_passive_target_answers_is_not_halved() {
        assert!(["read", "write_read", "fetch_add", "cmp_swap"].into_iter().all(is_passive));
        assert!(!["send", "send_imm", "write", "write_imm"].into_iter().any(is_passive));
    }

    #[test]
    fn the_rate_is_what_was_achieved_and_not_what_was_offered() {
        let rates = [("offered", 9e6), ("achieved", 4e6), ("achieved, thread 0", 1e6)];
        let mut point = test_points::point(&rates);
        point.parameters.insert("size_bytes".to_owned(), 8.into());
        let line = bandwidth(&point, &mut Vec::new()).unwrap();
        assert!(line.trim_end().ends_with("4.000000"), "{line}");
    }
}
