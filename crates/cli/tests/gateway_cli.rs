//! `rdmalab gateway check`, `convert`, `compare`, `signal` and `pipe`.

mod common;

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use common::rdmalab;
use tempfile::TempDir;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateway").join(name)
}

fn write(directory: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// How a command has ended.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// `rdmalab gateway` in a directory, with a file as its input.
fn gateway(directory: &TempDir, arguments: &[&str], input: Option<&Path>) -> Ended {
    let mut command = rdmalab(&["gateway"]);
    command.args(arguments).current_dir(directory.path());
    if let Some(path) = input {
        command.stdin(Stdio::from(File::open(path).unwrap()));
    }
    let output = command.output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
    Ended { code: output.status.code(), stdout, stderr }
}

#[test]
fn the_examples_are_right() {
    let directory = TempDir::new().unwrap();
    let nodes = ["shmem", "socket", "zeromq", "nanomsg"];
    let files =
        nodes.iter().flat_map(|node| ["source", "target"].map(|end| format!("{node}-{end}")));
    for name in files {
        let file = example(&format!("{name}.conf"));
        let ended = gateway(&directory, &["check", file.to_str().unwrap()], None);
        assert_eq!(ended.code, Some(0), "{name}: {}", ended.stderr);
        assert!(ended.stdout.contains(" 1 path"), "{}", ended.stdout);
        // One line for all keys that have no effect.
        assert_eq!(ended.stderr.matches("no effect here").count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains("http (line 1;"), "{}", ended.stderr);
    }
}

/// A configuration as they were written in 2018: two keys have other names since then.
const STALE: &str = "# A benchmark.
nodes = {
  source = {
    type = \"shmem\", polling = true, // spins
    in = { name = \"/a\" }, out = { name = \"/b\" }
  }
  ib = {
    type = \"infiniband\", rdma_port_space = \"RDMA_PS_UDP\",
    in = { address = \"10.0.0.1:1337\" },
    out = { address = \"10.0.0.2:1337\", periodic_signalling = 64 }
  }
}
paths = ( { in = \"source\", out = \"ib\" } )
";

#[test]
fn stale_keys_are_told_and_replaced() {
    let directory = TempDir::new().unwrap();
    let file = write(&directory, "old.conf", STALE);
    let ended = gateway(&directory, &["check", "old.conf"], None);
    assert_eq!(ended.code, Some(2));
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(
        lines,
        [
            "old.conf:4:21: unknown key \"polling\"; write mode = \"polling\"",
            "old.conf:8:26: unknown key \"rdma_port_space\"; write rdma_transport_mode = \"UD\"",
            "old.conf:10:40: unknown key \"periodic_signalling\"; write periodic_signaling = 64",
            "rdmalab: old.conf has 3 errors; `check --fix` replaces the stale keys",
        ]
    );
    let ended = gateway(&directory, &["check", "--fix", "old.conf"], None);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let right = STALE
        .replace("polling = true", "mode = \"polling\"")
        .replace("rdma_port_space = \"RDMA_PS_UDP\"", "rdma_transport_mode = \"UD\"")
        .replace("periodic_signalling = 64", "periodic_signaling = 64");
    assert_eq!(ended.stdout, right);
    std::fs::write(&file, ended.stdout).unwrap();
    let ended = gateway(&directory, &["check", "old.conf"], None);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn wrong_configurations_are_refused_with_their_places() {
    let directory = TempDir::new().unwrap();
    for (text, said) in [
        ("nodes = {", "a.conf:1:10: the file ends here, without ',' or '}'"),
        (
            "nodes = { a1 = { type = \"mqtt\", uri = \"x\" } }\npaths = ()",
            "a.conf:1:25: type \"mqtt\" is not built; ",
        ),
        (
            "nodes = { a1 = { type = \"signal\", rate = 100, limt = 3 } }\npaths = ()",
            "a.conf:1:47: unknown key \"limt\"; did you mean limit?",
        ),
        (
            "nodes = { a1 = { type = \"file\", uri = \"x\", format = { type = \"csv\", \
             seperator = \";\" } } }\npaths = ()",
            "a.conf:1:69: unknown key \"seperator\"; did you mean separator?",
        ),
        (
            "nodes = { a1 = \"signal\" }\npaths = ({ in = \"a1\", out = \"b1\" })",
            "a.conf:2:29: there is no node \"b1\"; the nodes are a1",
        ),
    ] {
        write(&directory, "a.conf", text);
        for command in ["check", "run"] {
            let ended = gateway(&directory, &[command, "a.conf"], None);
            assert_eq!(ended.code, Some(2), "{text}: {}", ended.stderr);
            let first = ended.stderr.lines().next().unwrap_or_default();
            assert!(first.starts_with(said), "{command} {text}: {first}");
        }
    }
}

#[test]
fn the_schema_has_the_keys() {
    let directory = TempDir::new().unwrap();
    let ended = gateway(&directory, &["check", "--schema"], None);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let schema: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(schema["unevaluatedProperties"], false);
    let variants = &schema["properties"]["nodes"]["additionalProperties"]["anyOf"][1]["oneOf"];
    let of = |name: &str| {
        let all = variants.as_array().unwrap();
        all.iter().find(|v| v["properties"]["type"]["const"] == name).cloned().unwrap()
    };
    assert_eq!(of("signal")["properties"]["rate"]["default"], 10.0);
    assert_eq!(of("shmem")["properties"]["queuelen"]["default"], 512);
}

const HUMAN: &str = "1.000000000(1)\t1.5\t2\n2.000000000(2)\t3\t4\n";

#[test]
fn formats_are_converted_into_each_other() {
    let directory = TempDir::new().unwrap();
    let human = write(&directory, "a.human", HUMAN);
    let convert = |input: &Path, from: &str, to: &str| {
        let ended =
            gateway(&directory, &["convert", "-t", "2f", "-i", from, "-o", to], Some(input));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        ended.stdout
    };
    let csv = convert(&human, "villas.human", "{\"type\": \"csv\", \"real_precision\": 1}");
    assert_eq!(
        csv,
        "# secs,nsecs,offset,sequence,signal0,signal1\n1,000000000,nan,1,1.5,2.0\n\
         2,000000000,nan,2,3.0,4.0\n"
    );
    let csv = write(&directory, "a.csv", &csv);
    let json = convert(&csv, "csv", "{\"type\": \"json\", \"ts_origin\": false}");
    assert_eq!(
        json,
        "{\"sequence\": 1, \"data\": [1.5, 2.0]}\n{\"sequence\": 2, \"data\": [3.0, 4.0]}\n"
    );
}

#[test]
fn what_is_no_sample_is_told() {
    let directory = TempDir::new().unwrap();
    let input = write(&directory, "a", &format!("hello\n{HUMAN}"));
    let ended = gateway(&directory, &["convert", "-t", "2f", "-o", "csv"], Some(&input));
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.starts_with("input: byte 0: "), "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().count(), 3, "{}", ended.stdout);
    let ended = gateway(&directory, &["convert", "-o", "cvs"], None);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("there is no such format"), "{}", ended.stderr);
}

#[test]
fn files_are_compared_with_the_exit_codes_of_villasnode() {
    let directory = TempDir::new().unwrap();
    write(&directory, "a", HUMAN);
    for (other, options, code, said) in [
        (HUMAN.to_owned(), &[] as &[&str], 0, ""),
        (HUMAN[..HUMAN.len() / 2].to_owned(), &[], 255, ""),
        ("1.000000000(1)\t1.5\t2\n".to_owned(), &[], 1, "length unequal\n"),
        (HUMAN.replace("(2)", "(3)"), &[], 2, "sequence no: 2 != 3\n"),
        (HUMAN.replace("(2)", "(3)"), &["-s"], 0, ""),
        (HUMAN.replace("2.000", "2.001"), &[], 3, "ts.origin: 2.000000 != 2.001000\n"),
        (HUMAN.replace("2.000", "2.001"), &["-T"], 0, ""),
        (HUMAN.replace("\t3\t4", "\t3"), &[], 4, "length: 2 != 1\n"),
        (HUMAN.replace("\t4", "\t5"), &[], 5, "data[1].f: 4.000000 != 5.000000\n"),
        (HUMAN.replace("\t4", "\t5"), &["-e", "1"], 0, ""),
        (HUMAN.replace("\t4", "\t5"), &["-v"], 0, ""),
    ] {
        write(&directory, "b", &other);
        let arguments = [&["compare", "-t", "2f"], options, &["a", "b"]].concat();
        let ended = gateway(&directory, &arguments, None);
        assert_eq!(ended.code, Some(code), "{other:?} {options:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, said, "{other:?} {options:?}");
    }
    let ended = gateway(&directory, &["compare", "a", "none"], None);
    assert_eq!(ended.code, Some(255));
    assert!(ended.stderr.contains("none: No such file"), "{}", ended.stderr);
}

#[test]
fn signals_are_computed_as_villasnode_does() {
    let directory = TempDir::new().unwrap();
    let values = |arguments: &[&str]| {
        let ended = gateway(&directory, &[&["signal", "-n"], arguments].concat(), None);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        let lines =
            ended.stdout.lines().map(|l| l.split_once('\t').unwrap_or_default().1.to_owned());
        lines.collect::<Vec<String>>()
    };
    assert_eq!(
        values(&["-l", "3", "-r", "3", "sine"]),
        ["signal0", "0.00000000000000000", "0.86602540483163615", "-0.86602540169004349"]
    );
    assert_eq!(
        values(&["-l", "2", "-r", "10", "-F", "1", "-a", "2", "-o", "0.5", "-v", "2", "counter"]),
        [
            "signal0\tsignal1",
            "0.50000000000000000\t0.50000000000000000",
            "2.50000000000000000\t2.50000000000000000"
        ]
    );
    let json = "{\"type\": \"json\", \"ts_origin\": false}";
    let ended = gateway(&directory, &["signal", "-l", "2", "-r", "1000", "-f", json, "ramp"], None);
    assert_eq!(ended.stdout.lines().count(), 2, "{}", ended.stderr);
    let ended = gateway(&directory, &["signal", "constants"], None);
    assert_eq!(ended.code, Some(2), "{}", ended.stdout);
}

#[test]
fn a_node_is_fed_from_standard_input_and_read_to_standard_output() {
    let directory = TempDir::new().unwrap();
    let human = write(&directory, "a.human", HUMAN);
    let nodes = "nodes = { to = { type = \"file\", uri = \"b.csv\", format = \"csv\" }
        from = { type = \"file\", uri = \"a.human\", in = { epoch_mode = \"original\" \
        signals = \"2f\" } } }";
    write(&directory, "a.conf", nodes);
    let pipe = ["pipe", "-t", "2f"];
    let ended = gateway(&directory, &[&pipe[..], &["-s", "a.conf", "to"]].concat(), Some(&human));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let written = std::fs::read_to_string(directory.path().join("b.csv")).unwrap();
    let numbers: Vec<&str> = written.lines().skip(1).filter_map(|l| l.split(',').nth(3)).collect();
    assert_eq!(numbers, ["1", "2"], "{written}");

    let ended = gateway(&directory, &[&pipe[..], &["-r", "a.conf", "from"]].concat(), None);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let values: Vec<&str> =
        ended.stdout.lines().filter_map(|l| Some(l.split_once('\t')?.1)).collect();
    let right =
        ["1.50000000000000000\t2.00000000000000000", "3.00000000000000000\t4.00000000000000000"];
    assert_eq!(values[1..], right, "{}", ended.stdout);

    let ended = gateway(&directory, &["pipe", "a.conf", "none"], None);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("there is no node none"), "{}", ended.stderr);
}

#[test]
fn a_line_without_an_end_ends() {
    let directory = TempDir::new().unwrap();
    let endless = write(&directory, "endless", &"1".repeat((1 << 20) + (1 << 16)));
    let ended = gateway(&directory, &["convert"], Some(&endless));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("byte 0: 1048576 bytes are not a sample"), "{}", ended.stderr);
}

/// A child that must end, whatever the test finds.
fn pipe(directory: &TempDir, arguments: &[&str], stdin: Stdio, stdout: Stdio) -> Child {
    let mut command = rdmalab(&["gateway", "pipe", "-t", "1f"]);
    command.args(arguments).current_dir(directory.path());
    command.stdin(stdin).stdout(stdout).spawn().unwrap()
}

#[test]
fn a_pipe_keeps_what_the_output_has_and_ends_with_its_reader() {
    let directory = TempDir::new().unwrap();
    write(
        &directory,
        "a.conf",
        "nodes = { few = { type = \"signal\", rate = 1000, limit = 3, realtime = false }
         endless = { type = \"signal\", rate = 1000 }
         null = { type = \"file\", uri = \"/dev/null\" } }",
    );
    // What is appended to stays.
    let out = write(&directory, "out", "before\n");
    let append = || Stdio::from(File::options().append(true).open(&out).unwrap());
    let status = pipe(&directory, &["-r", "a.conf", "few"], Stdio::null(), append()).wait();
    assert!(status.unwrap().success());
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.starts_with("before\n") && text.lines().count() >= 4, "{text}");
    // A socket cannot be opened by a name.
    let (here, there) = UnixStream::pair().unwrap();
    let (here, there) = (OwnedFd::from(here), OwnedFd::from(there));
    let mut child = pipe(&directory, &["-r", "a.conf", "few"], Stdio::null(), there.into());
    let mut said = String::new();
    File::from(here).read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success() && said.lines().count() >= 3, "{said}");
    // A reader that goes ends it.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = pipe(&directory, &["-r", "a.conf", "endless"], Stdio::null(), writer.into());
    assert!(child.wait().unwrap().success());
    // So does a signal while the input is silent.
    let (_reader, writer) = std::io::pipe().unwrap();
    let (input, _silent) = std::io::pipe().unwrap();
    let mut child = pipe(&directory, &["-s", "a.conf", "null"], input.into(), writer.into());
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        // Bit 1 is SIGINT.
        u64::from_str_radix(mask, 16).unwrap() & 0b10 != 0
    };
    while !caught() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn samples_pass_through_a_hook() {
    let directory = TempDir::new().unwrap();
    let human = write(&directory, "a.human", HUMAN);
    let hook = |arguments: &[&str]| {
        gateway(&directory, &[&["hook", "-t", "2f"], arguments].concat(), Some(&human))
    };
    let ended = hook(&["-o", "ratio=2", "decimate"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let numbers: Vec<&str> = ended.stdout.lines().skip(1).map(|l| &l[..14]).collect();
    assert_eq!(numbers, ["1.000000000(1)"], "{}", ended.stdout);
    let ended = hook(&["-o", "signal=signal1", "-o", "scale=10", "scale"]);
    assert!(ended.stdout.contains("\t20.00000000000000000\n"), "{} {}", ended.stdout, ended.stderr);
    let ended = hook(&["-o", "offset=0", "-o", "signals=[\"signal0\", \"signal1\"]", "average"]);
    assert!(
        ended.stdout.contains("\t1.75000000000000000\t1.5"),
        "{} {}",
        ended.stdout,
        ended.stderr
    );
    assert_eq!(hook(&["-o", "ratoi=2", "decimate"]).code, Some(2));
    assert_eq!(hook(&["decimat"]).code, Some(2));
}
