//! Sends multicast datagrams into the ring of every process of the host, and to the network.

use std::ops::Range;
use std::sync::Arc;

use rdmalab_driver::{self as driver, Path, Step, Unsent};
use rdmalab_engine::qp::{CopyError, Qp};
use rdmalab_engine::train::{Train, TrainFlags};
use rdmalab_engine::vocab::UdAddress;
use rdmalab_wire::ids::{PathMtu, Qpn};
use rdmalab_wire::opcode::Transport;

use super::{Destination, QpInner, QpLinks};
use crate::hooks::path::Known;
use crate::peer::Peer;
use crate::ring_path::RingPath;
use crate::udp::{HookedNetworkPath, Network};

impl QpInner {
    /// Whether the next datagram goes to a group.
    pub(crate) fn is_multicast_next(&self) -> bool {
        let sq = &self.qp.sq;
        sq.begun != sq.fetched() && sq.ud(sq.begun).remote_qpn == Qpn::MULTICAST
    }

    /// Sends the next datagram to every process of the host, as soon as each ring has room for it.
    /// A process that is stopped misses it, as a member with an empty receive queue does.
    pub(super) fn send_multicast(&mut self) -> Step {
        let Some(peers) = self.links.process.host.multicast_peers() else { return Step::Blocked };
        let Some(mut rings) = self.rings_with_room(&peers) else { return Step::Blocked };
        let (sent, on_network) = match self.links.hooks {
            None => self.send_to_group(&mut rings),
            Some(hooks) => {
                let mut around = Vec::with_capacity(rings.len());
                for (index, ring) in rings.iter_mut().enumerate() {
                    let (peer, ends) = (ring.peer, (&self.qp, &self.links));
                    let (known, headers) = (Known::Nothing, || self.headers());
                    around.push(hooks.around(ring, peer, ends, known, headers, index > 0));
                }
                self.send_to_group(&mut around)
            }
        };
        rings.into_iter().for_each(RingPath::ring_bell);
        // The system call comes after the rings were unlocked.
        if let Some(path) = on_network {
            path.flush();
        }
        sent
    }

    /// Puts the datagram into the rings. On the path to the network it still waits for the flush.
    fn send_to_group<P: Path<QpLinks>>(
        &mut self,
        rings: &mut [P],
    ) -> (Step, Option<HookedNetworkPath<'static>>) {
        let (process, mtu) = (self.links.process, self.qp.mtu);
        let mut group = Group { rings, network: process.network(), mtu, on_network: None };
        let sent = driver::send_request(&mut self.qp, &mut group, &mut self.links);
        (sent, group.on_network)
    }

    /// Locks the rings that have room, so that they still have room when the datagram is pushed.
    /// `None` while a ring is full whose process may still empty it. Threads that lock several
    /// rings do so in the order of their slots.
    fn rings_with_room<'a>(&self, peers: &'a [Arc<Peer>]) -> Option<Vec<RingPath<'a>>> {
        let mut rings = Vec::with_capacity(peers.len());
        let mut has_to_wait = false;
        for peer in peers {
            let mut ring = RingPath::new(peer, &self.links);
            if ring.request_room(&self.qp).is_some() {
                rings.push(ring);
            } else {
                // Check all rings, so that waits for stopped processes run at the same time.
                let consumed = ring.out.consumed();
                has_to_wait |= !peer.ring_stall.is_stuck(consumed, crate::clock::now_ns());
            }
        }
        (!has_to_wait).then_some(rings)
    }
}

/// The paths to all members of a group.
struct Group<'a, P> {
    /// The rings of this host; all have room.
    rings: &'a mut [P],
    network: Option<&'static Network>,
    mtu: PathMtu,
    /// The path to the members on other hosts.
    on_network: Option<HookedNetworkPath<'static>>,
}

impl<P: Path<QpLinks>> Path<QpLinks> for Group<'_, P> {
    fn request_room(&mut self, qp: &Qp) -> Option<u32> {
        Some(qp.mtu.bytes())
    }

    fn address(&mut self, train: &mut Train, to: &UdAddress) {
        let [upper, lower] = halves(to.ah.dgid.0);
        (train.remote_addr, train.swap_add) = (upper, lower);
        for ring in self.rings.iter_mut() {
            ring.address(train, to);
        }
        train.flags.0 |= TrainFlags::GRH;
        self.on_network = self.network.and_then(|network| {
            let route = network.route(&to.ah)?;
            network.path(&route, Transport::Ud, self.mtu)
        });
    }

    fn push(
        &mut self,
        train: &Train,
        is_inline: bool,
        mut fill: impl FnMut(Range<u32>, Destination<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent> {
        let mut result = Ok(());
        for ring in self.rings.iter_mut() {
            result = result.and(ring.push(train, is_inline, &mut fill));
        }
        if let Some(path) = &mut self.on_network {
            // A payload that cannot be read was reported by the copies for this host.
            let _ = path.push(train, is_inline, &mut fill);
        }
        result
    }
}

fn halves(gid: [u8; 16]) -> [u64; 2] {
    [0, 8].map(|at| u64::from_be_bytes(std::array::from_fn(|i| gid[at + i])))
}
