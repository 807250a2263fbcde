//! The conformance programs on our library: the outcomes that the book lists for it.

use std::path::PathBuf;
use std::time::Instant;

use rdmalab_testkit::conformance::{self, Row};
use rdmalab_testkit::programs;

use crate::case::{Case, LIMIT};

#[test]
fn our_device_has_the_outcomes_of_the_book() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(all) = conformance::compile_all(scratch.path()) else { return };
    let _turn = programs::turn();
    // Beside each other: the programs wait most of their time for time-outs.
    std::thread::scope(|scope| {
        for environment in ["", "RDMALAB_LANE=off", "RDMALAB_PERSONALITY=ethernet"] {
            let all = &all;
            scope.spawn(move || check(all, environment));
        }
    });
}

fn check(all: &[PathBuf], environment: &str) {
    let variables = Case::parse(&format!("{environment} program")).variables;
    let (mut printed, mut failures) = (String::new(), Vec::new());
    for program in all {
        let ended = programs::start(program, &[], &variables).end_by(Instant::now() + LIMIT);
        match ended.stdout.strip_suffix("all passed\n") {
            Some(outcomes) if ended.succeeded() => printed.push_str(outcomes),
            _ => failures.push(ended.report()),
        }
    }
    assert!(failures.is_empty(), "{environment}\n{}", failures.join("\n"));
    let ours = |row: &Row| (!row.is_wire()).then_some(row.ours);
    let differences = conformance::differences(&printed, ours);
    assert!(differences.is_empty(), "{environment}\n{}", differences.join("\n"));
}
