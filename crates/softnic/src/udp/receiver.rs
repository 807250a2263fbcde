//! The reading end of the socket, and what it reads.

use rdmalab_link::address::{FourTuple, IpFields};
use rdmalab_link::receive::Verifier;

use super::connect_policy::ConnectPolicy;
use super::receive_batch::ReceiveBatch;

/// The reading end of the socket.
pub(crate) struct Receiver {
    pub(super) batch: Box<ReceiveBatch>,
    /// Messages to ask for in the next call: one while they come one by one, because asking for
    /// more costs another look.
    pub(super) ask: usize,
    /// In which this process reads now.
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

/// One packet and what the network said of it.
pub(crate) struct Arrival<'a> {
    pub(crate) tuple: FourTuple,
    pub(crate) ip: IpFields,
    pub(crate) bytes: &'a [u8],
    /// Another process read it, and found that it is for us.
    pub(super) forwarded: bool,
}

/// What is known of the socket after one looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SocketState {
    /// Everything that had come was taken.
    Empty,
    /// Something may lie there, or is just being taken by another thread.
    MayHoldMore,
}
