//! `rdmalab gateway check`: what is wrong with a configuration.

use std::path::Path;

use clap::Args;
use rdmalab_config::{ConfigError, Notice, Value, fixed, parse, schema};
use rdmalab_gateway::{Gateway, Plan};
use rdmalab_measure::text::count_of;

use crate::failure::{Failure, Outcome, usage};

/// Check a configuration, without starting anything
///
/// Each error is a line `FILE:LINE:COLUMN: what; the right key` on standard error, and the exit
/// code is 2 then.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The configuration: libconfig, or JSON; - is standard input
    #[arg(value_name = "FILE", required_unless_present = "schema")]
    file: Option<String>,
    /// Print the file with its stale keys replaced, and all else as it is
    #[arg(long, conflicts_with = "schema")]
    fix: bool,
    /// Print the JSON schema of configurations
    #[arg(long, conflicts_with = "file")]
    schema: bool,
}

/// Checks, corrects, or describes.
pub fn run(args: &CheckArgs) -> Outcome {
    match &args.file {
        Some(file) if args.fix => fix(file),
        Some(file) => {
            let plan = plan(file)?;
            outln!("{file}: {}", plan.describe());
            Ok(())
        }
        None => {
            outln!("{:#}", schema::<Gateway>("rdmalab gateway"));
            Ok(())
        }
    }
}

/// The plan of a configuration. Errors, and the keys that have no effect, are told.
pub(super) fn plan(file: &str) -> Outcome<Plan> {
    let plan = load(file).and_then(|tree| checked(&tree)).map_err(|errors| told(file, &errors))?;
    if !plan.notices.is_empty() {
        errln!("{file}: no effect here: {}", list(&plan.notices));
    }
    Ok(plan)
}

fn load(file: &str) -> Result<Value, Vec<ConfigError>> {
    rdmalab_config::load(Path::new(file))
}

fn checked(tree: &Value) -> Result<Plan, Vec<ConfigError>> {
    Plan::check(tree)
}

fn list(notices: &[Notice]) -> String {
    let one = |notice: &Notice| {
        let (line, key, why) = (notice.at.line(), &notice.key, notice.why);
        format!("{key} (line {line}; {why})")
    };
    notices.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Prints the corrected file. What is still wrong with it is told.
fn fix(file: &str) -> Outcome {
    let tree = load(file).map_err(|errors| told(file, &errors))?;
    let errors = checked(&tree).err().unwrap_or_default();
    let text = fixed(tree.at.source(), &errors);
    out!("{text}");
    let again = parse(&tree.at.source().path, &text).and_then(|tree| checked(&tree));
    again.map(|_| ()).map_err(|errors| told(file, &errors))
}

/// Prints errors, and says how many there are.
pub(super) fn told(file: &str, errors: &[ConfigError]) -> Failure {
    for error in errors {
        errln!("{error}");
    }
    let stale = errors.iter().filter(|error| error.fix.is_some()).count();
    let hint = if stale > 0 { "; `check --fix` replaces the stale keys" } else { "" };
    usage(format!("{file} has {}{hint}", count_of(errors.len(), "error")))
}
