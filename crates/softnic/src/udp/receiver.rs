//! The state for reading the socket, and the packets that are read.

use rdmalab_link::address::{FourTuple, IpFields};
use rdmalab_link::receive::Verifier;

use super::connect_policy::ConnectPolicy;
use super::receive_batch::ReceiveBatch;

/// The state for reading the socket. Only the thread that has locked it reads.
pub(crate) struct Receiver {
    pub(super) batch: Box<ReceiveBatch>,
    /// How many messages to request in the next call: one while they come one by one, because a
    /// larger request makes the kernel look once more.
    pub(super) ask: usize,
    /// The term of ownership in which this process reads.
    pub(super) term: u64,
    pub(super) verifier: Verifier,
    pub(super) policy: ConnectPolicy,
}

impl Receiver {
    pub(super) fn new(port: u16) -> Receiver {
        let (verifier, policy) = Default::default();
        Receiver { batch: ReceiveBatch::new(port), ask: 1, term: 0, verifier, policy }
    }
}

/// One packet with its addresses and IP header fields.
pub(crate) struct Arrival<'a> {
    pub(crate) tuple: FourTuple,
    pub(crate) ip: IpFields,
    pub(crate) bytes: &'a [u8],
    /// Another process read the packet, and forwarded it to this one.
    pub(super) forwarded: bool,
}

/// The state of a socket after a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SocketState {
    /// All packets that had come were taken.
    Empty,
    /// Packets may be left, or another thread is just taking them.
    MayHoldMore,
}
