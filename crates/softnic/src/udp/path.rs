//! The network as a path: each packet of a train is added to the send batch.

use std::ops::Range;

use parking_lot::MutexGuard;
use rdmalab_driver::{Path, Unsent};
use rdmalab_engine::qp::{CopyError, Qp};
use rdmalab_engine::train::Train;
use rdmalab_link::expand;
use rdmalab_wire::ids::PathMtu;
use rdmalab_wire::opcode::Transport;

use super::congestion::FIRST_WINDOW_PACKETS;
use super::handover::EXIT_WAIT;
use super::send_batch::{Egress, SendBatch};
use super::{Network, Route};
use crate::qp::{Place, QpLinks};

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

impl<'a> NetworkPath<'a> {
    /// `None` in an exiting process whose batch stays locked: it may exit inside a verb.
    pub(crate) fn new(
        network: &'a Network,
        route: &Route,
        transport: Transport,
        mtu: PathMtu,
    ) -> Option<Self> {
        let (egress, out) = (network.egress(), network.send_batch_within(EXIT_WAIT)?);
        Some(NetworkPath { egress, out, route: *route, transport, mtu })
    }

    /// Sends the packets of the batch.
    pub(crate) fn flush(mut self) {
        self.out.flush(&self.egress);
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
        is_inline: bool,
        mut fill: impl FnMut(Range<u32>, Place<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        let NetworkPath { egress, out, route, transport, mtu } = self;
        for index in 0..expand::packets_of(train) {
            let (packet, at) = train.packet(index, *mtu);
            out.push(egress, route, *transport, &packet, is_inline, |to| match to.len() as u32 {
                0 => Ok(()),
                bytes => fill(at..at + bytes, Place::of(to)),
            })
            .map_err(|error| Unsent { error, packets: index })?;
        }
        Ok(())
    }
}
