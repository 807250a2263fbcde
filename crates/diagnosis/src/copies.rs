//! Packets that were captured twice: by two interfaces, or by both ends.
//!
//! A copy at another place of capture is told by counting: the n-th time that a place sees a packet
//! is a copy if another place has seen it n times. Copies that one place has, without naming the
//! interface, are told from repetitions only if nearly all packets come in twos.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};

use rdmalab_trace::{Address, Seen};
use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::ids::Psn;

/// Packets that are remembered.
pub const REMEMBERED_MAX: usize = 1 << 16;
/// RNR NAKs, and requests after them, that are remembered.
const WAITS_MAX: usize = 1 << 12;
/// How long a packet of another place of capture may be remembered.
const ELSEWHERE_NS: u64 = 1_000_000_000;
/// Two interfaces of one host see a packet within this time.
const HERE_NS: u64 = 100_000;
/// Places of capture that are told apart for one packet.
const PLACES_MAX: usize = 8;

/// Where a packet was captured: the file and the interface.
pub type CapturePoint = (usize, u32);

struct Known {
    last_ns: u64,
    /// How often each place saw it.
    counts: Vec<(CapturePoint, u32)>,
    /// The time of the last one whose copy has not come, and where.
    open: Option<(CapturePoint, u64)>,
}

/// What is remembered to find copies.
#[derive(Default)]
pub struct Copies {
    known: HashMap<u64, Known>,
    order: VecDeque<(u64, u64)>,
    packets: u64,
    twins: u64,
    /// Whether nearly all packets of one place come in twos.
    is_doubled: bool,
    waits: Waits,
    /// The first place, and whether there are others.
    place: Option<CapturePoint>,
    has_places: bool,
    /// Whether packets of one of several places were forgotten too soon.
    is_forgetful: bool,
}

/// RNR NAKs with their sender, receiver and PSN, and the requests that were repeated after them.
/// With a short RNR timer both come again within the time in which two interfaces see a packet.
#[derive(Default)]
struct Waits {
    naks: HashMap<(Address, Address, Psn), u64>,
    repeated: HashMap<(Address, Address, Psn), u64>,
}

impl Waits {
    /// A packet comes again whose equal came `then`. Whether an RNR NAK explains that.
    fn explain(&mut self, packet: &Seen, then: u64) -> bool {
        let psn = packet.headers.bth.psn;
        let back = (packet.to, packet.from, psn);
        let since = |at: Option<&u64>| at.is_some_and(|at| *at > then);
        if is_rnr_nak(packet) {
            return since(self.repeated.get(&back));
        }
        let explains = since(self.naks.get(&back));
        if explains {
            insert(&mut self.repeated, (packet.from, packet.to, psn), packet.at_ns);
        }
        explains
    }

    fn note(&mut self, packet: &Seen) {
        if is_rnr_nak(packet) {
            let key = (packet.from, packet.to, packet.headers.bth.psn);
            insert(&mut self.naks, key, packet.at_ns);
        }
    }
}

fn is_rnr_nak(packet: &Seen) -> bool {
    packet.headers.aeth.is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::RnrNak(_)))
}

/// Inserts without growing beyond a bound: what is too old to explain anything goes first.
fn insert<K: Hash + Eq>(map: &mut HashMap<K, u64>, key: K, at_ns: u64) {
    if map.len() >= WAITS_MAX {
        map.retain(|_, then| at_ns.saturating_sub(*then) <= HERE_NS);
    }
    if map.len() < WAITS_MAX || map.contains_key(&key) {
        map.insert(key, at_ns);
    }
}

/// What tells a packet from others: everything but its time and place.
fn key(packet: &Seen) -> u64 {
    let mut hasher = DefaultHasher::new();
    (packet.from, packet.to, packet.headers, packet.payload_bytes, packet.crc).hash(&mut hasher);
    hasher.finish()
}

impl Copies {
    /// For the second pass, with what the first one found.
    #[must_use]
    pub fn again(&self) -> Self {
        // A capture of a few packets may have pairs by chance.
        let is_doubled = self.packets >= 4 && self.twins * 20 >= self.packets * 9;
        Self { is_doubled, ..Self::default() }
    }

    /// Whether nearly all packets of one place come in twos.
    #[must_use]
    pub fn is_doubled(&self) -> bool {
        self.is_doubled
    }

    /// Whether there were more packets of several places than are remembered.
    #[must_use]
    pub fn is_forgetful(&self) -> bool {
        self.is_forgetful
    }

    /// Whether a packet was captured before.
    pub fn is_copy(&mut self, file: usize, packet: &Seen) -> bool {
        let (key, now) = (key(packet), packet.at_ns);
        let place = (file, packet.interface);
        self.packets += 1;
        self.has_places |= *self.place.get_or_insert(place) != place;
        self.forget(now);
        let known = self.known.entry(key).or_insert_with(|| {
            self.order.push_back((now, key));
            Known { last_ns: now, counts: Vec::new(), open: None }
        });
        known.last_ns = now;
        let before = known.open.filter(|(at, _)| *at == place).map(|(_, then)| then);
        let before = before.filter(|then| now.saturating_sub(*then) <= HERE_NS);
        let is_twin = before.is_some_and(|then| !self.waits.explain(packet, then));
        self.waits.note(packet);
        known.open = if is_twin { None } else { Some((place, now)) };
        self.twins += u64::from(is_twin);
        if is_twin && self.is_doubled {
            return true;
        }
        let most = known.counts.iter().filter(|(other, _)| *other != place);
        let elsewhere = most.map(|(_, count)| *count).max().unwrap_or(0);
        let at = known.counts.iter().position(|(other, _)| *other == place);
        let at = at.unwrap_or(known.counts.len());
        if at == PLACES_MAX {
            return true;
        }
        if at == known.counts.len() {
            known.counts.push((place, 0));
        }
        let own = &mut known.counts[at].1;
        *own += 1;
        *own <= elsewhere
    }

    fn forget(&mut self, now: u64) {
        while let Some((then, key)) = self.order.front().copied() {
            let is_full = self.order.len() >= REMEMBERED_MAX;
            if !is_full && now.saturating_sub(then) <= ELSEWHERE_NS {
                break;
            }
            self.order.pop_front();
            self.is_forgetful |=
                self.has_places && is_full && now.saturating_sub(then) <= ELSEWHERE_NS;
            match self.known.get(&key) {
                // Seen again meanwhile: it is remembered from then on.
                Some(known) if !is_full && known.last_ns > then => {
                    self.order.push_back((known.last_ns, key));
                }
                _ => drop(self.known.remove(&key)),
            }
        }
    }
}
