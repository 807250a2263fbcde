//! What the tests of all crates share. `testkit` has what needs the product.

#![forbid(unsafe_code)]

mod built;
mod ports;
mod process;
mod seeds;
mod wait_limit;
mod watch;

use std::io::Write as _;
use std::thread;
use std::time::Duration;

pub use built::{example, find, library, rdmalab};
pub use ports::{free_port, listens};
pub use process::{Ended, LIMIT, Process};
pub use seeds::{only_seed, play_each, regressions, seeds, seeds_each, seeds_times};
pub use wait_limit::WaitLimit;
pub use watch::{Watch, too_busy};

/// The message of perftest when another program took its processor while perftest measured the
/// clock rate. Such a failure is not the fault of the tested code.
pub const PERFTEST_DISTURBED: &str = "Can't produce a report";
/// The most attempts of a run that a cause outside the tested code spoils.
pub const ATTEMPTS: u32 = 5;

/// When [`again_until`] gives up: after so many measurements, and not before that time.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The fewest measurements.
    pub attempts: u32,
    /// No further one begins after this time.
    pub time: Duration,
}

/// Measures until a measurement tells what it is for: `look` returns that, or what it found
/// instead. Repetitions are counted as those of [`again_while`]. Each may add to what was measured
/// before.
///
/// `None` if it told nothing until `budget` was over and the machine was too busy since `watch`
/// began. The test is then skipped.
///
/// # Panics
/// When it told nothing until then on a machine with free processors.
pub fn again_until<T, E: std::fmt::Display>(
    test: &str,
    watch: &Watch,
    budget: Budget,
    mut look: impl FnMut() -> Result<T, E>,
) -> Option<T> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let attempt = Watch::begin();
        let found = match look() {
            Ok(told) => return Some(told),
            Err(found) => found,
        };
        if attempts >= budget.attempts && watch.is_over(budget.time) {
            let reason = watch.too_busy();
            let reason = reason.unwrap_or_else(|| panic!("{test}, on a calm machine: {found}"));
            skipped(test, &reason);
            return None;
        }
        repeated("the measurement left it open", &attempt);
    }
}

/// Runs something, and repeats it while `why` gives a cause outside the tested code that spoiled
/// the run. The last of [`ATTEMPTS`] runs counts in any case. Each repetition prints `REPEATED
/// TEST: WHY`, with the kernel's counts of the meantime; `.ci/run` adds them up. A test that often
/// needs repetition is a defect.
pub fn again_while<T>(why: &str, mut run: impl FnMut() -> T, is_spoiled: impl Fn(&T) -> bool) -> T {
    for _ in 1..ATTEMPTS {
        let watch = Watch::begin();
        let found = run();
        if !is_spoiled(&found) {
            return found;
        }
        repeated(why, &watch);
    }
    run()
}

/// Runs cases that mostly wait beside each other, in threads that are named as the test's.
///
/// # Panics
/// When a case does.
pub fn beside_each_other<T: Send>(cases: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    let test = thread::current();
    let (test, run) = (test.name().unwrap_or("a test"), &run);
    thread::scope(|scope| {
        for case in cases {
            let thread = thread::Builder::new().name(test.to_owned());
            thread.spawn_scoped(scope, move || run(case)).expect("a thread");
        }
    });
}

/// Counts a repetition, with what was measured during the attempt before it.
fn repeated(why: &str, watch: &Watch) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    let machine = if watch.was_disturbed() { "busy" } else { "calm" };
    say(&format!("REPEATED {test}: {why} (the machine was {machine}: {watch})\n"));
}

/// Says that a test cannot run here, as `SKIPPED NAME: REASON`, which `.ci/run` collects. Such a
/// test counts as passed.
pub fn skipped(name: &str, reason: impl std::fmt::Display) {
    say(&format!("SKIPPED {name}: {reason}\n"));
}

/// Writes a line in one call, since other tests write at the same time. It bypasses the printing
/// macros, whose output the harness captures. Errors, such as a closed standard error, are ignored.
fn say(line: &str) {
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn cases_run_beside_each_other_and_one_that_fails_fails_all() {
        let all = Barrier::new(3);
        let run = |case| {
            all.wait();
            assert_ne!(case, 4, "this case fails");
            assert_eq!(thread::current().name(), Some("a test of ours"));
        };
        let test = thread::Builder::new().name("a test of ours".to_owned());
        thread::scope(|scope| {
            let test = test.spawn_scoped(scope, || {
                beside_each_other(0..3, run);
                catch_unwind(AssertUnwindSafe(|| beside_each_other(2..5, run))).is_err()
            });
            assert!(test.expect("a thread").join().expect("it ends"));
        });
    }
}
