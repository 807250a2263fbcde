//! Documents: one title each, links that lead somewhere, a changelog that is open, a book whose
//! contents list is whole, and an `ARCHITECTURE.md` that names the crates there are.

use std::collections::BTreeSet;

use crate::tree::{Offence, SourceFile, Tree};

const CHANGELOG: &str = "CHANGELOG.md";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const BOOK: &str = "docs/book/src/";

/// Every document that does not hold together.
pub fn offences(tree: &Tree) -> Vec<Offence> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|f| f.is_markdown()) {
        one_title(file, &mut found);
        links_lead_somewhere(tree, file, &mut found);
    }
    changelog_is_open(tree, &mut found);
    book_is_whole(tree, &mut found);
    crates_are_described(tree, &mut found);
    found
}

/// Lines outside fenced code, numbered from 1.
fn prose(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    file.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn one_title(file: &SourceFile, found: &mut Vec<Offence>) {
    let titles: Vec<usize> =
        prose(file).filter(|(_, l)| l.starts_with("# ")).map(|(n, _)| n).collect();
    match titles[..] {
        [_] => {}
        [] => found.push(Offence::new(&file.path, 1, "no title; start with one `# ` line")),
        [_, second, ..] => {
            found.push(Offence::new(&file.path, second, "a second title; make it a `## ` section"));
        }
    }
}

/// Targets of `[text](target)` on a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, _)| {
        let rest = &line[at + 2..];
        Some(rest[..rest.find(')')?].trim())
    })
}

fn links_lead_somewhere(tree: &Tree, file: &SourceFile, found: &mut Vec<Offence>) {
    for (number, line) in prose(file) {
        for link in links(line) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains(':') {
                continue;
            }
            let path = resolve(&file.path, target);
            // Pictures and the like may not be text, so ask the disk as well.
            let exists = tree.get(&path).is_some()
                || (tree.root.is_absolute() && tree.root.join(&path).exists());
            if !exists {
                let what = format!("the link `{link}` leads to {path}, which is not there");
                found.push(Offence::new(&file.path, number, what));
            }
        }
    }
}

/// `target` as seen from the document at `from`, as a path from the root.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn changelog_is_open(tree: &Tree, found: &mut Vec<Offence>) {
    let open = tree
        .get(CHANGELOG)
        .is_some_and(|f| f.lines().filter(|(_, l)| l.trim_end() == "## [Unreleased]").count() == 1);
    if !open {
        let what = "needs exactly one `## [Unreleased]` section for the next change";
        found.push(Offence::new(CHANGELOG, 0, what));
    }
}

fn book_is_whole(tree: &Tree, found: &mut Vec<Offence>) {
    let contents = format!("{BOOK}SUMMARY.md");
    let listed: BTreeSet<String> = tree.get(&contents).map_or_else(BTreeSet::new, |f| {
        prose(f).flat_map(|(_, l)| links(l)).map(|l| resolve(&contents, l)).collect()
    });
    for file in tree.files.iter().filter(|f| f.is_markdown() && f.path.starts_with(BOOK)) {
        if file.path != contents && !listed.contains(&file.path) {
            let what = "a chapter that SUMMARY.md does not list; nobody will find it";
            found.push(Offence::new(&file.path, 0, what));
        }
    }
}

fn crates_are_described(tree: &Tree, found: &mut Vec<Offence>) {
    let rows: BTreeSet<&str> = tree.get(ARCHITECTURE).map_or_else(BTreeSet::new, |f| {
        f.lines().filter_map(|(_, l)| l.strip_prefix("| `")?.split('`').next()).collect()
    });
    let crates: BTreeSet<&str> = tree
        .files
        .iter()
        .filter_map(|f| f.krate().filter(|k| f.path == format!("crates/{k}/Cargo.toml")))
        .collect();
    for name in crates.difference(&rows) {
        let what =
            format!("crates/{name} exists and is not in the table; add a row \"| `{name}` |\"");
        found.push(Offence::new(ARCHITECTURE, 0, what));
    }
    for name in rows.difference(&crates) {
        let what = format!("the table has a row for `{name}`, which is not in crates/; remove it");
        found.push(Offence::new(ARCHITECTURE, 0, what));
    }
}

#[cfg(test)]
const OPEN: (&str, &str) = (CHANGELOG, "# Changelog\n## [Unreleased]\n");

#[cfg(test)]
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<_> = [OPEN].iter().chain(files).copied().collect();
    offences(&Tree::of(&files)).iter().map(|o| format!("{}:{}", o.path, o.line)).collect()
}

#[test]
fn a_document_has_one_title() {
    assert!(found(&[("a.md", "# A\n```\n# a comment\n```\n## B\n")]).is_empty());
    assert_eq!(found(&[("a.md", "A\n")]), ["a.md:1"]);
    assert_eq!(found(&[("a.md", "# A\n\n# B\n")]), ["a.md:3"]);
}

#[test]
fn links_are_followed() {
    let b = ("docs/b.md", "# B\n[up](../a.md#a) [out](https://example.org) [here](#b)\n");
    assert!(found(&[("a.md", "# A\n[b](docs/b.md)\n"), b]).is_empty());
    assert_eq!(found(&[("a.md", "# A\n[b](docs/c.md)\n"), b]), ["a.md:2"]);
}

#[test]
fn the_changelog_is_open_once() {
    let closed = [(CHANGELOG, "# Changelog\n## [1.0.0]\n")];
    assert_eq!(offences(&Tree::of(&closed)).len(), 1);
    assert_eq!(offences(&Tree::of(&[])).len(), 1);
}

#[test]
fn the_book_lists_its_chapters() {
    let one = ("docs/book/src/one.md", "# One\n");
    let list = ("docs/book/src/SUMMARY.md", "# Summary\n- [One](one.md)\n");
    assert!(found(&[list, one]).is_empty());
    assert_eq!(found(&[one]), ["docs/book/src/one.md:0"]);
}

#[test]
fn the_architecture_names_the_crates_there_are() {
    let wire = ("crates/wire/Cargo.toml", "");
    let row = (ARCHITECTURE, "# A\n| crate | role |\n| `wire` | bytes |\n");
    assert!(found(&[wire, row]).is_empty());
    assert_eq!(found(&[wire]), ["ARCHITECTURE.md:0"]);
    assert_eq!(found(&[row]), ["ARCHITECTURE.md:0"]);
}
