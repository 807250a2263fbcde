//! Computes answers from records.

use rdmalab_measure::stats::Timed;
use rdmalab_record::{Device, Object, Record, shell_word};
use serde_json::Value;

use crate::decide::{
    CONFIDENCE, Candidate, Decision, Outcome, Rules, ZONE, decide, middle, runs_needed,
};
use crate::goal::{Goal, is_paced, round_trip, tail_ratio};
use crate::groups::{Group, Round, WayRuns, groups};
use crate::question::{Experiments, Question, fewer_of_large};

/// Least number of runs in a command for what is missing.
const RUNS: usize = 12;

/// All answers that the records give.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The measured devices, each once.
    pub devices: Vec<Device>,
    /// Questions that the records answer.
    pub answers: Vec<Answer>,
    /// Questions that the records do not answer.
    pub missing: Vec<Missing>,
}

/// The answer to a question, for a goal, from runs that are the same otherwise.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The question.
    pub question: &'static Question,
    /// The goal.
    pub goal: Goal,
    /// The device.
    pub device: Device,
    /// Fault rules that disturbed packets on purpose; empty: none.
    pub faults: String,
    /// The parameters that are the same for all ways.
    pub context: Object,
    /// The ways that were measured, in the order of the question.
    pub ways: Vec<Way>,
    /// Ways without a number, each with the reason: the device does not offer them, or they are in
    /// `without_number`.
    pub not_offered: Vec<(String, String)>,
    /// Ways whose runs have too few samples for the number.
    pub without_number: Vec<String>,
    /// Messages of a run of the short sweep, if these runs have fewer.
    pub usual_messages: Option<u64>,
    /// The decision.
    pub decision: Decision,
    /// The command that repeats the measurement with more runs.
    pub command: String,
}

impl Answer {
    /// The size of the messages, if all have the same one.
    pub(crate) fn size_bytes(&self) -> Option<u64> {
        self.context.get("size_bytes").and_then(Value::as_u64)
    }
}

/// A way and its numbers.
#[derive(Clone, Debug)]
pub struct Way {
    /// Its name.
    pub name: String,
    /// The goal's number for each run.
    pub values: Vec<f64>,
    /// Messages lost in all runs.
    pub lost: u64,
    /// Messages sent in all runs.
    pub sent: u64,
    /// p99 over median, as the median of the runs; `None` if no times were taken.
    pub tail: Option<f64>,
}

/// A question that the records do not answer.
#[derive(Clone, Debug)]
pub struct Missing {
    /// The question.
    pub question: &'static Question,
    /// The goals without an answer.
    pub goals: Vec<Goal>,
    /// The reason.
    pub why: String,
    /// The command that would measure it.
    pub command: String,
}

/// The answers of the records to these questions, for these goals: of those records that these
/// experiments measured. `sizes` is for the commands that would measure missing answers.
#[must_use]
pub fn answers(
    records: &[Record],
    experiments: Experiments<'_>,
    questions: &[&'static Question],
    goals: &[Goal],
    sizes: &str,
) -> Advice {
    let mut devices: Vec<Device> = Vec::new();
    for record in records {
        if !devices.contains(&record.header.device) {
            devices.push(record.header.device.clone());
        }
    }
    let given = records.first().map_or_else(String::new, device_options);
    let mut advice = Advice { devices, answers: Vec::new(), missing: Vec::new() };
    for question in questions {
        let groups = groups(records, experiments, question);
        for goal in goals {
            let told = groups.iter().filter(|group| is_answered(question, *goal, group));
            advice.answers.extend(told.filter_map(|group| answer(question, *goal, group)));
        }
        missing(&mut advice, question, goals, (sizes, &given), (&groups, experiments));
    }
    // The answers are sorted by goal, then question, then size.
    let place = |key: &str| questions.iter().position(|question| question.key == key);
    advice
        .answers
        .sort_by_key(|answer| (answer.goal, place(answer.question.key), answer.size_bytes()));
    advice
}

fn is_answered(question: &Question, goal: Goal, group: &Group) -> bool {
    question.is_answered_by(goal, group.method, is_paced(&group.context))
}

/// `None` if the group has no number for the goal.
fn answer(question: &'static Question, goal: Goal, group: &Group) -> Option<Answer> {
    let values = |found: &WayRuns| -> Vec<(Round, f64)> {
        found.runs.iter().filter_map(|(round, _, p)| Some((*round, goal.of(p)?))).collect()
    };
    let told: Vec<(&WayRuns, Vec<(Round, f64)>)> =
        group.ways.iter().map(|found| (found, values(found))).collect();
    let (told, without_number): (Vec<_>, Vec<_>) =
        told.into_iter().partition(|(_, v)| !v.is_empty());
    let mut not_offered = group.not_offered.clone();
    if told.len() + without_number.len() + not_offered.len() < 2 || told.is_empty() {
        return None;
    }
    // A longer run may have the number, so its absence does not count against the way.
    let without_number: Vec<String> =
        without_number.iter().map(|(found, _)| found.name.clone()).collect();
    let lacks = |name: &String| (name.clone(), format!("its runs have no {}", goal.measure()));
    not_offered.extend(without_number.iter().map(lacks));
    // Only rounds in which each way has a number count: a disturbance of a round affects all ways.
    let is_common =
        |round: &Round| told.iter().all(|(_, values)| values.iter().any(|v| v.0 == *round));
    let ways: Vec<Way> = told
        .iter()
        .map(|(found, values)| {
            let common = values.iter().filter(|(round, _)| is_common(round));
            way(found, common.map(|(_, value)| *value).collect())
        })
        .collect();
    let candidate = |way: &Way| Candidate { name: way.name.clone(), values: way.values.clone() };
    let candidates: Vec<Candidate> = ways.iter().map(candidate).collect();
    let zone = if goal.is_of_samples() { ZONE.max(step_share(group, &ways)) } else { ZONE };
    let rules = Rules { confidence: CONFIDENCE, zone, more_is_better: goal.more_is_better() };
    let mut decision = decide(&candidates, &rules)?;
    if ways.len() == 1 && !without_number.is_empty() {
        decision.outcome = Outcome::Open;
    }
    let enough = RUNS.max(decision.runs_needed);
    Some(Answer {
        question,
        goal,
        device: group.record.header.device.clone(),
        faults: group.faults.clone(),
        context: group.context.clone(),
        ways,
        not_offered,
        without_number,
        usual_messages: usual_messages(question, goal, group),
        decision,
        command: repeat_command(&group.record.header.command, enough),
    })
}

/// Messages of a run of the question's short sweep, if these runs have fewer.
fn usual_messages(question: &Question, goal: Goal, group: &Group) -> Option<u64> {
    let context = &group.context;
    let has = messages(context)?;
    let usual = question.least_messages(goal, group.method, is_paced(context))?;
    let size_bytes = context.get("size_bytes").and_then(Value::as_u64).unwrap_or(1);
    Some(fewer_of_large(usual, size_bytes)).filter(|usual| has < *usual)
}

/// Messages of a run.
pub(crate) fn messages(context: &Object) -> Option<u64> {
    context.get("messages").and_then(Value::as_u64)
}

fn way(found: &WayRuns, values: Vec<f64>) -> Way {
    let count = |name: &str| found.runs.iter().filter_map(|(_, _, p)| p.count(name)).sum();
    let tails: Vec<f64> = found.runs.iter().filter_map(|(_, _, p)| tail_ratio(p)).collect();
    let tail = (!tails.is_empty()).then(|| middle(&tails));
    Way { name: found.name.clone(), values, lost: count("lost"), sent: count("sent"), tail }
}

/// The clock's step over the smallest median: a smaller difference may be rounding.
fn step_share(group: &Group, ways: &[Way]) -> f64 {
    let least = ways.iter().map(|way| middle(&way.values)).fold(f64::INFINITY, f64::min);
    let first = group.ways.first().and_then(|found| found.runs.first());
    let step = first.and_then(|(_, record, point)| {
        let samples = record.counted_samples(round_trip(point)?).ok()?;
        Timed::new(&[samples]).map(|timed| timed.step())
    });
    step.map_or(0.0, |step| step / least)
}

fn missing(
    advice: &mut Advice,
    question: &'static Question,
    goals: &[Goal],
    (sizes, given): (&str, &str),
    (groups, experiments): (&[Group], Experiments<'_>),
) {
    for sweep in question.sweeps {
        let is_open = |goal: &&Goal| {
            let is_it = |a: &Answer| a.question.key == question.key && a.goal == **goal;
            sweep.goals.contains(goal) && !advice.answers.iter().any(is_it)
        };
        let open: Vec<Goal> = goals.iter().filter(is_open).copied().collect();
        if open.is_empty() {
            continue;
        }
        let Some((experiment, _)) = experiments.iter().find(|(_, m)| *m == sweep.method) else {
            continue;
        };
        let words = sweep.words(sizes, false);
        let values = words.iter().filter(|(name, _)| question.options.contains(&name.as_str()));
        let ways = values.map(|(_, list)| list.split(',').count()).product();
        let runs = RUNS.max(runs_needed(ways, CONFIDENCE));
        let mut command = format!("rdmalab run {experiment}");
        for (name, value) in &words {
            command.push_str(&format!(" --{name} {value}"));
        }
        command.push_str(&format!("{given} --repeat {runs}"));
        let is_alone = groups.iter().any(|g| {
            open.iter().any(|goal| is_answered(question, *goal, g) && has_number(g, *goal))
        });
        let is_short = groups.iter().any(|g| {
            open.iter().all(|goal| is_answered(question, *goal, g) && !has_number(g, *goal))
        });
        let options = question.options.join(" and --");
        let why = if is_alone {
            format!("no record varies only --{options}, in turns")
        } else if let (true, [goal]) = (is_short, open.as_slice()) {
            format!("the runs have no {}: raise --messages", goal.measure())
        } else {
            format!("no record has comparable runs of {experiment}")
        };
        advice.missing.push(Missing { question, goals: open, why, command });
    }
}

/// Device, host and conditions of a record as options: with other ones, the answers may differ.
fn device_options(record: &Record) -> String {
    let header = &record.header;
    let mut line = String::new();
    if let Some(host) = header.other_end() {
        line += &format!(" {}", shell_word(host));
    }
    line += &format!(" --device {}", shell_word(&header.device.name));
    for name in ["hosts", "cores", "interface", "udp-port", "profile", "faults"] {
        // A profile from the environment variable is not in the command, so the header's name is
        // used. For a profile from a file, only the variable has the path.
        let profile = header.device.profile.as_deref().filter(|_| name == "profile");
        if let Some(value) = header.option(name).or(profile) {
            line += &format!(" --{name} {}", shell_word(value));
        }
    }
    line
}

fn has_number(group: &Group, goal: Goal) -> bool {
    group.ways.iter().flat_map(|found| &found.runs).any(|(_, _, p)| goal.of(p).is_some())
}

/// The command of a record, with `runs` repetitions.
fn repeat_command(command: &[String], runs: usize) -> String {
    let mut words: Vec<String> = vec!["rdmalab".to_owned()];
    let mut rest = command.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--repeat" => drop(rest.next()),
            word if word.starts_with("--repeat=") => {}
            // `--until` excludes `--repeat`.
            "--until" | "--max-time" => drop(rest.next()),
            word if word.starts_with("--until=") || word.starts_with("--max-time=") => {}
            word => words.push(shell_word(word)),
        }
    }
    format!("{} --repeat {runs}", words.join(" "))
}
