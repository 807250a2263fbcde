//! Round trips over a receive queue, each kept in its order.

use rdmalab_measure::pattern::{self, Pattern};
use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{SendBatch, SendRequest, Wc};

use super::buffers::Refill;
use super::options::{Recvq, ReturnWhen};
use crate::common::completions::failed;
use crate::common::effort::{Begin, Effort};
use crate::common::gather::{gather, gather_or_keep};
use crate::common::links::Links;
use crate::common::lockstep::Lockstep;
use crate::common::params::{Common, Op};
use crate::common::samples::{parts, stamp_memory};
use crate::common::send_queue::Account;

/// One of the two ends.
pub(super) struct Trips<'a, R> {
    rank: &'a R,
    links: &'a Links,
    common: &'a Common,
    return_when: ReturnWhen,
    batch: SendBatch<'a>,
    account: Account,
    refill: Refill<'a>,
    is_inline: bool,
    trips: u64,
    log: Log,
}

impl<'a, R: Rank> Trips<'a, R> {
    pub fn new(
        (common, own): (&'a Common, &Recvq),
        rank: &'a R,
        links: &'a Links,
        refill: Refill<'a>,
        incoming: usize,
    ) -> Self {
        let is_inline = links.is_inline(common, common.size_bytes);
        let sges = [links.mr.sge(0, common.size_bytes as usize)];
        let request = match common.op {
            Op::WriteImm => SendRequest::write(&sges, &links.remotes[0].memory, incoming as u64),
            _ => SendRequest::send(&sges),
        };
        let request = if common.op.has_imm() { request.with_imm(0) } else { request };
        let request = if is_inline { request.inline_data() } else { request };
        Self {
            rank,
            links,
            common,
            return_when: own.return_when,
            batch: SendBatch::new(&[request]),
            account: Account::new(common.tx_depth.into(), common.signal_every),
            refill,
            is_inline,
            trips: 0,
            log: Log {
                begin: rank.now(),
                ticks: stamp_memory(common.total() as usize, common.touch),
                trips: 0,
                effort: Effort::default(),
            },
        }
    }

    #[inline]
    fn send(&mut self, is_last: bool) -> Result<(), Stopped> {
        while self.account.room() == 0 {
            self.reap()?;
        }
        let signals = self.account.take(1, is_last);
        self.batch.set_signaled(0, signals);
        self.batch.set_wr_id(0, self.account.posted());
        if self.common.op.has_imm() {
            self.batch.set_imm(0, self.trips as u32);
        }
        let posted = self.links.qps[0].post_send_batch(&mut self.batch);
        posted.map_err(|e| self.links.diagnose(failed(e)))
    }

    fn reap(&mut self) -> Result<(), Stopped> {
        let mut wcs = [Wc::default()];
        self.links.send.wait(self.rank, &mut wcs, "a completion of the sender")?;
        self.links.all_sent(&wcs)?;
        self.account.free(wcs[0].wr_id());
        Ok(())
    }

    /// Takes the completions that are to come.
    #[inline]
    fn settle(&mut self) -> Result<(), Stopped> {
        while self.account.is_awaiting() {
            self.reap()?;
        }
        Ok(())
    }

    /// Receives a message: its buffer is now used.
    #[inline]
    fn receive(&mut self, what: &str) -> Result<(), Stopped> {
        let mut wcs = [Wc::default()];
        self.links.recv.wait(self.rank, &mut wcs, what)?;
        if !wcs[0].is_ok() {
            return Err(self.links.explain(&wcs[0], "receive"));
        }
        self.refill.used(wcs[0].wr_id());
        Ok(())
    }

    /// Says something, and returns buffers on the right side of it.
    #[inline]
    fn answer(&mut self, is_last: bool) -> Result<(), Stopped> {
        let is_before = self.return_when == ReturnWhen::Before;
        if is_before {
            self.refill.post_when_due(self.links)?;
        }
        self.send(is_last)?;
        if !is_before {
            self.refill.post_when_due(self.links)?;
        }
        Ok(())
    }

    fn ask(&mut self, is_last: bool) -> Result<(), Stopped> {
        if self.rank.is_asked_to_stop() {
            return Err(crate::common::lockstep::stopped(self.rank));
        }
        if self.common.pause_ns > 0 {
            match self.common.sleeps() {
                true => self.rank.sleep(self.common.pause_ns)?,
                false => self.rank.think(self.common.pause_ns)?,
            }
            self.log.begin = self.rank.now();
        }
        self.answer(is_last)?;
        self.receive("the answer")?;
        self.log.end(self.rank.now());
        self.trips += 1;
        self.settle()
    }

    fn reply(&mut self, is_last: bool) -> Result<(), Stopped> {
        if self.rank.is_asked_to_stop() {
            return Err(crate::common::lockstep::stopped(self.rank));
        }
        self.receive("the next message")?;
        self.log.end(self.rank.now());
        self.answer(is_last)?;
        self.trips += 1;
        self.settle()
    }

    /// All parts, each trip by `one`; why it was cut short.
    fn all(
        &mut self,
        mut one: impl FnMut(&mut Self, bool) -> Result<(), Stopped>,
    ) -> Result<Option<String>, Stopped> {
        let mut lockstep = Lockstep::new(self.rank, self.links);
        for trips in parts(self.common) {
            if !lockstep.goes_on()? {
                break;
            }
            let begin = Begin::now(self.rank);
            self.log.begin = self.rank.now();
            let result = (0..trips).try_for_each(|k| one(self, k + 1 == trips));
            begin.end(self.rank, &mut self.log.effort);
            lockstep.part_ended(result)?;
        }
        Ok(lockstep.cut_short)
    }

    pub fn client(mut self) -> Result<Outcome, Stopped> {
        let cut_short = self.all(Self::ask)?;
        let mut outcome = Outcome { cut_short, ..Outcome::default() };
        let theirs = gather_or_keep(self.rank, &mut outcome, None)?;
        let clock = self.rank.clock();
        let in_ns = |ticks: &u64| clock.ns_between(Stamp(0), Stamp(*ticks));
        let own: Vec<f64> = self.log.taken().iter().map(in_ns).collect();
        push(&mut outcome, "rank 0", self.common, own);
        if let Some(effort) = Effort::from_words(&theirs) {
            let times = theirs[Effort::WORDS..].iter().map(|ns| *ns as f64).collect();
            push(&mut outcome, "rank 1", self.common, times);
            Effort::push_both(&mut outcome, self.log.effort, Some(effort));
        }
        outcome.push_count("sent", self.trips);
        self.links.facts(&mut outcome, self.is_inline);
        Ok(outcome)
    }

    pub fn server(mut self) -> Result<Outcome, Stopped> {
        let cut_short = self.all(Self::reply)?;
        let mut outcome = Outcome { cut_short, ..Outcome::default() };
        let clock = self.rank.clock();
        let in_ns = |ticks: &u64| clock.ns_between(Stamp(0), Stamp(*ticks)).round() as u64;
        let mut words = self.log.effort.to_words().to_vec();
        words.extend(self.log.taken().iter().map(in_ns));
        match gather(self.rank, &words) {
            Err(error) if outcome.cut_short.is_none() => return Err(error),
            _ => {}
        }
        self.links.facts(&mut outcome, self.is_inline);
        Ok(outcome)
    }
}

/// What an end writes down.
struct Log {
    begin: Stamp,
    /// Ticks of each trip.
    ticks: Vec<u64>,
    trips: usize,
    effort: Effort,
}

impl Log {
    #[inline]
    fn end(&mut self, now: Stamp) {
        self.ticks[self.trips] = now.0.wrapping_sub(self.begin.0);
        self.trips += 1;
        self.begin = now;
    }

    fn taken(&self) -> &[u64] {
        &self.ticks[..self.trips]
    }
}

/// A series of one end, and the pattern in it.
fn push(outcome: &mut Outcome, label: &str, common: &Common, samples: Vec<f64>) {
    let warm_up = (common.warm_up as usize).min(samples.len());
    let found = pattern::find(&samples[warm_up..], warm_up);
    outcome.push_series(Quantity::RoundTrip, label, warm_up, samples);
    if let Some(pattern) = &found {
        outcome.push_figure(Quantity::Period, label, pattern.period as f64);
        if let Some(peak) = pattern.peaks.first() {
            outcome.push_figure(Quantity::PeakHeight, label, peak.height);
        }
    }
    let name = format!("pattern_{}", label.replace(' ', "_"));
    outcome.push_fact(&name, found.as_ref().map_or_else(|| "none".to_owned(), described));
}

/// `every 32: +1.23 us at 30, 31; +680 ns at 14, 15; by chance 1e-87`.
fn described(pattern: &Pattern) -> String {
    /// Places that are named at most.
    const NAMED: usize = 12;
    /// Peaks of about one height are named together.
    const ALIKE: f64 = 0.2;
    let mut groups: Vec<(f64, Vec<usize>)> = Vec::new();
    for peak in pattern.peaks.iter().take(NAMED) {
        let is_alike = |(height, _): &&mut (f64, Vec<usize>)| {
            (peak.height - *height).abs() <= ALIKE * height.abs()
        };
        match groups.iter_mut().find(is_alike) {
            Some((_, places)) => places.push(peak.place),
            None => groups.push((peak.height, vec![peak.place])),
        }
    }
    let mut text = format!("every {}", pattern.period);
    for (i, (height, mut places)) in groups.into_iter().enumerate() {
        places.sort_unstable();
        let places: Vec<String> = places.iter().map(usize::to_string).collect();
        let (start, sign) = (if i == 0 { ": " } else { "; " }, if height > 0.0 { "+" } else { "" });
        text.push_str(&format!("{start}{sign}{} at {}", fmt_ns(height), places.join(", ")));
    }
    if pattern.peaks.len() > NAMED {
        text.push_str(&format!("; and {} more", pattern.peaks.len() - NAMED));
    }
    let chance = match pattern.false_alarm {
        chance if chance > 0.0 => format!("{chance:.0e}"),
        _ => "below 1e-300".to_owned(),
    };
    text.push_str(&format!("; by chance {chance}"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmalab_measure::pattern::Peak;

    #[test]
    fn a_pattern_is_a_sentence() {
        let peak = |place, height| Peak { place, height, chance: 0.0 };
        let peaks = vec![peak(31, 1250.0), peak(30, 1200.0), peak(15, 700.0), peak(3, -90.0)];
        let pattern = Pattern { period: 32, false_alarm: 2.2e-87, base: 3000.0, peaks };
        assert_eq!(
            described(&pattern),
            "every 32: +1.25 us at 30, 31; +700 ns at 15; -90.0 ns at 3; by chance 2e-87"
        );
        let wave = Pattern { false_alarm: 0.0, peaks: Vec::new(), ..pattern };
        assert_eq!(described(&wave), "every 32; by chance below 1e-300");
    }
}
