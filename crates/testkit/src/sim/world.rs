//! The world: devices, a link between them, and virtual time.

use super::device::{Device, SimQp};
use super::drive::{self, Offered, Step, scatter};
use super::injector::FaultInjector;
use super::link::{Link, Parcel};
use super::memory::pieces;
use crate::rng::Rng;
use rdmalab_engine::backend::{PostError, RecvWr, SendWr};
use rdmalab_engine::mr;
use rdmalab_engine::qp::attr::Limits;
use rdmalab_engine::qp::{AtomicOp, Timer};
use rdmalab_engine::vocab::*;
use rdmalab_link::quirk::{Answer, Reply};
use rdmalab_wire::ids::Qpn;

/// A queue pair of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct At {
    /// Which device.
    pub device: usize,
    /// Which of its queue pairs.
    pub qp: usize,
}

/// How the driver behaves, where it has a choice.
#[derive(Clone, Copy, Debug)]
pub struct Knobs {
    /// Most payload bytes in a train.
    pub max_train_bytes: u32,
    /// In a thousand: how often the second half of a step comes later than the first.
    pub late_retire: u32,
    /// In a thousand: how often posted receives are fetched later.
    pub late_fetch: u32,
    /// In a thousand: how often an operation that may take the local lane takes it.
    pub lane: u32,
    /// What an infinite ACK time-out lasts, ns.
    pub infinite_ns: u64,
}

impl Default for Knobs {
    fn default() -> Self {
        Knobs {
            max_train_bytes: 64 << 10,
            late_retire: 0,
            late_fetch: 0,
            lane: 0,
            infinite_ns: 30_000_000_000,
        }
    }
}

/// Everything there is. See the module's text.
#[derive(Debug)]
pub struct World {
    /// Virtual time.
    pub now_ns: u64,
    /// The devices.
    pub devices: Vec<Device>,
    /// What is between them.
    pub link: Link,
    /// How the driver behaves.
    pub knobs: Knobs,
    /// The newest events, when [`World::tracing`].
    pub trace: std::collections::VecDeque<String>,
    /// Whether events are kept.
    pub tracing: bool,
    rng: Rng,
}

/// Events that a trace keeps.
const TRACE_EVENTS: usize = 400;

/// The limits of a simulated device.
pub const LIMITS: Limits = Limits {
    max_rd_atomic: 16,
    max_dest_rd_atomic: 16,
    ports: 1,
    pkey_table_len: 1,
    gid_table_len: 2,
    active_mtu: 5,
};

impl World {
    /// A world of `devices` devices; everything that happens by chance comes from `seed`.
    pub fn new(devices: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut devices: Vec<Device> = (0..devices).map(Device::new).collect();
        for (index, device) in devices.iter_mut().enumerate() {
            device.short_ways = seed >> index & 1 == 1;
        }
        World {
            now_ns: 0,
            devices,
            link: Link::new(rng.fork()),
            knobs: Knobs::default(),
            trace: Default::default(),
            tracing: false,
            rng,
        }
    }

    /// The queue pair at `at`.
    pub fn qp(&self, at: At) -> &SimQp {
        &self.devices[at.device].qps[at.qp]
    }

    /// Every queue pair's place.
    pub fn places(&self) -> Vec<At> {
        let qps = |(device, d): (usize, &Device)| {
            (0..d.qps.len()).map(move |qp| At { device, qp }).collect::<Vec<_>>()
        };
        self.devices.iter().enumerate().flat_map(qps).collect()
    }

    /// Where a queue pair number lives.
    pub fn find(&self, qpn: Qpn) -> Option<At> {
        let device = (qpn.get() >> 8).checked_sub(1)? as usize;
        let qp = (qpn.get() & 0xff).checked_sub(1)? as usize;
        (qp < self.devices.get(device)?.qps.len()).then_some(At { device, qp })
    }

    /// Adds to the trace.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if self.tracing {
            if self.trace.len() == TRACE_EVENTS {
                self.trace.pop_front();
            }
            self.trace.push_back(format!("{:>12} ns  {}", self.now_ns, what()));
        }
    }

    /// Posts a send, copying an inline payload, as the verbs do.
    pub fn post_send(&mut self, at: At, wr: &SendWr<'_>) -> Result<u32, PostError> {
        let device = &mut self.devices[at.device];
        let sim = &mut device.qps[at.qp];
        let position = sim.qp.post_send(wr, sim.freed)?;
        if wr.flags.contains(SendFlags::INLINE) {
            let length: u64 = wr.sges.iter().map(|sge| sge.length as u64).sum();
            for piece in pieces(wr.sges, 0, length) {
                let bytes = device.memory.read(piece.sge.addr, piece.sge.length as usize);
                sim.qp.sq.inline_mut(position)[piece.from..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        if matches!(sim.qp.state, QpState::Err | QpState::Sqe) {
            let (qp, mut env, _) = device.split(at.qp);
            qp.flush_sends(&mut env);
        }
        self.note(|| format!("{at:?} post {:?} wr {} -> {position}", wr.opcode, wr.wr_id));
        Ok(position)
    }

    /// Posts a receive to the QP's queue, or to the shared one that it uses.
    pub fn post_recv(&mut self, at: At, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let late = self.rng.chance(self.knobs.late_fetch);
        let fetch_at_ns = self.now_ns + self.rng.between(100, 20_000);
        let device = &mut self.devices[at.device];
        if device.qps[at.qp].qp.rq.is_none() {
            return device.srq.as_mut().expect("an SRQ").queue.push(wr);
        }
        let sim = &mut device.qps[at.qp];
        let fetched = sim.qp.rq.as_ref().map_or(0, |rq| rq.fetched);
        sim.qp.post_recv(wr)?;
        if let Some(rq) = &mut sim.qp.rq
            && (late || sim.fetch_at_ns.is_some())
        {
            rq.fetched = fetched;
            sim.fetch_at_ns.get_or_insert(fetch_at_ns);
        }
        if sim.qp.state == QpState::Err {
            let (qp, mut env, _) = device.split(at.qp);
            qp.flush_receives(&mut env);
        }
        Ok(())
    }

    /// Modifies a queue pair; panics when that is refused.
    pub fn modify(&mut self, at: At, attr: &QpAttr, mask: QpAttrMask) {
        let (qp, mut env, _) = self.devices[at.device].split(at.qp);
        if let Err(error) = qp.modify(attr, mask, &LIMITS, &mut env) {
            panic!("modify {mask:?}: {error}");
        }
        self.note(|| format!("{at:?} modify to {:?}", attr.qp_state));
    }

    /// Does everything that can be done now; returns whether there was anything.
    pub fn work(&mut self) -> bool {
        let mut worked = false;
        while let Some(parcel) = self.link.receive(self.now_ns) {
            worked = true;
            if let Some(at) = self.find(parcel.train.dst_qpn) {
                self.arrive(at, parcel);
            }
        }
        for at in self.places() {
            worked |= self.work_on(at);
        }
        worked
    }

    /// Puts a parcel into the inbox, unless quirks drop or answer it.
    fn arrive(&mut self, at: At, parcel: Parcel) {
        let device = &mut self.devices[at.device];
        let (qp, mut env, _) = device.split(at.qp);
        let reply = match &mut self.link.injector {
            Some(injector) if qp.state.can_receive() => {
                injector.arrived(self.now_ns, &parcel, qp.expected_psn())
            }
            _ => Reply::Accept,
        };
        let psn = parcel.train.first_psn;
        match reply {
            Reply::Accept => device.qps[at.qp].inbox.push_back(parcel),
            Reply::Drop => {}
            Reply::Answer(Answer::RnrNak) => qp.answer_rnr_nak(psn),
            Reply::Answer(Answer::Nak(code)) => qp.answer_nak(psn, code, &mut env),
        }
        if reply != Reply::Accept {
            self.note(|| format!("{at:?} has {psn:?} before its queue pair: {reply:?}"));
        }
        // The next that arrives is in order only when the queue pair has taken this one.
        if self.link.injector.as_ref().is_some_and(FaultInjector::watches_arrivals) {
            self.accept_all(at);
        }
    }

    /// Does everything that can be done now, and what follows from it. An engine that has something
    /// to do for ever is found out.
    pub fn work_to_rest(&mut self) {
        let mut rounds = 0;
        while self.work() {
            rounds += 1;
            assert!(rounds < 100_000, "busy for ever at {} ns", self.now_ns);
        }
    }

    fn work_on(&mut self, at: At) -> bool {
        let mut worked = self.take_time(at);
        worked |= self.retire_due(at);
        while self.accept_next(at) {
            worked = true;
        }
        let max_payload = self.knobs.max_train_bytes;
        while let Some(parcel) = self.devices[at.device].next_answer(at.qp, max_payload) {
            worked = true;
            self.send(at, parcel);
        }
        loop {
            if self.try_lane(at) {
                worked = true;
                continue;
            }
            let Some(parcel) = self.devices[at.device].next_request(at.qp, max_payload) else {
                break;
            };
            worked = true;
            self.send(at, parcel);
        }
        let (now_ns, infinite_ns) = (self.now_ns, self.knobs.infinite_ns);
        let sim = &mut self.devices[at.device].qps[at.qp];
        if let Some(injector) = &mut self.link.injector {
            injector.completed(now_ns, sim.qp.qpn, sim.sent(), sim.received());
        }
        sim.qp.arm_timer(now_ns, infinite_ns);
        worked
    }

    fn send(&mut self, at: At, parcel: Parcel) {
        let mtu = self.qp(at).qp.mtu;
        self.note(|| format!("{at:?} sends {:?}", parcel.train));
        self.link.send(self.now_ns, parcel, mtu);
    }

    fn take_time(&mut self, at: At) -> bool {
        let now_ns = self.now_ns;
        let sim = &mut self.devices[at.device].qps[at.qp];
        if sim.fetch_at_ns.is_some_and(|fetch_ns| fetch_ns <= now_ns) {
            sim.fetch_at_ns = None;
            if let Some(rq) = &mut sim.qp.rq {
                rq.fetch_all();
            }
        }
        let Timer::At(kind, at_ns) = sim.qp.timer() else {
            return false;
        };
        if at_ns > now_ns {
            return false;
        }
        let (qp, mut env, _) = self.devices[at.device].split(at.qp);
        if let Some(injector) = &mut self.link.injector {
            injector.timer_fired(now_ns, qp.qpn, kind);
        }
        qp.on_timer(now_ns, &mut env);
        self.note(|| format!("{at:?} timer {kind:?}"));
        true
    }

    fn retire_due(&mut self, at: At) -> bool {
        let now_ns = self.now_ns;
        let steps = &mut self.devices[at.device].qps[at.qp].steps;
        let Some(index) = steps.iter().position(|step| step.due_ns() <= now_ns) else {
            return false;
        };
        let step = steps.remove(index);
        self.finish(at, step);
        true
    }

    fn finish(&mut self, at: At, step: Step) {
        self.note(|| format!("{at:?} retires {}", brief(&step)));
        self.devices[at.device].finish(at.qp, step);
    }

    fn accept_next(&mut self, at: At) -> bool {
        let Some(parcel) = self.devices[at.device].qps[at.qp].inbox.pop_front() else {
            return false;
        };
        let train = parcel.train;
        let late = self.rng.chance(self.knobs.late_retire);
        let due_ns = self.now_ns + if late { self.rng.between(1, 5_000) } else { 0 };
        match self.devices[at.device].offer(at.qp, parcel, due_ns) {
            Offered::Done => {
                self.note(|| format!("{at:?} took {train:?}"));
                true
            }
            Offered::Stalled(parcel) => {
                self.devices[at.device].qps[at.qp].inbox.push_front(parcel);
                false
            }
            Offered::Step(step) => {
                self.note(|| format!("{at:?} accepts {train:?}"));
                if late {
                    self.devices[at.device].qps[at.qp].steps.push(step);
                } else {
                    self.finish(at, step);
                }
                true
            }
        }
    }

    /// Puts a parcel into a queue pair's inbox, as if it had just arrived.
    pub fn give(&mut self, at: At, parcel: Parcel) {
        self.devices[at.device].qps[at.qp].inbox.push_back(parcel);
    }

    /// Lets a queue pair accept what it can; answers stay where they are.
    pub fn accept_all(&mut self, at: At) {
        while self.accept_next(at) {}
    }

    /// The earliest time at which something happens by itself, after now.
    pub fn next_ns(&self) -> Option<u64> {
        let mut next = self.link.next_ns();
        let mut take = |at_ns: u64| next = Some(next.map_or(at_ns, |next| next.min(at_ns)));
        for sim in self.devices.iter().flat_map(|device| &device.qps) {
            if let Timer::At(_, at_ns) = sim.qp.timer() {
                take(at_ns);
            }
            if let Some(at_ns) = sim.fetch_at_ns {
                take(at_ns);
            }
            for step in &sim.steps {
                take(step.due_ns());
            }
        }
        next
    }

    /// Runs until nothing happens any more, or until `until_ns`. Returns whether it came to rest.
    pub fn run(&mut self, until_ns: u64) -> bool {
        loop {
            self.work_to_rest();
            match self.next_ns() {
                None => return true,
                Some(next_ns) if next_ns > until_ns => {
                    self.now_ns = until_ns;
                    return false;
                }
                Some(next_ns) => self.now_ns = self.now_ns.max(next_ns),
            }
        }
    }

    /// Runs for one virtual minute, which must be enough to come to rest.
    pub fn settle(&mut self) {
        let until_ns = self.now_ns + 60_000_000_000;
        assert!(self.run(until_ns), "not at rest after a minute");
    }

    /// Executes the operation at the head of the send queue in the target's memory, if the lane may
    /// and the knob says so.
    fn try_lane(&mut self, at: At) -> bool {
        let sim = self.qp(at);
        let Some(position) = sim.qp.lane_candidate() else {
            return false;
        };
        if !sim.is_quiet() || !self.rng.chance(self.knobs.lane) {
            return false;
        }
        let Some(target) = self.find(self.qp(at).qp.remote_qpn) else {
            return false;
        };
        let done = self.execute_in_lane(at, target, position).is_some();
        self.note(|| format!("{at:?} lane {position} executed: {done}"));
        done
    }

    fn execute_in_lane(&mut self, at: At, target: At, position: u32) -> Option<()> {
        let (here, there) = two(&mut self.devices, at.device, target.device)?;
        let peer = &there.qps[target.qp].qp;
        let (qp, mut env, memory) = here.split(at.qp);
        let wqe = *qp.sq.wqe(position);
        let need = match wqe.opcode {
            WrOpcode::Write => Access::REMOTE_WRITE,
            WrOpcode::Read => Access::REMOTE_READ,
            _ => Access::REMOTE_ATOMIC,
        };
        let bytes = if need == Access::REMOTE_ATOMIC { 8 } else { wqe.length };
        if !peer.state.can_receive()
            || !peer.attr.qp_access_flags.contains(need)
            || need != Access::REMOTE_WRITE && peer.attr.max_dest_rd_atomic == 0
        {
            return None;
        }
        let mut addr = 0;
        if bytes > 0 {
            let entry = there.keys.get(&wqe.rkey);
            let (pd, qpn) = (peer.pd, peer.qpn);
            addr = mr::check_remote(entry, wqe.rkey, pd, qpn, need, wqe.remote_addr, bytes as u64)
                .ok()?;
        }
        let sges = qp.sq.sges(position).to_vec();
        match wqe.opcode {
            WrOpcode::Write if wqe.is_inline() => {
                let payload = qp.sq.inline(position).to_vec();
                write(&mut there.memory, addr, &payload);
            }
            WrOpcode::Write => {
                let mut payload = Vec::new();
                for piece in pieces(&sges, 0, bytes as u64) {
                    let entry = env.keys.get(&piece.sge.lkey);
                    let from = mr::check_local(entry, qp.pd, &piece.sge, false).ok()?;
                    payload.extend_from_slice(memory.read(from, piece.sge.length as usize));
                }
                write(&mut there.memory, addr, &payload);
            }
            WrOpcode::Read => {
                let payload = match bytes {
                    0 => Vec::new(),
                    _ => there.memory.read(addr, bytes as usize).to_vec(),
                };
                scatter(&payload, &sges, 0, &env, memory).ok()?;
            }
            _ => {
                let writable = |piece: &super::Piece| {
                    let entry = env.keys.get(&piece.sge.lkey);
                    mr::check_local(entry, qp.pd, &piece.sge, true).is_ok()
                };
                if !addr.is_multiple_of(8) || !pieces(&sges, 0, 8).iter().all(writable) {
                    return None;
                }
                let op = match wqe.opcode {
                    WrOpcode::CmpSwap => {
                        AtomicOp::CmpSwap { compare: wqe.compare_add, swap: wqe.swap }
                    }
                    _ => AtomicOp::FetchAdd { add: wqe.compare_add },
                };
                let original = drive::apply(op, addr, &mut there.memory);
                scatter(&original.to_ne_bytes(), &sges, 0, &env, memory).ok()?;
            }
        }
        qp.retire_lane(position, &mut env);
        Some(())
    }
}

fn write(memory: &mut super::Memory, addr: u64, payload: &[u8]) {
    if !payload.is_empty() {
        memory.write(addr, payload);
    }
}

/// Two different devices at once.
fn two(devices: &mut [Device], one: usize, other: usize) -> Option<(&mut Device, &mut Device)> {
    match devices.get_disjoint_mut([one, other]) {
        Ok([one, other]) => Some((one, other)),
        Err(_) => None,
    }
}

fn brief(step: &Step) -> String {
    match step {
        Step::Request { parcel, .. } => format!("request {:?}", parcel.train.first_psn),
        Step::Atomic { job, .. } => format!("atomic {:?}", job.op),
        Step::Response { parcel, .. } => format!("response {:?}", parcel.train.first_psn),
    }
}
