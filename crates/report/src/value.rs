//! Values for people, and their order.

use std::cmp::Ordering;

use rdmalab_measure::unit;
pub use rdmalab_measure::unit::{fmt_bytes, fmt_count};
use rdmalab_record::Finding;
pub use rdmalab_record::{heading, named, shown};
use serde_json::Value;

/// A number of a finding with its unit; `-` where there is none.
pub fn finding_value(finding: &Finding, value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| unit::format(value, &finding.unit))
}

/// The text with non-breaking blanks within numbers and before `%`.
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

/// Numbers before texts; numbers by value, texts alphabetically.
pub fn order(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    let number = |v: Option<&Value>| v.and_then(Value::as_f64);
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.map(Value::to_string).cmp(&b.map(Value::to_string)),
    }
}

/// The name of a percentile: `p99.9` for 0.999.
pub fn percentile(q: f64) -> String {
    // Ten decimals are more than any name needs, and hide the rounding error of the float.
    let percent = format!("{:.10}", q * 100.0);
    format!("p{}", percent.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(unbreakable("at 5 % of 11 000 or so"), "at 5\u{a0}% of 11\u{a0}000 or so");
        for (q, text) in [(0.5, "p50"), (0.999, "p99.9"), (0.99999, "p99.999"), (0.05, "p5")] {
            assert_eq!(percentile(q), text);
        }
    }
}
