//! `--capture`, `--faults` and `--interface` of each command that measures or runs a program:
//! captures are complete and well formed, faults are reported, and a seed repeats them.

mod common;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::{Ended, Process, endless, rdmalab, said, signal, workers};
use rdmalab_link::packet::{Class, Flow, Medium, PacketInfo, Payload};
use rdmalab_link::specification::Specification;
use rdmalab_testing::{again_while, free_port, skipped};
use rdmalab_trace::conversation::{Direction, Endpoint, Row, Trace};
use rdmalab_trace::packet::{Address, Icrc};
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::opcode::Operation;
use serde_json::Value;

/// One measurement at a time: each has two ends that spin, and the counts depend on delays.
static ONE: Mutex<()> = Mutex::new(());

/// The lower bits of a soft device's QP number. The upper bits identify the process, and differ
/// from run to run.
const QP_INDEX_BITS: u32 = 14;
/// A few losses, which are repaired quickly.
const FAULTS: &str = "seed=5; drop 3% of send; duplicate 4% of request; delay 30us 20% of ack";
const SHORT: [&str; 8] = ["--messages", "300", "--warm-up", "0", "--runs", "1", "--timeout", "10"];

/// The trace of a capture that must be complete, for our reader and, if installed, for tshark.
fn whole(file: &Path) -> Trace {
    let shown = file.display();
    let trace = rdmalab_trace::read(file).unwrap_or_else(|error| panic!("{shown}: {error}"));
    assert_eq!(trace.tally.cut_short, None, "{shown}");
    assert!(
        trace.tally.malformed.is_empty() && trace.tally.foreign == 0,
        "{shown}: {:?}",
        trace.tally.malformed
    );
    let output = Command::new("tshark")
        .args(["-Y", "_ws.malformed || !infiniband", "-r"])
        .arg(file)
        .output();
    match output {
        Err(_) => skipped("captures of the command with tshark", "not installed"),
        Ok(output) => {
            let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{shown}: {complaints}");
            assert!(!complaints.contains("cut short"), "{shown}: {complaints}");
            let strange = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(strange, "", "{shown}: malformed");
        }
    }
    trace
}

fn packets(trace: &Trace) -> usize {
    trace.conversations.iter().map(|conversation| conversation.rows.len()).sum()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The name of the capture for the other rank of a run.
fn of_rank_1(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap().to_str().unwrap();
    file.with_file_name(format!("{stem}-rank1.pcapng"))
}

#[test]
fn a_run_is_captured_and_disturbed_and_says_so_everywhere() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("run.pcapng");
    for experiment in ["ping", "oneway", "blast"] {
        let out = home.path().join(experiment);
        let mut command = rdmalab(&["run", experiment, "--faults", FAULTS]);
        command.args(SHORT).arg("--capture").arg(&file).arg("--out").arg(&out);
        let first = said(&mut command);
        assert_eq!(first.code, Some(0), "{experiment}: {}", first.stderr);
        for rank in [file.clone(), of_rank_1(&file)] {
            let named = format!("captured in {}", rank.display());
            assert!(first.stderr.contains(&named), "{experiment}: {}", first.stderr);
            assert!(packets(&whole(&rank)) >= 300, "{experiment}");
        }
        let label = "disturbed on purpose (seed=5; drop 3% of send";
        let table = first.stdout.replace("\n         ", " ");
        assert!(table.contains("packets were captured"), "{table}");
        assert!(table.contains(label), "{table}");
        assert!(table.lines().next().unwrap().contains("disturbed on purpose"), "{table}");
        let record = std::fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
        let report = said(rdmalab(&["report", "--format", "json"]).arg(&record));
        let point = &json(&report.stdout)["points"][0];
        for fact in ["faults", "faults_at_rank_1"] {
            assert_eq!(point["facts"][fact], FAULTS, "{point}");
        }
        assert_eq!(point["facts"]["capture"], "run.pcapng", "{point}");
        assert_eq!(point["facts"]["capture_at_rank_1"], "run-rank1.pcapng", "{point}");
        assert!(point["counts"]["disturbed_packets"].as_u64().unwrap() > 0, "{point}");
        let page = home.path().join("page.html");
        said(rdmalab(&["report"]).arg(&record).arg("--html").arg(&page));
        assert!(std::fs::read_to_string(page).unwrap().contains("isturbed on purpose"));
    }
}

#[test]
fn a_simulated_run_is_captured_and_disturbed_the_same_each_time() {
    let home = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let file = home.path().join(name);
        let mut command = rdmalab(&["run", "ping", "--device", "sim:connectx4", "--no-record"]);
        command.args(SHORT).args(["--size", "32,9000", "--format", "json"]);
        let rules = ["--faults", "seed=5; drop 3% of send"];
        let ended = said(command.args(rules).arg("--capture").arg(&file));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        (json(&ended.stdout)["points"].as_array().unwrap().clone(), file)
    };
    let ((points, file), (again, other)) = (run("a.pcapng"), run("b.pcapng"));
    for (one, two) in points.iter().zip(&again) {
        assert!(one["series"] == two["series"] && one["counts"] == two["counts"], "{one} {two}");
    }
    let files = [file.clone(), of_rank_1(&file)];
    for (file, other) in files.iter().zip([other.clone(), of_rank_1(&other)]) {
        assert!(std::fs::read(file).unwrap() == std::fs::read(other).unwrap(), "other packets");
    }
    assert_eq!(points[0]["facts"]["capture"], "a.pcapng", "{}", points[0]);
    let [here, there] = files.map(|file| whole(&file));
    let rows = |trace: &Trace, from: Direction| -> Vec<Row> {
        let all = trace.conversations.iter().flat_map(|found| found.rows.iter());
        all.filter(|row| row.direction == from).cloned().collect()
    };
    let ends = [
        (Direction::Forward, "disturbed_packets", &here, &there),
        (Direction::Back, "disturbed_packets_at_rank_1", &there, &here),
    ];
    for (from, count, sender, receiver) in ends {
        let sent = rows(sender, from);
        let lost = sent.iter().filter(|row| row.packet.comment.contains("drop")).count();
        assert_eq!(rows(receiver, from).len(), sent.len() - lost, "what is not lost arrives");
        let counted = points.iter().map(|point| point["counts"][count].as_u64().unwrap());
        assert_eq!(counted.sum::<u64>() as usize, lost, "{count}");
        assert!(lost > 10, "{lost}");
    }
}

/// Requests with a remote address do not show where the memory of the program lies.
#[test]
fn captures_of_equal_simulated_runs_are_equal() {
    let home = tempfile::tempdir().unwrap();
    for op in ["write", "read", "write_imm"] {
        let [one, two] = ["a", "b"].map(|name| {
            let file = home.path().join(format!("{op}-{name}.pcapng"));
            let mut command = rdmalab(&["run", "ping", "--device", "sim:connectx4", "--no-record"]);
            let ended = said(command.args(SHORT).args(["--op", op]).arg("--capture").arg(&file));
            assert_eq!(ended.code, Some(0), "{op}: {}", ended.stderr);
            std::fs::read(file).unwrap()
        });
        assert!(one == two, "{op}: other packets");
    }
}

/// The payload of the WRITE by which a receiver gives credits.
const CREDIT_BYTES: usize = 8;

/// The requests and READ responses of a capture, each once, without credits: whether a response,
/// opcode, PSN after the first one, bytes of payload.
fn first_transmissions(file: &Path, from: Direction) -> Vec<(bool, String, u32, usize)> {
    let trace = rdmalab_trace::read(file).unwrap();
    let mut found = Vec::new();
    for conversation in &trace.conversations {
        let mut first = [None; 2];
        let mut seen = std::collections::BTreeSet::new();
        for row in conversation.rows.iter().filter(|row| row.direction == from) {
            let bth = &row.packet.headers.bth;
            let is_response = bth.opcode.operation() == Operation::ReadResponse;
            let is_data = bth.opcode.operation() != Operation::Acknowledge;
            // How many credits a receiver sends depends on how many messages it finds at once.
            let is_credit = bth.opcode.operation() == Operation::Write
                && row.packet.payload_bytes == CREDIT_BYTES;
            if is_data && !is_credit && seen.insert((is_response, bth.psn.get())) {
                let start = *first[usize::from(is_response)].get_or_insert(bth.psn.get());
                let psn = bth.psn.get().wrapping_sub(start) & 0xff_ffff;
                found.push((
                    is_response,
                    format!("{:?}", bth.opcode),
                    psn,
                    row.packet.payload_bytes,
                ));
            }
        }
    }
    found
}

#[test]
fn a_simulated_adapter_sends_first_what_a_soft_device_sends() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let home = tempfile::tempdir().unwrap();
    let capture = |device: &str, what: &[&str]| {
        let file = home.path().join(format!("{device}.pcapng").replace(':', "-"));
        let mut command = rdmalab(&["run", what[0], "--device", device, "--no-record"]);
        command.args(SHORT).args(["--mtu", "1024", "--inline", "off"]);
        let ended = said(command.args(&what[1..]).arg("--capture").arg(&file));
        assert_eq!(ended.code, Some(0), "{device} {what:?}: {}", ended.stderr);
        file
    };
    for what in [
        ["ping", "--op", "send", "--size", "5000"],
        ["ping", "--op", "write", "--size", "32"],
        ["ping", "--op", "read", "--size", "3000"],
        ["blast", "--op", "write_imm", "--size", "2049"],
        ["blast", "--op", "send", "--transport", "uc"],
    ] {
        let (soft, sim) = (capture("soft0", &what), capture("sim:connectx4", &what));
        for from in [Direction::Forward, Direction::Back] {
            let (expected, found) =
                (first_transmissions(&soft, from), first_transmissions(&sim, from));
            assert!(expected == found, "{what:?} {from:?}: {expected:?} and {found:?}");
        }
        assert!(first_transmissions(&sim, Direction::Forward).len() >= 300, "{what:?}");
    }
}

#[test]
fn a_run_without_them_says_nothing_of_them() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = rdmalab(&["run", "ping", "--no-record", "--format", "json"]);
    let Ended { code, stdout, stderr, .. } = said(command.args(SHORT));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!stdout.contains("disturbed") && !stdout.contains("capture"), "{stdout}");
}

/// What the rules did to each packet of the disturbed sender: by QP, direction, PSN, and how often
/// the PSN was sent before.
type Verdicts = BTreeMap<(u32, bool, u32, u32), String>;

fn ip(end: &Endpoint) -> IpAddr {
    match end.address {
        Address::Ip(ip) => ip.into(),
        other => panic!("{other:?} is no IP address"),
    }
}

/// Reads the verdicts from the comments of a capture, and checks each against the rules.
fn verdicts(file: &Path, rules: &str) -> Verdicts {
    let mut found = Verdicts::new();
    for conversation in &whole(file).conversations {
        let is_ours = |row: &&Row| !row.packet.comment.is_empty();
        let Some(ours) = conversation.rows.iter().find(is_ours) else { continue };
        let (from, to) = match ours.direction {
            Direction::Forward => (&conversation.a, &conversation.b),
            Direction::Back => (&conversation.b, &conversation.a),
        };
        let asked = Specification::parse(rules).unwrap().with_qp_bits(QP_INDEX_BITS);
        let mut chain = asked.into_chain(0);
        let mut sent: BTreeMap<(bool, u32), u32> = BTreeMap::new();
        for row in conversation.rows.iter().filter(|row| row.direction == ours.direction) {
            let headers = &row.packet.headers;
            let (opcode, psn) = (headers.bth.opcode, headers.bth.psn);
            let packet = PacketInfo {
                flow: Flow {
                    source: ip(from),
                    destination: ip(to),
                    destination_qp: Qpn::new(to.qpn.unwrap()),
                    source_qp: Qpn::new(0),
                    is_response: opcode.is_response(),
                },
                local_qp: Qpn::new(0),
                medium: Medium::Memory,
                class: Class::of(opcode, headers.aeth.map(|aeth| aeth.syndrome)),
                psn,
                psns: 1,
                transmission: None,
                standing: None,
                bytes: 0,
                payload: Payload::default(),
            };
            let fate = chain.packet_leaves(&packet, 0);
            let met = chain.labels().iter().enumerate().filter(|(i, _)| fate.met >> i & 1 != 0);
            let met: Vec<&str> = met.map(|(_, label)| label.as_str()).collect();
            let comment = match met.is_empty() {
                true => String::new(),
                false => format!("fault: {}", met.join("; ")),
            };
            assert_eq!(row.packet.comment, comment, "{:?}", row.packet);
            let times = sent.entry((opcode.is_response(), psn.get())).or_default();
            let qp = to.qpn.unwrap() & ((1 << QP_INDEX_BITS) - 1);
            let key = (qp, opcode.is_response(), psn.get(), *times);
            *times += 1;
            found.insert(key, comment);
        }
    }
    found
}

#[test]
fn a_seed_decides_the_same_again() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let home = tempfile::tempdir().unwrap();
    let run = |name: &str, rules: &str| {
        let file = home.path().join(name);
        let mut command = rdmalab(&["run", "ping", "--no-record", "--faults", rules]);
        let said = said(command.args(SHORT).arg("--capture").arg(&file));
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        verdicts(&file, rules)
    };
    let rules = "seed=9; drop 2% of request; duplicate 3%; drop 2% first of ack";
    let (first, second) = (run("a.pcapng", rules), run("b.pcapng", rules));
    let other = run("c.pcapng", &rules.replace("seed=9", "seed=10"));
    assert!(first.values().filter(|comment| !comment.is_empty()).count() > 5);
    // Timing decides how often a packet is retransmitted and how acknowledgements are coalesced.
    // But if both runs sent a packet, the seed decides what happens to it.
    let both = |a: &Verdicts, b: &Verdicts| a.keys().filter(|key| b.contains_key(*key)).count();
    let same = |a: &Verdicts, b: &Verdicts| a.iter().all(|(k, c)| b.get(k).is_none_or(|d| c == d));
    assert!(both(&first, &second) >= 300 && both(&first, &other) >= 300, "not the same packets");
    assert!(same(&first, &second), "the same seed decided otherwise");
    assert!(!same(&first, &other), "another seed decided the same");
}

/// A worker that waits so long for a processor may miss the half second in which messages count.
const STARVED: Duration = Duration::from_millis(200);
/// Runs a command. If the counts differ from `expected` and a worker waited too long for its
/// processor, the machine is to blame, and the command runs again.
fn counted(command: &mut Command, expected: &[(&str, u64)]) -> Ended {
    let is_spoiled = |(said, waited): &(Ended, Duration)| {
        let has =
            |(name, count): &(&str, u64)| json(&said.stdout)["points"][0]["counts"][name] == *count;
        *waited >= STARVED && said.code == Some(0) && !expected.iter().all(has)
    };
    again_while("a worker waited for its processor", || watched(command), is_spoiled).0
}

/// Runs a command; returns the longest total time that a worker waited for a processor.
fn watched(command: &mut Command) -> (Ended, Duration) {
    let mut running = Process::start(command);
    let children = format!("/proc/{0}/task/{0}/children", running.id());
    let mut longest = Duration::ZERO;
    running.within("the end", |child| {
        let pids = std::fs::read_to_string(&children).unwrap_or_default();
        let waits = pids.split_whitespace().filter_map(waited);
        longest = waits.fold(longest, Duration::max);
        child.try_wait().expect("our own child")
    });
    (running.end(), longest)
}

/// How long a process's first thread, which measures, waited for a processor (`schedstat`).
fn waited(pid: &str) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// The sixth message of each end is lost: a request at one, a response at the other. The last
/// request is lost too, and yet the end that waits for it must learn that the run is over.
#[test]
fn a_lost_datagram_costs_one_round_trip() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (transport, op) in
        [("ud", "send"), ("ud", "send_imm"), ("uc", "write"), ("uc", "write_imm")]
    {
        let mut command = rdmalab(&["run", "ping", "--transport", transport, "--op", op]);
        command.args(["--messages", "20", "--warm-up", "0", "--runs", "2", "--no-record"]);
        command.args(["--faults", "drop nth 6,20 of request", "--format", "json"]);
        let Ended { code, stdout, stderr, .. } = counted(&mut command, &[("lost", 4)]);
        assert_eq!(code, Some(0), "{transport} {op}: {stderr}");
        let point = &json(&stdout)["points"][0];
        assert_eq!(point["counts"]["sent"], 40, "{transport} {op}: {point}");
        // Rank 1's sixth answer is to request 7. Rank 0's 21st message is the first to announce
        // the end of a run, and so arrives. Rank 1's 20th answer is lost in the second run.
        assert_eq!(point["counts"]["lost"], 4, "{transport} {op}: {point}");
    }
}

/// The sixth message of each end arrives half a second after its receiver stopped waiting, and the
/// ninth is lost. A request that comes too late is not answered. An answer that comes while the
/// receiver waits for the next one counts as late, and its time is recorded.
#[test]
fn a_late_answer_is_not_lost() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = rdmalab(&["run", "ping", "--transport", "ud", "--op", "send_imm"]);
    command.args(["--messages", "20", "--warm-up", "0", "--runs", "1", "--no-record"]);
    let faults = "delay 2500ms nth 6 of request; drop nth 9 of request";
    command.args(["--faults", faults, "--format", "json"]);
    let Ended { code, stdout, stderr, .. } = counted(&mut command, &[("lost", 3), ("late", 1)]);
    assert_eq!(code, Some(0), "{stderr}");
    let point = &json(&stdout)["points"][0];
    let counts = &point["counts"];
    // Lost: request 6, request 9, and the answer to 11. Late: the answer to 7.
    let found = [&counts["sent"], &counts["lost"], &counts["late"]].map(|n| n.as_u64().unwrap());
    assert_eq!(found, [20, 3, 1], "{point}");
    let trips = &point["series"][0];
    assert_eq!(trips["n"], 17, "{point}");
    assert!(trips["max_ns"].as_f64().unwrap() >= 2.5e9, "{point}");
}

/// Runs a command with a rule that lets the next packet overtake one, which waits for at most 10
/// ms. A sender without a processor may send the next packet too late; then the command runs again.
/// If no packet is ever overtaken, the last attempt shows it.
fn overtaken(command: &mut Command) -> Ended {
    let is_spoiled = |said: &Ended| {
        said.code == Some(0) && json(&said.stdout)["points"][0]["counts"]["reordered"] == 0
    };
    again_while("the follower came too late to overtake", || said(command), is_spoiled)
}

/// The receiver knows each message by its immediate data or payload: two are lost, one arrives
/// twice, and one arrives after the next.
#[test]
fn messages_at_a_rate_are_told_apart() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let faults = "drop nth 6,20 of send; duplicate nth 30 of send; reorder nth 40 of send";
    for (transport, op) in [("ud", "send"), ("ud", "send_imm"), ("uc", "send"), ("uc", "send_imm")]
    {
        let mut command = rdmalab(&["run", "blast", "--transport", transport, "--op", op]);
        command.args(["--rate", "2000", "--size", "64", "--messages", "100", "--warm-up", "0"]);
        command.args(["--runs", "1", "--rx-depth", "1024", "--no-record", "--format", "json"]);
        let Ended { code, stdout, stderr, .. } = overtaken(command.args(["--faults", faults]));
        assert_eq!(code, Some(0), "{transport} {op}: {stderr}");
        let point = &json(&stdout)["points"][0];
        let counts = &point["counts"];
        for (name, count) in [("sent", 100), ("lost", 2), ("duplicated", 1), ("strays", 0)] {
            assert_eq!(counts[name], count, "{transport} {op}, {name}: {point}");
        }
        // The second copy of the duplicate may also arrive after a later message.
        let reordered = counts["reordered"].as_u64().unwrap();
        assert!((1..=2).contains(&reordered), "{transport} {op}: {point}");
        let series = point["series"].as_array().unwrap().iter();
        let mut timed = series.filter(|s| s["label"] == "from the intended start");
        assert_eq!(timed.next().unwrap()["n"], 98, "{transport} {op}: {point}");
    }
}

#[test]
fn ctrl_c_leaves_whole_captures() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("run.pcapng");
    let mut run = endless("rc", &["--no-record", "--capture", file.to_str().unwrap()]);
    workers(&mut run);
    signal("-INT", run.id());
    let ended = run.end();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    for file in [file.clone(), of_rank_1(&file)] {
        assert!(packets(&whole(&file)) > 0);
    }
}

#[test]
fn a_server_captures_and_disturbs_its_own_end() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("server.pcapng");
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut serve = rdmalab(&["serve", "--bind", &address, "--faults", "delay 20us of ack"]);
    let mut server = Process::start(serve.arg("--capture").arg(&file));
    server.listens_on(port);
    let mut run = rdmalab(&["run", "ping", "--no-record", "--format", "json", &address]);
    let client = said(run.args(SHORT));
    assert_eq!(client.code, Some(0), "{}", client.stderr);
    let point = &json(&client.stdout)["points"][0];
    assert_eq!(point["facts"]["faults_at_rank_1"], "delay 20us of ack", "{point}");
    assert_eq!(point["facts"]["capture_at_rank_1"], "server.pcapng", "{point}");
    assert_eq!(point["facts"]["faults"], Value::Null, "{point}");
    assert!(point["warnings"].to_string().contains("disturbed on purpose"), "{point}");
    signal("-INT", server.id());
    assert_eq!(server.end().code, Some(0));
    assert!(packets(&whole(&file)) > 300);
}

#[test]
fn perftests_names_take_them_too() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let home = tempfile::tempdir().unwrap();
    let (mine, theirs) = (home.path().join("client.pcapng"), home.path().join("server.pcapng"));
    let port = free_port();
    let name = |file: &Path| file.display().to_string();
    let words = ["ib_send_lat", "-d", "soft0", "-p", &port.to_string(), "-n", "100", "-s", "64"];
    let mut server = rdmalab(&words);
    let mut server = Process::start(server.args(["--capture", &name(&theirs)]));
    server.listens_on(port);
    let mut client = rdmalab(&words);
    client.args(["--capture", &name(&mine), "--faults", "delay 10us of send", "127.0.0.1"]);
    let client = said(&mut client);
    assert_eq!(client.code, Some(0), "{}", client.stderr);
    assert!(client.stderr.contains("disturbed on purpose"), "{}", client.stderr);
    assert_eq!(server.end().code, Some(0));
    for file in [mine, theirs] {
        assert!(packets(&whole(&file)) >= 200);
    }
}

#[test]
fn an_interface_is_an_option_of_a_run() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let port = free_port().to_string();
    let mut command = rdmalab(&["run", "ping", "--interface", "lo", "--udp-port", &port]);
    command.args(["--no-record", "--format", "json"]).args(SHORT);
    let Ended { code, stdout, stderr, .. } = said(&mut command);
    assert_eq!(code, Some(0), "{stderr}");
    // The port of an interface is Ethernet.
    assert!(json(&stdout)["points"][0]["cut_short"].is_null(), "{stdout}");
    let plan =
        said(&mut rdmalab(&["run", "ping", "--plan", "--interface", "lo", "--faults", "drop"]));
    assert!(plan.stdout.contains("device soft0 --interface lo --faults 'drop'"), "{plan:?}");
}

#[test]
fn exec_captures_and_disturbs_an_unmodified_program() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !Path::new("/usr/bin/ibv_rc_pingpong").is_file() {
        let test = "exec_captures_and_disturbs_an_unmodified_program";
        return skipped(test, "no ibv_rc_pingpong (apt install ibverbs-utils)");
    }
    let home = tempfile::tempdir().unwrap();
    let (mine, theirs) = (home.path().join("client.pcapng"), home.path().join("server.pcapng"));
    let port = free_port();
    let exec = |file: &Path, faults: &str| {
        let mut command = rdmalab(&["exec", "--faults", faults, "--capture"]);
        command.arg(file).args(["--", "ibv_rc_pingpong", "-d", "soft0", "-n", "50", "-c"]);
        command.args(["-p", &port.to_string()]);
        command
    };
    let rules = "seed=3; drop 4% of send; duplicate 10% of send";
    let mut server = Process::start(&mut exec(&theirs, "duplicate 10% of send"));
    server.listens_on(port);
    let client = said(exec(&mine, rules).arg("localhost"));
    assert_eq!(client.code, Some(0), "{}{}", client.stdout, client.stderr);
    let server = server.end();
    assert_eq!(server.code, Some(0), "{}{}", server.stdout, server.stderr);
    let found = verdicts(&mine, rules);
    assert!(found.values().any(|comment| !comment.is_empty()), "no rule met a packet");
    let trace = whole(&theirs);
    let mut rows = trace.conversations.iter().flat_map(|conversation| &conversation.rows);
    assert!(rows.all(|row| row.packet.icrc == Icrc::Good));
}

#[test]
fn what_cannot_be_is_said_before_anything_is_measured() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("notes.txt");
    std::fs::write(&file, "not a capture").unwrap();
    let foreign = file.to_str().unwrap();
    for (words, expected) in [
        (
            &["--capture", "/no/such/a.pcapng"][..],
            &["--capture", "/no/such/a.pcapng", "No such"][..],
        ),
        (&["--capture", foreign], &["--capture", "no pcapng capture", "another file"]),
        (&["--interface", "nope0"], &["--interface", "nope0", "there are: ", "lo"]),
        (&["--faults", "loose 1%"], &["--faults", "part 1 (loose 1%)", "drop, duplicate"]),
        (&["--udp-port", "0"], &["--udp-port"]),
    ] {
        let port = format!("127.0.0.1:{}", free_port());
        for command in [
            &["run", "ping", "--no-record", "--messages", "1"][..],
            &["serve", "--bind", &port],
            &["ib_send_lat", "localhost"],
            &["ib_send_lat", "-p", port.rsplit(':').next().unwrap()],
            &["--quick", "--no-record"],
        ] {
            let Ended { code, stdout, stderr, .. } = said(rdmalab(command).args(words));
            assert_eq!(code, Some(2), "{command:?} {words:?}: {stdout}{stderr}");
            for part in expected {
                assert!(stderr.contains(part), "{command:?}: no {part:?} in {stderr}");
            }
            assert_eq!(stdout, "", "{command:?} {words:?}");
        }
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not a capture");
}
