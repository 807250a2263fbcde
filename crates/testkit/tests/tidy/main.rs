//! The house rules, as tests. Each rule is a pure function from a file to its offences, has a test
//! of its own that shows it can fail, and one test here that applies it to the whole tree.
//!
//! A failure lists every offence at once: `file:line: what is wrong; what to do`.

mod arrows;
mod circles;
mod docs;
mod doctests;
mod experiments;
mod lengths;
mod mask;
mod modules;
mod text;
mod tree;
mod unsafety;

use tree::{Offence, Tree};

/// Fails with all offences, so that one run is enough to mend them.
#[track_caller]
fn settle(rule: &str, offences: Vec<Offence>) {
    if offences.is_empty() {
        return;
    }
    let lines: Vec<String> = offences.iter().map(Offence::to_string).collect();
    panic!("{rule}: {} to mend\n{}\n", lines.len(), lines.join("\n"));
}

#[test]
fn the_tree_is_found_whole() {
    let tree = Tree::load();
    for path in ["Cargo.toml", "README.md", ".ci/run", "crates/wire/src/lib.rs"] {
        assert!(tree.files.iter().any(|f| f.path == path), "{path} is missing from the walk");
    }
}

#[test]
fn crates_depend_along_the_arrows_only() {
    settle("arrows", arrows::offences(&Tree::load()));
}

#[test]
fn crates_name_only_the_modules_that_are_theirs() {
    settle("modules", modules::offences(&Tree::load()));
}

#[test]
fn files_import_each_other_in_no_new_circle() {
    settle("circles", circles::offences(&Tree::load()));
}

#[test]
fn unsafe_stands_where_it_may_and_says_why() {
    settle("unsafe", unsafety::offences(&Tree::load()));
}

#[test]
fn functions_and_files_stay_short() {
    settle("lengths", lengths::offences(&Tree::load()));
}

#[test]
fn text_is_clean() {
    settle("text", text::offences(&Tree::load()));
}

#[test]
fn documents_hold_together() {
    settle("documents", docs::offences(&Tree::load()));
}

#[test]
fn doc_tests_are_on_where_there_are_any() {
    settle("doc tests", doctests::offences(&Tree::load()));
}

#[test]
fn experiments_are_named_at_home_and_in_the_list() {
    settle("experiments", experiments::offences(&Tree::load()));
}
