//! Points as lines of JSON. Written by hand, since the names of numbers depend on their unit
//! (`min_ns`), and since JSON has no NaN: NaN is written as `null`.

use std::collections::HashSet;

use rdmalab_measure::outcome::{Combination, Count, Fact, Figure};
use rdmalab_measure::stats::Interval;
use rdmalab_measure::summary::{Outlier, Quantile};
use rdmalab_measure::{Quantity, Summary};
use serde_json::{Value, json};

use crate::{Object, Point, Samples, SeriesSummary, Skipped, SourceFile};

/// The field that is missing or wrong.
type Wrong = String;

pub(crate) fn point_line(point: &Point) -> Value {
    let figures: Vec<Value> = point.figures.iter().map(figure).collect();
    let series: Vec<Value> = point.series.iter().map(series).collect();
    let counts = point.counts.iter().map(|c| (c.name.as_str(), Value::from(c.value)));
    let facts = point.facts.iter().map(|f| (f.name.as_str(), Value::from(f.value.as_str())));
    json!({
        "number": point.number,
        "order_index": point.order_index,
        "repetition": point.repetition,
        "parameters": point.parameters,
        "started_utc": point.started_utc,
        "elapsed_s": point.elapsed_s,
        "series": series,
        "figures": figures,
        "counts": object(counts),
        "facts": object(facts),
        "warnings": point.warnings,
        "cut_short": point.cut_short,
    })
}

pub(crate) fn skipped_line(skipped: &Skipped) -> Value {
    json!({
        "order_index": skipped.order_index,
        "repetition": skipped.repetition,
        "parameters": skipped.parameters,
        "reason": skipped.reason,
    })
}

/// Names become keys. If a name occurs twice, a number behind it keeps both values.
fn object<'a>(entries: impl Iterator<Item = (&'a str, Value)>) -> Object {
    let mut object = Object::new();
    for (name, value) in entries {
        let mut key = name.to_owned();
        let mut n = 1;
        while object.contains_key(&key) {
            n += 1;
            key = format!("{name}#{n}");
        }
        object.insert(key, value);
    }
    object
}

fn figure(figure: &Figure) -> Value {
    json!({
        "quantity": figure.quantity,
        "label": figure.label,
        figure.quantity.field(): figure.value,
    })
}

fn series(series: &SeriesSummary) -> Value {
    let unit = series.quantity.suffix();
    let summary = &series.summary;
    let quantiles: Vec<Value> = summary.quantiles.iter().map(|q| quantile(q, unit)).collect();
    let largest: Vec<Value> = summary.largest.iter().map(|one| outlier(one, unit)).collect();
    let (samples_file, samples_of) = match &series.samples {
        Samples::File(name) => (Some(name), None),
        Samples::Derived { how, parts } => (None, Some(samples_of(*how, parts))),
        Samples::Elsewhere => (None, None),
    };
    json!({
        "quantity": series.quantity,
        "label": series.label,
        "samples_file": samples_file,
        "samples_of": samples_of,
        "n": summary.n,
        "warm_up_n": summary.warm_up,
        "lost_n": summary.lost,
        "negative_n": summary.negative,
        format!("min_{unit}"): summary.min,
        format!("max_{unit}"): summary.max,
        "max_index": summary.max_index,
        format!("mean_{unit}"): summary.mean,
        format!("stdev_{unit}"): summary.stdev,
        "effective_n": summary.effective_n,
        "lag1_autocorrelation": summary.lag1_autocorrelation,
        "quantiles": quantiles,
        "largest": largest,
    })
}

fn samples_of(how: Combination, parts: &[SourceFile]) -> Value {
    let part =
        |part: &SourceFile| json!({ "samples_file": part.samples_file, "warm_up_n": part.warm_up });
    json!({ "how": how, "parts": parts.iter().map(part).collect::<Vec<Value>>() })
}

fn outlier(outlier: &Outlier, unit: &str) -> Value {
    json!({
        "index": outlier.index,
        format!("value_{unit}"): outlier.value,
        "unix_ns": outlier.unix_ns,
    })
}

fn quantile(quantile: &Quantile, unit: &str) -> Value {
    let interval = quantile.interval;
    json!({
        "q": quantile.q,
        format!("value_{unit}"): quantile.value,
        format!("low_{unit}"): interval.map(|i| i.low),
        format!("high_{unit}"): interval.map(|i| i.high),
        "confidence": interval.map(|i| i.confidence),
        "supported": quantile.supported,
    })
}

pub(crate) fn parse_point(line: &Value) -> Result<Point, Wrong> {
    let pairs = |name: &str| field(line, name)?.as_object().cloned().ok_or_else(|| not(name));
    let counts = pairs("counts")?
        .into_iter()
        .map(|(name, value)| Ok(Count { value: value.as_u64().ok_or_else(|| not(&name))?, name }));
    let facts = pairs("facts")?.into_iter().map(|(name, value)| {
        Ok(Fact { value: value.as_str().ok_or_else(|| not(&name))?.to_owned(), name })
    });
    let warnings = list(line, "warnings")?.iter();
    Ok(Point {
        number: whole(line, "number")?,
        order_index: whole(line, "order_index")?,
        repetition: repetition(line)?,
        parameters: pairs("parameters")?,
        started_utc: text(line, "started_utc")?,
        elapsed_s: number(line, "elapsed_s")?,
        series: list(line, "series")?.iter().map(parse_series).collect::<Result<_, Wrong>>()?,
        figures: list(line, "figures")?.iter().map(parse_figure).collect::<Result<_, Wrong>>()?,
        counts: counts.collect::<Result<_, Wrong>>()?,
        facts: facts.collect::<Result<_, Wrong>>()?,
        warnings: warnings.filter_map(|w| w.as_str().map(str::to_owned)).collect(),
        cut_short: field(line, "cut_short")?.as_str().map(str::to_owned),
    })
}

pub(crate) fn parse_skipped(line: &Value) -> Result<Skipped, Wrong> {
    let parameters = field(line, "parameters")?.as_object().cloned();
    Ok(Skipped {
        order_index: whole(line, "order_index")?,
        repetition: repetition(line)?,
        parameters: parameters.ok_or_else(|| not("parameters"))?,
        reason: text(line, "reason")?,
    })
}

fn parse_series(value: &Value) -> Result<SeriesSummary, Wrong> {
    let quantity = quantity(value)?;
    let unit = quantity.suffix();
    let with_unit = |name: &str| number(value, &format!("{name}_{unit}"));
    let quantiles = list(value, "quantiles")?.iter().map(|q| parse_quantile(q, unit));
    let summary = Summary {
        n: whole(value, "n")?,
        warm_up: whole(value, "warm_up_n")?,
        lost: whole(value, "lost_n")?,
        negative: whole(value, "negative_n")?,
        min: with_unit("min")?,
        max: with_unit("max")?,
        max_index: field(value, "max_index")?.as_u64(),
        mean: with_unit("mean")?,
        stdev: with_unit("stdev")?,
        // Records of version 1 have neither field.
        effective_n: value.get("effective_n").and_then(Value::as_f64),
        largest: match value.get("largest") {
            None => Vec::new(),
            Some(_) => list(value, "largest")?
                .iter()
                .map(|one| parse_outlier(one, unit))
                .collect::<Result<_, Wrong>>()?,
        },
        lag1_autocorrelation: field(value, "lag1_autocorrelation")?.as_f64(),
        quantiles: quantiles.collect::<Result<_, Wrong>>()?,
    };
    let samples = parse_samples(value)?;
    Ok(SeriesSummary { quantity, label: text(value, "label")?, samples, summary })
}

fn parse_samples(value: &Value) -> Result<Samples, Wrong> {
    // In records before version 4 each series has its own file.
    let of = match value.get("samples_of").filter(|of| !of.is_null()) {
        Some(of) => of,
        None if field(value, "samples_file")?.is_null() => return Ok(Samples::Elsewhere),
        None => return Ok(Samples::File(text(value, "samples_file")?)),
    };
    let how = serde_json::from_value(field(of, "how")?.clone()).map_err(|e| e.to_string())?;
    let part = |part: &Value| {
        let samples_file = text(part, "samples_file")?;
        Ok(SourceFile { samples_file, warm_up: whole(part, "warm_up_n")? })
    };
    let parts = list(of, "parts")?.iter().map(part).collect::<Result<Vec<SourceFile>, Wrong>>()?;
    // A file that is named many times could fill the memory.
    let names: HashSet<&str> = parts.iter().map(|part| &*part.samples_file).collect();
    if parts.is_empty() || parts.len() > names.len() {
        return Err(not("parts"));
    }
    Ok(Samples::Derived { how, parts })
}

fn parse_outlier(value: &Value, unit: &str) -> Result<Outlier, Wrong> {
    Ok(Outlier {
        index: whole(value, "index")?,
        value: number(value, &format!("value_{unit}"))?,
        unix_ns: field(value, "unix_ns")?.as_u64(),
    })
}

fn parse_quantile(value: &Value, unit: &str) -> Result<Quantile, Wrong> {
    let end = |name: &str| field(value, &format!("{name}_{unit}")).map(Value::as_f64);
    let confidence = field(value, "confidence")?.as_f64();
    let interval = match (end("low")?, end("high")?, confidence) {
        (Some(low), Some(high), Some(confidence)) => Some(Interval { low, high, confidence }),
        _ => None,
    };
    Ok(Quantile {
        q: number(value, "q")?,
        value: number(value, &format!("value_{unit}"))?,
        interval,
        supported: field(value, "supported")?.as_bool().ok_or_else(|| not("supported"))?,
    })
}

fn parse_figure(value: &Value) -> Result<Figure, Wrong> {
    let quantity = quantity(value)?;
    Ok(Figure { quantity, label: text(value, "label")?, value: number(value, quantity.field())? })
}

fn quantity(value: &Value) -> Result<Quantity, Wrong> {
    serde_json::from_value(field(value, "quantity")?.clone()).map_err(|e| e.to_string())
}

fn not(name: &str) -> Wrong {
    format!("`{name}` has the wrong type or value")
}

fn field<'a>(value: &'a Value, name: &str) -> Result<&'a Value, Wrong> {
    value.get(name).ok_or_else(|| format!("`{name}` is missing"))
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>, Wrong> {
    field(value, name)?.as_array().ok_or_else(|| not(name))
}

fn text(value: &Value, name: &str) -> Result<String, Wrong> {
    Ok(field(value, name)?.as_str().ok_or_else(|| not(name))?.to_owned())
}

fn whole(value: &Value, name: &str) -> Result<u64, Wrong> {
    field(value, name)?.as_u64().ok_or_else(|| not(name))
}

fn repetition(line: &Value) -> Result<u32, Wrong> {
    u32::try_from(whole(line, "repetition")?).map_err(|_| not("repetition"))
}

/// A number, or the NaN that `null` stands for.
fn number(value: &Value, name: &str) -> Result<f64, Wrong> {
    match field(value, name)? {
        Value::Null => Ok(f64::NAN),
        other => other.as_f64().ok_or_else(|| not(name)),
    }
}
