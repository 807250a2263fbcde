//! Functions of at most 70 lines and files of at most 600. What is longer stands in
//! `tidy-ratchet.txt` with its length, which may only shrink.

use std::collections::BTreeMap;

use crate::tree::{Offence, SourceFile, Tree};

const MAX_FUNCTION_LINES: usize = 70;
const MAX_FILE_LINES: usize = 600;

/// Where the exceptions stand.
const RATCHET: &str = "crates/testkit/tidy-ratchet.txt";

/// Every function and file that is too long, and every ratchet entry that is loose or stale.
pub fn offences(tree: &Tree) -> Vec<Offence> {
    let mut found = Vec::new();
    let text = tree.get(RATCHET).map_or("", |f| f.text.as_str());
    let mut allowed = parse_ratchet(text, &mut found);
    for file in tree.rust() {
        let lines = file.text.lines().count();
        if lines > MAX_FILE_LINES {
            judge(&file.path, 0, "file", lines, MAX_FILE_LINES, &mut allowed, &mut found);
        }
        for function in functions(file) {
            if function.lines > MAX_FUNCTION_LINES {
                let (at, lines) = (function.line, function.lines);
                let key = format!("fn {}", function.name);
                judge(&file.path, at, &key, lines, MAX_FUNCTION_LINES, &mut allowed, &mut found);
            }
        }
    }
    for ((path, key), (_, line)) in allowed {
        let what = format!("stale entry: {path} ({key}) is gone or within the limit; remove it");
        found.push(Offence::new(RATCHET, line, what));
    }
    found
}

/// Allowed lines and the entry's own line, by path and key (`file` or `fn NAME`).
type Allowed = BTreeMap<(String, String), (usize, usize)>;

/// Reads `PATH LINES` (a file) and `PATH::FUNCTION LINES` entries; `#` starts a comment.
fn parse_ratchet(text: &str, found: &mut Vec<Offence>) -> Allowed {
    let mut allowed = Allowed::new();
    for (i, line) in text.lines().enumerate() {
        let entry = line.split('#').next().unwrap_or("").trim();
        if entry.is_empty() {
            continue;
        }
        let parsed = entry.rsplit_once(' ').and_then(|(k, n)| Some((k.trim(), n.parse().ok()?)));
        let Some((target, lines)) = parsed else {
            found.push(Offence::new(RATCHET, i + 1, "not `PATH LINES` or `PATH::FUNCTION LINES`"));
            continue;
        };
        let key = match target.split_once("::") {
            Some((path, name)) => (path.to_owned(), format!("fn {name}")),
            None => (target.to_owned(), "file".to_owned()),
        };
        if allowed.insert(key, (lines, i + 1)).is_some() {
            found.push(Offence::new(RATCHET, i + 1, "listed twice; keep the smaller number"));
        }
    }
    allowed
}

fn judge(
    path: &str,
    line: usize,
    key: &str,
    lines: usize,
    limit: usize,
    allowed: &mut Allowed,
    found: &mut Vec<Offence>,
) {
    match allowed.remove(&(path.to_owned(), key.to_owned())) {
        None => {
            let what = format!("{key} has {lines} lines, more than {limit}; split it by role");
            found.push(Offence::new(path, line, what));
        }
        Some((was, _)) if lines > was => {
            let what = format!("{key} grew from {was} to {lines} lines; it may only shrink");
            found.push(Offence::new(path, line, what));
        }
        Some((was, entry)) if lines < was => {
            let what = format!("stale entry: {path} ({key}) shrank to {lines}; write that down");
            found.push(Offence::new(RATCHET, entry, what));
        }
        Some(_) => {}
    }
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    /// Line of its `fn`, from 1.
    line: usize,
    /// Lines from its `fn` to its closing brace.
    lines: usize,
}

/// The functions of a file, as rustfmt lays them out: the closing brace stands at the indent of
/// the line that opened the item.
fn functions(file: &SourceFile) -> Vec<Function> {
    let lines: Vec<&str> = file.code.lines().collect();
    let starts = lines.iter().enumerate().filter_map(|(i, l)| Some((i, function_name(l)?)));
    starts
        .filter_map(|(i, name)| {
            let end = body_end(&lines, i)?;
            Some(Function { name: name.to_owned(), line: i + 1, lines: end - i + 1 })
        })
        .collect()
}

/// The name, if this line starts a function item.
fn function_name(code: &str) -> Option<&str> {
    let mut rest = code.trim_start();
    loop {
        let (word, tail) = rest.split_once(' ')?;
        let qualifies = matches!(word, "pub" | "const" | "async" | "unsafe" | "extern" | "default")
            || word.starts_with("pub(")
            || word.starts_with('"');
        if word == "fn" {
            let end = tail.find(|c: char| !crate::mask::is_word(c)).unwrap_or(tail.len());
            return (end > 0).then(|| &tail[..end]);
        }
        if !qualifies {
            return None;
        }
        // A masked ABI string is a quote, blanks, a quote.
        rest = match word.starts_with('"') {
            true => rest[1..].split_once('"')?.1.trim_start(),
            false => tail.trim_start(),
        };
    }
}

/// Index of the line that closes the body which opens at or after line `at`.
fn body_end(lines: &[&str], at: usize) -> Option<usize> {
    let indent = indent_of(lines[at]);
    let mut opened = None;
    for (i, line) in lines.iter().enumerate().skip(at) {
        let code = line.trim_end();
        if code.is_empty() || (i > at && indent_of(code) > indent) {
            continue;
        }
        if opened.is_some() {
            if code.trim_start().starts_with('}') {
                return Some(i);
            }
        } else if code.ends_with([';', ',']) {
            // A declaration: in a trait, or in a macro's own grammar.
            return None;
        } else if code.ends_with('}') {
            return Some(i);
        } else if code.ends_with('{') {
            opened = Some(i);
        }
    }
    None
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
fn long_function(lines: usize) -> String {
    format!(
        "impl A {{\n    pub fn f(\n        a: u8,\n    ) {{\n{}    }}\n}}\n",
        "        g();\n".repeat(lines - 4)
    )
}

#[test]
fn functions_are_measured_as_rustfmt_lays_them_out() {
    let text = "trait T {\n    fn a();\n    fn b() {}\n}\n\
                pub unsafe extern \"C\" fn c<T>()\nwhere\n    T: U,\n{\n    \
                if x {\n    }\n}\nconst fn d() {\n    \"\n}\n\";\n}\n";
    let found: Vec<_> = functions(&SourceFile::new("a.rs", text))
        .into_iter()
        .map(|f| (f.name, f.line, f.lines))
        .collect();
    let expected = [("b", 3, 1), ("c", 5, 7), ("d", 12, 5)];
    assert_eq!(found, expected.map(|(n, l, s)| (n.to_owned(), l, s)));
}

#[test]
fn a_function_may_have_70_lines_and_no_more() {
    let path = "crates/wire/src/a.rs";
    assert!(offences(&Tree::of(&[(path, &long_function(70))])).is_empty());
    assert_eq!(offences(&Tree::of(&[(path, &long_function(71))])).len(), 1);
    assert_eq!(offences(&Tree::of(&[(path, &"//\n".repeat(601))])).len(), 1);
}

#[test]
fn the_ratchet_turns_one_way() {
    let path = "crates/wire/src/a.rs";
    let with = |ratchet: &str, lines| {
        offences(&Tree::of(&[(path, &long_function(lines)), (RATCHET, ratchet)])).len()
    };
    let entry = format!("# why\n{path}::f 80\n");
    assert_eq!(with(&entry, 80), 0);
    assert_eq!(with(&entry, 81), 1, "grown");
    assert_eq!(with(&entry, 79), 1, "shrunk: lower the number");
    assert_eq!(with(&entry, 70), 1, "within the limit: stale");
    assert_eq!(with(&format!("{path}::g 80\n"), 10), 1, "gone: stale");
    assert_eq!(with("nonsense\n", 10), 1);
}
