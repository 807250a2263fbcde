//! The sending side of an adapter: doorbells, reads of WQEs, turns of queue pairs, and reads of
//! payload.

use rdmalab_driver::{self as driver, Request, Step, Unsent};
use rdmalab_engine::qp::{CopyError, Response};
use rdmalab_engine::train::{GrhFields, Train, TrainFlags, TrainKind};
use rdmalab_engine::vocab::{AhAttr, QpType, UdAddress};
use rdmalab_wire::aeth::Syndrome;
use rdmalab_wire::ids::{Qpn, RKey};
use rdmalab_wire::opcode::Transport;

use crate::adapter::SimQp;
use crate::booking::Flow;
use crate::bus::{Bus, Read};
use crate::component::Component;
use crate::device;
use crate::event::Event;
use crate::ids::{Part, QpId};
use crate::kernel::World;
use crate::packets::{Leaving, Packets, Source, To};
use crate::span::Span;
use crate::time::Ps;
use crate::timeline::kind_name;
use crate::way::Way;
use crate::work_queue::wqe_bytes;

impl World {
    /// The processor's write reaches the adapter: requests up to position `posted` are posted.
    pub(crate) fn doorbell(&mut self, id: QpId, posted: u32, wqe: bool) {
        self.note(id.node, Component::Doorbell, || {
            let with = if wqe { "the WQE (BlueFlame)" } else { "the doorbell" };
            format!("{with} reaches the adapter")
        });
        self.with_qp(id, |world, qp| {
            let unread = unread(qp, posted);
            // WQEs of a flushed queue are read already.
            let reads = qp.asked.wrapping_sub(qp.qp.sq.fetched());
            let reads = if reads > qp.qp.sq.unfetched() { 0 } else { reads };
            // A WQE that came with the doorbell is of use only if all before it are read.
            let has_it = wqe && unread == 1 && reads == 0;
            if unread == 0 || has_it || world.parameters.wqe_read == 0 {
                qp.qp.sq.fetch(unread);
                return world.wants_turn(id, qp);
            }
            if reads == 0 {
                qp.asked = posted.wrapping_sub(unread);
            }
            qp.told = posted;
            // An adapter that reads a few at once goes on when it has those.
            if world.parameters.wqes_per_read == 0 || reads == 0 {
                world.read_send_wqes(id, qp);
            }
        });
    }

    /// Begins to read the next send WQEs that doorbells told of.
    pub(crate) fn read_send_wqes(&mut self, id: QpId, qp: &mut SimQp) {
        let new = qp.told.wrapping_sub(qp.asked);
        if new == 0 || new > qp.qp.sq.unfetched() {
            return; // There is none, or the queue was flushed.
        }
        let all = &self.parameters;
        let count = if all.wqes_per_read == 0 { new } else { all.wqes_per_read.min(new) };
        let block = all.inline_block_bytes;
        let positions = (0..count).map(|index| qp.asked.wrapping_add(index));
        let bytes: u64 = positions.map(|at| u64::from(wqe_bytes(&qp.qp, at, 64, block))).sum();
        qp.asked = qp.asked.wrapping_add(count);
        let read = self.nodes[id.node].engines.bus.read(self.now, bytes, Flow::Wqes(id));
        self.keep_booking(Part::Bus(id.node));
        self.queue.push(read.span.last, Event::SendWqes { qp: id, posted: qp.asked });
    }

    /// The adapter has read send WQEs.
    pub(crate) fn have_send_wqes(&mut self, id: QpId, posted: u32) {
        self.note(id.node, Component::WqeRead, || "the WQE is read over the bus".to_owned());
        self.with_qp(id, |world, qp| {
            qp.qp.sq.fetch(unread(qp, posted));
            world.wants_turn(id, qp);
            if qp.told != qp.asked && world.parameters.wqes_per_read > 0 {
                // After the payload of what is read, which goes first on the bus.
                world.queue.push(world.now, Event::MoreSendWqes { qp: id });
            }
        });
    }

    /// The adapter goes on to read send WQEs.
    pub(crate) fn more_send_wqes(&mut self, id: QpId) {
        self.with_qp(id, |world, qp| world.read_send_wqes(id, qp));
    }

    /// Puts a queue pair that may send in line for the send engine, and arms its timer.
    pub(crate) fn wants_turn(&mut self, id: QpId, qp: &mut SimQp) {
        self.arm_timer(id, qp);
        if qp.sending.is_queued || !(qp.qp.may_send() || qp.qp.has_response()) {
            return;
        }
        qp.sending.is_queued = true;
        let after = qp.sending.turn_after.max(self.now);
        self.nodes[id.node].engines.turns.add(id, after);
        self.schedule_turn(id.node);
    }

    fn schedule_turn(&mut self, node: usize) {
        let engines = &mut self.nodes[node].engines;
        let Some(after) = engines.turns.next_after() else { return };
        let at = self.now.max(engines.send_free).max(after);
        if engines.next_turn.is_none_or(|scheduled| scheduled > at) {
            engines.next_turn = Some(at);
            self.queue.push(at, Event::SendTurn { node });
        }
    }

    /// The send engine takes the next queue pair, and sends one train of it.
    pub(crate) fn send_turn(&mut self, node: usize) {
        let engines = &mut self.nodes[node].engines;
        if engines.next_turn != Some(self.now) {
            return; // An earlier event has taken its place.
        }
        engines.next_turn = None;
        if let Some(id) = engines.turns.take() {
            let is_alone = engines.turns.is_empty();
            self.with_qp(id, |world, qp| {
                qp.sending.is_queued = false;
                let most_bytes = world.train_bytes(id.node, qp, is_alone);
                if let Some(busy) = world.send_one(id, qp, most_bytes) {
                    world.nodes[node].engines.send_free = world.now + busy;
                    qp.sending.turn_after = world.turn_after(node, qp, is_alone);
                    world.wants_turn(id, qp);
                }
            });
        }
        self.schedule_turn(node);
    }

    /// When a queue pair may go on, as far as bus and link are concerned: when they have taken what
    /// it sent but for a turn, or but for a packet if others want to send. Packets of others may
    /// delay what it sent after this time is known, so more of it can be waiting then.
    fn turn_after(&self, node: usize, qp: &SimQp, is_alone: bool) -> Ps {
        let packet = qp.qp.mtu.bytes();
        let bytes = if is_alone { self.parameters.turn_bytes.max(packet) } else { packet };
        let bytes = u64::from(bytes);
        let bus = qp.sending.bus_until - self.nodes[node].engines.bus.time(bytes);
        bus.max(qp.sending.link_until - qp.sending.to_link - self.fabric.time(bytes))
    }

    /// How many bytes a queue pair sends at once: a turn. Its packets alternate with those of
    /// others on the bus and the links. Fault rules decide about each packet, and captures show
    /// when each packet leaves among those of others.
    fn train_bytes(&self, node: usize, qp: &SimQp, is_alone: bool) -> u32 {
        match self.nodes[node].faults.is_none() && (is_alone || self.capture.is_none()) {
            true => self.parameters.turn_bytes.max(self.parameters.mtu_bytes),
            false => qp.qp.mtu.bytes(),
        }
    }

    /// Sends the next response or request: how long the engine is busy; `None` if there is none.
    fn send_one(&mut self, id: QpId, qp: &mut SimQp, most_bytes: u32) -> Option<Ps> {
        if qp.qp.has_response() {
            let response = self.step(id, qp, |qp, env| qp.next_response(most_bytes, env));
            // A response whose page is missing does not hold up requests.
            if let Some(response) = response {
                return Some(self.respond(id, qp, response));
            }
        }
        let planned = self.step(id, qp, |qp, env| {
            driver::plan_request(qp, env, most_bytes, |_, _, train, request| (train, request))
        });
        match planned {
            Ok((train, request)) => Some(self.request(id, qp, train, request)),
            Err(Step::Done) => Some(Ps::ZERO),
            Err(Step::Idle | Step::Blocked) => None,
        }
    }

    /// The time that the engine waits for the context of a queue pair.
    fn context_time(&mut self, id: QpId, qp: &SimQp) -> Ps {
        self.nodes[id.node].engines.contexts.get(qp.qp.qpn.get())
    }

    fn respond(&mut self, id: QpId, qp: &mut SimQp, response: Response) -> Ps {
        let Response { train, data } = response;
        let to = self.node_of(&qp.qp.attr.ah_attr);
        let (delay, busy) = match train.kind {
            TrainKind::Ack if matches!(train.syndrome, Syndrome::RnrNak(_)) => {
                (self.parameters.ack_delay_ns + std::mem::take(&mut qp.nak_delay), Ps::ZERO)
            }
            TrainKind::Ack => (self.parameters.ack_delay_ns, Ps::ZERO),
            _ => (Ps::ZERO, self.parameters.read_answer_gap_ns),
        };
        let packets = self.packets((id, qp), train, to, Source::Response(data));
        let (context, busy) = match packets.begins_turn {
            true => (self.context_time(id, qp), busy),
            false => (Ps::ZERO, Ps::ZERO),
        };
        self.get_payload(qp, packets, self.now + context + delay);
        context + busy
    }

    fn request(&mut self, id: QpId, qp: &mut SimQp, mut train: Train, request: Request) -> Ps {
        let to = if qp.qp.qp_type == QpType::Ud {
            let ud = *qp.qp.sq.ud(request.position);
            address(&mut train, &ud, id.node);
            if ud.remote_qpn == Qpn::MULTICAST {
                To::Group(ud.ah.dgid)
            } else {
                self.node_of(&ud.ah)
            }
        } else {
            self.node_of(&qp.qp.attr.ah_attr)
        };
        let packets = self.packets((id, qp), train, to, Source::Request(request));
        let (context, gap) = match packets.begins_turn {
            true => (self.context_time(id, qp), self.parameters.send_gap_ns),
            false => (Ps::ZERO, Ps::ZERO),
        };
        self.get_payload(qp, packets, self.now + context);
        context + gap
    }

    fn packets(
        &mut self,
        (from, qp): (QpId, &mut SimQp),
        train: Train,
        to: To,
        source: Source,
    ) -> Box<Packets> {
        self.note(from.node, Component::SendEngine, || {
            format!("the send engine takes the {}", kind_name(train.kind))
        });
        let is_inline = match source {
            Source::Request(request) => qp.qp.sq.wqe(request.position).is_inline(),
            Source::Response(_) => false,
        };
        let number = qp.sending.stream(train.kind.is_response()).departures.take();
        Box::new(Packets {
            train,
            payload: Vec::new(),
            from,
            transport: transport_of(qp.qp.qp_type),
            mtu: qp.qp.mtu,
            to,
            at: self.fabric.leaf_of(from.node),
            destination: to.gid(),
            span: Span::default(),
            source,
            read: None,
            after_writes: 0,
            begins_turn: self.begins_turn(qp, &train),
            is_inline,
            number,
            way: Way::default(),
        })
    }

    /// Whether a train begins a turn at the engines. A turn has several trains if these are short,
    /// so that they take as long as one.
    fn begins_turn(&self, qp: &mut SimQp, train: &Train) -> bool {
        if train.payload_bytes == 0 {
            return true;
        }
        let mtu = qp.qp.mtu.bytes();
        let most_bytes = (self.parameters.turn_bytes / mtu).max(1) * mtu;
        let turn_bytes = &mut qp.sending.stream(train.kind.is_response()).turn_bytes;
        let with_it = turn_bytes.saturating_add(train.payload_bytes);
        let begins = train.flags.has(TrainFlags::FIRST) || with_it > most_bytes;
        *turn_bytes = if begins { train.payload_bytes } else { with_it };
        begins
    }

    /// Reads the payload of packets, from `ready` on, or takes it from the WQE; then they depart.
    fn get_payload(&mut self, qp: &mut SimQp, mut packets: Box<Packets>, ready: Ps) {
        let bytes = u64::from(packets.train.payload_bytes);
        let node = &mut self.nodes[packets.from.node];
        let is_in_wqe = bytes == 0 || packets.is_inline;
        let (mut span, answer_time, booking) = match is_in_wqe || self.parameters.wqe_read == 0 {
            true => {
                qp.sending.to_link = self.parameters.send_ns;
                (Span::at(ready), Ps::ZERO, None)
            }
            false => {
                let bus = &mut node.engines.bus;
                let read = read_of_message(bus, qp, &packets, ready);
                qp.sending.bus_until = read.span.last - bus.read_time();
                qp.sending.to_link = bus.read_time() + self.parameters.send_ns;
                (read.span, bus.answer_time(), read.booking)
            }
        };
        let mut read_at = (span.first - answer_time).max(self.now);
        if let Source::Response(Some(_)) = packets.source {
            // A read may not pass a write on the bus: it finds what was written before.
            packets.after_writes = node.writes.begun();
            let written = node.writes.until(packets.after_writes).unwrap_or_default();
            span = span.after(written - read_at);
            read_at = read_at.max(written);
        }
        packets.read = (!is_in_wqe).then(|| node.reads.begin(packets.from, read_at));
        span = span.after(self.parameters.send_ns);
        // Requests of a queue pair depart in order, whatever has to be read for them; so do
        // responses.
        let stream = qp.sending.stream(packets.is_response());
        if span.first <= stream.departs {
            span = span.after(stream.departs + Ps(1) - span.first);
        }
        stream.departs = span.first;
        let can_be_delayed = booking.is_some() || packets.count() > 1;
        packets.way.follow(&mut stream.last, can_be_delayed);
        packets.way.expect(span.last);
        packets.span = span;
        packets.way.booked(booking, span);
        if bytes > 0 {
            // Acknowledgements may leave later, and hold up nothing.
            qp.sending.link_until =
                qp.sending.link_until.max(span.first) + self.fabric.work(&packets).all;
        }
        self.keep_booking(Part::Bus(packets.from.node));
        self.queue.push(read_at, Event::PayloadRead(packets));
    }

    /// The payload of packets is in memory as it will be sent, unless its read has been delayed.
    pub(crate) fn read_payload(&mut self, mut packets: Box<Packets>) {
        let node = &mut self.nodes[packets.from.node];
        let expected = packets.span.first;
        packets.look();
        let written = node.writes.until(packets.after_writes);
        if packets.span.first > expected || written.is_some() {
            let late = packets.span.first - expected;
            let at = (self.now + late).max(written.unwrap_or_default());
            packets.span = packets.span.after(at - self.now - late);
            packets.read.inspect(|read| node.reads.delay(*read, at));
            return self.queue.push(at, Event::PayloadRead(packets));
        }
        packets.read.inspect(|read| node.reads.end(*read));
        self.restamp(packets.from.node);
        self.note_payload(&packets);
        let id = packets.from;
        let is_sent = self.with_qp(id, |world, qp| world.copy_payload(id, qp, &mut packets));
        match is_sent {
            Some(true) => self.queue.push(packets.span.first.max(self.now), Event::Depart(packets)),
            Some(false) => self.have_departed(id, packets.is_response(), packets.number),
            None => {}
        }
    }

    /// Copies the payload; false if the packets are not to be sent.
    fn copy_payload(&mut self, id: QpId, qp: &mut SimQp, packets: &mut Packets) -> bool {
        // A repeated request may be complete meanwhile, and its place in the queue used again.
        if matches!(packets.source, Source::Request(request) if request.is_void(&qp.qp)) {
            return false;
        }
        let (train, range) = (packets.train, 0..packets.train.payload_bytes);
        packets.payload = self.buffers.take(range.end as usize);
        let to = &mut packets.payload[..];
        let is_read = self.step(id, qp, |qp, env| match &packets.source {
            Source::Request(request) => {
                let read = request.read(qp, env, range, to);
                read.map_err(|error| request.retire(qp, env, &train, Err(error))).is_ok()
            }
            Source::Response(data) => {
                // The key may have been invalidated since the request arrived.
                let is_gone = data.is_some_and(|(at, key)| !env.covers(&key, at, range.end));
                let read = match is_gone {
                    true => Err(CopyError::Fault),
                    false => driver::read_response(env, data, range, to),
                };
                let read = read.map_err(Unsent::whole);
                driver::retire_response(qp, env, &train, read);
                read.is_ok()
            }
        });
        if !is_read {
            self.wants_turn(id, qp);
        }
        is_read
    }

    /// Packets leave by `left`; with `None`, a rule defers them, of which a sender knows nothing.
    /// Requests of an unreliable transport, which nobody acknowledges, are complete then.
    pub(crate) fn complete_sent(&mut self, packets: &Packets, left: Option<Span>) {
        let Source::Request(request) = packets.source else { return };
        if packets.transport == Transport::Rc || !packets.train.flags.has(TrainFlags::LAST) {
            return;
        }
        let (span, way) = match left {
            Some(span) => (span, packets.way.before(self.fabric.propagation)),
            None => (Span::at(self.now), Way::default()),
        };
        let (qp, train) = (packets.from, packets.train);
        self.have_left(Box::new(Leaving { qp, request, train, span, way }));
    }

    /// Packets of an unreliable transport have left, unless others have delayed them.
    pub(crate) fn have_left(&mut self, mut leaving: Box<Leaving>) {
        leaving.way.look(&mut leaving.span);
        if leaving.span.last > self.now {
            return self.queue.push(leaving.span.last, Event::Left(leaving));
        }
        let Leaving { qp: id, request, train, .. } = *leaving;
        self.with_qp(id, |world, qp| {
            world.step(id, qp, |qp, env| request.retire(qp, env, &train, Ok(())));
        });
    }

    /// The node that an address vector leads to.
    fn node_of(&self, ah: &AhAttr) -> To {
        let by_gid = || device::node_of_gid(ah.dgid).filter(|_| ah.is_global);
        let by_lid = || device::node_of_lid(ah.dlid.0);
        match by_lid().or_else(by_gid).filter(|node| *node < self.nodes.len()) {
            Some(node) => To::Node(node),
            None => To::Nowhere,
        }
    }
}

fn transport_of(qp_type: QpType) -> Transport {
    match qp_type {
        QpType::Rc => Transport::Rc,
        QpType::Uc => Transport::Uc,
        QpType::Ud => Transport::Ud,
    }
}

/// How many of the requests below position `posted` the adapter has not read.
fn unread(qp: &SimQp, posted: u32) -> u32 {
    let unread = posted.wrapping_sub(qp.qp.sq.fetched());
    if unread > qp.qp.sq.unfetched() { 0 } else { unread }
}

/// Writes the addresses of a datagram into its train.
fn address(train: &mut Train, to: &UdAddress, node: usize) {
    train.slid = device::lid_of(node);
    train.sl = to.ah.sl;
    if to.ah.is_global {
        train.flags.0 |= TrainFlags::GRH;
        let AhAttr { traffic_class, hop_limit, flow_label, sgid_index, .. } = to.ah;
        train.rkey = RKey(sgid_index.into());
        train.compare = GrhFields { traffic_class, hop_limit, flow_label }.pack();
        let [upper, lower] =
            [0, 8].map(|at| u64::from_be_bytes(std::array::from_fn(|i| to.ah.dgid.0[at + i])));
        (train.remote_addr, train.swap_add) = (upper, lower);
    }
}

/// Reads the payload of packets, from `ready` on. All packets of a message are one read.
fn read_of_message(bus: &mut Bus, qp: &mut SimQp, packets: &Packets, ready: Ps) -> Read {
    let (bytes, flow) = (packets.train.payload_bytes.into(), packets.flow());
    let place = &mut qp.sending.stream(packets.is_response()).place;
    if !packets.train.flags.has(TrainFlags::FIRST) {
        return bus.read_more(ready, bytes, flow, *place);
    }
    let read = bus.read(ready, bytes, flow);
    *place = read.place;
    read
}
