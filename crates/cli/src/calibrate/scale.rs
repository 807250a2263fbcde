//! Parameters as variables of the search.
//!
//! A time is searched in nanoseconds, and a rate as the nanoseconds of a byte: in these, times of
//! messages are nearly linear, and no limit is 0.

use rdmalab_fit::Variable;
use rdmalab_sim::{Parameter, Parameters, Profile};

/// Nanoseconds of a byte at 10^6 bytes per second.
const NS_PER_BYTE: f64 = 1e3;
/// The slowest rate, in nanoseconds of a byte.
const SLOWEST: f64 = 1e4;
/// What a time and a byte count at least when changes are shared: parts that the base profile does
/// not have take part too, but hardly if others explain as much.
const LEAST: (f64, f64) = (5.0, 1e-3);
/// The size of a usual time and of a usual time of a byte, so that both have a common scale.
const USUAL: (f64, f64) = (100.0, 0.1);
/// The step of finite differences of a time: one for all times, so that those of which only the sum
/// matters have the same derivatives. It is long against a look for a completion, which makes times
/// jump.
const STEP_NS: f64 = 40.0;
/// The same of a byte's time, as a share of it and at least.
const STEP_OF_BYTE: (f64, f64) = (0.25, 0.01);

/// Whether a parameter is a rate. It is a time otherwise, or a whole number.
pub fn is_rate(parameter: &Parameter) -> bool {
    parameter.name.ends_with("_mb_per_s")
}

/// The parameters that may be fitted: times and rates.
pub fn all() -> impl Iterator<Item = &'static Parameter> {
    Parameters::ALL.iter().filter(|parameter| !parameter.is_whole)
}

/// The value of a variable for a value of a parameter.
pub fn to(parameter: &Parameter, value: f64) -> f64 {
    match is_rate(parameter) {
        false => value,
        true if value <= 0.0 => 0.0,
        true => NS_PER_BYTE / value,
    }
}

/// The value of a parameter for a value of its variable, within the parameter's range.
pub fn from(parameter: &Parameter, variable: f64) -> f64 {
    let value = match is_rate(parameter) {
        false => variable,
        // It is faster than the range allows: no limit.
        true if variable * parameter.max <= NS_PER_BYTE => 0.0,
        true => NS_PER_BYTE / variable,
    };
    value.clamp(parameter.min, parameter.max)
}

/// The error of a parameter for that of its variable.
pub fn error(parameter: &Parameter, value: f64, error: f64) -> f64 {
    if is_rate(parameter) { error * value * value / NS_PER_BYTE } else { error }
}

/// The unit of a variable: that of a sum of parameters.
pub fn unit(parameter: &Parameter) -> &'static str {
    if is_rate(parameter) { "ns a byte" } else { "ns" }
}

/// A parameter as a variable that begins with the profile's value.
pub fn variable(parameter: &Parameter, profile: &Profile) -> Variable {
    let start = to(parameter, profile.parameters.get(parameter.name).unwrap_or_default());
    // A square root, so that a change of a sum is shared in proportion to the values.
    let width = |least: f64, usual: f64| (start.max(least) * usual).sqrt();
    if is_rate(parameter) {
        let (share, least) = STEP_OF_BYTE;
        let step = (start * share).max(least);
        let (width, usual) = (width(LEAST.1, USUAL.1), USUAL.1);
        return Variable { start, min: 0.0, max: SLOWEST, width, usual, step };
    }
    let (width, usual) = (width(LEAST.0, USUAL.0), USUAL.0);
    Variable { start, min: parameter.min, max: parameter.max, width, usual, step: STEP_NS }
}

/// The standard error of a variable from which on its value counts as unknown.
pub fn worth(parameter: &Parameter, start: f64, found: f64) -> f64 {
    let least = if is_rate(parameter) { LEAST.1 } else { LEAST.0 };
    start.max(found).max(least) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_no_limit_is_0() {
        let base = rdmalab_sim::find("connectx4").unwrap();
        for parameter in all() {
            let value = base.parameters.get(parameter.name).unwrap();
            let back = from(parameter, to(parameter, value));
            assert!((back - value).abs() <= 1e-9 * value, "{}: {back}", parameter.name);
            let variable = variable(parameter, &base);
            assert!(variable.min <= variable.start && variable.start <= variable.max);
            assert!(variable.width > 0.0 && variable.step > 0.0);
        }
        let link = all().find(|parameter| parameter.name == "link_mb_per_s").unwrap();
        assert_eq!((to(link, 12_500.0), to(link, 0.0)), (0.08, 0.0));
        assert_eq!((from(link, 0.08), from(link, 0.0), from(link, 1e-5)), (12_500.0, 0.0, 0.0));
        // 1 % of a rate is 1 % of a byte's time.
        assert!((error(link, 12_500.0, 0.0008) - 125.0).abs() < 1e-9);
    }
}
