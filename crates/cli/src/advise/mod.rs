//! `rdmalab advise`: the best way of sending on a device, with the evidence. It measures what the
//! questions need, or reads records; `rdmalab_advice` computes the answers.

pub mod args;
mod fit;
mod measure;
mod parts;
mod probe;
mod show;

use rdmalab_advice::answers;
use rdmalab_experiments::{Experiment, sweep};
use rdmalab_measure::Method;

use crate::failure::{Outcome, run as failed, usage};
use crate::records::open_below;
pub use args::AdviseArgs;

/// Measures or reads records, and prints the answers.
pub fn run(args: &AdviseArgs) -> Outcome {
    if args.records.is_empty() {
        return measure::run(args);
    }
    if let Some(option) = args.link.first() {
        return Err(usage(format!(
            "{option}: this option applies to measurements only, and here the answers come from \
             records: leave it out"
        )));
    }
    let sizes = sizes(args)?;
    let mut records = Vec::new();
    for dir in &args.records {
        records.extend(open_below(dir)?);
    }
    if let Some(sizes) = sizes {
        let is_asked = |size: Option<u64>| size.is_some_and(|size| sizes.contains(&size));
        for record in &mut records {
            record
                .points
                .retain(|p| is_asked(p.parameters.get("size_bytes").and_then(|v| v.as_u64())));
        }
    }
    let advice =
        answers(&records, &parts::experiments(), &args.questions(), &args.goals(), args.sizes());
    show::answers(args, &advice, &records);
    match advice.answers.is_empty() {
        true => Err(failed("these records answer none of the questions")),
        false => Ok(()),
    }
}

/// The sizes from the command line.
fn sizes(args: &AdviseArgs) -> Outcome<Option<Vec<u64>>> {
    let Some(text) = &args.size else { return Ok(None) };
    let points =
        sweep(Experiment::of_method(Method::RoundTrips), &[("size", text)]).map_err(usage)?;
    Ok(Some(points.iter().map(|point| point.common.size_bytes).collect()))
}
