//! Java: its handlers beside ours, and its memory paged on demand.

use std::path::Path;
use std::process::Command;

use rdmalab_testkit::compiled::compile_with;
use rdmalab_testkit::programs;

use crate::case::Case;
use crate::signals::{library, run, source};
use crate::ucx::{self, check_faults, installed, on_demand};

/// Where the headers of Java are, as options of a compiler.
fn jni_headers(javac: &Path) -> [String; 2] {
    let home = javac.canonicalize().expect("a file").ancestors().nth(2).map(Path::to_owned);
    let headers = home.expect("javac is in the bin directory of its home").join("include");
    [headers.clone(), headers.join("linux")].map(|directory| format!("-I{}", directory.display()))
}

/// Compiles a class into a directory.
fn compile_class(javac: &Path, name: &str, directory: &Path) {
    let mut compiler = Command::new(javac);
    compiler.arg("-d").arg(directory).arg(source(name));
    assert!(compiler.status().expect("javac runs").success());
}

#[test]
fn java_finds_null_references_and_stack_overflows() {
    let (Some(java), Some(javac)) = (programs::find("java"), programs::find("javac")) else {
        return programs::skipped("java::handlers", "no java and javac are installed");
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let include = jni_headers(&javac);
    let bridge = source("jni.c").display().to_string();
    let Some(library) = library(scratch.path(), &[&bridge, &include[0], &include[1]]) else {
        return;
    };
    compile_class(&javac, "Handlers.java", scratch.path());
    let (classes, library) = (scratch.path().display().to_string(), library.display().to_string());
    for check in ["-Xcheck:jni", "-Xshare:auto"] {
        let arguments = [check, "-Xss512k", "-cp", &classes, "Handlers", &library];
        let (ended, in_front) = run(&java, &arguments, &[]);
        let expected = format!("{}overflows: 3\n", "nulls: 1000\n".repeat(3));
        // With -Xcheck:jni Java says so if a handler is not the one that it set.
        let is_clean = !ended.stdout.contains("handler") && ended.stdout.ends_with(&expected);
        assert!(ended.succeeded() && in_front && is_clean, "{}", ended.report());
    }
}

/// UCX registers memory that Java maps, and unmaps while the device has its pages.
#[test]
fn the_memory_of_java_is_paged_on_demand() {
    let (Some(java), Some(javac)) = (installed("java"), installed("javac")) else { return };
    if !Path::new("/usr/include/ucp/api/ucp.h").exists() {
        return programs::skipped("java::on_demand", "libucx-dev is not installed");
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let bridge = source("jni_ucx.c").display().to_string();
    let [jni, jni_linux] = jni_headers(&javac);
    let options = ["-shared", "-fPIC", &jni, &jni_linux, "-lucp", "-lucs"];
    let Some(library) = compile_with("cc", scratch.path(), &[&bridge], &options) else { return };
    compile_class(&javac, "OnDemand.java", scratch.path());
    let classes = scratch.path().display().to_string();
    let arguments =
        ["-cp", &classes, "OnDemand", &library.display().to_string()].map(str::to_owned);
    for profile in ["ideal", "connectx4"] {
        let counters = tempfile::tempdir().expect("a directory");
        let line = format!("UCX_TLS=rc_v {} java", on_demand(profile, counters.path()));
        let _turn = programs::turn();
        let ended = ucx::run(&java, &arguments, &Case::parse(&line).variables);
        assert!(ended.succeeded() && ended.stdout == "all passed\n", "{}", ended.report());
        check_faults(profile, counters.path(), 1);
    }
}
