//! Programs that use the connection manager, on two hosts: its datagrams go to QP 1.

use std::time::{Duration, Instant};

use rdmalab_testkit::compiled::compile;
use rdmalab_testkit::programs::{self, Connected, Process, WaitLimit};

use crate::lab::Lab;

/// How long a pair may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Server, client with its option for the server's address, and least number of packets. The qperf
/// process that serves a connection exits without disconnecting. The library then tells the client,
/// whose own time-outs would last 105 s.
const PAIRS: [(&str, &str, u64); 10] = [
    ("rping -s -C 20", "rping -c -C 20 -a 10.91.0.1", 100),
    ("rping -s -C 5", "rping -c -C 5 -a fd91::1", 30),
    ("ucmatose -c 5", "ucmatose -c 5 -s 10.91.0.1", 50),
    ("udaddy -c 3", "udaddy -c 3 -s 10.91.0.1", 20),
    ("rstream -S 65536 -I 10 -C 3 -T v", "rstream -S 65536 -I 10 -C 3 -T v -s 10.91.0.1", 100),
    ("ib_send_lat -R -n 100", "ib_send_lat -R -n 100 10.91.0.1", 100),
    ("rdma_server", "rdma_client -s 10.91.0.1", 10),
    ("mckey -m 239.255.9.9 -b 10.91.0.1", "mckey -m 239.255.9.9 -b 10.91.0.2 -s", 10),
    ("riostream -S 64 -I 10 -C 3 -T v", "riostream -S 64 -I 10 -C 3 -T v -s 10.91.0.1", 10),
    ("qperf", "qperf 10.91.0.1 -t 1 -cm 1 rc_lat quit", 100),
];

/// How long a server may take from bind to listen.
const LISTENS: Duration = Duration::from_millis(200);

/// Waits until a server, started by this line, is ready for its client. The connection manager
/// would retransmit the request, but only after seconds.
fn wait_for(server: &mut Process, line: &str) {
    match line.split(' ').next().unwrap_or_default() {
        "qperf" => assert!(server.wait_until_it_listens(19_765), "{line} does not listen"),
        "mckey" => wait_until_it_is_member(server),
        "rping" => programs::wait_until_bound(server, 7174),
        "ib_send_lat" => programs::wait_until_bound(server, 18_515),
        "udaddy" => programs::wait_until_bound(server, 7174),
        _ => programs::wait_until_bound(server, 7471),
    }
    std::thread::sleep(LISTENS);
}

/// Waits until the network namespace of a program is a member of 239.255.9.9.
fn wait_until_it_is_member(program: &mut Process) {
    const GROUP: &str = "0909FFEF"; // In the order of this machine's bytes.
    let table = format!("/proc/{}/net/igmp", program.id());
    let mut wait_limit = WaitLimit::of(LIMIT);
    let is_member = || std::fs::read_to_string(&table).unwrap_or_default().contains(GROUP);
    while wait_limit.is_left() && !program.has_ended() && !is_member() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn programs_connect_to_another_host() {
    let test = "connected";
    let names = PAIRS.map(|(server, ..)| server.split(' ').next().unwrap_or_default());
    let Some(lab) = Lab::of_waiting(test, 1500, &names) else { return };
    let mut failures = Vec::new();
    for (server, client, packets) in PAIRS {
        let before = lab.packets(1);
        let start = || {
            let mut listening = lab.start(1, server);
            wait_for(&mut listening, server);
            Some([listening, lab.start(2, client)])
        };
        let ends = programs::connected(start, LIMIT, LIMIT).expect("both are installed");
        let Connected { server, client, .. } = ends;
        let crossed = lab.packets(1) - before;
        println!("{crossed:7} packets  {}", client.line);
        if !client.succeeded() || !server.succeeded() || crossed < packets {
            let what = format!("{crossed} packets crossed, {packets} at least should");
            failures.push(format!("{what}\n{}{}", client.report(), server.report()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A new IPv6 address cannot be used for a second or two. Address resolution waits for it, so that
/// no message is lost.
#[test]
fn a_new_address_is_waited_for_before_anything_is_sent() {
    let test = "a_new_address_is_waited_for_before_anything_is_sent";
    let Some(lab) = Lab::of_waiting(test, 1500, &["rping"]) else { return };
    let call = "rping -s -C 3 -a fd91::1";
    let mut numbers = 22..;
    let start = || {
        let mut server = lab.start(1, call);
        wait_for(&mut server, call);
        let address = format!("fd91::{}", numbers.next()?);
        lab.must(&format!("-n {} address add {address}/64 dev eth0", lab.namespace(2)));
        Some([server, lab.start(2, &format!("rping -c -C 3 -I {address} -a fd91::1"))])
    };
    let ends = programs::connected(start, LIMIT, LIMIT).expect("rping is installed");
    assert!(ends.client.succeeded() && ends.server.succeeded(), "{}", ends.report());
    assert!(!ends.client.stderr.contains("no message to"), "{}", ends.report());
}

/// A non-blocking caller does not wait while the source address is tentative.
#[test]
fn a_tentative_address_blocks_no_caller() {
    let test = "a_tentative_address_blocks_no_caller";
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sources = ["resolve_tentative_address.c", "endpoint.c"];
    let Some(program) = compile(scratch.path(), &sources, &["-lrdmacm", "-libverbs"]) else {
        return;
    };
    let Some(lab) = Lab::of_waiting(test, 1500, &["sysctl"]) else { return };
    let host = lab.namespace(2);
    // The address stays tentative for a minute, which is longer than the program waits for it.
    let probes = "net.ipv6.conf.eth0.dad_transmits=60";
    lab.must(&format!("netns exec {host} sysctl -q -w {probes}"));
    lab.must(&format!("-n {host} address add fd91::22/64 dev eth0"));
    let client = lab.start(2, &format!("{} fd91::22 fd91::1", program.display()));
    let client = client.end_by(Instant::now() + LIMIT);
    let said_so = client.stdout.lines().last() == Some("all passed");
    assert!(client.succeeded() && said_so, "{}", client.report());
}

/// Resolving an address that no host has ends with the time-out that the program gave.
#[test]
fn resolving_an_address_without_a_host_times_out() {
    let test = "resolving_an_address_without_a_host_times_out";
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let libraries = ["-lrdmacm", "-libverbs"];
    let Some(program) = compile(scratch.path(), &["resolve_timeout.c", "endpoint.c"], &libraries)
    else {
        return;
    };
    let Some(lab) = Lab::of_waiting(test, 1500, &[]) else { return };
    let host = lab.namespace(2);
    lab.must(&format!("-n {host} route add unreachable 198.51.100.0/24"));
    lab.must(&format!("-n {host} route add unreachable fd93::/64"));
    let families = [
        "10.91.0.77 10.91.0.1 203.0.113.9 198.51.100.9 10.91.0.2",
        "fd91::77 fd91::1 fd92::9 fd93::9 fd91::2",
    ];
    // Beside each other, as they only wait.
    let start = |addresses| lab.start(2, &format!("{} {addresses}", program.display()));
    for client in families.map(start) {
        let client = client.end_by(Instant::now() + LIMIT);
        let said_so = client.stdout.lines().last() == Some("all passed");
        assert!(client.succeeded() && said_so, "{}", client.report());
    }
}

/// The server of two ports gets the events of 200 connections in the order in which the client
/// connected.
#[test]
fn events_of_another_host_come_in_order() {
    let test = "events_of_another_host_come_in_order";
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let libraries = ["-lrdmacm", "-libverbs"];
    let Some(program) = compile(scratch.path(), &["event_order.c", "endpoint.c"], &libraries)
    else {
        return;
    };
    let Some(lab) = Lab::of_programs(test, 1500, &[]) else { return };
    let program = program.display();
    let start = || {
        let mut server = lab.start(1, &format!("{program} 7480"));
        programs::wait_until_bound(&mut server, 7481);
        std::thread::sleep(LISTENS);
        Some([server, lab.start(2, &format!("{program} 10.91.0.1 7480"))])
    };
    let ends = programs::connected(start, LIMIT, LIMIT).expect("it is compiled");
    assert!(ends.client.succeeded() && ends.server.succeeded(), "{}", ends.report());
}

/// The first REQ is lost. Nothing else wakes the connection manager, and the port is bound already:
/// only the retransmission timer can send the REQ again.
#[test]
fn a_request_that_is_lost_is_sent_again() {
    let test = "a_request_that_is_lost_is_sent_again";
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let libraries = ["-lrdmacm", "-libverbs"];
    let Some(program) =
        compile(scratch.path(), &["lost_connect_request.c", "endpoint.c"], &libraries)
    else {
        return;
    };
    let Some(lab) = Lab::of_waiting(test, 1500, &[]) else { return };
    let (program, directory) = (program.display(), scratch.path().display());
    let mut server = lab.start(1, &program.to_string());
    programs::wait_until_bound(&mut server, 7472);
    std::thread::sleep(LISTENS);
    let mut client = lab.start(2, &format!("{program} 10.91.0.1 {directory}"));
    let mut wait_for = |name| {
        while !scratch.path().join(name).exists() && !client.has_ended() {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!client.has_ended(), "it ended before it had {name}");
    };
    wait_for("resolved");
    lab.must(&format!("-n {} link set eth0 down", lab.namespace(1)));
    std::fs::write(scratch.path().join("go"), "").expect("a file");
    wait_for("requested");
    std::thread::sleep(Duration::from_millis(1000));
    assert!(!client.has_ended(), "{}", client.end_by(Instant::now()).report());
    lab.must(&format!("-n {} link set eth0 up", lab.namespace(1)));
    let client = client.end_by(Instant::now() + LIMIT);
    let server = server.end_by(Instant::now() + LIMIT);
    assert!(client.succeeded() && server.succeeded(), "{}{}", client.report(), server.report());
}

/// The experiment that makes connections, in both of its ways. The binary has the device inside and
/// lends it to our librdmacm.
#[test]
fn an_experiment_connects_to_another_host() {
    let _turn = programs::turn();
    let Some(lab) = Lab::with("an_experiment_connects", 2, 1500) else { return };
    // Build the binary first.
    let rdmalab = programs::rdmalab().display();
    let (port, until) = (programs::free_port(), Instant::now() + LIMIT);
    let serve = format!("{rdmalab} serve --bind 10.91.0.1:{port}");
    let mut server = lab.start(1, &serve);
    assert!(server.wait_until_it_listens(port), "{}", server.end_by(Instant::now()).report());
    let before = lab.packets(1);
    let run = format!(
        "{rdmalab} run connect 10.91.0.1:{port} --device soft0 --by plain,rdma_cm --qps 12 \
         --list all --runs 3 --no-record --format json"
    );
    let client = lab.start(2, &run).end_by(until);
    let crossed = lab.packets(1) - before;
    let server = server.end_by(Instant::now());
    assert!(client.succeeded(), "{}{}", client.report(), server.report());
    assert!(client.stdout.contains("request until established"), "{}", client.stdout);
    // Each of the 36 connections needs at least REQ, REP, RTU, DREQ and DREP.
    assert!(crossed > 36 * 5, "{crossed} packets");
}

/// A host whose RDMA programs do not use the connection manager refuses as a kernel does.
#[test]
fn a_host_without_managers_refuses() {
    let test = "refused";
    let names = ["rping", "ibv_rc_pingpong", "udaddy"];
    let Some(lab) = Lab::of_waiting(test, 1500, &names) else { return };
    let mut bystander = lab.start(1, "ibv_rc_pingpong -g 1 -p 18777");
    assert!(
        bystander.wait_until_it_listens(18_777),
        "{}",
        bystander.end_by(Instant::now()).report()
    );
    for (client, words) in [
        ("rping -c -C 1 -a 10.91.0.1", "RDMA_CM_EVENT_REJECTED, error 8"),
        ("rping -c -C 1 -a fd91::1", "RDMA_CM_EVENT_REJECTED, error 8"),
        ("udaddy -s 10.91.0.1", "RDMA_CM_EVENT_UNREACHABLE, error: 1"),
    ] {
        let began = Instant::now();
        let client = lab.start(2, client).end_by(Instant::now() + LIMIT);
        println!("{:6.2} s  {}", began.elapsed().as_secs_f64(), client.line);
        let said = format!("{}{}", client.stdout, client.stderr);
        assert!(client.status.is_some() && said.contains(words), "{}", client.report());
    }
    // No program uses RDMA now: nobody answers, and the client goes on retransmitting.
    drop(bystander);
    let asking = lab.start(2, "rping -c -C 1 -a 10.91.0.1");
    let ended = asking.end_by(Instant::now() + Duration::from_secs(5));
    assert!(ended.status.is_none(), "{}", ended.report());
}
