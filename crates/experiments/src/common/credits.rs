//! Flow control by credits: the receiver tells the sender how many receives it has posted again,
//! and the sender counts how many messages it may send.

use rdmalab_measure::Stamp;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{SendBatch, SendRequest, Sge, Wc};

use crate::common::completions::{failed, timed_out};
use crate::common::connection::QKEY;
use crate::common::endpoint::{Endpoint, WORD};
use crate::common::params::{Common, Flow, Signal, Transport};
use crate::common::recv_queue::{RecvQueue, steps};
use crate::common::send_queue::Account;
use crate::common::sender::{TAKEN, each_completion, wr_id};

/// A receiver on UC or UD that gets no message for this time sends its credit again.
const HEARTBEAT_NS: u64 = 250_000_000;
/// When a waiting sender has seen this many heartbeats, no message is under way any more, and the
/// missing ones are lost. A time-out could not tell: on a busy machine the receiver may get no
/// processor for longer than any sensible time-out.
const HEARTBEATS: i8 = 2;
/// The bit from which on a credit holds the heartbeat, in memory and in immediate data. Immediate
/// data has room only for the lower bits of the count, since its upper six bits may name a thread
/// ([`crate::common::thread_tag`]).
const HEARTBEAT_SHIFT: u32 = 56;
const IMM_HEARTBEAT_SHIFT: u32 = 18;
/// Time between two looks for a credit, if the sender sleeps while it waits.
const POLL_INTERVAL_NS: u64 = 20_000;

/// The progress of a receiver: how many receives it posted again, and how many heartbeats it sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Credit {
    count: u64,
    heartbeat: u8,
}

impl Credit {
    fn to_word(self) -> u64 {
        u64::from(self.heartbeat) << HEARTBEAT_SHIFT | self.count
    }

    fn from_word(word: u64) -> Self {
        Self {
            count: word & ((1 << HEARTBEAT_SHIFT) - 1),
            heartbeat: (word >> HEARTBEAT_SHIFT) as u8,
        }
    }

    fn to_imm(self) -> u32 {
        u32::from(self.heartbeat) << IMM_HEARTBEAT_SHIFT
            | self.count as u32 & ((1 << IMM_HEARTBEAT_SHIFT) - 1)
    }

    /// The later credit that `imm` stands for; `None` if `imm` is an older credit that came late.
    fn next_from_imm(self, imm: u32) -> Option<Self> {
        let round = (1 << IMM_HEARTBEAT_SHIFT) - 1;
        let more = imm.wrapping_sub(self.count as u32) & round;
        let heartbeat = (imm >> IMM_HEARTBEAT_SHIFT) as u8;
        (more <= round / 2).then(|| Self { count: self.count + u64::from(more), heartbeat })
    }
}

/// Sends credits to the other end: for each queue pair the number of receives posted again. They
/// go by RDMA WRITE, or on UD by SEND with the number as immediate data.
pub(crate) struct CreditReturns<'a> {
    end: &'a Endpoint,
    batches: Vec<SendBatch<'a>>,
    accounts: Vec<Account>,
    latest: Vec<u64>,
    every: u64,
    is_on: bool,
    is_reliable: bool,
    heartbeat: u8,
}

impl<'a> CreditReturns<'a> {
    pub fn new(end: &'a Endpoint, common: &Common) -> Self {
        /// One in this many credits has a completion.
        const SIGNAL: u32 = 16;
        let qps = end.qps.len();
        let signal = Signal::Every(SIGNAL.min(common.tx_depth));
        let (_, depth) = steps(common, &end.layout);
        Self {
            end,
            batches: (0..qps)
                .map(|qp| SendBatch::new(&[credit(end, qp, &credit_sges(end, qp))]))
                .collect(),
            accounts: vec![Account::new(common.tx_depth.into(), signal); qps],
            latest: vec![0; qps],
            every: (depth as u64 / 4).max(1),
            is_on: common.flow == Flow::Credit,
            is_reliable: common.transport == Transport::Rc,
            heartbeat: 0,
        }
    }

    /// Waits for receive completions for at most `limit_ns`; 0 when none came. On UC and UD, the
    /// time is counted in slices, and each slice polls the queue: time without a processor does not
    /// count as waiting. After each slice the credits are sent again.
    #[inline]
    pub fn wait_for<R: Rank>(
        &mut self,
        rank: &R,
        recv_queues: &[RecvQueue<'a>],
        limit_ns: u64,
        wcs: &mut [Wc],
    ) -> Result<usize, Stopped> {
        if self.is_reliable {
            return self.end.recv.wait_for(rank, limit_ns, wcs);
        }
        let mut left_ns = limit_ns;
        loop {
            let slice_ns = left_ns.min(HEARTBEAT_NS);
            let found = self.end.recv.wait_for(rank, slice_ns, wcs)?;
            left_ns -= slice_ns;
            if found > 0 || left_ns == 0 {
                return Ok(found);
            }
            self.heartbeat(rank, recv_queues)?;
        }
    }

    /// Whether the next heartbeat is due after `waited_ns` without a message; to be asked every
    /// `slice_ns`.
    pub fn is_due(waited_ns: u64, slice_ns: u64) -> bool {
        waited_ns / HEARTBEAT_NS > waited_ns.saturating_sub(slice_ns) / HEARTBEAT_NS
    }

    /// Sends all credits again, with the next heartbeat number.
    #[cold]
    pub fn heartbeat<R: Rank>(
        &mut self,
        rank: &R,
        recv_queues: &[RecvQueue<'a>],
    ) -> Result<(), Stopped> {
        if !self.is_on {
            return Ok(());
        }
        self.heartbeat = self.heartbeat.wrapping_add(1);
        for (qp, recv_queue) in recv_queues.iter().enumerate() {
            self.latest[qp] = recv_queue.reposted;
            self.send_credit(rank, qp, recv_queue.reposted)?;
        }
        Ok(())
    }

    /// Sends a credit if enough receives were posted again since the last credit.
    #[inline]
    pub fn update<R: Rank>(&mut self, rank: &R, qp: usize, reposted: u64) -> Result<(), Stopped> {
        if self.is_on && reposted - self.latest[qp] >= self.every {
            self.latest[qp] = reposted;
            return self.send_credit(rank, qp, reposted);
        }
        Ok(())
    }

    #[cold]
    fn send_credit<R: Rank>(&mut self, rank: &R, qp: usize, count: u64) -> Result<(), Stopped> {
        while self.accounts[qp].room() == 0 {
            let mut wcs = [Wc::default(); TAKEN];
            let found = self.end.send.wait(rank, &mut wcs, "the completion of a credit")?;
            let accounts = &mut self.accounts;
            each_completion(self.end, &wcs[..found], |qp, count| accounts[qp].free(count))?;
        }
        let credit = Credit { count, heartbeat: self.heartbeat };
        self.end.memory().write_u64(self.end.layout.credit_out_at(qp), credit.to_word());
        let (account, batch) = (&mut self.accounts[qp], &mut self.batches[qp]);
        let signals = account.take(1, false);
        batch.set_signaled(0, signals);
        batch.set_wr_id(0, wr_id(qp, account.posted()) | self.end.tag);
        if !self.end.peer.ahs.is_empty() {
            batch.set_imm(0, self.end.thread_tag.imm(credit.to_imm()));
        }
        let posted = self.end.qps[qp].post_send_batch(batch);
        posted.map_err(|e| self.end.diagnose(failed(e)))
    }
}

fn credit_sges(end: &Endpoint, qp: usize) -> [Sge<'_>; 1] {
    [end.mr.sge(end.layout.credit_out_at(qp), WORD)]
}

fn credit<'s, 'a>(end: &'a Endpoint, qp: usize, sges: &'s [Sge<'a>]) -> SendRequest<'s, 'a> {
    match end.peer.ahs.get(qp) {
        // The credit is in the immediate data, since receives may be as short as a message.
        Some(ah) => SendRequest::send(&[]).with_imm(0).to(ah, end.peer.qpns[qp], QKEY),
        None => {
            let request =
                SendRequest::write(sges, &end.peer.memory, end.layout.credit_in_at(qp) as u64);
            if end.inline_bytes as usize >= WORD { request.inline_data() } else { request }
        }
    }
}

/// A wait for room at the receiver of a queue pair.
pub(crate) struct CreditWait {
    qp: usize,
    start: Stamp,
    /// The heartbeat when the wait began.
    heartbeat: u8,
}

/// How many messages the receiver has room for, as far as the sender knows.
pub(crate) struct Credits<'a> {
    end: &'a Endpoint,
    is_on: bool,
    is_reliable: bool,
    depth: u64,
    sent: Vec<u64>,
    latest: Vec<Credit>,
    /// Messages that the sender takes to be lost, for each queue pair.
    written_off: Vec<u64>,
    /// The receives for credits on UD, where credits are messages.
    recv_queues: Vec<RecvQueue<'a>>,
    /// How often the sender took the missing messages to be lost.
    pub given_up: u64,
}

impl<'a> Credits<'a> {
    /// `limited`: each message uses up a receive or a place in memory at the receiver.
    pub fn new(end: &'a Endpoint, common: &Common, limited: bool) -> Result<Self, Stopped> {
        let qps = end.qps.len();
        let is_on = limited && common.flow == Flow::Credit;
        let recv_queues = if is_on && common.transport == Transport::Ud {
            (0..qps).map(|qp| RecvQueue::new(end, common, qp)).collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        let depth = steps(common, &end.layout).1 as u64;
        Ok(Self {
            end,
            is_on,
            is_reliable: common.transport == Transport::Rc,
            depth,
            sent: vec![0; qps],
            latest: vec![Credit::default(); qps],
            written_off: vec![0; qps],
            recv_queues,
            given_up: 0,
        })
    }

    /// Messages that the receiver has room for.
    #[inline]
    pub fn allowed<R: Rank>(&mut self, rank: &R, qp: usize) -> Result<u64, Stopped> {
        if !self.is_on {
            return Ok(u64::MAX);
        }
        let known = self.known(qp);
        if known > self.depth / 2 {
            return Ok(known);
        }
        self.poll(rank, qp)?;
        Ok(self.known(qp))
    }

    fn known(&self, qp: usize) -> u64 {
        (self.depth + self.latest[qp].count + self.written_off[qp]).saturating_sub(self.sent[qp])
    }

    /// Records a credit of the receiver, unless it is an old one. A message that the credit covers
    /// is no longer taken to be lost.
    fn credited(&mut self, qp: usize, credit: Credit) {
        if credit.count >= self.latest[qp].count {
            self.latest[qp] = credit;
            let under_way = self.sent[qp].saturating_sub(credit.count);
            self.written_off[qp] = self.written_off[qp].min(under_way);
        }
    }

    /// Counts messages that the caller sends.
    #[inline]
    pub fn spend(&mut self, qp: usize, count: u64) {
        self.sent[qp] += count;
    }

    fn poll<R: Rank>(&mut self, rank: &R, qp: usize) -> Result<(), Stopped> {
        if self.recv_queues.is_empty() {
            let word = self.end.memory().read_u64(self.end.layout.credit_in_at(qp));
            self.credited(qp, Credit::from_word(word));
            return Ok(());
        }
        let mut wcs = [Wc::default(); TAKEN];
        let found = self.end.recv.poll(rank, &mut wcs)?;
        for wc in &wcs[..found] {
            if !wc.is_ok() {
                return Err(self.end.explain(wc, "receive"));
            }
            let Some(of) = self.end.index_of(wc.qp_num()) else { continue };
            self.recv_queues[of].used(wc.wr_id())?;
            let imm = wc.imm().unwrap_or(0) & self.end.thread_tag.mask();
            if let Some(credit) = self.latest[of].next_from_imm(imm) {
                self.credited(of, credit);
            }
        }
        Ok(())
    }

    /// Waits until there is room for a message, calling `meanwhile` again and again.
    pub fn wait<R: Rank>(
        &mut self,
        rank: &R,
        qp: usize,
        meanwhile: impl FnMut() -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        self.wait_for(rank, qp, 1, meanwhile)
    }

    /// Like [`Self::wait`], for `count` messages. `count` may be at most half of the receive queue:
    /// for the other half, the receiver may not have sent a credit yet.
    pub fn wait_for<R: Rank>(
        &mut self,
        rank: &R,
        qp: usize,
        count: u64,
        mut meanwhile: impl FnMut() -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let wait = self.begin_wait(rank, qp);
        while !self.is_over(rank, &wait, count)? {
            meanwhile()?;
            // Both calls also fail if the rank is asked to stop.
            if self.end.send.sleeps() {
                rank.sleep(POLL_INTERVAL_NS)?;
            } else {
                rank.spin_for(0, || None::<()>)?;
            }
        }
        Ok(())
    }

    /// Begins to wait for room.
    pub fn begin_wait<R: Rank>(&self, rank: &R, qp: usize) -> CreditWait {
        CreditWait { qp, start: rank.now(), heartbeat: self.latest[qp].heartbeat }
    }

    /// Whether there is room for `count` messages now; to be asked again and again.
    pub fn is_over<R: Rank>(
        &mut self,
        rank: &R,
        wait: &CreditWait,
        count: u64,
    ) -> Result<bool, Stopped> {
        let qp = wait.qp;
        if self.allowed(rank, qp)? >= count {
            return Ok(true);
        }
        let waited_ns = rank.clock().ns_between(wait.start, rank.now());
        // A signed difference: a credit that came late has an older heartbeat.
        let heartbeats = self.latest[qp].heartbeat.wrapping_sub(wait.heartbeat).cast_signed();
        if !self.is_reliable && heartbeats >= HEARTBEATS {
            self.written_off[qp] = self.sent[qp].saturating_sub(self.latest[qp].count);
            self.given_up += 1;
            return Ok(self.known(qp) >= count);
        }
        let patience_ns = rank.patience_ns();
        if waited_ns > patience_ns as f64 {
            return Err(timed_out(patience_ns, "a credit of the receiver"));
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credit_comes_back_and_a_late_one_does_not_count() {
        for credit in [Credit::default(), Credit { count: 1 << 40, heartbeat: 255 }] {
            assert_eq!(Credit::from_word(credit.to_word()), credit);
        }
        let latest = Credit { count: (7 << IMM_HEARTBEAT_SHIFT) - 10, heartbeat: 255 };
        for (count, heartbeat) in
            [(latest.count, 0), (latest.count + 512, 255), (latest.count + 32_768, 3)]
        {
            let next = Credit { count, heartbeat };
            assert_eq!(latest.next_from_imm(next.to_imm()), Some(next));
        }
        let late = Credit { count: latest.count - 1, heartbeat: 254 };
        assert_eq!(latest.next_from_imm(late.to_imm()), None);
    }

    #[test]
    fn it_is_due_once_a_beat() {
        let slice_ns = HEARTBEAT_NS / 25;
        let due = (1..=100).filter(|n| CreditReturns::is_due(n * slice_ns, slice_ns));
        assert_eq!(due.collect::<Vec<_>>(), [25, 50, 75, 100]);
    }
}
