//! Answers as one JSON document.

use serde_json::{Value, json};

use crate::answer::{Advice, Answer, Missing};
use crate::decide::{CONFIDENCE, Effect, Outcome, Relation};
use crate::goal::Goal;
use crate::question::Pick;

/// The version of the document's form; it rises when a field is changed or removed.
const FORMAT_VERSION: u32 = 1;

/// The answers as one document, indented, with a line feed at the end.
#[must_use]
pub fn json(advice: &Advice) -> String {
    let devices = advice.devices.iter().map(|device| {
        json!({
            "name": device.name,
            "kind": device.kind.name(),
            "caution": device.kind.caution(),
        })
    });
    let document = json!({
        "format": "rdmalab-advice",
        "format_version": FORMAT_VERSION,
        "confidence": CONFIDENCE,
        "correction": "Bonferroni, over all pairs of ways of an answer",
        "devices": devices.collect::<Vec<_>>(),
        "answers": advice.answers.iter().map(answer).collect::<Vec<_>>(),
        "missing": advice.missing.iter().map(missing).collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}

fn answer(answer: &Answer) -> Value {
    let decision = &answer.decision;
    let outcome = match decision.outcome {
        Outcome::Best if answer.ways.len() == 1 => "only one offered",
        Outcome::Best => "best",
        Outcome::Alike if decision.worse().is_empty() => "no difference",
        Outcome::Alike => "several alike",
        Outcome::Open => "cannot tell",
    };
    // Nothing is chosen if the runs do not decide; of alike numbers, the least is.
    let chosen = match (decision.outcome, answer.question.pick) {
        (Outcome::Open, _) => Vec::new(),
        (_, Pick::Least) => decision.alike().into_iter().take(1).collect(),
        _ => decision.alike(),
    };
    let named = |which: &[usize]| which.iter().map(|i| answer.ways[*i].name.clone()).collect();
    let chosen: Vec<String> = named(&chosen);
    let not_offered = answer.not_offered.iter();
    json!({
        "question": answer.question.key,
        "goal": answer.goal.name(),
        "device": answer.device.name,
        "profile": answer.device.profile,
        "faults": (!answer.faults.is_empty()).then_some(&answer.faults),
        "outcome": outcome,
        "chosen": chosen,
        "leader": answer.ways[decision.leader].name,
        "runs": decision.runs,
        "runs_needed": decision.runs_needed,
        "equivalence_share": decision.zone,
        "fewer_messages_than": answer.usual_messages,
        "ways": (0..answer.ways.len()).map(|i| way(answer, i)).collect::<Vec<_>>(),
        "not_offered": not_offered
            .map(|(name, why)| json!({ "name": name, "reason": why }))
            .collect::<Vec<_>>(),
        "parameters": answer.context,
        "command": answer.command,
    })
}

fn way(answer: &Answer, i: usize) -> Value {
    let (way, decision) = (&answer.ways[i], &answer.decision);
    let effect = decision.effects[i];
    json!({
        "name": way.name,
        answer.goal.field(): decision.medians[i],
        "of_runs": way.values,
        "over_leader": effect.map(|effect| effect.ratio),
        "relation": effect.map_or("leader", relation),
        "p99_over_median": way.tail.filter(|_| answer.goal == Goal::Predictability),
        "sent": way.sent,
        "lost": way.lost,
    })
}

fn relation(effect: Effect) -> &'static str {
    match effect.relation {
        Relation::Worse => "worse",
        Relation::Same => "alike",
        Relation::Unknown => "unknown",
    }
}

fn missing(missing: &Missing) -> Value {
    json!({
        "question": missing.question.key,
        "goals": missing.goals.iter().map(|goal| goal.name()).collect::<Vec<_>>(),
        "reason": missing.why,
        "command": missing.command,
    })
}
