//! Histograms of single rows.

use rdmalab_measure::{Quantity, Summary, stats};

use crate::chart::{Chart, MIN_SAMPLES, Scope, WIDE_RATIO, samples, sentence, tick};
use crate::histogram::{Histogram, Scale};
use crate::model::{Group, Model, Row, group_name};
use crate::published;
use crate::svg::{self, Bin, Labels, Rule};
use crate::value::fmt_count;
use crate::warnings::place;

/// Most histograms of one quantity.
const MAX_HISTOGRAMS: usize = 3;

/// The share of the samples that a histogram shows if its largest sample is far out.
const BODY: f64 = 0.995;

/// Bins of a histogram.
const BINS: usize = 60;

/// The first, the middle and the last row, which have the extreme values of what varies.
pub fn histograms(model: &Model, group: &Group, id: &str, scope: &Scope) -> Vec<Chart> {
    let n = group.rows.len();
    let most = scope.of_rows(n, MAX_HISTOGRAMS);
    let mut picked = if n <= most { (0..n).collect() } else { vec![0, n / 2, n - 1] };
    picked.dedup();
    let each = picked.into_iter().enumerate();
    let one = |(i, at): (usize, usize)| {
        histogram(model, group, group.rows[at].0, &format!("{id}{i}"), scope)
    };
    each.filter_map(one).collect()
}

/// The histogram of a row's first run; `None` if its samples cannot be read. Samples far out are
/// only counted at the end, since all others would be in one bar; the tail's curve shows them.
fn histogram(model: &Model, group: &Group, row: &Row, id: &str, scope: &Scope) -> Option<Chart> {
    let series = row.first_series(group.quantity, group.label)?;
    let mut samples = samples(model.record, series)?;
    if samples.len() < MIN_SAMPLES {
        return None;
    }
    stats::sort(&mut samples);
    let summary = &series.summary;
    let is_far = summary.max > WIDE_RATIO * stats::median(&samples);
    let body = if is_far { stats::quantile(&samples, BODY) } else { summary.max };
    let beyond = samples.len() - samples.partition_point(|s| *s <= body);
    samples.truncate(samples.len() - beyond);
    // More bins would hold a few samples each, and show noise instead of a shape.
    let bins = (2.0 * (samples.len() as f64).sqrt()).ceil() as usize;
    let histogram = Histogram::of(&samples, Scale::Auto, bins.min(BINS));
    let ends = (*histogram.edges.first()?, *histogram.edges.last()?);
    let quantity = group.quantity;
    let printed = printed(group, row, scope);
    let others = printed.iter().map(|one| one.ends.0);
    let ends = svg::reaching(ends, others.filter(|v| *v > 0.0), |_| histogram.is_log);
    let text = |v: f64| if v == 0.0 { "0".to_owned() } else { tick(&quantity.format(v)) };
    let name = sentence(&group_name(quantity, group.label));
    let x = if histogram.is_log {
        svg::value_axis(&name, ends, text)
    } else {
        svg::linear_axis(&name, ends, 5, text)
    };
    let largest = histogram.counts.iter().copied().max().unwrap_or(0) as f64;
    let y =
        svg::linear_axis("Samples", (0.0, largest.max(4.0)), 4, |v| fmt_count(v.round() as u64));
    let bin = |(e, count): (&[f64], &u64)| Bin {
        ends: (e[0], e[1]),
        count: *count,
        text: format!(
            "{} to {}: {} samples",
            quantity.format(e[0]),
            quantity.format(e[1]),
            fmt_count(*count)
        ),
    };
    let bins: Vec<Bin> = histogram.edges.windows(2).zip(&histogram.counts).map(bin).collect();
    let rules = rules(quantity, summary, (body, beyond));
    let title = match model.varying.is_empty() {
        true => format!("{name}: distribution"),
        false => format!("{name}: distribution at {}", place(model, row)),
    };
    let described: Vec<&str> = rules.iter().map(|r| r.name.as_str()).collect();
    let beside: Vec<&str> = printed.iter().map(|one| one.text.as_str()).collect();
    let description = format!(
        "Histogram of {} samples of {}: {}.{}",
        fmt_count(summary.n),
        group_name(quantity, group.label),
        described.join(", "),
        published::beside_sentence(&beside)
    );
    let labels = Labels { id: id.to_owned(), title: title.clone(), description };
    Some(Chart::new(title, svg::bars(&labels, (&x, &y), &bins, &rules, &printed)))
}

/// The published values about these samples, each at its value on the x axis.
fn printed(group: &Group, row: &Row, scope: &Scope) -> Vec<svg::PublishedMark> {
    let own = scope
        .published
        .iter()
        .filter(|t| t.is_of(group.quantity, group.label) && t.matches_row(row));
    own.map(|t| published::upright(&t.at((0.0, 0.0), None), None, None)).collect()
}

/// Vertical lines at the median, the 99th percentile and the largest sample. If `beyond` samples
/// are above the end, the last line names their number and the largest of them.
fn rules(quantity: Quantity, summary: &Summary, (end, beyond): (f64, usize)) -> Vec<Rule> {
    let supported = |q| summary.quantile(q).filter(|v| v.supported).map(|v| v.value);
    let last = match beyond {
        0 => format!("max {}", quantity.format(summary.max)),
        n => format!("{} more, max {}", fmt_count(n as u64), quantity.format(summary.max)),
    };
    let named = |name: &str, x: f64| Rule { x, name: format!("{name} {}", quantity.format(x)) };
    let median = supported(0.5).map(|x| named("median", x));
    let p99 = supported(0.99).filter(|x| *x <= end).map(|x| named("p99", x));
    median.into_iter().chain(p99).chain([Rule { x: end, name: last }]).collect()
}
