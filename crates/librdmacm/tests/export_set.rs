//! The exported names and versions are exactly Debian's.

use object::Endianness;
use object::elf::{FileHeader64, SHT_DYNSYM};
use object::read::elf::{FileHeader, Sym};
use rdmalab_testing::{library, skipped};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A version and a name.
type Export = (String, String);

/// The exports of a shared library, without the names of the versions themselves. No symbol may be
/// hidden.
fn exports(path: &Path) -> BTreeSet<Export> {
    let data = std::fs::read(path).expect("the library");
    let data = data.as_slice();
    let header = FileHeader64::<Endianness>::parse(data).expect("an ELF file");
    let endian = header.endian().expect("a known byte order");
    let sections = header.sections(endian, data).expect("sections");
    let symbols = sections.symbols(endian, data, SHT_DYNSYM).expect("dynamic symbols");
    let versions = sections.versions(endian, data).expect("versions").expect("versions");
    let mut found = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        if symbol.is_undefined(endian) || symbol.is_absolute(endian) || symbol.is_local() {
            continue;
        }
        let index = versions.version_index(endian, index);
        assert!(!index.is_hidden());
        let version = versions.version(index).expect("a version");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let version = version.map_or(String::new(), |version| text(version.name()));
        found.insert((version, text(symbol.name(endian, symbols.strings()).expect("a name"))));
    }
    found
}

/// The list in the repository.
fn listed() -> BTreeSet<Export> {
    include_str!("debian-12-exports.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(' ').expect("two words"))
        .map(|(version, name)| (version.to_owned(), name.to_owned()))
        .collect()
}

fn assert_same(ours: &BTreeSet<Export>, theirs: &BTreeSet<Export>) {
    let missing: Vec<_> = theirs.difference(ours).collect();
    let extra: Vec<_> = ours.difference(theirs).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing {missing:#?}\nextra {extra:#?}");
}

#[test]
fn the_library_exports_the_list() {
    assert_eq!(listed().len(), 68);
    let (versioned, plain): (BTreeSet<_>, BTreeSet<_>) =
        exports(&library("librdmacm.so")).into_iter().partition(|(version, _)| !version.is_empty());
    assert_same(&versioned, &listed());
    // Only internal names, which versioned names refer to, have no version.
    let stray: Vec<_> = plain.iter().filter(|(_, name)| !name.starts_with("__rdmalab_")).collect();
    assert!(stray.is_empty(), "{stray:#?}");
}

#[test]
fn the_installed_library_exports_the_list() {
    let path = ["x86_64", "aarch64"]
        .iter()
        .map(|arch| PathBuf::from(format!("/usr/lib/{arch}-linux-gnu/librdmacm.so.1")))
        .find(|path| path.exists());
    let test = "the_installed_library_exports_the_list of librdmacm";
    let Some(path) = path else { return skipped(test, "Debian's librdmacm1 is not installed") };
    let theirs = exports(&path);
    let has = |wanted: &str| theirs.iter().any(|(version, _)| version == wanted);
    if !has("RDMACM_1.3") || has("RDMACM_1.4") {
        return skipped(test, format!("{} is not of rdma-core 44", path.display()));
    }
    assert_same(&listed(), &theirs);
}
