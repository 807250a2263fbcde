//! A study as Markdown, JSON and CSV.

use rdmalab_record::{Object, Record};
use rdmalab_study::{Cell, Compared, Decision, Evaluation, Evidence, Judged, Part, State, Study};
use serde_json::{Value, json};

use crate::charts::sentence;
use crate::csv::{lines, rows};
use crate::json::document;
use crate::markdown::{self, plain};
use crate::study::standing;

/// The version of the JSON document's form; it rises when a field changes or goes.
const FORMAT_VERSION: u32 = 1;

fn record(part: &Part) -> Option<&Record> {
    match &part.state {
        State::Measured(record) => Some(record),
        _ => None,
    }
}

/// A study as Markdown: verdicts, values beside ours, and the tables of each sweep.
#[must_use]
pub fn study_markdown(study: &Study, parts: &[Part], evaluation: &Evaluation) -> String {
    let plan = &study.plan;
    let device = parts.iter().find_map(record).map(|record| record.header.device.name.clone());
    let on = device.map_or(String::new(), |name| format!(" on {}", plain(&name)));
    let mut out =
        format!("# {}{on}\n\n{}. {}.\n", plan.key, plain(&plan.title), plain(&plan.source));
    if let Some(caution) = evaluation.kind.and_then(|kind| kind.caution()) {
        out += &format!("\n**{}.**\n", sentence(caution));
    }
    let claims = evaluation.claims.iter().map(|judged| {
        let claim = &judged.claim;
        let why = judged.verdict.why().to_owned();
        vec![claim.says.clone(), judged.verdict.name().to_owned(), why, claim.source.clone()]
    });
    out += "\n## What the study says, and what was seen here\n\n";
    out += &markdown::table(&["claim", "verdict", "why", "source"].map(str::to_owned), 4, claims);
    let own = evaluation.values.iter().filter(|v| !v.figure.is_empty()).map(|v| {
        let p = &v.published;
        let ours = v.ours.as_ref().map_or("-".to_owned(), |(what, n)| format!("{n} ({what})"));
        let theirs = format!("{} {}", p.value, p.unit);
        vec![p.what.clone(), p.place.clone(), standing(&v.standing), theirs, ours]
    });
    out += "\n## Published values beside ours\n\n";
    let heads = ["value", "where", "standing", "study", "here"].map(str::to_owned);
    out += &markdown::table(&heads, 3, own);
    for figure in &plan.figures {
        out += &format!("\n# Figure {}: {}\n", figure.key, plain(&figure.title));
        for part in parts.iter().filter(|part| part.figure == figure.key) {
            if !part.sweep.is_empty() {
                out += &format!("\n**{}**\n", sentence(&part.sweep));
            }
            out += &match &part.state {
                State::Measured(record) => format!("\n{}", markdown::markdown(record)),
                State::Missing(why) => format!("\nNot available: {}.\n", plain(why)),
                State::NotAsked => "\nLeft out of this run.\n".to_owned(),
            };
        }
    }
    out
}

/// A study as one JSON document: claims with their evidence, published values beside ours, and
/// each sweep with its record.
#[must_use]
pub fn study_json(study: &Study, parts: &[Part], evaluation: &Evaluation) -> String {
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
        "values": evaluation.values.iter().map(value).collect::<Vec<_>>(),
        "parts": parts.iter().map(part).collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}

fn claim(judged: &Judged) -> Value {
    json!({
        "key": judged.claim.key,
        "says": judged.claim.says,
        "source": judged.claim.source,
        "verdict": judged.verdict.name(),
        "why": judged.verdict.why(),
        "evidence": judged.evidence.iter().map(evidence).collect::<Vec<_>>(),
    })
}

fn evidence(evidence: &Evidence) -> Value {
    let side = |cell: &Cell| {
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
            Decision::Open => "open",
        },
    })
}

fn value(compared: &Compared) -> Value {
    let p = &compared.published;
    json!({
        "metric": p.metric,
        "what": p.what,
        "place": p.place,
        "value": p.value,
        "unit": p.unit,
        "tolerance": p.tolerance,
        "kind": p.kind.name(),
        "figure": (!compared.figure.is_empty()).then_some(&compared.figure),
        "ours": compared.ours.as_ref().map(|(what, number)| json!({ "is": what, "text": number })),
        "ours_over_theirs": compared.ratio,
        "standing": standing(&compared.standing),
    })
}

fn part(part: &Part) -> Value {
    let (state, reason) = match &part.state {
        State::Measured(_) => ("measured", None),
        State::Missing(why) => ("not available", Some(why)),
        State::NotAsked => ("left out", None),
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

/// All sweeps of a study as one CSV: the figure and the sweep, then what [`crate::csv()`] has.
#[must_use]
pub fn study_csv(parts: &[Part]) -> String {
    let of = |part: &Part| -> Vec<Object> {
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
