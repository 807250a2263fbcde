//! The tour's tables.

use rdmalab_measure::Quantity;
use rdmalab_measure::quantity::fmt_ns;

use super::limits::Bare;
use super::plan::Plan;
use super::{Conditions, Measured};
use crate::failure::Failure;
use crate::protocol::Summary;
use crate::table::{Rows, grouped, size};

/// Prints the results for people.
pub fn table(conditions: &Conditions, measured: &[Measured], bare: &[Bare], plan: &Plan) {
    head(conditions);
    if !measured.is_empty() {
        outln!("\nSEND, received by polling; times of {}\n", conditions.device);
        out!("{}", latencies(measured));
        outln!("\nSEND one way as fast as it goes, one request a post, one completion in 64\n");
        out!("{}", floods(measured));
    }
    foot(conditions, measured, plan);
    if !bare.is_empty() {
        outln!("\nBare limits of this machine, in the same run, with nothing of ours in the way\n");
        out!("{}", limits(bare));
    }
}

fn head(c: &Conditions) {
    outln!("{}, {}", c.device, what_kind(&c.kind, &c.device));
    outln!(
        "two processes on cores {} and {}; path MTU {} B; messages lie in {} memory, up to {} B \
         inline",
        c.cores[0],
        c.cores[1],
        c.mtu_bytes,
        c.memory,
        c.inline_bytes
    );
    outln!("clock: {}; {}", c.clock, c.stamp_cost);
    if c.one_cpu {
        outln!(
            "WARNING: one CPU for both processes: spinning yields, so these are the scheduler's \
             times"
        );
    }
}

/// What the numbers are, in words that cannot be misread.
fn what_kind(kind: &str, device: &str) -> String {
    match kind {
        "soft" => format!("a soft device: {device}'s numbers are this host's, not an adapter's"),
        "sim" => format!("a simulated device: {device}'s numbers are a model's"),
        _ => "a device of the system's libibverbs".to_owned(),
    }
}

fn latencies(measured: &[Measured]) -> String {
    let head = [
        "transport",
        "bytes",
        "quantity",
        "samples",
        "median",
        "p99",
        "p99.9",
        "p99.99",
        "max",
        "at",
    ];
    let mut rows = Rows::new(&head, 1);
    for m in measured {
        let both =
            [(Quantity::OneWay, &m.latency.one_way), (Quantity::RoundTrip, &m.latency.round_trip)];
        for (quantity, summary) in both {
            let Some(summary) = summary else { continue };
            rows.push(&latency_row(m, quantity.name(), summary, 1));
            if quantity == Quantity::RoundTrip {
                rows.push(&latency_row(m, Quantity::HalfRoundTrip.name(), summary, 2));
            }
        }
    }
    rows.text()
}

/// A row; times are divided by `by`.
fn latency_row(m: &Measured, quantity: &str, summary: &Summary, by: u64) -> Vec<String> {
    let ns = |ns: u64| fmt_ns(ns as f64 / by as f64);
    let or_dash = |q: Option<u64>| q.map_or_else(|| "-".to_owned(), ns);
    vec![
        m.point.transport.to_string(),
        size(m.point.bytes),
        quantity.to_owned(),
        grouped(summary.samples),
        ns(summary.median_ns),
        or_dash(summary.p99_ns),
        or_dash(summary.p99_9_ns),
        or_dash(summary.p99_99_ns),
        ns(summary.max_ns),
        format!("#{}", summary.max_index),
    ]
}

fn floods(measured: &[Measured]) -> String {
    let mut rows = Rows::new(&["transport", "bytes", "messages", "rate", "bandwidth", "lost"], 1);
    for m in measured {
        let Some(flood) = &m.flood else { continue };
        let rate = flood.rate_per_s();
        let text = |q: Quantity, v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| q.format(v));
        rows.push(&[
            m.point.transport.to_string(),
            size(m.point.bytes),
            grouped(flood.messages),
            text(Quantity::Rate, rate),
            text(Quantity::Bandwidth, rate.map(|r| r * m.point.bytes as f64)),
            grouped(flood.lost),
        ]);
    }
    rows.text()
}

fn foot(c: &Conditions, measured: &[Measured], plan: &Plan) {
    outln!();
    outln!(
        "one-way: from the stamp before the post to the stamp after the arrival at the other \
         process, by one clock{}.",
        match c.skew_ns {
            Some([low, high]) =>
                format!(" (the cores' counters are {low:.0} .. {high:.0} ns apart)"),
            None => " (how far the cores' counters are apart is not known)".to_owned(),
        }
    );
    outln!(
        "round trip: to the stamp after the answer's arrival, with the other process's stamp \
         within. at: index of the maximum."
    );
    outln!(
        "A quantile is shown where 10 samples or more lie beyond it (-: too few samples). Nothing \
         is trimmed."
    );
    let warm = measured.iter().filter_map(|m| m.latency.warm_up_max_ns).max();
    if let Some(slowest) = warm {
        outln!(
            "warm-up: {} round trips of each point, kept apart; the slowest took {}.",
            grouped(c.warm_up),
            fmt_ns(slowest as f64)
        );
    }
    outln!("Points were measured in an order drawn from seed {}.", plan.seed);
    for bytes in &plan.left_out {
        outln!("UD {}: left out, a datagram carries at most {} B.", size(*bytes), c.mtu_bytes);
    }
    let negative: u64 = measured
        .iter()
        .filter_map(|m| m.latency.one_way.as_ref())
        .map(|summary| summary.negative)
        .sum();
    if negative > 0 {
        outln!(
            "WARNING: {} one-way times were below 0 (counted as 0): the cores' clocks differ.",
            grouped(negative)
        );
    }
}

fn limits(bare: &[Bare]) -> String {
    let mut rows = Rows::new(&["limit", "quantity", "median", "least", "most", "runs"], 2);
    let mut missing = String::new();
    for limit in bare {
        match limit {
            Ok(s) => rows.push(&[
                s.name.clone(),
                s.quantity.name().to_owned(),
                s.quantity.format(s.median),
                s.quantity.format(s.min),
                s.quantity.format(s.max),
                s.runs.len().to_string(),
            ]),
            Err(reason) => missing += &format!("not measured here: {reason}\n"),
        }
    }
    rows.text() + &missing
}

/// Prints the results for programs.
pub fn json(
    conditions: &Conditions,
    measured: &[Measured],
    bare: &[Bare],
    failure: Option<&Failure>,
) {
    let limits: Vec<_> = bare
        .iter()
        .map(|limit| match limit {
            Ok(s) => serde_json::json!({
                "name": s.name, "quantity": s.quantity.field(), "median": s.median, "runs": s.runs,
            }),
            Err(reason) => serde_json::json!({ "unsupported": reason.to_string() }),
        })
        .collect();
    let value = serde_json::json!({
        "conditions": conditions,
        "points": measured,
        "limits": limits,
        "failure": failure.map(ToString::to_string),
    });
    outln!("{value:#}");
}
