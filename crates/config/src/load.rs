//! Files to trees: includes and the environment.

use std::path::Path;
use std::sync::Arc;

use crate::error::ConfigError;
use crate::parse::parsed;
use crate::position::{Position, Source};
use crate::token::{Lexeme, Token, tokens};
use crate::value::{Entry, Kind, Value};

/// How deep files may include each other, as in libconfig.
const INCLUDE_DEPTH_MAX: usize = 10;
/// How many files a configuration may include.
const INCLUDES_MAX: usize = 256;

/// What a string begins with that stands for the content of files.
const INCLUDE_VALUE: &str = "@include ";

/// Reads a file: `.json` as JSON, and so any file that begins with a brace; others as libconfig.
/// A path in `@include` may be a pattern. It is searched in the directory of the file in which it
/// stands, then in the working directory. `${NAME}` in a string is the variable of the environment.
///
/// # Errors
/// Files that cannot be read, the first error of the syntax, and variables that are not set.
pub fn load(path: &Path) -> Result<Value, Vec<ConfigError>> {
    let mut loader = Loader::new();
    let value = loader.file(path, 0).map_err(|error| vec![error])?;
    loader.finish(value)
}

/// The same for a text. Errors name it `path`, and includes are searched from there.
///
/// # Errors
/// As [`load`] has them.
pub fn parse(path: &str, text: &str) -> Result<Value, Vec<ConfigError>> {
    let mut loader = Loader::new();
    let value = loader.text(path, text.to_owned(), 0).map_err(|error| vec![error])?;
    loader.finish(value)
}

struct Loader {
    includes: usize,
    errors: Vec<ConfigError>,
}

impl Loader {
    fn new() -> Self {
        Loader { includes: 0, errors: Vec::new() }
    }

    fn finish(mut self, mut value: Value) -> Result<Value, Vec<ConfigError>> {
        self.expand(&mut value, 0);
        if self.errors.is_empty() { Ok(value) } else { Err(self.errors) }
    }

    fn file(&mut self, path: &Path, depth: usize) -> Result<Value, ConfigError> {
        let (name, text) = content(path)?;
        self.text(&name, text, depth)
    }

    fn text(&mut self, path: &str, text: String, depth: usize) -> Result<Value, ConfigError> {
        let source = source(path, text);
        let end = Position::new(&source, source.text.len()..source.text.len());
        if source.is_json {
            checked_json(&source)?;
        }
        let all = self.tokens(&source, depth)?;
        parsed(&all, end, source.is_json)
    }

    /// The tokens of a file, and in the place of each `@include` those of the included files.
    fn tokens(&mut self, source: &Arc<Source>, depth: usize) -> Result<Vec<Lexeme>, ConfigError> {
        let mut all = Vec::new();
        for lexeme in tokens(source)? {
            let Token::Include(pattern) = &lexeme.token else {
                all.push(lexeme);
                continue;
            };
            for (name, text) in self.included(pattern, &lexeme.at, depth)? {
                let text = Arc::new(Source { path: name, text, is_json: false });
                all.extend(self.tokens(&text, depth + 1)?);
            }
        }
        Ok(all)
    }

    /// The files that an include at `at` names.
    fn included(
        &mut self,
        pattern: &str,
        at: &Position,
        depth: usize,
    ) -> Result<Vec<(String, String)>, ConfigError> {
        if depth == INCLUDE_DEPTH_MAX {
            let what = format!("files include each other more than {INCLUDE_DEPTH_MAX} deep");
            return Err(ConfigError::new(at, what));
        }
        let pattern = substituted(pattern, at)?;
        let files = matching(&pattern, at)?;
        self.includes += files.len();
        if self.includes > INCLUDES_MAX {
            let what = format!("more than {INCLUDES_MAX} files are included");
            return Err(ConfigError::new(at, what));
        }
        let read = files.iter().map(|path| content(path));
        read.map(|r| r.map_err(|e| ConfigError::new(at, e.what))).collect()
    }

    /// Replaces variables in strings, and strings that include files.
    fn expand(&mut self, value: &mut Value, depth: usize) {
        match &mut value.kind {
            Kind::Array(all) | Kind::List(all) => {
                all.iter_mut().for_each(|one| self.expand(one, depth));
            }
            Kind::Group(entries) => {
                entries.iter_mut().for_each(|entry| self.expand(&mut entry.value, depth));
            }
            Kind::Text(text) => {
                let expanded = match text.strip_prefix(INCLUDE_VALUE) {
                    Some(pattern) => self.included_value(pattern, &value.at, depth),
                    None => substituted(text, &value.at).map(Kind::Text),
                };
                match expanded {
                    Ok(kind) => value.kind = kind,
                    Err(error) => self.errors.push(error),
                }
            }
            Kind::Null | Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) => {}
        }
    }

    /// The content of the files: groups are merged, lists are joined.
    fn included_value(
        &mut self,
        pattern: &str,
        at: &Position,
        depth: usize,
    ) -> Result<Kind, ConfigError> {
        let mut whole: Option<Kind> = None;
        for (name, text) in self.included(pattern, at, depth)? {
            let mut value = self.text(&name, text, depth + 1)?;
            self.expand(&mut value, depth + 1);
            whole = Some(match (whole, value.kind) {
                (None, kind) => kind,
                (Some(Kind::Group(mut entries)), Kind::Group(more)) => {
                    merge(&mut entries, more);
                    Kind::Group(entries)
                }
                (Some(Kind::List(mut all)), Kind::List(more)) => {
                    all.extend(more);
                    Kind::List(all)
                }
                _ => {
                    let what = "the included files are neither all groups nor all lists";
                    return Err(ConfigError::new(at, what));
                }
            });
        }
        whole.ok_or_else(|| ConfigError::new(at, format!("no file matches {pattern:?}")))
    }
}

/// Later values replace earlier ones; groups of one key are merged.
fn merge(entries: &mut Vec<Entry>, more: Vec<Entry>) {
    for entry in more {
        let earlier = entries.iter_mut().find(|e| e.key == entry.key);
        match (earlier, entry) {
            (
                Some(Entry { value: Value { kind: Kind::Group(inner), .. }, .. }),
                Entry { value: Value { kind: Kind::Group(inner_more), .. }, .. },
            ) => merge(inner, inner_more),
            (Some(earlier), entry) => *earlier = entry,
            (None, entry) => entries.push(entry),
        }
    }
}

fn source(path: &str, text: String) -> Arc<Source> {
    let is_json = Path::new(path).extension().is_some_and(|e| e.eq_ignore_ascii_case("json"))
        || text.trim_start().starts_with('{');
    Arc::new(Source { path: path.to_owned(), text, is_json })
}

/// Refuses what is not JSON, with the position of the error.
fn checked_json(source: &Arc<Source>) -> Result<(), ConfigError> {
    let Err(error) = serde_json::from_str::<serde_json::Value>(&source.text) else { return Ok(()) };
    let line = source.text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let at = line.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
    // The library counts bytes, and may end within a character.
    let at = (0..=at.min(source.text.len())).rev().find(|&i| source.text.is_char_boundary(i));
    let at = at.unwrap_or(0);
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or(&what);
    Err(ConfigError::new(&Position::new(source, at..at), what))
}

/// The name and the text of a file; `-` is standard input.
fn content(path: &Path) -> Result<(String, String), ConfigError> {
    let name = path.display().to_string();
    let text = if name == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    text.map(|text| (name.clone(), text)).map_err(|error| ConfigError::of_file(&name, error))
}

/// The files that a pattern names, sorted. One without `*`, `?` or `[` must exist.
fn matching(pattern: &str, at: &Position) -> Result<Vec<std::path::PathBuf>, ConfigError> {
    let beside = Path::new(&at.source().path).parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for directory in [beside, Path::new("")] {
        let directory = glob::Pattern::escape(&directory.to_string_lossy());
        let whole = Path::new(&directory).join(pattern);
        let files = glob::glob(&whole.to_string_lossy());
        let files = files.map_err(|e| ConfigError::new(at, format!("{pattern:?}: {e}")))?;
        for file in files.filter_map(Result::ok) {
            if !found.contains(&file) {
                found.push(file);
            }
        }
    }
    if found.is_empty() && !pattern.contains(['*', '?', '[']) {
        return Err(ConfigError::new(at, format!("there is no file {pattern:?}")));
    }
    Ok(found)
}

/// The text with the variables of the environment in the places of `${NAME}`.
fn substituted(text: &str, at: &Position) -> Result<String, ConfigError> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}').filter(|(name, _)| !name.is_empty()) else {
            break;
        };
        let value = std::env::var(name).map_err(|_| {
            ConfigError::new(at, format!("the environment variable {name} is not set"))
        })?;
        whole.push_str(before);
        whole.push_str(&value);
        rest = after;
    }
    whole.push_str(rest);
    Ok(whole)
}
