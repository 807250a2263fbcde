//! `rdmalab advise` on the soft device. Fault rules make one way the best, and the advice must name
//! it with its effect. Without such rules there must be no winner.

mod common;
#[path = "advise/optimum.rs"]
mod optimum;
#[path = "advise/profiles.rs"]
mod profiles;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use common::{Ended, only, rdmalab, said};
use rdmalab_testing::{Budget, Watch, again_until, too_busy};
use serde_json::Value;

/// A measurement whose ends spin takes the write lock and so runs alone. Measurements whose ends
/// sleep take the read lock, and so do commands that only read records.
static PROCESSORS: RwLock<()> = RwLock::new(());

fn advise(arguments: &[&str]) -> Ended {
    let call = || said(rdmalab(&["advise"]).args(arguments));
    if arguments.contains(&"--device") { alone(call) } else { beside_others(call) }
}

fn alone<T>(call: impl FnOnce() -> T) -> T {
    let _alone = PROCESSORS.write().unwrap_or_else(PoisonError::into_inner);
    call()
}

fn beside_others<T>(call: impl FnOnce() -> T) -> T {
    let _beside = PROCESSORS.read().unwrap_or_else(PoisonError::into_inner);
    call()
}

/// The answers of a JSON document.
fn answers(said: &Ended) -> Vec<Value> {
    assert_eq!(said.code, Some(0), "{said:?}");
    let document: Value = serde_json::from_str(&said.stdout).expect("one JSON document");
    assert_eq!(
        (&document["format"], &document["format_version"]),
        (&"rdmalab-advice".into(), &1.into())
    );
    document["answers"].as_array().expect("a list").clone()
}

/// Runs into `out`; returns the directory of the record.
fn run(out: &Path, line: &str, more: &[&str]) -> PathBuf {
    add(out, line, more);
    only(out)
}

/// Runs into `out`, in addition to the records that are there.
fn add(out: &Path, line: &str, more: &[&str]) {
    let words: Vec<&str> = line.split_whitespace().chain(more.iter().copied()).collect();
    let measure =
        || said(rdmalab(&["run"]).args(words).args(["--device", "soft0", "--out"]).arg(out));
    // Both ends sleep for milliseconds per message, and use a sixth of a processor.
    let is_delayed = more.iter().any(|word| word.contains("delay ") || *word == "--profile");
    let sleeps = line.contains("--poll event") && is_delayed;
    let made = if sleeps { beside_others(measure) } else { alone(measure) };
    assert_eq!(made.code, Some(0), "{made:?}");
}

/// Whether each of the named ways certainly takes at least `least` times as long as the best.
fn are_worse(answer: &Value, names: &[&str], least: f64) -> bool {
    let is_worse = |name: &&str| {
        let ways = answer["ways"].as_array().unwrap();
        let way = ways.iter().find(|way| way["name"] == **name).expect(name);
        assert_eq!(way["of_runs"].as_array().unwrap().len(), answer["runs"], "{answer:#}");
        way["relation"] == "worse"
            && way["over_leader"]["low"].as_f64().is_some_and(|low| low > least)
    };
    names.iter().all(is_worse)
}

#[test]
fn the_opcode_that_is_not_delayed_is_named() {
    let line = "ping --poll event --op send,write_imm,read --messages 48 --warm-up 4 --repeat 6";
    for (faults, best, others) in [
        ("delay 3ms of send,write", "read", ["send", "write_imm"]),
        ("delay 3ms of read,write", "send", ["read", "write_imm"]),
    ] {
        optimum::assert_best("latency", line, faults, ("opcode", best), (&others, 1.5));
    }
}

#[test]
fn the_transport_that_waits_for_late_acknowledgements_is_not() {
    let faults = "delay 2ms of ack";
    let asked = ["--ask", "transport", "--for", "latency"];
    let measured = |out: &Path| {
        let place = out.to_str().unwrap();
        // Without a limit, 2000 messages of each run would spin for a minute in all.
        let how = ["--quick", "--max-time", "10s", "--json", "--device", "soft0", "--out", place];
        let found = answers(&advise(&[&asked[..], &how, &["--faults", faults]].concat()));
        let [answer] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(answer["faults"], faults);
        let chosen = answer["chosen"].as_array().unwrap();
        assert!(chosen.iter().all(|name| name != "rc"), "{answer:#}");
        answer.clone()
    };
    let test = "advise transport for latency";
    let told = again_until(test, &Watch::begin(), optimum::BUDGET, || {
        let out = tempfile::tempdir().unwrap();
        let answer = measured(out.path());
        match answer["leader"] != "rc" && are_worse(&answer, &["rc"], 2.0) {
            true => Ok(out),
            false => Err(format!("{answer:#}")),
        }
    });
    let Some(out) = told else { return };
    // The records are kept, and give the same answer again, as text.
    let dir = only(out.path());
    let again = advise(&[&asked[..], &[dir.to_str().unwrap()]].concat());
    assert_eq!(again.code, Some(0), "{again:?}");
    let text = again.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in ["disturbed on purpose", "numbers of this host", "Which transport?"] {
        assert!(text.contains(said), "{said}: {}", again.stdout);
    }
    assert!(text.contains("8 runs of each"), "{}", again.stdout);
}

/// Both sizes are sent inline, so the two ways are the same.
const SAME: &str = "ping --inline 64,128 --messages 2000 --repeat 8";

#[test]
fn records_answer_what_they_hold_and_say_what_they_lack() {
    let out = tempfile::tempdir().unwrap();
    let dir = run(out.path(), SAME, &[]);
    let dir = dir.to_str().unwrap();
    let found = answers(&advise(&[dir, "--json"]));
    let asked: Vec<&str> = found.iter().filter_map(|a| a["question"].as_str()).collect();
    assert_eq!(asked, ["inline", "inline"], "{found:?}");
    assert!(found.iter().all(|a| a["runs"] == 8 && a["runs_needed"] == 4), "{found:?}");
    let text = advise(&[dir, "--size", "32"]).stdout;
    assert!(text.contains("Not answered:"), "{text}");
    assert!(text.contains("rdmalab run blast --size 32 --buffers 1,4,16,64,256"), "{text}");
    let none = advise(&[dir, "--size", "64"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.stderr.contains("answer none of the questions"), "{none:?}");
}

#[test]
fn what_is_the_same_has_no_winner_three_times() {
    // A wrong winner is allowed once in twenty: three in a row happen once in 8000 times.
    let has_won = |_: &i32| {
        let out = tempfile::tempdir().unwrap();
        let dir = run(out.path(), SAME, &[]);
        let found = answers(&advise(&["--json", "--for", "latency", dir.to_str().unwrap()]));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0]["outcome"] == "best"
    };
    let won = (0..3).take_while(has_won).count();
    assert!(won < 3, "three times one of two that are the same was called the best");
}

#[test]
fn all_of_it_is_answered_for_each_goal() {
    let words = ["--quick", "--device", "soft0", "--hosts", "localhost,localhost", "--out"];
    // So many whole plans, however long they take.
    let budget = Budget { attempts: 3, time: Duration::ZERO };
    let test = "all_of_it_is_answered_for_each_goal";
    let told = again_until(test, &Watch::begin(), budget, || {
        let out = tempfile::tempdir().unwrap();
        let said = advise(&[&words[..], &[out.path().to_str().unwrap()]].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        // A delayed trial gives a plan with fewer messages, which may leave a p99 open.
        match said.stderr.contains("have fewer messages, at least") {
            true => Err(format!("a delayed trial cut the plan: {said:?}")),
            false => Ok(said),
        }
    });
    let Some(whole) = told else { return };
    for goal in ["low latency", "rate", "predictability", "little processor time"] {
        assert!(whole.stdout.contains(&format!("For {goal}: ")), "{goal}: {}", whole.stdout);
    }
    assert!(!whole.stdout.contains("Not answered"), "{}", whole.stdout);
    assert!(
        whole.stderr.contains("[16/16] polling") && whole.stderr.contains("about"),
        "{whole:?}"
    );
}

#[test]
fn an_interrupt_leaves_what_was_measured() {
    let _alone = PROCESSORS.write().unwrap_or_else(PoisonError::into_inner);
    let out = tempfile::tempdir().unwrap();
    let words = ["--quick", "--device", "soft0", "--out", out.path().to_str().unwrap()];
    let mut running = common::Process::start(rdmalab(&["advise"]).args(words));
    // The second record is begun when the first one is complete.
    running.within("a second record", |_| {
        let dir = fs::read_dir(out.path()).unwrap().next()?.unwrap().path();
        (fs::read_dir(dir).ok()?.count() >= 2).then_some(())
    });
    common::signal("-INT", running.id());
    let cut = running.end();
    assert_eq!(cut.code, Some(1), "{cut:?}");
    assert!(cut.stderr.contains("what was measured is above"), "{cut:?}");
    assert!(cut.stdout.contains("Which opcode?") && cut.stdout.contains("Not answered"), "{cut:?}");
}

#[test]
fn mistakes_are_told() {
    for (words, told) in [
        (&["--for", "speed"][..], "[possible values: latency, rate, predictability, cpu]"),
        (&["--ask", "colour"], "[possible values: opcode, transport, inline"),
        (&["--size", "huge"], "--size"),
        (&["--ask", "opcode", "--repeat", "3"], "choose 6 or more"),
        (&["--ask", "buffers", "--for", "latency"], "leave --ask out"),
        (&["--hosts", "a,b,c"], "needs two hosts"),
        (&["/nowhere"], "/nowhere"),
        (&["/proc"], "/proc has no record"),
        (&["/nowhere", "--quick"], "cannot be used with"),
        (&["/nowhere", "--max-time", "9s"], "cannot be used with"),
        (&["--max-time", "soon"], "write it as 90s, 10m or 2h"),
        (&["/nowhere", "--faults", "drop"], "this option applies to measurements"),
        (&["--device", "nic9"], "there is no such device"),
    ] {
        let wrong = advise(words);
        assert_eq!(wrong.code, Some(2), "{words:?}: {wrong:?}");
        assert!(wrong.stderr.contains(told), "{words:?}: {wrong:?}");
    }
}

/// The value of an option in the sweep that a plan lists for a question.
fn planned(plan: &Ended, question: &str, experiment: &str, option: &str) -> u64 {
    let is_it = |line: &&str| {
        let mut words = line.split_whitespace();
        (words.next(), words.next()) == (Some(question), Some(experiment))
    };
    let line = plan.stdout.lines().find(is_it).unwrap_or_else(|| panic!("{question}: {plan:?}"));
    let mut words = line.split_whitespace().skip_while(|word| *word != format!("--{option}"));
    words.nth(1).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{option}: {line}"))
}

/// Each round trip takes 10 ms. With as many messages as a device with round trips of a microsecond
/// gets, these sweeps would take half an hour.
#[test]
fn a_slow_device_gets_fewer_messages_and_the_plan_says_so() {
    let asked = ["--plan", "--quick", "--ask", "opcode,buffers", "--device", "soft0"];
    let slow = advise(&[&asked[..], &["--profile", "long-line"]].concat());
    assert_eq!(slow.code, Some(0), "{slow:?}");
    assert!(slow.stdout.contains("have fewer messages, at least"), "{slow:?}");
    assert!((24..500).contains(&planned(&slow, "opcode", "ping", "messages")), "{slow:?}");
    assert!((128..1000).contains(&planned(&slow, "buffers", "blast", "messages")), "{slow:?}");
    // The same happens for a time limit, even on a fast device.
    let short = advise(&[&asked[..], &["--max-time", "2s"]].concat());
    assert!(planned(&short, "opcode", "ping", "messages") < 2000, "{short:?}");
}

/// Even with so few messages the advice names the way that is known to be the best.
#[test]
fn what_fewer_messages_leave_names_the_optimum() {
    let out = tempfile::tempdir().unwrap();
    let place = out.path().to_str().unwrap();
    let asked = ["--quick", "--ask", "buffers", "--for", "rate", "--size", "4096", "--json"];
    let how = ["--max-time", "10s", "--repeat", "7", "--profile", "long-line", "--out", place];
    let watch = Watch::begin();
    let said = advise(&[&asked[..], &how, &["--device", "soft0"]].concat());
    let fewer = "runs of 1 of 1 sweep have fewer messages, at least 128";
    assert!(said.stderr.contains(fewer), "{said:?}");
    let found = answers(&said);
    let [answer] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(answer["parameters"]["messages"], 128, "{answer:#}");
    assert_eq!(answer["fewer_messages_than"], 10_000, "{answer:#}");
    // Which of the two ways that fill the line is enough may stay open. That the others do not fill
    // it may stay open only on a busy machine, and even there none of them may be chosen.
    let is_slow = |name: &str| ["1", "4"].contains(&name);
    let chosen = answer["chosen"].as_array().unwrap();
    assert!(!chosen.iter().filter_map(Value::as_str).any(is_slow), "{answer:#}");
    let ways = answer["ways"].as_array().unwrap();
    let is_told = |(name, most): (&str, f64)| {
        let way = ways.iter().find(|way| way["name"] == name).expect("it was measured");
        let high = way["over_leader"]["high"].as_f64();
        way["relation"] == "worse" && high.is_some_and(|high| high < most)
    };
    if !is_told(("1", 0.3)) || !is_told(("4", 0.7)) {
        let reason = too_busy().or_else(|| watch.too_busy());
        let reason = reason.unwrap_or_else(|| panic!("a calm machine: {answer:#}"));
        rdmalab_testing::skipped("advise under long-line with few messages", &reason);
    }
}

#[test]
fn a_plan_keeps_nothing() {
    let out = tempfile::tempdir().unwrap();
    let plan =
        advise(&["--plan", "--quick", "--device", "soft0", "--out", out.path().to_str().unwrap()]);
    assert_eq!(plan.code, Some(0), "{plan:?}");
    assert!(plan.stdout.contains("polling") && plan.stdout.contains("about"), "{plan:?}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
}
