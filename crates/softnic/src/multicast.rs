//! Multicast groups of datagram QPs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::qp::{CopyError, Plan};
use rdmalab_engine::train::{Train, TrainFlags};
use rdmalab_link::path::{groups_at, is_group};
use rdmalab_ring::biased::BiasedGuard;
use rdmalab_ring::mailbox::{self, LiveSlot, SendError};
use rdmalab_ring::spsc::{Consumer, Producer};
use rdmalab_wire::ids::{Gid, Qpn};

use crate::cancel::NoCancel;
use crate::codec::{self, Body, SlotPayload};
use crate::datagram::PeerLookup;
use crate::handshake::{CONNECT_WAIT_MS, HELLO_RETRY_NS};
use crate::peer::Peer;
use crate::poll::wait_readable;
use crate::process::Process;
use crate::qp::QpInner;
use crate::ring_push::{ANSWER_SLOTS, room_in};
use crate::transmit::{self, Next};

/// QPs of one process in one group (`max_mcast_qp_attach`).
const MAX_MEMBERS: usize = 256;
/// Groups of one process (`max_mcast_grp`).
const MAX_GROUPS: usize = 4096;

/// How often the list of processes is looked through for some that are not known, ns.
const RESCAN_NS: u64 = 500_000_000;

/// The groups that QPs of this process joined, and the processes that hear what is sent to any.
///
/// Whoever joins introduces itself to every process of the host before that returns, and whoever
/// sends first meets every process that is there. So a sender that has met them once knows every
/// member, also those that join later, and never waits again.
#[derive(Default)]
pub(crate) struct Groups {
    members: Mutex<BTreeMap<Gid, Vec<Qpn>>>,
    handshake_round: Mutex<HandshakeRound>,
    /// Sockets of processes that did not answer an introduction. They find it when they go on.
    unresponsive: Mutex<BTreeSet<u64>>,
}

/// The processes of the host that are to be met.
#[derive(Default)]
struct HandshakeRound {
    /// When they were last looked up, ns; 0: never.
    at_ns: u64,
    /// Slots of those that are still being met.
    pending: Vec<u16>,
    /// All that there were at one time have been met, or do not answer.
    is_complete: bool,
}

impl Groups {
    /// The members of a group.
    pub(crate) fn members(&self, gid: &Gid) -> Vec<Qpn> {
        self.members.lock().get(gid).cloned().unwrap_or_default()
    }

    /// The members of all groups whose packets come to an address, each once, and its group.
    pub(crate) fn members_at(&self, address: IpAddr) -> Vec<(Qpn, Gid)> {
        let groups = self.members.lock();
        let mut members: Vec<(Qpn, Gid)> = Vec::new();
        for gid in groups_at(address) {
            for qpn in groups.get(&gid).into_iter().flatten() {
                if members.iter().all(|(known, _)| known != qpn) {
                    members.push((*qpn, gid));
                }
            }
        }
        members
    }
}

impl Process {
    /// Adds a QP to a group; adding it twice does nothing.
    pub(crate) fn join_group(&self, gid: Gid, qpn: Qpn) -> VerbsResult<()> {
        if !is_group(gid) {
            return Err(VerbsError::invalid(format!(
                "{gid:?} is no multicast GID: those begin with ff, or are ::ffff:224.0.0.0/100"
            )));
        }
        let mut groups = self.groups.members.lock();
        if groups.len() >= MAX_GROUPS && !groups.contains_key(&gid) {
            return Err(VerbsError::no_room(format!("soft devices allow {MAX_GROUPS} groups")));
        }
        let members = groups.entry(gid).or_default();
        if members.contains(&qpn) {
            return Ok(());
        }
        if members.len() >= MAX_MEMBERS {
            return Err(VerbsError::no_room(format!(
                "soft devices allow {MAX_MEMBERS} QPs of a process in a group"
            )));
        }
        if let Some(network) = self.network() {
            network.join(gid)?;
        }
        members.push(qpn);
        Ok(())
    }

    /// Removes a QP from a group.
    pub(crate) fn leave_group(&self, gid: Gid, qpn: Qpn) -> VerbsResult<()> {
        let mut groups = self.groups.members.lock();
        let members = groups.get_mut(&gid).filter(|members| members.contains(&qpn));
        let Some(members) = members else {
            return Err(VerbsError::invalid("the QP is not in this group"));
        };
        members.retain(|member| *member != qpn);
        if members.is_empty() {
            groups.remove(&gid);
            self.leave_on_network(&gid);
        }
        Ok(())
    }

    /// Removes a QP from every group.
    pub(crate) fn leave_all_groups(&self, qpn: Qpn) {
        let mut groups = self.groups.members.lock();
        for members in groups.values_mut() {
            members.retain(|member| *member != qpn);
        }
        groups.retain(|gid, members| {
            if members.is_empty() {
                self.leave_on_network(gid);
            }
            !members.is_empty()
        });
    }

    fn leave_on_network(&self, gid: &Gid) {
        if let Some(network) = self.network() {
            network.leave(gid);
        }
    }
}

impl Process {
    /// The live processes that we can meet, this one included.
    fn live_slots(&self) -> Vec<LiveSlot> {
        // SAFETY: takes and touches nothing.
        let user = unsafe { libc::getuid() };
        let mut slots = mailbox::list_live_slots().unwrap_or_default();
        slots.retain(|live| live.uid == user && live.version == crate::layout::VERSION);
        slots
    }

    /// Goes on meeting the processes of this host. Returns whether none is being met any more.
    pub(crate) fn advance_handshakes(&self) -> bool {
        let now_ns = crate::clock::now_ns();
        let mut handshake_round = self.groups.handshake_round.lock();
        if handshake_round.at_ns == 0 || now_ns > handshake_round.at_ns + RESCAN_NS {
            handshake_round.at_ns = now_ns;
            handshake_round.pending = self.live_slots().iter().map(|live| live.slot).collect();
        }
        handshake_round
            .pending
            .retain(|slot| matches!(self.peer_for_datagram(*slot), PeerLookup::Pending));
        handshake_round.is_complete |= handshake_round.pending.is_empty();
        handshake_round.pending.is_empty()
    }

    /// Every process of this host that can be met, this one included; `None` while the first roll
    /// is called.
    pub(crate) fn multicast_peers(&self) -> Option<Vec<Arc<Peer>>> {
        let is_complete =
            self.advance_handshakes() || self.groups.handshake_round.lock().is_complete;
        is_complete.then(|| {
            // It is marked as talking to itself, so that it reads its own ring.
            drop(self.peer(self.slot));
            self.known_peers()
        })
    }

    /// Makes sure that every process of the host knows us: what it sends from now on finds us. One
    /// that does not answer in time (it must be stopped) is not waited for again.
    pub(crate) fn exchange_hellos(&self) {
        let unresponsive = self.exchange_hellos_within(CONNECT_WAIT_MS);
        self.groups.unresponsive.lock().extend(unresponsive.iter().map(|live| live.inode));
    }

    /// The same within `wait_ms`; returns who did not answer so far.
    pub(crate) fn exchange_hellos_within(&self, wait_ms: u64) -> Vec<LiveSlot> {
        let _no_cancel = NoCancel::new();
        let live = self.live_slots();
        let has_read_our_hello =
            |slot| self.peer(slot).is_some_and(|peer| peer.has_read_our_hello());
        let mut unmet: Vec<LiveSlot> = {
            let mut unresponsive = self.groups.unresponsive.lock();
            unresponsive.retain(|inode| live.iter().any(|live| live.inode == *inode));
            let is_unmet = |live: &&LiveSlot| {
                !has_read_our_hello(live.slot) && !unresponsive.contains(&live.inode)
            };
            live.iter().filter(is_unmet).copied().collect()
        };
        let mut now_ns = crate::clock::now_ns();
        let give_up_ns = now_ns + wait_ms * 1_000_000;
        let mut again_at_ns = 0;
        while !unmet.is_empty() && now_ns < give_up_ns {
            if now_ns >= again_at_ns {
                again_at_ns = now_ns + HELLO_RETRY_NS;
                unmet.retain(|live| {
                    matches!(self.request_hello(live.slot), Ok(()) | Err(SendError::Full))
                });
            }
            wait_readable(&[self.mailbox_fd()], 1);
            self.read_mailbox();
            unmet.retain(|live| !has_read_our_hello(live.slot));
            now_ns = crate::clock::now_ns();
        }
        unmet
    }

    /// Gives a datagram to every member of its group in this process.
    pub(crate) fn deliver_multicast(&self, consumer: &Consumer, head: u32, body: &Body) {
        let Some((train, payload)) = codec::decode(head, body, true) else { return };
        let bytes = match payload {
            SlotPayload::Short => std::ptr::null(),
            SlotPayload::Data(position) => {
                match consumer.data(position, train.payload_bytes as usize) {
                    Some(bytes) => bytes,
                    None => return,
                }
            }
        };
        let mut seen = false;
        for qpn in self.groups.members(&gid_of(&train)) {
            let Some(object) = self.qps.at(crate::layout::index_of(qpn)) else { continue };
            if let Some(inner) = object.inner.lock().as_mut()
                && inner.qp.qpn == qpn
            {
                if !seen && inner.links.armed.is_some() {
                    inner.tap_in(&train, bytes);
                    seen = true;
                }
                let copy = Train { dst_qpn: qpn, ..train };
                inner.handle_train(&copy, bytes);
            }
        }
    }
}

/// The group that a datagram is for.
pub(crate) fn gid_of(train: &Train) -> Gid {
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&train.remote_addr.to_be_bytes());
    gid[8..].copy_from_slice(&train.swap_add.to_be_bytes());
    Gid(gid)
}

/// The group that a datagram was sent to, if it was sent to one.
pub(crate) fn group_of(train: &Train) -> Option<Gid> {
    Some(gid_of(train)).filter(|gid| is_group(*gid))
}

impl QpInner {
    /// Whether the next datagram goes to a group.
    pub(crate) fn is_multicast_next(&self) -> bool {
        let sq = &self.qp.sq;
        sq.begun != sq.fetched() && sq.ud(sq.begun).remote_qpn == Qpn::MULTICAST
    }

    /// Sends the next datagram to every process of the host, once each has room for it, as one peer
    /// of a datagram has to. One that is stopped misses it, as a member whose receive queue is
    /// empty does.
    pub(crate) fn send_multicast(&mut self) -> Next {
        let Some(multicast_peers) = self.links.process.multicast_peers() else {
            return Next::RingFull;
        };
        let Some(rings) = rings_with_room(&multicast_peers, self.qp.mtu.bytes()) else {
            return Next::RingFull;
        };
        let Plan::Send { mut train, position, .. } = self.qp.plan(self.qp.mtu.bytes()) else {
            return Next::Done;
        };
        let gid = self.qp.sq.ud(position).ah.dgid.0;
        self.finish_train(&mut train, position);
        train.flags.0 |= TrainFlags::GRH;
        train.remote_addr = u64::from_be_bytes(std::array::from_fn(|i| gid[i]));
        train.swap_add = u64::from_be_bytes(std::array::from_fn(|i| gid[8 + i]));
        let mut result: Result<(), CopyError> = Ok(());
        for (index, (peer, mut out)) in rings.into_iter().enumerate() {
            let pushed = transmit::push_datagram(self, peer, &mut out, &train, position, index > 0);
            drop(out);
            peer.ring_bell();
            result = result.and(pushed);
        }
        if let Some(network) = self.links.process.network() {
            self.send_group_network(network, &train, position);
        }
        self.qp.retire_sent(position, true, result, &mut self.links);
        Next::Again
    }
}

/// A peer, and its ring.
type Ring<'a> = (&'a Arc<Peer>, BiasedGuard<'a, Producer>);

/// The rings of those that get a datagram now, held so that nobody fills them before it is in: all
/// that have room. `None` while one that may still empty its ring has none. Who holds several takes
/// them in the order of their slots.
fn rings_with_room(multicast_peers: &[Arc<Peer>], mtu: u32) -> Option<Vec<Ring<'_>>> {
    let mut rings = Vec::with_capacity(multicast_peers.len());
    let mut has_to_wait = false;
    for peer in multicast_peers {
        let mut out = peer.out.lock();
        if room_in(&mut out, mtu, 1 + ANSWER_SLOTS).is_some() {
            rings.push((peer, out));
        } else {
            // All are asked, so that those that are stopped are waited for at the same time.
            has_to_wait |= !peer.ring_stall.is_stuck(out.consumed(), crate::clock::now_ns());
        }
    }
    (!has_to_wait).then_some(rings)
}
