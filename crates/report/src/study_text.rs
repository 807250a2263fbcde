//! A study as Markdown, JSON and CSV.

use rdmalab_record::Object;
use rdmalab_study::{
    Advice, Decision, Evaluation, Evidence, JudgedClaim, Measurement, Study, SweepResult,
    SweepState,
};
use serde_json::{Value, json};

use crate::chart::sentence;
use crate::csv_text::{lines, rows};
use crate::json::document;
use crate::markdown::{self, plain};
use crate::study_terms::{ADVICE_HEADS, advice_rows, condition_of, record};
use crate::study_values::{self, value};

/// The version of the JSON document's form; it rises when a field is changed or removed.
const FORMAT_VERSION: u32 = 1;

/// A study as Markdown: verdicts, published values beside ours, and the tables of each sweep.
#[must_use]
pub fn study_markdown(study: &Study, parts: &[SweepResult], evaluation: &Evaluation) -> String {
    let plan = &study.plan;
    let device = parts.iter().find_map(record).map(|record| record.header.device.title());
    let on = device.map_or(String::new(), |name| format!(" on {}", plain(&name)));
    let mut out =
        format!("# {}{on}\n\n{}. {}.\n", plan.key, plain(&plan.title), plain(&plan.source));
    if let Some(caution) = evaluation.kind.and_then(|kind| kind.caution()) {
        out += &format!("\n**{}.**\n", sentence(caution));
    }
    let claims = evaluation.claims.iter().map(|judged| {
        let claim = &judged.claim;
        let why = judged.verdict.why().to_owned();
        let by = condition_of(claim);
        vec![claim.says.clone(), judged.verdict.name().to_owned(), why, by, claim.source.clone()]
    });
    out += "\n## What the study says, and what was seen here\n\n";
    let heads = ["claim", "verdict", "why", "judged by", "source"].map(str::to_owned);
    out += &markdown::table(&heads, 5, claims);
    out += &study_values::in_markdown(study, evaluation);
    if !study.advice.is_empty() {
        out += "\n## What the study advises\n\n";
        let heads = ADVICE_HEADS.map(str::to_owned);
        out += &markdown::table(&heads, 3, advice_rows(study, evaluation));
    }
    for figure in &plan.figures {
        out += &format!("\n# Figure {}: {}\n", figure.key, plain(&figure.title));
        for part in parts.iter().filter(|part| part.figure == figure.key) {
            if !part.sweep.is_empty() {
                out += &format!("\n**{}**\n", sentence(&part.sweep));
            }
            out += &match &part.state {
                SweepState::Measured(record) => format!("\n{}", markdown::markdown(record)),
                SweepState::Missing(why) => format!("\nNot available: {}.\n", plain(why)),
                SweepState::NotAsked => "\nLeft out of this run.\n".to_owned(),
            };
        }
    }
    out
}

/// A study as one JSON document: claims with their evidence, published values beside ours, and each
/// sweep with its record.
#[must_use]
pub fn study_json(study: &Study, parts: &[SweepResult], evaluation: &Evaluation) -> String {
    let plan = &study.plan;
    let document = json!({
        "format": "rdmalab-study-report",
        "format_version": FORMAT_VERSION,
        "study": plan.key,
        "title": plan.title,
        "source": plan.source,
        "hardware": plan.hardware,
        "device_kind": evaluation.kind.map(|kind| kind.name()),
        "claims": evaluation.claims.iter().map(claim).collect::<Vec<_>>(),
        "advice": study.advice.iter().map(|it| advice(study, evaluation, it)).collect::<Vec<_>>(),
        "values_are": evaluation.origin(&plan.hardware),
        "value_verdicts": study_values::counts(evaluation),
        "values": evaluation.values.iter().map(|it| value(evaluation, it)).collect::<Vec<_>>(),
        "parts": parts.iter().map(part).collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}

fn claim(judged: &JudgedClaim) -> Value {
    json!({
        "key": judged.claim.key,
        "says": judged.claim.says,
        "source": judged.claim.source,
        "judged_by": condition_of(&judged.claim),
        "tolerance": judged.claim.tolerance,
        "range": judged.claim.range.as_ref().map(|range| json!({
            "parameter": range.parameter, "from": range.from, "to": range.to,
        })),
        "verdict": judged.verdict.name(),
        "why": judged.verdict.why(),
        "evidence": judged.evidence.iter().map(evidence).collect::<Vec<_>>(),
    })
}

fn advice(study: &Study, evaluation: &Evaluation, advice: &Advice) -> Value {
    json!({
        "says": advice.says,
        "claim": advice.claim,
        "follows_from": advice.borne_by(&study.claims),
        "verdict": evaluation.verdict_on(advice.claim.as_deref()),
    })
}

fn evidence(evidence: &Evidence) -> Value {
    let side = |cell: &Measurement| {
        json!({
            "value": cell.value,
            "low": cell.interval.map(|i| i.0),
            "high": cell.interval.map(|i| i.1),
            "n": cell.n,
            "runs": cell.runs,
        })
    };
    json!({
        "place": evidence.place,
        "left": side(&evidence.left),
        "right": side(&evidence.right),
        "ratio": evidence.ratio.0,
        "ratio_low": evidence.ratio.1.map(|i| i.0),
        "ratio_high": evidence.ratio.1.map(|i| i.1),
        "decision": match evidence.decision {
            Decision::Holds => "holds",
            Decision::Fails => "fails",
            Decision::Undecided => "open",
        },
    })
}

fn part(part: &SweepResult) -> Value {
    let (state, reason) = match &part.state {
        SweepState::Measured(_) => ("measured", None),
        SweepState::Missing(why) => ("not available", Some(why)),
        SweepState::NotAsked => ("left out", None),
    };
    json!({
        "figure": part.figure,
        "sweep": (!part.sweep.is_empty()).then_some(&part.sweep),
        "command": part.line,
        "state": state,
        "reason": reason,
        "record": record(part).map(document),
    })
}

/// All sweeps of a study as one CSV: figure and sweep, then the columns of [`crate::csv()`].
#[must_use]
pub fn study_csv(parts: &[SweepResult]) -> String {
    let of = |part: &SweepResult| -> Vec<Object> {
        let Some(record) = record(part) else { return Vec::new() };
        let with_place = |row: Object| {
            let mut all = Object::new();
            all.insert("figure".to_owned(), part.figure.as_str().into());
            all.insert("sweep".to_owned(), part.sweep.as_str().into());
            all.extend(row);
            all
        };
        record.points.iter().flat_map(|p| rows(record, p)).map(with_place).collect()
    };
    lines(&parts.iter().flat_map(of).collect::<Vec<Object>>())
}
