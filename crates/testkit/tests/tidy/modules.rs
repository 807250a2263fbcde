//! What a crate may name from outside. The engine is a function of its inputs: no clock, network,
//! thread, randomness or hash order. Experiments reach the world through `verbs` and `Rank` alone,
//! so that the same code runs in real and in virtual time. That includes waiting for each other.

use crate::mask::{is_word, word_offsets};
use crate::tree::{Offence, SourceFile, Tree};

struct Rule {
    krate: &'static str,
    /// Modules of the standard library.
    std_modules: &'static [&'static str],
    /// Words that may not stand in code.
    words: &'static [&'static str],
    instead: &'static str,
}

const RULES: [Rule; 4] = [
    Rule {
        krate: "wire",
        std_modules: &["time", "net", "thread", "fs", "io", "env", "process"],
        words: &["HashMap", "HashSet", "rand"],
        instead: "wire turns bytes into values and back; the owner does the rest",
    },
    Rule {
        krate: "engine",
        std_modules: &["time", "net", "thread", "fs", "io", "env", "process"],
        words: &["HashMap", "HashSet", "rand", "getrandom", "libc", "thread_local"],
        instead: "the engine is sans-IO and deterministic: let the owner pass it in, \
                  and use BTreeMap or a table",
    },
    Rule {
        krate: "experiments",
        std_modules: &["time", "net", "thread"],
        words: &["libc", "static", "thread_local"],
        instead: "experiments reach the world through `verbs` and `Rank` only",
    },
    // Of `std::sync`, what waits: virtual time does not pass meanwhile. An `OnceLock` that is only
    // set and read does not wait.
    Rule {
        krate: "experiments",
        std_modules: &[],
        words: &[
            "Mutex",
            "RwLock",
            "ReentrantLock",
            "Condvar",
            "Barrier",
            "Once",
            "LazyLock",
            "get_or_init",
            "mpsc",
            "mpmc",
            "parking_lot",
        ],
        instead: "threads wait for each other through their rank: see `Locks` and `Monitor`",
    },
];

/// Names that a file may use after all, and why.
const EXCEPT: [(&str, &str, &str); 1] = [(
    "crates/experiments/src/list.rs",
    "static",
    "which experiments there are is said once, before anything runs",
)];

/// Every name that its crate may not use, in what the crate ships.
pub fn offences(tree: &Tree) -> Vec<Offence> {
    let mut found = Vec::new();
    for file in tree.rust().filter(|f| f.is_shipped()) {
        for rule in RULES.iter().filter(|r| file.krate() == Some(r.krate)) {
            check(file, rule, &mut found);
        }
    }
    found
}

fn check(file: &SourceFile, rule: &Rule, found: &mut Vec<Offence>) {
    for (at, module) in std_modules(&file.code) {
        if rule.std_modules.contains(&module) {
            push(file, at, &format!("std::{module}"), rule, found);
        }
    }
    let excepted =
        |word: &&&str| EXCEPT.iter().any(|(path, w, _)| *path == file.path && w == *word);
    for word in rule.words.iter().filter(|word| !excepted(word)) {
        for at in word_offsets(&file.code, word) {
            // `'static` is a lifetime, not a static.
            if !file.code[..at].ends_with('\'') {
                push(file, at, word, rule, found);
            }
        }
    }
}

fn push(file: &SourceFile, at: usize, name: &str, rule: &Rule, found: &mut Vec<Offence>) {
    let line = file.code[..at].matches('\n').count() + 1;
    let what = format!("`{}` may not name `{name}`: {}", rule.krate, rule.instead);
    found.push(Offence::new(&file.path, line, what));
}

/// The modules named right below `std`, also in groups (`use std::{net, time::Duration}`), with
/// the offset of each.
fn std_modules(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for at in word_offsets(code, "std") {
        let Some(rest) = code[at..].strip_prefix("std::") else {
            continue;
        };
        let start = at + "std::".len();
        if let Some(group) = rest.strip_prefix('{') {
            group_members(group, start + 1, &mut found);
        } else {
            found.push((start, leading_word(rest)));
        }
    }
    found
}

fn group_members<'a>(group: &'a str, start: usize, found: &mut Vec<(usize, &'a str)>) {
    let mut depth = 0;
    let mut fresh = true;
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if fresh && is_word(c) => {
                found.push((start + i, leading_word(&group[i..])));
                fresh = false;
            }
            _ => {}
        }
    }
}

fn leading_word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

#[cfg(test)]
fn lines_of(path: &str, text: &str) -> Vec<usize> {
    offences(&Tree::of(&[(path, text)])).iter().map(|o| o.line).collect()
}

#[test]
fn the_engine_has_no_clock_in_any_spelling() {
    let path = "crates/engine/src/qp/requester.rs";
    assert_eq!(lines_of(path, "use std::time::Instant;\n"), [1]);
    assert_eq!(lines_of(path, "use std::{\n    fmt::{self, Display},\n    time,\n};\n"), [3]);
    assert_eq!(lines_of(path, "let n = ::std::thread::current();\n"), [1]);
    assert_eq!(lines_of(path, "\nuse std::collections::HashMap;\n"), [2]);
    assert!(
        lines_of(path, "// std::time\nuse std::fmt::{self, Write};\nlet strand = 1;\n").is_empty()
    );
    assert!(lines_of("crates/engine/tests/a.rs", "use std::time::Instant;\n").is_empty());
}

#[test]
fn experiments_have_lifetimes_but_no_statics() {
    let path = "crates/experiments/src/ping.rs";
    assert!(lines_of(path, "const A: &'static str = \"static\";\n").is_empty());
    assert_eq!(lines_of(path, "static A: u8 = 1;\nlibc::getpid();\n"), [2, 1]);
}

#[test]
fn experiments_wait_through_their_rank() {
    let path = "crates/experiments/src/common/a.rs";
    assert_eq!(lines_of(path, "use std::sync::{Arc, Mutex};\n"), [1]);
    assert_eq!(lines_of(path, "\nlet a = std::sync::mpsc::channel();\n"), [2]);
    assert_eq!(lines_of(path, "static A: LazyLock<u8> = b;\nA.get_or_init(c);\n"), [1, 1, 2]);
    let fine = "use std::sync::{Arc, OnceLock, atomic};\nfn a(b: impl FnOnce()) {}\n// Mutex\n";
    assert!(lines_of(path, fine).is_empty());
    assert!(lines_of("crates/rank/src/monitor.rs", "use std::sync::Mutex;\n").is_empty());
}
