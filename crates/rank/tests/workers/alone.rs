//! Jobs that single ranks do without the others.

use rdmalab_rank::process::{AloneEvent, WorkerGroup};

use crate::{LONG, local, run};

fn ended(workers: &mut WorkerGroup) -> (u64, Result<String, String>) {
    match workers.next_alone(LONG) {
        Some(AloneEvent::Ended { job, result }) => {
            (job, result.map(|bytes| String::from_utf8(bytes).unwrap()))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rank_does_several_jobs_at_a_time_until_it_is_asked_to_stop() {
    let mut workers = local(2);
    let long = workers.give(0, b"until asked".to_vec());
    let short = workers.give(0, b"a word".to_vec());
    assert_eq!(ended(&mut workers), (short, Ok("a word".to_owned())));
    let other = workers.give(1, b"another".to_vec());
    assert_eq!(ended(&mut workers), (other, Ok("another".to_owned())));
    // The last job that it was given has ended already.
    workers.ask_to_stop(0);
    assert_eq!(ended(&mut workers), (long, Ok("asked".to_owned())));
    let counts: Vec<u64> = workers.infos().map(|info| info.alone).collect();
    assert_eq!(counts, [2, 1]);
    // The next job is not asked to stop, and all ranks can work together again.
    let next = workers.give(0, b"until asked".to_vec());
    assert_eq!(workers.next_alone(std::time::Duration::from_millis(50)), None);
    workers.ask_to_stop(0);
    assert_eq!(ended(&mut workers), (next, Ok("asked".to_owned())));
    assert_eq!(run(&mut workers, "barrier", LONG).unwrap(), ["together"; 2]);
}

#[test]
fn a_job_that_fails_is_told_with_its_rank() {
    let mut workers = local(2);
    for (job, why) in [("fail", "of purpose"), ("panic", "alone")] {
        let number = workers.give(1, job.as_bytes().to_vec());
        let (job, result) = ended(&mut workers);
        let said = result.unwrap_err();
        assert!(job == number && said.starts_with("rank 1 on ") && said.ends_with(why), "{said}");
    }
}

#[test]
fn a_rank_that_dies_is_told_and_the_others_go_on() {
    let mut workers = local(2);
    let long = workers.give(0, b"until asked".to_vec());
    workers.give(1, b"abort".to_vec());
    match workers.next_alone(LONG) {
        Some(AloneEvent::Gone { rank: 1, what }) => {
            assert_eq!(Some(&what), workers.end_of(1).as_ref());
            assert!(what.starts_with("rank 1 on ") && what.contains("signal 6"), "{what}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(workers.end_of(0), None);
    workers.ask_to_stop(0);
    assert_eq!(ended(&mut workers), (long, Ok("asked".to_owned())));
    workers.cut_off(0, "too slow");
    assert!(workers.end_of(0).unwrap().ends_with("too slow"));
}
