//! The way to another host as a path: each packet of a train goes into the outbox.

use std::ops::Range;

use parking_lot::MutexGuard;
use rdmalab_driver::{Path, Unsent};
use rdmalab_engine::qp::{CopyError, Qp};
use rdmalab_engine::train::Train;
use rdmalab_link::expand;
use rdmalab_wire::ids::PathMtu;
use rdmalab_wire::opcode::Transport;

use super::outbox::{Exit, Outbox};
use super::{Route, WINDOW_PACKETS, Wire};
use crate::qp::{Place, QpLinks};

/// Packets that are planned at once: as many as ask for one acknowledgement, so that the window
/// moves on while the next are made.
const PACKETS_PER_PLAN: u32 = WINDOW_PACKETS / 4;

/// See the module's text. It holds the outbox.
pub(crate) struct WirePath<'a> {
    exit: Exit<'a>,
    out: MutexGuard<'a, Outbox>,
    pub(crate) route: Route,
    transport: Transport,
    mtu: PathMtu,
}

impl<'a> WirePath<'a> {
    pub(crate) fn new(wire: &'a Wire, route: &Route, transport: Transport, mtu: PathMtu) -> Self {
        WirePath { exit: wire.exit(), out: wire.outbox.lock(), route: *route, transport, mtu }
    }

    /// Sends what was gathered.
    pub(crate) fn flush(mut self) {
        self.out.flush(&self.exit);
    }
}

impl Path<QpLinks> for WirePath<'_> {
    fn request_room(&mut self, qp: &Qp) -> Option<u32> {
        Some(qp.mtu.bytes() * PACKETS_PER_PLAN)
    }

    fn response_room(&mut self, qp: &Qp) -> Option<u32> {
        self.request_room(qp)
    }

    fn push(
        &mut self,
        train: &Train,
        is_inline: bool,
        mut fill: impl FnMut(Range<u32>, Place<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        let WirePath { exit, out, route, transport, mtu } = self;
        for index in 0..expand::packets_of(train) {
            let (packet, at) = train.packet(index, *mtu);
            out.push(exit, route, *transport, &packet, is_inline, |to| match to.len() as u32 {
                0 => Ok(()),
                bytes => fill(at..at + bytes, Place::of(to)),
            })
            .map_err(|error| Unsent { error, packets: index })?;
        }
        Ok(())
    }
}
