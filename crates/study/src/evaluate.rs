//! Compares a study with measurements: judges each claim, and sets our number beside each published
//! value.

use rdmalab_record::DeviceKind;

use crate::calibration::Calibration;
use crate::claim::Claim;
use crate::evidence::{Evidence, Verdict};
use crate::judge::judge;
use crate::lookup::{SweepResult, SweepState, repeats_exactly, with_note};
use crate::measurement::Measurement;
use crate::published::{Published, Reliability};
use crate::study::Study;
use crate::value::Value;

/// The result of comparing a study with measurements.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The kind of the measured device; `None` if nothing was measured.
    pub kind: Option<DeviceKind>,
    /// Whether the device is a model of the study's adapter.
    pub is_of_study: bool,
    /// Each claim.
    pub claims: Vec<JudgedClaim>,
    /// Each published value.
    pub values: Vec<ComparedValue>,
}

/// A claim and its verdict.
#[derive(Clone, Debug)]
pub struct JudgedClaim {
    /// The claim.
    pub claim: Claim,
    /// Whether the measurements confirm it.
    pub verdict: Verdict,
    /// The pairs of numbers from which the verdict follows.
    pub evidence: Vec<Evidence>,
}

/// A published value beside our number.
#[derive(Clone, Debug)]
pub struct ComparedValue {
    /// The published value.
    pub published: Published,
    /// The figure that our number comes from; empty if none is named.
    pub figure: String,
    /// The description of our number, and the number with its interval.
    pub ours: Option<(String, String)>,
    /// Our number in the unit that records use.
    pub number: Option<f64>,
    /// Numbers of samples and of runs behind our number.
    pub samples_and_runs: Option<(u64, usize)>,
    /// Our number divided by the published one.
    pub ratio: Option<f64>,
    /// Whether the two agree.
    pub standing: Standing,
    /// The calibrating values of the model that it is one of, or follows from.
    pub calibrated_by: Vec<String>,
}

/// Whether our number agrees with a published one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// All of our interval lies within the study's tolerance; or the number of a model does, which
    /// has no noise.
    Within,
    /// All of our interval lies outside the tolerance, or the number of a model.
    Beyond,
    /// The interval crosses the tolerance, or there is no interval; with the reason.
    CannotTell(String),
    /// The value is shown for information only; with the reason.
    Shown(String),
    /// Our number was not measured; with the reason.
    Absent(String),
    /// No experiment here produces such a number; with the reason.
    NotProduced(String),
}

/// Compares a study with measurements of a device that is no model of its adapter.
#[must_use]
pub fn evaluate(study: &Study, parts: &[SweepResult]) -> Evaluation {
    evaluate_model(study, parts, &Calibration::default())
}

/// Compares a study with measurements of a model.
#[must_use]
pub fn evaluate_model(
    study: &Study,
    parts: &[SweepResult],
    calibration: &Calibration,
) -> Evaluation {
    let kind = parts.iter().find_map(|part| match &part.state {
        SweepState::Measured(record) => Some(record.header.device.kind),
        _ => None,
    });
    let claims = study.claims.iter().map(|claim| {
        let (verdict, evidence) = judge(claim, study, parts, kind);
        JudgedClaim { claim: claim.clone(), verdict, evidence }
    });
    let is_model = kind == Some(DeviceKind::Sim);
    let value = |published| {
        let mut value = compared(study, parts, published, kind);
        let of_it = study.values.iter().find(|v| v.metric == value.published.metric);
        if let Some(of_it) = of_it.filter(|_| is_model) {
            value.calibrated_by = calibration.behind(study, of_it);
        }
        value
    };
    Evaluation {
        kind,
        is_of_study: is_model && calibration.is_of_study(),
        claims: claims.collect(),
        values: study.published.iter().map(value).collect(),
    }
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
        number: None,
        samples_and_runs: None,
        ratio: None,
        standing,
        calibrated_by: Vec::new(),
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
    // The ratio of a software device's number to an adapter's number would have no meaning.
    let is_soft = kind == Some(DeviceKind::Soft);
    let ratio = theirs.map(|theirs| cell.value / theirs).filter(|_| !is_soft);
    ComparedValue {
        published: published.clone(),
        figure: figure.to_owned(),
        ours: Some((value.described(), cell.whole_text())),
        number: Some(cell.value),
        samples_and_runs: Some((cell.n, cell.runs)),
        ratio,
        standing: standing(study, value, (&cell, repeats_exactly(parts)), (published, kind)),
        calibrated_by: Vec::new(),
    }
}

fn standing(
    study: &Study,
    value: &Value,
    (ours, is_exact): (&Measurement, bool),
    (published, kind): (&Published, Option<DeviceKind>),
) -> Standing {
    let shown = |why: &str| Standing::Shown(why.to_owned());
    match (published.kind, kind, &value.shown) {
        (Reliability::Contested, ..) => {
            let why = study.contested.iter().find(|entry| entry.names(&published.metric));
            let why = why.map_or(String::new(), |entry| format!(": {}", entry.because));
            return Standing::Shown(format!("contested{why}"));
        }
        (Reliability::Context, ..) => return shown("context"),
        (_, Some(DeviceKind::Soft), _) => return shown("a host's number, not an adapter's"),
        (_, _, Some(why)) => return shown(why),
        _ => {}
    }
    let cannot_tell = |why: &str| Standing::CannotTell(why.to_owned());
    let ends = if is_exact { Some((ours.value, ours.value)) } else { ours.ends() };
    match (published.allowed(), ends) {
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
