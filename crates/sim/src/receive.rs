//! The receiving side of an adapter: packets that arrived are offered to their queue pair, and what
//! they carry is written to memory.

use rdmalab_driver as driver;
use rdmalab_engine::qp::Accept;
use rdmalab_engine::train::TrainKind;

use crate::adapter::{Inbound, SimQp};
use crate::component::Component;
use crate::env::Effects;
use crate::event::Event;
use crate::ids::{Part, QpId};
use crate::kernel::World;
use crate::memory::DmaWrite;
use crate::noise::Stream;
use crate::packets::{Packets, To};
use crate::span::Span;
use crate::time::Ps;
use crate::timeline::kind_name;

impl World {
    /// The last packet has arrived at a node.
    pub(crate) fn arrive(&mut self, node: usize, packets: Box<Packets>) {
        let kind = packets.train.kind;
        self.note(node, Component::Link, || format!("the {} has arrived", kind_name(kind)));
        self.capture_arrival(node, &packets);
        match packets.to {
            To::Group(group) => {
                let members = self.nodes[node].members(group);
                // A sender that is a member does not get its own datagrams.
                for id in members.into_iter().filter(|id| *id != packets.from) {
                    self.take_in(id, packets.clone());
                }
            }
            To::Node(_) | To::Nowhere => {
                self.bytes.arrived += u64::from(packets.train.payload_bytes);
                if let Some(id) = self.nodes[node].qp_of_number(packets.train.dst_qpn.get()) {
                    self.take_in(id, packets);
                }
            }
        }
    }

    fn take_in(&mut self, id: QpId, packets: Box<Packets>) {
        let (gap, jitter) = match packets.begins_turn {
            true => (self.parameters.receive_gap_ns, self.jitter(id.node)),
            false => (Ps::ZERO, Ps::ZERO),
        };
        let time = self.parameters.receive_ns + jitter;
        let node = &mut self.nodes[id.node];
        let Some(qp) = node.qp(id) else { return };
        let qpn = qp.qp.qpn.get();
        let context = match packets.begins_turn {
            true => node.engines.contexts.get(qpn),
            false => Ps::ZERO,
        };
        let begin = self.now.max(node.engines.receive_free) + context;
        node.engines.receive_free = match packets.train.kind {
            TrainKind::Ack => begin,
            _ => begin + gap,
        };
        let ready = begin + time;
        if let Some(qp) = node.qp(id) {
            let (after_writes, is_passed) = (None, false);
            qp.inbox.push_back(Inbound { ready, packets, after_writes, is_passed });
        }
        self.queue.push(ready, Event::Offer { qp: id });
    }

    /// The random part of the time of a message in the adapter that receives it.
    fn jitter(&mut self, node: usize) -> Ps {
        let mean = self.parameters.jitter_ns;
        if mean == Ps::ZERO {
            return mean;
        }
        let jitter = &mut self.nodes[node].engines.jitter;
        jitter.get_or_insert_with(|| Stream::new(self.seed, "jitter", node)).exponential(mean)
    }

    /// Offers the packets whose time has come to their queue pair.
    pub(crate) fn offer(&mut self, id: QpId) {
        self.with_qp(id, |world, qp| {
            while let Some(next) = qp.inbox.front_mut().filter(|next| next.ready <= world.now) {
                if is_atomic(&next.packets) {
                    // It must find what was written before.
                    let writes = &world.nodes[id.node].writes;
                    let count = *next.after_writes.get_or_insert(writes.begun());
                    if let Some(at) = writes.until(count) {
                        next.ready = at.max(world.now);
                        world.queue.push(next.ready, Event::Offer { qp: id });
                        break;
                    }
                }
                let Some(inbound) = qp.inbox.pop_front() else { break };
                let Inbound { ready, packets, after_writes, is_passed } = inbound;
                if !is_passed && !world.ask_at_arrival(id, qp, &packets) {
                    continue;
                }
                if let Some(packets) = world.accept(id, qp, packets) {
                    let is_passed = true;
                    qp.inbox.push_front(Inbound { ready, packets, after_writes, is_passed });
                    world.wait_for_recv_wqe(id, qp);
                    break;
                }
            }
            world.wants_turn(id, qp);
        });
    }

    /// Packets of a queue pair need a receive WQE that the adapter has not read.
    fn wait_for_recv_wqe(&mut self, id: QpId, qp: &mut SimQp) {
        if let Some(srq) = qp.srq.and_then(|srq| self.nodes[id.node].srqs[srq].as_mut())
            && !srq.waiting.contains(&id)
        {
            srq.waiting.push_back(id);
        }
        self.read_recv_wqes(id, qp);
    }

    /// Lets a queue pair accept packets; returns them if they must wait for a receive WQE.
    fn accept(
        &mut self,
        id: QpId,
        qp: &mut SimQp,
        mut packets: Box<Packets>,
    ) -> Option<Box<Packets>> {
        let train = &{ packets.train };
        if self.is_dammed(id, qp, &packets) {
            self.note(id.node, Component::Page, || {
                "the request is lost: a repeated READ is served".to_owned()
            });
            return None;
        }
        self.note(id.node, Component::ReceiveEngine, || {
            format!("the {} is taken in", kind_name(train.kind))
        });
        let (accepted, mut effects) = self.engine(id, qp, |qp, env| qp.accept(train, env));
        if effects.page_is_missing && !train.kind.is_response() {
            qp.nak_delay = self.fault_nak_delay(train);
        }
        match accepted {
            Accept::Stall => return Some(packets),
            Accept::Done | Accept::Drop(_) => {}
            accepted => {
                let payload = std::mem::take(&mut packets.payload);
                let ((), mut more) = self.engine_with(id, qp, &payload, |qp, env| {
                    driver::finish(qp, env, train, &payload[..], &accepted);
                });
                self.write(id, packets.span, payload, &mut more);
                self.apply(id, qp, &mut effects, Ps::ZERO);
                effects = more;
            }
        }
        if is_atomic(&packets) {
            // Its answer has to wait for the read of the word.
            let read = self.now + self.parameters.bus_read_ns;
            let departs = &mut qp.sending.responses.departs;
            *departs = (*departs).max(read);
        }
        let earliest = self.read_next_recv_wqes(id, qp, &effects);
        self.apply(id, qp, &mut effects, earliest);
        None
    }

    /// Begins to read the next chunk of receive WQEs if a message took the last one that the
    /// adapter has. The completion of that message waits for the read: returns its end.
    fn read_next_recv_wqes(&mut self, id: QpId, qp: &mut SimQp, effects: &Effects) -> Ps {
        let has_received = effects.completions.iter().any(|(is_send, _)| !is_send);
        let is_last = match (qp.srq, &qp.qp.rq) {
            (None, Some(rq)) => rq.len() == rq.unfetched(),
            (Some(srq), _) => self.nodes[id.node].srqs[srq]
                .as_ref()
                .is_some_and(|srq| srq.queue.queue.len() == srq.queue.queue.unfetched()),
            (None, None) => false,
        };
        match has_received && is_last {
            true => self.read_recv_wqes(id, qp),
            false => Ps::ZERO,
        }
    }

    /// Writes to memory what came during `span`.
    fn write(&mut self, id: QpId, span: Span, payload: Vec<u8>, effects: &mut Effects) {
        if effects.pieces.is_empty() {
            return;
        }
        let pieces = std::mem::take(&mut effects.pieces);
        let header = std::mem::take(&mut effects.header);
        let bytes = pieces.iter().map(|piece| piece.bytes as u64).sum();
        let node = &mut self.nodes[id.node];
        let span = Span { first: span.first + (self.now - span.last), last: self.now };
        let done = node.engines.bus.write(span, bytes);
        self.queue.push(done.at(), Event::Write { node: id.node });
        node.writes.begin(DmaWrite { done, pieces, payload, header });
        self.keep_booking(Part::Bus(id.node));
    }

    /// Begins to read the next receive WQEs of a queue pair, if some are posted and no read is
    /// under way; returns when they are there.
    fn read_recv_wqes(&mut self, id: QpId, qp: &mut SimQp) -> Ps {
        let (begun, event) = match qp.srq {
            None => {
                let unread = qp.qp.rq.as_ref().map_or(0, |rq| rq.unfetched());
                let begun = qp.recv_reader.begin(unread);
                (begun, Event::RecvWqes { qp: id, count: begun.map_or(0, |(count, _)| count) })
            }
            Some(index) => {
                let srq = self.nodes[id.node].srqs[index].as_mut();
                let begun = srq.and_then(|srq| srq.reader.begin(srq.queue.queue.unfetched()));
                let count = begun.map_or(0, |(count, _)| count);
                (begun, Event::SrqWqes { node: id.node, srq: index, count })
            }
        };
        let Some((_, time)) = begun else { return Ps::ZERO };
        self.note(id.node, Component::ReceiveWqe, || {
            format!("the adapter begins to read receive WQEs, for {time}")
        });
        self.queue.push(self.now + time, event);
        self.now + time
    }

    /// The adapter has read receive WQEs of a queue pair.
    pub(crate) fn have_recv_wqes(&mut self, id: QpId, count: u32) {
        if let Some(qp) = self.nodes[id.node].qp(id) {
            let unread = qp.qp.rq.as_ref().map_or(0, |rq| rq.unfetched());
            qp.recv_reader.end(count.min(unread));
            if let Some(rq) = &mut qp.qp.rq {
                rq.fetch(count);
            }
            self.note_receive_wqes(id.node);
            self.offer(id);
        }
    }

    /// The adapter has read WQEs of a shared receive queue.
    pub(crate) fn have_srq_wqes(&mut self, node: usize, index: usize, count: u32) {
        let Some(srq) = self.nodes[node].srqs[index].as_mut() else { return };
        srq.reader.end(count.min(srq.queue.queue.unfetched()));
        srq.queue.queue.fetch(count);
        let waiting = std::mem::take(&mut srq.waiting);
        self.note_receive_wqes(node);
        for id in waiting {
            self.offer(id);
        }
    }
}

fn is_atomic(packets: &Packets) -> bool {
    matches!(packets.train.kind, TrainKind::CmpSwap | TrainKind::FetchAdd)
}
