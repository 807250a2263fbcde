//! Records on a real disk: round trips, old versions, torn and foreign ones, full disks, kills.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rdmalab_measure::outcome::Combination;
use rdmalab_measure::{Outcome, Quantity, Series};
use rdmalab_record::{
    ClockFacts, Device, DeviceKind, Environment, Error, Finding, Header, Number, Object, Point,
    PointId, Record, Samples, SeriesSummary, Skipped, SourceFile, Writer, write_npy,
};
use serde_json::json;

fn device() -> Device {
    Device { name: "soft0".to_owned(), kind: DeviceKind::Soft, profile: None }
}

fn header() -> Header {
    let command = ["rdmalab", "run", "ping", "--size", "8,64"].map(str::to_owned).to_vec();
    Header {
        seed: u64::MAX,
        planned_points: 4,
        condition: Some("quiet".to_owned()),
        held_dma_latency_us: Some(0),
        ..Header::new("ping", command, device())
    }
}

fn environment() -> Environment {
    let clock = ClockFacts {
        source: "fenced TSC".to_owned(),
        fallback_reason: None,
        stamp_cost_ns: 14.25,
        relative_error: 1e-6,
    };
    Environment { kernel: Some("6.1.0".to_owned()), clock: Some(clock), ..Environment::default() }
}

fn parameters(size_bytes: u64) -> Object {
    let value = json!({ "transport": "rc", "opcode": "send", "size_bytes": size_bytes });
    value.as_object().unwrap().clone()
}

fn id(size_bytes: u64, order_index: u64) -> PointId {
    PointId {
        parameters: parameters(size_bytes),
        repetition: 1,
        order_index,
        started: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        elapsed: Duration::from_micros(1500),
    }
}

fn outcome(n: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let mut samples: Vec<f64> = (0..n).map(|i| 1000.1 + (i * 7 % 5) as f64).collect();
    samples.push(f64::NAN);
    outcome.push_series(Quantity::OneWay, "t_lat", 2, samples);
    outcome.date_largest(|i| Some(i as u64 * 100));
    outcome.set_times(|ticks| Some(1_700_000_000_123_000_000 + ticks));
    outcome.push_series(Quantity::PostCost, "rank 0/../x", 0, vec![0.1 + 0.2; 3]);
    outcome.push_series(Quantity::PostCost, "rank 0_.._x", 0, vec![]);
    outcome.push_derived(Quantity::PostCost, "both", Combination::Joined, &[1, 2]);
    outcome.push_figure(Quantity::CpuShare, "rank 0", 1.0);
    outcome.push_figure(Quantity::Rate, "", f64::NAN);
    outcome.push_count("lost", 1);
    outcome.push_fact("placement", "lane");
    outcome.warnings.push("inline was not granted: 220 asked, 0 given".to_owned());
    outcome.cut_short = Some("interrupted".to_owned());
    outcome
}

fn skipped() -> Skipped {
    Skipped {
        order_index: 2,
        repetition: 0,
        parameters: parameters(1 << 20),
        reason: "UD carries at most one MTU: 4096 bytes".to_owned(),
    }
}

fn written(parent: &Path) -> Writer {
    let mut writer = Writer::create(parent, header(), &environment()).unwrap();
    writer.append(&id(8, 0), &outcome(30)).unwrap();
    writer.skip(&skipped()).unwrap();
    writer.append(&id(64, 1), &outcome(40)).unwrap();
    writer
}

/// Compares as text, because NaN is not equal to itself.
fn same(a: &impl std::fmt::Debug, b: &impl std::fmt::Debug) {
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
}

fn spoil(record: &Path, file: &str, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().append(true).open(record.join(file)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn what_is_written_is_read() {
    let parent = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(parent.path(), header(), &environment()).unwrap();
    let first = writer.append(&id(8, 0), &outcome(30)).unwrap();
    writer.skip(&skipped()).unwrap();
    let second = writer.append(&id(64, 1), &outcome(40)).unwrap();
    let record = Record::open(writer.dir()).unwrap();
    assert_eq!(record.header, *writer.header());
    assert_eq!(record.environment["clock"]["stamp_cost_ns"], 14.25);
    same(&record.points, &vec![first, second]);
    assert_eq!(record.skipped, [skipped()]);
    assert_eq!((record.damage.len(), record.unfinished_points()), (0, 1));

    let point = &record.points[0];
    assert_eq!(point.parameters.keys().collect::<Vec<_>>(), ["transport", "opcode", "size_bytes"]);
    assert_eq!((point.count("lost"), point.fact("placement")), (Some(1), Some("lane")));
    assert!(point.figure(Quantity::Rate).unwrap().is_nan());
    assert_eq!(point.started_utc, "2023-11-14T22:13:20.123Z");
    same(&record.samples(&point.series[0]).unwrap(), &outcome(30).series[0].samples);
    assert_eq!(record.samples(&point.series[1]).unwrap(), [0.1 + 0.2; 3]);
    // Labels that are unfit for file names, or would give equal names, still get separate files.
    assert_ne!(file_of(&point.series[1]), file_of(&point.series[2]));
    let on_disk = fs::metadata(writer.dir().join(file_of(&point.series[0]))).unwrap().len();
    assert_eq!(on_disk, 128 + 31 * 8);
}

fn file_of(series: &SeriesSummary) -> &str {
    match &series.samples {
        Samples::File(name) => name,
        other => panic!("no file of its own: {other:?}"),
    }
}

/// All kinds of derived series, and one whose values contradict its derivation. Each measured
/// sample is on the disk exactly once.
#[test]
fn no_sample_is_kept_twice() {
    let parent = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(parent.path(), header(), &environment()).unwrap();
    let of = |samples: &[f64]| Series::new(Quantity::OneWay, "", 1, samples.to_vec());
    let mut outcome = Outcome::default();
    let measured = [of(&[1.0, 2.0, f64::NAN]), of(&[0.1, 5.0, 7.0])];
    outcome.push_with_parts(Quantity::OneWay, "all", Combination::Joined, measured.to_vec());
    outcome.push_derived(Quantity::OneWay, "sum", Combination::Sum, &[1, 2]);
    outcome.push_derived(Quantity::OneWay, "largest", Combination::Largest, &[2, 1]);
    outcome.push_derived(Quantity::OneWay, "of what follows", Combination::Sum, &[3, 4]);
    outcome.push_derived(Quantity::OneWay, "not so", Combination::Sum, &[1, 2]);
    outcome.series[6].samples[1] = 8.0;
    writer.append(&id(8, 0), &outcome).unwrap();

    let record = Record::open(writer.dir()).unwrap();
    assert_eq!(record.damage, Vec::<String>::new());
    let point = &record.points[0];
    let has_file = |s: &SeriesSummary| matches!(s.samples, Samples::File(_));
    let files: Vec<bool> = point.series.iter().map(has_file).collect();
    assert_eq!(files, [false, true, true, false, false, true, true]);
    let samples = writer.dir().join("samples");
    assert_eq!(fs::read_dir(&samples).unwrap().count(), 4);
    for (kept, measured) in point.series.iter().zip(&outcome.series) {
        same(&record.samples(kept).unwrap(), &measured.samples);
        same(&record.counted_samples(kept).unwrap(), &measured.counted().collect::<Vec<_>>());
    }
    // A missing file that several series need is reported once. One with another length is refused.
    fs::write(samples.join("x"), b"").unwrap();
    let part = writer.dir().join(file_of(&point.series[1]));
    write_npy(fs::File::create(&part).unwrap(), &[1.0]).unwrap();
    assert!(matches!(record.samples(&point.series[3]), Err(Error::Foreign { .. })));
    fs::remove_file(part).unwrap();
    let damage = Record::open(writer.dir()).unwrap().damage;
    assert!(damage.len() == 1 && !damage[0].contains("more"), "{damage:?}");
}

#[test]
fn units_stand_in_the_names() {
    let parent = tempfile::tempdir().unwrap();
    let writer = written(parent.path());
    let text = fs::read_to_string(writer.dir().join("points.jsonl")).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert!(line["series"][0]["min_ns"].is_f64() && line["series"][0]["max_ns"].is_f64());
    assert!(line["series"][0]["quantiles"][3]["value_ns"].is_f64());
    assert_eq!(line["figures"][0]["cpu_share"], 1.0);
    assert!(line["figures"][1]["rate_per_s"].is_null());
    assert_eq!(line["elapsed_s"], 0.0015);
}

#[test]
fn nothing_is_overwritten() {
    let parent = tempfile::tempdir().unwrap();
    let header = header();
    let make = || Writer::create(parent.path(), header.clone(), &environment()).unwrap();
    let (one, two, three) = (make(), make(), make());
    assert_ne!(one.dir(), two.dir());
    assert!(three.dir().to_str().unwrap().ends_with("Z-3"), "{:?}", three.dir());
    let again = Writer::create_at(one.dir(), header.clone(), &environment()).unwrap_err();
    assert!(again.to_string().contains("never overwritten"), "{again}");
    let nowhere = Writer::create(&parent.path().join("no/where"), header, &environment());
    assert!(matches!(nowhere, Err(Error::Create { .. })));
}

/// A kill between the first and the last file of a record leaves a directory, in the form of this
/// version or an older one. It must not block the place for ever.
#[test]
fn what_was_begun_and_is_no_record_is_cleared() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("part");
    let begun = parent.path().join("part.begun");
    let create = || Writer::create_at(&dir, header(), &environment());
    for half in [&begun, &dir] {
        fs::create_dir_all(half.join("samples")).unwrap();
        fs::write(half.join("environment.json"), "{}").unwrap();
        fs::write(half.join("record.json.partial"), "{").unwrap();
        assert!(create().is_err(), "{half:?}");
        Writer::clear(&dir).unwrap();
        assert!(!half.exists(), "{half:?}");
    }
    let mut writer = Writer::create_at(&dir.join(""), header(), &environment()).unwrap();
    assert!(!begun.exists());
    writer.append(&id(8, 0), &outcome(30)).unwrap();
    Writer::clear(&dir).unwrap();
    assert_eq!(Record::open(&dir).unwrap().points.len(), 1, "a record stays");
    let other = parent.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("thesis.tex"), "").unwrap();
    Writer::clear(&other).unwrap();
    assert!(other.join("thesis.tex").exists());
    // A second record that is being made keeps its name.
    fs::create_dir(&begun).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    assert!(matches!(create(), Err(Error::Create { .. })) && !dir.exists());
}

#[test]
fn a_torn_line_costs_that_line() {
    let parent = tempfile::tempdir().unwrap();
    let writer = written(parent.path());
    let whole = Record::open(writer.dir()).unwrap();
    spoil(writer.dir(), "points.jsonl", b"{\"number\": 2, \"order_in");
    let torn = Record::open(writer.dir()).unwrap();
    same(&torn.points, &whole.points);
    assert_eq!(torn.damage, ["the last line of points.jsonl is incomplete and was left out"]);
    // Lines appended after the torn one are read, unless they are damaged as well.
    spoil(writer.dir(), "points.jsonl", b"\n{}\n");
    let worse = Record::open(writer.dir()).unwrap();
    assert_eq!((worse.points.len(), worse.damage.len()), (2, 2));
    assert!(worse.damage[1].starts_with("line 4 of points.jsonl was left out"), "{worse:?}");
}

#[test]
fn cut_anywhere_the_points_before_stay() {
    let parent = tempfile::tempdir().unwrap();
    let writer = written(parent.path());
    let path = writer.dir().join("points.jsonl");
    let bytes = fs::read(&path).unwrap();
    let first = bytes.iter().position(|b| *b == b'\n').unwrap();
    for cut in (0..=bytes.len()).step_by(7).chain([first, first + 1, bytes.len() - 1]) {
        fs::write(&path, &bytes[..cut]).unwrap();
        let points = Record::open(writer.dir()).unwrap().points.len();
        // A line that lacks only its line break is complete.
        let expected = usize::from(cut >= first) + usize::from(cut >= bytes.len() - 1);
        assert_eq!(points, expected, "cut at {cut}");
    }
}

#[test]
fn missing_pieces_are_named() {
    let parent = tempfile::tempdir().unwrap();
    let writer = written(parent.path());
    let record = Record::open(writer.dir()).unwrap();
    fs::remove_file(writer.dir().join(file_of(&record.points[0].series[0]))).unwrap();
    fs::remove_file(writer.dir().join("environment.json")).unwrap();
    fs::remove_file(writer.dir().join("skipped.jsonl")).unwrap();
    let lame = Record::open(writer.dir()).unwrap();
    assert_eq!(lame.points.len(), 2);
    let all = lame.damage.join("\n");
    for name in ["samples/000000-one_way_ns-t_lat.npy", "environment.json", "skipped.jsonl"] {
        assert!(all.contains(name), "{all}");
    }
    assert!(matches!(lame.samples(&lame.points[0].series[0]), Err(Error::Read { .. })));
}

#[test]
fn a_name_in_a_record_leads_nowhere_else() {
    let parent = tempfile::tempdir().unwrap();
    let writer = written(parent.path());
    let record = Record::open(writer.dir()).unwrap();
    let mut series = record.points[0].series[0].clone();
    for name in ["/etc/passwd", "../record.json", "samples/../record.json", "samples", "samples/"] {
        let part = SourceFile { samples_file: name.to_owned(), warm_up: 0 };
        let derived = Samples::Derived { how: Combination::Joined, parts: vec![part] };
        for samples in [Samples::File(name.to_owned()), derived] {
            series.samples = samples;
            assert!(matches!(record.samples(&series), Err(Error::Foreign { .. })), "{name}");
        }
    }
}

#[test]
fn a_link_in_place_of_a_file_is_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let writer = written(home.path());
    let dir = writer.dir();
    let record = Record::open(dir).unwrap();
    let series = record.points[0].series[0].clone();
    let file = dir.join(file_of(&series));
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    let refused = record.samples(&series).unwrap_err().to_string();
    assert!(refused.contains("not a regular file"), "{refused}");
    let points = dir.join("points.jsonl");
    fs::remove_file(&points).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &points).unwrap();
    let refused = Record::open(dir).unwrap_err().to_string();
    assert!(refused.contains("not a regular file"), "{refused}");
}

#[test]
fn strangers_and_the_future_are_refused_in_one_line() {
    let parent = tempfile::tempdir().unwrap();
    let open = |text: &str| {
        fs::write(parent.path().join("record.json"), text).unwrap();
        Record::open(parent.path()).unwrap_err().to_string()
    };
    let newer = open(
        r#"{"schema":"rdmalab-record","schema_version":7,"program_version":"9.1.0","new":[]}"#,
    );
    assert!(newer.contains("version 7, written by rdmalab 9.1.0"), "{newer}");
    assert!(newer.contains("reads versions 1 to 5"), "{newer}");
    for text in ["{}", "[]", "{\"schema\":\"other\"}", "{\"schema\":\"rdmalab-record\"}", "", "x"] {
        let error = open(text);
        assert!(!error.contains('\n') && error.contains("is not part of a run record"), "{error}");
    }
    let empty = tempfile::tempdir().unwrap();
    let none = Record::open(empty.path()).unwrap_err().to_string();
    assert!(none.ends_with("it has no record.json"), "{none}");
    let none = Record::open(&parent.path().join("nowhere")).unwrap_err().to_string();
    assert!(none.ends_with("nowhere: there is no such directory"), "{none}");
}

/// Checks what the golden records of all versions have in common.
fn check_golden(version: u32) -> Record {
    let golden = format!("{}/tests/version-{version}", env!("CARGO_MANIFEST_DIR"));
    let record = Record::open(Path::new(&golden)).unwrap();
    assert_eq!(record.damage, Vec::<String>::new());
    assert_eq!((record.header.schema_version, record.header.seed), (version, u64::MAX));
    let profile = (version >= 5).then(|| "late-ack".to_owned());
    assert_eq!(record.header.device, Device { profile, ..device() });
    assert_eq!(record.environment["kernel"], "6.1.0");
    assert_eq!((record.points.len(), record.skipped.len()), (2, 1));
    assert_eq!(record.skipped[0], skipped());
    let point = &record.points[0];
    assert_eq!((point.order_index, point.repetition), (0, 1));
    assert_eq!(point.parameters, parameters(8));
    let summary = &point.series(Quantity::OneWay, "t_lat").unwrap().summary;
    assert_eq!((summary.n, summary.warm_up, summary.lost), (28, 2, 1));
    assert_eq!((summary.min, summary.max, summary.max_index), (1000.1, 1004.1, Some(2)));
    let median = summary.quantile(0.5).unwrap();
    assert!(median.supported && median.interval.unwrap().covers(median.value));
    assert_eq!(point.cut_short.as_deref(), Some("interrupted"));
    same(&record.samples(&point.series[0]).unwrap(), &outcome(30).series[0].samples);
    record
}

#[test]
fn records_of_version_1_stay_readable() {
    let record = check_golden(1);
    assert_eq!((record.header.condition, record.header.held_dma_latency_us), (None, None));
    let summary = &record.points[0].series[0].summary;
    assert_eq!((summary.effective_n, summary.largest.len()), (None, 0));
}

#[test]
fn records_of_version_2_stay_readable() {
    let record = check_golden(2);
    assert_eq!(record.header.condition.as_deref(), Some("quiet"));
    assert_eq!(record.header.held_dma_latency_us, Some(0));
    let summary = &record.points[0].series[0].summary;
    assert!(summary.effective_n.is_some_and(|n| n > 0.0 && n <= 28.0), "{summary:?}");
    let largest = summary.largest[0];
    assert_eq!((largest.index, largest.value), (2, 1004.1));
    assert_eq!(largest.unix_ns, Some(1_700_000_000_123_000_200));
    assert_eq!(record.findings, None, "nobody concluded anything");
}

#[test]
fn records_of_version_3_stay_readable() {
    let record = check_golden(3);
    assert_eq!(record.findings, Some(vec![finding()]));
    assert!(record.points[0].series[0].summary.quantile(0.1).is_none());
}

#[test]
fn records_of_version_4_stay_readable() {
    let record = check_golden(4);
    assert_eq!(record.findings, Some(vec![finding()]));
    assert!(record.points[0].series[0].summary.quantile(0.1).is_some_and(|q| q.value == 1000.1));
}

#[test]
fn records_of_version_5_stay_readable() {
    let record = check_golden(5);
    // A record written today equals this golden record, but for how intervals are computed.
    let without_intervals = |points: &[Point]| {
        let mut points = points.to_vec();
        let series = points.iter_mut().flat_map(|point| &mut point.series);
        series.flat_map(|s| &mut s.summary.quantiles).for_each(|q| q.interval = None);
        points
    };
    let parent = tempfile::tempdir().unwrap();
    let mut writer = written(parent.path());
    writer.conclude(&[finding()]).unwrap();
    let today = Record::open(writer.dir()).unwrap();
    same(&without_intervals(&today.points), &without_intervals(&record.points));
    assert_eq!(today.findings, record.findings);
    let lines = |dir: &Path| fs::read_to_string(dir.join("findings.jsonl")).unwrap();
    assert_eq!(lines(&today.dir), lines(&record.dir));
    assert_eq!(today.header.schema_version, 5, "a new version needs a golden record of its own");
}

fn finding() -> Finding {
    Finding {
        name: "crossover".to_owned(),
        unit: "bytes".to_owned(),
        value: Some(2048.5),
        low: Some(1024.0),
        high: None,
        along: Some("size_bytes".to_owned()),
        parameters: json!({ "opcode": "send" }).as_object().unwrap().clone(),
        points: vec![0, 1],
        sentence: "registering is cheaper from 2048 bytes on".to_owned(),
        ..Finding::default()
    }
}

#[test]
fn a_conclusion_is_of_the_points_that_there_were() {
    let parent = tempfile::tempdir().unwrap();
    let mut writer = written(parent.path());
    let read = |writer: &Writer| Record::open(writer.dir()).unwrap();
    assert_eq!(read(&writer).findings, None);
    writer.conclude(&[]).unwrap();
    assert_eq!(read(&writer).findings, Some(Vec::new()), "nothing was found");
    // After another point, an earlier conclusion no longer applies.
    writer.append(&id(512, 3), &outcome(20)).unwrap();
    assert_eq!(read(&writer).findings, None);
    let mut writer = Writer::resume(&read(&writer)).unwrap();
    writer.conclude(&[finding(), finding()]).unwrap();
    assert_eq!(read(&writer).findings, Some(vec![finding(); 2]));
    let file = writer.dir().join("findings.jsonl");
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2, "nothing is overwritten");
    // A conclusion that is torn is ignored; the previous one applies.
    spoil(writer.dir(), "findings.jsonl", b"{\"points_n\":3,\"fin");
    let torn = read(&writer);
    assert_eq!(torn.findings, Some(vec![finding(); 2]));
    assert!(torn.damage[0].contains("findings.jsonl is incomplete"), "{:?}", torn.damage);
    writer.conclude(&[finding()]).unwrap();
    let mended = read(&writer);
    assert_eq!((mended.findings, mended.damage), (Some(vec![finding()]), Vec::new()));
}

#[test]
fn the_numbers_of_a_finding_come_back() {
    let parent = tempfile::tempdir().unwrap();
    let mut writer = written(parent.path());
    let base = Number { name: "base_ns".to_owned(), value: Some(3150.5), low: None, high: None };
    let at = Number { value: None, low: Some(15.0), high: Some(16.0), ..base.clone() };
    let numbers = vec![base, Number { name: "at_messages".to_owned(), ..at }];
    let finding = Finding { numbers, ..finding() };
    writer.conclude(std::slice::from_ref(&finding)).unwrap();
    assert_eq!(Record::open(writer.dir()).unwrap().findings, Some(vec![finding]));
}

/// Tells the test binary, when it runs as a child, where to write until it is stopped.
const VICTIM: &str = "RDMALAB_TEST_PART";

/// Not a test: the child process that other tests let run into a limit.
#[test]
fn victim() {
    let Some(parent) = std::env::var_os(VICTIM).map(PathBuf::from) else { return };
    let mut writer = Writer::create_at(&parent.join("r"), header(), &environment()).unwrap();
    // Enough points for any limit. Without a limit there is no error, and the test fails.
    for n in 0..500 {
        if let Err(e) = writer.append(&id(n, n), &outcome(500)) {
            let smaller = writer.append(&id(n, n), &Outcome::default()).is_ok();
            // Directly to standard error, because the test harness captures other output.
            let _ = writeln!(std::io::stderr(), "ERROR {e}\nSMALLER {smaller}");
            std::process::exit(7);
        }
    }
    std::process::exit(0);
}

fn shell(script: &str, parent: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    let me = std::env::current_exe().unwrap();
    command.args(["-c", script, "sh"]).arg(me).arg(parent).env(VICTIM, parent);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn check_full(stderr: &str, record: &Record, reason: &str) {
    let line = stderr.lines().find(|l| l.starts_with("ERROR")).expect(stderr);
    assert!(line.contains(reason) && line.contains("/r:"), "{line}");
    let smaller = usize::from(stderr.contains("SMALLER true"));
    let kept = record.points.len() - smaller;
    assert!(kept > 0, "{line}");
    assert!(line.contains(&format!("{kept} finished point")), "{line} and not {kept}");
    assert_eq!(record.damage, Vec::<String>::new());
    for point in &record.points {
        for series in &point.series {
            record.samples(series).unwrap();
        }
    }
    let files = fs::read_dir(record.dir.join("samples")).unwrap().count();
    assert_eq!(files, kept * 3, "samples without a point");
}

#[test]
fn a_file_that_may_not_grow_keeps_what_was_measured() {
    let parent = tempfile::tempdir().unwrap();
    // The ignored signal stays ignored in the program, so writing fails. In 512-byte blocks.
    let script = r#"trap "" XFSZ; ulimit -f 64; exec "$1" --exact victim"#;
    let out = shell(script, parent.path()).output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(7), "{stderr}");
    let record = Record::open(&parent.path().join("r")).unwrap();
    check_full(&stderr, &record, "File too large");
}

#[test]
fn a_full_disk_keeps_what_was_measured() {
    let parent = tempfile::tempdir().unwrap();
    // The file system vanishes with the namespace, so copy its files before.
    let script = r#"
        mkdir "$2/disk" "$2/kept" &&
        mount -t tmpfs -o size=160k tmpfs "$2/disk" 2>/dev/null || exit 99
        RDMALAB_TEST_PART="$2/disk" "$1" --exact victim; status=$?
        cp -r "$2/disk/r" "$2/kept/" && exit $status"#;
    let inside = shell(script, parent.path());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "/bin/sh"]).args(inside.get_args()).stdin(Stdio::null());
    let Ok(out) = command.output() else { return skip("no unshare") };
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    if out.status.code() != Some(7) && !stderr.contains("ERROR") {
        let no_namespace = stderr.contains("unshare:") || out.status.code() == Some(99);
        assert!(no_namespace, "{stderr}");
        return skip("needs root for a file system in a mount namespace");
    }
    let record = Record::open(&parent.path().join("kept/r")).unwrap();
    check_full(&stderr, &record, "No space left");
}

fn skip(reason: &str) {
    rdmalab_testing::skipped("a_full_disk_keeps_what_was_measured", reason);
}

#[test]
fn a_killed_run_keeps_what_was_measured() {
    let parent = tempfile::tempdir().unwrap();
    let mut child = shell(r#"exec "$1" --exact victim"#, parent.path()).spawn().unwrap();
    let points = parent.path().join("r/points.jsonl");
    // The child writes 500 points, and is killed at any moment after the first few.
    let lines = |path: &Path| fs::read(path).map_or(0, |b| b.split(|c| *c == b'\n').count());
    for _ in 0..60_000 {
        if lines(&points) > 5 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let record = Record::open(&parent.path().join("r")).unwrap();
    assert!(record.points.len() >= 5, "{:?}", record.points.len());
    assert!(record.damage.iter().all(|d| d.contains("incomplete")), "{:?}", record.damage);
    for series in record.points.iter().flat_map(|p| &p.series) {
        record.samples(series).unwrap();
    }
}

#[test]
fn an_ended_record_goes_on_behind_what_was_finished() {
    let dir = tempfile::tempdir().unwrap();
    let writer = written(dir.path());
    let path = writer.dir().to_owned();
    drop(writer);
    let mut points = fs::OpenOptions::new().append(true).open(path.join("points.jsonl")).unwrap();
    points.write_all(b"{\"number\":2,\"torn").unwrap();
    drop(points);
    let before = Record::open(&path).unwrap();
    let mut writer = Writer::resume(&before).unwrap();
    assert_eq!(writer.points(), 2);
    writer.append(&id(512, 3), &outcome(20)).unwrap();
    let after = Record::open(&path).unwrap();
    assert_eq!(after.damage, Vec::<String>::new());
    assert_eq!(after.points.iter().map(|p| p.number).collect::<Vec<_>>(), [0, 1, 2]);
    same(&&after.points[..2], &&before.points[..]);
    assert_eq!(after.skipped, before.skipped);
}
