//! A comparison as one JSON document.

use rdmalab_measure::stats::Units;
use serde_json::{Value, json};

use super::comparison::{CONFIDENCE, Comparison, Row, SideSummary};

/// The version of the document's form; it rises when a field is changed or removed.
const FORMAT_VERSION: u32 = 2;

pub fn json(comparison: &Comparison) -> String {
    let sides = [0, 1].map(|i| {
        json!({
            "name": comparison.names[i],
            "description": comparison.descriptions[i],
            "points_alone": comparison.alone[i],
        })
    });
    let differing = comparison.differing.iter();
    let document = json!({
        "format": "rdmalab-compare",
        "format_version": FORMAT_VERSION,
        "a": sides[0],
        "b": sides[1],
        "quantile": comparison.options.quantile,
        "threshold": comparison.options.threshold,
        "confidence": CONFIDENCE,
        "correction": "Bonferroni",
        "comparisons": comparison.rows.len(),
        "regressions": comparison.regressions(),
        "differing": differing
            .map(|(name, a, b)| json!({ "name": name, "a": a, "b": b }))
            .collect::<Vec<_>>(),
        "matched_by": comparison.varying,
        "rows": comparison.rows.iter().map(row).collect::<Vec<_>>(),
        "warnings": comparison.cautions,
    });
    format!("{document:#}\n")
}

fn row(row: &Row) -> Value {
    let unit = row.quantity.suffix();
    let delta = row.dominance.map(|d| d.delta);
    let deciles = row.deciles.iter().enumerate().map(|(i, shift)| {
        let interval = shift.interval;
        json!({
            "q": (i + 1) as f64 / 10.0,
            format!("shift_{unit}"): shift.value,
            format!("low_{unit}"): interval.map(|i| i.low),
            format!("high_{unit}"): interval.map(|i| i.high),
        })
    });
    json!({
        "parameters": row.place,
        "quantity": row.quantity.field(),
        "label": row.label,
        "a": side(&row.a, unit),
        "b": side(&row.b, unit),
        "ratio": row.ratio,
        "rests_on": row.ratio.and_then(|r| r.interval).map(|_| basis(row)),
        "ratio_within_one_run": row.within.map(|i| json!({ "low": i.low, "high": i.high })),
        "p_value_corrected": row.p_value,
        "cliffs_delta": delta,
        "cliffs_delta_p_value": row.dominance.map(|d| d.p_value),
        "deciles": deciles.collect::<Vec<_>>(),
        "verdict": row.verdict.name(),
        "is_regression": row.is_regression,
        "obstacle": row.obstacle,
    })
}

/// The source of the ratio's interval.
fn basis(row: &Row) -> &'static str {
    if row.a.records.max(row.b.records) > 1 { "welch over records" } else { "welch over runs" }
}

fn side(known: &SideSummary, unit: &str) -> Value {
    let units = known.units.map(|units| match units {
        Units::Runs(n) => json!({ "kind": "runs", "n": n }),
        Units::Blocks(n) => json!({ "kind": "blocks", "n": n }),
    });
    json!({
        "records": known.records,
        "runs": known.runs,
        "n": known.n,
        "lost_n": known.lost,
        "effective_n": known.effective_n,
        "independent_units": units,
        "clock_error_ns": known.clock_error_ns,
        format!("value_{unit}"): known.value,
        format!("low_{unit}"): known.interval.map(|i| i.low),
        format!("high_{unit}"): known.interval.map(|i| i.high),
    })
}
