//! `--vary NAME=A,B`: what differs between the conditions of the trials.

use clap::ValueEnum;

use crate::exec::paths::Memory;
use crate::exec::program::{Personality, ProgramArgs};
use crate::failure::{Outcome, usage};
use crate::link;

/// Most conditions.
const MAX_CONDITIONS: usize = 64;
/// Most characters of a condition in the name of a directory.
const MAX_NAME: usize = 60;
/// How UCX registers memory.
const UCX_METHODS: &str = "UCX_IB_REG_METHODS";
/// The beginning of a name that stands for an environment variable.
const VARIABLE: &str = "env:";
/// What may vary, for the message about something else.
const NAMES: &str = "profile, faults, personality, memory, odp, or env:VARIABLE";

/// A variation: its name, and its values in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variation {
    name: String,
    values: Vec<String>,
}

impl Variation {
    /// How many values it has.
    pub fn count(&self) -> usize {
        self.values.len()
    }
}

/// Parses `NAME=A,B`. Where a value has a comma in it, `|` separates: `NAME=A|B`.
///
/// # Errors
/// What is wrong, and what may vary.
pub fn variation(text: &str) -> Result<Variation, String> {
    let (name, values) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?}: write NAME=A,B, where NAME is {NAMES}"))?;
    let between = if values.contains('|') { '|' } else { ',' };
    let values: Vec<String> = values.split(between).map(|value| value.trim().to_owned()).collect();
    if let Some(twice) = values.iter().enumerate().find(|(i, v)| values[..*i].contains(v)) {
        return Err(format!("{name} has the value {:?} twice: one condition is enough", twice.1));
    }
    let found = Variation { name: name.to_owned(), values };
    found.values.iter().try_for_each(|value| check(&found.name, value))?;
    Ok(found)
}

/// Whether a value is possible.
fn check(name: &str, value: &str) -> Result<(), String> {
    let one_of = |all: &[&str]| match all.contains(&value) {
        true => Ok(()),
        false => Err(format!("{name} is {}, not {value:?}", all.join(" or "))),
    };
    match name {
        "profile" => link::profile(value).map(drop),
        "faults" if value.is_empty() => Ok(()),
        "faults" => rdmalab_softnic::check_faults(value),
        "personality" => Personality::from_str(value, false)
            .map(drop)
            .map_err(|_| format!("personality is infiniband or ethernet, not {value:?}")),
        "memory" => one_of(&["private", "shared"]),
        "odp" => one_of(&["on", "off"]),
        _ => match name.strip_prefix(VARIABLE) {
            Some("") => Err(format!("{name}: name a variable, for example env:UCX_TLS=rc,ud")),
            Some(variable) if variable.contains('\0') || value.contains('\0') => {
                Err(format!("{name}: an environment variable cannot contain NUL"))
            }
            Some(variable) if is_own(variable) => Err(format!(
                "{name}: exec sets this variable itself; profile, faults, personality and memory \
                 can vary by their names"
            )),
            Some(_) => Ok(()),
            None => Err(format!("{name:?} cannot be varied: choose {NAMES}")),
        },
    }
}

/// Whether `exec` sets this variable, so that another value would have no effect or a wrong label.
fn is_own(variable: &str) -> bool {
    let set = ["TMPDIR", "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"];
    set.contains(&variable) || variable.starts_with("RDMALAB_")
}

/// One value of each variation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Names and values, in the order of the options.
    pub values: Vec<(String, String)>,
}

/// All combinations, the last variation fastest; one without values if nothing varies.
///
/// # Errors
/// A name is given twice, also as an option of its own, or there are too many combinations.
pub fn conditions(args: &ProgramArgs, all: &[Variation]) -> Outcome<Vec<Condition>> {
    for (i, one) in all.iter().enumerate() {
        let is_option = match one.name.as_str() {
            "profile" => args.link.profile.is_some(),
            "faults" => args.link.faults.is_some(),
            "personality" => args.personality.is_some(),
            "memory" => args.memory != Memory::Private,
            _ => false,
        };
        if is_option || all[..i].iter().any(|other| other.name == one.name) {
            let name = &one.name;
            return Err(usage(format!("--vary {name}: {name} is given twice: give it once")));
        }
    }
    let count = all.iter().try_fold(1usize, |n, one| n.checked_mul(one.values.len()));
    if count.is_none_or(|count| count > MAX_CONDITIONS) {
        return Err(usage(format!(
            "--vary: more than {MAX_CONDITIONS} conditions: give fewer values"
        )));
    }
    let mut found = vec![Condition::default()];
    for one in all {
        let with = |condition: &Condition| {
            let mut all = Vec::new();
            for value in &one.values {
                let mut condition = condition.clone();
                condition.values.push((one.name.clone(), value.clone()));
                all.push(condition);
            }
            all
        };
        found = found.iter().flat_map(with).collect();
    }
    Ok(found)
}

impl Condition {
    /// The values in words.
    pub fn name(&self) -> String {
        let words: Vec<String> = self.values.iter().map(|(n, v)| format!("{n}={v}")).collect();
        if words.is_empty() { "as given".to_owned() } else { words.join(" ") }
    }

    /// A name for its directory; `number` tells conditions of the same letters apart.
    pub fn directory(&self, number: usize) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "=.".contains(c) { c } else { '-' };
        let name: String = self.name().chars().map(plain).take(MAX_NAME).collect();
        format!("{number}-{name}")
    }

    /// The options under this condition, and the variables that are set, or removed (`None`).
    pub fn apply(&self, args: &ProgramArgs) -> (ProgramArgs, Vec<(String, Option<String>)>) {
        let (mut args, mut variables) = (args.clone(), Vec::new());
        for (name, value) in &self.values {
            match name.as_str() {
                // `variation` has checked the values.
                "profile" => args.link.profile = link::profile(value).ok(),
                "faults" => args.link.faults = Some(value.clone()),
                "personality" => args.personality = Personality::from_str(value, false).ok(),
                "memory" => {
                    let is_shared = value == "shared";
                    args.memory = if is_shared { Memory::Shared } else { Memory::Private };
                }
                "odp" => {
                    let method = if value == "on" { "odp" } else { "direct" };
                    variables.push((UCX_METHODS.to_owned(), Some(method.to_owned())));
                }
                _ => {
                    let variable = name.strip_prefix(VARIABLE).unwrap_or(name);
                    let value = Some(value.clone()).filter(|value| !value.is_empty());
                    variables.push((variable.to_owned(), value));
                }
            }
        }
        (args, variables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Variation {
        variation(text).unwrap()
    }

    #[test]
    fn values_are_separated_by_commas_or_bars() {
        assert_eq!(parsed("odp=on,off").values, ["on", "off"]);
        assert_eq!(parsed("env:UCX_TLS=rc,self|ud,self").values, ["rc,self", "ud,self"]);
        assert_eq!(parsed("env:X=a=b,").values, ["a=b", ""]);
        for (wrong, part) in [
            ("odp", "write NAME=A,B"),
            ("odp=yes", "on or off"),
            ("odp=on,on", "twice"),
            ("size=8", "env:VARIABLE"),
            ("env:=1", "name a variable"),
            ("env:TMPDIR=/a,/b", "sets this variable itself"),
            ("env:RDMALAB_PROFILE=ideal", "can vary by their names"),
            ("profile=late-akc", "is late-ack meant?"),
            ("faults=drop it", "drop"),
            ("memory=mine", "private or shared"),
            ("personality=x", "infiniband or ethernet"),
        ] {
            let said = variation(wrong).unwrap_err();
            assert!(said.contains(part), "{wrong}: {said}");
        }
    }

    #[test]
    fn names_of_directories_are_plain_and_differ() {
        let of = |value: &str| Condition { values: vec![("faults".into(), value.into())] };
        assert_eq!(of("drop 1% of ack").directory(2), "2-faults=drop-1--of-ack");
        assert_ne!(of("drop 1%").directory(0), of("drop 1;").directory(1));
        assert!(of(&"x".repeat(500)).directory(0).len() < 80);
    }
}
