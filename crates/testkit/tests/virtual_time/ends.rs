//! How a simulation ends when something goes wrong: each rank gets a reason, and nothing hangs.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rdmalab_experiments::{Experiment, sweep};
use rdmalab_random::Random;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_sim::{Simulation, find};
use rdmalab_testing::{only_seed, seeds_each, skipped};
use tempfile::NamedTempFile;

use crate::lab::{Case, device_of, lab};

#[test]
fn a_rank_that_leaves_the_others_waiting_is_a_deadlock_with_names() {
    let (simulation, _) = lab(&find("ideal").unwrap(), 3);
    let (results, _) = simulation.run(|rank| match rank.index() {
        1 => Ok(()),
        _ => rank.barrier(),
    });
    assert_eq!(results[1], Ok(()));
    for rank in [0, 2] {
        let Err(Stopped::Other(why)) = &results[rank] else { panic!("{results:?}") };
        assert!(why.starts_with("deadlock: rank 0 waits for the other ranks"), "{why}");
        assert!(why.contains("rank 2 waits for the other ranks"), "{why}");
    }
}

#[test]
fn ranks_that_all_look_for_what_nobody_sends_are_a_deadlock_with_names() {
    let looks = "waits for a completion or a write to its memory";
    for ranks in [1, 2] {
        let (simulation, device) = lab(&find("ideal").unwrap(), ranks);
        let (results, report) = simulation.run(|rank| {
            if rank.index() == 0 {
                return rank.spin(|| None::<()>);
            }
            let context = device.open().unwrap();
            let cq = context.create_cq(1, None).unwrap();
            rank.spin(|| cq.poll_one().unwrap()).map(drop)
        });
        let each: Vec<String> = (0..ranks).map(|rank| format!("rank {rank} {looks}")).collect();
        let why = format!("deadlock: {}", each.join("; "));
        assert_eq!(results, vec![Err(Stopped::Other(why)); ranks]);
        // No rank waited for its whole patience.
        assert!(report.time.ns() < 1e9, "{report:?}");
    }
}

#[test]
fn limits_of_looks_and_sleeps_are_kept_and_a_deadlock_after_them_is_named() {
    let (simulation, device) = lab(&find("ideal").unwrap(), 3);
    let (results, report) = simulation.run(|rank| match rank.index() {
        0 => {
            // Its time-out is its own, though all others wait for ever.
            assert_eq!(rank.spin_for(5_000_000, || None::<()>), Ok(None));
            assert!(rank.now().0 >= 5_000_000_000);
            rank.spin_for(rank.patience_ns(), || None::<()>).map(drop)
        }
        1 => rank.barrier(),
        _ => {
            let channel = device.open().unwrap().create_channel().unwrap();
            // Longer than anybody has patience: nothing else comes before.
            let waited = channel.wait_ns(100_000_000_000).unwrap();
            assert!(waited.is_none());
            rank.barrier()
        }
    });
    // While rank 2 sleeps, it may do something afterwards: rank 0 loses its patience.
    assert!(report.time.ns() >= 60e9, "{report:?}");
    assert_eq!(results[0], Ok(()));
    let Err(Stopped::Other(why)) = &results[1] else { panic!("{results:?}") };
    let barrier = "waits for the other ranks, to exchange what they know";
    assert_eq!(*why, format!("deadlock: rank 1 {barrier}; rank 2 {barrier}"));
}

#[test]
fn a_rank_that_waited_for_too_long_tells_what_the_others_wait_for() {
    let (simulation, _) = lab(&find("ideal").unwrap(), 3);
    let (results, report) = simulation.run(|rank| match rank.index() {
        0 => rank.spin(|| None::<()>),
        1 => rank.barrier(),
        _ => rank.sleep(100_000_000_000),
    });
    assert!(report.time.ns() >= 60e9, "{report:?}");
    let Err(Stopped::TimedOut(why)) = &results[0] else { panic!("{results:?}") };
    let barrier = "waits for the other ranks, to exchange what they know";
    let waited = "rank 0 waited 60 virtual seconds, and nothing arrived";
    assert_eq!(*why, format!("{waited}; meanwhile rank 1 {barrier}"));
}

#[test]
fn a_failure_or_a_panic_of_one_rank_ends_the_others_and_names_it() {
    for panics in [false, true] {
        let (simulation, _) = lab(&find("ideal").unwrap(), 3);
        let (results, _) = simulation.run(|rank| {
            if rank.index() == 2 {
                rank.think(1000)?;
                assert!(!panics, "something broke");
                return Err::<(), _>(Stopped::Failed("it failed".to_owned()));
            }
            rank.exchange(&[])?;
            Ok(())
        });
        let Err(Stopped::Other(why)) = &results[0] else { panic!("{results:?}") };
        assert!(why.starts_with("rank 2: "), "{why}");
        let Err(Stopped::Failed(why)) = &results[2] else { panic!("{results:?}") };
        let expected = if panics { "rank 2 panicked: something broke" } else { "it failed" };
        assert_eq!(why, expected);
    }
}

#[test]
fn threads_of_a_rank_see_each_other_and_end_before_it_goes_on() {
    let (simulation, _) = lab(&find("ideal").unwrap(), 2);
    let (results, _) = simulation.run(|rank| {
        let turn = AtomicU64::new(0);
        let body = |mine: u64| {
            let turn = &turn;
            move || {
                for round in 0..10 {
                    let next = || (turn.load(Ordering::Relaxed) == 2 * round + mine).then_some(());
                    rank.spin(next).unwrap();
                    turn.fetch_add(1, Ordering::Relaxed);
                    rank.think(100).unwrap();
                }
                mine
            }
        };
        let bodies: Vec<Box<dyn FnOnce() -> u64 + Send + '_>> =
            vec![Box::new(body(0)), Box::new(body(1))];
        let got = rank.spawn(bodies)?;
        Ok((got, turn.into_inner()))
    });
    for result in results {
        assert_eq!(result, Ok((vec![0, 1], 20)));
    }
}

#[test]
fn a_thread_that_panics_is_an_error_of_its_rank() {
    let (simulation, _) = lab(&find("ideal").unwrap(), 1);
    let (results, _) = simulation.run(|rank| {
        let bodies: Vec<Box<dyn FnOnce() + Send + '_>> =
            vec![Box::new(|| panic!("wrong")), Box::new(|| rank.think(5000).unwrap())];
        rank.spawn(bodies).map(drop)
    });
    assert_eq!(results, [Err(Stopped::Failed("a thread panicked: wrong".to_owned()))]);
}

#[test]
fn asked_to_stop_before_it_begins_an_experiment_ends() {
    let asked = Arc::new(AtomicBool::new(true));
    let simulation = Simulation::new(&find("connectx4").unwrap(), 2, asked);
    let device = device_of(&simulation);
    let point = &sweep(Experiment::PING, &[MESSAGES]).unwrap()[0];
    let (results, _) = simulation.run(|rank| rdmalab_experiments::run(rank, &device, point));
    for result in &results {
        assert!(matches!(result, Ok(_) | Err(Stopped::Asked | Stopped::Other(_))), "{result:?}");
    }
}

/// How many moments to draw without `RDMALAB_SEEDS`. With it, one for this many of its seeds.
const SEEDS: u64 = 100;
const SEEDS_OF_ONE: u64 = 20;
/// One in this many runs is repeated on threads of the system, which are slow.
const ON_THREADS: u64 = 20;
const MESSAGES: (&str, &str) = ("messages", "60");
const WARM: (&str, &str) = ("warm-up", "4");
const ONCE: (&str, &str) = ("runs", "1");
const SHARED: (&str, &str) = ("share-qp", "yes");
const EVENT: (&str, &str) = ("poll", "event");

const ENDED: &[Case] = &[
    (Experiment::PING, 2, &[MESSAGES, WARM]),
    (Experiment::ONEWAY, 2, &[MESSAGES, WARM, ONCE, EVENT]),
    (Experiment::ONEWAY, 2, &[MESSAGES, WARM, ONCE, ("rate", "100000")]),
    (Experiment::BLAST, 2, &[MESSAGES, WARM, ONCE, ("size", "32")]),
    (Experiment::FAN, 4, &[MESSAGES, WARM]),
    (Experiment::RPC, 2, &[MESSAGES, WARM]),
    (Experiment::CONNECT, 2, &[]),
    (Experiment::PING, 2, &[MESSAGES, WARM, ("threads", "2")]),
    (Experiment::ONEWAY, 2, &[MESSAGES, WARM, ONCE, ("threads", "3"), SHARED, EVENT]),
];

/// The results of a case, as text, and the events; all ranks end after some events, for a reason.
fn ended((experiment, ranks, options): &Case, end: Option<(u64, Stopped)>, slow: bool) -> Ended {
    let (simulation, device) = lab(&find("connectx4").unwrap(), *ranks);
    let simulation = if slow { simulation.on_threads() } else { simulation };
    let simulation = match end.clone() {
        Some((events, why)) => simulation.ended_after(events, why),
        None => simulation,
    };
    let point = &sweep(*experiment, options).unwrap()[0];
    let (results, report) = simulation.run(|rank| rdmalab_experiments::run(rank, &device, point));
    for result in &results {
        let is_kept = match (result, &end) {
            (Ok(_), _) => true,
            (Err(Stopped::Asked), Some((_, Stopped::Asked))) => true,
            (Err(Stopped::Other(why)), Some((_, Stopped::Other(told)))) => why.contains(told),
            // The others learn that a rank was asked to stop.
            (Err(Stopped::Other(_)), Some((_, Stopped::Asked))) => true,
            _ => false,
        };
        assert!(is_kept, "{experiment} {options:?} {end:?}: {result:?}");
    }
    Ended { results: format!("{results:?}"), events: report.events }
}

#[derive(Debug, PartialEq, Eq)]
struct Ended {
    results: String,
    events: u64,
}

/// Ctrl-C and failure at any event: no rank hangs, and each ends for that reason, or keeps what it
/// measured. It is the same on any stack.
#[test]
fn every_experiment_ends_at_any_event() {
    let seeds = seeds_each(SEEDS, SEEDS_OF_ONE);
    let whole: Vec<Ended> = ENDED.iter().map(|case| ended(case, None, false)).collect();
    let mut cut = 0;
    for seed in seeds.clone() {
        let mut random = Random::new(seed);
        let index = random.below(ENDED.len() as u64) as usize;
        let events = random.between(1, whole[index].events);
        let why = match random.chance(500) {
            true => Stopped::Asked,
            false => Stopped::Other("something broke".to_owned()),
        };
        // What fails names the case and the event: they repeat it.
        let once = ended(&ENDED[index], Some((events, why.clone())), false);
        if seed.is_multiple_of(ON_THREADS) {
            let again = ended(&ENDED[index], Some((events, why)), true);
            assert_eq!(once, again, "seed {seed}");
        }
        cut += u64::from(once.results != whole[index].results);
    }
    // Those that end after their last measurement keep all of it.
    let seeds = seeds.end - seeds.start;
    assert!(only_seed().is_some() || cut > seeds / 2, "{cut} of {seeds} runs ended early");
}

/// Ends of each experiment on threads of the system: a memory checker does not understand
/// coroutines.
#[test]
#[ignore = "valgrind runs it: see memory_is_used_rightly_when_an_experiment_ends_at_any_event"]
fn each_experiment_ends_on_threads() {
    for (index, case) in ENDED.iter().enumerate() {
        let whole = ended(case, None, true);
        let events = Random::new(index as u64).between(1, whole.events);
        let why = match index % 2 {
            0 => Stopped::Asked,
            _ => Stopped::Other("something broke".to_owned()),
        };
        ended(case, Some((events, why)), true);
    }
}

/// Each simulation has a clock that is there for ever, since [`rdmalab_measure::Clock`] is a copy.
const CLOCK: &str = "{\nclock\nMemcheck:Leak\nfun:malloc\nfun:*Sim*new*\n}\n";

/// Under a memory checker: nothing reads or writes memory that was given back, or that nobody has
/// written, and nothing is left that nobody can free.
#[test]
fn memory_is_used_rightly_when_an_experiment_ends_at_any_event() {
    let test = "ends::each_experiment_ends_on_threads";
    let known = NamedTempFile::new().unwrap();
    std::fs::write(known.path(), CLOCK).unwrap();
    let begun = Command::new("valgrind")
        .arg(format!("--suppressions={}", known.path().display()))
        .args(["--quiet", "--error-exitcode=9", "--leak-check=full"])
        .args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test])
        .output();
    let Ok(output) = begun else { return skipped("virtual time under valgrind", "not installed") };
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).join("\n");
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
