//! Round trips against an end that does nothing: READ, WRITE then READ, and atomics.

use std::sync::atomic::Ordering;

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{SendBatch, SendRequest, Wc};

use super::log::{Log, send_effort};
use super::marks::mark;
use super::options::{Ping, Unsignalled};
use crate::common::completions::failed;
use crate::common::effort::{Begin, Effort};
use crate::common::endpoint::Endpoint;
use crate::common::lockstep::{Lockstep, stopped};
use crate::common::params::{Common, Op};
use crate::common::pattern;
use crate::common::samples::parts;
use crate::common::sender::{atomic, pieces};

/// The active end. One round trip is under way at a time, so that at most three requests are: an
/// unsignalled READ frees its slot with the completion of the next WRITE.
struct Client<'a, R> {
    rank: &'a R,
    end: &'a Endpoint,
    common: &'a Common,
    /// The requests of a round trip.
    batch: SendBatch<'a>,
    /// Completions of a round trip.
    completions: usize,
    /// Whether what the READ brings is looked for in memory.
    looks: bool,
}

impl<'a, R: Rank> Client<'a, R> {
    fn new(common: &'a Common, own: &Ping, rank: &'a R, end: &'a Endpoint) -> Self {
        let layout = &end.layout;
        let out = pieces(&end.mr, layout.out_at(0), layout.size, common.sge);
        let back = pieces(&end.mr, layout.in_at(0), layout.size, common.sge);
        let there = layout.in_at(0) as u64;
        let write = SendRequest::write(&out, &end.peer.memory, there);
        let write = if end.inline { write.inline_data() } else { write };
        let read = SendRequest::read(&back, &end.peer.memory, there);
        let (requests, completions) = match (common.op, own.unsignalled) {
            (Op::WriteRead, Unsignalled::Neither) => (vec![write.signaled(), read.signaled()], 2),
            (Op::WriteRead, Unsignalled::Write) => (vec![write, read.signaled()], 1),
            (Op::WriteRead, Unsignalled::Read) => (vec![write.signaled(), read], 1),
            (op, _) if op.is_atomic() => {
                (vec![atomic(op, &back, &end.peer.memory, there).signaled()], 1)
            }
            _ => (vec![read.signaled()], 1),
        };
        let looks = common.op == Op::WriteRead && own.unsignalled == Unsignalled::Read;
        let requests: Vec<_> = requests.into_iter().map(|r| r.wr_id(end.tag)).collect();
        Self { rank, end, common, batch: SendBatch::new(&requests), completions, looks }
    }

    fn trips(&mut self, trips: u64, log: &mut Log<'_>) -> Result<(), Stopped> {
        for _ in 0..trips {
            if self.rank.is_asked_to_stop() {
                return Err(stopped(self.rank));
            }
            log.wait(self.rank)?;
            if self.common.verify {
                self.spoil();
            }
            self.trip(log.trips)?;
            if self.common.verify {
                log.damaged += u64::from(!self.is_intact(log.trips));
            }
            log.end(self.rank.now(), true);
        }
        Ok(())
    }

    /// Overwrites what the trip before brought, so that one that brings nothing is not taken for
    /// intact. WRITE and READ have another pattern each time.
    fn spoil(&self) {
        let (memory, layout) = (self.end.memory(), &self.end.layout);
        match self.common.op {
            Op::WriteRead => {}
            op if op.is_atomic() => memory.write_u64(layout.in_at(0), u64::MAX),
            _ => pattern::fill(memory, 1, layout.in_at(0), 0..layout.size),
        }
    }

    /// Whether what the `number`-th one brought is as it has to be.
    fn is_intact(&self, number: u64) -> bool {
        let (memory, layout) = (self.end.memory(), &self.end.layout);
        let at = layout.in_at(0);
        match self.common.op {
            // All queue pairs add to the same word.
            Op::FetchAdd => memory.read_u64(at) == number,
            Op::CmpSwap => memory.read_u64(at) == 0,
            Op::WriteRead => {
                let last = memory.byte(at + layout.size - 1).load(Ordering::Acquire);
                last == mark(number) && pattern::is_intact(memory, number, at, 0..layout.size - 1)
            }
            _ => pattern::is_intact(memory, 0, at, 0..layout.size),
        }
    }

    /// The `number`-th one.
    #[inline]
    fn trip(&mut self, number: u64) -> Result<(), Stopped> {
        let (memory, layout) = (self.end.memory(), &self.end.layout);
        let (mark, qps) = (mark(number), &self.end.qps);
        let qp = if qps.len() == 1 { &qps[0] } else { &qps[(number % qps.len() as u64) as usize] };
        if self.common.op == Op::WriteRead {
            if self.common.verify {
                pattern::fill(memory, number, layout.out_at(0), 0..layout.size - 1);
            }
            memory.byte(layout.out_at(0) + layout.size - 1).store(mark, Ordering::Release);
        }
        for i in 0..self.batch.len() {
            let posted = qp.post_send_part(&mut self.batch, i, 1);
            posted.map_err(|e| self.end.diagnose(failed(e)))?;
        }
        let mut left = self.completions;
        while left > 0 {
            let mut wcs = [Wc::default(); 2];
            let found =
                self.end.send.wait(self.rank, &mut wcs[..left], "the completion of a request")?;
            if let Some(wc) = wcs[..found].iter().find(|wc| !wc.is_ok()) {
                return Err(self.end.explain(wc, self.common.op.name()));
            }
            left -= found;
        }
        if self.looks {
            let byte = memory.byte(layout.in_at(0) + layout.size - 1);
            self.rank.spin(|| (byte.load(Ordering::Acquire) == mark).then_some(()))?;
        }
        Ok(())
    }
}

pub(super) fn client<R: Rank>(
    common: &Common,
    own: &Ping,
    rank: &R,
    end: &Endpoint,
) -> Result<Outcome, Stopped> {
    let mut client = Client::new(common, own, rank, end);
    let mut log = Log::new(rank, common);
    let mut lockstep = Lockstep::new(rank, end);
    for trips in parts(common) {
        if !lockstep.goes_on()? {
            break;
        }
        let begin = Begin::now(rank);
        log.part(rank.now());
        let result = client.trips(trips, &mut log);
        begin.end(rank, &mut log.effort);
        // This tells the passive end that a part is over.
        lockstep.part_ended(result.and_then(|()| end.tell_done(rank)))?;
    }
    log.outcome(rank, end, lockstep.cut_short)
}

pub(super) fn server<R: Rank>(
    common: &Common,
    rank: &R,
    end: &Endpoint,
) -> Result<Outcome, Stopped> {
    if common.verify && common.op == Op::Read {
        pattern::fill(end.memory(), 0, end.layout.in_at(0), 0..end.layout.size);
    }
    let mut lockstep = Lockstep::new(rank, end);
    let mut effort = Effort::default();
    for _ in parts(common) {
        if !lockstep.goes_on()? {
            break;
        }
        let begin = Begin::now(rank);
        let result = end.wait_until_done(rank);
        begin.end(rank, &mut effort);
        lockstep.part_ended(result)?;
    }
    send_effort(rank, end, (effort, 0), lockstep.cut_short)
}
