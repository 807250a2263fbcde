//! `--metrics ADDRESS`: what paths have done so far, for Prometheus (its text format, version
//! 0.0.4), over HTTP.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rdmalab_gateway::{Live, PathReport};

use crate::failure::{Outcome, run as failed};

/// How long a request, and a path, may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest request.
const REQUEST_BYTES: u64 = 8192;

/// Answers requests from now on, until the process ends.
pub fn serve(at: SocketAddr, live: Live) -> Outcome {
    let wrong = |why: std::io::Error| failed(format!("--metrics {at}: {why}"));
    let listener = TcpListener::bind(at).map_err(wrong)?;
    let work = move || {
        for stream in listener.incoming() {
            match stream {
                // An error is one of the client's connection, which ends.
                Ok(stream) => drop(answer(&stream, &live)),
                // Such as too many open files.
                Err(_) => thread::sleep(PATIENCE),
            }
        }
    };
    thread::Builder::new().name("metrics".to_owned()).spawn(work).map_err(wrong)?;
    Ok(())
}

/// Reads until a time, however slowly bytes come.
struct Timely<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for Timely<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(to)
    }
}

fn answer(mut stream: &TcpStream, live: &Live) -> std::io::Result<()> {
    let until = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(Timely { stream, until }.take(REQUEST_BYTES)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // No header matters here.
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let is_known = ["GET /metrics ", "GET / "].iter().any(|known| request.starts_with(known));
    let (status, text) = match is_known {
        true => ("200 OK", metrics(&live.ask(PATIENCE))),
        false => ("404 Not Found", "ask for /metrics\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
}

/// A count of a path, and what it is.
type Counted = (&'static str, &'static str, fn(&PathReport) -> u64);

const COUNTS: [Counted; 6] = [
    ("samples", "Samples of all sources.", |path| path.samples),
    ("missed", "Ticks that a source did not get to in time.", |path| path.missed),
    ("lost", "Sequence numbers that did not come.", |path| path.lost),
    ("duplicate", "Sequence numbers that came again.", |path| path.duplicate),
    ("reordered", "Sequence numbers that came after a higher one.", |path| path.reordered),
    ("dropped", "Samples that found a queue full, or no peer.", |path| path.dropped),
];

fn metrics(paths: &[(usize, PathReport)]) -> String {
    // Writing into a string cannot fail. Names of nodes need no escapes.
    let mut text = String::new();
    for (name, help, of) in COUNTS {
        // A number that comes late is lost no more, and a counter must not fall.
        let (name, kind) = match name {
            "lost" => (format!("rdmalab_gateway_{name}"), "gauge"),
            _ => (format!("rdmalab_gateway_{name}_total"), "counter"),
        };
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (number, path) in paths {
            let _ = writeln!(text, "{name}{{{}}} {}", labels(*number, path), of(path));
        }
    }
    let name = "rdmalab_gateway_latency_seconds";
    let _ = writeln!(text, "# HELP {name} From origin to arrival.\n# TYPE {name} summary");
    let timed = paths.iter().filter_map(|(at, path)| Some((labels(*at, path), path.latency?)));
    for (labels, times) in timed {
        let quantiles = [
            ("0", Some(times.min_ns)),
            ("0.5", Some(times.p50_ns)),
            ("0.9", Some(times.p90_ns)),
            ("0.99", Some(times.p99_ns)),
            ("0.999", times.p999_ns),
            ("1", Some(times.max_ns)),
        ];
        for (quantile, ns) in quantiles {
            let Some(ns) = ns else { continue };
            let seconds = ns / 1e9;
            let _ = writeln!(text, "{name}{{{labels},quantile=\"{quantile}\"}} {seconds}");
        }
        let _ = writeln!(text, "{name}_count{{{labels}}} {}", times.count);
    }
    text
}

/// Labels of a path: its name, and its number, because paths may have the same nodes.
fn labels(number: usize, path: &PathReport) -> String {
    format!("path=\"{}\",number=\"{number}\"", path.name)
}
