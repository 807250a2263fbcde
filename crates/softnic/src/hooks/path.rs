//! Paths that capture trains or apply fault rules. They wrap the path to one peer of this host.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use rdmalab_driver::{Memory as _, Path, Unsent};
use rdmalab_engine::qp::{CopyError, Qp};
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::UdAddress;
use rdmalab_link::address::{destination_of, gid_of};
use rdmalab_link::expand;
use rdmalab_link::frame_headers::FrameHeaders;
use rdmalab_link::hook::Direction;
use rdmalab_link::packet::{Class, Flow, Medium, PacketInfo, Payload};
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::opcode::Transport;
use rdmalab_wire::packet::ICRC_BYTES;

use super::Hooks;
use super::deferred::{self, DeferredPacket};
use super::faults::Faults;
use super::frames::{DatagramFlow, Frames, SharedPaths, sent_path};
use super::tap::Tap;
use crate::peer::Peer;
use crate::qp::{Destination, QpLinks, transport_of};

/// A path whose trains are captured.
pub(crate) struct TappedPath<'a, P> {
    inner: &'a mut P,
    /// `None` if nothing is captured, or if the trains were captured on another member's path.
    tap: Option<&'static Tap>,
    frames: Frames<'a>,
    /// For datagrams to one queue pair.
    datagrams: Option<&'a DatagramFlow>,
}

/// What is known of the packets on a path.
#[derive(Clone, Copy)]
pub(crate) enum Known<'a> {
    Connection(&'a SharedPaths),
    /// Datagrams to one queue pair. Their headers follow from the address.
    Datagrams(&'a DatagramFlow),
    Nothing,
}

impl<P: Path<QpLinks>> Path<QpLinks> for TappedPath<'_, P> {
    fn request_room(&mut self, qp: &Qp) -> Option<u32> {
        self.inner.request_room(qp)
    }

    fn response_room(&mut self, qp: &Qp) -> Option<u32> {
        self.inner.response_room(qp)
    }

    fn address(&mut self, train: &mut Train, to: &UdAddress) {
        self.inner.address(train, to);
        let device = self.frames.device;
        self.frames.headers = Cow::Owned(match self.datagrams {
            Some(flow) => flow.sent(train, device, &to.ah),
            None => sent_path(train, device, &to.ah),
        });
    }

    fn push(
        &mut self,
        train: &Train,
        is_inline: bool,
        mut fill: impl FnMut(Range<u32>, Destination<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        let TappedPath { inner, tap, frames, .. } = self;
        let Some(tap) = tap else { return inner.push(train, is_inline, fill) };
        if train.payload_bytes == 0 {
            frames.record(tap, Direction::Out, train, std::ptr::null(), "", false);
            return inner.push(train, is_inline, fill);
        }
        inner.push(train, is_inline, |range, to| {
            // A ring takes the payload of a train whole.
            debug_assert_eq!(range, 0..train.payload_bytes);
            let bytes = to.start();
            fill(range, to)?;
            frames.record(tap, Direction::Out, train, bytes, "", false);
            Ok(())
        })
    }
}

/// A path that applies the fault rules, if any, to each packet.
pub(crate) struct FaultyPath<'a, P> {
    tapped: TappedPath<'a, P>,
    faults: Option<&'static Faults>,
    /// The peer whose ring gets the delayed packets.
    peer: &'a Arc<Peer>,
    service: Transport,
}

impl<P: Path<QpLinks>> Path<QpLinks> for FaultyPath<'_, P> {
    fn request_room(&mut self, qp: &Qp) -> Option<u32> {
        let room = self.tapped.request_room(qp)?;
        Some(if self.faults.is_some() { qp.mtu.bytes() } else { room })
    }

    fn response_room(&mut self, qp: &Qp) -> Option<u32> {
        let room = self.tapped.response_room(qp)?;
        Some(if self.faults.is_some() { qp.mtu.bytes() } else { room })
    }

    fn address(&mut self, train: &mut Train, to: &UdAddress) {
        self.tapped.address(train, to);
    }

    fn push(
        &mut self,
        train: &Train,
        is_inline: bool,
        mut fill: impl FnMut(Range<u32>, Destination<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        let Some(faults) = self.faults else { return self.tapped.push(train, is_inline, fill) };
        let mut payload = vec![0u8; train.payload_bytes as usize];
        if !payload.is_empty() {
            fill(0..train.payload_bytes, Destination::of(&mut payload)).map_err(Unsent::whole)?;
        }
        let Some(packet) = self.packet(train, is_inline) else { return Ok(()) };
        let TappedPath { inner, tap, frames, .. } = &mut self.tapped;
        let (fate, decided_ns) = faults.packet_leaves(&packet);
        let is_spoilt = fate.corrupt.is_some();
        fate.damage(&mut payload);
        if let Some(tap) = tap {
            let comment = faults.comment(&fate);
            frames.record(tap, Direction::Out, train, payload.as_ptr(), &comment, is_spoilt);
        }
        // A damaged packet is not sent: a receiver would drop it because of its invariant CRC,
        // which rings do not carry.
        if fate.lost || is_spoilt {
            return Ok(());
        }
        let sends_now =
            deferred::defer(&packet.flow, (&fate, decided_ns), || DeferredPacket::Ring {
                peer: self.peer.clone(),
                train: *train,
                service: self.service,
                payload: payload.clone().into_boxed_slice(),
            });
        if !sends_now {
            return Ok(());
        }
        inner.push(train, is_inline, |range, mut to| {
            QpLinks::put(&payload[range.start as usize..range.end as usize], &mut to)
        })
    }
}

impl<P> FaultyPath<'_, P> {
    /// The view of a train of one packet that rules and quirks get.
    fn packet(&self, train: &Train, is_inline: bool) -> Option<PacketInfo> {
        let frames = &self.tapped.frames;
        let headers = expand::headers_of(train, frames.transport)?;
        let overhead = headers.bth.opcode.header_bytes() + ICRC_BYTES;
        let bytes = frames.headers.frame_bytes(train.payload_bytes as usize + overhead);
        Some(PacketInfo {
            flow: self.flow(train),
            local_qp: train.src_qpn,
            medium: Medium::Memory,
            class: Class::of(headers.bth.opcode, headers.aeth.map(|aeth| aeth.syndrome)),
            psn: train.first_psn,
            psns: train.packets,
            transmission: None,
            standing: None,
            bytes: bytes as u32,
            payload: Payload { bytes: train.payload_bytes, is_inline },
        })
    }

    fn flow(&self, train: &Train) -> Flow {
        // Each process in a multicast group gets its own flow.
        let member = match train.dst_qpn == Qpn::MULTICAST {
            true => u32::from(self.peer.slot) << crate::layout::QP_INDEX_BITS,
            false => 0,
        };
        let sender = if self.service == Transport::Ud { train.src_qpn.get() ^ member } else { 0 };
        let path = self.tapped.frames.headers.tuple();
        Flow {
            source: path.source,
            // The same address as on a network, so that the same rules apply.
            destination: destination_of(gid_of(path.destination)),
            destination_qp: train.dst_qpn,
            source_qp: Qpn::new(sender),
            is_response: train.kind.is_response(),
        }
    }
}

impl Hooks {
    /// Wraps the path to a peer into the active hooks. `make_headers` makes the headers of packets
    /// of which nothing is known; those of a datagram are made when it is addressed. With `is_copy`
    /// the same packets are captured on their way to another peer.
    pub(crate) fn around<'a, P>(
        &self,
        inner: &'a mut P,
        peer: &'a Arc<Peer>,
        (qp, links): (&Qp, &QpLinks),
        known: Known<'a>,
        make_headers: impl FnOnce() -> FrameHeaders,
        is_copy: bool,
    ) -> FaultyPath<'a, P> {
        let (mtu, transport) = (qp.mtu, transport_of(qp.qp_type));
        let (headers, templates, datagrams) = match known {
            Known::Connection(paths) => {
                (Cow::Borrowed(&paths.headers[0]), Some(&paths.templates[0]), None)
            }
            Known::Datagrams(flow) => {
                let headers = flow.last_headers().unwrap_or_else(make_headers);
                (Cow::Owned(headers), Some(&flow.templates), Some(flow))
            }
            Known::Nothing => (Cow::Owned(make_headers()), None, None),
        };
        let device = links.pd.context.device;
        let frames = Frames { device, headers, mtu, transport, templates };
        let tap = self.tap.filter(|_| !is_copy);
        let tapped = TappedPath { inner, tap, frames, datagrams };
        FaultyPath { tapped, faults: self.faults, peer, service: links.service }
    }
}
