//! `rdmalab advise`: which way of sending is best here, in plain words, with the evidence. It
//! measures what is needed, or reads what there is; both are answered by `rdmalab_advice`.

pub mod args;
mod fit;
mod measure;
mod parts;
mod probe;

use rdmalab_advice::{Advice, answers};
use rdmalab_experiments::{Experiment, sweep};
use rdmalab_record::Record;

use crate::failure::{Outcome, run as failed, usage};
use crate::report::below;
pub use args::AdviseArgs;

/// Measures or reads, and answers.
pub fn run(args: &AdviseArgs) -> Outcome {
    if args.records.is_empty() {
        return measure::run(args);
    }
    if let Some(option) = args.link.first() {
        return Err(usage(format!("{option}: nothing is measured where records are given")));
    }
    let sizes = sizes(args)?;
    let mut records = Vec::new();
    for dir in &args.records {
        records.extend(below(dir)?);
    }
    if let Some(sizes) = sizes {
        let is_asked = |size: Option<u64>| size.is_some_and(|size| sizes.contains(&size));
        for record in &mut records {
            record
                .points
                .retain(|p| is_asked(p.parameters.get("size_bytes").and_then(|v| v.as_u64())));
        }
    }
    let advice = answers(&records, &args.questions(), &args.goals(), args.sizes());
    show(args, &advice, &records);
    match advice.answers.is_empty() {
        true => Err(failed("nothing of what was asked can be answered from these records")),
        false => Ok(()),
    }
}

/// The sizes that were asked for.
fn sizes(args: &AdviseArgs) -> Outcome<Option<Vec<u64>>> {
    let Some(text) = &args.size else { return Ok(None) };
    let points = sweep(Experiment::Ping, &[("size", text)]).map_err(usage)?;
    Ok(Some(points.iter().map(|point| point.common.size_bytes).collect()))
}

fn show(args: &AdviseArgs, advice: &Advice, records: &[Record]) {
    match args.is_json() {
        true => out!("{}", rdmalab_advice::json(advice)),
        false => out!("{}", rdmalab_advice::text(advice, records)),
    }
}
