//! Patterns in a series: whether it repeats itself every so many samples, at which places of the
//! period it stands out, by how much, and how likely that would be by chance.
//!
//! A receive queue that wraps round, a cache of requests that runs empty: such causes count
//! messages, so what they do comes back after a whole number of messages. That is what is searched
//! for. What repeats in *time* smears over the samples, and is found only where it happens to be
//! regular in messages too.
//!
//! # How it is found
//!
//! * Samples become normal scores of their ranks, ties broken at random from a fixed seed. So
//!   outliers count as the largest values and no more, and under the hypothesis of no pattern, that
//!   each order of the samples is equally likely, the distribution is known whatever the shape of
//!   the samples'.
//! * For each period the scores are folded: the mean at each place. Two statistics tell whether the
//!   means differ: their sum of squares (chi-squared; a wave) and the largest one (normal; a single
//!   peak in a long period). The probability of each under no pattern is multiplied by the number
//!   of chances it had: both statistics, all places, all periods. So [`Pattern::false_alarm`]
//!   bounds the probability that *any* such pattern is found in white noise.
//! * Noise of which neighbours resemble each other has more variance at long periods than white
//!   noise has. What a sample says of the next one is taken out before; what is left shows at all
//!   periods of similar length: what even the calm ones of these have in excess, each has to
//!   exceed.
//! * A pattern of period 16 also shows at 32, 48 and, weaker, at 8. Of all these the most unlikely
//!   is taken; then each divisor replaces it of which it is a mere repetition, and then each
//!   multiple that says significantly more than it.
//! * Two causes of periods 16 and 10 repeat together every 80. If one of them is much higher, its
//!   period alone is the answer: a divisor replaces the period if what it leaves is low beside it.
//! * Heights are differences of medians, in the unit of the samples.
//!
//! Records of simulated runs have what is found here, and are the same bytes on any machine. So
//! logarithms are those of `libm`: the C library's differ in the last bit between its versions.

mod chance;
mod fold;

use crate::stats;
use chance::ln_normal_tail;
use fold::Folded;
use libm::{exp, log};

/// The false-alarm probability that [`find`] allows.
pub const FALSE_ALARM: f64 = 0.01;
/// Periods of a series at least, so that the mean of a place means something.
pub const MIN_CYCLES: usize = 8;
/// Longest period searched for, in samples.
pub const MAX_PERIOD: usize = 4096;
/// Samples looked at, from the beginning: more would take long and say little more.
pub const MAX_SAMPLES: usize = 1 << 15;
/// With what probability a repetition may be taken for a period of its own.
const REPETITION: f64 = 0.001;
/// A shorter period is enough if the squares of what it leaves are at most this share of the
/// squares of its heights. Squares, because a few places may be disturbed.
const LOW: f64 = 0.02;
/// Multiples of a period whose divisors may replace it.
const MULTIPLES: usize = 4;
/// The share of neighbouring periods that are taken to hold noise alone.
const CALM: f64 = 0.1;

/// A pattern that repeats itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// Samples from one repetition to the next.
    pub period: usize,
    /// The probability of a pattern as clear as this one, of whatever period, in samples of which
    /// each order is equally likely; an upper bound.
    pub false_alarm: f64,
    /// The median of the middle place of the period, in the samples' unit: what most are like.
    pub base: f64,
    /// The places that stand out, the most different ones first.
    pub peaks: Vec<Peak>,
}

/// A place of the period that stands out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Its index modulo the period; the first sample of the series is as the caller of [`find`]
    /// numbers it.
    pub place: usize,
    /// The median there, minus [`Pattern::base`]; below zero where it is a dip.
    pub height: f64,
    /// The probability that any place of the period differs as clearly from the others by chance.
    pub chance: f64,
}

/// Searches a series for the pattern that is least likely by chance; `None` where none is less
/// likely than [`FALSE_ALARM`]. NaN stands for a sample that is missing. `first` is the index of
/// the first sample, from which places are counted.
#[must_use]
pub fn find(samples: &[f64], first: usize) -> Option<Pattern> {
    find_with(samples, first, FALSE_ALARM)
}

/// As [`find`], with another probability of false alarms.
///
/// # Panics
/// When `false_alarm` is not strictly between 0 and 1.
#[must_use]
pub fn find_with(samples: &[f64], first: usize, false_alarm: f64) -> Option<Pattern> {
    assert!(false_alarm > 0.0 && false_alarm < 1.0, "{false_alarm} is no probability");
    let samples = &samples[..samples.len().min(MAX_SAMPLES)];
    let white = whitened(samples);
    let search = Search::new(white.as_deref().unwrap_or(samples))?;
    let (best, ln_chance) = search.best()?;
    if ln_chance > log(false_alarm) {
        return None;
    }
    let period = principal(samples, search.multiple(search.divisor(best)));
    let (base, peaks) = search.peaks(samples, period, first)?;
    Some(Pattern { period, false_alarm: exp(ln_chance), base, peaks })
}

/// The scores without the part that the previous sample predicts, if the autocorrelation is
/// significant: correlated noise would pass for a pattern of some long period.
///
/// Only for positive autocorrelation: a negative one may be the pattern itself.
fn whitened(samples: &[f64]) -> Option<Vec<f64>> {
    let scores = fold::scores(samples)?;
    let is_pair = |i: &usize| !samples[*i].is_nan() && !samples[*i - 1].is_nan();
    let pairs: Vec<usize> = (1..samples.len()).filter(is_pair).collect();
    let sum: f64 = pairs.iter().map(|i| scores[*i] * scores[*i - 1]).sum();
    let memory = sum / pairs.len() as f64;
    // Once in a hundred series of white noise.
    if memory * (pairs.len() as f64).sqrt() < 2.33 {
        return None;
    }
    let mut white = vec![f64::NAN; samples.len()];
    for i in pairs {
        white[i] = scores[i] - memory * scores[i - 1];
    }
    Some(white)
}

/// All periods, folded.
struct Search<'a> {
    samples: &'a [f64],
    scores: Vec<f64>,
    /// Whether a score is there.
    is_there: Option<Vec<f64>>,
    /// For each period from 2: what its folding gave.
    folded: Vec<Folded>,
    /// For each of them: by how much the variance of noise exceeds that of white noise.
    excess: Vec<f64>,
}

impl<'a> Search<'a> {
    /// `None` where there are too few samples for any period.
    fn new(samples: &'a [f64]) -> Option<Self> {
        let longest = (samples.len() / MIN_CYCLES).min(MAX_PERIOD);
        if longest < 2 {
            return None;
        }
        let scores = fold::scores(samples)?;
        let is_missing = samples.iter().any(|s| s.is_nan());
        let is_there = is_missing.then(|| samples.iter().map(|s| f64::from(!s.is_nan())).collect());
        let mut search = Self { samples, scores, is_there, folded: Vec::new(), excess: Vec::new() };
        search.folded = (2..=longest).map(|p| search.fold(&search.scores, p)).collect();
        search.excess = excess(&search.folded);
        Some(search)
    }

    /// As many scores as make whole periods, and whether each is present: then a drift affects all
    /// places of the period alike.
    fn whole<'s>(&'s self, scores: &'s [f64], period: usize) -> (&'s [f64], Option<&'s [f64]>) {
        let used = scores.len() / period * period;
        (&scores[..used], self.is_there.as_ref().map(|t| &t[..used]))
    }

    fn fold(&self, scores: &[f64], period: usize) -> Folded {
        let (scores, there) = self.whole(scores, period);
        Folded::of(scores, there, period)
    }

    fn excess_of(&self, period: usize) -> f64 {
        self.excess[period - 2]
    }

    /// The period that is least likely, and the logarithm of its probability.
    fn best(&self) -> Option<(usize, f64)> {
        let each = self.folded.iter().zip(&self.excess);
        let each = each.map(|(folded, excess)| (folded.period, folded.ln_chance(*excess)));
        let best = each.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let corrected = best.1 + log(self.folded.len() as f64);
        Some((best.0, corrected.min(0.0)))
    }

    /// The logarithm of the probability that a period explains no more than its divisor does, by
    /// the scores within the places of the divisor.
    fn ln_no_more(&self, within: &[f64], divisor: usize, period: usize) -> f64 {
        let (scores, there) = self.whole(within, period);
        Folded::within(scores, there, period, divisor).ln_chance(self.excess_of(period))
    }

    /// The shortest divisor of a period of which that is a mere repetition.
    fn divisor(&self, period: usize) -> usize {
        let primes = (2..=period).filter(|p| period.is_multiple_of(*p));
        let mut primes = primes.filter(|p| (2..*p).all(|d| !p.is_multiple_of(d)));
        let shorter = primes.find_map(|prime| {
            let shorter = Some(period / prime).filter(|shorter| *shorter >= 2)?;
            let within = fold::scores_within(self.samples, shorter);
            (self.ln_no_more(&within, shorter, period) > log(REPETITION)).then_some(shorter)
        });
        shorter.map_or(period, |shorter| self.divisor(shorter))
    }

    /// The multiple of a period that explains most beyond it; the period itself if none does.
    fn multiple(&self, period: usize) -> usize {
        let within = fold::scores_within(self.samples, period);
        let longest = self.folded.len() + 1;
        let count = (longest / period).saturating_sub(1) as f64;
        let multiples = (2 * period..=longest).step_by(period);
        let each = multiples.map(|m| (m, self.ln_no_more(&within, period, m) + log(count)));
        match each.min_by(|a, b| a.1.total_cmp(&b.1)) {
            // Check its divisors again: one between the two may explain as much.
            Some((longer, ln)) if ln < log(REPETITION) => {
                let between = self.divisor(longer);
                // Each single step may be insignificant, while all steps together are significant.
                self.multiple(if between > period { between } else { longer })
            }
            _ => period,
        }
    }

    /// The value of most places, and the places that differ from it.
    fn peaks(&self, samples: &[f64], period: usize, first: usize) -> Option<(f64, Vec<Peak>)> {
        let folded = self.fold(&fold::scores(samples)?, period);
        let medians = medians(samples, period);
        let (base, level) = (middle(&medians), middle(&folded.means));
        let deviation = folded.deviation_within(self.excess_of(period));
        let peak = |place: usize| {
            let z = (folded.means[place] - level).abs() * folded.counts[place].sqrt() / deviation;
            let chance = exp(ln_normal_tail(z) + log(2.0 * period as f64)).min(1.0);
            Peak { place: (first + place) % period, height: medians[place] - base, chance }
        };
        let is_peak = |peak: &Peak| peak.chance < FALSE_ALARM && peak.height != 0.0;
        let mut peaks: Vec<Peak> = (0..period).map(peak).filter(is_peak).collect();
        peaks.sort_by(|a, b| {
            let height = b.height.abs().total_cmp(&a.height.abs());
            height.then(a.place.cmp(&b.place))
        });
        Some((base, peaks))
    }
}

/// The shortest divisor of a period, or of a few times it, that is enough, see [`LOW`]; the period
/// itself if none is. By ranks alone, causes of periods 16 and 3 may look like one of period 24.
fn principal(samples: &[f64], period: usize) -> usize {
    let longest = (samples.len() / MIN_CYCLES).min(MAX_PERIOD);
    let mut multiples = (1..=MULTIPLES).map(|times| times * period).filter(|m| *m <= longest);
    multiples.find_map(|whole| enough(samples, whole)).unwrap_or(period)
}

/// The shortest divisor of a period that is enough.
fn enough(samples: &[f64], period: usize) -> Option<usize> {
    let whole = medians(samples, period);
    let is_enough = |shorter: &usize| {
        let part = medians(samples, *shorter);
        let base = middle(&part);
        let squares = |of: &dyn Fn(usize, f64) -> f64| -> f64 {
            let each = whole.iter().enumerate().map(|(at, median)| of(at % shorter, *median));
            each.filter(|v| !v.is_nan()).map(|v| v * v).sum()
        };
        let left = squares(&|at, median| median - part[at]);
        left <= LOW * squares(&|at, _| part[at] - base)
    };
    (2..period).filter(|shorter| period.is_multiple_of(*shorter)).find(is_enough)
}

/// The median at each place of a period; NaN where there is no sample.
fn medians(samples: &[f64], period: usize) -> Vec<f64> {
    let mut at: Vec<Vec<f64>> = vec![Vec::new(); period];
    for (i, sample) in samples.iter().enumerate().filter(|(_, s)| !s.is_nan()) {
        at[i % period].push(*sample);
    }
    let median = |samples: &mut Vec<f64>| {
        stats::sort(samples);
        stats::median(samples)
    };
    at.iter_mut().map(median).collect()
}

/// The middle value; the lower one of two, because peaks are what is slow.
fn middle(values: &[f64]) -> f64 {
    let mut values: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    stats::sort(&mut values);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// By how much the variance of noise exceeds that of white noise, for each period: the smallest
/// ratio among the periods around it, and at least 1. A pattern raises only its period, its
/// multiples and periods that share a divisor with it; noise raises all periods.
fn excess(folded: &[Folded]) -> Vec<f64> {
    let ratios: Vec<f64> = folded.iter().map(|f| f.squares / f.quantile(CALM)).collect();
    let of = |period: usize| {
        let reach = (period / 4).max(4);
        let (low, high) = (period.saturating_sub(reach).max(2), period + reach);
        let mut around: Vec<f64> =
            (low..=high).filter_map(|p| ratios.get(p - 2).copied()).collect();
        stats::sort(&mut around);
        stats::quantile(&around, CALM).max(1.0)
    };
    // Neighbours have nearly the same neighbourhood.
    let mut found: Vec<f64> = Vec::with_capacity(folded.len());
    for period in 2..folded.len() + 2 {
        let step = (period / 16).max(1);
        let again = (period - 2).is_multiple_of(step) || found.is_empty();
        found.push(if again { of(period) } else { found[found.len() - 1] });
    }
    found
}

#[cfg(test)]
mod tests;
