//! Prints a calibration.

use rdmalab_measure::text::{and, count_of, first_few};
use serde_json::{Value, json};

use super::args::CalibrateArgs;
use super::data::{LEAST_NS, LEAST_SHARE};
use super::model::Model;
use super::result::{Calibrated, Fitted};
use super::write::rounded;
use crate::table::Rows;

/// Most points that are named as left out.
const LEFT_OUT: usize = 3;

/// Prints tables: the parameters, what is not known, and each measurement with the model's value.
pub fn tables(model: &Model<'_>, found: &Calibrated) {
    let data = &model.data;
    outln!("{} fitted to {}\n", model.base.name, data.device);
    out!("{}", parameters(found));
    outln!();
    unknown(model, found).iter().for_each(|line| outln!("{line}"));
    outln!();
    out!("{}", residuals(model, found));
    outln!();
    let (chi2, freedom) = (found.fit.chi2(), found.freedom());
    outln!(
        "chi^2 {chi2:.1} with {freedom} degrees of freedom{} (before: {:.1}), {}",
        found.reduced().map(|one| format!(": {one:.2} for each")).unwrap_or_default(),
        found.chi2_before,
        count_of(found.fit.steps, "step"),
    );
    outln!(
        "standard errors of measurements are at least {} % and {LEAST_NS} ns{}",
        LEAST_SHARE * 100.0,
        match found.enlarged() {
            by if by > 1.0 => format!(
                "; those of parameters are multiplied by {by:.2}, because the model does not fit \
                 the measurements better"
            ),
            _ => String::new(),
        }
    );
}

fn parameters(found: &Calibrated) -> String {
    let mut rows = Rows::new(&["parameter", "before", "fitted", "+-"], 1);
    for fitted in found.fitted() {
        let is_without_limit = super::scale::is_rate(fitted.parameter) && fitted.value == 0.0;
        let unknown = if is_without_limit { "no limit" } else { "not known alone" };
        rows.push(&[
            fitted.parameter.name.to_owned(),
            rounded(fitted.before).to_string(),
            format!("{:.1}", fitted.value),
            fitted.error.map_or_else(|| unknown.to_owned(), |error| format!("{error:.1}")),
        ]);
    }
    rows.text()
}

/// What the points do not determine, a line for each reason.
fn unknown(model: &Model<'_>, found: &Calibrated) -> Vec<String> {
    let names = |all: &[&'static rdmalab_sim::Parameter]| {
        and(&all.iter().map(|parameter| parameter.name).collect::<Vec<_>>())
    };
    let mut lines: Vec<String> =
        found.known.groups.iter().map(|group| found.sentence(group)).collect();
    let weak = found.known.weak.iter().chain(&found.known.idle).map(|i| found.used[*i]);
    let weak: Vec<_> = found.weak.iter().copied().chain(weak).collect();
    if !weak.is_empty() {
        lines.push(format!("the points hardly depend on {}", names(&weak)));
    }
    if !found.idle.is_empty() {
        lines.push(format!("no point depends on {}", names(&found.idle)));
    }
    // The points may determine them, but the model does not agree with the points.
    let is_vague = |one: &Fitted| one.error.is_some_and(|error| error > one.value / 2.0);
    let vague: Vec<_> = found.fitted().filter(is_vague).map(|one| one.parameter).collect();
    if !vague.is_empty() {
        lines.push(format!("errors are more than half of the value: {}", names(&vague)));
    }
    if !model.data.left_out.is_empty() {
        lines.push(format!("left out: {}", first_few(&model.data.left_out, LEFT_OUT)));
    }
    if lines.is_empty() {
        lines.push("the points determine each of these parameters".to_owned());
    }
    lines
}

fn residuals(model: &Model<'_>, found: &Calibrated) -> String {
    let head = ["point", "quantity", "measured", "model", "difference", "standard errors"];
    let mut rows = Rows::new(&head, 2);
    let off = model.residuals(&found.values);
    for ((wanted, value), off) in model.data.wanted.iter().zip(&found.values).zip(off) {
        rows.push(&[
            model.data.places[wanted.point].name.clone(),
            format!("{} {}", wanted.quantity, wanted.label).trim_end().to_owned(),
            wanted.quantity.format(wanted.value),
            wanted.quantity.format(*value),
            format!("{:+.2} %", (value / wanted.value - 1.0) * 100.0),
            format!("{off:+.1}"),
        ]);
    }
    rows.text()
}

/// Prints all of it as a JSON document.
pub fn json(model: &Model<'_>, found: &Calibrated, args: &CalibrateArgs) {
    let names = |all: &[&'static rdmalab_sim::Parameter]| {
        all.iter().map(|parameter| parameter.name).collect::<Vec<_>>()
    };
    let parameter = |fitted: Fitted| {
        json!({
            "name": fitted.parameter.name,
            "before": rounded(fitted.before),
            "value": fitted.value,
            "standard_error": fitted.error,
        })
    };
    let group = |group: &rdmalab_fit::Group| {
        let combination = found.combination(group);
        json!({
            "parameters": found.names(group),
            "known_combinations": group.known,
            "weights": group.weights,
            "value": combination.map(|(value, _)| value),
            "standard_error": combination.map(|(_, error)| error),
        })
    };
    let off = model.residuals(&found.values);
    let all = model.data.wanted.iter().zip(&found.values).zip(off);
    let residual = |((wanted, value), off): ((&super::data::Wanted, &f64), f64)| {
        json!({
            "point": model.data.places[wanted.point].name,
            "quantity": wanted.quantity.field(),
            "label": wanted.label,
            "measured": wanted.value,
            "standard_error": wanted.error,
            "model": value,
            "standard_errors_off": off,
        })
    };
    let weak = found.known.weak.iter().chain(&found.known.idle).map(|i| found.used[*i]);
    let weak: Vec<_> = found.weak.iter().copied().chain(weak).collect();
    let value = json!({
        "base": model.base.name,
        "device": model.data.device,
        "output": args.output,
        "has_converged": found.fit.is_converged,
        "steps": found.fit.steps,
        "chi2": found.fit.chi2(),
        "chi2_before": found.chi2_before,
        "degrees_of_freedom": found.freedom(),
        "parameters": found.fitted().map(parameter).collect::<Vec<Value>>(),
        "groups": found.known.groups.iter().map(group).collect::<Vec<Value>>(),
        "hardly_used": names(&weak),
        "unused": names(&found.idle),
        "residuals": all.map(residual).collect::<Vec<Value>>(),
        "left_out": model.data.left_out,
    });
    outln!("{value:#}");
}
