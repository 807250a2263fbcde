//! The reading half of a node that subscribes.

use std::time::Duration;

use rdmalab_sample::{Collector, Format, Handle, Pool, Signal};

use super::peers::Peers;
use super::wire::Heard;
use crate::keys::VECTORIZE_MAX;
use crate::node::{NodeCounts, Source, SourceState, stamp};

/// The reading half.
pub struct Subscribing {
    peers: Peers,
    format: Box<dyn Format>,
    signals: Vec<Signal>,
    had_peer: bool,
    /// A publisher came after all others had gone, which is told before its samples.
    has_restarted: bool,
    has_told: bool,
    counts: NodeCounts,
}

impl Subscribing {
    /// Reads samples of these signals.
    pub fn new(
        peers: Peers,
        format: Box<dyn Format>,
        signals: &[Signal],
        counts: &NodeCounts,
    ) -> Self {
        Self {
            peers,
            format,
            signals: signals.to_vec(),
            had_peer: false,
            has_restarted: false,
            has_told: false,
            counts: counts.clone(),
        }
    }

    /// Takes the samples that have come.
    fn take(&mut self, pool: &mut Pool, to: &mut Vec<Handle>) {
        let Self { peers, format, signals, had_peer, has_restarted, counts, .. } = self;
        let mut wrong = None;
        peers.hear(|heard, open| match heard {
            Heard::Opened => {
                *has_restarted = std::mem::replace(had_peer, true) && open == 0;
                !*has_restarted
            }
            Heard::Message(samples) => {
                let mut into = Collector::new(pool, to, VECTORIZE_MAX);
                if let Err(why) = into.message(&**format, samples, signals) {
                    counts.garbage.add(1);
                    wrong.get_or_insert(why);
                }
                drop(into);
                to.len() < VECTORIZE_MAX
            }
        });
        stamp(pool, to);
        if let Some(why) = wrong
            && !std::mem::replace(&mut self.has_told, true)
        {
            self.peers.tell(format!("no sample: {why}"));
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
        if std::mem::take(&mut self.has_restarted) {
            return Ok(SourceState::Restarted);
        }
        self.take(pool, to);
        if to.is_empty() && !self.has_restarted {
            self.peers.look(patience)?;
            self.take(pool, to);
        }
        Ok(SourceState::Open)
    }
}
