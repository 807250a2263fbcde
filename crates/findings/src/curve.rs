//! Points that differ in one parameter only, as a curve over that parameter.

use std::collections::BTreeSet;

use rdmalab_record::{Finding, Object, Point, Record};
use serde_json::Value;

/// Points that differ in one parameter only, sorted by it.
pub struct Curve<'a> {
    /// The parameter.
    pub x: &'a str,
    /// The other parameters that vary in the record, with their values on this curve.
    pub fixed: Object,
    /// Each value of the parameter, with all repetitions at that value.
    pub points: Vec<(f64, Vec<&'a Point>)>,
}

impl Curve<'_> {
    /// A finding of this curve; `sentence` does not yet name the fixed parameters.
    pub fn finding(&self, name: &str, unit: &str, sentence: &str) -> Finding {
        let points = self.points.iter().flat_map(|(_, points)| points);
        let mut points: Vec<u64> = points.map(|point| point.number).collect();
        points.sort_unstable();
        Finding {
            name: name.to_owned(),
            unit: unit.to_owned(),
            along: Some(self.x.to_owned()),
            parameters: self.fixed.clone(),
            points,
            sentence: format!("{}{sentence}", prefix(&self.fixed)),
            ..Finding::default()
        }
    }
}

/// Text such as `memory device: `; empty if there are no parameters.
pub fn prefix(parameters: &Object) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let each: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
    if each.is_empty() { String::new() } else { format!("{}: ", each.join(", ")) }
}

/// The parameters that differ between the whole points of a record.
pub fn varying_names(record: &Record) -> BTreeSet<&str> {
    let names = record.whole_points().flat_map(|point| point.parameters.keys());
    let all: BTreeSet<&str> = names.map(String::as_str).collect();
    all.into_iter().filter(|name| varies(record, name)).collect()
}

/// Whether a parameter differs between the whole points of a record.
fn varies(record: &Record, name: &str) -> bool {
    let mut values = record.whole_points().map(|p| p.parameters.get(name));
    let first = values.next();
    values.any(|value| Some(value) != first)
}

/// The parameters of a point that are among `names`, without `except`.
pub fn varying(names: &BTreeSet<&str>, point: &Point, except: Option<&str>) -> Object {
    let is_meant = |name: &str| Some(name) != except && names.contains(name);
    let named = point.parameters.iter().filter(|(name, _)| is_meant(name));
    named.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The whole points of a record as curves over a parameter. `names` are the parameters that vary.
pub fn curves<'a>(record: &'a Record, x: &'a str, names: &BTreeSet<&str>) -> Vec<Curve<'a>> {
    let mut curves: Vec<Curve> = Vec::new();
    for point in record.whole_points() {
        let Some(value) = point.parameters.get(x).and_then(Value::as_f64) else { continue };
        let fixed = varying(names, point, Some(x));
        let known = curves.iter().position(|curve| curve.fixed == fixed);
        let curve = match known {
            Some(known) => &mut curves[known],
            None => {
                curves.push(Curve { x, fixed, points: Vec::new() });
                curves.last_mut().expect("it was pushed")
            }
        };
        match curve.points.iter_mut().find(|(x, _)| *x == value) {
            Some((_, points)) => points.push(point),
            None => curve.points.push((value, vec![point])),
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    curves
}
