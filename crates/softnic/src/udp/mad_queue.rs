//! The queue of management datagrams that arrived for this process.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rdmalab_engine::backend::VerbsResult;
use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_link::address::{FourTuple, gid_of};
use rdmalab_link::drops::Drop;
use rdmalab_wire::ids::{Gid, Psn, Qpn};
use rdmalab_wire::packet::Packet;

use super::manager_presence::ManagerPresence;
use crate::fd::CountingEvent;

/// The general services QP of every port (IBA vol. 1, 3.9.3).
pub(crate) const QP1: Qpn = Qpn::new(1);
/// Its queue key (IBA vol. 1, 10.2.4).
pub(crate) const QP1_QKEY: u32 = 0x8001_0000;
/// Bytes of a management datagram (IBA vol. 1, 13.4.2).
pub const MAD_BYTES: usize = 256;
/// At most this many datagrams wait for the program; further ones are dropped, and counted.
const QUEUE_MAX: usize = 256;

/// A management datagram that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManagementDatagram {
    /// The GID of the sender.
    pub from: Gid,
    /// Which of our GIDs it was sent to.
    pub to: Gid,
    /// The sending queue pair: 1.
    pub source_qp: u32,
    /// The datagram, from its base version on.
    pub mad: [u8; MAD_BYTES],
}

/// The state of QP1 in this process.
#[derive(Default)]
pub(crate) struct Management {
    queue: OnceLock<MadQueue>,
    psn: AtomicU32,
    pub(super) manager_presence: ManagerPresence,
}

pub(super) struct MadQueue {
    pub(super) waiting: Mutex<VecDeque<ManagementDatagram>>,
    pub(super) event: CountingEvent,
}

impl Management {
    pub(super) fn open(&self) -> VerbsResult<&MadQueue> {
        if let Some(queue) = self.queue.get() {
            return Ok(queue);
        }
        let event = CountingEvent::create()?;
        let queue = MadQueue { waiting: Mutex::default(), event };
        Ok(self.queue.get_or_init(|| queue))
    }

    /// Whether this process has a connection manager.
    pub(super) fn is_open(&self) -> bool {
        self.queue.get().is_some()
    }

    /// The train for the next datagram.
    pub(super) fn next_train(&self) -> Train {
        let psn = Psn::new(self.psn.fetch_add(1, Ordering::Relaxed));
        let mut train = Train::new(TrainKind::Send, QP1, QP1, psn);
        train.flags = TrainFlags(TrainFlags::FIRST | TrainFlags::LAST);
        train.payload_bytes = MAD_BYTES as u32;
        train.qkey = QP1_QKEY;
        train
    }

    /// Queues a packet to QP1. Its invariant CRC was verified.
    pub(super) fn take(&self, tuple: &FourTuple, packet: &Packet<'_>) -> Result<(), Drop> {
        let deth = packet.headers.deth.ok_or(Drop::Malformed)?;
        if deth.qkey.0 != QP1_QKEY {
            return Err(Drop::QKey);
        }
        let mad = packet.payload.try_into().map_err(|_| Drop::Malformed)?;
        let queue = self.queue.get().ok_or(Drop::Management)?;
        let mut waiting = queue.waiting.lock();
        if waiting.len() >= QUEUE_MAX {
            return Err(Drop::Management);
        }
        let (from, to) = (gid_of(tuple.source), gid_of(tuple.destination));
        waiting.push_back(ManagementDatagram { from, to, source_qp: deth.source_qp.get(), mad });
        queue.event.add_one();
        Ok(())
    }
}
