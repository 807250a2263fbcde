//! Programs whose large buffers are memory that peers can map (`rdmalab exec --memory shared`).

use std::collections::HashSet;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rdmalab_testkit::compiled::compile;
use rdmalab_testkit::programs::{self, Ended, Process, WaitLimit};

use crate::case::{Case, LIMIT, check_pairs};

/// What the library prints with `RDMALAB_DEBUG=1` when it maps a buffer of its peer.
const IS_MAPPED: &str = "memory of a peer is mapped here";
/// What the preload library prints when it leaves memory private.
const STAYS_PRIVATE: &str = "stays private";
/// What it prints when the program ends.
const COUNTED: &str = "requests for large buffers: ";
const NONE_PRIVATE: &str = " got shared memory, 0 private\n";

/// Operations on the peer's buffers, which perftest aligns to pages.
const ONE_SIDED: [&str; 7] = [
    "ib_write_lat -n 500",
    "ib_write_bw -n 500",
    "ib_write_bw -n 100 -s 1048576",
    "ib_write_bw -n 500 -q 4",
    "ib_read_lat -n 500",
    "ib_read_bw -n 100 -s 1048576",
    "ib_atomic_lat -n 500",
];

/// Runs a program under `exec --memory shared`.
fn start(program: &str, arguments: &[&str]) -> Ended {
    start_with(program, arguments, &[])
}

/// As [`start`], with these variables.
fn start_with(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut all = vec!["exec", "--memory", "shared", "--", program];
    all.extend(arguments);
    let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
    let directory = env!("CARGO_TARGET_TMPDIR").to_owned();
    let mut variables: Vec<(String, String)> =
        variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    variables.push(("XDG_RUNTIME_DIR".to_owned(), directory));
    let _turn = programs::turn();
    programs::start(programs::rdmalab(), &all, &variables).end_by(Instant::now() + LIMIT)
}

#[test]
fn memory_means_what_it_means_without_us() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(program) = compile(scratch.path(), &["memory_functions.c"], &["-lpthread"]) else {
        return;
    };
    let alone = Process::start(&mut Command::new(&program)).end_by(Instant::now() + LIMIT);
    assert!(alone.succeeded() && alone.stdout.ends_with("all passed\n"), "{}", alone.report());
    let program = program.display().to_string();
    let shared = start(&program, &[]);
    assert!(shared.succeeded() && shared.stdout == alone.stdout, "{}", shared.report());
    // Limits leave less shared memory, or none. The rest is private.
    for (limit, is_short) in [("-v 4000000", false), ("-f 100000", false), ("-f 1000", true)] {
        let line = format!("ulimit {limit} && exec {program}");
        let ended = start("sh", &["-c", &line]);
        assert!(ended.succeeded() && ended.stdout == alone.stdout, "{}", ended.report());
        assert!(ended.stderr.contains(STAYS_PRIVATE) || !is_short, "{}", ended.report());
        assert!(ended.stderr.contains(COUNTED), "{}", ended.report());
    }
}

/// A memory cgroup that is removed at the end. What it held has ended by then.
struct Cgroup(PathBuf);

impl Cgroup {
    /// One below the own cgroup of version 1, or at the top of version 2.
    ///
    /// # Errors
    /// Why it cannot be made.
    fn with_limit(mib: u64) -> Result<Cgroup, String> {
        let list = std::fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let first = list.lines().find_map(|line| line.split_once(":memory:"));
        let (parent, file) = match first {
            Some((_, path)) => (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"),
            None => ("/sys/fs/cgroup".to_owned(), "memory.max"),
        };
        let path = Path::new(&parent).join(format!("rdmalab-test-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let group = Cgroup(path);
        // The kernel makes the files. A file that does not exist must not be made.
        let mut options = std::fs::OpenOptions::new();
        let written = options.write(true).open(group.0.join(file)).and_then(|mut file| {
            std::io::Write::write_all(&mut file, (mib << 20).to_string().as_bytes())
        });
        written.map(|()| group).map_err(|e| format!("{file}: {e}"))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A program that asks for 2 GiB at once, which it does not touch.
#[test]
fn a_limit_is_told_once_also_that_of_a_cgroup() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(program) = compile(scratch.path(), &["memory_functions.c"], &["-lpthread"]) else {
        return;
    };
    let program = program.display().to_string();
    let run = |before: &str, arguments: &str, debug: &str| {
        let line = format!("{before} exec {program} {arguments}");
        let ended = start_with("sh", &["-c", &line], &[("RDMALAB_DEBUG", debug)]);
        assert!(ended.succeeded(), "{}", ended.report());
        ended
    };
    let said = |ended: &Ended| ended.stderr.matches(STAYS_PRIVATE).count();
    let ended = run("", "much", "");
    assert_eq!(said(&ended), 0, "{}", ended.report());
    let ended = run("ulimit -f 1000 &&", "much", "");
    assert!(said(&ended) == 1 && !ended.stderr.contains(COUNTED), "{}", ended.report());
    let group = match Cgroup::with_limit(512) {
        Ok(group) => group,
        Err(reason) => return programs::skipped("memory::cgroup", &reason),
    };
    let enter = format!("echo $$ > {}/cgroup.procs &&", group.0.display());
    let ended = run(&enter, "much", "1");
    let is_counted = ended.stderr.contains("0 got shared memory, 1 private");
    assert!(said(&ended) == 1 && is_counted, "{}", ended.report());
    // All else is as it was.
    let ended = run(&enter, "", "");
    assert!(ended.stdout.ends_with("all passed\n"), "{}", ended.report());
}

fn judge(_: &Case, client: &Ended) -> Result<(), String> {
    match client.stderr.contains(IS_MAPPED) {
        true => Ok(()),
        false => Err("no buffer of the peer was mapped".to_owned()),
    }
}

#[test]
fn buffers_of_perftest_are_mapped_by_their_peers() {
    let library = programs::memory_library().display();
    let lines = ONE_SIDED.map(|line| format!("LD_PRELOAD={library} {line}"));
    check_pairs(&[&lines.join("\n")], false, judge);
}

/// The files of shared memory that processes have mapped, each as `DEVICE INODE`, of one process or
/// of all.
fn mapped_files(of: Option<u32>) -> HashSet<String> {
    let name = of.map_or_else(|| "*".to_owned(), |id| id.to_string());
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let is_wanted = |entry: &DirEntry| of.is_none() || *entry.file_name() == *name;
    all.filter(is_wanted)
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("maps")).ok())
        .flat_map(|maps| maps.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.contains("memfd:rdmalab-memory"))
        .filter_map(|line| {
            let mut fields = line.split_whitespace().skip(3);
            Some(format!("{} {}", fields.next()?, fields.next()?))
        })
        .collect()
}

/// The peer of a process that is killed ends with an error, and then nothing has its memory.
#[test]
fn nothing_keeps_the_memory_of_a_process_that_was_killed() {
    let Some(path) = programs::find("ib_write_bw") else {
        return programs::skipped("memory::killed", "no ib_write_bw is installed");
    };
    let _turn = programs::turn();
    let port = programs::free_port();
    let library = programs::memory_library().display().to_string();
    let variables = [("LD_PRELOAD".to_owned(), library)];
    let line = format!("-d soft0 -p {port} -n 100000000");
    let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let mut server = programs::start(&path, &arguments, &variables);
    assert!(server.wait_until_it_listens(port), "{}", server.end_by(Instant::now()).report());
    arguments.push("127.0.0.1".to_owned());
    let mut client = programs::start(&path, &arguments, &variables);
    let mut wait_limit = WaitLimit::of(LIMIT);
    let has_both = |client: &Process| mapped_files(Some(client.id())).len() == 2;
    while !has_both(&client) && !client.has_ended() && wait_limit.is_left() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let files = mapped_files(Some(server.id()));
    assert!(has_both(&client) && !files.is_empty(), "{}", client.end_by(Instant::now()).report());
    // It kills the server.
    let server = server.end_by(Instant::now());
    let client = client.end_by(Instant::now() + LIMIT);
    let report = format!("{}{}", server.report(), client.report());
    assert!(client.status.is_some() && !client.succeeded(), "{report}");
    assert!(mapped_files(None).is_disjoint(&files), "{report}");
}

/// The peer of a process that is killed waits in its own memory, and calls no verb.
#[test]
fn a_peer_that_spins_gives_the_memory_of_a_killed_process_back() {
    let Some(path) = programs::find("ib_write_lat") else {
        return programs::skipped("memory::spins", "no ib_write_lat is installed");
    };
    let _turn = programs::turn();
    let port = programs::free_port();
    let library = programs::memory_library().display().to_string();
    let variables = [("LD_PRELOAD".to_owned(), library)];
    let line = format!("-d soft0 -p {port} -n 5000000");
    let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let mut server = programs::start(&path, &arguments, &variables);
    assert!(server.wait_until_it_listens(port), "{}", server.end_by(Instant::now()).report());
    let own = mapped_files(Some(server.id()));
    arguments.push("127.0.0.1".to_owned());
    let mut client = programs::start(&path, &arguments, &variables);
    let mut wait_limit = WaitLimit::of(LIMIT);
    let now = |of: &Process| mapped_files(Some(of.id()));
    while now(&server).len() < 2 && !client.has_ended() && wait_limit.is_left() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_mapped = now(&server).len() == 2;
    // It kills the client.
    let client = client.end_by(Instant::now());
    assert!(is_mapped, "{}{}", client.report(), server.end_by(Instant::now()).report());
    while now(&server).len() > 1 && !server.has_ended() && wait_limit.is_left() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (left, waits) = (now(&server), !server.has_ended());
    let report = format!("{}{}", client.report(), server.end_by(Instant::now()).report());
    assert!(waits && left.len() == 1 && left.is_superset(&own), "{left:?} {own:?}: {report}");
}

#[test]
fn python_and_java_run_with_shared_memory() {
    let script = "import mmap, multiprocessing as mp, subprocess
def f(x): return len(bytes(x))
a = bytearray(10**7); m = mmap.mmap(-1, 1 << 20)
with mp.get_context('fork').Pool(3) as pool: print(pool.map(f, [10**6] * 4))
print(subprocess.check_output(['echo', 'hello']), m[5], len(a),
      open('/proc/self/maps').read().count('rdmalab-memory') > 0)";
    if programs::find("python3").is_some() {
        let ended = start("python3", &["-c", script]);
        let expected = "[1000000, 1000000, 1000000, 1000000]\nb'hello\\n' 0 10000000 True\n";
        assert!(ended.succeeded() && ended.stdout == expected, "{}", ended.report());
        assert!(ended.stderr.ends_with(NONE_PRIVATE), "{}", ended.report());
    } else {
        programs::skipped("memory::python", "no python3 is installed");
    }
    let Some(java) = programs::find("java") else {
        return programs::skipped("memory::java", "no java is installed");
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/memory/Buffers.java");
    let ended = start(&java.display().to_string(), &[&source.display().to_string()]);
    assert!(ended.succeeded() && ended.stdout == "7 0\n", "{}", ended.report());
}
