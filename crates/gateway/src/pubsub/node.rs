//! A node that publishes and subscribes, by any protocol.

use std::sync::Arc;

use rdmalab_sample::Signal;

use super::Endpoint;
use super::peers::Peers;
use super::publish::Publishing;
use super::subscribe::Subscribing;
use super::wire::{Role, Wire};
use crate::format::FormatChoice;
use crate::node::{Node, NodeCounts, Sink, Source, World};

/// Makes the state machine of a new connection: for this role, over ipc or not.
pub type MakeWire = dyn Fn(Role, bool) -> Box<dyn Wire> + Send + Sync;

/// The node.
pub struct PubSub {
    /// Its name.
    pub name: String,
    /// The form of samples.
    pub format: FormatChoice,
    /// The signals of samples that it reads.
    pub signals: Vec<Signal>,
    /// Where it reads.
    pub from: Vec<Endpoint>,
    /// Where it writes.
    pub to: Vec<Endpoint>,
    /// Samples that wait at most for each subscriber.
    pub queuelen: usize,
    /// Its protocol.
    pub make: Arc<MakeWire>,
    /// What it counts.
    pub counts: NodeCounts,
}

impl PubSub {
    fn peers(&self, role: Role, world: &World) -> Result<Peers, String> {
        let endpoints = if role == Role::Publisher { &self.to } else { &self.from };
        let all = self.make.clone();
        let make = Box::new(move |is_ipc| all(role, is_ipc));
        Peers::open(endpoints, make, &self.name, world, &self.counts)
    }
}

impl Node for PubSub {
    fn signals(&self) -> &[Signal] {
        &self.signals
    }

    fn source(&mut self, world: &World) -> Result<Box<dyn Source>, String> {
        let (peers, format) = (self.peers(Role::Subscriber, world)?, self.format.build());
        Ok(Box::new(Subscribing::new(peers, format, &self.signals, &self.counts)))
    }

    fn sink(&mut self, world: &World, signals: &[Signal]) -> Result<Box<dyn Sink>, String> {
        let (peers, format) = (self.peers(Role::Publisher, world)?, self.format.build());
        Ok(Box::new(Publishing::new(peers, format, signals, self.queuelen)))
    }

    fn counts(&self) -> NodeCounts {
        self.counts.clone()
    }
}
