//! Doc tests: a library with code blocks that rustdoc tests has them on, and each other library has
//! them off, since rustdoc takes its time to find none.

use crate::tree::{Offence, SourceFile, Tree};

/// What rustdoc tests, by the words behind the opening fence.
const TESTED: [&str; 5] = ["rust", "no_run", "should_panic", "compile_fail", "ignore"];

/// Every library whose manifest does not say what its comments have.
pub fn offences(tree: &Tree) -> Vec<Offence> {
    let mut found = Vec::new();
    for manifest in tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        let Some(krate) = manifest.krate() else { continue };
        let source = format!("crates/{krate}/src/");
        if tree.get(&format!("{source}lib.rs")).is_none() {
            continue;
        }
        let is_off = manifest.text.lines().any(|line| line == "doctest = false");
        let mut files = tree.rust().filter(|file| file.path.starts_with(&source));
        match files.find_map(|file| Some((file, first_block(file)?))) {
            Some((file, line)) if is_off => found.push(Offence::new(
                &file.path,
                line,
                "is not tested: remove `doctest = false` from the manifest, or mark it as `text`",
            )),
            None if !is_off => found.push(Offence::new(
                &manifest.path,
                0,
                "has no doc test: add `doctest = false` to [lib]",
            )),
            _ => {}
        }
    }
    found
}

/// The line of the first code block in a file's comments that rustdoc tests.
fn first_block(file: &SourceFile) -> Option<usize> {
    let mut is_inside = false;
    let fences = file.lines().filter_map(|(number, line)| {
        let line = line.trim_start();
        let comment = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))?;
        Some((number, comment.trim().strip_prefix("```")?))
    });
    let opening = fences.filter(|_| {
        is_inside = !is_inside;
        is_inside
    });
    let mut tested = opening.filter(|(_, words)| {
        words.is_empty() || words.split(',').any(|word| TESTED.contains(&word.trim()))
    });
    tested.next().map(|(number, _)| number)
}

#[test]
fn a_manifest_says_whether_there_are_doc_tests() {
    let lines_of = |manifest: &str, source: &str| {
        let files = [("crates/x/Cargo.toml", manifest), ("crates/x/src/lib.rs", source)];
        let found = offences(&Tree::of(&files)).into_iter();
        found.map(|offence| (offence.path, offence.line)).collect::<Vec<_>>()
    };
    let (on, off) = ("[package]\n", "[lib]\ndoctest = false\n");
    let (with, without) =
        ("//! ```text\n//! ```\n//! ```\n//! f();\n//! ```\n", "//! ```text\n//! ```\n");
    assert_eq!(lines_of(on, without), [("crates/x/Cargo.toml".to_owned(), 0)]);
    assert_eq!(lines_of(off, with), [("crates/x/src/lib.rs".to_owned(), 3)]);
    assert_eq!(lines_of(off, "/// ```rust,no_run\n")[0].1, 1);
    assert!(lines_of(on, with).is_empty() && lines_of(off, without).is_empty());
}
