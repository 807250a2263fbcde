//! Texts that all forms of a study share.

use rdmalab_record::Record;
use rdmalab_study::{
    Claim, ComparedValue, Evaluation, Range, Relation, Standing, Study, SweepResult, SweepState,
};

/// The record of a sweep, if it was measured.
pub fn record(part: &SweepResult) -> Option<&Record> {
    match &part.state {
        SweepState::Measured(record) => Some(record),
        _ => None,
    }
}

/// The test of a claim in words: `left < right, by 5 % at least, size bytes 1 to 255`.
pub fn condition_of(claim: &Claim) -> String {
    let percent = (claim.tolerance * 1000.0).round() / 10.0;
    let mut text = vec![match (claim.relation, claim.factor) {
        (Relation::Times, Some(factor)) => format!("left = {factor} right"),
        (relation, Some(factor)) => format!("left {} {factor} right", relation.sign()),
        (relation, None) => format!("left {} right", relation.sign()),
    }];
    match claim.relation {
        _ if claim.tolerance == 0.0 => {}
        Relation::Near | Relation::Times => text.push(format!("within {percent} %")),
        _ => text.push(format!("a difference counts from {percent} % on")),
    }
    if let Some(Range { parameter, from, to }) = &claim.range {
        text.push(format!("{} {from} to {to}", parameter.replace('_', " ")));
    }
    if claim.every {
        text.push("at every point".to_owned());
    }
    text.join(", ")
}

/// The heads of a table of advice, of which [`advice_rows`] are the rows.
pub const ADVICE_HEADS: [&str; 3] = ["advice", "follows from", "seen here"];

/// What a study advises: each sentence, the claim that bears it, and the verdict on that claim.
pub fn advice_rows(study: &Study, evaluation: &Evaluation) -> impl Iterator<Item = Vec<String>> {
    study.advice.iter().map(|advice| {
        let verdict = evaluation.verdict_on(advice.claim.as_deref()).to_owned();
        vec![advice.says.clone(), advice.borne_by(&study.claims).to_owned(), verdict]
    })
}

/// Numbers of samples and runs behind a number: `8000, 3`; `-` if it was not measured.
pub fn behind(n: u64, runs: usize) -> String {
    if runs == 0 { "-".to_owned() } else { format!("{n}, {runs}") }
}

/// A standing in words.
pub fn standing(standing: &Standing) -> String {
    match standing {
        Standing::Within => "within the tolerance".to_owned(),
        Standing::Beyond => "beyond the tolerance".to_owned(),
        Standing::CannotTell(why) => format!("cannot tell: {why}"),
        Standing::Shown(why) => format!("shown only: {why}"),
        Standing::Absent(why) => format!("not measured: {why}"),
        Standing::NotProduced(why) => format!("not produced here: {why}"),
    }
}

/// A published value without a number of ours, with the reason.
pub fn without_ours(compared: &ComparedValue) -> Vec<String> {
    let p = &compared.published;
    let value = format!("{} {}", p.value, p.unit);
    let kind = p.kind.name().to_owned();
    vec![p.what.clone(), p.place.clone(), value, kind, standing(&compared.standing)]
}
