//! C programs of ours (`tests/c`), compiled here against the header of rdma-core and run on our
//! library as any user's would be.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rdmalab_testkit::programs::{self, Program};

use crate::case::{Case, LIMIT};

const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// A directory of its own, removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let name = format!("rdmalab-interop-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compiles a program, named by the first source; `None` when there is nothing to compile it with.
fn compile(scratch: &Scratch, sources: &[&str], libraries: &[&str]) -> Option<PathBuf> {
    if !Path::new(HEADER).exists() {
        programs::skipped(sources[0], "libibverbs-dev is not installed");
        return None;
    }
    compile_with("cc", scratch, sources, libraries)
}

/// The same with a compiler of this name, and without the header of rdma-core.
pub fn compile_with(
    compiler: &str,
    scratch: &Scratch,
    sources: &[&str],
    libraries: &[&str],
) -> Option<PathBuf> {
    let name = sources[0];
    let Some(compiler) = programs::find(compiler) else {
        programs::skipped(name, &format!("{compiler} is not installed"));
        return None;
    };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/c");
    let program = scratch.0.join(name).with_extension("");
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .args(sources.iter().map(|source| dir.join(source)))
        .args(libraries)
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Runs a program once for each environment: `VARIABLE=VALUE ...`.
fn run(program: &Path, environments: &[&str], last_line: &str) {
    for environment in environments {
        // Only the variables of the case are used.
        let variables = Case::parse(&format!("{environment} program")).variables;
        let _turn = programs::turn();
        let ended = Program::start(program, &[], &variables).end_by(Instant::now() + LIMIT);
        let said_so = ended.stdout.lines().last() == Some(last_line);
        assert!(ended.succeeded() && said_so, "{}", ended.report());
    }
}

#[test]
fn a_program_as_users_write_them() {
    let scratch = Scratch::new("user");
    if let Some(program) = compile(&scratch, &["user.c", "end.c"], &["-libverbs"]) {
        let environments =
            ["", "RDMALAB_TEST_DEVICE=soft1", "RDMALAB_LANE=off", "RDMALAB_PERSONALITY=ethernet"];
        run(&program, &environments, "all passed");
    }
}

#[test]
fn a_receiver_that_leaves_has_acknowledged() {
    let scratch = Scratch::new("leave");
    if let Some(program) = compile(&scratch, &["leave.c", "end.c"], &["-libverbs"]) {
        run(&program, &["", "RDMALAB_LANE=off"], "all passed");
    }
}

#[test]
fn a_device_may_be_closed_before_its_objects_go() {
    let scratch = Scratch::new("late");
    if let Some(program) = compile(&scratch, &["late.c", "end.c"], &["-libverbs"]) {
        // What is freed is overwritten, so that who still looks there falls.
        run(&program, &["MALLOC_PERTURB_=165"], "all passed");
    }
}

#[test]
fn a_thread_that_waits_may_be_cancelled() {
    let scratch = Scratch::new("cancel");
    if let Some(program) = compile(&scratch, &["cancel.c", "end.c"], &["-libverbs", "-lpthread"]) {
        run(&program, &[""], "all passed");
    }
}

#[test]
fn who_listens_is_found_by_address() {
    let scratch = Scratch::new("listen");
    if let Some(program) = compile(&scratch, &["listen.c", "end.c"], &["-lrdmacm", "-libverbs"]) {
        run(&program, &["", "RDMALAB_PERSONALITY=ethernet"], "all passed");
    }
}

#[test]
fn threads_share_a_socket() {
    let scratch = Scratch::new("sockets");
    let libraries = ["-lrdmacm", "-libverbs", "-lpthread"];
    if let Some(program) = compile(&scratch, &["sockets.c", "end.c"], &libraries) {
        run(&program, &["", "RDMALAB_LANE=off"], "all passed");
    }
}

#[test]
fn every_symbol_has_the_version_that_programs_ask_for() {
    let scratch = Scratch::new("abi");
    if let Some(program) = compile(&scratch, &["abi.c"], &["-ldl"]) {
        run(&program, &[""], "soft1");
    }
}
