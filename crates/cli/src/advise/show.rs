//! Printing answers.

use rdmalab_advice::Advice;
use rdmalab_record::Record;

use super::args::AdviseArgs;

/// Prints the answers in the form that was asked for.
pub fn answers(args: &AdviseArgs, advice: &Advice, records: &[Record]) {
    match args.is_json() {
        true => out!("{}", rdmalab_advice::json(advice)),
        false => out!("{}", rdmalab_advice::text(advice, records)),
    }
}
