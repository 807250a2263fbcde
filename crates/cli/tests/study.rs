//! `rdmalab study`: a very small form of each shipped study on the soft device, and studies that
//! are killed. No test here checks speed.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use common::{Ended, Process, only, rdmalab, said, study};
use rdmalab_experiments::{Experiment, Point, ResultKind, ResultShape};
use rdmalab_measure::Quantity;
use rdmalab_record::{self as record, Record, word};
use rdmalab_testing::{again_while, find, skipped};
use tempfile::TempDir;

/// One study at a time, because each has two ends that spin.
static ONE: Mutex<()> = Mutex::new(());

/// Runs all of a study's quick form; returns its records and its page.
fn in_quick_form(key: &str) -> (Vec<Record>, String) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let out = tempfile::tempdir().unwrap();
    let Ended { code, stdout, stderr, .. } = study(&out, &[key, "--quick", "--device", "soft0"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    for said in ["what is run", "about", "confirmed", "cannot be seen here", "report.html"] {
        assert!(stdout.contains(said), "{said}: {stdout}");
    }
    assert!(stdout.contains("numbers of this host, not of an adapter"), "{stdout}");
    let begun = |line: &&str| line.starts_with("[1/") && line.ends_with(" left in all)");
    assert!(stderr.lines().any(|line| begun(&line)), "{stderr}");
    let dir = only(out.path());
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("Numbers of this host, not of an adapter"));
    assert!(!page.contains("within the tolerance"), "a soft number is no adapter's");
    assert!(page.len() <= MAX_PAGE_BYTES, "{key}: the page has {} bytes", page.len());
    if let Some(sheets) = sheets(&dir.join("report.html"), out.path()) {
        assert!((1..=MAX_SHEETS).contains(&sheets), "{key}: {sheets} pages on paper");
    }
    let entries = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path());
    let records: Vec<Record> = entries.filter_map(|path| Record::open(&path).ok()).collect();
    assert!(!records.is_empty());
    for record in &records {
        let name = record.dir.display();
        assert_eq!(record.unfinished_points(), 0, "{name}");
        assert!(record.damage.is_empty(), "{name}: {:?}", record.damage);
        assert!(!record.points.is_empty() || !record.skipped.is_empty(), "{name}");
        for point in &record.points {
            assert!(point.cut_short.is_none(), "{name}: {point:?}");
            has_its_results(&record.header.experiment, point);
        }
    }
    (records, page)
}

/// Most bytes of a study's page, and most pages of paper when it is printed.
const MAX_PAGE_BYTES: usize = 1_500_000;
const MAX_SHEETS: usize = 20;
/// After this time the browser counts as hung.
const BROWSER_LIMIT: Duration = Duration::from_secs(60);

/// Pages of paper of a study's page, as a browser prints it; `None` without a browser.
fn sheets(page: &Path, scratch: &Path) -> Option<usize> {
    let Some(browser) = find("chromium") else {
        skipped("a_study_on_paper", "no chromium: apt-get install chromium");
        return None;
    };
    let [profile, printed] = ["profile", "printed.pdf"].map(|name| scratch.join(name));
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg(format!("--print-to-pdf={}", printed.display()));
    command.arg(format!("file://{}", page.display()));
    // Started anew, since the browser sometimes hangs or dies.
    let why = "the browser did not print";
    let print = || {
        Process::start(&mut command).end_by(Instant::now() + BROWSER_LIMIT);
        fs::read(&printed).ok()
    };
    let pdf = again_while(why, print, Option::is_none).expect("the browser prints");
    let is_page = |end: &[u8]| end.strip_prefix(b"/Type /Page").is_some_and(|r| r[0] != b's');
    Some(pdf.windows(12).filter(|end| is_page(end)).count())
}

/// The results that a study relies on, of an experiment or of a program of perftest.
fn results_of(experiment: &str, point: &record::Point) -> &'static [ResultShape] {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| rdmalab_experiments::add(rdmalab_realtime::experiments()).unwrap());
    let Ok(experiment) = experiment.parse::<Experiment>() else {
        return &[(Quantity::HalfRoundTrip, "", ResultKind::OfMessages)];
    };
    let mut measured = Point::default_for(experiment);
    for option in experiment.options() {
        let name = [option.name, option.unit].join("_").replace('-', "_");
        if let Some(value) = point.parameters.get(name.trim_end_matches('_')) {
            option.set(&mut measured, &word(value)).unwrap();
        }
    }
    measured.results()
}

/// Checks that a point has the results that `study/selects.rs` compares claims with.
fn has_its_results(experiment: &str, point: &record::Point) {
    for (quantity, label, kind) in results_of(experiment, point) {
        let series = point.series.iter().any(|s| s.quantity == *quantity && s.label == *label);
        let figure = point.figures.iter().any(|f| f.quantity == *quantity && f.label == *label);
        let is_it = if *kind == ResultKind::Figure { figure && !series } else { series && !figure };
        assert!(is_it, "{experiment}: {quantity:?} {label:?} is no {kind:?} of {point:?}");
    }
}

#[test]
fn potter2018_in_quick_form() {
    let (records, page) = in_quick_form("potter2018");
    let programs = records.iter().filter(|r| r.header.experiment == "ib_send_lat");
    let programs: Vec<&Record> = programs.filter(|r| !r.points.is_empty()).collect();
    if programs.is_empty() {
        let name = "potter2018_in_quick_form, part B";
        return rdmalab_testing::skipped(name, "no ib_send_lat on the soft device");
    }
    for part in ["perftest.default", "perftest.raised", "mtu", "cm"] {
        let has_points = |r: &&&Record| r.dir.file_name().is_some_and(|name| name == part);
        assert!(programs.iter().any(|r| has_points(&r)), "{part} has no points");
    }
    for record in programs {
        // First all points once, then all of them again.
        let rounds: Vec<u32> = record.points.iter().map(|point| point.repetition).collect();
        assert!(rounds.is_sorted() && rounds.contains(&1), "{}: {rounds:?}", record.dir.display());
    }
    let (_, beside) = page.split_once("aria-label=\"Side by side\"").expect("the table of part B");
    let (beside, _) = beside.split_once("</table>").unwrap();
    assert!(beside.contains(">ours / default</th>") && beside.contains(">64 B</th>"), "{beside}");
}

#[test]
fn macarthur2012_in_quick_form() {
    let _ = in_quick_form("macarthur2012");
}

#[test]
fn fukuoka2021_in_quick_form() {
    let _ = in_quick_form("fukuoka2021");
}

/// Figures about an application run the user's own program: this one tells whether it ran with ODP
/// by its exit status, and leaves packets.
#[test]
fn a_figure_about_an_application_runs_the_users_program() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let out = tempfile::tempdir().unwrap();
    let of = |figure: &str, program: &str| {
        let fixed = ["fukuoka2021", "--device", "soft0", "--profile", "connectx4", "--quick"];
        study(&out, &[&fixed[..], &["--figure", figure, "--program", program]].concat())
    };
    let ended = of("6.1", "test \"$UCX_IB_REG_METHODS $RDMALAB_PROFILE\" = \"odp connectx4\"");
    assert_eq!(ended.code, Some(0), "{}", ended.report());
    let dir = only(out.path());
    let record = Record::open(&dir.join("6.1")).unwrap();
    assert_eq!(
        (record.points.len(), record.header.device.title().as_str()),
        (4, "soft0 under connectx4")
    );
    for point in &record.points {
        let has_odp = point.parameters["odp"] == "on";
        assert_eq!(point.is_whole(), has_odp, "{point:?}");
        assert_eq!(point.cut_short.is_none(), has_odp, "{point:?}");
    }
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("$UCX_IB_REG_METHODS"), "the page names the program");
    drop(fs::remove_dir_all(&dir));

    let rdmalab = assert_cmd::cargo::cargo_bin("rdmalab");
    let ping = "run ping --device soft0 --messages 10 --warm-up 0 --runs 1 --no-record";
    let ended = of("6.2", &format!("{} {ping}", rdmalab.display()));
    assert_eq!(ended.code, Some(0), "{}", ended.report());
    let packets = only(out.path()).join("6.2-packets");
    let mut files: Vec<_> = fs::read_dir(&packets).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let ended = said(common::rdmalab(&["diagnose"]).args(&files));
    assert_eq!(ended.code, Some(0), "{}", ended.report());
    assert!(ended.stdout.contains("packets"), "{}", ended.stdout);
    resumed_packets_are_those_of_the_trial_in_the_record(&out, &packets);

    let absent = of("6.4", "/nonexistent");
    assert_eq!(absent.code, Some(1), "{}", absent.report());
    assert!(
        absent.stderr.contains("no trial of --program \"/nonexistent\""),
        "{}",
        absent.report()
    );

    let none = study(&out, &["fukuoka2021", "--device", "soft0", "--figure", "6.5"]);
    assert_eq!(none.code, Some(2), "{}", none.report());
    assert!(none.stdout.contains("your build of the application"), "{}", none.report());
}

/// A study that is complete keeps its packets; one that was killed during the trial does not mix
/// those of the killed trial with new ones.
fn resumed_packets_are_those_of_the_trial_in_the_record(out: &TempDir, packets: &Path) {
    let names = || -> Vec<_> {
        let mut all: Vec<_> =
            fs::read_dir(packets).unwrap().map(|e| e.unwrap().file_name()).collect();
        all.sort();
        all
    };
    let resume = || {
        let ended = study(out, &["fukuoka2021", "--resume"]);
        assert_eq!(ended.code, Some(0), "{}", ended.report());
    };
    let first = (names(), fs::read(packets.join("packets.pcapng")).unwrap());
    resume();
    assert_eq!((names(), fs::read(packets.join("packets.pcapng")).unwrap()), first);
    fs::write(packets.with_file_name("6.2").join("points.jsonl"), "").unwrap();
    let left = ["packets-1.pcapng", "packets.pcapng"].map(|name| packets.join(name));
    left.iter().for_each(|file| fs::write(file, "of the killed trial").unwrap());
    let users = ["notes.txt", "packets-notes.pcapng"].map(|name| packets.join(name));
    users.iter().for_each(|file| fs::write(file, "the user's").unwrap());
    resume();
    assert!(!left[0].exists() && users.iter().all(|file| file.exists()), "{:?}", names());
    assert!(fs::read(&left[1]).unwrap().starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "no new capture");
    assert_eq!(names().len(), first.0.len() + 2, "two more: the user's");
}

#[test]
fn viertel2006_in_quick_form() {
    let _ = in_quick_form("viertel2006");
}

#[test]
fn mordkovich2013_in_quick_form() {
    let _ = in_quick_form("mordkovich2013");
}

#[test]
fn studies_are_listed_and_planned_without_a_record() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let out = tempfile::tempdir().unwrap();
    let Ended { code, stdout, .. } = study(&out, &[]);
    assert_eq!(code, Some(0));
    for key in ["fukuoka2021", "macarthur2012", "mordkovich2013", "potter2018", "viertel2006"] {
        assert!(stdout.contains(key), "{stdout}");
        let Ended { code, stdout, .. } = study(&out, &[key, "--plan", "--device", "soft0"]);
        assert_eq!(code, Some(0), "{key}: {stdout}");
        assert!(stdout.contains("in all"), "{stdout}");
    }
    assert!(fs::read_dir(out.path()).unwrap().next().is_none(), "a plan writes nothing");
}

#[test]
fn wrong_calls_say_what_there_is() {
    let out = tempfile::tempdir().unwrap();
    for (arguments, says) in [
        (vec!["newton1687"], "there are fukuoka2021, "),
        (vec!["potter2018", "--figure", "9"], "it has event, busy"),
        (vec!["potter2018", "--max-time", "soon"], "90s, 10m or 2h"),
        (vec!["potter2018", "--resume"], "--resume=DIR"),
        (vec!["potter2018", "--studies", "/nowhere"], "/nowhere"),
        (vec!["potter2018", "--resume=/"], "--resume: / is not the directory of a study"),
        (vec!["potter2018", "--beside", "/", "--device", "soft0"], "--beside: / is no"),
        (vec!["potter2018", "--profile", "late-akc"], "is late-ack meant?"),
        (vec!["potter2018", "--device", "mlx9_9"], "there is no such device"),
    ] {
        let Ended { code, stderr, .. } = study(&out, &arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(says), "{arguments:?}: {stderr}");
    }
}

/// With round trips of 10 ms, `--quick` announces how long it will take, and chooses its numbers of
/// messages to fit a time limit.
#[test]
fn a_slow_device_is_announced_as_one() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let planned = |more: &[&str]| -> String {
        let out = tempfile::tempdir().unwrap();
        let call = ["macarthur2012", "--plan", "--quick", "--figure", "1", "--device", "soft0"];
        let said = study(&out, &[&call[..], more].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout
    };
    let is_told = |plan: &str| plan.contains("--max-time 2m measures less");
    let slow = planned(&["--profile", "long-line"]);
    assert!(slow.contains("from a short trial of its sweeps") && is_told(&slow), "{slow}");
    assert!(slow.contains(" min in all") || slow.contains(" h in all"), "{slow}");
    assert!(slow.contains("--messages 1000"), "{slow}");
    let cut = planned(&["--profile", "long-line", "--max-time", "1m"]);
    assert!(!cut.contains("--messages 1000") && !is_told(&cut), "{cut}");
}

#[test]
fn a_minute_is_what_is_planned_then() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let out = tempfile::tempdir().unwrap();
    let planned = |more: &[&str]| -> (String, String) {
        let call = [&["potter2018", "--plan", "--device", "soft0"], more].concat();
        let Ended { code, stdout, stderr, .. } = study(&out, &call);
        assert_eq!(code, Some(0), "{stderr}");
        let (_, rest) = stdout.rsplit_once("\nabout ").expect("how long it takes");
        (rest.split_once(" in all").unwrap().0.to_owned(), format!("{stdout}{stderr}"))
    };
    let (whole, plan) = planned(&[]);
    assert!(whole.ends_with(" h"), "pauses of a second: {whole}");
    assert!(!plan.contains("left out"), "{plan}");
    let (cut, plan) = planned(&["--max-time", "1m"]);
    assert!(plan.contains(" points are left out, "), "{plan}");
    let seconds = cut.strip_suffix(" s").unwrap_or_else(|| panic!("{cut}: {plan}"));
    assert!(seconds.parse::<f64>().unwrap() < 130.0, "{cut}: {plan}");
    assert!(plan.contains("--pause 1s") && plan.contains("--messages 6 "), "{plan}");
    if plan.contains("ib_send_lat --transport") {
        let left = "ib_send_lat --transport rc,uc,ud --size 8,4096 --messages 1000";
        assert!(plan.contains(left), "{plan}");
    }
}

#[test]
fn a_study_is_reported_again() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (studies, out) = (own_study(), tempfile::tempdir().unwrap());
    let path = studies.path().display().to_string();
    let call = ["own", "--studies", &path, "--device", "soft0"];
    assert_eq!(study(&out, &call).code, Some(0));
    let dir = only(out.path());
    let page = dir.join("report.html");
    let before = fs::read_to_string(&page).unwrap();
    fs::remove_file(&page).unwrap();
    let name = dir.display().to_string();
    let report = |more: &[&str]| -> Ended { said(rdmalab(&["report", &name]).args(more)) };
    let Ended { code, stdout, stderr, .. } = report(&[]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("1 confirmed, 1 refuted, 1 cannot be seen here"), "{stdout}");
    assert!(stdout.contains("Do that.  not judged"), "{stdout}");
    assert_eq!(fs::read_to_string(&page).unwrap(), before);
    let other = out.path().join("other.html").display().to_string();
    assert_eq!(report(&["--html", &other]).code, Some(0));
    assert_eq!(fs::read_to_string(&other).unwrap(), before);
    let json: serde_json::Value =
        serde_json::from_str(&report(&["--format", "json"]).stdout).unwrap();
    assert_eq!(json["claims"][0]["verdict"], "confirmed", "{json:#}");
    assert_eq!(json["advice"][0]["verdict"], "confirmed", "{json:#}");
    assert_eq!(json["advice"][1]["verdict"], "not judged", "{json:#}");
    assert_eq!(json["parts"][0]["record"]["points"].as_array().unwrap().len(), 16);
    assert_eq!(json["parts"][1]["state"], "not available");
    let csv = report(&["--format", "csv"]).stdout;
    assert!(csv.starts_with("figure,sweep,experiment,device,"), "{csv}");
    assert_eq!(csv.lines().filter(|line| line.starts_with("f,,ping,soft0,")).count(), 16, "{csv}");
    let markdown = report(&["--format", "markdown"]).stdout;
    assert!(markdown.contains("| A wrong one. | refuted | "), "{markdown}");
    assert!(markdown.contains("| Do so. | A claim of ours. | confirmed |"), "{markdown}");
    assert!(before.contains("What the study advises"), "{before}");
    assert!(markdown.contains("## ping on soft0") && markdown.contains("Not available: there is"));
    assert_eq!(report(&["--expect", "round trip median<1ns"]).code, Some(1));
    let Ended { code, stderr, .. } = report(&[&dir.join("f").display().to_string()]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("is the directory of a study: report it alone"), "{stderr}");
    // Without the study's files there is no report on it.
    fs::remove_dir_all(studies.path().join("own")).unwrap();
    assert_eq!(report(&[]).code, Some(2));
}

const OWN: &str = "key = 'own'\ntitle = 'T'\nsource = 'S'\nhardware = 'H'\nrepeat = 2\n\
    [[figure]]\nkey = 'f'\ntitle = 'F'\n[[figure.sweep]]\n\
    run = 'ping --op send,write --size 8..64*2 --messages 400 --warm-up 0'\n\
    [[figure]]\nkey = 'g'\ntitle = 'G'\n[[figure.sweep]]\nrun = 'teleport --size 8'\n";

const CLAIMS: &str = "[[claim]]\nkey = 'grows'\nsays = 'A claim of ours.'\nrelation = '<'\n\
    left = { figure = 'f', quantity = 'round_trip_ns', where = { op = 'send' } }\n\
    right = { value = 1e12 }\nsource = 'p. 1'\n\
    [[claim]]\nkey = 'unseen'\nsays = 'Another.'\nrelation = '<'\n\
    left = { figure = 'g', quantity = 'round_trip_ns' }\nright = { value = 1 }\nsource = 'p. 2'\n\
    [[claim]]\nkey = 'wrong'\nsays = 'A wrong one.'\nrelation = '<'\n\
    left = { figure = 'f', quantity = 'round_trip_ns' }\nright = { value = 1 }\nsource = 'p. 3'\n\
    [[advice]]\nsays = 'Do so.'\nclaim = 'grows'\n\
    [[advice]]\nsays = 'Do that.'\nbecause = 'nobody measured it'\n";

/// A study made by this test: three claims with three different verdicts, without any code.
fn own_study() -> TempDir {
    let studies = tempfile::tempdir().unwrap();
    let dir = studies.path().join("own");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("plan.toml"), OWN).unwrap();
    fs::write(dir.join("claims.toml"), CLAIMS).unwrap();
    studies
}

#[test]
fn a_study_of_ones_own_needs_no_code() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (studies, out) = (own_study(), tempfile::tempdir().unwrap());
    let path = studies.path().display().to_string();
    let call = ["own", "--studies", &path, "--device", "soft0"];
    let Ended { code, stdout, stderr, .. } = study(&out, &call);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("1 confirmed, 1 refuted, 1 cannot be seen here"), "{stdout}");
    assert!(stdout.contains("figure g: there is no experiment teleport yet"), "{stdout}");
    let claims = CLAIMS.replace("figure = 'g'", "figure = 'h'");
    fs::write(studies.path().join("own/claims.toml"), claims).unwrap();
    let Ended { code, stderr, .. } = study(&out, &call);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("own/claims.toml: claim \"unseen\": left: there is no figure \"h\""));
}

/// An interrupt during the trial before the plan begins no study.
#[test]
fn an_interrupted_try_begins_nothing() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let out = tempfile::tempdir().unwrap();
    let call = ["study", "macarthur2012", "--profile", "long-line", "--device", "soft0", "--out"];
    let mut running = Process::start(rdmalab(&call).arg(out.path()));
    // Ten milliseconds per message: the trial takes seconds, and the plan would take hours.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let pid = rustix::process::Pid::from_child(&running.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let status = running.within("its end", |child| child.try_wait().expect("our child"));
    assert!(!status.success());
    assert!(fs::read_dir(out.path()).unwrap().next().is_none(), "nothing was begun");
}

#[test]
fn a_killed_study_goes_on_where_it_stopped() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (studies, out) = (own_study(), tempfile::tempdir().unwrap());
    let plan = OWN.replace("--messages 400", "--messages 100 --pause 2ms --runs 1");
    fs::write(studies.path().join("own/plan.toml"), plan).unwrap();
    let path = studies.path().display().to_string();
    let mut command = rdmalab(&["study", "own", "--studies", &path, "--device", "soft0", "--out"]);
    let mut running = Process::start(command.arg(out.path()));
    let lines = |out: &Path| {
        let dir = fs::read_dir(out).ok()?.next()?.ok()?.path();
        let text = fs::read_to_string(dir.join("f/points.jsonl")).ok()?;
        Some(text.lines().count())
    };
    running.within("a finished point", |_| lines(out.path()).filter(|n| *n > 0));
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let dir = only(out.path()).join("f");
    let before = Record::open(&dir).unwrap();
    assert!(before.unfinished_points() > 0, "it was killed too late");
    let Ended { code, stdout, stderr, .. } = study(&out, &["own", "--resume"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let after = Record::open(&dir).unwrap();
    assert_eq!(after.unfinished_points(), 0);
    assert_eq!(after.points.len(), 16);
    let kept = &after.points[..before.points.len()];
    assert_eq!(format!("{kept:?}"), format!("{:?}", before.points));
    let mut orders: Vec<u64> = after.points.iter().map(|p| p.order_index).collect();
    orders.sort_unstable();
    assert_eq!(orders, (0..16).collect::<Vec<_>>(), "each point once");
}

/// Behaves like perftest on a busy machine: it gives up, then divides by a clock of zero.
const DISTURBED: &str = r#"#!/bin/sh
for last; do :; done
[ "$last" = 127.0.0.1 ] || exec sleep 600
echo x >> "$0.calls"
case $(wc -l < "$0.calls") in
1) echo "Can't produce a report" >&2; exit 1 ;;
2) echo "1, inf"; echo "2, -nan" ;;
*) echo "1, 1.5"; echo "2, 1.25"; echo "3, 2" ;;
esac
"#;

#[test]
fn a_call_that_others_disturbed_is_made_again() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (studies, out, bin) = (own_study(), tempfile::tempdir().unwrap(), tempfile::tempdir());
    let bin = bin.unwrap();
    let run = "ib_send_lat --transport rc --size 8 --messages 100";
    let plan = OWN.replace("ping --op send,write --size 8..64*2 --messages 400 --warm-up 0", run);
    fs::write(studies.path().join("own/plan.toml"), plan.replace("repeat = 2", "repeat = 1"))
        .unwrap();
    fs::remove_file(studies.path().join("own/claims.toml")).unwrap();
    // Copied by another process, so that no child of our threads has the program open for writing.
    let (text, program) = (bin.path().join("text"), bin.path().join("ib_send_lat"));
    fs::write(&text, DISTURBED).unwrap();
    let copied = said(Command::new("install").args(["-m", "755"]).args([&text, &program]));
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let mut command = rdmalab(&["study", "own", "--device", "soft0", "--studies"]);
    command.arg(studies.path()).arg("--out").arg(out.path());
    let path = std::env::var("PATH").unwrap();
    let made = said(command.env("PATH", format!("{}:{path}", bin.path().display())));
    assert_eq!(made.code, Some(0), "{made:?}");
    let record = Record::open(&only(out.path()).join("f")).unwrap();
    assert!(record.skipped.is_empty(), "{:?}", record.skipped);
    let [point] = record.points.as_slice() else { panic!("{:?}", record.points) };
    let series = &point.series[0];
    assert_eq!((series.summary.n, series.summary.max), (3, 2000.0), "{point:?}");
    let calls = fs::read_to_string(bin.path().join("ib_send_lat.calls")).unwrap();
    assert_eq!(calls.lines().count(), 3);
}

#[test]
fn a_record_of_another_version_is_not_gone_on_with() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (studies, out) = (own_study(), tempfile::tempdir().unwrap());
    let path = studies.path().display().to_string();
    let whole = study(&out, &["own", "--studies", &path, "--device", "soft0"]);
    assert_eq!(whole.code, Some(0), "{}{}", whole.stdout, whole.stderr);
    let dir = only(out.path()).join("f");
    let header = fs::read_to_string(dir.join("record.json")).unwrap();
    let ours = format!("\"schema_version\": {}", rdmalab_record::SCHEMA_VERSION);
    assert!(header.contains(&ours), "{header}");
    fs::write(dir.join("record.json"), header.replace(&ours, "\"schema_version\": 3")).unwrap();
    // For a complete study the page is written again.
    let again = study(&out, &["own", "--resume"]);
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);
    // With a point missing it would get lines of a newer version than its header names.
    let points = fs::read_to_string(dir.join("points.jsonl")).unwrap();
    let (all_but_one, _) = points.trim_end().rsplit_once('\n').unwrap();
    fs::write(dir.join("points.jsonl"), format!("{all_but_one}\n")).unwrap();
    let refused = study(&out, &["own", "--resume"]);
    assert_eq!(refused.code, Some(2), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("is a record of version 3"), "{}", refused.stderr);
    assert!(refused.stderr.contains("measure again in another directory"), "{}", refused.stderr);
    let left = fs::read_to_string(dir.join("points.jsonl")).unwrap();
    assert_eq!(left, format!("{all_but_one}\n"), "nothing was added");
}

#[test]
fn what_was_meant_is_said_of_a_study_and_of_a_figure() {
    for (arguments, meant) in [
        (&["study", "viertel", "--plan"][..], "; did you mean viertel2006?"),
        (&["study", "mordkovitch2013", "--plan"], "; did you mean mordkovich2013?"),
        (
            &["study", "mordkovich2013", "--plan", "--figure", "cluster"],
            "did you mean clusterperf?",
        ),
    ] {
        let found = said(&mut rdmalab(arguments));
        assert_eq!(found.code, Some(2), "{found:?}");
        assert!(found.stderr.contains(meant), "{found:?}");
    }
    let other = said(&mut rdmalab(&["study", "nothing", "--plan"]));
    assert!(other.stderr.contains("there are ") && !other.stderr.contains("mean"), "{other:?}");
}

/// Four values of the round trip of a simulated device, by two numbers.
const VALUES: &str = "metric,value,unit,tolerance,kind,place,what\n\
    chosen,1,ms,factor 2,calibration,p. 1,w\nnear,3,us,factor 1000,calibration,p. 2,w\n\
    far,1,ms,5%,calibration,p. 3,w\ndoubt,1,us,,contested,p. 4,w\n\
    gone,1,us,5%,calibration,p. 5,w\n";

#[test]
fn values_have_verdicts_and_a_model_does_not_predict_what_calibrated_it() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (studies, out) = (own_study(), tempfile::tempdir().unwrap());
    let own = studies.path().join("own");
    fs::write(own.join("published.csv"), VALUES).unwrap();
    let value = |(metric, op, size): (&str, &str, u64)| {
        format!(
            "[[value]]\nmetric='{metric}'\nours={{figure='f', quantity='round_trip_ns', \
             where={{op='{op}', size_bytes={size}}}}}\n"
        )
    };
    let values = [("chosen", "send", 8), ("near", "write", 8), ("far", "send", 64)];
    let values = values.into_iter().chain([("doubt", "write", 64), ("gone", "send", 9)]);
    let claims = format!("{CLAIMS}{}", values.map(value).collect::<String>());
    fs::write(own.join("claims.toml"), claims).unwrap();
    let ideal = include_str!("../../../profiles/sim/ideal.toml");
    let (head, rest) = ideal.split_once("post_ns = { is = 100, mark = \"prior\", from = ").unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    let from = "own: chosen 1 ms";
    let model =
        format!("{head}post_ns = {{ is = 100, mark = \"calibrated\", from = \"{from}\" }}\n{rest}");
    let profile = studies.path().join("mine.toml");
    fs::write(&profile, model).unwrap();
    let plan = fs::read_to_string(own.join("plan.toml")).unwrap();
    let plan = format!("sim.profile = '{}'\n{plan}", profile.display());
    fs::write(own.join("plan.toml"), plan).unwrap();
    let path = studies.path().display().to_string();
    let device = format!("sim:{}", profile.display());
    let Ended { code, stdout, stderr, .. } =
        study(&out, &["own", "--studies", &path, "--device", &device]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let summary = "1 predicted within, 1 predicted outside, 1 contested, \
                   1 calibrated yet outside, 1 not measured";
    assert!(stdout.contains(summary), "{stdout}");
    let at = |text: &str| stdout.find(text).unwrap_or_else(|| panic!("no {text} in {stdout}"));
    assert!(at(" far  ") < at(" chosen ") && at(" chosen ") < at(" near "), "{stdout}");
    assert!(at(" near ") < at(" doubt "), "{stdout}");
    assert!(!stdout.contains(" gone "), "{stdout}");

    // The directory knows which values calibrated the model when the profile is gone.
    fs::remove_file(&profile).unwrap();
    let dir = only(out.path());
    let values = fs::read_to_string(dir.join("values.csv")).unwrap();
    assert!(values.contains("predicted, within") && values.ends_with('\n'), "{values}");
    assert_eq!(values.lines().count(), 6, "{values}");
    let again = said(&mut rdmalab(&["report", &dir.display().to_string()]));
    assert!(again.stdout.contains(summary), "{}{}", again.stdout, again.stderr);
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("<tr class=\"calibrated\">") && page.contains("not measured"));

    let soft = tempfile::tempdir().unwrap();
    let on_soft = study(&soft, &["own", "--studies", &path, "--device", "soft0"]).stdout;
    assert!(on_soft.contains("here: a soft device was measured"), "{on_soft}");
    assert!(on_soft.contains("3 shown only") && !on_soft.contains("calibrated"), "{on_soft}");
}
