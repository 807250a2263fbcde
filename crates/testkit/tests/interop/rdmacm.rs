//! Debian's programs that use the connection manager, on our `librdmacm.so.1`.
//!
//! Not tested: `udpong`, because it uses datagram sockets.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rdmalab_testkit::programs::{self, Connected, Ended, Process, WaitLimit};

use crate::case::{Case, LIMIT, full, is_full};

/// A pair: arguments of server and client, whether the server ends by itself, and words that their
/// output must contain, separated by `|`.
struct Pair {
    server: &'static str,
    client: &'static str,
    ends: bool,
    server_says: &'static str,
    client_says: &'static str,
}

const fn pair(
    server: &'static str,
    client: &'static str,
    server_says: &'static str,
    client_says: &'static str,
) -> Pair {
    Pair { server, client, ends: true, server_says, client_says }
}

/// `PORT` is replaced. `udaddy` has no option for its port, which is [`UDADDY_PORT`].
const SHORT: &[Pair] = &[
    pair(
        "rping -s -p PORT -C 10 -v",
        "rping -c -a 127.0.0.1 -p PORT -C 10 -v",
        "server ping data: rdma-ping-9:",
        "ping data: rdma-ping-9:",
    ),
    pair("rping -s -p PORT -C 1000", "rping -c -a 127.0.0.1 -p PORT -C 1000 -V", "", ""),
    pair("rping -s -p PORT -C 3", "rping -c -a ::1 -p PORT -C 3", "", ""),
    Pair {
        server: "rping -s -P -p PORT",
        client: "rping -c -a 127.0.0.1 -p PORT -C 5",
        ends: false,
        server_says: "",
        client_says: "",
    },
    pair(
        "ucmatose -p PORT -c 10 -C 20",
        "ucmatose -p PORT -s 127.0.0.1 -c 10 -C 20",
        "return status 0",
        "data transfers complete|return status 0",
    ),
    pair(
        "ucmatose -p PORT -c 3 -m",
        "ucmatose -p PORT -s 127.0.0.1 -c 3 -m",
        "return status 0",
        "migrating to new event channel|return status 0",
    ),
    pair(
        "udaddy -c 5",
        "udaddy -s 127.0.0.1 -c 5",
        "return status 0",
        "data transfers complete|return status 0",
    ),
    pair(
        "rdma_server -p PORT",
        "rdma_client -s 127.0.0.1 -p PORT",
        "rdma_server: end 0",
        "rdma_client: end 0",
    ),
    pair(
        "rdma_xserver -p PORT",
        "rdma_xclient -s 127.0.0.1 -p PORT",
        "rdma_xserver: end 0",
        "rdma_xclient: end 0",
    ),
    // This server never ends: it handles events in an endless loop.
    Pair {
        server: "cmtime -p PORT",
        client: "cmtime -s 127.0.0.1 -p PORT -c 20",
        ends: false,
        server_says: "",
        client_says: "connect      :|disconnect   :|destroy      :",
    },
    pair(
        "rstream -p PORT -S 65536 -I 20 -C 5 -T v",
        "rstream -s 127.0.0.1 -p PORT -S 65536 -I 20 -C 5 -T v",
        "custom",
        "custom",
    ),
    pair(
        "rstream -p PORT -S 100 -I 200 -T a -T n",
        "rstream -s 127.0.0.1 -p PORT -S 100 -I 200 -T a -T n",
        "custom",
        "custom",
    ),
    pair(
        "ib_send_bw -R -F -n 300 -p PORT",
        "ib_send_bw -R -F -n 300 -p PORT 127.0.0.1",
        "rdma_cm",
        "65536      300",
    ),
    pair(
        "ib_send_lat -R -F -c UD -n 300 -p PORT",
        "ib_send_lat -R -F -c UD -n 300 -p PORT 127.0.0.1",
        "rdma_cm",
        "2       300",
    ),
    // It spins on memory and needs a time slice for each transfer if processors are short.
    pair(
        "riostream -p PORT -S 5000 -I 10 -C 3",
        "riostream -s 127.0.0.1 -p PORT -S 5000 -I 10 -C 3",
        "custom",
        "custom",
    ),
];

const LONG: &[Pair] = &[
    pair(
        "rping -s -p PORT -C 100 -S 60000 -v",
        "rping -c -a 127.0.0.1 -p PORT -C 100 -S 60000",
        "",
        "",
    ),
    pair("ucmatose -p PORT -c 100", "ucmatose -p PORT -s 127.0.0.1 -c 100", "status 0", "status 0"),
    pair("rstream -p PORT", "rstream -s 127.0.0.1 -p PORT", "1m_bw", "1m_bw"),
];

/// Where `udaddy` listens.
const UDADDY_PORT: u16 = 7174;

/// The same pairs run with each of these personalities.
const PERSONALITIES: [&str; 2] = ["infiniband", "ethernet"];

fn start(line: &str, port: u16, personality: &str) -> Option<Process> {
    let case = Case::parse(&line.replace("PORT", &port.to_string()));
    let Some(path) = programs::find(&case.program) else {
        programs::skipped(&case.program, "not installed");
        return None;
    };
    let mut variables = case.variables;
    variables.push(("RDMALAB_PERSONALITY".to_owned(), personality.to_owned()));
    Some(programs::start(&path, &case.options, &variables))
}

fn lacks(ended: &Ended, words: &str) -> Option<String> {
    let missing = words.split('|').find(|word| !ended.stdout.contains(word))?;
    Some(format!("does not say {missing:?}"))
}

/// Starts the server, and the client once the server is bound; `None` if they are not installed.
fn start_pair(pair: &Pair, port: u16, personality: &str) -> Option<[Process; 2]> {
    let mut server = start(pair.server, port, personality)?;
    programs::wait_until_bound(&mut server, port);
    Some([server, start(pair.client, port, personality)?])
}

fn run(pair: &Pair, personality: &str) -> Result<(), String> {
    let is_fixed = pair.server.starts_with("udaddy");
    let _turn = is_fixed.then(|| programs::machine_turn(&format!("port-{UDADDY_PORT}")));
    let start = || {
        let port = if is_fixed { UDADDY_PORT } else { programs::free_port() };
        start_pair(pair, port, personality)
    };
    let patience = if pair.ends { LIMIT } else { Duration::from_secs(1) };
    let Some(ends) = programs::connected(start, LIMIT, patience) else { return Ok(()) };
    let Connected { server, client, .. } = ends;
    let wrong = if !client.succeeded() {
        Some("the client failed".to_owned())
    } else if programs::is_refused(&client) {
        // A cmtime whose client is refused succeeds: it measures how fast the refusal comes.
        Some("the client was refused".to_owned())
    } else if pair.ends && !server.succeeded() {
        Some("the server failed".to_owned())
    } else if server.status.is_some_and(|status| status.signal().is_some()) {
        Some("the server was ended by a signal".to_owned())
    } else {
        lacks(&client, pair.client_says).or_else(|| lacks(&server, pair.server_says))
    };
    match wrong {
        None => Ok(()),
        Some(wrong) => Err(format!("{wrong}\n{}{}", client.report(), server.report())),
    }
}

#[track_caller]
fn check(pairs: &[Pair], personality: &str) {
    let only = std::env::var("RDMALAB_INTEROP_ONLY").unwrap_or_default();
    let mut failures = Vec::new();
    for pair in pairs.iter().filter(|pair| pair.client.contains(&only)) {
        let _turn = programs::turn();
        let began = Instant::now();
        if let Err(wrong) = run(pair, personality) {
            failures.push(format!("{personality}: {}: {wrong}", pair.client));
        }
        println!("{:6.2} s  {}", began.elapsed().as_secs_f64(), pair.client);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A missing interface is an error. It is not treated as if no interface had been named.
#[test]
fn an_interface_that_is_not_there_is_told() {
    let Some(path) = programs::find("rping") else {
        return programs::skipped("an_interface_that_is_not_there", "rping is not installed");
    };
    let _turn = programs::turn();
    let options = ["-s", "-C", "1", "-p", &programs::free_port().to_string()].map(str::to_owned);
    let variables = [("RDMALAB_INTERFACE".to_owned(), "etH0".to_owned())];
    let ended = programs::start(&path, &options, &variables).end_by(Instant::now() + LIMIT);
    assert!(ended.status.is_some() && !ended.succeeded(), "{}", ended.report());
    assert!(ended.stderr.contains("there is no such network interface"), "{}", ended.report());
}

#[test]
fn programs_connect() {
    check(SHORT, PERSONALITIES[0]);
}

#[test]
fn programs_connect_by_gid() {
    check(&SHORT[..if full() { SHORT.len() } else { 4 }], PERSONALITIES[1]);
}

#[test]
fn programs_connect_often() {
    if is_full("programs_connect_often") {
        check(LONG, PERSONALITIES[0]);
    }
}

/// A persistent server serves one client after the other, even after one was killed.
#[test]
fn a_persistent_server_goes_on() {
    let _turn = programs::turn();
    let port = programs::free_port();
    let Some(mut server) = start("rping -s -P -p PORT", port, "infiniband") else { return };
    programs::wait_until_bound(&mut server, port);
    let client = |count| {
        let line = format!("rping -v -c -a 127.0.0.1 -p PORT {count}");
        start(&line, port, "infiniband").expect("as the server is")
    };
    let once = || client("-C 5").end_by(Instant::now() + LIMIT);
    for round in 0..3 {
        let ended = programs::again_while(programs::SPOILED, once, programs::is_refused);
        assert!(ended.succeeded() && !server.has_ended(), "client {round}\n{}", ended.report());
        let mut killed = client("");
        let mut wait_limit = WaitLimit::of(LIMIT);
        while !killed.said().contains("ping data") && !killed.has_ended() && wait_limit.is_left() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let killed = killed.end_by(Instant::now());
        assert!(killed.stdout.contains("ping data"), "{}", killed.report());
    }
    let last = once();
    assert!(
        last.succeeded() && !server.has_ended(),
        "after the last was killed\n{}",
        last.report()
    );
}

/// The server is for one client and ends when this client vanishes without disconnecting.
#[test]
fn a_killed_client_is_noticed() {
    let _turn = programs::turn();
    let talks = pair("rping -s -p PORT -v", "rping -c -a 127.0.0.1 -p PORT", "", "");
    let once = || {
        let [mut server, mut client] = start_pair(&talks, programs::free_port(), "infiniband")?;
        let mut wait_limit = WaitLimit::of(LIMIT);
        let has_talked = |server: &Process| server.said().contains("server ping data");
        while !has_talked(&server) && !client.has_ended() && wait_limit.is_left() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Kill the client, unless it was refused.
        let is_too_early =
            programs::is_refused(&client.end_by(Instant::now())) && !server.has_ended();
        let patience = if is_too_early { Duration::ZERO } else { LIMIT };
        Some((server.end_by(Instant::now() + patience), is_too_early))
    };
    let is_too_early = |ends: &Option<(Ended, bool)>| ends.as_ref().is_some_and(|ends| ends.1);
    let Some((server, _)) = programs::again_while(programs::SPOILED, once, is_too_early) else {
        return;
    };
    assert!(server.status.is_some(), "the server never noticed\n{}", server.report());
    assert!(server.stdout.contains("server ping data"), "{}", server.report());
}

/// The reason for a refusal is printed even without `RDMALAB_DEBUG`.
#[test]
fn xrc_is_refused_with_the_reason() {
    for line in ["rdma_xserver -c x -p PORT", "rdma_xclient -c x -s 127.0.0.1 -p PORT"] {
        let _turn = programs::turn();
        let quiet = format!("RDMALAB_DEBUG=0 {line}");
        let Some(program) = start(&quiet, programs::free_port(), "infiniband") else { return };
        let ended = program.end_by(Instant::now() + LIMIT);
        let says = ended.stderr.contains("rdma_create_ep: the soft device has no XRC queue pairs");
        assert!(says && ended.status.is_some() && !ended.succeeded(), "{}", ended.report());
    }
}

#[test]
fn a_port_where_nobody_listens_is_refused() {
    let _turn = programs::turn();
    let port = programs::free_port();
    let Some(client) = start("rping -c -a 127.0.0.1 -p PORT", port, "infiniband") else { return };
    let ended = client.end_by(Instant::now() + LIMIT);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains("RDMA_CM_EVENT_REJECTED, error 8"), "{}", ended.report());
}

/// A second server ends with the reason, which it gets from `rdma_bind_addr` or `rdma_create_ep`,
/// even without `RDMALAB_DEBUG`.
#[test]
fn a_port_that_is_taken_is_told() {
    let _turn = programs::turn();
    let port = programs::free_port();
    let Some(mut first) = start("rping -s -p PORT", port, "infiniband") else { return };
    programs::wait_until_bound(&mut first, port);
    for line in [
        "rping -s -p PORT",
        "rping -s -P -p PORT",
        "rping -s -a 127.0.0.1 -p PORT",
        "ucmatose -p PORT",
        "rdma_server -p PORT",
        "rstream -p PORT",
        "ib_send_bw -R -F -p PORT",
    ] {
        let quiet = format!("RDMALAB_DEBUG=0 {line}");
        let second = start(&quiet, port, "infiniband").expect("as the first is");
        let ended = second.end_by(Instant::now() + LIMIT);
        let says = ended.stderr.contains(&format!("port {port} is taken on this host"));
        assert!(says && ended.status.is_some() && !ended.succeeded(), "{}", ended.report());
    }
    assert!(!first.has_ended(), "{}", first.end_by(Instant::now()).report());
}

/// Every receiver gets all ten datagrams, although the sender posts them, destroys its queue pair
/// and exits without polling for completions. (It sleeps for 3 s between joining and sending.)
#[test]
fn a_group_is_joined_and_sent_to() {
    for round in 0..2 {
        let _turn = programs::turn();
        let _group = programs::machine_turn("group-239.7.7.7");
        let receivers: Vec<Process> = (0..3)
            .filter_map(|_| start("mckey -m 239.7.7.7 -b 127.0.0.1", 0, "infiniband"))
            .collect();
        let sender = "mckey -s -m 239.7.7.7 -b 127.0.0.1";
        let Some(sender) = start(sender, 0, "infiniband") else { return };
        let sender = sender.end_by(Instant::now() + LIMIT);
        assert!(sender.succeeded(), "{}", sender.report());
        for said in ["data transfers complete", "joined dgid: ff12:4001:ffff::f07:707"] {
            assert!(sender.stdout.contains(said), "{}", sender.report());
        }
        for receiver in receivers {
            let receiver = receiver.end_by(Instant::now() + LIMIT);
            assert!(receiver.succeeded(), "round {round}\n{}", receiver.report());
        }
    }
}

#[test]
fn a_file_is_copied() {
    let _turn = programs::turn();
    let Some(path) = programs::find("rcopy") else { return programs::skipped("rcopy", "no rcopy") };
    let name = |which: &str| -> PathBuf {
        std::env::temp_dir().join(format!("rdmalab-rcopy-{which}-{}", std::process::id()))
    };
    let (from, to) = (name("from"), name("to"));
    let bytes: Vec<u8> =
        (0..1_500_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&from, &bytes).expect("a temporary file");
    let arguments =
        |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let start = || {
        let port = programs::free_port();
        let number = port.to_string();
        let mut server = programs::start(&path, &arguments(&["-p", &number]), &[]);
        programs::wait_until_bound(&mut server, port);
        let target = format!("127.0.0.1:{}", to.display());
        let client = arguments(&[&from.display().to_string(), &target, "-p", &number]);
        Some([server, programs::start(&path, &client, &[])])
    };
    // The server never ends.
    let ends = programs::connected(start, LIMIT, Duration::from_millis(500)).expect("rcopy");
    let copied = std::fs::read(&to).unwrap_or_default();
    let _ = (std::fs::remove_file(&from), std::fs::remove_file(&to));
    assert!(copied == bytes, "{} bytes arrived\n{}", copied.len(), ends.report());
}

/// The connection manager's ports and the kernel's are separate: both may use the same number.
#[test]
fn ports_of_ip_are_others() {
    let _turn = programs::turn();
    let port = programs::free_port();
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let _udp = UdpSocket::bind(address).expect("the port is free");
    let taken = pair("rping -s -p PORT -C 1", "rping -c -a 127.0.0.1 -p PORT -C 1", "", "");
    let start = || start_pair(&taken, port, "infiniband");
    let Some(ends) = programs::connected(start, LIMIT, LIMIT) else { return };
    assert!(ends.client.succeeded() && ends.server.succeeded(), "{}", ends.report());
}
