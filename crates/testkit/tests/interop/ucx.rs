//! Programs that look for devices without libibverbs, and so run under `rdmalab exec`: UCX, and
//! Open MPI above it. Both are Debian's, unmodified.
//!
//! `UCX_TLS` names the only transports that UCX may use, so a successful run has used our device.
//! `rc_v` and `ud_v` are UCX's names for RC and UD over plain verbs. RC alone (`rc_verbs`) cannot
//! be chosen, on adapters neither: UCX exchanges the addresses of its QPs over UD.

use std::path::Path;
use std::time::{Duration, Instant};

use rdmalab_testkit::compiled::compile_with;
use rdmalab_testkit::programs::{self, Ended, Process, WaitLimit};

use crate::case::{Case, LIMIT};

/// Tests of two layers: of UCP, which chooses among transports, and of UCT, the transport itself.
const PAIRS: &str = "
    UCX_TLS=rc_v ucx_perftest -t tag_lat
    UCX_TLS=rc_v ucx_perftest -t tag_bw
    UCX_TLS=rc_v ucx_perftest -t tag_bw -s 1000000 -n 100
    UCX_TLS=rc_v ucx_perftest -t ucp_put_lat
    UCX_TLS=rc_v ucx_perftest -t ucp_put_bw -s 65536 -n 300
    UCX_TLS=rc_v ucx_perftest -t ucp_get -s 20000
    UCX_TLS=rc_v ucx_perftest -t ucp_fadd
    UCX_TLS=rc_v ucx_perftest -t ucp_cswap
    UCX_TLS=ud_v ucx_perftest -t tag_lat
    UCX_TLS=ud_v ucx_perftest -t tag_bw -s 100000 -n 100
    UCX_TLS=ud_v ucx_perftest -t ucp_put_lat
    UCX_TLS=ud_v ucx_perftest -t ucp_put_bw -s 4000
    ucx_perftest -x rc_verbs -t put_lat
    ucx_perftest -x rc_verbs -t put_bw
    ucx_perftest -x rc_verbs -t am_lat
    ucx_perftest -x rc_verbs -t get -D bcopy -s 64
    ucx_perftest -x rc_verbs -t fadd
    ucx_perftest -x rc_verbs -t cswap
    ucx_perftest -x ud_verbs -t am_lat
    ucx_perftest -x ud_verbs -t am_bw
    RDMALAB_PERSONALITY=ethernet UCX_TLS=rc_v ucx_perftest -t tag_lat
    RDMALAB_PERSONALITY=ethernet UCX_TLS=ud_v ucx_perftest -t tag_lat
    RDMALAB_LANE=off UCX_TLS=rc_v ucx_perftest -t ucp_put_bw
";

/// Iterations, unless the case sets a number.
const ITERATIONS: u64 = 500;

/// The directory for the files of `exec`. It is private: no other `rdmalab clean` removes them.
const RUNTIME: &str = env!("CARGO_TARGET_TMPDIR");

/// A program under `rdmalab exec`.
pub(crate) fn start(
    program: &Path,
    arguments: &[String],
    variables: &[(String, String)],
) -> Process {
    let mut all = vec!["exec".to_owned(), "--".to_owned(), program.display().to_string()];
    all.extend(arguments.iter().cloned());
    let mut variables = variables.to_vec();
    variables.push(("XDG_RUNTIME_DIR".to_owned(), RUNTIME.to_owned()));
    programs::start(programs::rdmalab(), &all, &variables)
}

/// How long an MPI program may take. Its processes spin: beside a dozen compilers it took 94 s.
const MPI_LIMIT: Duration = Duration::from_secs(300);

/// Runs a program alone, until its end.
pub(crate) fn run(program: &Path, arguments: &[String], variables: &[(String, String)]) -> Ended {
    start(program, arguments, variables).end_by(Instant::now() + LIMIT)
}

/// What the library prints with `RDMALAB_DEBUG=1` if it leaves the program's handlers alone.
const BY_SYSTEM_CALLS: &str = "copies are made by system calls";

/// Whether our handler was in front of the handlers of a program that `start` has run.
pub(crate) fn is_in_front(ended: &Ended) -> bool {
    !ended.stderr.contains(BY_SYSTEM_CALLS)
}

/// Whether `start` with these variables preloads the library that keeps our handler in front.
pub(crate) fn are_signals_interposed(variables: &[(String, String)]) -> bool {
    let given = variables.iter().find(|(name, _)| name == "RDMALAB_SIGNALS");
    let here = std::env::var("RDMALAB_SIGNALS").unwrap_or_default();
    given.map_or(&here, |(_, value)| value) != "off"
}

pub(crate) fn installed(name: &str) -> Option<std::path::PathBuf> {
    let path = programs::find(name);
    if path.is_none() {
        programs::skipped(name, "not installed");
    }
    path
}

#[test]
fn every_way_to_look_for_a_file_finds_it() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for options in [&[][..], &["-O2", "-D_FORTIFY_SOURCE=2", "-Wno-unused-result"]] {
        let Some(program) = compile_with("cc", scratch.path(), &["device_files.c"], options) else {
            return;
        };
        for personality in ["infiniband", "ethernet"] {
            let variables = [("RDMALAB_PERSONALITY".to_owned(), personality.to_owned())];
            let _turn = programs::turn();
            let ended = run(&program, &[], &variables);
            assert!(ended.succeeded() && ended.stdout == "all passed\n", "{}", ended.report());
        }
        // With `RDMALAB_PATHS=off` no path is redirected, and the program finds no device files.
        let off = [("RDMALAB_PATHS".to_owned(), "off".to_owned())];
        let ended = run(&program, &[], &off);
        let has_driver = Path::new("/dev/infiniband").exists();
        assert!(has_driver || !ended.succeeded(), "{}", ended.report());
    }
}

#[test]
fn a_library_that_is_opened_by_its_name_for_linking_is_ours() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(program) = compile_with("cc", scratch.path(), &["symbol_versions.c"], &["-ldl"])
    else {
        return;
    };
    for name in ["libibverbs.so", "libibverbs.so.1"] {
        let ended = run(&program, &[name.to_owned()], &[]);
        assert!(ended.succeeded() && ended.stdout == "soft0\nsoft1\n", "{}", ended.report());
    }
}

#[test]
fn ucx_lists_both_devices_with_rc_and_ud() {
    let Some(program) = installed("ucx_info") else { return };
    for personality in ["infiniband", "ethernet"] {
        let variables = [("RDMALAB_PERSONALITY".to_owned(), personality.to_owned())];
        let ended = run(&program, &["-d".to_owned()], &variables);
        assert!(ended.succeeded(), "{}", ended.report());
        let lines: Vec<&str> =
            ended.stdout.lines().map(|line| line.trim_start_matches(['#', ' '])).collect();
        for transport in ["rc_verbs", "ud_verbs"] {
            for device in ["soft0:1", "soft1:1"] {
                let wanted = [format!("Transport: {transport}"), format!("Device: {device}")];
                let has = lines.windows(2).any(|pair| pair == wanted);
                assert!(has, "{transport} of {device}: {}", ended.report());
            }
        }
    }
}

/// Runs a server and its client; an error says what is wrong.
fn pair(program: &Path, case: &Case) -> Result<(), String> {
    let port = programs::free_port();
    let count = case.number("-n", ITERATIONS);
    let mut arguments = vec!["-p".to_owned(), port.to_string()];
    let mut variables = case.variables.clone();
    match case.has("-x") {
        true => arguments.extend(["-d".to_owned(), "soft0:1".to_owned()]),
        false => variables.push(("UCX_NET_DEVICES".to_owned(), "soft0:1".to_owned())),
    }
    if !case.has("-n") {
        arguments.extend(["-n".to_owned(), count.to_string()]);
    }
    arguments.extend(["-w".to_owned(), "10".to_owned()]);
    arguments.extend(case.options.iter().cloned());
    let mut server = start(program, &arguments, &variables);
    // Started only now, because building our libraries may have taken a while.
    let until = Instant::now() + LIMIT;
    if !server.wait_until_it_listens(port) {
        return Err(format!("the server never listened\n{}", server.end_by(until).report()));
    }
    arguments.push("127.0.0.1".to_owned());
    let client = start(program, &arguments, &variables).end_by(until);
    let server = server.end_by(until);
    let both = || format!("\n{}{}", client.report(), server.report());
    if !client.succeeded() || !server.succeeded() {
        return Err(both());
    }
    // The columns: `Final:`, iterations, results.
    let last = client.stdout.lines().rfind(|line| line.starts_with("Final:"));
    let measured = last.and_then(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()?.parse() == Ok(count)).then(|| words.next()?.parse::<f64>().ok()).flatten()
    });
    measured.map(|_| ()).ok_or_else(|| format!("no result of {count} iterations{}", both()))
}

#[test]
fn ucx_perftest_between_two_processes() {
    let Some(program) = installed("ucx_perftest") else { return };
    let only = std::env::var("RDMALAB_INTEROP_ONLY").unwrap_or_default();
    let mut failures = Vec::new();
    for line in PAIRS.lines().map(str::trim).filter(|l| !l.is_empty() && l.contains(&only)) {
        let _turn = programs::turn();
        let began = Instant::now();
        if let Err(wrong) = pair(&program, &Case::parse(line)) {
            failures.push(format!("{line}: {wrong}"));
        }
        println!("{:6.2} s  {line}", began.elapsed().as_secs_f64());
    }
    assert!(failures.is_empty(), "{} failed\n{}", failures.len(), failures.join("\n"));
}

/// The variables with which UCX connects by our connection manager, and has no other transport.
fn by_rdmacm(personality: &str) -> Vec<(String, String)> {
    let line = format!(
        "UCX_SOCKADDR_TLS_PRIORITY=rdmacm UCX_TLS=rc_v RDMALAB_PERSONALITY={personality} program"
    );
    Case::parse(&line).variables
}

/// `ucx_info` connects an endpoint to a listener of its own, and shows which way it took.
#[test]
fn ucx_connects_an_endpoint_by_rdmacm() {
    let Some(program) = installed("ucx_info") else { return };
    let arguments = ["-u", "te", "-e", "-A", "127.0.0.1"].map(str::to_owned);
    for personality in ["infiniband", "ethernet"] {
        let _turn = programs::turn();
        let ended = run(&program, &arguments, &by_rdmacm(personality));
        let says = |what| ended.stdout.contains(what);
        let used = says("cm rdmacm") && says("rc_verbs/soft0:1");
        assert!(ended.succeeded() && used, "{}", ended.report());
    }
}

/// The example of UCX for clients and servers, of Debian's `libucx-dev`. Its server never ends.
const CLIENT_SERVER: &str = "/usr/share/doc/libucx-dev/examples/ucp_client_server.c";

#[test]
fn ucx_connects_two_processes_by_rdmacm() {
    if !Path::new(CLIENT_SERVER).exists() {
        return programs::skipped("ucp_client_server", "libucx-dev is not installed");
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let options = ["-w", "-lucp", "-lucs"];
    let Some(program) = compile_with("cc", scratch.path(), &[CLIENT_SERVER], &options) else {
        return;
    };
    // The server's output is read while it runs.
    let Some(stdbuf) = installed("stdbuf") else { return };
    for (personality, kind) in
        [("infiniband", "tag"), ("infiniband", "stream"), ("ethernet", "tag"), ("ethernet", "am")]
    {
        let _turn = programs::turn();
        let (port, variables) = (programs::free_port(), by_rdmacm(personality));
        let line = format!("-oL {} -p {port} -c {kind}", program.display());
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut server = start(&stdbuf, &words(&line), &variables);
        // This looks at the ports of the connection manager only.
        programs::wait_until_bound(&mut server, port);
        let client = run(&stdbuf, &words(&format!("{line} -a 127.0.0.1")), &variables);
        let mut wait_limit = WaitLimit::of(LIMIT);
        while client.succeeded() && !server.said().contains("SUCCESS") && wait_limit.is_left() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let server = server.end_by(Instant::now());
        let has_data = server.stdout.contains("SUCCESS");
        assert!(client.succeeded() && has_data, "{}{}", client.report(), server.report());
    }
}

/// Runs our MPI program in two processes, on these UCX transports only.
fn mpi(program: &Path, launcher: &Path, line: &str) {
    let variables = Case::parse(&format!("{line} program")).variables;
    // `--timeout` ends all processes; killing the launcher would not.
    let options = "-np 2 --allow-run-as-root --oversubscribe --timeout 280 --mca pml ucx \
                   --mca osc ucx --mca btl ^openib";
    let mut arguments: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
    arguments.push(program.display().to_string());
    let _turn = programs::turn();
    let began = Instant::now();
    let ended = start(launcher, &arguments, &variables).end_by(Instant::now() + MPI_LIMIT);
    println!("{:6.2} s  {line}", began.elapsed().as_secs_f64());
    let said_so = ended.stdout.lines().last() == Some("all passed");
    let is_in_front = is_in_front(&ended) || !are_signals_interposed(&variables);
    assert!(ended.succeeded() && said_so && is_in_front, "{line}\n{}", ended.report());
}

#[test]
fn open_mpi_with_threads_over_ucx() {
    let Some(launcher) = installed("mpirun") else { return };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(program) = compile_with("mpicc", scratch.path(), &["mpi_threads.c"], &["-lpthread"])
    else {
        return;
    };
    mpi(&program, &launcher, "UCX_TLS=self,rc_v UCX_NET_DEVICES=soft0:1");
}

#[test]
fn open_mpi_over_ucx() {
    let Some(launcher) = installed("mpirun") else { return };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(program) = compile_with("mpicc", scratch.path(), &["mpi.c"], &[]) else { return };
    for line in [
        "UCX_TLS=self,rc_v UCX_NET_DEVICES=soft0:1",
        "UCX_TLS=self,ud_v UCX_NET_DEVICES=soft0:1",
        // Messages use both devices at once.
        "UCX_TLS=self,rc_v",
        "RDMALAB_PERSONALITY=ethernet UCX_TLS=self,rc_v UCX_NET_DEVICES=soft1:1",
        "RDMALAB_LANE=off UCX_TLS=self,rc_v UCX_NET_DEVICES=soft0:1",
    ] {
        mpi(&program, &launcher, line);
    }
}

/// The variables under which UCX registers memory on demand, and processes leave their counters in
/// a directory.
pub(crate) fn on_demand(profile: &str, counters: &Path) -> String {
    format!(
        "UCX_IB_REG_METHODS=odp UCX_NET_DEVICES=soft0:1 RDMALAB_PROFILE={profile} \
         RDMALAB_COUNTERS={}",
        counters.display()
    )
}

/// Checks what so many processes counted whose memory was registered on demand: under the profile
/// of an adapter, and only there, pages were missing.
pub(crate) fn check_faults(profile: &str, counters: &Path, processes: usize) {
    let files = std::fs::read_dir(counters).expect("a directory").flatten();
    let texts: Vec<String> =
        files.map(|file| std::fs::read_to_string(file.path()).expect("a text")).collect();
    assert!(texts.len() >= processes, "each process leaves its counters: {texts:?}");
    let of = |name: &str| -> u64 {
        let words = texts.iter().flat_map(|text| text.lines()).filter_map(|l| l.split_once(' '));
        words.filter(|(known, _)| *known == name).filter_map(|(_, n)| n.parse::<u64>().ok()).sum()
    };
    let names = ["queue_pairs", "messages", "page_faults", "rnr_naks_sent", "time_outs"];
    let all = names.map(|name| (name, of(name)));
    println!("{profile}: {all:?}");
    let has_faults = profile != "ideal";
    assert!(of("messages") > 0 && (of("page_faults") > 0) == has_faults, "{profile}: {all:?}");
    assert_eq!(of("failed_requests"), 0, "{profile}: {all:?}");
}

/// Windows with few operations, and threads with long messages in memory that is mapped for each.
#[test]
fn open_mpi_on_demand_under_profiles() {
    let Some(launcher) = installed("mpirun") else { return };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let compiled = |source: &str| compile_with("mpicc", scratch.path(), &[source], &["-lpthread"]);
    let (Some(windows), Some(threads)) = (compiled("rma_windows.c"), compiled("mpi_threads.c"))
    else {
        return;
    };
    for (program, profile) in [
        (&windows, "ideal"),
        (&windows, "connectx4"),
        (&windows, "connectx6"),
        (&threads, "connectx4"),
    ] {
        let counters = tempfile::tempdir().expect("a directory");
        let variables = on_demand(profile, counters.path());
        // Long messages are not copied into buffers of UCX.
        mpi(program, &launcher, &format!("UCX_TLS=self,rc_v UCX_RNDV_THRESH=32k {variables}"));
        check_faults(profile, counters.path(), 2);
    }
}

/// Whether `exec` provides our `librdmacm.so.1`.
fn has_connection_manager() -> bool {
    let shell = Path::new("/bin/sh");
    let script = "test -e \"${LD_LIBRARY_PATH%%:*}/librdmacm.so.1\"";
    run(shell, &["-c".to_owned(), script.to_owned()], &[]).succeeded()
}

#[test]
fn libfabric_over_verbs() {
    let Some(program) = installed("fi_pingpong") else { return };
    if !has_connection_manager() {
        programs::skipped("fi_pingpong", "`rdmalab exec` brings no librdmacm.so.1");
        return;
    }
    // Of rdm the provider makes reliable datagrams from connections; it asks for 262 144 CQEs.
    for (provider, kind, longest) in
        [("verbs", "msg", "1m "), ("verbs", "dgram", "4k "), ("verbs;ofi_rxm", "rdm", "1m ")]
    {
        pingpong(&program, provider, kind, longest);
    }
}

/// Runs both ends of libfabric's ping-pong over endpoints of one kind, up to a longest size.
fn pingpong(program: &Path, provider: &str, kind: &str, longest: &str) {
    let port = programs::free_port();
    let line = format!("-p {provider} -e {kind} -I 100 -c -B {port}");
    let mut arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let _turn = programs::turn();
    let mut server = start(program, &arguments, &[]);
    let until = Instant::now() + LIMIT;
    assert!(server.wait_until_it_listens(port), "{}", server.end_by(Instant::now()).report());
    arguments.truncate(arguments.len() - 2);
    arguments.extend(["-P".to_owned(), port.to_string(), "127.0.0.1".to_owned()]);
    let client = start(program, &arguments, &[]).end_by(until);
    let server = server.end_by(until);
    let has_result = client.stdout.lines().any(|line| line.starts_with(longest));
    let ended_well = client.succeeded() && server.succeeded();
    assert!(ended_well && has_result, "{}{}", client.report(), server.report());
}
