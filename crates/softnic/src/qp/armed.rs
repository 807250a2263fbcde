//! What passes a queue pair's paths while something is armed: out through wrapped paths, and in.

use std::borrow::Cow;

use rdmalab_driver::Step;
use rdmalab_engine::train::Train;
use rdmalab_link::outer::Outer;
use rdmalab_link::seam::Direction;
use rdmalab_wire::ids::Gid;

use super::{QpInner, transport_of};
use crate::armed::Armed;
use crate::armed::frames::{Frames, ends, received_path, shared_path};
use crate::armed::path::Judged;
use crate::ring_path::RingPath;

impl QpInner {
    /// Sends over a peer's ring with what is armed around it.
    #[inline(never)]
    pub(super) fn through(
        &mut self,
        armed: &Armed,
        ring: &mut RingPath<'_>,
        send: impl FnOnce(&mut QpInner, &mut Judged<'_, RingPath<'_>>) -> Step,
    ) -> Step {
        let peer = ring.peer;
        // Taken out for the time being, so that it can be used beside the rest.
        let known = self.links.shared_paths.take();
        let outer = match &known {
            Some(known) => Cow::Borrowed(&known[0]),
            None => Cow::Owned(self.outer()),
        };
        let mut path = armed.around(ring, peer, &self.qp, &self.links, outer, false);
        let sent = send(self, &mut path);
        self.links.shared_paths = known;
        sent
    }

    /// The headers of what it sends, as long as nobody knows them better.
    pub(super) fn outer(&self) -> Outer {
        match self.links.datagram {
            true => shared_path(Gid::default(), Gid::default(), self.qp.qpn),
            false => self.make_shared_paths()[0],
        }
    }

    /// Of a connection on this host: the headers of what it sends, and of what it receives.
    #[cold]
    fn make_shared_paths(&self) -> Box<[Outer; 2]> {
        let (ours, theirs) = ends(self.links.pd.context.device, &self.qp.attr.ah_attr);
        let (qpn, remote_qpn) = (self.qp.qpn, self.qp.remote_qpn);
        Box::new([shared_path(ours, theirs, qpn), shared_path(theirs, ours, remote_qpn)])
    }

    /// After the address or the peer of a connection was set: remembers its headers.
    pub(crate) fn remember_shared_paths(&mut self) {
        let is_needed = self.links.armed.is_some() && !self.links.datagram;
        self.links.shared_paths = is_needed.then(|| self.make_shared_paths());
    }

    /// Captures a train that came through the ring; its payload lies at `bytes`.
    #[inline(never)]
    pub(crate) fn tap_in(&self, train: &Train, bytes: *const u8) {
        let Some(tap) = self.links.armed.and_then(|armed| armed.tap) else { return };
        let device = self.links.pd.context.device;
        let outer = match &self.links.shared_paths {
            _ if self.links.datagram => Cow::Owned(received_path(train, device)),
            Some(known) => Cow::Borrowed(&known[1]),
            None => Cow::Owned(self.make_shared_paths()[1]),
        };
        let (mtu, transport) = (self.qp.mtu, transport_of(self.qp.qp_type));
        let frames = Frames { device, outer, mtu, transport };
        frames.record(tap, Direction::In, train, bytes, "", false);
    }
}
