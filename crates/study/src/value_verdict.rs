//! Verdicts on published values: what a model was calibrated with, what it predicts, and how well.

use std::cmp::Ordering;

use rdmalab_record::DeviceKind;

use crate::evaluate::{ComparedValue, Evaluation, Standing};
use crate::published::Reliability;

/// The verdict on a published value. The order is that of tables: deficits first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueVerdict {
    /// It was not used to choose parameters, and ours lies outside its tolerance.
    Outside,
    /// A parameter was chosen by it, and ours lies outside its tolerance all the same.
    CalibratedOutside,
    /// The measurements leave open whether ours lies within.
    CannotTell,
    /// It was not used to choose parameters, and ours lies within its tolerance.
    Within,
    /// The study, or arithmetic, contradicts it.
    Contested,
    /// A parameter was chosen by it, so that nothing is predicted.
    Calibrated,
    /// It is shown for information only.
    Shown,
    /// Our number was not measured.
    NotMeasured,
    /// No experiment produces such a number.
    NotProduced,
}

impl ValueVerdict {
    /// All, in their order.
    pub const ALL: [Self; 9] = [
        Self::Outside,
        Self::CalibratedOutside,
        Self::CannotTell,
        Self::Within,
        Self::Contested,
        Self::Calibrated,
        Self::Shown,
        Self::NotMeasured,
        Self::NotProduced,
    ];

    /// The verdict in a word or two.
    const fn name(self, is_predicted: bool) -> &'static str {
        match (self, is_predicted) {
            (Self::Outside, true) => "predicted, outside",
            (Self::Outside, false) => "outside",
            (Self::CalibratedOutside, _) => "calibrated, yet outside",
            (Self::CannotTell, _) => "cannot tell",
            (Self::Within, true) => "predicted, within",
            (Self::Within, false) => "within",
            (Self::Contested, _) => "contested",
            (Self::Calibrated, _) => "calibrated",
            (Self::Shown, _) => "shown only",
            (Self::NotMeasured, _) => "not measured",
            (Self::NotProduced, _) => "not produced here",
        }
    }

    /// Whether a parameter of the model was chosen by the value.
    #[must_use]
    pub const fn is_calibrated(self) -> bool {
        matches!(self, Self::Calibrated | Self::CalibratedOutside)
    }
}

impl ComparedValue {
    /// The verdict on it.
    #[must_use]
    pub fn verdict(&self) -> ValueVerdict {
        let is_contested = self.published.kind == Reliability::Contested;
        match (&self.standing, self.calibrated_by.is_empty()) {
            (Standing::NotProduced(_), _) => ValueVerdict::NotProduced,
            (Standing::Absent(_), _) => ValueVerdict::NotMeasured,
            (_, _) if is_contested => ValueVerdict::Contested,
            (Standing::Beyond, false) => ValueVerdict::CalibratedOutside,
            (_, false) => ValueVerdict::Calibrated,
            (Standing::Beyond, true) => ValueVerdict::Outside,
            (Standing::Within, true) => ValueVerdict::Within,
            (Standing::CannotTell(_), true) => ValueVerdict::CannotTell,
            (Standing::Shown(_), true) => ValueVerdict::Shown,
        }
    }

    /// The reason for the verdict; may be empty.
    #[must_use]
    pub fn why(&self) -> String {
        match &self.standing {
            Standing::CannotTell(why)
            | Standing::Shown(why)
            | Standing::Absent(why)
            | Standing::NotProduced(why) => why.clone(),
            Standing::Within | Standing::Beyond
                if self.calibrated_by.iter().any(|by| *by != self.published.metric) =>
            {
                format!("it follows from {}", self.calibrated_by.join(" and "))
            }
            Standing::Within | Standing::Beyond => String::new(),
        }
    }

    /// How far ours lies from the published value, as a factor; 0 if there is no ratio.
    fn distance(&self) -> f64 {
        self.ratio.map_or(0.0, |ratio| if ratio > 0.0 { ratio.ln().abs() } else { f64::INFINITY })
    }
}

impl Evaluation {
    /// The name of the verdict on a claim.
    #[must_use]
    pub fn verdict_on(&self, claim: Option<&str>) -> &'static str {
        let mut all = self.claims.iter();
        let judged = all.find(|judged| Some(judged.claim.key.as_str()) == claim);
        judged.map_or("not judged", |judged| judged.verdict.name())
    }

    /// The name of a value's verdict. Only a model of the study's adapter predicts.
    #[must_use]
    pub fn named(&self, verdict: ValueVerdict) -> &'static str {
        verdict.name(self.is_of_study)
    }

    /// The values in the order of their verdicts, deficits first, the farthest of them first.
    #[must_use]
    pub fn values_by_verdict(&self) -> Vec<&ComparedValue> {
        let mut all: Vec<&ComparedValue> = self.values.iter().collect();
        let order = |a: &&ComparedValue, b: &&ComparedValue| {
            let farther = b.distance().partial_cmp(&a.distance()).unwrap_or(Ordering::Equal);
            a.verdict().cmp(&b.verdict()).then(farther)
        };
        all.sort_by(order);
        all
    }

    /// How many values have each verdict. Verdicts without a value are left out, except the main
    /// ones on a model.
    #[must_use]
    pub fn value_counts(&self) -> Vec<(&'static str, usize)> {
        let always = [
            ValueVerdict::Calibrated,
            ValueVerdict::Within,
            ValueVerdict::Outside,
            ValueVerdict::Contested,
        ];
        let count = |verdict| self.values.iter().filter(|v| v.verdict() == verdict).count();
        let is_main = |verdict: &ValueVerdict| always.contains(verdict);
        let main = always.into_iter().filter(|v| self.is_of_study || count(*v) > 0);
        let rest = ValueVerdict::ALL.into_iter().filter(|v| !is_main(v) && count(*v) > 0);
        main.chain(rest).map(|verdict| (self.named(verdict), count(verdict))).collect()
    }

    /// The counts in a line: `2 calibrated, 3 predicted within, 1 predicted outside, 0 contested`.
    #[must_use]
    pub fn value_summary(&self) -> String {
        let one = |(name, count): (&str, usize)| format!("{count} {}", name.replace(", ", " "));
        self.value_counts().into_iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// What the measured device is to the adapter of the study, `hardware`: half a sentence. `None`
    /// if nothing was measured.
    #[must_use]
    pub fn origin(&self, hardware: &str) -> Option<String> {
        Some(match self.kind? {
            DeviceKind::Sim if self.is_of_study => "numbers of a model of the study's adapter; a \
                calibrated value chose a parameter, so that the model does not predict it"
                .to_owned(),
            DeviceKind::Sim => {
                format!("numbers of a model, which is not of the study's adapter ({hardware})")
            }
            DeviceKind::Soft => format!(
                "a soft device was measured, whose numbers are this host's, and not the study's \
                 adapter ({hardware})"
            ),
            DeviceKind::System => {
                format!("an adapter of this host was measured; the study had {hardware}")
            }
        })
    }
}
