//! `zeromq`: samples to and from sockets of ZeroMQ of the types PUB and SUB, each sample a message
//! of the format.
//!
//! - `zmtp`: the protocol.

mod zmtp;

use rdmalab_config::{At, ConfigError, OneOrMany, group, one_of};
use zmtp::Zmtp;

use crate::format::FormatChoice;
use crate::keys::{InCommon, NodeCommon, OutCommon, signals_or_default};
use crate::node::Node;
use crate::pubsub::{Endpoint, PubSub};

one_of! {
    /// The types of sockets.
    pub enum Pattern {
        /// PUB and SUB.
        Pubsub = "pubsub";
    }
    refused { "radiodish" => "use pubsub: the types RADIO and DISH are drafts of ZeroMQ"; }
}

group! {
    /// The reading half, a SUB.
    pub struct In with (common: InCommon) {
        /// The endpoints of publishers: `tcp://HOST:PORT` or `ipc://PATH`.
        subscribe: Option<OneOrMany<At<String>>>;
        /// With what messages must begin. Then the samples are behind their first part.
        filter: Option<String>;
        /// Listens at the endpoints, where publishers connect to.
        bind: bool = false;
    }
}

group! {
    /// The writing half, a PUB.
    pub struct Out with (common: OutCommon) {
        /// The endpoints where subscribers connect to: `tcp://*:PORT` or `ipc://PATH`.
        publish: Option<OneOrMany<At<String>>>;
        /// The first part of each message. The samples are the second one.
        filter: Option<String>;
        /// Listens at the endpoints; else it connects to them.
        bind: bool = true;
        /// Samples that wait at most for each subscriber; further ones are dropped.
        queuelen: usize = 1000, in 1..=1_048_576;
    }
}

group! {
    /// Samples over ZeroMQ.
    pub struct Config with (common: NodeCommon) {
        /// The types of its sockets.
        pattern: Pattern = Pattern::Pubsub;
        /// Whether `*` includes addresses of IPv6.
        ipv6: bool = false;
        /// The form of samples.
        format: FormatChoice = FormatChoice::named("villas.binary");
        /// The reading half.
        r#in: Option<In>;
        /// The writing half.
        out: Option<Out>;
    }
    refused { curve: "use a tunnel, such as ssh's: connections are not encrypted"; }
}

impl Config {
    /// Whether it subscribes to an endpoint.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.r#in.as_ref().is_some_and(|half| half.subscribe.is_some())
    }

    /// Whether it publishes at an endpoint.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.out.as_ref().is_some_and(|half| half.publish.is_some())
    }

    /// The node.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn node(self, name: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        let signals = signals_or_default(self.r#in.as_ref().map(|half| &half.common));
        let mut node = PubSub::new(&name.value, self.format, signals, |role, _is_ipc, filter| {
            Box::new(Zmtp::new(role, filter))
        });
        if let Some(half) = self.r#in {
            let from = Endpoint::all(half.subscribe.as_ref(), half.bind, self.ipv6)?;
            node.reads(from, half.filter);
        }
        if let Some(half) = self.out {
            let to = Endpoint::all(half.publish.as_ref(), half.bind, self.ipv6)?;
            node.writes(to, half.filter, half.queuelen);
        }
        Ok(Box::new(node))
    }
}
