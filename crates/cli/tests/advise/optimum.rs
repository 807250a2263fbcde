//! Devices with a known optimum for each question, made by fault rules or by limits of the device,
//! and devices on which all ways are the same.
//!
//! The optimum is better by a large factor: the rules make waits of milliseconds, or rates far
//! below what the machine can do. Programs sleep until completions arrive, because a busy machine
//! wakes a sleeping process in time, while a spinning one may have used up its share. On a busy
//! machine the advice may leave the optimum open. Then the test measures more rounds, in which all
//! ways take turns again, and asks for advice on all rounds together: ranks within rounds settle it
//! in the end, since load does not change them. Wrong advice always fails the test.
//!
//! On an adapter, inlining saves the device a read of the payload from the program's memory. Here,
//! rules for `gathered` payloads make that read slow, and rules for `inline` payloads make it slow
//! to pass a payload in the work request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{answers, are_worse};

use rdmalab_testing::{Budget, Watch, again_until, too_busy};

/// After this time no more rounds are measured to get an answer.
pub const BUDGET: Budget = Budget { attempts: 1, time: Duration::from_secs(120) };

/// Runs with these options and rules, and returns the only answer for a goal, from these runs and
/// the records that are already in the directory.
fn answer(out: &Path, goal: &str, line: &str, faults: &str) -> Value {
    let rules: &[&str] = if faults.is_empty() { &[] } else { &["--faults", faults] };
    super::add(out, line, rules);
    let read = super::advise(&["--json", "--for", goal, out.to_str().unwrap()]);
    let found = answers(&read);
    assert_eq!(found.len(), 1, "{line}: {found:?}");
    assert_eq!(found[0]["goal"], goal);
    assert_eq!(found[0]["faults"].as_str().unwrap_or_default(), faults);
    found[0].clone()
}

/// Asserts that the advice calls a way the best for a question, and others certainly worse by a
/// factor. More rounds narrow the intervals. Any other advice fails at once.
pub fn assert_best(
    goal: &str,
    line: &str,
    faults: &str,
    (question, best): (&str, &str),
    (others, factor): (&[&str], f64),
) {
    let out = tempfile::tempdir().unwrap();
    let test = format!("advise {question} for {goal}");
    again_until(&test, &Watch::begin(), BUDGET, || {
        let answer = answer(out.path(), goal, line, faults);
        assert_eq!(answer["question"], question, "{answer:#}");
        if answer["outcome"] != "cannot tell" {
            assert_eq!(answer["outcome"], "best", "{answer:#}");
            assert_eq!(answer["chosen"], json!([best]), "{answer:#}");
            if are_worse(&answer, others, factor) {
                return Ok(());
            }
        }
        Err(format!("{answer:#}"))
    });
}

/// A sender that polls each completion waits for each late acknowledgement, in its own round trip.
#[test]
fn one_completion_in_many_where_completions_are_late() {
    let line = "ping --poll event --signal-every 1,16 --messages 48 --warm-up 16 --repeat 6";
    assert_best("latency", line, "delay 4ms of ack", ("signalling", "16"), (&["1"], 2.0));
}

/// With late acknowledgements, a few outstanding messages do not fill the line. More messages than
/// fill it gain nothing.
#[test]
fn as_many_messages_under_way_as_fill_the_line() {
    // 4 messages per 10 ms are 400 a second; the line takes 1000; 128 per 10 ms are 12 times that.
    let line = "blast --poll event --size 4096 --buffers 4,128,256 --tx-depth 512 --messages 300 \
                --warm-up 0 --runs 1 --repeat 7";
    let faults = "delay 10ms of ack; rate 33Mbit of send";
    assert_least_of_enough(line, faults, "buffers", ["4", "128"]);
}

/// The same for late credits: the receives needed are those used up until a credit arrives.
#[test]
fn as_many_receives_as_are_used_until_the_credit_comes() {
    let line = "blast --poll event --size 4096 --rx-depth 4,128,512 --messages 300 --warm-up 0 \
                --runs 1 --repeat 7";
    let faults = "delay 10ms of write; rate 33Mbit of send";
    assert_least_of_enough(line, faults, "depth", ["4", "128"]);
}

/// Asserts that the first way is worse by a factor, and that the second is enough.
fn assert_least_of_enough(line: &str, faults: &str, question: &str, names: [&str; 2]) {
    let [few, enough] = names;
    let ask = || {
        let out = tempfile::tempdir().unwrap();
        answer(out.path(), "rate", line, faults)
    };
    let Some(answer) = twice(question, "several alike", ask) else { return };
    assert_eq!(answer["chosen"], json!([enough]), "{answer:#}");
    let ways = answer["ways"].as_array().unwrap();
    let few = ways.iter().find(|way| way["name"] == few).expect("it was measured");
    assert_eq!(few["relation"], "worse", "{answer:#}");
    let over_leader = &few["over_leader"];
    assert!(over_leader["high"].as_f64().unwrap() < 0.6, "{answer:#}");
}

/// Messages are 4 ms apart, and one of the ways sleeps in between.
#[test]
fn events_where_little_happens_and_processor_time_counts() {
    let line = "ping --poll busy,event --rate 250 --arrivals constant --messages 60 --warm-up 0 \
                --repeat 6";
    assert_best("cpu", line, "", ("polling", "event"), (&["busy"], 2.0));
}

/// One way is late in two or three of a hundred round trips, which its median does not show.
#[test]
fn the_way_without_late_messages_where_predictability_counts() {
    let line = "ping --poll event --op send,write_imm --messages 1000 --warm-up 0 --repeat 5";
    let faults = "delay 30ms of write every 80";
    assert_best("predictability", line, faults, ("opcode", "send"), (&["write_imm"], 1.5));
}

/// How many wrong outcomes in a row fail the test.
const WRONG: usize = 3;
/// How often the expected outcome must be told.
const RIGHT: usize = 2;

/// Returns the answer once the expected outcome has been told twice, each time from new runs.
/// `None` if the machine is too busy for that.
///
/// If the ways are the same, at most one answer in twenty says otherwise. Three such answers in a
/// row fail the test, which happens once in 8000 series of three. On a quiet machine, nine answers
/// in ten tell the expected outcome, so the risk is below 3 in 10000 until there are two. If no
/// answer ever tells it, the risk is 2 in 1000 until the time is up. (Three in all, not in a row,
/// would give 4 in 100 there.) More rounds in one directory would not help, as misleading rounds
/// would stay.
pub fn twice(question: &str, outcome: &str, ask: impl FnMut() -> Value) -> Option<Value> {
    let (test, watch) = (format!("advise {question}"), Watch::begin());
    let tell = |look: Look<'_>| again_until(&test, &watch, BUDGET, look);
    twice_by(tell, question, outcome, ask)
}

/// Asks once, and returns the answer if it has the expected outcome.
type Look<'a> = &'a mut dyn FnMut() -> Result<Value, String>;

/// As [`twice`], where `tell` looks until an answer has the expected outcome, or it gives up.
fn twice_by(
    mut tell: impl FnMut(Look<'_>) -> Option<Value>,
    question: &str,
    outcome: &str,
    mut ask: impl FnMut() -> Value,
) -> Option<Value> {
    let mut judge = Judge { question, outcome, wrong: Vec::new() };
    let told = (0..RIGHT).map(|_| tell(&mut || judge.judge(ask())));
    told.collect::<Option<Vec<_>>>()?.pop()
}

/// Tells answers with the expected outcome from others.
struct Judge<'a> {
    question: &'a str,
    outcome: &'a str,
    /// Those with another outcome, in a row.
    wrong: Vec<Value>,
}

impl Judge<'_> {
    fn judge(&mut self, answer: Value) -> Result<Value, String> {
        assert_eq!(answer["question"], self.question, "{answer:#}");
        let told = answer["outcome"].as_str().expect("an outcome");
        if told == self.outcome {
            self.wrong.clear();
            return Ok(answer);
        }
        match told {
            "cannot tell" => self.wrong.clear(),
            _ => self.wrong.push(answer),
        }
        assert!(self.wrong.len() < WRONG, "{} is expected: {:#?}", self.outcome, self.wrong);
        Err(format!("{} is not told {RIGHT} times: {:#?}", self.outcome, self.wrong))
    }
}

#[test]
fn one_wrong_outcome_is_chance_and_three_are_none() {
    let of = |outcomes: &[&str]| {
        let mut all = outcomes.iter();
        let ask = || json!({ "question": "inline", "outcome": all.next().expect("no more") });
        let tell = |look: Look<'_>| std::iter::repeat_with(look).find_map(Result::ok);
        let told = AssertUnwindSafe(|| twice_by(tell, "inline", "no difference", ask));
        let last = catch_unwind(told).ok()?.expect("an answer");
        assert!(all.next().is_none(), "it ended before");
        Some(last["outcome"] == "no difference")
    };
    let [same, best, open] = ["no difference", "best", "cannot tell"];
    assert_eq!(of(&[same, same]), Some(true));
    assert_eq!(of(&[best, best, same, best, open, same]), Some(true));
    assert_eq!(of(&[best, open, best, best, same, same]), Some(true));
    assert_eq!(of(&[best, best, best, same, same]), None);
    assert_eq!(of(&[same, best, "several alike", best, same]), None);
}

/// The line limits the rate, whichever way messages are sent. (Not true for ways of waiting, or
/// with and without acknowledgements: they differ by a hundredth, which enough rounds can tell.)
#[test]
fn no_difference_where_the_line_is_what_limits() {
    for (question, ways) in [
        ("inline", "--poll event --inline on,off"),
        ("signalling", "--poll event --signal-every 1,16"),
    ] {
        // So many messages that a scheduler's time slice of 4 ms is within the tolerance of 3 %.
        let line =
            format!("blast {ways} --size 1000 --messages 1500 --warm-up 0 --runs 1 --repeat 9");
        let ask = || {
            let out = tempfile::tempdir().unwrap();
            answer(out.path(), "rate", &line, "rate 40Mbit of send")
        };
        let Some(answer) = twice(question, "no difference", ask) else { continue };
        let ways = answer["ways"].as_array().unwrap();
        let other = ways.iter().find(|way| way["relation"] == "alike").expect("a leader and this");
        let end = |name: &str| other["over_leader"][name].as_f64().unwrap();
        assert!(end("low") >= 0.97 && end("high") <= 1.031, "{answer:#}");
    }
}

/// Rules delay reading short payloads from memory, and taking long ones inline. So inlining pays up
/// to some size in between, by large factors on both sides of it.
#[test]
fn inline_up_to_the_size_where_it_begins_to_cost() {
    let faults = "delay 4ms of send gathered payload ..128; delay 4ms of send inline payload 129..";
    let line = |size: &str| {
        format!(
            "ping --poll event --size {size} --inline on,off --messages 24 --warm-up 4 --repeat 6"
        )
    };
    for (size, best, other) in [("64", "on", "off"), ("512", "off", "on")] {
        assert_best("latency", &line(size), faults, ("inline", best), (&[other], 3.0));
    }
    let out = tempfile::tempdir().unwrap();
    let dir = super::run(out.path(), &line("64,512"), &["--faults", faults]);
    let said = super::advise(&["--for", "latency", dir.to_str().unwrap()]);
    assert!(said.stdout.contains("on to 64 B") || too_busy().is_some(), "{said:?}");
}

/// The soft device takes up to 1024 bytes inline. Beyond that only one way is left, and the advice
/// names the other with the reason.
#[test]
fn inlining_up_to_what_the_device_takes() {
    let line = "blast --poll event --size 2048 --inline on,off --messages 200 --runs 1 --repeat 4";
    let out = tempfile::tempdir().unwrap();
    let answer = answer(out.path(), "rate", line, "");
    assert_eq!(answer["question"], "inline", "{answer:#}");
    assert_eq!(answer["outcome"], "only one offered", "{answer:#}");
    assert_eq!(answer["chosen"], json!(["off"]), "{answer:#}");
    let refused = &answer["not_offered"][0];
    assert_eq!(refused["name"], "on", "{answer:#}");
    assert!(refused["reason"].as_str().unwrap().contains("1024"), "{answer:#}");
}
