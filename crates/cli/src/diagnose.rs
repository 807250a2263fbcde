//! `rdmalab diagnose`: what went wrong in captures.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rdmalab_diagnosis::text;

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

/// Diagnoses and prints.
pub fn run(args: &DiagnoseArgs) -> Outcome {
    if let Some(file) = &args.html {
        files::check("--html", file)?;
    }
    let report = rdmalab_report::diagnose(&args.files).map_err(usage)?;
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
