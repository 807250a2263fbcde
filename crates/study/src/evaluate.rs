//! Compares a study with measurements: judges each claim, and sets our number beside each published
//! value.

use rdmalab_record::DeviceKind;

use crate::claim::Claim;
use crate::evidence::{Evidence, Verdict};
use crate::judge::judge;
use crate::lookup::{SweepResult, SweepState, with_note};
use crate::measurement::Measurement;
use crate::published::{Published, Reliability};
use crate::study::Study;
use crate::value::Value;

/// What measurements say to a study.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The kind of the device that was measured; `None` when nothing was.
    pub kind: Option<DeviceKind>,
    /// Each claim.
    pub claims: Vec<JudgedClaim>,
    /// Each published value.
    pub values: Vec<ComparedValue>,
}

/// A claim and what measurements say.
#[derive(Clone, Debug)]
pub struct JudgedClaim {
    /// The claim.
    pub claim: Claim,
    /// Whether they confirm it.
    pub verdict: Verdict,
    /// The pairs of numbers from which the verdict follows.
    pub evidence: Vec<Evidence>,
}

/// A published value beside our number.
#[derive(Clone, Debug)]
pub struct ComparedValue {
    /// The published value.
    pub published: Published,
    /// The figure that our number comes from; empty where none is named.
    pub figure: String,
    /// What our number is, and the number with its interval.
    pub ours: Option<(String, String)>,
    /// Samples and runs behind our number.
    pub samples_and_runs: Option<(u64, usize)>,
    /// Our number over the published one.
    pub ratio: Option<f64>,
    /// Whether the two agree.
    pub standing: Standing,
}

/// Whether our number agrees with a published one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All of our interval lies within the study's tolerance.
    Within,
    /// All of our interval lies outside the tolerance.
    Beyond,
    /// The interval crosses the tolerance, or there is no interval: why.
    CannotTell(String),
    /// The value is shown for information only: why.
    Shown(String),
    /// Our number was not measured: why.
    Absent(String),
    /// No experiment here produces such a number: why.
    NotProduced(String),
}

/// Compares a study with what was measured.
#[must_use]
pub fn evaluate(study: &Study, parts: &[SweepResult]) -> Evaluation {
    let kind = parts.iter().find_map(|part| match &part.state {
        SweepState::Measured(record) => Some(record.header.device.kind),
        _ => None,
    });
    let claims = study.claims.iter().map(|claim| {
        let (verdict, evidence) = judge(claim, study, parts, kind);
        JudgedClaim { claim: claim.clone(), verdict, evidence }
    });
    let values = study.published.iter().map(|published| compared(study, parts, published, kind));
    Evaluation { kind, claims: claims.collect(), values: values.collect() }
}

fn compared(
    study: &Study,
    parts: &[SweepResult],
    published: &Published,
    kind: Option<DeviceKind>,
) -> ComparedValue {
    let without = |figure: &str, standing: Standing| ComparedValue {
        published: published.clone(),
        figure: figure.to_owned(),
        ours: None,
        samples_and_runs: None,
        ratio: None,
        standing,
    };
    let metric = &published.metric;
    let Some(value) = study.values.iter().find(|v| v.metric == *metric) else {
        let entry = study.absent.iter().find(|absent| absent.names(metric));
        let why = entry.map_or("nothing is named in claims.toml", |absent| &absent.because);
        return without("", Standing::NotProduced(why.to_owned()));
    };
    let figure = value.ours.figure.as_deref().unwrap_or_default();
    let cell = match value.cell(parts) {
        Ok(cell) => cell,
        Err(why) => {
            let why = with_note(&study.plan, &value.ours, why);
            return without(figure, Standing::Absent(why));
        }
    };
    let theirs = published.in_base();
    // A host's number over an adapter's would be a ratio of nothing.
    let is_soft = kind == Some(DeviceKind::Soft);
    let ratio = theirs.map(|theirs| cell.value / theirs).filter(|_| !is_soft);
    ComparedValue {
        published: published.clone(),
        figure: figure.to_owned(),
        ours: Some((value.described(), cell.whole_text())),
        samples_and_runs: Some((cell.n, cell.runs)),
        ratio,
        standing: standing(published, value, &cell, kind),
    }
}

fn standing(
    published: &Published,
    value: &Value,
    ours: &Measurement,
    kind: Option<DeviceKind>,
) -> Standing {
    let shown = |why: &str| Standing::Shown(why.to_owned());
    match (published.kind, kind, &value.shown) {
        (Reliability::Contested, ..) => return shown("contested"),
        (Reliability::Context, ..) => return shown("context"),
        (_, Some(DeviceKind::Soft), _) => return shown("a host's number, not an adapter's"),
        (_, _, Some(why)) => return shown(why),
        _ => {}
    }
    let cannot_tell = |why: &str| Standing::CannotTell(why.to_owned());
    match (published.allowed(), ours.ends()) {
        (None, _) => shown("no tolerance given"),
        (_, None) if ours.runs == 1 => {
            cannot_tell("there is one run, which says nothing of the next: repeat it")
        }
        (_, None) => cannot_tell("too few samples or runs for an interval: measure more"),
        (Some((from, to)), Some((low, high))) if from <= low && high <= to => Standing::Within,
        (Some((from, to)), Some((low, high))) if high < from || to < low => Standing::Beyond,
        _ => cannot_tell("its interval crosses the tolerance: more repetitions may tell"),
    }
}
