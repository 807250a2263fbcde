//! What the tests of all crates share. `testkit` has what needs the product.

#![forbid(unsafe_code)]

use std::io::Write as _;

/// Says that a test cannot run here, as `SKIPPED NAME: REASON`, which `.ci/run` collects. Such a
/// test counts as passed.
pub fn skipped(name: &str, reason: impl std::fmt::Display) {
    say(&format!("SKIPPED {name}: {reason}\n"));
}

/// Says that a test is repeated because of what disturbed it, as `REPEATED NAME: REASON`, which
/// `.ci/run` counts. A test that needs it often is a defect.
pub fn repeated(name: &str, reason: impl std::fmt::Display) {
    say(&format!("REPEATED {name}: {reason}\n"));
}

/// In one call, since other tests write at the same time. The harness swallows what the printing
/// macros say; whoever closed standard error does not want to know.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}
