//! Circles of files: files of one crate that import each other, directly or by way of others. Such
//! files can only be understood together. Those that exist stand in `circles.txt` with their number
//! of files, which may only shrink; a new one is refused.
//!
//! An import is a path in code that begins with `crate`, `super`, `self` or the name of a child
//! module. A path through a re-export leads to the file where the item stands; the re-export itself
//! is no import. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::mask::is_word;
use crate::tree::{Offence, SourceFile, Tree};

/// Where the circles stand that exist: `PATH FILES`, the first of their paths and how many they are.
const RATCHET: &str = "crates/testkit/circles.txt";

/// No circle may have more files than this, listed or not.
const MAX_FILES: usize = 6;

/// Every circle that is new, grew or is too large, and every entry of the list that is stale.
pub fn offences(tree: &Tree) -> Vec<Offence> {
    let text = tree.get(RATCHET).map_or("", |f| f.text.as_str());
    let mut allowed: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.starts_with('#')) {
        match line.rsplit_once(' ').and_then(|(path, n)| Some((path, n.parse().ok()?))) {
            Some((path, files)) => drop(allowed.insert(path, (files, i + 1))),
            None => found.push(Offence::new(RATCHET, i + 1, "not `PATH FILES`")),
        }
    }
    for circle in circles(tree) {
        let was = allowed.remove(circle[0].as_str());
        let files = circle.len();
        let names = circle.join(", ");
        let what = match was {
            _ if files > MAX_FILES => format!("a circle of more than {MAX_FILES} files: {names}"),
            None => format!("a new circle: {names}; move what they share into a file below them"),
            Some((before, _)) if files > before => format!("a circle grew from {before}: {names}"),
            Some((before, line)) if files < before => {
                found.push(Offence::new(RATCHET, line, format!("it has {files} now: write that")));
                continue;
            }
            Some(_) => continue,
        };
        found.push(Offence::new(&circle[0], 0, what));
    }
    for (path, (_, line)) in allowed {
        found.push(Offence::new(RATCHET, line, format!("{path} is in no circle now: remove it")));
    }
    found
}

/// The circles of all crates, each as its paths in order.
fn circles(tree: &Tree) -> Vec<Vec<String>> {
    let mut crates: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for file in tree.rust().filter(|file| file.is_shipped() && !is_test(&file.path)) {
        crates.entry(file.krate().unwrap_or_default()).or_default().push(file);
    }
    crates.into_values().flat_map(|files| circles_of(&imports(&files))).collect()
}

fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("/tests/")
}

/// A module's path from the root of its crate.
type Module = Vec<String>;

/// What a file says about its imports.
struct Uses {
    /// Paths that it imports, from the root of the crate.
    paths: Vec<Module>,
    /// Names that it re-exports, and what they stand for.
    reexports: BTreeMap<String, Module>,
}

/// Which file imports which, by path.
fn imports(files: &[&SourceFile]) -> BTreeMap<String, BTreeSet<String>> {
    let modules: BTreeMap<Module, &SourceFile> =
        files.iter().map(|file| (module_of(&file.path), *file)).collect();
    let uses: BTreeMap<&Module, Uses> =
        modules.iter().map(|(module, file)| (module, uses_of(module, file, &modules))).collect();
    let mut arrows = BTreeMap::new();
    for (module, file) in &modules {
        let targets = uses[module].paths.iter().filter_map(|path| resolve(path, &uses, 0));
        let targets: BTreeSet<String> =
            targets.map(|to| modules[to].path.clone()).filter(|to| *to != file.path).collect();
        arrows.insert(file.path.clone(), targets);
    }
    arrows
}

/// The module in which the item of `path` stands, through re-exports.
fn resolve<'a>(
    path: &[String],
    uses: &'a BTreeMap<&Module, Uses>,
    depth: u32,
) -> Option<&'a Module> {
    let longest = (0..=path.len()).rev().find(|n| uses.contains_key(&path[..*n].to_vec()))?;
    let (module, its) = uses.get_key_value(&path[..longest].to_vec())?;
    let reexported = path.get(longest).and_then(|name| its.reexports.get(name));
    match reexported.filter(|_| depth < 8) {
        Some(to) => resolve(&[to.as_slice(), &path[longest + 1..]].concat(), uses, depth + 1),
        None => Some(module),
    }
}

/// `crates/NAME/src/a/b.rs` is `a::b`; `lib.rs`, `main.rs` and `mod.rs` stand for their directory.
fn module_of(path: &str) -> Module {
    let inside = path.split("/src/").nth(1).unwrap_or(path).trim_end_matches(".rs");
    let mut module: Module = inside.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| matches!(last.as_str(), "lib" | "main" | "mod")) {
        module.pop();
    }
    module
}

fn uses_of(module: &Module, file: &SourceFile, all: &BTreeMap<Module, &SourceFile>) -> Uses {
    let code = without_tests(&file.code);
    let mut uses = Uses { paths: Vec::new(), reexports: BTreeMap::new() };
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        let start = statement.rfind("use ").filter(|at| is_use(statement, *at));
        let Some(at) = start else {
            rest.push_str(statement);
            continue;
        };
        rest.push_str(&statement[..at]);
        let visible = statement[..at].trim_end().ends_with(['b', ')']);
        for (path, name) in flatten(statement[at + 4..].trim_end_matches(';')) {
            let Some(path) = absolute(module, &path, all) else { continue };
            match visible {
                true => drop(uses.reexports.insert(name, path)),
                false => uses.paths.push(path),
            }
        }
    }
    let inline = paths_in(&rest).into_iter();
    uses.paths.extend(inline.filter_map(|path| absolute(module, &path, all)));
    uses
}

/// Whether the `use ` at `at` begins an item: only a visibility stands before it on its line.
fn is_use(statement: &str, at: usize) -> bool {
    let line = &statement[statement[..at].rfind('\n').map_or(0, |n| n + 1)..at];
    let before = line.trim();
    before.is_empty() || before == "pub" || before.starts_with("pub(")
}

/// Code up to its module of tests, which stands last in a file.
fn without_tests(code: &str) -> &str {
    let tests = code.match_indices("#[cfg(test)]").find(|(at, _)| {
        let after = code[at + 12..].trim_start();
        after.starts_with("mod ") && after.find('{') < after.find(';').or(Some(usize::MAX))
    });
    tests.map_or(code, |(at, _)| &code[..at])
}

/// A path from the root of the crate; `None` for other crates.
fn absolute(
    module: &Module,
    path: &[String],
    all: &BTreeMap<Module, &SourceFile>,
) -> Option<Module> {
    let mut base: Module = module.clone();
    let mut at = 0;
    match path.first()?.as_str() {
        "crate" => (base.clear(), at = 1).1,
        "self" => at = 1,
        "super" => {
            while path.get(at).is_some_and(|word| word == "super") {
                base.pop();
                at += 1;
            }
        }
        child => {
            let child: Module = base.iter().cloned().chain([child.to_owned()]).collect();
            all.contains_key(&child).then_some(())?;
        }
    }
    base.extend_from_slice(&path[at..]);
    Some(base)
}

/// The paths of a use tree with the names that they bring into scope.
fn flatten(tree: &str) -> Vec<(Module, String)> {
    let tree = tree.trim();
    if let Some(open) = tree.find('{') {
        let head: Module = words(&tree[..open]);
        let inner = tree[open + 1..].trim_end().trim_end_matches('}');
        return split_commas(inner)
            .into_iter()
            .flat_map(flatten)
            .map(|(path, name)| ([head.clone(), path].concat(), name))
            .map(|(path, name)| match path.split_last() {
                Some((last, before)) if last == "self" => {
                    (before.to_vec(), before.last().cloned().unwrap_or_default())
                }
                _ => (path, name),
            })
            .collect();
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let path = words(path);
    let name = if alias.is_empty() { path.last().cloned() } else { Some(alias.trim().to_owned()) };
    if path.is_empty() { Vec::new() } else { vec![(path, name.unwrap_or_default())] }
}

fn words(path: &str) -> Module {
    path.split("::").map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

/// Splits at the commas outside of braces.
fn split_commas(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// Every path of two words and more in code.
fn paths_in(code: &str) -> Vec<Module> {
    let pieces = code.split(|c: char| !is_word(c) && c != ':');
    pieces.filter(|piece| piece.contains("::")).map(words).filter(|path| path.len() > 1).collect()
}

/// Sets of files that reach each other, of two and more.
fn circles_of(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            for to in &arrows[at] {
                if seen.insert(to) {
                    open.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        arrows.keys().map(|file| (file, reach(file))).collect();
    let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
    for (file, seen) in reached.iter().filter(|(file, seen)| seen.contains(*file)) {
        let all = seen.iter().filter(|other| reached[*other].contains(*file));
        circles.insert(all.map(|other| (*other).clone()).collect());
    }
    circles.into_iter().filter(|circle| circle.len() > 1).collect()
}

#[cfg(test)]
fn tree_of(files: &[(&str, &str)]) -> Tree {
    let files: Vec<(String, &str)> =
        files.iter().map(|(name, text)| (format!("crates/x/src/{name}"), *text)).collect();
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    Tree::of(&files)
}

#[test]
fn circles_are_found_through_children_and_re_exports() {
    let two = [("a.rs", "use crate::b::B;\n"), ("b.rs", "fn f() { super::a::g(); }\n")];
    assert_eq!(circles(&tree_of(&two)), [["crates/x/src/a.rs", "crates/x/src/b.rs"]]);
    let parent = [("a.rs", "mod b;\nfn f() { b::g(); }\n"), ("a/b.rs", "use super::{C, d::E};\n")];
    assert_eq!(circles(&tree_of(&parent)).len(), 1);
    // The item stands in `c`, whatever file re-exports it.
    let through = [
        ("a/mod.rs", "pub use c::C;\nuse b::B;\n"),
        ("a/b.rs", "use super::C;\n"),
        ("a/c.rs", "use crate::a::b::B;\n"),
    ];
    assert_eq!(circles(&tree_of(&through)), [["crates/x/src/a/b.rs", "crates/x/src/a/c.rs"]]);
    let none = [
        ("a.rs", "use std::b::C;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n"),
        ("b.rs", "use crate::a::{self, A as B};\n"),
    ];
    assert!(circles(&tree_of(&none)).is_empty());
}

#[test]
fn the_list_of_circles_only_shrinks() {
    let two = [("a.rs", "use crate::b::B;\n"), ("b.rs", "use crate::a::A;\n")];
    let with = |list: &str| {
        let mut tree = tree_of(&two);
        tree.files.push(SourceFile::new(RATCHET, list));
        offences(&tree).into_iter().map(|offence| offence.what).collect::<Vec<_>>()
    };
    assert!(with("crates/x/src/a.rs 2\n").is_empty());
    assert!(with("")[0].starts_with("a new circle"), "{:?}", with(""));
    assert!(with("crates/x/src/a.rs 3\n")[0].starts_with("it has 2 now"));
    let stale = with("crates/x/src/a.rs 2\ncrates/x/src/c.rs 2\n");
    assert!(stale[0].contains("c.rs is in no circle"), "{stale:?}");
}
