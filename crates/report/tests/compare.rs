//! Records with differences that the test made, and records without.

use std::time::{Duration, SystemTime};

use rdmalab_measure::stats::Verdict;
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_record::{Device, DeviceKind, Environment, Header, Object, PointId, Record, Writer};
use rdmalab_report::Table;
use rdmalab_report::compare::{Comparison, Options, Side};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The properties of a made-up record.
struct Made {
    seed: u64,
    quantity: Quantity,
    op: &'static str,
    sizes: &'static [u64],
    runs: u32,
    n: usize,
    /// Factor by which runs are slower from 512 bytes on.
    factor: f64,
    kind: DeviceKind,
    /// Its start, in seconds.
    begin_s: u64,
    /// Factor for all times, by which this session differs from others.
    session: f64,
    /// Runs are slower or faster by up to this share.
    spread: f64,
    /// How many of the last runs were cut short; these are ten times as slow.
    cut: u32,
    /// Processor time of a rank.
    cpu: Option<f64>,
    facts: &'static [(&'static str, &'static str)],
    profile: Option<&'static str>,
    command: &'static str,
}

const USUAL: Made = Made {
    seed: 1,
    quantity: Quantity::RoundTrip,
    op: "send",
    sizes: &[8, 512],
    runs: 4,
    n: 2000,
    factor: 1.0,
    kind: DeviceKind::Soft,
    begin_s: 0,
    session: 1.0,
    spread: 0.0,
    cut: 0,
    cpu: None,
    facts: &[],
    profile: None,
    command: "rdmalab run ping",
};

impl Made {
    fn record(&self) -> (TempDir, Record) {
        let dir = tempfile::tempdir().unwrap();
        let device = Device {
            name: "soft0".to_owned(),
            kind: self.kind,
            profile: self.profile.map(str::to_owned),
        };
        let command = self.command.split(' ').map(str::to_owned).collect();
        let header = Header::new("ping", command, device);
        let environment =
            Environment { kernel: Some("6.1.0".to_owned()), ..Environment::default() };
        let mut writer = Writer::create_at(&dir.path().join("r"), header, &environment).unwrap();
        let mut random = rdmalab_random::Random::new(self.seed);
        let mut uniform = move || random.unit_above_0();
        for repetition in 0..self.runs {
            let is_cut = repetition + self.cut >= self.runs;
            let factor = self.session * if is_cut { 10.0 } else { 1.0 };
            let run = factor * (1.0 + self.spread * (2.0 * uniform() - 1.0));
            for (order, size) in self.sizes.iter().rev().enumerate() {
                let factor = run * if *size >= 512 { self.factor } else { 1.0 };
                let floor = 500.0 + *size as f64 / 10.0;
                let mut outcome = Outcome::default();
                let samples = (0..self.n).map(|_| factor * floor * (1.0 - 0.1 * uniform().ln()));
                outcome.push_series(self.quantity, "", 10, samples.collect());
                outcome.push_figure(Quantity::Rate, "", (1e9 + 1e7 * uniform()) / floor / factor);
                if let Some(cpu) = self.cpu {
                    outcome.push_figure(Quantity::CpuShare, "rank 0", cpu + 0.01 * uniform());
                }
                self.facts.iter().for_each(|(name, value)| outcome.push_fact(name, value));
                outcome.cut_short = is_cut.then(|| "interrupted".to_owned());
                let begin = Duration::from_secs(1_770_000_000 + self.begin_s);
                let id = PointId {
                    parameters: parameters(self.op, *size),
                    repetition,
                    order_index: order as u64,
                    started: SystemTime::UNIX_EPOCH + begin + Duration::from_secs(order as u64),
                    elapsed: Duration::from_millis(1),
                };
                writer.append(&id, &outcome).unwrap();
            }
        }
        let record = Record::open(writer.dir()).unwrap();
        (dir, record)
    }
}

fn parameters(op: &str, size: u64) -> Object {
    json!({ "op": op, "size_bytes": size, "messages": 2000 }).as_object().unwrap().clone()
}

fn compared(a: &Made, b: &Made, options: &Options) -> Result<Comparison, String> {
    all_compared(std::slice::from_ref(a), std::slice::from_ref(b), options)
}

/// Compares several records per side.
fn all_compared(a: &[Made], b: &[Made], options: &Options) -> Result<Comparison, String> {
    let (_keep_a, a): (Vec<TempDir>, Vec<Record>) = a.iter().map(Made::record).unzip();
    let (_keep_b, b): (Vec<TempDir>, Vec<Record>) = b.iter().map(Made::record).unzip();
    Comparison::of(Side { name: "old", records: &a }, Side { name: "new", records: &b }, options)
}

/// The text of a comparison, without line breaks within warnings.
fn flat(comparison: &Comparison) -> String {
    comparison.text(true).replace("\n         ", " ")
}

fn verdicts(comparison: &Comparison) -> Vec<Verdict> {
    comparison.verdicts().collect()
}

#[test]
fn what_is_slower_is_found_where_it_is() {
    let slow = Made { seed: 2, factor: 1.1, ..USUAL };
    let found = compared(&USUAL, &slow, &Options::default()).unwrap();
    let expected = [Verdict::NoDifference, Verdict::Slower, Verdict::NoDifference, Verdict::Slower];
    assert_eq!(verdicts(&found), expected, "{}", found.text(true));
    assert_eq!(found.regressions(), 2);
    let text = found.text(false);
    for part in [
        "geometric mean over runs of median of round trip, with 95 % intervals for all 4",
        "slower (beyond 5 %)",
        "no difference seen",
        "shift of the deciles of round trip",
        "4 runs of a side: with so few the intervals are wide",
        "worse by more than 5 %: 2",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    // The change is that of the two numbers beside it.
    let json: Value = serde_json::from_str(&found.json()).unwrap();
    for row in json["rows"].as_array().unwrap() {
        let side = |name: &str| {
            let values = row[name].as_object().unwrap().iter();
            let mut values = values.filter(|(key, _)| key.starts_with("value_"));
            values.next().unwrap().1.as_f64().unwrap()
        };
        let ratio = row["ratio"]["value"].as_f64().unwrap();
        assert!((side("b") / side("a") / ratio - 1.0).abs() < 1e-9, "{row}");
    }
    // In the other direction it is faster.
    let back = compared(&slow, &USUAL, &Options::default()).unwrap();
    assert_eq!(verdicts(&back)[1], Verdict::Faster);
    assert_eq!(back.regressions(), 0);
}

#[test]
fn what_matters_is_for_the_user_to_say() {
    let slow = Made { seed: 2, factor: 1.1, ..USUAL };
    let lax = Options { threshold: 0.2, ..Options::default() };
    let found = compared(&USUAL, &slow, &lax).unwrap();
    assert_eq!((verdicts(&found)[1], found.regressions()), (Verdict::Slower, 0));
    let only = Options { only: Some("rate".to_owned()), ..Options::default() };
    assert_eq!(compared(&USUAL, &slow, &only).unwrap().compared(), 2);
    let none = Options { only: Some("bandwidth".to_owned()), ..Options::default() };
    let error = compared(&USUAL, &slow, &none).unwrap_err();
    assert!(error.contains("whose name contains \"bandwidth\"") && error.contains("rate"));
    // A quantile beyond what the number of samples can show.
    let tail = Options { quantile: 0.9999, ..Options::default() };
    let found = compared(&USUAL, &slow, &tail).unwrap();
    assert_eq!(verdicts(&found)[..2], [Verdict::CannotTell; 2], "{found:?}");
    assert!(found.text(false).contains("too few samples of a run for this quantile"));
}

#[test]
fn runs_are_what_single_numbers_need() {
    let (usual, slow) = (
        Made { runs: 5, n: 300, ..USUAL },
        Made { runs: 5, n: 300, seed: 3, factor: 1.2, ..USUAL },
    );
    let found = compared(&usual, &slow, &Options::default()).unwrap();
    let expected = [Verdict::NoDifference, Verdict::Slower, Verdict::NoDifference, Verdict::Slower];
    assert_eq!(verdicts(&found), expected, "{}", found.text(true));
    let json: Value = serde_json::from_str(&found.json()).unwrap();
    assert_eq!((&json["regressions"], &json["comparisons"]), (&json!(2), &json!(4)));
    let row = &json["rows"][1];
    assert_eq!(row["a"]["independent_units"], json!({ "kind": "runs", "n": 5 }));
    assert_eq!(
        (&row["parameters"]["size_bytes"], &row["is_regression"]),
        (&json!(512), &json!(true))
    );
    assert!(row["ratio"]["low"].as_f64().unwrap() > 1.1, "{row}");
    assert!(row["cliffs_delta"]["value"].as_f64().unwrap() > 0.5, "{row}");
    assert!(row["p_value_corrected"].as_f64().unwrap() < 0.01, "{row}");
    assert_eq!(row["deciles"].as_array().unwrap().len(), 9);
    assert!(row["deciles"][0]["low_ns"].as_f64().unwrap() > 0.0, "{row}");
    assert!(!found.text(false).contains("differences between runs"));
}

#[test]
fn points_are_matched_by_what_varies() {
    let other = Made { op: "write", sizes: &[8, 64, 512], seed: 4, ..USUAL };
    let found = compared(&USUAL, &other, &Options::default()).unwrap();
    assert_eq!(found.compared(), 4);
    let text = found.text(false);
    assert!(text.contains("A | B differ in op send | write"), "{text}");
    assert!(text.contains("1 point of B has no partner"), "{text}");
    let json: Value = serde_json::from_str(&found.json()).unwrap();
    assert_eq!(json["matched_by"], json!(["size_bytes"]));
    let apart = Made { sizes: &[16, 32], ..USUAL };
    let error = compared(&USUAL, &apart, &Options::default()).unwrap_err();
    assert!(error.contains("matched by size_bytes") && !error.contains('\n'), "{error}");
    let adapter = Made { kind: DeviceKind::System, seed: 5, ..USUAL };
    let text = compared(&USUAL, &adapter, &Options::default()).unwrap().text(false);
    assert!(text.contains("A is a soft device and B a system one"), "{text}");
}

#[test]
fn a_profile_is_a_difference_of_devices() {
    let under = |profile| Made { profile: Some(profile), ..USUAL };
    let text = |a: &Made, b: &Made| {
        let found = compared(a, b, &Options::default()).unwrap().text(false);
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (a, b, said) in [
        (&USUAL, &under("x"), "A is under the profile none and B under x: the difference"),
        (&under("x"), &under("y"), "A is under the profile x and B under y: the difference"),
    ] {
        let text = text(a, b);
        assert!(text.contains(said) && text.contains("soft0 (soft, profile "), "{text}");
    }
    assert!(!text(&under("x"), &under("x")).contains("the difference is one of profiles"));
    let far = Made { facts: &[("profile_at_rank_1", "x")], ..USUAL };
    let text = text(&USUAL, &far);
    assert!(text.contains("profile at rank 1 - | x"), "{text}");
    assert!(text.contains("of an adapter; rank 1: profile x)"), "{text}");
    let mixed = Made {
        facts: &[
            ("profile_at_rank_1", "none"),
            ("profile_at_rank_2", "y"),
            ("profile_at_rank_3", "y"),
        ],
        ..under("x")
    };
    let (_dir, record) = mixed.record();
    let heads = [Table::of(&record).to_string(), rdmalab_report::page(&record)];
    for head in ["rank 1: no profile; ranks 2 and 3: profile y)", "Rank 1: no profile."] {
        assert!(heads.iter().any(|text| text.contains(head)), "{head}: {}", heads[0]);
    }
}

#[test]
fn a_side_of_several_devices_is_one_of_several() {
    let one_line =
        |found: Comparison| found.text(false).split_whitespace().collect::<Vec<_>>().join(" ");
    let mixed = [USUAL, Made { seed: 2, profile: Some("x"), ..USUAL }];
    let other = Made { seed: 3, ..USUAL };
    let text = one_line(all_compared(&mixed, &[other], &Options::default()).unwrap());
    assert!(text.contains("A is under the profile none or x and B under none: the"), "{text}");
    assert!(
        text.contains("soft0 (soft, profile x: numbers of this host, not of an adapter) or soft0"),
        "{text}"
    );
    let (_dir, record) = USUAL.record();
    let side = Side { name: "r", records: std::slice::from_ref(&record) };
    let text = one_line(Comparison::of(side, side, &Options::default()).unwrap());
    assert!(text.contains("it does not differ from itself"), "{text}");
}

#[test]
fn one_run_a_side_decides_nothing() {
    let usual = Made { runs: 1, ..USUAL };
    let slow = Made { runs: 1, seed: 2, factor: 3.0, ..USUAL };
    for (a, b) in [(&usual, &slow), (&USUAL, &slow), (&usual, &Made { runs: 5, ..slow })] {
        let found = compared(a, b, &Options::default()).unwrap();
        assert_eq!(verdicts(&found), [Verdict::CannotTell; 4], "{}", found.text(true));
        assert_eq!(found.regressions(), 0);
        let text = found.text(true).replace("\n         ", " ");
        assert!(text.contains("measure with --repeat 5"), "{text}");
        // The effect within one run is shown in brackets, and marked as such.
        assert!(text.contains("(x 2.") && text.contains("within one run"), "{text}");
        let json: Value = serde_json::from_str(&found.json()).unwrap();
        let row = &json["rows"][1];
        assert_eq!((&row["ratio"]["low"], &row["p_value_corrected"]), (&Value::Null, &Value::Null));
        assert_eq!(row["rests_on"], Value::Null);
        assert!(row["ratio_within_one_run"]["low"].as_f64().unwrap() > 2.0, "{row}");
        assert!(row["obstacle"].as_str().unwrap().contains("one run does not"), "{row}");
        assert!(
            found.page().contains("it cannot be decided") || found.page().contains("cannot tell")
        );
    }
}

#[test]
fn repeated_runs_decide_by_what_differs_between_them() {
    for runs in [2, 4, 7] {
        let usual = Made { runs, n: 400, ..USUAL };
        let slow = Made { runs, n: 400, seed: 3, factor: 3.0, ..USUAL };
        let only = Options { only: Some("round trip".to_owned()), ..Options::default() };
        let found = compared(&usual, &slow, &only).unwrap();
        assert_eq!(verdicts(&found)[1], Verdict::Slower, "{runs} runs: {}", found.text(true));
        let json: Value = serde_json::from_str(&found.json()).unwrap();
        assert_eq!(json["rows"][1]["rests_on"], "welch over runs");
    }
}

#[test]
fn a_page_says_verdicts_in_words_and_draws_them() {
    let slow = Made { seed: 2, factor: 1.1, ..USUAL };
    let page = compared(&USUAL, &slow, &Options::default()).unwrap().page();
    for part in [
        "<h1>new against old</h1>",
        "At size 512 B: new is slower than old: +",
        "and beyond the 5 % that matter.",
        "At size 8 B: no difference between old and new is seen, and one of 5 % is excluded",
        "Change at each point, with its interval",
        "Shift of the deciles at size 512 B",
        "numbers of this host, not of an adapter",
        "4 runs of a side",
    ] {
        assert!(page.contains(part), "no {part:?} in\n{page}");
    }
    // Two groups of two effects each, and a shift with its band for each pair of samples.
    assert_eq!(page.matches("class='slack'").count(), 2);
    assert_eq!(page.matches("class='band'").count(), 2);
    assert!(!page.contains("<script") && !page.contains("http"));
    let ids: Vec<&str> = page.split(" id=").skip(1).map(|r| &r[1..8]).collect();
    let distinct: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(ids.len(), distinct.len(), "{ids:?}");
}

/// Records of different sessions, each with nearly equal runs.
fn sessions(seed: u64, each: &[f64]) -> Vec<Made> {
    let one = |(i, session): (usize, &f64)| Made {
        seed: seed + i as u64,
        runs: 5,
        n: 100,
        spread: 0.005,
        session: *session,
        begin_s: 1000 * i as u64,
        ..USUAL
    };
    each.iter().enumerate().map(one).collect()
}

#[test]
fn records_of_a_side_count_as_one_number_each() {
    // Sessions differ by 3 %, runs of a session by less than half a percent, and the sides by 4 %.
    // If each run counted as a session, the difference would be certain.
    let (a, b) = (sessions(1, &[0.97, 1.0, 1.03]), sessions(11, &[1.01, 1.04, 1.07]));
    let found = all_compared(&a, &b, &Options::default()).unwrap();
    assert_eq!(verdicts(&found), [Verdict::CannotTell; 4], "{}", found.text(true));
    assert!(flat(&found).contains("3 records of a side, each of which counts as one number"));
    assert!(!flat(&found).contains("one after the other"), "{}", flat(&found));
    let json: Value = serde_json::from_str(&found.json()).unwrap();
    let row = &json["rows"][0];
    assert_eq!((&row["a"]["records"], &row["a"]["runs"]), (&json!(3), &json!(15)));
    assert_eq!(row["rests_on"], "welch over records");
    assert!(row["p_value_corrected"].as_f64().unwrap() > 0.5, "{row}");
    assert!(row["cliffs_delta"]["low"].as_f64().unwrap() < 0.0, "{row}");
    assert!(row["deciles"][4]["low_ns"].as_f64().unwrap() < 0.0, "{row}");
    // One record against several: the error of a single record is unknown.
    let one = all_compared(&a, &b[2..], &Options::default()).unwrap();
    assert_eq!(verdicts(&one), [Verdict::CannotTell; 4], "{}", one.text(true));
    assert!(flat(&one).contains("one side is a single record"), "{}", flat(&one));
    // A difference larger than that of sessions is found.
    let slow = sessions(11, &[1.48, 1.5, 1.52]);
    let found = all_compared(&a, &slow, &Options::default()).unwrap();
    assert_eq!(verdicts(&found), [Verdict::Slower; 4], "{}", found.text(true));
}

#[test]
fn a_record_counts_once() {
    let (_keep, one) = USUAL.record();
    let twice = [one.clone(), one.clone()];
    let side = |records| Side { name: "x", records };
    let of = |a, b| Comparison::of(side(a), side(b), &Options::default());
    let error = of(&twice[..1], &twice).unwrap_err();
    assert!(error.contains("is given twice") && !error.contains('\n'), "{error}");
    assert!(of(&twice[..1], &twice[1..]).is_ok());
}

#[test]
fn sides_that_did_not_take_turns_are_called_so() {
    let later = Made { begin_s: 1000, seed: 2, ..USUAL };
    for (a, b, said) in [(&USUAL, &later, "A before B"), (&later, &USUAL, "B before A")] {
        let found = compared(a, b, &Options::default()).unwrap();
        let said = format!("measured one after the other, {said}: other changes");
        assert!(flat(&found).contains(&said), "{}", flat(&found));
        assert!(found.page().contains("Measured one after the other"));
    }
    let same = compared(&USUAL, &USUAL, &Options::default()).unwrap();
    assert!(!flat(&same).contains("one after the other"), "{}", flat(&same));
}

#[test]
fn what_is_neither_better_nor_worse_is_more_or_less() {
    let only = Options { only: Some("CPU".to_owned()), ..Options::default() };
    let (busy, idle) = (Made { cpu: Some(0.9), ..USUAL }, Made { cpu: Some(0.2), ..USUAL });
    for (a, b, verdict) in [(&idle, &busy, Verdict::More), (&busy, &idle, Verdict::Less)] {
        let found = compared(a, b, &only).unwrap();
        assert_eq!((verdicts(&found), found.regressions()), (vec![verdict; 2], 0));
        let name = verdict.name();
        let text = found.text(false);
        assert!(text.contains(&format!("2 {name}; worse by more than 5 %: 0")), "{text}");
        assert!(!text.contains("faster") && !text.contains("slower"), "{text}");
        let page = found.page();
        assert!(page.contains(&format!("CPU, rank 0 is {name} with new than with old")), "{page}");
        let json: Value = serde_json::from_str(&found.json()).unwrap();
        assert_eq!(json["rows"][0]["verdict"], name);
    }
}

#[test]
fn runs_that_were_cut_short_do_not_count() {
    let cut = Made { cut: 2, runs: 6, seed: 2, ..USUAL };
    let found = compared(&USUAL, &cut, &Options::default()).unwrap();
    assert_eq!(verdicts(&found), [Verdict::NoDifference; 4], "{}", found.text(true));
    // Two runs for each of two points.
    assert!(flat(&found).contains("4 runs of B were cut short, and are left out"));
    let json: Value = serde_json::from_str(&found.json()).unwrap();
    assert_eq!(json["rows"][0]["b"]["runs"], 4);
    let none = compared(&USUAL, &Made { cut: 4, ..USUAL }, &Options::default()).unwrap_err();
    assert!(none.contains("8 points, 8 of them cut short; points are"), "{none}");
}

#[test]
fn an_expectation_leaves_out_what_was_cut_short() {
    use rdmalab_report::expect::{Answer, Expectation};
    let check = |text: &str, made: &Made| {
        let (_keep, record) = made.record();
        text.parse::<Expectation>().unwrap().check(&record).unwrap()
    };
    // The runs that were cut short are ten times as slow as the others.
    let cut = Made { cut: 2, runs: 7, ..USUAL };
    for text in ["mean<700ns", "rate>1.7M/s", "p99<1us"] {
        for one in check(text, &cut) {
            assert!(
                one.answer == Answer::Holds && one.line.contains("without 2 runs that were cut"),
                "{}",
                one.line
            );
        }
    }
    let nothing = check("mean<700ns", &Made { cut: 4, ..USUAL });
    assert!(
        nothing
            .iter()
            .all(|one| one.answer == Answer::Fails && one.line.contains("(interrupted): does not"))
    );
    // An interval from two runs is as wide as two runs allow.
    let two = check("p99<1us", &Made { runs: 2, spread: 0.1, ..USUAL });
    assert!(two[0].line.contains("of too few runs for an interval"), "{}", two[0].line);
}

#[test]
fn the_head_names_where_and_how_each_side_ran() {
    let plain = Made { facts: &[("placement", "lane"), ("mtu_bytes", "4096")], ..USUAL };
    let other = Made {
        facts: &[
            ("placement", "ring"),
            ("mtu_bytes", "1024"),
            ("capture", "a.pcapng"),
            ("faults_at_rank_1", "drop 1%"),
            ("stamp_cost_ns", "17.5"),
        ],
        command: "rdmalab run ping far --cores 2,3 --interface=eth1",
        ..USUAL
    };
    let found = compared(&plain, &other, &Options::default()).unwrap();
    let text = found.text(false).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "placement lane | ring",
        "mtu 4 KiB | 1 KiB",
        "capture - | yes",
        "faults at rank 1 - | drop 1%",
        "other end - | far",
        "cores - | 2,3",
        "interface - | eth1",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!text.contains("stamp cost"), "{text}");
    let same = compared(&plain, &plain, &Options::default()).unwrap().text(false);
    assert!(!same.contains("differ in"), "{same}");
}

#[test]
fn an_obstacle_that_was_none_is_not_named() {
    // Two runs are enough for a verdict on the p90, although their samples together are not.
    let tail = Options { quantile: 0.9, only: Some("round trip".to_owned()), ..Options::default() };
    let two = Made { runs: 2, n: 150, spread: 0.02, ..USUAL };
    let found = compared(&two, &Made { seed: 5, factor: 3.0, ..two }, &tail).unwrap();
    let json: Value = serde_json::from_str(&found.json()).unwrap();
    assert_eq!(json["rows"][1]["verdict"], "slower", "{}", found.text(true));
    let side = &json["rows"][1]["a"];
    let [low, value, high] = ["low_ns", "value_ns", "high_ns"].map(|key| side[key].as_f64());
    assert!(low < value && value < high, "{side}");
    assert_eq!(json["rows"][1]["obstacle"], Value::Null);
}

#[test]
fn what_clocks_of_two_hosts_could_turn_is_no_difference() {
    // 44 times 500 ns are 22 us, against 20.
    let far = |clock| Made {
        quantity: Quantity::OneWay,
        sizes: &[8],
        session: 40.0,
        runs: 9,
        facts: clock,
        ..USUAL
    };
    let only = Options { only: Some("one-way".to_owned()), ..Options::default() };
    let of = |clock: &'static [(&str, &str)]| {
        let slow = Made { seed: 2, session: 44.0, ..far(clock) };
        let found = compared(&far(clock), &slow, &only).unwrap();
        let json: Value = serde_json::from_str(&found.json()).unwrap();
        (found.regressions(), verdicts(&found), flat(&found), json["rows"][0].clone())
    };
    // With one host's clock, the error is the same in both records.
    for clock in [&[][..], &[("clock_error_ns", "1000.0")]] {
        let (regressions, verdicts, text, _) = of(clock);
        assert_eq!((regressions, &verdicts[..]), (1, &[Verdict::Slower][..]), "{text}");
        assert!(!text.contains("clocks"), "{text}");
    }
    let (regressions, verdicts, text, json) = of(&[("clock_error_ns", "5000.0")]);
    assert_eq!((regressions, &verdicts[..]), (0, &[Verdict::CannotTell][..]), "{text}");
    for part in ["off by up to 5.00 us in A and 5.00 us in B", "cannot be decided", "wider by both"]
    {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert_eq!(json["a"]["clock_error_ns"], 5000.0);
    assert_eq!(json["cliffs_delta"], Value::Null);
    let number = |value: &Value| value.as_f64().unwrap();
    let (low, high) = (number(&json["ratio"]["low"]), number(&json["ratio"]["high"]));
    assert!(low < 17.0 / 25.0 && 27.0 / 15.0 < high, "{json:#}");
    assert!(number(&json["p_value_corrected"]) > 0.5, "{json:#}");
    let (low, high) = (number(&json["a"]["low_ns"]), number(&json["a"]["high_ns"]));
    assert!(high - low > 10_000.0, "{json:#}");
    // Round trips use one clock. A time whose error exceeds it has no interval.
    let facts = &[("clock_error_ns", "90000.0")][..];
    let (_, verdicts, text, json) = of(facts);
    assert_eq!((&verdicts[..], &json["ratio"]["low"]), (&[Verdict::CannotTell][..], &Value::Null));
    assert!(text.contains("cannot be decided"), "{text}");
    let round = |seed, session| Made { seed, session, quantity: Quantity::RoundTrip, ..far(facts) };
    let trips = Options { only: Some("round trip".to_owned()), ..Options::default() };
    let found = compared(&round(1, 40.0), &round(2, 44.0), &trips).unwrap();
    assert_eq!(found.regressions(), 1, "{}", found.text(true));
}
