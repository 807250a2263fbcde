//! The adapter of a node, and its queue pairs.

use std::collections::{BTreeMap, VecDeque};

use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::odp;
use rdmalab_engine::qp::recv_queue::SharedRecvQueue;
use rdmalab_engine::qp::{Qp, Tally};
use rdmalab_engine::vocab::AsyncEventType;
use rdmalab_link::quirk::damming::Service;
use rdmalab_wire::ids::Gid;

use crate::bus::Bus;
use crate::channel::Channel;
use crate::completion::CompletionQueue;
use crate::context_cache::ContextCache;
use crate::faults::Faults;
use crate::ids::{QP_BITS, QpId};
use crate::in_flight::{Reads, Writes};
use crate::node_paging::NodePaging;
use crate::noise::Stream;
use crate::packets::Packets;
use crate::parameters::Parameters;
use crate::receive_wqe::WqeReader;
use crate::sending::Sending;
use crate::time::Ps;
use crate::turns::Turns;

/// The lowest number of a queue pair: 0 and 1 are those of the managers.
const FIRST_QP: usize = 2;

/// A queue pair with the state that its adapter keeps for it.
#[derive(Debug)]
pub(crate) struct SimQp {
    pub(crate) qp: Qp,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    pub(crate) srq: Option<usize>,
    pub(crate) pd: usize,
    pub(crate) cookie: u64,
    /// The send queue is free up to this position, by the completions polled so far.
    pub(crate) freed: u32,
    /// What the send engine knows of it.
    pub(crate) sending: Sending,
    /// Position up to which doorbells told of send requests.
    pub(crate) told: u32,
    /// Position up to which the adapter has begun to read send WQEs.
    pub(crate) asked: u32,
    /// Packets that arrived and are not accepted.
    pub(crate) inbox: VecDeque<Inbound>,
    /// The adapter's reads of receive WQEs.
    pub(crate) recv_reader: WqeReader,
    /// The time for which a timer event is scheduled.
    pub(crate) timer: Option<Ps>,
    /// How late its next RNR NAK leaves, which answers a page fault.
    pub(crate) nak_delay: Ps,
    /// The service of a READ that was repeated, by its responder.
    pub(crate) damming: Service<Ps>,
    /// Multicast groups.
    pub(crate) groups: Vec<Gid>,
}

/// Packets that arrived for a queue pair.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// When they may be accepted.
    pub(crate) ready: Ps,
    pub(crate) packets: Box<Packets>,
    /// How many writes have to be in memory before an atomic, once its time has come.
    pub(crate) after_writes: Option<u64>,
    /// Whether fault rules let them through already.
    pub(crate) is_passed: bool,
}

/// A place for a queue pair.
#[derive(Debug, Default)]
pub(crate) struct QpPlace {
    generation: u32,
    qp: Option<Box<SimQp>>,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) queue: SharedRecvQueue,
    pub(crate) reader: WqeReader,
    pub(crate) max_sge: u32,
    pub(crate) cookie: u64,
    pub(crate) users: usize,
    /// Queue pairs that wait for a WQE of it.
    pub(crate) waiting: VecDeque<QpId>,
}

/// The resources of the adapter that everything passes.
#[derive(Debug)]
pub(crate) struct Engines {
    pub(crate) bus: Bus,
    pub(crate) contexts: ContextCache,
    /// Queue pairs that have something to send, in the order of their turns.
    pub(crate) turns: Turns,
    /// The time for which the next turn is scheduled.
    pub(crate) next_turn: Option<Ps>,
    /// When the send engine is free.
    pub(crate) send_free: Ps,
    /// When the receive engine is free.
    pub(crate) receive_free: Ps,
    /// The random delays of messages that are received.
    pub(crate) jitter: Option<Stream>,
}

/// A host with its adapter.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) engines: Engines,
    pub(crate) qps: Vec<QpPlace>,
    /// Free places, the oldest first.
    free_qps: VecDeque<usize>,
    pub(crate) cqs: Vec<Option<CompletionQueue>>,
    pub(crate) srqs: Vec<Option<Srq>>,
    pub(crate) channels: Vec<Option<Channel>>,
    /// Users of each protection domain; `None` when it is freed.
    pub(crate) pds: Vec<Option<usize>>,
    pub(crate) keys: BTreeMap<u32, KeyEntry>,
    /// The region of each bound window, by their keys.
    pub(crate) bindings: BTreeMap<u32, u32>,
    pub(crate) next_key: u32,
    /// Asynchronous events: type and cookie.
    pub(crate) events: VecDeque<(AsyncEventType, u64)>,
    pub(crate) writes: Writes,
    /// The payload that it reads.
    pub(crate) reads: Reads,
    /// Tasks that have not ended.
    pub(crate) tasks: usize,
    /// The word of the program that always shows the present time.
    pub(crate) restamped: Option<u64>,
    /// When it posted a send request last.
    pub(crate) posted: Ps,
    /// Fault rules, if there are some.
    pub(crate) faults: Option<Box<Faults>>,
    pub(crate) paging: NodePaging,
    /// What the queue pairs counted that are gone.
    pub(crate) past: Tally,
}

impl Node {
    pub(crate) fn new(index: usize, parameters: &Parameters) -> Node {
        Node {
            index,
            engines: Engines {
                bus: Bus::new(parameters),
                contexts: ContextCache::new(parameters),
                turns: Turns::default(),
                next_turn: None,
                send_free: Ps::ZERO,
                receive_free: Ps::ZERO,
                jitter: None,
            },
            qps: std::iter::repeat_with(QpPlace::default).take(FIRST_QP).collect(),
            free_qps: VecDeque::new(),
            cqs: Vec::new(),
            srqs: Vec::new(),
            channels: Vec::new(),
            pds: Vec::new(),
            keys: BTreeMap::new(),
            bindings: BTreeMap::new(),
            next_key: 1,
            events: VecDeque::new(),
            writes: Writes::default(),
            reads: Reads::default(),
            tasks: 0,
            restamped: None,
            posted: Ps::ZERO,
            faults: None,
            paging: NodePaging::new(parameters),
            past: Tally::default(),
        }
    }

    /// What happened to pages of its on-demand regions.
    pub(crate) fn page_counters(&self) -> odp::Counters {
        self.paging.pages.totals()
    }

    /// What its queue pairs counted, also those that are gone.
    pub(crate) fn tally(&self) -> Tally {
        let mut all = self.past;
        let there = self.qps.iter().filter_map(|place| place.qp.as_ref());
        there.for_each(|qp| all.add(&qp.qp.tally()));
        all
    }

    /// How many packets fault rules applied to.
    pub(crate) fn disturbed_packets(&self) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.disturbed)
    }

    /// A place for a new queue pair; `None` when there are too many. Numbers are used again as late
    /// as possible, since packets of the queue pair before may be on their way.
    pub(crate) fn place_for_qp(&mut self) -> Option<QpId> {
        let index = if self.qps.len() < 1 << QP_BITS {
            self.qps.push(QpPlace::default());
            self.qps.len() - 1
        } else {
            self.free_qps.pop_front()?
        };
        Some(QpId { node: self.index, index, generation: self.qps[index].generation })
    }

    /// Puts a queue pair into its place.
    pub(crate) fn put_qp(&mut self, id: QpId, qp: Box<SimQp>) {
        let place = &mut self.qps[id.index];
        if place.generation == id.generation {
            place.qp = Some(qp);
        }
    }

    /// Takes a queue pair out of its place for a while; `None` if it was destroyed.
    pub(crate) fn take_qp(&mut self, id: QpId) -> Option<Box<SimQp>> {
        let place = self.qps.get_mut(id.index)?;
        if place.generation == id.generation { place.qp.take() } else { None }
    }

    /// A queue pair; `None` if it was destroyed.
    pub(crate) fn qp(&mut self, id: QpId) -> Option<&mut SimQp> {
        let place = self.qps.get_mut(id.index)?;
        if place.generation == id.generation { place.qp.as_deref_mut() } else { None }
    }

    /// The queue pair with this number.
    pub(crate) fn qp_of_number(&self, qpn: u32) -> Option<QpId> {
        let index = (qpn & ((1 << QP_BITS) - 1)) as usize;
        let place = self.qps.get(index)?;
        let here = qpn >> QP_BITS == self.index as u32 && place.qp.is_some();
        here.then_some(QpId { node: self.index, index, generation: place.generation })
    }

    /// Gives up the place of a queue pair.
    pub(crate) fn free_qp(&mut self, id: QpId) {
        let place = &mut self.qps[id.index];
        place.generation = place.generation.wrapping_add(1);
        place.qp = None;
        self.free_qps.push_back(id.index);
    }

    /// The queue pairs that are attached to a multicast group.
    pub(crate) fn members(&self, group: Gid) -> Vec<QpId> {
        let is_member =
            |place: &QpPlace| place.qp.as_ref().is_some_and(|qp| qp.groups.contains(&group));
        let of = |(index, place): (usize, &QpPlace)| {
            let id = QpId { node: self.index, index, generation: place.generation };
            is_member(place).then_some(id)
        };
        self.qps.iter().enumerate().filter_map(of).collect()
    }
}
