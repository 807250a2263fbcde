//! `fan`: one to many and back, as in viertel2006.
//!
//! Rank 0 has to do with ranks 1 to n. In a repetition it sends to each of them, and each answers
//! as soon as its message is there; all times are rank 0's, from before its first post. So no clock
//! has to agree with another one. Which of the two messages is long says `--direction`; the other
//! one has one byte. With READ, rank 0 reads from all others, then tells them to read from it;
//! these times are theirs.
//!
//! A message of UC or UD that does not come ends its repetition after `--lost-after`: the
//! repetition has no time, and whose answer is missing is counted. Messages say by their last byte,
//! or their immediate data, which repetition they belong to, so what comes late is not taken for
//! the next one.

mod check;
mod desk;
mod group;
mod leaf;
pub(crate) mod options;
mod result;
mod root;
mod shape;

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::completions::failed;
use crate::common::limits::Limits;
use crate::common::links::{Links, Want};
use crate::common::lockstep::{Begin, Course, Effort};
use crate::point::{Point, Transport};
pub(crate) use check::check;
pub use check::peers;
use desk::Desk;
use group::Group;
use leaf::Leaf;
use root::Root;
use shape::{Shape, parts};

/// Repetitions of a point, warm-up included.
pub(crate) fn repetitions(point: &Point) -> u64 {
    parts(point).iter().fold(0, |sum, part| sum.saturating_add(*part))
}

/// Runs it.
pub(crate) fn run<R: Rank>(
    rank: &R,
    context: &Context,
    limits: &Limits,
    point: &Point,
) -> Result<Outcome, Stopped> {
    let peers = peers(point, rank.count()).map_err(failed)?;
    let exact = Point { peers: peers as u32, ..point.clone() };
    crate::check::check(&exact, limits).map_err(failed)?;
    let to: Vec<usize> = match rank.index() {
        0 => (1..=peers).collect(),
        leaf if leaf <= peers => vec![0],
        _ => Vec::new(),
    };
    let is_ud = point.transport == Transport::Ud;
    // One queue for what several may say at once.
    let share = if is_ud { to.len().max(1) as u32 } else { 1 };
    let rx = point.rx_depth.saturating_mul(share).min(limits.max_qp_wr);
    let tx = point.tx_depth.saturating_add(share).min(limits.max_qp_wr);
    let shape = Shape::of(point, if is_ud { rx as usize } else { to.len().max(1) });
    let inline = shape::sizes(point).into_iter().map(|s| point.inline.wanted_bytes(s)).max();
    let want = Want {
        to: &to,
        bytes: shape.bytes(),
        inline: inline.unwrap_or(0),
        tx,
        rx,
        srq: false,
        max_sge: 1,
    };
    let links = Links::connect(rank, context, limits, point, &want)?;
    let group = Group::join(rank, context, limits, &links, point)?;
    let desk = Desk::new(rank, &links, point, shape, rx, group.ah())?;
    match rank.index() {
        0 => all_parts(rank, &links, point, Root::new(desk, peers)),
        leaf if leaf <= peers => all_parts(rank, &links, point, Leaf::new(desk)),
        _ => all_parts(rank, &links, point, Idle),
    }
}

/// What a rank does in a part, and what it has in the end.
pub(crate) trait Role<R> {
    /// The `part`-th part, of so many repetitions.
    fn part(&mut self, rank: &R, part: usize, repetitions: u64) -> Result<(), Stopped>;

    /// Whether it has nothing to do.
    fn is_idle(&self) -> bool {
        false
    }

    /// Messages that it heard.
    fn heard(&self) -> u64;

    /// What it found; `all` is what each rank says of itself, where it still could.
    fn outcome(self, rank: &R, outcome: Outcome, all: &[(Effort, u64)]) -> Outcome;
}

/// A rank that has nothing to do at this point.
struct Idle;

impl<R: Rank> Role<R> for Idle {
    fn part(&mut self, _: &R, _: usize, _: u64) -> Result<(), Stopped> {
        Ok(())
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn heard(&self) -> u64 {
        0
    }

    fn outcome(self, _: &R, outcome: Outcome, _: &[(Effort, u64)]) -> Outcome {
        outcome
    }
}

fn all_parts<R: Rank>(
    rank: &R,
    links: &Links,
    point: &Point,
    mut role: impl Role<R>,
) -> Result<Outcome, Stopped> {
    let mut course = Course::new(rank, links).idle(role.is_idle());
    let mut effort = Effort::default();
    for (i, repetitions) in parts(point).into_iter().enumerate() {
        if !course.goes_on()? {
            break;
        }
        let begin = Begin::now(rank);
        let result = role.part(rank, i, repetitions);
        begin.end(rank, &mut effort);
        course.took(result)?;
    }
    let mut words = effort.to_words().to_vec();
    words.push(role.heard());
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let all = match course.exchange(&bytes) {
        Ok(all) => all.iter().filter_map(|bytes| said(bytes)).collect(),
        Err(_) if course.cut_short.is_some() => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut outcome = Outcome { cut_short: course.cut_short, ..Outcome::default() };
    if !links.far.is_empty() {
        let size = point.size_bytes;
        links.facts(&mut outcome, !point.op.reads() && links.is_inline(point, size));
    }
    Ok(role.outcome(rank, outcome, &all))
}

fn said(bytes: &[u8]) -> Option<(Effort, u64)> {
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes);
    let words: Result<Vec<u64>, _> = bytes.chunks(8).map(word).collect();
    let words = words.ok()?;
    Some((Effort::from_words(&words)?, *words.get(Effort::WORDS)?))
}
