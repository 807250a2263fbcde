//! Names and values of parameters for people. In a record the unit is the end of the name; in a
//! table it follows the number.

use rdmalab_measure::quantity::{fmt_ns, fmt_rate};
use rdmalab_measure::unit::{self, fmt_bytes, fmt_count};
use serde_json::Value;

/// The name of a column: without the unit that [`shown`] writes behind the value.
#[must_use]
pub fn heading(name: &str) -> String {
    let bare = match unit::split(name) {
        (bare, Some("bytes" | "ns" | "per_s")) => bare,
        _ => name,
    };
    bare.replace('_', " ")
}

/// A value with the unit that its name ends with; `-` where there is none.
#[must_use]
pub fn shown(name: &str, value: &Value) -> String {
    match (unit::of_name(name), value) {
        (Some("ns"), Value::Number(n)) => match n.as_f64() {
            Some(0.0) => "0 ns".to_owned(),
            ns => ns.map_or_else(|| n.to_string(), fmt_ns),
        },
        (Some("per_s"), Value::Number(n)) => match n.as_f64() {
            Some(0.0) => "0".to_owned(),
            rate => rate.map_or_else(|| n.to_string(), fmt_rate),
        },
        (Some("bytes"), Value::Number(n)) => n.as_u64().map_or_else(|| format!("{n} B"), fmt_bytes),
        (_, Value::Number(n)) => n.as_u64().map_or_else(|| n.to_string(), fmt_count),
        (_, Value::String(text)) => text.clone(),
        (_, Value::Null) => "-".to_owned(),
        (_, other) => other.to_string(),
    }
}

/// The name and the value: `size 4 KiB`.
#[must_use]
pub fn named(name: &str, value: &Value) -> String {
    format!("{} {}", heading(name), shown(name, value))
}

/// A value as one word: a text without quotes, any other value as in JSON.
#[must_use]
pub fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn units_move_from_the_name_to_the_value() {
        for (name, value, bare, text) in [
            ("size_bytes", json!(4096), "size", "4 KiB"),
            ("size_bytes", json!(1500), "size", "1500 B"),
            ("pause_ns", json!(1500), "pause", "1.50 us"),
            ("pause_ns", json!(0), "pause", "0 ns"),
            ("rate_per_s", json!(1500), "rate", "1.50 k/s"),
            ("rate_per_s", json!(0), "rate", "0"),
            ("signal_every", json!(12_000), "signal every", "12 000"),
            ("op", json!("send"), "op", "send"),
            ("x", json!(null), "x", "-"),
        ] {
            assert_eq!((heading(name).as_str(), shown(name, &value).as_str()), (bare, text));
        }
    }
}
