//! The tree of a configuration.

use std::fmt;

use serde_json::{Value as Json, json};

use crate::position::Position;

/// Most characters of a value that an error quotes.
const QUOTED_MAX: usize = 40;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub struct Value {
    /// What it is.
    pub kind: Kind,
    /// Where it stands.
    pub at: Position,
}

/// What a value is. Two are equal wherever they stand.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// `null` of JSON.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer of at most 64 bits.
    Int(i64),
    /// A finite number with a point or an exponent.
    Float(f64),
    /// A string.
    Text(String),
    /// libconfig's `[...]`: scalars of one type.
    Array(Vec<Value>),
    /// libconfig's `(...)` and JSON's `[...]`: any values.
    List(Vec<Value>),
    /// `{...}`, in the order of the file; each key stands once.
    Group(Vec<Entry>),
}

/// A key with its value. Two are equal wherever they stand.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub key_at: Position,
    /// The value.
    pub value: Value,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key == other.key && self.value == other.value
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.kind == other.kind
    }
}

impl Value {
    /// The value as JSON, without its places.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match &self.kind {
            Kind::Null => Json::Null,
            Kind::Bool(is) => json!(is),
            Kind::Int(number) => json!(number),
            Kind::Float(number) => json!(number),
            Kind::Text(text) => json!(text),
            Kind::Array(all) | Kind::List(all) => all.iter().map(Value::to_json).collect(),
            Kind::Group(entries) => {
                entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect()
            }
        }
    }

    /// The value of a key of a group.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries()?.iter().find(|e| e.key == key).map(|e| &e.value)
    }

    /// The entries of a group.
    #[must_use]
    pub fn entries(&self) -> Option<&[Entry]> {
        match &self.kind {
            Kind::Group(entries) => Some(entries),
            _ => None,
        }
    }

    /// The elements of an array or a list.
    #[must_use]
    pub fn elements(&self) -> Option<&[Value]> {
        match &self.kind {
            Kind::Array(all) | Kind::List(all) => Some(all),
            _ => None,
        }
    }

    /// What it is, as an error names it.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match &self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "a boolean",
            Kind::Int(_) => "an integer",
            Kind::Float(_) => "a number with a fraction",
            Kind::Text(_) => "a string",
            Kind::Array(_) => "an array",
            Kind::List(_) => "a list",
            Kind::Group(_) => "a group",
        }
    }

    /// A short scalar as the file has it, and what anything else is.
    #[must_use]
    pub fn quoted(&self) -> &str {
        let text = self.at.text();
        let is_long = text.chars().nth(QUOTED_MAX).is_some() || text.contains('\n');
        let is_nested = matches!(self.kind, Kind::Array(_) | Kind::List(_) | Kind::Group(_));
        if is_long || is_nested { self.what() } else { text }
    }
}

/// libconfig's text. The root group stands without braces.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Group(entries) => settings(f, entries, 0),
            _ => written(f, self, 0),
        }
    }
}

fn settings(f: &mut fmt::Formatter<'_>, entries: &[Entry], depth: usize) -> fmt::Result {
    for entry in entries {
        write!(f, "{:1$}{2} = ", "", 2 * depth, entry.key)?;
        written(f, &entry.value, depth)?;
        f.write_str(";\n")?;
    }
    Ok(())
}

fn written(f: &mut fmt::Formatter<'_>, value: &Value, depth: usize) -> fmt::Result {
    match &value.kind {
        Kind::Null => f.write_str("null"),
        Kind::Bool(is) => write!(f, "{is}"),
        Kind::Int(number) if i32::try_from(*number).is_ok() => write!(f, "{number}"),
        Kind::Int(number) => write!(f, "{number}L"),
        Kind::Float(number) => write!(f, "{number:?}"),
        Kind::Text(text) => quoted(f, text),
        Kind::Array(all) => elements(f, ["[", "]"], all, depth),
        Kind::List(all) => elements(f, ["(", ")"], all, depth),
        Kind::Group(entries) => {
            f.write_str("{\n")?;
            settings(f, entries, depth + 1)?;
            write!(f, "{:1$}}}", "", 2 * depth)
        }
    }
}

fn elements(
    f: &mut fmt::Formatter<'_>,
    [open, close]: [&str; 2],
    all: &[Value],
    depth: usize,
) -> fmt::Result {
    f.write_str(open)?;
    for (i, one) in all.iter().enumerate() {
        f.write_str(if i == 0 { " " } else { ", " })?;
        written(f, one, depth)?;
    }
    write!(f, " {close}")
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            '\x0c' => f.write_str("\\f")?,
            c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}
