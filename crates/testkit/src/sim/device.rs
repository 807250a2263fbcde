//! A simulated device: memory, keys, queues, and the completions and events that it reported.

use std::collections::{BTreeMap, VecDeque};

use super::memory::Memory;
use super::paging::PagedMemory;
use super::step::{Step, TrainData};
use rdmalab_engine::backend::QpInit;
use rdmalab_engine::mr::{Backing, KeyEntry, KeyKind};
use rdmalab_engine::odp::{Side, Span};
use rdmalab_engine::qp::recv_queue::{HeldRecv, SharedRecvQueue, TakeRecv};
use rdmalab_engine::qp::{Env, Qp};
use rdmalab_engine::vocab::*;
use rdmalab_engine::window;
use rdmalab_wire::ids::{PathMtu, Qpn};

/// The protection domain of all objects, unless a test chooses another.
pub const PD: PdId = PdId(7);

/// A completion of a send, as written to the CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The completion.
    pub wc: Wc,
    /// When the program has polled this completion, the send queue is free up to this position.
    pub sq_free_to: u32,
}

/// A completion of a receive, as written to the CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The completion.
    pub wc: Wc,
    /// Whether it raises a solicited event.
    pub solicited: bool,
}

/// The completions and events that the program of a queue pair got.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) sent: Vec<Sent>,
    pub(super) received: Vec<Received>,
    pub(super) events: Vec<AsyncEventType>,
}

/// A queue pair with the state that the driver keeps for it.
#[derive(Debug)]
pub struct SimQp {
    /// The engine's part.
    pub qp: Qp,
    /// The send queue is free up to this position, by the completions polled so far.
    pub freed: u32,
    pub(super) told: Told,
    pub(super) polled_sent: usize,
    pub(super) polled_received: usize,
    /// Trains that arrived and are not accepted yet.
    pub(super) inbox: VecDeque<TrainData>,
    /// Steps that are accepted and not retired yet.
    pub(super) steps: Vec<Step>,
    /// When the adapter reads the posted send WQEs; `None` if it has read all.
    pub(super) fetch_sends_at_ns: Option<u64>,
    /// When the adapter reads the posted receive WQEs; `None` if it has read all.
    pub(super) fetch_receives_at_ns: Option<u64>,
}

impl SimQp {
    /// Every send completion so far.
    pub fn sent(&self) -> &[Sent] {
        &self.told.sent
    }

    /// Every receive completion so far.
    pub fn received(&self) -> &[Received] {
        &self.told.received
    }

    /// Every asynchronous event so far.
    pub fn events(&self) -> &[AsyncEventType] {
        &self.told.events
    }

    /// Whether no train that arrived waits to be accepted or retired.
    pub fn is_quiet(&self) -> bool {
        self.inbox.is_empty() && self.steps.is_empty()
    }
}

/// A simulated device.
#[derive(Debug)]
pub struct Device {
    /// Memory of its process.
    pub memory: Memory,
    /// Memory keys.
    pub keys: BTreeMap<u32, KeyEntry>,
    /// The shared receive queue for the QPs that were created with it.
    pub srq: Option<SharedRecvQueue>,
    /// How often the SRQ's limit event was raised.
    pub srq_limit_events: u32,
    /// When the adapter reads the WQEs posted to the SRQ; `None` if it has read all.
    pub(super) fetch_shared_at_ns: Option<u64>,
    /// Pages of its regions, if all of them are paged on demand.
    pub paged: Option<PagedMemory>,
    /// Its queue pairs.
    pub qps: Vec<SimQp>,
    /// Whether the driver first tries the engine's fast paths for SENDs of one packet.
    pub short_ways: bool,
    index: usize,
    next_key: u32,
}

impl Device {
    /// A device without objects.
    pub fn new(index: usize) -> Self {
        Device {
            memory: Memory::new((index as u64 + 1) << 40),
            keys: BTreeMap::new(),
            srq: None,
            srq_limit_events: 0,
            fetch_shared_at_ns: None,
            paged: None,
            qps: Vec::new(),
            short_ways: false,
            index,
            next_key: 0x100 * (index as u32 + 1),
        }
    }

    /// Registers memory; returns the key, which is both the lkey and the rkey.
    pub fn register(&mut self, addr: u64, length: u64, access: Access) -> u32 {
        self.insert(KeyKind::Region, addr, length, access, Qpn::new(0))
    }

    /// Binds a type 2 window of `qpn` over memory; returns its remote key.
    pub fn window(&mut self, addr: u64, length: u64, access: Access, qpn: Qpn) -> u32 {
        self.insert(KeyKind::WindowType2, addr, length, access, qpn)
    }

    fn insert(&mut self, kind: KeyKind, iova: u64, length: u64, access: Access, qpn: Qpn) -> u32 {
        let key = self.next_key;
        self.next_key += 1;
        let entry = KeyEntry {
            key,
            kind,
            iova,
            length,
            host_delta: 0,
            access,
            pd: PD,
            qpn,
            on_demand: self.paged.is_some(),
            backing: Backing::default(),
        };
        self.keys.insert(key, entry);
        if let Some(paged) = &mut self.paged {
            paged.pages.register(key);
        }
        key
    }

    /// Makes a QP in RESET; returns its index.
    pub fn create_qp(
        &mut self,
        qp_type: QpType,
        cap: QpCap,
        sq_sig_all: bool,
        with_srq: bool,
        port_mtu: PathMtu,
    ) -> usize {
        let index = self.qps.len();
        let qpn = Qpn::new(((self.index as u32 + 1) << 8) | (index as u32 + 1));
        let init = QpInit::<(), ()> {
            qp_type,
            send_cq: &(),
            recv_cq: &(),
            srq: with_srq.then_some(&()),
            cap,
            sq_sig_all,
            cookie: 0,
        };
        self.qps.push(SimQp {
            qp: Qp::new(qpn, PD, &init, port_mtu),
            freed: 0,
            told: Told::default(),
            polled_sent: 0,
            polled_received: 0,
            inbox: VecDeque::new(),
            steps: Vec::new(),
            fetch_sends_at_ns: None,
            fetch_receives_at_ns: None,
        });
        index
    }

    /// Borrows a QP, and separately the rest of the device as the engine uses it.
    pub fn split(&mut self, qp: usize) -> (&mut Qp, DeviceEnv<'_>) {
        let sim = &mut self.qps[qp];
        let env = DeviceEnv {
            qpn: sim.qp.qpn,
            keys: &mut self.keys,
            srq: &mut self.srq,
            srq_limit_events: &mut self.srq_limit_events,
            told: &mut sim.told,
            paged: self.paged.as_mut(),
            memory: &mut self.memory,
        };
        (&mut sim.qp, env)
    }

    /// Polls the send CQ of a QP: returns the new completions in order, frees their WQE slots.
    pub fn poll_sent(&mut self, qp: usize) -> Vec<Sent> {
        let sim = &mut self.qps[qp];
        let new = sim.told.sent[sim.polled_sent..].to_vec();
        sim.polled_sent = sim.told.sent.len();
        if let Some(last) = new.last() {
            sim.freed = last.sq_free_to;
        }
        new
    }

    /// Polls the receive CQ of a QP: returns the new completions in order.
    pub fn poll_received(&mut self, qp: usize) -> Vec<Received> {
        let sim = &mut self.qps[qp];
        let new = sim.told.received[sim.polled_received..].to_vec();
        sim.polled_received = sim.told.received.len();
        new
    }
}

/// The access to a device that the engine and the driver need.
pub struct DeviceEnv<'a> {
    qpn: Qpn,
    pub(super) keys: &'a mut BTreeMap<u32, KeyEntry>,
    srq: &'a mut Option<SharedRecvQueue>,
    srq_limit_events: &'a mut u32,
    told: &'a mut Told,
    pub(super) paged: Option<&'a mut PagedMemory>,
    pub(super) memory: &'a mut Memory,
}

impl Env for DeviceEnv<'_> {
    fn key(&self, key: u32) -> Option<KeyEntry> {
        self.keys.get(&key).copied()
    }

    fn take_shared(&mut self, held: &mut HeldRecv) -> TakeRecv {
        let Some(srq) = self.srq else {
            return TakeRecv::Empty;
        };
        let (taken, limit_due) = srq.take(held);
        *self.srq_limit_events += limit_due as u32;
        taken
    }

    fn send_completion(&mut self, wc: Wc, sq_free_to: u32) {
        self.told.sent.push(Sent { wc, sq_free_to });
    }

    fn recv_completion(&mut self, wc: Wc, solicited: bool) {
        self.told.received.push(Received { wc, solicited });
    }

    fn invalidate(&mut self, rkey: u32) -> bool {
        let ours = |entry: &KeyEntry| window::may_invalidate(entry, self.qpn);
        self.keys.get(&rkey).is_some_and(ours) && self.keys.remove(&rkey).is_some()
    }

    fn event(&mut self, event: AsyncEventType) {
        self.told.events.push(event);
    }

    fn has_on_demand(&self) -> bool {
        self.paged.is_some()
    }

    fn access_pages(&mut self, region: &KeyEntry, span: &Span, side: Side) -> u64 {
        match &mut self.paged {
            Some(paged) => paged.access(region.key, span, self.qpn, side),
            None => span.bytes,
        }
    }

    fn hold_fault_nak(&mut self, _is_read: bool) -> Option<u64> {
        self.paged.as_mut()?.hold_nak(self.qpn)
    }
}
