//! A study against measurements: every claim, and every published value beside ours.

use rdmalab_measure::Quantity;
use rdmalab_record::DeviceKind;

use crate::claim::{Claim, Stat};
use crate::find::{Part, State, cells};
use crate::judge::{Evidence, Verdict, judge, shown};
use crate::published::{Kind, Published};
use crate::study::Study;

/// What measurements say to a study.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The kind of the device that was measured; `None` when nothing was.
    pub kind: Option<DeviceKind>,
    /// Each claim.
    pub claims: Vec<Judged>,
    /// Each published value.
    pub values: Vec<Compared>,
}

/// A claim and what measurements say.
#[derive(Clone, Debug)]
pub struct Judged {
    /// It.
    pub claim: Claim,
    /// What they say.
    pub verdict: Verdict,
    /// From what that follows.
    pub evidence: Vec<Evidence>,
}

/// A published value, and ours.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The value.
    pub published: Published,
    /// The figure that ours comes from; empty where none is named.
    pub figure: String,
    /// Ours: what it is, and the number with its interval.
    pub ours: Option<(String, String)>,
    /// Ours over theirs.
    pub ratio: Option<f64>,
    /// What the two can be said to be to each other.
    pub standing: Standing,
}

/// What ours and theirs can be said to be to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Ours lies within the study's tolerance.
    Within,
    /// It does not.
    Beyond,
    /// It is not to be judged by: why.
    Shown(String),
    /// There is none of ours: why.
    Absent(String),
}

/// Holds a study against what was measured.
#[must_use]
pub fn evaluate(study: &Study, parts: &[Part]) -> Evaluation {
    let kind = parts.iter().find_map(|part| match &part.state {
        State::Measured(record) => Some(record.header.device.kind),
        _ => None,
    });
    let claims = study.claims.iter().map(|claim| {
        let (verdict, evidence) = judge(claim, study, parts, kind);
        Judged { claim: claim.clone(), verdict, evidence }
    });
    let values = study.published.iter().map(|published| compared(study, parts, published, kind));
    Evaluation { kind, claims: claims.collect(), values: values.collect() }
}

fn compared(
    study: &Study,
    parts: &[Part],
    published: &Published,
    kind: Option<DeviceKind>,
) -> Compared {
    let absent = |figure: &str, why: &str| Compared {
        published: published.clone(),
        figure: figure.to_owned(),
        ours: None,
        ratio: None,
        standing: Standing::Absent(why.to_owned()),
    };
    let Some(value) = study.values.iter().find(|v| v.metric == published.metric) else {
        return absent("", "");
    };
    let figure = value.ours.figure.as_deref().unwrap_or_default();
    let cell = match cells(parts, &value.ours, None) {
        Err(why) => return absent(figure, &why),
        Ok(found) if found.len() > 1 => return absent(figure, "several points of ours fit"),
        Ok(mut found) => found.remove(0),
    };
    let quantity = value.ours.quantity().unwrap_or(Quantity::MessageTime);
    let theirs = published.in_base();
    let stat = value.ours.stat.unwrap_or(Stat::Median).name();
    // A host's number over an adapter's would be a ratio of nothing.
    let is_soft = kind == Some(DeviceKind::Soft);
    let ratio = theirs.map(|theirs| cell.value / theirs).filter(|_| !is_soft);
    Compared {
        published: published.clone(),
        figure: figure.to_owned(),
        ours: Some((format!("{stat} {}", quantity.name()), shown(quantity, &cell))),
        ratio,
        standing: standing(published, ratio, kind),
    }
}

fn standing(published: &Published, ratio: Option<f64>, kind: Option<DeviceKind>) -> Standing {
    let shown = |why: &str| Standing::Shown(why.to_owned());
    match (published.kind, kind) {
        (Kind::Contested, _) => return shown("contested"),
        (Kind::Context, _) => return shown("context"),
        (_, Some(DeviceKind::Soft)) => return shown("a host's number, not an adapter's"),
        _ => {}
    }
    match (published.relative_tolerance(), ratio) {
        (Some(tolerance), Some(ratio)) if (ratio - 1.0).abs() <= tolerance => Standing::Within,
        (Some(_), Some(_)) => Standing::Beyond,
        _ => shown("no tolerance given"),
    }
}
