//! The key `format` of a node: a name, or a group with `type` and options.

use rdmalab_config::{ConfigError, Findings, FromValue, Kind, Value};
use rdmalab_sample::{Format, FormatOptions};
use serde_json::json;

/// A format as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatChoice(pub FormatOptions);

impl FormatChoice {
    /// The format of this name, with its defaults.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(FormatOptions::named(name).unwrap_or_else(|| panic!("there is no format {name}")))
    }

    /// The format itself.
    ///
    /// # Panics
    /// Never: reading has checked it.
    #[must_use]
    pub fn build(&self) -> Box<dyn Format> {
        self.0.clone().build().unwrap_or_else(|why| panic!("a checked format: {why}"))
    }
}

/// A value as JSON, for types that read their options from it.
pub(crate) fn to_json(value: &Value) -> serde_json::Value {
    match &value.kind {
        Kind::Null => serde_json::Value::Null,
        Kind::Bool(is) => json!(is),
        Kind::Int(number) => json!(number),
        Kind::Float(number) => json!(number),
        Kind::Text(text) => json!(text),
        Kind::Array(all) | Kind::List(all) => all.iter().map(to_json).collect(),
        Kind::Group(entries) => {
            entries.iter().map(|entry| (entry.key.clone(), to_json(&entry.value))).collect()
        }
    }
}

impl FromValue for FormatChoice {
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
        let options = match &value.kind {
            Kind::Text(name) => FormatOptions::named(name)
                .ok_or_else(|| format!("{key} is {name:?}; it must be {}", Self::expected())),
            _ => serde_json::from_value(to_json(value)).map_err(|why| format!("{key}: {why}")),
        };
        let checked = options.and_then(|options: FormatOptions| {
            options.clone().build().map_err(|why| format!("{key}: {why}"))?;
            Ok(Self(options))
        });
        checked.map_err(|why| findings.error(ConfigError::new(&value.at, why))).ok()
    }

    fn expected() -> String {
        format!("one of {}, or a group with such a type", FormatOptions::NAMES.join(", "))
    }

    fn schema() -> serde_json::Value {
        json!({ "anyOf": [
            { "enum": FormatOptions::NAMES },
            {
                "type": "object",
                "properties": { "type": { "enum": FormatOptions::NAMES } },
                "required": ["type"],
            },
        ] })
    }
}
