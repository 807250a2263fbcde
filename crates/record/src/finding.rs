//! Findings: results over several points of a record, such as where one curve crosses another or
//! from which load on times rise.

use serde_json::{Value, json};

use crate::Object;

/// One result, as a number and as a sentence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finding {
    /// What was found: `crossover`, `knee`, `c_ack`, `t_o`, `pattern` ... Two findings of one name
    /// differ in [`Finding::parameters`] or in [`Finding::label`].
    pub name: String,
    /// The label of the series that it is about, as `rank 0`; may be empty.
    pub label: String,
    /// The unit of its numbers, as a suffix of names: `bytes`, `per_s`, `ns`, `messages`, `code`.
    pub unit: String,
    /// The value; `None` if there is none within the measured range.
    pub value: Option<f64>,
    /// The lower bound, where one is known.
    pub low: Option<f64>,
    /// The upper bound, where one is known.
    pub high: Option<f64>,
    /// The parameter of the curve, if the value is a value of it: `size_bytes`.
    pub along: Option<String>,
    /// The values that its points share, for the parameters that vary in the record.
    pub parameters: Object,
    /// The numbers of the points from which it follows.
    pub points: Vec<u64>,
    /// Further numbers that belong to it.
    pub numbers: Vec<Number>,
    /// The finding as a sentence.
    pub sentence: String,
}

/// A number that belongs to a finding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Number {
    /// Its name, with its unit at the end as in a parameter's: `base_ns`.
    pub name: String,
    /// The value; `None` where only bounds are known.
    pub value: Option<f64>,
    /// The lower bound, where one is known.
    pub low: Option<f64>,
    /// The upper bound, where one is known.
    pub high: Option<f64>,
}

/// A line of `findings.jsonl`: the findings over a number of points.
pub(crate) fn findings_line(points: usize, findings: &[Finding]) -> Value {
    let each: Vec<Value> = findings.iter().map(to_json).collect();
    json!({ "points_n": points, "findings": each })
}

fn to_json(finding: &Finding) -> Value {
    let unit = &finding.unit;
    let mut object = json!({
        "name": finding.name,
        "label": finding.label,
        "unit": unit,
        format!("value_{unit}"): finding.value,
        format!("low_{unit}"): finding.low,
        format!("high_{unit}"): finding.high,
        "along": finding.along,
        "parameters": finding.parameters,
        "points": finding.points,
        "sentence": finding.sentence,
    });
    if !finding.numbers.is_empty() {
        let each = finding.numbers.iter().map(|number| {
            let ends = json!({ "value": number.value, "low": number.low, "high": number.high });
            (number.name.clone(), ends)
        });
        object["numbers"] = Value::Object(each.collect());
    }
    object
}

impl Finding {
    /// The finding as an object whose names carry the unit, as in `findings.jsonl`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        to_json(self)
    }

    /// The name with the label: `pattern[rank 0]`.
    #[must_use]
    pub fn full_name(&self) -> String {
        match self.label.as_str() {
            "" => self.name.clone(),
            label => format!("{}[{label}]", self.name),
        }
    }
}

/// Parses a line: how many points there were, and the findings.
pub(crate) fn parse_findings(line: &Value) -> Result<(u64, Vec<Finding>), String> {
    let points = line.get("points_n").and_then(Value::as_u64).ok_or("no points_n")?;
    let each = line.get("findings").and_then(Value::as_array).ok_or("no findings")?;
    Ok((points, each.iter().map(parse).collect::<Result<_, String>>()?))
}

fn parse(value: &Value) -> Result<Finding, String> {
    let text = |name: &str| -> Result<String, String> {
        let text = value.get(name).and_then(Value::as_str);
        text.map(str::to_owned).ok_or_else(|| format!("a finding lacks the field {name}"))
    };
    let unit = text("unit")?;
    let number = |name: &str| value.get(format!("{name}_{unit}")).and_then(Value::as_f64);
    let points = value.get("points").and_then(Value::as_array);
    let points = points.into_iter().flatten().filter_map(Value::as_u64).collect();
    let parameters = value.get("parameters").and_then(Value::as_object).cloned();
    Ok(Finding {
        name: text("name")?,
        label: text("label")?,
        value: number("value"),
        low: number("low"),
        high: number("high"),
        along: value.get("along").and_then(Value::as_str).map(str::to_owned),
        parameters: parameters.unwrap_or_default(),
        points,
        numbers: numbers(value),
        sentence: text("sentence")?,
        unit,
    })
}

/// Older records have no such numbers.
fn numbers(value: &Value) -> Vec<Number> {
    let each = value.get("numbers").and_then(Value::as_object).into_iter().flatten();
    let number = |(name, ends): (&String, &Value)| {
        let end = |which: &str| ends.get(which).and_then(Value::as_f64);
        let (value, low, high) = (end("value"), end("low"), end("high"));
        Number { name: name.clone(), value, low, high }
    };
    each.map(number).collect()
}
