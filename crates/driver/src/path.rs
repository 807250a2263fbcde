//! The paths on which trains are sent.

use std::ops::Range;

use rdmalab_engine::qp::{CopyError, Qp};
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::UdAddress;

use crate::memory::Memory;

/// A train that was not sent, or not completely, because its payload could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsent {
    /// Why.
    pub error: CopyError,
    /// Packets of the train that were sent before the error.
    pub packets: u32,
}

impl Unsent {
    /// Nothing of the train was sent.
    #[inline(always)]
    pub fn whole(error: CopyError) -> Unsent {
        Unsent { error, packets: 0 }
    }
}

/// A path to a peer: a ring in shared memory, a socket, a simulated link. It carries trains in
/// order, and may lose them. A path may wrap another one, to watch its trains or to inject faults.
pub trait Path<M: Memory> {
    /// Payload bytes that the next request of `qp` may carry, at least one MTU; `None` when there
    /// is no room for it now.
    fn request_room(&mut self, qp: &Qp) -> Option<u32>;

    /// [`Path::request_room`] for the next response.
    fn response_room(&mut self, qp: &Qp) -> Option<u32> {
        self.request_room(qp)
    }

    /// Adds the source address, which only the port knows, to a datagram.
    fn address(&mut self, _train: &mut Train, _to: &UdAddress) {}

    /// Sends a train for which there is room. The path calls `fill` to have a non-empty range of
    /// the payload written to a destination. `is_inline`: the payload is in the work request.
    fn push(
        &mut self,
        train: &Train,
        is_inline: bool,
        fill: impl FnMut(Range<u32>, M::Destination<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent>;
}
