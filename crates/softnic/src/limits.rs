//! The limits of the soft devices, which a profile may lower.

use rdmalab_wire::ids::PathMtu;

/// Work requests of a send queue, receive queue or SRQ.
pub(crate) const MAX_WR: u32 = 16384;
/// Protection domains of a process.
pub(crate) const MAX_PDS: u32 = 65_536;
/// Completion queues of a process.
pub(crate) const MAX_CQS: u32 = 65_536;
/// Shared receive queues of a process.
pub(crate) const MAX_SRQS: u32 = 16_384;
/// Completions of a CQ.
pub(crate) const MAX_CQE: u32 = 4_194_303;
/// Scatter/gather elements.
pub(crate) const MAX_SGE: u32 = 32;
/// Inline bytes.
pub(crate) const MAX_INLINE: u32 = 1024;
/// Outstanding READs and atomics, each way.
pub(crate) const MAX_RD_ATOMIC: u8 = 16;
/// Memory regions and windows of a process.
pub(crate) const MAX_KEYS: u32 = 65_536;
/// The longest payload of a packet on these ports.
pub(crate) const PORT_MTU: PathMtu = PathMtu::Mtu4096;
