//! Parses the text of a profile, and reports what is wrong with it.

use std::fmt;

use rdmalab_link::specification::Specification;
use serde::Deserialize;
use toml::Spanned;

use crate::limits::Asked;
use crate::{Limits, Optimum, Profile, adapter};

/// Most rules of a profile: half of a process's maximum, so that the user's rules have room too.
pub const MAX_RULES: usize = 32;
/// Most letters of a name: tables show it, and it follows a version in a text of 64 bytes.
const MAX_NAME: usize = 24;

/// A profile that cannot be used: one line that says which one, where, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub(crate) String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    title: Spanned<String>,
    imitates: Spanned<String>,
    lacks: Spanned<String>,
    #[serde(default)]
    source: String,
    #[serde(default)]
    limits: Asked,
    #[serde(default)]
    adapter: adapter::Asked,
    #[serde(default)]
    rules: Vec<Spanned<String>>,
    #[serde(default)]
    optimum: Vec<Spanned<Best>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Best {
    ask: String,
    #[serde(rename = "for")]
    goal: String,
    #[serde(default)]
    best: String,
    #[serde(default)]
    worse: Vec<String>,
    because: String,
}

/// What is wrong, and at which byte of the file.
type Wrong = (usize, String);

impl Profile {
    /// Parses a profile for a device with the limits `most`. `file` is its name in errors.
    ///
    /// # Errors
    /// The file, the line, what is wrong there, and what is allowed.
    pub fn parse(file: &str, text: &str, most: &Limits) -> Result<Profile, Error> {
        let at = |start: usize| {
            let before = text.get(..start).unwrap_or(text);
            format!("{file}: line {}", before.matches('\n').count() + 1)
        };
        let parsed: File = toml::from_str(text).map_err(|error| {
            let place = error.span().map_or(file.to_owned(), |span| at(span.start));
            Error(format!("{place}: {}", error.message().replace('\n', "; ")))
        })?;
        built(parsed, most).map_err(|(start, why)| Error(format!("{}: {why}", at(start))))
    }
}

fn built(file: File, most: &Limits) -> Result<Profile, Wrong> {
    let name = named(file.name)?;
    let (limits, lowered) = file.limits.over(most)?;
    Ok(Profile {
        name,
        title: sentence("title", file.title)?,
        imitates: sentence("imitates", file.imitates)?,
        lacks: sentence("lacks", file.lacks)?,
        source: file.source,
        limits,
        lowered,
        adapter: file.adapter.checked()?,
        rules: rules(file.rules)?,
        optima: file.optimum.into_iter().map(optimum).collect::<Result<_, _>>()?,
    })
}

fn named(name: Spanned<String>) -> Result<String, Wrong> {
    let (start, name) = (name.span().start, name.into_inner());
    let is_letter = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-');
    // Labels use `none` for an end without a profile.
    if name == "none" {
        return Err((
            start,
            "name \"none\" is reserved: labels use it where there is no profile".to_owned(),
        ));
    }
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_letter) {
        return Err((
            start,
            format!("name {name:?}: use 1 to {MAX_NAME} characters of a-z, 0-9 and -"),
        ));
    }
    Ok(name)
}

/// A text for the reader: it must not be empty, and has one line.
fn sentence(key: &str, text: Spanned<String>) -> Result<String, Wrong> {
    let (start, text) = (text.span().start, text.into_inner());
    match text.trim() {
        "" => Err((start, format!("{key} is empty: describe it in a few words"))),
        trimmed if trimmed.contains('\n') => {
            Err((start, format!("{key} has more than one line: use one")))
        }
        trimmed => Ok(trimmed.to_owned()),
    }
}

fn rules(all: Vec<Spanned<String>>) -> Result<Vec<String>, Wrong> {
    if let Some(more) = all.get(MAX_RULES) {
        return Err((
            more.span().start,
            format!("too many rules: a profile has at most {MAX_RULES}"),
        ));
    }
    let one = |rule: Spanned<String>| {
        let (start, text) = (rule.span().start, rule.into_inner());
        // Only the user sets the seed of the random numbers.
        if text.contains([';', '\n']) || text.trim_start().starts_with("seed") {
            return Err((
                start,
                format!("rule {text:?}: write each rule as an entry of its own, without a seed"),
            ));
        }
        match Specification::parse(&text) {
            Ok(_) => Ok(text.trim().to_owned()),
            Err(why) => Err((start, format!("rule {text:?}: {why}"))),
        }
    };
    all.into_iter().map(one).collect()
}

fn optimum(written: Spanned<Best>) -> Result<Optimum, Wrong> {
    let (start, Best { ask, goal, best, worse, because }) =
        (written.span().start, written.into_inner());
    if best.is_empty() && worse.is_empty() {
        return Err((start, "optimum: it needs best = \"...\", worse = [...], or both".to_owned()));
    }
    Ok(Optimum { ask, goal, best, worse, because })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::tests::MOST;

    const HEAD: &str = "name = \"mine\"\ntitle = \"t\"\nimitates = \"i\"\nlacks = \"l\"\n";

    fn parsed(rest: &str) -> Result<Profile, String> {
        Profile::parse("p.toml", &format!("{HEAD}{rest}"), &MOST).map_err(|e| e.to_string())
    }

    #[test]
    fn a_profile_has_limits_rules_and_what_is_best() {
        let rest = "rules = [\"delay 2us of read\", \"drop 1%\"]\n\
                    [limits]\nmax_inline_data = 0\nactive_mtu = 1024\n\
                    [[optimum]]\nask = \"opcode\"\nfor = \"latency\"\nworse = [\"read\"]\n\
                    because = \"it waits\"\n";
        let found = parsed(rest).unwrap();
        assert_eq!((found.limits.max_inline_data, found.limits.active_mtu), (0, 1024));
        assert_eq!(found.limits.max_cqe, MOST.max_cqe);
        let does = "max_inline_data 0; active_mtu 1024; delay 2us of read; drop 1%";
        assert_eq!(found.does(), does);
        assert_eq!((found.optima[0].goal.as_str(), &found.optima[0].best), ("latency", &"".into()));
        assert!(!found.is_ideal() && parsed("").unwrap().is_ideal());
        let found = parsed("[adapter]\nodp_resolve_ns = 7\nrnr_wait_percent = 100\n").unwrap();
        assert_eq!((found.does().as_str(), found.adapter.odp_resolve_ns), ("odp_resolve_ns 7", 7));
        assert!(!found.is_ideal());
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_what_is_allowed() {
        for (rest, parts) in [
            ("[limits]\nmax_qp = 0", ["line 6", "max_qp 0: choose 1 to"]),
            ("[limits]\nmax_inline_data = 1025", ["line 6", "0 to 1024"]),
            ("[limits]\nmax_sge = -1", ["line 6", "max_sge -1: choose 1 to 32"]),
            ("[limits]\nmax_sge = \"4\"", ["line 6", "max_sge is a string: choose 1 to 32"]),
            ("[limits]\nmax_sge = 4294967297", ["line 6", "choose 1 to 32"]),
            ("[adapter]\nodp_resolve_ns = -1", ["line 6", "-1: choose 0 to 1000000000"]),
            ("[adapter]\nodp_resolve_ns = 2.5", ["line 6", "is a float: choose 0 to 1000000000"]),
            ("[limits]\nactive_mtu = 1500", ["line 6", "256, 512, 1024, 2048 or 4096"]),
            ("[limits]\n\nmax_wr = 5", ["line 7", "expected one of `max_qp`, `max_qp_wr`"]),
            ("[adapter]\nack_timeout_min_code = 32", ["line 6", "choose 0 to 31"]),
            ("[adapter]\nodp = 1", ["line 6", "expected one of `ack_timeout_min_code`"]),
            ("rules = [\n\"drop 1%\",\n\"slow 2us\"]", ["line 7", "slow"]),
            ("rules = [\"drop 1%; drop 2%\"]", ["line 5", "as an entry of its own"]),
            ("rules = [\" seed=7\"]", ["line 5", "without a seed"]),
            ("colour = 3", ["line 5", "unknown field `colour`, expected one of `name`"]),
            ("title = \"again\"", ["line 5", "duplicate key"]),
            ("[[optimum]]\nask=\"a\"\nfor=\"b\"\nbecause=\"c\"", ["line 5", "best = "]),
        ] {
            let said = parsed(rest).unwrap_err();
            assert!(said.starts_with("p.toml: line") && !said.contains('\n'), "{said}");
            assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
        }
        let said = |text: &str| Profile::parse("p.toml", text, &MOST).unwrap_err().to_string();
        assert!(said("").contains("missing field `name`"), "{}", said(""));
        let named = |name: &str| said(&HEAD.replace("mine", name));
        for wrong in ["", "Mine", "a b", "a/b", &"x".repeat(25)] {
            assert!(named(wrong).contains("characters of a-z"), "{}", named(wrong));
        }
        assert!(named("none").contains("line 1: name \"none\" is reserved"), "{}", named("none"));
        assert!(said(&HEAD.replace("\"t\"", "\" \"")).contains("line 2: title is empty"));
    }

    #[test]
    fn rules_have_a_bound() {
        let with = |count| format!("rules = [{}]", "\"drop 1%\",".repeat(count));
        assert_eq!(parsed(&with(MAX_RULES)).unwrap().rules.len(), MAX_RULES);
        assert!(parsed(&with(MAX_RULES + 1)).unwrap_err().contains("at most 32"));
    }
}
