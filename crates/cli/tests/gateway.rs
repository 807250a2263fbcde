//! `rdmalab gateway run`: gateways as processes, on the soft device, in shared memory, and over
//! sockets.

mod common;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use common::{Process, rdmalab, said, signal};
use serde_json::Value;
use tempfile::TempDir;

/// Samples of a test.
const SAMPLES: u64 = 500;

/// A gateway with a configuration of this name and text.
fn gateway(dir: &TempDir, name: &str, text: &str, more: &[&str]) -> Process {
    let file = dir.path().join(format!("{name}.conf"));
    std::fs::write(&file, text).unwrap();
    let summary = dir.path().join(format!("{name}.json"));
    let mut command = rdmalab(&["gateway", "run"]);
    command.arg(&file).arg("--summary").arg(summary).args(more);
    Process::start(&mut command)
}

/// What a gateway has summed up.
fn summary(dir: &TempDir, name: &str) -> Value {
    let text = std::fs::read_to_string(dir.path().join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The source: computed samples to `node` and to a file.
fn source(dir: &TempDir, node: &str, limit: u64) -> String {
    format!(
        "nodes = {{ siggen = {{ type = \"signal\", signal = \"mixed\", values = 8, \
         rate = 1000.0, limit = {limit} }}, \
         in_file = {{ type = \"file\", uri = \"{}\", format = {FORMAT} }}, \
         link = {{ {node} }} }}, \
         paths = ( {{ in = \"siggen\", out = [ \"link\", \"in_file\" ], connect_wait = 60.0 }} )",
        dir.path().join("in.csv").display()
    )
}

/// The target: from `node` to a file.
fn target(dir: &TempDir, node: &str) -> String {
    format!(
        "nodes = {{ link = {{ {node} }}, \
         out_file = {{ type = \"file\", uri = \"{}\", format = {FORMAT}, \
         out = {{ flush = true }} }} }}, \
         paths = ( {{ in = \"link\", out = \"out_file\", original_sequence_no = true }} )",
        dir.path().join("out.csv").display()
    )
}

/// Without the time of arrival, so that both files are equal.
const FORMAT: &str = "{ type = \"csv\", offset = false }";

fn rows(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter(|line| !line.starts_with('#')).count()
}

fn out(dir: &TempDir) -> PathBuf {
    dir.path().join("out.csv")
}

/// When the last sample of a file was made, since the epoch.
fn last_origin(path: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(path).ok()?;
    let (whole, _) = text.rsplit_once('\n')?;
    let mut columns = whole.lines().last()?.split(',');
    let seconds = columns.next()?.parse().ok()?;
    Some(Duration::new(seconds, columns.next()?.parse().ok()?))
}

/// How samples go from source to target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    /// All arrive.
    Reliable,
    /// Some may be missing.
    Unreliable,
}

/// Whether these are lines of the other text, in its order.
fn is_part(part: &[u8], all: &[u8]) -> bool {
    let mut all = all.split(|byte| *byte == b'\n');
    part.split(|byte| *byte == b'\n').all(|line| all.any(|other| other == line))
}

/// Runs target and source with these nodes; what the source writes arrives equal.
fn arrives(service: Service, to: &str, from: &str, more: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let mut there = gateway(&dir, "target", &target(&dir, to), more);
    let here = gateway(&dir, "source", &source(&dir, from, SAMPLES), more);
    let ended = here.end();
    assert!(ended.succeeded(), "{}", ended.report());
    let first = summary(&dir, "source");
    let path = &first["paths"][0];
    assert_eq!(path["dropped"], 0, "{first:#}");
    let sent = path["samples"].as_u64().unwrap();
    assert_eq!(sent + path["missed"].as_u64().unwrap(), SAMPLES, "{first:#}");
    let least = if service == Service::Reliable { sent } else { 1 };
    there.brings("samples", || (rows(&out(&dir)) as u64 >= least).then_some(()));
    signal("-TERM", there.id());
    let ended = there.end();
    assert!(ended.succeeded(), "{}", ended.report());
    let file = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let (input, output) = (file("in.csv"), file("out.csv"));
    assert!(is_part(&output, &input), "{to}: other samples");
    let second = summary(&dir, "target");
    let path = &second["paths"][0];
    assert_eq!(path["samples"].as_u64(), Some(rows(&out(&dir)) as u64), "{second:#}");
    if service == Service::Reliable {
        assert_eq!(path["samples"].as_u64(), Some(sent), "{second:#}");
    }
    assert_eq!((&path["duplicate"], &path["reordered"]), (&0.into(), &0.into()), "{second:#}");
    assert!(path["latency"]["p50_ns"].as_f64().unwrap() > 0.0, "{second:#}");
}

fn infiniband(mode: &str, port: u16, more: &str) -> (String, String) {
    let to = format!(
        "type = \"infiniband\", rdma_transport_mode = \"{mode}\", in = {{ \
         address = \"127.0.0.1:{port}\", max_wrs = 8192, \
         signals = {{ count = 8, type = \"float\" }}, {more} }}"
    );
    let from = format!(
        "type = \"infiniband\", rdma_transport_mode = \"{mode}\", \
         out = {{ address = \"127.0.0.1:{port}\", max_wrs = 8192 }}"
    );
    (to, from)
}

#[test]
fn samples_arrive_over_each_transport() {
    for mode in ["RC", "UD", "UC"] {
        let service = if mode == "RC" { Service::Reliable } else { Service::Unreliable };
        // Receives that are posted while samples come are too few for transports without waiting.
        let late = (service == Service::Reliable).then_some("prepost = false");
        for more in ["", "wait = \"event\""].into_iter().chain(late) {
            let (to, from) = infiniband(mode, rdmalab_testing::free_port(), more);
            arrives(service, &to, &from, &["--device", "soft0"]);
        }
    }
}

/// The lines of a file that are samples.
fn samples(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn a_target_without_signals_takes_any_number_of_floats() {
    let dir = tempfile::tempdir().unwrap();
    let (to, from) = infiniband("RC", rdmalab_testing::free_port(), "");
    let to = to.replace("signals = { count = 8, type = \"float\" },", "");
    let device = ["--device", "soft0"];
    let mut there = gateway(&dir, "target", &target(&dir, &to), &device);
    let ended = gateway(&dir, "source", &source(&dir, &from, SAMPLES), &device).end();
    assert!(ended.succeeded(), "{}", ended.report());
    let sent = samples(&dir.path().join("in.csv"));
    assert!(!sent.is_empty());
    there.brings("all samples", || (rows(&out(&dir)) == sent.len()).then_some(()));
    signal("-TERM", there.id());
    let ended = there.end();
    assert!(ended.succeeded(), "{}", ended.report());
    assert!(samples(&out(&dir)) == sent, "other samples");
}

#[test]
fn a_reflector_sends_back_what_it_receives() {
    let dir = tempfile::tempdir().unwrap();
    let (to, from) = infiniband("RC", rdmalab_testing::free_port(), "");
    let text = format!(
        "nodes = {{ link = {{ {to}, out = {{ max_wrs = 8192 }} }} }}, \
         paths = ( {{ in = \"link\", out = \"link\", original_sequence_no = true, \
         connect_wait = 3600.0 }} )"
    );
    let device = ["--device", "soft0"];
    let there = gateway(&dir, "reflector", &text, &device);
    let both = format!("{from}, in = {{ max_wrs = 8192, signals = \"8f\" }}");
    let back = format!(
        ", back = {{ type = \"file\", uri = \"{}\", format = {FORMAT}, \
         out = {{ flush = true }} }} }}, \
         paths = ( {{ in = \"link\", out = \"back\", original_sequence_no = true }}, ",
        out(&dir).display()
    );
    let text = source(&dir, &both, 1 << 40).replace(" }, paths = ( ", &back);
    let mut here = gateway(&dir, "source", &text, &device);
    here.brings("samples back", || (rows(&out(&dir)) > 200).then_some(()));
    signal("-TERM", here.id());
    let ended = here.end();
    assert!(ended.succeeded(), "{}", ended.report());
    signal("-TERM", there.id());
    let ended = there.end();
    assert!(ended.succeeded(), "{}", ended.report());
    let file = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert!(is_part(&file("out.csv"), &file("in.csv")), "other samples");
}

#[test]
fn a_sample_that_is_larger_than_a_datagram_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let (_, from) = infiniband("UD", rdmalab_testing::free_port(), "");
    let text = source(&dir, &from, 1 << 40).replace("values = 8", "values = 512");
    let mut here = gateway(&dir, "source", &text, &["--device", "soft0"]);
    here.warns("a sample of 512 values has 4120 bytes, and a datagram at most ");
    signal("-TERM", here.id());
    let ended = here.end();
    assert_eq!(ended.stderr.matches("a sample of 512").count(), 1, "{}", ended.report());
}

#[test]
fn samples_arrive_in_shared_memory() {
    for (mode, number) in [("polling", 1), ("pthread", 2)] {
        let name = format!("/cli-{}-{number}", std::process::id());
        let node = |here: &str, there: &str| {
            format!(
                "type = \"shmem\", queuelen = 8192, mode = \"{mode}\", \
                 out = {{ name = \"{name}{there}\" }}, \
                 in = {{ name = \"{name}{here}\", signals = {{ count = 8, type = \"float\" }} }}"
            )
        };
        arrives(Service::Reliable, &node("a", "b"), &node("b", "a"), &[]);
    }
}

/// How often a gateway is killed.
fn kills() -> u64 {
    let wanted = std::env::var("RDMALAB_KILLS").ok();
    wanted.map_or(3, |kills| kills.parse().expect("RDMALAB_KILLS is a number"))
}

/// A source that is killed and comes back: samples of the new one arrive.
fn is_replaced(to: &str, from: &str, more: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let mut there = gateway(&dir, "target", &target(&dir, to), more);
    for _ in 0..=kills() {
        // The source before is dead, so what has a later origin is of this one.
        let begin = UNIX_EPOCH.elapsed().unwrap();
        let mut here = gateway(&dir, "source", &source(&dir, from, 1 << 40), more);
        there.brings("samples", || (last_origin(&out(&dir))? > begin).then_some(()));
        assert!(!here.has_ended());
        here.kill();
    }
    signal("-TERM", there.id());
    let ended = there.end();
    assert!(ended.succeeded(), "{}", ended.report());
    let link = &summary(&dir, "target")["paths"][0]["sources"][0];
    assert_eq!(link["connected"].as_u64(), Some(kills() + 1), "{link:#}");
}

/// A target that is killed and comes back: told once each, and samples arrive again.
fn comes_back(to: &str, from: &str, more: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let text = target(&dir, to);
    let mut there = gateway(&dir, "target", &text, more);
    let mut here = gateway(&dir, "source", &source(&dir, from, 1 << 40), more);
    there.brings("samples", || (rows(&out(&dir)) > 50).then_some(()));
    for _ in 0..kills() {
        there.kill();
        let _ = std::fs::remove_file(out(&dir));
        there = gateway(&dir, "target", &text, more);
        there.brings("samples again", || (rows(&out(&dir)) > 50).then_some(()));
        assert!(!here.has_ended());
    }
    signal("-TERM", here.id());
    let ended = here.end();
    assert!(ended.succeeded(), "{}", ended.report());
    signal("-TERM", there.id());
    let ended = there.end();
    assert!(ended.succeeded(), "{}", ended.report());
    let path = &summary(&dir, "source")["paths"][0];
    let link = &path["destinations"][0];
    let peers = ["connected", "disconnected"].map(|name| link[name].as_u64().unwrap());
    assert_eq!(peers, [kills() + 1, kills()], "{path:#}");
    assert_eq!(path["destinations"][1]["dropped"], 0, "the other destination goes on: {path:#}");
}

/// Runs this with nodes of each type that connects: those of the target, and of the source.
fn with_each_node_type(name: &str, run: impl Fn(&str, &str, &[&str])) {
    let (to, from) = infiniband("RC", rdmalab_testing::free_port(), "");
    run(&to, &from, &["--device", "soft0"]);
    let name = format!("/cli-{}-{name}", std::process::id());
    let node = |here: &str, there: &str| {
        format!(
            "type = \"shmem\", in = {{ name = \"{name}{here}\", signals = \"8f\" }}, \
             out = {{ name = \"{name}{there}\" }}"
        )
    };
    run(&node("a", "b"), &node("b", "a"), &[]);
    for (kind, to, from) in
        [("zeromq", "subscribe", "publish"), ("nanomsg", "endpoints", "endpoints")]
    {
        let at = format!("\"tcp://127.0.0.1:{}\"", rdmalab_testing::free_port());
        let to = format!("type = \"{kind}\", in = {{ {to} = {at}, signals = \"8f\" }}");
        run(&to, &format!("type = \"{kind}\", out = {{ {from} = {at} }}"), &[]);
    }
}

#[test]
fn a_killed_target_comes_back() {
    with_each_node_type("target", comes_back);
}

#[test]
fn a_killed_source_is_replaced() {
    with_each_node_type("source", is_replaced);
}

/// Sends three samples in VILLASnode's layout: number, origin, values.
const PYVERBS: &str = r#"
import struct, sys, time
import pyverbs.cm_enums as ce, pyverbs.enums as e
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QPInitAttr, QPCap
info = AddrInfo(dst='127.0.0.1', dst_service=sys.argv[1], port_space=ce.RDMA_PS_TCP, flags=0)
while True:
    init = QPInitAttr(qp_type=e.IBV_QPT_RC, cap=QPCap(max_send_wr=8, max_recv_wr=1))
    peer = CMID(creator=info, qp_init_attr=init)
    try:
        peer.connect()
        break
    except PyverbsError as why:
        # The gateway may not listen yet.
        print(why, file=sys.stderr, flush=True)
        peer.close()
        time.sleep(0.1)
message = peer.reg_msgs(48)
for n in range(3):
    message.write(struct.pack('=QqQ3d', 7 + n, 1466498424, 100 + n, 1.5, -2.0, n), 48)
    peer.post_send(message, length=48)
    peer.get_send_comp()
peer.disconnect()
"#;

#[test]
fn a_peer_of_pyverbs_sends_samples() {
    // Debian's package is of its own Python.
    let python = "/usr/bin/python3";
    let has_it = Command::new(python).args(["-c", "import pyverbs.cmid"]).output();
    if !has_it.is_ok_and(|it| it.status.success()) {
        let why = "there is no pyverbs: apt-get install python3-pyverbs";
        return rdmalab_testing::skipped("a_peer_of_pyverbs_sends_samples", why);
    }
    let dir = tempfile::tempdir().unwrap();
    let port = rdmalab_testing::free_port();
    let node = format!(
        "type = \"infiniband\", hello = \"optional\", in = {{ \
         address = \"127.0.0.1:{port}\", signals = {{ count = 3, type = \"float\" }} }}"
    );
    let mut there = gateway(&dir, "target", &target(&dir, &node), &["--device", "soft0"]);
    let mut peer = rdmalab(&["exec", "--", python, "-c", PYVERBS, &port.to_string()]);
    let mut peer = Process::start(&mut peer);
    there.brings("samples", || (peer.has_ended() || rows(&out(&dir)) >= 3).then_some(()));
    let ended = peer.end();
    assert!(ended.succeeded(), "{}", ended.report());
    there.brings("samples", || (rows(&out(&dir)) >= 3).then_some(()));
    signal("-TERM", there.id());
    let ended = there.end();
    assert!(ended.succeeded(), "{}", ended.report());
    let text = std::fs::read_to_string(out(&dir)).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for (n, line) in lines.iter().enumerate() {
        let begin = format!("1466498424,{:09},{},1.5", 100 + n, 7 + n);
        assert!(line.starts_with(&begin), "{begin}: {text}");
    }
    assert_eq!(lines.len(), 3, "{text}");
}

#[test]
fn a_peer_with_other_signals_is_refused_and_told_why() {
    let dir = tempfile::tempdir().unwrap();
    let (to, from) = infiniband("RC", rdmalab_testing::free_port(), "");
    let to = to.replace("count = 8", "count = 7");
    let device = ["--device", "soft0"];
    let there = gateway(&dir, "target", &target(&dir, &to), &device);
    // The second source is refused for the same reason, which is not told again.
    for _ in 0..2 {
        let mut here = gateway(&dir, "source", &source(&dir, &from, 1 << 40), &device);
        here.warns("it refuses");
        signal("-TERM", here.id());
        let ended = here.end();
        assert!(ended.succeeded(), "{}", ended.report());
    }
    signal("-TERM", there.id());
    let ended = there.end();
    let told = ended.stderr.matches("it sends 8 values, and in.signals has 7").count();
    assert_eq!(told, 1, "{}", ended.report());
}

#[test]
fn a_source_keeps_its_place_while_it_is_alive() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (to, from) = infiniband("RC", rdmalab_testing::free_port(), "");
    let device = ["--device", "soft0"];
    let mut there = gateway(&dir, "target", &target(&dir, &to), &device);
    let mut first = gateway(&dir, "source", &source(&dir, &from, 1 << 40), &device);
    first.warns("RC to ");
    let mut second = gateway(&other, "source", &source(&other, &from, 1 << 40), &device);
    second.warns("it refuses");
    // It was asked whether it is alive, and goes on.
    let before = rows(&out(&dir));
    there.brings("more samples", || (rows(&out(&dir)) > before + 50).then_some(()));
    assert!(!second.complained().contains("RC to "), "the first one is alive");
    first.kill();
    second.warns("RC to ");
    signal("-TERM", there.id());
    let ended = there.end();
    assert!(ended.succeeded(), "{}", ended.report());
    let link = &summary(&dir, "target")["paths"][0]["sources"][0];
    assert_eq!((&link["connected"], &link["disconnected"]), (&2.into(), &1.into()), "{link:#}");
}

#[test]
fn a_wrong_configuration_is_a_usage_error_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wrong.conf");
    std::fs::write(&file, "nodes = { aa = { type = \"signal\", rat = 1 } }\npaths = ()").unwrap();
    let ended = said(rdmalab(&["gateway", "run"]).arg(&file));
    assert_eq!(ended.code, Some(2), "{}", ended.report());
    let place = format!("{}:1:35: unknown key \"rat\"", file.display());
    assert!(ended.stderr.contains(&place), "{}", ended.stderr);
}

/// What a server answers to a GET.
fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn prometheus_can_ask_what_paths_have_done() {
    let dir = tempfile::tempdir().unwrap();
    let port = rdmalab_testing::free_port();
    let text = "nodes = { siggen = { type = \"signal\", rate = 1000.0 }, \
                back = { type = \"loopback\" } }, \
                paths = ( { in = \"siggen\", out = \"back\" }, { in = \"back\" } )";
    let at = format!("127.0.0.1:{port}");
    let mut running = gateway(&dir, "metrics", text, &["--metrics", &at]);
    let number = |name: &str| {
        let found = get(port, "/metrics").ok()?;
        let line = found.lines().find(|line| line.starts_with(name))?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let samples = "rdmalab_gateway_samples_total{path=\"siggen -> back\",number=\"0\"} ";
    let first = running.brings("samples", || number(samples).filter(|count| *count > 0.0));
    running.brings("more samples", || number(samples).filter(|count| *count > first));
    let median =
        "rdmalab_gateway_latency_seconds{path=\"back -> \",number=\"1\",quantile=\"0.5\"} ";
    assert!(running.brings("a latency", || number(median)) > 0.0);
    let all = get(port, "/metrics").unwrap();
    assert!(all.starts_with("HTTP/1.1 200 OK\r\n"), "{all}");
    for count in ["missed_total", "lost", "duplicate_total", "reordered_total", "dropped_total"] {
        let line = format!("rdmalab_gateway_{count}{{path=\"siggen -> back\",number=\"0\"}} ");
        assert!(all.contains(&line), "{line}: {all}");
    }
    assert!(get(port, "/other").unwrap().starts_with("HTTP/1.1 404 "));
    let ended = gateway(&dir, "second", text, &["--metrics", &at]).end();
    assert_eq!(ended.code, Some(1), "{}", ended.report());
    assert!(ended.stderr.contains(&at), "{}", ended.report());
    signal("-TERM", running.id());
    assert!(running.end().succeeded());
}

/// `rdmalab run gateway` with few samples, and these words; its points.
fn measured(words: &[&str]) -> Vec<Value> {
    let mut command = rdmalab(&["run", "gateway", "--device", "soft0", "--rate", "2000"]);
    command.args(["--messages", "150", "--warm-up", "50", "--no-record", "--format", "json"]);
    let ended = said(command.args(words));
    assert!(ended.succeeded(), "{}", ended.report());
    let text: Value = serde_json::from_str(&ended.stdout).unwrap();
    text["points"].as_array().unwrap().clone()
}

/// Each tick was missed or is a sample, and each sample has arrived, was dropped or is lost.
fn adds_up(point: &Value, service: Service) {
    let count = |name: &str| point["counts"][name].as_u64().expect(name);
    // 150 of each run, and the warm-up.
    let ticks = 50 + 150 * point["parameters"]["runs"].as_u64().expect("runs");
    assert_eq!(count("sent") + count("missed"), ticks, "{point:#}");
    let (arrived, lost) = (count("received") - count("duplicated"), count("lost"));
    assert_eq!(arrived + lost + count("dropped"), count("sent"), "{point:#}");
    assert_eq!((count("duplicated"), count("reordered")), (0, 0), "{point:#}");
    // All of them have room in the queues.
    assert!(service == Service::Unreliable || lost == 0, "{point:#}");
    let share = point["figures"]["missed_share"].as_f64().expect("a share");
    assert!((share - count("missed") as f64 / ticks as f64).abs() < 1e-9, "{point:#}");
    let series = &point["series"][0];
    assert_eq!((&series["quantity"], &series["label"]), (&"one_way_ns".into(), &"t".into()));
    let samples = ["n", "warm_up_n"].map(|name| series[name].as_u64().expect(name));
    assert_eq!(samples.iter().sum::<u64>(), count("received"), "{point:#}");
    assert!(samples[1] <= 50, "{point:#}");
    assert!(point["cut_short"].is_null(), "{point:#}");
}

#[test]
fn the_experiment_accounts_for_each_tick_on_each_node_type() {
    let points = measured(&["--node", "infiniband", "--transport", "rc,uc,ud", "--timer", "tsc"]);
    assert_eq!(points.len(), 3);
    for point in points {
        let is_reliable = point["parameters"]["transport"] == "rc";
        let service = if is_reliable { Service::Reliable } else { Service::Unreliable };
        adds_up(&point, service);
    }
    let nodes = "infiniband,shmem,socket,zeromq,nanomsg";
    let points = measured(&["--node", nodes, "--ends", "1"]);
    assert_eq!(points.len(), 5);
    for point in points {
        let is_socket = point["parameters"]["node"] == "socket";
        adds_up(&point, if is_socket { Service::Unreliable } else { Service::Reliable });
    }
    let nodes = "shmem,socket,loopback,zeromq,nanomsg";
    let points = measured(&["--node", nodes, "--values", "64", "--runs", "2"]);
    assert_eq!(points.len(), 5);
    for point in points {
        let is_socket = point["parameters"]["node"] == "socket";
        let service = if is_socket { Service::Unreliable } else { Service::Reliable };
        adds_up(&point, service);
    }
}

#[test]
fn what_the_experiment_cannot_measure_is_refused_before_it_starts() {
    for (words, says) in [
        (&["--rate", "0"][..], "--rate 0: samples come at a rate"),
        (&["--tx-depth", "2"], "--tx-depth 2: the queues of infiniband take 4 to "),
        (&["--node", "shmem", "--buffers", "1"], "--buffers 1: the queue of shmem takes 2 to "),
        (&["--node", "mqtt"], "\"mqtt\" is not a valid node-type: choose one of "),
        (&["--node", "shmem", "--device", "sim:ideal"], "real time only"),
        (&["--transport", "uc", "--port", "2"], "--port 2: "),
    ] {
        let mut command = rdmalab(&["run", "gateway", "--no-record"]);
        if !words.contains(&"--device") {
            command.args(["--device", "soft0"]);
        }
        let ended = said(command.args(words));
        assert_eq!(ended.code, Some(2), "{}", ended.report());
        assert!(ended.stderr.contains(says), "{says}: {}", ended.report());
    }
}
