//! What stands between a queue pair and its peers when packets are captured (`RDMALAB_CAPTURE`) or
//! disturbed (`RDMALAB_FAULTS`), or a profile makes them late (`RDMALAB_PROFILE`).
//!
//! While either is armed, no operation of this process takes a short cut: the local lane and the
//! short way of small SENDs are off, and the QP words say nothing, so that initiators elsewhere use
//! the ring as well. Each train then passes a [`Gate`], and each packet for the network the
//! [`NetworkHook`].

pub(crate) mod faults;
pub(crate) mod management;
pub(crate) mod network;
mod points;
mod stamp;
pub(crate) mod tap;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rdmalab_engine::backend::VerbsResult;
use rdmalab_engine::qp::CopyError;
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::{AhAttr, QpType};
use rdmalab_link::expand::{self, MAX_OVERHEAD_BYTES};
use rdmalab_link::frame_headers::FrameHeaders;
use rdmalab_link::hook::Direction;
use rdmalab_link::packet::{Class, Flow, Medium, PacketInfo, Payload};
use rdmalab_link::path::{IpFields, Path, address_of, destination_of, gid_of};
use rdmalab_ring::spsc::Producer;
use rdmalab_wire::ids::{Gid, PathMtu, Qpn};
use rdmalab_wire::ip::ROCE_V2_PORT;
use rdmalab_wire::opcode::Transport;
use rdmalab_wire::packet::ICRC_BYTES;

use crate::copy;
use crate::device;
use crate::peer::Peer;
use crate::process::Process;
use crate::qp::QpInner;
use crate::transmit::push;
use faults::{DeferredPacket, Faults};
use tap::{Record, Tap};

/// What is armed in this process.
pub(crate) struct Armed {
    pub(crate) tap: Option<&'static Tap>,
    pub(crate) faults: Option<&'static Faults>,
}

/// What is armed in this process, for those who report what they measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArmedState {
    /// The file of the capture.
    pub capture: Option<PathBuf>,
    /// The user's rules, as they were written.
    pub faults: Option<String>,
    /// Packets of this process that one of these met so far.
    pub disturbed_packets: u64,
}

/// What [`choose_armed`] was told.
static CHOSEN: OnceLock<(Option<PathBuf>, Option<String>)> = OnceLock::new();

/// Chooses the file of the capture and the rules of faults of this process, where `RDMALAB_CAPTURE`
/// and `RDMALAB_FAULTS` would otherwise: for a program that must not change its environment. To be
/// called once, before a device is opened; `None` leaves it to the environment.
///
/// # Errors
/// That a device was opened already: one line.
pub fn choose_armed(capture: Option<PathBuf>, faults: Option<String>) -> Result<(), String> {
    if capture.is_none() && faults.is_none() {
        return Ok(());
    }
    if Process::existing().is_some() || CHOSEN.set((capture, faults)).is_err() {
        return Err("captures and faults are chosen too late: a device is open".to_owned());
    }
    Ok(())
}

/// What is armed in this process; nothing before a device was opened.
pub fn armed() -> ArmedState {
    let Some(armed) = Process::existing().and_then(|process| process.armed) else {
        return ArmedState::default();
    };
    ArmedState {
        capture: armed.tap.map(|tap| tap.path().to_owned()),
        faults: armed.faults.and_then(|faults| faults.text().map(str::to_owned)),
        disturbed_packets: armed.faults.map_or(0, Faults::disturbed),
    }
}

impl Armed {
    /// Whether trains are to be sent packet by packet: rules speak of packets.
    pub(crate) fn cuts_trains(&self) -> bool {
        self.faults.is_some()
    }

    /// What the environment asks for. It lives as long as the process.
    ///
    /// # Errors
    /// That the capture cannot be written, or the rules cannot be read.
    pub(crate) fn from_environment() -> VerbsResult<Option<&'static Armed>> {
        let tap = tap::from_environment()?;
        let faults = faults::from_environment()?;
        if tap.is_none() && faults.is_none() {
            return Ok(None);
        }
        Ok(Some(Box::leak(Box::new(Armed { tap, faults }))))
    }

    /// Writes what was captured so far.
    pub(crate) fn flush(&self) {
        if let Some(tap) = self.tap {
            tap.flush();
        }
    }

    /// In the child of a fork: the file is the parent's.
    pub(crate) fn close_in_child(&self) {
        if let Some(tap) = self.tap {
            tap.close_in_child();
        }
        if let Some(faults) = self.faults {
            faults.close_in_child();
        }
    }
}

/// The GID of a port of this host whose address has the family of `like`'s.
fn gid_like(device: u32, like: Gid) -> Gid {
    let v4 = address_of(like).is_ipv4();
    let all = (0..device::gid_count()).filter_map(|index| device::gid_of(device, index));
    all.into_iter().find(|gid| address_of(*gid).is_ipv4() == v4).unwrap_or(like)
}

fn first_gid(device: u32) -> Gid {
    device::gid_of(device.min(device::count() - 1), 0).unwrap_or_default()
}

/// The headers of frames from `source` to `destination`, as if they had not gone through shared
/// memory. Ports are as adapters choose them, from the sender's queue pair.
fn shared_path(source: Gid, destination: Gid, src_qpn: Qpn) -> FrameHeaders {
    let path = Path {
        source: address_of(source),
        destination: address_of(destination),
        source_port: 0xc000 | src_qpn.get() as u16 & 0x3fff,
        destination_port: ROCE_V2_PORT,
    };
    FrameHeaders::of(path, &IpFields { hop_limit: 64, ..IpFields::default() })
}

/// The ends of a connection on this host: ours and the peer's.
fn ends(device: u32, ah: &AhAttr) -> (Gid, Gid) {
    let by_gid = ah.is_global && ah.dgid != Gid::default();
    let theirs = if by_gid { ah.dgid } else { first_gid(u32::from(ah.dlid.0).saturating_sub(1)) };
    let ours = device::gid_of(device, u32::from(ah.sgid_index)).filter(|_| by_gid);
    let ours = ours.filter(|gid| address_of(*gid).is_ipv4() == address_of(theirs).is_ipv4());
    (ours.unwrap_or_else(|| gid_like(device, theirs)), theirs)
}

pub(crate) fn transport_of(qp_type: QpType) -> Transport {
    match qp_type {
        QpType::Rc => Transport::Rc,
        QpType::Uc => Transport::Uc,
        QpType::Ud => Transport::Ud,
    }
}

/// What the trains of one queue pair to one peer pass.
pub(crate) struct Gate<'a> {
    armed: &'static Armed,
    peer: &'a Arc<Peer>,
    /// A connection's are made once; a copy of them for each train would wait for its own stores.
    headers: Cow<'a, FrameHeaders>,
    mtu: PathMtu,
    transport: Transport,
    device: u32,
    /// Its packets were captured before, on their way to another member of their group.
    is_copy: bool,
    /// The payload lay in the work request.
    is_inline: bool,
}

impl QpInner {
    /// The gate for trains to a peer of this host, if anything is armed; `position` is that of a
    /// datagram's work request.
    #[inline(always)]
    pub(crate) fn gate<'a>(
        &'a self,
        peer: &'a Arc<Peer>,
        train: &Train,
        position: u32,
    ) -> Option<Gate<'a>> {
        self.links.armed.map(|armed| self.make_gate(armed, peer, train, position))
    }

    #[inline(never)]
    fn make_gate<'a>(
        &'a self,
        armed: &'static Armed,
        peer: &'a Arc<Peer>,
        train: &Train,
        position: u32,
    ) -> Gate<'a> {
        let device = self.links.pd.context.device;
        let headers = match self.links.datagram {
            true if train.dst_qpn == Qpn::MULTICAST => {
                let group = crate::multicast::gid_of(train);
                Cow::Owned(shared_path(gid_like(device, group), group, train.src_qpn))
            }
            true => {
                let target = datagram_device(&self.qp.sq.ud(position).ah);
                Cow::Owned(datagram_path(train, target))
            }
            false => self.shared_path(0),
        };
        let transport = transport_of(self.qp.qp_type);
        let is_inline = self.is_inline(train, position);
        Gate {
            armed,
            peer,
            headers,
            mtu: self.qp.mtu,
            transport,
            device,
            is_copy: false,
            is_inline,
        }
    }

    /// Whether the payload of a train lies in the work request at `position`: not of an answer.
    pub(crate) fn is_inline(&self, train: &Train, position: u32) -> bool {
        !train.kind.is_response() && self.qp.sq.wqe(position).is_inline()
    }

    /// Of a connection on this host: the headers of what it sends (0), and receives (1).
    #[inline]
    fn shared_path(&self, direction: usize) -> Cow<'_, FrameHeaders> {
        match &self.links.shared_paths {
            Some(known) => Cow::Borrowed(&known[direction]),
            None => Cow::Owned(self.make_shared_paths()[direction]),
        }
    }

    #[cold]
    fn make_shared_paths(&self) -> [FrameHeaders; 2] {
        let (ours, theirs) = ends(self.links.pd.context.device, &self.qp.attr.ah_attr);
        let (qpn, remote_qpn) = (self.qp.qpn, self.qp.remote_qpn);
        [shared_path(ours, theirs, qpn), shared_path(theirs, ours, remote_qpn)]
    }

    /// After the address or the peer of a connection was set: remembers its paths.
    pub(crate) fn remember_shared_paths(&mut self) {
        let is_needed = self.links.armed.is_some() && !self.links.datagram;
        self.links.shared_paths = is_needed.then(|| Box::new(self.make_shared_paths()));
    }

    /// Captures a train that came through the ring; its payload lies at `bytes`.
    #[inline(never)]
    pub(crate) fn tap_in(&self, train: &Train, bytes: *const u8) {
        let Some(tap) = self.links.armed.and_then(|armed| armed.tap) else { return };
        let headers = self.arrival_headers(train);
        let transport = transport_of(self.qp.qp_type);
        let (device, mtu) = (self.links.pd.context.device, self.qp.mtu);
        let frames = Frames { tap, device, headers: &headers, mtu, transport };
        frames.record(Direction::In, train, bytes, "", false);
    }

    /// The headers of a train that came through the ring.
    fn arrival_headers(&self, train: &Train) -> Cow<'_, FrameHeaders> {
        if train.dst_qpn == Qpn::MULTICAST {
            let group = crate::multicast::gid_of(train);
            let source = u32::from(train.slid.saturating_sub(1));
            Cow::Owned(shared_path(gid_like(source, group), group, train.src_qpn))
        } else if self.links.datagram {
            Cow::Owned(datagram_path(train, self.links.pd.context.device))
        } else {
            self.shared_path(1)
        }
    }
}

/// The headers of a datagram to a port of this host, as its own header says: the same at both ends.
fn datagram_path(train: &Train, device: u32) -> FrameHeaders {
    let (source, destination) = device::gids_of(train, device).unwrap_or_default();
    let source = match address_of(source).is_ipv4() == address_of(destination).is_ipv4() {
        true => source,
        // No frame goes from IPv4 to IPv6.
        false => gid_like(u32::from(train.slid.saturating_sub(1)), destination),
    };
    shared_path(source, destination, train.src_qpn)
}

/// The device of this host that a datagram goes to.
fn datagram_device(ah: &AhAttr) -> u32 {
    let by_gid = device::with_gid(ah.dgid).filter(|_| ah.is_global);
    by_gid.unwrap_or_else(|| u32::from(ah.dlid.0).saturating_sub(1)).min(device::count() - 1)
}

impl Gate<'_> {
    /// The gate for a packet that went to another member of its group as well.
    pub(crate) fn of_copy(self) -> Self {
        Gate { is_copy: true, ..self }
    }

    /// What [`push`] does, with everything that is armed.
    #[inline(never)]
    pub(crate) fn push(
        &self,
        out: &mut Producer,
        train: &Train,
        is_datagram: bool,
        fill: impl FnOnce(*mut u8) -> Result<(), CopyError>,
    ) -> Option<Result<(), CopyError>> {
        if let Some(faults) = self.armed.faults {
            return self.push_judged(faults, out, train, is_datagram, fill);
        }
        if train.payload_bytes == 0 {
            self.record(train, std::ptr::null(), "", false);
            return push(out, train, is_datagram, fill);
        }
        push(out, train, is_datagram, |to| {
            fill(to)?;
            self.record(train, to, "", false);
            Ok(())
        })
    }

    /// [`Gate::push`] of a train of one packet, with what the rules make of it.
    fn push_judged(
        &self,
        faults: &'static Faults,
        out: &mut Producer,
        train: &Train,
        is_datagram: bool,
        fill: impl FnOnce(*mut u8) -> Result<(), CopyError>,
    ) -> Option<Result<(), CopyError>> {
        let mut payload = vec![0u8; train.payload_bytes as usize];
        if !payload.is_empty()
            && let Err(error) = fill(payload.as_mut_ptr())
        {
            return Some(Err(error));
        }
        let headers = expand::headers_of(train, self.transport)?;
        let overhead = headers.bth.opcode.header_bytes() + ICRC_BYTES;
        let packet = PacketInfo {
            flow: self.flow(train, is_datagram),
            local_qp: train.src_qpn,
            medium: Medium::Memory,
            class: Class::of(headers.bth.opcode, headers.aeth.map(|aeth| aeth.syndrome)),
            psn: train.first_psn,
            psns: train.packets,
            transmission: None,
            in_order: false,
            bytes: self.headers.frame_bytes(payload.len() + overhead) as u32,
            payload: Payload { bytes: train.payload_bytes, is_inline: self.is_inline },
        };
        let fate = faults.packet_leaves(&packet);
        let is_spoilt = fate.corrupt.is_some();
        if self.armed.tap.is_some() {
            let comment = faults.comment(&fate);
            self.record(train, payload.as_ptr(), &comment, is_spoilt);
        }
        // A receiver drops a damaged packet for its invariant CRC, which rings do not carry.
        if fate.lost || is_spoilt {
            return Some(Ok(()));
        }
        let sends_now = faults.defer(&packet.flow, &fate, || DeferredPacket::Ring {
            peer: self.peer.clone(),
            train: *train,
            is_datagram,
            payload: payload.clone().into_boxed_slice(),
        });
        if !sends_now {
            return Some(Ok(()));
        }
        push(out, train, is_datagram, |to| {
            // SAFETY: the ring has room for the payload of the train, which is ours.
            unsafe { copy::copy(to, payload.as_ptr(), payload.len()) }.map_err(|_| CopyError::Fault)
        })
    }

    fn flow(&self, train: &Train, is_datagram: bool) -> Flow {
        // Each process that hears a group is a way of its own.
        let member = match train.dst_qpn == Qpn::MULTICAST {
            true => u32::from(self.peer.slot) << crate::layout::QP_INDEX_BITS,
            false => 0,
        };
        let sender = if is_datagram { train.src_qpn.get() ^ member } else { 0 };
        Flow {
            source: self.headers.path().source,
            // As on a network, for which rules are written too.
            destination: destination_of(gid_of(self.headers.path().destination)),
            destination_qp: train.dst_qpn,
            source_qp: Qpn::new(sender),
            is_response: train.kind.is_response(),
        }
    }

    fn record(&self, train: &Train, bytes: *const u8, comment: &str, spoilt: bool) {
        let Some(tap) = self.armed.tap.filter(|_| !self.is_copy) else { return };
        let Gate { device, headers, mtu, transport, .. } = self;
        let frames = Frames { tap, device: *device, headers, mtu: *mtu, transport: *transport };
        frames.record(Direction::Out, train, bytes, comment, spoilt);
    }
}

/// A train of shared memory as the frames that it would be on a network.
struct Frames<'a> {
    tap: &'a Tap,
    device: u32,
    headers: &'a FrameHeaders,
    mtu: PathMtu,
    transport: Transport,
}

impl Frames<'_> {
    fn record(
        &self,
        direction: Direction,
        train: &Train,
        bytes: *const u8,
        comment: &str,
        spoilt: bool,
    ) {
        if expand::packets_of(train) == 1 {
            // As it is: a copy is made of pieces that the processor cannot forward, and waits.
            return self.record_packet(direction, train, bytes, comment, spoilt);
        }
        for index in 0..expand::packets_of(train) {
            let (packet, at) = train.packet(index, self.mtu);
            let from = bytes.wrapping_add(at as usize);
            self.record_packet(direction, &packet, from, comment, spoilt);
        }
    }

    #[inline]
    fn record_packet(
        &self,
        direction: Direction,
        packet: &Train,
        from: *const u8,
        comment: &str,
        spoilt: bool,
    ) {
        let payload_bytes = packet.payload_bytes as usize;
        let Some(opcode) = expand::opcode_of(packet, self.transport) else { return };
        let head_bytes = opcode.header_bytes();
        let Some(entry) = self.tap.entry(self.device, payload_bytes + MAX_OVERHEAD_BYTES) else {
            return;
        };
        let record = Record {
            direction,
            headers: self.headers,
            bytes: head_bytes + payload_bytes,
            complete: false,
            spoilt,
            comment,
        };
        entry.record(&record, |place| {
            // All headers are kept of every packet.
            let Some((head, place)) = place.split_at_mut_checked(head_bytes) else {
                return debug_assert!(false, "cut within its headers");
            };
            expand::write_head(packet, opcode, head);
            // SAFETY: the payload of the train lies at `from`, as its sender or the ring's check
            // made sure; `place` is part of our own queue, and no longer than the packet's part of
            // it. A copy by pointer, since the peer may write there.
            unsafe { std::ptr::copy_nonoverlapping(from, place.as_mut_ptr(), place.len()) };
        });
    }
}
