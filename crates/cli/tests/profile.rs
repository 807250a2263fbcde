//! `--profile`: its names, its effect, and that every result names it.

mod common;

use std::path::Path;

use common::{Ended, Process, rdmalab, said};
use rdmalab_testing::free_port;
use serde_json::Value;

const SHORT: [&str; 8] =
    ["--device", "soft0", "--messages", "100", "--warm-up", "10", "--repeat", "1"];

const MINE: &str = "name = \"mine\"\ntitle = \"t\"\nimitates = \"nothing\"\nlacks = \"all\"\n\
                    rules = [\"delay 20us of send\"]\n[limits]\nmax_inline_data = 16\n";

fn json(said: &Ended) -> Value {
    assert_eq!(said.code, Some(0), "{said:?}");
    serde_json::from_str(&said.stdout).expect("one JSON document")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn profiles_are_listed_and_told() {
    let list = said(&mut rdmalab(&["devices", "--profiles"]));
    assert_eq!(list.code, Some(0), "{list:?}");
    let all = json(&said(&mut rdmalab(&["devices", "--profiles", "--json"])));
    let all = all["profiles"].as_array().expect("a list");
    assert!(all.len() >= 4, "{all:?}");
    for profile in all {
        let line = format!(
            "{:12}  {}",
            profile["name"].as_str().unwrap(),
            profile["title"].as_str().unwrap()
        );
        assert!(list.stdout.lines().any(|found| found == line), "{line}: {}", list.stdout);
    }
    let one = said(&mut rdmalab(&["devices", "--profile", "small-inline"]));
    assert_eq!(one.code, Some(0), "{one:?}");
    for part in [
        "limit: max_inline_data 64",
        "rule: delay 2ms of send,write gathered",
        "known: inline for latency: on is better than off: up to 64 bytes",
        "soft0  (soft, profile small-inline)",
    ] {
        assert!(one.stdout.contains(part), "{part}: {}", one.stdout);
    }
    let one = json(&said(&mut rdmalab(&["devices", "--profile", "late-ack", "--json"])));
    assert_eq!(one["devices"][0]["profile"], "late-ack");
    assert_eq!(one["profile"]["rules"][0], "delay 200us of ack");
    let plain = json(&said(&mut rdmalab(&["devices", "--profile", "ideal", "--json"])));
    assert_eq!((&plain["devices"][0]["profile"], &plain["profile"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_mistake_is_one_that_can_be_mended() {
    let home = tempfile::tempdir().unwrap();
    let broken = home.path().join("broken.toml");
    std::fs::write(&broken, MINE.replace("max_inline_data = 16", "max_inline = 16")).unwrap();
    let high = home.path().join("high.toml");
    std::fs::write(&high, MINE.replace("= 16", "= 5000")).unwrap();
    let (broken, high) = (broken.to_str().unwrap(), high.to_str().unwrap());
    for (asked, parts) in [
        ("late-akc", &["late-akc", "is late-ack meant?", "devices --profiles"][..]),
        ("bluefield", &["bluefield", "ideal, connectx3"]),
        (broken, &["broken.toml: line 7", "unknown field `max_inline`", "`max_inline_data`"]),
        (high, &["high.toml: line 7", "max_inline_data 5000", "0 to 1024"]),
        ("/no/such.toml", &["/no/such.toml", "No such file"]),
    ] {
        for command in [&["run", "ping", "--no-record"][..], &["devices"], &["advise"], &["serve"]]
        {
            let wrong = said(rdmalab(command).args(["--profile", asked]));
            assert_eq!(wrong.code, Some(2), "{command:?}: {wrong:?}");
            let text = one_line(&wrong.stderr);
            assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
        }
        let wrong = said(&mut rdmalab(&["exec", "--profile", asked, "--", "true"]));
        assert!(wrong.code != Some(0) && wrong.stderr.contains("--profile"), "{wrong:?}");
        // With the variable, every command that needs the device reports the error.
        let mut run = rdmalab(&["run", "ping", "--no-record", "--device", "soft0"]);
        let wrong = said(run.env("RDMALAB_PROFILE", asked));
        assert!(wrong.code.is_some_and(|code| code != 0), "{wrong:?}");
        assert!(wrong.stderr.contains("RDMALAB_PROFILE: "), "{wrong:?}");
    }
}

/// A run into `out`, with a table as output; `out` then holds only this record's directory.
fn run(out: &Path, profile: Option<&str>) -> Ended {
    let mut command = rdmalab(&["run", "ping", "--op", "send", "--size", "16"]);
    command.args(SHORT).arg("--out").arg(out);
    command.args(profile.map(|profile| format!("--profile={profile}")));
    let made = said(&mut command);
    assert_eq!(made.code, Some(0), "{made:?}");
    made
}

fn record(out: &Path) -> std::path::PathBuf {
    std::fs::read_dir(out).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn what_was_measured_under_a_profile_says_so_everywhere() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mine.toml");
    std::fs::write(&file, MINE).unwrap();
    let (under, plain) = (home.path().join("under"), home.path().join("plain"));
    let made = run(&under, Some(file.to_str().unwrap()));
    let head = made.stdout.lines().next().unwrap();
    assert!(head.contains("soft0 (soft, profile mine: numbers of this host"), "{head}");
    assert!(!made.stdout.contains("disturbed"), "it is no fault: {}", made.stdout);
    let text = one_line(&made.stdout);
    assert!(text.contains("under the profile mine (max_inline_data 16; delay 20us of"), "{text}");
    assert!(text.contains("of no adapter"), "{text}");
    let dir = record(&under);
    let told = json(&said(rdmalab(&["report", "--format", "json"]).arg(&dir)));
    assert_eq!((&told["device"], &told["device_profile"]), (&"soft0".into(), &"mine".into()));
    let facts = &told["points"][0]["facts"];
    assert_eq!((&facts["profile"], &facts["profile_at_rank_1"]), (&"mine".into(), &"mine".into()));
    let does = &told["environment"]["device"]["profile"];
    assert_eq!(does, "max_inline_data 16; delay 20us of send", "what it did, not its name alone");
    for form in ["csv", "markdown"] {
        let shown = said(rdmalab(&["report", "--format", form]).arg(&dir));
        assert!(shown.stdout.contains("mine"), "{form}: {}", shown.stdout);
    }
    let page = home.path().join("page.html");
    said(rdmalab(&["report"]).arg(&dir).arg("--html").arg(&page));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("soft0 under mine") && page.contains("of the profile mine"), "no label");
    // `ideal` is the device as it is, and has no label.
    let made = run(&plain, Some("ideal"));
    assert!(!made.stdout.contains("profile"), "{}", made.stdout);
    let both = said(rdmalab(&["compare"]).arg(record(&plain)).arg(&dir));
    let text = one_line(&both.stdout);
    let said = "A is under the profile none and B under mine: the difference is one of profiles";
    assert!(text.contains(said), "{both:?}");
    assert!(text.contains("soft0 (soft, profile mine"), "{both:?}");
}

/// The variable has the same effect as the option, and a command's option overrides it.
#[test]
fn programs_are_told() {
    let mut exec = rdmalab(&["exec", "--profile", "small-inline", "--", "sh", "-c"]);
    exec.arg("echo $RDMALAB_PROFILE").env("RDMALAB_PROFILE", "late-ack");
    assert_eq!(said(&mut exec).stdout, "small-inline\n");
    let mut run = rdmalab(&["run", "ping", "--no-record", "--format", "json"]);
    let told = json(&said(run.args(SHORT).env("RDMALAB_PROFILE", "late-ack")));
    assert_eq!(told["device_profile"], "late-ack", "{told:#}");
    let mut plan = rdmalab(&["run", "ping", "--plan", "--profile", "late-ack"]);
    let plan = said(plan.args(["--device", "soft0"]));
    assert!(plan.code == Some(0) && plan.stdout.contains("--profile late-ack"), "{plan:?}");
}

/// `exec` names the profile once, since programs do not; for `ideal` it prints nothing.
#[test]
fn exec_says_under_which() {
    let exec = |profile: &str| said(&mut rdmalab(&["exec", "--profile", profile, "--", "true"]));
    let Ended { code, stderr, .. } = exec("late-ack");
    let says = "rdmalab: exec: soft devices have the profile late-ack (delay 200us of ack): ";
    assert!(code == Some(0) && stderr.starts_with(says) && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(exec("ideal").stderr, "");
    let mut by_variable = rdmalab(&["exec", "--", "true"]);
    assert!(said(by_variable.env("RDMALAB_PROFILE", "late-ack")).stderr.starts_with(says));
}

/// A study under a profile: its records, its commands, and resuming it.
#[test]
fn a_study_has_one_too() {
    let home = tempfile::tempdir().unwrap();
    let (out, studies) = (home.path().join("out"), home.path().join("studies"));
    let dir = studies.join("mine");
    std::fs::create_dir_all(&dir).unwrap();
    let plan = "key = \"mine\"\ntitle = \"t\"\nsource = \"s\"\nhardware = \"h\"\nrepeat = 1\n\
                [[figure]]\nkey = \"f\"\ntitle = \"t\"\n[[figure.sweep]]\n\
                run = \"ping --messages 100 --warm-up 10\"\n";
    std::fs::write(dir.join("plan.toml"), plan).unwrap();
    let claims = "[[claim]]\nkey = 'c'\nsays = 's'\nrelation = '<'\nsource = 'p. 1'\n\
                  left = { figure = 'f', quantity = 'round_trip_ns' }\nright = { value = 1 }\n";
    std::fs::write(dir.join("claims.toml"), claims).unwrap();
    let study = |more: &[&str]| {
        let mut command = rdmalab(&["study", "mine"]);
        said(command.args(more).arg("--out").arg(&out))
    };
    let studies = studies.to_str().unwrap();
    let begin = ["--device", "soft0", "--studies", studies, "--profile", "late-ack"];
    let made = study(&begin);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stdout.contains("soft0 (of kind soft, profile late-ack)"), "{made:?}");
    let part = record(&out).join("f");
    let told = json(&said(rdmalab(&["report", "--format", "json"]).arg(part)));
    assert_eq!(told["device_profile"], "late-ack", "{told:#}");
    let command: Vec<&str> =
        told["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(command.windows(2).any(|two| two == ["--profile", "late-ack"]), "{command:?}");
    // A run can be resumed only under the profile with which it was started.
    assert_eq!(study(&["--resume"]).code, Some(0));
    let other = study(&["--resume", "--profile", "long-line"]);
    assert_eq!(other.code, Some(2), "{other:?}");
    let says = "--profile: --resume continues a run that was started with late-ack";
    assert!(other.stderr.contains(says), "{other:?}");
}

/// The server chooses the profile of its own end.
#[test]
fn each_end_has_its_own() {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut serve = rdmalab(&["serve", "--profile", "late-ack", "--bind", &address]);
    let mut server = Process::start(&mut serve);
    server.listens_on(port);
    let mut run = rdmalab(&["run", "ping", &address, "--no-record", "--format", "json"]);
    let told = json(&said(run.args(SHORT)));
    assert_eq!(told["device_profile"], Value::Null, "{told:#}");
    let facts = &told["points"][0]["facts"];
    assert_eq!(
        (&facts["profile"], &facts["profile_at_rank_1"]),
        (&Value::Null, &"late-ack".into())
    );
    let table = said(rdmalab(&["run", "ping", &address, "--no-record"]).args(SHORT));
    let head = table.stdout.lines().next().unwrap_or_default();
    assert!(head.contains("soft0 (soft") && head.contains("rank 1: profile late-ack"), "{table:?}");
}
