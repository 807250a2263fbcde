//! `fan`: one to many and back, as in viertel2006.
//!
//! Rank 0 exchanges messages with ranks 1 to n. In a repetition it sends to each of them, and each
//! answers as soon as its message has arrived. Rank 0 takes all times, from before its first post,
//! so that no clocks have to be compared. `--direction` says which of the two messages is long; the
//! other has one byte. With READ, rank 0 reads from all others, then tells them to read from it, by
//! a message for each or by one multicast of a byte; they measure that second time.
//!
//! If a message is lost on UC or UD, or the multicast before READs, its repetition ends after
//! `--lost-after` without a time, and the missing answers are counted. The last byte or the
//! immediate data of a message names its repetition, so that a late message is not taken for the
//! next one.

mod check;
mod ends;
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
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::Common;
use crate::common::rules::{Fault, refused};
use crate::workload::{ResultKind, ResultShape, Workload, transfer_ns};
use ends::Ends;
use leaf::Leaf;
pub(crate) use options::Fan;
use options::{Cast, DIRECTION, Direction, PEERS, SIZES, Sizes, TO};
use role::{Idle, all_parts};
use root::Root;

impl Workload for Fan {
    const NAME: &'static str = "fan";
    const SUMMARY: &'static str = "one to many and back: the time until all have answered, and \
        each of them, and how evenly they are served";
    const RANKS: RangeInclusive<usize> = 2..=1024;
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [TRANSPORT OP SIZE MESSAGES RUNS WARM_UP INLINE MTU SL TX_DEPTH RX_DEPTH]
        Common [OUTSTANDING_READS TOUCH MEMORY PORT GID_INDEX TIMEOUT RETRY_CNT RNR_RETRY]
        Common [MIN_RNR_TIMER]
        Own [PEERS DIRECTION TO SIZES]
        Common [LOST_AFTER SEED LINK SIM]
    };
    const COMMON: Common = Common {
        messages: 10_000,
        tx_depth: 16,
        rx_depth: 16,
        lost_after_ns: 250_000_000,
        ..Common::DEFAULT
    };
    const OWN: Self =
        Self { peers: 0, direction: Direction::Both, cast: Cast::Each, sizes: Sizes::Alone };

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

    fn results(&self, common: &Common) -> &'static [ResultShape] {
        match (self.sizes, common.op.reads()) {
            // Each size has series of its own.
            (Sizes::Series | Sizes::Random, _) => &[],
            (Sizes::Alone, true) => &[
                (Quantity::RoundTrip, "all peers", ResultKind::OfMessages),
                (Quantity::RoundTrip, "1:n", ResultKind::OfMessages),
                (Quantity::RoundTrip, "n:1", ResultKind::OfMessages),
                (Quantity::MessageTime, "least T/n", ResultKind::Figure),
                (Quantity::MessageTime, "1:n least T/n", ResultKind::Figure),
                (Quantity::MessageTime, "n:1 least T/n", ResultKind::Figure),
            ],
            (Sizes::Alone, false) => &[
                (Quantity::RoundTrip, "all peers", ResultKind::OfMessages),
                (Quantity::MessageTime, "least T/n", ResultKind::Figure),
            ],
        }
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
        let place = (rank, context, limits);
        let is_call = common.op.reads() && self.cast == Cast::Group;
        let cast = if is_call { Cast::Each } else { self.cast };
        let ends = Ends::connect(place, common.clone(), self, &to, cast)?;
        let connect = || Ends::connect(place, ends::call(common), self, &to, Cast::Group);
        let call_ends = is_call.then(connect).transpose()?;
        let links = &ends.links;
        let exchange = ends.exchange(rank, self, true)?;
        // Rank 0 sends the multicasts that start READs, and gets none.
        let hears = rank.index() > 0;
        let call = call_ends.as_ref().map(|call| call.exchange(rank, self, hears)).transpose()?;
        let both = (common, self);
        match rank.index() {
            0 => all_parts(both, rank, links, Root::new(exchange, call, peers)),
            leaf if leaf <= peers => all_parts(both, rank, links, Leaf::new(exchange, call)),
            _ => all_parts(both, rank, links, Idle),
        }
    }
}
