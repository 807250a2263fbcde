//! `fan` between four processes on two cores: each transport and way, fairness, a rank that dies.

use std::sync::atomic::AtomicBool;

use rdmalab_experiments::{Experiment, Limits, check};
use rdmalab_measure::Outcome;
use rdmalab_rank::process::{Cause, RankSpec, TeamEvent, WorkerGroup};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{LONG, Underway, command, text};
use crate::two::{Table, at_both, device, measure, point};

const RANKS: usize = 4;

fn workers(ranks: usize) -> WorkerGroup {
    let spec = RankSpec { yielding: Some(true), ..RankSpec::local(command()) };
    WorkerGroup::start(&vec![spec; ranks]).expect("workers")
}

/// Runs `fan` and returns the result of rank 0.
fn found(workers: &mut WorkerGroup, options: &str) -> String {
    let job = format!("fan {options}").into_bytes();
    let jobs = vec![job; workers.infos().count()];
    let result = workers.run(&jobs, LONG, &AtomicBool::new(false), |_| {});
    text(&result.unwrap_or_else(|e| panic!("{options}: {e}"))[0])
}

fn count(found: &str, name: &str) -> u64 {
    let line = found.lines().find_map(|l| l.strip_prefix(&format!("count {name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {found}")).parse().expect("a number")
}

#[test]
fn each_way_to_do_it_goes_through_with_four_ranks_on_few_cores() {
    const SMALL: &str = "messages=40 runs=2 warm-up=5";
    let cases = "
        op=send
        op=send direction=out
        op=send direction=in
        op=send_imm
        op=write
        op=write direction=in
        op=write_imm direction=out
        op=read
        op=read direction=out
        op=read direction=in size=64K
        op=read to=group
        op=read to=group direction=in size=64K peers=2
        op=send transport=uc
        op=write transport=uc
        op=write_imm transport=uc direction=out
        op=send transport=ud
        op=send_imm transport=ud size=4096
        op=send transport=ud to=group
        op=send_imm transport=ud to=group direction=out
        op=send transport=ud to=group size=4096 direction=in
        peers=2
        peers=1 op=write
        size=100000 inline=off
        size=1
        memory=private op=write size=5000
        memory=private op=read size=5000
        rx-depth=2 tx-depth=4
        touch=no mtu=1024 sl=1 seed=7
        transport=uc lost-after=2s
    ";
    let mut workers = workers(RANKS);
    for case in cases.lines().map(str::trim).filter(|l| !l.is_empty()) {
        eprintln!("fan {case}");
        let found = found(&mut workers, &format!("{SMALL} {case}"));
        let peers = point(Experiment::FAN, case).get("peers").expect("an option of it");
        let peers = peers.parse().unwrap_or(RANKS - 1);
        assert_eq!(count(&found, "sent"), 85 * peers as u64, "{case}");
        assert!(found.ends_with("cut short: no\n"), "{case}: {found}");
        // UC and UD may lose messages on a busy machine, and then count them.
        let lost = count(&found, "lost");
        if !case.contains("transport") && !case.contains("group") {
            assert_eq!(lost, 0, "{case}");
        }
        assert!(lost <= 20, "{case}: {found}");
        if lost == 0 {
            for label in (1..=peers).map(|i| format!("peer {i}")).chain(["all peers".into()]) {
                assert!(found.contains(&format!("series round trip {label} 80\n")), "{found}");
            }
        }
        assert!(!found.contains(&format!("peer {}", peers + 1)), "{case}: {found}");
        for figure in ["time per message least T/n", "fairness (Jain)", "CPU others, mean"] {
            assert!(found.contains(&format!("figure {figure}")), "{case}: {found}");
        }
        let both_ways = case.contains("op=read") && !case.contains("direction");
        assert_eq!(found.contains("series round trip 1:n 80\n"), both_ways, "{case}: {found}");
    }
}

#[test]
fn sizes_come_in_series_or_at_random_and_each_has_its_times() {
    let mut workers = workers(3);
    for (order, op) in [("series", "send"), ("random", "write"), ("random", "read")] {
        let options = format!("messages=30 runs=1 warm-up=10 size=1000 sizes={order} op={op}");
        let found = found(&mut workers, &options);
        // Sizes 1, 2, 4 .. 512 and 1000.
        assert_eq!(count(&found, "sent"), (10 + 30 * 11) * 2, "{order}");
        let mut samples = 0;
        for size in (0..10).map(|i| 1 << i).chain([1000]) {
            let start = format!("series round trip all peers, {size} B ");
            let line = found.lines().find_map(|l| l.strip_prefix(&start));
            let line = line.unwrap_or_else(|| panic!("no {size} in {found}"));
            let n: u64 = line.parse().expect("a number");
            assert!(order == "random" || n == 30, "{size}: {n}");
            samples += n;
        }
        assert_eq!(samples, 330, "{order}");
        assert!(!found.contains("peer 1"), "{found}");
    }
}

#[test]
fn a_lost_message_ends_its_repetition_and_is_counted() {
    let _turn = crate::turn();
    let mut command = command();
    command.envs.push(("RDMALAB_FAULTS".into(), "seed=7; drop 5% of request".into()));
    let spec = RankSpec { yielding: Some(true), ..RankSpec::local(command) };
    let mut workers = WorkerGroup::start(&vec![spec; RANKS]).expect("workers");
    for options in [
        "transport=uc",
        "transport=uc op=write",
        "transport=uc op=write_imm direction=out",
        "transport=ud",
        "transport=ud op=send_imm to=group",
        "op=read to=group",
    ] {
        eprintln!("fan {options} with losses");
        // Ranks wait less than 150 ms for a processor, except on a very busy machine.
        let found =
            found(&mut workers, &format!("messages=60 warm-up=0 lost-after=150ms {options}"));
        let [sent, lost, out, cut] =
            ["sent", "lost", "lost_out", "repetitions_cut"].map(|name| count(&found, name));
        assert_eq!(sent, 180, "{options}");
        // 5 % of 360 messages are 18; a busy machine may lose some more.
        assert!((1..=90).contains(&lost) && cut >= 1 && cut <= lost, "{options}: {found}");
        assert!(out <= 180 && lost <= 3 * cut, "{options}: {found}");
        let whole = format!("series round trip all peers {}\n", 60 - cut);
        assert!(found.contains(&whole) && found.ends_with("cut short: no\n"), "{found}");
    }
}

/// The times recorded for a peer are those of that peer.
#[test]
fn a_peer_that_is_late_shows_in_its_time() {
    let _turn = crate::turn();
    let delay_ns = 2_000_000;
    let options = "messages=30 runs=1 warm-up=0";
    for more in ["op=send", "op=write", "op=read direction=in", "transport=ud direction=out"] {
        let point = point(Experiment::FAN, &format!("{options} {more}"));
        let table = Table { delay_ns, ..Table::default() };
        let [here, there] = at_both(&table, [&point, &point]);
        there.expect("rank 1 goes well");
        let late = sorted(&here.expect("rank 0 goes well"));
        let late = late[late.len() / 2];
        // A busy machine delays most of them even without the cause, but not all of them.
        let without = sorted(&measure(&point))[0];
        // A message that arrives during the delay of the one before gets only the rest of it.
        let half = delay_ns as f64 / 2.0;
        let ok = late >= half && without < half;
        assert!(ok, "{more}: {without} without, {late} with");
    }
}

fn sorted(outcome: &Outcome) -> Vec<f64> {
    let series = outcome.series.iter().find(|s| s.label == "peer 1").expect("peer 1");
    let mut samples: Vec<f64> = series.counted().collect();
    samples.sort_by(f64::total_cmp);
    samples
}

#[test]
fn a_rank_that_is_killed_ends_all_with_its_name() {
    let _turn = crate::turn();
    for (options, victim) in [
        ("op=send", 2),
        ("op=write", 3),
        ("op=read", 1),
        ("op=read to=group", 3),
        ("transport=ud to=group", 2),
        ("transport=uc", 0),
    ] {
        eprintln!("fan {options}, rank {victim} dies");
        let mut workers = workers(RANKS);
        let pid = workers.infos().nth(victim).expect("that rank").pid;
        let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
        let job = format!("fan messages=1000 runs=1000 warm-up=0 {options}").into_bytes();
        let mut underway = Underway::of(&workers, 0..RANKS);
        let result = workers.run(&vec![job; RANKS], LONG, &AtomicBool::new(false), |event| {
            if underway.after(&event) == 5 && event == TeamEvent::Tick {
                kill_process(pid, Signal::KILL).expect("it runs");
            }
        });
        let error = result.expect_err("a rank is gone");
        assert_eq!((error.cause, error.rank), (Cause::Died, Some(victim)), "{options}: {error}");
        assert!(error.to_string().contains(&format!("rank {victim} ")), "{error}");
        // The partial result of rank 0 is returned.
        if victim != 0 {
            let partial = error.partial[0].as_ref().map(|bytes| text(bytes)).unwrap_or_default();
            assert!(partial.contains("series round trip all peers"), "{options}: {partial}");
            assert!(partial.contains(&format!("cut short: rank {victim} ")), "{partial}");
        }
    }
}

#[test]
fn what_a_fan_cannot_be_is_said_before() {
    let context = device().open().expect("the soft device opens");
    let limits = Limits::query(&context, 1).expect("limits");
    for (options, start) in [
        ("to=group", "--to group: only UD sends to a multicast group, not rc: choose"),
        ("op=read to=group direction=out", "--to group: with --direction out no rank READs"),
        ("transport=ud op=write", "--op write"),
        ("transport=uc op=read", "--op read"),
        ("op=write_read", "--op write_read"),
        ("messages=1M peers=63 runs=2", "--messages"),
        ("transport=ud size=4097", "--size 4097"),
    ] {
        let said = check(&point(Experiment::FAN, options), &limits).expect_err(options).to_string();
        assert!(said.starts_with(start), "{options}: {said}");
    }
    let few = point(Experiment::FAN, "peers=4").check_ranks(4);
    let said = few.expect_err("too few ranks").to_string();
    assert!(said.starts_with("--peers 4: ") && said.ends_with("or 5 ranks"), "{said}");
}
