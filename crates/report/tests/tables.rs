//! Tables fit the usual terminal, and print each warning once.

mod common;

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_random::Random;
use rdmalab_record::{DeviceKind, Environment, Record, Writer};
use rdmalab_report::{Table, contents_markdown, contents_text, markdown, page, pages, warnings};
use serde_json::json;
use tempfile::TempDir;

/// The width of the usual terminal for tables.
const COLUMNS: usize = 100;

/// The result of one point of `ping --threads 8 --rate R`: times and rates, of all and each thread.
fn threads(random: &mut Random, samples: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let names: Vec<String> = std::iter::once("all threads".to_owned())
        .chain((0..8).map(|thread| format!("thread {thread}")))
        .collect();
    for name in &names {
        for what in ["", "from the intended start, "] {
            let times = (0..samples).map(|i| common::latency(random, 8e5 + i as f64)).collect();
            outcome.push_series(Quantity::RoundTrip, &format!("{what}{name}"), 0, times);
        }
        for what in ["offered", "achieved"] {
            outcome.push_figure(Quantity::Rate, &format!("{what}, {name}"), 123_456.0);
        }
    }
    outcome.push_figure(Quantity::CpuShare, "rank 0", 3.97);
    outcome.push_figure(Quantity::CpuShare, "rank 1", 3.97);
    outcome
}

/// A record with these numbers of sizes and rates, and three runs of each point.
fn record_of_threads(samples: usize, sizes: u64, rates: u64) -> (TempDir, Record) {
    let dir = tempfile::tempdir().unwrap();
    let header = common::header("ping", DeviceKind::Soft, &["rdmalab", "run", "ping"]);
    let mut writer = Writer::create_at(&dir.path().join("r"), header, &Environment::default());
    let writer = writer.as_mut().unwrap();
    let mut random = Random::new(17);
    let cells = (0..sizes).flat_map(|size| (0..rates).map(move |rate| (size, rate)));
    for (order, ((size, rate), repetition)) in
        cells.flat_map(|cell| (0..3).map(move |repetition| (cell, repetition))).enumerate()
    {
        let mut outcome = threads(&mut random, samples);
        outcome.warnings.push(format!("it waited {order} times in vain"));
        outcome.push_fact("pattern", "every 32: +10.8 us at 8, 9; by chance 3e-18; ".repeat(4));
        for label in ["t_lat", "t_lat_send"] {
            outcome.warn_of_hidden(label, &format!("its median, {order} ns, is too small"));
        }
        let parameters = common::object(json!({
            "transport": "rc", "op": if size % 2 == 0 { "write_imm" } else { "send" },
            "size_bytes": 1024 << size, "rate_per_s": 10_000 * (rate + 1), "threads": 8,
        }));
        writer.append(&common::id(parameters, order as u64, repetition), &outcome).unwrap();
    }
    let record = Record::open(writer.dir()).unwrap();
    (dir, record)
}

#[test]
fn no_line_of_a_table_is_wider_than_the_terminal() {
    let fan = common::fan(5);
    let all = [record_of_threads(40, 1, 1), record_of_threads(40, 3, 2), fan];
    for (_dir, record) in &all {
        let text = Table::of(record).to_string();
        let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= COLUMNS, "{longest}\n\n{text}");
        for (quantity, label) in record.points[0].figures.iter().map(|f| (f.quantity, &f.label)) {
            assert!(text.contains(&format!("{}, {label}", quantity.name())), "{label}: {text}");
        }
    }
}

#[test]
fn a_warning_is_said_once_with_all_that_it_holds_for() {
    let (_dir, record) = record_of_threads(60, 2, 1);
    let all = warnings(&record);
    let with = |what: &str| -> Vec<&String> { all.iter().filter(|w| w.contains(what)).collect() };
    for kind in ["median is imprecise", "too few samples", "in vain", "shown"] {
        assert_eq!(with(kind).len(), 1, "{kind}: {all:#?}");
    }
    let wide = with("median is imprecise")[0];
    assert!(wide.starts_with("round trip (all threads, "), "{wide}");
    assert!(wide.contains(" series (") && wide.contains(" % of round trip, "), "{wide}");
    let said = "(so or with other numbers at 6 points)";
    assert!(with("in vain")[0].ends_with(said), "{all:#?}");
    let hidden = with("are not shown")[0];
    assert!(hidden.starts_with("t_lat and t_lat_send are not shown: its median, 0 ns"), "{hidden}");
    assert!(hidden.ends_with(said), "{hidden}");
    assert_eq!(page(&record).matches("median is imprecise").count(), 1);
}

/// Two runs of a point that lost messages, and one of a point that lost none.
fn lossy() -> (TempDir, Record) {
    let dir = tempfile::tempdir().unwrap();
    let header = common::header("blast", DeviceKind::Soft, &["rdmalab", "run", "blast"]);
    let mut writer =
        Writer::create_at(&dir.path().join("r"), header, &common::environment("6.1.0")).unwrap();
    for (order, (size, lost, late)) in [(64, 150, 0), (64, 34, 2), (1024, 0, 0)].iter().enumerate()
    {
        let mut outcome = Outcome::default();
        outcome.push_figure(Quantity::Rate, "", 1e6);
        for (name, value) in [("sent", 10_000), ("received", 10_000 - lost), ("lost", *lost)] {
            outcome.push_count(name, value);
        }
        outcome.push_count("duplicated", 0);
        outcome.push_count("late", *late);
        let parameters = common::object(json!({ "transport": "uc", "size_bytes": size }));
        writer.append(&common::id(parameters, order as u64, order as u32 % 2), &outcome).unwrap();
    }
    let record = Record::open(writer.dir()).unwrap();
    (dir, record)
}

#[test]
fn every_view_shows_lost_messages() {
    let (_dir, record) = lossy();
    let text = Table::of(&record).to_string();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    for line in [
        &["size", "sent", "received", "lost", "late"][..],
        &["64", "B", "20", "000", "19", "816", "184", "(0.92", "%)", "2"],
        &["1", "KiB", "10", "000", "10", "000", "0", "0"],
    ] {
        assert!(lines.iter().any(|cells| cells == line), "{line:?}: {text}");
    }
    for view in [page(&record), markdown(&record)] {
        assert!(view.contains("Messages") && view.contains("184 (0.92 %)"), "{view}");
    }
    let (_dir, whole) = common::blast();
    assert!(!Table::of(&whole).to_string().contains("\nmessages\n"));
    assert!(!page(&whole).contains("Messages</h2>"));
}

#[test]
fn several_records_are_named_first() {
    let all = [common::fan(2), common::blast(), common::words()].map(|(dir, mut record)| {
        record.header.condition = Some("a rather quiet machine".to_owned());
        (dir, record)
    });
    let records: Vec<Record> = all.iter().map(|(_, record)| record.clone()).collect();
    let text = contents_text(&records);
    assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    let markdown = contents_markdown(&records);
    let page = pages(&records);
    let (before, _) = page.split_once("<article").unwrap();
    for record in &records {
        let dir = record.dir.display().to_string();
        for form in [&*text, &*markdown, before] {
            assert!(form.contains(&dir) && form.contains("a rather quiet machine"), "{form}");
            assert!(form.contains(&record.header.experiment), "{form}");
            assert!(form.contains(record.header.device.kind.name()), "{form}");
        }
    }
    assert_eq!(contents_text(&records[..1]) + &contents_markdown(&records[..1]), "");
}
