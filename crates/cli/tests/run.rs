//! `rdmalab run`, `serve` and `report` with two real processes on the soft device. No test here
//! checks speed.

mod common;

use common::{Ended, Process, endless, rdmalab, said, signal, workers};
use rdmalab_experiments::{Experiment, Opt, Point, option};
use rdmalab_testing::free_port;
use serde_json::Value;

/// The JSON output of a short run, or its error messages.
fn try_json(arguments: &[&str]) -> Result<Value, String> {
    let mut command = rdmalab(&["run"]);
    command.args(arguments).args(["--no-record", "--format", "json"]);
    let Ended { code, stdout, stderr, .. } = said(&mut command);
    if code != Some(0) {
        return Err(format!("exit code {code:?}: {stderr}"));
    }
    serde_json::from_str(&stdout).map_err(|e| format!("{e}: {stdout}"))
}

/// The JSON output of a short run.
fn json(arguments: &[&str]) -> Value {
    try_json(arguments).unwrap_or_else(|why| panic!("{arguments:?}: {why}"))
}

/// Why a short run measured nothing, or only a part.
fn flaw(arguments: &[&str]) -> Option<String> {
    let result = match try_json(arguments) {
        Ok(result) => result,
        Err(why) => return Some(why),
    };
    let point = &points(&result)[0];
    let is_measured = point["series"].as_array().is_some_and(|s| !s.is_empty());
    let is_whole = is_measured && point["cut_short"] == Value::Null;
    (!is_whole).then(|| point.to_string())
}

fn points(value: &Value) -> &Vec<Value> {
    value["points"].as_array().expect("points")
}

const SHORT: [&str; 6] = ["--messages", "60", "--warm-up", "10", "--runs", "2"];

/// A value besides the default, and the options it needs.
fn other_value(option: &Opt, default: &str) -> (&'static str, &'static [&'static str]) {
    match option.name {
        "size" => ("300", &[]),
        "messages" => ("50", &["--runs", "2", "--warm-up", "10"]),
        "runs" => ("3", &["--messages", "20", "--warm-up", "10"]),
        "duration" => ("20ms", &[]),
        "warm-up" => ("5", &["--messages", "20", "--runs", "2"]),
        "inline" => ("64", &[]),
        "signal-every" => ("4", &["--buffers", "8"]),
        "bidirectional" | "verify" => ("yes", &[]),
        "burst" => ("5", &[]),
        "pause" => ("1us", &[]),
        "buffers" => ("9", &[]),
        "list" => ("3", &[]),
        "qps" => ("2", &[]),
        "mtu" => ("1024", &[]),
        "sl" => ("3", &[]),
        "tx-depth" => ("80", &[]),
        "rx-depth" => ("100", &[]),
        "outstanding-reads" => ("4", &["--op", "read"]),
        "stamp-every" => ("7", &[]),
        "stamps" => ("subm,send,recv,comp,post", &[]),
        "touch" => ("no", &[]),
        "port" | "min-rnr-timer" | "missing" | "peers" => ("1", &[]),
        "gid-index" => ("1", &[]),
        "timeout" => ("12", &[]),
        "retry-cnt" => ("3", &[]),
        "rnr-retry" => ("6", &[]),
        "seed" => ("77", &[]),
        "sim" | "link" => ("profile", &[]),
        "unsignalled" => ("neither", &["--op", "write_read"]),
        "pause-by" => ("sleep", &["--pause", "1us"]),
        "poll" | "poll-send" | "poll-recv" => ("event", &[]),
        "flow" => ("none", &[]),
        "memory" => ("private", &[]),
        "transport" => ("uc", &[]),
        "op" => ("write_imm", &[]),
        "rate" => ("20000", &[]),
        "threads" => ("2", &[]),
        "share-qp" => ("yes", &["--threads", "2", "--op", "write"]),
        "arrivals" => ("constant", &["--rate", "20000"]),
        "call" => ("write", &[]),
        "work" => ("2us", &[]),
        "queue" => ("srq", &[]),
        "max-sge" | "regions" => ("4", &[]),
        "regions-by" => ("turn", &["--regions", "4"]),
        "return" => ("half", &[]),
        "return-when" => ("before", &[]),
        "by" => ("plain", &[]),
        "limit" => ("5s", &[]),
        "absent" => ("lid", &[]),
        "direction" => ("out", &[]),
        "to" => ("group", &["--transport", "ud"]),
        "sizes" => ("series", &[]),
        "lost-after" => ("100ms", &[]),
        "fault" => ("none", &[]),
        "operations" => ("5", &[]),
        "interval" => ("10us", &[]),
        "second-op" => ("send", &[]),
        "second-page" => ("other", &[]),
        "warm" => ("but_first", &["--second-page", "other"]),
        _ => {
            let mut listed = option.words.iter().chain(&["2", "3"]).copied();
            let other = listed.find(|value| *value != default);
            (other.expect("one of the two is another one"), &[])
        }
    }
}

#[test]
fn each_option_of_each_experiment_is_measured_between_two_processes() {
    let mut flaws = Vec::new();
    for experiment in Experiment::all() {
        for opt in experiment.options() {
            let (value, with) = match (experiment.name(), opt.name) {
                // Experiments that wait for answers or receives need a transport without losses.
                ("recvq" | "rpc", "transport") => ("rc", &[][..]),
                ("odp", "op") => ("write", &[][..]),
                _ => other_value(opt, &opt.get(&Point::default_for(experiment))),
            };
            // Only `blast` has this option.
            let with: &[&str] = if with == ["--buffers", "8"] && experiment != Experiment::BLAST {
                &[]
            } else {
                with
            };
            // A READ has no one-way time.
            if experiment == Experiment::ONEWAY && with.contains(&"read") {
                continue;
            }
            let name = format!("--{}", opt.name);
            let mut words = [&[experiment.name(), name.as_str(), value], with].concat();
            // Without a profile no access to memory of a soft device faults.
            if experiment == Experiment::ODP && opt.name != "fault" {
                words.extend(["--fault", "none"]);
            }
            let is_used = |name: &str| option(experiment, name).is_ok();
            let pairs = words[1..].chunks(2).filter(|pair| is_used(pair[0]));
            let mut words: Vec<&str> = words[..1].iter().chain(pairs.flatten()).copied().collect();
            let short = SHORT.chunks(2);
            let short = short.filter(|pair| !words.contains(&pair[0]) && is_used(pair[0]));
            let short: Vec<&str> = short.flatten().copied().collect();
            words.extend(short);
            flaws.extend(flaw(&words).map(|why| format!("{words:?}: {why}")));
        }
    }
    assert!(flaws.is_empty(), "{}", flaws.join("\n"));
}

#[test]
fn a_sweep_measures_what_is_possible_and_lists_the_rest() {
    let words = ["--transport", "rc,uc,ud", "--op", "send,write,read", "--size", "16,8K"];
    // The experiments that send messages all the time, over any transport.
    let is_traffic = |e: &Experiment| option(*e, "threads").is_ok();
    for experiment in Experiment::all().filter(is_traffic).map(Experiment::name) {
        let all = [&[experiment, "--repeat", "2"], &SHORT[..], &words[..]].concat();
        let result = json(&all);
        let skipped = result["skipped"].as_array().unwrap();
        assert_eq!(points(&result).len() + skipped.len(), 36, "{experiment}");
        assert!(points(&result).len() >= 2 * 6, "{experiment}: {skipped:?}");
        // All repetitions of each point, in random order.
        let order: Vec<u64> =
            points(&result).iter().map(|p| p["order_index"].as_u64().unwrap()).collect();
        assert_eq!(order, (0..order.len() as u64).collect::<Vec<_>>());
        let first: Vec<&Value> = points(&result).iter().map(|p| &p["parameters"]).collect();
        assert!(first.windows(2).any(|w| w[0]["size_bytes"] == w[1]["size_bytes"]));
        for skip in skipped {
            assert!(skip["reason"].as_str().is_some_and(|r| r.starts_with("--")), "{skip}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_order_and_another_one_another() {
    let order = |seed: &str| {
        let words = ["ping", "--size", "8..64+8", "--seed", seed];
        let result = json(&[&words[..], &SHORT[..]].concat());
        let sizes = points(&result).iter().map(|p| p["parameters"]["size_bytes"].clone());
        sizes.collect::<Vec<_>>()
    };
    assert_eq!(order("5"), order("5"));
    assert_ne!(order("5"), order("6"));
}

#[test]
fn a_record_is_kept_and_reported_again_in_each_form() {
    let home = tempfile::tempdir().unwrap();
    let mut command = rdmalab(&["run", "ping", "--size", "8,64", "--out"]);
    let first = said(command.arg(home.path()).args(SHORT));
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert!(first.stderr.contains("kept in"), "{}", first.stderr);
    assert!(first.stderr.contains("a stamp costs"), "{}", first.stderr);
    // No progress line and no colours unless the output is a terminal.
    let is_plain = |text: &str| !text.contains(['\u{1b}', '\r']);
    assert!(is_plain(&first.stderr) && is_plain(&first.stdout), "{first:?}");
    let record = std::fs::read_dir(home.path()).unwrap().next().unwrap().unwrap().path();
    let report = |form: &[&str]| {
        let said = said(rdmalab(&["report"]).arg(&record).args(form));
        assert_eq!(said.code, Some(0), "{form:?}: {}", said.stderr);
        said.stdout
    };
    assert_eq!(report(&[]), first.stdout);
    let json: Value = serde_json::from_str(&report(&["--format", "json"])).unwrap();
    assert_eq!(points(&json).len(), 2);
    let csv = report(&["--format", "csv"]);
    assert!(csv.lines().count() >= 3 && csv.contains("size_bytes"), "{csv}");
    // The same record twice stands for two records: one table, whose lines name their record.
    let both = report(&[record.to_str().unwrap(), "--format", "csv"]);
    assert!(both.starts_with("record,experiment,"), "{both}");
    assert_eq!(both.lines().count() - 1, 2 * (csv.lines().count() - 1), "{both}");
    assert!(report(&["--format", "perftest"]).contains("t_typical[usec]"));
    let page = home.path().join("page.html");
    report(&["--html", page.to_str().unwrap()]);
    assert!(std::fs::read_to_string(page).unwrap().contains("<svg"));
}

#[test]
fn a_plan_shows_everything_and_measures_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut command =
        rdmalab(&["run", "oneway", "--size", "8,1M", "--transport", "rc,ud", "--plan"]);
    let plan = said(command.current_dir(home.path()));
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    for option in Experiment::ONEWAY.options() {
        assert!(plan.stdout.contains(&format!("--{} ", option.name)), "no --{}", option.name);
    }
    for part in ["3 measurements", "impossible: --size 1048576", "about", "seed 1", "soft0"] {
        assert!(plan.stdout.contains(part), "no {part:?} in {}", plan.stdout);
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    let plan = said(&mut rdmalab(&["run", "blast", "--plan", "--format", "json"]));
    let value: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(points(&value).len(), 1);
}

#[test]
fn ctrl_c_keeps_and_prints_what_was_measured() {
    let home = tempfile::tempdir().unwrap();
    let mut run = endless("rc", &["--out", home.path().to_str().unwrap()]);
    let workers = workers(&mut run);
    signal("-INT", run.id());
    let Ended { code, stdout, stderr, .. } = run.end();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("interrupted"), "{stderr}");
    assert!(stdout.contains("round trip"), "{stdout}");
    assert!(workers.iter().all(|pid| !common::is_busy(*pid)), "a worker stays");
    let record = std::fs::read_dir(home.path()).unwrap().next().unwrap().unwrap().path();
    let again = said(rdmalab(&["report", "--format", "json"]).arg(record));
    let value: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(points(&value).len(), 1);
    assert!(points(&value)[0]["cut_short"].is_string(), "{value}");
}

/// The CPUs that a process may run on, as `0-1,3`.
fn cpus(pid: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}

#[test]
fn ctrl_c_beside_an_end_that_hangs_keeps_what_was_measured() {
    // The workers' CPUs tell them apart: rank 0 has the times.
    let all = cpus("self");
    let ends: Vec<&str> = all.split(['-', ',']).collect();
    let [first, .., last] = ends[..] else {
        let reason = "needs two CPUs to tell the ranks apart";
        rdmalab_testing::skipped("ctrl_c_beside_an_end_that_hangs_keeps_what_was_measured", reason);
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let cores = format!("{first},{last}");
    let words = ["--out", home.path().to_str().unwrap(), "--cores", &cores];
    let mut run = endless("rc", &words);
    let workers = workers(&mut run);
    let second = workers.iter().find(|pid| cpus(&pid.to_string()) == last).expect("rank 1");
    signal("-STOP", *second);
    signal("-INT", run.id());
    let Ended { code, stdout, stderr, .. } = run.end();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("interrupted"), "{stderr}");
    assert!(stdout.contains("round trip"), "{stdout}");
}

#[test]
fn the_death_of_an_end_is_told_in_a_line() {
    for (transport, dies) in [("rc", 1), ("rc", 0), ("ud", 1)] {
        let mut run = endless(transport, &["--no-record"]);
        let workers = workers(&mut run);
        signal("-KILL", workers[dies]);
        let Ended { code, stderr, .. } = run.end();
        assert_eq!(code, Some(1), "{stderr}");
        let line = stderr.lines().find(|line| line.starts_with("rdmalab:"));
        let line = line.unwrap_or_else(|| panic!("no line in {stderr}"));
        assert!(line.contains("signal 9") && line.contains("rank "), "{line}");
    }
}

#[test]
fn a_client_measures_with_a_server_and_its_parameters_rule() {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut serve = rdmalab(&["serve", "--bind", &address, "--device", "soft1"]);
    let mut server = Process::start(&mut serve);
    server.listens_on(port);
    for size in ["24", "4096"] {
        let words = ["ping", "--device", "soft0", "--size", size, &address];
        let result = json(&[&words[..], &SHORT[..]].concat());
        let point = &points(&result)[0];
        assert_eq!(point["parameters"]["size_bytes"].to_string(), size);
        // The server chooses its own device.
        assert_eq!(point["facts"]["device_at_rank_1"], "soft1", "{point}");
    }
    signal("-INT", server.id());
    let pid = server.id();
    server.within("the server's end", |child| child.try_wait().unwrap());
    let Ended { code, stdout, .. } = server.end();
    assert_eq!(code, Some(0), "{pid}: {stdout}");
    assert_eq!(stdout.matches("begins").count(), 2, "{stdout}");
    // The server has ended.
    let gone = said(&mut rdmalab(&["run", "ping", "--no-record", &address]));
    assert_eq!(gone.code, Some(1), "{}", gone.stderr);
    assert!(gone.stderr.contains("rdmalab serve"), "{}", gone.stderr);
    assert_eq!(gone.stderr.lines().count(), 1, "{}", gone.stderr);
}

/// Raw samples of all series take 8 bytes each, even if several series are derived from them.
#[test]
fn a_sample_costs_eight_bytes_on_the_disk() {
    let each = 220;
    for (words, samples) in [
        ("oneway --runs 1", 2 * each),
        ("oneway --runs 1 --threads 3", 3 * 2 * each),
        ("ping --runs 1 --threads 2", 2 * each),
        // One sample for each run.
        ("blast --runs 4 --threads 3 --size 64", 3 * 4),
        ("fan --ranks 4 --runs 1", 3 * each + each),
        // Two directions, for each of two peers.
        ("fan --ranks 3 --runs 1 --op read", 2 * 2 * each),
        ("fan --ranks 2 --runs 1 --op read", 2 * each),
        ("mr --runs 1", 3 * each),
        ("rpc --ranks 3 --runs 1 --call write", each),
        ("rpc --ranks 3 --runs 1 --call read", each),
    ] {
        let home = tempfile::tempdir().unwrap();
        let mut command = rdmalab(&["run"]);
        command.args(words.split(' ')).args(["--messages", "200", "--warm-up", "20", "--out"]);
        let Ended { code, stderr, .. } = said(command.arg(home.path()));
        assert_eq!(code, Some(0), "{words}: {stderr}");
        let record = std::fs::read_dir(home.path()).unwrap().next().unwrap().unwrap().path();
        let files = std::fs::read_dir(record.join("samples")).unwrap();
        let header = 128;
        let bytes = files.map(|file| file.unwrap().metadata().unwrap().len() - header);
        assert_eq!(bytes.sum::<u64>(), 8 * samples, "{words}");
        // The report still has all series.
        let Ended { code, stdout, .. } =
            said(rdmalab(&["report", "--format", "json"]).arg(&record));
        assert_eq!(code, Some(0), "{words}: {stdout}");
        let value: Value = serde_json::from_str(&stdout).unwrap();
        let point = &points(&value)[0];
        let series = point["series"].as_array().unwrap();
        assert!(series.iter().all(|s| s["n"].as_u64() > Some(0)), "{words}: {point}");
    }
}

/// `overhead` measures calls at the sender, and `ping` round trips; both know what became of the
/// messages.
#[test]
fn lost_and_duplicated_messages_are_in_the_table() {
    for (words, rules, heads, cells) in [
        ("overhead --transport uc --list 1", "drop nth 6,20 of send", "received", "2 (2.00 %)"),
        ("ping --transport ud --rx-depth 64", "duplicate nth 5 of send", "duplicated", "1"),
    ] {
        let mut command = rdmalab(&["run"]);
        command.args(words.split(' ')).args(["--size", "64", "--messages", "100"]);
        command.args(["--warm-up", "0", "--runs", "1", "--no-record", "--faults", rules]);
        let Ended { code, stdout, stderr, .. } = said(&mut command);
        assert_eq!(code, Some(0), "{words}: {stderr}");
        let table = stdout.split_once("\nmessages\n").map_or("", |(_, table)| table);
        let mut lines = table.lines();
        assert!(lines.next().is_some_and(|line| line.contains(heads)), "{words}: {stdout}");
        assert!(lines.next().is_some_and(|line| line.contains(cells)), "{words}: {stdout}");
    }
}
