//! Profiles: the parameters of one adapter with the source of each, as a TOML file.
//!
//! The shipped ones are in `profiles/sim/` at the root of the repository and are compiled in;
//! others are named by their path.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::parameters::{Parameter, Parameters};

/// How well a value is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// It is taken from elsewhere, or assumed.
    Prior,
    /// It is chosen so that published values come out; `from` names them.
    Calibrated,
    /// It was found otherwise, and published values agree with it.
    Validated,
}

impl Mark {
    /// Its word in a profile.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mark::Prior => "prior",
            Mark::Calibrated => "calibrated",
            Mark::Validated => "validated",
        }
    }
}

/// The value of a parameter in a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The value.
    pub is: f64,
    /// How well it is known.
    pub mark: Mark,
    /// The source, or the published values that it was calibrated with.
    pub from: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    title: String,
    lacks: String,
    /// A shipped profile from which parameters are taken that this file does not have.
    like: Option<toml::Spanned<String>>,
    #[serde(default)]
    parameters: BTreeMap<String, toml::Spanned<Entry>>,
}

/// A profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name, as in `sim:NAME`.
    pub name: String,
    /// What it is, in one line.
    pub title: String,
    /// What the adapter does and the model does not.
    pub lacks: String,
    /// The values.
    pub parameters: Parameters,
    /// The entries of the file, by parameter.
    pub entries: BTreeMap<String, Entry>,
}

/// What is wrong with a profile: one line with file and line number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError(pub String);

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProfileError {}

/// The shipped profiles: name and text.
pub const SHIPPED: &[(&str, &str)] = &[
    ("ideal", include_str!("../../../profiles/sim/ideal.toml")),
    ("connectx2", include_str!("../../../profiles/sim/connectx2.toml")),
    ("connectx3", include_str!("../../../profiles/sim/connectx3.toml")),
    ("connectx4", include_str!("../../../profiles/sim/connectx4.toml")),
    ("connectx5", include_str!("../../../profiles/sim/connectx5.toml")),
    ("connectx6", include_str!("../../../profiles/sim/connectx6.toml")),
    ("infinihost", include_str!("../../../profiles/sim/infinihost.toml")),
];

/// Longest file of a profile, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The profile in the name of a device, `sim:NAME` or `sim:FILE`; `None` for other devices.
#[must_use]
pub fn name_of_device(device: &str) -> Option<&str> {
    device.strip_prefix("sim:")
}

/// A shipped profile by its name, or one from a file by its path.
///
/// # Errors
/// There is no such profile, or it is wrong.
pub fn find(name: &str) -> Result<Profile, ProfileError> {
    if let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
        return Profile::parse(name, text);
    }
    if !name.contains(['/', '.']) {
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        return Err(ProfileError(format!(
            "sim:{name}: there is no such simulated adapter; there are {}, and profile files by \
             their path",
            names.join(", ")
        )));
    }
    let wrong = |why: &dyn fmt::Display| ProfileError(format!("{name}: {why}"));
    let bytes = std::fs::metadata(name).map_err(|error| wrong(&error))?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(wrong(&format!(
            "the file has {bytes} bytes; the limit for a profile is 1 MiB"
        )));
    }
    let text = std::fs::read_to_string(name).map_err(|error| wrong(&error))?;
    Profile::parse(name, &text)
}

/// A shipped profile whose parameters stand for those of an adapter like it: for that adapter they
/// are assumed.
fn like(name: &str) -> Result<Profile, String> {
    let is_it = |(shipped, _): &&(&str, &str)| *shipped == name;
    let (_, text) = SHIPPED.iter().find(is_it).ok_or_else(|| {
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        format!("like = {name:?}: there is no such profile; there are {}", names.join(", "))
    })?;
    let mut found = Profile::parse(name, text).map_err(|error| error.0)?;
    for entry in found.entries.values_mut() {
        *entry = Entry {
            mark: Mark::Prior,
            from: format!("as {name}: {}", entry.from),
            ..entry.clone()
        };
    }
    Ok(found)
}

impl Profile {
    /// Reads the text of a profile; `file` is for messages.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(file: &str, text: &str) -> Result<Profile, ProfileError> {
        let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let read: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(1, |span| line(span.start));
            ProfileError(format!("{file}:{at}: {}", error.message()))
        })?;
        let wrong = |at, why| ProfileError(format!("{file}:{}: {why}", line(at)));
        let found = |name: &toml::Spanned<String>| {
            like(name.get_ref()).map_err(|why| wrong(name.span().start, why))
        };
        let like = read.like.as_ref().map(found).transpose()?;
        let mut parameters = like.as_ref().map_or_else(Parameters::least, |like| like.parameters);
        // Where a missing value would stand; without the table, where the file ends.
        let table_at = text.find("[parameters]").unwrap_or(text.len());
        for parameter in Parameters::ALL {
            let given = read.parameters.contains_key(parameter.name);
            match parameter.default {
                _ if given || like.is_some() => Ok(()),
                Some(default) => parameters.set(parameter.name, default),
                None => Err(format!(
                    "[parameters] lacks {}, which every profile needs: {}",
                    parameter.name,
                    parameter.meaning.trim()
                )),
            }
            .map_err(|why| wrong(table_at, why))?;
        }
        for (name, entry) in &read.parameters {
            let set = parameters.set(name, entry.get_ref().is);
            set.map_err(|why| wrong(entry.span().start, why))?;
        }
        let mut entries = like.map_or_else(BTreeMap::new, |like| like.entries);
        for (name, entry) in read.parameters {
            entries.insert(name, entry.into_inner());
        }
        let File { name, title, lacks, .. } = read;
        Ok(Profile { name, title, lacks, parameters, entries })
    }

    /// Sets a parameter, as `--sim` does.
    ///
    /// # Errors
    /// As [`Parameters::set`].
    pub fn set(&mut self, name: &str, number: f64) -> Result<(), String> {
        self.parameters.set(name, number)
    }

    /// The sources of the calibrated parameters.
    #[must_use]
    pub fn calibrated_from(&self) -> Vec<String> {
        let calibrated = self.entries.values().filter(|entry| entry.mark == Mark::Calibrated);
        calibrated.map(|entry| entry.from.clone()).collect()
    }

    /// The text of a file that has this profile: the title, and the entries in the order of the
    /// parameters.
    #[must_use]
    pub fn text(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let (name, title, lacks) = (&self.name, &self.title, &self.lacks);
        let head = [("name", name), ("title", title), ("lacks", lacks)];
        let head = head.map(|(key, text)| format!("{key} = {}\n", quoted(text))).concat();
        let entry = |parameter: &Parameter| {
            let Entry { is, mark, from } = self.entries.get(parameter.name)?;
            let (mark, from) = (mark.name(), quoted(from));
            Some(format!(
                "{} = {{ is = {is}, mark = \"{mark}\", from = {from} }}\n",
                parameter.name
            ))
        };
        let entries: String = Parameters::ALL.iter().filter_map(entry).collect();
        format!("{head}\n[parameters]\n{entries}")
    }

    /// A number that stands for all values (FNV-1a over their texts): two profiles with the same
    /// number are the same model.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for parameter in Parameters::ALL {
            let value = self.parameters.get(parameter.name).unwrap_or(0.0);
            for byte in format!("{}={value}\n", parameter.name).bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shipped_profile_is_sound_and_names_its_sources() {
        for (name, _) in SHIPPED {
            let profile = find(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(profile.name, *name);
            assert!(profile.entries.values().all(|entry| !entry.from.is_empty()), "{name}");
            assert!(!profile.lacks.is_empty() && !profile.title.is_empty());
        }
    }

    #[test]
    fn a_profile_like_another_has_its_values_as_assumptions() {
        let head = "name = 'x'\ntitle = 'x'\nlacks = 'x'\n";
        let text = format!(
            "{head}like = 'connectx4'\n[parameters]\n\
             link_mb_per_s = {{ is = 6818, mark = 'calibrated', from = 'y' }}\n"
        );
        let (found, model) = (Profile::parse("x", &text).unwrap(), find("connectx4").unwrap());
        let mut expected = model.parameters;
        expected.set("link_mb_per_s", 6818.0).unwrap();
        assert_eq!(found.parameters, expected);
        assert_eq!(found.entries["link_mb_per_s"].mark, Mark::Calibrated);
        let entry = &found.entries["bus_read_ns"];
        assert_eq!(
            (entry.mark, model.entries["bus_read_ns"].mark),
            (Mark::Prior, Mark::Calibrated)
        );
        assert!(entry.from.starts_with("as connectx4: potter2018"), "{}", entry.from);
        let said = Profile::parse("x", &format!("{head}like = 'none'\n")).unwrap_err().0;
        assert!(said.starts_with("x:4: like = \"none\": there is no such profile"), "{said}");
    }

    #[test]
    fn a_profile_is_the_same_after_it_was_written() {
        for (name, _) in SHIPPED {
            let mut profile = find(name).unwrap();
            profile.title = "a \"quoted\" title,\nand a back\\slash".to_owned();
            assert_eq!(Profile::parse("again.toml", &profile.text()), Ok(profile));
        }
    }

    #[test]
    fn an_error_names_the_line() {
        let (_, text) = SHIPPED[0];
        let told = |text: &str| Profile::parse("p.toml", text).unwrap_err().0;
        let with = |line: &str| format!("{text}\n{line}\n");
        let last = text.lines().count() + 2;
        let said = told(&with("bus_reed_ns = { is = 1, mark = 'prior', from = 'x' }"));
        assert_eq!(said.split(": ").next(), Some(&*format!("p.toml:{last}")), "{said}");
        let said = told(&with("bus_read_ns = { is = -1, mark = 'prior', from = 'x' }"));
        assert!(said.contains("it must be from 0 to 1000000"), "{said}");
        let said = told(&with("bus_read_ns = { is = 1, mark = 'guess', from = 'x' }"));
        assert!(said.contains("guess"), "{said}");
        let head = "name = 'x'\ntitle = 'x'\nlacks = 'x'\n";
        let missing = "[parameters] lacks stamp_ns, which every profile needs: Time of a time \
                       stamp.";
        assert_eq!(told(&format!("{head}[parameters]\n")), format!("p.toml:4: {missing}"));
        assert_eq!(told(head), format!("p.toml:4: {missing}"));
    }

    #[test]
    fn the_hash_changes_with_each_value() {
        let ideal = find("ideal").unwrap();
        for parameter in Parameters::ALL {
            let mut other = ideal.clone();
            let value = other.parameters.get(parameter.name).unwrap();
            let changed = if value == parameter.max { parameter.min } else { parameter.max };
            other.set(parameter.name, changed).unwrap();
            assert_ne!(other.hash(), ideal.hash(), "{}", parameter.name);
        }
    }
}
