//! Waits of one rank for another. A busy machine does not make a wait end early, and a rank that
//! waits in vain says what it waited for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdmalab_rank::process::{RankSpec, TeamEvent, WorkerCommand, WorkerGroup};
use rdmalab_testkit::programs::again_while;
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{LONG, Underway, command, text};

fn workers(commands: impl IntoIterator<Item = WorkerCommand>) -> WorkerGroup {
    let spec = |command| RankSpec { yielding: Some(true), ..RankSpec::local(command) };
    WorkerGroup::start(&commands.into_iter().map(spec).collect::<Vec<_>>()).expect("workers")
}

fn jobs(workers: &WorkerGroup, job: &str) -> Vec<Vec<u8>> {
    vec![job.as_bytes().to_vec(); workers.infos().count()]
}

/// A receiver without a processor sends no credits. That is no sign of a loss: a sender that took
/// it for one would send more messages than there are receives.
#[test]
fn a_receiver_that_is_kept_waiting_loses_nothing() {
    let _turn = crate::turn();
    for options in ["op=send transport=uc", "op=send_imm transport=ud"] {
        // A receiver that yields may not yet have spun long enough when a short run ends; such a
        // run proves nothing, so the next run is twice as long.
        let mut messages = 7_500;
        let longer = || {
            messages *= 2;
            stops_the_receiver(options, messages)
        };
        let stopped = again_while("the run was over too soon", longer, |stopped| !stopped);
        assert!(stopped, "{options}: all runs were over too soon");
    }
}

/// Stops the receiver in the middle of a run. In that time more messages are due than its queue
/// holds, and none may be lost. Returns whether the run was long enough.
fn stops_the_receiver(options: &str, messages: u32) -> bool {
    let signal = |pid: u32, signal| {
        let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
        kill_process(pid, signal).expect("it runs");
    };
    let mut workers = workers([command(), command()]);
    let receiver = workers.infos().nth(1).expect("rank 1").pid;
    let job = format!("blast {options} messages={messages} runs=1 warm-up=0 rate=5000 size=32");
    let (mut ticks, jobs) = (0, jobs(&workers, &job));
    let mut underway = Underway::of(&workers, 1..2);
    let result = workers.run(&jobs, LONG, &AtomicBool::new(false), |event| {
        ticks = underway.after(&event);
        match ticks {
            1 => signal(receiver, Signal::STOP),
            9 => signal(receiver, Signal::CONT),
            _ => {}
        }
    });
    let found = text(&result.unwrap_or_else(|e| panic!("{options}: {e}"))[0]);
    for line in ["count lost 0\n", "count credit_given_up 0\n", "cut short: no\n"] {
        assert!(found.contains(line), "{options}: {found}");
    }
    ticks >= 9
}

/// Rank 0 reports the missing answers before rank 1 reports that rank 0 missed the exchange.
#[test]
fn who_gets_no_answer_any_more_says_so_before_it_is_missed() {
    let mut deaf = command();
    deaf.envs.push(("RDMALAB_FAULTS".into(), "drop of request".into()));
    let mut workers = workers([deaf, command()]);
    let job = "fan transport=uc messages=100000 runs=1 warm-up=0 lost-after=20ms";
    let jobs = jobs(&workers, job);
    let result = workers.run(&jobs, Duration::from_secs(5), &AtomicBool::new(false), |_| {});
    let error = result.expect_err("nothing is ever answered");
    assert_eq!(error.rank, Some(0), "{error}");
    assert!(error.what.contains("answers of rank 1 in a row did not come"), "{error}");
}

/// Of three ranks one reads, one is read from and one takes no part. The latter two must be able to
/// wait longer than the limit for a message.
#[test]
fn who_has_nothing_to_do_waits_for_as_long_as_the_others_take() {
    let patience = Duration::from_secs(2);
    let mut workers = workers([command(), command(), command()]);
    let interrupt = AtomicBool::new(false);
    // A job that takes minutes on any machine.
    let job = "fan op=read direction=out peers=1 size=262144 messages=10000000 runs=1 warm-up=0";
    let (mut ticks, jobs) = (0, jobs(&workers, job));
    let result = workers.run(&jobs, patience, &interrupt, |event| {
        ticks += u32::from(event == TeamEvent::Tick);
        // More than twice as long as an exchange may wait.
        interrupt.store(ticks >= 50, Ordering::Relaxed);
    });
    let found = text(&result.unwrap_or_else(|e| panic!("{e}"))[0]);
    assert!(found.contains("series round trip") && found.contains("interrupted"), "{found}");
}
