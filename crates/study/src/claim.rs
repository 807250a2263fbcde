//! One claim of `claims.toml`: a statement of a study, and our numbers that are compared with it.

use rdmalab_record::DeviceKind;
use serde::Deserialize;

use crate::operand::{Operand, Range};
use crate::plan::Plan;
use crate::published::{Published, is_certain, is_published};

/// A statement of a study, in a form that can be compared with measurements.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its key.
    pub key: String,
    /// The statement, in our words.
    pub says: String,
    /// The left operand: a number of a figure.
    pub left: Operand,
    /// The relation between the operands.
    pub relation: Relation,
    /// The right operand. Fields that it does not set are taken from the left one.
    pub right: Operand,
    /// The values of a parameter for which it is claimed.
    #[serde(default)]
    pub range: Option<Range>,
    /// As a share. For `<` and `>`: the least difference that counts. Otherwise: the tolerance.
    #[serde(default)]
    pub tolerance: f64,
    /// The right operand is multiplied by this; for `x` the factor itself is claimed.
    #[serde(default)]
    pub factor: Option<f64>,
    /// Whether the claim is about every point. Then one contradiction refutes it, even if chance
    /// could explain one. Not for lines that cross: their points differ by definition.
    #[serde(default)]
    pub every: bool,
    /// The place in the study.
    pub source: String,
    /// Kinds of devices on which the claim can be seen; empty: all.
    #[serde(default)]
    pub on: Vec<DeviceKind>,
    /// Why it cannot be seen on other kinds.
    #[serde(default)]
    pub because: String,
}

/// How two operands relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Relation {
    /// The left one is smaller.
    #[serde(rename = "<")]
    Less,
    /// The left one is larger.
    #[serde(rename = ">")]
    More,
    /// They are equal within the tolerance.
    #[serde(rename = "~")]
    Near,
    /// The left one is [`Claim::factor`] times the right one, within the tolerance.
    #[serde(rename = "x")]
    Times,
    /// Within the range the left one is smaller at first, and larger at the end.
    #[serde(rename = "rises above")]
    RisesAbove,
    /// Within the range the left one is larger at first, and smaller at the end.
    #[serde(rename = "falls below")]
    FallsBelow,
}

impl Relation {
    /// Whether the claim is that two lines cross.
    #[must_use]
    pub const fn crosses(self) -> bool {
        matches!(self, Self::RisesAbove | Self::FallsBelow)
    }

    /// Its sign, for people.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::More => ">",
            Self::Near => "≈",
            Self::Times => "×",
            Self::RisesAbove => "rises above",
            Self::FallsBelow => "falls below",
        }
    }
}

impl Claim {
    pub(crate) fn check(&self, plan: &Plan, published: &[Published]) -> Result<(), String> {
        self.left.check_in(plan).map_err(|what| format!("left: {what}"))?;
        if self.left.alone {
            return Err("left: it takes nothing from others: remove `alone`".to_owned());
        }
        let right = &self.right;
        if let Some(metric) = &right.published {
            is_published(published, metric).map_err(|what| format!("right: {what}"))?;
            is_certain(published, metric).map_err(|what| format!("right: {what}"))?;
        } else if right.value.is_none() {
            self.right_operand().check_in(plan).map_err(|what| format!("right: {what}"))?;
        }
        if !(0.0..1.0).contains(&self.tolerance) {
            return Err(format!(
                "tolerance = {}: it must be at least 0 and below 1",
                self.tolerance
            ));
        }
        if self.factor.is_some_and(|f| f <= 0.0 || !f.is_finite()) {
            return Err("factor must be above 0".to_owned());
        }
        if self.relation == Relation::Times && self.factor.is_none() {
            return Err("relation \"x\" needs a factor".to_owned());
        }
        if self.relation.crosses() && self.range.is_none() {
            return Err(format!("relation {:?} needs a range", self.relation.sign()));
        }
        if self.relation.crosses() && self.every {
            return Err(format!(
                "`every` cannot be combined with relation {:?}",
                self.relation.sign()
            ));
        }
        if let Some(range) = self.range.as_ref().filter(|range| range.from > range.to) {
            return Err(format!("range: from = {} exceeds to = {}", range.from, range.to));
        }
        if self.on.is_empty() != self.because.is_empty() {
            return Err("`on` (kinds of devices) and `because` must be given together".to_owned());
        }
        Ok(())
    }

    /// The right operand, with all fields that it does not set taken from the left one.
    #[must_use]
    pub fn right_operand(&self) -> Operand {
        self.right.with_defaults_of(&self.left)
    }
}
