//! Programs that know nothing of us as peers: datagrams as VILLASnode's `socket` node sends them,
//! from Python; pyzmq, which is libzmq; and nanocat, which is libnanomsg.

mod common;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Running, content, run, start};
use rdmalab_testing::{Process, find, free_port, skipped};

/// Three samples of three values, as VILLASnode v1.2.0 sent them in `villas.binary`.
const DATAGRAMS: [&str; 3] = [
    "20000003000000005768fd78000000003f80000040200000c0480000",
    "20000003000000015768fd7805f5e1003dcccccd3e4ccccd3e99999a",
    "20000003000000025768fd780bebc20133d6bf95c7f1206558635fa9",
];

fn python(script: &str, arguments: &[&str]) -> Option<Command> {
    let mut command = Command::new(find("python3")?);
    command.arg("-c").arg(script).args(arguments);
    Some(command)
}

#[test]
fn datagrams_of_another_program_are_samples_and_others_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (port, out) = (free_port(), dir.path().join("out.human"));
    let script = "import socket, sys\n\
                  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                  to = ('127.0.0.1', int(sys.argv[1]))\n\
                  for d in sys.argv[2:]: s.sendto(bytes.fromhex(d), to)";
    let to = port.to_string();
    let mut arguments = vec![to.as_str(), "ff00"];
    arguments.extend(DATAGRAMS);
    let Some(mut sender) = python(script, &arguments) else {
        return skipped("datagrams_of_another_program", "there is no python3");
    };
    let gateway = start(&format!(
        "nodes = {{ net = {{ type = \"socket\", in = {{ address = \"127.0.0.1:{port}\", \
         signals = \"3f\" }} }}, out = {{ type = \"file\", uri = \"{}\", \
         format = {{ type = \"villas.human\", offset = false }}, out = {{ flush = true }} }} }}, \
         paths = ( {{ in = \"net\", out = \"out\" }} )",
        out.display()
    ));
    // The socket is bound when the file is there: destinations are opened first, so look at it.
    gateway.until("the socket", || {
        let table = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
        table.contains(&format!(":{port:04X} "))
    });
    assert!(Process::start(&mut sender).end().succeeded());
    gateway.until("three samples", || content(&out).iter().filter(|b| **b == b'\n').count() >= 4);
    let told = gateway.told();
    let summary = gateway.end();
    let text = String::from_utf8(content(&out)).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert!(lines[0].starts_with("1466498424.000000000(0)\t1.0000"), "{text}");
    assert!(lines[1].starts_with("1466498424.100000000(1)\t0.1000000014901161"), "{text}");
    assert!(lines[2].starts_with("1466498424.200000001(2)\t"), "{text}");
    let source = &summary.paths[0].sources[0];
    assert_eq!((source.sequence.samples, source.garbage), (3, 1), "{told:#?}");
    assert_eq!(told.iter().filter(|line| line.contains("no sample")).count(), 1, "{told:#?}");
}

#[test]
fn another_program_receives_what_villasnode_would_send() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("in.human");
    std::fs::write(&from, "1466498424.000000000(0)\t1.0\t2.5\t-3.125\n").unwrap();
    let port = free_port();
    let script = "import socket, sys\n\
                  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                  s.bind(('127.0.0.1', int(sys.argv[1])))\n\
                  print('bound', flush=True)\n\
                  s.settimeout(60)\n\
                  print(s.recv(65536).hex())";
    let Some(mut receiver) = python(script, &[&port.to_string()]) else {
        return skipped("another_program_receives", "there is no python3");
    };
    let mut receiver = Process::start(&mut receiver);
    while !receiver.said().contains("bound") {
        assert!(!receiver.has_ended(), "{}", receiver.said());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    run(&format!(
        "nodes = {{ from = {{ type = \"file\", uri = \"{}\", in = {{ epoch_mode = \"original\", \
         signals = \"3f\" }} }}, net = {{ type = \"socket\", \
         out = {{ address = \"127.0.0.1:{port}\" }} }} }}, \
         paths = ( {{ in = \"from\", out = \"net\" }} )",
        from.display()
    ));
    let ended = receiver.end();
    assert!(ended.stdout.contains(DATAGRAMS[0]), "{}", ended.report());
}

/// A Python with pyzmq; Debian's may come after another one in the path.
fn with_pyzmq(script: &str, arguments: &[&str]) -> Option<Command> {
    let has_zmq = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import zmq"]).stdin(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let python = ["python3", "/usr/bin/python3"].map(PathBuf::from).into_iter().find(has_zmq)?;
    let mut command = Command::new(python);
    command.arg("-c").arg(script).args(arguments);
    Some(command)
}

const NO_PYZMQ: &str = "there is no pyzmq: apt-get install python3-zmq";
const NO_NANOCAT: &str = "there is no nanocat: apt-get install nanomsg-utils";

/// A gateway that publishes a counter, at these places.
fn publishes(node: &str) -> Running {
    start(&format!(
        "nodes = {{ count = {{ type = \"signal\", signal = \"counter\", values = 2, \
         rate = 200.0 }}, to = {{ {node} }} }}, paths = ( {{ in = \"count\", out = \"to\" }} )"
    ))
}

/// A gateway that reads these nodes, each with three values, into files `0` and on of a directory.
fn subscribes(nodes: &[String], dir: &Path) -> Running {
    let mut text = ["nodes = {".to_owned(), "paths = (".to_owned()];
    for (at, node) in nodes.iter().enumerate() {
        text[0] += &format!(
            "n{at} = {{ {node} }}, f{at} = {{ type = \"file\", uri = \"{}\", \
             format = {{ type = \"villas.human\", offset = false }}, out = {{ flush = true }} }},",
            dir.join(at.to_string()).display()
        );
        text[1] += &format!("{{ in = \"n{at}\", out = \"f{at}\" }},");
    }
    let [nodes, paths] = text.map(|text| text.trim_end_matches(',').to_owned());
    start(&format!("{nodes} }}, {paths} )"))
}

/// The lines of such a file after its header.
fn lines(dir: &Path, at: usize) -> Vec<String> {
    let text = String::from_utf8(content(&dir.join(at.to_string()))).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn a_stranger_at_a_publisher_is_in_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    let gateway = publishes(&format!(
        "type = \"nanomsg\", out = {{ endpoints = \"ipc://{}\" }}",
        path.display()
    ));
    let mut stranger = None;
    gateway.until("a connection", || {
        stranger = UnixStream::connect(&path).ok();
        stranger.is_some()
    });
    stranger.unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let is_told = || gateway.told().iter().any(|line| line.contains("it does not speak SP"));
    gateway.until("a refusal", is_told);
    let summary = gateway.end();
    assert_eq!(summary.paths[0].destinations[0].garbage, 1);
}

/// Receives three messages over each of two subscriptions, and checks that they are samples of a
/// counter in their order; a third subscription wants others.
const ZMQ_SUB: &str = r#"
import socket, struct, sys, zmq
context = zmq.Context()
def sub(endpoint, topic):
    s = context.socket(zmq.SUB)
    s.setsockopt(zmq.SUBSCRIBE, topic)
    s.connect(endpoint)
    return s
tcp, ipc = sys.argv[1:]
# libzmq throws away what it did not want, so this one speaks for itself.
greeting = b'\xff' + bytes(8) + b'\x7f\x03\x00NULL' + bytes(48)
other = socket.create_connection(('127.0.0.1', int(tcp.rsplit(':', 1)[1])))
other.sendall(greeting + b'\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB' + b'\x00\x06\x01other')
for s in [sub(tcp, b'pow'), sub(ipc, b'')]:
    assert s.poll(60000), 'nothing came'
    before = -1
    for _ in range(3):
        topic, body = s.recv_multipart()
        assert topic == b'power', topic
        head, source, values, number, _, _, a, b = struct.unpack('>BBHIIIff', body)
        assert (head, source, values) == (0x20, 0, 2), body.hex()
        assert a == b == number > before, (a, b, number, before)
        before = number
other.shutdown(socket.SHUT_WR)
rest = b''
while more := other.recv(4096): rest += more
assert rest == greeting + b'\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB', rest
"#;

#[test]
fn pyzmq_receives_what_zeromq_nodes_publish() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let ipc = format!("ipc://{}", dir.path().join("pipe").display());
    let Some(mut peer) = with_pyzmq(ZMQ_SUB, &[&format!("tcp://127.0.0.1:{port}"), &ipc]) else {
        return skipped("pyzmq_receives", NO_PYZMQ);
    };
    let gateway = publishes(&format!(
        "type = \"zeromq\", out = {{ publish = [ \"tcp://*:{port}\", \"{ipc}\" ], \
         filter = \"power\" }}"
    ));
    let ended = Process::start(&mut peer).end();
    assert!(ended.succeeded(), "{}", ended.report());
    gateway.until("the end of three connections", || {
        let told = gateway.told();
        told.iter().filter(|line| line.ends_with("is gone")).count() == 3
    });
    let summary = gateway.end();
    let to = &summary.paths[0].destinations[0];
    assert_eq!((to.connected, to.disconnected, to.has_failed), (3, 3, false));
    assert!(to.written >= 3, "{to:#?}");
}

/// Publishes the samples of its arguments, and what is no sample, again and again.
const ZMQ_PUB: &str = r#"
import sys, time, zmq
tcp, ipc, *samples = sys.argv[1:]
s = zmq.Context().socket(zmq.PUB)
s.bind(tcp)
s.bind(ipc)
while True:
    for sample in samples:
        s.send_multipart([b'other', b'no sample'])
        s.send_multipart([b'power', bytes.fromhex(sample)])
    time.sleep(0.005)
"#;

#[test]
fn zeromq_nodes_read_what_pyzmq_publishes_and_again_when_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let tcp = format!("tcp://127.0.0.1:{}", free_port());
    let ipc = format!("ipc://{}", dir.path().join("pipe").display());
    let arguments = [&[tcp.as_str(), &ipc][..], &DATAGRAMS].concat();
    if with_pyzmq("", &[]).is_none() {
        return skipped("zeromq_nodes_read", NO_PYZMQ);
    }
    let node = |endpoint: &str| {
        format!(
            "type = \"zeromq\", in = {{ subscribe = \"{endpoint}\", filter = \"pow\", \
             signals = \"3f\" }}"
        )
    };
    // Nobody publishes yet.
    let gateway = subscribes(&[node(&tcp), node(&ipc)], dir.path());
    for run in 1..=2 {
        let before = [0, 1].map(|at| lines(dir.path(), at).len());
        let peer = Process::start(&mut with_pyzmq(ZMQ_PUB, &arguments).unwrap());
        gateway.until("samples of both", || {
            (0..2).all(|at| lines(dir.path(), at).len() >= before[at] + 6)
        });
        drop(peer);
        gateway.until("the end of both connections", || {
            let gone = gateway.told().iter().filter(|line| line.ends_with("is gone")).count();
            gone == 2 * run
        });
    }
    let told = gateway.told();
    let summary = gateway.end();
    for (at, path) in summary.paths.iter().enumerate() {
        let from = &path.sources[0];
        assert_eq!((from.garbage, from.connected, from.disconnected), (0, 2, 2), "{told:#?}");
        let lines = lines(dir.path(), at);
        for (place, start) in
            ["1466498424.000000000(0)\t1.0", "1466498424.100000000(1)\t0.1"].into_iter().enumerate()
        {
            let same = lines.iter().filter(|line| line.starts_with(start)).count();
            assert!(same >= 2, "{place}: {lines:#?}");
        }
    }
}

/// `nanocat` with these arguments.
fn nanocat(arguments: &[&str]) -> Option<Command> {
    let mut command = Command::new(find("nanocat")?);
    command.args(arguments);
    Some(command)
}

#[test]
fn nanocat_receives_what_nanomsg_nodes_publish() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let ipc = format!("ipc://{}", dir.path().join("pipe").display());
    let tcp = format!("tcp://127.0.0.1:{port}");
    let listens = |endpoint, topic| {
        nanocat(&["--sub", "--connect", endpoint, "--subscribe", topic, "--ascii"])
    };
    let Some(mut other) = listens(&tcp, "other") else {
        return skipped("nanocat_receives", NO_NANOCAT);
    };
    let gateway = publishes(&format!(
        "type = \"nanomsg\", out = {{ endpoints = [ \"tcp://*:{port}\", \"{ipc}\" ], \
         filter = \"power\" }}"
    ));
    let other = Process::start(&mut other);
    for endpoint in [&tcp, &ipc] {
        let peer = Process::start(&mut listens(endpoint, "pow").unwrap());
        gateway.until("three messages", || peer.said().lines().count() > 3);
        let said = peer.said();
        let numbers = said.lines().take(3).map(|line| {
            assert!(line.starts_with("power[{\"ts\": {\"origin\": ["), "{line}");
            let number = line.split("\"sequence\": ").nth(1).unwrap().split(',').next().unwrap();
            assert!(line.contains(&format!("\"data\": [{number}.0, ")), "{line}");
            number.parse::<u64>().unwrap()
        });
        // Ticks that the source missed have no message.
        assert!(numbers.is_sorted_by(|a, b| a < b), "{said}");
    }
    assert_eq!(other.said(), "");
    gateway.until("the end of two connections", || {
        gateway.told().iter().filter(|line| line.ends_with("is gone")).count() == 2
    });
    let to = &gateway.end().paths[0].destinations[0];
    assert_eq!((to.connected, to.disconnected, to.has_failed), (3, 2, false));
}

#[test]
fn nanomsg_nodes_read_what_nanocat_publishes() {
    let dir = tempfile::tempdir().unwrap();
    let tcp = format!("tcp://127.0.0.1:{}", free_port());
    let ipc = format!("ipc://{}", dir.path().join("pipe").display());
    let sample =
        "power[{\"ts\": {\"origin\": [1, 5]}, \"sequence\": 7, \"data\": [1.0, 2.5, -3.125]}]";
    let publishes = |endpoint, text| {
        nanocat(&["--pub", "--bind", endpoint, "--data", text, "--interval", "0.01"])
    };
    let Some(mut first) = publishes(&tcp, sample) else {
        return skipped("nanomsg_nodes_read", NO_NANOCAT);
    };
    let node = |endpoint: &str, filter: &str| {
        format!(
            "type = \"nanomsg\", in = {{ endpoints = [ \"{endpoint}\" ], \
             signals = \"3f\"{filter} }}"
        )
    };
    let filter = ", filter = \"power\"";
    // The last one takes all messages, and none is a sample.
    let nodes = [node(&tcp, filter), node(&ipc, filter), node(&ipc, "")];
    let gateway = subscribes(&nodes, dir.path());
    let _first = Process::start(&mut first);
    let _second = Process::start(&mut publishes(&ipc, sample).unwrap());
    gateway.until("samples of both, and garbage", || {
        let is_told = gateway.told().iter().any(|line| line.starts_with("n2: no sample"));
        (0..2).all(|at| lines(dir.path(), at).len() >= 3) && is_told
    });
    let told = gateway.told();
    let summary = gateway.end();
    for at in 0..2 {
        let lines = lines(dir.path(), at);
        let is_sample = |line: &String| {
            let (start, rest) = line.split_at("1.000000005(7)".len());
            let values: Vec<f64> = rest.split_whitespace().map(|v| v.parse().unwrap()).collect();
            start == "1.000000005(7)" && values == [1.0, 2.5, -3.125]
        };
        assert!(lines.iter().all(is_sample), "{lines:#?}");
        assert_eq!(summary.paths[at].sources[0].garbage, 0);
    }
    assert!(summary.paths[2].sources[0].garbage > 0 && summary.paths[2].samples == 0);
    assert_eq!(told.iter().filter(|line| line.contains("no sample")).count(), 1, "{told:#?}");
}
