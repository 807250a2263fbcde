//! `fan`: one to many and back, as in viertel2006.
//!
//! Rank 0 exchanges messages with ranks 1 to n. In a repetition it sends to each of them, and each
//! answers as soon as its message has arrived. Rank 0 takes all times, from before its first post,
//! so that no clocks have to be compared. `--direction` says which of the two messages is long; the
//! other has one byte. With READ, rank 0 reads from all others, then tells them to read from it;
//! they measure that second time.
//!
//! If a message is lost on UC or UD, its repetition ends after `--lost-after` without a time, and
//! the missing answers are counted. The last byte or the immediate data of a message names its
//! repetition, so that a late message is not taken for the next one.

mod check;
mod exchange;
mod group;
mod leaf;
mod options;
mod result;
mod role;
mod root;
mod shape;

use std::ops::RangeInclusive;

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use crate::common::limits::Limits;
use crate::common::links::{LinkOptions, Links};
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::{Common, Transport};
use crate::common::rules::{Fault, refused};
use crate::workload::{Workload, transfer_ns};
use exchange::Exchange;
use group::Group;
use leaf::Leaf;
pub(crate) use options::Fan;
use options::{Cast, DIRECTION, Direction, LOST_AFTER, PEERS, SIZES, Sizes, TO};
use role::{Idle, all_parts};
use root::Root;
use shape::Shape;

impl Workload for Fan {
    const NAME: &'static str = "fan";
    const SUMMARY: &'static str = "one to many and back: the time until all have answered, and \
        each of them, and how evenly they are served";
    const RANKS: RangeInclusive<usize> = 2..=1024;
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [TRANSPORT OP SIZE MESSAGES RUNS WARM_UP INLINE MTU SL TX_DEPTH RX_DEPTH]
        Common [OUTSTANDING_READS TOUCH MEMORY PORT GID_INDEX TIMEOUT RETRY_CNT RNR_RETRY]
        Common [MIN_RNR_TIMER]
        Own [PEERS DIRECTION TO SIZES LOST_AFTER]
        Common [SEED LINK SIM]
    };
    const COMMON: Common =
        Common { messages: 10_000, tx_depth: 16, rx_depth: 16, ..Common::DEFAULT };
    const OWN: Self = Self {
        peers: 0,
        direction: Direction::Both,
        cast: Cast::Each,
        sizes: Sizes::Alone,
        lost_after_ns: 250_000_000,
    };

    fn check(&self, common: &Common, limits: &Limits) -> Result<(), Fault> {
        check::check(common, self, limits)
    }

    fn check_ranks(&self, ranks: usize) -> Result<(), Fault> {
        check::peers(self, ranks).map(drop)
    }

    fn quantities(&self, _: &Common) -> Vec<Quantity> {
        vec![
            Quantity::RoundTrip,
            Quantity::CompletionTime,
            Quantity::MessageTime,
            Quantity::Fairness,
        ]
    }

    fn message_ns(&self, common: &Common) -> f64 {
        2000.0 * f64::from(self.peers.max(3)) + 2.0 * transfer_ns(common)
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        let peers = check::peers(self, rank.count()).map_err(refused)?;
        let exact = Fan { peers: peers as u32, ..self.clone() };
        check::check(common, &exact, limits).map_err(refused)?;
        let to: Vec<usize> = match rank.index() {
            0 => (1..=peers).collect(),
            leaf if leaf <= peers => vec![0],
            _ => Vec::new(),
        };
        let is_ud = common.transport == Transport::Ud;
        // One queue for what several may say at once.
        let share = if is_ud { to.len().max(1) as u32 } else { 1 };
        let rx = common.rx_depth.saturating_mul(share).min(limits.max_qp_wr);
        let tx = common.tx_depth.saturating_add(share).min(limits.max_qp_wr);
        let shape = Shape::of(common, if is_ud { rx as usize } else { to.len().max(1) });
        let inline =
            shape::sizes(common, self).into_iter().map(|s| common.inline.wanted_bytes(s)).max();
        let want = LinkOptions {
            to: &to,
            bytes: shape.bytes(),
            inline: inline.unwrap_or(0),
            tx,
            rx,
            srq: false,
            max_sge: 1,
        };
        let links = Links::connect(rank, context, limits, common, &want)?;
        let group = match self.cast {
            Cast::Each => Group::default(),
            Cast::Group => Group::join(rank, context, limits, &links, common)?,
        };
        let exchange = Exchange::new(rank, (common, self), &links, shape, rx, group.ah())?;
        match rank.index() {
            0 => all_parts((common, self), rank, &links, Root::new(exchange, peers)),
            leaf if leaf <= peers => all_parts((common, self), rank, &links, Leaf::new(exchange)),
            _ => all_parts((common, self), rank, &links, Idle),
        }
    }
}
