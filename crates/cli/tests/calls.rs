//! Wrong calls, and calls that measure nothing: exit codes and the explaining lines.

use assert_cmd::Command;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rdmalab_testing::Process;

fn rdmalab(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("rdmalab").expect("the binary is built for its tests");
    command.args(arguments);
    command
}

/// Runs, and returns exit code, standard output and standard error.
fn output(mut command: Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A record of a version that this program can read.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../record/tests/version-5");

#[test]
fn a_wrong_call_is_one_line_that_names_the_option_the_limit_and_what_to_do() {
    for (arguments, expected) in [
        (&["--device", "foo0"][..], &["--device foo0", "soft0, soft1", "rdmalab devices"][..]),
        (&["run", "ping", "--device", "foo0"], &["--device foo0", "soft0, soft1"]),
        (
            &["run", "ping", "--size", "64K", "--transport", "ud", "--no-record"],
            &["--size 65536", "4096", "choose"],
        ),
        (
            &["run", "oneway", "--size", "7", "--op", "send", "--no-record"],
            &["--size 7", "8 bytes"],
        ),
        (&["run", "ping", "--gid-index", "200", "--no-record"], &["--gid-index 200", "GIDs"]),
        (&["run", "ping", "--size", "4KB"], &["--size", "4KB"]),
        (&["run", "ping", "--size", "8,,9"], &["--size"]),
        (&["run", "ping", "--transport", "xrc"], &["--transport", "rc, uc, ud"]),
        (&["run", "ping", "--stamps", "recv"], &["--stamps", "oneway"]),
        (&["run", "ping", "--size", "1..5000+1"], &["5000", "4096"]),
        (&["run", "ping", "--op", "read", "--transport", "uc,ud"], &["--op read", "RC"]),
        (&["run", "ping", "--cores", "0,9999"], &["--cores 0,9999", "core 9999"]),
        (&["run", "ping", "--cores", "0"], &["--cores 0", "two numbers"]),
        (
            &["run", "ping", "--out", "/proc/no", "--messages", "1"],
            &["--out /proc/no", "--no-record"],
        ),
        (&["report", "/no/such/record"], &["/no/such/record"]),
        (&["run", "ping", "localhost:99999"], &["localhost:99999", "1 to 65535"]),
        (&["run", "ping", "localhost:0"], &["localhost:0", "1 to 65535"]),
        (&["run", "ping", "unknown.invalid:http"], &["\"http\"", "1 to 65535"]),
        (
            &["report", RECORD, "--html", "/no/such/dir/x.html"],
            &["--html /no/such/dir/x.html", "there is no directory /no/such/dir", "make it"],
        ),
        (&["report", RECORD, "--html", "/"], &["--html /: it is a directory", "name a file"]),
        (&["report", RECORD, "--svg", "/proc/no/such"], &["--svg /proc/no/such", "another place"]),
        (
            &["compare", RECORD, RECORD, "--html", "/no/such/dir/x.html"],
            &["--html /no/such/dir/x.html", "there is no directory /no/such/dir", "make it"],
        ),
        (&["serve", "--bind", "192.0.2.1"], &["192.0.2.1"]),
        (&["serve", "--bind", "localhost:http"], &["http", "port"]),
        (&["ib_send_lat", "-R"], &["-R", "TCP"]),
        (&["ib_send_lat", "-g", "2", "localhost"], &["-g", "--to group"]),
        (&["raw_ethernet_bw", "-d", "x"], &["rdmalab exec -- raw_ethernet_bw"]),
        (&["ib_send_lat", "-c", "XRC", "localhost"], &["--transport", "rc, uc, ud"]),
        (&["bench", "self", "--only", "nothing"], &["--only nothing", "RC SEND"]),
        (&["bench", "self", "--cores", "0,9999"], &["--cores 0,9999", "core 9999"]),
        (&["bench", "self", "--cores", "0"], &["--cores", "two"]),
        (&["bench", "self", "--device", "foo0"], &["--device foo0", "soft0"]),
    ] {
        let (code, stdout, stderr) = output(rdmalab(arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert_eq!(stdout, "", "{arguments:?}");
        for part in expected {
            assert!(stderr.contains(part), "{arguments:?}: no {part:?} in {stderr}");
        }
    }
}

#[test]
fn what_the_options_refuse_is_exit_code_2_too() {
    for (arguments, expected) in [
        (&["run"][..], "EXPERIMENT"),
        (&["run", "pong"], "'ping'"),
        (&["run", "ping", "--sise", "8"], "'--size'"),
        (&["run", "ping", "--format", "xml"], "table, json, csv, markdown, perftest"),
        (&["run", "ping", "--repeat", "0"], "--repeat"),
        (&["run", "ping", "--out", "x", "--no-record"], "--no-record"),
        (&["run", "ping", "--size", ""], "--size"),
        (&["ib_send_lat", "-p", "0"], "-p"),
        (&["ib_send_lat", "-q", "2"], "-q"),
        (&["devises"], "'devices'"),
        (&["no-such-command"], "no-such-command"),
        (&["exec"], "PROGRAM"),
        (&["exec", "--personality", "token-ring", "ls"], "infiniband, ethernet"),
        (&["bench"], "self"),
        (&["serve", "--sessions", "0"], "--sessions"),
        (&["study", "--plan"], "<KEY>"),
        (&["study", "--quick"], "<KEY>"),
    ] {
        let (code, _, stderr) = output(rdmalab(arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}

/// Two parts of `exec` need the interface. Its absence is reported once, and the program starts.
#[test]
fn an_interface_that_is_not_there_is_told_to_a_program_once() {
    let (code, stdout, stderr) =
        output(rdmalab(&["exec", "--interface", "nope0", "--", "/bin/echo", "started"]));
    assert_eq!((code, stdout.as_str()), (Some(0), "started\n"), "{stderr}");
    let lines = stderr.lines().filter(|line| line.contains("there is no such network interface"));
    assert_eq!(lines.count(), 1, "{stderr}");
}

/// Impossible points are reported once: with the results, or on standard error for some formats.
#[test]
fn what_is_left_out_is_said_once() {
    let words = "ping --device soft0 --transport rc,uc --op read --messages 10 --no-record";
    for (form, in_stdout) in
        [("table", true), ("markdown", true), ("json", true), ("csv", false), ("perftest", false)]
    {
        let mut command = rdmalab(&["run"]);
        command.args(words.split(' ')).args(["--format", form]);
        let (code, stdout, stderr) = output(command);
        assert_eq!(code, Some(0), "{form}: {stderr}");
        assert_eq!(stdout.contains("READ exists on RC only"), in_stdout, "{form}: {stdout}");
        let said = stderr.lines().filter(|line| line.contains("READ exists on RC only"));
        assert_eq!(said.count(), usize::from(!in_stdout), "{form}: {stderr}");
    }
}

#[test]
fn help_and_version_are_fine() {
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["exec", "--help"],
        &["help", "bench"],
        &["run", "ping", "--help"],
    ] {
        let (code, stdout, _) = output(rdmalab(arguments));
        assert_eq!(code, Some(0), "{arguments:?}");
        assert!(stdout.contains("rdmalab"), "{arguments:?}");
        assert!(!stdout.contains('\u{1b}'), "{arguments:?}: colours in a pipe");
        assert!(!stdout.contains("worker"), "{arguments:?}: what is hidden is shown");
    }
}

#[test]
fn devices_lists_the_soft_ones_and_says_what_is_missing() {
    let (code, stdout, stderr) = output(rdmalab(&["devices"]));
    assert_eq!(code, Some(0), "{stderr}");
    for part in ["soft0  (soft)", "soft1  (soft)", "16 384 QPs", "port 1: active", "GID 0: fe80"] {
        assert!(stdout.contains(part), "no {part:?} in {stdout}");
    }
    let (code, stdout, _) = output(rdmalab(&["devices", "--json"]));
    let value: serde_json::Value = serde_json::from_str(&stdout).expect("it is JSON");
    assert_eq!((code, &value["devices"][0]["name"]), (Some(0), &"soft0".into()));
    assert_eq!(output(rdmalab(&["devices", "--format", "json"])).1, stdout);
}

#[test]
fn exec_returns_the_status_of_the_program() {
    let home = tempfile::tempdir().unwrap();
    // Any file can stand in for the library here, because the program does not use it.
    std::fs::write(home.path().join("libibverbs.so"), "").unwrap();
    let exec = |arguments: &[&str]| {
        let mut command = rdmalab(&["exec", "--personality", "ethernet", "--"]);
        command.args(arguments).env("RDMALAB_LIBDIR", home.path());
        command.env("XDG_RUNTIME_DIR", home.path()).env("LD_LIBRARY_PATH", "/somewhere");
        output(command)
    };
    assert_eq!(exec(&["sh", "-c", "exit 7"]).0, Some(7));
    assert_eq!(exec(&["no-such-program"]).0, Some(127));
    assert_eq!(exec(&["--memry", "shared", "--", "true"]).0, Some(2));
    assert_eq!(exec(&["/no/such/program"]).0, Some(127));
    assert_eq!(exec(&["/"]).0, Some(126));
    let show = "echo $LD_LIBRARY_PATH $RDMALAB_PERSONALITY $PPID; readlink \
                ${LD_LIBRARY_PATH%%:*}/libibverbs.so.1";
    let (code, stdout, stderr) = exec(&["sh", "-c", show]);
    assert_eq!(code, Some(0), "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines[0].contains(":/somewhere ethernet "), "{stdout}");
    // `exec` leaves no process between us and the program.
    assert!(lines[0].ends_with(&format!(" {}", std::process::id())), "{stdout}");
    let library = home.path().canonicalize().unwrap().join("libibverbs.so");
    assert_eq!(lines[1], library.to_str().unwrap());
    let (code, stdout, _) = output(clean(&[], home.path()));
    assert!(code == Some(0) && stdout.contains("removed"), "{stdout}");
    assert!(!home.path().join("rdmalab").exists());
}

/// `rdmalab clean` for the directories of `exec` in `home` alone.
fn clean(options: &[&str], home: &Path) -> Command {
    let mut command = rdmalab(&["clean"]);
    command.args(options);
    for variable in ["XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "TMPDIR", "HOME"] {
        command.env(variable, home);
    }
    command
}

#[test]
fn clean_keeps_the_libraries_of_running_programs() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("rdmalab");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).unwrap();
    // A program stands in for a library: its file is mapped too.
    let program = directory.join("program");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let running = Process::start(std::process::Command::new(&program).arg("600"));
    let (code, stdout, stderr) = output(clean(&[], home.path()));
    let is_there = program.is_file();
    let (forced, removed, _) = output(clean(&["--force"], home.path()));
    assert!(code == Some(1) && is_there, "{stdout}{stderr}");
    let named = format!("{} {} 600", running.id(), program.display());
    assert!(stderr.contains(&named) && stderr.contains("--force"), "{stderr}");
    assert!(forced == Some(0) && removed.contains("removed") && !directory.exists(), "{removed}");
}

#[test]
fn exec_refuses_with_the_reason() {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("program");
    let exec = || output(rdmalab(&["exec", program.to_str().unwrap()]));
    // A 64-bit ELF header of this machine without program headers, so it counts as static.
    let mut image = std::fs::read(std::env::current_exe().unwrap()).unwrap()[..64].to_vec();
    image[56..58].fill(0);
    std::fs::write(&program, &image).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (code, _, stderr) = exec();
    assert!(code == Some(126) && stderr.contains("statically linked"), "{code:?} {stderr}");
    image[4] = 1;
    std::fs::write(&program, &image).unwrap();
    let (code, _, stderr) = exec();
    assert!(code == Some(126) && stderr.contains("32-bit"), "{code:?} {stderr}");
    let mut command = rdmalab(&["exec", "sh"]);
    command.env("RDMALAB_LIBDIR", home.path());
    let (code, _, stderr) = output(command);
    assert!(code == Some(125) && stderr.contains("RDMALAB_LIBDIR"), "{code:?} {stderr}");
}

#[test]
fn manual_pages_and_completions_come_from_the_same_definitions() {
    let (code, stdout, _) = output(rdmalab(&["man", "exec"]));
    assert!(code == Some(0) && stdout.contains("rdmalab\\-exec"), "{stdout}");
    let (code, stdout, _) = output(rdmalab(&["man", "environment"]));
    assert!(code == Some(0) && stdout.contains("RDMALAB_LIBDIR"), "{stdout}");
    let (code, _, stderr) = output(rdmalab(&["man", "nothing"]));
    assert!(code == Some(2) && stderr.contains("rdmalab-exec"), "{stderr}");
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("man");
    let (code, _, stderr) = output(rdmalab(&["man", "--out", directory.to_str().unwrap()]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(directory.join("rdmalab-environment.7").is_file());
    assert!(!directory.join("rdmalab-worker.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        let (code, stdout, _) = output(rdmalab(&["completions", shell]));
        assert!(code == Some(0) && stdout.contains("devices"), "{shell}: {stdout}");
    }
}

#[test]
fn env_names_a_directory_that_keeps_the_library() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("libibverbs.so"), "a library").unwrap();
    let kept = home.path().join("it's kept");
    let mut command = rdmalab(&["env", "--dir", kept.to_str().unwrap()]);
    command.env("RDMALAB_LIBDIR", home.path());
    let (code, stdout, stderr) = output(command);
    assert_eq!(code, Some(0), "{stderr}");
    let script = format!("{stdout}\ncat \"${{LD_LIBRARY_PATH%%:*}}/libibverbs.so.1\"");
    let shell = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&shell.stdout), "a library", "{stdout}");
    let (code, _, stderr) = output(rdmalab(&["env", "--dir", "/proc/no"]));
    assert!(code == Some(1) && stderr.contains("/proc/no"), "{code:?} {stderr}");
}

#[test]
fn a_reader_that_stops_is_no_failure() {
    let script = "\"$0\" devices | true; echo ${PIPESTATUS[0]}";
    let mut command = std::process::Command::new("bash");
    command.args(["-c", script]).arg(assert_cmd::cargo::cargo_bin("rdmalab"));
    let Ok(output) = command.output() else {
        return rdmalab_testing::skipped("a_reader_that_stops_is_no_failure", "no bash");
    };
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_worker_by_hand_says_who_starts_it() {
    let mut command = rdmalab(&["worker"]);
    command.write_stdin("hello\n");
    let (code, _, stderr) = output(command);
    assert!(code == Some(1) && stderr.contains("started by rdmalab itself"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// A command whose standard output the test sets.
fn plain(arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("rdmalab"));
    command.args(arguments);
    command
}

#[test]
fn a_full_disk_under_standard_output_is_no_success() {
    for words in [&["man"][..], &["devices"], &["run", "ping", "--plan"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = plain(words).stdout(full).output().expect("it starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {stderr}");
        assert!(stderr.contains("could not write all output: "), "{words:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{words:?}: {stderr}");
    }
}

#[test]
fn who_stops_reading_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = plain(&["devices"]).stdout(writer).output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
}
