//! Packets leave an adapter, pass the fabric, and arrive.

use crate::bus::Span;
use crate::event::Event;
use crate::kernel::World;
use crate::packets::{Packets, To};
use crate::time::Ps;
use crate::timeline::kind_name;

impl World {
    /// Packets leave their adapter.
    pub(crate) fn depart(&mut self, mut packets: Box<Packets>) {
        let node = packets.from.node;
        let kind = packets.train.kind;
        let departure = self.ask_at_departure(&mut packets);
        self.capture_departure(&packets, &departure);
        self.note(node, || match departure.rules.as_str() {
            "" => format!("the {} leaves", kind_name(kind)),
            rules => format!("the {} leaves, under the rule {rules}", kind_name(kind)),
        });
        if departure.is_deferred {
            // A sender does not know that.
            return self.complete_sent(&packets, self.now);
        }
        let left = self.occupy_link(&mut packets);
        self.complete_sent(&packets, left);
        self.travel(packets);
    }

    /// Packets occupy the link of their adapter; returns when the last one has left.
    pub(crate) fn occupy_link(&mut self, packets: &mut Packets) -> Ps {
        let (first, all) = self.fabric.times(packets);
        let free = &mut self.fabric.up_free[packets.from.node];
        let sent = packets.span.through(*free, first, all);
        *free = sent.last;
        packets.span = sent.after(self.fabric.propagation);
        sent.last
    }

    /// Packets that have left their adapter go to where they are sent.
    pub(crate) fn travel(&mut self, packets: Box<Packets>) {
        if self.fabric.has_switch {
            let (first, _) = self.fabric.times(&packets);
            // Cut through: the header is there one packet time before the end of the first packet.
            let head = packets.span.first - first;
            return self.queue.push(head.max(self.now), Event::AtSwitch(packets));
        }
        match packets.to {
            To::Node(to) => self.deliver(to, packets),
            To::Group(_) => {
                for to in 0..self.nodes.len() {
                    self.deliver(to, packets.clone());
                }
            }
            To::Nowhere => {}
        }
    }

    /// Packets pass the switch.
    pub(crate) fn at_switch(&mut self, packets: Box<Packets>) {
        match packets.to {
            To::Node(to) => self.leave_switch(to, packets),
            To::Group(_) => {
                let mut packets = packets;
                packets.span = packets.span.after(self.parameters.multicast_ns);
                self.queue.push(self.now + self.parameters.multicast_ns, Event::Replicate(packets));
            }
            To::Nowhere => {}
        }
    }

    /// The switch sends a multicast to every node with a member of its group.
    pub(crate) fn replicate(&mut self, packets: &Packets) {
        let To::Group(group) = packets.to else { return };
        let has_members = |node: &usize| !self.nodes[*node].members(group).is_empty();
        let to: Vec<usize> = (0..self.nodes.len()).filter(has_members).collect();
        to.into_iter().for_each(|to| self.leave_switch(to, Box::new(packets.clone())));
    }

    fn leave_switch(&mut self, to: usize, mut packets: Box<Packets>) {
        let (first, all) = self.fabric.times(&packets);
        let heads = Span { first: packets.span.first - first, last: packets.span.last - first };
        let came = heads.after(self.fabric.switch);
        let sent = came.through(self.fabric.down_free[to], first, all);
        self.fabric.down_free[to] = sent.last;
        packets.span = sent.after(self.fabric.propagation);
        self.deliver(to, packets);
    }

    fn deliver(&mut self, node: usize, packets: Box<Packets>) {
        self.queue.push(packets.span.last, Event::Arrive { node, packets });
    }
}
