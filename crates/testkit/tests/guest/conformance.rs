//! The conformance programs on the kernel's rxe, and between rxe and our device: the outcomes that
//! the book lists.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rdmalab_testkit::conformance::{self, Row, differences};
use rdmalab_testkit::programs::{Ended, again_while};

use crate::boot;
use crate::guest::{GUEST, Guest, HOST};

/// How long our end of a pair may take.
const LIMIT: Duration = Duration::from_secs(120);

/// What the programs print if the network loses a datagram. A case that waits for one breaks off.
const LOST: [&str; 3] = ["no completion, next message lost", "broke off", "not printed"];

/// Copies a program to the guest; returns its command there, without arguments.
fn put(guest: &Guest, program: &Path) -> String {
    let name = program.file_name().expect("a program").to_string_lossy();
    std::fs::copy(program, guest.share().join(&*name)).expect("the guest's share");
    format!("env RDMALAB_TEST_DEVICE=rxe0 RDMALAB_TEST_GID=2 /host/{name}")
}

/// Waits until the kernel uses the guest's IPv6 address, a while after the device is up.
fn await_ipv6(guest: &mut Guest) {
    let usable = "until grep -q \"^fd91.* 80 *eth0\" /proc/net/if_inet6; do usleep 20000; done";
    guest.run(&format!("sh -c '{usable}'")).expect();
}

/// What the programs print on rxe alone, with the GID of the IPv6 address.
fn alone(guest: &mut Guest, programs: &[PathBuf]) -> String {
    await_ipv6(guest);
    let run = |program: &PathBuf| {
        let command = put(guest, program);
        guest.run(&format!("{command} --observe")).expect()
    };
    programs.iter().map(run).collect()
}

/// What the program prints on our device and on rxe if one is the receiver and then the other.
fn between(guest: &mut Guest, program: &Path) -> [String; 2] {
    let command = put(guest, program);
    let start_here = |guest: &Guest, words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        guest.start_here(program, &words)
    };
    let receiver = start_here(guest, &["19100"]);
    let there = guest.run(&format!("{command} 19100 {HOST}")).expect();
    let here = receiver.end_by(Instant::now() + LIMIT);
    guest.start("receiver", &format!("{command} 19101"));
    let sender = start_here(guest, &["19101", GUEST]).end_by(Instant::now() + LIMIT);
    let receiver = guest.wait("receiver").expect();
    let said = |ended: &Ended| {
        assert!(ended.succeeded(), "{}", ended.report());
        ended.stdout.clone()
    };
    [said(&here) + &said(&sender), there + &receiver]
}

#[test]
fn rxe_and_our_device_have_the_outcomes_of_the_book() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(programs) = conformance::compile_all(scratch.path()) else { return };
    let Some(wire) = conformance::compile_wire(scratch.path()) else { return };
    let Some(mut guest) = boot("conformance") else { return };
    let alone = alone(&mut guest, &programs);
    let is_wire = |row: &Row| row.is_wire();
    let mut found = differences(&alone, |row| (!is_wire(row)).then_some(row.rxe));
    let once = || {
        let [ours, rxe] = between(&mut guest, &wire);
        let mut wrong = differences(&ours, |row| is_wire(row).then_some(row.ours));
        wrong.extend(differences(&rxe, |row| is_wire(row).then_some(row.rxe)));
        (wrong, format!("ours:\n{ours}\nrxe:\n{rxe}"))
    };
    let (wrong, printed) = again_while("a datagram was lost", once, |(wrong, _)| {
        let is_lost = |line: &String| LOST.iter().any(|lost| line.contains(lost));
        !wrong.is_empty() && wrong.iter().all(is_lost)
    });
    found.extend(wrong);
    let all = format!("rxe alone:\n{alone}\nbetween the two, {printed}");
    assert!(found.is_empty(), "{}\n\n{all}", found.join("\n"));
}
