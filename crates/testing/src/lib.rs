//! What the tests of all crates share. `testkit` has what needs the product.

#![forbid(unsafe_code)]

mod built;
mod ports;
mod process;
mod watch;

use std::io::Write as _;

pub use built::{built, find};
pub use ports::{free_port, listens};
pub use process::{Ended, LIMIT, Process};
pub use watch::{Watch, too_busy};

/// What perftest says when somebody else took its processor while it measured that one's clock,
/// which says nothing about us.
pub const PERFTEST_DISTURBED: &str = "Can't produce a report";
/// Times that something runs at most which is spoiled by what says nothing about us.
pub const ATTEMPTS: u32 = 5;

/// Runs something, and again while it is spoiled by what says nothing about us: `why`. The last of
/// [`ATTEMPTS`] runs stands as it is. Each repetition is said as `REPEATED TEST: WHY`, with what
/// the kernel counted meanwhile; `.ci/run` sums them. A test that needs it often is a defect.
pub fn again_while<T>(why: &str, mut run: impl FnMut() -> T, is_spoiled: impl Fn(&T) -> bool) -> T {
    for _ in 1..ATTEMPTS {
        let watch = Watch::begin();
        let found = run();
        if !is_spoiled(&found) {
            return found;
        }
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        say(&format!("REPEATED {test}: {why} ({watch})\n"));
    }
    run()
}

/// Says that a test cannot run here, as `SKIPPED NAME: REASON`, which `.ci/run` collects. Such a
/// test counts as passed.
pub fn skipped(name: &str, reason: impl std::fmt::Display) {
    say(&format!("SKIPPED {name}: {reason}\n"));
}

/// In one call, since other tests write at the same time. The harness swallows what the printing
/// macros say; whoever closed standard error does not want to know.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}
