//! `rdmalab diagnose`: what went wrong in captures.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rdmalab_diagnosis::{FirstPass, Report, text};
use rdmalab_trace::{Packets, Seen, Tally};

use crate::failure::{Outcome, run as failed, usage};
use crate::files;

/// Say what went wrong in captures, what it cost, and which frames prove it
///
/// Reads pcap and pcapng files as `trace` does, of any length, twice. Recognizes packet damming and
/// floods, page faults of On-Demand Paging, RNR NAKs, time-outs, losses, refusals and more, with
/// cause and remedy. Several files are those of one run: a packet that both ends captured counts
/// once.
///
/// Exit codes: 0 also with findings; 1 with --expect none, if there is one; 2 if a file is no
/// capture.
#[derive(Args, Debug)]
pub struct DiagnoseArgs {
    /// Captures; frames are numbered as Wireshark does
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print JSON: times in ns, costs in ns
    #[arg(long)]
    pub json: bool,
    /// Write a page with a timeline instead of printing it
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub html: Option<PathBuf>,
    /// At most so many findings as text, those that cost most; 0 for all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// What is expected: with `none`, any finding gives exit code 1
    #[arg(long, value_enum, value_name = "WORD")]
    pub expect: Option<Expected>,
}

/// What a diagnosis is expected to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Expected {
    /// No finding.
    None,
}

/// A file, and its next packet.
struct Source {
    packets: Packets,
    head: Option<Seen>,
}

/// The packets of all files in order of time, each with the number of its file, from 1.
struct Merged {
    sources: Vec<Source>,
}

impl Merged {
    fn open(files: &[PathBuf]) -> Outcome<Self> {
        let open = |file: &PathBuf| {
            let mut packets = Packets::open(file).map_err(usage)?;
            let head = packets.next();
            Ok(Source { packets, head })
        };
        Ok(Self { sources: files.iter().map(open).collect::<Outcome<_>>()? })
    }

    fn tallies(&self) -> Vec<Tally> {
        self.sources.iter().map(|source| source.packets.tally().clone()).collect()
    }
}

impl Iterator for Merged {
    type Item = (usize, Seen);

    fn next(&mut self) -> Option<(usize, Seen)> {
        let heads = self.sources.iter().enumerate();
        let heads = heads.filter_map(|(i, source)| Some((source.head.as_ref()?.at_ns, i)));
        let (_, i) = heads.min()?;
        let source = &mut self.sources[i];
        let next = source.packets.next();
        Some((i + 1, std::mem::replace(&mut source.head, next)?))
    }
}

/// Diagnoses and prints.
pub fn run(args: &DiagnoseArgs) -> Outcome {
    if let Some(file) = &args.html {
        files::check("--html", file)?;
    }
    let report = diagnose(&args.files)?;
    if let Some(file) = &args.html {
        files::write("--html", file, rdmalab_report::diagnosis_page(&report))?;
    } else if args.json {
        outln!("{}", serde_json::to_string_pretty(&report).map_err(failed)?);
    } else {
        let limit = if args.limit == 0 { usize::MAX } else { args.limit };
        out!("{}", text::text(&report, limit));
    }
    match (args.expect, report.findings.len()) {
        (None, _) | (_, 0) => Ok(()),
        (Some(Expected::None), n) => Err(failed(format!("--expect none: there are {n} findings"))),
    }
}

fn diagnose(files: &[PathBuf]) -> Outcome<Report> {
    let mut first = FirstPass::default();
    for (file, packet) in Merged::open(files)? {
        first.take(file, &packet);
    }
    let mut second = first.finish();
    let mut merged = Merged::open(files)?;
    for (file, packet) in merged.by_ref() {
        second.take(file, &packet);
    }
    let names = files.iter().map(|file| file.display().to_string()).collect();
    Ok(second.finish(names, &merged.tallies()))
}
