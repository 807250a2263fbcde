//! Rows of programs that users know: perftest and UCX's benchmark on the device, beside UCX's own
//! shared memory. Each run starts both ends of a program anew, each bound to a core.

use std::fs::File;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::foreign::{KillOnDrop, free_port, installed, last_words, read};

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
}

/// What a row of programs compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub ours: Program,
    pub beside: Program,
    pub bytes: usize,
    /// A rate, and not a latency.
    pub is_rate: bool,
}

/// Where programs run.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    pub device: &'a str,
    /// The device is ours, so programs need `exec`.
    pub is_soft: bool,
    pub cores: (usize, usize),
}

impl Program {
    /// What it is called beside a row.
    pub fn name(self, bytes: usize) -> String {
        match self {
            Self::UcxOnDevice(test) => format!("ucx_perftest {test} {bytes} B, rc_v"),
            Self::UcxOnPosix(test) => format!("ucx_perftest {test} {bytes} B, posix"),
            Self::Perftest(name) => format!("{name} {bytes} B"),
            Self::PerftestShared(name) => format!("{name} {bytes} B, --memory shared"),
        }
    }

    fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::UcxOnDevice(_) | Self::UcxOnPosix(_) => ("ucx_perftest", "ucx-utils"),
            Self::Perftest(name) | Self::PerftestShared(name) => (name, "perftest"),
        }
    }

    /// One end on a core; the client names the server.
    fn command(self, pair: &Pair, on: &Setting, core: usize, port: u16) -> Result<Command, String> {
        let us = std::env::current_exe().map_err(|error| format!("our own program: {error}"))?;
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]).stdin(Stdio::null());
        if on.is_soft && !matches!(self, Self::UcxOnPosix(_)) {
            command.arg(us).arg("exec");
            if let Self::PerftestShared(_) = self {
                command.args(["--memory", "shared"]);
            }
            command.arg("--");
        }
        let count = match pair.is_rate {
            true => RATE_OPERATIONS.min((MOST_BYTES / pair.bytes as u64) as u32),
            false => LATENCY_OPERATIONS,
        };
        let (bytes, count, port) = (pair.bytes.to_string(), count.to_string(), port.to_string());
        command.arg(self.file().0).args(["-s", &bytes, "-n", &count, "-p", &port]);
        match self {
            Self::UcxOnDevice(test) => {
                command.args(["-t", test, "-f", "-v"]).env("UCX_TLS", "self,rc_v");
                command.env("UCX_NET_DEVICES", format!("{}:1", on.device));
            }
            Self::UcxOnPosix(test) => {
                command.args(["-t", test, "-f", "-v"]).env("UCX_TLS", "self,posix");
            }
            Self::Perftest(_) | Self::PerftestShared(_) => {
                command.args(["-d", on.device, "-F"]);
            }
        }
        Ok(command)
    }

    /// The number in a client's output, in the unit of the row: ns or messages per second.
    fn value(self, pair: &Pair, output: &str) -> Option<f64> {
        match self {
            Self::UcxOnDevice(_) | Self::UcxOnPosix(_) => {
                let last =
                    output.lines().rfind(|line| line.starts_with(|c: char| c.is_ascii_digit()))?;
                let field = |at: usize| last.split(',').nth(at)?.trim().parse::<f64>().ok();
                if pair.is_rate { field(7) } else { field(1).map(|us| us * 1e3) }
            }
            Self::Perftest(_) | Self::PerftestShared(_) => {
                let bytes = pair.bytes.to_string();
                let mut rows = output.lines().map(|line| line.split_whitespace());
                let row = rows.find(|fields| fields.clone().next() == Some(&bytes))?;
                let fields: Vec<f64> = row.filter_map(|field| field.parse().ok()).collect();
                // A rate is the last column. Of a latency, the typical one is the fifth.
                let (at, unit) = if pair.is_rate { (fields.len() - 1, 1e6) } else { (4, 1e3) };
                fields.get(at).map(|value| value * unit)
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
        let start = |name: &str, core: usize, host: Option<&str>| {
            let path = passing.path().join(name);
            let out = File::create(&path).map_err(|e| e.to_string())?;
            let err = out.try_clone().map_err(|e| e.to_string())?;
            let mut command = self.command(pair, on, core, port)?;
            let child = command.args(host).stdout(out).stderr(err).spawn();
            let child = child.map_err(|error| format!("taskset: {error}"))?;
            Ok::<_, String>((KillOnDrop(child), path))
        };
        let (mut server, server_text) = start("server", on.cores.0, None)?;
        let until = Instant::now() + LISTENS_WITHIN;
        loop {
            // A client that starts before the server listens is refused, and is started again.
            let (mut client, text) = start("client", on.cores.1, Some("127.0.0.1"))?;
            let has_succeeded = client.succeeds_within(ENDS_WITHIN)?;
            let said = read(&text)?;
            if has_succeeded {
                let value = self.value(pair, &said);
                return value.ok_or_else(|| format!("{file}: no result in its output"));
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
        let latency = Pair { ours, beside, bytes: 8, is_rate: false };
        let said = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg\n \
                    8       1000          0.13           4.25         0.14     \t       0.15\n";
        assert_eq!(ours.value(&latency, said), Some(140.0));
        let said = "iterations,50.0_percentile_lat,avg_lat\n1000,0.153,0.148,0.148,2.0,2.0,3,4\n";
        assert_eq!(beside.value(&latency, said), Some(153.0));
        let rate = Pair { bytes: 32, is_rate: true, ..latency };
        let said = " 32         1000             0.00               244.14             8.000000\n";
        assert_eq!(ours.value(&rate, said), Some(8e6));
        assert_eq!(beside.value(&rate, "1000,0.1,0.1,0.1,2.0,2.0,3,4.5e6\n"), Some(4.5e6));
        assert_eq!(ours.value(&rate, "nothing\n"), None);
    }
}
