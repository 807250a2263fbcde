//! CSV: one line for each series of each run, for spreadsheets and pandas.

use rdmalab_measure::Quantity;
use rdmalab_record::{Object, Point, Record};
use serde_json::Value;

use crate::json::{figure_name, series_fields};

/// The record as CSV (RFC 4180, lines end with a line feed). Columns: the run, its parameters, its
/// figures, counts, facts and what it was found with others, then the series. Names carry units; a
/// point without samples has one line. Empty: not there, or not supported by the samples.
#[must_use]
pub fn csv(record: &Record) -> String {
    lines(&record.points.iter().flat_map(|p| rows(record, p)).collect::<Vec<Object>>())
}

/// Several records as one CSV, as readers take one table: the directory of the record, then what
/// [`csv()`] has of it. A column that a record does not have is empty there. Of one record, the
/// same as [`csv()`].
#[must_use]
pub fn csv_of(records: &[Record]) -> String {
    if let [record] = records {
        return csv(record);
    }
    let of = |record: &Record| -> Vec<Object> {
        let with_name = |row: Object| {
            let mut all = Object::new();
            all.insert("record".to_owned(), record.dir.display().to_string().into());
            all.extend(row);
            all
        };
        record.points.iter().flat_map(|p| rows(record, p)).map(with_name).collect()
    };
    lines(&records.iter().flat_map(of).collect::<Vec<Object>>())
}

/// Rows as lines below a head of all their names.
pub fn lines(rows: &[Object]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(Object::keys) {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let head = columns.iter().map(|c| quoted(c)).collect::<Vec<_>>().join(",");
    let line = |row: &Object| {
        let cells = columns.iter().map(|c| row.get(*c).map_or(String::new(), text));
        cells.collect::<Vec<_>>().join(",")
    };
    let lines: Vec<String> = std::iter::once(head).chain(rows.iter().map(line)).collect();
    lines.join("\n") + "\n"
}

/// The lines of a point.
pub fn rows(record: &Record, point: &Point) -> Vec<Object> {
    let mut common = Object::new();
    common.insert("experiment".to_owned(), record.header.experiment.as_str().into());
    common.insert("device".to_owned(), record.header.device.name.as_str().into());
    common.insert("device_kind".to_owned(), record.header.device.kind.name().into());
    if let Some(profile) = &record.header.device.profile {
        common.insert("device_profile".to_owned(), profile.as_str().into());
    }
    common.insert("point".to_owned(), point.number.into());
    common.insert("order_index".to_owned(), point.order_index.into());
    common.insert("repetition".to_owned(), point.repetition.into());
    common.insert("started_utc".to_owned(), point.started_utc.as_str().into());
    common.insert("elapsed_s".to_owned(), point.elapsed_s.into());
    if let Some(reason) = &point.cut_short {
        common.insert("cut_short".to_owned(), reason.as_str().into());
    }
    common.extend(point.parameters.clone());
    for figure in &point.figures {
        let name = figure_name(figure.quantity, &figure.label);
        common.insert(name, figure.value.into());
    }
    common.extend(point.counts.iter().map(|c| (format!("count.{}", c.name), c.value.into())));
    let facts = point.facts.iter();
    common.extend(facts.map(|f| (format!("fact.{}", f.name), f.value.as_str().into())));
    // What was found of several points stands at each of them.
    let findings = record.findings.iter().flatten();
    for finding in findings.filter(|finding| finding.points.contains(&point.number)) {
        let unit = &finding.unit;
        for (end, value) in [("", finding.value), (".low", finding.low), (".high", finding.high)] {
            let name = format!("finding.{}{end}_{unit}", finding.full_name());
            common.insert(name, value.into());
        }
    }
    if point.series.is_empty() {
        return vec![common];
    }
    let with = |series| {
        let mut row = common.clone();
        row.extend(series_fields(series));
        row
    };
    point.series.iter().map(with).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        Value::Array(_) | Value::Object(_) => quoted(&value.to_string()),
        plain => plain.to_string(),
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// The end of a name that says the unit.
pub fn unit_of_name(quantity: Quantity) -> &'static str {
    match quantity.unit() {
        "ns" => "ns",
        "1/s" => "per_s",
        "B/s" => "bytes_per_s",
        "messages" => "messages",
        _ => "share",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(quoted("plain text"), "plain text");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"x\"\n"), "\"say \"\"x\"\"\n\"");
        assert_eq!(text(&Value::Null), "");
        assert_eq!(text(&serde_json::json!([1, 2])), "\"[1,2]\"");
    }
}
