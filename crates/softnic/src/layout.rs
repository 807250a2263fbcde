//! The layout of a process's shared segment, which its peers map.
//!
//! The segment is sparse: a page takes memory only after it was touched.

use std::sync::atomic::{AtomicU64, Ordering};

use rdmalab_engine::vocab::{Access, PdId};
use rdmalab_ring::keytable;
use rdmalab_wire::ids::{MASK_24, Qpn};
use rdmalab_wire::opcode::Transport;

/// Version of everything that processes of a host share. Processes of different versions do not
/// find each other, because the version is part of the control sockets' names.
pub(crate) const VERSION: u32 = 3;

/// Bits of a QPN that number the QPs of a process; the bits above are the process slot.
pub(crate) const QP_INDEX_BITS: u32 = 14;
/// Queue pairs per process.
pub(crate) const QPS_PER_PROCESS: usize = 1 << QP_INDEX_BITS;

/// Offset of the doorbell.
pub(crate) const DOORBELL_AT: usize = 4096;
/// Offset of the counter of calls that made progress.
pub(crate) const STAMP_AT: usize = DOORBELL_AT + 1024;
/// Offset of the lane's sequence words.
pub(crate) const LANE_AT: usize = 8192;
/// Offset of the QP words, one for each QP.
pub(crate) const QP_WORDS_AT: usize = 0x4_0000;
/// Offset of the table of keys.
pub(crate) const KEYS_AT: usize = 0x10_0000;
/// Bytes of the whole segment.
pub(crate) const SEGMENT_BYTES: usize = KEYS_AT + keytable::TABLE_BYTES;
/// Bytes that have memory from the start.
pub(crate) const PREFAULT_BYTES: usize = LANE_AT;

const _: () = assert!(LANE_AT + rdmalab_ring::epoch::LANE_BYTES <= QP_WORDS_AT);
const _: () = assert!(QP_WORDS_AT + QPS_PER_PROCESS * 8 <= KEYS_AT);

/// The process slot in a QPN.
#[inline]
pub(crate) fn process_of(qpn: Qpn) -> u16 {
    (qpn.get() >> QP_INDEX_BITS) as u16
}

/// The index of a QPN within its process.
#[inline]
pub(crate) fn index_of(qpn: Qpn) -> usize {
    qpn.get() as usize & (QPS_PER_PROCESS - 1)
}

/// The state of the target QP that an initiator of one-sided operations needs, in one word: whether
/// it can receive, its protection domain, its access rights, and the QP that it is connected to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QpWord {
    /// The service of the packets that it can receive: the bit of its number, or no bit.
    pub(crate) services: u8,
    pub(crate) pd: PdId,
    pub(crate) access: Access,
    pub(crate) remote_qpn: Qpn,
}

impl QpWord {
    /// A QP that no initiator may access.
    pub(crate) const CLOSED: QpWord =
        QpWord { services: 0, pd: PdId(0), access: Access::NONE, remote_qpn: Qpn::new(0) };

    /// The same, of a QP that can receive packets of a service.
    pub(crate) fn receiving(self, service: Transport) -> QpWord {
        QpWord { services: 1 << service as u8, ..self }
    }

    /// Whether the QP can receive packets of a service.
    #[inline(always)]
    pub(crate) fn receives(self, service: Transport) -> bool {
        self.services >> service as u8 & 1 != 0
    }

    fn pack(self) -> u64 {
        self.remote_qpn.get() as u64
            | ((self.pd.0 & MASK_24) as u64) << 24
            | ((self.access.0 & 0xff) as u64) << 48
            | (self.services as u64) << 56
    }

    fn unpack(word: u64) -> QpWord {
        QpWord {
            remote_qpn: Qpn::new(word as u32),
            pd: PdId((word >> 24) as u32 & MASK_24),
            access: Access((word >> 48) as u32 & 0xff),
            services: (word >> 56) as u8,
        }
    }
}

/// The counter of callers in the segment at `segment`.
///
/// # Safety
/// `segment` must point to [`SEGMENT_BYTES`] mapped bytes that stay mapped for `'a`.
pub(crate) unsafe fn stamp_of<'a>(segment: *mut u8) -> &'a AtomicU64 {
    // SAFETY: within the segment, aligned, and touched through atomics only.
    unsafe { &*segment.add(STAMP_AT).cast::<AtomicU64>() }
}

/// A view of the QP words of a segment.
#[derive(Clone, Copy)]
pub(crate) struct QpWords {
    base: *const AtomicU64,
}

// SAFETY: the words are atomics in memory that outlives the view.
unsafe impl Send for QpWords {}
// SAFETY: as above.
unsafe impl Sync for QpWords {}

impl QpWords {
    /// Makes a view of the words of the segment at `segment`.
    ///
    /// # Safety
    /// `segment` must point to [`SEGMENT_BYTES`] mapped bytes that outlive the view.
    pub(crate) unsafe fn attach(segment: *mut u8) -> QpWords {
        // SAFETY: within the segment, and aligned because the segment is page aligned.
        QpWords { base: unsafe { segment.add(QP_WORDS_AT) }.cast() }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the index is reduced to the table, which lies within the segment.
        unsafe { &*self.base.add(index & (QPS_PER_PROCESS - 1)) }
    }

    /// Reads the word of the owner's QP `index`.
    #[inline]
    pub(crate) fn load(&self, index: usize) -> QpWord {
        QpWord::unpack(self.word(index).load(Ordering::Acquire))
    }

    /// Writes the word of this process's QP `index`.
    pub(crate) fn store(&self, index: usize, word: QpWord) {
        self.word(index).store(word.pack(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_everything() {
        let word = QpWord {
            pd: PdId(0xabcdef),
            access: Access(0xff),
            remote_qpn: Qpn::new(0xfedcba),
            ..QpWord::CLOSED.receiving(Transport::Uc)
        };
        assert!(word.receives(Transport::Uc) && !word.receives(Transport::Rc));
        assert_eq!(QpWord::unpack(word.pack()), word);
        assert_eq!(QpWord::unpack(0), QpWord::CLOSED);
    }

    #[test]
    fn a_qpn_names_its_process() {
        let qpn = Qpn::new(5 << QP_INDEX_BITS | 77);
        assert_eq!((process_of(qpn), index_of(qpn)), (5, 77));
    }
}
