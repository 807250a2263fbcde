//! What values can be read as.

use std::ops::Deref;

use serde_json::json;

use crate::error::Findings;
use crate::position::Position;
use crate::reader::{FromValue, mismatch};
use crate::value::{Kind, Value};

/// A value that knows where it stands.
#[derive(Debug, Clone)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub at: Position,
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Values with names of the user's choice, in the order of the file.
#[derive(Debug, Clone)]
pub struct Named<T>(pub Vec<(At<String>, T)>);

/// A list, or one value that stands for a list of it.
#[derive(Debug, Clone)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
        T::from_value(value, key, findings).map(Some)
    }

    fn expected() -> String {
        T::expected()
    }

    fn schema() -> serde_json::Value {
        T::schema()
    }

    fn missing() -> Option<Self> {
        Some(None)
    }

    fn shown(&self) -> serde_json::Value {
        self.as_ref().map_or(serde_json::Value::Null, T::shown)
    }
}

impl<T: FromValue> FromValue for At<T> {
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
        let at = value.at.clone();
        T::from_value(value, key, findings).map(|value| At { value, at })
    }

    fn expected() -> String {
        T::expected()
    }

    fn schema() -> serde_json::Value {
        T::schema()
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
        let Some(elements) = value.elements() else {
            return mismatch(value, key, &Self::expected(), findings);
        };
        // All elements are read, so that each tells its errors.
        let read: Vec<Option<T>> =
            elements.iter().map(|one| T::from_value(one, key, findings)).collect();
        read.into_iter().collect()
    }

    fn expected() -> String {
        format!("a list, each element {}", T::expected())
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "array", "items": T::schema() })
    }

    fn shown(&self) -> serde_json::Value {
        self.iter().map(T::shown).collect()
    }
}

impl<T: FromValue> FromValue for OneOrMany<T> {
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
        if value.elements().is_some() {
            return Vec::from_value(value, key, findings).map(OneOrMany);
        }
        T::from_value(value, key, findings).map(|one| OneOrMany(vec![one]))
    }

    fn expected() -> String {
        format!("{}, or a list of such", T::expected())
    }

    fn schema() -> serde_json::Value {
        json!({ "anyOf": [T::schema(), Vec::<T>::schema()] })
    }

    fn shown(&self) -> serde_json::Value {
        self.0.shown()
    }
}

impl<T: FromValue> FromValue for Named<T> {
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
        let Some(entries) = value.entries() else {
            return mismatch(value, key, &Self::expected(), findings);
        };
        let read: Vec<Option<(At<String>, T)>> = entries
            .iter()
            .map(|entry| {
                let name = At { value: entry.key.clone(), at: entry.key_at.clone() };
                T::from_value(&entry.value, &entry.key, findings).map(|value| (name, value))
            })
            .collect();
        read.into_iter().collect::<Option<_>>().map(Named)
    }

    fn expected() -> String {
        "a group of names".to_owned()
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "object", "additionalProperties": T::schema() })
    }
}

/// Any value, for keys that the caller reads itself.
impl FromValue for Value {
    fn from_value(value: &Value, _: &str, _: &mut Findings) -> Option<Self> {
        Some(value.clone())
    }

    fn expected() -> String {
        "a value".to_owned()
    }

    fn schema() -> serde_json::Value {
        json!({})
    }
}

impl FromValue for String {
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
        match &value.kind {
            Kind::Text(text) => Some(text.clone()),
            _ => mismatch(value, key, &Self::expected(), findings),
        }
    }

    fn expected() -> String {
        "a string".to_owned()
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "string" })
    }

    fn shown(&self) -> serde_json::Value {
        json!(self)
    }
}

impl FromValue for bool {
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
        match value.kind {
            Kind::Bool(is) => Some(is),
            _ => mismatch(value, key, &Self::expected(), findings),
        }
    }

    fn expected() -> String {
        "true or false".to_owned()
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "boolean" })
    }

    fn shown(&self) -> serde_json::Value {
        json!(self)
    }
}

/// A number with or without a fraction.
impl FromValue for f64 {
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
        match value.kind {
            Kind::Float(number) => Some(number),
            #[expect(clippy::cast_precision_loss, reason = "what a file means by such a number")]
            Kind::Int(number) => Some(number as f64),
            _ => mismatch(value, key, &Self::expected(), findings),
        }
    }

    fn expected() -> String {
        "a number".to_owned()
    }

    fn schema() -> serde_json::Value {
        json!({ "type": "number" })
    }

    fn shown(&self) -> serde_json::Value {
        json!(self)
    }
}

/// Integers, within the limits of their type.
macro_rules! integers {
    ($($type:ty),+) => { $(
        impl FromValue for $type {
            fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
                let read = match value.kind {
                    Kind::Int(number) => <$type>::try_from(number).ok(),
                    _ => return mismatch(value, key, "an integer", findings),
                };
                read.or_else(|| mismatch(value, key, &Self::expected(), findings))
            }

            fn expected() -> String {
                format!("an integer from {} to {}", <$type>::MIN, <$type>::MAX)
            }

            fn schema() -> serde_json::Value {
                json!({ "type": "integer", "minimum": <$type>::MIN, "maximum": <$type>::MAX })
            }

            fn shown(&self) -> serde_json::Value {
                json!(self)
            }
        }
    )+ };
}

integers!(u8, u16, u32, u64, usize, i32, i64);
