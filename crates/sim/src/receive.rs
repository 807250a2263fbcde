//! The receiving side of an adapter: packets that arrived are offered to their queue pair, and what
//! they carry is written to memory.

use rdmalab_driver as driver;
use rdmalab_engine::qp::Accept;
use rdmalab_engine::train::TrainKind;

use crate::adapter::SimQp;
use crate::bus::Span;
use crate::env::Effects;
use crate::event::Event;
use crate::ids::QpId;
use crate::kernel::World;
use crate::memory::DmaWrite;
use crate::packets::{Packets, To};
use crate::time::Ps;

impl World {
    /// The last packet has arrived at a node.
    pub(crate) fn arrive(&mut self, node: usize, packets: Packets) {
        match packets.to {
            To::Group(group) => {
                let members = self.nodes[node].members(group);
                // A sender that is a member does not get its own datagrams.
                for id in members.into_iter().filter(|id| *id != packets.from) {
                    self.take_in(id, packets.clone());
                }
            }
            To::Node(_) | To::Nowhere => {
                if let Some(id) = self.nodes[node].qp_of_number(packets.train.dst_qpn.get()) {
                    self.take_in(id, packets);
                }
            }
        }
    }

    fn take_in(&mut self, id: QpId, packets: Packets) {
        let (gap, time) = (self.parameters.receive_gap_ns, self.parameters.receive_ns);
        let node = &mut self.nodes[id.node];
        let Some(qp) = node.qp(id) else { return };
        let qpn = qp.qp.qpn.get();
        let begin = self.now.max(node.engines.receive_free) + node.engines.contexts.get(qpn);
        node.engines.receive_free = match packets.train.kind {
            TrainKind::Ack => begin,
            _ => begin + gap,
        };
        let ready = begin + time;
        if let Some(qp) = node.qp(id) {
            qp.inbox.push_back((ready, packets));
        }
        self.queue.push(ready, Event::Offer { qp: id });
    }

    /// Offers the packets whose time has come to their queue pair.
    pub(crate) fn offer(&mut self, id: QpId) {
        self.with_qp(id, |world, qp| {
            while qp.inbox.front().is_some_and(|(ready, _)| *ready <= world.now) {
                let written = world.nodes[id.node].written;
                if is_atomic(&qp.inbox[0].1) && written > world.now {
                    // It must find what was written before.
                    return world.queue.push(written, Event::Offer { qp: id });
                }
                let Some((ready, packets)) = qp.inbox.pop_front() else { break };
                if let Some(stalled) = world.accept(id, qp, packets) {
                    qp.inbox.push_front((ready, stalled));
                    return world.read_recv_wqes(id, qp);
                }
            }
            world.wants_turn(id, qp);
        });
    }

    /// Lets a queue pair accept packets; returns them if they must wait for a receive WQE.
    fn accept(&mut self, id: QpId, qp: &mut SimQp, packets: Packets) -> Option<Packets> {
        let train = &packets.train;
        let (accepted, mut effects) = self.engine(id, qp, |qp, env| qp.accept(train, env));
        match accepted {
            Accept::Stall => return Some(packets),
            Accept::Done | Accept::Drop(_) => {}
            accepted => {
                let ((), more) = self.engine(id, qp, |qp, env| {
                    driver::finish(qp, env, train, &packets.payload[..], &accepted);
                });
                self.write(id, packets.span, &more);
                self.apply(id, qp, &mut effects, Ps::ZERO);
                effects = more;
            }
        }
        if is_atomic(&packets) {
            // Its answer has to wait for the read of the word.
            qp.departs = qp.departs.max(self.now + self.parameters.bus_read_ns);
        }
        self.apply(id, qp, &mut effects, Ps::ZERO);
        None
    }

    /// Writes to memory what came during `span`.
    fn write(&mut self, id: QpId, span: Span, effects: &Effects) {
        if effects.bytes.is_empty() {
            return;
        }
        let node = &mut self.nodes[id.node];
        let span = Span { first: span.first + (self.now - span.last), last: self.now };
        let done = node.engines.bus.write(span, effects.bytes.len() as u64);
        node.written = node.written.max(done);
        let (pieces, bytes) = (effects.pieces.clone(), effects.bytes.clone());
        self.queue.push(done, Event::Write(Box::new(DmaWrite { node: id.node, pieces, bytes })));
    }

    /// Begins to read receive WQEs for a queue pair whose packets wait for one.
    fn read_recv_wqes(&mut self, id: QpId, qp: &mut SimQp) {
        let Some(index) = qp.srq else {
            let unread = qp.qp.rq.as_ref().map_or(0, |rq| rq.unfetched());
            if let Some((count, time)) = qp.recv_reader.begin(unread) {
                self.queue.push(self.now + time, Event::RecvWqes { qp: id, count });
            }
            return;
        };
        let Some(srq) = self.nodes[id.node].srqs[index].as_mut() else { return };
        srq.waiting.push_back(id);
        if let Some((count, time)) = srq.reader.begin(srq.queue.queue.unfetched()) {
            let event = Event::SrqWqes { node: id.node, srq: index, count };
            self.queue.push(self.now + time, event);
        }
    }

    /// The adapter has read receive WQEs of a queue pair.
    pub(crate) fn have_recv_wqes(&mut self, id: QpId, count: u32) {
        if let Some(qp) = self.nodes[id.node].qp(id) {
            qp.recv_reader.end(count);
            if let Some(rq) = &mut qp.qp.rq {
                rq.fetch(count);
            }
            self.offer(id);
        }
    }

    /// The adapter has read WQEs of a shared receive queue.
    pub(crate) fn have_srq_wqes(&mut self, node: usize, index: usize, count: u32) {
        let Some(srq) = self.nodes[node].srqs[index].as_mut() else { return };
        srq.reader.end(count);
        srq.queue.queue.fetch(count);
        for id in std::mem::take(&mut srq.waiting) {
            self.offer(id);
        }
    }
}

fn is_atomic(packets: &Packets) -> bool {
    matches!(packets.train.kind, TrainKind::CmpSwap | TrainKind::FetchAdd)
}
