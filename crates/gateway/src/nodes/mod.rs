//! The node-types, each in a file of its own.

pub mod file;
pub mod infiniband;
pub mod loopback;
pub mod nanomsg;
pub mod shmem;
pub mod signal;
pub mod socket;
pub mod stats;
pub mod test_rtt;
pub mod zeromq;

use rdmalab_config::{At, ConfigError, tagged};

use crate::hooks::HookChoice;
use crate::keys::{Half, OutCommon};
use crate::node::Node;

tagged! {
    /// A node.
    pub enum NodeConfig by "type" {
        /// Samples that are computed, at a fixed rate.
        Signal(signal::legacy::Config) = "signal";
        /// The same, each signal with keys of its own.
        SignalV2(signal::v2::Config) = "signal.v2";
        /// Samples in files.
        File(file::Config) = "file";
        /// Samples that are written come back.
        Loopback(loopback::Config) = "loopback";
        /// Samples between two processes of one host, in shared memory.
        Shmem(shmem::Config) = "shmem";
        /// Samples over UDP, TCP or a Unix socket.
        Socket(socket::Config) = "socket";
        /// Samples over ZeroMQ.
        Zeromq(zeromq::Config) = "zeromq";
        /// Samples over nanomsg.
        Nanomsg(nanomsg::Config) = "nanomsg";
        /// Samples over InfiniBand, RoCE, or a soft device.
        Infiniband(infiniband::Config) = "infiniband";
        /// Statistics of other nodes, at a fixed rate.
        Stats(stats::Config) = "stats";
        /// Round trips over another node, case after case.
        TestRtt(test_rtt::Config) = "test_rtt";
    }
    refused {
        "exec" => "start the program beside the gateway, and connect both with socket";
        "websocket" => "use socket";
        "mqtt" => "use socket";
    }
}

impl NodeConfig {
    /// The checked node.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn node(self, name: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        match self {
            Self::Signal(config) => config.node(name),
            Self::SignalV2(config) => config.node(name),
            Self::File(config) => config.node(name),
            Self::Loopback(config) => config.node(name),
            Self::Shmem(config) => config.node(name),
            Self::Socket(config) => config.node(name),
            Self::Zeromq(config) => config.node(name),
            Self::Nanomsg(config) => config.node(name),
            Self::Infiniband(config) => config.node(name),
            Self::Stats(config) => config.node(name),
            Self::TestRtt(config) => config.node(name),
        }
    }

    /// Whether the node is there.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.common().enabled
    }

    /// Whether samples that it reads are stamped and numbered.
    #[must_use]
    pub fn is_builtin(&self) -> bool {
        self.common().builtin && self.halves().0.is_none_or(|half| half.builtin)
    }

    /// The hooks of its halves: those of reading and of writing.
    #[must_use]
    pub fn hooks(&self) -> [Vec<At<HookChoice>>; 2] {
        let (reads, writes) = self.halves();
        let reads = reads.map(|half| half.hooks.clone()).unwrap_or_default();
        [reads, writes.map(|half| half.hooks.clone()).unwrap_or_default()]
    }

    /// The keys that halves have in common.
    fn halves(&self) -> (Option<&Half>, Option<&OutCommon>) {
        match self {
            Self::Signal(config) => (config.r#in.as_ref().map(|half| &half.half), None),
            Self::SignalV2(config) => (Some(&config.r#in.half), None),
            Self::Stats(config) => (Some(&config.r#in.half), None),
            Self::TestRtt(config) => config.halves(),
            Self::File(config) => (
                config.r#in.as_ref().map(|half| &half.common.half),
                config.out.as_ref().map(|half| &half.common),
            ),
            Self::Loopback(config) => {
                (config.r#in.as_ref().map(|half| &half.half), config.out.as_ref())
            }
            Self::Shmem(config) => (Some(&config.r#in.common.half), Some(&config.out.common)),
            Self::Socket(config) => (
                config.r#in.as_ref().map(|half| &half.common.half),
                config.out.as_ref().map(|half| &half.common),
            ),
            Self::Zeromq(config) => (
                config.r#in.as_ref().map(|half| &half.common.half),
                config.out.as_ref().map(|half| &half.common),
            ),
            Self::Nanomsg(config) => (
                config.r#in.as_ref().map(|half| &half.common.half),
                config.out.as_ref().map(|half| &half.common),
            ),
            Self::Infiniband(config) => (
                config.r#in.as_ref().map(|half| &half.common.half),
                config.out.as_ref().map(|half| &half.common),
            ),
        }
    }

    /// Why it cannot be a source, if it cannot.
    #[must_use]
    pub fn cannot_read(&self) -> Option<&'static str> {
        match self {
            _ if self.halves().0.is_some_and(|half| !half.enabled) => Some("its in is not enabled"),
            Self::Socket(config) if config.r#in.is_none() => Some("it has no in.address"),
            Self::Zeromq(config) if !config.reads() => Some("it has no in.subscribe"),
            Self::Nanomsg(config) if !config.reads() => Some("it has no in.endpoints"),
            Self::Infiniband(config) if config.r#in.is_none() => Some("it has no in"),
            _ => None,
        }
    }

    /// Why it cannot be a destination, if it cannot.
    #[must_use]
    pub fn cannot_write(&self) -> Option<&'static str> {
        match self {
            _ if self.halves().1.is_some_and(|half| !half.enabled) => {
                Some("its out is not enabled")
            }
            Self::Signal(_) | Self::SignalV2(_) | Self::Stats(_) => Some("it computes samples"),
            Self::Socket(config) if config.out.is_none() => Some("it has no out.address"),
            Self::Zeromq(config) if !config.writes() => Some("it has no out.publish"),
            Self::Nanomsg(config) if !config.writes() => Some("it has no out.endpoints"),
            _ => None,
        }
    }

    /// Whether the samples of a path that reads it must lie in its memory.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        matches!(self, Self::Infiniband(_))
    }

    fn common(&self) -> &crate::keys::NodeCommon {
        match self {
            Self::Signal(config) => &config.common,
            Self::SignalV2(config) => &config.common,
            Self::File(config) => &config.common,
            Self::Loopback(config) => &config.common,
            Self::Shmem(config) => &config.common,
            Self::Socket(config) => &config.common,
            Self::Zeromq(config) => &config.common,
            Self::Nanomsg(config) => &config.common,
            Self::Infiniband(config) => &config.common,
            Self::Stats(config) => &config.common,
            Self::TestRtt(config) => &config.common,
        }
    }
}
