//! Finds the numbers that an operand names among the results of all sweeps.

use rdmalab_record::{DeviceKind, Record};

use crate::findings;
use crate::measurement::Measurement;
use crate::operand::{Operand, Range};
use crate::plan::Plan;
use crate::points;

/// A sweep of the plan and its results.
#[derive(Clone, Debug)]
pub struct SweepResult {
    /// The figure's key.
    pub figure: String,
    /// The sweep's name; may be empty.
    pub sweep: String,
    /// Its command, after `rdmalab run`.
    pub line: Vec<String>,
    /// The results of the sweep.
    pub state: SweepState,
}

/// The results of a sweep.
#[derive(Clone, Debug)]
pub enum SweepState {
    /// The record, possibly with fewer points than planned.
    Measured(Box<Record>),
    /// The sweep cannot be measured; with the reason.
    Missing(String),
    /// The user did not select the sweep.
    NotAsked,
}

/// The numbers that an operand names, or why there are none.
pub(crate) fn measurements(
    parts: &[SweepResult],
    operand: &Operand,
    range: Option<&Range>,
) -> Result<Vec<Measurement>, String> {
    let figure = operand.figure.as_deref().unwrap_or_default();
    let mut found: Vec<Measurement> = Vec::new();
    let mut why = None;
    for part in parts.iter().filter(|part| is_of(part, operand)) {
        match &part.state {
            SweepState::Measured(record) => {
                let (cells, why_not) = of_record(record, operand, range)?;
                found.extend(cells);
                if found.is_empty() {
                    let skipped = record.skipped.first().map(|s| s.reason.clone());
                    why = why_not.or(skipped).or(why);
                }
            }
            SweepState::Missing(reason) => why = Some(format!("figure {figure}: {reason}")),
            SweepState::NotAsked => {
                why.get_or_insert_with(|| format!("figure {figure} was left out of this run"));
            }
        }
    }
    if found.is_empty() {
        return Err(why.unwrap_or_else(|| no_such_point(figure)));
    }
    Ok(found)
}

/// The least value of the range's parameter at which the device could not measure the operand.
pub(crate) fn impossible_from(
    parts: &[SweepResult],
    operand: &Operand,
    range: Option<&Range>,
) -> Option<f64> {
    let records =
        parts.iter().filter(|part| is_of(part, operand)).filter_map(|part| match &part.state {
            SweepState::Measured(record) => Some(record),
            _ => None,
        });
    let skipped = records.flat_map(|record| &record.skipped);
    let meant = skipped.filter(|skipped| operand.matches(&skipped.parameters, range));
    let at = meant.filter_map(|s| s.parameters.get(&range?.parameter)?.as_f64());
    at.reduce(f64::min)
}

fn is_of(part: &SweepResult, operand: &Operand) -> bool {
    let figure = operand.figure.as_deref().unwrap_or_default();
    part.figure.eq_ignore_ascii_case(figure)
        && operand.sweep.as_ref().is_none_or(|name| *name == part.sweep)
}

fn no_such_point(figure: &str) -> String {
    format!("figure {figure} has no such point")
}

/// Adds the plan's note to the reason for missing numbers, if `--quick` leaves the points out.
pub(crate) fn with_note(plan: &Plan, operand: &Operand, why: String) -> String {
    let figure = operand.figure.as_deref().and_then(|key| Some((key, plan.figure(key)?)));
    match figure {
        Some((key, figure)) if !figure.quick_note.is_empty() && why == no_such_point(key) => {
            format!("{why} (with --quick: {})", figure.quick_note)
        }
        _ => why,
    }
}

/// The numbers of one record, and the reason why there are none, where that is known.
fn of_record(
    record: &Record,
    operand: &Operand,
    range: Option<&Range>,
) -> Result<(Vec<Measurement>, Option<String>), String> {
    if let Some(name) = &operand.finding {
        let cells = findings::of_record(record, operand, name, range);
        return Ok((cells, findings::why_not(record, operand, name)));
    }
    let Some(quantity) = operand.quantity() else {
        return Err("it does not name a quantity".to_owned());
    };
    Ok((points::of_points(record, operand, quantity, range), None))
}
/// Whether each repetition gives the same numbers: those of a model from which nothing is drawn. So
/// they need no interval.
pub(crate) fn repeats_exactly(parts: &[SweepResult]) -> bool {
    let mut records = parts.iter().filter_map(|part| match &part.state {
        SweepState::Measured(record) => Some(record),
        _ => None,
    });
    let is_drawn = |name: &str| name == "drawn" || name.starts_with("faults");
    records.all(|record| {
        let mut facts = record.points.iter().flat_map(|point| &point.facts);
        record.header.device.kind == DeviceKind::Sim && !facts.any(|fact| is_drawn(&fact.name))
    })
}
