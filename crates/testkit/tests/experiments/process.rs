//! Experiments between two real processes: this test program starts itself as the worker.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdmalab_experiments::{Experiment, option, run};
use rdmalab_measure::Outcome;
use rdmalab_rank::process::{
    Cause, ProcessRank, RankSpec, TeamEvent, WorkerCommand, WorkerGroup, WorkerGroupError,
};
use rdmalab_testkit::programs::library_dir;
use rustix::process::{Pid, Signal, kill_process};

use crate::two::{device, is_traffic, point, traffic};

/// An environment variable that marks worker processes.
const MARK: &str = "RDMALAB_TEST_EXPERIMENT_WORKER";
/// A limit that only a hang reaches.
pub const LONG: Duration = Duration::from_secs(60);

/// The worker process. It does nothing when run as a test.
#[test]
fn worker_process() {
    if std::env::var_os(MARK).is_some() {
        let stream = rdmalab_rank::process::connection().expect("a connection");
        rdmalab_rank::process::serve(stream, work).expect("a launcher");
        std::process::exit(0);
    }
}

/// Runs a job, which is an experiment and its options. The result has one line for each finding.
fn work(rank: &ProcessRank, job: &[u8]) -> Result<Vec<u8>, String> {
    let text = String::from_utf8_lossy(job);
    let (name, options) = text.split_once(' ').unwrap_or((&text, ""));
    let point = point(name.parse()?, options);
    let outcome = run(rank, &device(), &point).map_err(|e| e.to_string())?;
    Ok(describe(&outcome).into_bytes())
}

fn describe(outcome: &Outcome) -> String {
    let mut text = String::new();
    for series in &outcome.series {
        let counted = series.counted().count();
        text.push_str(&format!("series {} {} {counted}\n", series.quantity, series.label));
    }
    for figure in &outcome.figures {
        text.push_str(&format!("figure {} {}\n", figure.quantity, figure.label));
    }
    for count in &outcome.counts {
        text.push_str(&format!("count {} {}\n", count.name, count.value));
    }
    for warning in &outcome.warnings {
        text.push_str(&format!("warning {warning}\n"));
    }
    text.push_str(&format!("cut short: {}\n", outcome.cut_short.as_deref().unwrap_or("no")));
    text
}

/// The command that starts this program as a worker.
pub fn command() -> WorkerCommand {
    let args = ["--exact", "process::worker_process", "--nocapture", "--test-threads=1"];
    let mut command = WorkerCommand::this_program(args).expect("this program");
    command.envs.push((MARK.into(), "1".into()));
    // Build the library here, once. Otherwise each rank that needs the connection manager would run
    // cargo during its measurement.
    command.envs.push(("RDMALAB_LIBDIR".into(), library_dir().into()));
    command
}

/// Counts the ticks of a job from the time at which its ranks measure. Ranks spin while they
/// measure, so their processor time shows when that begins, even on a busy machine.
pub struct Underway {
    pids: Vec<u32>,
    ticks: u32,
}

impl Underway {
    /// More than a rank needs before it measures: less than 50 ms.
    const SETUP: Duration = Duration::from_millis(150);

    /// Watches those ranks of a new worker group that spin.
    pub fn of(workers: &WorkerGroup, ranks: std::ops::Range<usize>) -> Self {
        let pids = workers.infos().map(|info| info.pid).collect::<Vec<_>>();
        Self { pids: pids[ranks].to_vec(), ticks: 0 }
    }

    /// Counts an event, if it is a tick. Returns the ticks since the ranks began to measure.
    pub fn after(&mut self, event: &TeamEvent) -> u32 {
        let is_there = || self.pids.iter().all(|pid| processor_time(*pid) >= Self::SETUP);
        if *event == TeamEvent::Tick && (self.ticks > 0 || is_there()) {
            self.ticks += 1;
        }
        self.ticks
    }
}

/// Processor time of all threads of a process; zero if there is no such process.
fn processor_time(pid: u32) -> Duration {
    const TICKS_PER_S: u64 = 100; // Of the kernel's interface, whatever its clock does.
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let user_and_system = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = user_and_system.filter_map(|word| word.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_S)
}

fn workers() -> WorkerGroup {
    team_of(2)
}

fn team_of(ranks: usize) -> WorkerGroup {
    let spec = RankSpec { yielding: Some(true), ..RankSpec::local(command()) };
    WorkerGroup::start(&vec![spec; ranks]).expect("workers")
}

/// A job that takes longer than any of these tests waits.
fn endless(experiment: Experiment) -> String {
    let options = match experiment.name() {
        "blast" => "messages=1000 runs=1000000 warm-up=0 size=64",
        "mr" => "messages=1000 runs=10000 warm-up=0 size=64",
        "connect" => "qps=20 runs=1000000",
        "odp" => "fault=none runs=1000000",
        "timeout" => "messages=100000 timeout=12 retry-cnt=0",
        _ => return endless_by_its_options(experiment),
    };
    format!("{experiment} {options}")
}

/// The same, with those of the usual options that the experiment has.
fn endless_by_its_options(experiment: Experiment) -> String {
    let has = |name: &str| option(experiment, name).is_ok();
    let messages = if has("runs") { "1000" } else { "4000000" };
    let usual = [("messages", messages), ("runs", "4000"), ("warm-up", "0"), ("size", "64")];
    let own = usual.into_iter().filter(|(name, _)| has(name));
    let words: String = own.map(|(name, value)| format!(" {name}={value}")).collect();
    format!("{experiment}{words}")
}

/// Checks a few cases at a time, beside each other. Most of their time they wait.
fn a_few_at_a_time<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    const FEW: usize = 4;
    let cases = Mutex::new(cases.into_iter().collect::<Vec<T>>());
    let next = || cases.lock().expect("nobody panics with it").pop();
    std::thread::scope(|scope| {
        for _ in 0..FEW {
            scope.spawn(|| {
                while let Some(case) = next() {
                    check(case);
                }
            });
        }
    });
}

fn jobs(job: &str) -> Vec<Vec<u8>> {
    vec![job.as_bytes().to_vec(); 2]
}

/// A result as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a job and returns the result of rank 0.
fn found(workers: &mut WorkerGroup, job: &str) -> String {
    let result = workers.run(&jobs(job), LONG, &AtomicBool::new(false), |_| {});
    text(&result.unwrap_or_else(|e| panic!("{job}: {e}"))[0])
}

#[test]
fn each_experiment_runs_between_two_processes() {
    const SMALL: &str = "messages=400 runs=2 warm-up=30";
    let mut workers = workers();
    for options in [
        "",
        "op=write pause=0",
        "op=send transport=ud",
        "rate=20000 arrivals=constant",
        "poll=event pause=0",
        "stamps=send,recv,comp",
        "memory=private op=write_imm transport=uc size=5000",
    ] {
        let found = found(&mut workers, &format!("oneway {SMALL} {options}"));
        assert!(found.contains("series one-way t_lat ") && found.contains("count sent 830\n"));
        assert!(options.contains("transport") || found.contains("count lost 0\n"), "{found}");
        assert!(found.contains("figure CPU rank 1") && found.ends_with("cut short: no\n"));
    }
    for options in [
        "",
        "op=write",
        "op=read",
        "op=write_read unsignalled=read",
        "poll=event",
        "op=send_imm transport=ud",
        "memory=private op=write size=4096",
    ] {
        let found = found(&mut workers, &format!("ping {SMALL} {options}"));
        assert!(found.contains("count sent 830\n") && found.ends_with("cut short: no\n"));
        let lossless = found.contains("series round trip  800\n");
        assert!(options.contains("transport") || lossless, "{options}: {found}");
    }
    for options in [
        "",
        "op=write list=all size=64",
        "op=read poll=event",
        "op=write_imm qps=3",
        "op=send_imm transport=ud size=64",
        "op=send signal-every=max size=16 list=16",
    ] {
        let found = found(&mut workers, &format!("blast {SMALL} {options}"));
        assert!(found.contains("count sent 800\n") && found.contains("figure rate"), "{found}");
        assert!(found.ends_with("cut short: no\n"), "{options}: {found}");
    }
}

#[test]
fn threads_run_between_two_processes_and_end_together() {
    let mut workers = workers();
    let job = "blast messages=400 runs=2 warm-up=30 size=64 threads=3";
    let found = found(&mut workers, job);
    assert!(found.contains("count sent 2400\n") && found.contains("figure rate thread 2\n"));
    assert!(found.ends_with("cut short: no\n"), "{found}");
    let _turn = crate::turn();
    for experiment in traffic() {
        let error = hit(experiment, "threads=2", Signal::KILL, LONG);
        let kept = text(error.partial[0].as_deref().unwrap_or_default());
        assert!(kept.contains("SIGKILL") && kept.contains("thread 1"), "{experiment}: {kept}");
    }
}

#[test]
fn calls_go_to_a_master_and_all_its_backups() {
    for (ranks, options) in [
        (2, "call=read"),
        (2, "call=read size=100000 max-sge=8"),
        (4, "call=read size=1000 rx-depth=2"),
        (2, "call=write"),
        (3, "call=write size=1000 work=20us"),
        (5, "call=write size=100000 rx-depth=8"),
    ] {
        let job = format!("rpc messages=60 runs=2 warm-up=5 {options}");
        let jobs = vec![job.as_bytes().to_vec(); ranks];
        let result = team_of(ranks).run(&jobs, LONG, &AtomicBool::new(false), |_| {});
        let all = result.unwrap_or_else(|e| panic!("{ranks} {options}: {e}"));
        let found = text(&all[0]);
        assert!(found.contains("series round trip  120\n"), "{ranks} {options}: {found}");
        assert!(found.contains("figure bandwidth") && found.ends_with("cut short: no\n"));
        let last = text(&all[ranks - 1]);
        assert!(last.contains(&format!("figure CPU rank {}", ranks - 1)), "{last}");
    }
}

#[test]
fn an_interrupted_team_brings_home_what_both_ends_have() {
    let _turn = crate::turn();
    a_few_at_a_time(Experiment::all(), |experiment| {
        let job = endless(experiment);
        let interrupt = AtomicBool::new(false);
        let mut workers = workers();
        let mut underway = Underway::of(&workers, spinning(experiment));
        let result = workers.run(&jobs(&job), LONG, &interrupt, |event| {
            interrupt.store(underway.after(&event) >= 5, Ordering::Relaxed);
        });
        let found = text(&result.unwrap_or_else(|e| panic!("{experiment}: {e}"))[0]);
        assert!(found.ends_with("cut short: interrupted\n"), "{experiment}: {found}");
        if is_traffic(experiment) {
            assert!(found.contains("figure CPU rank 1"), "{experiment}: {found}");
        }
        assert!(found.contains("series "), "{experiment}: {found}");
        if experiment == Experiment::ONEWAY {
            assert!(found.contains("series one-way t_lat "), "{found}");
        }
    });
}

#[test]
fn a_long_wait_keeps_the_other_end_patient() {
    let _turn = crate::turn();
    // Many samples that take longer than the patience together, and one that does so by itself.
    let cases = [("timeout=18 retry-cnt=0", 10), ("timeout=20", 1)];
    a_few_at_a_time(cases, |(options, samples)| {
        let job = format!("timeout messages={samples} {options}");
        // Less than 10.7 s, and less than the 8.6 s of two time-outs, but longer than a busy
        // machine keeps a rank from its processor.
        let patience = Duration::from_secs(5);
        let result = workers().run(&jobs(&job), patience, &AtomicBool::new(false), |_| {});
        let found = text(&result.unwrap_or_else(|e| panic!("{options}: {e}"))[0]);
        assert!(found.contains(&format!("series time-out T_o {samples}\n")), "{found}");
        assert!(found.ends_with("cut short: no\n"), "{found}");
    });
}

/// The ranks that spin while they measure.
fn spinning(experiment: Experiment) -> std::ops::Range<usize> {
    if is_traffic(experiment) { 0..2 } else { 0..1 }
}

/// Sends `signal` to rank 1 while an endless job runs.
fn hit(
    experiment: Experiment,
    options: &str,
    signal: Signal,
    patience: Duration,
) -> WorkerGroupError {
    let mut workers = workers();
    let victim = workers.infos().nth(1).expect("rank 1").pid;
    let mut underway = Underway::of(&workers, spinning(experiment));
    let job = format!("{} {options}", endless(experiment));
    let error = workers.run(&jobs(&job), patience, &AtomicBool::new(false), |event| {
        if underway.after(&event) == 5 && event == TeamEvent::Tick {
            let pid = Pid::from_raw(victim as i32).expect("a process");
            kill_process(pid, signal).expect("rank 1 is there");
        }
    });
    error.expect_err("a workers that was hit fails")
}

#[test]
fn who_loses_its_other_end_keeps_what_was_measured() {
    let _turn = crate::turn();
    // In `mr` rank 1 has nothing to do and ends at once.
    let experiments = Experiment::all().filter(|e| *e != Experiment::MR);
    a_few_at_a_time(experiments, |experiment| {
        let error = hit(experiment, "", Signal::KILL, LONG);
        assert_eq!((error.cause, error.rank), (Cause::Died, Some(1)), "{error}");
        assert!(error.what.contains("SIGKILL"), "{error}");
        let kept = text(error.partial[0].as_deref().unwrap_or_default());
        assert!(kept.contains("cut short: ") && kept.contains("SIGKILL"), "{experiment}: {kept}");
        assert!(kept.contains("series "), "{experiment}: {kept}");
    });
}

#[test]
fn a_stopped_other_end_is_no_hang() {
    let _turn = crate::turn();
    let cases =
        [("ping", "op=send"), ("ping", "op=write"), ("blast", "op=send"), ("oneway", "op=write")];
    a_few_at_a_time(cases, |(experiment, options)| {
        let error = hit(
            experiment.parse().expect("an experiment"),
            options,
            Signal::STOP,
            Duration::from_secs(3),
        );
        // A WRITE needs no program at its target, so the stop shows only at the next exchange.
        let says = [
            "missing: rank 1",
            "did not come within 3 s",
            "nothing arrived",
            "IBV_WC_RETRY_EXC_ERR",
        ];
        assert!(says.iter().any(|s| error.what.contains(s)), "{options}: {error}");
    });
}
