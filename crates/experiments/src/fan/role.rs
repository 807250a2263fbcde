//! The role of a rank in each part, and its results.

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};

use super::options::Fan;
use super::shape::parts;
use crate::common::effort::{Begin, Effort};
use crate::common::links::Links;
use crate::common::lockstep::Lockstep;
use crate::common::params::Common;

/// The work of a rank in a part, and its results at the end.
pub(crate) trait Role<R> {
    /// The `part`-th part, of so many repetitions.
    fn part(&mut self, rank: &R, part: usize, repetitions: u64) -> Result<(), Stopped>;

    /// Whether it has nothing to do.
    fn is_idle(&self) -> bool {
        false
    }

    /// Messages that it received.
    fn received(&self) -> u64;

    /// What it found; `all` is what each rank says of itself, where it still could.
    fn outcome(self, rank: &R, outcome: Outcome, all: &[(Effort, u64)]) -> Outcome;
}

/// A rank that has nothing to do at this point.
pub(super) struct Idle;

impl<R: Rank> Role<R> for Idle {
    fn part(&mut self, _: &R, _: usize, _: u64) -> Result<(), Stopped> {
        Ok(())
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn received(&self) -> u64 {
        0
    }

    fn outcome(self, _: &R, outcome: Outcome, _: &[(Effort, u64)]) -> Outcome {
        outcome
    }
}

pub(super) fn all_parts<R: Rank>(
    (common, own): (&Common, &Fan),
    rank: &R,
    links: &Links,
    mut role: impl Role<R>,
) -> Result<Outcome, Stopped> {
    let mut lockstep = Lockstep::new(rank, links).idle(role.is_idle());
    let mut effort = Effort::default();
    for (i, repetitions) in parts(common, own).into_iter().enumerate() {
        if !lockstep.goes_on()? {
            break;
        }
        let begin = Begin::now(rank);
        let result = role.part(rank, i, repetitions);
        begin.end(rank, &mut effort);
        lockstep.part_ended(result)?;
    }
    let mut words = effort.to_words().to_vec();
    words.push(role.received());
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let all = match lockstep.exchange(&bytes) {
        Ok(all) => all.iter().filter_map(|bytes| said(bytes)).collect(),
        Err(_) if lockstep.cut_short.is_some() => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut outcome = Outcome { cut_short: lockstep.cut_short, ..Outcome::default() };
    if !links.remotes.is_empty() {
        let size = common.size_bytes;
        links.facts(&mut outcome, !common.op.reads() && links.is_inline(common, size));
    }
    Ok(role.outcome(rank, outcome, &all))
}

fn said(bytes: &[u8]) -> Option<(Effort, u64)> {
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes);
    let words: Result<Vec<u64>, _> = bytes.chunks(8).map(word).collect();
    let words = words.ok()?;
    Some((Effort::from_words(&words)?, *words.get(Effort::WORDS)?))
}
