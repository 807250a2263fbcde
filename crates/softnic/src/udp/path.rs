//! The network as a path: each packet of a train is added to the send batch.

use std::ops::Range;

use parking_lot::MutexGuard;
use rdmalab_driver::{Path, Unsent};
use rdmalab_engine::qp::{CopyError, Qp};
use rdmalab_engine::train::Train;
use rdmalab_link::expand;
use rdmalab_link::hook::Verdict;
use rdmalab_wire::ids::PathMtu;
use rdmalab_wire::opcode::Transport;

use super::congestion::FIRST_WINDOW_PACKETS;
use super::handover::EXIT_WAIT;
use super::packet_path::{BuiltPacket, HookedPath, PacketPath};
use super::send_batch::{Egress, SendBatch};
use super::{Network, Route};
use crate::qp::{Destination, QpLinks};

/// Packets that are planned at once, at most.
const PACKETS_PER_PLAN: u32 = FIRST_WINDOW_PACKETS / 4;

/// See the module's text. Holds the lock of the send batch.
pub(crate) struct NetworkPath<'a> {
    egress: Egress<'a>,
    out: MutexGuard<'a, SendBatch>,
    pub(crate) route: Route,
    transport: Transport,
    mtu: PathMtu,
}

/// The path to another host, through the network's hook.
pub(crate) type HookedNetworkPath<'a> = HookedPath<'a, NetworkPath<'a>>;

impl Network {
    /// The path of a route. `None` in an exiting process whose batch stays locked: it may exit
    /// inside a verb.
    pub(crate) fn path(
        &self,
        route: &Route,
        transport: Transport,
        mtu: PathMtu,
    ) -> Option<HookedNetworkPath<'_>> {
        let (egress, out) = (self.egress(), self.send_batch_within(EXIT_WAIT)?);
        let path = NetworkPath { egress, out, route: *route, transport, mtu };
        Some(HookedPath::new(path, self.hook.get()))
    }
}

impl HookedNetworkPath<'_> {
    /// Sends the packets of the batch.
    pub(crate) fn flush(self) {
        let NetworkPath { mut out, egress, .. } = self.inner;
        out.flush(&egress);
    }
}

impl Path<QpLinks> for NetworkPath<'_> {
    fn request_room(&mut self, qp: &Qp) -> Option<u32> {
        // As many packets as request one ACK, so that the window moves on while the next packets
        // are built.
        Some(qp.mtu.bytes() * (qp.window_packets / 4).min(PACKETS_PER_PLAN))
    }

    fn push(
        &mut self,
        train: &Train,
        _is_inline: bool,
        fill: impl FnMut(Range<u32>, Destination<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        self.push_inspected(train, fill, |_| Verdict::Pass)
    }
}

impl PacketPath<QpLinks> for NetworkPath<'_> {
    #[inline]
    fn push_inspected(
        &mut self,
        train: &Train,
        mut fill: impl FnMut(Range<u32>, Destination<'_>) -> Result<(), CopyError>,
        mut inspect: impl FnMut(BuiltPacket<'_>) -> Verdict,
    ) -> Result<(), Unsent> {
        let NetworkPath { egress, out, route, transport, mtu } = self;
        for index in 0..expand::packets_of(train) {
            let (packet, at) = train.packet(index, *mtu);
            let fill = |to: &mut [u8]| match to.len() as u32 {
                0 => Ok(()),
                bytes => fill(at..at + bytes, Destination::of(to)),
            };
            out.push(egress, route, *transport, &packet, fill, &mut inspect)
                .map_err(|error| Unsent { error, packets: index })?;
        }
        Ok(())
    }
}
