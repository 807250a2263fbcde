//! Captures the messages between the connection managers of one host. They go through host sockets;
//! the capture shows them as datagrams on a network.

use std::borrow::Cow;

use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_link::address::address_of;
use rdmalab_link::hook::Direction;
use rdmalab_ring::biased;
use rdmalab_wire::ids::{Gid, PathMtu, Psn};
use rdmalab_wire::opcode::Transport;

use super::frames::{Frames, UNCHOSEN, first_gid, gid_like, shared_headers};
use super::tap::Tap;
use crate::device;
use crate::udp::management::{MAD_BYTES, QP1, QP1_QKEY};

/// Records a datagram from one GID of this host to another. An all-zero GID stands for the first
/// GID of the port.
pub(crate) fn show(tap: &Tap, direction: Direction, from: Gid, to: Gid, mad: &[u8; MAD_BYTES]) {
    let (from, to) = ends(from, to);
    let own = if direction == Direction::Out { from } else { to };
    let device = device::with_gid(own).unwrap_or(0);
    // These messages have no PSN.
    let mut train = Train::new(TrainKind::Send, QP1, QP1, Psn::new(0));
    train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST);
    train.payload_bytes = MAD_BYTES as u32;
    train.qkey = QP1_QKEY;
    let headers = Cow::Owned(shared_headers((from, to), QP1, UNCHOSEN));
    let (mtu, transport) = (PathMtu::Mtu256, Transport::Ud);
    let frames = Frames { device, headers, mtu, transport, templates: None };
    // The biased lock of the queue shall stay with a thread that captures many packets.
    biased::as_guest(|| frames.record(tap, direction, &train, mad.as_ptr(), "", false));
    tap.write_if_late();
}

/// Returns two GIDs of the same address family: a frame cannot go from IPv4 to IPv6.
fn ends(from: Gid, to: Gid) -> (Gid, Gid) {
    let named = |gid: Gid| if gid == Gid::default() { first_gid(0) } else { gid };
    let (from, to) = (named(from), named(to));
    match address_of(from).is_ipv4() == address_of(to).is_ipv4() {
        true => (from, to),
        false => (gid_like(0, to), to),
    }
}
