//! The receive queue: kept stocked by the receiver, who tells the sender how far it is; and the
//! sender's view of it.

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Mr, RecvBatch, RecvRequest, SendBatch, SendRequest, Sge, Wc};

use crate::common::completions::{failed, tag_of, thread_of};
use crate::common::endpoint::{End, QKEY, WORD};
use crate::common::layout::Layout;
use crate::common::params::{Common, Flow, Signal, Transport};
use crate::common::send_queue::Account;
use crate::common::sender::{TAKEN, each_completion, wr_id};
use crate::common::thread_tag::place_of;

/// Most receives posted at a time.
const STEP_MAX: usize = 32;
/// After so long without a message over UC and UD, a receiver says again how far it is.
const BEAT_NS: u64 = 250_000_000;
/// So many times since a sender began to wait for it: then nothing is on its way any more, and what
/// is missing is lost. No time says that: a busy machine keeps a receiver from its processor for
/// longer than anybody would want to wait.
const BEATS: i8 = 2;
/// Where the beat stands in a credit, and how the count goes round in immediate data, of which the
/// upper six bits may be a thread ([`crate::common::thread_tag`]).
const BEAT_SHIFT: u32 = 56;
const IMM_BEAT_SHIFT: u32 = 18;
/// Between two looks for a credit, where completions are waited for asleep.
const NAP_NS: u64 = 20_000;

/// Receives posted again at a time, and receives that a queue holds.
pub(crate) fn steps(common: &Common, layout: &Layout) -> (usize, usize) {
    let rx = common.rx_depth as usize;
    let step = STEP_MAX.min((rx / 4).max(1));
    let step = 1 << step.ilog2();
    // Where each message has a place of its own, no two receives may share one.
    let own = layout.in_places / common.qps as usize;
    let most = if layout.is_apart { own.max(1) } else { rx };
    let step = step.min(most);
    (step, rx.min(most) / step * step)
}

/// Receives of one queue pair.
pub(crate) struct Stock<'a> {
    end: &'a End,
    qp: usize,
    batches: Vec<RecvBatch<'a>>,
    next: usize,
    step: u64,
    taken: u64,
    /// Where another thread's receive may hold a message for this one: receives of a thread; each
    /// one that was used up is posted again itself. The batches are those of all threads.
    each: Option<usize>,
    /// Receives posted again so far.
    pub restocked: u64,
}

impl<'a> Stock<'a> {
    /// Fills the receive queue.
    pub fn new(end: &'a End, common: &Common, qp: usize) -> Result<Self, Stopped> {
        let layout = &end.layout;
        let (step, depth) = steps(common, layout);
        let place = |j: usize| (qp * depth + j) % layout.in_places;
        let each = common.tags_payload().then_some(depth);
        let step = if each.is_some() { 1 } else { step };
        let of = |mr: &'a Mr, tag: u64| -> Vec<RecvBatch<'a>> {
            let sges: Vec<[Sge<'a>; 1]> = (0..depth)
                .map(|j| [mr.sge(layout.recv_at(place(j)), layout.recv_bytes())])
                .collect();
            let requests: Vec<_> = sges
                .iter()
                .enumerate()
                .map(|(j, sges)| RecvRequest::new(sges).wr_id(place(j) as u64 | tag))
                .collect();
            requests.chunks(step).map(RecvBatch::new).collect()
        };
        let (batches, first) = match each {
            None => (of(&end.mr, end.tag), 0),
            Some(depth) => {
                let mates = end.share.mates(&end.mr).iter().enumerate();
                let all = mates.flat_map(|(thread, mr)| of(mr, tag_of(thread))).collect();
                (all, thread_of(end.tag) * depth)
            }
        };
        let (next, step) = (first, step as u64);
        let mut stock = Self { end, qp, batches, next, step, taken: 0, each, restocked: 0 };
        for _ in 0..depth as u64 / step {
            stock.post()?;
        }
        Ok(stock)
    }

    fn post(&mut self) -> Result<(), Stopped> {
        let posted = self.end.qps[self.qp].post_recv_batch(&mut self.batches[self.next]);
        posted.map_err(|e| self.end.diagnose(failed(e)))?;
        self.next = if self.next + 1 == self.batches.len() { 0 } else { self.next + 1 };
        Ok(())
    }

    /// The receive of that number was used up. They are posted again some at a time.
    #[inline]
    pub fn took(&mut self, wr_id: u64) -> Result<(), Stopped> {
        self.taken += 1;
        if let Some(depth) = self.each {
            let own = place_of(wr_id).wrapping_sub(self.qp * depth);
            self.next = (thread_of(wr_id) * depth + own).min(self.batches.len() - 1);
        }
        if self.taken - self.restocked >= self.step {
            self.post()?;
            self.restocked += self.step;
        }
        Ok(())
    }

    /// For a receiver that looks at its memory: nothing is posted.
    pub fn empty(end: &'a End, qp: usize) -> Self {
        Self { end, qp, batches: Vec::new(), next: 0, step: 1, taken: 0, each: None, restocked: 0 }
    }
}

/// How far a receiver is: so many receives posted again, said so many times without news.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Credit {
    count: u64,
    beat: u8,
}

impl Credit {
    fn to_word(self) -> u64 {
        u64::from(self.beat) << BEAT_SHIFT | self.count
    }

    fn from_word(word: u64) -> Self {
        Self { count: word & ((1 << BEAT_SHIFT) - 1), beat: (word >> BEAT_SHIFT) as u8 }
    }

    fn to_imm(self) -> u32 {
        u32::from(self.beat) << IMM_BEAT_SHIFT | self.count as u32 & ((1 << IMM_BEAT_SHIFT) - 1)
    }

    /// The credit that follows this one; of one from before, which came late, `None`.
    fn next_from_imm(self, imm: u32) -> Option<Self> {
        let round = (1 << IMM_BEAT_SHIFT) - 1;
        let more = imm.wrapping_sub(self.count as u32) & round;
        let beat = (imm >> IMM_BEAT_SHIFT) as u8;
        (more <= round / 2).then(|| Self { count: self.count + u64::from(more), beat })
    }
}

/// Tells the other end how many receives were posted again, for each queue pair. By WRITE, or by
/// SEND with the number as immediate data where there is no WRITE.
pub(crate) struct Tellers<'a> {
    end: &'a End,
    batches: Vec<SendBatch<'a>>,
    accounts: Vec<Account>,
    told: Vec<u64>,
    every: u64,
    is_on: bool,
    is_reliable: bool,
    beat: u8,
}

impl<'a> Tellers<'a> {
    pub fn new(end: &'a End, common: &Common) -> Self {
        /// One in so many credits has a completion.
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
            told: vec![0; qps],
            every: (depth as u64 / 4).max(1),
            is_on: common.flow == Flow::Credit,
            is_reliable: common.transport == Transport::Rc,
            beat: 0,
        }
    }

    /// Waits for receive completions, at most `limit_ns`; 0 when nothing came. Where messages may
    /// be lost the time is counted in pieces in each of which it looked: who was kept from its
    /// processor has not waited. After each of them it says how far it is.
    #[inline]
    pub fn wait_for<R: Rank>(
        &mut self,
        rank: &R,
        stocks: &[Stock<'a>],
        limit_ns: u64,
        wcs: &mut [Wc],
    ) -> Result<usize, Stopped> {
        if self.is_reliable {
            return self.end.recv.wait_for(rank, limit_ns, wcs);
        }
        let mut left_ns = limit_ns;
        loop {
            let slice_ns = left_ns.min(BEAT_NS);
            let found = self.end.recv.wait_for(rank, slice_ns, wcs)?;
            left_ns -= slice_ns;
            if found > 0 || left_ns == 0 {
                return Ok(found);
            }
            self.beat(rank, stocks)?;
        }
    }

    /// Whether it is time to say how far it is, when nothing came for so long; asked every
    /// `slice_ns`.
    pub fn is_due(waited_ns: u64, slice_ns: u64) -> bool {
        waited_ns / BEAT_NS > waited_ns.saturating_sub(slice_ns) / BEAT_NS
    }

    /// Says how far it is, though nothing came.
    #[cold]
    pub fn beat<R: Rank>(&mut self, rank: &R, stocks: &[Stock<'a>]) -> Result<(), Stopped> {
        if !self.is_on {
            return Ok(());
        }
        self.beat = self.beat.wrapping_add(1);
        for (qp, stock) in stocks.iter().enumerate() {
            self.told[qp] = stock.restocked;
            self.say(rank, qp, stock.restocked)?;
        }
        Ok(())
    }

    /// Tells it where there is enough to tell.
    #[inline]
    pub fn tell<R: Rank>(&mut self, rank: &R, qp: usize, restocked: u64) -> Result<(), Stopped> {
        if self.is_on && restocked - self.told[qp] >= self.every {
            self.told[qp] = restocked;
            return self.say(rank, qp, restocked);
        }
        Ok(())
    }

    #[cold]
    fn say<R: Rank>(&mut self, rank: &R, qp: usize, count: u64) -> Result<(), Stopped> {
        while self.accounts[qp].room() == 0 {
            let mut wcs = [Wc::default(); TAKEN];
            let found = self.end.send.wait(rank, &mut wcs, "the completion of a credit")?;
            let accounts = &mut self.accounts;
            each_completion(self.end, &wcs[..found], |qp, count| accounts[qp].free(count))?;
        }
        let credit = Credit { count, beat: self.beat };
        self.end.memory().write_u64(self.end.layout.told(qp), credit.to_word());
        let (account, batch) = (&mut self.accounts[qp], &mut self.batches[qp]);
        let signals = account.take(1, false);
        batch.set_signaled(0, signals);
        batch.set_wr_id(0, wr_id(qp, account.posted()) | self.end.tag);
        if !self.end.peer.ahs.is_empty() {
            batch.set_imm(0, self.end.share.imm(credit.to_imm()));
        }
        let posted = self.end.qps[qp].post_send_batch(batch);
        posted.map_err(|e| self.end.diagnose(failed(e)))
    }
}

fn credit_sges(end: &End, qp: usize) -> [Sge<'_>; 1] {
    [end.mr.sge(end.layout.told(qp), WORD)]
}

fn credit<'s, 'a>(end: &'a End, qp: usize, sges: &'s [Sge<'a>]) -> SendRequest<'s, 'a> {
    match end.peer.ahs.get(qp) {
        // Its immediate data says it all: receives may be as short as a message.
        Some(ah) => SendRequest::send(&[]).with_imm(0).to(ah, end.peer.qpns[qp], QKEY),
        None => {
            let request = SendRequest::write(sges, &end.peer.memory, end.layout.heard(qp) as u64);
            if end.inline_bytes as usize >= WORD { request.inline_data() } else { request }
        }
    }
}

/// How many messages the receiver has room for, as far as the sender knows.
pub(crate) struct Credits<'a> {
    end: &'a End,
    is_on: bool,
    is_reliable: bool,
    depth: u64,
    sent: Vec<u64>,
    told: Vec<Credit>,
    /// What is taken to be lost.
    forgiven: Vec<u64>,
    /// Where credits come in as messages.
    stocks: Vec<Stock<'a>>,
    /// Times that the receiver had nothing more to take, and messages were taken to be lost.
    pub given_up: u64,
}

impl<'a> Credits<'a> {
    /// `limited`: messages use up something at the receiver.
    pub fn new(end: &'a End, common: &Common, limited: bool) -> Result<Self, Stopped> {
        let qps = end.qps.len();
        let is_on = limited && common.flow == Flow::Credit;
        let stocks = if is_on && common.transport == Transport::Ud {
            (0..qps).map(|qp| Stock::new(end, common, qp)).collect::<Result<_, _>>()?
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
            told: vec![Credit::default(); qps],
            forgiven: vec![0; qps],
            stocks,
            given_up: 0,
        })
    }

    /// Messages that the receiver has room for.
    #[inline]
    pub fn allowed(&mut self, qp: usize) -> Result<u64, Stopped> {
        if !self.is_on {
            return Ok(u64::MAX);
        }
        let known = self.known(qp);
        if known > self.depth / 2 {
            return Ok(known);
        }
        self.listen(qp)?;
        Ok(self.known(qp))
    }

    fn known(&self, qp: usize) -> u64 {
        (self.depth + self.told[qp].count + self.forgiven[qp]).saturating_sub(self.sent[qp])
    }

    /// What the receiver says, unless it is of before. What it has taken was not lost.
    fn heard(&mut self, qp: usize, credit: Credit) {
        if credit.count >= self.told[qp].count {
            self.told[qp] = credit;
            let under_way = self.sent[qp].saturating_sub(credit.count);
            self.forgiven[qp] = self.forgiven[qp].min(under_way);
        }
    }

    /// Counts messages out.
    #[inline]
    pub fn spend(&mut self, qp: usize, count: u64) {
        self.sent[qp] += count;
    }

    fn listen(&mut self, qp: usize) -> Result<(), Stopped> {
        if self.stocks.is_empty() {
            let word = self.end.memory().read_u64(self.end.layout.heard(qp));
            self.heard(qp, Credit::from_word(word));
            return Ok(());
        }
        let mut wcs = [Wc::default(); TAKEN];
        let found = self.end.recv.poll(&mut wcs)?;
        for wc in &wcs[..found] {
            if !wc.is_ok() {
                return Err(self.end.explain(wc, "receive"));
            }
            let Some(of) = self.end.index_of(wc.qp_num()) else { continue };
            self.stocks[of].took(wc.wr_id())?;
            let imm = wc.imm().unwrap_or(0) & self.end.share.mask();
            if let Some(credit) = self.told[of].next_from_imm(imm) {
                self.heard(of, credit);
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

    /// The same for `count` messages, which may be at most half of the receive queue: of the other
    /// half the receiver may not have told yet.
    pub fn wait_for<R: Rank>(
        &mut self,
        rank: &R,
        qp: usize,
        count: u64,
        mut meanwhile: impl FnMut() -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let (start, patience_ns) = (rank.now(), rank.patience_ns());
        let first = self.told[qp].beat;
        loop {
            if self.allowed(qp)? >= count {
                return Ok(());
            }
            meanwhile()?;
            // Asks whether to go on, too.
            if self.end.send.sleeps() {
                rank.sleep(NAP_NS)?;
            } else {
                rank.spin_for(0, || None::<()>)?;
            }
            let waited_ns = rank.clock().ns_between(start, rank.now());
            // As a difference with a sign: one that came late is of before.
            let beats = self.told[qp].beat.wrapping_sub(first).cast_signed();
            if !self.is_reliable && beats >= BEATS {
                self.forgiven[qp] = self.sent[qp].saturating_sub(self.told[qp].count);
                self.given_up += 1;
            } else if waited_ns > patience_ns as f64 {
                return Err(crate::common::completions::timed_out(
                    patience_ns,
                    "a credit of the receiver",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credit_comes_back_and_a_late_one_does_not_count() {
        for credit in [Credit::default(), Credit { count: 1 << 40, beat: 255 }] {
            assert_eq!(Credit::from_word(credit.to_word()), credit);
        }
        let told = Credit { count: (7 << IMM_BEAT_SHIFT) - 10, beat: 255 };
        for (count, beat) in [(told.count, 0), (told.count + 512, 255), (told.count + 32_768, 3)] {
            let next = Credit { count, beat };
            assert_eq!(told.next_from_imm(next.to_imm()), Some(next));
        }
        let late = Credit { count: told.count - 1, beat: 254 };
        assert_eq!(told.next_from_imm(late.to_imm()), None);
    }

    #[test]
    fn it_is_due_once_a_beat() {
        let slice_ns = BEAT_NS / 25;
        let due = (1..=100).filter(|n| Tellers::is_due(n * slice_ns, slice_ns));
        assert_eq!(due.collect::<Vec<_>>(), [25, 50, 75, 100]);
    }
}
