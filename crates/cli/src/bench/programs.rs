//! Rows of programs that users know: perftest and UCX's benchmark on the device, beside UCX's own
//! shared memory, or over UDP beside a TCP stream. Each run starts both ends of a program anew,
//! each bound to a core.

use std::fs::File;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rdmalab_measure::Quantity;

use crate::foreign::{KillOnDrop, free_port, installed, last_words, read};

/// The network interface of each of the two hosts; their namespaces have no other one.
pub const INTERFACE: &str = "rdmalab0";
/// Their addresses: from TEST-NET-1 (RFC 5737), which is not routed.
pub const HOSTS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
/// Longest time until a server listens, and until a client ends.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// Time between two clients that find no server yet.
const RETRY: Duration = Duration::from_millis(50);
/// Operations in one run that measures latency.
const LATENCY_OPERATIONS: u32 = 100_000;
/// Operations in one run that measures a rate. perftest has no warm-up, and its first messages are
/// slower.
const RATE_OPERATIONS: u32 = 1_000_000;
/// Bytes that such a run moves at the most.
const MOST_BYTES: u64 = 8 << 30;
/// The same of a run between two hosts.
const MOST_BYTES_FAR: u64 = 1 << 30;

/// A benchmark with two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// A test of `ucx_perftest`, over our device.
    UcxOnDevice(&'static str),
    /// The same over UCX's transport `posix`, without us.
    UcxOnPosix(&'static str),
    /// A program of perftest.
    Perftest(&'static str),
    /// The same with `exec --memory shared`.
    PerftestShared(&'static str),
    /// One stream of `iperf3` over TCP.
    TcpStream,
}

/// What a row of programs compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub ours: Program,
    pub beside: Program,
    pub bytes: usize,
    /// Half a round trip, a rate or a bandwidth.
    pub quantity: Quantity,
}

/// Where programs run.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    pub device: &'a str,
    /// The device is ours, so programs need `exec`.
    pub is_soft: bool,
    pub cores: (usize, usize),
    /// Processes in the network namespaces of two hosts, if the ends run there.
    pub hosts: Option<[u32; 2]>,
}

impl Program {
    /// What it is called beside a row.
    pub fn name(self, bytes: usize) -> String {
        match self {
            Self::UcxOnDevice(test) => format!("ucx_perftest {test} {bytes} B, rc_v"),
            Self::UcxOnPosix(test) => format!("ucx_perftest {test} {bytes} B, posix"),
            Self::Perftest(name) => format!("{name} {bytes} B"),
            Self::PerftestShared(name) => format!("{name} {bytes} B, --memory shared"),
            Self::TcpStream => "iperf3, one TCP stream".to_owned(),
        }
    }

    fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::UcxOnDevice(_) | Self::UcxOnPosix(_) => ("ucx_perftest", "ucx-utils"),
            Self::Perftest(name) | Self::PerftestShared(name) => (name, "perftest"),
            Self::TcpStream => ("iperf3", "iperf3"),
        }
    }

    /// One end on a core: 0 is the server, and the client, 1, names it.
    fn command(self, pair: &Pair, on: &Setting, end: usize, port: u16) -> Result<Command, String> {
        let us = std::env::current_exe().map_err(|error| format!("our own program: {error}"))?;
        let mut command = Command::new("taskset");
        let core = if end == 0 { on.cores.0 } else { on.cores.1 };
        command.args(["-c", &core.to_string()]).stdin(Stdio::null());
        if let Some(hosts) = on.hosts {
            command.args(["nsenter", "-t", &hosts[end].to_string(), "-n"]);
            command.env("RDMALAB_INTERFACE", INTERFACE);
        }
        if on.is_soft && !matches!(self, Self::UcxOnPosix(_) | Self::TcpStream) {
            command.arg(us).arg("exec");
            if let Self::PerftestShared(_) = self {
                command.args(["--memory", "shared"]);
            }
            command.arg("--");
        }
        let most = if on.hosts.is_some() { MOST_BYTES_FAR } else { MOST_BYTES };
        let count = match pair.quantity {
            Quantity::HalfRoundTrip => LATENCY_OPERATIONS,
            _ => RATE_OPERATIONS.min((most / pair.bytes as u64) as u32),
        };
        let (bytes, count, port) = (pair.bytes.to_string(), count.to_string(), port.to_string());
        command.args([self.file().0, "-p", &port]);
        match self {
            Self::UcxOnDevice(test) => {
                command.args(["-s", &bytes, "-n", &count, "-t", test, "-f", "-v"]);
                command.env("UCX_TLS", "self,rc_v");
                command.env("UCX_NET_DEVICES", format!("{}:1", on.device));
            }
            Self::UcxOnPosix(test) => {
                command.args(["-s", &bytes, "-n", &count, "-t", test, "-f", "-v"]);
                command.env("UCX_TLS", "self,posix");
            }
            Self::Perftest(_) | Self::PerftestShared(_) => {
                command.args(["-s", &bytes, "-n", &count, "-d", on.device, "-F"]);
                if on.hosts.is_some() {
                    // The GID of the interface's IPv4 address.
                    command.args(["-x", "1"]);
                }
            }
            Self::TcpStream if end == 0 => {
                command.args(["-s", "-1"]);
            }
            Self::TcpStream => {
                command.args(["-J", "-n", &most.to_string()]);
            }
        }
        if end == 1 {
            let is_tcp = self == Self::TcpStream;
            command.args(is_tcp.then_some("-c"));
            command.arg(if on.hosts.is_some() { HOSTS[0] } else { "127.0.0.1" });
        }
        Ok(command)
    }

    /// The number in a client's output, in the unit of the row: ns, messages or bytes per second.
    fn value(self, pair: &Pair, output: &str) -> Option<f64> {
        match self {
            Self::UcxOnDevice(_) | Self::UcxOnPosix(_) => {
                let last =
                    output.lines().rfind(|line| line.starts_with(|c: char| c.is_ascii_digit()))?;
                let field = |at: usize| last.split(',').nth(at)?.trim().parse::<f64>().ok();
                match pair.quantity {
                    Quantity::HalfRoundTrip => field(1).map(|us| us * 1e3),
                    _ => field(7),
                }
            }
            Self::Perftest(_) | Self::PerftestShared(_) => {
                let bytes = pair.bytes.to_string();
                let mut rows = output.lines().map(|line| line.split_whitespace());
                let row = rows.find(|fields| fields.clone().next() == Some(&bytes))?;
                let fields: Vec<f64> = row.filter_map(|field| field.parse().ok()).collect();
                // A rate is the last column. Of a latency, the typical one is the fifth.
                match pair.quantity {
                    Quantity::HalfRoundTrip => fields.get(4).map(|us| us * 1e3),
                    Quantity::Rate => fields.last().map(|millions| millions * 1e6),
                    _ => fields.last().map(|millions| millions * 1e6 * pair.bytes as f64),
                }
            }
            Self::TcpStream => {
                let report: serde_json::Value = serde_json::from_str(output).ok()?;
                let bits = report.pointer("/end/sum_received/bits_per_second")?.as_f64()?;
                Some(bits / 8.0)
            }
        }
    }

    /// Runs it once.
    fn run(self, pair: &Pair, on: &Setting) -> Result<f64, String> {
        let (file, package) = self.file();
        if installed(file).is_none() {
            return Err(format!("{file} is not installed (Debian: {package})"));
        }
        let passing = tempfile::tempdir().map_err(|e| e.to_string())?;
        let port = free_port().map_err(|e| e.to_string())?;
        let start = |name: &str, end: usize| {
            let path = passing.path().join(name);
            let out = File::create(&path).map_err(|e| e.to_string())?;
            let err = out.try_clone().map_err(|e| e.to_string())?;
            let mut command = self.command(pair, on, end, port)?;
            let child = command.stdout(out).stderr(err).spawn();
            let child = child.map_err(|error| format!("taskset: {error}"))?;
            Ok::<_, String>((KillOnDrop(child), path))
        };
        let (mut server, server_text) = start("server", 0)?;
        let until = Instant::now() + LISTENS_WITHIN;
        loop {
            // A client that starts before the server listens is refused, and is started again. That
            // is no failure of iperf3, but it has no result then.
            let (mut client, text) = start("client", 1)?;
            let has_succeeded = client.succeeds_within(ENDS_WITHIN)?;
            let said = read(&text)?;
            if let (true, Some(value)) = (has_succeeded, self.value(pair, &said)) {
                return Ok(value);
            }
            if server.has_ended() || Instant::now() > until {
                let lines = [last_words(&said), last_words(&read(&server_text)?)];
                let line = lines.into_iter().flatten().next().unwrap_or_default();
                return Err(format!("{file} failed: {line}"));
            }
            sleep(RETRY);
        }
    }
}

/// Runs ours and the other once each.
///
/// # Errors
/// The program that is missing, or what it said.
pub fn run(pair: &Pair, on: &Setting) -> Result<(f64, f64), String> {
    let of = |program: Program| program.run(pair, on);
    Ok((of(pair.ours)?, of(pair.beside)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_both_programs_are_read() {
        let (ours, beside) = (Program::Perftest("ib_send_lat"), Program::UcxOnPosix("tag_lat"));
        let latency = Pair { ours, beside, bytes: 8, quantity: Quantity::HalfRoundTrip };
        let said = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg\n \
                    8       1000          0.13           4.25         0.14     \t       0.15\n";
        assert_eq!(ours.value(&latency, said), Some(140.0));
        let said = "iterations,50.0_percentile_lat,avg_lat\n1000,0.153,0.148,0.148,2.0,2.0,3,4\n";
        assert_eq!(beside.value(&latency, said), Some(153.0));
        let rate = Pair { bytes: 32, quantity: Quantity::Rate, ..latency };
        let said = " 32         1000             0.00               244.14             8.000000\n";
        assert_eq!(ours.value(&rate, said), Some(8e6));
        assert_eq!(beside.value(&rate, "1000,0.1,0.1,0.1,2.0,2.0,3,4.5e6\n"), Some(4.5e6));
        assert_eq!(ours.value(&rate, "nothing\n"), None);
        let stream = Pair { quantity: Quantity::Bandwidth, ..rate };
        assert_eq!(ours.value(&stream, said), Some(256e6));
        let said = r#"{"end": {"sum_received": {"bytes": 9, "bits_per_second": 8e9}}}"#;
        assert_eq!(Program::TcpStream.value(&stream, said), Some(1e9));
        assert_eq!(Program::TcpStream.value(&stream, r#"{"error": "refused"}"#), None);
    }
}
