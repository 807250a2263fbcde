//! `overhead`: what the calls cost, as in viertel2006.
//!
//! Rank 0 repeatedly posts a list of sends and polls all their completions, with a stamp before and
//! after each call. Once a round, two stamps are taken without a call in between: their cost is
//! reported beside the calls and is not subtracted. Receives go to a queue pair that gets no
//! messages and is reset when it is full; its completion queue is the empty one that is polled.

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Access, Context, Cq, Mr, Qp, QpState, RecvBatch, RecvRequest, Sge, Wc};

use crate::blast::receive;
use crate::common::completions::failed;
use crate::common::connection::{QKEY, qp_type};
use crate::common::credits::Credits;
use crate::common::effort::{Begin, Effort};
use crate::common::endpoint::Endpoint;
use crate::common::gather::gather_or_keep;
use crate::common::layout::Layout;
use crate::common::limits::Limits;
use crate::common::lockstep::{Lockstep, stopped};
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::{Common, Op, Transport};
use crate::common::rules::{Fault, must};
use crate::common::samples::{parts, stamp_memory};
use crate::common::sender::{Sender, each_completion};
use crate::workload::{Places, ResultKind, ResultShape, Workload, transfer_ns};

/// It has no options of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overhead;

impl Workload for Overhead {
    const NAME: &'static str = "overhead";
    const SUMMARY: &'static str = "what a call costs: posting a list of sends or of receives, \
        polling a completion queue that has completions and one that is empty";
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [TRANSPORT OP SIZE MESSAGES RUNS WARM_UP INLINE LIST MTU SL TX_DEPTH RX_DEPTH]
        Common [OUTSTANDING_READS TOUCH MEMORY PORT GID_INDEX TIMEOUT RETRY_CNT RNR_RETRY]
        Common [MIN_RNR_TIMER SEED LINK SIM]
    };
    /// In steps: 10^4 samples of each call, with room for lists.
    const COMMON: Common = Common { messages: 10_000, tx_depth: 512, ..Common::DEFAULT };
    const OWN: Self = Self;
    const WAITS: bool = false;
    const CALIBRATES: &'static [&'static str] = &[
        // What calls cost, alone and in lists; posts with inline data of one and of four pieces.
        "--size 32 --list 1,16 --inline off,on --messages 1000",
        "--size 256 --inline on --messages 1000",
    ];

    /// Lists have a fixed length, and the next one is posted when all of it is through.
    fn check(&self, common: &Common, _: &Limits) -> Result<(), Fault> {
        must(common.op != Op::WriteRead, "op", || {
            "write_read posts twice; measure write and read separately".to_owned()
        })?;
        let (list, tx, rx) = (common.list, common.tx_depth, common.rx_depth);
        must(list > 0, "list", || {
            "lists have a fixed length here: choose a number of requests per post".to_owned()
        })?;
        must(list <= tx, "list", || {
            format!("a send queue holds only {tx} requests: choose a larger --tx-depth")
        })?;
        must(list <= rx, "list", || {
            format!("a receive queue holds only {rx} requests: choose a larger --rx-depth")
        })?;
        // For the other half, the receiver may not have sent a credit yet.
        must(!common.op.needs_receives() || list == 1 || list <= rx / 2, "list", || {
            format!(
                "lists must fit twice into the receive queue, which holds {rx}: choose --rx-depth \
                 {}",
                2 * list
            )
        })
    }

    fn memory(&self, common: &Common) -> Places {
        Places { count: common.list.into(), option: "list" }
    }

    fn series(&self, _: &Common) -> u64 {
        6
    }

    fn quantities(&self, _: &Common) -> Vec<Quantity> {
        vec![Quantity::CallCost, Quantity::PostCost, Quantity::CompletionTime]
    }

    fn results(&self, _: &Common) -> &'static [ResultShape] {
        &[
            (Quantity::CallCost, "nothing, two stamps", ResultKind::OfMessages),
            (Quantity::PostCost, "post_send", ResultKind::OfMessages),
        ]
    }

    fn message_ns(&self, common: &Common) -> f64 {
        2000.0 + f64::from(common.list) * (300.0 + transfer_ns(common))
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        // As many places as a list has, so that a list begins where the one before began.
        let list = common.list as usize;
        let end =
            Endpoint::connect(rank, context, limits, common, Layout::new(common, list, list))?;
        match rank.index() {
            0 => {
                let spare = Spare::new(context, common)?;
                call(rank, &end, common, &spare)
            }
            _ => receive::run(&in_messages(common), 0, rank, &end),
        }
    }
}

/// The options as the receiver needs them: in messages, not lists.
fn in_messages(common: &Common) -> Common {
    let list = u64::from(common.list);
    Common { messages: common.messages * list, warm_up: common.warm_up * list, ..common.clone() }
}

/// The first guess of how long it takes until all completions of a list are there, and the longest
/// one.
const SETTLE_NS: (u64, u64) = (1000, 10_000_000);

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
    fn new(context: &Context, common: &Common) -> Result<Self, Stopped> {
        let (list, size) = (common.list as usize, common.size_bytes as usize);
        let grh = if common.transport == Transport::Ud { 40 } else { 0 };
        let pd = context.alloc_pd().map_err(failed)?;
        let buffer = context.alloc_buffer(size + grh).map_err(failed)?;
        let mr = pd.register(&buffer, Access::LOCAL_WRITE).map_err(failed)?;
        let cq = context.create_cq(common.rx_depth, None).map_err(failed)?;
        let builder = Qp::builder(qp_type(common.transport), &cq, &cq);
        let qp = builder.max_send_wr(1).max_recv_wr(common.rx_depth).build(&pd).map_err(failed)?;
        let size = size + grh;
        let spare =
            Self { qp, cq, mr, port: common.port, list, size, depth: common.rx_depth as usize };
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
    fn new(common: &Common) -> Self {
        Self { ticks: stamp_memory(common.total() as usize, common.touch), count: 0, warm_up: 0 }
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
    end: &'a Endpoint,
    common: &'a Common,
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

fn call<R: Rank>(
    rank: &R,
    end: &Endpoint,
    common: &Common,
    spare: &Spare,
) -> Result<Outcome, Stopped> {
    let list = common.list as usize;
    let places = (0..list).map(|i| (i, i)).collect();
    let capacity = u64::from(common.tx_depth);
    let mut calls = Calls {
        rank,
        end,
        common,
        spare,
        receives: spare.batch(),
        posted: 0,
        sender: Sender::new(end, common, common.op, 0, &places, capacity),
        credits: Credits::new(end, common, common.op.needs_receives())?,
        wcs: vec![Wc::default(); list],
        logs: LABELS.iter().map(|_| Log::new(common)).collect(),
        settle_ns: SETTLE_NS.0,
        partial: 0,
        sent: 0,
    };
    let is_passive = common.op.is_unnoticed();
    let mut effort = Effort::default();
    let mut lockstep = Lockstep::new(rank, end);
    for (index, lists) in parts(common).enumerate() {
        if !lockstep.goes_on()? {
            break;
        }
        let begin = Begin::now(rank);
        let result = calls.part(lists);
        begin.end(rank, &mut effort);
        lockstep.part_ended(
            result.and_then(|()| if is_passive { end.tell_done(rank) } else { Ok(()) }),
        )?;
        if index == 0 && common.warm_up > 0 {
            calls.logs.iter_mut().for_each(|log| log.warm_up = log.count);
        }
    }
    calls.outcome(effort, lockstep.cut_short)
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
            // For half of the lists, rank 0 waits without polling until they are complete, so that
            // one call takes all completions; for the others it polls, which gives the time to
            // wait.
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
        let list = u64::from(self.common.list);
        if self.credits.allowed(self.rank, 0)? < list {
            self.credits.wait_for(self.rank, 0, list, || Ok(()))?;
        }
        Ok(())
    }

    fn post_send(&mut self) -> Result<Stamp, Stopped> {
        let list = self.common.list;
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
        let found = self.end.send.poll(self.rank, &mut self.wcs);
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
        let theirs = receive::Received::from_words(&gather_or_keep(self.rank, &mut outcome, None)?);
        if let Some(found) = theirs.as_ref().filter(|_| !self.common.op.is_unnoticed()) {
            let received: u64 = found.parts.iter().map(|part| part.messages).sum();
            outcome.push_count("received", received);
            outcome.push_count("lost", self.sent.saturating_sub(received));
            // One that comes twice stands for one that is lost.
            outcome.push_count("duplicated", received.saturating_sub(self.sent));
            outcome.push_count("reordered", found.reordered);
        }
        Effort::push_both(&mut outcome, effort, theirs.map(|found| found.effort));
        self.end.facts(&mut outcome);
        Ok(outcome)
    }
}
