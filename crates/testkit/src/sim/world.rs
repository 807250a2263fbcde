//! The world: devices, a link between them, and virtual time.

use super::device::{Device, DeviceEnv, SimQp};
use super::drive::Offered;
use super::injector::FaultInjector;
use super::link::Link;
use super::memory::Memory;
use super::step::{Step, TrainData};
use rdmalab_driver as driver;
use rdmalab_driver::lane::{self, Granted, Lane};
use rdmalab_driver::timers::{self, Timers};
use rdmalab_engine::backend::{PostError, RecvWr, SendWr};
use rdmalab_engine::mr::{self, KeyEntry};
use rdmalab_engine::qp::attr::Limits;
use rdmalab_engine::qp::{Qp, Timer, TimerKind};
use rdmalab_engine::vocab::*;
use rdmalab_link::quirk::{Answer, Reply};
use rdmalab_random::Random;
use rdmalab_wire::ids::Qpn;
use std::collections::BTreeMap;

/// A queue pair of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct At {
    /// Which device.
    pub device: usize,
    /// Which of its queue pairs.
    pub qp: usize,
}

/// How the driver behaves where it may choose.
#[derive(Clone, Copy, Debug)]
pub struct Knobs {
    /// Most payload bytes in a train.
    pub max_train_bytes: u32,
    /// How often, in a thousand, the second half of a step runs later than the first.
    pub late_retire: u32,
    /// How often, in a thousand, the adapter reads posted WQEs later than at once.
    pub late_fetch: u32,
    /// How often, in a thousand, an operation that may take the local lane takes it.
    pub lane: u32,
    /// Virtual time that stands for an infinite ACK time-out, ns.
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

/// The devices, the link and the clock.
#[derive(Debug)]
pub struct World {
    /// Virtual time.
    pub now_ns: u64,
    /// The devices.
    pub devices: Vec<Device>,
    /// The link between them.
    pub link: Link,
    /// How the driver behaves.
    pub knobs: Knobs,
    /// The newest events, if [`World::tracing`] is set.
    pub trace: std::collections::VecDeque<String>,
    /// Whether to keep events in the trace.
    pub tracing: bool,
    random: Random,
}

/// How many events the trace keeps.
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
    /// A world of `devices` devices; `seed` decides all random choices.
    pub fn new(devices: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut devices: Vec<Device> = (0..devices).map(Device::new).collect();
        for (index, device) in devices.iter_mut().enumerate() {
            device.short_ways = seed >> index & 1 == 1;
        }
        World {
            now_ns: 0,
            devices,
            link: Link::new(random.fork()),
            knobs: Knobs::default(),
            trace: Default::default(),
            tracing: false,
            random,
        }
    }

    /// The queue pair at `at`.
    pub fn qp(&self, at: At) -> &SimQp {
        &self.devices[at.device].qps[at.qp]
    }

    /// The places of all queue pairs.
    pub fn places(&self) -> Vec<At> {
        let qps = |(device, d): (usize, &Device)| {
            (0..d.qps.len()).map(move |qp| At { device, qp }).collect::<Vec<_>>()
        };
        self.devices.iter().enumerate().flat_map(qps).collect()
    }

    /// The place of the queue pair with this number.
    pub fn find(&self, qpn: Qpn) -> Option<At> {
        let device = (qpn.get() >> 8).checked_sub(1)? as usize;
        let qp = (qpn.get() & 0xff).checked_sub(1)? as usize;
        (qp < self.devices.get(device)?.qps.len()).then_some(At { device, qp })
    }

    /// Adds an event to the trace.
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
        // Without late fetches, draw nothing here: seeds that once found bugs keep their runs.
        let late = (self.knobs.late_fetch > 0).then(|| self.draw_fetch_at_ns()).flatten();
        let device = &mut self.devices[at.device];
        let sim = &mut device.qps[at.qp];
        let position = sim.qp.post_send(wr, sim.freed)?;
        if wr.flags.contains(SendFlags::INLINE) {
            let mut to = sim.qp.sq.inline_mut(position);
            for sge in wr.sges.iter().filter(|sge| sge.length > 0) {
                let bytes = device.memory.read(sge.addr, sge.length as usize);
                let (here, rest) = to.split_at_mut(bytes.len());
                here.copy_from_slice(bytes);
                to = rest;
            }
        }
        match sim.fetch_sends_at_ns.or(late) {
            fetch_at_ns @ Some(_) => sim.fetch_sends_at_ns = fetch_at_ns,
            None => sim.qp.fetch_sends(),
        }
        if matches!(sim.qp.state, QpState::Err | QpState::Sqe) {
            let (qp, mut env) = device.split(at.qp);
            qp.flush_sends(&mut env);
        }
        self.note(|| format!("{at:?} post {:?} wr {} -> {position}", wr.opcode, wr.wr_id));
        Ok(position)
    }

    /// Posts a receive to the QP's receive queue or its shared receive queue.
    pub fn post_recv(&mut self, at: At, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let late = self.draw_fetch_at_ns();
        let device = &mut self.devices[at.device];
        if device.qps[at.qp].qp.rq.is_none() {
            let queue = &mut device.srq.as_mut().expect("an SRQ").queue;
            queue.push(wr)?;
            match device.fetch_shared_at_ns.or(late) {
                fetch_at_ns @ Some(_) => device.fetch_shared_at_ns = fetch_at_ns,
                None => queue.fetch_all(),
            }
            return Ok(());
        }
        let sim = &mut device.qps[at.qp];
        sim.qp.post_recv(wr)?;
        match sim.fetch_receives_at_ns.or(late) {
            fetch_at_ns @ Some(_) => sim.fetch_receives_at_ns = fetch_at_ns,
            None => sim.qp.fetch_receives(),
        }
        if sim.qp.state == QpState::Err {
            let (qp, mut env) = device.split(at.qp);
            qp.flush_receives(&mut env);
        }
        Ok(())
    }

    /// When the adapter reads the WQE that is posted now; `None`: at once. WQEs are read in order,
    /// so a WQE that is posted while another one waits is read together with that one.
    fn draw_fetch_at_ns(&mut self) -> Option<u64> {
        let late = self.random.chance(self.knobs.late_fetch);
        let fetch_at_ns = self.now_ns + self.random.between(100, 20_000);
        late.then_some(fetch_at_ns)
    }

    /// Modifies a queue pair; panics when that is refused.
    pub fn modify(&mut self, at: At, attr: &QpAttr, mask: QpAttrMask) {
        let (qp, mut env) = self.devices[at.device].split(at.qp);
        if let Err(error) = qp.modify(attr, mask, &LIMITS, &mut env) {
            panic!("modify {mask:?}: {error}");
        }
        self.note(|| format!("{at:?} modify to {:?}", attr.qp_state));
    }

    /// Does all work that is possible now; returns whether there was any.
    pub fn work(&mut self) -> bool {
        let mut worked = false;
        while let Some(train_data) = self.link.receive(self.now_ns) {
            worked = true;
            if let Some(at) = self.find(train_data.train.dst_qpn) {
                self.arrive(at, train_data);
            }
        }
        let now_ns = self.now_ns;
        for device in &mut self.devices {
            if is_due(&mut device.fetch_shared_at_ns, now_ns)
                && let Some(srq) = &mut device.srq
            {
                srq.queue.fetch_all();
            }
        }
        for at in self.places() {
            worked |= self.work_on(at);
        }
        worked | self.let_pages_come()
    }

    fn let_pages_come(&mut self) -> bool {
        let mut worked = false;
        for device in &mut self.devices {
            let Some(paged) = device.paged.as_mut() else { continue };
            if !paged.work(self.now_ns) {
                continue;
            }
            worked = true;
            let (naks, waiting) =
                (std::mem::take(&mut paged.naks), std::mem::take(&mut paged.waiting));
            let index = |qpn: Qpn| (qpn.get() & 0xff) as usize - 1;
            for (qpn, number) in naks {
                device.split(index(qpn)).0.release_fault_nak(number);
            }
            for qpn in waiting {
                let (qp, mut env) = device.split(index(qpn));
                qp.pages_arrived(&mut env);
            }
        }
        worked
    }

    /// Puts a train into the inbox, unless quirks drop it or answer it.
    fn arrive(&mut self, at: At, train_data: TrainData) {
        let device = &mut self.devices[at.device];
        let (qp, mut env) = device.split(at.qp);
        let reply = match &mut self.link.injector {
            Some(injector) if qp.state.can_receive() => {
                injector.arrived(self.now_ns, &train_data, qp)
            }
            _ => Reply::Accept,
        };
        let psn = train_data.train.first_psn;
        match reply {
            Reply::Accept => device.qps[at.qp].inbox.push_back(train_data),
            Reply::Drop => {}
            Reply::Answer(Answer::RnrNak) => qp.answer_rnr_nak(psn),
            Reply::Answer(Answer::Nak(code)) => qp.answer_nak(psn, code, &mut env),
        }
        if reply != Reply::Accept {
            self.note(|| format!("{at:?} has {psn:?} before its queue pair: {reply:?}"));
        }
        // Whether the next train is in order shows only after the queue pair has accepted this one.
        if self.link.injector.as_ref().is_some_and(FaultInjector::watches_arrivals) {
            self.accept_all(at);
        }
    }

    /// Works until nothing is left to do now. Panics if the engine never comes to an end.
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
        while let Some(train_data) = self.devices[at.device].next_answer(at.qp, max_payload) {
            worked = true;
            self.send(at, train_data);
        }
        loop {
            if self.try_lane(at) {
                worked = true;
                continue;
            }
            let Some(train_data) = self.devices[at.device].next_request(at.qp, max_payload) else {
                break;
            };
            worked = true;
            self.send(at, train_data);
        }
        let (now_ns, infinite_ns) = (self.now_ns, self.knobs.infinite_ns);
        let sim = &mut self.devices[at.device].qps[at.qp];
        if let Some(injector) = &mut self.link.injector {
            injector.completed(now_ns, sim.qp.qpn, sim.sent(), sim.received());
        }
        timers::arm(&mut sim.qp, &mut Deadlines { now_ns, infinite_ns });
        worked
    }

    fn send(&mut self, at: At, train_data: TrainData) {
        let mtu = self.qp(at).qp.mtu;
        self.note(|| format!("{at:?} sends {:?}", train_data.train));
        self.link.send(self.now_ns, train_data, mtu);
    }

    fn take_time(&mut self, at: At) -> bool {
        let now_ns = self.now_ns;
        let sim = &mut self.devices[at.device].qps[at.qp];
        if is_due(&mut sim.fetch_sends_at_ns, now_ns) {
            sim.qp.fetch_sends();
        }
        if is_due(&mut sim.fetch_receives_at_ns, now_ns) {
            sim.qp.fetch_receives();
        }
        let Some(kind) = timers::due(&sim.qp, now_ns) else {
            return false;
        };
        let (qp, mut env) = self.devices[at.device].split(at.qp);
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
        let Some(index) = steps.iter().position(|step| step.due_ns <= now_ns) else {
            return false;
        };
        let step = steps.remove(index);
        self.finish(at, step);
        true
    }

    fn finish(&mut self, at: At, step: Step) {
        self.note(|| format!("{at:?} retires {:?}", step.train_data.train));
        self.devices[at.device].finish(at.qp, &step);
    }

    fn accept_next(&mut self, at: At) -> bool {
        let Some(train_data) = self.devices[at.device].qps[at.qp].inbox.pop_front() else {
            return false;
        };
        let train = train_data.train;
        let late = self.random.chance(self.knobs.late_retire);
        let due_ns = self.now_ns + if late { self.random.between(1, 5_000) } else { 0 };
        match self.devices[at.device].offer(at.qp, train_data, due_ns) {
            Offered::Done => {
                self.note(|| format!("{at:?} took {train:?}"));
                true
            }
            Offered::Stalled(train_data) => {
                self.devices[at.device].qps[at.qp].inbox.push_front(train_data);
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

    /// Puts a train into a queue pair's inbox, as if it had just arrived.
    pub fn give(&mut self, at: At, train_data: TrainData) {
        self.devices[at.device].qps[at.qp].inbox.push_back(train_data);
    }

    /// Lets a queue pair accept all that it can, without sending its responses.
    pub fn accept_all(&mut self, at: At) {
        while self.accept_next(at) {}
    }

    /// The time of the next event that is already scheduled.
    pub fn next_ns(&self) -> Option<u64> {
        let mut next = self.link.next_ns();
        let mut take = |at_ns: u64| next = Some(next.map_or(at_ns, |next| next.min(at_ns)));
        self.devices.iter().filter_map(|device| device.fetch_shared_at_ns).for_each(&mut take);
        let paged = self.devices.iter().filter_map(|device| device.paged.as_ref());
        paged.filter_map(|paged| paged.next_ns()).for_each(&mut take);
        for sim in self.devices.iter().flat_map(|device| &device.qps) {
            if let Timer::At(_, at_ns) = sim.qp.timer() {
                take(at_ns);
            }
            sim.fetch_sends_at_ns.into_iter().for_each(&mut take);
            sim.fetch_receives_at_ns.into_iter().for_each(&mut take);
            for step in &sim.steps {
                take(step.due_ns);
            }
        }
        next
    }

    /// Runs until no event is left, or until `until_ns`. Returns whether no event is left.
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

    /// Runs until no event is left; panics if that takes longer than one virtual minute.
    pub fn settle(&mut self) {
        let until_ns = self.now_ns + 60_000_000_000;
        assert!(self.run(until_ns), "not at rest after a minute");
    }

    /// Executes the operation at the head of the send queue directly in the target's memory, if the
    /// lane allows it and [`Knobs::lane`] chooses it.
    fn try_lane(&mut self, at: At) -> bool {
        let sim = self.qp(at);
        let Some(position) = sim.qp.lane_candidate() else {
            return false;
        };
        if !sim.is_quiet() || !self.random.chance(self.knobs.lane) {
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
        let (qp, mut env) = here.split(at.qp);
        let need_answer = qp.sq.wqe(position).opcode.is_read_or_atomic();
        if need_answer && peer.attr.max_dest_rd_atomic == 0 {
            return None;
        }
        let target = lane::Target {
            can_receive: peer.state.can_receive(),
            pd: peer.pd,
            access: peer.attr.qp_access_flags,
            remote_qpn: peer.remote_qpn,
        };
        let mut reach = Reach { target, keys: &there.keys, memory: &mut there.memory };
        lane::execute(qp, &mut reach, &mut env, position).then_some(())
    }
}

/// The driver's timers: [`World::next_ns`] reads the deadlines from the queue pairs.
pub(crate) struct Deadlines {
    pub(crate) now_ns: u64,
    /// Stands for an infinite ACK time-out.
    pub(crate) infinite_ns: u64,
}

impl Timers for Deadlines {
    fn deadline_ns(&mut self, qp: &Qp, kind: TimerKind) -> Option<u64> {
        Some(self.now_ns.saturating_add(qp.wait_ns(kind).unwrap_or(self.infinite_ns)))
    }

    fn schedule(&mut self, _kind: TimerKind, _at_ns: u64) {}
}

/// The memory of another device, which the initiator reaches itself.
struct Reach<'a> {
    target: lane::Target,
    keys: &'a BTreeMap<u32, KeyEntry>,
    memory: &'a mut Memory,
}

impl Lane<DeviceEnv<'_>> for Reach<'_> {
    fn target(&self, _qp: &Qp) -> lane::Target {
        self.target
    }

    fn key(&self, rkey: u32) -> Option<KeyEntry> {
        self.keys.get(&rkey).copied()
    }

    fn move_bytes(
        &mut self,
        qp: &Qp,
        host: &mut DeviceEnv<'_>,
        position: u32,
        granted: &Granted,
    ) -> bool {
        let Granted { host_addr, bytes, .. } = *granted;
        move_in_lane(qp, host, self.memory, position, host_addr, bytes as u32).is_some()
    }
}

/// Copies the bytes of an operation in the lane; `None` when that is impossible.
fn move_in_lane(
    qp: &Qp,
    env: &mut DeviceEnv<'_>,
    there: &mut Memory,
    position: u32,
    addr: u64,
    bytes: u32,
) -> Option<()> {
    let (pd, sges) = (qp.pd, qp.sq.sges(position));
    match qp.sq.wqe(position).opcode {
        WrOpcode::Write => {
            let mut payload = vec![0; bytes as usize];
            driver::read_wqe(qp, env, position, 0..bytes, &mut payload).ok()?;
            there.write(addr, &payload);
        }
        WrOpcode::Read => {
            let mut payload = there.read(addr, bytes as usize);
            driver::scatter(env, pd, sges, 0, bytes, &mut payload).ok()?;
        }
        _ => {
            // The result must have a writable place before the remote memory changes.
            let is_writable = |sge: &Sge| driver::local_address(env, pd, sge, true).map(drop);
            mr::for_each_piece(sges, 0, 8, is_writable).ok()?;
            let original = there.atomic(addr, lane::atomic_of(qp, position)).to_ne_bytes();
            driver::scatter(env, pd, sges, 0, 8, &mut &original[..]).ok()?;
        }
    }
    Some(())
}

/// Whether the time in `at_ns` has come; if so, clears it.
fn is_due(at_ns: &mut Option<u64>, now_ns: u64) -> bool {
    at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some()
}

/// Borrows two different devices at once.
fn two(devices: &mut [Device], one: usize, other: usize) -> Option<(&mut Device, &mut Device)> {
    match devices.get_disjoint_mut([one, other]) {
        Ok([one, other]) => Some((one, other)),
        Err(_) => None,
    }
}
