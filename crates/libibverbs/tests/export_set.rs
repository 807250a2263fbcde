//! The exported names and versions are exactly Debian's.

mod common;

use common::{Export, built_library, exports, systems_library};
use rdmalab_testing::skipped;
use std::collections::BTreeSet;

/// The list in the repository.
fn listed() -> BTreeSet<Export> {
    include_str!("debian-12-exports.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [version, name, binding] = words[..] else { panic!("three words: {line}") };
            Export {
                version: version.to_owned(),
                name: name.to_owned(),
                hidden: binding == "hidden",
            }
        })
        .collect()
}

fn assert_same(ours: &BTreeSet<Export>, theirs: &BTreeSet<Export>) {
    let missing: Vec<_> = theirs.difference(ours).collect();
    let extra: Vec<_> = ours.difference(theirs).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing {missing:#?}\nextra {extra:#?}");
}

#[test]
fn the_list_has_all_of_debian_12() {
    assert_eq!(listed().len(), 180);
}

#[test]
fn the_library_exports_the_list() {
    let (versioned, plain): (BTreeSet<_>, BTreeSet<_>) =
        exports(built_library()).into_iter().partition(|export| !export.version.is_empty());
    assert_same(&versioned, &listed());
    // Only internal names, which versioned names refer to, have no version.
    let stray: Vec<_> =
        plain.iter().filter(|export| !export.name.starts_with("__rdmalab_")).collect();
    assert!(stray.is_empty(), "{stray:#?}");
}

#[test]
fn the_installed_library_exports_the_list() {
    let test = "the_installed_library_exports_the_list of libibverbs";
    let Some(path) = systems_library() else {
        return skipped(test, "Debian's libibverbs1 is not installed");
    };
    let theirs = exports(&path);
    if !theirs.iter().any(|export| export.version == "IBVERBS_PRIVATE_34")
        || theirs.iter().any(|export| export.version == "IBVERBS_1.15")
        || !theirs.iter().any(|export| export.version == "IBVERBS_1.14")
    {
        return skipped(test, format!("{} is not of rdma-core 44", path.display()));
    }
    assert_same(&listed(), &theirs);
}
