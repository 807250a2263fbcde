//! `blast` in both directions at once. Each direction has an endpoint of its own: queue pairs,
//! completion queues and memory. One thread of each end sends over the one and receives over the
//! other in turns, and never waits for only one of them.

use rdmalab_measure::{Outcome, Stamp};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use super::options::Blast;
use super::part::{Part, runs_of};
use super::rates::Rates;
use super::receive::{Received, Receiving};
use super::send::{Posted, Sending};
use crate::common::completions::timed_out;
use crate::common::credits::{CreditReturns, CreditWait};
use crate::common::effort::{Begin, Effort};
use crate::common::endpoint::Endpoint;
use crate::common::gather::{gather, gather_or_keep};
use crate::common::limits::Limits;
use crate::common::lockstep::{Lockstep, stopped};
use crate::common::params::{Common, Polling, Transport};
use crate::common::pattern::push_damaged;
use crate::common::rules::{Fault, must};
use crate::common::samples::{IDLE_NS, parts};
use crate::common::threads::Traffic;

/// The most of the time between two looks that counts as waiting: in a longer one the thread had no
/// processor.
const LOOK_NS: u64 = 1_000_000;

/// What a single thread that serves both directions cannot do.
pub(super) fn check(common: &Common, own: &Blast, limits: &Limits) -> Result<(), Fault> {
    must(common.qps.saturating_mul(2) < limits.max_qp, "qps", || {
        format!(
            "--bidirectional has as many in each direction, and {} has at most {} queue pairs: \
             choose fewer",
            limits.device, limits.max_qp
        )
    })?;
    must(common.rate_per_s == 0, "rate", || {
        "--bidirectional measures at full speed: choose 0, or --bidirectional no".to_owned()
    })?;
    must(own.stamp_every == 0, "stamp-every", || {
        "--bidirectional has no timestamps between messages: choose 0".to_owned()
    })?;
    must(common.threads == 1, "threads", || {
        "--bidirectional uses one thread of each end: choose 1, and more --qps".to_owned()
    })?;
    for (option, polling) in [("poll-send", common.poll_send), ("poll-recv", common.poll_recv)] {
        must(polling == Polling::Busy, option, || {
            "a thread that serves both directions cannot sleep for one: choose --poll busy"
                .to_owned()
        })?;
    }
    Ok(())
}

/// What rank 1 gives to rank 0: what it sent, and what it received.
fn to_words(sent: &[Part], found: &Received) -> Vec<u64> {
    let mut words = vec![sent.len() as u64];
    words.extend(sent.iter().flat_map(|part| part.to_words()));
    words.extend(found.to_words());
    words
}

fn from_words(words: &[u64]) -> Option<(Vec<Part>, Received)> {
    let (count, rest) = words.split_first()?;
    let end = usize::try_from(*count).ok()?.checked_mul(Part::WORDS)?;
    let (sent, rest) = rest.split_at_checked(end)?;
    let sent = sent.chunks_exact(Part::WORDS).map(Part::from_words).collect();
    Some((sent, Received::from_words(rest)?))
}

/// One end: it sends to the other one, and receives from it.
struct Both<'a, R> {
    rank: &'a R,
    common: &'a Common,
    out: &'a Endpoint,
    back: &'a Endpoint,
    sending: Sending<'a, R>,
    receiving: Receiving<'a, R>,
    /// For credit of the receiver, if there was none at the last look.
    starving: Option<CreditWait>,
}

/// How long nothing has come.
struct Idle {
    since: Stamp,
    ns: u64,
}

pub(super) fn run<R: Rank + Sync>(
    own: &Blast,
    common: &Common,
    rank: &R,
    context: &Context,
    limits: &Limits,
) -> Result<Outcome, Stopped> {
    let connect = || Endpoint::connect(rank, context, limits, common, own.layout(common));
    // The first one is for messages of rank 0.
    let ends = [connect()?, connect()?];
    let (out, back) = (&ends[rank.index()], &ends[1 - rank.index()]);
    let mut both = Both {
        rank,
        common,
        out,
        back,
        sending: Sending::new(common, own, rank, out)?,
        receiving: Receiving::new(common, 0, rank, back)?,
        starving: None,
    };
    let (mut sent, mut found) = (Vec::new(), Received::default());
    let mut lockstep = Lockstep::new(rank, out);
    for messages in parts(common) {
        if !lockstep.goes_on()? {
            break;
        }
        let (mut going, mut coming) = (Part::default(), Part::default());
        let begin = Begin::now(rank);
        let result = both.part(messages, &mut going, &mut coming);
        begin.end(rank, &mut found.effort);
        sent.push(going);
        found.parts.push(coming);
        lockstep.part_ended(result)?;
    }
    (found.reordered, found.damaged) = (both.receiving.reordered, both.receiving.damaged);
    let mut outcome = Outcome { cut_short: lockstep.cut_short, ..Outcome::default() };
    if rank.index() == 0 {
        both.outcome(&mut outcome, &sent, &found)?;
    } else {
        match gather(rank, &to_words(&sent, &found)) {
            Err(error) if outcome.cut_short.is_none() => return Err(error),
            _ => {}
        }
    }
    out.facts(&mut outcome);
    Ok(outcome)
}

impl<R: Rank> Both<'_, R> {
    /// Sends so many messages, and receives as many.
    fn part(&mut self, messages: u64, going: &mut Part, coming: &mut Part) -> Result<(), Stopped> {
        let before = self.sending.sent;
        self.sending.begin(messages);
        let now = self.rank.now();
        (going.first, coming.first, coming.last) = (now.0, now.0, now.0);
        let result = self.messages(messages, going, coming);
        going.messages = self.sending.sent - before;
        if result.is_err() {
            // Messages went and came until about now.
            let now = self.rank.now().0;
            (going.last, coming.last) = (now, now);
        }
        result
    }

    fn messages(
        &mut self,
        messages: u64,
        going: &mut Part,
        coming: &mut Part,
    ) -> Result<(), Stopped> {
        let is_unnoticed = self.common.op.is_unnoticed();
        let is_reliable = self.common.transport == Transport::Rc;
        let (mut has_sent, mut has_received) = (false, is_unnoticed);
        let mut idle = Idle { since: self.rank.now(), ns: 0 };
        while !(has_sent && has_received) {
            if self.rank.is_asked_to_stop() {
                return Err(stopped(self.rank));
            }
            let mut is_busy = false;
            if !has_sent {
                is_busy |= self.send()?;
                has_sent = self.sending.is_through() && !self.sending.is_awaiting();
                if has_sent {
                    going.last = self.rank.now().0;
                }
            }
            if !has_received && self.receiving.step(messages, coming)? {
                is_busy = true;
                has_received = coming.messages >= messages;
                idle.ns = 0;
            }
            if is_busy {
                // Where no message is lost, an end waits in vain only if nothing goes either.
                idle.ns = if is_reliable { 0 } else { idle.ns };
            } else {
                // It also fails if another rank is gone.
                self.rank.spin_for(0, || None::<()>)?;
                has_received |= self.is_over(&mut idle)?;
            }
        }
        if is_unnoticed {
            self.out.tell_done(self.rank)?;
            self.back.wait_until_done(self.rank)?;
        }
        Ok(())
    }

    /// Posts what there is room for, and takes completions. Returns whether there was something to
    /// do.
    #[inline]
    fn send(&mut self) -> Result<bool, Stopped> {
        let mut has_posted = false;
        if !self.sending.is_through() && !self.is_starving()? {
            match self.sending.post_some()? {
                Posted::Some => has_posted = true,
                Posted::NoRoom => {}
                Posted::NoCredit(qp) => {
                    self.starving = Some(self.sending.credits.begin_wait(self.rank, qp));
                }
            }
        }
        Ok(self.sending.poll()? > 0 || has_posted)
    }

    fn is_starving(&mut self) -> Result<bool, Stopped> {
        let Some(wait) = &self.starving else { return Ok(false) };
        if self.sending.credits.is_over(self.rank, wait, 1)? {
            self.starving = None;
        }
        Ok(self.starving.is_some())
    }

    /// Whether messages that have not come are taken to be lost.
    fn is_over(&mut self, idle: &mut Idle) -> Result<bool, Stopped> {
        let now = self.rank.now();
        let passed_ns = self.rank.clock().whole_ns_between(idle.since, now).min(LOOK_NS);
        (idle.since, idle.ns) = (now, idle.ns + passed_ns);
        if self.common.transport != Transport::Rc {
            if CreditReturns::is_due(idle.ns, passed_ns) {
                self.receiving.heartbeat()?;
            }
            return Ok(idle.ns >= IDLE_NS);
        }
        match self.rank.patience_ns() {
            patience_ns if idle.ns > patience_ns => Err(timed_out(patience_ns, "the next message")),
            _ => Ok(false),
        }
    }

    /// Joins what both ends sent and received, at rank 0.
    fn outcome(
        &self,
        outcome: &mut Outcome,
        sent: &[Part],
        found: &Received,
    ) -> Result<(), Stopped> {
        let missing = Some("what rank 1 sent and received is not known");
        let theirs = from_words(&gather_or_keep(self.rank, outcome, missing)?);
        let is_unnoticed = self.common.op.is_unnoticed();
        let Some((back_sent, there)) = theirs else {
            Effort::push_both(outcome, found.effort, None);
            return Ok(());
        };
        outcome.push_fact("counted_at", if is_unnoticed { "sender" } else { "receiver" });
        // What went from rank 0, and what came from rank 1, as the end that counts saw it.
        let (going, coming) = match is_unnoticed {
            true => (sent, &*back_sent),
            false => (&*there.parts, &*found.parts),
        };
        let all = |parts: &[Part]| -> u64 {
            runs_of(self.common, parts).iter().map(|part| part.messages).sum()
        };
        outcome.push_count("sent", all(sent) + all(&back_sent));
        if !is_unnoticed {
            let (went, came) = (all(&there.parts), all(&found.parts));
            outcome.push_count("received", went + came);
            let lost = |sent: &[Part], arrived| all(sent).saturating_sub(arrived);
            outcome.push_count("lost", lost(sent, went) + lost(&back_sent, came));
            let more = |sent: &[Part], arrived: u64| arrived.saturating_sub(all(sent));
            outcome.push_count("duplicated", more(sent, went) + more(&back_sent, came));
            outcome.push_count("reordered", there.reordered + found.reordered);
            outcome.push_count("credit_given_up", self.sending.credits.given_up);
            if self.common.verify {
                push_damaged(outcome, there.damaged + found.damaged);
            }
        }
        let (going, coming) = (runs_of(self.common, going), runs_of(self.common, coming));
        let together: Vec<Part> = going.iter().zip(coming).map(|(a, b)| a.with(b)).collect();
        let rates = |parts: &[Part]| Rates::of(self.rank.clock(), parts);
        if let Some(rates) = rates(&together) {
            rates.push_all(self.common, outcome);
        }
        for (label, parts) in [("0 to 1", going), ("1 to 0", coming)] {
            if let Some(rates) = rates(parts) {
                rates.push(self.common, label, outcome);
            }
        }
        Effort::push_both(outcome, found.effort, Some(there.effort));
        self.sending.doubts(outcome);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_end_found_comes_back() {
        let part = Part { messages: 3, first: 10, last: 20 };
        let found = Received { reordered: 1, parts: vec![part], ..Received::default() };
        let words = to_words(&[part, part], &found);
        assert_eq!(from_words(&words), Some((vec![part, part], found)));
        assert_eq!(from_words(&[]), None);
        assert_eq!(from_words(&[u64::MAX, 1]), None);
        assert_eq!(from_words(&words[..7]), None);
    }
}
