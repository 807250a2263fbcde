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

use curve::{Curve, curves, varying_names};

/// The findings of a record; none if it has nothing to compare. Each kind of finding looks for the
/// quantities and labels that it needs, so what a record has follows from what was measured.
#[must_use]
pub fn find(record: &Record) -> Vec<Finding> {
    let names = varying_names(record);
    let along = |x: &str, find: fn(&Curve) -> Vec<Finding>| -> Vec<Finding> {
        curves(record, x, &names).iter().flat_map(find).collect()
    };
    let mut found = along("size_bytes", crossover::registering);
    found.extend(along("timeout", codes::effective));
    found.extend(along("rate_per_s", knee::knee));
    found.extend(pattern::all(record, &names));
    found
}

/// The record with its findings, which are computed if the record has none.
#[must_use]
pub fn with_findings(mut record: Record) -> Record {
    if record.findings.is_none() {
        record.findings = Some(find(&record));
    }
    record
}
