//! The table of `bench self`.

use rdmalab_measure::stats;

use super::result::{Conditions, RowResult, Verdict};
use super::rows::{Reference, Target};
use crate::table::Rows;

/// An interval that is wider than this share of its median gets a warning.
const WIDE: f64 = 0.10;

/// Prints the results for people.
pub fn table(conditions: &Conditions, results: &[RowResult]) {
    let c = conditions;
    let is_of_programs =
        |result: &RowResult| matches!(result.row.reference, Reference::Programs(_));
    let beside = match results.first().is_some_and(is_of_programs) {
        true => "UCX over shared memory",
        false => "the bare limits of this machine",
    };
    outln!("{} ({}) beside {beside}", c.device, c.kind);
    outln!(
        "cores {} and {}; {} rounds, ours and the limit in turns; load {} before, {} after; \
         clock: {}",
        c.cores[0],
        c.cores[1],
        c.rounds,
        number(c.load_before),
        number(c.load_after),
        c.clock
    );
    if let Some(us) = c.held_dma_latency_us {
        outln!("idle states that end within {us} us, by --hold-dma-latency");
    }
    if c.one_cpu {
        outln!(
            "WARNING: both ends share one core, so they yield instead of spinning: the budgets do \
             not apply"
        );
    }
    outln!();
    let mut rows =
        Rows::new(&["ours", "beside", "ours", "limit", "ratio", "95 % of it", "budget", ""], 2);
    for result in results {
        rows.push(&row(result));
    }
    out!("{}", rows.text());
    outln!(
        "\nratio: the median over rounds of ours over the limit, with its interval. A verdict \
         needs the whole interval on one side of the budget. RTT/2: half a round trip."
    );
    for result in results.iter().filter(|r| r.missing.is_some()) {
        outln!("{}: {}", result.row.name, result.missing.as_deref().unwrap_or(""));
    }
    let wide: Vec<&str> = results
        .iter()
        .filter(|r| r.spread().is_none_or(|s| s > WIDE) && r.missing.is_none())
        .map(|r| r.row.name)
        .collect();
    if !wide.is_empty() {
        outln!(
            "WARNING: wide intervals ({}): quiet the machine, choose cores (--cores), and repeat \
             (--rounds)",
            wide.join("; ")
        );
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "?".to_owned(), |v| format!("{v:.2}"))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    stats::sort(&mut sorted);
    stats::median(&sorted)
}

fn row(result: &RowResult) -> Vec<String> {
    let quantity = result.row.quantity();
    let value = |values: &[f64]| match values {
        [] => "-".to_owned(),
        values => quantity.format(median(values)),
    };
    let (ratio, interval) = match result.ratio.map(|r| r.ratio) {
        None => ("-".to_owned(), "-".to_owned()),
        Some(estimate) => (
            format!("{:.2}", estimate.value),
            estimate.interval.map_or_else(
                || "too few rounds".to_owned(),
                |i| format!("{:.2} .. {:.2}", i.low, i.high),
            ),
        ),
    };
    vec![
        result.row.name.to_owned(),
        result.limit_name.clone(),
        value(&result.ours),
        value(&result.limit),
        ratio,
        interval,
        match result.row.target {
            Target::AtMost(most) => format!("<= {most}"),
            Target::AtLeast(least) => format!(">= {least}"),
            Target::None => "-".to_owned(),
        },
        match result.verdict() {
            Some(Verdict::Holds) => "holds".to_owned(),
            Some(Verdict::Misses) => "MISSES".to_owned(),
            Some(Verdict::Unclear) => "unclear".to_owned(),
            None if result.missing.is_some() => "not measured".to_owned(),
            None => String::new(),
        },
    ]
}

/// Prints the results for programs. `is_soft`: the device is ours.
pub fn json(conditions: &Conditions, results: &[RowResult], is_soft: bool) {
    let rows: Vec<_> = results
        .iter()
        .map(|r| {
            let estimate = r.ratio.map(|p| p.ratio);
            let budget = match r.row.target {
                Target::AtMost(most) => serde_json::json!({ "at_most": most }),
                Target::AtLeast(least) => serde_json::json!({ "at_least": least }),
                Target::None => serde_json::json!({}),
            };
            serde_json::json!({
                "ours": r.row.name,
                "beside": r.limit_name,
                "memory": r.row.memory(is_soft).word(),
                "quantity": r.row.quantity().field(),
                "ours_runs": r.ours,
                "limit_runs": r.limit,
                "ratio": estimate.map(|e| e.value),
                "ratio_low": estimate.and_then(|e| e.interval).map(|i| i.low),
                "ratio_high": estimate.and_then(|e| e.interval).map(|i| i.high),
                "budget": budget,
                "verdict": r.verdict(),
                "missing": r.missing,
            })
        })
        .collect();
    outln!("{:#}", serde_json::json!({ "conditions": conditions, "rows": rows }));
}
