//! A record as one HTML file without network or script, in light and dark, also for print.

use std::borrow::Borrow;
use std::time::{Duration, SystemTime};

use maud::{DOCTYPE, Markup, PreEscaped, html};
use rdmalab_measure::text::plural;
use rdmalab_record::{Device, DeviceKind, Finding, Record, shell_word};

use crate::chart::{Chart, Scope, sentence};
use crate::charts;
use crate::contents::{began, contents_page};
use crate::machine::{self, Setting};
use crate::model::{Group, Model, group_name, is_disturbed, unlike_ends};
use crate::packets::ladders;
use crate::table::{
    TOO_SMALL, message_rows, parameter_cells, parameter_heads, time_cells, time_heads,
};
use crate::value::{finding_value, fmt_count, heading, shown, unbreakable};
use crate::warnings::{place, warnings};

const STYLE: &str = include_str!("page/style.css");

/// A cell with more characters is text, which may take several lines.
const LONG: usize = 24;

/// Most quantities in the summary at the top.
const GLANCES: usize = 4;

/// The page of a record. Samples of its histograms are read from the record's directory; without
/// samples there are no histograms.
#[must_use]
pub fn page(record: &Record) -> String {
    pages(std::slice::from_ref(record))
}

/// One page of several records, one after the other.
#[must_use]
pub fn pages(records: &[Record]) -> String {
    let name = |r: &Record| format!("{} on {}", r.header.experiment, r.header.device.title());
    let title = match records {
        [only] => name(only),
        all => format!("{} records", all.len()),
    };
    let id = |i: usize| if records.len() == 1 { String::new() } else { format!("r{i}") };
    whole(
        &title,
        html! {
            (contents_page(records, id))
            @for (i, record) in records.iter().enumerate() {
                article id=[(records.len() > 1).then(|| id(i))] { (article(record, &id(i))) }
            }
        },
    )
}

/// All contents of a record; `id` makes names unique in the page.
fn article(record: &Record, id: &str) -> Markup {
    let model = Model::of(record);
    let groups = model.groups();
    html! {
        (head(&model, &groups))
        (glance(&model, &groups))
        (found(&model))
        (cautions(record))
        @for (i, group) in groups.iter().enumerate() {
            (times(&model, group, &format!("{id}g{i}")))
        }
        (figures(&model, id))
        (packets(record, id))
        (messages(&model))
        (skipped(&model))
        (setup(&model))
        (repeat(record))
    }
}

/// A page around its content.
pub fn whole(title: &str, content: Markup) -> String {
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · rdmalab" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main { (content) }
                footer { "Written by rdmalab " (env!("CARGO_PKG_VERSION")) "." }
            }
        }
    };
    body.into_string()
}

fn head(model: &Model, groups: &[Group]) -> Markup {
    let record = model.record;
    let header = &record.header;
    let mut what: Vec<String> = groups.iter().map(|g| group_name(g.quantity, g.label)).collect();
    for (quantity, _) in model.figures() {
        let name = quantity.name().to_owned();
        if !what.contains(&name) {
            what.push(name);
        }
    }
    let device = &header.device;
    let (points, what) = (fmt_count(record.points.len() as u64), what.join("; "));
    let plural = plural(record.points.len(), " point.", " points.");
    html! {
        header {
            p.brand { "rdmalab" span.kind { (device.kind.name()) " device" } }
            h1 { (header.experiment) " on " (device.title()) }
            p.lead { (sentence(&what)) ", at " (points) (plural) }
            p.meta { "Begun " (began(record)) " UTC" }
            (caution(device))
            @for unlike in unlike_ends(record) {
                p.banner role="note" {
                    strong { "The ends were not alike." } " " (sentence(&unlike)) "."
                }
            }
            @if is_disturbed(record) {
                p.banner role="note" { strong { "Packets were disturbed on purpose." } }
            }
        }
    }
}

/// The caution about a device's numbers: what they do not describe.
pub fn caution(device: &Device) -> Markup {
    html! {
        @if let Some(caution) = device.kind.caution() {
            p.banner role="note" {
                strong { (sentence(caution)) "." } " "
                @match device.kind {
                    DeviceKind::Soft => {
                        (device.name) " is a soft RNIC: processes of this host exchange data \
                        through memory. Compare with other runs on this host only."
                        @if let Some(profile) = &device.profile {
                            " It has the limits and the delays of the profile " (profile)
                            ", which are made and not an adapter's."
                        }
                    }
                    _ => {
                        (device.name) " is simulated: times follow from a profile, and no data \
                        went over a wire."
                    }
                }
            }
        }
    }
}

/// The summary at the top: the lowest median of each quantity, and the best of each figure.
fn glance(model: &Model, groups: &[Group]) -> Markup {
    let best = |g: &'_ Group| {
        let rows = g.rows.iter().filter(|(_, m)| m.n > 0 && m.is_supported);
        let (row, m) = rows.min_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
        let tail = match m.quantile(0.99) {
            Some(p99) => format!("p99 {}", g.quantity.format(p99)),
            None => format!("p99: {TOO_SMALL}"),
        };
        let detail = format!("{tail}, max {}", g.quantity.format(m.max));
        let name = format!("Lowest median {}", group_name(g.quantity, g.label));
        Some((name, g.quantity.format(m.median), place(model, row), detail))
    };
    let mut cards: Vec<(String, String, String, String)> =
        groups.iter().filter_map(best).take(GLANCES).collect();
    for (quantity, label) in model.figures() {
        if cards.len() >= GLANCES || !quantity.more_is_better() {
            continue;
        }
        let values = model.rows.iter().filter_map(|r| Some((r, r.figure(quantity, label)?)));
        if let Some((row, value)) = values.max_by(|a, b| a.1.total_cmp(&b.1)) {
            let name = format!("Highest {}", group_name(quantity, label));
            cards.push((name, quantity.format(value), place(model, row), String::new()));
        }
    }
    html! {
        @if !cards.is_empty() {
            section.cards aria-label="At a glance" {
                @for (name, value, at, detail) in &cards {
                    div.card {
                        p.what { (name) }
                        p.value { (value) }
                        @if !at.is_empty() { p.at { "at " (at) } }
                        @if !detail.is_empty() { p.at { (detail) } }
                    }
                }
            }
        }
    }
}

/// The findings over all points.
pub fn found(model: &Model) -> Markup {
    html! {
        @if !model.findings.is_empty() {
            section {
                h2 { "What was found" }
                div.claims {
                    @for finding in model.findings { (one_finding(finding)) }
                }
            }
        }
    }
}

fn one_finding(finding: &Finding) -> Markup {
    let name = match finding.label.as_str() {
        "" => finding.name.replace('_', " "),
        label => format!("{}, {label}", finding.name.replace('_', " ")),
    };
    let shown = |value| finding_value(finding, value);
    let bounds = match (finding.low, finding.high) {
        (None, None) => None,
        (Some(low), None) => Some(format!("not less than {}", shown(Some(low)))),
        (None, Some(high)) => Some(format!("not more than {}", shown(Some(high)))),
        (low, high) => Some(format!("between {} and {}", shown(low), shown(high))),
    };
    html! {
        div.claim {
            p {
                span.verdict.unseen { (name) } " "
                @if let Some(value) = finding.value { strong { (shown(Some(value))) } }
                @if let Some(bounds) = bounds { span.at { " " (bounds) } }
            }
            p { (sentence(&finding.sentence)) "." }
        }
    }
}

fn cautions(record: &Record) -> Markup {
    let warnings = warnings(record);
    html! {
        @if !warnings.is_empty() {
            section.cautions {
                h2 { "Before you trust these numbers" }
                ul { @for warning in &warnings { li { (sentence(&unbreakable(warning))) "." } } }
            }
        }
    }
}

fn times(model: &Model, group: &Group, id: &str) -> Markup {
    let name = sentence(&group_name(group.quantity, group.label));
    let mut heads = parameter_heads(model);
    let parameters = heads.len();
    heads.extend(time_heads(group));
    let rows = group.rows.iter().map(|(row, merged)| {
        let mut cells = parameter_cells(model, row);
        cells.extend(time_cells(group, merged));
        cells
    });
    let caption = format!("{name}: {}", group.quantity.meaning());
    html! {
        section {
            h2 { (name) }
            p.meaning { (sentence(group.quantity.meaning())) "." }
            (figures_of(&charts::of_group(model, group, id, &Scope::default())))
            (table(&caption, &heads, parameters, rows))
            (outliers(model, group))
        }
    }
}

/// The times at which the largest samples were taken, so that a reader can look in a log.
fn outliers(model: &Model, group: &Group) -> Markup {
    const SHOWN: usize = 5;
    let each = group.rows.iter().flat_map(|(row, m)| m.dated().into_iter().map(move |o| (*row, o)));
    let mut all: Vec<_> = each.collect();
    all.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
    let time = |unix_ns: Option<u64>| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(unix_ns.unwrap_or(0));
        rdmalab_record::utc(time).replace('T', " ").replace('Z', " UTC")
    };
    html! {
        @if !all.is_empty() {
            p.meaning {
                "The largest: "
                @for (i, (row, one)) in all.iter().take(SHOWN).enumerate() {
                    @if i > 0 { "; " }
                    (group.quantity.format(one.value)) " on " (time(one.unix_ns))
                    @let place = place(model, row);
                    @if !place.is_empty() { " (" (place) ")" }
                }
                "."
            }
        }
    }
}

fn figures(model: &Model, id: &str) -> Markup {
    html! {
        @if let Some(table) = figures_table(model) {
            section {
                h2 { "Rates and processor time" }
                p.meaning { "One number for each point; with repeated runs, their median." }
                (figures_of(&charts::of_figures(model, id, &Scope::default())))
                (table)
            }
        }
    }
}

/// The figures of each point; `None` if there are none.
pub fn figures_table(model: &Model) -> Option<Markup> {
    let figures = model.figures();
    let mut heads = parameter_heads(model);
    let parameters = heads.len();
    heads.extend(figures.iter().map(|(q, label)| group_name(*q, label)));
    let rows = model.rows.iter().map(|row| {
        let mut cells = parameter_cells(model, row);
        cells.extend(figures.iter().map(|(quantity, label)| {
            row.figure(*quantity, label).map_or("-".to_owned(), |v| quantity.format(v))
        }));
        cells
    });
    (!figures.is_empty()).then(|| table("Rates and processor time", &heads, parameters, rows))
}

/// The packets of the capture that the record has.
fn packets(record: &Record, id: &str) -> Markup {
    let charts = ladders(record, id);
    html! {
        @if !charts.is_empty() {
            section {
                h2 { "Packets" }
                p.meaning {
                    "The packets of the run's first connections, as the capture of one end has \
                     them: one below the other, with the time since the first. Numbers are places \
                     among the PSNs. A broken line is a request that nothing answered. Diamonds \
                     are the page faults that these packets show; a caption says how many more the \
                     same connection had, and the time that they cost together."
                }
                (figures_of(&charts))
            }
        }
    }
}

fn messages(model: &Model) -> Markup {
    html! {
        @if let Some(table) = messages_table(model) {
            section {
                h2 { "Messages" }
                p.meaning {
                    "How many messages of all runs of a point were lost, came late, twice or in \
                     another order, or belong to no message of the run."
                }
                (table)
            }
        }
    }
}

/// What became of the messages; `None` if all arrived once and in order.
pub fn messages_table(model: &Model) -> Option<Markup> {
    let (heads, rows) = message_rows(model)?;
    Some(table("Messages", &heads, model.varying.len(), rows.into_iter()))
}

pub fn figures_of<C: Borrow<Chart>>(charts: &[C]) -> Markup {
    html! {
        @if !charts.is_empty() {
            div.charts {
                @for chart in charts.iter().map(<C as Borrow<Chart>>::borrow) {
                    figure {
                        figcaption { (chart.caption) }
                        (PreEscaped(&chart.svg))
                    }
                }
            }
        }
    }
}

/// A table that scrolls horizontally if the screen is narrow.
pub fn table(
    caption: &str,
    heads: &[String],
    parameters: usize,
    rows: impl Iterator<Item = Vec<String>>,
) -> Markup {
    table_of(caption, heads, parameters, rows.map(|row| (None, row)))
}

/// The same, with a class for each row that has one.
pub fn table_of(
    caption: &str,
    heads: &[String],
    parameters: usize,
    rows: impl Iterator<Item = (Option<&'static str>, Vec<String>)>,
) -> Markup {
    html! {
        div.scroll role="region" tabindex="0" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr {
                    @for (i, head) in heads.iter().enumerate() {
                        th scope="col" class=[(i < parameters).then_some("p")] { (head) }
                    }
                } }
                tbody {
                    @for (class, row) in rows {
                        tr class=[class] {
                            @for (i, cell) in row.iter().enumerate() {
                                @let long = (cell.chars().count() > LONG).then_some("long");
                                @if i < parameters { th scope="row" class=[long] { (cell) } }
                                @else if cell == TOO_SMALL { td.few { (cell) } }
                                @else { td class=[long] { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn skipped(model: &Model) -> Markup {
    let skipped = &model.record.skipped;
    html! {
        @if !skipped.is_empty() {
            section {
                h2 { "Skipped points" }
                p.meaning { "This device does not support them." }
                ul { @for s in skipped { li { (model.skipped_place(s)) ": " (s.reason) } } }
            }
        }
    }
}

pub fn setup(model: &Model) -> Markup {
    let constant = model.constant.iter().map(|(name, v)| (heading(name), shown(name, v)));
    let facts = model.facts().into_iter().map(|name| (heading(name), model.fact(name)));
    let machine = machine::properties(&model.record.environment);
    let settings = machine::settings(&model.record.environment);
    html! {
        section.setup {
            div {
                h2 { "Parameters" }
                (pairs(constant))
            }
            @if !model.facts().is_empty() {
                div {
                    h2 { "Granted and agreed on" }
                    (pairs(facts))
                }
            }
            @if !machine.is_empty() {
                div {
                    h2 { "Machine" }
                    (pairs(machine.into_iter()))
                }
            }
            @if !settings.is_empty() {
                div {
                    h2 { "Settings of the machine" }
                    (setting_list(&settings))
                }
            }
        }
    }
}

/// The settings, each with its file.
fn setting_list(settings: &[Setting]) -> Markup {
    html! {
        dl {
            @for Setting { name, value, file } in settings {
                div { dt { (name) } dd { (value) " (" code { (file) } ")" } }
            }
        }
    }
}

fn pairs(entries: impl Iterator<Item = (String, String)>) -> Markup {
    html! {
        dl { @for (name, value) in entries { div { dt { (name) } dd { (value) } } } }
    }
}

fn repeat(record: &Record) -> Markup {
    let command: Vec<String> = record.header.command.iter().map(|a| shell_word(a)).collect();
    let seed = record.header.seed;
    html! {
        section {
            h2 { "Measure it again" }
            pre tabindex="0" { code { (command.join(" ")) } }
            p.meaning {
                "The order of the points followed from seed " (seed) ". "
                "Percentiles are samples (type 1 of Hyndman and Fan), intervals are order "
                "statistics at 95 %, and nothing was trimmed. " q { (TOO_SMALL) } " stands where "
                "fewer than ten samples are expected beyond the percentile."
            }
        }
    }
}
