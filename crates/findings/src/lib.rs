//! What the points of a record show together: where one curve crosses another, the lowest time-out
//! code that takes effect, the load at which times rise, the period with which they repeat.
//!
//! [`find`] computes the findings of a record from its points and samples. A run stores them in its
//! record; [`with_findings`] adds them to older records that have none.
#![forbid(unsafe_code)]

mod codes;
mod crossover;
mod curve;
mod estimate;
mod knee;
mod pattern;
#[cfg(test)]
mod testing;

use rdmalab_record::{Finding, Record};

use curve::{Curve, curves};

/// The findings of a record; none if its experiment has nothing to compare.
#[must_use]
pub fn find(record: &Record) -> Vec<Finding> {
    let along = |x: &str, find: fn(&Curve) -> Vec<Finding>| -> Vec<Finding> {
        curves(record, x).iter().flat_map(find).collect()
    };
    match record.header.experiment.as_str() {
        "mr" => along("size_bytes", crossover::registering),
        "timeout" => along("timeout", codes::effective),
        "oneway" | "ping" | "blast" => along("rate_per_s", knee::knee),
        "recvq" => pattern::all(record),
        _ => Vec::new(),
    }
}

/// The record with its findings, which are computed if the record has none.
#[must_use]
pub fn with_findings(mut record: Record) -> Record {
    if record.findings.is_none() {
        record.findings = Some(find(&record));
    }
    record
}
