//! Several processes of a host behind one port: packets find theirs, and the port survives the
//! death of its reader.

use std::time::{Duration, Instant};

use rdmalab_testkit::programs::{self, Ended, Process};

use crate::lab::{LIMIT, Lab};

/// A pair under way: servers on host 1, clients on host 2.
struct Pair {
    server: Process,
    client: Process,
}

fn start(lab: &Lab, call: &str, of_client: &[(&str, &str)]) -> Pair {
    let port = programs::free_port();
    let mut server = lab.start(1, &format!("{call} -p {port}"));
    if !server.wait_until_it_listens(port) {
        panic!("{}", server.end_by(Instant::now()).report());
    }
    let client = lab.start_with(2, &format!("{call} -p {port} 10.91.0.1"), of_client);
    Pair { server, client }
}

fn finish(pair: Pair) -> [Ended; 2] {
    let until = Instant::now() + LIMIT;
    [pair.client.end_by(until), pair.server.end_by(until)]
}

#[test]
fn two_processes_of_a_host_share_the_port() {
    let test = "two_processes_of_a_host_share_the_port";
    let names = ["ibv_rc_pingpong", "ibv_ud_pingpong"];
    let Some(lab) = Lab::of_programs(test, 1500, &names) else { return };
    // The first reads the port, and ends first: a datagram that its heir dropped would not come
    // again.
    let calls = [
        "ibv_rc_pingpong -c -e -g 1 -n 300",
        "ibv_rc_pingpong -c -e -g 2 -n 2000",
        "ibv_ud_pingpong -c -e -g 1 -n 3000",
    ];
    let pairs: Vec<Pair> = calls.iter().map(|call| start(&lab, call, &[])).collect();
    let ends: Vec<Ended> = pairs.into_iter().flat_map(finish).collect();
    // Who reads counts what is dropped, whosever it was, and says so at its end: all of them tell.
    let reports: String = ends.iter().map(Ended::report).collect();
    let kernel = [1, 2].map(|host| lab.udp_counters(host)).join("");
    assert!(ends.iter().all(Ended::succeeded), "{reports}{kernel}");
}

/// Packets by which a pair is under way; it has forty times as many.
const UNDER_WAY: u64 = 1000;
/// Has 10000 round trips last for 5 s on any machine.
const SLOWLY: [(&str, &str); 1] = [("RDMALAB_FAULTS", "delay 500us of send")];

/// The first process of each host reads the port; when it is killed, the second goes on.
#[test]
fn the_port_outlives_its_reader() {
    let test = "the_port_outlives_its_reader";
    let Some(lab) = Lab::of_programs(test, 1500, &["ibv_rc_pingpong", "kill"]) else { return };
    let once = || pair_without_readers(&lab);
    let was_too_fast =
        |(in_time, ends): &(bool, [Ended; 2])| !in_time && ends.iter().all(Ended::succeeded);
    let (in_time, ends) = programs::again_while(programs::SPOILED, once, was_too_fast);
    for ended in &ends {
        assert!(ended.succeeded(), "{}", ended.report());
    }
    assert!(in_time, "it was too fast for this test each time");
}

/// A pair whose hosts lose their readers, both ended; whether it was under way when the second one
/// went.
fn pair_without_readers(lab: &Lab) -> (bool, [Ended; 2]) {
    // Sleeps in get_cq_event from the start: nobody ever connects to it.
    let port = programs::free_port();
    let mut owners = Vec::new();
    for host in [1, 2] {
        let mut owner = lab.start(host, &format!("ibv_rc_pingpong -e -g 1 -p {port}"));
        assert!(owner.wait_until_it_listens(port), "{}", owner.end_by(Instant::now()).report());
        owners.push(owner);
    }
    let mut pair = start(lab, "ibv_rc_pingpong -c -e -g 1 -n 10000", &SLOWLY);
    for owner in owners {
        let before = lab.packets(1);
        while lab.packets(1) < before + UNDER_WAY && !pair.client.has_ended() {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Dropping a program kills it, as kill -9 does.
        drop(owner);
    }
    (!pair.client.has_ended(), finish(pair))
}

/// Somebody else has the port: one clear line, and another port helps.
#[test]
fn a_taken_port_is_told_with_what_to_do() {
    let test = "a_taken_port_is_told_with_what_to_do";
    let names = ["ibv_devinfo", "ibv_rc_pingpong", "setpriv"];
    let Some(lab) = Lab::of_programs(test, 1500, &names) else { return };
    let port = programs::free_port();
    let mut first = lab.start(1, &format!("ibv_rc_pingpong -g 1 -p {port}"));
    assert!(first.wait_until_it_listens(port), "{}", first.end_by(Instant::now()).report());
    // The library may lie where only root gets: what matters is who the kernel takes us for.
    let other = "setpriv --reuid 12345 --clear-groups --inh-caps -all --bounding-set -all";
    let line = format!("{other} ibv_devinfo");
    let refused = lab.start(1, &line).end_by(Instant::now() + LIMIT);
    if refused.stderr.contains("cannot open shared object") || refused.stdout.contains("rxe") {
        return programs::skipped(test, "another user cannot read our library");
    }
    let told = format!("{}{}", refused.stdout, refused.stderr);
    assert!(told.contains("UDP port 4791 on interface eth0 is taken"), "{}", refused.report());
    assert!(told.contains("RDMALAB_PORT"), "{}", refused.report());
    let free = lab.start(1, &format!("{other} env RDMALAB_PORT=4792 ibv_devinfo"));
    let free = free.end_by(Instant::now() + LIMIT);
    assert!(free.succeeded() && free.stdout.contains("PORT_ACTIVE"), "{}", free.report());
}

/// What a user may is enough: both ends are one that has no rights.
#[test]
fn users_without_rights_talk_to_another_host() {
    let test = "users_without_rights_talk_to_another_host";
    let names = ["ibv_rc_pingpong", "ibv_devinfo", "setpriv"];
    let Some(lab) = Lab::of_programs(test, 1500, &names) else { return };
    let user = "setpriv --reuid 12345 --clear-groups --inh-caps -all --bounding-set -all";
    let look = lab.start(1, &format!("{user} ibv_devinfo")).end_by(Instant::now() + LIMIT);
    if look.stderr.contains("cannot open shared object") || look.stdout.contains("rxe") {
        return programs::skipped(test, "another user cannot read our library");
    }
    assert!(look.succeeded() && look.stdout.contains("soft0"), "{}", look.report());
    for line in ["ibv_rc_pingpong -c -g 1 -n 200", "ibv_rc_pingpong -c -e -g 2 -n 100"] {
        let call = format!("{user} {line}");
        let before = lab.packets(1);
        lab.pair(&call, &call).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(lab.packets(1) > before + 100, "{line}: nothing crossed");
    }
}
