//! Unmodified programs from Debian start with our library. The linker finds every symbol at start,
//! including those that the drivers' libraries need.

mod common;

use common::Installed;
use rdmalab_testing::{find, skipped};
use std::path::Path;
use std::process::{Command, Output};

fn run(library: &Path, program: &Path, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", library)
        .env("LD_BIND_NOW", "1")
        .env("LC_ALL", "C")
        .output()
        .expect("the program runs")
}

/// Messages of the dynamic linker for missing symbols and versions.
const LINKER_TROUBLE: &[&str] =
    &["symbol lookup error", "undefined symbol", "not defined in file", "no version information"];

fn assert_linked(name: &str, output: &Output) {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!LINKER_TROUBLE.iter().any(|words| text.contains(words)), "{name}: {text}");
    assert_ne!(output.status.code(), Some(127), "{name}: {text}");
    assert!(output.status.code().is_some(), "{name} died by a signal: {text}");
}

/// Asserts that the program uses our library.
fn assert_ours(library: &Path, program: &Path) {
    let output = Command::new("ldd")
        .arg("-r")
        .arg(program)
        .env("LD_LIBRARY_PATH", library)
        .output()
        .expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(library.to_str().expect("UTF-8")), "{text}");
    assert!(!text.contains("undefined symbol"), "{text}");
}

#[test]
fn stock_programs_start() {
    let installed = Installed::new("programs");
    // The arguments make each program end at once, with or without a device.
    let programs: &[(&str, &[&str])] = &[
        ("ibv_devices", &[]),
        ("ibv_devinfo", &["-l"]),
        ("ibv_rc_pingpong", &["-d", "none"]),
        ("ibv_uc_pingpong", &["-d", "none"]),
        ("ibv_ud_pingpong", &["-d", "none"]),
        ("ibv_srq_pingpong", &["-d", "none"]),
        ("ib_send_lat", &["-d", "none"]),
        ("ib_send_bw", &["-d", "none"]),
        ("ib_write_lat", &["-d", "none"]),
        ("ib_write_bw", &["-d", "none"]),
        ("ib_read_lat", &["-d", "none"]),
        ("ib_atomic_bw", &["-d", "none"]),
        ("qperf", &["--version"]),
    ];
    let mut ran = 0;
    for (name, arguments) in programs {
        let Some(path) = find(name) else {
            skipped(name, "it is not installed");
            continue;
        };
        assert_ours(&installed.0, &path);
        assert_linked(name, &run(&installed.0, &path, arguments));
        ran += 1;
    }
    eprintln!("{ran} of {} programs started", programs.len());
}

#[test]
fn the_drivers_find_every_private_symbol() {
    let installed = Installed::new("drivers");
    for name in ["libmlx5.so.1", "libefa.so.1", "libmlx4.so.1", "librdmacm.so.1"] {
        let path = Path::new("/usr/lib/x86_64-linux-gnu").join(name);
        if path.exists() {
            assert_ours(&installed.0, &path);
        } else {
            skipped(name, "it is not installed");
        }
    }
}
