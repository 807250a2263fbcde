//! JSON: the record as one document, flatter than its files, for `jq` and scripts.

use rdmalab_measure::Quantity;
use rdmalab_measure::summary::QUANTILES;
use rdmalab_record::{Finding, Object, Point, Record, SeriesSummary};
use serde_json::{Value, json};

use crate::value::percentile;
use crate::warnings::warnings;

/// The version of the document's form; it rises when a field is changed or removed.
const FORMAT_VERSION: u32 = 1;

/// The record as one JSON document, indented, with a line feed at the end. Names carry units;
/// `null` is a missing number, or a percentile that the samples do not support.
#[must_use]
pub fn json(record: &Record) -> String {
    format!("{:#}\n", document(record))
}

/// The document.
pub fn document(record: &Record) -> Value {
    let header = &record.header;
    let points: Vec<Value> = record.points.iter().map(point).collect();
    let skipped = record.skipped.iter().map(|s| {
        json!({
            "order_index": s.order_index,
            "repetition": s.repetition,
            "parameters": s.parameters,
            "reason": s.reason,
        })
    });
    let findings = record.findings.as_deref().unwrap_or_default();
    let mut document = json!({
        "format": "rdmalab-report",
        "format_version": FORMAT_VERSION,
        "program_version": header.program_version,
        "experiment": header.experiment,
        "command": header.command,
        "device": header.device.name,
        "device_kind": header.device.kind.name(),
        "seed": header.seed,
        "started_utc": header.started_utc,
        "planned_points": header.planned_points,
        "points": points,
        "skipped": skipped.collect::<Vec<_>>(),
        "findings": findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
        "environment": record.environment,
        "warnings": warnings(record),
    });
    if let Some(profile) = &header.device.profile {
        document["device_profile"] = profile.as_str().into();
    }
    document
}

fn point(point: &Point) -> Value {
    let figures = point.figures.iter();
    let figures: Object =
        figures.map(|f| (figure_name(f.quantity, &f.label), f.value.into())).collect();
    let counts: Object = point.counts.iter().map(|c| (c.name.clone(), c.value.into())).collect();
    let facts: Object =
        point.facts.iter().map(|f| (f.name.clone(), f.value.as_str().into())).collect();
    let series: Vec<Object> = point.series.iter().map(series).collect();
    json!({
        "point": point.number,
        "order_index": point.order_index,
        "repetition": point.repetition,
        "parameters": point.parameters,
        "started_utc": point.started_utc,
        "elapsed_s": point.elapsed_s,
        "series": series,
        "figures": figures,
        "counts": counts,
        "facts": facts,
        "warnings": point.warnings,
        "cut_short": point.cut_short,
    })
}

/// A series with its largest samples, for which CSV has no column.
fn series(series: &SeriesSummary) -> Object {
    let unit = series.quantity.suffix();
    let largest = series.summary.largest.iter().map(|one| {
        json!({ "index": one.index, format!("value_{unit}"): one.value, "unix_ns": one.unix_ns })
    });
    let mut fields = series_fields(series);
    fields.insert("largest".to_owned(), largest.collect::<Vec<_>>().into());
    fields
}

/// The name of a figure with its label: `cpu_share[rank 0]`.
pub fn figure_name(quantity: Quantity, label: &str) -> String {
    match label {
        "" => quantity.field().to_owned(),
        label => format!("{}[{label}]", quantity.field()),
    }
}

/// A series as flat fields, with units in their names.
pub fn series_fields(series: &SeriesSummary) -> Object {
    let unit = series.quantity.suffix();
    let summary = &series.summary;
    let mut fields = Object::new();
    let mut put = |name: String, value: Value| {
        fields.insert(name, value);
    };
    put("quantity".to_owned(), series.quantity.field().into());
    put("label".to_owned(), series.label.as_str().into());
    put("n".to_owned(), summary.n.into());
    put("warm_up_n".to_owned(), summary.warm_up.into());
    put("lost_n".to_owned(), summary.lost.into());
    put("negative_n".to_owned(), summary.negative.into());
    put(format!("min_{unit}"), summary.min.into());
    put(format!("mean_{unit}"), summary.mean.into());
    put(format!("stdev_{unit}"), summary.stdev.into());
    let median = summary.quantile(0.5);
    let interval = median.and_then(|m| m.interval);
    put(format!("median_{unit}"), median.map(|m| m.value).into());
    put(format!("median_low_{unit}"), interval.map(|i| i.low).into());
    put(format!("median_high_{unit}"), interval.map(|i| i.high).into());
    put("median_confidence".to_owned(), interval.map(|i| i.confidence).into());
    for q in QUANTILES.into_iter().filter(|q| *q != 0.5) {
        let found = summary.quantile(q).filter(|v| v.supported);
        put(format!("{}_{unit}", percentile(q)), found.map(|v| v.value).into());
    }
    put(format!("max_{unit}"), summary.max.into());
    put("max_index".to_owned(), summary.max_index.into());
    put("effective_n".to_owned(), summary.effective_n.into());
    put("lag1_autocorrelation".to_owned(), summary.lag1_autocorrelation.into());
    fields
}
