//! Queue pairs: the engine's state machine and the objects that it works with.
//!
//! The driver (`rdmalab_driver`) runs the engine's steps. This module has the driver's memory and
//! host ([`QpLinks`]), selects the path that a queue pair sends on, and implements two fast paths:
//! SENDs of one packet (`single`) and the local lane (`lane`).

mod datagram;
mod hooks;
mod host;
mod lane;
mod locked;
mod multicast;
mod network;
mod post;
mod send;
mod single;
mod timers;

pub(crate) use host::{Arrived, Destination, execute_atomic};
pub(crate) use locked::{LockedQp, finish};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rdmalab_driver::{self as driver, Taken};
use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::odp::{Side, Span};
use rdmalab_engine::qp::recv_queue::{HeldRecv, TakeRecv};
use rdmalab_engine::qp::{Env, Qp, Timer, TimerKind};
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::*;

use crate::cq::CqObject;
use crate::hooks::Hooks;
use crate::hooks::frames::{DatagramFlow, SharedPaths};
use crate::hooks::tap::Tap;
use crate::layout::{self, QP_INDEX_BITS, QpWord};
use crate::paging::PageNews;
use crate::pd::PdObject;
use crate::peer::{MappedMemory, Peer, key_entry};
use crate::process::Process;
use crate::srq::SrqObject;
use crate::stream::StreamDetector;
use crate::udp::congestion::CongestionWindow;
use crate::udp::delayed_ack::DelayedAck;
use crate::udp::nagle::Nagle;
use crate::udp::socket::Route;
use rdmalab_ring::biased::BiasedLock;
use rdmalab_ring::epoch::Visits;
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::opcode::Transport;

/// The place of a queue pair. Places are reused but never freed, so a thread that found one by its
/// number can lock it and check whether it holds a queue pair.
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

    /// Tells the queue pair what happened to pages. `false` if another thread holds its lock.
    pub(crate) fn tell_of_pages(&self, news: &PageNews) -> bool {
        let Some(mut guard) = self.inner.try_lock() else { return false };
        if let Some(inner) = guard.as_mut() {
            news.naks.iter().for_each(|number| inner.qp.release_fault_nak(*number));
            if news.have_come {
                inner.qp.pages_arrived(&mut inner.links);
            }
            inner.transmit();
            inner.settle();
        }
        true
    }
}

/// A queue pair and its surroundings.
pub(crate) struct QpInner {
    pub(crate) qp: Qp,
    pub(crate) links: QpLinks,
}

/// The threads that a bind or local invalidate waits for.
pub(crate) struct Invalidation {
    /// Position of the work request in its send queue.
    pub(crate) position: u32,
    /// Initiators in other processes that may still copy.
    pub(crate) visits: Visits,
    /// QPs of this process that may still copy; they copy under their locks.
    pub(crate) local_qps: Vec<&'static QpObject>,
}

/// The objects that a queue pair works with.
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
    /// Ring position after the last train that was pushed; 0 if the peer is known to have taken it.
    pub(crate) pushed: u64,
    /// Number of posts since the peer's latest message of one packet.
    pub(crate) stream: StreamDetector,
    /// The QP word as published last.
    pub(crate) published: QpWord,
    /// Its transport service.
    pub(crate) service: Transport,
    /// Number of trains that were lost because there is no such peer.
    pub(crate) lost: u64,
    /// The bind or local invalidate that is in progress.
    pub(crate) invalidation: Option<Box<Invalidation>>,
    /// The peer's memory that the lane used last.
    pub(crate) mapped: Option<MappedMemory>,
    /// For a connection to another host: the route to it.
    pub(crate) route: Option<Route>,
    /// For a connection on this host, while a hook is active.
    pub(crate) shared_paths: Option<Box<SharedPaths>>,
    /// Of a UD QP while a hook is active: what it sends, and what it receives.
    pub(crate) datagram_flows: Option<Box<[DatagramFlow; 2]>>,
    /// Decides whether ACKs to another host are delayed.
    pub(crate) delayed_ack: DelayedAck,
    /// Which requests wait for more of them.
    pub(crate) nagle: Nagle,
    /// Bounds the packets in flight to another host.
    pub(crate) congestion: CongestionWindow,
    /// The hooks that capture or disturb its packets.
    pub(crate) hooks: Option<&'static Hooks>,
    /// Whether SENDs of one packet may take the short way without a look at the hooks: there are
    /// none, and no page can be missing.
    pub(crate) has_short_ways: bool,
    /// The capture of packets that take a short way nevertheless.
    pub(crate) short_tap: Option<&'static Tap>,
    /// The header of the datagram from the network that is being placed.
    pub(crate) grh: Option<[u8; 40]>,
}

impl QpLinks {
    /// Whether this is a UD QP.
    #[inline]
    pub(crate) fn is_datagram(&self) -> bool {
        self.service == Transport::Ud
    }
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
        // No thread copies by this key: only the peer of this QP uses a type 2 window, and the
        // peer's earlier operations were complete before it sent the message that invalidates the
        // window.
        self.process.keys.retract_window(rkey, self.qpn())
    }

    fn event(&mut self, event: AsyncEventType) {
        self.pd.context.raise(event, self.cookie);
    }

    #[inline(always)]
    fn has_on_demand(&self) -> bool {
        self.process.paging.is_active()
    }

    fn access_pages(&mut self, region: &KeyEntry, span: &Span, side: Side) -> u64 {
        let process = self.process;
        let Some(region) = process.keys.region_of(region) else { return span.bytes };
        let qp = (self.object.index, self.qpn());
        process.paging.access(qp, region, span, side, process.alarm())
    }

    fn hold_fault_nak(&mut self, is_read: bool) -> Option<u64> {
        let process = self.process;
        process.paging.hold_fault_nak(self.object.index, is_read, process.alarm())
    }
}

impl QpLinks {
    fn qpn(&self) -> Qpn {
        Qpn::new(u32::from(self.process.host.slot) << QP_INDEX_BITS | self.object.index)
    }
}

/// The transport service in packets of a QP type.
pub(crate) fn transport_of(qp_type: QpType) -> Transport {
    match qp_type {
        QpType::Rc => Transport::Rc,
        QpType::Uc => Transport::Uc,
        QpType::Ud => Transport::Ud,
    }
}

impl QpInner {
    /// Publishes the QP word for initiators of one-sided operations, if it changed.
    pub(crate) fn publish(&mut self) {
        let qp = &self.qp;
        // A connection to another host has no initiators on this one. An operation that the
        // initiator executes itself sends no packet for the hooks.
        let can_receive = qp.state.can_receive()
            && qp.qp_type != QpType::Ud
            && self.links.route.is_none()
            && self.links.hooks.is_none();
        let word = match can_receive {
            true => QpWord {
                pd: qp.pd,
                access: qp.attr.qp_access_flags,
                remote_qpn: qp.remote_qpn,
                ..QpWord::CLOSED.receiving(self.links.service)
            },
            false => QpWord::CLOSED,
        };
        if word != self.links.published {
            self.links.published = word;
            self.links.process.qps.words.store(self.links.object.index as usize, word);
        }
    }

    /// Watches or arms the timer, after anything that may have changed what the QP waits for.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.qp.state == QpState::Err && self.links.published != QpWord::CLOSED {
            self.publish();
        }
        let timer = self.qp.timer();
        if timer == Timer::Idle {
            return;
        }
        if !self.links.object.in_timers.load(Ordering::Relaxed) {
            self.links.process.watch_timer(self.links.object);
        }
        if let Timer::Wanted(TimerKind::Rnr(_) | TimerKind::PageFault) = timer {
            self.arm_timer();
        }
    }

    /// Whether the peer's process is alive, so that trains can reach it.
    pub(crate) fn peer_alive(&self) -> bool {
        self.links.peer.as_ref().is_some_and(|peer| peer.is_alive())
    }

    /// Whether the peer has taken everything that this QP pushed into the ring.
    pub(crate) fn carried(&self) -> bool {
        match &self.links.peer {
            Some(peer) => peer.out.lock().consumed() >= self.links.pushed,
            None => true,
        }
    }

    /// Handles a train that arrived.
    #[inline]
    pub(crate) fn take(&mut self, train: &Train, bytes: Arrived<'_>) {
        match driver::take(&mut self.qp, &mut self.links, train, bytes) {
            Taken::Done => {}
            // Posted requests are fetched at once, so nothing stalls.
            Taken::Dropped(_) | Taken::Stalled => {
                self.links.process.counters.count_dropped();
            }
        }
    }

    /// The process slot of this QP's peer.
    pub(crate) fn remote_process(&self) -> u16 {
        layout::process_of(self.qp.remote_qpn)
    }
}
