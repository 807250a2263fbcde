//! Names and values of parameters for people. The unit stands at the end of a record's names, and
//! with the number in a table.

use std::cmp::Ordering;

use rdmalab_measure::Quantity;
use rdmalab_measure::quantity::fmt_ns;
use rdmalab_record::Finding;
use serde_json::Value;

/// The name of a column: without the unit, which stands with the values.
pub fn heading(name: &str) -> String {
    let bare =
        ["_bytes", "_ns", "_per_s"].iter().find_map(|unit| name.strip_suffix(unit)).unwrap_or(name);
    bare.replace('_', " ")
}

/// A value with the unit that its name ends with.
pub fn shown(name: &str, value: &Value) -> String {
    match (value.as_f64(), value) {
        (Some(0.0), _) if name.ends_with("_ns") => "0 ns".to_owned(),
        (Some(number), _) if name.ends_with("_ns") => fmt_ns(number),
        (Some(0.0), _) if name.ends_with("_per_s") => "0".to_owned(),
        (Some(number), _) if name.ends_with("_per_s") => Quantity::Rate.format(number),
        (_, Value::Number(n)) if name.ends_with("_bytes") => match n.as_u64() {
            Some(bytes) => fmt_bytes(bytes),
            None => format!("{n} B"),
        },
        (_, Value::Number(n)) if n.is_u64() => grouped(n.as_u64().unwrap_or(0)),
        (_, Value::String(text)) => text.clone(),
        (_, Value::Null) => "-".to_owned(),
        (_, other) => other.to_string(),
    }
}

/// A number of a finding with its unit; `-` where there is none.
pub fn finding_value(finding: &Finding, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match finding.unit.as_str() {
        "ns" => fmt_ns(value),
        "per_s" => Quantity::Rate.format(value),
        "bytes" => fmt_bytes(value.round().max(0.0) as u64),
        "code" => format!("{value:.0}"),
        unit => format!("{} {}", grouped(value.round().max(0.0) as u64), unit.replace('_', " ")),
    }
}

/// A size: powers of two where it is one, else bytes.
pub fn fmt_bytes(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// A whole number with a blank between groups of three digits.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let head = digits.len() % 3;
    let mut text = digits[..head].to_owned();
    for group in digits.as_bytes()[head..].chunks(3) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.extend(group.iter().map(|b| char::from(*b)));
    }
    text
}

/// The text with blanks that no line may be broken at: within a number, and before its `%`.
pub fn unbreakable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    let mut before = ' ';
    while let Some(c) = letters.next() {
        let after = letters.peek().copied().unwrap_or(' ');
        let is_inside = before.is_ascii_digit() && (after.is_ascii_digit() || after == '%');
        out.push(if c == ' ' && is_inside { '\u{a0}' } else { c });
        before = c;
    }
    out
}

/// Numbers before texts, each in their own order.
pub fn order(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    let number = |v: Option<&Value>| v.and_then(Value::as_f64);
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.map(Value::to_string).cmp(&b.map(Value::to_string)),
    }
}

/// `p99.9` of 0.999.
pub fn percentile(q: f64) -> String {
    // Ten digits are more than any name has, and fewer than a float's last ones.
    let percent = format!("{:.10}", q * 100.0);
    format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn units_move_from_the_name_to_the_value() {
        assert_eq!(heading("size_bytes"), "size");
        assert_eq!(heading("signal_every"), "signal every");
        assert_eq!(shown("size_bytes", &json!(4096)), "4 KiB");
        assert_eq!(shown("size_bytes", &json!(1500)), "1500 B");
        assert_eq!(shown("pause_ns", &json!(1500)), "1.50 us");
        assert_eq!(
            (heading("rate_per_s"), shown("rate_per_s", &json!(1500))),
            ("rate".into(), "1.50 k/s".into())
        );
        assert_eq!(
            (shown("rate_per_s", &json!(0)), shown("pause_ns", &json!(0))),
            ("0".into(), "0 ns".into())
        );
        assert_eq!(shown("op", &json!("send")), "send");
        assert_eq!((shown("x", &json!(null)), shown("qps", &json!(3))), ("-".into(), "3".into()));
        assert_eq!(fmt_bytes(3 << 30), "3 GiB");
    }

    #[test]
    fn numbers_for_people() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1 000"), (12_345_678, "12 345 678")] {
            assert_eq!(grouped(n), text);
        }
        assert_eq!(unbreakable("at 5 % of 11 000 or so"), "at 5\u{a0}% of 11\u{a0}000 or so");
        for (q, text) in [(0.5, "p50"), (0.999, "p99.9"), (0.99999, "p99.999"), (0.05, "p5")] {
            assert_eq!(percentile(q), text);
        }
    }
}
