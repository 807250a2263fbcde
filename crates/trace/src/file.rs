//! Reads frames from capture files.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};

/// Why a capture could not be read: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError(String);

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReadError {}

/// The link type: the header with which a frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet.
    Ethernet,
    /// IPv4 or IPv6, without a link header.
    RawIp,
    /// The local route header of InfiniBand.
    Infiniband,
    /// An Extensible Record Format record, which ibdump writes.
    Erf,
    /// Linux' cooked capture (`tcpdump -i any`), 16 bytes.
    LinuxSll,
    /// Its second version, 20 bytes.
    LinuxSll2,
    /// BSD's loopback: four bytes of address family.
    Null,
    /// A link type that cannot carry RDMA, as far as we know, with its number.
    Other(u32),
}

impl From<DataLink> for Link {
    fn from(link: DataLink) -> Self {
        match u32::from(link) {
            0 => Self::Null,
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::RawIp,
            113 => Self::LinuxSll,
            197 => Self::Erf,
            247 => Self::Infiniband,
            276 => Self::LinuxSll2,
            other => Self::Other(other),
        }
    }
}

/// A frame of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its number in the file as Wireshark shows it: 1 is the first.
    pub number: u64,
    /// The interface that captured it, as a pcapng file numbers them; 0 in a pcap file.
    pub interface: u32,
    /// Since 1970, UTC, in nanoseconds.
    pub at_ns: u64,
    /// Its link type.
    pub link: Link,
    /// The bytes that were kept.
    pub bytes: Vec<u8>,
    /// Length of the whole frame.
    pub original_bytes: usize,
    /// Comments of the capture on this frame, one a line.
    pub comment: String,
}

/// The clock of one interface of a pcapng file.
#[derive(Clone, Copy, Debug)]
struct Timebase {
    /// Units in a second.
    per_second: u128,
    /// Seconds to add.
    offset_s: u64,
}

impl Timebase {
    /// The clock given by an interface's options; without them it counts microseconds.
    fn of(options: &[InterfaceDescriptionOption<'_>]) -> Self {
        let mut base = Self { per_second: 1_000_000, offset_s: 0 };
        for option in options {
            match option {
                // The high bit tells a power of two from a power of ten.
                InterfaceDescriptionOption::IfTsResol(value) if value & 0x80 != 0 => {
                    base.per_second = 1 << (value & 0x3f);
                }
                InterfaceDescriptionOption::IfTsResol(value) => {
                    base.per_second = 10u128.pow(u32::from(*value).min(18));
                }
                InterfaceDescriptionOption::IfTsOffset(seconds) => base.offset_s = *seconds,
                _ => {}
            }
        }
        base
    }

    fn ns(self, units: u128) -> u64 {
        let ns = units * 1_000_000_000 / self.per_second;
        (ns as u64).wrapping_add(self.offset_s.wrapping_mul(1_000_000_000))
    }
}

enum Reader {
    Pcap(Box<PcapReader<BufReader<File>>>),
    PcapNg(Box<PcapNgReader<BufReader<File>>>),
}

/// An open capture.
pub struct Capture {
    reader: Reader,
    /// Frames that were read.
    frames: u64,
    /// Packets that were lost while capturing, as pcapng records it.
    dropped: u64,
}

/// The first bytes of a pcapng file.
const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

impl Capture {
    /// Opens a pcap or pcapng file.
    ///
    /// # Errors
    /// When there is no such file, or it is neither.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let failed = |reason: String| ReadError(format!("{}: {reason}", path.display()));
        let mut file = File::open(path).map_err(|e| failed(e.to_string()))?;
        let mut magic = [0; 4];
        file.read_exact(&mut magic)
            .map_err(|_| failed("too short for a capture (pcap or pcapng)".to_owned()))?;
        file.seek(SeekFrom::Start(0)).map_err(|e| failed(e.to_string()))?;
        let file = BufReader::with_capacity(1 << 20, file);
        let no_capture =
            |e: PcapError| failed(format!("not a capture (pcap or pcapng): {}", explain(&e)));
        let reader = if magic == PCAPNG_MAGIC {
            Reader::PcapNg(Box::new(PcapNgReader::new(file).map_err(no_capture)?))
        } else {
            Reader::Pcap(Box::new(PcapReader::new(file).map_err(no_capture)?))
        };
        Ok(Self { reader, frames: 0, dropped: 0 })
    }

    /// Packets that were lost while capturing, as the file says.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// When the file ends in the middle of a frame, or is damaged.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, ReadError> {
        let frame = match &mut self.reader {
            Reader::Pcap(reader) => next_of_pcap(reader),
            Reader::PcapNg(reader) => next_of_pcapng(reader, &mut self.dropped),
        };
        Ok(frame?.map(|frame| {
            self.frames += 1;
            Frame { number: self.frames, ..frame }
        }))
    }
}

fn explain(error: &PcapError) -> String {
    match error {
        PcapError::IncompleteBuffer => "it ends in the middle of a packet".to_owned(),
        other => other.to_string(),
    }
}

fn damaged(error: PcapError) -> ReadError {
    ReadError(explain(&error))
}

fn next_of_pcap(reader: &mut PcapReader<BufReader<File>>) -> Result<Option<Frame>, ReadError> {
    let link = Link::from(reader.header().datalink);
    let Some(packet) = reader.next_packet() else {
        return Ok(None);
    };
    let packet = packet.map_err(damaged)?;
    Ok(Some(Frame {
        number: 0,
        interface: 0,
        at_ns: packet.timestamp.as_nanos() as u64,
        link,
        original_bytes: packet.orig_len as usize,
        bytes: packet.data.into_owned(),
        comment: String::new(),
    }))
}

fn next_of_pcapng(
    reader: &mut PcapNgReader<BufReader<File>>,
    dropped: &mut u64,
) -> Result<Option<Frame>, ReadError> {
    loop {
        let Some(block) = reader.next_block() else {
            return Ok(None);
        };
        let (interface, units, frame) = match block.map_err(damaged)? {
            Block::EnhancedPacket(packet) => {
                *dropped = dropped.saturating_add(drops(&packet.options));
                let comment = comments(&packet.options);
                let frame = frame(&packet.data, packet.original_len, comment);
                (packet.interface_id, packet.timestamp.as_nanos(), frame)
            }
            Block::SimplePacket(packet) => {
                (0, 0, frame(&packet.data, packet.original_len, String::new()))
            }
            // The packet block of the first drafts of pcapng.
            Block::Packet(packet) => {
                let data = frame(&packet.data, packet.original_len, String::new());
                (packet.interface_id.into(), packet.timestamp.into(), data)
            }
            _ => continue,
        };
        let Some(description) = reader.interfaces().get(interface as usize) else {
            return Err(ReadError(format!(
                "a packet of interface {interface}, which is not there"
            )));
        };
        // The library returns the units as if they were nanoseconds.
        let at_ns = Timebase::of(&description.options).ns(units);
        let link = Link::from(description.linktype);
        return Ok(Some(Frame { interface, at_ns, link, ..frame }));
    }
}

/// A frame whose number, interface, time and link are not known yet.
fn frame(bytes: &[u8], original_bytes: u32, comment: String) -> Frame {
    Frame {
        number: 0,
        interface: 0,
        at_ns: 0,
        link: Link::Ethernet,
        bytes: bytes.to_vec(),
        original_bytes: original_bytes as usize,
        comment,
    }
}

fn comments(options: &[EnhancedPacketOption<'_>]) -> String {
    let texts = options.iter().filter_map(|option| match option {
        EnhancedPacketOption::Comment(text) => Some(text.as_ref()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn drops(options: &[EnhancedPacketOption<'_>]) -> u64 {
    let counts = options.iter().map(|option| match option {
        EnhancedPacketOption::DropCount(count) => *count,
        _ => 0,
    });
    counts.sum()
}
