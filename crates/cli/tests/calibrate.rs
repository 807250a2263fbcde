//! `rdmalab calibrate`: a profile is fitted to a model whose values are known, and written.

use std::path::Path;

use rdmalab_testing::Ended;
use serde_json::Value;
use tempfile::TempDir;

mod common;

use common::{rdmalab, said};

/// A record that `rdmalab run` wrote, in `dir`.
fn record(dir: &Path, name: &str, arguments: &[&str]) {
    let ended = said(rdmalab(&["run"]).args(arguments).arg("--out").arg(dir.join(name)));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

fn calibrate(dir: &Path, arguments: &[&str]) -> Ended {
    said(rdmalab(&["calibrate"]).args(arguments).current_dir(dir))
}

/// A copy of a shipped profile with other values.
fn perturbed(dir: &Path, base: &str, values: &[(&str, f64)]) -> String {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/sim/");
    let text = std::fs::read_to_string(format!("{shipped}{base}.toml")).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (name, value) in values {
        let start = format!("{name} = {{ is = ");
        let line = lines.iter_mut().find(|line| line.starts_with(&start)).expect(name);
        let rest = line[start.len()..].split_once(',').unwrap().1.to_owned();
        *line = format!("{start}{value},{rest}");
    }
    let file = dir.join("truth.toml");
    std::fs::write(&file, lines.join("\n")).unwrap();
    format!("sim:{}", file.display())
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.stdout))
}

/// The entry of a parameter in the answer.
fn fitted(answer: &Value, name: &str) -> (f64, Option<f64>) {
    let all = answer["parameters"].as_array().unwrap();
    let one = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    (one["value"].as_f64().unwrap(), one["standard_error"].as_f64())
}

#[track_caller]
fn assert_near(found: f64, expected: f64, share: f64) {
    assert!((found / expected - 1.0).abs() < share, "{found} is not {expected}");
}

/// Values that are not those of `connectx4`. With short looks, times do not jump.
const TRUTH: [(&str, f64); 7] = [
    ("poll_empty_ns", 1.0),
    ("memory_look_ns", 1.0),
    ("post_ns", 140.0),
    ("mmio_ns", 260.0),
    ("bus_read_ns", 450.0),
    ("wake_ns", 3000.0),
    ("link_mb_per_s", 9000.0),
];
/// What is fitted to them.
const FIT: &str = "post_ns,mmio_ns,bus_read_ns,wake_ns,link_mb_per_s,register_ns";

/// Measures pings on a model, in records below `dir`.
fn pings(dir: &Path) {
    let device = perturbed(dir, "connectx4", &TRUTH);
    let ping = ["ping", "--device", &device, "--messages", "200", "--warm-up", "50"];
    let with = |more: &[&'static str]| [&ping[..], more].concat();
    record(dir, "a", &with(&["--size", "8,64", "--inline", "off,on"]));
    record(dir, "b", &with(&["--size", "4K,64K", "--inline", "off"]));
    record(dir, "c", &with(&["--size", "8", "--poll", "event"]));
}

/// The base for these: `connectx4` with the same short looks.
fn base(dir: &Path) -> String {
    let device = perturbed(dir, "connectx4", &TRUTH[..2]);
    device.strip_prefix("sim:").unwrap().to_owned()
}

#[test]
fn values_of_a_known_model_come_back_and_its_medians_too() {
    let dir = TempDir::new().unwrap();
    pings(dir.path());
    let base = base(dir.path());
    let call = ["a", "b", "c", "--profile", &base, "--fit", FIT, "--output", "new.toml", "--json"];
    let ended = calibrate(dir.path(), &call);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("virtual seconds a second"), "{}", ended.stderr);
    let answer = json(&ended);
    assert_eq!(answer["has_converged"], true);
    for (name, expected) in [("bus_read_ns", 450.0), ("wake_ns", 3000.0), ("link_mb_per_s", 9000.0)]
    {
        let (value, error) = fitted(&answer, name);
        assert_near(value, expected, 0.03);
        let error = error.unwrap_or_else(|| panic!("{name} has no error"));
        assert!((value - expected).abs() < 3.0 * error, "{name}: {value} +- {error}");
    }
    // Only the sum of these is known, and shared as in the base profile, 110 to 238.
    let [group] = &answer["groups"].as_array().unwrap()[..] else { panic!("{}", answer["groups"]) };
    assert_eq!(group["parameters"], serde_json::json!(["post_ns", "mmio_ns"]));
    assert_near(group["value"].as_f64().unwrap(), 400.0, 0.02);
    let (post, mmio) = (fitted(&answer, "post_ns"), fitted(&answer, "mmio_ns"));
    assert_eq!((post.1, mmio.1), (None, None));
    assert_near(post.0 / mmio.0, 110.0 / 238.0, 0.05);
    assert_eq!(answer["unused"], serde_json::json!(["register_ns"]));
    // The profile loads, says where its values are from, and gives the medians.
    let text = std::fs::read_to_string(dir.path().join("new.toml")).unwrap();
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("bus_read_ns").contains("mark = \"calibrated\", from = \"rdmalab calibrate: "));
    assert!(line("post_ns").contains("only the sum of post_ns and mmio_ns is known"), "{text}");
    assert!(line("send_ns").contains("mark = \"calibrated\", from = \"potter2018"));
    assert!(line("title").contains("numbers of a model"), "{text}");
    for point in answer["residuals"].as_array().unwrap() {
        assert_near(point["model"].as_f64().unwrap(), point["measured"].as_f64().unwrap(), 0.01);
    }
    let run = ["run", "ping", "--size", "64", "--inline", "off", "--messages", "200"];
    let median = |device: &str| {
        let mut command = rdmalab(&run);
        command.args(["--device", device, "--no-record", "--format", "json"]);
        let value = json(&said(command.current_dir(dir.path())));
        value["points"][0]["series"][0]["median_ns"].as_f64().unwrap_or_else(|| panic!("{value:#}"))
    };
    perturbed(dir.path(), "connectx4", &TRUTH);
    assert_near(median("sim:./new.toml"), median("sim:./truth.toml"), 0.01);
}

#[test]
fn a_device_is_measured_and_its_records_give_the_same_again() {
    let dir = TempDir::new().unwrap();
    let device = perturbed(dir.path(), "ideal", &[("propagation_ns", 1300.0)]);
    let fit = ["--profile", "ideal", "--fit", "propagation_ns", "--json", "--force"];
    let measure = ["--device", &device, "--repeat", "1", "--out", "kept"];
    let ended = calibrate(dir.path(), &[&fit[..], &measure].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let answer = json(&ended);
    let (value, error) = fitted(&answer, "propagation_ns");
    assert_near(value, 1300.0, 0.01);
    assert!(error.is_some_and(|error| error > 0.0 && error < 13.0), "{answer:#}");
    assert!(answer["chi2"].as_f64() < answer["chi2_before"].as_f64());
    let kept = std::fs::read_dir(dir.path().join("kept")).unwrap().next().unwrap().unwrap();
    let again = calibrate(dir.path(), &[&fit[..], &[kept.path().to_str().unwrap()]].concat());
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert_eq!(json(&again), answer);
}

#[test]
fn tables_name_what_is_not_known_and_files_are_not_replaced() {
    let dir = TempDir::new().unwrap();
    let device = "sim:connectx4";
    let ping = ["ping", "--device", device, "--messages", "50", "--size", "8"];
    record(dir.path(), "a", &[&ping[..], &["--link", "edr"]].concat());
    let call = ["a", "--fit", "post_ns,mmio_ns,register_ns"];
    let ended = calibrate(dir.path(), &call);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for expected in [
        "connectx4 fitted to sim:connectx4: numbers of a model with --link edr",
        "only the sum of post_ns and mmio_ns is known, 34",
        "no point depends on register_ns",
        "round trip",
        "degrees of freedom",
        "calibrated.toml",
    ] {
        assert!(ended.stdout.contains(expected), "{expected}: {}", ended.stdout);
    }
    let again = calibrate(dir.path(), &call);
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    assert!(again.stderr.contains("it exists: name another file, or add --force"));
    let forced = calibrate(dir.path(), &[&call[..], &["--force"]].concat());
    assert_eq!(forced.code, Some(0), "{}", forced.stderr);
    // The answer does not depend on the time or on the order of threads.
    assert_eq!(forced.stdout, ended.stdout);
}

#[test]
fn wrong_calls_say_what_to_do() {
    let dir = TempDir::new().unwrap();
    let ping = ["ping", "--messages", "20", "--sim", "profile,post_ns=200"];
    record(dir.path(), "two", &[&ping[..], &["--device", "sim:ideal"]].concat());
    record(dir.path(), "one", &["ping", "--messages", "20", "--device", "sim:ideal"]);
    record(dir.path(), "other", &["ping", "--messages", "20", "--device", "sim:connectx2"]);
    record(dir.path(), "none", &["ping", "--messages", "20", "--device", "sim:ideal"]);
    for entry in std::fs::read_dir(dir.path().join("none")).unwrap() {
        // As if the run had been killed before its first point was finished.
        std::fs::write(entry.unwrap().path().join("points.jsonl"), "").unwrap();
    }
    let ping = ["ping", "--messages", "20", "--device", "sim:ideal", "--timeout", "4"];
    record(dir.path(), "lost", &[&ping[..], &["--faults", "drop nth 9 of send"]].concat());
    let wrong: [(&[&str], &str); 12] = [
        (&["lost"], "recorded with fault rules (--faults)"),
        (&[], "name directories, or a device to measure (--device NAME)"),
        (&["nowhere"], "there is no such directory"),
        (&["none"], "nothing can be fitted"),
        (&["two"], "points come from several models"),
        (&["one", "other"], "records come from several devices"),
        (&["one", "--fit", "bus_reed_ns"], "did you mean bus_read_ns?"),
        (&["one", "--fit", "blue_flame"], "only times and rates can be fitted"),
        (&["one", "--fit", "register_ns"], "no point depends on the parameters in --fit"),
        (&["one", "--profile", "connectx9"], "there are ideal, connectx2"),
        (&["--device", "foo0"], "soft0, soft1"),
        (&["one", "--output", "no/such/file.toml"], "there is no directory no/such"),
    ];
    for (arguments, expected) in wrong {
        let ended = calibrate(dir.path(), arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
    }
    assert!(!dir.path().join("calibrated.toml").exists());
}
