//! The C programs in `tests/c`, run on our libraries.

use std::path::Path;
use std::time::Instant;

use rdmalab_testkit::compiled::compile;
use rdmalab_testkit::programs;

use crate::case::{Case, LIMIT};

/// Runs a program once for each environment: `VARIABLE=VALUE ...`.
fn run(program: &Path, environments: &[&str], last_line: &str) {
    for environment in environments {
        // Only the variables of the case are used.
        let variables = Case::parse(&format!("{environment} program")).variables;
        let _turn = programs::turn();
        let ended = programs::start(program, &[], &variables).end_by(Instant::now() + LIMIT);
        let said_so = ended.stdout.lines().last() == Some(last_line);
        assert!(ended.succeeded() && said_so, "{}", ended.report());
    }
}

#[test]
fn all_opcodes_and_errors() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if let Some(program) =
        compile(scratch.path(), &["opcodes_and_errors.c", "endpoint.c"], &["-libverbs"])
    {
        let environments =
            ["", "RDMALAB_TEST_DEVICE=soft1", "RDMALAB_LANE=off", "RDMALAB_PERSONALITY=ethernet"];
        run(&program, &environments, "all passed");
        // All memory is paged on demand, so that the first access to each page is a fault.
        let paged = [
            "RDMALAB_TEST_ON_DEMAND=1",
            "RDMALAB_TEST_ON_DEMAND=1 RDMALAB_PROFILE=connectx4",
            "RDMALAB_TEST_ON_DEMAND=1 RDMALAB_PROFILE=connectx6",
        ];
        run(&program, &paged, "all passed");
    }
}

#[test]
fn memory_is_paged_on_demand() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sources = ["on_demand_paging.c", "endpoint.c"];
    if let Some(program) = compile(scratch.path(), &sources, &["-libverbs"]) {
        let environments = ["", "RDMALAB_PROFILE=connectx4", "RDMALAB_PROFILE=connectx6"];
        run(&program, &environments, "all passed");
    }
}

#[test]
fn pages_follow_the_memory_map() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sources = ["memory_changes.c", "endpoint.c"];
    if let Some(program) = compile(scratch.path(), &sources, &["-libverbs"]) {
        // By the lane a peer copies through the kernel, which no call of this process waits for.
        let environments = [
            "RDMALAB_LANE=off",
            "RDMALAB_PROFILE=connectx4",
            "RDMALAB_PROFILE=connectx6",
            "RDMALAB_PROFILE=connectx6 RDMALAB_ODP_WATCH=scan",
        ];
        run(&program, &environments, "all passed");
    }
}

#[test]
fn thousands_of_queue_pairs_share_pages() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sources = ["many_qps.c", "endpoint.c"];
    if let Some(program) = compile(scratch.path(), &sources, &["-libverbs", "-lpthread"]) {
        let environments = [
            "",
            "RDMALAB_TEST_ON_DEMAND=1",
            // Each queue pair has a page status of its own here, and repeats until it knows.
            "RDMALAB_TEST_ON_DEMAND=1 RDMALAB_TEST_QPS=256 RDMALAB_PROFILE=connectx6",
        ];
        run(&program, &environments, "all passed");
    }
}

#[test]
fn every_roce_gid_has_a_network_interface() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if let Some(program) = compile(scratch.path(), &["gid_table.c", "endpoint.c"], &["-libverbs"]) {
        let environments = ["", "RDMALAB_PERSONALITY=ethernet", "RDMALAB_TEST_DEVICE=soft1"];
        run(&program, &environments, "all passed");
    }
}

#[test]
fn a_receiver_that_exits_has_acknowledged() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if let Some(program) =
        compile(scratch.path(), &["exit_after_receive.c", "endpoint.c"], &["-libverbs"])
    {
        run(&program, &["", "RDMALAB_LANE=off"], "all passed");
    }
}

#[test]
fn a_device_may_be_closed_before_its_objects() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if let Some(program) =
        compile(scratch.path(), &["close_device_first.c", "endpoint.c"], &["-libverbs"])
    {
        // Freed memory is overwritten, so that a use after free crashes.
        run(&program, &["MALLOC_PERTURB_=165"], "all passed");
    }
}

#[test]
fn objects_that_are_gone_or_overwritten_are_refused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sources = ["stale_objects.c", "endpoint.c"];
    if let Some(program) = compile(scratch.path(), &sources, &["-libverbs"]) {
        // Freed memory is overwritten, so that a use after free is found.
        run(&program, &["MALLOC_PERTURB_=165", "MALLOC_CHECK_=3"], "all passed");
    }
}

#[test]
fn a_waiting_thread_may_be_cancelled() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if let Some(program) = compile(
        scratch.path(),
        &["cancel_waiting_thread.c", "endpoint.c"],
        &["-libverbs", "-lpthread"],
    ) {
        run(&program, &[""], "all passed");
    }
}

#[test]
fn polls_with_a_lock_held_stop_yielding() {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() == 1) {
        return programs::skipped("locked_polls", "on one processor it yields more often");
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    // The library must find the program's `sched_yield`.
    let options = ["-libverbs", "-lpthread", "-rdynamic"];
    if let Some(program) = compile(scratch.path(), &["locked_polls.c"], &options) {
        run(&program, &[""], "all passed");
    }
}

#[test]
fn requests_reach_only_the_listener_of_their_address() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if let Some(program) =
        compile(scratch.path(), &["listen_backlog.c", "endpoint.c"], &["-lrdmacm", "-libverbs"])
    {
        run(&program, &["", "RDMALAB_PERSONALITY=ethernet"], "all passed");
    }
}

#[test]
fn a_process_disconnects_at_exit() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sources = ["disconnect_at_exit.c", "endpoint.c"];
    if let Some(program) = compile(scratch.path(), &sources, &["-lrdmacm", "-libverbs"]) {
        run(&program, &["", "RDMALAB_LANE=off"], "all passed");
    }
}

#[test]
fn events_come_in_the_order_of_their_messages() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sources = ["event_order.c", "endpoint.c"];
    if let Some(program) = compile(scratch.path(), &sources, &["-lrdmacm", "-libverbs"]) {
        run(&program, &["", "RDMALAB_PERSONALITY=ethernet"], "all passed");
    }
}

#[test]
fn a_taken_port_has_the_errors_of_the_kernel() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sources = ["taken_port.c", "endpoint.c"];
    if let Some(program) = compile(scratch.path(), &sources, &["-lrdmacm", "-libverbs"]) {
        run(&program, &["", "RDMALAB_PERSONALITY=ethernet"], "all passed");
    }
}

#[test]
fn threads_share_an_rsocket() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let libraries = ["-lrdmacm", "-libverbs", "-lpthread"];
    if let Some(program) = compile(scratch.path(), &["rsocket_threads.c", "endpoint.c"], &libraries)
    {
        run(&program, &["", "RDMALAB_LANE=off"], "all passed");
    }
}

#[test]
fn every_symbol_has_the_version_that_programs_request() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if let Some(program) = compile(scratch.path(), &["symbol_versions.c"], &["-ldl"]) {
        run(&program, &["", "RDMALAB_PROFILE=connectx4"], "soft1");
    }
}
