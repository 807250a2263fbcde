//! `--metrics ADDRESS`: what paths have done so far, for Prometheus (its text format, version
//! 0.0.4), over HTTP.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rdmalab_gateway::{Live, PathReport};

use crate::failure::{Outcome, run as failed};

/// How long a client, and a path, may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest request.
const REQUEST_BYTES: u64 = 8192;

/// Answers requests from now on, until the process ends.
pub fn serve(at: SocketAddr, live: Live) -> Outcome {
    let wrong = |why: std::io::Error| failed(format!("--metrics {at}: {why}"));
    let listener = TcpListener::bind(at).map_err(wrong)?;
    let work = move || {
        for stream in listener.incoming().flatten() {
            // A client that went away is its own affair.
            let _ = answer(&stream, &live);
        }
    };
    thread::Builder::new().name("metrics".to_owned()).spawn(work).map_err(wrong)?;
    Ok(())
}

fn answer(mut stream: &TcpStream, live: &Live) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(REQUEST_BYTES)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // The headers say nothing that matters here.
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

fn metrics(paths: &[PathReport]) -> String {
    // Writing into a string cannot fail. Names of nodes need no escapes.
    let mut text = String::new();
    for (name, help, of) in COUNTS {
        let name = format!("rdmalab_gateway_{name}_total");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
        for path in paths {
            let _ = writeln!(text, "{name}{{path=\"{}\"}} {}", path.name, of(path));
        }
    }
    let name = "rdmalab_gateway_latency_seconds";
    let _ = writeln!(text, "# HELP {name} From origin to arrival.\n# TYPE {name} summary");
    for (path, times) in paths.iter().filter_map(|path| Some((&path.name, path.latency?))) {
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
            let _ = writeln!(text, "{name}{{path=\"{path}\",quantile=\"{quantile}\"}} {seconds}");
        }
        let _ = writeln!(text, "{name}_count{{path=\"{path}\"}} {}", times.count);
    }
    text
}
