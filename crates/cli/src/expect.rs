//! `--expect`: expectations that a record is held to.

use rdmalab_experiments::{Experiment, Point};
use rdmalab_record::Record;
use rdmalab_report::expect::{Checked, Expectation};

use crate::failure::{Outcome, run as failed, usage};

/// Refuses an expectation that the points cannot support, before anything is measured.
///
/// # Errors
/// How many samples it needs.
pub fn foresee(expectations: &[Expectation], points: &[Point], repeat: u32) -> Outcome {
    // Only of these there is a sample for each message.
    let has_one_each = |p: &&Point| matches!(p.experiment, Experiment::Ping | Experiment::Oneway);
    let points = points.iter().filter(has_one_each);
    let samples =
        points.map(|p| p.messages.saturating_mul(p.runs).saturating_mul(u64::from(repeat))).min();
    let Some(samples) = samples else { return Ok(()) };
    let mut of_samples = expectations.iter().filter(|one| one.is_of_samples());
    of_samples.try_for_each(|one| one.supported_by(samples).map_err(usage))
}

/// Holds a record to its expectations: a line to standard error for each point, and a failure when
/// one does not hold.
///
/// # Errors
/// When one does not hold, or cannot be answered from this record.
pub fn check(expectations: &[Expectation], record: &Record) -> Outcome {
    let each = expectations.iter().map(|one| one.check(record).map_err(usage));
    let all: Vec<Checked> = each.collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect();
    for one in &all {
        errln!("{}{}", if one.holds { "" } else { "EXPECTED " }, one.line);
    }
    match all.iter().filter(|one| !one.holds).count() {
        0 => Ok(()),
        n => Err(failed(format!("{n} of {} expectations do not hold", all.len()))),
    }
}
