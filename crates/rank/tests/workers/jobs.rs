//! What ranks can do if nothing goes wrong.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdmalab_rank::process::{Cause, RankSpec, TeamEvent, WorkerGroup};

use crate::{LONG, command, local, run, run_each};

#[test]
fn each_rank_gets_its_own_job_many_times() {
    let mut workers = local(3);
    assert_eq!(run(&mut workers, "who", LONG).unwrap(), ["0 of 3", "1 of 3", "2 of 3"]);
    for i in 0..20 {
        let jobs = [format!("echo a{i}"), "echo".to_owned(), format!("echo c {i}")];
        let jobs = jobs.each_ref().map(String::as_str);
        let results = run_each(&mut workers, &jobs, LONG).unwrap();
        assert_eq!(results, [format!("a{i}"), String::new(), format!("c {i}")]);
    }
}

#[test]
fn exchanges_bring_the_bytes_of_all_in_order() {
    for count in [1, 2, 3] {
        let mut workers = local(count);
        let results = run(&mut workers, "exchange 200", LONG).unwrap();
        assert_eq!(results, vec!["all as expected"; count]);
    }
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let job = format!("barriers {}", file.path().display());
    assert_eq!(run(&mut local(3), &job, LONG).unwrap(), vec!["in step"; 3]);
}

#[test]
fn large_results_come_home() {
    let mut workers = local(2);
    let results = run_each(&mut workers, &["big 30000000", "big 1"], LONG).unwrap();
    assert_eq!((results[0].len(), results[1].len()), (30_000_000, 1));
}

#[test]
fn spinning_ends_with_its_patience() {
    let error = run(&mut local(1), "spin", Duration::from_millis(50)).unwrap_err();
    assert_eq!((error.cause, error.rank), (Cause::Failed, Some(0)));
    assert!(error.what.ends_with("nothing arrived within 0.05 s"), "{error}");
    assert_eq!(run(&mut local(1), "limited", LONG).unwrap(), ["None true Some(1000000)"]);
}

#[test]
fn thinking_and_sleeping_last_as_long_as_asked() {
    assert_eq!(run(&mut local(1), "think", LONG).unwrap(), ["true true"]);
}

#[test]
fn a_restamped_word_shows_time_moving() {
    for count in [1, 2, 3] {
        let results = run(&mut local(count), "restamp", LONG).unwrap();
        assert_eq!(results, vec!["true 0 true true"; count]);
    }
}

#[test]
fn processor_time_grows_with_work() {
    assert_eq!(run(&mut local(1), "cpu", LONG).unwrap(), ["true true"]);
}

#[test]
fn threads_of_a_rank_run_at_the_same_time() {
    assert_eq!(run(&mut local(1), "threads", LONG).unwrap(), ["[0, 10, 20]"]);
}

#[test]
fn ranks_of_one_machine_share_a_clock() {
    for result in run(&mut local(2), "clock", LONG).unwrap() {
        let errors: Vec<f64> = result.split(' ').map(|e| e.parse().unwrap()).collect();
        assert!(errors.contains(&0.0) && errors.iter().all(|e| *e < 1e5), "{errors:?}");
    }
}

#[test]
fn a_rank_stays_on_the_cpu_that_it_was_given() {
    let cores = rdmalab_measure::limits::available_cores().unwrap();
    let core = *cores.last().unwrap();
    let spec = RankSpec { cores: vec![core], ..RankSpec::local(command()) };
    let mut workers = WorkerGroup::start(&[spec]).unwrap();
    run(&mut workers, "think", LONG).unwrap();
    assert_eq!(workers.infos().next().unwrap().cpu, core);

    let spec = RankSpec { cores: vec![1023], ..RankSpec::local(command()) };
    let error = WorkerGroup::start(&[spec]).unwrap_err();
    assert_eq!(error.cause, Cause::Start);
    assert!(error.what.contains("CPU 1023") && error.what.contains("choose among"), "{error}");
}

#[test]
fn a_line_of_a_rank_reaches_the_user() {
    let mut lines = Vec::new();
    let mut note = |event| {
        if let TeamEvent::Log { rank, text } = event {
            lines.push((rank, text));
        }
    };
    let jobs = [b"log inline not granted".to_vec()];
    local(1).run(&jobs, LONG, &AtomicBool::new(false), &mut note).unwrap();
    assert_eq!(lines, [(0, "inline not granted".to_owned())]);
}

#[test]
fn an_interrupted_run_keeps_what_was_measured() {
    let mut workers = local(2);
    let interrupt = AtomicBool::new(false);
    let jobs = [b"partial".to_vec(), b"partial".to_vec()];
    let mut ticks = 0;
    let results = workers.run(&jobs, LONG, &interrupt, |event| {
        ticks += u64::from(event == TeamEvent::Tick);
        interrupt.store(ticks == 3, Ordering::Relaxed);
    });
    assert_eq!(results.unwrap(), [b"true Asked", b"true Asked"]);
    // The group still works.
    assert_eq!(run(&mut workers, "barrier", LONG).unwrap(), ["together", "together"]);
}

#[test]
fn interrupted_ranks_can_still_bring_together_what_they_have() {
    let jobs = vec![b"bring home".to_vec(); 2];
    let interrupt = AtomicBool::new(false);
    let results = local(2).run(&jobs, LONG, &interrupt, |event| {
        interrupt.store(event == TeamEvent::Tick, Ordering::Relaxed);
    });
    assert_eq!(results.unwrap(), vec![b"of 0, of 1".to_vec(); 2]);
}

#[test]
fn sleeping_and_waiting_ranks_hear_an_interrupt() {
    for job in ["sleep", "spin"] {
        let mut workers = local(2);
        let jobs = [job.into(), b"barrier".to_vec()];
        let error = workers.run(&jobs, LONG, &AtomicBool::new(true), |_| {}).unwrap_err();
        assert_eq!(error.cause, Cause::Interrupted, "{error}");
        assert_eq!(run(&mut workers, "echo on", LONG).unwrap(), ["on", "on"]);
    }
}
