//! Hand-written cases: each plays one order of events without faults.

use rdmalab_engine::cm::{CommId, Manager};
use rdmalab_wire::cm::{Rej, reason};

use crate::{BACKLOG, SERVICE, Seen, World, config, rep, req};

/// Two hosts without faults.
fn calm() -> World {
    let mut world = World::new(7);
    world.is_faulty = false;
    world
}

impl World {
    fn settle(&mut self) {
        for _ in 0..20 {
            self.go_on(1_000_000);
        }
    }

    /// Host 0 sends host 1 a REQ for a connection with the given queue pair.
    fn ask(&mut self, qpn: u32) -> CommId {
        let mut req = req(qpn);
        req.ca_guid = self.hosts[0].cm.guid();
        let id = self.hosts[0].cm.connect(self.now_ns, 1, req).unwrap();
        self.hosts[0].seen.insert(id, Seen::Asked);
        self.drain(0);
        id
    }

    /// As `ask`, but returns the connection's id at host 0 and at host 1, after the REQ arrived.
    fn asked(&mut self) -> (CommId, CommId) {
        self.next_qpn += 1;
        let active = self.ask(self.next_qpn);
        self.settle();
        let passive = *self.hosts[1].unseen.keys().next().expect("the request came");
        (active, passive)
    }

    /// A connection from host 0 to host 1; returns its id at both.
    fn connected(&mut self) -> (CommId, CommId) {
        let (active, passive) = self.asked();
        let qpn = self.next_qpn;
        let (now_ns, guid) = (self.now_ns, self.hosts[1].cm.guid());
        self.hosts[1].cm.accept(now_ns, passive, rep(qpn + 1000, guid)).unwrap();
        self.hosts[1].seen.insert(passive, Seen::Accepted);
        self.hosts[1].unseen.remove(&passive);
        self.drain(1);
        self.settle();
        self.hosts[0].cm.establish(active).unwrap();
        self.hosts[0].seen.insert(active, Seen::Established);
        self.drain(0);
        self.settle();
        assert_eq!(self.hosts[1].seen[&passive], Seen::Established);
        (active, passive)
    }
}

#[test]
fn both_may_ask_for_the_end_at_once() {
    let mut world = calm();
    let (active, passive) = world.connected();
    let now_ns = world.now_ns;
    world.hosts[0].cm.disconnect(now_ns, active).unwrap();
    world.hosts[1].cm.disconnect(now_ns, passive).unwrap();
    for (at, id) in [(0, active), (1, passive)] {
        world.hosts[at].seen.insert(id, Seen::Disconnecting);
        world.drain(at);
    }
    world.settle();
    for (at, id) in [(0, active), (1, passive)] {
        assert_eq!(world.hosts[at].seen[&id], Seen::Over, "host {at}");
    }
}

#[test]
fn a_stale_queue_pair_is_refused() {
    let mut world = calm();
    let (active, passive) = world.connected();
    // Host 0's process ended without disconnecting, and a new process got the same queue pair.
    world.hosts[0].seen.remove(&active);
    world.hosts[0].cm = Manager::new(config(0, 9));
    world.is_tracing = true;
    let id = world.ask(world.next_qpn);
    world.settle();
    assert_eq!(world.hosts[0].seen[&id], Seen::Over);
    assert!(world.trace.iter().any(|line| line.contains("REJ")), "{:?}", world.trace);
    // The old connection ends at host 1 as well, and its queue pair can be connected again.
    assert_eq!(world.hosts[1].seen[&passive], Seen::Over);
    world.next_qpn -= 1;
    world.connected();
}

/// The same for the active side: the peer accepts with a queue pair that is still connected.
#[test]
fn a_stale_reply_is_refused() {
    let mut world = calm();
    let (active, passive) = world.connected();
    world.hosts[1].seen.remove(&passive);
    world.hosts[1].cm = Manager::new(config(1, 9));
    world.hosts[1].cm.listen(SERVICE, BACKLOG);
    let (id, asked) = world.asked();
    let (now_ns, guid) = (world.now_ns, world.hosts[1].cm.guid());
    let again = rep(world.next_qpn - 1 + 1000, guid);
    world.hosts[1].cm.accept(now_ns, asked, again.clone()).unwrap();
    world.hosts[1].seen.insert(asked, Seen::Accepted);
    world.hosts[1].unseen.clear();
    world.drain(1);
    world.settle();
    assert_eq!(world.hosts[1].seen[&asked], Seen::Over);
    assert_eq!(world.hosts[0].seen[&active], Seen::Over);
    // The REQ is still unanswered and is retransmitted; by now the queue pair is free.
    assert_eq!(world.hosts[0].seen[&id], Seen::Asked);
    while world.hosts[1].unseen.is_empty() {
        world.settle();
    }
    let asked = *world.hosts[1].unseen.keys().next().unwrap();
    let now_ns = world.now_ns;
    world.hosts[1].cm.accept(now_ns, asked, again).unwrap();
    world.hosts[1].seen.insert(asked, Seen::Accepted);
    world.hosts[1].unseen.clear();
    world.drain(1);
    world.settle();
    assert_eq!(world.hosts[0].seen[&id], Seen::Replied);
}

#[test]
fn a_backlog_is_a_bound() {
    let mut world = calm();
    for qpn in 0..BACKLOG as u32 + 3 {
        world.ask(100 + qpn);
    }
    world.settle();
    assert_eq!(world.hosts[1].seen.len(), BACKLOG);
    let refused = world.hosts[0].seen.values().filter(|seen| **seen == Seen::Over).count();
    assert_eq!(refused, 3);
}

/// A rejected request leaves the backlog, even while its owner keeps the id.
#[test]
fn what_was_refused_leaves_the_backlog() {
    let mut world = calm();
    for qpn in 0..2 * BACKLOG as u32 {
        let id = world.ask(100 + qpn);
        world.settle();
        let asked = *world.hosts[1].unseen.keys().next().expect("the request came");
        let nothing = [0; Rej::PRIVATE_BYTES];
        world.hosts[1].cm.reject(asked, reason::INVALID_SERVICE_ID, nothing).unwrap();
        world.hosts[1].unseen.clear();
        world.hosts[1].seen.insert(asked, Seen::Over);
        world.drain(1);
        world.settle();
        assert_eq!(world.hosts[0].seen[&id], Seen::Over);
    }
    world.waits_as_told(1);
    world.connected();
}

#[test]
fn connections_are_bounded() {
    let mut world = calm();
    let mut made = 0;
    while world.hosts[0].cm.connect(1, 1, req(200 + made)).is_ok() {
        made += 1;
    }
    assert_eq!(made, 64);
}

#[test]
fn a_dead_peer_ends_its_connections() {
    let mut world = calm();
    let (active, passive) = world.connected();
    let now_ns = world.now_ns;
    world.hosts[1].cm.peer_gone(now_ns, &0);
    world.drain(1);
    assert_eq!(world.hosts[1].seen[&passive], Seen::Disconnected);
    // Its queue pair is free as well: another process may get the same number at once.
    world.hosts[0].seen.remove(&active);
    world.hosts[0].cm = Manager::new(config(0, 9));
    world.next_qpn -= 1;
    world.connected();
}
