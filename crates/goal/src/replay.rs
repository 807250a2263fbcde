//! Replays a schedule at one rank.
//!
//! A message of up to `eager_bytes` is a SEND; the sender needs one of the `credits` that the
//! receiver has given it, and has sent the message when it is posted. For a longer one the sender
//! asks (a SEND), the receiver answers when the receive has begun (a SEND), and the sender WRITEs
//! it with immediate data; it is sent when that WRITE is complete. All these carry what they are,
//! and the tag, in immediate data.
//!
//! A rank has one processor. It begins the first operation of the file that may begin, and looks
//! for messages when there is none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rdmalab_measure::Stamp;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Context, SendRequest, Wc, WcOpcode};

use crate::links::{Links, Room, failed};
use crate::schedule::{Kind, Message, Op, Schedule};

/// Long messages to a peer that may be under way.
const LONG: u32 = 2;
/// Credits under way: each returns half of them.
const RETURNS: u32 = 3;

/// What a SEND is, in the two upper bits of its immediate data.
const EAGER: u32 = 0;
const ASKS: u32 = 1;
const ANSWERS: u32 = 2;
const CREDITS: u32 = 3;
const SHIFT: u32 = 30;
const LOW: u32 = (1 << SHIFT) - 1;

/// How messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Up to this length a message goes at once.
    pub eager_bytes: u64,
    /// Messages that may go to a peer at once; 2 or more.
    pub credits: u32,
}

/// What a rank did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// When each operation began and ended, in nanoseconds from the common begin.
    pub times_ns: Vec<(f64, f64)>,
    /// Messages that were sent at once.
    pub eager: u64,
    /// Messages that were asked for.
    pub long: u64,
    /// Bytes of both.
    pub bytes: u64,
}

impl Done {
    /// When the last operation ended.
    #[must_use]
    pub fn completed_ns(&self) -> f64 {
        self.times_ns.iter().map(|(_, end)| *end).fold(0.0, f64::max)
    }
}

/// A schedule that was checked, and what all ranks need to know of the whole of it.
pub struct Plan<'a> {
    schedule: &'a Schedule,
    options: Options,
    room: Room,
    calculated_ns: u64,
}

impl<'a> Plan<'a> {
    /// Goes through the schedule once, for all ranks.
    #[must_use]
    pub fn of(schedule: &'a Schedule, options: Options) -> Plan<'a> {
        let own = 2 * LONG + RETURNS;
        let counts = (options.credits, options.credits + own, options.credits + own);
        let room = Room::of(schedule, options.eager_bytes, counts);
        Plan { schedule, options, room, calculated_ns: calculated_ns(schedule) }
    }
}

/// Replays the part of this rank. All ranks call it, with the same plan.
///
/// # Errors
/// A verb failed, a message did not come, or the rank was asked to stop.
pub fn replay<R: Rank>(rank: &R, context: &Context, plan: &Plan<'_>) -> Result<Done, Stopped> {
    let Plan { schedule, ref options, room, calculated_ns } = *plan;
    let ops = schedule
        .ranks
        .get(rank.index())
        .ok_or_else(|| failed(format!("the schedule has {} ranks", schedule.ranks.len())))?;
    let links = Links::connect(rank, context, schedule, room)?;
    let mut run = Run::new(rank, &links, ops, options);
    run.patience = calculated_ns / rank.patience_ns().max(1);
    rank.barrier()?;
    run.begin = rank.clock().now();
    while run.left > 0 {
        match run.ready.pop_first() {
            Some(op) => run.start(op)?,
            None => run.wait()?,
        }
    }
    rank.barrier()?;
    Ok(run.done)
}

/// The time of all calculations of all ranks.
fn calculated_ns(schedule: &Schedule) -> u64 {
    let calculations = schedule.ranks.iter().flatten().map(|op| match op.kind {
        Kind::Calc(ns) => ns,
        Kind::Send(_) | Kind::Recv(_) => 0,
    });
    calculations.fold(0, u64::saturating_add)
}

/// A message that came before its receive began.
enum Early {
    Eager(u64),
    /// The sender asks with this number.
    Asks(u32),
}

/// What a rank knows of a peer.
struct Peer {
    credits: u32,
    /// Eager messages and questions that were taken, and not returned as credits.
    taken: u32,
    /// The next place to send from.
    place: usize,
    /// Requests posted, and known to be complete.
    posted: u32,
    complete: u32,
    /// Sends that wait, in their order.
    blocked: VecDeque<usize>,
    /// Questions asked and received.
    asked: u32,
    received: u32,
    /// Long messages that were asked for and are not over.
    long: u32,
    /// The operations of the questions that were not answered.
    asking: BTreeMap<u32, usize>,
    /// The receives whose message is being written.
    landing: BTreeMap<u32, usize>,
    /// Questions whose receive has begun, and that wait for an answer.
    unanswered: VecDeque<(u32, usize)>,
}

struct Run<'a, R> {
    rank: &'a R,
    links: &'a Links,
    ops: &'a [Op],
    options: &'a Options,
    begin: Stamp,
    done: Done,
    left: usize,
    /// For each operation: what it waits for, and who waits for its begin and for its end.
    waits: Vec<usize>,
    on_begin: Vec<Vec<usize>>,
    on_end: Vec<Vec<usize>>,
    ready: BTreeSet<usize>,
    /// How often a wait may take as long as a rank is patient.
    patience: u64,
    peers: Vec<Peer>,
    /// By peer and tag.
    receives: BTreeMap<(usize, u32), VecDeque<usize>>,
    early: BTreeMap<(usize, u32), VecDeque<Early>>,
}

impl<'a, R: Rank> Run<'a, R> {
    fn new(rank: &'a R, links: &'a Links, ops: &'a [Op], options: &'a Options) -> Self {
        let (mut on_begin, mut on_end) = (vec![Vec::new(); ops.len()], vec![Vec::new(); ops.len()]);
        for (index, op) in ops.iter().enumerate() {
            op.after_begin.iter().for_each(|other: &usize| on_begin[*other].push(index));
            op.after_end.iter().for_each(|other: &usize| on_end[*other].push(index));
        }
        let waits: Vec<usize> =
            ops.iter().map(|op| op.after_begin.len() + op.after_end.len()).collect();
        let peer = |_: &_| Peer {
            credits: options.credits,
            taken: 0,
            place: 0,
            posted: 0,
            complete: 0,
            blocked: VecDeque::new(),
            asked: 0,
            received: 0,
            long: 0,
            asking: BTreeMap::new(),
            landing: BTreeMap::new(),
            unanswered: VecDeque::new(),
        };
        let times_ns = vec![(0.0, 0.0); ops.len()];
        Run {
            rank,
            links,
            ops,
            options,
            begin: Stamp(0),
            patience: 0,
            done: Done { times_ns, ..Done::default() },
            left: ops.len(),
            ready: (0..ops.len()).filter(|op| waits[*op] == 0).collect(),
            waits,
            on_begin,
            on_end,
            peers: links.all.iter().map(peer).collect(),
            receives: BTreeMap::new(),
            early: BTreeMap::new(),
        }
    }

    /// The time since the common begin. The clock is read, and no stamp is taken, which would cost
    /// time.
    fn now_ns(&self) -> f64 {
        self.rank.clock().ns_between(self.begin, self.rank.clock().now())
    }

    fn let_go(&mut self, waiters: Vec<usize>) {
        for op in waiters {
            self.waits[op] -= 1;
            if self.waits[op] == 0 {
                self.ready.insert(op);
            }
        }
    }

    fn end(&mut self, op: usize) {
        self.done.times_ns[op].1 = self.now_ns();
        self.left -= 1;
        let waiters = std::mem::take(&mut self.on_end[op]);
        self.let_go(waiters);
    }

    fn start(&mut self, op: usize) -> Result<(), Stopped> {
        self.done.times_ns[op].0 = self.now_ns();
        let waiters = std::mem::take(&mut self.on_begin[op]);
        self.let_go(waiters);
        match self.ops[op].kind {
            Kind::Calc(ns) => {
                self.rank.think(ns)?;
                self.end(op);
            }
            Kind::Send(message) => {
                let to = self.peer(message.peer)?;
                self.peers[to].blocked.push_back(op);
                self.send_blocked(to)?;
            }
            Kind::Recv(message) => self.receive(op, &message)?,
        }
        Ok(())
    }

    fn peer(&self, rank: usize) -> Result<usize, Stopped> {
        self.links.to(rank).ok_or_else(|| failed(format!("there is no link to rank {rank}")))
    }

    /// Sends what waits for a peer, as far as that lets it go.
    fn send_blocked(&mut self, to: usize) -> Result<(), Stopped> {
        while self.peers[to].credits > 0
            && let Some(op) = self.peers[to].blocked.pop_front()
        {
            let Some(message) = self.ops[op].message().copied() else { break };
            self.send(op, to, &message, message.bytes > self.options.eager_bytes)?;
        }
        Ok(())
    }

    /// Sends a message, or asks for it, with a credit of the peer.
    fn send(
        &mut self,
        op: usize,
        to: usize,
        message: &Message,
        is_long: bool,
    ) -> Result<(), Stopped> {
        let peer = &mut self.peers[to];
        peer.credits -= 1;
        self.done.bytes += message.bytes;
        if is_long {
            self.done.long += 1;
            peer.long += 1;
            peer.asking.insert(peer.asked, op);
            peer.asked = (peer.asked + 1) & LOW;
            return self.tell(to, ASKS, message.tag);
        }
        self.done.eager += 1;
        let at = self.links.room.place(to, peer.place);
        peer.place = (peer.place + 1) % self.links.room.places;
        let is_inline = message.bytes <= self.links.inline_bytes.into();
        if !is_inline {
            // To the place, which is registered.
            self.rank.copied(message.bytes);
        }
        let sges = [self.links.mr.sge(at, message.bytes as usize)];
        let request = SendRequest::send(&sges[..usize::from(message.bytes > 0)]);
        let request = if is_inline { request.inline_data() } else { request };
        self.post(to, request.with_imm(EAGER << SHIFT | message.tag), 0)?;
        self.end(op);
        Ok(())
    }

    /// Sends a message without payload.
    fn tell(&mut self, to: usize, what: u32, number: u32) -> Result<(), Stopped> {
        self.post(to, SendRequest::send(&[]).with_imm(what << SHIFT | number & LOW), 0)
    }

    /// Posts a request when the send queue has room. Every other half of a queue one is signaled,
    /// and each that is the end of an operation, `of` (from 1).
    fn post(&mut self, to: usize, request: SendRequest<'_, '_>, of: usize) -> Result<(), Stopped> {
        let room = self.links.room.sends as u32;
        while self.peers[to].posted - self.peers[to].complete >= room {
            let wc = self.rank.spin(|| self.links.send_cq.poll_one().transpose())?;
            self.sent(&wc.map_err(failed)?)?;
        }
        let position = self.peers[to].posted;
        self.peers[to].posted += 1;
        let request = request.wr_id(u64::from(position) << 32 | of as u64);
        let is_signaled = of > 0 || (position + 1).is_multiple_of((room / 2).max(1));
        let request = if is_signaled { request.signaled() } else { request };
        self.links.all[to].qp.post_send(&[request]).map_err(failed)
    }

    /// A completion of the send queue.
    fn sent(&mut self, wc: &Wc) -> Result<(), Stopped> {
        self.check(wc)?;
        let Some(to) = self.links.of_qp(wc.qp_num()) else { return Ok(()) };
        self.peers[to].complete = (wc.wr_id() >> 32) as u32 + 1;
        let of = (wc.wr_id() & u64::from(u32::MAX)) as usize;
        if of > 0 {
            self.peers[to].long -= 1;
            self.end(of - 1);
        }
        Ok(())
    }

    fn check(&self, wc: &Wc) -> Result<(), Stopped> {
        wc.status().map_err(|status| failed(format!("rank {}: {status}", self.rank.index())))
    }

    /// A receive begins: its message may be there.
    fn receive(&mut self, op: usize, message: &Message) -> Result<(), Stopped> {
        let key = (self.peer(message.peer)?, message.tag);
        match self.early.get_mut(&key).and_then(VecDeque::pop_front) {
            None => self.receives.entry(key).or_default().push_back(op),
            Some(Early::Eager(bytes)) => {
                // It was copied out of the receive, and goes where it belongs now.
                self.rank.copied(bytes);
                self.end(op);
            }
            Some(Early::Asks(number)) => self.answer(key.0, number, op)?,
        }
        Ok(())
    }

    /// Lets a peer write a long message, when there is room for it.
    fn answer(&mut self, to: usize, number: u32, op: usize) -> Result<(), Stopped> {
        let peer = &mut self.peers[to];
        if peer.landing.len() == LONG as usize {
            peer.unanswered.push_back((number, op));
            return Ok(());
        }
        peer.landing.insert(number, op);
        self.tell(to, ANSWERS, number)
    }

    /// Waits for a message, or for the end of a WRITE, and does what follows from it.
    fn wait(&mut self) -> Result<(), Stopped> {
        // What came while a send queue was full may let sends go.
        for to in 0..self.peers.len() {
            self.send_blocked(to)?;
        }
        if self.left == 0 || !self.ready.is_empty() {
            return Ok(());
        }
        let links = self.links;
        let writes = self.peers.iter().any(|peer| peer.long > 0);
        let look = || match links.recv_cq.poll_one() {
            Ok(None) if writes => links.send_cq.poll_one().map(|wc| Some((wc?, true))).transpose(),
            other => other.map(|wc| Some((wc?, false))).transpose(),
        };
        let found = loop {
            match self.rank.spin(look) {
                // The others may calculate for longer than a rank is patient.
                Err(Stopped::TimedOut(_)) if self.patience > 0 => self.patience -= 1,
                other => break other?,
            }
        };
        let (wc, is_sent) = found.map_err(failed)?;
        match is_sent {
            true => self.sent(&wc),
            false => self.came(&wc),
        }
    }

    /// A message came.
    fn came(&mut self, wc: &Wc) -> Result<(), Stopped> {
        self.check(wc)?;
        let (from, number) = ((wc.wr_id() >> 32) as usize, wc.wr_id() as u32 as usize);
        self.links.post_receive(from, number)?;
        let imm = wc.imm().unwrap_or_default();
        if wc.opcode() == WcOpcode::RecvRdmaWithImm {
            if let Some(op) = self.peers[from].landing.remove(&imm) {
                self.end(op);
            }
            if let Some((number, op)) = self.peers[from].unanswered.pop_front() {
                self.answer(from, number, op)?;
            }
            return Ok(());
        }
        let (what, low) = (imm >> SHIFT, imm & LOW);
        match what {
            ANSWERS => self.write(from, low)?,
            CREDITS => {
                self.peers[from].credits += low;
                self.send_blocked(from)?;
            }
            _ => {
                let early = match what {
                    EAGER => Early::Eager(wc.byte_len().into()),
                    _ => {
                        let number = self.peers[from].received;
                        self.peers[from].received = (number + 1) & LOW;
                        Early::Asks(number)
                    }
                };
                self.matched((from, low), early)?;
                self.return_credits(from)?;
            }
        }
        Ok(())
    }

    /// Gives a message to its receive, or keeps it for that.
    fn matched(&mut self, key: (usize, u32), early: Early) -> Result<(), Stopped> {
        if let Early::Eager(bytes) = &early {
            self.rank.copied(*bytes);
        }
        match (self.receives.get_mut(&key).and_then(VecDeque::pop_front), early) {
            (None, early) => self.early.entry(key).or_default().push_back(early),
            (Some(op), Early::Eager(_)) => self.end(op),
            (Some(op), Early::Asks(number)) => self.answer(key.0, number, op)?,
        }
        Ok(())
    }

    fn return_credits(&mut self, to: usize) -> Result<(), Stopped> {
        self.peers[to].taken += 1;
        let taken = self.peers[to].taken;
        if taken < (self.options.credits / 2).max(1) {
            return Ok(());
        }
        self.peers[to].taken = 0;
        self.tell(to, CREDITS, taken)
    }

    /// Writes a long message, for which the receiver is ready.
    fn write(&mut self, to: usize, number: u32) -> Result<(), Stopped> {
        let Some(op) = self.peers[to].asking.remove(&number) else { return Ok(()) };
        let Some(message) = self.ops[op].message() else { return Ok(()) };
        let links = self.links;
        let at = links.room.long(links.all.len());
        let sges = [links.mr.sge(at, message.bytes as usize)];
        let request = SendRequest::write(&sges, &links.all[to].landing, 0).with_imm(number);
        self.post(to, request, op + 1)
    }
}
