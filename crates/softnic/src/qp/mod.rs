//! Queue pairs: the engine's state machine with everything it is connected to.
//!
//! The driver (`rdmalab_driver`) does the engine's steps. Here stands what it works on ([`QpLinks`]
//! is its memory and host), which path a queue pair sends on, and the short ways: small SENDs
//! (`single`) and the local lane (`lane`).

mod datagram;
mod hooks;
mod host;
mod lane;
mod multicast;
mod network;
mod post;
mod send;
mod single;
mod timers;

pub(crate) use host::{Arrived, Place, execute_atomic};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rdmalab_driver::{self as driver, Taken};
use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::qp::recv_queue::{HeldRecv, TakeRecv};
use rdmalab_engine::qp::{Env, Qp, Timer, TimerKind};
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::*;

use crate::cq::CqObject;
use crate::hooks::Hooks;
use crate::layout::{self, QpWord};
use crate::pd::PdObject;
use crate::peer::{MappedMemory, Peer, key_entry};
use crate::process::Process;
use crate::srq::SrqObject;
use crate::stream::StreamDetector;
use crate::udp::delayed_ack::DelayedAck;
use crate::udp::socket::Route;
use rdmalab_link::frame_headers::FrameHeaders;
use rdmalab_ring::biased::BiasedLock;
use rdmalab_ring::epoch::Visits;
use rdmalab_wire::opcode::Transport;

/// The place of a queue pair. Places are never freed, only used again, so that whoever found one
/// by its number can lock it and look whether somebody lives there.
pub(crate) struct QpObject {
    pub(crate) process: &'static Process,
    /// Its index within this process.
    pub(crate) index: u32,
    /// Send queue slots below this position are free: set when completions are polled.
    pub(crate) sq_freed: AtomicU32,
    /// The queue pair.
    pub(crate) inner: BiasedLock<Option<QpInner>>,
    pub(crate) in_timers: AtomicBool,
    pub(crate) in_blocked: AtomicBool,
}

impl QpObject {
    pub(crate) fn new(process: &'static Process, index: u32) -> QpObject {
        QpObject {
            process,
            index,
            sq_freed: AtomicU32::new(0),
            inner: BiasedLock::new(None),
            in_timers: AtomicBool::new(false),
            in_blocked: AtomicBool::new(false),
        }
    }
}

/// A queue pair and its surroundings.
pub(crate) struct QpInner {
    pub(crate) qp: Qp,
    pub(crate) links: QpLinks,
}

/// What a begun bind or local invalidate waits for.
pub(crate) struct Invalidation {
    /// The request's place in its send queue.
    pub(crate) position: u32,
    /// Initiators of other processes that may still copy.
    pub(crate) visits: Visits,
    /// QPs of this process that may: those copy under their locks.
    pub(crate) local_qps: Vec<&'static QpObject>,
}

/// What a queue pair is connected to.
pub(crate) struct QpLinks {
    pub(crate) object: &'static QpObject,
    pub(crate) process: &'static Process,
    pub(crate) pd: Arc<PdObject>,
    pub(crate) send_cq: Arc<CqObject>,
    pub(crate) recv_cq: Arc<CqObject>,
    pub(crate) srq: Option<Arc<SrqObject>>,
    pub(crate) cookie: u64,
    /// The peer that trains go to: the connection's, or the last datagram's.
    pub(crate) peer: Option<Arc<Peer>>,
    /// Ring position after the last train that was pushed; 0 when the peer is known to have it.
    pub(crate) pushed: u64,
    /// Posts since the peer's latest small message.
    pub(crate) stream: StreamDetector,
    /// What the QP word says now.
    pub(crate) published: QpWord,
    /// Whether this is a UD QP.
    pub(crate) datagram: bool,
    /// Trains that went nowhere because there is no such peer.
    pub(crate) lost: u64,
    /// What a begun bind or local invalidate waits for.
    pub(crate) invalidation: Option<Box<Invalidation>>,
    /// The peer's memory that the lane used last.
    pub(crate) mapped: Option<MappedMemory>,
    /// Of a connection to another host: the way there.
    pub(crate) route: Option<Route>,
    /// Of a connection on this host, while something is armed: the headers that captures show, of
    /// what it sends and of what it receives.
    pub(crate) shared_paths: Option<Box<[FrameHeaders; 2]>>,
    /// How promptly its program answers what comes from another host.
    pub(crate) delayed_ack: DelayedAck,
    /// What captures or disturbs its packets.
    pub(crate) hooks: Option<&'static Hooks>,
    /// The header of the datagram from the network that is being placed.
    pub(crate) grh: Option<[u8; 40]>,
}

impl Env for QpLinks {
    #[inline]
    fn key(&self, key: u32) -> Option<KeyEntry> {
        self.process.keys.view.lookup(key).and_then(key_entry)
    }

    fn take_shared(&mut self, held: &mut HeldRecv) -> TakeRecv {
        match &self.srq {
            Some(srq) => srq.take(held),
            None => TakeRecv::Empty,
        }
    }

    #[inline]
    fn send_completion(&mut self, wc: Wc, sq_free_to: u32) {
        if let Some(hooks) = self.hooks {
            hooks.message_completed(&wc, false);
        }
        self.send_cq.push(wc, false, Some(&self.object.sq_freed), sq_free_to);
    }

    #[inline]
    fn recv_completion(&mut self, wc: Wc, solicited: bool) {
        if let Some(hooks) = self.hooks {
            hooks.message_completed(&wc, true);
        }
        self.recv_cq.push(wc, solicited, None, 0);
    }

    fn invalidate(&mut self, rkey: u32) -> bool {
        // Nobody is copying by it: a type 2 window is the peer's of this QP alone, whose earlier
        // operations were over before it sent the message that takes the window back.
        self.process.keys.retract_window(rkey, self.object.index)
    }

    fn event(&mut self, event: AsyncEventType) {
        self.pd.context.raise(event, self.cookie);
    }
}

/// Its name in packets.
pub(crate) fn transport_of(qp_type: QpType) -> Transport {
    match qp_type {
        QpType::Rc => Transport::Rc,
        QpType::Uc => Transport::Uc,
        QpType::Ud => Transport::Ud,
    }
}

impl QpInner {
    /// Publishes what initiators of one-sided operations must know, if it changed.
    pub(crate) fn publish(&mut self) {
        let qp = &self.qp;
        let word = QpWord {
            // A connection to another host has no initiators on this one.
            can_receive: qp.state.can_receive()
                && qp.qp_type != QpType::Ud
                && self.links.route.is_none()
                // What an initiator executes itself sends no packet.
                && self.links.hooks.is_none(),
            pd: qp.pd,
            access: qp.attr.qp_access_flags,
            remote_qpn: qp.remote_qpn,
        };
        let word = if word.can_receive { word } else { QpWord::CLOSED };
        if word != self.links.published {
            self.links.published = word;
            self.links.process.qps.words.store(self.links.object.index as usize, word);
        }
    }

    /// After anything that may have changed what the QP waits for.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.qp.state == QpState::Err && self.links.published.can_receive {
            self.publish();
        }
        let timer = self.qp.timer();
        if timer == Timer::Idle {
            return;
        }
        if !self.links.object.in_timers.load(Ordering::Relaxed) {
            self.links.process.watch_timer(self.links.object);
        }
        if let Timer::Wanted(TimerKind::Rnr(_)) = timer {
            self.qp.arm_timer(crate::clock::now_ns(), u64::MAX);
            if let Timer::At(_, at_ns) = self.qp.timer() {
                self.links.process.set_deadline(at_ns);
            }
        }
    }

    /// Whether the peer's process is one that trains can still reach.
    pub(crate) fn peer_alive(&self) -> bool {
        self.links.peer.as_ref().is_some_and(|peer| peer.is_alive())
    }

    /// Whether the ring's other end has taken everything that this QP pushed.
    pub(crate) fn carried(&self) -> bool {
        match &self.links.peer {
            Some(peer) => peer.out.lock().consumed() >= self.links.pushed,
            None => true,
        }
    }

    /// What to do with a train that arrived.
    #[inline]
    pub(crate) fn take(&mut self, train: &Train, bytes: Arrived<'_>) {
        match driver::take(&mut self.qp, &mut self.links, train, bytes) {
            Taken::Done => {}
            // What is posted is fetched at once, so nothing stalls.
            Taken::Dropped(_) | Taken::Stalled => {
                self.links.process.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The process slot that this QP's connection leads to.
    pub(crate) fn remote_process(&self) -> u16 {
        layout::process_of(self.qp.remote_qpn)
    }
}
