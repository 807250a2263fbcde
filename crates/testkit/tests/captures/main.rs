//! Captures and faults, with Debian's own programs on our `libibverbs.so.1`. All captured packets
//! are well formed for `tshark` and `rdmalab-trace`; in spite of faults all data arrive, but late.
//!
//! Pairs run one after the other. A program that is not installed skips its cases.

mod above;
mod faults;
mod managers;
mod simulated;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rdmalab_testkit::programs::{self, Ended, tshark};
use rdmalab_trace::packet::Icrc;

/// A pair that takes longer counts as hung.
const LIMIT: Duration = Duration::from_secs(100);
/// How long a server may take to notice that its client failed.
const GRACE: Duration = Duration::from_secs(1);

/// Environment variables of a process.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// Runs a server and its client to their ends, again if other load disturbed perftest; `None` if
/// the program is not installed.
fn pair(line: &str, server: Variables<'_>, client: Variables<'_>) -> Option<(Ended, Ended)> {
    programs::again_while(programs::SPOILED, || pair_once(line, server, client), is_disturbed)
}

fn is_disturbed(ends: &Option<(Ended, Ended)>) -> bool {
    ends.as_ref().is_some_and(|(server, client)| {
        programs::is_disturbed(server) || programs::is_disturbed(client)
    })
}

fn pair_once(line: &str, server: Variables<'_>, client: Variables<'_>) -> Option<(Ended, Ended)> {
    let mut words = line.split_whitespace().map(str::to_owned);
    let program = words.next().expect("a program");
    let Some(path) = programs::find(&program) else {
        programs::skipped(line, "not installed");
        return None;
    };
    let owned = |variables: Variables<'_>| -> Vec<(String, String)> {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let _turn = programs::turn();
    let port = programs::free_port();
    let mut arguments: Vec<String> = words.collect();
    arguments.extend(["-d", "soft0", "-p"].map(str::to_owned));
    arguments.push(port.to_string());
    let mut server = programs::start(&path, &arguments, &owned(server));
    // Started only now, because building our libraries may have taken a while.
    let until = Instant::now() + LIMIT;
    assert!(server.wait_until_it_listens(port), "{}", server.end_by(until).report());
    arguments.push("127.0.0.1".to_owned());
    let client = programs::start(&path, &arguments, &owned(client)).end_by(until);
    // A server whose client failed may wait for ever.
    let grace = if client.succeeded() { until } else { Instant::now() + GRACE };
    Some((server.end_by(grace), client))
}

/// A directory of a test, removed when the test ends.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("rdmalab-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The captures in it.
    fn captures(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).expect("the directory");
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        found.sort();
        found
    }

    fn empty(&self) {
        for file in self.captures() {
            std::fs::remove_file(file).expect("a file");
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The runs, each with a tshark filter that one of its packets must match.
const RUNS: &str = "
    ibv_rc_pingpong -c -n 50                 | infiniband.bth.opcode == 0x02
    ibv_rc_pingpong -c -n 20 -g 1 -s 1001    | ip.src == 127.0.0.1
    ibv_uc_pingpong -c -n 50                 | infiniband.bth.opcode == 0x20
    ibv_ud_pingpong -c -n 50                 | infiniband.deth
    ibv_srq_pingpong -c -n 50                | infiniband.aeth
    ib_write_lat -n 10 -s 64                 | infiniband.reth
    ib_write_lat -n 10 -c UC                 | infiniband.bth.opcode == 0x2a
    ib_read_lat -n 50 -s 5000                | infiniband.bth.opcode == 0x0d
    ib_atomic_lat -n 50 -A CMP_AND_SWAP      | infiniband.atomiceth
    ib_atomic_lat -n 50 -A FETCH_AND_ADD     | infiniband.atomicacketh
    ib_send_bw -n 100                        | infiniband.bth.opcode == 0x01
    ib_send_bw -n 100 -c UD -s 1000          | infiniband.deth
";

#[test]
fn every_packet_is_well_formed() {
    let directory = Directory::new("captures");
    let file = directory.file("a.pcapng");
    for line in RUNS.lines().filter(|line| !line.trim().is_empty()) {
        let (line, filter) = line.split_once('|').expect("a filter");
        let variables = [("RDMALAB_CAPTURE", file.as_str())];
        let alone = || {
            directory.empty();
            pair_once(line, &variables, &variables)
        };
        let Some((server, client)) = programs::again_while(programs::SPOILED, alone, is_disturbed)
        else {
            continue;
        };
        let reports = format!("{}{}", server.report(), client.report());
        assert!(server.succeeded() && client.succeeded(), "{reports}");
        let captures = directory.captures();
        assert_eq!(captures.len(), 2, "one for each process: {captures:?}");
        for capture in &captures {
            let count = is_well_formed(capture, line);
            let Some(strange) = tshark(capture, "_ws.malformed || !infiniband") else {
                programs::skipped("captures with tshark", "not installed");
                continue;
            };
            assert!(strange.is_empty(), "{line}: {:?}", &strange[..strange.len().min(3)]);
            assert!(count > 0);
            let filter = filter.trim();
            let shown = tshark(capture, filter).unwrap_or_default();
            assert!(!shown.is_empty(), "{line}: no packet with {filter}");
        }
        directory.empty();
    }
}

/// A display filter for packets with malformed headers. Such a packet has no protocol after
/// InfiniBand. tshark guesses the protocol of payloads, even empty ones, and calls a payload
/// malformed that does not fit its guess; the filter ignores these.
const WRONG: &str = "!infiniband || (_ws.malformed && frame.protocols matches \"infiniband$\")";

/// Checks a capture with our own reader. Returns the number of packets.
fn is_well_formed(file: &Path, line: &str) -> u64 {
    let trace = rdmalab_trace::read(file).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert_eq!(trace.tally.cut_short, None, "{line}");
    assert_eq!(trace.tally.foreign, 0, "{line}");
    assert!(trace.tally.malformed.is_empty(), "{line}: {:?}", trace.tally.malformed);
    for row in trace.conversations.iter().flat_map(|conversation| &conversation.rows) {
        assert_eq!(row.packet.icrc, Icrc::Good, "{line}: {:?}", row.packet);
    }
    trace.tally.frames
}

#[test]
fn a_capture_keeps_as_much_as_is_asked_for() {
    let directory = Directory::new("snap");
    let file = directory.file("short.pcapng");
    let variables = [("RDMALAB_CAPTURE", file.as_str()), ("RDMALAB_CAPTURE_SNAP", "128")];
    let Some((_, client)) = pair("ibv_rc_pingpong -n 20", &[], &variables) else { return };
    assert!(client.succeeded(), "{}", client.report());
    let trace = rdmalab_trace::read(Path::new(&file)).expect("a capture");
    let packets: Vec<_> = trace.conversations.iter().flat_map(|c| &c.rows).collect();
    assert!(packets.iter().any(|row| row.packet.icrc == Icrc::Unknown));
    let size = std::fs::metadata(&file).expect("the file").len();
    assert!(
        size < 300 * trace.tally.frames + 2000,
        "{size} bytes for {} packets",
        trace.tally.frames
    );
}

#[test]
fn a_capture_that_cannot_be_written_is_refused() {
    let variables = [("RDMALAB_CAPTURE", "/nonexistent/a.pcapng")];
    let Some(path) = programs::find("ibv_devinfo") else {
        return programs::skipped("ibv_devinfo", "not installed");
    };
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let ended = programs::start(&path, &[], &variables).end_by(Instant::now() + LIMIT);
    assert!(!ended.succeeded());
    let expected = "rdmalab: cannot write the capture /nonexistent/a.pcapng: No such file";
    assert!(ended.stderr.contains(expected), "{}", ended.report());
}
