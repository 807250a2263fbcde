//! Answers in plain words, with their evidence.

mod sentence;
mod short;

use rdmalab_record::{Object, Record, heading, shown};

use crate::answer::{Advice, Answer, Missing, Way, messages};
use crate::decide::Relation;
use crate::goal::Goal;
use crate::question::Pick;
use sentence::{interval, percent};

/// Columns of a page.
const COLUMNS: usize = 98;
/// The column at which answers begin; their evidence is indented by two more.
const INDENT: usize = 4;

/// A page: a summary, the answers for each goal, and the missing answers.
#[must_use]
pub fn text(advice: &Advice, records: &[Record]) -> String {
    let mut page = head(advice, records);
    if !advice.answers.is_empty() {
        page += &format!("\n{}", short::table(advice));
    }
    for goal in Goal::ALL {
        let answers: Vec<&Answer> = advice.answers.iter().filter(|a| a.goal == goal).collect();
        if !answers.is_empty() {
            page += &format!("\nFor {}: {}\n", goal.title(), goal.measure());
            page += &of_goal(&answers);
        }
    }
    page + &not_answered(&advice.missing) + &foot(advice)
}

fn head(advice: &Advice, records: &[Record]) -> String {
    let mut page = String::new();
    for device in &advice.devices {
        page += &format!("{} ({})\n", device.name, device.described());
    }
    let mut faults: Vec<&str> = advice.answers.iter().map(|a| a.faults.as_str()).collect();
    faults.sort_unstable();
    faults.dedup();
    for rules in faults.into_iter().filter(|rules| !rules.is_empty()) {
        let what = format!(
            "packets were disturbed on purpose ({rules}): this is advice for that, not for the \
             device"
        );
        page += &wrapped(&what, 0);
    }
    let mut sizes: Vec<u64> = advice.answers.iter().filter_map(Answer::size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if let [size] = sizes.as_slice() {
        page += &format!("messages of {size} B\n");
    }
    for (dir, damage) in records.iter().flat_map(|r| r.damage.iter().map(|d| (&r.dir, d))) {
        page += &wrapped(&format!("{}: {damage}", dir.display()), 0);
    }
    page
}

/// The answers for a goal, question by question.
fn of_goal(answers: &[&Answer]) -> String {
    let mut page = String::new();
    for of_question in answers.chunk_by(|a, b| a.question.key == b.question.key) {
        let question = of_question[0].question;
        let note = question.note_to(of_question[0].goal);
        let note = note.map(|note| format!(" ({note})")).unwrap_or_default();
        page += &format!("\n{}", wrapped(&format!("{}{note}", question.asks), 2));
        if let Pick::Threshold { on, off } = question.pick {
            for line in sentence::thresholds(of_question, on, off) {
                page += &wrapped(&line, INDENT);
            }
        }
        let shown = varying(of_question);
        for answer in of_question {
            let place = place(&answer.context, &shown);
            page += &wrapped(&format!("{place}{}", sentence::verdict(answer)), INDENT);
            page += &wrapped(&evidence(answer), INDENT + 2);
            for (name, why) in &answer.not_offered {
                page += &wrapped(&format!("not offered here: {name} ({why})"), INDENT + 2);
            }
        }
    }
    page
}

/// Names of parameters that all answers of a question have, and in which they differ.
fn varying<'a>(of_question: &[&'a Answer]) -> Vec<&'a str> {
    let first = &of_question[0].context;
    let differs = |name: &&str| {
        let mut values = of_question.iter().map(|a| a.context.get(*name));
        values.all(|v| v.is_some())
            && of_question.iter().any(|a| a.context.get(*name) != first.get(*name))
    };
    first.keys().map(String::as_str).filter(differs).collect()
}

fn place(context: &Object, names: &[&str]) -> String {
    let one = |name: &&str| {
        let value = shown(name, context.get(*name)?);
        Some(format!("{}\u{a0}{}", heading(name), value.replace(' ', "\u{a0}")))
    };
    let words: Vec<String> = names.iter().filter_map(one).collect();
    if words.is_empty() { String::new() } else { format!("at {}: ", words.join(", ")) }
}

/// The numbers of each way, the leader first.
fn evidence(answer: &Answer) -> String {
    let decision = &answer.decision;
    let mut order: Vec<usize> = (0..answer.ways.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (decision.medians[*a], decision.medians[*b]);
        if answer.goal.more_is_better() { b.total_cmp(&a) } else { a.total_cmp(&b) }
    });
    let mut parts: Vec<String> = order.iter().map(|i| measured(answer, *i)).collect();
    parts.push(match decision.runs {
        1 => "1\u{a0}run of each".to_owned(),
        n => format!("{n}\u{a0}runs of each"),
    });
    if let (Some(usual), Some(has)) = (answer.usual_messages, messages(&answer.context)) {
        parts.push(format!("{has}\u{a0}messages a run instead of {usual} or more"));
    }
    parts.join("; ")
}

fn measured(answer: &Answer, i: usize) -> String {
    let (way, decision) = (&answer.ways[i], &answer.decision);
    let value = answer.goal.format(decision.medians[i]).replace(' ', "\u{a0}");
    let mut text = format!("{} {value}", way.name);
    if let Some(effect) = decision.effects[i] {
        let known = match effect.ratio.interval {
            Some(ratio) => format!(", {}", interval(ratio)),
            None => String::new(),
        };
        let mark = match effect.relation {
            Relation::Worse => "",
            Relation::Same => ", alike",
            Relation::Unknown => "?",
        };
        text += &format!(" ({}{known}{mark})", percent(effect.ratio.value));
    }
    if let Some(tail) = way.tail.filter(|_| answer.goal == Goal::Predictability) {
        text += &format!(" = {tail:.2}\u{a0}x\u{a0}its\u{a0}median");
    }
    text + &losses(way)
}

fn losses(way: &Way) -> String {
    if way.lost == 0 { String::new() } else { format!(", LOST {} of {}", way.lost, way.sent) }
}

fn not_answered(missing: &[Missing]) -> String {
    if missing.is_empty() {
        return String::new();
    }
    let mut page = "\nNot answered:\n".to_owned();
    for one in missing {
        let goals: Vec<&str> = one.goals.iter().map(|goal| goal.title()).collect();
        let what = format!("{} (for {}): {}", one.question.asks, goals.join(", "), one.why);
        page += &wrapped(&what, 2);
        // The line is not wrapped: users copy it.
        page += &format!("      {}\n", one.command);
    }
    page
}

fn foot(advice: &Advice) -> String {
    if advice.answers.is_empty() {
        return String::new();
    }
    let legend = [
        "In brackets: against the first one of the line, which has the best median over the runs; \
         the middle of all pairs of runs, and its interval. The intervals of an answer hold \
         together with 95\u{a0}% certainty, so one of twenty answers may be wrong.",
        "Alike: what differs is within 3\u{a0}%, or a step of the clock, for certain. Cannot tell \
         (?): the interval holds no difference, and one that would matter; more runs may tell \
         (--repeat).",
        "One thing was changed at a time; nothing is said of several together. All of it is about \
         the machine as it was meanwhile: measure again another day, and give the directories of \
         both to `rdmalab advise`.",
    ];
    format!("\n{}", legend.map(|line| wrapped(line, 0)).concat())
}

/// Lines of at most [`COLUMNS`]; those after the first are indented by two more.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut line = " ".repeat(indent);
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent + 2)));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines.iter().map(|line| line.replace('\u{a0}', " ") + "\n").collect()
}
