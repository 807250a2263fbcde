//! Captures as conversations.
//!
//! * [`mod@file`]: frames from pcap and pcapng files, of this project, tcpdump, Wireshark or
//!   ibdump.
//! * [`packet`]: a frame as a packet of the IBA transport, with its two ends and the result of the
//!   check of its invariant CRC.
//! * [`conversation`]: packets sorted into pairs of queue pairs, with notes on each packet: what it
//!   acknowledges or repeats, and which packets are missing before it.
//! * [`stream`]: the packets of a capture of any length one by one, in bounded memory.
//! * [`survey`]: the same pairs of queue pairs for a stream, found in a pass before.
//!
//! * [`show`]: texts for packets and notes.
//!
//! Only the start of the payload is kept, for management datagrams. A capture is not trusted:
//! frames that cannot be read are counted, with the first error of each kind.
#![forbid(unsafe_code)]

pub mod conversation;
pub mod file;
mod merged;
pub mod packet;
pub mod show;
pub mod stream;
pub mod survey;

pub use conversation::{Conversation, Row, Trace};
pub use file::{Capture, Frame, Link, ReadError};
pub use merged::Merged;
pub use packet::{Address, Seen};
pub use stream::{Packets, Tally};
pub use survey::{Directory, Survey};

/// Reads a capture, and sorts it into conversations.
///
/// # Errors
/// When the file cannot be opened, or is no capture. A capture that ends in the middle of a packet
/// gives what came before, and [`Tally::cut_short`] says so.
pub fn read(path: &std::path::Path) -> Result<Trace, ReadError> {
    let mut capture = Capture::open(path)?;
    let mut trace = Trace::default();
    loop {
        match capture.next_frame() {
            Ok(Some(frame)) => trace.take(&frame),
            Ok(None) => break,
            Err(reason) => {
                trace.tally.cut_short = Some(reason.to_string());
                break;
            }
        }
    }
    trace.finish();
    Ok(trace)
}
