//! Forwards packets that the owner of the socket read for other processes of the host.

use std::net::{IpAddr, Ipv6Addr};

use rdmalab_engine::train::{Train, TrainKind};
use rdmalab_link::address::{FourTuple, IpFields};
use rdmalab_link::drops::Drop;
use rdmalab_wire::ids::{PathMtu, Psn, Qpn};
use rdmalab_wire::opcode::Transport;

use super::receiver::Arrival;
use crate::peer::Peer;
use crate::process::Process;
use crate::ring_push;

/// Bytes before a forwarded packet: its addresses and ports, traffic class and hop limit.
const PREFIX_BYTES: usize = 44;

/// Forwards a packet to the process in `slot`.
pub(super) fn forward(process: &Process, arrival: &Arrival<'_>, slot: u16) -> Result<(), Drop> {
    if arrival.forwarded || slot == 0 {
        return Err(Drop::NoSuchQp);
    }
    if let Some(network) = process.network() {
        network.connected.close_if_open();
    }
    let peer = process.host.peer(slot).ok_or(Drop::Forward)?;
    if push(&peer, arrival) { Ok(()) } else { Err(Drop::Forward) }
}

/// Forwards a packet to every other known process.
pub(super) fn forward_to_all(process: &Process, arrival: &Arrival<'_>) {
    if let Some(network) = process.network() {
        network.connected.close_if_open();
    }
    for peer in process.host.peers.known() {
        if !peer.is_self {
            push(&peer, arrival);
        }
    }
}

/// Puts a packet into a peer's ring, behind its prefix. Returns whether the ring had room.
pub(super) fn push(peer: &Peer, arrival: &Arrival<'_>) -> bool {
    let mut train = Train::new(TrainKind::Send, Qpn::new(0), Qpn::new(0), Psn::new(0));
    train.payload_bytes = (PREFIX_BYTES + arrival.bytes.len()) as u32;
    let mut out = peer.out.lock();
    if ring_push::room_in(&mut out, PathMtu::Mtu4096.bytes(), 1 + ring_push::ANSWER_SLOTS).is_none()
    {
        return false;
    }
    let prefix = prefix_of(arrival);
    let pushed = ring_push::push(&mut out, &train, Transport::Rc, |to| {
        // SAFETY: the ring made room for exactly these two pieces.
        unsafe {
            to.copy_from_nonoverlapping(prefix.as_ptr(), PREFIX_BYTES);
            let after = to.add(PREFIX_BYTES);
            after.copy_from_nonoverlapping(arrival.bytes.as_ptr(), arrival.bytes.len());
        }
        Ok(())
    });
    drop(out);
    peer.ring_bell();
    pushed.is_some()
}

fn prefix_of(arrival: &Arrival<'_>) -> [u8; PREFIX_BYTES] {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let Arrival { tuple, ip, .. } = arrival;
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..16].copy_from_slice(&octets(tuple.source));
    prefix[16..32].copy_from_slice(&octets(tuple.destination));
    prefix[32..34].copy_from_slice(&tuple.source_port.to_le_bytes());
    prefix[34..36].copy_from_slice(&tuple.destination_port.to_le_bytes());
    (prefix[36], prefix[37]) = (ip.traffic_class, ip.hop_limit);
    prefix[40..44].copy_from_slice(&ip.flow_label.to_le_bytes());
    prefix
}

/// Parses what [`push`] wrote; `None` if it is malformed.
pub(super) fn read_forwarded(bytes: &[u8]) -> Option<Arrival<'_>> {
    let (prefix, bytes) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
    let address = |at: usize| {
        let octets: [u8; 16] = std::array::from_fn(|i| prefix[at + i]);
        Ipv6Addr::from(octets).to_canonical()
    };
    let word = |at: usize| u16::from_le_bytes([prefix[at], prefix[at + 1]]);
    let tuple = FourTuple {
        source: address(0),
        destination: address(16),
        source_port: word(32),
        destination_port: word(34),
    };
    let flow_label = u32::from_le_bytes(std::array::from_fn(|i| prefix[40 + i]));
    let (traffic_class, hop_limit) = (prefix[36], prefix[37]);
    let ip = IpFields { traffic_class, hop_limit, flow_label, identification: 0 };
    tuple.is_sound().then_some(Arrival { tuple, ip, bytes, forwarded: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_arrives() {
        let tuple = FourTuple {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            source_port: 0xc001,
            destination_port: 4791,
        };
        let ip =
            IpFields { traffic_class: 3, hop_limit: 64, flow_label: 0xa_bcde, identification: 0 };
        let arrival = Arrival { tuple, ip, bytes: b"packet", forwarded: false };
        let mut bytes = prefix_of(&arrival).to_vec();
        bytes.extend_from_slice(arrival.bytes);
        let read = read_forwarded(&bytes).unwrap();
        assert_eq!((read.tuple, read.ip, read.bytes), (tuple, ip, &b"packet"[..]));
        assert!(read.forwarded);
        assert!(read_forwarded(&bytes[..PREFIX_BYTES - 1]).is_none());
        bytes[0] = 1;
        assert!(read_forwarded(&bytes).is_none(), "two families");
    }
}
