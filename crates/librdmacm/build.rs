//! Makes the versioned symbols from `exports.txt`, as the build script of `rdmalab-libibverbs` does
//! (which says why the version nodes are empty).

use std::fmt::Write as _;
use std::path::PathBuf;

const TABLE: &str = "exports.txt";
const SONAME: &str = "librdmacm.so.1";

fn main() {
    println!("cargo:rerun-if-changed={TABLE}");
    println!("cargo:rerun-if-changed=build.rs");
    let table = std::fs::read_to_string(TABLE).expect("the table of exports");
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    // A directive must stand in the module of its function: the compiler may put another one into
    // another object file.
    let mut symver = [(); 2].map(|()| String::from("core::arch::global_asm!(\n"));
    let mut versions: Vec<&str> = Vec::new();
    for line in lines {
        let (version, name) = line.split_once(' ').expect("a version and a name");
        let text = &mut symver[usize::from(!name.starts_with("rdma_"))];
        writeln!(text, "    \".symver __rdmalab_{name}, {name}@@{version}\",").expect("text");
        if versions.last() != Some(&version) {
            versions.push(version);
        }
    }
    let (mut nodes, mut before) = (String::new(), String::new());
    for version in versions {
        writeln!(nodes, "{version} {{ }}{before};").expect("text");
        before = format!(" {version}");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let map = out.join("nodes.map");
    for (name, text) in ["symver.rs", "symver_rsocket.rs"].iter().zip(symver) {
        let written = std::fs::write(out.join(name), text + ");\n");
        written.expect("cargo's output directory is writable");
    }
    std::fs::write(&map, nodes).expect("cargo's output directory is writable");
    let arg = |text: &str| println!("cargo:rustc-cdylib-link-arg={text}");
    arg(&format!("-Wl,--version-script={}", map.display()));
    arg(&format!("-Wl,-soname,{SONAME}"));
    // Programs close us while our thread still runs.
    arg("-Wl,-z,nodelete");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch != "x86_64") {
        arg("-fuse-ld=lld");
    }
}
