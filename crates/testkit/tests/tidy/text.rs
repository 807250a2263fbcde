//! What every text file owes its reader: short lines, no stray blanks, no unfinished business, no
//! path of somebody's machine.

use crate::tree::{Offence, SourceFile, Tree};

const MAX_COLUMNS: usize = 100;

/// Macros that mark what is not done, or not meant to stay.
const UNFINISHED: [&str; 3] = ["todo!(", "unimplemented!(", "dbg!("];

/// Paths that exist on one machine only. Split, so that this file does not break its own rule.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/fa", "rm/"), concat!("/tmp/bash", "_jobs")];

/// Every line that breaks a rule of form.
pub fn offences(tree: &Tree) -> Vec<Offence> {
    let mut found = Vec::new();
    for file in &tree.files {
        if is_prose(file) {
            form(file, &mut found);
        }
        if file.is_rust() {
            unfinished(file, &mut found);
        }
        machine_paths(file, &mut found);
    }
    found
}

/// Files whose lines people read side by side.
fn is_prose(file: &SourceFile) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let suffix = name.rsplit_once('.').map_or("", |(_, s)| s);
    matches!(suffix, "rs" | "md" | "sh" | "c" | "h") || file.path == ".ci/run"
}

fn form(file: &SourceFile, found: &mut Vec<Offence>) {
    for (number, line) in file.lines() {
        if line.contains('\t') {
            found.push(Offence::new(&file.path, number, "a tab; use spaces, or \\t in a literal"));
        }
        if line.ends_with([' ', '\t', '\r']) {
            found.push(Offence::new(&file.path, number, "blanks at the end of the line"));
        }
        let columns = line.chars().count();
        if columns > MAX_COLUMNS && !may_be_wide(file, line) {
            let what = format!("{columns} columns, more than {MAX_COLUMNS}; break the line");
            found.push(Offence::new(&file.path, number, what));
        }
    }
}

/// An address cannot be broken, nor can a row of a Markdown table.
fn may_be_wide(file: &SourceFile, line: &str) -> bool {
    line.contains("://") || (file.is_markdown() && line.trim_start().starts_with('|'))
}

fn unfinished(file: &SourceFile, found: &mut Vec<Offence>) {
    for ((number, code), (_, line)) in file.code_lines().zip(file.lines()) {
        for mark in UNFINISHED.iter().filter(|m| code.contains(*m)) {
            let what =
                format!("`{mark}..)` is not code; finish it, or return an error that says so");
            found.push(Offence::new(&file.path, number, what));
        }
        if ignores_without_reason(code, line) {
            let what = "an ignored test without a reason; write #[ignore = \"why\"]";
            found.push(Offence::new(&file.path, number, what));
        }
        if swallows_a_skip(code, line) {
            let what = "nobody sees it: the test harness swallows what macros print; call \
                        rdmalab_testing::skipped";
            found.push(Offence::new(&file.path, number, what));
        }
    }
}

/// `code` tells a call from prose, `line` still has the text.
fn swallows_a_skip(code: &str, line: &str) -> bool {
    let says = |text: &str| {
        let text = text.trim_start().trim_start_matches('"').to_lowercase();
        text.starts_with("skipped")
    };
    code.contains("println!(") && line.split("println!(").skip(1).any(says)
}

fn ignores_without_reason(code: &str, line: &str) -> bool {
    // `code` tells an attribute from prose, `line` still has the reason.
    let bare = code.contains("#[ignore]") || code.contains(", ignore)");
    let empty = line.contains("ignore = \"\"") && code.contains("ignore = \"\"");
    bare || empty
}

fn machine_paths(file: &SourceFile, found: &mut Vec<Offence>) {
    for (number, line) in file.lines() {
        for path in MACHINE_PATHS {
            let starts_path = |at: usize| {
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "_-.)}".contains(c))
            };
            if line.match_indices(path).any(|(at, _)| starts_path(at)) {
                let what = format!("`{path}` exists on one machine only; use a relative path");
                found.push(Offence::new(&file.path, number, what));
            }
        }
    }
}

#[cfg(test)]
fn lines_of(path: &str, text: &str) -> Vec<usize> {
    offences(&Tree::of(&[(path, text)])).iter().map(|o| o.line).collect()
}

#[test]
fn form_is_checked_in_code_and_prose() {
    assert_eq!(lines_of("a.md", "a\tb\nc \nd\r\n"), [1, 2]);
    assert_eq!(lines_of("a.rs", &format!("{}\n{}\n", "x".repeat(100), "x".repeat(101))), [2]);
    assert!(
        lines_of("a.md", &format!("| {} |\nhttps://{}\n", "x".repeat(200), "y".repeat(200)))
            .is_empty()
    );
    assert!(lines_of("a.csv", &"x".repeat(200)).is_empty());
}

#[test]
fn what_is_not_done_is_found_in_code_only() {
    let done = "// todo!()\nlet a = \"dbg!(x)\";\n#[ignore = \"needs an adapter\"]\n";
    assert!(lines_of("a.rs", done).is_empty());
    let text = "todo!(\"x\")\nunimplemented!()\ndbg!(x)\n\
                #[ignore]\n#[ignore = \"\"]\n#[cfg_attr(a, ignore)]\n";
    assert_eq!(lines_of("a.rs", text), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_test_that_is_skipped_says_so_aloud() {
    let text = "// println!(\"skipped: no cc\")\nprintln!(\"it skipped\");\nlet skipped = 1;\n\
                eprintln!(\"skipped: no cc\");\nprintln!(\"SKIPPED a: {b}\");\n";
    assert_eq!(lines_of("a.rs", text), [4, 5]);
}

#[test]
fn paths_of_a_machine_are_found_everywhere() {
    let [here, there, jobs] = MACHINE_PATHS;
    let text = format!("cd {here}x\n\"{there}\"\n{jobs}.0\nexamples{here}a\n");
    assert_eq!(lines_of("a.toml", &text), [1, 2, 3]);
    assert_eq!(lines_of("a.rs", &format!("// {here}x\n")), [1]);
}
