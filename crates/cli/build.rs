//! Builds the shared objects that `exec` loads into programs, and embeds them in the binary.
//!
//! Cargo leaves the cdylib of a dependency in `deps` at best, and `cargo install` copies binaries
//! only. So this script builds them with a second cargo, in the same profile and with the same
//! flags. The second cargo has its own target directory, since the outer cargo holds a lock on the
//! other one. It is not in this script's own directory, because cargo has one of these for
//! `clippy`, one for `build`, and one for each set of features. With `RDMALAB_EMBED=0` nothing is
//! embedded: then `exec` looks beside the binary.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A shared object that is embedded.
struct Library {
    /// The directory of its crate, beside this crate's.
    directory: &'static str,
    /// The file that cargo makes.
    file: &'static str,
    /// The name that programs ask for.
    soname: &'static str,
}

const LIBRARIES: [Library; 5] = [
    Library { directory: "libibverbs", file: "libibverbs.so", soname: "libibverbs.so.1" },
    Library { directory: "paths", file: "librdmalab_paths.so", soname: "librdmalab-paths.so" },
    Library {
        directory: "signals",
        file: "librdmalab_signals.so",
        soname: "librdmalab-signals.so",
    },
    Library { directory: "memory", file: "librdmalab_memory.so", soname: "librdmalab-memory.so" },
    Library { directory: "librdmacm", file: "librdmacm.so", soname: "librdmacm.so.1" },
];

/// Variables that the second cargo must not inherit: `cargo clippy` and rust-analyzer use them to
/// wrap the compiler.
const NOT_INHERITED: [&str; 4] =
    ["RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RDMALAB_EMBED");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut list = String::new();
    if env::var_os("RDMALAB_EMBED").is_none_or(|value| value != "0") {
        match build(&out) {
            Ok(paths) => {
                for (library, path) in LIBRARIES.iter().zip(paths) {
                    list.push_str(&entry(library.soname, &path));
                }
            }
            // This does not fail the build: the binary works without, and `exec` says what to do.
            Err(reason) => println!("cargo:warning=the libraries are not embedded: {reason}"),
        }
    }
    let text = format!("const EMBEDDED: &[Embedded] = &[\n{list}];\n");
    std::fs::write(out.join("embedded.rs"), text).expect("cargo's output directory is writable");
}

/// One line of the generated list.
fn entry(soname: &str, path: &Path) -> String {
    let bytes = std::fs::read(path).expect("the library that was just built");
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut text = String::new();
    let path = path.display().to_string();
    writeln!(
        text,
        "    Embedded {{ soname: {soname:?}, fingerprint: {hash:#x}, bytes: \
         include_bytes!({path:?}) }},"
    )
    .expect("text");
    text
}

/// Builds the shared objects and returns their paths, in the order of [`LIBRARIES`]. One call of
/// cargo builds them all, so that it can use all processors.
fn build(out: &Path) -> Result<Vec<PathBuf>, String> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = here.parent().unwrap_or(&here);
    let mut command = cargo(out);
    for library in &LIBRARIES {
        let manifest = crates.join(library.directory).join("Cargo.toml");
        if !manifest.is_file() {
            return Err(format!(
                "{} is not there: build from the whole repository",
                manifest.display()
            ));
        }
        command.args(["--package", &format!("rdmalab-{}", library.directory)]);
    }
    let output = command.output().map_err(|e| format!("cargo cannot be started: {e}"))?;
    // A library that does not compile fails the build.
    assert!(
        output.status.success(),
        "cargo could not build the libraries (RDMALAB_EMBED=0 leaves them out); see above"
    );
    let messages = String::from_utf8_lossy(&output.stdout);
    LIBRARIES.iter().map(|library| find(library, &messages, crates)).collect()
}

/// The path of a shared object, from the messages of the second cargo.
fn find(library: &Library, messages: &str, crates: &Path) -> Result<PathBuf, String> {
    // Only this file name is needed from the JSON messages.
    let ending = format!("/{}", library.file);
    let path = messages.split('"').rfind(|word| word.ends_with(&ending));
    let path = PathBuf::from(path.ok_or_else(|| format!("cargo did not name {ending}"))?);
    watch(&path.with_extension("d"), &crates.join(library.directory));
    Ok(path)
}

/// The second cargo, with all settings that influence how the outer one builds.
fn cargo(out: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("build");
    command.arg("--target-dir").arg(profile_directory(out).unwrap_or(out).join("libraries"));
    // The outer cargo has already made the lock file and fetched the packages in it.
    command.args(["--frozen", "--message-format", "json-render-diagnostics"]);
    command.args(["--profile", &profile(out)]);
    let [host, target] = ["HOST", "TARGET"].map(|name| env::var(name).unwrap_or_default());
    if host != target {
        command.args(["--target", &target]);
    }
    for name in NOT_INHERITED {
        command.env_remove(name);
    }
    // RUSTFLAGS and similar settings arrive as CARGO_ENCODED_RUSTFLAGS, which overrides all others.
    // If it is empty, it would override the flags of a configuration file.
    if env::var_os("CARGO_ENCODED_RUSTFLAGS").is_some_and(|flags| flags.is_empty()) {
        command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    }
    command.stderr(Stdio::inherit());
    command
}

/// The directory of the profile, if the script's is `PROFILE/build/PACKAGE/out`.
fn profile_directory(out: &Path) -> Option<&Path> {
    out.ancestors().nth(2).filter(|build| build.ends_with("build"))?.parent()
}

/// The profile. It is read from the path, since cargo's variable has only the built-in profile that
/// it inherits from.
fn profile(out: &Path) -> String {
    let directory = profile_directory(out).and_then(Path::file_name).and_then(|name| name.to_str());
    match directory {
        Some("debug") => "dev".to_owned(),
        Some(name) => name.to_owned(),
        None if env::var("PROFILE").is_ok_and(|profile| profile == "release") => {
            "release".to_owned()
        }
        None => "dev".to_owned(),
    }
}

/// Makes cargo run this script again when a source of the library changes. The dependency file
/// lists the sources: `TARGET: FILE FILE ...`, with a backslash before blanks in names.
fn watch(dependencies: &Path, krate: &Path) {
    let text = std::fs::read_to_string(dependencies).unwrap_or_default();
    let text = text.replace("\\ ", "\0");
    let sources = text.split_once(": ").map_or("", |(_, sources)| sources);
    let sources = sources.split_whitespace().map(|word| PathBuf::from(word.replace('\0', " ")));
    let mut files: BTreeSet<PathBuf> = sources.collect();
    let manifests: Vec<PathBuf> = files
        .iter()
        .flat_map(|file| file.ancestors().map(|at| at.join("Cargo.toml")))
        .filter(|manifest| manifest.is_file())
        .collect();
    files.extend(manifests);
    files.extend(krate.ancestors().map(|at| at.join("Cargo.lock")).filter(|lock| lock.is_file()));
    files.insert(krate.join("Cargo.toml"));
    for file in files {
        println!("cargo:rerun-if-changed={}", file.display());
    }
}
