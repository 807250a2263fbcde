//! Memory that a program allocates here, so that soft peers on this host can map it.

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_ring::seg::Segment;

use crate::process::Process;

/// Allocates `bytes` bytes (rounded up to pages, zeroed) that soft peers on this host can map.
///
/// # Errors
/// `ENOMEM` if there is no memory; the errors of opening a soft device.
pub fn alloc_shared(bytes: usize) -> VerbsResult<*mut u8> {
    let process = Process::get()?;
    let segment = Segment::create(c"rdmalab-buffer", bytes.max(1), bytes.max(1))
        .map_err(|error| VerbsError::no_room(format!("cannot allocate {bytes} bytes: {error}")))?;
    let at = segment.ptr();
    process.host.buffers.add(segment);
    Ok(at)
}

/// Frees memory of [`alloc_shared`].
///
/// # Safety
/// Nothing may use the memory any more: every region in it was deregistered.
pub unsafe fn free_shared(at: *mut u8) {
    if let Some(process) = Process::existing()
        && let Some(id) = process.host.buffers.remove(at)
    {
        process.host.announce_memory_freed(id);
    }
}
