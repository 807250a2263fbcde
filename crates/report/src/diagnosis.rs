//! The diagnosis of captures as a page: a timeline of all findings, and each with its proof.

use maud::{Markup, html};
use rdmalab_diagnosis::text::{between, frame, summary};
use rdmalab_diagnosis::{Finding, Occurrence, Report};
use rdmalab_trace::show::time;

use crate::chart::sentence;
use crate::page::{table, whole};

/// Most rows of the timeline, and findings with their proof.
const SHOWN_MAX: usize = 200;
/// Sizes of the timeline in the units of its picture.
const LEFT: f64 = 250.0;
const WIDTH: f64 = 1000.0;
const ROW: f64 = 22.0;
const TOP: f64 = 24.0;
/// Marks on the axis of time.
const MARKS: u32 = 5;

/// The page.
#[must_use]
pub fn diagnosis_page(report: &Report) -> String {
    let shown = &report.findings[..report.findings.len().min(SHOWN_MAX)];
    let title = format!("Diagnosis of {}", report.files.join(", "));
    let content = html! {
        header {
            p.brand { "rdmalab" span.kind { "diagnosis" } }
            h1 { (title) }
            p.lead { (sentence(&summary(report))) }
        }
        @if !report.doubts.is_empty() {
            section.cautions {
                h2 { "Before you trust this" }
                ul { @for doubt in &report.doubts { li { (sentence(doubt)) "." } } }
            }
        }
        @if !shown.is_empty() {
            section {
                h2 { "When it happened" }
                p.meaning {
                    "A row for each finding, the costliest first. A bar reaches from the first \
                     frame of an occurrence to the last; dots are the frames that prove it."
                }
                div.charts { figure { (timeline(report, shown)) } }
            }
        }
        @for (i, finding) in shown.iter().enumerate() { (one(report, finding, i + 1)) }
        @if report.findings.len() > shown.len() {
            p.meaning { (report.findings.len() - shown.len()) " more findings, which cost less, \
                                                               are not shown." }
        }
    };
    whole(&title, content)
}

/// The place of a time on the axis.
fn place(report: &Report, at_ns: u64) -> f64 {
    let whole = report.end_ns.saturating_sub(report.start_ns).max(1) as f64;
    let share = at_ns.saturating_sub(report.start_ns) as f64 / whole;
    LEFT + share.min(1.0) * (WIDTH - LEFT - 60.0)
}

fn timeline(report: &Report, findings: &[Finding]) -> Markup {
    let height = TOP + ROW * findings.len() as f64 + 8.0;
    let whole_ns = report.end_ns.saturating_sub(report.start_ns);
    let marks = (0..MARKS).map(|i| whole_ns / u64::from(MARKS - 1) * u64::from(i));
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img"
            aria-label="Timeline of the findings" {
            @for mark in marks {
                @let x = place(report, report.start_ns + mark);
                path.grid d=(format!("M{x:.1} {:.1}V{height:.1}", TOP - 6.0)) {}
                text x=(format!("{x:.1}")) y="12" text-anchor="middle" { (time(mark)) }
            }
            @for (i, finding) in findings.iter().enumerate() {
                @let y = TOP + ROW * (i as f64 + 0.5);
                text.name x="0" y=(format!("{:.1}", y + 4.0)) {
                    (i + 1) ". " (finding.kind.name())
                }
                g class=(format!("line c{}", finding.kind as usize % 7)) {
                    @for occurrence in &finding.occurrences { (bar(report, occurrence, y)) }
                }
            }
        }
    }
}

fn bar(report: &Report, occurrence: &Occurrence, y: f64) -> Markup {
    let at = |at_ns: u64| place(report, at_ns);
    let ends = occurrence.proof.first().zip(occurrence.proof.last());
    html! {
        @if let Some((first, last)) = ends {
            @let (from, to) = (at(first.stamp.at_ns), at(last.stamp.at_ns));
            rect.band x=(format!("{from:.1}")) y=(format!("{:.1}", y - 5.0)) height="10"
                width=(format!("{:.1}", (to - from).max(2.0))) {
                title { (occurrence.what) }
            }
        }
        @for proof in &occurrence.proof {
            circle cx=(format!("{:.1}", at(proof.stamp.at_ns))) cy=(format!("{y:.1}")) r="3" {
                title { (frame(proof, report)) ": " (proof.what) }
            }
        }
    }
}

fn one(report: &Report, finding: &Finding, number: usize) -> Markup {
    html! {
        section {
            h2 { (number) ". " (sentence(finding.kind.name())) ": " (finding.extent()) }
            p.meaning { (between(finding)) }
            @for occurrence in &finding.occurrences {
                p { (sentence(&occurrence.what)) "." }
                (proofs(report, occurrence))
            }
            @let more = finding.count.saturating_sub(finding.occurrences.len() as u64);
            @if more > 0 { p.meaning { "And " (more) " more, each of which cost less." } }
            p { strong { "Cause. " } (sentence(&finding.cause)) "." }
            p { strong { "Remedy. " } (sentence(&finding.remedy)) "." }
            @for doubt in &finding.doubts {
                p.banner role="note" { strong { "Doubt. " } (sentence(doubt)) "." }
            }
        }
    }
}

fn proofs(report: &Report, occurrence: &Occurrence) -> Markup {
    let heads = ["frame", "time", "since the one before", "what it shows"].map(str::to_owned);
    let mut before = occurrence.start_ns();
    let rows = occurrence.proof.iter().map(|proof| {
        let at_ns = proof.stamp.at_ns;
        let since = at_ns.saturating_sub(std::mem::replace(&mut before, at_ns));
        vec![
            frame(proof, report),
            format!("{:.6} s", at_ns.saturating_sub(report.start_ns) as f64 / 1e9),
            time(since),
            proof.what.clone(),
        ]
    });
    table("Frames that prove it", &heads, 1, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmalab_diagnosis::{Findings, Kind, Proof, event::Stamp};

    fn report() -> Report {
        let mut findings = Findings::default();
        let proof = |frame, at_ns, what: &str| Proof {
            stamp: Stamp { file: 1, frame, at_ns },
            what: what.to_owned(),
        };
        let proof = vec![proof(3, 1000, "SEND <only>"), proof(9, 5_001_000, "repetition")];
        let what = "nothing came".to_owned();
        findings.add(Kind::Timeout, None, Occurrence { what, cost_ns: 5_000_000, proof });
        Report {
            files: vec!["a&b.pcap".to_owned()],
            packets: 2,
            start_ns: 1000,
            end_ns: 6_001_000,
            findings: findings.into_parts().map(|(_, finding)| finding).collect(),
            doubts: vec!["the capture is cut".to_owned()],
            ..Report::default()
        }
    }

    #[test]
    fn the_page_has_the_timeline_and_the_proof_and_needs_nothing_else() {
        let page = diagnosis_page(&report());
        for expected in ["<svg", "frame 9", "5.00 ms", "Remedy", "capture is cut", "a&amp;b.pcap"] {
            assert!(page.contains(expected), "no {expected:?} in\n{page}");
        }
        assert!(page.contains("SEND &lt;only&gt;") && !page.contains("SEND <only>"));
        assert!(!page.contains("http") && !page.contains("<script"), "{page}");
    }

    #[test]
    fn a_page_without_findings_has_no_timeline() {
        let page = diagnosis_page(&Report { findings: Vec::new(), ..report() });
        assert!(!page.contains("<svg") && page.contains("Nothing wrong"), "{page}");
    }
}
