//! Several processes of a host share one UDP port. Each gets its own packets, and the others go on
//! when the process that reads the port dies.

use std::time::{Duration, Instant};

use rdmalab_testkit::programs::{self, Ended, Process};

use crate::lab::{LIMIT, Lab};

/// A running pair: server on host 1, client on host 2.
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
    // The first process reads the port and exits first. UD would not repeat a datagram that the
    // next reader dropped.
    let calls = [
        "ibv_rc_pingpong -c -e -g 1 -n 300",
        "ibv_rc_pingpong -c -e -g 2 -n 2000",
        "ibv_ud_pingpong -c -e -g 1 -n 3000",
    ];
    let pairs: Vec<Pair> = calls.iter().map(|call| start(&lab, call, &[])).collect();
    let ends: Vec<Ended> = pairs.into_iter().flat_map(finish).collect();
    // The reader of the port counts all dropped packets and reports them: print all reports.
    let reports: String = ends.iter().map(Ended::report).collect();
    let kernel = [1, 2].map(|host| lab.udp_counters(host)).join("");
    assert!(ends.iter().all(Ended::succeeded), "{reports}{kernel}");
}

/// A pair is under way after this many packets; in all it has forty times as many.
const UNDER_WAY: u64 = 1000;
/// Makes 10000 round trips take 5 s on any machine.
const SLOWLY: [(&str, &str); 1] = [("RDMALAB_FAULTS", "delay 500us of send")];

/// The first process of each host reads the port. When it is killed, the second takes over.
#[test]
fn the_port_outlives_its_reader() {
    let test = "the_port_outlives_its_reader";
    let Some(lab) = Lab::of_waiting(test, 1500, &["ibv_rc_pingpong", "kill"]) else { return };
    let once = || pair_without_readers(&lab);
    let was_too_fast =
        |(in_time, ends): &(bool, [Ended; 2])| !in_time && ends.iter().all(Ended::succeeded);
    let (in_time, ends) = programs::again_while(programs::SPOILED, once, was_too_fast);
    for ended in &ends {
        assert!(ended.succeeded(), "{}", ended.report());
    }
    assert!(in_time, "it was too fast for this test each time");
}

/// Runs a pair whose hosts both lose their readers. Returns whether the pair was still running when
/// the second reader was killed.
fn pair_without_readers(lab: &Lab) -> (bool, [Ended; 2]) {
    // This process sleeps in ibv_get_cq_event from the start, since nobody connects to it.
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
        // Dropping a program kills it with SIGKILL.
        drop(owner);
    }
    (!pair.client.has_ended(), finish(pair))
}

/// If another user has the port, one clear line says so, and choosing another port helps.
#[test]
fn a_taken_port_is_told_with_what_to_do() {
    let test = "a_taken_port_is_told_with_what_to_do";
    let names = ["ibv_devinfo", "ibv_rc_pingpong", "setpriv"];
    let Some(lab) = Lab::of_programs(test, 1500, &names) else { return };
    let port = programs::free_port();
    let mut first = lab.start(1, &format!("ibv_rc_pingpong -g 1 -p {port}"));
    assert!(first.wait_until_it_listens(port), "{}", first.end_by(Instant::now()).report());
    // Other users may be unable to read the library. The test needs another user id for the kernel.
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

/// No privileges are needed: both ends run as a user without any.
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
