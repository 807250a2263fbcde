//! Memory that peers can map: sealed memfds that the program allocates here, or gets from the
//! preload library `librdmalab-memory.so`. Peers read and write memory regions in it by plain
//! copies.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use rdmalab_engine::mr::Backing;
use rdmalab_ring::seg::Segment;

use crate::program_memory;

/// The number of the file that the preload library `librdmalab-memory.so` has.
const PROGRAM_MEMORY: u32 = u32::MAX;

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
    /// The segment and offset of a range, if one segment contains the whole range.
    pub(crate) fn backing(&self, addr: u64, length: u64) -> Backing {
        let shared = self.shared.read();
        let own = shared.iter().find_map(|shared| {
            let offset = addr.checked_sub(shared.segment.ptr() as u64)?;
            let end = offset.checked_add(length)?;
            (end <= shared.segment.len() as u64).then_some(Backing { segment: shared.id, offset })
        });
        let of_program = || program_memory::find(addr, length);
        own.or_else(|| of_program().map(|offset| Backing { segment: PROGRAM_MEMORY, offset }))
            .unwrap_or_default()
    }

    /// The descriptor of a segment, to be sent to a peer.
    pub(crate) fn descriptor(&self, id: u32) -> Option<OwnedFd> {
        if id == PROGRAM_MEMORY {
            return program_memory::descriptor();
        }
        let shared = self.shared.read();
        let found = shared.iter().find(|shared| shared.id == id)?;
        found.segment.as_fd().try_clone_to_owned().ok()
    }

    /// Adds a segment, and gives it a number.
    pub(crate) fn add(&self, segment: Segment) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        self.shared.write().push(Shared { id, segment });
    }

    /// Frees the memory at `at`. Returns the number of its segment.
    pub(crate) fn remove(&self, at: *mut u8) -> Option<u32> {
        let mut shared = self.shared.write();
        let index = shared.iter().position(|shared| shared.segment.ptr() == at)?;
        let Shared { id, segment } = shared.swap_remove(index);
        give_pages_back(&segment);
        Some(id)
    }
}

/// Frees the pages of a segment. Peers may keep it mapped, because the control message can be lost.
fn give_pages_back(segment: &Segment) {
    let (fd, length) = (segment.as_fd().as_raw_fd(), segment.len() as libc::off_t);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a system call on a descriptor that lives; nothing uses the pages any more.
    unsafe { libc::fallocate(fd, mode, 0, length) };
}
