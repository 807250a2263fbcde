//! Programs that know nothing of us as peers of socket nodes: datagrams as VILLASnode's `socket`
//! node sends them, from Python.

mod common;

use std::process::Command;

use common::{content, run, start};
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
