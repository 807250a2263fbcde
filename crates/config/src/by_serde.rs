//! Keys of types that `serde` reads: the options of other crates, which know no configuration.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json, json};

use crate::error::ConfigError;
use crate::reader::{Described, Group, Reader};

/// A type whose fields are keys of a group. All have defaults, which its own `Default` gives: so
/// what it serializes to names the keys.
#[derive(Debug, Clone, Default)]
pub struct BySerde<T>(pub T);

impl<T: Default + Serialize + DeserializeOwned> Group for BySerde<T> {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut whole = Map::new();
        let mut is_right = true;
        for key in defaults::<T>().keys() {
            let Some(value) = reader.any(key) else { continue };
            let json = value.to_json();
            // Each key alone, so that an error belongs to its value.
            let alone = Json::Object([(key.clone(), json.clone())].into_iter().collect());
            match serde_json::from_value::<T>(alone) {
                Ok(_) => {
                    whole.insert(key.clone(), json);
                }
                Err(error) => {
                    let what = format!("{key} is {}", value.quoted());
                    reader.report(ConfigError::new(&value.at, what).right(error.to_string()));
                    is_right = false;
                }
            }
        }
        let read = serde_json::from_value(Json::Object(whole)).ok().filter(|_| is_right);
        read.map(BySerde)
    }

    fn describe(described: &mut Described) {
        for (key, default) in defaults::<T>() {
            described.add(&key, by_default(&default));
        }
    }
}

fn defaults<T: Default + Serialize>() -> Map<String, Json> {
    match serde_json::to_value(T::default()) {
        Ok(Json::Object(keys)) => keys,
        // A type that has no keys, such as one without fields.
        _ => Map::new(),
    }
}

/// The schema of a key whose default is known.
fn by_default(default: &Json) -> Json {
    let name = match default {
        // An option: of which type is not known.
        Json::Null => return json!({}),
        Json::Bool(_) => "boolean",
        Json::Number(number) if number.is_f64() => "number",
        Json::Number(_) => "integer",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    json!({ "type": name, "default": default })
}
