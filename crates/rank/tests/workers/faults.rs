//! Ranks that fail, die, or do not answer, and launchers that vanish.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdmalab_rank::process::{
    Cause, RANKS_MAX, RankSpec, TeamEvent, WorkerCommand, WorkerGroup, WorkerGroupError,
};
use rustix::process::Signal;

use crate::{LONG, is_alive, local, run_each, send_signal, wait_until};

#[test]
fn a_rank_that_fails_is_named_and_the_others_hand_in_what_they_have() {
    let mut workers = local(3);
    let error = run_each(&mut workers, &["partial", "fail no such queue", "partial"], LONG);
    let error = error.unwrap_err();
    assert_eq!((error.cause, error.rank), (Cause::Failed, Some(1)));
    assert!(error.what.starts_with("rank 1 on ") && error.what.ends_with("no such queue"));
    for other in [0, 2] {
        let partial = String::from_utf8(error.partial[other].clone().unwrap()).unwrap();
        assert!(partial.contains("Other(") && partial.contains("no such queue"), "{partial}");
    }
    assert_eq!(run_each(&mut workers, &["barrier"; 3], LONG).unwrap(), ["together"; 3]);
}

#[test]
fn a_panic_is_one_line_with_its_place() {
    let mut workers = local(2);
    let error = run_each(&mut workers, &["panic", "barrier"], LONG).unwrap_err();
    assert_eq!(error.rank, Some(0));
    assert!(error.what.contains("work.rs:") && error.what.ends_with("of purpose"), "{error}");
    let error = run_each(&mut workers, &["barrier", "thread panic"], LONG).unwrap_err();
    assert!(error.what.contains("thread 0 panicked") && error.what.ends_with("in a thread"));
}

#[test]
fn a_panic_that_nobody_waited_for_is_told() {
    let mut lines = Vec::new();
    let jobs = [b"lost panic".to_vec()];
    let results = local(1).run(&jobs, LONG, &AtomicBool::new(false), |event| {
        if let TeamEvent::Log { text, .. } = event {
            lines.push(text);
        }
    });
    assert_eq!(results.unwrap(), [b"went on"]);
    assert!(lines.len() == 1 && lines[0].ends_with("unnoticed"), "{lines:?}");
}

#[test]
fn a_killed_rank_ends_those_who_spin_and_those_who_wait() {
    for job in ["partial", "spin", "barrier"] {
        let mut workers = local(3);
        let victim = workers.infos().nth(1).unwrap().pid;
        let jobs: Vec<Vec<u8>> = [job, "spin", job].map(|j| j.as_bytes().to_vec()).into();
        let mut ticks = 0;
        let error = workers.run(&jobs, LONG, &AtomicBool::new(false), |event| {
            ticks += u64::from(event == TeamEvent::Tick);
            if ticks == 2 {
                ticks += 1;
                send_signal(victim, Signal::KILL);
            }
        });
        let error = error.unwrap_err();
        assert_eq!((error.cause, error.rank), (Cause::Died, Some(1)), "{job}: {error}");
        assert!(error.what.contains("signal 9 (SIGKILL"), "{error}");
        assert_eq!(error.partial[0].is_some(), job == "partial");
        let again = run_each(&mut workers, &["echo"; 3], LONG).unwrap_err();
        assert_eq!(again.cause, Cause::Died, "{again}");
    }
}

#[test]
fn a_death_is_taken_for_the_cause_of_a_failure_that_was_heard_first() {
    let jobs = ["fail no answer from the peer", "partial", "abort when told"];
    let error = run_each(&mut local(3), &jobs, LONG).unwrap_err();
    assert_eq!((error.cause, error.rank), (Cause::Died, Some(2)), "{error}");
    assert!(error.what.contains("SIGABRT") && error.what.contains("no answer"), "{error}");
    assert!(error.partial[1].is_some());
}

#[test]
fn how_a_rank_ended_is_told() {
    for (job, how) in [("exit 7", "ended with exit status 7"), ("abort", "signal 6 (SIGABRT)")] {
        let error = run_each(&mut local(2), &[job, "spin"], LONG).unwrap_err();
        assert!(error.what.contains(how), "{error}");
    }
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let mut workers = local(3);
    let jobs = ["barrier", "sleep", "barrier"];
    // Longer than ranks wait for a processor on a busy machine.
    let error = run_each(&mut workers, &jobs, Duration::from_millis(1500)).unwrap_err();
    assert!(error.what.contains("waited 3 s") && error.rank != Some(1), "{error}");
    assert!(error.what.contains("missing: rank 1"), "{error}");
    let error = run_each(&mut workers, &["barrier", "echo", "barrier"], LONG).unwrap_err();
    assert_eq!(error.rank, Some(1));
    assert!(error.what.contains("other ranks wait for it in an exchange"), "{error}");
}

#[test]
fn a_rank_that_waits_in_vain_says_so_before_it_is_missed() {
    // The other ranks are already in an exchange when this rank begins its wait.
    let jobs = ["barrier", "wait in vain", "barrier"];
    let error = run_each(&mut local(3), &jobs, Duration::from_secs(2)).unwrap_err();
    assert_eq!((error.cause, error.rank), (Cause::Failed, Some(1)), "{error}");
    assert!(error.what.contains("nothing arrived within 2 s"), "{error}");
}

#[test]
fn who_has_nothing_to_do_meets_those_who_take_long() {
    let patience = Duration::from_millis(300);
    let jobs = ["meet after 1000", "meet at leisure", "meet at leisure"];
    let met = run_each(&mut local(3), &jobs, patience).unwrap();
    assert_eq!(met, ["met", "met", "met"]);
    // A rank with nothing to do also learns that an expected rank has failed.
    let jobs = ["fail on the way", "meet at leisure", "meet at leisure"];
    let error = run_each(&mut local(3), &jobs, patience).unwrap_err();
    assert_eq!((error.cause, error.rank), (Cause::Failed, Some(0)), "{error}");
}

#[test]
fn a_rank_that_does_not_hear_is_ended() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let job = format!("deaf {}", file.path().display());
    let mut workers = local(2);
    let deaf = workers.infos().next().unwrap().pid;
    let jobs = [job.into_bytes(), b"partial".to_vec()];
    let interrupt = AtomicBool::new(false);
    let error = workers.run(&jobs, LONG, &interrupt, |_| {
        let begun = std::fs::metadata(file.path()).unwrap().len() > 0;
        interrupt.store(begun, Ordering::Relaxed);
    });
    let error = error.unwrap_err();
    assert_eq!((error.cause, error.rank), (Cause::Interrupted, Some(0)));
    assert!(error.what.contains("did not stop"), "{error}");
    assert_eq!(error.partial[1].as_deref(), Some(b"true Asked".as_slice()));
    assert!(!is_alive(deaf));
}

/// Three ranks are asked to stop while the second one is stopped by a signal; once the others wait
/// for it, it gets the signal `more`.
fn asked_beside_a_stopped_one(more: Option<Signal>) -> WorkerGroupError {
    let mut workers = local(3);
    let victim = workers.infos().nth(1).unwrap().pid;
    let jobs: Vec<Vec<u8>> =
        ["meet at the end", "spin", "meet at the end"].map(|j| j.as_bytes().to_vec()).into();
    let interrupt = AtomicBool::new(false);
    let mut ticks = 0;
    let found = workers.run(&jobs, LONG, &interrupt, |event| {
        ticks += u64::from(event == TeamEvent::Tick);
        match (ticks, more) {
            (2, _) => send_signal(victim, Signal::STOP),
            (4, _) => interrupt.store(true, Ordering::Relaxed),
            (10, Some(signal)) => send_signal(victim, signal),
            _ => {}
        }
    });
    found.unwrap_err()
}

#[test]
fn who_waits_for_a_rank_that_hangs_hands_in_what_it_has() {
    for (more, cause, says) in [
        (None, Cause::Interrupted, "did not stop within"),
        (Some(Signal::KILL), Cause::Died, "SIGKILL"),
    ] {
        let error = asked_beside_a_stopped_one(more);
        assert_eq!((error.cause, error.rank), (cause, Some(1)), "{error}");
        assert!(error.what.contains(says), "{error}");
        for waiting in [0, 2] {
            let partial = error.partial[waiting].clone().expect("what it has");
            let partial = String::from_utf8(partial).unwrap();
            assert!(partial.starts_with("Err(Asked): rank 1 on "), "{partial}");
            assert!(partial.contains(says), "{partial}");
        }
    }
}

#[test]
fn a_program_that_is_no_worker_is_named() {
    let worker = |program: &str| WorkerCommand {
        program: program.into(),
        args: Vec::new(),
        envs: Vec::new(),
    };
    let error = WorkerGroup::start(&[RankSpec::local(worker("/nonexistent/rdmalab"))]).unwrap_err();
    assert_eq!((error.cause, error.rank), (Cause::Start, Some(0)));
    assert!(error.what.contains("/nonexistent/rdmalab"), "{error}");
    let error = WorkerGroup::start(&[RankSpec::local(worker("/bin/false"))]).unwrap_err();
    assert!(error.what.contains("/bin/false") && error.what.contains("status 1"), "{error}");
    for count in [0, RANKS_MAX + 1] {
        let error =
            WorkerGroup::start(&vec![RankSpec::local(worker("/bin/false")); count]).unwrap_err();
        assert!(error.what.contains("1 to 256 ranks"), "{error}");
    }
}

#[test]
fn workers_end_with_their_team() {
    let workers = local(2);
    let pids: Vec<u32> = workers.infos().map(|i| i.pid).collect();
    assert!(pids.iter().all(|&p| is_alive(p)));
    drop(workers);
    wait_until("the workers' end", || !pids.iter().any(|&p| is_alive(p)));
}
