//! A report as text: a paragraph for each finding, and a line at the end.

use std::fmt::Write as _;

use rdmalab_trace::show::time;

use crate::finding::{Finding, Proof, Report};

/// Columns of a line.
const COLUMNS: usize = 92;

/// The report; at most `limit` findings are shown.
#[must_use]
pub fn text(report: &Report, limit: usize) -> String {
    let mut out = String::new();
    for (i, finding) in report.findings.iter().take(limit).enumerate() {
        paragraph(&mut out, i + 1, finding, report);
        out.push('\n');
    }
    let hidden = report.findings.len().saturating_sub(limit);
    if hidden > 0 {
        let _ = writeln!(out, "{hidden} more findings that cost less: --limit 0 shows all.\n");
    }
    for doubt in &report.doubts {
        wrapped(&mut out, "Doubt: ", &format!("{doubt}."), "");
    }
    let _ = writeln!(out, "{}", summary(report));
    out
}

/// The line at the end.
#[must_use]
pub fn summary(report: &Report) -> String {
    let found = match report.findings.len() {
        0 => "nothing wrong".to_owned(),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    let mut line = format!(
        "{found} in {} packets of {} {} within {}",
        report.packets,
        report.pairs,
        if report.pairs == 1 { "pair" } else { "pairs" },
        time(report.end_ns.saturating_sub(report.start_ns))
    );
    if report.copies > 0 {
        let _ = write!(line, "; {} copies left out", report.copies);
    }
    if report.other_frames > 0 {
        let _ = write!(line, "; {} other frames", report.other_frames);
    }
    if let Some(worst) = report.findings.first().filter(|worst| worst.cost_ns > 0) {
        let _ = write!(line, "; the costliest: {}, {}", worst.kind.name(), time(worst.cost_ns));
    }
    line + "."
}

/// Between whom a finding is.
#[must_use]
pub fn between(finding: &Finding) -> String {
    match finding.queue_pairs.as_slice() {
        [] => format!("{} -> {}", finding.requester, finding.responder),
        pairs => format!("several queue pairs, the worst: {}", pairs.join(", ")),
    }
}

/// A frame's number, with that of its file if there are several.
#[must_use]
pub fn frame(proof: &Proof, report: &Report) -> String {
    match report.files.len() {
        0 | 1 => format!("frame {}", proof.stamp.frame),
        _ => format!("frame {} of file {}", proof.stamp.frame, proof.stamp.file),
    }
}

fn paragraph(out: &mut String, number: usize, finding: &Finding, report: &Report) {
    let _ = writeln!(out, "{number}. {}: {}", finding.kind.name(), finding.extent());
    wrapped(out, "   ", &between(finding), "   ");
    let shown = finding.occurrences.iter().take(3);
    for occurrence in shown {
        let at = occurrence.start_ns().saturating_sub(report.start_ns);
        let what = format!("At {:.6} s {}.", at as f64 / 1e9, occurrence.what);
        wrapped(out, "   ", &what, "   ");
        let frames = occurrence.proof.iter();
        let frames = frames.map(|proof| format!("{} ({})", frame(proof, report), proof.what));
        let proof = frames.collect::<Vec<_>>().join(", ");
        wrapped(out, "   Proof: ", &format!("{proof}."), "          ");
    }
    if finding.count > 3 {
        let more = finding.count - 3;
        wrapped(out, "   ", &format!("And {more} more, each of which cost less."), "   ");
    }
    wrapped(out, "   Cause: ", &format!("{}.", finding.cause), "          ");
    wrapped(out, "   Remedy: ", &format!("{}.", finding.remedy), "          ");
    for doubt in &finding.doubts {
        wrapped(out, "   Doubt: ", &format!("{doubt}."), "          ");
    }
}

/// Breaks a text into lines, the first of which begins with `head` and the others with `indent`.
fn wrapped(out: &mut String, head: &str, text: &str, indent: &str) {
    let mut line = head.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            let _ = writeln!(out, "{line}");
            line = indent.to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(out, "{line}");
}
