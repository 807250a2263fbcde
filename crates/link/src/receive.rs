//! Turns the bytes of a datagram into a train. The checks are those of IBA vol. 1, 9.6, in the
//! order of Linux's `rdma_rxe`: form and version, queue pair, its state and service, the
//! connection's addresses, partition, queue key, and last the invariant CRC.

use std::net::IpAddr;

use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_wire::error::ParseError;
use rdmalab_wire::icrc::IdSolver;
use rdmalab_wire::ids::{PKey, PathMtu, Qpn};
use rdmalab_wire::opcode::{Operation, Position, Suffix, Transport};
use rdmalab_wire::packet::{Headers, Packet};

use crate::address::FourTuple;
use crate::drops::Drop;

/// The values that the packets for a queue pair are checked against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its transport service.
    pub transport: Transport,
    /// Whether its state allows it to receive.
    pub can_receive: bool,
    /// For a connected queue pair: the addresses of its peer and of itself.
    pub between: Option<(IpAddr, IpAddr)>,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// The queue key of a datagram queue pair.
    pub qkey: u32,
    /// Path MTU of the connection; for datagrams the port's MTU.
    pub mtu: PathMtu,
}

/// Reads a datagram.
///
/// # Errors
/// The reason to drop the datagram.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, Drop> {
    let packet = Packet::parse(bytes).map_err(|error| match error {
        ParseError::TransportVersion(_) => Drop::TransportVersion,
        ParseError::ReservedOpcode(_) => Drop::Opcode,
        _ => Drop::Malformed,
    })?;
    // QP 0 belongs to the subnet manager, and no process can own it.
    if packet.headers.bth.dest_qp.get() == 0 {
        return Err(Drop::NoSuchQp);
    }
    Ok(packet)
}

/// Checks a packet against the queue pair that it names. [`Verifier::verify`] checks the CRC.
///
/// # Errors
/// The reason to drop the packet.
#[inline]
pub fn check(packet: &Packet<'_>, expected: &Expected, tuple: &FourTuple) -> Result<(), Drop> {
    let bth = &packet.headers.bth;
    if !expected.can_receive {
        return Err(Drop::State);
    }
    if bth.opcode.transport() != expected.transport {
        return Err(Drop::Transport);
    }
    let connected = expected.transport != Transport::Ud;
    if connected && expected.between != Some((tuple.source, tuple.destination)) {
        return Err(Drop::Address);
    }
    if !PKey::DEFAULT.matches(bth.pkey) {
        return Err(Drop::PKey);
    }
    if packet.headers.deth.is_some_and(|deth| deth.qkey.0 != expected.qkey) {
        return Err(Drop::QKey);
    }
    Ok(())
}

/// Checks the invariant CRC, which over IPv4 also yields the identification that the sender used.
/// The solver depends on the packet length; it is kept for further packets of the same length.
#[derive(Clone, Copy, Debug)]
pub struct Verifier {
    solver: IdSolver,
}

impl Default for Verifier {
    fn default() -> Self {
        Verifier { solver: IdSolver::for_packet_bytes(0) }
    }
}

impl Verifier {
    /// Verifies the packet `bytes`, BTH to ICRC; returns IPv4's identification, 0 for IPv6.
    ///
    /// The CRC covers IPv4's identification, but a UDP socket does not report that field. So the
    /// identification is computed from the CRC, which leaves 16 of the CRC's 32 bits as a check.
    /// UDP's own checksum checks further, if the sender uses one.
    ///
    /// # Errors
    /// [`Drop::Icrc`].
    #[inline]
    pub fn verify(
        &mut self,
        tuple: &FourTuple,
        packet: &Packet<'_>,
        bytes: &[u8],
    ) -> Result<u16, Drop> {
        let difference = tuple.icrc(0, bytes) ^ packet.icrc;
        if difference == 0 {
            return Ok(0);
        }
        if tuple.source.is_ipv6() {
            return Err(Drop::Icrc);
        }
        if self.solver.packet_bytes() != bytes.len() {
            self.solver = IdSolver::for_packet_bytes(bytes.len());
        }
        self.solver.solve_difference(difference).ok_or(Drop::Icrc)
    }
}

/// Makes a train of one packet from a checked packet, for a queue pair with this peer and path MTU.
/// The train has the packet's payload.
///
/// # Errors
/// [`Drop::Opcode`] for a congestion notification, which has no effect here.
#[inline]
pub fn train_of(headers: &Headers, payload_bytes: usize, to: &Expected) -> Result<Train, Drop> {
    let bth = &headers.bth;
    let kind = match bth.opcode.operation() {
        Operation::Send => TrainKind::Send,
        Operation::Write => TrainKind::Write,
        Operation::ReadRequest => TrainKind::ReadRequest,
        Operation::ReadResponse => TrainKind::ReadResponse,
        Operation::Acknowledge => TrainKind::Ack,
        Operation::AtomicAcknowledge => TrainKind::AtomicResponse,
        Operation::CompareSwap => TrainKind::CmpSwap,
        Operation::FetchAdd => TrainKind::FetchAdd,
        Operation::CongestionNotification => return Err(Drop::Opcode),
    };
    let mut train = Train::new(kind, bth.dest_qp, to.remote_qpn, bth.psn);
    train.payload_bytes = payload_bytes as u32;
    train.flags = flags_of(headers);
    if let Some(deth) = headers.deth {
        train.src_qpn = deth.source_qp;
        train.qkey = deth.qkey.0;
        // A RoCEv2 datagram always has a network header.
        train.flags.0 |= TrainFlags::GRH;
    }
    if let Some(reth) = headers.reth {
        train.remote_addr = reth.virtual_address;
        train.rkey = reth.rkey;
        train.dma_bytes = reth.dma_length;
        if kind == TrainKind::ReadRequest {
            train.packets = to.mtu.packets(reth.dma_length);
        }
    }
    if let Some(atomic) = headers.atomic_eth {
        train.remote_addr = atomic.virtual_address;
        train.rkey = atomic.rkey;
        train.dma_bytes = 8;
        train.swap_add = atomic.swap_or_add;
        train.compare = atomic.compare;
    }
    if let Some(aeth) = headers.aeth {
        train.syndrome = aeth.syndrome;
        train.msn = aeth.msn;
    }
    if let Some(ack) = headers.atomic_ack_eth {
        train.swap_add = ack.original;
    }
    if let Some(imm) = headers.immdt {
        train.imm_or_rkey = imm.0.to_be();
    }
    if let Some(ieth) = headers.ieth {
        train.imm_or_rkey = ieth.0.0;
    }
    Ok(train)
}

#[inline]
fn flags_of(headers: &Headers) -> TrainFlags {
    let bth = &headers.bth;
    let mut flags = match bth.opcode.position() {
        Position::First => TrainFlags::FIRST,
        Position::Middle => 0,
        Position::Last => TrainFlags::LAST,
        Position::Only => TrainFlags::FIRST | TrainFlags::LAST,
    };
    if bth.ack_req {
        flags |= TrainFlags::ACK_REQ;
    }
    if bth.solicited_event {
        flags |= TrainFlags::SOLICITED;
    }
    flags |= match bth.opcode.suffix() {
        Suffix::None => 0,
        Suffix::Immediate => TrainFlags::IMM,
        Suffix::Invalidate => TrainFlags::INV,
    };
    TrainFlags(flags)
}
