//! `overhead`: what the calls cost, as in viertel2006.
//!
//! Rank 0 posts a list of sends and takes all their completions, again and again; each call has a
//! stamp before it and one after. So has nothing at all, once a round: what two stamps cost stands
//! beside the calls, and is not taken off. Receives go to a queue pair that nobody sends to, which
//! is emptied when it is full; its completion queue has nothing, whenever it is polled.

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Access, Context, Cq, Mr, Qp, QpState, RecvBatch, RecvRequest, Sge, Wc};

use crate::blast::receive;
use crate::common::completions::failed;
use crate::common::endpoint::{End, QKEY, qp_type};
use crate::common::limits::Limits;
use crate::common::lockstep::{Begin, Course, Effort, gather_or_keep, stopped};
use crate::common::receives::Credits;
use crate::common::samples::{parts, stamp_memory};
use crate::common::sender::{Sender, each_completion};
use crate::point::{Experiment, Point};

/// The first guess of how long it takes until all completions of a list are there, and the longest
/// one.
const SETTLE_NS: (u64, u64) = (1000, 10_000_000);

/// Runs it.
pub(crate) fn run<R: Rank>(
    rank: &R,
    context: &Context,
    limits: &Limits,
    point: &Point,
) -> Result<Outcome, Stopped> {
    // As many places as a list has, so that a list begins where the one before began.
    let point = &Point { buffers: point.list, ..point.clone() };
    let end = End::connect(rank, context, limits, point)?;
    match rank.index() {
        0 => {
            let spare = Spare::new(context, point)?;
            call(rank, &end, point, &spare)
        }
        _ => receive::run(rank, &end, &in_messages(point)),
    }
}

/// The point as its receiver sees it: messages, not lists.
fn in_messages(point: &Point) -> Point {
    let list = u64::from(point.list);
    Point {
        experiment: Experiment::Blast,
        messages: point.messages * list,
        warm_up: point.warm_up * list,
        ..point.clone()
    }
}

/// A queue pair that nobody sends to.
struct Spare {
    qp: Qp,
    cq: Cq,
    mr: Mr,
    port: u8,
    list: usize,
    size: usize,
    depth: usize,
}

impl Spare {
    fn new(context: &Context, point: &Point) -> Result<Self, Stopped> {
        let (list, size) = (point.list as usize, point.size_bytes as usize);
        let grh = if point.transport == crate::point::Transport::Ud { 40 } else { 0 };
        let pd = context.alloc_pd().map_err(failed)?;
        let buffer = context.alloc_buffer(size + grh).map_err(failed)?;
        let mr = pd.register(&buffer, Access::LOCAL_WRITE).map_err(failed)?;
        let cq = context.create_cq(point.rx_depth, None).map_err(failed)?;
        let builder = Qp::builder(qp_type(point.transport), &cq, &cq);
        let qp = builder.max_send_wr(1).max_recv_wr(point.rx_depth).build(&pd).map_err(failed)?;
        let size = size + grh;
        let spare =
            Self { qp, cq, mr, port: point.port, list, size, depth: point.rx_depth as usize };
        spare.init()?;
        Ok(spare)
    }

    fn init(&self) -> Result<(), Stopped> {
        self.qp.to_init(self.port, Access::LOCAL_WRITE, QKEY).map_err(failed)
    }

    /// Forgets all that was posted.
    fn empty(&self) -> Result<(), Stopped> {
        self.qp.to_state(QpState::Reset).map_err(failed)?;
        self.init()
    }

    /// Receives, all into the same place: nothing ever comes.
    fn batch(&self) -> RecvBatch<'_> {
        let sges: Vec<[Sge<'_>; 1]> = vec![[self.mr.sge(0, self.size)]; self.list];
        let requests: Vec<_> = sges.iter().map(|sges| RecvRequest::new(sges)).collect();
        RecvBatch::new(&requests)
    }
}

/// Times of one call, in ticks.
struct Log {
    ticks: Vec<u64>,
    count: usize,
    warm_up: usize,
}

impl Log {
    fn new(point: &Point) -> Self {
        Self { ticks: stamp_memory(point.total() as usize, point.touch), count: 0, warm_up: 0 }
    }

    #[inline]
    fn keep(&mut self, from: Stamp, to: Stamp) {
        if let Some(place) = self.ticks.get_mut(self.count) {
            *place = to.0.wrapping_sub(from.0);
            self.count += 1;
        }
    }
}

/// The calls, in the order of [`LABELS`].
#[derive(Clone, Copy)]
enum Call {
    Nothing,
    PostSend,
    PostRecv,
    Hit,
    Miss,
    List,
}

const LABELS: [(Quantity, &str); 6] = [
    (Quantity::CallCost, "nothing, two stamps"),
    (Quantity::PostCost, "post_send"),
    (Quantity::PostCost, "post_recv"),
    (Quantity::CallCost, "poll_cq, hit"),
    (Quantity::CallCost, "poll_cq, miss"),
    (Quantity::CompletionTime, "whole list"),
];

struct Calls<'a, R> {
    rank: &'a R,
    end: &'a End,
    point: &'a Point,
    spare: &'a Spare,
    receives: RecvBatch<'a>,
    posted: usize,
    sender: Sender<'a>,
    credits: Credits<'a>,
    wcs: Vec<Wc>,
    logs: Vec<Log>,
    settle_ns: u64,
    /// Polls for a list that found a part of it.
    partial: u64,
    sent: u64,
}

fn call<R: Rank>(rank: &R, end: &End, point: &Point, spare: &Spare) -> Result<Outcome, Stopped> {
    let list = point.list as usize;
    let places = (0..list).map(|i| (i, i)).collect();
    let capacity = u64::from(point.tx_depth);
    let mut calls = Calls {
        rank,
        end,
        point,
        spare,
        receives: spare.batch(),
        posted: 0,
        sender: Sender::new(end, point, point.op, 0, &places, capacity),
        credits: Credits::new(end, point, point.op.needs_receives())?,
        wcs: vec![Wc::default(); list],
        logs: LABELS.iter().map(|_| Log::new(point)).collect(),
        settle_ns: SETTLE_NS.0,
        partial: 0,
        sent: 0,
    };
    let is_passive = receive::is_passive(point);
    let mut effort = Effort::default();
    let mut course = Course::new(rank, end);
    for (index, lists) in parts(point).enumerate() {
        if !course.goes_on()? {
            break;
        }
        let begin = Begin::now(rank);
        let result = calls.part(lists);
        begin.end(rank, &mut effort);
        course.took(result.and_then(|()| if is_passive { end.say_over(rank) } else { Ok(()) }))?;
        if index == 0 && point.warm_up > 0 {
            calls.logs.iter_mut().for_each(|log| log.warm_up = log.count);
        }
    }
    calls.outcome(effort, course.cut_short)
}

impl<R: Rank> Calls<'_, R> {
    fn part(&mut self, lists: u64) -> Result<(), Stopped> {
        for i in 0..lists {
            if self.rank.is_asked_to_stop() {
                return Err(stopped(self.rank));
            }
            let (from, to) = (self.rank.now(), self.rank.now());
            self.keep(Call::Nothing, from, to);
            self.post_recv()?;
            self.miss()?;
            self.make_room()?;
            // Half of the lists are left alone until they are through, so that one call takes all
            // completions; the others are looked for, which gives the time until then.
            let from = self.post_send()?;
            if i % 2 == 0 { self.settle_and_hit()? } else { self.look(from)? }
        }
        Ok(())
    }

    #[inline]
    fn keep(&mut self, call: Call, from: Stamp, to: Stamp) {
        self.logs[call as usize].keep(from, to);
    }

    fn post_recv(&mut self) -> Result<(), Stopped> {
        if self.posted + self.spare.list > self.spare.depth {
            self.spare.empty()?;
            self.posted = 0;
        }
        let from = self.rank.now();
        let result = self.spare.qp.post_recv_batch(&mut self.receives);
        let to = self.rank.now();
        result.map_err(failed)?;
        self.posted += self.spare.list;
        self.keep(Call::PostRecv, from, to);
        Ok(())
    }

    fn miss(&mut self) -> Result<(), Stopped> {
        let from = self.rank.now();
        let found = self.spare.cq.poll(&mut self.wcs);
        let to = self.rank.now();
        if found.map_err(failed)? == 0 {
            self.keep(Call::Miss, from, to);
        }
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), Stopped> {
        let list = u64::from(self.point.list);
        if self.credits.allowed(0)? < list {
            self.credits.wait_for(self.rank, 0, list, || Ok(()))?;
        }
        Ok(())
    }

    fn post_send(&mut self) -> Result<Stamp, Stopped> {
        let list = self.point.list;
        self.sender.prepare(list as usize, self.sent, 0, true);
        let from = self.rank.now();
        let result = self.sender.submit(list as usize);
        let to = self.rank.now();
        result?;
        self.credits.spend(0, list.into());
        self.sent += u64::from(list);
        self.keep(Call::PostSend, from, to);
        Ok(from)
    }

    /// Waits without looking there, and then takes all in one call.
    fn settle_and_hit(&mut self) -> Result<(), Stopped> {
        let (idle, mut none) = (&self.spare.cq, [Wc::default()]);
        let error = self.rank.spin_for(self.settle_ns, || idle.poll(&mut none).err())?;
        error.map_or(Ok(()), |error| Err(failed(error)))?;
        let from = self.rank.now();
        let found = self.end.send.poll(&mut self.wcs);
        let to = self.rank.now();
        let found = found?;
        self.take(found)?;
        if found == self.wcs.len() {
            self.keep(Call::Hit, from, to);
            return Ok(());
        }
        self.partial += 1;
        self.settle_ns = (2 * self.settle_ns).min(SETTLE_NS.1);
        self.drain()
    }

    fn look(&mut self, from: Stamp) -> Result<(), Stopped> {
        self.drain()?;
        self.keep(Call::List, from, self.rank.now());
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Stopped> {
        while self.sender.account.is_awaiting() {
            let found = self.end.send.wait(self.rank, &mut self.wcs, "a completion of the list")?;
            self.take(found)?;
        }
        Ok(())
    }

    fn take(&mut self, found: usize) -> Result<(), Stopped> {
        let account = &mut self.sender.account;
        each_completion(self.end, &self.wcs[..found], |_, count| account.free(count))
    }

    fn outcome(self, effort: Effort, cut_short: Option<String>) -> Result<Outcome, Stopped> {
        let mut outcome = Outcome { cut_short, ..Outcome::default() };
        let clock = self.rank.clock();
        for (log, (quantity, label)) in self.logs.iter().zip(LABELS) {
            let time = |ticks: &u64| clock.ns_between(Stamp(0), Stamp(*ticks));
            let samples = log.ticks[..log.count].iter().map(time).collect();
            outcome.push_series(quantity, label, log.warm_up.min(log.count), samples);
        }
        outcome.push_count("sent", self.sent);
        outcome.push_count("partial_polls", self.partial);
        let theirs = receive::Found::from_words(&gather_or_keep(self.rank, &mut outcome, None)?);
        Effort::push_shares(&mut outcome, effort, theirs.map(|found| found.effort));
        self.end.facts(&mut outcome);
        Ok(outcome)
    }
}
