//! Captures: what each adapter sends and receives, as frames of RoCEv2 in pcapng files, whatever
//! the link is.

use std::io::{self, Write};

use rdmalab_engine::train::{GrhFields, Train, TrainFlags};
use rdmalab_link::address::{FourTuple, IpFields, address_of, destination_of};
use rdmalab_link::expand::{self, MAX_OVERHEAD_BYTES};
use rdmalab_link::frame_headers::FrameHeaders;
use rdmalab_link::hook::Direction;
use rdmalab_link::pcapng::{self, Checksums};
use rdmalab_wire::ip::ROCE_V2_PORT;
use rdmalab_wire::opcode::Transport;

use crate::device;
use crate::packets::Packets;
use crate::time::Ps;

/// The largest frame.
const SNAP_BYTES: usize = 65_535;
/// The hop limit that frames show if the sender chose none.
const HOP_LIMIT: u8 = 64;

/// The file of one adapter.
pub type CaptureFile = Box<dyn Write + Send>;

/// The files of a simulation.
pub(crate) struct Capture {
    /// By node.
    files: Vec<CaptureFile>,
    /// The time in the files at which the simulation begins, ns.
    begin_ns: u64,
    block: Vec<u8>,
    checksums: Checksums,
    /// The first error, and whose file it is.
    error: Option<(usize, io::Error)>,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} files", self.files.len())
    }
}

/// The beginning of the file of an adapter.
#[must_use]
pub fn capture_head(device: &str, rank: usize) -> Vec<u8> {
    let mut head = Vec::new();
    let application = concat!("rdmalab ", env!("CARGO_PKG_VERSION"));
    let comment = format!(
        "{device}, the adapter of rank {rank}: simulated, in virtual time from 0 on; packets are \
         shown as RoCEv2, whatever the link is"
    );
    pcapng::section(&mut head, application, &comment);
    pcapng::interface(&mut head, device, "simulated adapter of rdmalab", SNAP_BYTES as u32);
    head
}

/// A packet in a capture, besides its bytes.
pub(crate) struct Shown<'a> {
    /// Whose file it goes to.
    pub(crate) node: usize,
    pub(crate) direction: Direction,
    pub(crate) at: Ps,
    pub(crate) comment: &'a str,
    pub(crate) is_spoilt: bool,
}

impl Capture {
    pub(crate) fn new(files: Vec<CaptureFile>, begin_ns: u64) -> Capture {
        let (block, checksums) = (vec![0; pcapng::BLOCK_OVERHEAD], Checksums::default());
        Capture { files, begin_ns, block, checksums, error: None }
    }

    /// Writes what is not written yet; returns why a file is not whole.
    pub(crate) fn close(mut self) -> Option<String> {
        let mut flush = self.files.iter_mut().enumerate();
        let flushed = flush.find_map(|(node, file)| Some((node, file.flush().err()?)));
        let (node, error) = self.error.or(flushed)?;
        Some(format!("could not write the whole capture of rank {node}: {error}"))
    }

    /// Writes packets to the file of an adapter, until a file could not be written. They show this
    /// remote address.
    pub(crate) fn record(&mut self, shown: &Shown<'_>, packets: &Packets, remote_addr: u64) {
        if self.error.is_some() {
            return;
        }
        let headers = frame_headers(packets);
        let whole = Train { remote_addr, ..packets.train };
        let count = expand::packets_of(&whole);
        for index in 0..count {
            let (train, at) = match count {
                1 => (whole, 0),
                _ => whole.packet(index, packets.mtu),
            };
            let Some(opcode) = expand::opcode_of(&train, packets.transport) else { return };
            let (from, head) = (at as usize, opcode.header_bytes());
            let payload = packets.payload.get(from..from + train.payload_bytes as usize);
            let payload = payload.unwrap_or_default();
            let record = pcapng::Capture {
                interface: 0,
                at_ns: self.begin_ns + shown.at.whole_ns(),
                direction: shown.direction,
                headers: &headers,
                bytes: head + payload.len(),
                complete: false,
                spoilt: shown.is_spoilt,
                comment: shown.comment,
                dropped: 0,
                snap: SNAP_BYTES,
            };
            self.block.resize(pcapng::BLOCK_OVERHEAD + MAX_OVERHEAD_BYTES + payload.len() + 4, 0);
            let written = pcapng::packet(&mut self.block, &record, |place| {
                let (start, rest) = place.split_at_mut(head);
                expand::write_head(&train, opcode, start);
                rest.copy_from_slice(payload);
            });
            let Some(bytes) = written else { return };
            self.checksums.finish(&mut self.block[..bytes]);
            if let Err(error) = self.files[shown.node].write_all(&self.block[..bytes]) {
                self.error = Some((shown.node, error));
                return;
            }
        }
    }
}

/// The headers of the frames of packets.
pub(crate) fn frame_headers(packets: &Packets) -> FrameHeaders {
    let chosen = match packets.transport {
        Transport::Ud if packets.train.flags.has(TrainFlags::GRH) => {
            GrhFields::unpack(packets.train.compare)
        }
        _ => GrhFields { traffic_class: 0, hop_limit: HOP_LIMIT, flow_label: 0 },
    };
    let GrhFields { traffic_class, hop_limit, flow_label } = chosen;
    let hop_limit = if hop_limit == 0 { HOP_LIMIT } else { hop_limit };
    let tuple = FourTuple {
        source: address_of(device::gid_of(packets.from.node)),
        destination: destination_of(packets.destination),
        source_port: 0xc000 | packets.train.src_qpn.get() as u16 & 0x3fff,
        destination_port: ROCE_V2_PORT,
    };
    FrameHeaders::of(tuple, &IpFields { traffic_class, hop_limit, flow_label, identification: 0 })
}
