//! `rdmalab goal`: schedules on simulated adapters.

mod common;

use std::path::{Path, PathBuf};

use common::{Ended, rdmalab, said};
use serde_json::Value;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../goal/schedules/{name}.goal"))
}

fn goal(file: &Path, more: &[&str]) -> Ended {
    said(rdmalab(&["goal"]).args(more).arg(file))
}

fn replayed(file: &Path, more: &[&str]) -> Value {
    let ended = goal(file, &[more, &["--json", "--device", "sim:ideal"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// o, L, g of `sim:ideal` in nanoseconds, and G for a byte. Each of the two links to the switch
/// that connects more than two adapters has a latency of its own.
const O: f64 = 100.0;
const L: f64 = 2000.0;
const G: f64 = 0.1;
/// How late a loop of looks may find a message: after one look at each of two completion queues.
const LOOK: f64 = 20.0;

#[test]
fn shipped_schedules_take_what_loggp_says() {
    let hop = |bytes: f64| 2.0 * O + L + bytes * G;
    // A rank tells the half of its tree first, so three messages follow each other, at once.
    // A ring asks, answers and writes in each of six steps, and adds in three of them. The last
    // send has ended when its acknowledgement has come.
    let step = 2.0 * hop(0.0) + hop(16384.0);
    for (name, expected_ns, hops, eager, long) in [
        ("binomial_broadcast", 3.0 * hop(8.0), 3.0, 7, 0),
        ("dissemination_barrier", 3.0 * hop(1.0), 3.0, 24, 0),
        ("ring_allreduce", 6.0 * step + 3000.0 + L, 19.0, 0, 24),
    ] {
        let found = replayed(&shipped(name), &[]);
        let took_ns = found["completed_ns"].as_f64().unwrap();
        let range = expected_ns - 1.0..=expected_ns + hops * LOOK;
        assert!(range.contains(&took_ns), "{name}: {took_ns} ns, and not in {range:?}");
        assert_eq!(
            (&found["eager_messages"], &found["long_messages"]),
            (&eager.into(), &long.into())
        );
        let path = found["critical_path"].as_array().unwrap();
        assert_eq!(path.last().unwrap()["end_ns"], found["completed_ns"], "{name}");
        assert!(path.len() > 3, "{name}: {path:?}");
    }
}

#[test]
fn the_same_schedule_gives_the_same_bytes() {
    let file = shipped("ring_allreduce");
    let [once, again] = [(); 2].map(|()| goal(&file, &["--json", "--device", "sim:connectx4"]));
    assert_eq!((once.code, &once.stdout), (Some(0), &again.stdout), "{}", once.stderr);
    // It says that it is a model's, as a record does.
    let found: Value = serde_json::from_str(&once.stdout).unwrap();
    let model = rdmalab_sim::find("connectx4").unwrap();
    assert_eq!(found["model"], format!("connectx4 {:016x}", model.hash()));
    assert_eq!(
        (&found["device_kind"], &found["device_profile"]),
        (&"sim".into(), &"connectx4".into())
    );
    assert!(once.stderr.contains(" events, ") && once.stderr.contains("virtual seconds a second"));
    assert_eq!(once.stderr.contains("this is a debug build"), cfg!(debug_assertions));
    let table = goal(&file, &["--eager", "65536", "--device", "sim:ideal"]);
    assert!(table.stdout.contains("24 messages sent at once, 0 asked for"), "{}", table.stdout);
}

/// More messages than credits, long ones among them, in an order that the receiver did not expect;
/// a rank that computes while others wait for its answers.
#[test]
fn floods_of_messages_arrive() {
    let mut text = "num_ranks 2\nrank 0 {\n".to_owned();
    for i in 0..100 {
        let bytes = if i % 7 == 3 { 20_000 } else { 200 };
        text += &format!("send {bytes}b to 1 tag {i}\nrecv 8b from 1 tag {i}\n");
    }
    text += "}\nrank 1 {\nc: calc 50000\n";
    for i in (0..100).rev() {
        let bytes = if i % 7 == 3 { 20_000 } else { 200 };
        text +=
            &format!("r{i}: recv {bytes}b from 0 tag {i}\nr{i} requires c\nsend 8b to 0 tag {i}\n");
    }
    text += "}\n";
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("flood.goal");
    std::fs::write(&file, text).unwrap();
    let found = replayed(&file, &[]);
    assert_eq!((&found["eager_messages"], &found["long_messages"]), (&186.into(), &14.into()));
    assert!(found["completed_ns"].as_f64().unwrap() > 50_000.0);
}

/// Long messages wait for their receives, and none of them may hold up what those require; and a
/// rank calculates for longer than others are patient.
#[test]
fn a_schedule_that_is_possible_is_replayed_to_its_end() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("order.goal");
    let text = "num_ranks 2\nrank 0 {\nsend 20000b to 1 tag 1\nsend 20000b to 1 tag 2\n\
                send 20000b to 1 tag 3\nsend 8b to 1 tag 4\n}\n\
                rank 1 {\nc: calc 4000000000\na: recv 20000b from 0 tag 1\n\
                b: recv 20000b from 0 tag 2\nd: recv 20000b from 0 tag 3\n\
                e: recv 8b from 0 tag 4\ne requires c\nd requires e\na requires d\n\
                b requires d\n}\n";
    std::fs::write(&file, text).unwrap();
    let found = replayed(&file, &[]);
    assert_eq!((&found["eager_messages"], &found["long_messages"]), (&1.into(), &3.into()));
    let calcs = "calc 4000000000\n".repeat(20);
    let text = format!("num_ranks 2\nrank 0 {{\n{calcs}}}\nrank 1 {{\nrecv 8b from 0\n}}\n");
    let after =
        text.replace("calc 4000000000\n}", "z: calc 4000000000\ns: send 8b to 1\ns requires z\n}");
    std::fs::write(&file, after).unwrap();
    assert_eq!(replayed(&file, &[])["eager_messages"], 1);
}

#[test]
fn wrong_schedules_and_calls_end_with_2_and_say_where() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("wrong.goal");
    let two = |zero: &str, one: &str| {
        format!("num_ranks 2\nrank 0 {{\n{zero}\n}}\nrank 1 {{\n{one}\n}}\n")
    };
    for (text, says) in [
        (two("send 8b to 1", ""), "wrong.goal:3: send 8b to 1 tag 0: rank 1 has no receive"),
        (two("a: calc 1\na requires a", ""), "wrong.goal:3: this operation requires itself"),
        (two("calc", ""), "wrong.goal:3: \"calc\": write"),
    ] {
        std::fs::write(&file, text).unwrap();
        let ended = goal(&file, &["--device", "sim:ideal"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stdout);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
    let none = goal(&home.path().join("none"), &["--device", "sim:ideal"]);
    assert!(none.code == Some(2) && none.stderr.contains("none"), "{}", none.stderr);
    let soft = said(rdmalab(&["goal", "-d", "soft0"]).arg(shipped("ring_allreduce")));
    assert_eq!(soft.code, Some(2));
    assert!(soft.stderr.contains("on simulated devices only"), "{}", soft.stderr);
}
