//! Charts of whole distributions, of two parameters, and of samples over time.

use rdmalab_measure::pattern::{self, Pattern};
use rdmalab_measure::quantity::{MISSED_MAX, fmt_percent};
use rdmalab_measure::{Quantity, stats};
use rdmalab_record::{Record, SeriesSummary};
use serde_json::Value;

use crate::chart::{Chart, MAX_LINES, MIN_SAMPLES, Scope, samples, sentence, tick, x_text};
use crate::model::{Group, Merged, Model, Row, group_name};
use crate::published::{self, PlacedValue, PublishedValue};
use crate::svg::{self, Labels, Line, Mark};
use crate::value::{fmt_count, heading, order};
use crate::warnings::place;

/// Number of marks on a curve: more would overlap.
const MARKS: usize = 28;

/// The end of a cumulative curve: the tail has its own curve.
const BODY: f64 = 0.99;

/// Published values for a share from here on are also in the chart of the tail.
const TAIL_FROM: f64 = 0.9;

/// Most rows whose distributions are drawn in a complete page.
const MAX_CURVES: usize = 24;

/// Columns of a chart over time: each shows the least, the middle and the largest of its samples.
pub const COLUMNS: usize = 160;

/// From this many values of two parameters on, a heat map is drawn.
const MIN_HEAT: usize = 3;

/// Most rows of one quantity whose patterns are shown.
const MAX_PATTERNS: usize = 3;

/// Most periods that are shown one after the other.
const MAX_UNFOLDED: usize = 8;

/// Most cells along one side of a heat map: with more, the names of rows are not readable.
const MAX_HEAT: usize = 20;

/// Charts of the share of samples up to a value, and of the share above it: for a few rows, or for
/// all if there are not many.
pub fn distributions(model: &Model, group: &Group, id: &str, scope: &Scope) -> Vec<Chart> {
    let n = group.rows.len();
    let step = n.div_ceil(if scope.is_whole && n <= MAX_CURVES { n } else { MAX_LINES }).max(1);
    let picked = group.rows.iter().step_by(step).map(|(row, _)| *row);
    let mut all: Vec<Shape> = Vec::new();
    for row in picked {
        let series = row.first_series(group.quantity, group.label);
        let found = series.and_then(|series| samples(model.record, series));
        let Some(mut sorted) = found.filter(|s| s.len() >= MIN_SAMPLES) else { continue };
        stats::sort(&mut sorted);
        let said = scope.published.iter().filter_map(|t| {
            let said = t.of_samples(group.quantity, group.label, row)?;
            Some((t.at((0.0, 0.0), None), said))
        });
        all.push(Shape { name: place(model, row), sorted, printed: said.collect() });
    }
    if all.is_empty() {
        return Vec::new();
    }
    let low = all.iter().map(|one| one.sorted[0]).fold(f64::INFINITY, f64::min);
    let end_at = |q: f64| {
        let each = all.iter().map(|one| stats::quantile(&one.sorted, q));
        each.fold(f64::NEG_INFINITY, f64::max).max(low)
    };
    let (body, last) = (end_at(BODY), end_at(1.0));
    let count = all.len().div_ceil(MAX_LINES);
    let mut charts = Vec::new();
    for (i, part) in all.chunks(all.len().div_ceil(count)).enumerate() {
        let which = match count {
            1 if all.len() < n => format!(" ({} of {n} points)", all.len()),
            1 => String::new(),
            _ => format!(" ({} of {count})", i + 1),
        };
        let id = if i == 0 { id.to_owned() } else { format!("{id}{i}") };
        charts.push(cumulative(group, part, (low, body), &which, &format!("{id}c")));
        // A logarithmic axis needs values above zero.
        if low > 0.0 {
            charts.push(tail(group, part, (low, last), &which, &format!("{id}t")));
        }
    }
    charts
}

/// The sorted samples of a row, and the published values about them: a value, and the share below.
struct Shape {
    name: String,
    sorted: Vec<f64>,
    printed: Vec<(PlacedValue, (f64, f64))>,
}

/// The published values about the samples of these lines whose share is `drawn`, at the height that
/// `drawn` returns; a value of several lines only once.
fn beside(all: &[Shape], drawn: impl Fn(&Shape, f64) -> Option<f64>) -> Vec<svg::PublishedMark> {
    let mut found: Vec<svg::PublishedMark> = Vec::new();
    for (line, shape) in all.iter().enumerate() {
        for (at, (value, share)) in &shape.printed {
            let Some(y) = drawn(shape, *share) else { continue };
            match found.iter_mut().find(|one| one.text == at.text && one.y == y) {
                Some(known) => known.line = None,
                None => found.push(published::upright(at, Some(line), Some((*value, y)))),
            }
        }
    }
    found
}

fn cumulative(group: &Group, all: &[Shape], ends: (f64, f64), which: &str, id: &str) -> Chart {
    let line = |Shape { name, sorted, .. }: &Shape| {
        let at = |i: usize| {
            let share = BODY * i as f64 / MARKS as f64;
            let rank = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len());
            let value = sorted[rank - 1];
            let text = format!("{:.1} % up to {}", share * 100.0, group.quantity.format(value));
            Mark { x: value, y: share, interval: None, text }
        };
        Line { name: name.clone(), marks: without_middles((0..=MARKS).map(at).collect()) }
    };
    let lines: Vec<Line> = all.iter().map(line).collect();
    let y = svg::linear_axis("Share of samples", (0.0, 1.0), 5, |v| format!("{:.0} %", v * 100.0));
    let title = format!("{}: share of samples up to a value, to 99 %{which}", name_of(group));
    let printed = beside(all, |_, share| (share <= BODY).then_some(share));
    curve(group, &title, id, ends, &y, (&lines, &printed))
}

/// The curve down to the last sample: no outliers are removed.
fn tail(group: &Group, all: &[Shape], ends: (f64, f64), which: &str, id: &str) -> Chart {
    let line = |Shape { name, sorted, .. }: &Shape| {
        let n = sorted.len();
        let at = |i: usize| {
            let beyond = (n as f64).powf(1.0 - i as f64 / MARKS as f64).round() as usize;
            let value = sorted[n - beyond.clamp(1, n)];
            let share = beyond as f64 / n as f64;
            let text = format!(
                "{} of {} at {} or above",
                fmt_count(beyond as u64),
                fmt_count(n as u64),
                group.quantity.format(value)
            );
            Mark { x: value, y: share, interval: None, text }
        };
        let mut marks: Vec<Mark> = (0..=MARKS).map(at).collect();
        marks.dedup_by(|a, b| a.y == b.y);
        Line { name: name.clone(), marks: without_middles(marks) }
    };
    let lines: Vec<Line> = all.iter().map(line).collect();
    let rarest = |shape: &Shape| 1.0 / shape.sorted.len() as f64;
    let least = all.iter().map(rarest).fold(1.0, f64::min);
    let y = svg::log_axis("Share of samples (log)", (least, 1.0), |v| {
        let percent = v * 100.0;
        // Powers of ten as floats have rounding errors, so only the needed digits are shown.
        let digits = (-percent.log10().floor()).max(0.0) as usize;
        format!("{percent:.digits$} %")
    });
    let title = format!("{}: share of samples at or above a value{which}", name_of(group));
    // The other chart shows the body. The largest sample has a share of one in all.
    let printed = beside(all, |shape, share| {
        let beyond = if share == 1.0 { rarest(shape) } else { 1.0 - share };
        (share >= TAIL_FROM && beyond >= least).then_some(beyond)
    });
    curve(group, &title, id, ends, &y, (&lines, &printed))
}

/// The name of a group at the start of a sentence.
fn name_of(group: &Group) -> String {
    sentence(&group_name(group.quantity, group.label))
}

/// The marks without those whose neighbours have the same value: they lie on a line that the
/// neighbours draw.
fn without_middles(marks: Vec<Mark>) -> Vec<Mark> {
    let values: Vec<f64> = marks.iter().map(|mark| mark.x).collect();
    let is_middle = |i: usize| {
        i > 0 && i + 1 < values.len() && values[i - 1] == values[i] && values[i] == values[i + 1]
    };
    marks.into_iter().enumerate().filter(|(i, _)| !is_middle(*i)).map(|(_, mark)| mark).collect()
}

fn curve(
    group: &Group,
    title: &str,
    id: &str,
    ends: (f64, f64),
    y: &svg::Axis,
    (lines, printed): (&[Line], &[svg::PublishedMark]),
) -> Chart {
    let quantity = group.quantity;
    let text = |v: f64| value_text(quantity, v);
    let name = name_of(group);
    let others = printed.iter().map(|one| one.ends.0).filter(|v| *v > 0.0);
    let x = svg::value_axis(&name, svg::reaching(ends, others, svg::is_wide), text);
    let names: Vec<&str> = lines.iter().map(|l| l.name.as_str()).collect();
    let texts: Vec<&str> = printed.iter().map(|one| one.text.as_str()).collect();
    let lines_are = match names.as_slice() {
        [""] => String::new(),
        names => format!(" The lines: {}.", names.join("; ")),
    };
    let description = format!("{title}.{lines_are}{}", published::beside_sentence(&texts));
    let labels = Labels { id: id.to_owned(), title: title.to_owned(), description };
    Chart::new(title.to_owned(), svg::lines(&labels, &x, y, lines, &[], printed))
}

/// The first two numeric parameters with at least [`MIN_HEAT`] values each; of more than
/// [`MAX_HEAT`] values some at even distances.
fn two_numbers<'a>(model: &Model<'a>) -> Option<[(&'a str, Vec<&'a Value>); 2]> {
    let values = |name: &&'a str| {
        let each = model.rows.iter().map(|row| row.parameters.get(*name));
        let mut all: Vec<&Value> = each.collect::<Option<Vec<_>>>()?;
        all.sort_by(|a, b| order(Some(a), Some(b)));
        all.dedup();
        let fits = all.iter().all(|v| v.is_number()) && all.len() >= MIN_HEAT;
        let step = all.len().div_ceil(MAX_HEAT);
        fits.then(|| (*name, all.into_iter().step_by(step.max(1)).collect::<Vec<_>>()))
    };
    let mut found = model.varying.iter().filter_map(values);
    let (first, second) = (found.next()?, found.next()?);
    // The one with more values is along the wider side.
    Some(if second.1.len() > first.1.len() { [second, first] } else { [first, second] })
}

/// Medians over two parameters, as shades and as numbers.
pub fn heat(model: &Model, group: &Group, id: &str, scope: &Scope) -> Option<Chart> {
    let value = |row: &Row| {
        let merged = row.merged(group.quantity, group.label)?;
        merged.is_supported.then_some(merged.median)
    };
    let own = scope.published.iter().filter(|t| t.is_of(group.quantity, group.label));
    let own: Vec<&PublishedValue> = own.filter(|t| t.stat() == "median").collect();
    let name = format!("Median {}", group_name(group.quantity, group.label));
    map(model, group.quantity, &name, id, (value, &own))
}

/// The heat map of a figure.
pub fn heat_of_figure(
    model: &Model,
    quantity: Quantity,
    label: &str,
    id: &str,
    scope: &Scope,
) -> Option<Chart> {
    let own: Vec<&PublishedValue> =
        scope.published.iter().filter(|t| t.is_of(quantity, label)).collect();
    let name = sentence(&group_name(quantity, label));
    map(model, quantity, &name, id, (|row: &Row| row.figure(quantity, label), &own))
}

fn map(
    model: &Model,
    quantity: Quantity,
    name: &str,
    id: &str,
    (value, published): (impl Fn(&Row) -> Option<f64>, &[&PublishedValue]),
) -> Option<Chart> {
    let [(x, xs), (y, ys)] = two_numbers(model)?;
    // The other parameters are fixed to the values of the first row, and the title names them.
    let first = model.rows.first()?;
    let others = model.varying.iter().filter(|n| **n != x && **n != y);
    let fixed: Vec<(&str, &Value)> =
        others.filter_map(|n| Some((*n, first.parameters.get(*n)?))).collect();
    let is_in = |row: &&Row| fixed.iter().all(|(n, v)| row.parameters.get(*n) == Some(*v));
    let (mut cells, mut any_doubtful) = (Vec::new(), false);
    for row in model.rows.iter().filter(is_in) {
        let place = |name: &str, all: &[&Value]| {
            all.iter().position(|v| row.parameters.get(name) == Some(*v))
        };
        if let (Some(i), Some(j), Some(v)) = (place(x, &xs), place(y, &ys), value(row)) {
            let here =
                published.iter().filter(|t| t.matches_row(row)).map(|t| t.at((0.0, 0.0), None));
            let printed = here.map(|at| {
                let shown = quantity.format(at.value);
                svg::PublishedMark { shown, ..published::mark(&at, None) }
            });
            let missed = row.figure(Quantity::MissedShare, "");
            let is_doubtful = missed.is_some_and(|share| share > MISSED_MAX);
            any_doubtful |= is_doubtful;
            let mark = if is_doubtful { " *" } else { "" };
            let (text, printed) = (quantity.format(v) + mark, printed.collect());
            cells.push(svg::HeatCell { place: (i, j), value: v, text, printed });
        }
    }
    let texts = |name: &str, all: &[&Value]| -> Vec<String> {
        all.iter().map(|v| x_text(name, v.as_f64().unwrap_or(f64::NAN))).collect()
    };
    let held: Vec<String> = fixed
        .iter()
        .map(|(n, v)| format!("{} {}", heading(n), crate::value::shown(n, v)))
        .collect();
    let mut title = format!("{name} over {} and {}", heading(x), heading(y));
    if !held.is_empty() {
        title = format!("{title}, at {}", held.join(", "));
    }
    if any_doubtful {
        title += &format!("; * where more than {} was missed", fmt_percent(MISSED_MAX));
    }
    let texts_of = |cell: &svg::HeatCell| -> Vec<String> {
        cell.printed.iter().map(|one| one.text.clone()).collect()
    };
    let mut printed: Vec<String> = cells.iter().flat_map(texts_of).collect();
    printed.dedup();
    let printed: Vec<&str> = printed.iter().map(String::as_str).collect();
    let description = format!(
        "{title}. {} cells; the numbers are in the table.{}",
        cells.len(),
        published::beside_sentence(&printed)
    );
    let labels = Labels { id: id.to_owned(), title: title.clone(), description };
    let axes = [(heading(x), texts(x, &xs)), (heading(y), texts(y, &ys))];
    (!cells.is_empty()).then(|| Chart::new(title, svg::heat(&labels, &axes, &cells)))
}

/// Samples in the order in which they were taken, without warm-up: of the first row, or of each row
/// if there are not many.
pub fn in_time(model: &Model, group: &Group, id: &str, scope: &Scope) -> Vec<Chart> {
    let rows = group.rows.iter().take(scope.of_rows(group.rows.len(), 1)).enumerate();
    let chart = |(i, (row, _)): (usize, &(&Row, Merged))| {
        let id = if i == 0 { id.to_owned() } else { format!("{id}{i}") };
        row_in_time(model, group, row, &id)
    };
    rows.filter_map(chart).collect()
}

fn row_in_time(model: &Model, group: &Group, row: &Row, id: &str) -> Option<Chart> {
    let series = row.first_series(group.quantity, group.label)?;
    let samples = in_order(model.record, series)?;
    if samples.len() < MIN_SAMPLES {
        return None;
    }
    let quantity = group.quantity;
    let each = samples.len().div_ceil(COLUMNS);
    let column = |(i, part): (usize, &[f64])| {
        let mut sorted: Vec<f64> = part.iter().copied().filter(|s| s.is_finite()).collect();
        stats::sort(&mut sorted);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let from = i * each;
        let text = match part.len() {
            1 => format!("{}: {}", fmt_count(from as u64), quantity.format(low)),
            _ => format!(
                "{} to {}: {} - {}, median {}",
                fmt_count(from as u64),
                fmt_count((from + part.len() - 1) as u64),
                quantity.format(low),
                quantity.format(high),
                quantity.format(stats::median(&sorted))
            ),
        };
        let interval = (part.len() > 1).then_some((low, high));
        Some(Mark { x: from as f64, y: stats::median(&sorted), interval, text })
    };
    let marks: Vec<Mark> = samples.chunks(each).enumerate().filter_map(column).collect();
    let low = marks.iter().map(|m| m.interval.map_or(m.y, |i| i.0)).fold(f64::INFINITY, f64::min);
    let high = marks.iter().map(|m| m.interval.map_or(m.y, |i| i.1)).fold(0.0, f64::max);
    let text = |v: f64| value_text(quantity, v);
    let name = name_of(group);
    let y = value_or_linear(&name, (low, high), text);
    let x = counted("Sample", samples.len());
    let title = match model.varying.is_empty() {
        true => format!("{name}: in the order of measurement"),
        false => format!("{name}: in the order of measurement, at {}", place(model, row)),
    };
    let description =
        format!("{} samples; least, median and largest of each {each}.", samples.len());
    let labels = Labels { id: id.to_owned(), title: title.clone(), description };
    Some(Chart::new(title, svg::columns(&labels, &x, &y, &marks, &[])))
}

/// The pattern that an experiment found in its series, for a few rows or for all: the times at each
/// place of a period, with the peaks marked.
pub fn patterns(model: &Model, group: &Group, id: &str, scope: &Scope) -> Vec<Chart> {
    let fact = format!("pattern_{}", group.label.replace(' ', "_"));
    let has = |row: &&Row| {
        row.points.first().and_then(|p| p.fact(&fact)).is_some_and(|found| found != "none")
    };
    let rows = group.rows.iter().map(|(row, _)| *row).filter(has);
    let rows = rows.take(scope.at_most(MAX_PATTERNS));
    let chart = |(i, row)| pattern(model, group, row, &format!("{id}{i}"));
    rows.enumerate().flat_map(chart).collect()
}

fn pattern(model: &Model, group: &Group, row: &Row, id: &str) -> Vec<Chart> {
    let Some(series) = row.first_series(group.quantity, group.label) else { return Vec::new() };
    let Some(samples) = in_order(model.record, series) else { return Vec::new() };
    let first = usize::try_from(series.summary.warm_up).unwrap_or(0);
    let Some(found) = pattern::find(&samples, first) else { return Vec::new() };
    let place = match place(model, row) {
        nothing if nothing.is_empty() => nothing,
        place => format!(", at {place}"),
    };
    let folded = folded(group, &place, &samples, first, &found, id);
    let unfolded = unfolded(group, &place, &samples, first, &found, &format!("{id}u"));
    std::iter::once(folded).chain(unfolded).collect()
}

/// The first periods as they were measured, with the peaks marked. `None` if two periods are too
/// long for a chart.
fn unfolded(
    group: &Group,
    place: &str,
    samples: &[f64],
    first: usize,
    found: &Pattern,
    id: &str,
) -> Option<Chart> {
    let periods = (COLUMNS * 2 / found.period).min(MAX_UNFOLDED);
    if periods < 2 {
        return None;
    }
    let shown = &samples[..samples.len().min(periods * found.period)];
    let quantity = group.quantity;
    // The highest peak comes first; peaks of at least half its height are marked too.
    let least = found.peaks.first().map_or(0.0, |p| p.height.abs() / 2.0);
    let high: Vec<usize> =
        found.peaks.iter().filter(|p| p.height.abs() >= least).map(|p| p.place).collect();
    let is_peak = |i: usize| high.contains(&((first + i) % found.period));
    let there = || shown.iter().enumerate().filter(|(_, s)| s.is_finite());
    let mark = |(i, sample): (usize, &f64)| Mark {
        x: i as f64,
        y: *sample,
        interval: None,
        text: format!("{}: {}", fmt_count(i as u64), quantity.format(*sample)),
    };
    let marks: Vec<Mark> = there().map(mark).collect();
    let picked: Vec<usize> =
        there().enumerate().filter(|(_, (i, _))| is_peak(*i)).map(|(at, _)| at).collect();
    let values = || marks.iter().map(|m| m.y);
    let ends = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let name = name_of(group);
    let y = value_or_linear(&name, ends, |v| value_text(quantity, v));
    let x = counted("Sample", shown.len());
    let title = format!(
        "{name}: the first {periods} periods of {}{place}; the places that stand out most are \
         diamonds",
        found.period
    );
    let description = format!(
        "Each sample of the first {periods} periods; diamonds are at the places {high:?}, which \
         stand out most."
    );
    let labels = Labels { id: id.to_owned(), title: title.clone(), description };
    Some(Chart::new(title, svg::columns(&labels, &x, &y, &marks, &picked)))
}

fn folded(
    group: &Group,
    at: &str,
    samples: &[f64],
    first: usize,
    found: &Pattern,
    id: &str,
) -> Chart {
    let quantity = group.quantity;
    let mut places: Vec<Vec<f64>> = vec![Vec::new(); found.period];
    for (i, sample) in samples.iter().enumerate().filter(|(_, s)| s.is_finite()) {
        places[(first + i) % found.period].push(*sample);
    }
    let mark = |(place, mut all): (usize, Vec<f64>)| {
        stats::sort(&mut all);
        let ends = (stats::quantile(&all, 0.1), stats::quantile(&all, 0.9));
        let middle = stats::median(&all);
        let text = format!("place {place}: median {}", quantity.format(middle));
        Mark { x: place as f64, y: middle, interval: Some(ends), text }
    };
    let filled = places.into_iter().enumerate().filter(|(_, all)| !all.is_empty());
    let marks: Vec<Mark> = filled.map(mark).collect();
    let high = marks.iter().filter_map(|m| m.interval).map(|i| i.1).fold(0.0, f64::max);
    let is_peak = |m: &Mark| found.peaks.iter().any(|peak| peak.place as f64 == m.x);
    let picked: Vec<usize> =
        marks.iter().enumerate().filter(|(_, m)| is_peak(m)).map(|(i, _)| i).collect();
    let text = |v: f64| value_text(quantity, v);
    let low = marks.iter().filter_map(|m| m.interval).map(|i| i.0).fold(high, f64::min);
    let name = name_of(group);
    let y = value_or_linear(&name, (low, high), text);
    let x = counted("Place in the period", found.period);
    let title =
        format!("{name}: every {} samples{at}; places that stand out are diamonds", found.period);
    let description = format!(
        "Median and 10 % to 90 % of each place of a period of {} samples; {} places stand out; by \
         chance with probability {:.1e}.",
        found.period,
        picked.len(),
        found.false_alarm
    );
    let labels = Labels { id: id.to_owned(), title: title.clone(), description };
    Chart::new(title, svg::columns(&labels, &x, &y, &marks, &picked))
}

/// The text of a tick of a quantity.
fn value_text(quantity: Quantity, value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { tick(&quantity.format(value)) }
}

/// An axis with round ends: logarithmic if the values have a large ratio, linear from near the
/// least value if they have a small one, otherwise linear from 0.
fn value_or_linear(name: &str, (low, high): (f64, f64), text: impl Fn(f64) -> String) -> svg::Axis {
    if low > 0.0 && high > 5.0 * low {
        svg::log_axis(&format!("{name} (log)"), (low, high), text)
    } else if low > 0.5 * high {
        svg::linear_axis(name, (low, high), 4, text)
    } else {
        svg::linear_axis(name, (low.min(0.0), high), 4, text)
    }
}

/// An axis of whole numbers from 0 to `count`.
fn counted(name: &str, count: usize) -> svg::Axis {
    let last = count.max(1) as f64;
    let text = |v: f64| fmt_count(v.max(0.0).round() as u64);
    let axis = svg::linear_axis(name, (0.0, last), 4, text);
    let mut axis = axis.between((0.0, last));
    // Places are whole numbers.
    axis.ticks.retain(|(v, _)| v.fract() == 0.0);
    axis
}

/// The samples that count, with NaN for lost ones, so that each keeps its place.
fn in_order(record: &Record, series: &SeriesSummary) -> Option<Vec<f64>> {
    let samples = record.samples(series).ok()?;
    let warm_up = usize::try_from(series.summary.warm_up).unwrap_or(usize::MAX);
    Some(samples.into_iter().skip(warm_up).collect())
}
