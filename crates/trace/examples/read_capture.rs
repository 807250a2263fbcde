//! Reads a capture of any program (pcap or pcapng, of tcpdump, Wireshark or `rdmalab exec
//! --capture`), and prints each packet with what it meant: what it answered, repeated or refused.
//!
//! ```sh
//! cargo run -p rdmalab-trace --example read_capture -- crates/trace/tests/data/read_lat.pcap
//! ```

use std::path::Path;

use rdmalab_trace::conversation::{Direction, Note};
use rdmalab_trace::show;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: read_capture FILE")?;
    let trace = rdmalab_trace::read(Path::new(&file))?;
    for conversation in &trace.conversations {
        println!("{} <-> {}", conversation.a, conversation.b);
        for row in &conversation.rows {
            let arrow = match row.direction {
                Direction::Forward => "->",
                Direction::Back => "<-",
            };
            let bth = &row.packet.headers.bth;
            let notes: Vec<String> = row.notes.iter().map(in_words).collect();
            println!(
                "  {arrow} {:24} PSN {:8} {:5} B  {}",
                show::opcode(bth.opcode),
                bth.psn.get(),
                row.packet.payload_bytes,
                notes.join(", ")
            );
        }
        let repeated = conversation.rows_with(|note| matches!(note, Note::Repeated { .. }));
        println!("  {} packets, {repeated} of them repeated", conversation.rows.len());
    }
    Ok(())
}

fn in_words(note: &Note) -> String {
    match note {
        Note::Answers { after_ns } => format!("answers after {}", show::time(*after_ns)),
        Note::Repeated { after_ns } => format!("repeated after {}", show::time(*after_ns)),
        Note::Gap { psns } => format!("{psns} PSNs missing before it"),
        other => format!("{other:?}"),
    }
}
