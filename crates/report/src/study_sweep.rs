//! What the page of a study shows of one sweep: charts and tables, as many as there is room for.

use maud::{Markup, html};
use rdmalab_measure::text::count_of;
use rdmalab_record::Record;
use rdmalab_study::{Bars, Figure, Study, SweepResult};

use crate::chart::{Chart, Scope, sentence};
use crate::charts;
use crate::model::{Group, Model, NINTH, PEER, TENTH, group_name};
use crate::page::{figures_of, figures_table, messages_table, table};
use crate::published::PublishedValue;
use crate::table::{Quantiles, cells_of, heads_of, parameter_cells, parameter_heads};

/// Most charts of one sweep that are visible at once: the others are folded below them.
const MAX_MAIN: usize = 12;

/// Most series of one sweep that have all kinds of charts: others have only charts that compare.
const MAX_GROUPS: usize = 4;
/// Most peers that have their own table.
const MAX_PEERS: usize = 8;

/// The charts and tables of a sweep, drawn.
pub struct Shown {
    title: String,
    main: Vec<Chart>,
    tables: Vec<Markup>,
    rest: Vec<Chart>,
    end: Markup,
    points_n: usize,
}

impl Shown {
    /// Draws everything of a record. `id` makes names unique in the page; the title may be empty.
    pub fn of(
        (study, figure): (&Study, &Figure),
        part: &SweepResult,
        record: &Record,
        id: &str,
        title: String,
    ) -> Self {
        let model = Model::of(record);
        let published = PublishedValue::of(study, part, &model);
        let scope = Scope {
            is_whole: true,
            is_brief: false,
            has_deciles: figure.bars == Bars::Deciles,
            above: figure.above,
            published: &published,
        };
        let (peers, groups): (Vec<Group>, Vec<Group>) =
            model.groups().into_iter().partition(|group| group.label.starts_with(PEER));
        let mut charts = Vec::new();
        for (i, group) in groups.iter().enumerate() {
            let scope = Scope { is_brief: i >= MAX_GROUPS, ..scope };
            charts.extend(charts::of_group(&model, group, &format!("{id}g{i}"), &scope));
        }
        charts.extend(charts::of_peers(&model, &peers, &format!("{id}peers"), &scope));
        charts.extend(charts::of_figures(&model, id, &scope));
        let (mut main, mut rest): (Vec<Chart>, Vec<Chart>) =
            charts.into_iter().partition(|chart| chart.is_main);
        let more = main.split_off(main.len().min(MAX_MAIN));
        rest.splice(0..0, more);
        let with_table = groups.iter().chain(peers.iter().take(MAX_PEERS));
        let mut tables: Vec<Markup> = with_table.map(|group| times_table(&model, group)).collect();
        let figures = figures_table(&model).map(|t| headed("Rates and processor time", &t));
        let messages = messages_table(&model).map(|t| headed("Messages", &t));
        tables.extend([figures, messages].into_iter().flatten());
        let end = end(&model, peers.len());
        Self { title, main, tables, rest, end, points_n: record.points.len() }
    }

    /// The bytes of all of it, except the frame around charts and tables.
    pub fn bytes(&self) -> usize {
        let charts = self.main.iter().chain(&self.rest).map(bytes_of);
        charts.chain(self.tables.iter().map(|table| table.0.len())).sum()
    }

    /// As much of it as has at most so many bytes: first the charts that are visible at once, then
    /// the tables, then the other charts.
    pub fn within(&self, most: usize) -> Markup {
        let mut left = most;
        let mut fits = |bytes: usize| {
            let fits = bytes <= left;
            left -= if fits { bytes } else { 0 };
            fits
        };
        let main: Vec<&Chart> = self.main.iter().filter(|chart| fits(bytes_of(chart))).collect();
        let tables: Vec<&Markup> = self.tables.iter().filter(|t| fits(t.0.len())).collect();
        let rest: Vec<&Chart> = self.rest.iter().filter(|chart| fits(bytes_of(chart))).collect();
        let missing = [
            (self.main.len() + self.rest.len() - main.len() - rest.len(), "chart"),
            (self.tables.len() - tables.len(), "table"),
        ];
        let missing: Vec<String> =
            missing.iter().filter(|(n, _)| *n > 0).map(|(n, what)| count_of(*n, what)).collect();
        html! {
            @if !self.title.is_empty() { h4 { (self.title) } }
            (figures_of(&main))
            @if !rest.is_empty() {
                details {
                    summary { (count_of(rest.len(), "more chart")) ": each line by itself" }
                    (figures_of(&rest))
                }
            }
            @if !tables.is_empty() {
                details {
                    summary { "The numbers, of " (self.points_n) " measurements" }
                    @for table in tables { (table) }
                }
            }
            @if !missing.is_empty() {
                p.meaning.left-out {
                    "Left out, to keep this page small: " (missing.join(" and ")) ". "
                    code { "rdmalab report DIRECTORY --html FILE" }
                    " of the sweep's record has them."
                }
            }
            (self.end)
        }
    }
}

/// Most bytes of one sweep, so that all together have at most `total`: small sweeps are whole, and
/// all that are cut have the same share.
pub fn share(sizes: &[usize], total: usize) -> usize {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let mut left = total;
    for (i, size) in sorted.iter().enumerate() {
        let each = left / (sorted.len() - i);
        if *size > each {
            return each;
        }
        left -= size;
    }
    usize::MAX
}

fn bytes_of(chart: &Chart) -> usize {
    chart.svg.len() + chart.caption.len()
}

fn headed(name: &str, table: &Markup) -> Markup {
    html! { h4 { (name) } (table) }
}

fn times_table(model: &Model, group: &Group) -> Markup {
    let caption = sentence(&group_name(group.quantity, group.label));
    // A quantile that no record has gets no column.
    let is_there = |q: &f64| group.rows.iter().any(|(_, merged)| merged.quantile(*q).is_some());
    let body: Vec<f64> = [TENTH, NINTH].into_iter().filter(is_there).collect();
    let mut heads = parameter_heads(model);
    let parameters = heads.len();
    heads.extend(heads_of(group, Quantiles::with(&body)));
    let rows = group.rows.iter().map(|(row, merged)| {
        let mut cells = parameter_cells(model, row);
        cells.extend(cells_of(group, merged, Quantiles::with(&body)));
        cells
    });
    headed(&caption, &table(&caption, &heads, parameters, rows))
}

/// What is missing of the sweep.
fn end(model: &Model, peers: usize) -> Markup {
    let record = model.record;
    let missing = record.unfinished_points();
    html! {
        @if peers > MAX_PEERS {
            p.meaning {
                "Of " (peers) " peers the first " (MAX_PEERS) " have a table here; "
                code { "rdmalab report --format csv" } " has all of them."
            }
        }
        @if missing > 0 {
            p.meaning { (missing) " planned measurements are missing: the run was ended early." }
        }
        @if !record.skipped.is_empty() {
            details {
                summary { (count_of(record.skipped.len(), "point")) " impossible here" }
                ul { @for s in &record.skipped {
                    li { (model.skipped_place(s)) ": " (s.reason) }
                } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sweeps_are_whole_and_large_ones_share_the_rest() {
        assert_eq!(share(&[], 10), usize::MAX);
        assert_eq!(share(&[10, 20, 30], 60), usize::MAX);
        assert_eq!(share(&[10, 20, 31], 60), 30);
        assert_eq!(share(&[100, 10, 200], 60), 25);
        assert_eq!(share(&[100, 10], 0), 0);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let chart = |n: usize| Chart::new("c".to_owned(), "x".repeat(n - 1));
        let shown = Shown {
            title: String::new(),
            main: vec![chart(10), chart(50)],
            tables: vec![html! { "0123456789" }],
            rest: vec![chart(10)],
            end: html! {},
            points_n: 1,
        };
        assert_eq!(shown.bytes(), 80);
        assert!(!shown.within(80).0.contains("Left out"));
        let small = shown.within(20).0;
        assert!(small.contains("keep this page small: 2 charts. "), "{small}");
        assert!(shown.within(10).0.contains("2 charts and 1 table"));
    }
}
