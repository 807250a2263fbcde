//! `rdmalab trace`: a capture as tables.

use std::path::PathBuf;

use clap::Args;
use rdmalab_trace::conversation::{Direction, Note, Row, SHARERS_MAX};
use rdmalab_trace::{Conversation, Trace, show};

use crate::failure::{Failure, Outcome, usage};
use crate::table::Rows;

/// Show a capture as conversations of queue pairs
///
/// Reads pcap and pcapng files: RoCEv2 as tcpdump, Wireshark or we capture it, InfiniBand as
/// ibdump does. Shows each packet with its time, direction, opcode, PSN, length and syndrome,
/// and what it meant: an answer, a repetition, a gap, a refusal.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// The capture
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only conversations with this queue pair at either end (0x for hexadecimal)
    #[arg(long, value_name = "NUMBER", value_parser = queue_pair)]
    pub qp: Option<u32>,
    /// At most so many packets of each conversation; 0 for all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Only a line for each conversation
    #[arg(long)]
    pub summary: bool,
}

/// A queue pair's number.
fn queue_pair(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match number {
        Ok(number) if number < 1 << 24 => Ok(number),
        _ => Err("expected a number of 24 bits, like 17 or 0x11".to_owned()),
    }
}

/// Reads the capture and prints it. If the capture is damaged at its end, the packets before are
/// printed, and the command fails.
pub fn run(args: &TraceArgs) -> Outcome {
    let trace = rdmalab_trace::read(&args.file).map_err(usage)?;
    overview(&trace);
    let of_qp = |c: &&Conversation| args.qp.is_none_or(|qp| has(c, qp));
    let shown: Vec<&Conversation> = trace.conversations.iter().filter(of_qp).collect();
    if let (Some(qp), true) = (args.qp, shown.is_empty()) {
        return Err(usage(format!("--qp {qp:#x}: no conversation of this capture has this QP")));
    }
    for (i, conversation) in shown.iter().enumerate() {
        outln!();
        summary(i + 1, conversation);
        if !args.summary {
            packets(conversation, trace.start_ns(), args.limit);
        }
    }
    match trace.tally.cut_short {
        None => Ok(()),
        Some(reason) => Err(Failure::Run(format!("{}: {reason}", args.file.display()))),
    }
}

fn has(conversation: &Conversation, qpn: u32) -> bool {
    conversation.a.qpn == Some(qpn) || conversation.b.qpn == Some(qpn)
}

fn overview(trace: &Trace) {
    let rows: usize = trace.conversations.iter().map(|c| c.rows.len()).sum();
    outln!(
        "{} frames: {rows} packets of {} conversations, {} of something else",
        trace.tally.frames,
        trace.conversations.len(),
        trace.tally.foreign
    );
    for (reason, count) in &trace.tally.malformed {
        outln!("  {count} malformed, the first: {reason}");
    }
    if trace.crowded_psns > 0 {
        outln!(
            "  {} PSNs are used by more than {SHARERS_MAX} queue pairs of a host: they cannot \
             show which directions belong together",
            trace.crowded_psns
        );
    }
}

fn summary(number: usize, c: &Conversation) {
    let transport = show::transport(c.transport);
    outln!("conversation {number}: {transport}, A = {}, B = {}", c.a, c.b);
    let mut parts = vec![
        format!("{} packets", c.rows.len()),
        format!("{} bytes of payload", c.payload_bytes()),
    ];
    parts.extend(c.mtu_bytes.map(|mtu| format!("path MTU {mtu}")));
    for (name, count) in [
        ("repeated", c.rows_with(|n| matches!(n, Note::Repeated { .. }))),
        ("gaps", c.rows_with(|n| matches!(n, Note::Gap { .. }))),
        ("sequence NAKs", c.rows_with(|n| matches!(n, Note::GoBack))),
        ("RNR NAKs", c.rows_with(|n| matches!(n, Note::NotReady { .. }))),
        ("refused", c.rows_with(|n| matches!(n, Note::Refused(_)))),
        ("with a wrong ICRC", c.rows_with(|n| matches!(n, Note::BadIcrc))),
    ] {
        if count > 0 {
            parts.push(format!("{count} {name}"));
        }
    }
    outln!("  {}", parts.join(", "));
}

fn packets(c: &Conversation, start_ns: u64, limit: usize) {
    let limit = if limit == 0 { usize::MAX } else { limit };
    let head = ["time", "", "opcode", "     PSN", "   bytes", "syndrome", "meaning"];
    let mut shown = Rows::new(&head, head.len());
    for row in c.rows.iter().take(limit) {
        shown.push(&cells(row, start_ns));
    }
    out!("{}", shown.text());
    if c.rows.len() > limit {
        outln!("  {} more packets: --limit 0 shows all", c.rows.len() - limit);
    }
}

fn cells(row: &Row, start_ns: u64) -> Vec<String> {
    let packet = &row.packet;
    let arrow = match row.direction {
        Direction::Forward => "A -> B",
        Direction::Back => "A <- B",
    };
    let notes: Vec<String> = row.notes.iter().map(ToString::to_string).collect();
    vec![
        format!("{:.6} s", packet.at_ns.saturating_sub(start_ns) as f64 / 1e9),
        arrow.to_owned(),
        show::opcode(packet.headers.bth.opcode),
        format!("{:>8}", packet.headers.bth.psn.get()),
        show::length_bytes(packet).map_or_else(String::new, |bytes| format!("{bytes:>8}")),
        show::syndrome(packet),
        notes.join("; "),
    ]
}
