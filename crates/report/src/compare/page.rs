//! A comparison as a page: the differences in words, the effect at each point, and the part of the
//! distribution in which it lies.

use maud::{Markup, html};
use rdmalab_measure::stats::{Estimate, Interval, Verdict};

use super::comparison::{CONFIDENCE, Comparison, Row, SideSummary};
use super::text::{
    at, change, changes, counts, interval, is_meaningful, percent, places, probability,
    verdict as verdict_word,
};
use crate::chart::{Chart, sentence, tick};
use crate::model::group_name;
use crate::page::{figures_of, table, whole};
use crate::svg::{self, Effect, Labels, Mark};
use crate::value::{fmt_count, heading, shown, unbreakable};

/// Most rows in a chart of effects: further rows are in a second chart.
const MAX_EFFECTS: usize = 24;

/// Most shift functions of one quantity.
const MAX_SHIFTS: usize = 9;

/// The page.
pub fn page(comparison: &Comparison) -> String {
    let [a, b] = &comparison.names;
    let title = format!("{b} against {a}");
    let groups = comparison.rows.chunk_by(|x, y| super::text::group(x) == super::text::group(y));
    let content = html! {
        header {
            p.brand { "rdmalab" span.kind { "comparison" } }
            h1 { (title) }
            p.lead { (summary(comparison)) }
            p.meta { "A is " (a) ": " (comparison.descriptions[0]) "." }
            p.meta { "B is " (b) ": " (comparison.descriptions[1]) "." }
        }
        (cards(comparison))
        (cautions(comparison))
        (differing(comparison))
        @for (i, rows) in groups.enumerate() { (group(comparison, rows, i)) }
        (method(comparison))
    };
    whole(&title, content)
}

fn summary(comparison: &Comparison) -> String {
    let worse = match comparison.regressions() {
        0 => "nowhere".to_owned(),
        n => format!("in {n} of {}", comparison.compared()),
    };
    format!(
        "{} comparisons. B is worse than A by more than {}, with certainty: {worse}.",
        comparison.compared(),
        percent(comparison.options.threshold)
    )
}

fn cards(comparison: &Comparison) -> Markup {
    html! {
        section.cards aria-label="Verdicts" {
            @for (n, verdict) in counts(comparison) {
                div.card {
                    p.what { (sentence(verdict.name())) }
                    p.value { (n) }
                    p.at { "of " (comparison.compared()) }
                }
            }
        }
    }
}

fn cautions(comparison: &Comparison) -> Markup {
    html! {
        @if !comparison.cautions.is_empty() {
            section.cautions {
                h2 { "Before you trust this" }
                ul { @for caution in &comparison.cautions {
                    li { (sentence(&unbreakable(caution))) "." }
                } }
            }
        }
    }
}

fn differing(comparison: &Comparison) -> Markup {
    let heads = ["what", "A", "B"].map(str::to_owned);
    let rows = comparison.differing.iter();
    let rows = rows.map(|(name, a, b)| vec![name.clone(), a.clone(), b.clone()]);
    html! {
        @if !comparison.differing.is_empty() {
            section {
                h2 { "What differs between A and B" }
                (table("What differs between A and B", &heads, 1, rows))
            }
        }
    }
}

fn group(comparison: &Comparison, rows: &[Row], index: usize) -> Markup {
    let first = &rows[0];
    let name = sentence(&group_name(first.quantity, &first.label));
    let what = match first.a.units {
        None => "One number a run.".to_owned(),
        Some(_) if rows.iter().any(|row| row.is_of_means) => {
            format!("The geometric mean over runs of the {}.", at(comparison.options.quantile))
        }
        Some(_) => format!("The {} of all samples.", at(comparison.options.quantile)),
    };
    let effects = rows.chunks(MAX_EFFECTS).enumerate();
    let effects = effects.filter_map(|(i, part)| effect_chart(comparison, part, (index, i)));
    let mut charts: Vec<Chart> = effects.collect();
    charts.extend(shifts(comparison, rows, index));
    let mut heads: Vec<String> = comparison.varying.iter().map(|name| heading(name)).collect();
    let parameters = heads.len();
    let more =
        ["runs", "n", "worth", "A", "B", "change", "interval", "p", "verdict"].map(str::to_owned);
    heads.extend(more);
    let cells = rows.iter().map(|row| cells(comparison, row));
    html! {
        section {
            h2 { (name) }
            p.meaning { (what) }
            ul { @for row in rows { li { (in_words(comparison, row)) } } }
            (figures_of(&charts))
            (table(&name, &heads, parameters, cells))
        }
    }
}

fn cells(comparison: &Comparison, row: &Row) -> Vec<String> {
    let both = |f: &dyn Fn(&SideSummary) -> String| {
        let (a, b) = (f(&row.a), f(&row.b));
        if a == b { a } else { format!("{a} | {b}") }
    };
    let mut cells = places(comparison, row);
    cells.extend([
        both(&|known| known.runs.to_string()),
        both(&|known| fmt_count(known.n as u64)),
        both(&|known| known.effective_n.map_or("-".into(), |n| fmt_count(n.round() as u64))),
        row.quantity.format(row.a.value),
        row.quantity.format(row.b.value),
        row.ratio.map_or("-".to_owned(), |ratio| change(ratio.value)),
        interval(row),
        row.p_value.map_or("-".to_owned(), probability),
        verdict_word(comparison, row),
    ]);
    cells
}

/// `at size 512 B`, or empty.
fn place(comparison: &Comparison, row: &Row) -> String {
    let each = comparison.varying.iter().map(|name| {
        let value = row.place.get(name).map_or("-".to_owned(), |value| shown(name, value));
        format!("{} {value}", heading(name))
    });
    each.collect::<Vec<_>>().join(", ")
}

/// A verdict as a sentence.
pub fn in_words(comparison: &Comparison, row: &Row) -> String {
    let [a, b] = &comparison.names;
    let place = match place(comparison, row) {
        nowhere if nowhere.is_empty() => String::new(),
        place => format!("At {place}: "),
    };
    let threshold = percent(comparison.options.threshold);
    let ratio = row.ratio.map_or(f64::NAN, |ratio| ratio.value);
    let ends = row.ratio.and_then(|ratio| ratio.interval);
    let sure = percent(CONFIDENCE);
    let certain = |i: Interval| {
        if !is_meaningful(&i) {
            return format!("{}, with an interval that says nothing", change(ratio));
        }
        let [value, low, high] = changes([ratio, i.low, i.high]);
        format!("{value} ({low} to {high}, together with all others with {sure} certainty)")
    };
    let text = match (row.verdict, ends) {
        (Verdict::Faster | Verdict::Slower, Some(ends)) => {
            let word = verdict_word(comparison, row);
            let word = word.split(" (").next().unwrap_or_default();
            let beyond = if row.is_regression {
                format!(", and beyond the {threshold} that matter")
            } else {
                String::new()
            };
            format!("{b} is {word} than {a}: {}{beyond}", certain(ends))
        }
        (Verdict::More | Verdict::Less, Some(ends)) => format!(
            "{} is {} with {b} than with {a}: {}",
            group_name(row.quantity, &row.label),
            row.verdict.name(),
            certain(ends)
        ),
        (Verdict::NoDifference, Some(ends)) => format!(
            "no difference between {a} and {b} is seen, and one of {threshold} is excluded: {}",
            certain(ends)
        ),
        (_, Some(ends)) => format!(
            "it cannot be decided whether {b} differs from {a}: {} allows both; measure more runs \
             (--repeat)",
            certain(ends)
        ),
        (_, None) => {
            let why = row.obstacle.as_deref().unwrap_or("there is no interval");
            format!("it cannot be decided whether {b} differs from {a}: {why}")
        }
    };
    format!("{}.", sentence(&format!("{place}{text}")))
}

/// The ratios of some rows, each with its interval.
fn effect_chart(comparison: &Comparison, rows: &[Row], id: (usize, usize)) -> Option<Chart> {
    let ends = |row: &Row| {
        let ratio = row.ratio?;
        let interval = ratio.interval.or(row.within).filter(is_meaningful);
        Some((interval.map_or(ratio.value, |i| i.low), interval.map_or(ratio.value, |i| i.high)))
    };
    let bound = 1.0 + comparison.options.threshold;
    let each = || rows.iter().filter_map(ends).filter(|e| e.0 > 0.0 && e.1.is_finite());
    let low = each().map(|e| e.0).fold(1.0 / bound, f64::min);
    let high = each().map(|e| e.1).fold(bound, f64::max);
    let text = |ratio: f64| if ratio == 1.0 { "0".to_owned() } else { tick(&change(ratio)) };
    let axis = if high > 3.0 * low {
        svg::log_axis("Change, B against A (log)", (low, high), text).between((low, high))
    } else {
        svg::linear_axis("Change, B against A", (low, high), 5, text)
    };
    let effect = |row: &Row| {
        let interval = ends(row).filter(|_| row.ratio.is_some_and(|r| r.interval.is_some()));
        let within = row.within.map(|i| (i.low, i.high));
        Effect {
            name: match place(comparison, row) {
                nowhere if nowhere.is_empty() => group_name(row.quantity, &row.label),
                place => place,
            },
            text: in_words(comparison, row),
            word: verdict_word(comparison, row),
            value: row.ratio.map_or(f64::NAN, |ratio| ratio.value),
            interval: interval.or(within),
            is_sure: row.verdict.is_difference(),
        }
    };
    let effects: Vec<Effect> = rows.iter().map(effect).collect();
    let title = "Change at each point, with its interval".to_owned();
    let described: Vec<&str> = effects.iter().map(|e| e.text.as_str()).collect();
    let description = format!(
        "The shaded range is what does not matter. {} The numbers are in the table.",
        described.join(" ")
    );
    let labels = Labels { id: format!("e{}-{}", id.0, id.1), title: title.clone(), description };
    let svg = svg::effects(&labels, &axis, 1.0, (1.0 / bound, bound), &effects);
    (each().count() > 0).then(|| Chart::new(title, svg))
}

/// Shift functions; if there are too many rows, those of rows that differ come first.
fn shifts(comparison: &Comparison, rows: &[Row], index: usize) -> Vec<Chart> {
    let mut all: Vec<&Row> = rows.iter().filter(|row| row.deciles.len() == 9).collect();
    if all.len() > MAX_SHIFTS {
        all.sort_by_key(|row| !row.verdict.is_difference());
    }
    let each = all.into_iter().take(MAX_SHIFTS).enumerate();
    each.map(|(i, row)| shift(comparison, row, &format!("s{index}-{i}"))).collect()
}

fn shift(comparison: &Comparison, row: &Row, id: &str) -> Chart {
    let quantity = row.quantity;
    let mark = |(i, shift): (usize, &Estimate)| {
        let q = (i + 1) as f64 * 10.0;
        let ends = shift.interval.map(|i| (i.low, i.high));
        let known = ends.map_or(String::new(), |(low, high)| {
            format!(" ({} to {})", quantity.format(low), quantity.format(high))
        });
        let text = format!("p{q:.0}: {}{known}", quantity.format(shift.value));
        Mark { x: q, y: shift.value, interval: ends, text }
    };
    let marks: Vec<Mark> = row.deciles.iter().enumerate().map(mark).collect();
    let low = marks.iter().map(|m| m.interval.map_or(m.y, |i| i.0)).fold(0.0, f64::min);
    let high = marks.iter().map(|m| m.interval.map_or(m.y, |i| i.1)).fold(0.0, f64::max);
    let text = |v: f64| if v == 0.0 { "0".to_owned() } else { tick(&quantity.format(v)) };
    let y = svg::linear_axis("Shift, B - A", (low, high), 5, text);
    let x = svg::linear_axis("Percentile", (10.0, 90.0), 8, |v| format!("p{v:.0}"));
    let x = x.between((10.0, 90.0));
    let whole = row.a.runs.min(row.b.runs) > 1;
    let mut title = "Shift of the deciles".to_owned();
    match place(comparison, row) {
        nowhere if nowhere.is_empty() => {}
        place => title += &format!(" at {place}"),
    }
    if !whole {
        title += ", within one run";
    }
    let each: Vec<&str> = marks.iter().map(|m| m.text.as_str()).collect();
    let description =
        format!("By how much each decile of B is later than that of A: {}.", each.join("; "));
    let labels = Labels { id: id.to_owned(), title: title.clone(), description };
    Chart::new(title, svg::band(&labels, &x, &y, 0.0, &marks))
}

fn method(comparison: &Comparison) -> Markup {
    let by = match comparison.varying.as_slice() {
        [] => "nothing: there is one point a side".to_owned(),
        names => names.iter().map(|name| heading(name)).collect::<Vec<_>>().join(", "),
    };
    html! {
        section {
            h2 { "How it was compared" }
            p.meaning {
                "Points were matched by " (by) ". Intervals hold for all comparisons together with "
                (percent(CONFIDENCE)) " (Bonferroni), and are made from how runs differ: each run \
                is one number (Welch's test), and of several records of a side each record. One \
                run a side decides nothing. The band of a shift is of each decile by itself."
            }
        }
    }
}
