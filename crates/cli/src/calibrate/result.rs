//! What a calibration found.

use rdmalab_fit::{Fit, Group, Knowledge};
use rdmalab_measure::text::and;
use rdmalab_sim::Parameter;

use super::model::Model;
use super::scale;
use crate::failure::Outcome;

/// The fit of a profile.
pub struct Calibrated {
    /// The parameters that were fitted, in the order of the variables of the fit.
    pub used: Vec<&'static Parameter>,
    /// The search's result.
    pub fit: Fit,
    /// How well the values are known.
    pub known: Knowledge,
    /// Parameters on which no point depends.
    pub idle: Vec<&'static Parameter>,
    /// Parameters on which the points depend so little that they are not fitted.
    pub weak: Vec<&'static Parameter>,
    /// What the model gives for each wanted value.
    pub values: Vec<f64>,
    /// The sum of squares with the base profile.
    pub chi2_before: f64,
}

/// A fitted parameter.
pub struct Fitted {
    /// Which.
    pub parameter: &'static Parameter,
    /// Its value in the base profile.
    pub before: f64,
    /// Its value.
    pub value: f64,
    /// Its standard error; `None` if it is not known on its own, or is a rate without a limit.
    pub error: Option<f64>,
}

impl Calibrated {
    /// The result of a fit; what depends on nothing, or on hardly anything, comes beside it.
    ///
    /// # Errors
    /// The user wants to stop.
    pub fn of(
        model: &Model<'_>,
        used: Vec<&'static Parameter>,
        fit: Fit,
        (idle, weak): (Vec<&'static Parameter>, Vec<&'static Parameter>),
        before: Vec<f64>,
    ) -> Outcome<Self> {
        let worth: Vec<f64> = (0..used.len())
            .map(|i| scale::worth(used[i], fit.variables[i].start, fit.values[i]))
            .collect();
        let known = fit.knowledge(&worth);
        let profile = model.profile(&used, &fit.values);
        let values = model.values(&[profile])?.pop().unwrap_or_default();
        let chi2_before = before.iter().map(|residual| residual * residual).sum();
        Ok(Self { used, fit, known, idle, weak, values, chi2_before })
    }

    /// Measured values beyond the combinations of parameters that they determine.
    pub fn freedom(&self) -> usize {
        let unknown: usize =
            self.known.groups.iter().map(|group| group.members.len() - group.known).sum();
        let lost = self.known.idle.len() + self.known.weak.len() + unknown;
        (self.fit.residuals.len() + lost).saturating_sub(self.used.len())
    }

    /// chi^2 for each degree of freedom; `None` if there is none.
    pub fn reduced(&self) -> Option<f64> {
        let freedom = self.freedom();
        (freedom > 0).then(|| self.fit.chi2() / freedom as f64)
    }

    /// By how much errors are larger than measurements alone make them, since the model does not
    /// agree with these: the root of chi^2 for each degree of freedom, at least 1.
    pub fn enlarged(&self) -> f64 {
        self.reduced().unwrap_or(1.0).max(1.0).sqrt()
    }

    /// The fitted parameters.
    pub fn fitted(&self) -> impl Iterator<Item = Fitted> + '_ {
        self.used.iter().enumerate().map(|(i, parameter)| {
            let value = scale::from(parameter, self.fit.values[i]);
            let error = scale::error(parameter, value, self.known.error(i) * self.enlarged());
            Fitted {
                parameter,
                before: scale::from(parameter, self.fit.variables[i].start),
                value,
                error: (self.known.is_known(i) && error > 0.0).then_some(error),
            }
        })
    }

    /// The names of the parameters of a group.
    pub fn names(&self, group: &Group) -> Vec<&'static str> {
        group.members.iter().map(|i| self.used[*i].name).collect()
    }

    /// The terms of its combination: a time as such, and a rate as the time of a byte.
    fn terms(&self, group: &Group) -> Vec<String> {
        let term = |i: &usize| match scale::is_rate(self.used[*i]) {
            true => format!("1/{}", self.used[*i].name),
            false => self.used[*i].name.to_owned(),
        };
        group.members.iter().map(term).collect()
    }

    /// The known combination of a group, in its unit, with its standard error; `None` if there is
    /// none, or more than one.
    pub fn combination(&self, group: &Group) -> Option<(f64, f64)> {
        let terms = group.members.iter().zip(&group.weights);
        let sum = terms.map(|(i, weight)| self.fit.values[*i] * weight).sum();
        let error = self.known.error_of(&group.members, &group.weights) * self.enlarged();
        (group.known == 1).then_some((sum, error))
    }

    /// What is known of a group, in a sentence.
    pub fn sentence(&self, group: &Group) -> String {
        let names = self.names(group);
        let unit = scale::unit(self.used[group.members[0]]);
        let shown = |(sum, error): (f64, f64)| format!("{} +- {} {unit}", short(sum), short(error));
        match self.combination(group).map(shown) {
            Some(sum) if group.is_sum() => {
                format!("only the sum of {} is known, {sum}", and(&self.terms(group)))
            }
            Some(sum) => {
                let term = |(name, weight): (String, &f64)| format!("{weight:.2} {name}");
                let terms = self.terms(group).into_iter().zip(&group.weights);
                let terms: Vec<String> = terms.map(term).collect();
                format!("only {} is known, {sum}", terms.join(" + ").replace("+ -", "- "))
            }
            None => {
                let (known, count) = (group.known, group.members.len());
                format!("only {known} combinations of these {count} are known: {}", and(&names))
            }
        }
    }
}

/// A number with three digits that say something.
fn short(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let digits = (2 - number.abs().max(1e-9).log10().floor() as i32).clamp(0, 6);
    format!("{number:.*}", digits as usize)
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn small_numbers_keep_their_digits() {
        let of = [348.26, 12.345, 0.15712, 0.0, -2.5].map(short);
        assert_eq!(of, ["348", "12.3", "0.157", "0", "-2.50"]);
    }
}
