//! The reading half of a node that subscribes.

use std::time::Duration;

use rdmalab_sample::{DecodeError, Handle, Pool};

use super::peers::Peers;
use super::wire::Heard;
use crate::decoder::Decoder;
use crate::keys::VECTORIZE_MAX;
use crate::node::{NodeCounts, Source, SourceState, stamp};

/// The reading half.
pub struct Subscribing {
    peers: Peers,
    decoder: Decoder,
    had_peer: bool,
    /// A publisher came after all others had gone, and its first sample has not come yet.
    is_new: bool,
    /// The number of the latest sample.
    latest: Option<u64>,
    has_told: bool,
    counts: NodeCounts,
}

impl Subscribing {
    /// Reads samples.
    pub fn new(peers: Peers, decoder: Decoder, counts: &NodeCounts) -> Self {
        Self {
            peers,
            decoder,
            had_peer: false,
            is_new: false,
            latest: None,
            has_told: false,
            counts: counts.clone(),
        }
    }

    /// Takes the samples that have come, not those from before and after a new connection at once.
    fn take(&mut self, pool: &mut Pool, to: &mut Vec<Handle>) -> SourceState {
        let Self { peers, decoder, had_peer, is_new, counts, .. } = self;
        let (mut wrong, mut is_first) = (None, *is_new);
        let mut decoded = |decoded: Result<(), DecodeError>| {
            if let Err(why) = decoded {
                counts.garbage.add(1);
                wrong.get_or_insert(why);
            }
        };
        decoded(decoder.rest(pool, to));
        // Samples keep their order.
        let has_room = to.is_empty() && !decoder.has_rest();
        let mut hear = |heard: Heard<'_>, open| match heard {
            Heard::Opened => {
                let begins = std::mem::replace(had_peer, true) && open == 0;
                if begins {
                    (*is_new, is_first) = (true, to.is_empty());
                }
                !begins || is_first
            }
            Heard::Message(samples) => {
                decoded(decoder.message(samples, pool, to));
                to.len() < VECTORIZE_MAX && !decoder.has_rest()
            }
        };
        if has_room {
            peers.hear(&mut hear);
            stamp(pool, to);
        }
        if let Some(why) = wrong
            && !std::mem::replace(&mut self.has_told, true)
        {
            self.peers.tell(format!("no sample: {why}"));
        }
        let (Some(first), Some(last)) = (to.first(), to.last()) else { return SourceState::Open };
        let (first, last) = (pool.get(first).sequence(), pool.get(last).sequence());
        let latest = std::mem::replace(&mut self.latest, last);
        // Higher numbers go on: what was published without a connection is lost.
        let goes_on = first.zip(latest).is_some_and(|(first, latest)| first > latest);
        match is_first && std::mem::take(&mut self.is_new) && !goes_on {
            true => SourceState::Restarted,
            false => SourceState::Open,
        }
    }
}

impl Source for Subscribing {
    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<SourceState, String> {
        let state = self.take(pool, to);
        if !to.is_empty() {
            return Ok(state);
        }
        self.peers.look(patience)?;
        Ok(self.take(pool, to))
    }
}
