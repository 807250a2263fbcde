//! Where trains go.

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
    /// Packets of the train that were sent before.
    pub packets: u32,
}

impl Unsent {
    /// Nothing of the train was sent.
    #[inline(always)]
    pub fn whole(error: CopyError) -> Unsent {
        Unsent { error, packets: 0 }
    }
}

/// A way to a peer: a ring in shared memory, a socket, a simulated link. It carries trains in
/// order, and may lose them. Another path may wrap it, to watch or to disturb what passes.
pub trait Path<M: Memory> {
    /// Payload bytes that the next request of `qp` may carry, at least one MTU; `None` when there
    /// is no room for it now.
    fn request_room(&mut self, qp: &Qp) -> Option<u32>;

    /// The same for the next response.
    fn response_room(&mut self, qp: &Qp) -> Option<u32> {
        self.request_room(qp)
    }

    /// Adds to a datagram what only the port knows: where it comes from.
    fn address(&mut self, _train: &mut Train, _to: &UdAddress) {}

    /// Takes a train for which there is room. `fill` writes a range of its payload where the path
    /// wants it, and is not asked for empty ones. `is_inline`: the payload lies in the work request.
    fn push(
        &mut self,
        train: &Train,
        is_inline: bool,
        fill: impl FnMut(Range<u32>, M::Place<'_>) -> Result<(), CopyError>,
    ) -> Result<(), Unsent>;
}
