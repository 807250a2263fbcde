//! Paths that make packets of trains, and the wrapper that lets a hook see each packet.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

use parking_lot::Mutex;
use rdmalab_driver::{Memory, Path, Unsent};
use rdmalab_engine::qp::{CopyError, Qp};
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::UdAddress;
use rdmalab_link::address::IpFields;
use rdmalab_link::hook::{Direction, PacketContext, PacketHook, Verdict};
use rdmalab_link::packet::Payload;
use rdmalab_link::transmissions::Transmissions;
use rdmalab_wire::ids::Qpn;

use super::socket::Route;

/// At most this many flows have their transmissions counted.
const FLOWS_MAX: usize = 1024;

/// A packet that is complete, but not sent yet.
pub(crate) struct BuiltPacket<'a> {
    pub(super) route: &'a Route,
    /// The packet as a train.
    pub(super) train: &'a Train,
    /// Of its IP header.
    pub(super) identification: u16,
    /// BTH to ICRC.
    pub(super) bytes: &'a mut [u8],
}

/// A path that makes packets of trains.
pub(crate) trait PacketPath<M: Memory>: Path<M> {
    /// [`Path::push`], where `inspect` sees each packet before it is sent, and decides whether it
    /// is.
    fn push_inspected(
        &mut self,
        train: &Train,
        fill: impl FnMut(Range<u32>, M::Destination<'_>) -> Result<(), CopyError>,
        inspect: impl FnMut(BuiltPacket<'_>) -> Verdict,
    ) -> Result<(), Unsent>;
}

/// The hook of the network: a tap, or fault injection.
pub(super) struct ArmedHook {
    hook: Box<dyn PacketHook>,
    /// How often packets of a flow were sent. The key is the destination, its queue pair, and
    /// whether the packets are responses.
    flows: Mutex<BTreeMap<(IpAddr, Qpn, bool), Transmissions>>,
}

impl ArmedHook {
    pub(super) fn new(hook: Box<dyn PacketHook>) -> ArmedHook {
        ArmedHook { hook, flows: Mutex::default() }
    }

    /// Shows the hook a packet that is to be sent; `is_inline`: its payload was in the work
    /// request.
    fn outgoing(&self, packet: BuiltPacket<'_>, is_inline: bool) -> Verdict {
        let BuiltPacket { route, train, identification, bytes } = packet;
        let Route { tuple, traffic_class, hop_limit, flow_label, .. } = *route;
        let context = PacketContext {
            direction: Direction::Out,
            tuple,
            ip: IpFields { traffic_class, hop_limit, flow_label, identification },
            local_qp: train.src_qpn,
            destination_qp: train.dst_qpn,
            psn: train.first_psn,
            psns: train.packets,
            transmission: self.transmission(tuple.destination, train),
            payload: Payload { bytes: train.payload_bytes, is_inline },
        };
        self.hook.outgoing(&context, bytes)
    }

    /// How often this packet was sent before.
    fn transmission(&self, destination: IpAddr, train: &Train) -> u32 {
        let flow = (destination, train.dst_qpn, train.kind.is_response());
        let mut flows = self.flows.lock();
        if flows.len() >= FLOWS_MAX && !flows.contains_key(&flow) {
            flows.pop_first();
        }
        flows.entry(flow).or_default().next(train.first_psn)
    }

    /// Shows the hook a packet that arrived.
    pub(super) fn incoming(&self, context: &PacketContext, packet: &[u8]) {
        self.hook.incoming(context, packet);
    }
}

/// A path whose packets pass a hook, if there is one.
pub(crate) struct HookedPath<'a, P> {
    pub(crate) inner: P,
    hook: Option<&'a ArmedHook>,
}

impl<'a, P> HookedPath<'a, P> {
    pub(super) fn new(inner: P, hook: Option<&'a ArmedHook>) -> HookedPath<'a, P> {
        HookedPath { inner, hook }
    }
}

impl<M: Memory, P: PacketPath<M>> Path<M> for HookedPath<'_, P> {
    fn request_room(&mut self, qp: &Qp) -> Option<u32> {
        self.inner.request_room(qp)
    }

    fn response_room(&mut self, qp: &Qp) -> Option<u32> {
        self.inner.response_room(qp)
    }

    fn address(&mut self, train: &mut Train, to: &UdAddress) {
        self.inner.address(train, to);
    }

    #[inline]
    fn push(
        &mut self,
        train: &Train,
        is_inline: bool,
        fill: impl FnMut(Range<u32>, M::Destination<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        match self.hook {
            None => self.inner.push(train, is_inline, fill),
            Some(hook) => {
                let inspect = |packet: BuiltPacket<'_>| hook.outgoing(packet, is_inline);
                self.inner.push_inspected(train, fill, inspect)
            }
        }
    }
}
