//! The points of records that answer a question: they differ in its parameters and in nothing else.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use rdmalab_measure::Method;
use rdmalab_record::{Object, Point, Record, word};
use serde_json::{Value, json};

use crate::question::{Experiments, Question};

/// Points that differ in a question's parameters only.
pub(crate) struct Group<'a> {
    /// The first record with these points.
    pub record: &'a Record,
    /// How they were measured.
    pub method: Method,
    /// All other parameters.
    pub context: Object,
    /// Fault rules that disturbed packets; empty: none.
    pub faults: String,
    /// The ways, in the order of the question.
    pub ways: Vec<WayRuns<'a>>,
    /// Ways that the device does not offer, and why.
    pub not_offered: Vec<(String, String)>,
    /// All that must be the same within the group.
    key: String,
}

/// A way, and its runs.
pub(crate) struct WayRuns<'a> {
    /// Its name: the values of the question's parameters.
    pub name: String,
    values: Vec<Value>,
    /// Its runs, each with its round.
    pub runs: Vec<(Round, &'a Record, &'a Point)>,
}

/// A round, in which each way has one run: the number of the record, and the repetition in it.
pub(crate) type Round = (usize, u32);

/// All groups of all records. Ways alternate within a record, but not between records, so the
/// groups of two records are joined only if both have the same ways.
pub(crate) fn groups<'a>(
    records: &'a [Record],
    experiments: Experiments<'_>,
    question: &Question,
) -> Vec<Group<'a>> {
    let mut all: Vec<Group> = Vec::new();
    for (number, record) in records.iter().enumerate() {
        for mut group in of_record(number, record, experiments, question) {
            group.ways.sort_by(|a, b| in_order(question, &a.values, &b.values));
            let is_same = |other: &&mut Group| {
                let names = |g: &Group| g.ways.iter().map(|w| w.name.clone()).collect::<Vec<_>>();
                (&other.key, &other.faults) == (&group.key, &group.faults)
                    && names(other) == names(&group)
            };
            match all.iter_mut().find(is_same) {
                Some(other) => {
                    for (to, from) in other.ways.iter_mut().zip(group.ways) {
                        to.runs.extend(from.runs);
                    }
                }
                None => all.push(group),
            }
        }
    }
    all
}

fn of_record<'a>(
    number: usize,
    record: &'a Record,
    experiments: Experiments<'_>,
    question: &Question,
) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for point in record.whole_points() {
        let Some((values, context)) = split(&point.parameters, question) else { continue };
        let Some(method) = method(&context, experiments) else { continue };
        if !question.sweeps.iter().any(|sweep| sweep.method == method) {
            continue;
        }
        let (key, faults) = (key(record, &context), faults(point));
        let found = groups.iter_mut().position(|g| g.key == key && g.faults == faults);
        let at = found.unwrap_or_else(|| {
            let (ways, not_offered) = (Vec::new(), Vec::new());
            groups.push(Group { record, method, context, faults, ways, not_offered, key });
            groups.len() - 1
        });
        let round = (number, point.repetition);
        let ways = &mut groups[at].ways;
        match ways.iter_mut().find(|way| way.values == values) {
            // A point that was measured twice in one round counts once.
            Some(way) if way.runs.iter().any(|run| run.0 == round) => {}
            Some(way) => way.runs.push((round, record, point)),
            None => {
                let name = name(question, &values);
                ways.push(WayRuns { name, values, runs: vec![(round, record, point)] });
            }
        }
    }
    for skipped in &record.skipped {
        let Some((values, context)) = split(&skipped.parameters, question) else { continue };
        let (key, name) = (key(record, &context), name(question, &values));
        for group in groups.iter_mut().filter(|group| group.key == key) {
            if !group.not_offered.iter().any(|(other, _)| *other == name) {
                group.not_offered.push((name.clone(), skipped.reason.clone()));
            }
        }
    }
    groups
}

/// How points with these parameters were measured, if by one of the experiments.
fn method(context: &Object, experiments: Experiments<'_>) -> Option<Method> {
    let name = context.get("experiment")?.as_str()?;
    experiments.iter().find(|(known, _)| *known == name).map(|(_, method)| *method)
}

/// The values of the question's parameters (`None` if one is missing), and all other parameters.
fn split(parameters: &Object, question: &Question) -> Option<(Vec<Value>, Object)> {
    let value = |name: &&str| parameters.get(*name).cloned();
    let values: Option<Vec<Value>> = question.parameters.iter().map(value).collect();
    let mut context = parameters.clone();
    // The seed only sets the order of the runs, so runs with different seeds are comparable.
    for name in question.parameters.iter().chain(&["seed"]) {
        context.shift_remove(*name);
    }
    Some((values?, context))
}

/// All that must be the same: the device, the machine, the other ends, the condition and all other
/// parameters.
fn key(record: &Record, context: &Object) -> String {
    let header = &record.header;
    let mut machine = record.environment.clone();
    machine.shift_remove("clock");
    let kind = header.device.kind.name();
    let held = header.held_dma_latency_us;
    let ends = ["hosts", "interface", "cores"].map(|name| header.option(name));
    // A capture slows down each packet, so it counts whether there was one; its file name does not.
    let facts = || record.points.iter().flat_map(|point| &point.facts);
    let is_captured = facts().any(|fact| fact.name.starts_with("capture"));
    // The profile of each end counts.
    let profiles = facts().filter(|fact| fact.name.starts_with("profile"));
    let profiles: BTreeSet<(&str, &str)> =
        profiles.map(|fact| (fact.name.as_str(), fact.value.as_str())).collect();
    json!([
        header.device.name,
        header.device.profile,
        profiles,
        kind,
        header.condition,
        held,
        machine,
        header.other_end(),
        ends,
        is_captured,
        context
    ])
    .to_string()
}

/// Fault rules of all ends.
fn faults(point: &Point) -> String {
    let is_rule = |name: &str| name == "faults" || name.starts_with("faults_at_rank_");
    let rules = point.facts.iter().filter(|fact| is_rule(&fact.name));
    let mut rules: Vec<&str> = rules.map(|fact| fact.value.as_str()).collect();
    rules.dedup();
    rules.join(" | ")
}

fn name(question: &Question, values: &[Value]) -> String {
    let words: Vec<String> = values.iter().map(word).collect();
    match words.as_slice() {
        [first, rest @ ..] if rest.iter().all(|word| word == first) => first.clone(),
        _ => {
            let pairs = question.parameters.iter().zip(&words);
            let pairs: Vec<String> =
                pairs.map(|(name, word)| format!("{} {word}", name.replace('_', " "))).collect();
            pairs.join(", ")
        }
    }
}

/// Compares numbers by value, words by their place in the question's options, other values as text.
fn in_order(question: &Question, a: &[Value], b: &[Value]) -> Ordering {
    let rank = |value: &Value| {
        let lists = question.sweeps.iter().flat_map(|sweep| sweep.options);
        let mut lists = lists.filter(|(name, _)| question.options.contains(name));
        let place = lists.find_map(|(_, list)| list.split(',').position(|w| w == word(value)));
        place.unwrap_or(usize::MAX)
    };
    let one = |(a, b): (&Value, &Value)| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => rank(a).cmp(&rank(b)).then_with(|| word(a).cmp(&word(b))),
    };
    a.iter().zip(b).map(one).fold(Ordering::Equal, Ordering::then)
}
