//! `unsafe` stands only where hardware, shared memory or a C interface begins, and each block
//! tells a stranger why it is sound.

use crate::mask::{has_word, word_offsets};
use crate::tree::{Offence, SourceFile, Tree};

/// Crates that may hold `unsafe`, each with a path inside the crate that it is confined to.
const MAY_BE_UNSAFE: [(&str, &str); 14] = [
    ("ring", ""),
    ("softnic", ""),
    ("sim", ""),
    ("abi", ""),
    ("provider", ""),
    ("libibverbs", ""),
    ("librdmacm", ""),
    ("paths", ""),
    ("signals", ""),
    ("memory", ""),
    ("verbs", ""),
    ("rank", ""),
    ("measure", "src/clock"),
    // The bare limits are what the system calls and the processor do without us between.
    ("measure", "src/limits"),
];

/// Crates whose root must forbid `unsafe` outright, so that no later `allow` can creep in.
const MUST_FORBID: [&str; 13] = [
    "wire",
    "engine",
    "driver",
    "link",
    "experiments",
    "record",
    "report",
    "trace",
    "diagnosis",
    "sample",
    "config",
    "gateway",
    "realtime",
];

/// Every `unsafe` out of place or without a reason.
pub fn offences(tree: &Tree) -> Vec<Offence> {
    let mut found = Vec::new();
    for file in tree.rust() {
        if may_be_unsafe(file) {
            undocumented(file, &mut found)
        } else {
            misplaced(file, &mut found)
        }
        let is_root = file.krate().is_some_and(|k| {
            MUST_FORBID.contains(&k) && file.path == format!("crates/{k}/src/lib.rs")
        });
        if is_root && !file.code.contains("#![forbid(unsafe_code)]") {
            let what = "this crate is safe by rule: put `#![forbid(unsafe_code)]` at its root";
            found.push(Offence::new(&file.path, 1, what));
        }
    }
    found
}

fn may_be_unsafe(file: &SourceFile) -> bool {
    MAY_BE_UNSAFE.iter().any(|(krate, inside)| {
        file.krate() == Some(krate) && file.path.starts_with(&format!("crates/{krate}/{inside}"))
    })
}

fn misplaced(file: &SourceFile, found: &mut Vec<Offence>) {
    for (line, code) in file.code_lines() {
        if has_word(code, "unsafe") {
            let what = "`unsafe` outside the crates that may have it; move it behind one of them, \
                        or argue for the crate in tests/tidy/unsafety.rs";
            found.push(Offence::new(&file.path, line, what));
        }
    }
}

fn undocumented(file: &SourceFile, found: &mut Vec<Offence>) {
    let lines: Vec<&str> = file.text.lines().collect();
    for (line, code) in file.code_lines() {
        let next = file.code.lines().nth(line).unwrap_or("");
        if needs_reason(code, next) && !has_reason(&lines, line - 1) {
            let what = "no `SAFETY:` comment just above; say why this is sound (where the line is \
                        too long for `let x = unsafe { .. };`, name an argument before it)";
            found.push(Offence::new(&file.path, line, what));
        }
    }
}

/// Whether an `unsafe` block or impl opens on this line.
fn needs_reason(code: &str, next: &str) -> bool {
    word_offsets(code, "unsafe").any(|at| {
        let rest = code[at + "unsafe".len()..].trim_start();
        let rest = if rest.is_empty() { next.trim_start() } else { rest };
        rest.starts_with('{') || rest.starts_with("impl") && !rest.starts_with("impl_")
    })
}

/// Whether a comment that holds `SAFETY:` ends just above line `at` (from 0), as long as it needs.
fn has_reason(lines: &[&str], at: usize) -> bool {
    let above = lines[..at].iter().rev().map(|line| line.trim_start());
    above.take_while(|line| line.starts_with("//")).any(|line| line.contains("SAFETY:"))
}

#[cfg(test)]
fn lines_of(path: &str, text: &str) -> Vec<usize> {
    offences(&Tree::of(&[(path, text)])).iter().map(|o| o.line).collect()
}

#[test]
fn unsafe_in_a_safe_crate_is_found_and_in_prose_is_not() {
    let text = "#![forbid(unsafe_code)]\n// unsafe\nfn f() { unsafe { g() } }\n";
    assert_eq!(lines_of("crates/cli/src/main.rs", text), [3]);
    assert_eq!(lines_of("examples/a.rs", "unsafe fn f() {}"), [1]);
    assert_eq!(lines_of("crates/wire/src/lib.rs", "#![no_std]\n"), [1]);
}

#[test]
fn measure_is_unsafe_in_its_clock_only() {
    let text = "// SAFETY: reads a counter.\nlet t = unsafe { rdtsc() };\n";
    assert!(lines_of("crates/measure/src/clock.rs", text).is_empty());
    assert!(lines_of("crates/measure/src/clock/tsc.rs", text).is_empty());
    assert_eq!(lines_of("crates/measure/src/stats.rs", text), [2]);
}

#[test]
fn a_block_needs_its_reason_just_above() {
    let path = "crates/ring/src/lib.rs";
    assert_eq!(lines_of(path, "unsafe { f() }\n"), [1]);
    assert_eq!(lines_of(path, "unsafe impl Send for A {}\n"), [1]);
    let long = "// SAFETY: a,\n// b,\n// c,\n// d.\nlet a = unsafe { f() };\n";
    assert!(lines_of(path, long).is_empty());
    assert_eq!(lines_of(path, "// SAFETY: a.\nlet a =\n    unsafe { f() };\n"), [3]);
    assert_eq!(lines_of(path, "// SAFETY: a.\n\nunsafe { f() }\n"), [3]);
    assert!(lines_of(path, "pub unsafe fn f() {}\nunsafe extern \"C\" {}\n").is_empty());
}
