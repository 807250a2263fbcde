//! Our library on the host, the kernel's rxe in the guest. Both ends run the same unmodified
//! programs, each as server and as client.

use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rdmalab_testkit::programs::{self, Ended, Process, WaitLimit};

use crate::boot;
use crate::guest::{Done, GUEST, Guest, HOST};

/// How long our end may take: the guest is emulated and slow.
const LIMIT: Duration = Duration::from_secs(120);

/// Programs with their options. `@gid` stands for the GID index of the address family; device and
/// port are added. perftest takes the number of outstanding READs from its own device, which is 128
/// for rxe and 16 for us, but the peer may serve fewer: `-o` sets a number that both can serve.
const PAIRS: &str = "
    ibv_rc_pingpong -g @gid -n 20
    ibv_rc_pingpong -g @gid -n 5 -m 256 -c
    ibv_rc_pingpong -g @gid -n 10 -s 64 -e
    ibv_rc_pingpong -g @gid -n 10 -s 1001 -c
    ibv_uc_pingpong -g @gid -n 20
    ibv_ud_pingpong -g @gid -n 20 -s 1024
    ibv_srq_pingpong -g @gid -n 20 -q 4
    ib_send_lat -x @gid -n 50 -F
    ib_send_lat -x @gid -n 50 -F -c UD
    ib_send_lat -x @gid -n 50 -F -c UC
    ib_write_lat -x @gid -n 20 -F
    ib_write_lat -x @gid -n 20 -F -s 5001
    ib_read_lat -x @gid -o 16 -n 20 -F
    ib_read_lat -x @gid -o 16 -n 20 -F -s 5001
    ib_atomic_lat -x @gid -o 16 -n 20 -F -A CMP_AND_SWAP
    ib_atomic_lat -x @gid -o 16 -n 20 -F -A FETCH_AND_ADD
    ib_send_bw -x @gid -n 20 -s 65536 -F
    ib_write_bw -x @gid -n 20 -s 65536 -F
    ib_read_bw -x @gid -o 16 -n 20 -s 65536 -F
";

/// Programs that must work in spite of loss. Pingpongs are missing: their ends exit after the last
/// message. If its acknowledgement is lost, the retransmission meets no peer, so one run in thirty
/// ends with `IBV_WC_RETRY_EXC_ERR`. perftest's ends synchronise before they exit.
const UNDER_LOSS: &str = "
    ib_send_lat -x @gid -n 40 -s 4000 -F
    ib_send_bw -x @gid -n 20 -s 20000 -F
    ib_write_bw -x @gid -n 10 -s 65536 -F
    ib_read_bw -x @gid -o 16 -n 10 -s 65536 -F
    ib_atomic_lat -x @gid -o 16 -n 20 -F
";

/// The side that runs the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Kernel,
    Ours,
}

/// The family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// Index of its GID, the same on the kernel's device and ours.
    fn gid(self) -> &'static str {
        match self {
            Self::V4 => "1",
            Self::V6 => "2",
        }
    }
}

/// The results of both ends.
struct Ends {
    here: Ended,
    there: Done,
}

impl Ends {
    fn are_fine(&self) -> bool {
        self.here.succeeded() && self.there.status == 0
    }

    fn report(&self) -> String {
        format!("{}{}", self.here.report(), self.there.report())
    }

    /// Whether one end succeeded and the other only lacks an acknowledgement. Pingpongs exit after
    /// the last message; if its acknowledgement is lost, the peer's retransmissions get no answer.
    fn left_one_behind(&self) -> bool {
        const TIMED_OUT: i32 = 124;
        let has_all = |output: &str| output.contains(" iters in ");
        let lacks_one = |output: &str| output.contains("transport retry counter exceeded");
        let (here, there) = (&self.here, &self.there);
        let says = format!("{}{}", here.stdout, here.stderr);
        let is_there = here.succeeded() && has_all(&here.stdout);
        let is_here = there.status == 0 && has_all(&there.output);
        is_there && (lacks_one(&there.output) || there.status == TIMED_OUT)
            || is_here && lacks_one(&says)
    }
}

struct Pair<'a> {
    words: Vec<String>,
    server: Server,
    port: u16,
    guest: &'a mut Guest,
}

impl Pair<'_> {
    /// Runs both ends; returns the report of the last attempt if it failed.
    fn run(&mut self) -> Result<(), String> {
        let once = || {
            let ends = self.run_once();
            let is_spoiled = !ends.are_fine() && self.is_spoiled(&ends);
            (ends, is_spoiled)
        };
        let (ends, _) = programs::again_while(programs::SPOILED, once, |(_, spoiled)| *spoiled);
        if ends.are_fine() { Ok(()) } else { Err(ends.report()) }
    }

    fn run_once(&mut self) -> Ends {
        let (here, there) = match self.server {
            Server::Kernel => self.served_by_the_kernel(),
            Server::Ours => self.served_by_us(),
        };
        Ends { here, there }
    }

    fn is_spoiled(&self, ends: &Ends) -> bool {
        let report = ends.report();
        let is = |names: [&str; 2]| names.contains(&self.words[0].as_str());
        // Without retransmission: after a loss on a busy machine these wait until killed.
        let is_unreliable = is(["ibv_uc_pingpong", "ibv_ud_pingpong"])
            || self.words.iter().any(|w| ["UC", "UD"].contains(&w.as_str()));
        // Failures before any RDMA: TCP or neighbour resolution times out because the emulation is
        // too slow, or perftest cannot measure its clock.
        is_unreliable
            || report.contains("Couldn't connect to ")
            || programs::are_disturbed(&report)
            || is(["ibv_rc_pingpong", "ibv_srq_pingpong"]) && ends.left_one_behind()
    }

    fn served_by_the_kernel(&mut self) -> (Ended, Done) {
        let server = self.line("rxe0", false);
        self.guest.start("server", &server);
        self.guest.await_port(self.port);
        let (program, arguments) = self.ours(true);
        let client = self.guest.start_here(Path::new(&program), &arguments);
        let client = client.end_by(Instant::now() + LIMIT);
        if !client.succeeded() {
            // The program waits for a peer that has ended.
            self.guest.run(&format!("killall {}", self.words[0]));
        }
        (client, self.guest.wait("server"))
    }

    fn served_by_us(&mut self) -> (Ended, Done) {
        let (program, arguments) = self.ours(false);
        let server = self.guest.start_here(Path::new(&program), &arguments);
        await_port(server.id(), self.port);
        let client = self.line("rxe0", true);
        let done = self.guest.run(&client);
        let patience = if done.status == 0 { LIMIT } else { Duration::ZERO };
        (server.end_by(Instant::now() + patience), done)
    }

    /// The command line for one end.
    fn line(&self, device: &str, is_client: bool) -> String {
        let mut words = self.words.clone();
        words.extend(["-d".to_owned(), device.to_owned()]);
        words.extend(["-p".to_owned(), self.port.to_string()]);
        // The programs always meet over IPv4, whatever address family the packets use.
        let server = if self.server == Server::Kernel { GUEST } else { HOST };
        words.extend(is_client.then(|| server.to_owned()));
        words.join(" ")
    }

    /// Our program's name and arguments.
    fn ours(&self, is_client: bool) -> (String, Vec<String>) {
        let line = self.line("soft0", is_client);
        let mut words = line.split_whitespace().map(str::to_owned);
        let name = words.next().expect("a program");
        let path = programs::find(&name).map_or(name, |path| path.display().to_string());
        (path, words.collect())
    }
}

/// Waits until a program in the network namespace of a process listens on a TCP port, or until the
/// process has ended.
fn await_port(process: u32, port: u16) {
    let mut wait_limit = WaitLimit::of(LIMIT);
    while !rdmalab_testing::listens(process, port) && wait_limit.is_left() {
        if std::fs::metadata(format!("/proc/{process}")).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The next port of a pair. No other pair in the same guest has had it.
static PORT: AtomicU16 = AtomicU16::new(19_200);

/// Runs each line with each side as the server. Fails with the reports of all failed runs.
#[track_caller]
fn check(guest: &mut Guest, table: &str, family: Family) {
    let only = std::env::var("RDMALAB_INTEROP_ONLY").unwrap_or_default();
    let mut failures = Vec::new();
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in lines.filter(|line| line.contains(&only)) {
        for server in [Server::Kernel, Server::Ours] {
            let port = PORT.fetch_add(1, Ordering::Relaxed);
            let words = line.replace("@gid", family.gid());
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            let result = Pair { words, server, port, guest }.run();
            println!(
                "{line} {family:?}, served by {server:?}: {}",
                match &result {
                    Ok(()) => "passed",
                    Err(_) => "FAILED",
                }
            );
            if let Err(report) = result {
                failures.push(format!("== {line}, {family:?}, served by {server:?}\n{report}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn unmodified_programs_talk_to_the_kernel() {
    let Some(mut guest) = boot("peers") else { return };
    check(&mut guest, PAIRS, Family::V4);
}

#[test]
fn also_over_ipv6() {
    let Some(mut guest) = boot("peers6") else { return };
    let few = "
        ibv_rc_pingpong -g @gid -n 20 -c
        ibv_ud_pingpong -g @gid -n 10 -s 1000
        ib_write_lat -x @gid -n 20 -F -s 5001
    ";
    check(&mut guest, few, Family::V6);
}

#[test]
fn loss_costs_time_and_nothing_else() {
    let Some(mut guest) = boot("loss") else { return };
    // The guest loses packets that it sends, so our requests are answered late and its requests
    // arrive with gaps. Our side loses requests, so the guest finds gaps and sends NAKs.
    guest.run("/usr/bin/tc qdisc add dev eth0 root netem loss 3%").expect();
    guest.faults = "drop 3% of request";
    check(&mut guest, UNDER_LOSS, Family::V4);
    let told = guest.run("/usr/bin/tc -s qdisc show dev eth0");
    assert!(told.output.contains("dropped ") && !told.output.contains("dropped 0,"), "{told:?}");
}

/// Programs that connect by rdma_cm, each with its server and client command; `@a` is the server's
/// address.
const CONNECTED: [[&str; 2]; 4] = [
    ["rping -s -a @a -C 5", "rping -c -a @a -C 5 -v"],
    ["rping -s -a @a -C 3 -S 4000", "rping -c -a @a -C 3 -S 4000"],
    ["udaddy -b @a -c 2 -C 5", "udaddy -s @a -c 2 -C 5"],
    ["ucmatose -b @a -c 2 -C 5", "ucmatose -s @a -c 2 -C 5"],
];

#[test]
fn connections_by_rdma_cm_are_made_both_ways() {
    let Some(mut guest) = boot("cm") else { return };
    check_connected(&mut guest, &CONNECTED, false);
    // Now the guest loses one packet in eight, including messages of its connection manager.
    guest.run("/usr/bin/tc qdisc add dev eth0 root netem loss 12%").expect();
    check_connected(&mut guest, &CONNECTED[..2], true);
}

/// How long our server may take from bind to listen. If it takes longer, its client is refused, and
/// the pair runs again.
const UNTIL_IT_LISTENS: Duration = Duration::from_millis(200);

/// How long our server may take to end after its client, whose only DREQ may be lost.
const UNTIL_DISCONNECTED: Duration = Duration::from_secs(10);

/// Why a pair runs again under loss.
const DREQ_LOST: &str = "the guest's only DREQ may have been lost: a destroyed id repeats none";

/// The port of a server of the connection manager that is told none.
fn port_of(server: &str) -> u16 {
    if server.starts_with("ucmatose") { 7471 } else { 7174 }
}

/// The results of a pair.
struct Connected {
    /// Our end.
    here: Ended,
    /// The kernel's.
    there: Done,
    /// Whether the failure is no fault of our library.
    is_spoiled: bool,
}

fn started(guest: &Guest, line: &str) -> Process {
    let mut words = line.split_whitespace().map(str::to_owned);
    let name = words.next().expect("a program");
    let path = programs::find(&name).unwrap_or_else(|| name.into());
    guest.start_here(&path, &words.collect::<Vec<_>>())
}

fn connected_to_the_kernel(guest: &mut Guest, [server, client]: [&str; 2]) -> Connected {
    const TERMINATED: i32 = 128 + 15;
    guest.start("server", &server.replace("@a", GUEST));
    guest.await_listener();
    let client = started(guest, &client.replace("@a", GUEST)).end_by(Instant::now() + LIMIT);
    if !client.succeeded() {
        guest.run(&format!("killall {}", server.split(' ').next().unwrap_or_default()));
    }
    let server = guest.wait("server");
    // The client came too early and was refused; the server waited for another until killed.
    let is_spoiled = programs::is_refused(&client) && server.status == TERMINATED;
    Connected { here: client, there: server, is_spoiled }
}

fn connected_to_us(guest: &mut Guest, [server, client]: [&str; 2], loses: bool) -> Connected {
    let port = port_of(server);
    let mut server = started(guest, &server.replace("@a", HOST));
    programs::wait_until_bound(&mut server, port);
    std::thread::sleep(UNTIL_IT_LISTENS);
    let client = guest.run(&client.replace("@a", HOST));
    let limit = match client.status {
        0 if loses => UNTIL_DISCONNECTED,
        0 => LIMIT,
        _ => Duration::ZERO,
    };
    let server = server.end_by(Instant::now() + limit);
    let never_ended = server.status.is_none();
    let is_spoiled = match client.status {
        0 => loses && never_ended,
        _ => programs::are_refused(&client.output) && never_ended,
    };
    Connected { here: server, there: client, is_spoiled }
}

/// Runs each pair with each side as the server. Fails with the reports of all failed runs.
#[track_caller]
fn check_connected(guest: &mut Guest, pairs: &[[&str; 2]], loses: bool) {
    let is_spoiled = |ends: &Connected| ends.is_spoiled;
    let mut failures = Vec::new();
    for pair in pairs {
        let served_by_the_kernel = || connected_to_the_kernel(guest, *pair);
        let kernel = programs::again_while(programs::SPOILED, served_by_the_kernel, is_spoiled);
        let why = if loses { DREQ_LOST } else { programs::SPOILED };
        let us = programs::again_while(why, || connected_to_us(guest, *pair, loses), is_spoiled);
        for (who, Connected { here, there, .. }) in [("the kernel", kernel), ("us", us)] {
            // rping's server exits with an error when its client has left; its output counts.
            let fine = here.succeeded() && there.status == 0;
            println!("{}, served by {who}: {}", pair[0], if fine { "passed" } else { "FAILED" });
            if !fine {
                failures.push(format!("== served by {who}\n{}{}", here.report(), there.report()));
            }
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}
