//! A simulated device: memory, keys, queues, and what its programs were told.

use std::collections::{BTreeMap, VecDeque};

use super::drive::Step;
use super::link::TrainData;
use super::memory::Memory;
use rdmalab_engine::backend::QpInit;
use rdmalab_engine::mr::{Backing, KeyEntry, KeyKind};
use rdmalab_engine::qp::recv_queue::{HeldRecv, SharedRecvQueue, TakeRecv};
use rdmalab_engine::qp::{Env, Qp};
use rdmalab_engine::vocab::*;
use rdmalab_wire::ids::{PathMtu, Qpn};

/// The protection domain of everything, unless a test says otherwise.
pub const PD: PdId = PdId(7);

/// A completion of a send, as it went into the CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The completion.
    pub wc: Wc,
    /// Up to where the send queue is free when this has been polled.
    pub sq_free_to: u32,
}

/// A completion of a receive, as it went into the CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The completion.
    pub wc: Wc,
    /// Whether it raises a solicited event.
    pub solicited: bool,
}

/// What the program of a queue pair was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) sent: Vec<Sent>,
    pub(super) received: Vec<Received>,
    pub(super) events: Vec<AsyncEventType>,
}

/// A queue pair with what its driver keeps beside it.
#[derive(Debug)]
pub struct SimQp {
    /// The engine's part.
    pub qp: Qp,
    /// Up to where the send queue is free, as polled.
    pub freed: u32,
    pub(super) told: Told,
    pub(super) polled_sent: usize,
    pub(super) polled_received: usize,
    /// What arrived and was not accepted yet.
    pub(super) inbox: VecDeque<TrainData>,
    /// Accepted, and to be retired later.
    pub(super) steps: Vec<Step>,
    /// When the adapter reads the send WQEs that were posted; `None`: it has.
    pub(super) fetch_sends_at_ns: Option<u64>,
    /// When the adapter reads the receive WQEs that were posted; `None`: it has.
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

    /// Whether nothing that arrived waits.
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
    /// The shared receive queue of those QPs that were made for it.
    pub srq: Option<SharedRecvQueue>,
    /// How often the SRQ's limit event was raised.
    pub srq_limit_events: u32,
    /// When the adapter reads what was posted to the shared receive queue; `None`: it has.
    pub(super) fetch_shared_at_ns: Option<u64>,
    /// Its queue pairs.
    pub qps: Vec<SimQp>,
    /// Whether the driver tries the engine's short ways for small SENDs first.
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
            qps: Vec::new(),
            short_ways: false,
            index,
            next_key: 0x100 * (index as u32 + 1),
        }
    }

    /// Registers memory; returns the key, which is local and remote.
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
            on_demand: false,
            backing: Backing::default(),
        };
        self.keys.insert(key, entry);
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

    /// A QP and what it sees of the device, borrowed apart.
    pub fn split(&mut self, qp: usize) -> (&mut Qp, DeviceEnv<'_>) {
        let sim = &mut self.qps[qp];
        let env = DeviceEnv {
            qpn: sim.qp.qpn,
            keys: &mut self.keys,
            srq: &mut self.srq,
            srq_limit_events: &mut self.srq_limit_events,
            told: &mut sim.told,
            memory: &mut self.memory,
        };
        (&mut sim.qp, env)
    }

    /// Polls the send CQ of a QP: what is new, in order. Frees send queue slots.
    pub fn poll_sent(&mut self, qp: usize) -> Vec<Sent> {
        let sim = &mut self.qps[qp];
        let new = sim.told.sent[sim.polled_sent..].to_vec();
        sim.polled_sent = sim.told.sent.len();
        if let Some(last) = new.last() {
            sim.freed = last.sq_free_to;
        }
        new
    }

    /// Polls the receive CQ of a QP: what is new, in order.
    pub fn poll_received(&mut self, qp: usize) -> Vec<Received> {
        let sim = &mut self.qps[qp];
        let new = sim.told.received[sim.polled_received..].to_vec();
        sim.polled_received = sim.told.received.len();
        new
    }
}

/// What the engine and the driver may ask of a device.
pub struct DeviceEnv<'a> {
    qpn: Qpn,
    pub(super) keys: &'a mut BTreeMap<u32, KeyEntry>,
    srq: &'a mut Option<SharedRecvQueue>,
    srq_limit_events: &'a mut u32,
    told: &'a mut Told,
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
        let ours = |entry: &KeyEntry| {
            entry.kind == KeyKind::WindowType2 && entry.qpn == self.qpn && entry.pd == PD
        };
        self.keys.get(&rkey).is_some_and(ours) && self.keys.remove(&rkey).is_some()
    }

    fn event(&mut self, event: AsyncEventType) {
        self.told.events.push(event);
    }
}
