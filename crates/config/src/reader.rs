//! Groups of a tree as types: which keys there are, and what is wrong with those that stand there.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Map, json};

use crate::error::{ConfigError, Findings, Fix, Notice};
use crate::position::Position;
use crate::suggestion::meant;
use crate::value::{Entry, Kind, Value};

/// What a value of a configuration can be read as.
pub trait FromValue: Sized {
    /// Reads the value of `key`. `None` if `findings` tells why it cannot be read.
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self>;

    /// What the value must be, as an error names it: `a number`.
    fn expected() -> String;

    /// Its JSON schema, without the description of the key.
    fn schema() -> serde_json::Value;

    /// What it is where the key does not stand; `None` if it must stand.
    fn missing() -> Option<Self> {
        None
    }

    /// The value as JSON, for the default of a schema. Null is not shown.
    fn shown(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// A type that takes keys of a group. [`group!`](crate::group) and [`tagged!`](crate::tagged) make
/// it; several such types may share a group.
pub trait Group: Sized {
    /// The key that says which of several types the group has. A string in the place of the group
    /// is that key alone.
    const TAG: Option<&'static str> = None;

    /// Reads its keys. `None` if errors were found.
    fn read(reader: &mut Reader<'_>) -> Option<Self>;

    /// Names its keys.
    fn describe(described: &mut Described);
}

/// The least and the greatest value of a number.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    least: f64,
    greatest: f64,
}

impl<T: Into<f64> + Copy> From<RangeInclusive<T>> for Bounds {
    fn from(range: RangeInclusive<T>) -> Self {
        Bounds { least: (*range.start()).into(), greatest: (*range.end()).into() }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least.is_finite(), self.greatest.is_finite()) {
            (true, false) => write!(f, "at least {}", self.least),
            (false, true) => write!(f, "at most {}", self.greatest),
            _ => write!(f, "from {} to {}", self.least, self.greatest),
        }
    }
}

impl Bounds {
    /// Whether all numbers of the value are within. What is no number is left to its type.
    fn hold(&self, value: &Value, key: &str, findings: &mut Findings) -> bool {
        let number = match &value.kind {
            #[expect(clippy::cast_precision_loss, reason = "bounds are far below 2^53 or far off")]
            Kind::Int(number) => *number as f64,
            Kind::Float(number) => *number,
            Kind::Array(all) | Kind::List(all) => {
                // Each number outside is told.
                let outside = all.iter().filter(|one| !self.hold(one, key, findings)).count();
                return outside == 0;
            }
            _ => return true,
        };
        let is_within = (self.least..=self.greatest).contains(&number);
        if !is_within {
            let error = ConfigError::new(&value.at, format!("{key} is {}", value.quoted()));
            findings.error(error.right(format!("it must be {self}")));
        }
        is_within
    }
}

/// A key of an earlier version.
#[derive(Debug, Clone, Copy)]
pub struct Stale {
    /// The key.
    pub key: &'static str,
    /// The key that replaces it.
    pub now: &'static str,
    /// Values as they are written, and what replaces them. Other values stay.
    pub values: &'static [(&'static str, &'static str)],
}

/// A key that changes nothing here.
#[derive(Debug, Clone, Copy)]
pub struct Ignored {
    /// The key.
    pub key: &'static str,
    /// Why it has no effect.
    pub why: &'static str,
}

/// A key that would change what happens, and that we lack.
#[derive(Debug, Clone, Copy)]
pub struct Refused {
    /// The key.
    pub key: &'static str,
    /// What to do instead.
    pub why: &'static str,
}

/// Reads the keys of one group, and records which ones were asked for.
#[derive(Debug)]
pub struct Reader<'a> {
    entries: &'a [Entry],
    at: Option<Position>,
    findings: &'a mut Findings,
    known: Vec<Cow<'static, str>>,
    stale: Vec<&'static [Stale]>,
    ignored: Vec<&'static [Ignored]>,
    refused: Vec<&'static [Refused]>,
    is_type_unknown: bool,
}

impl<'a> Reader<'a> {
    /// A reader of the entries of a group that stands `at`.
    pub fn new(entries: &'a [Entry], at: Option<Position>, findings: &'a mut Findings) -> Self {
        Reader {
            entries,
            at,
            findings,
            known: Vec::new(),
            stale: Vec::new(),
            ignored: Vec::new(),
            refused: Vec::new(),
            is_type_unknown: false,
        }
    }

    /// The value of a key with bounds and a default. A key without default must stand there,
    /// unless its type says what it is where it does not.
    pub fn key<T: FromValue>(
        &mut self,
        key: &'static str,
        bounds: Option<Bounds>,
        default: Option<T>,
    ) -> Option<T> {
        self.known.push(Cow::Borrowed(key));
        let Some(entry) = self.entries.iter().find(|e| e.key == key) else {
            let value = default.or_else(T::missing);
            if value.is_none() {
                self.error(format!("{key} is missing"), format!("it must be {}", T::expected()));
            }
            return value;
        };
        if let Some(bounds) = bounds
            && !bounds.hold(&entry.value, key, self.findings)
        {
            return None;
        }
        T::from_value(&entry.value, key, self.findings)
    }

    /// The value of a key, whatever it is.
    pub fn any(&mut self, key: &str) -> Option<&'a Value> {
        self.known.push(Cow::Owned(key.to_owned()));
        self.entries.iter().find(|e| e.key == key).map(|e| &e.value)
    }

    /// An error of one of the values.
    pub fn report(&mut self, error: ConfigError) {
        self.findings.error(error);
    }

    /// An error of the group as a whole.
    pub fn error(&mut self, what: String, right: String) {
        let at = self.at.clone();
        self.findings.error(ConfigError { at, what, right: Some(right), fix: None });
    }

    /// Keys of earlier versions.
    pub fn stale(&mut self, keys: &'static [Stale]) {
        self.stale.push(keys);
    }

    /// Keys that have no effect.
    pub fn ignored(&mut self, keys: &'static [Ignored]) {
        self.ignored.push(keys);
    }

    /// Keys that we lack.
    pub fn refused(&mut self, keys: &'static [Refused]) {
        self.refused.push(keys);
    }

    /// Which of the names the key has, and so which type its group. `refused` are names that others
    /// know.
    pub fn variant(
        &mut self,
        key: &'static str,
        names: &[&'static str],
        refused: &'static [Refused],
    ) -> Option<&'static str> {
        let text = self.key::<String>(key, None, None);
        let found = names.iter().find(|name| Some(**name) == text.as_deref()).copied();
        self.is_type_unknown |= found.is_none();
        if let (None, Some(text)) = (found, text)
            && let Some(entry) = self.entries.iter().find(|e| e.key == key)
        {
            self.findings.error(unknown_name(&entry.value, key, &text, names, refused));
        }
        found
    }

    /// Reports the keys that nobody asked for.
    pub fn finish(mut self) {
        for entry in self.entries {
            let key = entry.key.as_str();
            if self.known.iter().any(|known| known == key) {
                continue;
            }
            if let Some(stale) = self.stale.iter().copied().flatten().find(|s| s.key == key) {
                self.findings.error(stale_key(entry, stale, self.entries));
            } else if let Some(refused) =
                self.refused.iter().copied().flatten().find(|r| r.key == key)
            {
                self.refuse(entry, refused);
            } else if let Some(ignored) =
                self.ignored.iter().copied().flatten().find(|i| i.key == key)
            {
                self.notice(entry, ignored.why);
            } else if !self.is_type_unknown {
                let error = ConfigError::new(&entry.key_at, format!("unknown key {key:?}"));
                let meant = meant(key, self.known.iter().map(Cow::as_ref));
                self.findings.error(match meant {
                    Some(meant) => error.right(format!("did you mean {meant}?")),
                    None => error.right(format!("the keys here are {}", self.known.join(", "))),
                });
            }
        }
    }
    /// Reports a key that we lack, unless it is switched off.
    fn refuse(&mut self, entry: &Entry, refused: &Refused) {
        let is_off = entry.value.get("enabled").is_some_and(|v| v.kind == Kind::Bool(false));
        if is_off {
            self.notice(entry, "it is not enabled");
        } else {
            let what = format!("{} is not built", entry.key);
            self.findings.error(ConfigError::new(&entry.key_at, what).right(refused.why));
        }
    }

    fn notice(&mut self, entry: &Entry, why: &'static str) {
        let at = entry.key_at.clone();
        self.findings.notices.push(Notice { at, key: entry.key.clone(), why });
    }
}

fn stale_key(entry: &Entry, stale: &Stale, entries: &[Entry]) -> ConfigError {
    let written = entry.value.at.text();
    let value = stale.values.iter().find(|(from, _)| from.eq_ignore_ascii_case(written));
    let value = value.map_or(written, |(_, to)| to);
    let error = ConfigError::new(&entry.key_at, format!("unknown key {:?}", stale.key));
    if entries.iter().any(|e| e.key == stale.now) {
        return error.right(format!("{} stands here too: delete this one", stale.now));
    }
    let at = entry.key_at.until(&entry.value.at);
    let text = if at.source().is_json {
        format!("\"{}\": {value}", stale.now)
    } else {
        format!("{} = {value}", stale.now)
    };
    let fix = Some(Fix { at, text: text.clone() });
    ConfigError { fix, ..error.right(format!("write {text}")) }
}

/// Reads a whole tree. Errors stand in the order of the file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read<T: Group>(tree: &Value) -> Result<(T, Vec<Notice>), Vec<ConfigError>> {
    let mut findings = Findings::default();
    let read = group(tree, "the file", &mut findings);
    match read {
        Some(value) if findings.errors.is_empty() => Ok((value, findings.notices)),
        _ => {
            let place = |e: &ConfigError| {
                e.at.as_ref().map(|at| (at.source().path.clone(), at.bytes().start))
            };
            findings.errors.sort_by_key(place);
            Err(findings.errors)
        }
    }
}

/// The JSON schema of a whole file.
#[must_use]
pub fn schema<T: FromValue>(title: &str) -> serde_json::Value {
    let mut schema = T::schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(title);
    schema
}

/// Reads a group that one type has for itself.
pub fn group<T: Group>(value: &Value, key: &str, findings: &mut Findings) -> Option<T> {
    let alone;
    let entries = match (&value.kind, T::TAG) {
        (Kind::Group(entries), _) => entries.as_slice(),
        (Kind::Text(_), Some(tag)) => {
            let key_at = value.at.clone();
            alone = [Entry { key: tag.to_owned(), key_at, value: value.clone() }];
            &alone
        }
        (_, Some(_)) => return mismatch(value, key, "a group or the name of a type", findings),
        (_, None) => return mismatch(value, key, "a group", findings),
    };
    let mut reader = Reader::new(entries, Some(value.at.clone()), findings);
    let read = T::read(&mut reader);
    reader.finish();
    read
}

/// The group as it is if none of its keys stands there; `None` if one must.
#[must_use]
pub fn absent<T: Group>() -> Option<T> {
    let mut findings = Findings::default();
    let read = T::read(&mut Reader::new(&[], None, &mut findings));
    read.filter(|_| findings.errors.is_empty())
}

/// Which of several named values a string is.
pub fn choice<T: Copy>(
    value: &Value,
    key: &str,
    names: &[(&'static str, T)],
    findings: &mut Findings,
) -> Option<T> {
    choice_of(value, key, names, &[], findings)
}

/// Which of several named values a string is. `refused` are values that we lack.
pub fn choice_of<T: Copy>(
    value: &Value,
    key: &str,
    names: &[(&'static str, T)],
    refused: &[Refused],
    findings: &mut Findings,
) -> Option<T> {
    let all: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let Kind::Text(text) = &value.kind else {
        return mismatch(value, key, &alternatives(&all), findings);
    };
    let found = names.iter().find(|(name, _)| name == text).map(|(_, value)| *value);
    if found.is_none() {
        findings.error(unknown_name(value, key, text, &all, refused));
    }
    found
}

fn unknown_name(
    value: &Value,
    key: &str,
    text: &str,
    names: &[&str],
    refused: &[Refused],
) -> ConfigError {
    if let Some(refused) = refused.iter().find(|r| r.key == text) {
        let what = format!("{key} {text:?} is not built");
        return ConfigError::new(&value.at, what).right(refused.why);
    }
    let error = ConfigError::new(&value.at, format!("{key} is {}", value.quoted()));
    error.right(match meant(text, names.iter().copied()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("it must be {}", alternatives(names)),
    })
}

/// `"a", "b" or "c"`.
#[must_use]
pub fn alternatives(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Reports that a value is of another type than the key has.
pub(crate) fn mismatch<T>(
    value: &Value,
    key: &str,
    expected: &str,
    findings: &mut Findings,
) -> Option<T> {
    let error = ConfigError::new(&value.at, format!("{key} is {}", value.quoted()));
    findings.error(error.right(format!("it must be {expected}")));
    None
}

/// The keys of a group, for its schema.
#[derive(Debug, Default)]
pub struct Described {
    properties: Map<String, serde_json::Value>,
    required: Vec<&'static str>,
    variants: Vec<serde_json::Value>,
}

impl Described {
    /// Adds a key.
    pub fn key<T: FromValue>(
        &mut self,
        key: &'static str,
        doc: &[&str],
        bounds: Option<Bounds>,
        default: Option<T>,
    ) {
        let mut schema = T::schema();
        if let Some(bounds) = bounds {
            bounded(&mut schema, &bounds);
        }
        schema["description"] = json!(sentence(doc));
        match default.as_ref().map(T::shown) {
            Some(serde_json::Value::Null) => {}
            Some(default) => schema["default"] = default,
            None if T::missing().is_none() => self.required.push(key),
            None => {}
        }
        self.add(key, schema);
    }

    /// Adds a key of which the schema is known.
    pub fn add(&mut self, key: &str, schema: serde_json::Value) {
        self.properties.insert(key.to_owned(), schema);
    }

    /// Adds keys that have no effect.
    pub fn ignored(&mut self, keys: &[Ignored]) {
        for ignored in keys {
            let description = format!("Has no effect: {}.", ignored.why);
            self.add(ignored.key, json!({ "description": description, "deprecated": true }));
        }
    }

    /// Adds one of the types that the group may be, with the name that `key` has then.
    pub fn variant<T: Group>(&mut self, key: &str, name: &str, doc: &[&str]) {
        let mut described = Described::default();
        T::describe(&mut described);
        let mut schema = described.open();
        schema["properties"][key] = json!({ "const": name });
        let mut required = vec![json!(key)];
        required.extend(schema["required"].as_array().into_iter().flatten().cloned());
        schema["required"] = json!(required);
        schema["description"] = json!(sentence(doc));
        self.variants.push(schema);
    }

    /// The schema of the keys, which allows others.
    fn open(self) -> serde_json::Value {
        let mut schema = json!({ "type": "object", "properties": self.properties });
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        if !self.variants.is_empty() {
            schema["oneOf"] = json!(self.variants);
        }
        schema
    }
}

/// The schema of a group that one type has for itself.
#[must_use]
pub fn group_schema<T: Group>(doc: &[&str]) -> serde_json::Value {
    let mut described = Described::default();
    T::describe(&mut described);
    let name = |tag: &str| {
        let names = described.variants.iter().map(|v| v["properties"][tag]["const"].clone());
        json!({ "enum": names.collect::<Vec<_>>() })
    };
    let by_name = T::TAG.map(name);
    let mut schema = described.open();
    schema["unevaluatedProperties"] = json!(false);
    if let Some(by_name) = by_name {
        schema = json!({ "anyOf": [by_name, schema] });
    }
    schema["description"] = json!(sentence(doc));
    schema
}

/// Bounds stand at the numbers: those of a list at its elements.
fn bounded(schema: &mut serde_json::Value, bounds: &Bounds) {
    let inner = ["items", "anyOf"].into_iter().find(|inner| schema.get(inner).is_some());
    match inner.map(|inner| &mut schema[inner]) {
        Some(serde_json::Value::Array(all)) => {
            all.iter_mut().for_each(|one| bounded(one, bounds));
        }
        Some(items) => bounded(items, bounds),
        None => {
            for (name, bound) in [("minimum", bounds.least), ("maximum", bounds.greatest)] {
                if bound.is_finite() {
                    schema[name] = json!(bound);
                }
            }
        }
    }
}

/// Lines of a comment as one text.
fn sentence(doc: &[&str]) -> String {
    let lines: Vec<&str> = doc.iter().map(|line| line.trim()).collect();
    lines.join(" ").trim().to_owned()
}
