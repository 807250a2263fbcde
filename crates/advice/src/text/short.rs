//! All answers in one table: a row for each goal, a column for each question.

use super::sentence::{self, SizeVerdict};
use crate::answer::{Advice, Answer};
use crate::decide::Outcome;
use crate::goal::Goal;
use crate::question::{Pick, QUESTIONS, Question};

/// The table, with a line that says what its signs mean.
pub fn table(advice: &Advice) -> String {
    let asked =
        |question: &&Question| advice.answers.iter().any(|a| a.question.key == question.key);
    let questions: Vec<&Question> = QUESTIONS.iter().filter(asked).collect();
    let mut rows = vec![vec!["in short, for".to_owned()]];
    rows[0].extend(questions.iter().map(|question| question.key.to_owned()));
    for goal in Goal::ALL {
        let of_goal: Vec<&Answer> = advice.answers.iter().filter(|a| a.goal == goal).collect();
        if of_goal.is_empty() {
            continue;
        }
        let cell = |question: &&Question| {
            let answers: Vec<&Answer> =
                of_goal.iter().filter(|a| a.question.key == question.key).copied().collect();
            cell(question, &answers)
        };
        let mut row = vec![goal.title().to_owned()];
        row.extend(questions.iter().map(cell));
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..rows[0].len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text += format!("{}\n", cells.collect::<Vec<_>>().join("  ")).trim_start();
        while text.ends_with(" \n") {
            text.truncate(text.len() - 2);
            text.push('\n');
        }
    }
    text + &signs(&rows)
}

/// The explanation of the signs that occur in the table.
fn signs(rows: &[Vec<String>]) -> String {
    let has = |sign: &str| rows[1..].iter().flatten().any(|cell| cell == sign);
    let all = [
        ("=", "no difference"),
        ("?", "cannot tell"),
        ("...", "it depends: see below"),
        ("-", "not asked for that"),
    ];
    let used = all.iter().filter(|(sign, _)| has(sign));
    let used: Vec<String> = used.map(|(sign, what)| format!("{sign} {what}")).collect();
    if used.is_empty() { String::new() } else { format!("({})\n", used.join("; ")) }
}

fn cell(question: &Question, answers: &[&Answer]) -> String {
    if answers.is_empty() {
        return "-".to_owned();
    }
    if let (Pick::Threshold { on, off }, true) = (question.pick, answers.len() > 1) {
        return of_sizes(answers, on, off);
    }
    let first = one(answers[0]);
    let is_same = answers.iter().all(|answer| one(answer) == first);
    if is_same { first } else { "...".to_owned() }
}

fn one(answer: &Answer) -> String {
    let decision = &answer.decision;
    let name = |i: &usize| answer.ways[*i].name.clone();
    match (decision.outcome, answer.question.pick) {
        (Outcome::Best, _) => name(&decision.leader),
        (Outcome::Alike, Pick::Least) => decision.alike().first().map(name).unwrap_or_default(),
        (Outcome::Alike, _) if decision.worse().is_empty() => "=".to_owned(),
        (Outcome::Alike, _) => decision.alike().iter().map(name).collect::<Vec<_>>().join("/"),
        (Outcome::Open, _) => "?".to_owned(),
    }
}

fn of_sizes(answers: &[&Answer], on: &str, off: &str) -> String {
    let states: Vec<(u64, SizeVerdict)> = sentence::states(answers, on, off);
    let all = |state| states.iter().all(|(_, s)| *s == state);
    let paid = states.iter().take_while(|(_, s)| *s == SizeVerdict::Pays).last();
    let is_only = states.iter().filter(|(_, s)| *s == SizeVerdict::Pays).count()
        == states.iter().take_while(|(_, s)| *s == SizeVerdict::Pays).count();
    match paid {
        _ if all(SizeVerdict::Same) => "=".to_owned(),
        _ if all(SizeVerdict::Unknown) => "?".to_owned(),
        _ if all(SizeVerdict::Costs) => off.to_owned(),
        Some((size, _)) if is_only => format!("{on} to {size} B"),
        _ => "...".to_owned(),
    }
}
