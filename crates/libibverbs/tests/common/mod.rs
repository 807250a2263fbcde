//! The built library, and the exports of an ELF file.
#![allow(dead_code)] // Each test uses a part.

use object::Endianness;
use object::elf::{FileHeader64, SHT_DYNSYM};
use object::read::elf::{FileHeader, Sym};
use rdmalab_testing::library;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Our shared library.
pub fn built_library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| library("libibverbs.so"))
}

/// A directory with the library under the name that programs look for; removed when dropped.
pub struct Installed(pub PathBuf);

impl Installed {
    pub fn new(what_for: &str) -> Self {
        let name = format!("rdmalab-libibverbs-{what_for}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        let link = dir.join("libibverbs.so.1");
        std::os::unix::fs::symlink(built_library(), link).expect("a symbolic link");
        Self(dir)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An exported symbol: version (or empty), name, and whether the linker hides it from programs that
/// are linked today.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Export {
    pub version: String,
    pub name: String,
    pub hidden: bool,
}

/// The exports of a shared library, without the names of the versions themselves.
pub fn exports(path: &Path) -> BTreeSet<Export> {
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
        let version = versions.version(index).expect("a version");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        found.insert(Export {
            version: version.map_or(String::new(), |version| text(version.name())),
            name: text(symbol.name(endian, symbols.strings()).expect("a name")),
            hidden: index.is_hidden(),
        });
    }
    found
}

/// Debian's library, if it is installed.
pub fn systems_library() -> Option<PathBuf> {
    ["x86_64", "aarch64"]
        .iter()
        .map(|arch| PathBuf::from(format!("/usr/lib/{arch}-linux-gnu/libibverbs.so.1")))
        .find(|path| path.exists())
}
