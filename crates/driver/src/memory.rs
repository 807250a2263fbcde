//! The memory of the process that a queue pair belongs to, and the driver's other services.

use std::ops::Range;

use rdmalab_engine::mr::{self, KeyEntry, for_each_piece};
use rdmalab_engine::qp::{AtomicOp, CopyError, Env, GRH_BYTES, Qp};
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::{PdId, Sge};

/// Memory that payload is read from and written to. Every address was just checked against its
/// region, but may be unmapped all the same: that is a [`CopyError::Fault`].
pub trait Memory {
    /// Where a path wants payload written: a cursor.
    type Destination<'a>;
    /// Payload that arrived: a cursor.
    type Bytes<'a>;

    /// A cursor over bytes of the driver itself.
    fn bytes(bytes: &[u8]) -> Self::Bytes<'_>;
    /// Advances a cursor.
    fn skip(bytes: &mut Self::Bytes<'_>, count: u32);
    /// Writes bytes of the driver itself to a destination, and advances it.
    fn put(bytes: &[u8], to: &mut Self::Destination<'_>) -> Result<(), CopyError>;

    /// Copies bytes of a region to a destination, and advances it.
    fn read(
        &self,
        region: &KeyEntry,
        host_addr: u64,
        bytes: u32,
        to: &mut Self::Destination<'_>,
    ) -> Result<(), CopyError>;

    /// Copies bytes that arrived into a region, and advances their cursor. The last eight bytes
    /// become visible last.
    fn write(
        &mut self,
        region: &KeyEntry,
        host_addr: u64,
        bytes: u32,
        from: &mut Self::Bytes<'_>,
    ) -> Result<(), CopyError>;

    /// Executes an atomic on eight aligned bytes; returns the value before it.
    fn atomic(&mut self, region: &KeyEntry, host_addr: u64, op: AtomicOp)
    -> Result<u64, CopyError>;
}

/// Everything that a queue pair is connected to.
pub trait Host: Env + Memory {
    /// Executes the bind or local invalidate at `position`, and says whether it succeeded. `None`
    /// while a copy that uses the old key may still run: try again later.
    fn execute_local(&mut self, qp: &Qp, position: u32) -> Option<bool>;

    /// The 40 bytes in front of a datagram that has a routing header (IBA vol. 1, 11.4.2.1).
    fn routing_header(&self, train: &Train) -> [u8; GRH_BYTES as usize];
}

/// The region and address of a local scatter/gather element, after its check.
#[inline(always)]
pub fn local_address<E: Env>(
    env: &E,
    pd: PdId,
    sge: &Sge,
    write: bool,
) -> Result<(KeyEntry, u64), CopyError> {
    let region = env.key(sge.lkey).ok_or(CopyError::Protection)?;
    let addr = mr::check_local(Some(&region), pd, sge, write);
    addr.map(|addr| (region, addr)).map_err(|_| CopyError::Protection)
}

/// Copies a range of the bytes of a gather list to a destination.
#[inline]
pub fn gather<H: Env + Memory>(
    host: &H,
    pd: PdId,
    sges: &[Sge],
    range: Range<u32>,
    mut to: H::Destination<'_>,
) -> Result<(), CopyError> {
    let bytes = range.end - range.start;
    for_each_piece(sges, u64::from(range.start), u64::from(bytes), |sge| {
        let (region, addr) = local_address(host, pd, sge, false)?;
        host.read(&region, addr, sge.length, &mut to)
    })
}

/// Copies a range of the payload of the work request at `position` to a destination.
#[inline(always)] // It is called from several places: left to itself, the compiler makes it a call.
pub fn read_wqe<H: Env + Memory>(
    qp: &Qp,
    host: &H,
    position: u32,
    range: Range<u32>,
    mut to: H::Destination<'_>,
) -> Result<(), CopyError> {
    if qp.sq.wqe(position).is_inline() {
        let bytes = &qp.sq.inline(position)[range.start as usize..range.end as usize];
        return H::put(bytes, &mut to);
    }
    gather(host, qp.pd, qp.sq.sges(position), range, to)
}

/// Copies `bytes` bytes into a scatter list, from its byte `offset` on.
#[inline]
pub fn scatter<H: Env + Memory>(
    host: &mut H,
    pd: PdId,
    sges: &[Sge],
    offset: u64,
    bytes: u32,
    from: &mut H::Bytes<'_>,
) -> Result<(), CopyError> {
    for_each_piece(sges, offset, u64::from(bytes), |sge| {
        let (region, addr) = local_address(host, pd, sge, true)?;
        host.write(&region, addr, sge.length, from)
    })
}
