//! The machine of a record: its properties, and the settings that an administrator chooses.

use rdmalab_measure::unit;
use rdmalab_record::Object;
use serde_json::Value;

use crate::value::{fmt_bytes, heading, shown};

/// The key of the settings in `environment.json`.
const SETTINGS: &str = "settings";

/// A setting in words.
pub struct Setting {
    pub name: String,
    /// `not there` if the machine does not have the file.
    pub value: String,
    pub file: String,
}

/// The names and values of properties that the machine reported.
pub fn properties(environment: &Object) -> Vec<(String, String)> {
    let known = environment.iter().filter(|(name, _)| *name != SETTINGS);
    known.flat_map(|(name, value)| described(name, value)).collect()
}

/// The settings of the machine; none in older records.
pub fn settings(environment: &Object) -> Vec<Setting> {
    let all = environment.get(SETTINGS).and_then(Value::as_array);
    let of = |setting: &Value| {
        let text = |key: &str| setting.get(key).and_then(Value::as_str).map(str::to_owned);
        let value = text("value").unwrap_or_else(|| "not there".to_owned());
        Some(Setting { name: text("name")?, value, file: text("file")? })
    };
    all.into_iter().flatten().filter_map(of).collect()
}

/// A property as lines; none for what the machine did not report.
fn described(name: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Null => Vec::new(),
        Value::Object(inner) => inner
            .iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(key, v)| (format!("{} {}", heading(name), heading(key)), plain(key, v)))
            .collect(),
        other => vec![(heading(name), plain(name, other))],
    }
}

fn plain(name: &str, value: &Value) -> String {
    match value {
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Number(n) if unit::of_name(name) == Some("bytes") => {
            n.as_u64().map_or_else(|| n.to_string(), memory)
        }
        Value::Number(n) if name == "relative_error" => {
            format!("{:.1e}", n.as_f64().unwrap_or(f64::NAN))
        }
        other => shown(name, other),
    }
}

/// Formats the size of memory, which is seldom a power of two.
fn memory(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{:.1} GiB", b as f64 / f64::from(1 << 30)),
        b => fmt_bytes(b),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn properties_and_settings_are_told_apart() {
        let environment = json!({
            "kernel": "6.1.0",
            "cpu_governor": null,
            "numa_nodes": { "0": "0-3" },
            "settings": [
                { "name": "tuned profile", "file": "/etc/tuned/active_profile", "value": null },
                { "name": "idle state C6", "file": "/sys/f", "value": "disabled" },
            ],
        });
        let Value::Object(environment) = environment else { panic!("an object") };
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [own("kernel", "6.1.0"), own("numa nodes 0", "0-3")];
        assert_eq!(properties(&environment), expected);
        let settings = settings(&environment);
        let values: Vec<&str> = settings.iter().map(|setting| setting.value.as_str()).collect();
        assert_eq!(values, ["not there", "disabled"]);
        assert!(super::settings(&Object::new()).is_empty());
    }
}
