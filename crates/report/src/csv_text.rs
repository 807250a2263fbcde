//! CSV: one line for each series of each run, for spreadsheets and pandas.

use rdmalab_record::{Object, Point, Record, word};
use serde_json::Value;

use crate::json::{figure_name, series_fields};

/// The record as CSV (RFC 4180, lines end with a line feed). Columns: the run, its parameters,
/// figures, counts, facts and findings, then the series. Names carry units; a point without samples
/// has one line. A cell is empty if there is no value, or if the samples do not support it.
#[must_use]
pub fn csv(record: &Record) -> String {
    lines(&record.points.iter().flat_map(|p| rows(record, p)).collect::<Vec<Object>>())
}

/// Several records as one CSV: the directory of the record, then the columns of [`csv()`]. A column
/// that a record does not have is empty for it. For one record, the same as [`csv()`].
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

/// Rows as lines, below a line with the names of all columns.
pub fn lines(rows: &[Object]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(Object::keys) {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    if columns.is_empty() {
        return "\n".to_owned();
    }
    let row = |row: &Object| -> Vec<String> {
        columns.iter().map(|name| row.get(*name).map_or(String::new(), text)).collect()
    };
    let head = columns.iter().map(|name| (*name).to_owned()).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in std::iter::once(head).chain(rows.iter().map(row)) {
        writer.write_record(&record).expect("all rows have a cell for each column");
    }
    let bytes = writer.into_inner().expect("a vector takes whatever is written");
    String::from_utf8(bytes).expect("all cells are UTF-8")
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
    // A finding over several points is in the lines of each of them.
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
        value => word(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let row = json!({
            "plain": "plain text", "a,b": "a,b", "said": "say \"x\"\n", "none": null,
            "list": [1, 2], "number": 1.5,
        });
        let row = row.as_object().unwrap().clone();
        let short = json!({ "plain": " x " }).as_object().unwrap().clone();
        assert_eq!(
            lines(&[row, short]),
            "plain,\"a,b\",said,none,list,number\n\
             plain text,\"a,b\",\"say \"\"x\"\"\n\",,\"[1,2]\",1.5\n x ,,,,,\n"
        );
        assert_eq!(lines(&[]), "\n");
    }
}
