//! Blocks of a pcapng capture, of RoCEv2 packets in Ethernet frames.
//!
//! The `pcap-file` crate is not used here, because it copies a packet several times and writes
//! microseconds. Capturing a packet costs the program time. So [`packet()`] writes headers and
//! payload straight to their place in the queue. The expensive part, both checksums, is left to
//! [`Checksums`], which the writing thread uses later. The tests read the result with `pcap-file`.
//!
//! Format: IETF draft-ietf-opsawg-pcapng, in the byte order of the machine.

use rdmalab_wire::ip::{Ethernet, Udp};
use rdmalab_wire::packet::ICRC_BYTES;

use crate::address::{FRAME_HEADER_BYTES, FourTuple};
use crate::frame_headers::FrameHeaders;
use crate::hook::Direction;

mod assembler;
mod checksums;
mod pair;
mod template;

pub use assembler::Assembler;
pub use checksums::Checksums;
pub use pair::TemplatePair;
pub use template::{Definition, Form, Forms, TAIL_ROOM, Template, Templates};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;
const EPB_FLAGS: u16 = 2;
const EPB_DROPCOUNT: u16 = 4;

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
/// Bit in a block's interface number: the checksums are not computed yet.
const UNFINISHED: u32 = 1 << 31;
/// Bit in a block's interface number: the invariant CRC shall be wrong.
const SPOILT: u32 = 1 << 30;
/// Offset of a packet block's data.
const DATA_AT: usize = 28;
/// Offset of a packet block's length.
const TOTAL_AT: usize = 4;
/// Offset of a packet block's timestamp.
const STAMP_AT: usize = 12;
/// Offset of the length of a packet block's data.
const KEPT_AT: usize = 20;
/// Bytes of a frame that a packet in short form ([`Template`]) keeps if it is cut. The headers of
/// every packet fit.
pub const CUT_BYTES: usize = 128;
/// The longest comment of a packet, bytes.
pub const COMMENT_MAX: usize = 200;
/// Bytes of a packet's block besides its frame, at most.
pub const BLOCK_OVERHEAD: usize = DATA_AT + FRAME_HEADER_BYTES + 64 + COMMENT_MAX;

/// A packet to be written.
#[derive(Clone, Copy, Debug)]
pub struct Capture<'a> {
    /// Index of the interface, in the order of their descriptions.
    pub interface: u32,
    /// Nanoseconds since 1970, UTC.
    pub at_ns: u64,
    /// The direction.
    pub direction: Direction,
    /// The Ethernet, IP and UDP headers.
    pub headers: &'a FrameHeaders,
    /// Bytes from the BTH to the end of the payload; for a complete packet to the end of the ICRC.
    pub bytes: usize,
    /// Whether these bytes are the whole packet as on a network. If not, [`packet()`] adds the pad
    /// and [`Checksums`] the invariant CRC.
    pub complete: bool,
    /// The packet was damaged: the CRC that is added is wrong.
    pub spoilt: bool,
    /// The comment; cut off at [`COMMENT_MAX`] bytes.
    pub comment: &'a str,
    /// Number of packets that the capture lost since the last one that it kept.
    pub dropped: u64,
    /// The snap length: bytes of the frame to keep.
    pub snap: usize,
}

/// The word at an offset.
#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn put16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_ne_bytes());
}

fn put32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_ne_bytes());
}

fn pad(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&[0; 3][..length.wrapping_neg() & 3]);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    put16(out, code);
    put16(out, value.len() as u16);
    out.extend_from_slice(value);
    pad(out, value.len());
}

/// Writes a block around what `body` writes.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put32(out, kind);
    put32(out, 0);
    body(out);
    let length = (out.len() - start + 4) as u32;
    put32(out, length);
    out[start + 4..start + 8].copy_from_slice(&length.to_ne_bytes());
}

/// Begins a file.
pub fn section(out: &mut Vec<u8>, application: &str, comment: &str) {
    block(out, SECTION_HEADER, |out| {
        put32(out, 0x1a2b_3c4d);
        put16(out, 1);
        put16(out, 0);
        // The length of the section is not known.
        out.extend_from_slice(&u64::MAX.to_ne_bytes());
        option(out, OPT_COMMENT, comment.as_bytes());
        option(out, SHB_USERAPPL, application.as_bytes());
        option(out, OPT_END, &[]);
    });
}

/// Describes the next interface: Ethernet, with nanoseconds.
pub fn interface(out: &mut Vec<u8>, name: &str, description: &str, snap: u32) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        put16(out, ETHERNET);
        put16(out, 0);
        put32(out, snap);
        option(out, IF_NAME, name.as_bytes());
        option(out, IF_DESCRIPTION, description.as_bytes());
        option(out, IF_TSRESOL, &[9]);
        option(out, OPT_END, &[]);
    });
}

/// How many packets of an interface were seen, and how many of them the file does not contain.
pub fn statistics(out: &mut Vec<u8>, interface: u32, at_ns: u64, seen: u64, dropped: u64) {
    block(out, INTERFACE_STATISTICS, |out| {
        put32(out, interface);
        put32(out, (at_ns >> 32) as u32);
        put32(out, at_ns as u32);
        option(out, ISB_IFRECV, &seen.to_ne_bytes());
        option(out, ISB_IFDROP, &dropped.to_ne_bytes());
        option(out, OPT_END, &[]);
    });
}

/// Bytes of a frame between these addresses with a packet of `packet_bytes`.
pub fn frame_bytes(tuple: &FourTuple, packet_bytes: usize) -> usize {
    let ip = if tuple.source.is_ipv4() { 20 } else { 40 };
    Ethernet::BYTES + ip + Udp::BYTES + packet_bytes
}

/// Writes a packet's block to the start of `out` and returns its length, a multiple of 4. `None` if
/// it does not fit. `fill` writes the [`Capture::bytes`], or as many of them as are kept. The
/// checksums of an incomplete packet are zero until [`Checksums::finish`].
#[inline]
pub fn packet(
    out: &mut [u8],
    capture: &Capture<'_>,
    fill: impl FnOnce(&mut [u8]),
) -> Option<usize> {
    let Capture { headers, bytes, .. } = *capture;
    let packet_bytes = bytes + capture.trailer_bytes();
    let length = headers.frame_bytes(packet_bytes);
    if length > capture.snap || !capture.is_plain() {
        return packet_with_more(out, *capture, length, fill);
    }
    let padded = length.next_multiple_of(4);
    let total = DATA_AT + padded + PLAIN_END;
    let block = out.get_mut(..total)?;
    let (start, frame) = block.split_first_chunk_mut()?;
    *start = capture.start(total, length, length);
    headers.write(packet_bytes, frame.first_chunk_mut()?);
    let (at, end) = (headers.bytes(), headers.bytes() + bytes);
    fill(frame.get_mut(at..end)?);
    // Pad and ICRC are shorter than the block's end, which is written next.
    *frame.get_mut(end..)?.first_chunk_mut()? = [0; PLAIN_END];
    *frame.last_chunk_mut()? = plain_end(capture.direction, total);
    Some(total)
}

/// [`packet`] for a truncated frame, or with options that few packets have.
/// Takes copies, so that [`packet`] need not keep anything in memory for it.
#[cold]
fn packet_with_more(
    out: &mut [u8],
    capture: Capture<'_>,
    length: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Option<usize> {
    let Capture { headers, bytes, .. } = capture;
    let kept = length.min(capture.snap);
    let padded = kept.next_multiple_of(4);
    let options = options(&capture);
    let total = DATA_AT + padded + options.len() + 4;
    let block = out.get_mut(..total)?;
    block[..DATA_AT].copy_from_slice(&capture.start(total, kept, length));
    let (frame, end) = block[DATA_AT..].split_at_mut(padded);
    let mut start = [0; FRAME_HEADER_BYTES];
    headers.write(bytes + capture.trailer_bytes(), &mut start);
    let at = kept.min(headers.bytes());
    frame[..at].copy_from_slice(&start[..at]);
    let payload_end = kept.min(at + bytes);
    fill(&mut frame[at..payload_end]);
    frame[payload_end..].fill(0);
    end[..options.len()].copy_from_slice(&options);
    end[options.len()..].copy_from_slice(&(total as u32).to_ne_bytes());
    Some(total)
}

impl Capture<'_> {
    /// Whether the direction is its only option.
    fn is_plain(&self) -> bool {
        self.comment.is_empty() && self.dropped == 0
    }

    /// Bytes of the whole frame.
    #[inline]
    pub fn frame_bytes(&self) -> usize {
        self.headers.frame_bytes(self.bytes + self.trailer_bytes())
    }

    /// Bytes of the pad and the invariant CRC to add. Headers are multiples of 4.
    fn trailer_bytes(&self) -> usize {
        match self.complete {
            true => 0,
            false => (self.bytes.wrapping_neg() & 3) + ICRC_BYTES,
        }
    }

    /// The first words of a packet's block.
    #[inline]
    fn start(&self, total: usize, kept: usize, length: usize) -> [u8; DATA_AT] {
        let mark = if self.complete && self.headers.is_v4() { 0 } else { UNFINISHED };
        let mark = if self.spoilt { mark | SPOILT } else { mark };
        let interface = self.interface | mark;
        let words = [ENHANCED_PACKET, total as u32, interface, 0, 0, kept as u32, length as u32];
        let mut start = [0; DATA_AT];
        for (place, word) in start.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
        start[STAMP_AT..STAMP_AT + 8].copy_from_slice(&stamp(self.at_ns));
        start
    }
}

/// A timestamp: its upper half, then its lower half.
#[inline]
fn stamp(at_ns: u64) -> [u8; 8] {
    let mut stamp = [0; 8];
    let (high, low) = stamp.split_at_mut(4);
    high.copy_from_slice(&((at_ns >> 32) as u32).to_ne_bytes());
    low.copy_from_slice(&(at_ns as u32).to_ne_bytes());
    stamp
}

fn flags(direction: Direction) -> u32 {
    match direction {
        Direction::In => 1,
        Direction::Out => 2,
    }
}

/// Bytes of the options that nearly every packet has, and of the total length behind them.
const PLAIN_END: usize = 16;

/// The end of a block whose only option is the direction.
#[inline]
fn plain_end(direction: Direction, total: usize) -> [u8; PLAIN_END] {
    // Code, length, value; no more options; length.
    let mut out = [0; PLAIN_END];
    out[..2].copy_from_slice(&EPB_FLAGS.to_ne_bytes());
    out[2..4].copy_from_slice(&4u16.to_ne_bytes());
    out[4..8].copy_from_slice(&flags(direction).to_ne_bytes());
    out[12..].copy_from_slice(&(total as u32).to_ne_bytes());
    out
}

fn options(capture: &Capture<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    if !capture.comment.is_empty() {
        let end = capture.comment.floor_char_boundary_of(COMMENT_MAX);
        option(&mut out, OPT_COMMENT, &capture.comment.as_bytes()[..end]);
    }
    option(&mut out, EPB_FLAGS, &flags(capture.direction).to_ne_bytes());
    if capture.dropped > 0 {
        option(&mut out, EPB_DROPCOUNT, &capture.dropped.to_ne_bytes());
    }
    option(&mut out, OPT_END, &[]);
    out
}

/// Like `str::floor_char_boundary`, which Rust 1.90 lacks.
trait Cut {
    fn floor_char_boundary_of(&self, most: usize) -> usize;
}

impl Cut for str {
    fn floor_char_boundary_of(&self, most: usize) -> usize {
        let mut end = self.len().min(most);
        while !self.is_char_boundary(end) {
            end -= 1;
        }
        end
    }
}

#[cfg(test)]
mod tests;
