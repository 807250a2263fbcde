//! A table of the records in a page, a text or a Markdown document. It comes first.

use maud::{Markup, html};
use rdmalab_record::Record;

use crate::grid::Grid;
use crate::markdown;
use crate::value::fmt_count;

/// The table; empty if there is only one record.
struct Contents {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Contents {
    fn of(records: &[Record]) -> Option<Self> {
        if records.len() < 2 {
            return None;
        }
        let mut heads =
            vec!["", "experiment", "condition", "device", "begun (UTC)", "points", "in"];
        let has_condition = records.iter().any(|record| record.header.condition.is_some());
        heads.retain(|head| *head != "condition" || has_condition);
        let row = |(i, record): (usize, &Record)| -> Vec<String> {
            heads.iter().map(|head| cell(head, i, record)).collect()
        };
        let rows = records.iter().enumerate().map(row).collect();
        Some(Self { heads: heads.into_iter().map(str::to_owned).collect(), rows })
    }
}

fn cell(head: &str, i: usize, record: &Record) -> String {
    let header = &record.header;
    match head {
        "" => (i + 1).to_string(),
        "experiment" => header.experiment.clone(),
        "condition" => header.condition.clone().unwrap_or_else(|| "-".to_owned()),
        "device" => format!("{} ({})", header.device.title(), header.device.kind),
        "begun (UTC)" => began(record),
        "points" => match record.unfinished_points() {
            0 => fmt_count(record.points.len() as u64),
            _ => format!("{} of {}", record.points.len(), header.planned_points),
        },
        _ => record.dir.display().to_string(),
    }
}

/// When a record was begun.
pub fn began(record: &Record) -> String {
    let began = record.header.started_utc.replace('T', " ");
    began.split('.').next().unwrap_or_default().trim_end_matches('Z').to_owned()
}

/// For a terminal; empty if there is only one record.
#[must_use]
pub fn contents_text(records: &[Record]) -> String {
    let Some(contents) = Contents::of(records) else { return String::new() };
    let mut grid = Grid::new(contents.heads, 2, 0);
    grid.set_words(&["experiment", "condition", "device", "in"]);
    contents.rows.into_iter().for_each(|row| grid.push(row));
    format!("{} records\n{}", records.len(), grid.text())
}

/// For Markdown, with a heading; empty if there is only one record.
#[must_use]
pub fn contents_markdown(records: &[Record]) -> String {
    let Some(contents) = Contents::of(records) else { return String::new() };
    let table = markdown::table(&contents.heads, contents.heads.len(), contents.rows.into_iter());
    format!("# {} records\n\n{table}", records.len())
}

/// For a page, with a link to each article; `id` gives their names.
pub fn contents_page(records: &[Record], id: impl Fn(usize) -> String) -> Markup {
    let contents = Contents::of(records);
    html! {
        @if let Some(contents) = contents {
            nav aria-label="Records" {
                div.scroll role="region" tabindex="0" aria-label="Records" {
                    table.words {
                        caption { "The records of this page" }
                        thead { tr {
                            @for head in &contents.heads { th scope="col" { (head) } }
                        } }
                        tbody { @for (i, row) in contents.rows.iter().enumerate() { tr {
                            @for (head, cell) in contents.heads.iter().zip(row) {
                                @if head == "experiment" {
                                    th scope="row" { a href={ "#" (id(i)) } { (cell) } }
                                } @else {
                                    td class=[(head == "in").then_some("long")] { (cell) }
                                }
                            }
                        } } }
                    }
                }
            }
        }
    }
}
