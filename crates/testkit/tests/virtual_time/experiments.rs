//! Experiments, as they are, in virtual time: all of them run, and the same input gives the same
//! bytes.

use rdmalab_experiments::{Experiment, option, sweep};
use rdmalab_measure::Quantity;
use rdmalab_sim::{Bytes, Profile, SHIPPED, Simulation, find};

use crate::lab::{Case, lab, outcome, run_point_on};

const SHORT: (&str, &str) = ("messages", "200");
const FEW: (&str, &str) = ("messages", "60");
const WARM: (&str, &str) = ("warm-up", "4");
const ONCE: (&str, &str) = ("runs", "1");
const SHARED: (&str, &str) = ("share-qp", "yes");

const CASES: &[Case] = &[
    (Experiment::ONEWAY, 2, &[SHORT, ("runs", "2")]),
    (Experiment::ONEWAY, 2, &[SHORT, ("runs", "1"), ("transport", "uc"), ("poll", "event")]),
    (Experiment::ONEWAY, 2, &[SHORT, ("runs", "1"), ("transport", "ud"), ("stamps", "send,recv")]),
    (Experiment::ONEWAY, 2, &[SHORT, ("runs", "1"), ("rate", "100000")]),
    (Experiment::PING, 2, &[SHORT]),
    (Experiment::PING, 2, &[SHORT, ("op", "write"), ("size", "64K")]),
    (Experiment::PING, 2, &[SHORT, ("op", "read"), ("poll", "event")]),
    (Experiment::PING, 2, &[SHORT, ("threads", "2")]),
    (Experiment::PING, 2, &[FEW, WARM, ("threads", "2"), SHARED]),
    (Experiment::ONEWAY, 2, &[FEW, WARM, ONCE, ("threads", "3"), SHARED, ("poll", "event")]),
    (Experiment::BLAST, 2, &[FEW, WARM, ONCE, ("threads", "2"), SHARED, ("buffers", "16")]),
    (Experiment::PING, 2, &[SHORT, ("transport", "ud"), ("size", "2048")]),
    (Experiment::BLAST, 2, &[SHORT, ("size", "32")]),
    (Experiment::BLAST, 2, &[SHORT, ("size", "1M"), ("op", "write")]),
    (Experiment::BLAST, 2, &[SHORT, ("op", "read"), ("size", "4096")]),
    (Experiment::BLAST, 2, &[SHORT, ("transport", "uc"), ("list", "4"), ("size", "64")]),
    (Experiment::OVERHEAD, 2, &[SHORT]),
    (Experiment::MR, 2, &[("messages", "20")]),
    (Experiment::CONNECT, 2, &[]),
    (Experiment::TIMEOUT, 2, &[("messages", "3")]),
    (Experiment::ODP, 2, &[("fault", "none"), ("interval", "1us"), ("second-op", "send")]),
    (Experiment::RECVQ, 2, &[SHORT, ("queue", "srq"), ("rx-depth", "32")]),
    (Experiment::RPC, 2, &[SHORT]),
    (Experiment::RPC, 4, &[SHORT, ("call", "write")]),
    (Experiment::FAN, 5, &[SHORT]),
    (Experiment::FAN, 5, &[SHORT, ("op", "write")]),
    (Experiment::FAN, 5, &[SHORT, ("op", "read")]),
    (Experiment::FAN, 5, &[SHORT, ("op", "read"), ("to", "group")]),
    (Experiment::FAN, 5, &[SHORT, ("transport", "ud")]),
    (Experiment::FAN, 5, &[SHORT, ("transport", "ud"), ("to", "group")]),
];

/// The cases, with the default point of each experiment that has none.
pub fn cases() -> Vec<Case> {
    let has_none = |one: &Experiment| !CASES.iter().any(|(known, ..)| known == one);
    let plain = Experiment::all().filter(has_none).map(|one| (one, *one.ranks().start(), &[][..]));
    CASES.iter().copied().chain(plain).collect()
}

/// The results of all ranks, as bytes.
fn bytes(profile: &str, case: &Case) -> Vec<u8> {
    bytes_on(&find(profile).unwrap(), case, |simulation| simulation)
}

/// The results of all ranks, as bytes, in a simulation that differs from the usual one.
fn bytes_on(
    profile: &Profile,
    (experiment, ranks, options): &Case,
    change: impl FnOnce(Simulation) -> Simulation,
) -> Vec<u8> {
    let points = sweep(*experiment, options).unwrap();
    let results = run_point_on(profile, *ranks, &points[0], change);
    let all: Result<Vec<_>, _> = results.into_iter().collect();
    let all = all.unwrap_or_else(|why| panic!("{experiment} {options:?}: {why}"));
    postcard::to_stdvec(&all).unwrap()
}

#[test]
fn every_experiment_runs_on_every_profile_and_twice_the_same() {
    let cases = cases();
    for (profile, _) in SHIPPED {
        let once: Vec<Vec<u8>> = cases.iter().map(|case| bytes(profile, case)).collect();
        // Beside other simulations, on other threads, in another order.
        let again: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let run = |case| scope.spawn(move || bytes(profile, case));
            let threads: Vec<_> = cases.iter().rev().map(run).collect();
            threads.into_iter().rev().map(|thread| thread.join().unwrap()).collect()
        });
        for ((case, once), again) in cases.iter().zip(once).zip(again) {
            assert!(once == again, "{profile}: {} {:?} differs", case.0, case.2);
        }
    }
}

/// So one repetition stands for all, unless something is drawn; see `cli/simulated/repeats.rs`.
#[test]
fn repetitions_differ_only_in_arrivals_that_are_drawn() {
    let profile = find("connectx4").unwrap();
    for (experiment, ranks, options) in cases() {
        let first = sweep(experiment, options).unwrap().remove(0);
        let second = first.clone().repeated(1);
        let of = |point| format!("{:?}", run_point_on(&profile, ranks, point, |it| it));
        let is_drawn = first.common.rate_per_s > 0;
        assert_eq!(of(&first) != of(&second), is_drawn, "{experiment} {options:?}");
    }
}

#[test]
fn threads_of_the_system_in_place_of_coroutines_give_the_same_bytes() {
    let mut profile = find("connectx2").unwrap();
    for (name, value) in
        [("jitter_ns", 100.0), ("interrupts_per_s", 1000.0), ("interrupt_ns", 2000.0)]
    {
        profile.set(name, value).unwrap();
    }
    for case in &cases() {
        let coroutines = bytes_on(&profile, case, |simulation| simulation);
        let threads = bytes_on(&profile, case, Simulation::on_threads);
        assert!(coroutines == threads, "{} {:?} differs", case.0, case.2);
    }
}

/// What is sent arrives or is lost, whatever alternates or is repeated on the way.
#[test]
fn no_byte_appears_or_vanishes_on_links() {
    let mut lost = 0;
    // Threads that spin beside each other are simulated look by look, also through a time-out.
    let has_threads = |(_, _, options): &Case| options.iter().any(|(name, _)| *name == "threads");
    for rules in ["", "drop 1% of request"] {
        let all = cases().into_iter();
        let cases = all.filter(|case| rules.is_empty() || !has_threads(case));
        for (experiment, ranks, options) in cases {
            let point = &sweep(experiment, options).unwrap()[0];
            let (simulation, device) = lab(&find("connectx4").unwrap(), ranks);
            let simulation = match rules {
                "" => simulation,
                _ => simulation.with_faults(rules, 0).unwrap(),
            };
            let report = simulation.run(|rank| rdmalab_experiments::run(rank, &device, point)).1;
            let Bytes { sent, arrived, lost: gone } = report.bytes;
            let what = format!("{experiment} {options:?} with {rules:?}: {:?}", report.bytes);
            // Nobody waits for the last messages of an unreliable transport.
            let is_reliable = !options.iter().any(|(name, _)| *name == "transport");
            assert!(arrived + gone <= sent, "{what}");
            assert!(!is_reliable || arrived + gone == sent, "{what}");
            // Messages have a length, and go in packets.
            let sends = ["size", "mtu"].iter().all(|name| option(experiment, name).is_ok());
            assert!(sent > 0 || !sends, "{what}");
            assert!(!rules.is_empty() || gone == 0, "{what}");
            lost += gone;
        }
    }
    assert!(lost > 0);
}

/// Loops of experiments are words of a rank, which are simulated fast.
#[test]
fn no_experiment_makes_a_raw_loop() {
    const SLOW: &[Case] = &[
        (Experiment::ONEWAY, 2, &[FEW, WARM, ("rate", "500")]),
        (Experiment::ONEWAY, 2, &[FEW, WARM, ("rate", "500"), ("poll", "event")]),
        (Experiment::ONEWAY, 2, &[FEW, WARM, ("pause", "2ms")]),
        (Experiment::ONEWAY, 2, &[FEW, WARM, ("pause", "2ms"), ("burst", "4")]),
        (Experiment::PING, 2, &[FEW, WARM, ("rate", "500")]),
        (Experiment::PING, 2, &[FEW, WARM, ("pause", "2ms")]),
        (Experiment::BLAST, 2, &[FEW, WARM, ("rate", "500")]),
        (Experiment::BLAST, 2, &[FEW, WARM, ("rate", "500"), ("transport", "uc")]),
        (Experiment::RECVQ, 2, &[FEW, WARM, ("pause", "2ms")]),
        (Experiment::TIMEOUT, 2, &[("messages", "2"), ("timeout", "14")]),
        (Experiment::ODP, 2, &[("interval", "1ms")]),
    ];
    let profile = find("connectx4").unwrap();
    let mut found = Vec::new();
    for (experiment, ranks, options) in cases().into_iter().chain(SLOW.iter().copied()) {
        let point = &sweep(experiment, options).unwrap()[0];
        let (simulation, device) = lab(&profile, ranks);
        let (results, report) =
            simulation.run(|rank| rdmalab_experiments::run(rank, &device, point));
        assert!(results.iter().all(Result::is_ok), "{experiment} {options:?}: {results:?}");
        let named = |one| format!("{experiment} {options:?}: {one:?}");
        found.extend(report.raw_loops.iter().map(named));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_is_sent_arrives() {
    let profile = find("connectx4").unwrap();
    let options = [("messages", "5000"), ("runs", "1"), ("size", "32"), ("warm-up", "0")];
    let blast = outcome(&profile, 2, Experiment::BLAST, &options);
    assert_eq!(blast.count("sent"), blast.count("received"), "{:?}", blast.counts);
    let oneway = outcome(&profile, 2, Experiment::ONEWAY, &[SHORT, ("runs", "1")]);
    assert_eq!(oneway.count("lost").unwrap_or(0), 0, "{:?}", oneway.counts);
}

/// The last messages of a part, which are sent three times, do not use up the receives.
#[test]
fn a_fan_with_few_receives_loses_nothing() {
    let profile = find("ideal").unwrap();
    let few = [("rx-depth", "2"), ("warm-up", "10"), ("messages", "50")];
    for how in [[("op", "read"), ("to", "group")], [("transport", "ud"), ("to", "each")]] {
        let found = outcome(&profile, 3, Experiment::FAN, &[&how[..], &few].concat());
        let lost: usize = found
            .series
            .iter()
            .map(|series| series.samples.iter().filter(|sample| sample.is_nan()).count())
            .sum();
        assert_eq!((found.count("lost"), lost), (Some(0), 0), "{how:?}");
    }
}

/// Master and backups work one after the other on a write, and the master alone on a read.
#[test]
fn the_work_of_servers_is_added_to_a_call() {
    let profile = find("connectx4").unwrap();
    let median_ns = |ranks, call, work| {
        let options = [SHORT, ("call", call), ("work", work)];
        let found = outcome(&profile, ranks, Experiment::RPC, &options);
        let mut trips: Vec<f64> = found.series[0].counted().collect();
        trips.sort_by(f64::total_cmp);
        trips[trips.len() / 2]
    };
    for (ranks, call, servers) in
        [(2, "read", 1.0), (4, "read", 1.0), (2, "write", 1.0), (4, "write", 2.0)]
    {
        let more = median_ns(ranks, call, "10us") - median_ns(ranks, call, "0");
        let expected = servers * 10_000.0;
        assert!((more - expected).abs() < 100.0, "{ranks} ranks, {call}: {more} ns");
    }
}

#[test]
fn a_sleeping_rank_uses_no_processor() {
    let profile = find("connectx4").unwrap();
    let share = |poll| {
        let options = [("messages", "500"), ("poll", poll), ("pause", "100us")];
        let found = outcome(&profile, 2, Experiment::PING, &options);
        let share = |label: &str| {
            let of = |f: &&rdmalab_measure::outcome::Figure| {
                f.quantity == Quantity::CpuShare && f.label == label
            };
            found.figures.iter().find(of).unwrap().value
        };
        share("rank 1")
    };
    let (busy, event) = (share("busy"), share("event"));
    assert!(busy > 0.99 && event < 0.1, "busy {busy}, event {event}");
}
