//! A node that publishes and subscribes, by any protocol.

use rdmalab_sample::Signal;

use super::Endpoint;
use super::peers::Peers;
use super::publish::Publishing;
use super::subscribe::Subscribing;
use super::wire::{Role, Wire};
use crate::decoder::Decoder;
use crate::format::FormatChoice;
use crate::node::{Node, NodeCounts, Sink, Source, World};

/// Makes the state machine of a new connection: for this role, over ipc or not, with the filter of
/// the half.
pub type MakeWire = fn(Role, bool, Option<&str>) -> Box<dyn Wire>;

/// The node.
pub struct PubSub {
    name: String,
    format: FormatChoice,
    /// The signals of samples that it reads.
    pub signals: Vec<Signal>,
    /// Where it reads, and with what messages must begin there.
    from: (Vec<Endpoint>, Option<String>),
    /// The same where it writes.
    to: (Vec<Endpoint>, Option<String>),
    /// Samples that wait at most for each subscriber.
    queuelen: usize,
    /// Its protocol.
    make: MakeWire,
    /// What it counts.
    pub counts: NodeCounts,
}

impl PubSub {
    /// A node of this protocol without endpoints.
    pub fn new(name: &str, format: FormatChoice, signals: Vec<Signal>, make: MakeWire) -> Self {
        Self {
            name: name.to_owned(),
            format,
            signals,
            from: Default::default(),
            to: Default::default(),
            queuelen: 1,
            make,
            counts: NodeCounts::default(),
        }
    }

    /// Reads at these endpoints.
    pub fn reads(&mut self, endpoints: Vec<Endpoint>, filter: Option<String>) {
        self.from = (endpoints, filter);
    }

    /// Writes at these endpoints; so many samples wait at most for each subscriber.
    pub fn writes(&mut self, endpoints: Vec<Endpoint>, filter: Option<String>, queuelen: usize) {
        (self.to, self.queuelen) = ((endpoints, filter), queuelen);
    }

    fn peers(&self, role: Role, world: &World) -> Result<Peers, String> {
        let half = if role == Role::Publisher { &self.to } else { &self.from };
        let (filter, make) = (half.1.clone(), self.make);
        let make = Box::new(move |is_ipc| make(role, is_ipc, filter.as_deref()));
        Peers::open(&half.0, make, &self.name, world, &self.counts)
    }
}

impl Node for PubSub {
    fn signals(&self) -> &[Signal] {
        &self.signals
    }

    fn source(&mut self, world: &World) -> Result<Box<dyn Source>, String> {
        let peers = self.peers(Role::Subscriber, world)?;
        let decoder = Decoder::new(self.format.build(), &self.signals);
        Ok(Box::new(Subscribing::new(peers, decoder, &self.counts)))
    }

    fn sink(&mut self, world: &World, signals: &[Signal]) -> Result<Box<dyn Sink>, String> {
        let (peers, format) = (self.peers(Role::Publisher, world)?, self.format.build());
        Ok(Box::new(Publishing::new(peers, format, signals, self.queuelen)))
    }

    fn counts(&self) -> NodeCounts {
        self.counts.clone()
    }
}
