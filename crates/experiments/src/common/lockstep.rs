//! What the two ends tell each other beside the measurement: whether to go on, and what they found.

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{CpuTime, Rank, Stopped, extremes};

use crate::common::failure::Troubled;

/// Bytes of one exchange of findings.
const CHUNK: usize = 1 << 20;

/// Times that the end of a part is said where messages may be lost.
pub(crate) const OVERS: usize = 3;

/// So many lost messages in a row are waited for by who answers: then a part is taken to be over.
const PATIENT: u64 = 20;

/// So many answers in a row may be lost before who asks takes the other end to be gone, which then
/// is: it has waited for long enough.
pub(crate) const LOST_IN_A_ROW: u64 = 3 * PATIENT;

/// How long an answering end waits for the next message, where the asking one waits `limit_ns` for
/// an answer that may be lost: it goes on asking, so that a loss costs one trip; and when it is
/// through, it says so.
pub(crate) const fn through_losses_ns(limit_ns: u64) -> u64 {
    /// So much longer than that takes, ns.
    const GRACE_NS: u64 = 1_000_000_000;
    limit_ns.saturating_mul(PATIENT).saturating_add(GRACE_NS)
}

/// The course of a measurement: part by part, as long as both ends want to go on.
pub(crate) struct Course<'a, R> {
    rank: &'a R,
    end: &'a dyn Troubled,
    /// Whether it has nothing to do in a part.
    is_idle: bool,
    /// Why it ends before its time.
    pub cut_short: Option<String>,
}

/// How long the news of another rank's end may take: queue pairs and other ranks tell sooner.
const NEWS_NS: u64 = 1_000_000_000;

impl<'a, R: Rank> Course<'a, R> {
    pub fn new(rank: &'a R, end: &'a dyn Troubled) -> Self {
        Self { rank, end, is_idle: false, cut_short: None }
    }

    /// Of a rank that may have nothing to do: then it waits until the others have done their part.
    pub fn idle(self, is_idle: bool) -> Self {
        Self { is_idle, ..self }
    }

    /// Gives a number, and gets the smallest and the largest.
    fn agree(&self, number: u64) -> Result<(u64, u64), Stopped> {
        if !self.is_idle {
            return self.rank.agree(number);
        }
        let all = self.rank.exchange_at_leisure(&number.to_le_bytes())?;
        extremes(all.iter().map(Vec::as_slice))
    }

    /// Gives what it found at the end.
    pub fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        match self.is_idle {
            true => self.rank.exchange_at_leisure(bytes),
            false => self.rank.exchange_to_end(bytes),
        }
    }

    /// Meets the other end before a part; whether there is to be one.
    pub fn goes_on(&mut self) -> Result<bool, Stopped> {
        match self.agree(u64::from(self.cut_short.is_none())) {
            Ok((least, _)) => {
                let goes_on = least == 1;
                if !goes_on && self.cut_short.is_none() {
                    // Another rank was told to stop, and so will this one be, with the reason.
                    let told = self.rank.spin_for(NEWS_NS, || None::<()>).err();
                    self.cut_short = Some(told.unwrap_or(Stopped::Asked).to_string());
                }
                Ok(goes_on)
            }
            Err(stopped) => {
                self.ends(stopped)?;
                Ok(false)
            }
        }
    }

    /// Has the clocks of both ends looked at, where they are two: before each part and after the
    /// last one, so that what is stamped in between can be converted.
    pub fn aligns(&mut self) -> Result<(), Stopped> {
        let aligned = self.rank.align_clocks();
        self.took(aligned)
    }

    /// A part has ended so. What was measured until then is kept where we were interrupted, or the
    /// other end is gone: others know of that. A failure of our own is an error, so that the other
    /// end is told.
    pub fn took(&mut self, result: Result<(), Stopped>) -> Result<(), Stopped> {
        match result {
            Ok(()) => Ok(()),
            Err(stopped) => self.ends(stopped),
        }
    }

    #[cold]
    fn ends(&mut self, stopped: Stopped) -> Result<(), Stopped> {
        let why = match self.end.diagnose(stopped) {
            Stopped::Failed(cause) => match self.rank.spin_for(NEWS_NS, || None::<()>) {
                Err(Stopped::Other(why)) => format!("{why}; {cause}"),
                _ => return Err(Stopped::Failed(cause)),
            },
            Stopped::TimedOut(what) => return Err(Stopped::TimedOut(what)),
            kept => kept.to_string(),
        };
        self.cut_short.get_or_insert(why);
        Ok(())
    }
}

/// Answers that were lost one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    in_a_row: u64,
}

impl Losses {
    /// An answer came, or did not within `limit_ns`.
    ///
    /// # Errors
    /// When so many did not that nobody can be there. Else a rank would go on for as long as it has
    /// messages, and the others would miss it.
    #[inline]
    pub fn note(
        &mut self,
        came: bool,
        limit_ns: u64,
        whose: impl std::fmt::Display,
    ) -> Result<(), Stopped> {
        self.in_a_row = if came { 0 } else { self.in_a_row + 1 };
        if self.in_a_row < LOST_IN_A_ROW {
            return Ok(());
        }
        Err(Stopped::TimedOut(format!(
            "{LOST_IN_A_ROW} answers of {whose} in a row did not come within {} s each: it is \
             stopped, or everything is lost on the way",
            limit_ns as f64 / 1e9
        )))
    }
}

/// Why a rank that sees that it is to stop has to.
#[cold]
pub(crate) fn stopped<R: Rank>(rank: &R) -> Stopped {
    rank.spin_for(0, || None::<()>).err().unwrap_or(Stopped::Asked)
}

/// Why a measurement of one end alone ends before its time: what was measured until then is kept
/// where we were interrupted, or the other end is gone.
pub(crate) fn cut_short(result: Result<(), Stopped>) -> Result<Option<String>, Stopped> {
    match result {
        Ok(()) => Ok(None),
        Err(kept @ (Stopped::Asked | Stopped::Other(_))) => Ok(Some(kept.to_string())),
        Err(failure) => Err(failure),
    }
}

/// Gives rank 0 the words of rank 1; nothing to rank 1.
pub(crate) fn gather<R: Rank>(rank: &R, words: &[u64]) -> Result<Vec<u64>, Stopped> {
    let is_giver = rank.index() == 1;
    let bytes: Vec<u8> =
        if is_giver { words.iter().flat_map(|w| w.to_le_bytes()).collect() } else { Vec::new() };
    // Of several threads, each comes to as many rounds as the one with the most to tell.
    let (_, most) = rank.agree(bytes.len() as u64)?;
    let mut got = Vec::new();
    for at in (0..most as usize).step_by(CHUNK) {
        let (from, to) = (at.min(bytes.len()), (at + CHUNK).min(bytes.len()));
        let all = rank.exchange_to_end(&bytes[from..to])?;
        if !is_giver {
            got.extend_from_slice(all.get(1).map_or(&[][..], |b| b));
        }
    }
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    Ok(got.chunks_exact(8).map(word).collect())
}

/// What rank 1 gives to rank 0. A point that was cut short keeps what rank 0 knows: nothing comes
/// then, and `missing`, where there are words for it, is among the warnings with the reason.
pub(crate) fn gather_or_keep<R: Rank>(
    rank: &R,
    outcome: &mut Outcome,
    missing: Option<&str>,
) -> Result<Vec<u64>, Stopped> {
    let error = match gather(rank, &[]) {
        Err(error) if outcome.cut_short.is_some() => error,
        result => return result,
    };
    outcome.warnings.extend(missing.map(|words| format!("{words}: {error}")));
    Ok(Vec::new())
}

/// What the runs of one end cost it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Effort {
    pub elapsed_ns: f64,
    pub cpu: CpuTime,
}

/// The begin of a run, to know its effort later.
pub(crate) struct Begin {
    at: Stamp,
    cpu: CpuTime,
}

impl Begin {
    pub fn now<R: Rank>(rank: &R) -> Self {
        let cpu = rank.cpu_time();
        Self { at: rank.now(), cpu }
    }

    pub fn end<R: Rank>(&self, rank: &R, sum: &mut Effort) {
        let now = rank.now();
        let cpu = rank.cpu_time().since(self.cpu);
        sum.elapsed_ns += rank.clock().ns_between(self.at, now);
        sum.cpu.user_ns += cpu.user_ns;
        sum.cpu.system_ns += cpu.system_ns;
    }
}

impl Effort {
    /// Words of an effort.
    pub const WORDS: usize = 3;

    pub fn to_words(self) -> [u64; Self::WORDS] {
        [self.elapsed_ns as u64, self.cpu.user_ns, self.cpu.system_ns]
    }

    pub fn from_words(words: &[u64]) -> Option<Self> {
        let [elapsed, user_ns, system_ns] = words.get(..Self::WORDS)?.try_into().ok()?;
        Some(Self { elapsed_ns: elapsed as f64, cpu: CpuTime { user_ns, system_ns } })
    }

    /// Processor time over elapsed time; `None` where nothing ran.
    pub fn share(self) -> Option<f64> {
        (self.elapsed_ns > 0.0).then(|| self.cpu.total_ns() as f64 / self.elapsed_ns)
    }

    /// The share of rank 0, and that of rank 1 where it is known.
    pub fn push_shares(outcome: &mut Outcome, own: Self, theirs: Option<Self>) {
        for (label, effort) in [("rank 0", Some(own)), ("rank 1", theirs)] {
            if let Some(share) = effort.and_then(Self::share) {
                outcome.push_figure(Quantity::CpuShare, label, share);
            }
        }
    }
}
