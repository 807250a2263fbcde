//! A record as Markdown: tables for a wiki or an issue.

use rdmalab_record::{Finding, Record, shell_word};

use crate::chart::sentence;
use crate::model::{Model, device_line, group_name};
use crate::table::{message_rows, parameter_cells, parameter_heads, time_cells, time_heads};
use crate::value::{finding_value, heading, shown};
use crate::warnings::warnings;

/// The record: what was measured, a table for each quantity, skipped points, and warnings.
#[must_use]
pub fn markdown(record: &Record) -> String {
    let model = Model::of(record);
    let header = &record.header;
    let mut out =
        format!("## {} on {}\n\n", plain(&header.experiment), plain(&device_line(record)));
    let constant = model
        .constant
        .iter()
        .map(|(name, v)| format!("{} {}", heading(name), plain(&shown(name, v))));
    out += &format!("With {}.\n", constant.collect::<Vec<_>>().join(", "));
    let parameters = parameter_heads(&model);
    for group in model.groups() {
        out += &format!("\n### {}\n\n", plain(&sentence(&group_name(group.quantity, group.label))));
        let heads = [parameters.clone(), time_heads(&group)].concat();
        let rows = group.rows.iter().map(|(row, merged)| {
            [parameter_cells(&model, row), time_cells(&group, merged)].concat()
        });
        out += &table(&heads, parameters.len(), rows);
    }
    let figures = model.figures();
    if !figures.is_empty() {
        out += "\n### Rates and processor time\n\n";
        let names = figures.iter().map(|(q, label)| group_name(*q, label)).collect();
        let heads = [parameters.clone(), names].concat();
        let rows = model.rows.iter().map(|row| {
            let cells = figures.iter().map(|(quantity, label)| {
                row.figure(*quantity, label).map_or("-".to_owned(), |v| quantity.format(v))
            });
            parameter_cells(&model, row).into_iter().chain(cells).collect()
        });
        out += &table(&heads, parameters.len(), rows);
    }
    if let Some((heads, rows)) = message_rows(&model) {
        out += "\n### Messages\n\n";
        out += &table(&heads, parameters.len(), rows.into_iter());
    }
    if !model.findings.is_empty() {
        out += "\n### Found\n\n";
        let ends = |f: &Finding| [f.value, f.low, f.high].map(|v| finding_value(f, v));
        let rows = model.findings.iter().map(|f| {
            let [value, low, high] = ends(f);
            vec![f.full_name(), sentence(&f.sentence), value, low, high]
        });
        let heads = ["what", "in words", "value", "not less than", "not more than"];
        out += &table(&heads.map(str::to_owned), 2, rows);
    }
    let skipped = record
        .skipped
        .iter()
        .map(|s| format!("- skipped: {}: {}\n", plain(&model.skipped_place(s)), plain(&s.reason)));
    let said = warnings(record).into_iter().map(|w| format!("- warning: {}\n", plain(&w)));
    let notes: String = skipped.chain(said).collect();
    if !notes.is_empty() {
        out += &format!("\n{notes}");
    }
    let command: Vec<String> = header.command.iter().map(|word| shell_word(word)).collect();
    out + &block(&command.join(" "))
}

/// A code block of shell, between fences longer than any row of backticks in it.
fn block(text: &str) -> String {
    let rows = text.split(|c| c != '`').map(str::len);
    let fence = "`".repeat(rows.max().unwrap_or(0).max(2) + 1);
    format!("\n{fence}sh\n{text}\n{fence}\n")
}

/// A table; the first columns are texts.
pub fn table(heads: &[String], texts: usize, rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = heads.iter().enumerate();
    let rule = rule.map(|(i, _)| if i < texts { "---" } else { "--:" }).map(str::to_owned);
    let rule: Vec<String> = rule.collect();
    let rule = format!("|{}|\n", rule.join("|"));
    line(heads) + &rule + &rows.map(|row| line(&row)).collect::<String>()
}

/// Escapes text so that it is not read as a table, a tag or a block.
pub fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}
