//! Packets leave an adapter, pass the fabric, and arrive.

use rdmalab_wire::ids::Gid;

use crate::booking::{Coming, Flow};
use crate::component::Component;
use crate::event::Event;
use crate::fabric::NextHop;
use crate::ids::{Part, QpId};
use crate::kernel::World;
use crate::packets::{Packets, To};
use crate::span::Span;
use crate::time::Ps;
use crate::timeline::kind_name;
use crate::way::Way;

/// How often packets look whether those before them have arrived, at the most.
const LOOK: Ps = Ps::from_whole_ns(10);

impl World {
    /// Packets leave their adapter.
    pub(crate) fn depart(&mut self, mut packets: Box<Packets>) {
        packets.look();
        if packets.span.first > self.now {
            packets.way.expect(packets.span.last);
            return self.queue.push(packets.span.first, Event::Depart(packets));
        }
        let (id, is_response) = (packets.from, packets.is_response());
        if let Some(qp) = self.nodes[id.node].qp(id) {
            let departures = &mut qp.sending.stream(is_response).departures;
            let Some(taken) = departures.try_depart(packets) else { return };
            packets = taken;
        }
        self.have_departed(id, is_response, packets.number);
        let node = packets.from.node;
        let kind = packets.train.kind;
        let departure = self.ask_at_departure(&mut packets);
        self.capture_departure(&packets, &departure);
        self.note(node, Component::SendEngine, || match departure.rules.as_str() {
            "" => format!("the {} leaves", kind_name(kind)),
            rules => format!("the {} leaves, under the rule {rules}", kind_name(kind)),
        });
        if departure.is_deferred {
            return self.complete_sent(&packets, None);
        }
        let left = self.occupy_link(&mut packets);
        self.complete_sent(&packets, Some(left));
        self.travel(packets);
    }

    /// Packets of a queue pair have departed, or will not: those after them may.
    pub(crate) fn have_departed(&mut self, id: QpId, is_response: bool, number: u64) {
        let qp = self.nodes[id.node].qp(id);
        let next = qp.and_then(|qp| qp.sending.stream(is_response).departures.departed(number));
        if let Some(packets) = next {
            self.queue.push(self.now, Event::Depart(packets));
        }
    }

    /// Packets occupy the link of their adapter; returns when they have left.
    pub(crate) fn occupy_link(&mut self, packets: &mut Packets) -> Span {
        if !matches!(packets.to, To::Group(_)) {
            self.bytes.sent += u64::from(packets.train.payload_bytes);
        }
        let work = self.fabric.work(packets);
        let link = &mut self.fabric.up[packets.from.node];
        let (order, span) = (packets.flow(), packets.span);
        let (now, source) = (span.first, packets.way.last());
        let coming = Coming { now, span, source, order, flow: order };
        let (sent, booking) = link.pass_from(&coming, work);
        self.keep_booking(Part::Up(packets.from.node));
        packets.way.takes(work.first);
        packets.way.booked(booking, sent);
        packets.go_on(sent, self.fabric.propagation);
        if packets.train.payload_bytes > 0
            && let Some(qp) = self.nodes[packets.from.node].qp(packets.from)
        {
            qp.sending.link_until = qp.sending.link_until.max(sent.last);
        }
        sent
    }

    /// Lets a shared part book more packets in time, if some are not booked.
    pub(crate) fn keep_booking(&mut self, part: Part) {
        let now = self.now;
        let at = match part {
            Part::Bus(node) => self.nodes[node].engines.bus.goes_on_at(now),
            Part::Up(node) => self.fabric.up[node].goes_on_at(now),
            Part::Down(index) => self.fabric.down[index].goes_on_at(now),
        };
        if let Some(at) = at {
            self.queue.push(at, Event::Book { part });
        }
    }

    /// A shared part books more packets.
    pub(crate) fn book(&mut self, part: Part) {
        match part {
            Part::Bus(node) => self.nodes[node].engines.bus.go_on(self.now),
            Part::Up(node) => self.fabric.up[node].go_on(self.now),
            Part::Down(index) => self.fabric.down[index].go_on(self.now),
        }
        self.keep_booking(part);
    }

    /// Packets that have left their adapter go to where they are sent.
    pub(crate) fn travel(&mut self, packets: Box<Packets>) {
        if self.fabric.has_switch {
            return self.reach_switch(packets);
        }
        match packets.to {
            To::Node(to) => self.deliver(to, packets),
            To::Group(group) => {
                for to in self.nodes_of(group) {
                    self.deliver(to, packets.clone());
                }
            }
            To::Nowhere => self.bytes.lost += u64::from(packets.train.payload_bytes),
        }
    }

    /// The nodes with a member of a multicast group.
    fn nodes_of(&self, group: Gid) -> Vec<usize> {
        let has_members = |node: &usize| !self.nodes[*node].members(group).is_empty();
        (0..self.nodes.len()).filter(has_members).collect()
    }

    fn reach_switch(&mut self, packets: Box<Packets>) {
        packets.way.expect(packets.span.last);
        // Cut through: the header is there one packet time before the end of the first packet.
        let head = packets.span.first - self.fabric.work(&packets).first;
        self.queue.push(head.max(self.now), Event::AtSwitch(packets));
    }

    /// Packets have reached a switch.
    pub(crate) fn at_switch(&mut self, mut packets: Box<Packets>) {
        packets.look();
        if packets.span.first - self.fabric.work(&packets).first > self.now {
            return self.reach_switch(packets);
        }
        let is_first = packets.at == self.fabric.leaf_of(packets.from.node);
        self.note(packets.from.node, Component::Link, || "the head is at a switch".to_owned());
        match packets.to {
            To::Node(to) => {
                // Those to one adapter take the same way (d mod k), so they stay in order.
                let end = self.fabric.next(packets.at, to, to);
                self.leave_switch(&[end], packets);
            }
            To::Group(_) if is_first => {
                packets.span = packets.span.after(self.parameters.multicast_ns);
                packets.way.takes(self.parameters.multicast_ns);
                self.queue.push(self.now + self.parameters.multicast_ns, Event::Replicate(packets));
            }
            To::Group(_) => self.replicate(packets),
            To::Nowhere => self.bytes.lost += u64::from(packets.train.payload_bytes),
        }
    }

    /// A switch sends a multicast on to every node with a member of its group.
    pub(crate) fn replicate(&mut self, packets: Box<Packets>) {
        let To::Group(group) = packets.to else { return };
        let to = self.nodes_of(group);
        let route = group.0.iter().fold(0, |sum, byte| sum + usize::from(*byte));
        let ends = self.fabric.spread(packets.at, packets.from.node, &to, route);
        self.leave_switch(&ends, packets);
    }

    /// Packets leave the switch that they have reached, by these links.
    fn leave_switch(&mut self, ends: &[NextHop], packets: Box<Packets>) {
        let work = self.fabric.work(&packets);
        let Span { first, last } = packets.span;
        let heads = Span { first: first - work.first, last: last - work.first };
        let came = heads.after(self.fabric.switch);
        let flow = Flow::Node(packets.from.node);
        let mut last = Some(packets);
        for (index, end) in ends.iter().enumerate() {
            let is_last = index + 1 == ends.len();
            let taken = if is_last { last.take() } else { last.clone() };
            let Some(mut packets) = taken else { return };
            let index = self.fabric.link_of(packets.at, *end);
            let link = &mut self.fabric.down[index];
            let (source, order) = (packets.way.last(), packets.flow());
            let coming = Coming { now: came.first, span: came, source, order, flow };
            let (sent, booking) = link.pass_from(&coming, work);
            self.keep_booking(Part::Down(index));
            packets.way.takes(self.fabric.switch);
            packets.way.booked(booking, sent);
            packets.go_on(sent, self.fabric.propagation);
            self.note_switch(sent.first - work.first, &packets);
            match *end {
                NextHop::Node(node) => self.deliver(node, packets),
                NextHop::Switch(switch) => {
                    packets.at = switch;
                    self.reach_switch(packets);
                }
            }
        }
    }

    fn deliver(&mut self, node: usize, packets: Box<Packets>) {
        packets.way.expect(packets.span.last);
        self.queue.push(packets.span.last, Event::Arrive { node, packets });
    }

    /// Whether packets whose time to arrive has come do arrive; otherwise they come later, because
    /// others passed in between, or because packets before them are late.
    pub(crate) fn has_arrived(
        &mut self,
        node: usize,
        mut packets: Box<Packets>,
    ) -> Option<Box<Packets>> {
        packets.look();
        let mut at = packets.span.last;
        if let Some(before) = packets.way.expected_before() {
            let soon = self.now + self.fabric.work(&packets).first.max(LOOK);
            at = at.max(if before > self.now { before } else { soon });
        }
        if at <= self.now {
            packets.way = Way::default();
            return Some(packets);
        }
        packets.span.last = at;
        self.deliver(node, packets);
        None
    }
}
