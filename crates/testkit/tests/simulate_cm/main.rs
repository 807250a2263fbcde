//! The connection manager in random orders of events: two hosts send random commands over a network
//! that loses, repeats and reorders messages. Oracles check the events that each owner gets.
//!
//! `RDMALAB_SEEDS=N` plays that number of seeds, `RDMALAB_SEED=N cargo test -p rdmalab-testkit
//! --test simulate_cm replay -- --nocapture` plays one and prints what happened.

mod cases;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use rdmalab_engine::cm::{CommId, Config, ConnectionState, Event, Manager, Output};
use rdmalab_random::Random;
use rdmalab_testing::{only_seed, play_each, regressions, seeds};
use rdmalab_wire::cm::{IpHeader, Mad, Message, Path, Rej, Rep, Req, SidrRep, SidrReq, reason};
use rdmalab_wire::ids::{Psn, Qpn};

const SEEDS: u64 = 2_000;
/// Seeds that once found a bug: none of the 120 000 played so far.
const REGRESSIONS: &[u64] = &[];
const SERVICE: u64 = 0x0106_1c06;
const DATAGRAMS: u64 = 0x0111_1c06;
const BACKLOG: usize = 8;
const STEPS: usize = 300;
/// How often the manager retransmits a message.
const MAX_CM_RETRIES: u8 = 15;

/// The events of a connection that its owner has seen, as a state that allows certain next events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Asked,
    Requested,
    Replied,
    Accepted,
    Established,
    Disconnecting,
    Disconnected,
    Over,
}

struct Host {
    cm: Manager<usize>,
    seen: BTreeMap<CommId, Seen>,
    /// Requests whose event the owner has not looked at yet, with their service.
    unseen: BTreeMap<CommId, u64>,
    /// The peer's id of each connection, from its REQ or REP.
    peers: BTreeMap<CommId, CommId>,
    /// How often REPs and DREQs of a connection were sent.
    sent: BTreeMap<(CommId, u16), u8>,
    /// Connections that may be established at one end only: a REJ, which gets no answer, was sent
    /// for them, or all copies of their REP or DREQ were lost.
    torn: BTreeSet<CommId>,
    /// How many connections have been established.
    was_up: u32,
}

impl Host {
    fn new(cm: Manager<usize>) -> Self {
        Self {
            cm,
            seen: BTreeMap::new(),
            unseen: BTreeMap::new(),
            peers: BTreeMap::new(),
            sent: BTreeMap::new(),
            torn: BTreeSet::new(),
            was_up: 0,
        }
    }
}

struct World {
    random: Random,
    hosts: Vec<Host>,
    /// Messages under way: arrival time, sender, receiver, message.
    wire: Vec<(u64, usize, usize, Mad)>,
    now_ns: u64,
    next_qpn: u32,
    is_faulty: bool,
    /// How many established ends were compared with the other end.
    compared: u32,
    is_tracing: bool,
    trace: VecDeque<String>,
}

fn config(host: usize, first: u32) -> Config {
    Config {
        ca_guid: 0x0200_0000_0000_0000 + host as u64,
        id_base: (host as u32 + 1) << 20,
        id_mask: 0xf_ffff,
        first_id: first,
        max_connections: 64,
    }
}

fn req(qpn: u32) -> Req {
    Req {
        local_id: 0,
        service_id: SERVICE,
        ca_guid: 0,
        qkey: 0,
        qpn: Qpn::new(qpn),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: 10,
        service_type: 0,
        flow_control: false,
        starting_psn: Psn::new(qpn * 3),
        local_response_timeout: 10,
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: 3,
        rnr_retry_count: 7,
        max_cm_retries: MAX_CM_RETRIES,
        srq: false,
        extended_transport: 0,
        path: Path { ack_timeout: 9, ..Path::default() },
        private_data: [qpn as u8; Req::PRIVATE_BYTES],
    }
}

fn rep(qpn: u32, ca_guid: u64) -> Rep {
    Rep {
        local_id: 0,
        remote_id: 0,
        qkey: 0,
        qpn: Qpn::new(qpn),
        starting_psn: Psn::new(qpn * 5),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 15,
        failover: 0,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        ca_guid,
        private_data: [qpn as u8; Rep::PRIVATE_BYTES],
    }
}

fn sidr_rep() -> SidrRep {
    SidrRep {
        request_id: 0,
        status: 0,
        info_length: 0,
        qpn: Qpn::new(77),
        service_id: 0,
        qkey: 0x0123_4567,
        info: [0; SidrRep::INFO_BYTES],
        private_data: [9; SidrRep::PRIVATE_BYTES],
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let host = |host: usize, random: &mut Random| {
            let mut cm = Manager::new(config(host, random.next_u32()));
            cm.listen(SERVICE, BACKLOG);
            cm.listen(DATAGRAMS, BACKLOG);
            Host::new(cm)
        };
        let hosts = vec![host(0, &mut random), host(1, &mut random)];
        Self {
            random,
            hosts,
            wire: Vec::new(),
            now_ns: 1,
            next_qpn: 2,
            is_faulty: true,
            compared: 0,
            is_tracing: false,
            trace: VecDeque::new(),
        }
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.is_tracing {
            let line = format!("{:>10} us  {}", self.now_ns / 1000, text());
            self.trace.push_back(line);
        }
    }

    /// Sends the messages and delivers the events of a host's manager.
    fn drain(&mut self, at: usize) {
        while let Some(output) = self.hosts[at].cm.output() {
            match output {
                Output::Send { to, mad } => self.send(at, to, *mad),
                Output::Tell(event) => self.take_event(at, event),
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, mad: Mad) {
        self.note(|| format!("{from} -> {to}  {}", mad.message.name()));
        self.count(from, to, &mad);
        let copies = match self.is_faulty {
            true if self.random.chance(200) => 0,
            true if self.random.chance(150) => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let late = if self.is_faulty { self.random.below(20_000_000) } else { 1_000 };
            self.wire.push((self.now_ns + 1 + late, from, to, mad.clone()));
        }
    }

    /// Records messages after which the ends of a connection may disagree.
    fn count(&mut self, from: usize, to: usize, mad: &Mad) {
        let id = match &mad.message {
            Message::Rej(rej) => {
                self.hosts[from].torn.insert(CommId(rej.local_id));
                self.hosts[to].torn.insert(CommId(rej.remote_id));
                return;
            }
            Message::Rep(rep) => CommId(rep.local_id),
            Message::Dreq(dreq) => CommId(dreq.local_id),
            _ => return,
        };
        let host = &mut self.hosts[from];
        let sent = host.sent.entry((id, mad.message.attribute())).or_default();
        *sent += 1;
        if *sent > MAX_CM_RETRIES {
            host.torn.insert(id);
        }
    }

    /// Delivers an event to its owner and checks that the owner's state allows it.
    fn take_event(&mut self, at: usize, event: Event<usize>) {
        self.note(|| format!("{at} gets {event:.60?}"));
        let host = &mut self.hosts[at];
        let before = |host: &Host, id: &CommId| host.seen.get(id).copied();
        match event {
            Event::Request { id, req, .. } => {
                assert_eq!(before(host, &id), None, "a request for a known connection");
                assert_eq!(req.private_data[0], req.qpn.get() as u8, "another's private data");
                host.seen.insert(id, Seen::Requested);
                host.unseen.insert(id, SERVICE);
                host.peers.insert(id, CommId(req.local_id));
            }
            Event::SidrRequest { id, req, .. } => {
                assert_eq!(before(host, &id), None);
                assert_eq!(req.private_data[IpHeader::BYTES], 5);
                host.seen.insert(id, Seen::Requested);
                host.unseen.insert(id, DATAGRAMS);
            }
            Event::Reply { id, rep } => {
                assert_eq!(before(host, &id), Some(Seen::Asked), "a reply to nothing, or a second");
                assert_eq!(rep.private_data[0], rep.qpn.get() as u8);
                host.seen.insert(id, Seen::Replied);
                host.peers.insert(id, CommId(rep.local_id));
            }
            Event::SidrReply { id, rep } => {
                assert_eq!(before(host, &id), Some(Seen::Asked));
                assert!(rep.status != 0 || rep.private_data[0] == 9);
                host.seen.insert(id, Seen::Over);
            }
            Event::Established { id } => {
                assert_eq!(before(host, &id), Some(Seen::Accepted), "established, not accepted");
                host.seen.insert(id, Seen::Established);
                host.was_up += 1;
            }
            Event::Rejected { id, .. } | Event::Unreachable { id } => {
                let seen = before(host, &id);
                let may = [Seen::Asked, Seen::Requested, Seen::Replied, Seen::Accepted];
                assert!(seen.is_some_and(|seen| may.contains(&seen)), "refused while {seen:?}");
                host.seen.insert(id, Seen::Over);
            }
            Event::Disconnected { id, .. } => {
                let seen = before(host, &id);
                // A DREQ may overtake the RTU that was sent before it.
                let may = [Seen::Replied, Seen::Accepted, Seen::Established, Seen::Disconnecting];
                assert!(seen.is_some_and(|seen| may.contains(&seen)), "ended while {seen:?}");
                host.seen.insert(id, Seen::Disconnected);
            }
            Event::TimewaitExit { id } => {
                let seen = before(host, &id);
                let may = [Seen::Disconnected, Seen::Over];
                assert!(seen.is_some_and(|seen| may.contains(&seen)), "left while {seen:?}");
                host.seen.insert(id, Seen::Over);
            }
        }
    }

    /// A host issues a random command, whether its connection allows it or not.
    fn act(&mut self) {
        let at = self.random.below(2) as usize;
        let (now_ns, peer) = (self.now_ns, 1 - at);
        let ids: Vec<CommId> = self.hosts[at].seen.keys().copied().collect();
        if ids.is_empty() || self.random.chance(250) {
            self.begin(at, peer);
            return;
        }
        let id = self.random.pick(&ids);
        let qpn = self.draw_qpn();
        let choice = self.random.below(9);
        self.note(|| format!("{at} does {choice} to {id:?}"));
        let host = &mut self.hosts[at];
        let guid = host.cm.guid();
        match choice {
            0 | 1 => {
                if host.cm.accept(now_ns, id, rep(qpn, guid)).is_ok() {
                    host.seen.insert(id, Seen::Accepted);
                    host.unseen.remove(&id);
                }
                if host.cm.answer_service(id, sidr_rep()).is_ok() {
                    host.seen.insert(id, Seen::Over);
                    host.unseen.remove(&id);
                }
            }
            2 | 3 => {
                if host.cm.establish(id).is_ok() {
                    host.seen.insert(id, Seen::Established);
                    host.was_up += 1;
                }
            }
            4 => {
                if host.cm.reject(id, reason::CONSUMER, [0; Rej::PRIVATE_BYTES]).is_ok() {
                    host.seen.insert(id, Seen::Over);
                    host.unseen.remove(&id);
                }
            }
            5 => {
                if host.cm.disconnect(now_ns, id).is_ok()
                    && host.seen.get(&id) == Some(&Seen::Established)
                {
                    host.seen.insert(id, Seen::Disconnecting);
                }
            }
            6 => {
                let _may_be_impossible = host.cm.delay(id, 8);
            }
            7 => {
                host.cm.take_request(id);
                host.unseen.remove(&id);
            }
            _ => {
                host.cm.destroy(now_ns, id);
                host.seen.remove(&id);
                host.unseen.remove(&id);
            }
        }
        self.drain(at);
        self.waits_as_told(at);
    }

    /// The backlog counts exactly the requests that the owner has not looked at.
    fn waits_as_told(&self, at: usize) {
        for service in [SERVICE, DATAGRAMS] {
            let host = &self.hosts[at];
            let unseen = host.unseen.values().filter(|of| **of == service).count();
            assert_eq!(host.cm.waiting(service), unseen, "host {at}, service {service:#x}");
        }
    }

    /// A queue pair number, mostly a new one.
    fn draw_qpn(&mut self) -> u32 {
        self.next_qpn += 1;
        if self.random.chance(100) {
            2 + self.random.below(self.next_qpn.into()) as u32
        } else {
            self.next_qpn
        }
    }

    fn begin(&mut self, at: usize, peer: usize) {
        let (now_ns, qpn) = (self.now_ns, self.draw_qpn());
        let mut req = req(qpn);
        req.ca_guid = self.hosts[at].cm.guid();
        let is_datagram = self.random.chance(200);
        let host = &mut self.hosts[at];
        let asked = if is_datagram {
            let private_data = [5; SidrReq::PRIVATE_BYTES];
            let req = SidrReq { request_id: 0, pkey: 0xffff, service_id: DATAGRAMS, private_data };
            host.cm.ask_service(now_ns, peer, req, 5_000_000)
        } else {
            host.cm.connect(now_ns, peer, req)
        };
        if let Ok(id) = asked {
            assert_eq!(host.seen.insert(id, Seen::Asked), None, "an identifier was given twice");
        }
        self.drain(at);
    }

    /// Advances time to the next arrival or deadline, at most by `limit_ns`.
    fn go_on(&mut self, limit_ns: u64) {
        let arrival = self.wire.iter().map(|(at, ..)| *at).min();
        let timers = self.hosts.iter().filter_map(|host| host.cm.next_deadline_ns()).min();
        let next = arrival.into_iter().chain(timers).min().unwrap_or(u64::MAX);
        self.now_ns = next.clamp(self.now_ns, self.now_ns + limit_ns);
        let (due, later) =
            std::mem::take(&mut self.wire).into_iter().partition(|m| m.0 <= self.now_ns);
        self.wire = later;
        let due: Vec<(u64, usize, usize, Mad)> = due;
        for (_, from, to, mad) in due {
            // Encoded and parsed again, so that only what the wire format carries arrives.
            let mad = Mad::parse(&mad.to_bytes()).expect("a datagram of ours");
            self.hosts[to].cm.receive(self.now_ns, from, mad);
            self.drain(to);
        }
        for at in 0..2 {
            self.hosts[at].cm.tick(self.now_ns);
            self.drain(at);
        }
    }

    fn play(&mut self) {
        for _ in 0..STEPS {
            if self.random.chance(400) {
                self.act();
            } else {
                let limit_ns = 1 + self.random.below(30_000_000);
                self.go_on(limit_ns);
            }
        }
        self.heal();
    }

    /// Ends the faults; every connection must come to rest in bounded time.
    fn heal(&mut self) {
        self.is_faulty = false;
        for _ in 0..20_000 {
            if self.wire.is_empty()
                && self.hosts.iter().all(|host| host.cm.next_deadline_ns().is_none())
            {
                break;
            }
            self.go_on(u64::MAX / 4 - self.now_ns.min(1 << 60));
        }
        for at in 0..2 {
            assert_eq!(self.hosts[at].cm.next_deadline_ns(), None, "host {at} never rests");
            self.at_rest(at);
            self.compared += self.agrees(at);
            self.waits_as_told(at);
        }
        for at in 0..2 {
            let ids: Vec<CommId> = self.hosts[at].seen.keys().copied().collect();
            for id in ids {
                self.hosts[at].cm.destroy(self.now_ns, id);
            }
            self.hosts[at].seen.clear();
            self.hosts[at].unseen.clear();
            self.drain(at);
        }
        for _ in 0..20_000 {
            self.go_on(1 << 40);
            if self.hosts.iter().all(|host| host.cm.is_empty()) {
                return;
            }
            // Also destroy the requests that arrived meanwhile.
            for at in 0..2 {
                let ids: Vec<CommId> = self.hosts[at].seen.keys().copied().collect();
                for id in ids {
                    self.hosts[at].cm.destroy(self.now_ns, id);
                    self.hosts[at].seen.remove(&id);
                    self.hosts[at].unseen.remove(&id);
                }
                self.drain(at);
            }
        }
        panic!("connections are left: {} and {}", self.hosts[0].cm.len(), self.hosts[1].cm.len());
    }

    /// Checks that connections established here are established at the other host: a DREQ from
    /// there would have been retransmitted until it arrived. Returns how many were compared.
    fn agrees(&self, at: usize) -> u32 {
        let (here, there) = (&self.hosts[at], &self.hosts[1 - at]);
        let up =
            here.seen.keys().filter(|id| here.cm.state(**id) == Some(ConnectionState::Established));
        let mut compared = 0;
        for id in up {
            let Some(peer) = here.peers.get(id) else { panic!("{id:?} is up without a peer") };
            if here.torn.contains(id) || there.torn.contains(peer) {
                continue;
            }
            let state = there.cm.state(*peer);
            assert_eq!(
                state,
                Some(ConnectionState::Established),
                "{peer:?}, the peer of {at}'s {id:?}"
            );
            compared += 1;
        }
        compared
    }

    /// With no message under way and no timer armed, each connection must wait for its owner.
    fn at_rest(&self, at: usize) {
        for (id, seen) in &self.hosts[at].seen {
            let state = self.hosts[at].cm.state(*id);
            let rests = matches!(
                state,
                Some(
                    ConnectionState::Idle
                        | ConnectionState::ReqReceived
                        | ConnectionState::MraReqSent
                        | ConnectionState::RepReceived
                        | ConnectionState::MraRepSent
                        | ConnectionState::Established
                        | ConnectionState::DreqReceived
                        | ConnectionState::SidrReqReceived
                )
            );
            assert!(rests, "host {at} rests in {state:?}, its owner saw {seen:?}");
            if state == Some(ConnectionState::Established) {
                assert_eq!(*seen, Seen::Established, "up, and the owner does not know");
            }
        }
    }
}

/// Plays a seed; returns how many ends of connections were compared.
fn play(seed: u64) -> u32 {
    let mut world = World::new(seed);
    if catch_unwind(AssertUnwindSafe(|| world.play())).is_err() {
        panic!(
            "seed {seed}: replay with\n  RDMALAB_SEED={seed} cargo test -p rdmalab-testkit --test \
             simulate_cm replay -- --nocapture"
        );
    }
    world.compared
}

#[test]
fn random_orders() {
    let compared = AtomicU32::new(0);
    play_each(regressions(REGRESSIONS).chain(seeds(SEEDS)), |seed| {
        compared.fetch_add(play(seed), Ordering::Relaxed);
    });
    let compared = compared.into_inner();
    assert!(compared > 0 || only_seed().is_some(), "no connection was up at the end of any seed");
}

#[test]
fn replay() {
    let mut world = World::new(only_seed().unwrap_or(0));
    world.is_tracing = true;
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.play())) {
        world.trace.iter().for_each(|line| println!("{line}"));
        std::panic::resume_unwind(panic);
    }
}
