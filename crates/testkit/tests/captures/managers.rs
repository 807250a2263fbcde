//! The connection managers of one host exchange messages through sockets. A capture shows these
//! messages as the datagrams that they would be on a network.

use std::path::Path;
use std::time::Instant;

use rdmalab_testkit::programs::{self, Process, tshark};
use rdmalab_trace::conversation::{Conversation, Note};

use super::{Directory, LIMIT, is_well_formed};

/// `rping` with a capture.
fn start(arguments: &str, port: u16, capture: &str) -> Option<Process> {
    start_line(&format!("rping {arguments} -p {port} -C 3"), capture)
}

fn start_line(line: &str, capture: &str) -> Option<Process> {
    let mut words = line.split(' ').map(str::to_owned);
    let name = words.next().unwrap_or_default();
    let Some(path) = programs::find(&name) else {
        programs::skipped(&format!("{name} in captures"), "not installed");
        return None;
    };
    let variables = [("RDMALAB_CAPTURE".to_owned(), capture.to_owned())];
    Some(programs::start(&path, &words.collect::<Vec<_>>(), &variables))
}

/// The messages of a capture, in order of time.
fn messages(capture: &str) -> Vec<&'static str> {
    let trace = rdmalab_trace::read(Path::new(capture)).expect("a capture");
    let mut rows: Vec<_> = trace.conversations.iter().flat_map(|c| &c.rows).collect();
    rows.sort_by_key(|row| row.packet.at_ns);
    let name = |note: &Note| match note {
        Note::Cm(name) => Some(*name),
        _ => None,
    };
    rows.iter().flat_map(|row| row.notes.iter().filter_map(name)).collect()
}

/// Whether the reader recognises the two directions as one connection.
fn has_both_ends(capture: &str) -> bool {
    let trace = rdmalab_trace::read(Path::new(capture)).expect("a capture");
    let connections =
        trace.conversations.iter().filter(|c| c.a.qpn != Some(1) && c.b.qpn != Some(1));
    let known = |c: &Conversation| c.a.qpn.is_some() && c.b.qpn.is_some() && !c.rows.is_empty();
    let known: Vec<bool> = connections.map(known).collect();
    known == [true]
}

#[test]
fn a_connection_is_made_and_ended_in_captures() {
    let _turn = programs::turn();
    let directory = Directory::new("managers");
    let (here, there) = (directory.file("server.pcapng"), directory.file("client.pcapng"));
    let pair = || {
        directory.empty();
        let port = programs::free_port();
        let mut server = start("-s", port, &here)?;
        programs::wait_until_bound(&mut server, port);
        Some([server, start("-c -a 127.0.0.1", port, &there)?])
    };
    let Some(ends) = programs::connected(pair, LIMIT, LIMIT) else { return };
    assert!(ends.client.succeeded() && ends.server.succeeded(), "{}", ends.report());
    for capture in [&here, &there] {
        assert!(is_well_formed(Path::new(capture), "rping") > 0);
        let said = messages(capture);
        assert_eq!(said[..3.min(said.len())], ["REQ", "REP", "RTU"], "{said:?}");
        assert!(has_both_ends(capture), "by the manager's words");
        // The end that sent the DREQ may have exited before the answer.
        assert!(said.contains(&"DREQ"), "{said:?}");
        let Some(shown) = tshark(Path::new(capture), "infiniband.mad.attributeid == 0x0010") else {
            return programs::skipped("managers with tshark", "not installed");
        };
        assert!(shown.iter().any(|line| line.contains("CM: ConnectRequest")), "{shown:?}");
    }
}

#[test]
fn a_refusal_is_in_the_capture() {
    let _turn = programs::turn();
    let directory = Directory::new("refused");
    let capture = directory.file("client.pcapng");
    let port = programs::free_port();
    let Some(client) = start("-c -a 127.0.0.1", port, &capture) else { return };
    let client = client.end_by(Instant::now() + LIMIT);
    assert!(!client.succeeded(), "nobody listens: {}", client.report());
    assert_eq!(messages(&capture), ["REQ", "REJ"]);
}

/// Programs with the options of both ends, and a filter for a packet that must be captured: a WRITE
/// with immediate data from rsockets, a REP from connections made one after the other.
const PROGRAMS: [(&str, &str); 2] = [
    ("rstream -S 100 -I 30 -C 3 -T v", "infiniband.bth.opcode == 0x0b"),
    ("ucmatose -c 3 -C 5", "infiniband.mad.attributeid == 0x0013"),
];

#[test]
fn programs_that_connect_are_captured_well_formed() {
    let _turn = programs::turn();
    for (line, filter) in PROGRAMS {
        let directory = Directory::new("programs");
        let (here, there) = (directory.file("server.pcapng"), directory.file("client.pcapng"));
        let pair = || {
            directory.empty();
            let port = programs::free_port();
            let mut server = start_line(&format!("{line} -p {port}"), &here)?;
            programs::wait_until_bound(&mut server, port);
            Some([server, start_line(&format!("{line} -p {port} -s 127.0.0.1"), &there)?])
        };
        let Some(ends) = programs::connected(pair, LIMIT, LIMIT) else { continue };
        assert!(ends.client.succeeded() && ends.server.succeeded(), "{}", ends.report());
        for capture in [&here, &there].map(Path::new) {
            assert!(is_well_formed(capture, line) > 0);
            let Some(strange) = tshark(capture, "_ws.malformed || !infiniband") else {
                programs::skipped("programs that connect with tshark", "not installed");
                continue;
            };
            assert!(strange.is_empty(), "{line}: {:?}", &strange[..strange.len().min(3)]);
            assert!(tshark(capture, filter).is_some_and(|shown| !shown.is_empty()), "{line}");
        }
    }
}
