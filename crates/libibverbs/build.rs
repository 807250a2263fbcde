//! Makes the versioned symbols from `exports.txt`.
//!
//! Out of the one table come the assembler directives that name each function again under its
//! versions, the linker's version nodes, and the functions that only fail. The nodes are empty:
//! rustc passes a version script of its own that lists the functions, and a linker that is
//! given two lists would let rustc's win and leave the versions out. Names from the directives
//! do get their versions, as long as the nodes exist.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const TABLE: &str = "exports.txt";
const SONAME: &str = "libibverbs.so.1";

/// One line of the table.
struct Export<'a> {
    version: &'a str,
    name: &'a str,
    hidden: bool,
    what: &'a str,
}

impl Export<'_> {
    /// The name under which the function is compiled.
    fn internal(&self) -> String {
        let age = if self.hidden { "old_" } else { "" };
        format!("__rdmalab_{age}{}", self.name)
    }
}

fn parse(line: &str) -> Option<Export<'_>> {
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let mut words = line.split_whitespace();
    let mut word = || words.next().unwrap_or_else(|| panic!("{TABLE}: too few words: {line}"));
    let (version, name, binding, what) = (word(), word(), word(), word());
    let hidden = match binding {
        "default" => false,
        "hidden" => true,
        other => panic!("{TABLE}: unknown binding {other}: {line}"),
    };
    Some(Export { version, name, hidden, what })
}

/// The directives that give each function its versioned names.
fn symver(exports: &[Export]) -> String {
    let mut text = String::from("core::arch::global_asm!(\n");
    for export in exports {
        let at = if export.hidden { "@" } else { "@@" };
        let internal = export.internal();
        let (name, version) = (export.name, export.version);
        writeln!(text, "    \".symver {internal}, {name}{at}{version}\",").expect("text");
    }
    text.push_str(");\n");
    text
}

/// The functions that only fail. They ignore their arguments, which the calling conventions of
/// all our targets allow: the caller passes them and the caller takes them back.
fn stubs(exports: &[Export]) -> String {
    let mut text = String::new();
    for export in exports {
        let (ret, body) = match export.what {
            "real" => continue,
            "error" => (" -> core::ffi::c_int", "crate::stub::error()"),
            "minus_one" => (" -> core::ffi::c_int", "crate::stub::minus_one()"),
            "null" => (" -> *mut core::ffi::c_void", "crate::stub::null()"),
            "zero" => (" -> u64", "0"),
            "void" => ("", ""),
            "flag" => {
                let internal = export.internal();
                writeln!(text, "#[unsafe(export_name = \"{internal}\")]").expect("text");
                writeln!(text, "static FLAG: u8 = 0;").expect("text");
                continue;
            }
            other => panic!("{TABLE}: unknown kind {other} of {}", export.name),
        };
        let internal = export.internal();
        writeln!(text, "#[unsafe(no_mangle)]").expect("text");
        writeln!(text, "extern \"C\" fn {internal}(){ret} {{ {body} }}").expect("text");
    }
    text
}

/// The version nodes, each after the one before it; the private one stands alone.
fn nodes(exports: &[Export]) -> String {
    let mut versions: Vec<&str> = Vec::new();
    for export in exports {
        if !versions.contains(&export.version) {
            versions.push(export.version);
        }
    }
    let mut text = String::new();
    let mut before = String::new();
    for version in versions {
        if version.contains("PRIVATE") {
            writeln!(text, "{version} {{ }};").expect("text");
        } else {
            writeln!(text, "{version} {{ }}{before};").expect("text");
            before = format!(" {version}");
        }
    }
    text
}

fn main() {
    println!("cargo:rerun-if-changed={TABLE}");
    println!("cargo:rerun-if-changed=build.rs");
    let table = std::fs::read_to_string(TABLE).expect("the table of exports");
    let exports: Vec<Export> = table.lines().filter_map(parse).collect();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let write = |name: &str, text: String| -> PathBuf {
        let path = out.join(name);
        std::fs::write(&path, text).expect("cargo's output directory is writable");
        path
    };
    write("symver.rs", symver(&exports));
    write("stubs.rs", stubs(&exports));
    link_args(&write("nodes.map", nodes(&exports)));
}

fn link_args(nodes: &Path) {
    let arg = |text: &str| println!("cargo:rustc-cdylib-link-arg={text}");
    arg(&format!("-Wl,--version-script={}", nodes.display()));
    arg(&format!("-Wl,-soname,{SONAME}"));
    // Programs close us while our threads still run.
    arg("-Wl,-z,nodelete");
    // GNU ld takes no second version script. On x86-64 rustc brings lld; elsewhere it must be
    // installed.
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch != "x86_64") {
        arg("-fuse-ld=lld");
    }
}
