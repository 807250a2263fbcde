//! A link that carries trains, with the faults of real networks.

use std::collections::BTreeMap;

use super::injector::FaultInjector;
use super::step::TrainData;
use rdmalab_engine::train::{TrainFlags, TrainKind};
use rdmalab_link::expand;
use rdmalab_random::Random;
use rdmalab_wire::ids::PathMtu;

/// How often each fault occurs, in a thousand. A corrupted packet fails the check of its invariant
/// CRC, and the receiver drops it: that is [`Faults::drop`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Lost or corrupted.
    pub drop: u32,
    /// Delivered twice.
    pub duplicate: u32,
    /// Delayed, so that later packets arrive first.
    pub reorder: u32,
    /// Cut into smaller trains, often single packets; the other faults then strike each of them.
    pub split: u32,
    /// Nothing passes.
    pub partitioned: bool,
}

impl Faults {
    /// Whether the order of packets may change, or one may come twice.
    pub fn disorder(&self) -> bool {
        self.duplicate > 0 || self.reorder > 0
    }

    /// Whether nothing is ever lost, repeated or overtaken.
    pub fn lossless(&self) -> bool {
        !self.disorder() && self.drop == 0 && !self.partitioned
    }
}

/// Time that a train takes, ns, without faults.
const LATENCY_NS: u64 = 1_000;

/// The link between all devices of a world.
#[derive(Debug)]
pub struct Link {
    /// The faults that apply from now on.
    pub faults: Faults,
    /// Rules and quirks, which see each packet before the other faults.
    pub injector: Option<FaultInjector>,
    /// Sent so far.
    pub sent: u64,
    /// A copy of every train sent, if a test wants it.
    pub kept: Option<Vec<(TrainData, PathMtu)>>,
    random: Random,
    on_the_way: BTreeMap<(u64, u64), TrainData>,
    number: u64,
    /// Arrival time of the newest train sent in order, by the devices of its sender and receiver.
    newest_ns: BTreeMap<(u32, u32), u64>,
}

impl Link {
    /// A link without faults yet; `random` decides when they occur.
    pub fn new(random: Random) -> Self {
        Link {
            faults: Faults::default(),
            injector: None,
            sent: 0,
            kept: None,
            random,
            on_the_way: BTreeMap::new(),
            number: 0,
            newest_ns: BTreeMap::new(),
        }
    }

    /// Sends a train at `now_ns`.
    pub fn send(&mut self, now_ns: u64, train_data: TrainData, mtu: PathMtu) {
        self.sent += 1;
        if let Some(kept) = &mut self.kept {
            kept.push((train_data.clone(), mtu));
        }
        if self.injector.is_some() {
            for index in 0..expand::packets_of(&train_data.train) {
                let packet = match train_data.train.kind {
                    TrainKind::ReadRequest => train_data.clone(),
                    _ => cut(&train_data, index, 1, mtu),
                };
                let passed = self.injector.as_mut().and_then(|r| r.pass(now_ns, packet, mtu));
                if let Some(packet) = passed {
                    self.send_one(now_ns, packet);
                }
            }
            return;
        }
        let one = train_data.train.packets == 1 || train_data.train.kind == TrainKind::ReadRequest;
        if one || !self.random.chance(self.faults.split) {
            return self.send_one(now_ns, train_data);
        }
        let mut start = 0;
        while start < train_data.train.packets {
            let most = (train_data.train.packets - start) as u64;
            let count =
                if self.random.chance(500) { 1 } else { self.random.between(1, most) as u32 };
            self.send_one(now_ns, cut(&train_data, start, count, mtu));
            start += count;
        }
    }

    fn send_one(&mut self, now_ns: u64, train_data: TrainData) {
        if self.faults.partitioned || self.random.chance(self.faults.drop) {
            return;
        }
        if self.random.chance(self.faults.duplicate) {
            let late_ns = self.random.between(1, 40_000);
            self.deliver_at(now_ns + LATENCY_NS + late_ns, train_data.clone());
        }
        if self.random.chance(self.faults.reorder) {
            let late_ns = self.random.between(1, 40_000);
            return self.deliver_at(now_ns + LATENCY_NS + late_ns, train_data);
        }
        self.deliver_in_order(now_ns, train_data);
    }

    fn deliver_in_order(&mut self, now_ns: u64, train_data: TrainData) {
        let way = (train_data.train.src_qpn.get() >> 8, train_data.train.dst_qpn.get() >> 8);
        let newest_ns = self.newest_ns.entry(way).or_default();
        let at_ns = (now_ns + LATENCY_NS + self.random.below(200)).max(*newest_ns);
        *newest_ns = at_ns;
        self.deliver_at(at_ns, train_data);
    }

    fn deliver_at(&mut self, at_ns: u64, train_data: TrainData) {
        self.number += 1;
        self.on_the_way.insert((at_ns, self.number), train_data);
    }

    /// When the next train arrives.
    pub fn next_ns(&self) -> Option<u64> {
        let arrives_ns = self.on_the_way.first_key_value().map(|((at_ns, _), _)| *at_ns);
        let due_ns = self.injector.as_ref().and_then(FaultInjector::next_ns);
        [arrives_ns, due_ns].into_iter().flatten().min()
    }

    /// Takes the next train that has arrived by `now_ns`.
    pub fn receive(&mut self, now_ns: u64) -> Option<TrainData> {
        while let Some(train_data) =
            self.injector.as_mut().and_then(|injector| injector.take_due(now_ns))
        {
            self.deliver_in_order(now_ns, train_data);
        }
        let (at_ns, _) = self.on_the_way.first_key_value()?.0;
        if *at_ns > now_ns {
            return None;
        }
        self.on_the_way.pop_first().map(|(_, train_data)| train_data)
    }
}

/// Packets `start .. start + count` of a train, as a train.
pub fn cut(train_data: &TrainData, start: u32, count: u32, mtu: PathMtu) -> TrainData {
    let (first, from) = train_data.train.packet(start, mtu);
    let (last, last_from) = train_data.train.packet(start + count - 1, mtu);
    let mut train = first;
    train.packets = count;
    train.flags = TrainFlags(first.flags.0 & TrainFlags::FIRST | last.flags.0 & !TrainFlags::FIRST);
    train.payload_bytes = last_from + last.payload_bytes - from;
    let range = from as usize..(from + train.payload_bytes) as usize;
    TrainData { train, payload: train_data.payload[range].to_vec() }
}
