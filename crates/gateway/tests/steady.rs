//! Between a spinning source and a spinning sink, a path allocates nothing and makes no system call
//! once it has started.

mod common;

use std::alloc::System;
use std::process::Command;
use std::time::Duration;

use common::{Running, start};
use rdmalab_testing::{LIMIT, Process, WaitLimit};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How long a path is watched at a time, and the samples that it must have had meanwhile.
const WINDOW: Duration = Duration::from_millis(200);
const SAMPLES: u64 = 100;

/// A gateway whose paths spin: from a signal to one node, and from that one or another one.
fn spinning(nodes: &str, to: &str, from: &str) -> Running {
    start(&format!(
        "timer = \"tsc\", nodes = {{ siggen = {{ type = \"signal\", signal = \"mixed\", \
         values = 8, rate = 10000.0 }}, {nodes} }}, \
         paths = ( {{ in = \"siggen\", out = \"{to}\" }}, {{ in = \"{from}\" }} )"
    ))
}

fn loopback() -> Running {
    let node = "back = { type = \"loopback\", mode = \"polling\", in = { signals = \"8f\" } }";
    spinning(node, "back", "back")
}

fn shmem() -> Running {
    let name = format!("/steady-{}", std::process::id());
    let end = |node: &str, here: &str, there: &str| {
        format!(
            "{node} = {{ type = \"shmem\", mode = \"polling\", in = {{ name = \"{name}-{here}\", \
             signals = \"8f\" }}, out = {{ name = \"{name}-{there}\" }} }}"
        )
    };
    spinning(&format!("{}, {}", end("a", "a", "b"), end("b", "b", "a")), "a", "b")
}

/// Paths that wait in the kernel, which costs no allocations either.
fn zeromq() -> Running {
    let port = rdmalab_testing::free_port();
    let node = format!(
        "net = {{ type = \"zeromq\", in = {{ subscribe = \"tcp://127.0.0.1:{port}\", \
         signals = \"8f\" }}, out = {{ publish = \"tcp://*:{port}\" }} }}"
    );
    spinning(&node, "net", "net")
}

/// The samples of each path.
fn samples(gateway: &Running) -> Vec<u64> {
    gateway.so_far().iter().map(|path| path.samples - path.dropped).collect()
}

/// Looks at windows in which all paths had samples, until one has shown what is expected.
fn watch<T: std::fmt::Debug>(gateway: &Running, what: &str, mut look: impl FnMut() -> Option<T>) {
    let mut wait_limit = WaitLimit::of(LIMIT);
    loop {
        let before = samples(gateway);
        let found = look();
        let after = samples(gateway);
        let moved = before.iter().zip(&after).all(|(before, after)| after - before >= SAMPLES);
        if found.is_some() && moved && before.len() == 2 {
            return;
        }
        assert!(
            wait_limit.is_left(),
            "{what}: {before:?} to {after:?} samples: {:#?}",
            gateway.told()
        );
    }
}

/// All allocations of the process during a window.
fn allocations() -> usize {
    let count = || {
        let now = ALLOCATOR.stats();
        now.allocations + now.reallocations + now.deallocations
    };
    let before = count();
    std::thread::sleep(WINDOW);
    count() - before
}

/// The threads of paths, by their ids.
fn paths() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("own threads").flatten();
    let is_path = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "path")
    };
    tasks.filter(is_path).map(|task| task.file_name().display().to_string()).collect()
}

/// The system calls of paths during a window, as strace(1) prints them; `None` if it cannot.
fn system_calls(file: &std::path::Path) -> Option<String> {
    let threads = paths();
    let mut strace = Command::new("strace");
    strace.arg("-o").arg(file).args(threads.iter().flat_map(|thread| ["-p", thread]));
    let mut strace = Process::start(&mut strace);
    let is_traced = |thread: &String| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status"));
        status.is_ok_and(|text| !text.contains("TracerPid:\t0\n"))
    };
    WaitLimit::of(LIMIT)
        .until(|| (strace.has_ended() || threads.iter().all(is_traced)).then_some(()))?;
    std::thread::sleep(WINDOW);
    let works = !strace.has_ended();
    strace.kill();
    works.then(|| std::fs::read_to_string(file).unwrap_or_default())
}

/// One test, since the allocations of the whole process count.
#[test]
fn paths_that_spin_do_without_allocations_and_system_calls() {
    for start in [loopback, shmem, zeromq] {
        let gateway = start();
        watch(&gateway, "allocations", || (allocations() == 0).then_some(()));
        gateway.end();
    }
    if rdmalab_testing::find("strace").is_none() {
        return rdmalab_testing::skipped("system calls of paths", "strace is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let gateway = loopback();
    let mut calls = None;
    watch(&gateway, "system calls", || {
        calls = system_calls(&dir.path().join("calls"));
        calls.as_ref().is_none_or(String::is_empty).then_some(())
    });
    gateway.end();
    if calls.is_none() {
        rdmalab_testing::skipped("system calls of paths", "strace may not trace");
    }
}
