//! Memory that peers can map: sealed memfds that a program asked us for. Regions registered in
//! them are written and read by peers with plain copies.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::mr::Backing;
use rdmalab_ring::seg::Segment;

use crate::process::Process;

struct Shared {
    id: u32,
    segment: Segment,
}

/// The memory of this process that peers can map.
#[derive(Default)]
pub(crate) struct Buffers {
    shared: RwLock<Vec<Shared>>,
    next_id: AtomicU32,
}

impl Buffers {
    /// Where the range lies, if it lies in one of these as a whole.
    pub(crate) fn backing(&self, addr: u64, length: u64) -> Backing {
        let shared = self.shared.read();
        let found = shared.iter().find_map(|shared| {
            let offset = addr.checked_sub(shared.segment.ptr() as u64)?;
            let end = offset.checked_add(length)?;
            (end <= shared.segment.len() as u64).then_some(Backing { segment: shared.id, offset })
        });
        found.unwrap_or_default()
    }

    /// The descriptor of one of them, to be sent to a peer.
    pub(crate) fn descriptor(&self, id: u32) -> Option<OwnedFd> {
        let shared = self.shared.read();
        let found = shared.iter().find(|shared| shared.id == id)?;
        found.segment.as_fd().try_clone_to_owned().ok()
    }
}

/// Allocates `bytes` bytes (rounded up to pages, zeroed) that soft peers on this host can map.
///
/// # Errors
/// `ENOMEM` when there is none; the errors of opening a soft device.
pub fn alloc_shared(bytes: usize) -> VerbsResult<*mut u8> {
    let process = Process::get()?;
    let segment = Segment::create(c"rdmalab-buffer", bytes.max(1), bytes.max(1))
        .map_err(|error| VerbsError::no_room(format!("cannot allocate {bytes} bytes: {error}")))?;
    let at = segment.ptr();
    let id = process.buffers.next_id.fetch_add(1, Ordering::Relaxed) + 1;
    process.buffers.shared.write().push(Shared { id, segment });
    Ok(at)
}

/// Frees the memory of a segment that peers may keep mapped: the control message that tells them
/// may be lost.
fn give_pages_back(segment: &Segment) {
    let (fd, length) = (segment.as_fd().as_raw_fd(), segment.len() as libc::off_t);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a system call on a descriptor that lives; nothing uses the pages any more.
    unsafe { libc::fallocate(fd, mode, 0, length) };
}

/// Gives memory of [`alloc_shared`] back.
///
/// # Safety
/// Nothing may use the memory any more: every region in it was deregistered.
pub unsafe fn free_shared(at: *mut u8) {
    if let Some(process) = Process::existing() {
        let mut gone = None;
        process.buffers.shared.write().retain(|shared| {
            let freed = shared.segment.ptr() == at;
            if freed {
                give_pages_back(&shared.segment);
                gone = Some(shared.id);
            }
            !freed
        });
        if let Some(id) = gone {
            process.announce_memory_freed(id);
        }
    }
}
