//! One-way times between hosts with two clocks: one server claims to be another machine. In truth
//! both hosts have the same clock.

use std::time::Instant;

use rdmalab_testkit::programs;

use crate::lab::{LIMIT, Lab};

/// The number after the first occurrence of `name`.
fn number_after(text: &str, name: &str) -> Option<f64> {
    let rest = &text[text.find(name)? + name.len()..];
    let rest = rest.trim_start_matches(|c: char| !c.is_ascii_digit() && c != '-');
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-');
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

/// Runs `oneway` from host 2 to host 1, whose worker claims to be `machine`; returns the JSON.
fn oneway(lab: &Lab, machine: &str) -> String {
    let (port, until) = (programs::free_port(), Instant::now() + LIMIT);
    let rdmalab = programs::rdmalab().display();
    let serve = format!("{rdmalab} serve --bind 10.91.0.1:{port}");
    let mut server = lab.start_with(1, &serve, &[("RDMALAB_TEST_MACHINE", machine)]);
    assert!(server.wait_until_it_listens(port), "{}", server.end_by(Instant::now()).report());
    let run = format!(
        "{rdmalab} run oneway 10.91.0.1:{port} --device soft0 --messages 40 --runs 5 --warm-up 0 \
         --pause 0 --no-record --format json"
    );
    let client = lab.start(2, &run).end_by(until);
    let server = server.end_by(Instant::now());
    assert!(client.succeeded(), "{}{}", client.report(), server.report());
    client.stdout
}

#[test]
fn one_way_times_between_clocks_say_their_error_or_are_not_shown() {
    let _turn = programs::turn();
    // Build the binary before the hosts are made: the test needs new hosts.
    let _built = programs::rdmalab();
    let Some(lab) = Lab::with("one_way_times_between_clocks", 2, 1500) else { return };
    let said = oneway(&lab, "another");
    // The link-local GID is first in the table, but on a new host nobody answers for it yet.
    assert!(said.contains("\"gid\": \"::ffff:10.91.0.2\""), "{said}");
    let error_ns = number_after(&said, "clock_error_ns").expect("an error");
    assert!(error_ns > 1.0 && error_ns < 1e9, "{said}");
    match said.find("\"one_way_ns\"") {
        Some(at) => {
            let median_ns = number_after(&said[at..], "median_ns").expect("a median");
            assert!(median_ns.abs() >= error_ns, "{said}");
        }
        None => assert!(said.contains("t_lat is not shown"), "{said}"),
    }
}
