//! Each shipped profile makes one way the best. The advice must name it, with effect and interval,
//! from runs on a device under that profile. Under `ideal` it must find no difference between two
//! ways that are the same.
//!
//! The test measures more rounds in one directory until all of them together name the optimum by
//! the profile's factor. No answer before that may contradict it: an answer may leave the optimum
//! open, since a busy machine may tell too little. But it must not call a way the best, or as good
//! as the best, that the profile makes worse by a factor.
//!
//! How often the test fails without a bug: the runs of all ways take turns, so a busy machine slows
//! all of them. Assume that it slows a run of only the best way beyond the factor once in ten
//! times. For two ways with 5 runs each, the rank test prefers the wrong way if all 5 are slowed;
//! with 10 runs each, if 8 are; with 15, if 10 are. For the other runs below these are 6 of 6, 7 of
//! 7, 7 of 8 and 8 of 8 in the first answer, and more than half in each later one. For all answers
//! to all optima that is 2e-5 together, of which 1e-5 for the first answer from 5 runs. If the
//! time is up and no answer has named the optimum, a machine with free processors fails the test.

use std::path::Path;

use rdmalab_softnic::{Optimum, Profile, SHIPPED, find_profile};
use serde_json::{Value, json};

use super::answers;
use super::optimum::BUDGET;

use rdmalab_testing::{Watch, again_until};

/// The run for each profile's optimum, and the least factor by which the worse ways are worse.
const RUNS: [(&str, &str, &str, f64); 5] = [
    ("late-ack", "transport", "ping --transport rc,uc,ud --messages 200 --repeat 8", 1.5),
    ("late-ack", "signalling", "ping --signal-every 1,16 --messages 160 --repeat 8", 1.5),
    (
        "long-line",
        "buffers",
        "blast --poll event --size 4096 --buffers 4,16,64 --tx-depth 128 --messages 150 \
         --warm-up 0 --runs 1 --repeat 7",
        1.3,
    ),
    (
        "small-inline",
        "inline",
        "ping --poll event --size 64 --inline on,off --messages 48 --warm-up 4 --repeat 6",
        1.5,
    ),
    (
        "uneven-write",
        "opcode",
        "ping --poll event --op send,write_imm --messages 1000 --warm-up 0 --repeat 5",
        1.5,
    ),
];

/// Runs under a profile, and returns the answer to a question for a goal, from these runs and those
/// already in the directory.
fn answer(out: &Path, profile: &str, line: &str, (ask, goal): (&str, &str)) -> Value {
    super::add(out, line, &["--profile", profile]);
    let read = super::advise(&["--json", "--ask", ask, "--for", goal, out.to_str().unwrap()]);
    let found = answers(&read);
    assert_eq!(found.len(), 1, "{line}: {found:?}");
    found[0].clone()
}

/// Asserts that the advice names the profile's best way, and never contradicts it.
fn assert_named(profile: &Profile, optimum: &Optimum) {
    let name = profile.name.as_str();
    let run = RUNS.iter().find(|run| (run.0, run.1) == (name, optimum.ask.as_str()));
    let (_, _, line, factor) = run.unwrap_or_else(|| panic!("{name}: no run for {optimum:?}"));
    let out = tempfile::tempdir().unwrap();
    let test = format!("advise under {name} for {}", optimum.ask);
    again_until(&test, &Watch::begin(), BUDGET, || {
        let answer = answer(out.path(), name, line, (&optimum.ask, &optimum.goal));
        assert_eq!(answer["profile"], name, "{answer:#}");
        assert!(!contradicts(&answer, optimum), "{name} makes it otherwise: {answer:#}");
        if names(&answer, optimum, *factor) { Ok(()) } else { Err(format!("{answer:#}")) }
    });
}

/// Whether the answer chooses the best way, and the worse ways are certainly worse by the factor:
/// in time, or in rate.
fn names(answer: &Value, optimum: &Optimum, factor: f64) -> bool {
    let chosen = optimum.best.is_empty() || answer["chosen"][0] == json!(optimum.best);
    let is_worse = |way: &&Value| optimum.worse.iter().any(|name| way["name"] == *name);
    let by_factor = |way: &Value| {
        let end = |name: &str| way["over_leader"][name].as_f64();
        way["relation"] == "worse"
            && match answer["goal"] == "rate" {
                true => end("high").is_some_and(|high| high < 1.0 / factor),
                false => end("low").is_some_and(|low| low > factor),
            }
    };
    let ways = answer["ways"].as_array().expect("a list");
    chosen && ways.iter().filter(is_worse).all(by_factor)
}

/// Whether the answer calls a way that the profile makes worse the best, or as good as the best, or
/// another way worse than it. A difference between two good ways is no contradiction.
fn contradicts(answer: &Value, optimum: &Optimum) -> bool {
    let is_made_worse = |name: &Value| optimum.worse.iter().any(|worse| *name == json!(worse));
    let chosen = answer["chosen"].as_array().expect("a list");
    let ways = answer["ways"].as_array().expect("a list");
    let beaten = |way: &Value| way["relation"] == "worse" && !is_made_worse(&way["name"]);
    let is_alike = |way: &Value| way["relation"] == "alike" && is_made_worse(&way["name"]);
    let leads = is_made_worse(&answer["leader"]);
    chosen.iter().any(is_made_worse)
        || ways.iter().any(|way| (leads && beaten(way)) || (!leads && is_alike(way)))
}

#[test]
fn an_open_answer_contradicts_nothing_and_the_wrong_side_does() {
    let profile = find_profile("long-line").unwrap();
    let optimum = &profile.optima[0];
    let said = |leader: &str, chosen: &[&str], relations: [(&str, &str); 2]| {
        let ways = relations.map(|(name, relation)| json!({ "name": name, "relation": relation }));
        contradicts(&json!({ "leader": leader, "chosen": chosen, "ways": ways }), optimum)
    };
    assert!(!said("16", &["16"], [("4", "worse"), ("64", "alike")]));
    assert!(!said("16", &[], [("4", "unknown"), ("64", "alike")]));
    assert!(!said("4", &[], [("16", "unknown"), ("64", "unknown")]));
    assert!(!said("64", &["64"], [("4", "worse"), ("16", "worse")]));
    assert!(said("4", &["4"], [("16", "worse"), ("64", "worse")]));
    assert!(said("4", &[], [("16", "worse"), ("64", "unknown")]));
    // Called as good as the best, with certainty.
    assert!(said("16", &["4"], [("4", "alike"), ("64", "alike")]));
    assert!(said("16", &[], [("4", "alike"), ("64", "unknown")]));
}

fn assert_all_named(name: &str) {
    let profile = find_profile(name).expect("it is shipped");
    assert!(!profile.optima.is_empty());
    profile.optima.iter().for_each(|optimum| assert_named(&profile, optimum));
}

#[test]
fn each_shipped_profile_is_asked_here() {
    let mut names: Vec<&str> = RUNS.iter().map(|run| run.0).collect();
    names.dedup();
    let has_best = |name: &&str| !find_profile(name).unwrap().optima.is_empty();
    let shipped: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).filter(has_best).collect();
    assert_eq!(names, shipped, "a new profile has a test of its own below");
}

#[test]
fn late_ack_makes_rc_and_each_completion_slow() {
    assert_all_named("late-ack");
}

#[test]
fn long_line_wants_as_many_as_it_holds() {
    assert_all_named("long-line");
}

#[test]
fn small_inline_wants_inline_as_far_as_it_goes() {
    assert_all_named("small-inline");
    // Beyond the limit only one way is left, and the device's limit is the reason.
    let line = "ping --poll event --size 256 --inline on,off --messages 48 --warm-up 4 --repeat 4";
    let out = tempfile::tempdir().unwrap();
    let answer = answer(out.path(), "small-inline", line, ("inline", "latency"));
    assert_eq!(
        (&answer["outcome"], &answer["chosen"][0]),
        (&"only one offered".into(), &"off".into())
    );
    let refused = &answer["not_offered"][0];
    assert_eq!(refused["name"], "on", "{answer:#}");
    assert!(refused["reason"].as_str().unwrap().contains("64"), "{answer:#}");
}

#[test]
fn uneven_write_is_what_the_tail_shows() {
    assert_all_named("uneven-write");
}

/// Both are sent inline, so they are the same. A line makes the runs uniform enough to show that.
#[test]
fn under_ideal_there_is_no_difference() {
    let line = "blast --poll event --inline 1000,1016 --size 1000 --messages 600 --warm-up 0 \
                --runs 1 --repeat 9";
    let ask = || {
        let out = tempfile::tempdir().unwrap();
        let options = ["--profile", "ideal", "--faults", "rate 40Mbit of send"];
        let dir = super::run(out.path(), line, &options);
        let read = super::advise(&["--json", "--for", "rate", dir.to_str().unwrap()]);
        let found = answers(&read);
        let [answer] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(answer["profile"], Value::Null);
        answer.clone()
    };
    let _ = super::optimum::twice("inline", "no difference", ask);
}
