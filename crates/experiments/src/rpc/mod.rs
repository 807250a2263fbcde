//! `rpc`: calls of a store that keeps a log, as RAMCloud's ClusterPerf makes them
//! (mordkovich2013).
//!
//! Rank 0 is the client, rank 1 the master, all others its backups. A call is a SEND into a buffer
//! of the master's shared receive queue. A read is answered from the log without a copy, and asks
//! no backup: those that are there sleep until they are told that a part is over. A write is
//! appended to the log, sent to all backups at once, appended by each to its own, and answered when
//! all of them have answered. One call is under way at a time, and is over when its answer is
//! there.

mod options;

use std::ops::RangeInclusive;

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Context, RecvRequest, SendRequest, Wc};

use crate::common::completions::failed;
use crate::common::effort::{Begin, Effort};
use crate::common::limits::Limits;
use crate::common::links::{LinkOptions, Links};
use crate::common::lockstep::{Lockstep, stopped};
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::{Common, Transport};
use crate::common::rules::{Fault, must};
use crate::common::samples::{parts, stamp_memory};
use crate::workload::{Places, ResultKind, ResultShape, Workload, transfer_ns};
pub(crate) use options::Rpc;
use options::{CALL, Call, WORK};

impl Workload for Rpc {
    const NAME: &'static str = "rpc";
    const SUMMARY: &'static str = "calls of a store that keeps a log: reads and writes of values; \
        each rank beyond the first two is a backup";
    /// A client, a master, and none to three backups.
    const RANKS: RangeInclusive<usize> = 2..=5;
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [TRANSPORT SIZE MESSAGES RUNS WARM_UP MTU SL TX_DEPTH RX_DEPTH TOUCH MEMORY PORT]
        Common [GID_INDEX TIMEOUT RETRY_CNT RNR_RETRY MIN_RNR_TIMER]
        Own [CALL WORK]
        Common [MAX_SGE SEED LINK SIM]
    };
    /// As RAMCloud's ClusterPerf, with its shared receive queue.
    const COMMON: Common = Common {
        size_bytes: 100,
        messages: 1000,
        warm_up: 100,
        tx_depth: 16,
        rx_depth: 32,
        min_rnr_timer: 1,
        ..Common::DEFAULT
    };
    const OWN: Self = Self { call: Call::Read, work_ns: 0 };

    fn check(&self, common: &Common, _: &Limits) -> Result<(), Fault> {
        must(common.transport == Transport::Rc, "transport", || {
            "calls need reliable delivery: choose --transport rc".to_owned()
        })
    }

    /// Receive buffers, and a log of two at least.
    fn memory(&self, common: &Common) -> Places {
        Places { count: u64::from(common.rx_depth) + 3, option: "rx-depth" }
    }

    fn quantities(&self, _: &Common) -> Vec<Quantity> {
        vec![Quantity::RoundTrip, Quantity::Rate, Quantity::Bandwidth]
    }

    fn results(&self, _: &Common) -> &'static [ResultShape] {
        &[
            (Quantity::RoundTrip, "", ResultKind::OfMessages),
            (Quantity::Bandwidth, "", ResultKind::Figure),
        ]
    }

    fn message_ns(&self, common: &Common) -> f64 {
        // A WRITE is worked on by the master, and then by its backups.
        let works = if self.call == Call::Write { 2.0 } else { 1.0 };
        3000.0 + 4.0 * transfer_ns(common) + works * self.work_ns as f64
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        let layout = Layout::of(common);
        let to: Vec<usize> = match rank.index() {
            1 => (0..rank.count()).filter(|other| *other != 1).collect(),
            _ => vec![1],
        };
        let want = LinkOptions {
            to: &to,
            bytes: layout.bytes(),
            inline: common.inline.wanted_bytes(common.size_bytes).max(WORD as u32),
            tx: common.tx_depth,
            rx: common.rx_depth,
            srq: true,
            max_sge: common.max_sge,
        };
        let links = Links::connect(rank, context, limits, common, &want)?;
        let own = self;
        let mut node = Node { rank, links: &links, common, own, layout, pending: 0, served: 0 };
        (0..layout.buffers).try_for_each(|buffer| node.repost(buffer))?;
        let mut log = Log::new(rank, common);
        let mut lockstep = Lockstep::new(rank, &links);
        let mut effort = Effort::default();
        for calls in parts(common) {
            if !lockstep.goes_on()? {
                break;
            }
            let begin = Begin::now(rank);
            let result = match rank.index() {
                0 => node.calls(calls, &mut log),
                1 => node.serves(calls),
                _ => node.backs_up(calls),
            };
            begin.end(rank, &mut effort);
            lockstep.part_ended(result)?;
        }
        let mut outcome = Outcome { cut_short: lockstep.cut_short, ..Outcome::default() };
        if rank.index() == 0 {
            log.outcome(rank, common, &mut outcome);
        }
        effort.push(&mut outcome, &format!("rank {}", rank.index()));
        outcome.push_fact("replicas", rank.count() - 2);
        links.facts(&mut outcome, links.is_inline(common, common.size_bytes));
        Ok(outcome)
    }
}

/// The word before a value, and the answer to a write: the number of the call.
const WORD: usize = 8;
/// Alignment of what lies in memory: a cache line.
const LINE: usize = 64;
/// Bytes of a log; it is written round and round.
const LOG_BYTES: usize = 16 << 20;

/// Where things lie in the memory of each rank: what goes out, receive buffers, the log.
#[derive(Clone, Copy, Debug)]
struct Layout {
    size: usize,
    buffer: usize,
    buffers: usize,
    entry: usize,
    entries: usize,
}

impl Layout {
    fn of(common: &Common) -> Self {
        let size = common.size_bytes as usize;
        let entry = size.next_multiple_of(LINE);
        Self {
            size,
            buffer: (WORD + size).next_multiple_of(LINE),
            buffers: common.rx_depth as usize,
            entry,
            entries: (LOG_BYTES / entry).max(2),
        }
    }

    fn in_at(&self, buffer: usize) -> usize {
        (1 + buffer) * self.buffer
    }

    fn log_at(&self, number: u64) -> usize {
        let place = (number % self.entries as u64) as usize;
        self.in_at(self.buffers) + place * self.entry
    }

    fn bytes(&self) -> usize {
        self.in_at(self.buffers) + self.entries * self.entry
    }
}

/// A rank with its queue pairs.
struct Node<'a, R> {
    rank: &'a R,
    links: &'a Links,
    common: &'a Common,
    own: &'a Rpc,
    layout: Layout,
    /// Sends without a completion yet.
    pending: usize,
    /// Calls so far.
    served: u64,
}

/// A message that came.
struct Arrived {
    buffer: usize,
    bytes: usize,
    /// The queue pair.
    qp: usize,
}

impl<R: Rank> Node<'_, R> {
    /// Posts a receive buffer.
    fn repost(&self, buffer: usize) -> Result<(), Stopped> {
        let sges = [self.links.mr.sge(self.layout.in_at(buffer), WORD + self.layout.size)];
        let request = RecvRequest::new(&sges).wr_id(buffer as u64);
        let Some(srq) = &self.links.srq else { return Err(failed("no shared receive queue")) };
        srq.post_recv(&[request]).map_err(|e| self.links.diagnose(failed(e)))
    }

    /// Sends a piece of memory.
    #[inline]
    fn send(&mut self, qp: usize, at: usize, bytes: usize) -> Result<(), Stopped> {
        let sges = [self.links.mr.sge(at, bytes)];
        let request = SendRequest::send(&sges).signaled();
        let is_inline = self.links.is_inline(self.common, bytes as u64);
        let request = if is_inline { request.inline_data() } else { request };
        let posted = self.links.qps[qp].post_send(&[request]);
        posted.map_err(|e| self.links.diagnose(failed(e)))?;
        self.pending += 1;
        Ok(())
    }

    /// Takes the completions of all that was sent.
    #[inline]
    fn settle(&mut self) -> Result<(), Stopped> {
        let mut wcs = [Wc::default(); 8];
        while self.pending > 0 {
            let found = self.links.send.wait(self.rank, &mut wcs, "a completion of the sender")?;
            self.links.all_sent(&wcs[..found])?;
            self.pending -= found;
        }
        Ok(())
    }

    /// Waits for the next message.
    #[inline]
    fn receive(&self, what: &str) -> Result<Arrived, Stopped> {
        if self.rank.is_asked_to_stop() {
            return Err(stopped(self.rank));
        }
        let mut wcs = [Wc::default()];
        self.links.recv.wait(self.rank, &mut wcs, what)?;
        let wc = &wcs[0];
        if !wc.is_ok() {
            return Err(self.links.explain(wc, "receive"));
        }
        let qps = &self.links.qps;
        let qp = qps.iter().position(|qp| qp.qp_num() == wc.qp_num()).unwrap_or(0);
        Ok(Arrived { buffer: wc.wr_id() as usize, bytes: wc.byte_len() as usize, qp })
    }

    /// What a server does with a request besides what is measured here.
    #[inline]
    fn work(&self) -> Result<(), Stopped> {
        if self.own.work_ns == 0 { Ok(()) } else { self.rank.think(self.own.work_ns) }
    }

    /// The client.
    fn calls(&mut self, calls: u64, log: &mut Log) -> Result<(), Stopped> {
        let memory = self.links.mr.buffer();
        let (ask, answer) = match self.own.call {
            Call::Read => (WORD, self.layout.size),
            Call::Write => (WORD + self.layout.size, WORD),
        };
        for _ in 0..calls {
            memory.write_u64(0, self.served);
            let begin = self.rank.now();
            self.send(0, 0, ask)?;
            let came = self.receive("the answer to a call")?;
            let end = self.rank.now();
            if came.bytes != answer {
                return Err(failed(format!("an answer of {} bytes, not {answer}", came.bytes)));
            }
            let number = memory.read_u64(self.layout.in_at(came.buffer));
            if self.own.call == Call::Write && number != self.served {
                return Err(failed(format!("the answer to call {number}, not {}", self.served)));
            }
            log.keep(begin, end);
            self.served += 1;
            self.repost(came.buffer)?;
            self.settle()?;
        }
        Ok(())
    }

    /// The master.
    fn serves(&mut self, calls: u64) -> Result<(), Stopped> {
        for _ in 0..calls {
            let call = self.receive("the next call")?;
            self.work()?;
            let entry = self.layout.log_at(self.served);
            match self.own.call {
                Call::Read => self.send(call.qp, entry, self.layout.size)?,
                Call::Write => self.append(&call, entry)?,
            }
            self.repost(call.buffer)?;
            self.settle()?;
            self.served += 1;
        }
        if self.own.call == Call::Read {
            // The client's is the first.
            (1..self.links.qps.len()).try_for_each(|backup| self.send(backup, 0, WORD))?;
            self.settle()?;
        }
        Ok(())
    }

    /// Appends a value, has all backups append it, and answers.
    fn append(&mut self, call: &Arrived, entry: usize) -> Result<(), Stopped> {
        let (memory, size) = (self.links.mr.buffer(), self.layout.size);
        let at = self.layout.in_at(call.buffer);
        memory.copy_within(at + WORD, entry, size);
        let backups = self.links.qps.len();
        for qp in (0..backups).filter(|qp| *qp != call.qp) {
            self.send(qp, entry, size)?;
        }
        for _ in 1..backups {
            let came = self.receive("the answer of a backup")?;
            self.repost(came.buffer)?;
        }
        memory.write_u64(0, memory.read_u64(at));
        self.send(call.qp, 0, WORD)
    }

    /// A backup while others read: it sleeps until it is told that they have.
    fn rests(&mut self) -> Result<(), Stopped> {
        /// How often it looks.
        const LOOK_NS: u64 = 1_000_000;
        let mut wcs = [Wc::default()];
        while self.links.recv.poll(self.rank, &mut wcs)? == 0 {
            self.rank.sleep(LOOK_NS)?;
        }
        if !wcs[0].is_ok() {
            return Err(self.links.explain(&wcs[0], "receive"));
        }
        self.repost(wcs[0].wr_id() as usize)
    }

    /// A backup.
    fn backs_up(&mut self, calls: u64) -> Result<(), Stopped> {
        if self.own.call == Call::Read {
            return self.rests();
        }
        let (memory, size) = (self.links.mr.buffer(), self.layout.size);
        for _ in 0..calls {
            let came = self.receive("the next value")?;
            self.work()?;
            let entry = self.layout.log_at(self.served);
            memory.copy_within(self.layout.in_at(came.buffer), entry, size);
            memory.write_u64(0, self.served);
            self.send(0, 0, WORD)?;
            self.repost(came.buffer)?;
            self.settle()?;
            self.served += 1;
        }
        Ok(())
    }
}

/// The client's stamps.
struct Log {
    ticks: Vec<u64>,
    count: usize,
}

impl Log {
    fn new<R: Rank>(rank: &R, common: &Common) -> Self {
        let count = if rank.index() == 0 { common.total() as usize } else { 0 };
        Self { ticks: stamp_memory(count, common.touch), count: 0 }
    }

    #[inline]
    fn keep(&mut self, begin: Stamp, end: Stamp) {
        self.ticks[self.count] = end.0.wrapping_sub(begin.0);
        self.count += 1;
    }

    fn outcome<R: Rank>(&self, rank: &R, common: &Common, outcome: &mut Outcome) {
        let clock = rank.clock();
        let time = |ticks: &u64| clock.ns_between(Stamp(0), Stamp(*ticks));
        let samples: Vec<f64> = self.ticks[..self.count].iter().map(time).collect();
        let warm_up = (common.warm_up as usize).min(self.count);
        let counted = &samples[warm_up..];
        let sum_ns: f64 = counted.iter().sum();
        if sum_ns > 0.0 {
            let rate = counted.len() as f64 / sum_ns * 1e9;
            outcome.push_figure(Quantity::Rate, "calls", rate);
            outcome.push_figure(Quantity::Bandwidth, "", rate * common.size_bytes as f64);
        }
        outcome.push_count("sent", self.count as u64);
        outcome.push_series(Quantity::RoundTrip, "", warm_up, samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        for size_bytes in [1, 100, 1000, 1_000_000, 32 << 20] {
            let common = Common { size_bytes, ..Rpc::COMMON };
            let layout = Layout::of(&common);
            assert!(WORD + layout.size <= layout.in_at(0));
            assert!(layout.in_at(0) + WORD + layout.size <= layout.in_at(1));
            let log = layout.log_at(0);
            assert!(layout.in_at(layout.buffers - 1) + WORD + layout.size <= log);
            assert!(log + layout.size <= layout.log_at(1));
            let last = layout.log_at(layout.entries as u64 - 1);
            assert!(last + layout.size <= layout.bytes());
            assert_eq!(layout.log_at(layout.entries as u64), log);
        }
    }
}
